//! The table of options: the source of parsing, `polylogue config` and docs/config.md.

use super::value::OptionKind;
use polylogue_types::limits;

/// A section of the configuration file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Section {
    /// Listeners, connections, the process.
    Server,
    /// TLS certificates of listeners.
    Tls,
    /// Tokens of an identity provider.
    OAuth,
    /// The log and stored data.
    Log,
    /// AMQP server properties and limits.
    Amqp,
    /// Kafka's broker settings, under Kafka's names.
    Kafka,
}

impl Section {
    /// All sections, in the order of the documentation.
    pub const ALL: [Section; 6] =
        [Section::Server, Section::Tls, Section::OAuth, Section::Log, Section::Amqp, Section::Kafka];

    /// Returns its name in the file and in option names.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Section::Server => "server",
            Section::Tls => "tls",
            Section::OAuth => "oauth",
            Section::Log => "log",
            Section::Amqp => "amqp",
            Section::Kafka => "kafka",
        }
    }
}

/// One option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionDef {
    /// Its section.
    pub section: Section,
    /// The name within the section; the unit comes last.
    pub name: &'static str,
    /// The type of its value, with its bounds.
    pub kind: OptionKind,
    /// The default, in canonical form.
    pub default: &'static str,
    /// Description, in a sentence or two.
    pub doc: &'static str,
}

impl OptionDef {
    /// Returns `section.name`, as `--set` takes it.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.section.name(), self.name)
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
const DAY_MS: u64 = 24 * 3_600_000;

const fn server(name: &'static str, kind: OptionKind, default: &'static str, doc: &'static str) -> OptionDef {
    OptionDef { section: Section::Server, name, kind, default, doc }
}

const fn tls(name: &'static str, kind: OptionKind, default: &'static str, doc: &'static str) -> OptionDef {
    OptionDef { section: Section::Tls, name, kind, default, doc }
}

const fn oauth(name: &'static str, kind: OptionKind, default: &'static str, doc: &'static str) -> OptionDef {
    OptionDef { section: Section::OAuth, name, kind, default, doc }
}

const fn log(name: &'static str, kind: OptionKind, default: &'static str, doc: &'static str) -> OptionDef {
    OptionDef { section: Section::Log, name, kind, default, doc }
}

const fn amqp(name: &'static str, kind: OptionKind, default: &'static str, doc: &'static str) -> OptionDef {
    OptionDef { section: Section::Amqp, name, kind, default, doc }
}

pub(super) const DATA: OptionDef = server(
    "data",
    OptionKind::Path,
    "./polylogue-data",
    "The data directory. It is created when it is missing. One process at a time may use it.",
);
pub(super) const LISTEN: OptionDef = server(
    "listen",
    OptionKind::Addresses,
    "kafka=127.0.0.1:9092,http=127.0.0.1:9600",
    "Where each protocol listens: PROTOCOL=HOST:PORT, several with commas between or as a list. Protocols are kafka, http, amqp (RabbitMQ's AMQP \
     0-9-1), rabbitmq-http (its management API) and rabbitmq-metrics (its metrics for Prometheus); with +tls behind the name the listener speaks \
     TLS. Port 0 takes a free port and prints it. `all` is a listener of each protocol that the list does not name, on 127.0.0.1 at the protocol's \
     port: kafka 9092, amqp 5672, http 9600, rabbitmq-http 15672, rabbitmq-metrics 15692. On the command line it replaces the whole list.",
);
pub(super) const ADVERTISE: OptionDef = server(
    "advertise",
    OptionKind::Addresses,
    "",
    "The address that the broker advertises to clients: PROTOCOL=HOST:PORT, the first of a protocol for its first listener \
     and so on; port 0 is the listener's own. Without one the broker advertises the listener's address, or, where that \
     is a wildcard such as 0.0.0.0, the address at which the connection arrived. For http and rabbitmq-http it is a name under which requests \
     without a login may reach the listener.",
);
pub(super) const LOGIN: OptionDef = server(
    "login",
    OptionKind::OneOf(&["auto", "always", "never"]),
    "auto",
    "Which listeners of kafka, http and rabbitmq-metrics require a login (SASL; HTTP basic authentication): those that are not on a loopback \
     address, and requests of http and rabbitmq-metrics that a proxy passed on (auto), all (always), or none (never: every client that reaches \
     them may do everything). amqp and rabbitmq-http always require one.",
);
pub(super) const GUEST: OptionDef = server(
    "guest",
    OptionKind::OneOf(&["auto", "on", "off"]),
    "auto",
    "The user guest of RabbitMQ, whose password is public. A new data directory gets it unless its first start makes an administrator (auto), in \
     any case (on), or never (off). It logs in over amqp and rabbitmq-http only, from a loopback address to a listener on a loopback address; \
     with off not even there, also in directories that have it.",
);
pub(super) const CONNECTIONS_MAX: OptionDef = server(
    "connections_max",
    OptionKind::Count { min: 1, max: 1_000_000 },
    "10000",
    "Connections of clients at a time over all listeners but http, rabbitmq-http and rabbitmq-metrics; further ones are closed immediately.",
);
pub(super) const CONNECTION_REQUESTS_MAX: OptionDef = server(
    "connection_requests_max",
    OptionKind::Count { min: 1, max: 10_000 },
    "16",
    "Requests of one connection in progress at a time; its further input waits.",
);
pub(super) const INFLIGHT_BYTES_MAX: OptionDef = server(
    "inflight_bytes_max",
    OptionKind::Bytes { min: 16 * MIB, max: TIB },
    "256MiB",
    "Memory of requests in progress, over all connections. Before a request is read, it waits for the memory that it takes when decoded. A quarter \
     is kept for requests that take at most 64 KiB or have at most 4 KiB; the rest must hold the largest request (kafka.socket.request.max.bytes). \
     Requests of one user that carry no messages (without a login, the address counts as the user) may take a quarter of each part, those of one \
     connection a quarter of that; further ones wait. While others wait, a connection that holds more than its share is closed when its request \
     arrives, waits or is answered too slowly.",
);
pub(super) const GROUP_BYTES_MAX: OptionDef = server(
    "group_bytes_max",
    OptionKind::Bytes { min: MIB, max: TIB },
    "128MiB",
    "Memory of Kafka's consumer groups and their committed offsets, as an estimate: an offset 64 bytes and its text, a topic with offsets and a \
     group 640 bytes each. Commits and joins beyond it are refused (COORDINATOR_NOT_AVAILABLE); offsets that exist can be committed again.",
);
pub(super) const GROUP_BYTES_PER_USER_MAX: OptionDef = server(
    "group_bytes_per_user_max",
    OptionKind::Bytes { min: MIB, max: TIB },
    "64MiB",
    "The part of server.group_bytes_max that the groups of one user may hold: those in which the user was the first to commit or to join. All clients \
     without a login are one user. Beyond it commits are refused with INVALID_COMMIT_OFFSET_SIZE, joins with GROUP_MAX_SIZE_REACHED.",
);
pub(super) const OUTPUT_BYTES_MAX: OptionDef = server(
    "output_bytes_max",
    OptionKind::Bytes { min: 16 * MIB, max: TIB },
    "256MiB",
    "Memory of responses that clients have not received yet, over all connections. One connection may hold a sixteenth of it \
     before its reads wait. From half of it on, reads get at most 64 KiB and a client that receives nothing for a second is closed; \
     beyond all of it, so is one that receives less than 256 KiB a second. A response whose length does not depend on its request (all \
     topics, all groups) is built when it fits into half of it with the others of its kind; a client that receives nothing of one for \
     a second, while others wait for that memory, is closed.",
);
pub(super) const MEMORY_LIMIT_BYTES: OptionDef = server(
    "memory_limit_bytes",
    OptionKind::Bytes { min: 0, max: TIB },
    "0",
    "The memory high watermark: when the process takes more memory than this, without pages of files, the memory alarm is raised and AMQP publishers are \
     blocked (connection.blocked). 0: six tenths of the memory of the machine, or of its control group (version 2).",
);
pub(super) const WRITE_STALL_MS_MAX: OptionDef = server(
    "write_stall_ms_max",
    OptionKind::Millis { min: 100, max: DAY_MS },
    "1m",
    "A connection is closed when its client receives none of the bytes that wait for it for this long. AMQP's heartbeats do not prolong that: by \
     default such a client is closed after one heartbeat (60 s), and one that sends nothing after two. A shorter time finds dead consumers \
     sooner (RabbitMQ's is 15 s), a longer one lets paused consumers live.",
);
pub(super) const WORKER_THREADS: OptionDef = server(
    "worker_threads",
    OptionKind::Count { min: 0, max: 1_024 },
    "0",
    "Threads that serve connections; 0 for one per core.",
);
pub(super) const HTTP_CONNECTIONS_MAX: OptionDef = server(
    "http_connections_max",
    OptionKind::Count { min: 1, max: 100_000 },
    "512",
    "Connections to all http listeners at a time, and as many to all of rabbitmq-http and to all of rabbitmq-metrics; of further ones 64 wait for \
     ten seconds, eight of an address, and then get the status 503. A connection that sends nothing for 5 seconds is closed. /healthz and /readyz \
     are answered even when no place is free.",
);
pub(super) const HTTP_CONNECTIONS_PER_IP_MAX: OptionDef = server(
    "http_connections_per_ip_max",
    OptionKind::Count { min: 1, max: 100_000 },
    "256",
    "Connections to the http listeners at a time from one address, and as many to rabbitmq-http and to rabbitmq-metrics; further ones get the \
     status 503. While fewer than a quarter of the places are free it is an eighth of http_connections_max at the most.",
);
pub(super) const HTTP_BODIES_PER_IP_MAX: OptionDef = server(
    "http_bodies_per_ip_max",
    OptionKind::Count { min: 1, max: 100_000 },
    "64",
    "Requests from one address whose bodies are still arriving, over the http listeners, and as many over rabbitmq-http; further ones get the status 503.",
);
pub(super) const HTTP_BODY_MS_MAX: OptionDef = server(
    "http_body_ms_max",
    OptionKind::Millis { min: 100, max: DAY_MS },
    "10s",
    "How long the body of a request to http and rabbitmq-http may take to arrive, and a millisecond more for each 64 bytes of it; then the request \
     gets the status 408 and its connection is closed. A request may take 30 seconds in all.",
);
pub(super) const HTTP_BODY_BYTES_MAX: OptionDef = server(
    "http_body_bytes_max",
    OptionKind::Bytes { min: KIB, max: GIB },
    "1MiB",
    "The largest body of a request to the http listener. Those of rabbitmq-http may have 24 MiB, definitions 32 MiB.",
);
pub(super) const HTTP_REPORTS: OptionDef = server(
    "http_reports",
    OptionKind::OptionalPath,
    "",
    "A directory whose reports (HTML files, such as those of `polylogue-bench report --html`) the console lists and shows.",
);
pub(super) const SHUTDOWN_MS_MAX: OptionDef = server(
    "shutdown_ms_max",
    OptionKind::Millis { min: 0, max: DAY_MS },
    "10s",
    "How long a shutdown waits for requests in progress before it closes their connections.",
);
pub(super) const LOG_FILTER: OptionDef = server(
    "log_filter",
    OptionKind::Text,
    "info",
    "What is written to standard error: a level (error, warn, info, debug, trace), or parts with levels, such as \
     info,polylogue_server=debug.",
);
pub(super) const LOG_FORMAT: OptionDef =
    server("log_format", OptionKind::OneOf(&["text", "json"]), "text", "How lines on standard error are written.");

pub(super) const TLS_CERTIFICATE: OptionDef = tls(
    "certificate",
    OptionKind::OptionalPath,
    "",
    "The certificate chain of this server, its own certificate first (PEM). Listeners with +tls need it. All files of TLS are checked each second \
     and reloaded when they have changed.",
);
pub(super) const TLS_KEY: OptionDef = tls(
    "key",
    OptionKind::OptionalPath,
    "",
    "The private key of the server's certificate (PEM: PKCS #8, PKCS #1 or SEC 1).",
);
pub(super) const TLS_CLIENT_AUTH: OptionDef = tls(
    "client_auth",
    OptionKind::OneOf(&["none", "request", "require"]),
    "none",
    "Whether clients present a certificate: they are not asked (none), asked (request; a certificate that they present has to be valid), or have to \
     (require). Their user comes from their login, or from tls.principal_mapping_rules.",
);
pub(super) const TLS_CLIENT_CA: OptionDef = tls(
    "client_ca",
    OptionKind::OptionalPath,
    "",
    "Certificates of the authorities that sign clients' certificates (PEM).",
);
pub(super) const TLS_REVOKED: OptionDef = tls(
    "revoked",
    OptionKind::OptionalPath,
    "",
    "Certificate revocation lists for clients' certificates (PEM), one of each authority.",
);
pub(super) const TLS_HANDSHAKE_MS_MAX: OptionDef = tls(
    "handshake_ms_max",
    OptionKind::Millis { min: 100, max: DAY_MS },
    "10s",
    "A connection is closed when its handshake takes longer than this.",
);
pub(super) const TLS_PRINCIPALS: OptionDef = tls(
    "principal_mapping_rules",
    OptionKind::OptionalText,
    "",
    "Maps the subject of a client's certificate to a user, as Kafka's ssl.principal.mapping.rules: RULE:pattern/replacement/ (L or U behind it for \
     small or capital letters) and DEFAULT for the whole subject, with commas between; the first rule that matches decides. Kafka's clients then \
     need no other login, and AMQP's may log in by EXTERNAL. Empty: certificates decide who may connect, and name no user.",
);
pub(super) const OAUTH_JWKS: OptionDef = oauth(
    "jwks",
    OptionKind::OptionalText,
    "",
    "The keys with which tokens are signed, a JSON Web Key Set: a file, which is checked each second, or the address from which it is fetched \
     (https://..., or http:// on this machine). With it tokens (JWT) are logins: SASL OAUTHBEARER for Kafka's clients, as the password for AMQP's, \
     bearer authentication over HTTP. Empty: they are not.",
);
pub(super) const OAUTH_JWKS_CA: OptionDef = oauth(
    "jwks_ca",
    OptionKind::OptionalPath,
    "",
    "Certificates of the authorities for the server from which keys are fetched (PEM). Empty: those of the system.",
);
pub(super) const OAUTH_JWKS_REFRESH_MS: OptionDef = oauth(
    "jwks_refresh_ms",
    OptionKind::Millis { min: 1_000, max: DAY_MS },
    "5m",
    "How often keys are fetched. They are also fetched, at most once in ten seconds, when a token is signed with an unknown key.",
);
pub(super) const OAUTH_ISSUER: OptionDef = oauth(
    "issuer",
    OptionKind::OptionalText,
    "",
    "The required issuer of a token (its claim iss). Empty: any issuer that has one of the keys.",
);
pub(super) const OAUTH_AUDIENCE: OptionDef = oauth(
    "audience",
    OptionKind::OptionalText,
    "",
    "The required audience of a token (its claim aud; RabbitMQ's resource_server_id). Empty: any.",
);
pub(super) const OAUTH_NAME_CLAIM: OptionDef =
    oauth("name_claim", OptionKind::Text, "sub", "The claim of a token that holds the user's name.");
pub(super) const OAUTH_SCOPE_CLAIM: OptionDef = oauth(
    "scope_claim",
    OptionKind::Text,
    "scope",
    "The claim of a token that holds its scopes: a text with spaces between them, or a list.",
);
pub(super) const OAUTH_SCOPE_PREFIX: OptionDef = oauth(
    "scope_prefix",
    OptionKind::OptionalText,
    "",
    "The prefix of scopes for this broker; it is removed, and scopes without it are ignored. Empty: the audience and a dot, or, without an \
     audience, no prefix.",
);
pub(super) const OAUTH_ADMINISTRATOR_SCOPE: OptionDef = oauth(
    "administrator_scope",
    OptionKind::Text,
    "tag:administrator",
    "The scope that makes a token's user an administrator, without the prefix.",
);
pub(super) const OAUTH_CLOCK_SKEW_MS_MAX: OptionDef = oauth(
    "clock_skew_ms_max",
    OptionKind::Millis { min: 0, max: 600_000 },
    "30s",
    "How far the clock of the token's issuer may be from this machine's.",
);
pub(super) const DURABILITY: OptionDef = log(
    "durability",
    OptionKind::OneOf(&["sync", "async", "memory"]),
    "sync",
    "The durability of topics that do not choose one (topic config polylogue.durability): an acknowledgement leaves after \
     the flush to disk, after it is written, or from memory.",
);
pub(super) const SYNC_SHARDS: OptionDef = log(
    "sync_shards",
    OptionKind::Count { min: 1, max: 64 },
    "1",
    "Journals of durability `sync` that flush in parallel, beside that of the metadata. New topics are spread over them. \
     More than one helps only on disks that flush in parallel. It can be raised at a restart; what is in a journal stays there.",
);
pub(super) const JOURNAL_FILE_BYTES: OptionDef = log(
    "journal_file_bytes",
    OptionKind::Bytes { min: 4 * MIB, max: 4 * GIB },
    "64MiB",
    "The size of a journal file; they are written ahead of use.",
);
pub(super) const JOURNAL_IO: OptionDef = log(
    "journal_io",
    OptionKind::OneOf(&["auto", "direct", "cached"]),
    "auto",
    "How journals and segments are written: `direct` past the page cache, where the file system can, `cached` through it. \
     `auto` is `direct`, except for journal files that follow groups of at most 64 KiB on the average which wait for no \
     flush, as those of `async` topics do.",
);
pub(super) const CHECKPOINT_BYTES_MAX: OptionDef = log(
    "checkpoint_bytes_max",
    OptionKind::Bytes { min: MIB, max: TIB },
    "64MiB",
    "A checkpoint is written when a start would have to replay this much of the journal.",
);
pub(super) const DISK_RESERVE_BYTES: OptionDef = log(
    "disk_reserve_bytes",
    OptionKind::Bytes { min: 16 * MIB, max: TIB },
    "256MiB",
    "When less disk space than this is free, messages are refused; reads, commits and deletions continue.",
);
pub(super) const DISK_FREE_LIMIT_BYTES: OptionDef = log(
    "disk_free_limit_bytes",
    OptionKind::Bytes { min: 16 * MIB, max: TIB },
    "512MiB",
    "When less disk space than this is free, the disk alarm is raised and AMQP publishers are blocked (connection.blocked). It has no effect \
     below disk_reserve_bytes.",
);
pub(super) const BACKUP_BYTES_PER_SEC: OptionDef = log(
    "backup_bytes_per_sec",
    OptionKind::Bytes { min: MIB, max: TIB },
    "128MiB",
    "Bytes a second that `polylogue backup` may read. While messages arrive it reads twice as fast as they arrive, and at least 32 MiB a second.",
);
pub(super) const BACKUP_MS_MAX: OptionDef = log(
    "backup_ms_max",
    OptionKind::Millis { min: 1_000, max: DAY_MS },
    "12h",
    "How long a backup may take. Until it ends, space of merged, trimmed or deleted messages is not freed. It is aborted earlier when disk space \
     is low, or when its client has read nothing for a minute.",
);
pub(super) const ASYNC_FLUSH_MS_MAX: OptionDef = log(
    "async_flush_ms_max",
    OptionKind::Millis { min: 1, max: DAY_MS },
    "1s",
    "The longest that an acknowledged message of durability `async` stays unflushed.",
);
pub(super) const LAZY_FLUSH_MS_MAX: OptionDef = log(
    "lazy_flush_ms_max",
    OptionKind::Millis { min: 1, max: DAY_MS },
    "10ms",
    "The longest that a record without a waiting client (acks=0) stays unflushed.",
);
pub(super) const PARTITIONS_MAX: OptionDef = log(
    "partitions_max",
    OptionKind::Count { min: 1, max: 100_000_000 },
    "1000000",
    "Partitions of all topics together.",
);
pub(super) const MEMORY_PARTITION_BYTES_MAX: OptionDef = log(
    "memory_partition_bytes_max",
    OptionKind::Bytes { min: 64 * KIB, max: TIB },
    "16MiB",
    "The size of a partition of durability `memory`; its oldest messages are removed first.",
);
pub(super) const READER_THREADS: OptionDef =
    log("reader_threads", OptionKind::Count { min: 1, max: 256 }, "2", "Threads that read old messages from disk.");
pub(super) const TAIL_CACHE_BYTES: OptionDef = log(
    "tail_cache_bytes",
    OptionKind::Bytes { min: MIB, max: TIB },
    "64MiB",
    "Recent messages kept in memory for readers at the end of the log, over all partitions.",
);
pub(super) const TAIL_CACHE_BYTES_MAX: OptionDef = log(
    "tail_cache_bytes_max",
    OptionKind::Bytes { min: 0, max: TIB },
    "0",
    "The size to which log.tail_cache_bytes may grow, over all journals, while readers are farther behind than it reaches and would be served by \
     the larger cache. Messages kept for a reader that has not read for 20 seconds are evicted. 0: a sixteenth of the memory of the machine, or of \
     its control group (version 2), and at most 512 MiB.",
);
pub(super) const READ_CACHE_BYTES: OptionDef = log(
    "read_cache_bytes",
    OptionKind::Bytes { min: 0, max: TIB },
    "64MiB",
    "For each journal: pieces of 1 MiB read back from its files and kept in memory for other partitions and readers of the same place, \
     as far as responses and new reads leave memory for it. Used only while readers are behind; pieces not used for 20 seconds are evicted. \
     Below 1 MiB each batch is read separately.",
);
pub(super) const INDEX_CACHE_BYTES: OptionDef = log(
    "index_cache_bytes",
    OptionKind::Bytes { min: 64 * KIB, max: TIB },
    "4MiB",
    "Pieces of segment indexes kept in memory, and as much again of indexes of journal files that are not merged yet.",
);
pub(super) const OPEN_SEGMENTS_MAX: OptionDef =
    log("open_segments_max", OptionKind::Count { min: 1, max: 100_000 }, "128", "Segment files held open at a time.");
pub(super) const MERGE_BYTES: OptionDef = log(
    "merge_bytes",
    OptionKind::Bytes { min: MIB, max: TIB },
    "256MiB",
    "Sealed journal files are merged into sorted segments when they hold this much long-lived data.",
);
pub(super) const MERGE_PRELOAD_BYTES: OptionDef = log(
    "merge_preload_bytes",
    OptionKind::Bytes { min: 0, max: TIB },
    "512MiB",
    "How much a merge of many small batches loads into the system's page cache before it begins, at most an eighth of the memory of the machine, or \
     of its control group (version 2). Beyond that each batch is read from the disk separately. 0: all of them are.",
);
pub(super) const MERGE_MS_MAX: OptionDef = log(
    "merge_ms_max",
    OptionKind::Millis { min: 1_000, max: 365 * DAY_MS },
    "1h",
    "Sealed journal files are merged into sorted segments when their long-lived data is this old.",
);
pub(super) const JOURNAL_KEEP_BYTES_MAX: OptionDef = log(
    "journal_keep_bytes_max",
    OptionKind::Bytes { min: 16 * MIB, max: TIB },
    "1GiB",
    "Sealed journal files are merged, short-lived data too, when there is this much of them.",
);
pub(super) const AMQP_PRODUCT: OptionDef = amqp(
    "product",
    OptionKind::Text,
    "RabbitMQ",
    "The product name in connection.start. Clients depend on it: kombu, and so Celery, uses RabbitMQ's extensions only with RabbitMQ.",
);
pub(super) const AMQP_VERSION: OptionDef = amqp(
    "version",
    OptionKind::Text,
    "4.2.0",
    "The version in connection.start, three numbers: clients and tools derive the server's features from it as from RabbitMQ's. From 4.3.0 on \
     delivery limits, priorities of quorum queues and late acknowledgements follow the rules of RabbitMQ 4.3, else those of 4.2.",
);
pub(super) const AMQP_CLUSTER_NAME: OptionDef = amqp(
    "cluster_name",
    OptionKind::Text,
    "polylogue",
    "The cluster name that clients, tools and federation links see, unless another one is set through the \
     management API. `polylogue` means `polylogue@` and the cluster's id, which is unique.",
);
pub(super) const AMQP_HEARTBEAT_SECONDS: OptionDef = amqp(
    "heartbeat_seconds",
    OptionKind::Count { min: 0, max: 65_535 },
    "60",
    "The heartbeat interval that the server proposes; 0 for none. The client decides.",
);
pub(super) const AMQP_FRAME_BYTES_MAX: OptionDef = amqp(
    "frame_bytes_max",
    OptionKind::Bytes { min: 4 * KIB, max: MIB },
    "128KiB",
    "The largest frame (RabbitMQ's frame_max); a client may ask for less, from 4 KiB on.",
);
pub(super) const AMQP_CHANNEL_MAX: OptionDef = amqp(
    "channel_max",
    OptionKind::Count { min: 1, max: 65_535 },
    "2047",
    "The most channels of a connection; a client may ask for fewer.",
);
pub(super) const AMQP_ACK_MS_MAX: OptionDef = amqp(
    "ack_ms_max",
    OptionKind::Millis { min: 1_000, max: 365 * DAY_MS },
    "30m",
    "How long a consumer may take to acknowledge a message before its channel is closed (RabbitMQ's consumer_timeout), unless \
     its queue or a policy sets another. With `version` from 4.3.0 on it applies to quorum queues only, and the consumer is cancelled.",
);
pub(super) const AMQP_PUBLISH_CREDIT: OptionDef = amqp(
    "publish_credit",
    OptionKind::Count { min: 0, max: 1_000_000 },
    "2000",
    "How many messages a connection may publish without confirms before their queues have granted credit for them (RabbitMQ's \
     credit_flow_default_credit); 0 for any number. A queue that has waiting consumers, and grows by more than twice as many messages or by 8 MiB, \
     withholds credit: publishers are slowed to the rate of its consumers. Publishers with confirms and transactions are not slowed.",
);
pub(super) const AMQP_PUBLISH_CREDIT_MS_MAX: OptionDef = amqp(
    "publish_credit_ms_max",
    OptionKind::Millis { min: 1, max: DAY_MS },
    "100ms",
    "The longest that a queue withholds credit. It bounds the slowdown: by default a connection may publish 20,000 messages \
     a second without confirms, however slow the consumers are.",
);
pub(super) const AMQP_UNSENT_BYTES_MAX: OptionDef = amqp(
    "unsent_bytes_max",
    OptionKind::Bytes { min: 0, max: 64 * MIB },
    "128KiB",
    "Bytes in the socket's send buffer for a client that receives more slowly than the broker sends; further messages stay in their queues, where \
     other consumers may receive them. 0 for the system's own limit, usually 4 MiB: tens of thousands of small messages, which are old when they \
     arrive.",
);
/// A log record can hold such a message, with names and with properties of the largest frame.
const AMQP_MESSAGE_BYTES_MOST: u64 = 96 * MIB;
pub(super) const AMQP_MESSAGE_BYTES_MAX: OptionDef = amqp(
    "message_bytes_max",
    OptionKind::Bytes { min: KIB, max: AMQP_MESSAGE_BYTES_MOST },
    "16MiB",
    "The largest body of a published message (RabbitMQ's max_message_size); a larger one closes its channel.",
);
pub(super) const AMQP_BODY_MS_MAX: OptionDef = amqp(
    "body_ms_max",
    OptionKind::Millis { min: 1_000, max: DAY_MS },
    "1m",
    "How long the body of a message may take to arrive after its header, and a millisecond more for each 16 bytes of it; then its channel is \
     closed. While the memory alarm is raised (server.memory_limit_bytes) it has a sixth of that, and its connection is closed. RabbitMQ waits for \
     ever.",
);
pub(super) const AMQP_ANONYMOUS_USER: OptionDef = amqp(
    "anonymous_user",
    OptionKind::OptionalText,
    "",
    "The user of clients that log in without a name, by the mechanism ANONYMOUS (RabbitMQ's anonymous_login_user, which is guest there). \
     Empty: the mechanism is not offered. No password is asked for: `guest` still logs in from this machine only.",
);
pub(super) const AMQP_CLASSIC_DELIVERY: OptionDef = amqp(
    "classic_delivery",
    OptionKind::OneOf(&["early", "flushed"]),
    "early",
    "Whether a classic queue hands a message to a waiting consumer before it is flushed, or after it, as a quorum queue does. Confirms wait \
     for the flush either way.",
);

/// All of polylogue's own options, in the order of `polylogue config`. Kafka's settings follow them.
pub const OPTIONS: &[&OptionDef] = &[
    &DATA,
    &LISTEN,
    &ADVERTISE,
    &LOGIN,
    &GUEST,
    &CONNECTIONS_MAX,
    &CONNECTION_REQUESTS_MAX,
    &INFLIGHT_BYTES_MAX,
    &GROUP_BYTES_MAX,
    &GROUP_BYTES_PER_USER_MAX,
    &OUTPUT_BYTES_MAX,
    &MEMORY_LIMIT_BYTES,
    &WRITE_STALL_MS_MAX,
    &WORKER_THREADS,
    &HTTP_CONNECTIONS_MAX,
    &HTTP_CONNECTIONS_PER_IP_MAX,
    &HTTP_BODIES_PER_IP_MAX,
    &HTTP_BODY_MS_MAX,
    &HTTP_BODY_BYTES_MAX,
    &HTTP_REPORTS,
    &SHUTDOWN_MS_MAX,
    &LOG_FILTER,
    &LOG_FORMAT,
    &TLS_CERTIFICATE,
    &TLS_KEY,
    &TLS_CLIENT_AUTH,
    &TLS_CLIENT_CA,
    &TLS_REVOKED,
    &TLS_HANDSHAKE_MS_MAX,
    &TLS_PRINCIPALS,
    &OAUTH_JWKS,
    &OAUTH_JWKS_CA,
    &OAUTH_JWKS_REFRESH_MS,
    &OAUTH_ISSUER,
    &OAUTH_AUDIENCE,
    &OAUTH_NAME_CLAIM,
    &OAUTH_SCOPE_CLAIM,
    &OAUTH_SCOPE_PREFIX,
    &OAUTH_ADMINISTRATOR_SCOPE,
    &OAUTH_CLOCK_SKEW_MS_MAX,
    &DURABILITY,
    &SYNC_SHARDS,
    &JOURNAL_FILE_BYTES,
    &JOURNAL_IO,
    &CHECKPOINT_BYTES_MAX,
    &DISK_RESERVE_BYTES,
    &DISK_FREE_LIMIT_BYTES,
    &BACKUP_BYTES_PER_SEC,
    &BACKUP_MS_MAX,
    &ASYNC_FLUSH_MS_MAX,
    &LAZY_FLUSH_MS_MAX,
    &PARTITIONS_MAX,
    &MEMORY_PARTITION_BYTES_MAX,
    &READER_THREADS,
    &TAIL_CACHE_BYTES,
    &TAIL_CACHE_BYTES_MAX,
    &READ_CACHE_BYTES,
    &INDEX_CACHE_BYTES,
    &OPEN_SEGMENTS_MAX,
    &MERGE_BYTES,
    &MERGE_PRELOAD_BYTES,
    &MERGE_MS_MAX,
    &JOURNAL_KEEP_BYTES_MAX,
    &AMQP_PRODUCT,
    &AMQP_VERSION,
    &AMQP_CLUSTER_NAME,
    &AMQP_HEARTBEAT_SECONDS,
    &AMQP_FRAME_BYTES_MAX,
    &AMQP_CHANNEL_MAX,
    &AMQP_ACK_MS_MAX,
    &AMQP_PUBLISH_CREDIT,
    &AMQP_PUBLISH_CREDIT_MS_MAX,
    &AMQP_UNSENT_BYTES_MAX,
    &AMQP_MESSAGE_BYTES_MAX,
    &AMQP_BODY_MS_MAX,
    &AMQP_ANONYMOUS_USER,
    &AMQP_CLASSIC_DELIVERY,
];

// The defaults above are strings; these must match the numbers in code.
const _: () = assert!(limits::INFLIGHT_BYTES_MAX == 256 << 20);
const _: () = assert!(limits::REQUEST_BYTES_MAX as u64 >= AMQP_MESSAGE_BYTES_MOST + 2 * MIB);
const _: () = assert!(limits::JOURNAL_FILE_BYTES == 64 << 20);
const _: () = assert!(limits::CHECKPOINT_BYTES_MAX == 64 << 20);
const _: () = assert!(limits::DISK_RESERVE_BYTES == 256 << 20);
const _: () = assert!(limits::DISK_FREE_LIMIT_BYTES == 512 << 20);
const _: () = assert!(limits::TAIL_CACHE_BYTES == 64 << 20);
const _: () = assert!(limits::READ_CACHE_BYTES == 64 << 20);
const _: () = assert!(limits::ASYNC_FLUSH_MS_MAX == 1_000);
const _: () = assert!(limits::LAZY_FLUSH_MS_MAX == 10);
