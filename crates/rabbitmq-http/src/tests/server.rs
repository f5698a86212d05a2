//! A broker on a simulated disk, and requests to the API without a socket.

use crate::{From, Management, router};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request as HttpRequest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use polylogue_amqp::settings::AmqpSettings;
use polylogue_amqp_gateway::{AmqpMachine, Directory};
use polylogue_amqp_model::Limits;
use polylogue_api::{Catalog, MachineId, Now, Reply, Request, StateMachine, Token};
use polylogue_broker::{Broker, BrokerConfig};
use polylogue_env::sim::SimWorld;
use polylogue_env::{Disk as _, Env};
use polylogue_net::handle::{BrokerHandle, BrokerStatus, PartitionStatus, ReplySink, SessionId};
use polylogue_net::memory::Memory;
use polylogue_net::{AnswerGauge, Connections, Lanes, NetMetrics, OutputGauge, Shared, Workers};
use polylogue_replicate::Work;
use polylogue_types::PartitionId;
use prometheus_client::registry::Registry;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::task::Waker;

/// A request that is held.
type Asked = (Arc<dyn ReplySink>, SessionId, Token, Request);

/// Which requests are held.
#[derive(Default)]
struct Holding {
    which: Option<fn(&Request) -> bool>,
    /// Number of matching requests that pass first.
    pass: usize,
    held: Vec<Asked>,
    /// Whether the first request that does not pass gets an invalid reply, after which all pass.
    fails: bool,
}

/// A broker that is driven by its requests.
pub(crate) struct Stepped(Broker, Mutex<Holding>);

impl std::fmt::Debug for Stepped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stepped")
    }
}

impl Stepped {
    /// Holds requests of this kind after the first `pass`.
    pub(crate) fn hold(&self, pass: usize, which: fn(&Request) -> bool) {
        *self.1.lock() = Holding { which: Some(which), pass, ..Holding::default() };
    }

    /// Makes the next request of this kind fail after the first `pass`.
    pub(crate) fn fail(&self, pass: usize, which: fn(&Request) -> bool) {
        *self.1.lock() = Holding { which: Some(which), pass, fails: true, ..Holding::default() };
    }

    /// Processes the held requests, and holds no more.
    pub(crate) fn release(&self) {
        let held = std::mem::take(&mut *self.1.lock()).held;
        held.into_iter().for_each(|(from, session, token, request)| self.submit(&from, session, token, request));
    }

    fn drive(&self) {
        let works = || {
            let mut did = self.0.log_step(Work::Write);
            did |= self.0.log_step(Work::Flush);
            did |= self.0.read_step();
            did | self.0.background_step()
        };
        // Work done in slices continues at a deadline.
        loop {
            self.0.tick();
            if !works() {
                return;
            }
            while works() {}
        }
    }
}

impl BrokerHandle for Stepped {
    fn new_session(&self) -> SessionId {
        self.0.new_session()
    }

    fn submit(&self, from: &Arc<dyn ReplySink>, session: SessionId, token: Token, request: Request) {
        let mut holding = self.1.lock();
        if holding.which.is_some_and(|which| which(&request)) {
            match holding.pass.checked_sub(1) {
                Some(pass) => holding.pass = pass,
                None if holding.fails => {
                    *holding = Holding::default();
                    return from.reply(token, Reply::Stopped);
                }
                None => return holding.held.push((from.clone(), session, token, request)),
            }
        }
        drop(holding);
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
        self.0.status()
    }

    fn begin_backup(&self) -> Result<polylogue_net::handle::Backup, polylogue_broker::Error> {
        self.0.begin_backup()
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

/// A response.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(super) headers: HeaderMap,
    pub(crate) body: Value,
    /// The body as text: parsing hides some mistakes.
    pub(super) text: String,
}

impl Answered {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns the status, `error` and `reason`.
    pub(super) fn failure(&self) -> (u16, &str, &str) {
        let text = |key: &str| self.body.get(key).and_then(Value::as_str).unwrap_or_default();
        (self.status, text("error"), text("reason"))
    }
}

/// Returns an object with these fields only.
pub(super) fn json_of(value: &Value, fields: &[&str]) -> Value {
    let one = |field: &&str| ((*field).to_owned(), value.get(*field).cloned().unwrap_or(Value::Null));
    Value::Object(fields.iter().map(one).collect())
}

/// The address of clients.
const LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 50_000);

fn request(user: &str, method: &str, path: &str, body: &Value) -> HttpRequest<Body> {
    let login = format!("Basic {}", STANDARD.encode(format!("{user}:{user}")));
    let request = HttpRequest::builder().method(method).uri(format!("/api/{path}")).header("authorization", login);
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    request.body(body).unwrap()
}

/// The API and its broker.
pub(crate) struct Server {
    pub(crate) broker: Arc<dyn BrokerHandle>,
    /// The broker.
    pub(crate) stepped: Arc<Stepped>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) management: Arc<Management>,
    runtime: tokio::runtime::Runtime,
    world: SimWorld,
}

impl Server {
    pub(crate) fn start() -> Server {
        let world = SimWorld::new(7);
        let env: Env = world.env();
        let mut config = BrokerConfig::new("/data".into());
        config.journal_file_bytes = 1 << 20;
        config.disk_reserve_bytes = 0;
        config.disk_free_limit_bytes = 1 << 20;
        let machine = AmqpMachine::new(Limits::default());
        let directory = machine.directory();
        let machine: Box<dyn StateMachine> = Box::new(machine);
        let broker = Broker::open(env.clone(), config, BTreeMap::from([(MachineId::AMQP, machine)])).unwrap();
        let stepped = Arc::new(Stepped(broker, Mutex::default()));
        // Creates the first user and virtual host.
        stepped.drive();
        let broker: Arc<dyn BrokerHandle> = stepped.clone();
        let net = Arc::new(Shared {
            broker: broker.clone(),
            lanes: Lanes::new(1 << 20, 8),
            output: OutputGauge::new(1 << 20),
            answers: AnswerGauge::new(1 << 20),
            write_stall_ms_max: 1_000,
            memory: Memory::new(1 << 40),
            workers: Workers::start(&polylogue_env::Env::real(), 1).unwrap(),
            metrics: NetMetrics::register(&mut Registry::default(), &["amqp"]),
            connections: Connections::default(),
        });
        let listener = |protocol: &str, bound: &str| polylogue_admin::api::ListenerStatus {
            tls: false,
            protocol: protocol.to_owned(),
            bound: bound.to_owned(),
            advertised: None,
        };
        let listeners = vec![listener("amqp", "127.0.0.1:5672"), listener("rabbitmq-http", "127.0.0.1:15672")];
        let rng = env.rng.clone();
        let settings = AmqpSettings { cluster_name: "here".to_owned(), ..AmqpSettings::default() };
        let management = Management::new(broker.clone(), directory.clone(), settings.into(), net, listeners, rng);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Server { broker, stepped, directory, management: Arc::new(management), runtime, world }
    }

    /// Applies a change, without its consequences.
    pub(super) fn change(&self, command: polylogue_amqp_model::Command) {
        self.runtime.block_on(crate::ask::change(&self.management, command)).unwrap();
    }

    /// Sets the free disk space that the broker sees.
    pub(crate) fn leave_free(&self, bytes: u64) {
        const PLENTY: u64 = 1 << 40;
        self.world.disk.set_capacity(PLENTY);
        let free = self.world.disk.free_bytes(Path::new("/data")).unwrap();
        self.world.disk.set_capacity(PLENTY - free + bytes);
        self.world.clock.advance_ms(1_000);
    }

    /// Creates missing topics, as at the start.
    pub(super) fn make_topics(&self) {
        self.runtime.block_on(crate::make_topics(&self.management)).unwrap();
    }

    /// Sends a request from an address.
    pub(super) fn send(&self, request: HttpRequest<Body>, from: SocketAddr) -> Answered {
        let mut request = request;
        let is_local = from.ip().to_canonical().is_loopback();
        request.extensions_mut().insert(From { peer: from, is_local });
        self.send_to(router(self.management.clone()), request)
    }

    /// Sends a request to any router.
    pub(crate) fn send_to(&self, router: Router, request: HttpRequest<Body>) -> Answered {
        self.runtime.block_on(async {
            let response = TowerToHyperService::new(router).call(request).await.unwrap();
            let (head, body) = response.into_parts();
            let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
            let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap() };
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            Answered { status: head.status.as_u16(), headers: head.headers, body, text }
        })
    }

    /// Runs something with time advancing when idle.
    pub(crate) fn in_no_time<T>(&self, act: impl FnOnce() -> T) -> T {
        self.runtime.block_on(async { tokio::time::pause() });
        let done = act();
        self.runtime.block_on(async { tokio::time::resume() });
        done
    }

    /// A request of a user whose password is the name.
    pub(super) fn ask_as(&self, user: &str, method: &str, path: &str, body: &Value) -> Answered {
        self.send(request(user, method, path, body), LOCAL)
    }

    /// A request of the first user, who disconnects as soon as it is sent; returns when everything held has been processed.
    pub(super) fn ask_and_hang_up(&self, method: &str, path: &str, body: &Value) {
        let mut request = request("guest", method, path, body);
        request.extensions_mut().insert(From { peer: LOCAL, is_local: true });
        self.send_and_hang_up(router(self.management.clone()), request);
    }

    /// The same for any router.
    pub(crate) fn send_and_hang_up(&self, router: Router, request: HttpRequest<Body>) {
        self.runtime.block_on(async {
            let service = TowerToHyperService::new(router);
            tokio::select! {
                biased;
                response = service.call(request) => panic!("the request was not held: {:?}", response.unwrap().status()),
                () = std::future::ready(()) => {}
            }
            self.stepped.release();
            // Lets the tasks run that continue without the client.
            for _ in 0..1_000 {
                tokio::task::yield_now().await;
            }
        });
    }

    /// A request of the first user.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &Value) -> Answered {
        self.ask_as("guest", method, path, body)
    }

    /// Gets a path, which must exist.
    pub(crate) fn get(&self, path: &str) -> Value {
        let answered = self.ask("GET", path, &Value::Null);
        assert_eq!(answered.status, 200, "{path}: {answered:?}");
        answered.body
    }

    /// Puts an object; returns the status, which must be a success.
    pub(crate) fn put(&self, path: &str, body: &Value) -> u16 {
        let answered = self.ask("PUT", path, body);
        assert!(answered.status < 300, "{path}: {answered:?}");
        answered.status
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answered {
        let answered = self.ask("POST", path, body);
        assert!(answered.status < 300, "{path}: {answered:?}");
        answered
    }

    pub(super) fn delete(&self, path: &str) -> u16 {
        self.ask("DELETE", path, &Value::Null).status
    }
}
