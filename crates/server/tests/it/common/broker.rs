//! Brokers with their management API, that die and come back at the same ports.

use super::amqp::Client;
use super::{Server, TempDir};
use bytes::BytesMut;
use polylogue_amqp::codec::*;
use rustix::process::Signal;
use serde_json::{Value as Json, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long something may take that must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A broker that comes back at the same port.
pub(crate) struct Broker {
    pub(crate) dir: TempDir,
    pub(crate) server: Option<Server>,
    pub(crate) amqp: SocketAddr,
    pub(crate) management: SocketAddr,
    /// What else it is started with.
    pub(crate) more: Vec<String>,
}

pub(crate) fn listener(server: &Server, protocol: &str) -> SocketAddr {
    let prefix = format!("{protocol} listening on ");
    server.lines.iter().find_map(|line| line.strip_prefix(&prefix)?.parse().ok()).unwrap()
}

impl Broker {
    pub(crate) fn start() -> Broker {
        Broker::start_with(Vec::new())
    }

    /// One that is started with this as well.
    pub(crate) fn start_with(more: Vec<String>) -> Broker {
        let any = "127.0.0.1:0".parse().unwrap();
        let mut broker = Broker { dir: TempDir::new(), server: None, amqp: any, management: any, more };
        broker.begin();
        broker
    }

    /// One that calls its cluster so.
    pub(crate) fn named(name: &str) -> Broker {
        let broker = Broker::start();
        let (status, _) = broker.ask("PUT", "cluster-name", Some(&json!({"name": name})));
        assert_eq!(status, 204);
        broker
    }

    pub(crate) fn begin(&mut self) {
        let (amqp, management) = (format!("amqp={}", self.amqp), format!("rabbitmq-http={}", self.management));
        let mut args = vec!["--listen", &amqp, "--listen", &management];
        args.extend(self.more.iter().map(String::as_str));
        let server = Server::start(&self.dir.0, &args);
        (self.amqp, self.management) = (listener(&server, "amqp"), listener(&server, "rabbitmq-http"));
        self.server = Some(server);
    }

    pub(crate) fn kill_and_begin(&mut self) {
        self.server.take().unwrap().stop(Signal::KILL);
        self.begin();
    }

    pub(crate) fn uri(&self) -> String {
        format!("amqp://guest:guest@{}", self.amqp)
    }

    /// Asks the management API: the status, and the answer.
    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&Json>) -> (u16, Json) {
        manage(self.management, method, path, body)
    }

    pub(crate) fn get(&self, path: &str) -> Json {
        let (status, answer) = self.ask("GET", path, None);
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    pub(crate) fn set(&self, name: &str, value: &Json) {
        self.set_parameter("shovel", name, value);
    }

    pub(crate) fn set_parameter(&self, component: &str, name: &str, value: &Json) {
        let path = format!("parameters/{component}/%2F/{name}");
        let (status, answer) = self.ask("PUT", &path, Some(&json!({"value": value})));
        assert!(matches!(status, 201 | 204), "{status} {answer}");
    }

    /// How many messages a queue has that is there.
    pub(crate) fn count(&self, queue: &str) -> u64 {
        self.ask("GET", &format!("queues/%2F/{queue}"), None).1["messages"].as_u64().unwrap_or(0)
    }

    pub(crate) fn state(&self, name: &str) -> Json {
        self.ask("GET", &format!("shovels/%2F/{name}"), None).1
    }

    pub(crate) fn metric(&self, name: &str) -> u64 {
        self.server.as_ref().unwrap().metric(name)
    }

    /// Publishes messages with a number, and waits until they are on the disk.
    pub(crate) fn publish(&self, exchange: &str, key: &str, numbers: std::ops::Range<u64>) {
        let mut client = Client::open(self.amqp, "guest");
        assert!(matches!(client.ask(1, ConfirmSelect::default()), Method::ConfirmSelectOk(_)));
        let count = numbers.end - numbers.start;
        let mut out = BytesMut::new();
        for number in numbers {
            let (exchange, routing_key) = (exchange.to_owned().into(), key.to_owned().into());
            encode_method(&mut out, 1, &BasicPublish { exchange, routing_key, ..Default::default() }.into());
            let headers = TableBuilder::new().with("number", Value::I64(number as i64)).build();
            let basic = BasicProperties { headers: Some(headers), delivery_mode: Some(2), ..Default::default() };
            let body = format!("message {number}");
            encode_header(&mut out, 1, body.len() as u64, &basic.encode());
            out.extend_from_slice(&body_prefix(1, body.len() as u32));
            out.extend_from_slice(body.as_bytes());
            out.extend_from_slice(&[FRAME_END]);
            if out.len() > 64 << 10 {
                client.raw(&out.split());
            }
        }
        client.raw(&out);
        let mut confirmed = 0;
        while confirmed < count {
            match client.method() {
                Some((1, Method::BasicAck(ack))) => {
                    confirmed = if ack.multiple { ack.delivery_tag } else { confirmed.max(ack.delivery_tag) };
                }
                other => panic!("{other:?}"),
            }
        }
    }

    pub(crate) fn declare(&self, queue: &str) {
        let (status, _) = self.ask("PUT", &format!("queues/%2F/{queue}"), Some(&json!({"durable": true})));
        assert!(matches!(status, 201 | 204));
    }

    /// Takes all messages of a queue: headers and body of each, in their order.
    pub(crate) fn take(&self, queue: &str) -> Vec<Json> {
        let mut all = Vec::new();
        loop {
            let ask = json!({"count": 5000, "ackmode": "ack_requeue_false", "encoding": "auto"});
            let (status, got) = self.ask("POST", &format!("queues/%2F/{queue}/get"), Some(&ask));
            assert_eq!(status, 200, "{got}");
            let got = got.as_array().unwrap().clone();
            if got.is_empty() {
                return all;
            }
            all.extend(got);
        }
    }
}

/// Asks a management API as `guest`: the status, and the answer.
pub(crate) fn manage(at: SocketAddr, method: &str, path: &str, body: Option<&Json>) -> (u16, Json) {
    manage_as(at, "guest", method, path, body)
}

/// The same as a user whose password is the name.
pub(crate) fn manage_as(at: SocketAddr, user: &str, method: &str, path: &str, body: Option<&Json>) -> (u16, Json) {
    use base64::Engine as _;
    let login = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{user}"));
    let config = ureq::Agent::config_builder().http_status_as_error(false);
    let agent = config.timeout_global(Some(Duration::from_secs(30))).build().new_agent();
    let request = ureq::http::Request::builder().method(method).uri(format!("http://{at}/api/{path}"));
    let request = request.header("authorization", format!("Basic {login}"));
    let request = request.body(body.map(Json::to_string).unwrap_or_default()).unwrap();
    let mut response = agent.run(request).unwrap();
    let text = response.body_mut().read_to_string().unwrap();
    (response.status().as_u16(), serde_json::from_str(&text).unwrap_or(Json::Null))
}

/// Waits until something has become true, which it must.
pub(crate) fn wait(what: &str, mut is_true: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_true() {
        assert!(since.elapsed() < PATIENCE, "{what}");
    }
}
