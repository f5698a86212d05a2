//! Requests to RabbitMQ's management API as anybody may send them: each is answered, none with a fault of the server, and what is refused
//! leaves a server that answers.
//!
//! Each request is a few bytes that choose a method, parts of a path, a query and a body out of words that the API knows, or bytes as
//! they come.

#![no_main]

use axum::body::Body;
use axum::http::Request as HttpRequest;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use libfuzzer_sys::fuzz_target;
use polylogue_amqp_gateway::AmqpMachine;
use polylogue_amqp_model::Limits;
use polylogue_api::{Catalog, MachineId, Now, Request, StateMachine, Token};
use polylogue_broker::{Broker, BrokerConfig};
use polylogue_env::sim::SimWorld;
use polylogue_net::handle::{Backup, BrokerHandle, BrokerStatus, PartitionStatus, ReplySink, SessionId};
use polylogue_net::memory::Memory;
use polylogue_net::{AnswerGauge, Connections, Lanes, NetMetrics, OutputGauge, Shared, Workers};
use polylogue_rabbitmq_http::{From, Management, router};
use polylogue_replicate::Work;
use polylogue_types::PartitionId;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;

/// What paths are made of.
const PARTS: &[&str] = &[
    "overview",
    "queues",
    "exchanges",
    "bindings",
    "vhosts",
    "users",
    "permissions",
    "topic-permissions",
    "policies",
    "operator-policies",
    "parameters",
    "global-parameters",
    "vhost-limits",
    "user-limits",
    "definitions",
    "connections",
    "channels",
    "consumers",
    "nodes",
    "health",
    "checks",
    "aliveness-test",
    "feature-flags",
    "whoami",
    "extensions",
    "auth",
    "rebalance",
    "%2F",
    "%2F",
    "%2F",
    "q",
    "q",
    "x",
    "x",
    "e",
    "source",
    "destination",
    "get",
    "publish",
    "contents",
    "bindings",
    "guest",
    "u",
    "v",
    "p",
    "amq.topic",
    "amq.direct",
    "amq.default",
    "max-connections",
    "max-queues",
    "alarms",
    "port-listener",
    "5672",
    "%C3%A4",
    "%00",
    "~",
    "",
    "..",
    "vhost-limits",
    "policy",
    "bulk-delete",
    "without-permissions",
    "hash_password",
    "cluster-name",
    "shovels",
    "shovel",
    "federation-links",
    "federation-upstream",
    "federation-upstream-set",
    "vhost",
    "restart",
];
/// Paths that are whole: words in the right order are rare.
const PATHS: &[&str] = &[
    "/api/parameters/shovel/%2F/q",
    "/api/parameters/shovel/%2F/q",
    "/api/parameters/federation-upstream/%2F/q",
    "/api/parameters/federation-upstream-set/%2F/q",
    "/api/federation-links",
    "/api/federation-links/%2F",
    "/api/federation-links/vhost/%2F/q/n/restart",
    "/api/shovels",
    "/api/shovels/%2F/q",
    "/api/shovels/vhost/%2F/q",
    "/api/shovels/vhost/%2F/q/restart",
];
const QUERIES: &[&str] = &[
    "",
    "",
    "page=1&page_size=2",
    "columns=name,messages",
    "sort=name&sort_reverse=true",
    "name=q&use_regex=true",
    "use_regex=true&name=(",
    "page=-1",
    "disable_stats=true",
    "if-unused=true",
    "vhost=%2F",
    "lengths_age=60&lengths_incr=5",
];
const KEYS: &[&str] = &[
    "durable",
    "auto_delete",
    "arguments",
    "type",
    "internal",
    "routing_key",
    "payload",
    "payload_encoding",
    "properties",
    "count",
    "ackmode",
    "encoding",
    "truncate",
    "password",
    "password_hash",
    "tags",
    "configure",
    "write",
    "read",
    "pattern",
    "definition",
    "priority",
    "apply-to",
    "value",
    "vhost",
    "name",
    "component",
    "exchange",
    "users",
    "queues",
    "bindings",
    "destination",
    "src-uri",
    "src-queue",
    "src-exchange",
    "src-exchange-key",
    "src-prefetch-count",
    "src-delete-after",
    "src-queue-args",
    "dest-uri",
    "dest-queue",
    "dest-exchange",
    "dest-add-forward-headers",
    "dest-publish-properties",
    "ack-mode",
    "reconnect-delay",
    "uri",
    "upstream",
    "upstream-set",
    "federation-upstream",
    "federation-upstream-set",
    "federation-upstream-pattern",
    "prefetch-count",
    "max-hops",
    "expires",
    "message-ttl",
    "queue",
    "queue-type",
    "consumer-tag",
    "trust-user-id",
];
const VALUES: &[&str] = &[
    "true",
    "false",
    "0",
    "1",
    "-1",
    "99999999999999999999",
    "1.5",
    "null",
    "\"\"",
    "\"q\"",
    "\"x\"",
    "\"guest\"",
    "\"topic\"",
    "\"quorum\"",
    "\"string\"",
    "\"auto\"",
    "\"ack_requeue_true\"",
    "\".*\"",
    "\"(\"",
    "[]",
    "[\"a\",1,{}]",
    "{}",
    "{\"x-max-length\":5,\"x-queue-type\":\"classic\"}",
    "{\"headers\":{\"a\":[1,{\"b\":null}]},\"delivery_mode\":2}",
    "\"shovel\"",
    "\"amqp://\"",
    "\"amqp://u:verysecret@h/v?heartbeat=1&connection_timeout=5\"",
    "\"amqps://u:verysecret@h\"",
    "[\"amqp://u:verysecret@h:1\",\"amqp:///v\"]",
    "\"queue-length\"",
    "\"on-publish\"",
    SHOVEL,
];
/// What the password of an address is, wherever there is one.
const SECRET: &str = "verysecret";
const SHOVEL: &str =
    "{\"src-uri\":\"amqp://\",\"src-queue\":\"q\",\"dest-uri\":\"amqp://u:verysecret@h\",\"dest-queue\":\"x\"}";
/// An upstream that can be used.
const UPSTREAM: &str = "{\"uri\":\"amqp://u:verysecret@h\",\"exchange\":\"x\",\"queue\":\"q\"}";

/// A broker that does its work when it is asked.
#[derive(Debug)]
struct Stepped(Broker);

impl Stepped {
    fn drive(&self) {
        self.0.tick();
        loop {
            let mut did = self.0.log_step(Work::Write);
            did |= self.0.log_step(Work::Flush);
            did |= self.0.read_step();
            did |= self.0.background_step();
            if !did {
                return;
            }
        }
    }
}

impl BrokerHandle for Stepped {
    fn new_session(&self) -> SessionId {
        self.0.new_session()
    }

    fn submit(&self, from: &Arc<dyn ReplySink>, session: SessionId, token: Token, request: Request) {
        self.0.submit(from, session, token, request);
        self.drive();
    }

    fn session_gone(&self, session: SessionId) {
        self.0.session_gone(session);
    }

    fn catalog(&self) -> Arc<dyn Catalog> {
        self.0.catalog()
    }

    fn now(&self) -> Now {
        self.0.now()
    }

    fn partition_status(&self, id: PartitionId) -> Option<PartitionStatus> {
        self.0.partition_status(id)
    }

    fn status(&self) -> BrokerStatus {
        BrokerStatus::default()
    }

    fn begin_backup(&self) -> Result<Backup, polylogue_broker::Error> {
        let text = "nothing here is backed up";
        Err(polylogue_broker::Error::new(polylogue_broker::ErrorKind::Busy, text))
    }

    fn is_disk_alarm(&self) -> bool {
        self.0.is_disk_alarm()
    }

    fn wake_for_alarm(&self, waker: Waker) {
        self.0.wake_for_alarm(waker);
    }

    fn run_reader(&self, job: Box<dyn FnOnce() + Send>) -> bool {
        self.0.run_reader(job)
    }
}

/// The API and the broker behind it.
struct Server {
    management: Arc<Management>,
    runtime: tokio::runtime::Runtime,
    _world: SimWorld,
}

impl Server {
    fn start() -> Server {
        let world = SimWorld::new(7);
        let env = world.env();
        let mut config = BrokerConfig::new("/data".into());
        config.journal_file_bytes = 1 << 20;
        config.disk_reserve_bytes = 0;
        let machine = AmqpMachine::new(Limits::default());
        let directory = machine.directory();
        let machine: Box<dyn StateMachine> = Box::new(machine);
        let broker = Broker::open(env.clone(), config, BTreeMap::from([(MachineId::AMQP, machine)])).expect("it opens");
        let broker = Stepped(broker);
        broker.drive();
        let broker: Arc<dyn BrokerHandle> = Arc::new(broker);
        let net = Arc::new(Shared {
            broker: broker.clone(),
            lanes: Lanes::new(1 << 20, 8),
            output: OutputGauge::new(1 << 20),
            answers: AnswerGauge::new(1 << 20),
            write_stall_ms_max: 1_000,
            memory: Memory::default(),
            workers: Workers::start(&polylogue_env::Env::real(), 1).expect("a thread"),
            metrics: NetMetrics::register(&mut Registry::default(), &["amqp"]),
            connections: Connections::default(),
        });
        let rng = env.rng.clone();
        let management = Management::new(broker, directory, Arc::default(), net, Vec::new(), rng);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Server { management: Arc::new(management), runtime, _world: world }
    }

    /// The status of an answer, and its body.
    fn send(&self, request: HttpRequest<Body>) -> (u16, Vec<u8>) {
        self.runtime.block_on(async {
            let service = TowerToHyperService::new(router(self.management.clone()));
            let response = service.call(request).await.expect("an answer");
            let (head, body) = response.into_parts();
            let bytes = axum::body::to_bytes(body, usize::MAX).await.expect("a body");
            (head.status.as_u16(), bytes.to_vec())
        })
    }
}

/// What is left of the input.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }

    fn bytes(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte()).min(self.0.len());
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }

    fn target(&mut self) -> String {
        let parts = self.byte() % 8;
        if parts == 7 {
            return self.of(PATHS).to_owned();
        }
        let mut target = "/api".to_owned();
        for _ in 0..=parts {
            match self.byte() {
                255 => target.extend(self.bytes().iter().map(|byte| char::from(byte % 128))),
                byte => _ = write!(target, "/{}", PARTS[usize::from(byte) % PARTS.len()]),
            }
        }
        match self.of(QUERIES) {
            "" => {}
            query => _ = write!(target, "?{query}"),
        }
        target
    }

    fn body(&mut self) -> Vec<u8> {
        match self.byte() % 8 {
            0 => return self.bytes().to_vec(),
            1 => return Vec::new(),
            _ => {}
        }
        // The value of a parameter, and what stands in a definition beside others.
        let inside = self.byte() % 7;
        let fields: Vec<String> =
            (0..self.byte() % 8).map(|_| format!("\"{}\":{}", self.of(KEYS), self.of(VALUES))).collect();
        let fields = format!("{{{}}}", fields.join(","));
        let name = "\"vhost\":\"/\",\"component\":\"shovel\",\"name\":\"q\"";
        let body = match inside {
            0 => format!("{{\"value\":{fields}}}"),
            1 => format!("{{\"value\":{SHOVEL}}}"),
            2 => format!("{{\"parameters\":[{{{name},\"value\":{fields}}},{{{name},\"value\":{SHOVEL}}}]}}"),
            3 => format!("{{\"value\":{UPSTREAM}}}"),
            4 => format!("{{\"value\":[{fields},{{\"upstream\":\"q\"}}]}}"),
            _ => fields,
        };
        body.into_bytes()
    }
}

fuzz_target!(|input: &[u8]| {
    let server = Server::start();
    let mut rest = Rest(input);
    while !rest.0.is_empty() {
        let method = rest.of(&["GET", "PUT", "POST", "DELETE", "PUT", "HEAD", "OPTIONS", "PATCH"]);
        let request = HttpRequest::builder().method(method).uri(rest.target());
        let login = if rest.byte() == 0 { "Basic eDp4" } else { "Basic Z3Vlc3Q6Z3Vlc3Q=" };
        let body = rest.body();
        // What is no request at all does not get that far.
        let Ok(mut request) = request.header("authorization", login).body(Body::from(body)) else { continue };
        request.extensions_mut().insert(From { peer: SocketAddr::from(([127, 0, 0, 1], 50_000)), is_local: true });
        let shown = format!("{method} {}", request.uri());
        let (status, answer) = server.send(request);
        assert!(status < 500 || status == 503, "{shown}: {status} {}", String::from_utf8_lossy(&answer));
        assert!(
            answer.is_empty() || serde_json::from_slice::<serde_json::Value>(&answer).is_ok(),
            "{shown}: {answer:?}"
        );
    }
    // Whatever was done, it can be exported: that looks at all of it.
    let request = HttpRequest::builder().uri("/api/definitions").header("authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=");
    let (status, _) = server.send(request.body(Body::empty()).expect("a request"));
    assert!(matches!(status, 200 | 401), "{status}");
    // What shovels and links do is shown without what they know.
    for shown in ["/api/shovels", "/api/federation-links"] {
        let request = HttpRequest::builder().uri(shown).header("authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=");
        let (status, answer) = server.send(request.body(Body::empty()).expect("a request"));
        let answer = String::from_utf8_lossy(&answer);
        assert!(matches!(status, 200 | 401) && !answer.contains(SECRET), "{status} {answer}");
    }
});
