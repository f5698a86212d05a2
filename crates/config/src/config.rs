//! The typed configuration, with checks across options.

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
    /// The protocol.
    pub protocol: Protocol,
    /// Whether it uses TLS.
    pub tls: bool,
    /// The address to bind to.
    pub bind: HostPort,
    /// The advertised address, if set; its port is 0 for the listener's own.
    pub advertise: Option<HostPort>,
}

/// Which listeners require a login.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoginPolicy {
    /// Those that are not bound to a loopback address.
    Auto,
    /// All.
    Always,
    /// None.
    Never,
}

impl LoginPolicy {
    /// Whether a listener at this address requires a login.
    #[must_use]
    pub fn asks_at(self, address: IpAddr) -> bool {
        match self {
            LoginPolicy::Auto => !address.to_canonical().is_loopback(),
            LoginPolicy::Always => true,
            LoginPolicy::Never => false,
        }
    }
}

/// The rule for the user `guest`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GuestPolicy {
    /// Created in a new directory unless its first start creates an administrator; may log in from this machine.
    Auto,
    /// Created in a new directory; may log in from this machine.
    On,
    /// Not created, and may not log in.
    Off,
}

impl GuestPolicy {
    /// Returns the model's rule, given whether the first start creates an administrator.
    #[must_use]
    pub fn rule(self, makes_administrator: bool) -> GuestRule {
        let is_made = self == GuestPolicy::On || self == GuestPolicy::Auto && !makes_administrator;
        GuestRule { is_made, may_log_in: self != GuestPolicy::Off }
    }
}

/// The `[log]` section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogConfig {
    /// Number of journals of durability `sync`.
    pub sync_shards: u32,
    /// The size of a journal file. Bytes.
    pub journal_file_bytes: u64,
    /// The I/O mode of journals.
    pub journal_io: JournalIo,
    /// Journal size that triggers a checkpoint. Bytes.
    pub checkpoint_bytes_max: u64,
    /// Free disk space below which writes are refused. Bytes.
    pub disk_reserve_bytes: u64,
    /// Free disk space that raises the disk alarm. Bytes.
    pub disk_free_limit_bytes: u64,
    /// The maximum read rate of a backup. Bytes per second.
    pub backup_bytes_per_sec: u64,
    /// Timeout for a backup. Milliseconds.
    pub backup_ms_max: u64,
    /// The longest time that an acknowledged `async` message stays unflushed. Milliseconds.
    pub async_flush_ms_max: u64,
    /// The longest time that a record without a waiter stays unflushed. Milliseconds.
    pub lazy_flush_ms_max: u64,
    /// The maximum number of partitions of all topics.
    pub partitions_max: u64,
    /// The size of a `memory` partition. Bytes.
    pub memory_partition_bytes_max: u64,
    /// Threads that read cold data.
    pub reader_threads: usize,
    /// The cache of recent messages. Bytes.
    pub tail_cache_bytes: usize,
    /// The size to which it may grow for lagging readers; 0 for a share of the machine's memory. Bytes.
    pub tail_cache_bytes_max: usize,
    /// The cache of journal data read back from disk. Bytes.
    pub read_cache_bytes: usize,
    /// The cache of segment indexes. Bytes.
    pub index_cache_bytes: usize,
    /// The maximum number of open segment files.
    pub open_segments_max: usize,
    /// Long-lived data that triggers a merge. Bytes.
    pub merge_bytes: u64,
    /// The maximum amount of journal files that a merge preloads into the page cache. Bytes.
    pub merge_preload_bytes: u64,
    /// Age of long-lived data that triggers a merge. Milliseconds.
    pub merge_ms_max: u64,
    /// Size of sealed journals that triggers a merge of all data. Bytes.
    pub journal_keep_bytes_max: u64,
}

/// The server's configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerConfig {
    /// The data directory.
    pub data: PathBuf,
    /// The listeners, in the order given.
    pub listeners: Vec<ListenerConfig>,
    /// The files of TLS; none if no listener uses it.
    pub tls: Option<TlsFiles>,
    /// The issuer of tokens; none if tokens are not accepted.
    pub oauth: Option<OAuthConfig>,
    /// Which listeners require a login.
    pub login: LoginPolicy,
    /// The rule for the user `guest`.
    pub guest: GuestPolicy,
    /// The limit on client connections.
    pub connections_max: usize,
    /// Memory of requests in progress, over all connections. Bytes.
    pub inflight_bytes_max: usize,
    /// Memory of Kafka consumer groups. Bytes.
    pub group_bytes_max: usize,
    /// The same, per user. Bytes.
    pub group_bytes_per_user_max: usize,
    /// Memory of responses that clients have not received, over all connections. Bytes.
    pub output_bytes_max: usize,
    /// The memory high watermark; 0 for a share of the machine's memory. Bytes.
    pub memory_limit_bytes: u64,
    /// How long a client may receive nothing of a response. Milliseconds.
    pub write_stall_ms_max: u64,
    /// Threads that serve connections; `None` for one per core.
    pub worker_threads: Option<usize>,
    /// The limit on connections to the http listeners.
    pub http_connections_max: usize,
    /// The same, per address.
    pub http_connections_per_ip_max: usize,
    /// The limit on http request bodies being received, per address.
    pub http_bodies_per_ip_max: usize,
    /// Timeout for receiving one. Milliseconds.
    pub http_body_ms_max: u64,
    /// The maximum size of an http request body. Bytes.
    pub http_body_bytes_max: usize,
    /// Directory of the reports shown in the console.
    pub http_reports: Option<PathBuf>,
    /// How long a shutdown waits for requests in progress. Milliseconds.
    pub shutdown_ms_max: u64,
    /// The log filter.
    pub log_filter: String,
    /// Whether log lines are JSON.
    pub log_json: bool,
    /// The `[log]` section.
    pub log: LogConfig,
    /// AMQP's settings.
    pub amqp: AmqpSettings,
    /// Whether classic queues deliver messages before they are flushed.
    pub early_deliveries: bool,
    /// The longest time that a queue withholds credit from publishers without confirms. Milliseconds.
    pub publish_credit_ms_max: u64,
    /// Kafka's settings.
    pub kafka: BrokerSettings,
    /// Warnings for the operator, one line each.
    pub warnings: Vec<String>,
}

/// Kafka settings whose counterpart here has another name.
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
    /// Makes the configuration from resolved values.
    ///
    /// # Errors
    /// An unknown or invalid Kafka setting, or options that contradict each other.
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

/// Converts a size; saturates where pointers are smaller, which means no limit.
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

/// Returns the AMQP settings. Clients parse the version as numbers separated by dots, so that another format would break them.
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
        // Must fit one message, and the start of another that arrives meanwhile.
        assembling_bytes_max: default.assembling_bytes_max.max(small(message_bytes_max.saturating_mul(2))),
        ..default
    })
}

/// Returns Kafka's settings, and a warning for each one without effect.
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
                Some(Tolerated::Plugin) => ": it belongs to a plugin of Kafka brokers",
                None => "",
            };
            format!("kafka.{name} (from {source}) has no effect here{why}{instead}")
        })
        .collect();
    let mut settings = parsed.settings;
    settings.sessions.fixed = Arc::new(fixed(r, base, raw));
    Ok((settings, warnings))
}

/// Returns the settings fixed at the start, for DescribeConfigs and AlterConfigs.
fn fixed(r: &Resolved, topic_base: TopicConfig, mut raw: BTreeMap<String, String>) -> Fixed {
    let tail_cache_bytes = r.number(&t::TAIL_CACHE_BYTES);
    if tail_cache_bytes != polylogue_types::limits::TAIL_CACHE_BYTES as u64 {
        raw.insert("polylogue.tail.cache.bytes".to_owned(), tail_cache_bytes.to_string());
    }
    let data = PathBuf::from(r.value(&t::DATA));
    let data_dir = std::path::absolute(&data).unwrap_or(data).display().to_string();
    Fixed { topic_base, raw, data_dir }
}

/// Returns the files of TLS, if a listener needs them.
fn tls(r: &Resolved, listeners: &[ListenerConfig]) -> Result<Option<TlsFiles>, OptionError> {
    let Some(listener) = listeners.iter().find(|listener| listener.tls) else { return Ok(None) };
    let path = |def: &t::OptionDef| Some(PathBuf::from(r.value(def))).filter(|path| !path.as_os_str().is_empty());
    let missing = |def: &t::OptionDef| {
        let (protocol, at) = (listener.protocol.name(), &listener.bind);
        OptionError(format!("{}: {protocol}+tls={at} requires one", def.full_name()))
    };
    let client_auth = match r.value(&t::TLS_CLIENT_AUTH) {
        "request" => ClientAuth::Request,
        "require" => ClientAuth::Require,
        _ => ClientAuth::None,
    };
    let client_ca = path(&t::TLS_CLIENT_CA);
    if client_ca.is_none() && client_auth != ClientAuth::None {
        return Err(OptionError(format!("{}: tls.client_auth requires one", t::TLS_CLIENT_CA.full_name())));
    }
    let rules = r.value(&t::TLS_PRINCIPALS);
    let wrong = |why: String| OptionError(format!("{}: {why}", t::TLS_PRINCIPALS.full_name()));
    let principals = match rules.is_empty() {
        true => None,
        false if client_auth == ClientAuth::None => return Err(wrong("it requires tls.client_auth".to_owned())),
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

/// Returns the token settings, if tokens are accepted.
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

/// Returns the listeners with their advertised addresses: the n-th advertised address of a protocol belongs to its n-th listener.
fn listeners(r: &Resolved) -> Result<Vec<ListenerConfig>, OptionError> {
    let list = |def: &t::OptionDef| {
        ProtocolAddress::parse_list(r.value(def)).map_err(|why| OptionError(format!("{}: {why}", def.full_name())))
    };
    let mut advertised = list(&t::ADVERTISE)?;
    let mut listeners = Vec::new();
    for ProtocolAddress { protocol, tls, address } in list(&t::LISTEN)? {
        let first = advertised.iter().position(|a| (a.protocol, a.tls) == (protocol, tls));
        let advertise = first.map(|i| advertised.remove(i).address);
        let taken = listeners.iter().find(|l: &&ListenerConfig| l.bind == address && address.port != 0);
        if let Some(taken) = taken {
            let (one, other) = (taken.protocol.name(), protocol.name());
            return Err(OptionError(format!("server.listen: {address} is given twice: to {one}, and to {other}")));
        }
        listeners.push(ListenerConfig { protocol, tls, bind: address, advertise });
    }
    if let Some(left) = advertised.first() {
        let left_for = left.to_string();
        let protocol = left_for.split('=').next().unwrap_or_default();
        return Err(OptionError(format!("server.advertise: {left}: there is no {protocol} listener left for it")));
    }
    if listeners.is_empty() {
        return Err(OptionError("server.listen: at least one listener is required".to_owned()));
    }
    Ok(listeners)
}

#[cfg(test)]
mod tests;
