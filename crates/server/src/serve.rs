//! Runs a server: start, listeners, background tasks and shutdown.
//!
//! Listeners are bound before the data directory is opened, so that a start that fails on a port in use changes nothing on disk. They
//! accept once the broker has recovered; until then clients wait in the listen backlog. The http listeners serve during the whole
//! life of the process: during recovery and shutdown they report that the server is not ready.

mod descriptors;
mod threads;

use crate::chores;
use parking_lot::Mutex;
use polylogue_admin::api::ListenerStatus;
use polylogue_admin::http::{self, App, Door, Entrance, HttpLimits, Login, RabbitmqSetup, Ready};
use polylogue_amqp::settings::AmqpSettings;
use polylogue_amqp_gateway::{Directory, GuestRule, MessagesAsRecords, QUORUM_PRIORITY, UNCREDITED_BYTES_MAX};
use polylogue_bridges::federation::{self, Federation};
use polylogue_bridges::links::Surroundings;
use polylogue_bridges::shovel::{self, Shovels};
use polylogue_broker::{Broker, BrokerConfig, CreditRules, ErrorKind, LAYOUT_VERSION, QueueRules};
use polylogue_cli::StartError;
use polylogue_config::{GuestPolicy, ListenerConfig, LoginPolicy, ServerConfig, Setting};
use polylogue_env::{Env, Rng};
use polylogue_kafka::config::LiveSettings;
use polylogue_kafka_groups::{GroupSettings, GroupUsage};
use polylogue_log::journal::JournalIo;
use polylogue_log::store::StoreConfig;
use polylogue_net::address::{HostPort, Protocol};
use polylogue_net::amqp::AmqpAccept;
use polylogue_net::audit::Audit;
use polylogue_net::groups::{GroupCensus, machines};
use polylogue_net::handle::BrokerHandle;
use polylogue_net::kafka::{KafkaAccept, KafkaShared};
use polylogue_net::memory::{self, Memory};
use polylogue_net::oauth::OAuth;
use polylogue_net::tls::Tls;
use polylogue_net::users::{ADMIN_PASSWORD_VARIABLE, FIRST_ADMINISTRATOR, Password, Users, first_administrator};
use polylogue_net::{
    AnswerGauge, Connections, Gate, Lanes, NetMetrics, OutputGauge, Shared, Workers, accept_loop, workers,
};
use polylogue_rabbitmq_http::Management;
use polylogue_types::NodeId;
use prometheus_client::registry::Registry;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use threads::{HttpListener, HttpThread};
use tokio::sync::watch;

/// Length of the listen backlog; the system may allow less.
const LISTEN_BACKLOG: i32 = 4_096;

/// Interval between checks for the initial user.
const FIRST_USER_LOOK: Duration = Duration::from_millis(1);
/// Number of checks.
const FIRST_USER_LOOKS_MAX: u32 = 2_000;

/// Warning at each start of a data directory with a user `guest` that a new directory would not have.
const GUEST_IS_THERE: &str = "the user guest, whose password is public, is there beside an administrator, and logs in over amqp and rabbitmq-http \
     from this machine: delete it (polylogue user delete guest), or say server.guest = off, or on to keep it";

/// A bound listener.
struct Bound {
    config: ListenerConfig,
    listener: TcpListener,
    at: SocketAddr,
}

impl Bound {
    /// Whether clients have to log in.
    fn asks(&self, config: &ServerConfig) -> bool {
        let protocols = [Protocol::Kafka, Protocol::Http, Protocol::RabbitmqMetrics];
        protocols.contains(&self.config.protocol) && config.login.asks_at(self.at.ip())
    }

    /// Plain TCP or TLS.
    fn tls(&self, tls: Option<&Arc<Tls>>) -> Option<Arc<Tls>> {
        tls.filter(|_| self.config.tls).cloned()
    }

    /// As a listener of an http protocol, with this policy about logins of its own.
    fn http(self, login: LoginPolicy, tls: Option<&Arc<Tls>>) -> HttpListener {
        let login = match login {
            LoginPolicy::Never => Login::Never,
            policy if policy.asks_at(self.at.ip()) => Login::Always,
            _ => Login::Remote,
        };
        let advertised = self.config.advertise.as_ref().map(|reported| reported.host.as_str());
        let names: Vec<&str> = advertised.into_iter().chain([self.config.bind.host.as_str()]).collect();
        let door = Door::new(login, self.at.ip(), &names);
        HttpListener { tls: self.tls(tls), listener: self.listener, door }
    }

    /// The advertised address; `None` for the address at which they arrive.
    fn advertised(&self) -> Option<HostPort> {
        let port = |port: u16| if port == 0 { self.at.port() } else { port };
        match &self.config.advertise {
            Some(reported) => Some(HostPort { host: reported.host.clone(), port: port(reported.port) }),
            // A name that was bound stays a name: it is what the operator calls this machine.
            None if self.at.ip().is_unspecified() => None,
            None => Some(HostPort { host: self.config.bind.host.clone(), port: self.at.port() }),
        }
    }

    fn status(&self) -> ListenerStatus {
        ListenerStatus {
            protocol: self.config.protocol.name().to_owned(),
            tls: self.config.tls,
            bound: self.at.to_string(),
            advertised: self.advertised().map(|at| at.to_string()),
        }
    }
}

/// Whether clients of a listener need a user that an administrator has created: AMQP listeners always require a login, and `guest` is
/// accepted on loopback listeners only.
fn knows_no_guest(protocol: Protocol, at: IpAddr) -> bool {
    matches!(protocol, Protocol::Amqp | Protocol::RabbitmqHttp) && !at.is_loopback()
}

/// Number of turns after which a thread polls for ready sockets. A turn of a busy connection takes a millisecond, and while no thread
/// is idle no other thread polls.
const TASKS_PER_LOOK: u32 = 8;

/// Runs a server until it is stopped. `settings` are the options as the API shows them; `admin` is the password for the first
/// administrator, used if there is none yet; `json` selects JSON lines on standard output.
///
/// # Errors
/// The start failed; nothing on disk has changed.
pub fn run(
    config: &ServerConfig,
    settings: Vec<Setting>,
    admin: Option<Password>,
    json: bool,
) -> Result<(), StartError> {
    descriptors::raise(config.connections_max);
    let mut bound = config.listeners.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
    let statuses = bound.iter().map(Bound::status).collect();
    let lines = bound.iter().map(|one| line(one, json)).collect();
    let mut take = |protocol| -> Vec<Bound> { bound.extract_if(.., |one| one.config.protocol == protocol).collect() };
    let (http_bound, management_bound) = (take(Protocol::Http), take(Protocol::RabbitmqHttp));
    let scrapes_bound = take(Protocol::RabbitmqMetrics);
    let env = Env::real_within(&[&config.data]);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.enable_all().thread_name("pl-net").event_interval(TASKS_PER_LOOK);
    if let Some(threads) = config.worker_threads {
        runtime.worker_threads(threads);
    }
    let runtime = runtime.build().map_err(|e| StartError(format!("cannot start the threads for connections: {e}")))?;
    // Before the data directory is opened: a signal during recovery ends the start cleanly.
    let signals = runtime
        .block_on(async { threads::Signals::new() })
        .map_err(|e| StartError(format!("cannot listen to signals: {e}")))?;
    let mut registry = http::registry();
    let metrics = NetMetrics::register(&mut registry, &[Protocol::Kafka.name(), Protocol::Amqp.name()]);
    let limits = HttpLimits {
        connections_max: config.http_connections_max,
        connections_per_ip_max: config.http_connections_per_ip_max,
        body_bytes_max: config.http_body_bytes_max,
        bodies_per_ip_max: config.http_bodies_per_ip_max,
        body_ms_max: config.http_body_ms_max,
    };
    let tls = config.tls.clone().map(|files| Tls::load(files, &mut registry).map(Arc::new));
    let tls = tls.transpose().map_err(StartError)?;
    let oauth = config.oauth.clone().map(|tokens| OAuth::load(tokens, &mut registry).map(Arc::new));
    let oauth = oauth.transpose().map_err(StartError)?;
    let entrance = Arc::new(Entrance::new(limits, metrics.clone()));
    // Users are needed if one listener requires a login; `guest` does not count on listeners beyond loopback.
    let mut all = bound.iter().chain(&http_bound).chain(&management_bound).chain(&scrapes_bound);
    let asks = all.any(|one| one.asks(config) || knows_no_guest(one.config.protocol, one.at.ip()));
    let http_listener = |one: Bound| one.http(config.login, tls.as_ref());
    let listeners = http_bound.into_iter().map(http_listener).collect();
    let http = HttpThread::start(&env, "pl-http", listeners, entrance.clone())?;
    let named = |protocol: Protocol, starting| Entrance::named(protocol.name(), limits, metrics.clone(), starting);
    let management = Arc::new(named(Protocol::RabbitmqHttp, polylogue_rabbitmq_http::starting()));
    // Its requests always need a login, which it checks itself.
    let listeners = management_bound.into_iter().map(|one| one.http(LoginPolicy::Never, tls.as_ref())).collect();
    let management_http = HttpThread::start_some(&env, "pl-rabbit-http", listeners, &management)?;
    let scrapes = Arc::new(named(Protocol::RabbitmqMetrics, http::starting()));
    let listeners = scrapes_bound.into_iter().map(http_listener).collect();
    let scrapes_http = HttpThread::start_some(&env, "pl-rabbit-prom", listeners, &scrapes)?;
    let mut front = Front {
        settings,
        statuses,
        lines,
        json,
        asks,
        admin,
        registry,
        metrics,
        entrance,
        http,
        management,
        management_http,
        scrapes,
        scrapes_http,
        tls,
        oauth,
    };
    let result = open_and_serve(&env, config, &mut front, bound, &runtime, signals);
    front.stop();
    runtime.shutdown_background();
    result
}

/// The parts that exist before the broker has recovered.
struct Front {
    settings: Vec<Setting>,
    statuses: Vec<ListenerStatus>,
    lines: Vec<String>,
    json: bool,
    /// At least one listener requires a login as a user that an administrator has created.
    asks: bool,
    /// The password of the first administrator.
    admin: Option<Password>,
    registry: Registry,
    metrics: NetMetrics,
    entrance: Arc<Entrance>,
    http: HttpThread,
    management: Arc<Entrance>,
    /// Enabled by an option only.
    management_http: Option<HttpThread>,
    scrapes: Arc<Entrance>,
    /// Enabled by an option only.
    scrapes_http: Option<HttpThread>,
    /// Present if a listener uses the protocol.
    tls: Option<Arc<Tls>>,
    /// Present if token logins are enabled.
    oauth: Option<Arc<OAuth>>,
}

impl Front {
    /// Whether a start creates the first administrator.
    fn makes_administrator(&self) -> bool {
        self.asks || self.admin.is_some()
    }

    /// The receiver is gone.
    fn stop(&mut self) {
        self.http.stop();
        for http in [&mut self.management_http, &mut self.scrapes_http].into_iter().flatten() {
            http.stop();
        }
    }
}

fn open_and_serve(
    env: &Env,
    config: &ServerConfig,
    front: &mut Front,
    bound: Vec<Bound>,
    runtime: &tokio::runtime::Runtime,
    signals: threads::Signals,
) -> Result<(), StartError> {
    let live = Arc::new(LiveSettings::new(config.kafka.sessions.clone()));
    let guest = config.guest.rule(front.makes_administrator());
    let (broker, directory, groups) = open(env, config, live.clone(), guest)?;
    let layout = broker.layout_before();
    if layout < LAYOUT_VERSION {
        tracing::info!(
            "the data directory is of layout {LAYOUT_VERSION} from now on, it was of {layout}: earlier versions refuse it"
        );
    }
    front.registry.register_collector(Box::new(GroupCensus(groups)));
    for ignored in live.ignored() {
        tracing::warn!("a stored setting is ignored: {ignored}");
    }
    for lost in broker.lost_segments() {
        tracing::error!(
            "{lost}; its messages cannot be read, run `polylogue check` on the stopped broker to list them"
        );
    }
    let started = broker.start().map_err(|e| StartError(e.to_string())).and_then(|()| start_workers(env, front));
    let handle: Arc<dyn BrokerHandle> = Arc::new(broker.clone());
    let mut amqp_settings = config.amqp.clone();
    if amqp_settings.cluster_name == AmqpSettings::default().cluster_name {
        // Federation identifies brokers by it.
        amqp_settings.cluster_name = format!("polylogue@{}", handle.catalog().cluster().cluster_id);
    }
    let amqp_settings = Arc::new(amqp_settings);
    if let Ok(workers) = &started {
        let place = chores::Place { runtime: runtime.handle(), broker: &handle, workers: &workers.queue() };
        chores::start(place, &directory, amqp_settings.message_bytes_max, &mut front.registry);
    }
    let secret = env.rng.next_u64();
    let rng = env.rng.clone();
    let audit = Arc::new(Audit::new(handle.clone(), &mut front.registry));
    let users = Users::new(directory.clone(), handle.clone(), rng.clone(), &mut front.registry);
    let users = Arc::new(users.with_tokens(front.oauth.clone()).with_audit(audit.clone()));
    let accept = AmqpAccept::new(amqp_settings.clone(), directory.clone(), handle.clone(), secret, users.clone());
    let amqp = Arc::new(accept);
    let opened = Opened { broker: handle, live, amqp, amqp_settings, directory, users, audit, rng };
    let result = started.and_then(|workers| serve(config, front, bound, (opened, workers), runtime, signals));
    front.stop();
    // After errors too: flushes acknowledged writes and makes the next start quick.
    broker.shutdown();
    result
}

fn bind(config: &ListenerConfig) -> Result<Bound, StartError> {
    let fail = |e: std::io::Error| {
        let (protocol, at) = (config.protocol.name(), &config.bind);
        let what = match e.kind() {
            std::io::ErrorKind::AddrInUse => "something else listens there; stop it, or choose another with --listen",
            std::io::ErrorKind::PermissionDenied => "this user may not; choose a port above 1023",
            std::io::ErrorKind::AddrNotAvailable => "this machine has no such address",
            _ => "it is no address to listen at",
        };
        StartError(format!("cannot listen for {protocol} at {at}: {what} ({e})"))
    };
    let listener = TcpListener::bind((config.bind.host.as_str(), config.bind.port)).map_err(fail)?;
    // The standard library's queue is short: when many clients come back at once, most would try again a second later.
    rustix::net::listen(&listener, LISTEN_BACKLOG).map_err(|e| fail(e.into()))?;
    listener.set_nonblocking(true).map_err(fail)?;
    let at = listener.local_addr().map_err(fail)?;
    Ok(Bound { config: config.clone(), listener, at })
}

/// How much a queue grows before publishers without confirms are slowed: by what two of them may have on their way.
fn credit_rules(config: &ServerConfig) -> CreditRules {
    CreditRules {
        growth_messages: config.amqp.publish_credit.saturating_mul(2),
        growth_bytes: 2 * UNCREDITED_BYTES_MAX as u64,
        withheld_ms_max: config.publish_credit_ms_max,
    }
}

/// The broker with the state machines of the protocols.
fn open(
    env: &Env,
    config: &ServerConfig,
    live: Arc<LiveSettings>,
    guest: GuestRule,
) -> Result<(Broker, Arc<Directory>, Arc<GroupUsage>), StartError> {
    let log = &config.log;
    let broker = BrokerConfig {
        sync_shards: log.sync_shards,
        journal_file_bytes: log.journal_file_bytes,
        journal_io: log.journal_io,
        checkpoint_bytes_max: log.checkpoint_bytes_max,
        disk_reserve_bytes: log.disk_reserve_bytes,
        disk_free_limit_bytes: log.disk_free_limit_bytes,
        backup_bytes_per_sec: log.backup_bytes_per_sec,
        backup_ms_max: log.backup_ms_max,
        async_flush_ms_max: log.async_flush_ms_max,
        lazy_flush_ms_max: log.lazy_flush_ms_max,
        early_deliveries: config.early_deliveries,
        queue_rules: QueueRules {
            returns_count: !config.amqp.is_newer(),
            normal_priority: QUORUM_PRIORITY,
            two_levels: !config.amqp.is_newer(),
        },
        credit_rules: credit_rules(config),
        retention_check_ms: config.kafka.log.retention_check_ms,
        producer_expiration_ms: config.kafka.log.producer_expiration_ms,
        partitions_max: log.partitions_max,
        memory_partition_bytes_max: log.memory_partition_bytes_max,
        inflight_bytes_max: config.inflight_bytes_max,
        reader_threads: log.reader_threads,
        store: StoreConfig {
            tail_cache_bytes: log.tail_cache_bytes,
            tail_cache_bytes_max: match log.tail_cache_bytes_max {
                0 => polylogue_net::memory::share_for_tails(),
                bytes => bytes,
            },
            read_cache_bytes: log.read_cache_bytes,
            index_cache_bytes: log.index_cache_bytes,
            open_segments_max: log.open_segments_max,
            merge_bytes: log.merge_bytes,
            merge_ms_max: log.merge_ms_max,
            journal_keep_bytes_max: log.journal_keep_bytes_max,
            merge_preload_bytes_max: polylogue_net::memory::share_for_merges(log.merge_preload_bytes),
            direct_io: log.journal_io != JournalIo::Cached,
            ..StoreConfig::default()
        },
        resolver: live,
        view: Some(Arc::new(MessagesAsRecords)),
        node: config.kafka.node_id.map(NodeId),
        ..BrokerConfig::new(config.data.clone())
    };
    let groups = GroupSettings {
        memory_bytes_max: config.group_bytes_max,
        user_bytes_max: config.group_bytes_per_user_max,
        ..(&config.kafka.groups).into()
    };
    let (machines, directory, usage) = machines(groups, guest);
    let opened = Broker::open(env.clone(), broker, machines);
    opened.map(|broker| (broker, directory, usage)).map_err(|e| {
        let dir = config.data.display();
        StartError(match e.kind {
            ErrorKind::Damaged => format!(
                "{e}; `polylogue check {dir}` tells all that is affected, `polylogue repair {dir} --fence` gives that up \
                 and makes the rest usable"
            ),
            _ => e.to_string(),
        })
    })
}

/// A started broker and its live settings.
struct Opened {
    broker: Arc<dyn BrokerHandle>,
    live: Arc<LiveSettings>,
    amqp: Arc<AmqpAccept>,
    amqp_settings: Arc<AmqpSettings>,
    directory: Arc<Directory>,
    users: Arc<Users>,
    audit: Arc<Audit>,
    rng: Arc<dyn Rng>,
}

/// Waits until the initial user exists, so that clients can log in as soon as the server reports ready. The wait is bounded: with a full
/// disk the existing data must stay readable.
async fn begun(directory: &Directory) {
    for _ in 0..FIRST_USER_LOOKS_MAX {
        if directory.has_begun() {
            return;
        }
        tokio::time::sleep(FIRST_USER_LOOK).await;
    }
    tracing::warn!("the initial AMQP user is not created yet");
}

/// Returns the gate that bounds connections by the live settings.
fn gate(config: &ServerConfig, live: Arc<LiveSettings>) -> Gate {
    Gate::new(Arc::new(AtomicUsize::new(0)), config.connections_max).with_bounds(move |address| {
        let listener = &live.settings().listener;
        let one = listener.connections_per_ip_overrides.get(&address).copied();
        (listener.connections_max, one.unwrap_or(listener.connections_per_ip_max))
    })
}

/// Starts the reload of certificates and token keys.
fn watch_files(front: &Front, runtime: &tokio::runtime::Runtime, stopped: &watch::Receiver<bool>) {
    if let Some(tls) = &front.tls {
        runtime.spawn(tls.clone().watch(stopped.clone()));
    }
    if let Some(oauth) = &front.oauth {
        runtime.spawn(oauth.clone().watch(stopped.clone()));
    }
}

/// Serves from the broker's start to its stop.
fn serve(
    config: &ServerConfig,
    front: &mut Front,
    bound: Vec<Bound>,
    (opened, workers): (Opened, Workers),
    runtime: &tokio::runtime::Runtime,
    signals: threads::Signals,
) -> Result<(), StartError> {
    let Opened { broker, live, amqp, amqp_settings, directory, users, audit, rng } = opened;
    runtime.block_on(begun(&directory));
    see_to_administrator(front, runtime, &broker, &directory, rng.as_ref())?;
    look_at_guest(config.guest, &directory);
    let net = Arc::new(shared(config, front, &broker, workers));
    chores::watch_alarms(runtime.handle(), directory.clone(), net.clone());
    front.registry.register_collector(Box::new(memory::Gauges(net.clone())));
    let shovels = Shovels::registered(&mut front.registry);
    let federation = Federation::registered(&mut front.registry);
    let around = Surroundings::new(&broker, &directory, &amqp_settings, &net, &rng);
    let kafka = KafkaShared::new(live.clone(), broker.clone(), directory.clone()).with_users(users.clone());
    let kafka = Arc::new(kafka.with_audit(audit.clone()));
    let app = Arc::new(App {
        broker,
        kafka: kafka.clone(),
        directory: directory.clone(),
        net: net.clone(),
        settings: std::mem::take(&mut front.settings),
        listeners: std::mem::take(&mut front.statuses),
        registry: std::mem::take(&mut front.registry),
        ready: Ready::default(),
        users: users.clone(),
        rng: rng.clone(),
        reports: config.http_reports.clone(),
        audit: audit.clone(),
        tokens: Mutex::default(),
        rabbitmq: rabbitmq_setup(config, &amqp_settings),
    });
    let (broker, listeners, setup) = (app.broker.clone(), app.listeners.clone(), app.rabbitmq.clone());
    let management = Management::new(broker, directory, amqp_settings, net.clone(), listeners, rng);
    if let Err(why) = runtime.block_on(polylogue_rabbitmq_http::make_topics(&management)) {
        tracing::warn!("some queues are unusable until they are declared again: {why}");
    }
    start_links(runtime, around, &shovels, &federation);
    let management = management.with_movers(shovels, federation).with_users(users).with_audit(audit);
    let management = Arc::new(management.with_setup(setup));
    polylogue_rabbitmq_http::watch_rates(runtime.handle(), &management);
    front.management.open_with(polylogue_rabbitmq_http::router(management));
    front.entrance.open(app.clone());
    front.scrapes.open_with(http::rabbitmq_router(app.clone()));
    let (stop, stopped) = watch::channel(false);
    let gate = gate(config, live);
    watch_files(front, runtime, &stopped);
    let entered = runtime.enter();
    for one in bound {
        let (advertised, asks, tls) = (one.advertised(), one.asks(config), one.tls(front.tls.as_ref()));
        let listener = tokio::net::TcpListener::from_std(one.listener)
            .map_err(|e| StartError(format!("cannot listen at {}: {e}", one.at)))?;
        let (gate, net, stopped) = (gate.clone(), net.clone(), stopped.clone());
        if one.config.protocol == Protocol::Amqp {
            runtime.spawn(accept_loop(listener, amqp.at(one.at.ip()), gate, tls, net, stopped));
        } else {
            let accept = Arc::new(KafkaAccept::new(kafka.clone(), advertised.as_ref(), asks));
            runtime.spawn(accept_loop(listener, accept, gate, tls, net, stopped));
        }
    }
    drop(entered);
    app.ready.set(true);
    announce(&front.lines, front.json);
    runtime.block_on(signals.stop());
    tracing::info!("stopping");
    app.ready.set(false);
    let _ = stop.send(true);
    end_connections(runtime, &net, config.shutdown_ms_max);
    Ok(())
}

/// Waits for requests in flight, up to the time limit.
fn end_connections(runtime: &tokio::runtime::Runtime, net: &Shared, patience_ms: u64) {
    let patience = Duration::from_millis(patience_ms);
    let stopped = runtime.block_on(async { tokio::time::timeout(patience, net.connections.stop()).await });
    if stopped.is_err() {
        tracing::warn!(connections = net.connections.len(), "not all requests ended in time");
    }
    net.workers.stop();
}

/// Starts the worker threads for long work.
fn start_workers(env: &Env, front: &mut Front) -> Result<Workers, StartError> {
    let fail = |e: std::io::Error| StartError(format!("cannot start the threads for long work: {e}"));
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let workers = Workers::start(env, workers::threads_of(processors)).map_err(fail)?;
    workers.register(&mut front.registry);
    Ok(workers)
}

/// State shared by all connections.
fn shared(config: &ServerConfig, front: &Front, broker: &Arc<dyn BrokerHandle>, workers: Workers) -> Shared {
    Shared {
        broker: broker.clone(),
        lanes: Lanes::new(config.inflight_bytes_max, config.connections_max),
        output: OutputGauge::new(config.output_bytes_max),
        answers: AnswerGauge::new(config.output_bytes_max),
        write_stall_ms_max: config.write_stall_ms_max,
        memory: Memory::new(config.memory_limit_bytes),
        workers,
        metrics: front.metrics.clone(),
        connections: Connections::default(),
    }
}

fn rabbitmq_setup(config: &ServerConfig, amqp: &Arc<AmqpSettings>) -> RabbitmqSetup {
    let (connections_max, disk_free_limit_bytes) = (config.connections_max, config.log.disk_free_limit_bytes);
    RabbitmqSetup { amqp: amqp.clone(), connections_max, disk_free_limit_bytes }
}

/// Starts shovels and federation.
fn start_links(
    runtime: &tokio::runtime::Runtime,
    around: Surroundings,
    shovels: &Arc<Shovels>,
    federation: &Arc<Federation>,
) {
    shovel::start(runtime.handle(), around.clone(), shovels.clone());
    federation::start(runtime.handle(), around, federation.clone());
}

fn line(bound: &Bound, json: bool) -> String {
    if json {
        return serde_json::json!({ "listening": bound.status() }).to_string();
    }
    let suffix = if bound.config.tls { "+tls" } else { "" };
    let (protocol, at) = (format!("{}{suffix}", bound.config.protocol.name()), bound.at);
    match (bound.config.protocol, bound.advertised()) {
        (Protocol::Kafka, Some(reported)) => format!("{protocol} listening on {at} (advertised as {reported})"),
        (Protocol::Kafka, None) => {
            format!("{protocol} listening on {at} (advertised as the address at which a client arrives)")
        }
        _ => format!("{protocol} listening on {at}"),
    }
}

/// Creates the first administrator where a login is required.
fn see_to_administrator(
    front: &mut Front,
    runtime: &tokio::runtime::Runtime,
    broker: &Arc<dyn BrokerHandle>,
    directory: &Directory,
    rng: &dyn Rng,
) -> Result<(), StartError> {
    if front.makes_administrator() {
        let made_up = first_administrator(broker, directory, rng, front.admin.as_ref());
        let failed = |why| StartError(format!("cannot make the first administrator: {why}"));
        let made_up = runtime.block_on(made_up).map_err(failed)?;
        front.lines.extend(made_up.map(|password| administrator(&password, front.json)));
    }
    Ok(())
}

/// Warns if `guest`, whose password is public, exists without need.
fn look_at_guest(policy: GuestPolicy, directory: &Directory) {
    if policy == GuestPolicy::Auto && directory.has_guest_beside_administrator() {
        tracing::warn!("{GUEST_IS_THERE}");
    }
}

/// Prints the name and password of the first administrator, this once.
fn administrator(password: &Password, json: bool) -> String {
    let (user, password) = (FIRST_ADMINISTRATOR, password.shown());
    if json {
        return serde_json::json!({ "administrator": { "user": user, "password": password } }).to_string();
    }
    format!(
        "made the user {user} with the password {password} (shown this once; {ADMIN_PASSWORD_VARIABLE} sets another)"
    )
}

/// Prints the listeners' addresses and readiness to standard output, where scripts wait for it. A closed standard output is not an
/// error.
fn announce(lines: &[String], json: bool) {
    let mut out = std::io::stdout().lock();
    for line in lines {
        let _ = writeln!(out, "{line}");
    }
    let ready = if json { r#"{"ready":true}"# } else { "polylogue ready" };
    let _ = writeln!(out, "{ready}");
    let _ = out.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A broker for RabbitMQ's clients elsewhere had no administrator: `guest` alone, who cannot log in there.
    #[test]
    fn listeners_for_others_than_this_machine_want_an_administrator() {
        let [here, elsewhere] = ["127.0.0.1", "0.0.0.0"].map(|at| at.parse::<IpAddr>().expect("an address"));
        for protocol in [Protocol::Amqp, Protocol::RabbitmqHttp] {
            assert!(!knows_no_guest(protocol, here) && knows_no_guest(protocol, elsewhere), "{protocol:?}");
        }
        assert!(!knows_no_guest(Protocol::Kafka, elsewhere), "server.login says that of Kafka's");
    }
}
