//! The options as the server uses them: typed, checked against each other.

use super::resolve::{OptionError, Resolved};
use super::table as t;
use polylogue_amqp::settings::{AmqpSettings, Mechanism};
use polylogue_amqp_gateway::GuestRule;
use polylogue_api::{Durability, TopicConfig};
use polylogue_auth::TokenRules;
use polylogue_kafka::config::{BrokerSettings, Fixed, Tolerated, parse_broker_settings, tolerated};
use polylogue_log::journal::JournalIo;
use polylogue_net::SMALL_SHARE;
use polylogue_net::address::{HostPort, Protocol, ProtocolAddress};
use polylogue_net::oauth::{KeySource, OAuthConfig};
use polylogue_net::principal::PrincipalRules;
use polylogue_net::tls::{ClientAuth, TlsFiles};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// One listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenerConfig {
    /// What is spoken.
    pub protocol: Protocol,
    /// Whether it is spoken over TLS.
    pub tls: bool,
    /// Where it is bound.
    pub bind: HostPort,
    /// The advertised address, if set; its port is 0 for the listener's own.
    pub advertise: Option<HostPort>,
}

/// Where clients have to say who they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoginPolicy {
    /// At listeners that others than this machine can reach.
    Auto,
    /// At all.
    Always,
    /// At none.
    Never,
}

impl LoginPolicy {
    /// Whether a listener at this address asks.
    #[must_use]
    pub fn asks_at(self, address: IpAddr) -> bool {
        match self {
            LoginPolicy::Auto => !address.to_canonical().is_loopback(),
            LoginPolicy::Always => true,
            LoginPolicy::Never => false,
        }
    }
}

/// What holds for the user `guest`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GuestPolicy {
    /// A new directory has it unless its first start makes an administrator; it logs in from this machine.
    Auto,
    /// A new directory has it; it logs in from this machine.
    On,
    /// It never logs in, and no new directory has it.
    Off,
}

impl GuestPolicy {
    /// The rule for the user in a process that makes an administrator at its first start, or none.
    #[must_use]
    pub fn rule(self, makes_administrator: bool) -> GuestRule {
        let is_made = self == GuestPolicy::On || self == GuestPolicy::Auto && !makes_administrator;
        GuestRule { is_made, may_log_in: self != GuestPolicy::Off }
    }
}

/// Everything of the `[log]` section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogConfig {
    /// Journals of durability `sync`.
    pub sync_shards: u32,
    /// The size of a journal file. Bytes.
    pub journal_file_bytes: u64,
    /// How journals are written.
    pub journal_io: JournalIo,
    /// Journal replayed at a start. Bytes.
    pub checkpoint_bytes_max: u64,
    /// Free disk space under which messages are refused. Bytes.
    pub disk_reserve_bytes: u64,
    /// Free disk space under which publishers to queues wait. Bytes.
    pub disk_free_limit_bytes: u64,
    /// The pace of a backup, at the most. Bytes a second.
    pub backup_bytes_per_sec: u64,
    /// How long a backup may take. Milliseconds.
    pub backup_ms_max: u64,
    /// How long an acknowledged `async` message stays unflushed. Milliseconds.
    pub async_flush_ms_max: u64,
    /// How long a record without a waiter stays unflushed. Milliseconds.
    pub lazy_flush_ms_max: u64,
    /// Partitions of all topics.
    pub partitions_max: u64,
    /// What a `memory` partition keeps. Bytes.
    pub memory_partition_bytes_max: u64,
    /// Threads that read cold data.
    pub reader_threads: usize,
    /// Recent messages in memory. Bytes.
    pub tail_cache_bytes: usize,
    /// What that may grow to for readers behind; 0 for a share of what the machine has. Bytes.
    pub tail_cache_bytes_max: usize,
    /// Pieces of journals in memory that were read back. Bytes.
    pub read_cache_bytes: usize,
    /// Pieces of segment indexes in memory. Bytes.
    pub index_cache_bytes: usize,
    /// Segment files held open.
    pub open_segments_max: usize,
    /// Long-lived data that makes a merge due. Bytes.
    pub merge_bytes: u64,
    /// Journal files that a merge brings into the page cache at first, at the most. Bytes.
    pub merge_preload_bytes: u64,
    /// Age of long-lived data that makes a merge due. Milliseconds.
    pub merge_ms_max: u64,
    /// Sealed journal that makes a merge of everything due. Bytes.
    pub journal_keep_bytes_max: u64,
}

/// The server's configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerConfig {
    /// The data directory.
    pub data: PathBuf,
    /// The listeners, in the order given.
    pub listeners: Vec<ListenerConfig>,
    /// What TLS is made of; none when no listener speaks it.
    pub tls: Option<TlsFiles>,
    /// Whose tokens are logins; none when tokens are not.
    pub oauth: Option<OAuthConfig>,
    /// Where clients have to say who they are.
    pub login: LoginPolicy,
    /// What holds for the user `guest`.
    pub guest: GuestPolicy,
    /// Connections of clients at a time.
    pub connections_max: usize,
    /// Bytes of requests in work over all connections.
    pub inflight_bytes_max: usize,
    /// What groups of Kafka's clients may hold in memory. Bytes.
    pub group_bytes_max: usize,
    /// What those of one user may. Bytes.
    pub group_bytes_per_user_max: usize,
    /// Bytes of responses not yet taken over all connections.
    pub output_bytes_max: usize,
    /// Memory of the process above which publishers to queues wait; 0 for what fits the machine. Bytes.
    pub memory_limit_bytes: u64,
    /// How long a client may take nothing of a response. Milliseconds.
    pub write_stall_ms_max: u64,
    /// Threads that serve connections; `None` for one a core.
    pub worker_threads: Option<usize>,
    /// Connections to the http listeners at a time.
    pub http_connections_max: usize,
    /// Connections to the http listeners at a time from one address.
    pub http_connections_per_ip_max: usize,
    /// Bodies of http requests on their way at a time from one address.
    pub http_bodies_per_ip_max: usize,
    /// How long one may take. Milliseconds.
    pub http_body_ms_max: u64,
    /// The largest body of an http request. Bytes.
    pub http_body_bytes_max: usize,
    /// Where reports for the console are.
    pub http_reports: Option<PathBuf>,
    /// How long a stop waits for requests in work. Milliseconds.
    pub shutdown_ms_max: u64,
    /// What is logged.
    pub log_filter: String,
    /// Whether log lines are JSON.
    pub log_json: bool,
    /// The log.
    pub log: LogConfig,
    /// AMQP's settings.
    pub amqp: AmqpSettings,
    /// Whether classic queues of AMQP hand out messages before they are flushed.
    pub early_deliveries: bool,
    /// The longest that a queue of AMQP withholds credit from publishers without confirms. Milliseconds.
    pub publish_credit_ms_max: u64,
    /// Kafka's settings.
    pub kafka: BrokerSettings,
    /// Things that the operator should know, one line each.
    pub warnings: Vec<String>,
}

/// Kafka's settings that have another name here.
const ELSEWHERE: [(&str, &str); 18] = [
    ("advertised.listeners", "server.advertise"),
    ("listeners", "server.listen"),
    ("log.dir", "server.data"),
    ("log.dirs", "server.data"),
    ("log.flush.interval.ms", "log.durability"),
    ("num.io.threads", "server.worker_threads"),
    ("num.network.threads", "server.worker_threads"),
    ("queued.max.request.bytes", "server.inflight_bytes_max"),
    ("queued.max.requests", "server.connection_requests_max"),
    ("log.segment.bytes", "log.journal_file_bytes"),
    ("producer.id.expiration.check.interval.ms", "kafka.producer.id.expiration.ms"),
    ("sasl.oauthbearer.clock.skew.seconds", "oauth.clock_skew_ms_max"),
    ("sasl.oauthbearer.expected.audience", "oauth.audience"),
    ("sasl.oauthbearer.expected.issuer", "oauth.issuer"),
    ("sasl.oauthbearer.jwks.endpoint.refresh.ms", "oauth.jwks_refresh_ms"),
    ("sasl.oauthbearer.jwks.endpoint.url", "oauth.jwks"),
    ("sasl.oauthbearer.scope.claim.name", "oauth.scope_claim"),
    ("sasl.oauthbearer.sub.claim.name", "oauth.name_claim"),
];

impl ServerConfig {
    /// Makes the configuration out of the values that hold.
    ///
    /// # Errors
    /// A Kafka setting that Kafka does not know or whose value does not fit, or options that contradict each other.
    pub fn from_resolved(r: &Resolved) -> Result<ServerConfig, OptionError> {
        let (kafka, warnings) = kafka(r)?;
        let listeners = listeners(r)?;
        let mut config = ServerConfig {
            data: PathBuf::from(r.value(&t::DATA)),
            tls: tls(r, &listeners)?,
            oauth: oauth(r)?,
            listeners,
            login: match r.value(&t::LOGIN) {
                "always" => LoginPolicy::Always,
                "never" => LoginPolicy::Never,
                _ => LoginPolicy::Auto,
            },
            guest: match r.value(&t::GUEST) {
                "on" => GuestPolicy::On,
                "off" => GuestPolicy::Off,
                _ => GuestPolicy::Auto,
            },
            connections_max: small(r.number(&t::CONNECTIONS_MAX)),
            inflight_bytes_max: small(r.number(&t::INFLIGHT_BYTES_MAX)),
            group_bytes_max: small(r.number(&t::GROUP_BYTES_MAX)),
            group_bytes_per_user_max: small(r.number(&t::GROUP_BYTES_PER_USER_MAX)),
            output_bytes_max: small(r.number(&t::OUTPUT_BYTES_MAX)),
            memory_limit_bytes: r.number(&t::MEMORY_LIMIT_BYTES),
            write_stall_ms_max: r.number(&t::WRITE_STALL_MS_MAX),
            worker_threads: Some(small(r.number(&t::WORKER_THREADS))).filter(|threads| *threads > 0),
            http_connections_max: small(r.number(&t::HTTP_CONNECTIONS_MAX)),
            http_connections_per_ip_max: small(r.number(&t::HTTP_CONNECTIONS_PER_IP_MAX)),
            http_bodies_per_ip_max: small(r.number(&t::HTTP_BODIES_PER_IP_MAX)),
            http_body_ms_max: r.number(&t::HTTP_BODY_MS_MAX),
            http_body_bytes_max: small(r.number(&t::HTTP_BODY_BYTES_MAX)),
            http_reports: Some(PathBuf::from(r.value(&t::HTTP_REPORTS))).filter(|path| !path.as_os_str().is_empty()),
            shutdown_ms_max: r.number(&t::SHUTDOWN_MS_MAX),
            log_filter: r.value(&t::LOG_FILTER).to_owned(),
            log_json: r.value(&t::LOG_FORMAT) == "json",
            log: log(r),
            amqp: amqp(r)?,
            publish_credit_ms_max: r.number(&t::AMQP_PUBLISH_CREDIT_MS_MAX),
            early_deliveries: r.value(&t::AMQP_CLASSIC_DELIVERY) == "early",
            kafka,
            warnings,
        };
        config.kafka.sessions.inflight_requests_max = small(r.number(&t::CONNECTION_REQUESTS_MAX));
        let request_bytes_max = config.kafka.sessions.request_bytes_max;
        let large_bytes = config.inflight_bytes_max - config.inflight_bytes_max / SMALL_SHARE;
        if large_bytes < request_bytes_max {
            return Err(OptionError(format!(
                "server.inflight_bytes_max ({}) is too small for kafka.socket.request.max.bytes ({request_bytes_max}): \
                 three quarters of it must hold the largest request",
                r.value(&t::INFLIGHT_BYTES_MAX)
            )));
        }
        Ok(config)
    }
}

/// On a machine with small pointers a size may be larger than memory can be; then it is no bound.
fn small(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn log(r: &Resolved) -> LogConfig {
    LogConfig {
        sync_shards: u32::try_from(r.number(&t::SYNC_SHARDS)).unwrap_or(u32::MAX),
        journal_file_bytes: r.number(&t::JOURNAL_FILE_BYTES),
        journal_io: match r.value(&t::JOURNAL_IO) {
            "direct" => JournalIo::Direct,
            "cached" => JournalIo::Cached,
            _ => JournalIo::BySize,
        },
        checkpoint_bytes_max: r.number(&t::CHECKPOINT_BYTES_MAX),
        disk_reserve_bytes: r.number(&t::DISK_RESERVE_BYTES),
        disk_free_limit_bytes: r.number(&t::DISK_FREE_LIMIT_BYTES),
        backup_bytes_per_sec: r.number(&t::BACKUP_BYTES_PER_SEC),
        backup_ms_max: r.number(&t::BACKUP_MS_MAX),
        async_flush_ms_max: r.number(&t::ASYNC_FLUSH_MS_MAX),
        lazy_flush_ms_max: r.number(&t::LAZY_FLUSH_MS_MAX),
        partitions_max: r.number(&t::PARTITIONS_MAX),
        memory_partition_bytes_max: r.number(&t::MEMORY_PARTITION_BYTES_MAX),
        reader_threads: small(r.number(&t::READER_THREADS)),
        tail_cache_bytes: small(r.number(&t::TAIL_CACHE_BYTES)),
        tail_cache_bytes_max: small(r.number(&t::TAIL_CACHE_BYTES_MAX)),
        read_cache_bytes: small(r.number(&t::READ_CACHE_BYTES)),
        index_cache_bytes: small(r.number(&t::INDEX_CACHE_BYTES)),
        open_segments_max: small(r.number(&t::OPEN_SEGMENTS_MAX)),
        merge_bytes: r.number(&t::MERGE_BYTES),
        merge_preload_bytes: r.number(&t::MERGE_PRELOAD_BYTES),
        merge_ms_max: r.number(&t::MERGE_MS_MAX),
        journal_keep_bytes_max: r.number(&t::JOURNAL_KEEP_BYTES_MAX),
    }
}

/// AMQP's settings. Clients split the version at its dots and compare numbers: another text would break them, not us.
fn amqp(r: &Resolved) -> Result<AmqpSettings, OptionError> {
    let version = r.value(&t::AMQP_VERSION);
    let numbers: Vec<Option<u32>> = version.split('.').map(|part| part.parse().ok()).collect();
    if numbers.len() != 3 || numbers.contains(&None) {
        let name = t::AMQP_VERSION.full_name();
        let source = r.source(&name);
        return Err(OptionError(format!(
            "{name}: expected three numbers with dots between, such as {}, not {version} (from {source})",
            t::AMQP_VERSION.default
        )));
    }
    let mut mechanisms = AmqpSettings::default().mechanisms;
    if !r.value(&t::TLS_PRINCIPALS).is_empty() {
        mechanisms.push(Mechanism::External);
    }
    let anonymous_user = Some(r.value(&t::AMQP_ANONYMOUS_USER).to_owned()).filter(|user| !user.is_empty());
    if anonymous_user.is_some() {
        mechanisms.push(Mechanism::Anonymous);
    }
    let message_bytes_max = r.number(&t::AMQP_MESSAGE_BYTES_MAX);
    let default = AmqpSettings::default();
    Ok(AmqpSettings {
        product: r.value(&t::AMQP_PRODUCT).to_owned(),
        version: version.to_owned(),
        cluster_name: r.value(&t::AMQP_CLUSTER_NAME).to_owned(),
        heartbeat_seconds: u16::try_from(r.number(&t::AMQP_HEARTBEAT_SECONDS)).unwrap_or(u16::MAX),
        frame_bytes_max: u32::try_from(r.number(&t::AMQP_FRAME_BYTES_MAX)).unwrap_or(u32::MAX),
        channel_max: u16::try_from(r.number(&t::AMQP_CHANNEL_MAX)).unwrap_or(u16::MAX),
        ack_ms_max: r.number(&t::AMQP_ACK_MS_MAX),
        publish_credit: r.number(&t::AMQP_PUBLISH_CREDIT),
        unsent_bytes_max: u32::try_from(r.number(&t::AMQP_UNSENT_BYTES_MAX)).unwrap_or(u32::MAX),
        body_ms_max: r.number(&t::AMQP_BODY_MS_MAX),
        mechanisms,
        anonymous_user,
        message_bytes_max,
        // One message has to fit, and another that begins while it is on its way.
        assembling_bytes_max: default.assembling_bytes_max.max(small(message_bytes_max.saturating_mul(2))),
        ..default
    })
}

/// Kafka's settings, and a warning for each that means nothing here.
fn kafka(r: &Resolved) -> Result<(BrokerSettings, Vec<String>), OptionError> {
    let base = TopicConfig {
        durability: match r.value(&t::DURABILITY) {
            "async" => Durability::Async,
            "memory" => Durability::Memory,
            _ => Durability::Sync,
        },
        ..TopicConfig::default()
    };
    let raw = r.kafka();
    let parsed = parse_broker_settings(&base, &raw).map_err(|error| {
        let source = r.source(&format!("kafka.{}", error.name()));
        OptionError(format!("[kafka] {error} (from {source})"))
    })?;
    let warnings = parsed
        .without_meaning
        .iter()
        .map(|name| {
            let source = r.source(&format!("kafka.{name}"));
            let instead = ELSEWHERE.iter().find(|(kafka, _)| kafka == name);
            let instead = instead.map_or(String::new(), |(_, ours)| format!("; see {ours}"));
            let why = match tolerated(name) {
                Some(Tolerated::Removed) => ": Kafka has removed it",
                Some(Tolerated::Plugin) => ": it is for a plugin of Kafka's brokers",
                None => "",
            };
            format!("kafka.{name} (from {source}) has no effect here{why}{instead}")
        })
        .collect();
    let mut settings = parsed.settings;
    settings.sessions.fixed = Arc::new(fixed(r, base, raw));
    Ok((settings, warnings))
}

/// What the broker is started with, for changes and listings of settings while it runs.
fn fixed(r: &Resolved, topic_base: TopicConfig, mut raw: BTreeMap<String, String>) -> Fixed {
    let tail_cache_bytes = r.number(&t::TAIL_CACHE_BYTES);
    if tail_cache_bytes != polylogue_types::limits::TAIL_CACHE_BYTES as u64 {
        raw.insert("polylogue.tail.cache.bytes".to_owned(), tail_cache_bytes.to_string());
    }
    let data = PathBuf::from(r.value(&t::DATA));
    let data_dir = std::path::absolute(&data).unwrap_or(data).display().to_string();
    Fixed { topic_base, raw, data_dir }
}

/// The files of TLS, where a listener wants them.
fn tls(r: &Resolved, listeners: &[ListenerConfig]) -> Result<Option<TlsFiles>, OptionError> {
    let Some(listener) = listeners.iter().find(|listener| listener.tls) else { return Ok(None) };
    let path = |def: &t::OptionDef| Some(PathBuf::from(r.value(def))).filter(|path| !path.as_os_str().is_empty());
    let missing = |def: &t::OptionDef| {
        let (protocol, at) = (listener.protocol.name(), &listener.bind);
        OptionError(format!("{}: {protocol}+tls={at} wants one", def.full_name()))
    };
    let client_auth = match r.value(&t::TLS_CLIENT_AUTH) {
        "request" => ClientAuth::Request,
        "require" => ClientAuth::Require,
        _ => ClientAuth::None,
    };
    let client_ca = path(&t::TLS_CLIENT_CA);
    if client_ca.is_none() && client_auth != ClientAuth::None {
        return Err(OptionError(format!("{}: tls.client_auth wants one", t::TLS_CLIENT_CA.full_name())));
    }
    let rules = r.value(&t::TLS_PRINCIPALS);
    let wrong = |why: String| OptionError(format!("{}: {why}", t::TLS_PRINCIPALS.full_name()));
    let principals = match rules.is_empty() {
        true => None,
        false if client_auth == ClientAuth::None => return Err(wrong("it wants tls.client_auth".to_owned())),
        false => Some(PrincipalRules::parse(rules).map_err(wrong)?),
    };
    Ok(Some(TlsFiles {
        certificate: path(&t::TLS_CERTIFICATE).ok_or_else(|| missing(&t::TLS_CERTIFICATE))?,
        key: path(&t::TLS_KEY).ok_or_else(|| missing(&t::TLS_KEY))?,
        client_ca,
        revoked: path(&t::TLS_REVOKED),
        client_auth,
        handshake_ms_max: r.number(&t::TLS_HANDSHAKE_MS_MAX),
        principals,
    }))
}

/// Whose tokens are logins, where any are.
fn oauth(r: &Resolved) -> Result<Option<OAuthConfig>, OptionError> {
    let text = |def: &t::OptionDef| Some(r.value(def).to_owned()).filter(|text| !text.is_empty());
    let Some(jwks) = text(&t::OAUTH_JWKS) else { return Ok(None) };
    let source = KeySource::parse(&jwks).map_err(|why| OptionError(format!("{}: {why}", t::OAUTH_JWKS.full_name())))?;
    let audience = text(&t::OAUTH_AUDIENCE);
    let of_audience = || audience.as_ref().map(|audience| format!("{audience}.")).unwrap_or_default();
    let rules = TokenRules {
        issuer: text(&t::OAUTH_ISSUER),
        name_claim: r.value(&t::OAUTH_NAME_CLAIM).to_owned(),
        scope_claim: r.value(&t::OAUTH_SCOPE_CLAIM).to_owned(),
        scope_prefix: text(&t::OAUTH_SCOPE_PREFIX).unwrap_or_else(of_audience),
        administrator_scope: r.value(&t::OAUTH_ADMINISTRATOR_SCOPE).to_owned(),
        clock_skew_ms: r.number(&t::OAUTH_CLOCK_SKEW_MS_MAX),
        audience,
    };
    let (ca, refresh_ms) = (text(&t::OAUTH_JWKS_CA).map(PathBuf::from), r.number(&t::OAUTH_JWKS_REFRESH_MS));
    Ok(Some(OAuthConfig { source, ca, refresh_ms, rules }))
}

/// Listeners with what they advertise: the first advertised address of a protocol is for its first listener, and so on.
fn listeners(r: &Resolved) -> Result<Vec<ListenerConfig>, OptionError> {
    let list = |def: &t::OptionDef| {
        ProtocolAddress::parse_list(r.value(def)).map_err(|why| OptionError(format!("{}: {why}", def.full_name())))
    };
    let mut advertised = list(&t::ADVERTISE)?;
    let mut listeners = Vec::new();
    for ProtocolAddress { protocol, tls, address } in list(&t::LISTEN)? {
        let first = advertised.iter().position(|a| (a.protocol, a.tls) == (protocol, tls));
        let advertise = first.map(|i| advertised.remove(i).address);
        if listeners.iter().any(|l: &ListenerConfig| l.bind == address && address.port != 0) {
            return Err(OptionError(format!("server.listen: {address} is given twice")));
        }
        listeners.push(ListenerConfig { protocol, tls, bind: address, advertise });
    }
    if let Some(left) = advertised.first() {
        let left_for = left.to_string();
        let protocol = left_for.split('=').next().unwrap_or_default();
        return Err(OptionError(format!("server.advertise: {left}: there is no {protocol} listener left for it")));
    }
    if listeners.is_empty() {
        return Err(OptionError("server.listen: no listener is left; name at least one".to_owned()));
    }
    Ok(listeners)
}

#[cfg(test)]
mod tests;
