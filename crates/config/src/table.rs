//! The table of options: parsing, `polylogue config` and docs/config.md all come from it.

use super::value::OptionKind;
use polylogue_types::limits;

/// The part of the configuration file an option stands in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Section {
    /// Listeners, connections, the process.
    Server,
    /// Certificates of listeners that speak TLS.
    Tls,
    /// Tokens of others as logins.
    OAuth,
    /// The log and what is stored.
    Log,
    /// What AMQP clients see.
    Amqp,
    /// Kafka's broker settings, under Kafka's names.
    Kafka,
}

impl Section {
    /// All sections, in the order in which they are shown.
    pub const ALL: [Section; 6] =
        [Section::Server, Section::Tls, Section::OAuth, Section::Log, Section::Amqp, Section::Kafka];

    /// Its name in the file and in front of an option's name.
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
    /// Where it stands.
    pub section: Section,
    /// Its name within the section; the unit comes last.
    pub name: &'static str,
    /// The type of its value, with its bounds.
    pub kind: OptionKind,
    /// The value that holds when nothing is said, in canonical form.
    pub default: &'static str,
    /// What it does, in a sentence or two.
    pub doc: &'static str,
}

impl OptionDef {
    /// `section.name`, as `--set` takes it.
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
    "The data directory. It is created when it is missing; one process at a time may use it.",
);
pub(super) const LISTEN: OptionDef = server(
    "listen",
    OptionKind::Addresses,
    "kafka=127.0.0.1:9092,http=127.0.0.1:9600",
    "Where each protocol listens: PROTOCOL=HOST:PORT, several with commas between or as a list. Protocols are kafka, http, \
     amqp (RabbitMQ's AMQP 0-9-1), rabbitmq-http (its management API) and rabbitmq-metrics (its metrics for Prometheus); with +tls behind the name it is spoken over TLS. Port 0 takes a free port and prints it. Given on the command line it replaces the whole list.",
);
pub(super) const ADVERTISE: OptionDef = server(
    "advertise",
    OptionKind::Addresses,
    "",
    "The address that clients are told to connect to: PROTOCOL=HOST:PORT, the first of a protocol for its first listener \
     and so on; port 0 stands for the listener's own. Without one clients are told the listener's address, or, where that \
     is a wildcard such as 0.0.0.0, the address at which their connection arrived. Of http and rabbitmq-http it is a name under which requests \
     without a login may reach the listener.",
);
pub(super) const LOGIN: OptionDef = server(
    "login",
    OptionKind::OneOf(&["auto", "always", "never"]),
    "auto",
    "Where clients of kafka, http and rabbitmq-metrics have to say who they are (SASL; HTTP basic authentication): at listeners that are not on a loopback \
     address, and for requests of http and rabbitmq-metrics that a proxy passed on (auto), at all (always), or at none (never: all clients that reach \
     them may do everything). amqp and rabbitmq-http always ask.",
);
pub(super) const GUEST: OptionDef = server(
    "guest",
    OptionKind::OneOf(&["auto", "on", "off"]),
    "auto",
    "The user guest of RabbitMQ, whose password is public. A new data directory gets it unless its first start makes an administrator (auto), in \
     any case (on), or never (off). It logs in over amqp and rabbitmq-http only, from a loopback address to a listener on a loopback address; \
     with off not even there, in directories that have it too.",
);
pub(super) const CONNECTIONS_MAX: OptionDef = server(
    "connections_max",
    OptionKind::Count { min: 1, max: 1_000_000 },
    "10000",
    "Connections of clients at a time over all listeners but http, rabbitmq-http and rabbitmq-metrics; further ones are closed at once.",
);
pub(super) const CONNECTION_REQUESTS_MAX: OptionDef = server(
    "connection_requests_max",
    OptionKind::Count { min: 1, max: 10_000 },
    "16",
    "Requests of one connection in work at a time; its further input waits.",
);
pub(super) const INFLIGHT_BYTES_MAX: OptionDef = server(
    "inflight_bytes_max",
    OptionKind::Bytes { min: 16 * MIB, max: TIB },
    "256MiB",
    "Requests in work over all connections. A request waits for what it takes when it is decoded before it is taken in. A \
     quarter is kept for requests that take at most 64 KiB or have at most 4 KiB; the rest must hold the largest request \
     (kafka.socket.request.max.bytes). Requests of one user that carry no messages (who has not logged in is the user of its address) may take a quarter \
     of each part, those of one connection a quarter of that; further ones wait. While others wait, a connection that holds more than its share of it is closed when its \
     request arrives, waits or is answered too slowly.",
);
pub(super) const GROUP_BYTES_MAX: OptionDef = server(
    "group_bytes_max",
    OptionKind::Bytes { min: MIB, max: TIB },
    "128MiB",
    "What groups of Kafka's clients and their committed offsets may hold in memory, as an estimate: an offset 64 bytes and its text, a topic with \
     offsets and a group 640 bytes each. What would make it more is refused (COORDINATOR_NOT_AVAILABLE); what is there can be committed anew.",
);
pub(super) const GROUP_BYTES_PER_USER_MAX: OptionDef = server(
    "group_bytes_per_user_max",
    OptionKind::Bytes { min: MIB, max: TIB },
    "64MiB",
    "Of that, what the groups of one user may hold: those in which the user was the first to commit or to join. Who has not logged in is one user. \
     More is refused: commits with INVALID_COMMIT_OFFSET_SIZE, joins with GROUP_MAX_SIZE_REACHED.",
);
pub(super) const OUTPUT_BYTES_MAX: OptionDef = server(
    "output_bytes_max",
    OptionKind::Bytes { min: 16 * MIB, max: TIB },
    "256MiB",
    "Responses in memory that clients have not taken yet, over all connections. One connection may hold a sixteenth of it \
     before its reads wait. From the half on, reads get at most 64 KiB and a client that takes nothing for a second is closed; \
     beyond all of it, so is one that takes less than 256 KiB a second. An answer that may be long whatever its request (all \
     topics, all groups) is made when it fits into half of it with the others of its kind; a client that takes nothing of one for \
     a second, while others wait for that room, is closed.",
);
pub(super) const MEMORY_LIMIT_BYTES: OptionDef = server(
    "memory_limit_bytes",
    OptionKind::Bytes { min: 0, max: TIB },
    "0",
    "When the process takes more memory than this, pages of files not counted, publishers of RabbitMQ's clients are told to wait \
     (connection.blocked). 0: six tenths of what the machine has, or its control group (version 2).",
);
pub(super) const WRITE_STALL_MS_MAX: OptionDef = server(
    "write_stall_ms_max",
    OptionKind::Millis { min: 100, max: DAY_MS },
    "1m",
    "A connection is closed when its client takes nothing of what waits for it for this long. AMQP's heartbeats do not prolong that: by \
     default such a client goes after one heartbeat (60 s), and one from which nothing comes after two. A shorter time finds dead consumers \
     sooner (RabbitMQ's is 15 s), a longer one gives paused ones more.",
);
pub(super) const WORKER_THREADS: OptionDef = server(
    "worker_threads",
    OptionKind::Count { min: 0, max: 1_024 },
    "0",
    "Threads that serve connections; 0 for one a core.",
);
pub(super) const HTTP_CONNECTIONS_MAX: OptionDef = server(
    "http_connections_max",
    OptionKind::Count { min: 1, max: 100_000 },
    "512",
    "Connections to all http listeners at a time, and as many to all of rabbitmq-http and to all of rabbitmq-metrics; of further ones 64 wait for ten seconds, eight of an address, and are then told 503. One that says nothing for 5 seconds is closed. /healthz and /readyz are answered whether there is a place or not.",
);
pub(super) const HTTP_CONNECTIONS_PER_IP_MAX: OptionDef = server(
    "http_connections_per_ip_max",
    OptionKind::Count { min: 1, max: 100_000 },
    "256",
    "Connections to the http listeners at a time from one address, and as many to rabbitmq-http and to rabbitmq-metrics; further ones get the status 503. While fewer than a quarter of the places are free it is an eighth of http_connections_max at the most.",
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
    "How long the body of a request to http and rabbitmq-http may take to come, and a millisecond more for each 64 bytes of it; then it gets the status \
     408 and its connection is closed. A request may take 30 seconds in all.",
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
    "How long a stop waits for requests in work before it closes their connections.",
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
    "The certificates of this server, its own first (PEM). Listeners with +tls want it. All files of TLS are looked at each second and read anew \
     when they have changed.",
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
    "Whether clients show a certificate of their own: they are not asked (none), asked (request; one that they show has to be right), or have to \
     (require). Who they are is said by their login, or by tls.principal_mapping_rules.",
);
pub(super) const TLS_CLIENT_CA: OptionDef =
    tls("client_ca", OptionKind::OptionalPath, "", "Certificates of who signs those of clients (PEM).");
pub(super) const TLS_REVOKED: OptionDef = tls(
    "revoked",
    OptionKind::OptionalPath,
    "",
    "Lists of clients' certificates that count no longer (PEM), one of each who signs them.",
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
    "Who clients are by their certificates, as Kafka's ssl.principal.mapping.rules: RULE:pattern/replacement/ (L or U behind it for small or \
     capital letters) and DEFAULT for the whole subject, with commas between; the first that means a subject decides. Kafka's clients then need no \
     other login, and AMQP's may log in by EXTERNAL. Empty: certificates say who may come, and not who it is.",
);
pub(super) const OAUTH_JWKS: OptionDef = oauth(
    "jwks",
    OptionKind::OptionalText,
    "",
    "The keys with which tokens are signed, a JSON Web Key Set: a file, which is looked at each second, or where it is fetched from \
     (https://..., or http:// on this machine). With it tokens (JWT) are logins: SASL OAUTHBEARER for Kafka's clients, as the password for AMQP's, bearer \
     authentication over HTTP. Empty: they are not.",
);
pub(super) const OAUTH_JWKS_CA: OptionDef = oauth(
    "jwks_ca",
    OptionKind::OptionalPath,
    "",
    "Certificates of who signs that of the server from which keys are fetched (PEM). Empty: those that the system knows.",
);
pub(super) const OAUTH_JWKS_REFRESH_MS: OptionDef = oauth(
    "jwks_refresh_ms",
    OptionKind::Millis { min: 1_000, max: DAY_MS },
    "5m",
    "How often keys are fetched. They are fetched too, at most once in ten seconds, when a token is signed with one that is not known.",
);
pub(super) const OAUTH_ISSUER: OptionDef = oauth(
    "issuer",
    OptionKind::OptionalText,
    "",
    "Who has to have given out a token (its claim iss). Empty: anybody who has one of the keys.",
);
pub(super) const OAUTH_AUDIENCE: OptionDef = oauth(
    "audience",
    OptionKind::OptionalText,
    "",
    "Whom a token has to be for (its claim aud; RabbitMQ's resource_server_id). Empty: anybody.",
);
pub(super) const OAUTH_NAME_CLAIM: OptionDef =
    oauth("name_claim", OptionKind::Text, "sub", "The claim of a token that has the name of its bearer.");
pub(super) const OAUTH_SCOPE_CLAIM: OptionDef = oauth(
    "scope_claim",
    OptionKind::Text,
    "scope",
    "The claim of a token that has its scopes: a text with spaces between, or a list.",
);
pub(super) const OAUTH_SCOPE_PREFIX: OptionDef = oauth(
    "scope_prefix",
    OptionKind::OptionalText,
    "",
    "Scopes count that begin with this, without it. Empty: the audience with a dot behind it, or, where there is none, nothing.",
);
pub(super) const OAUTH_ADMINISTRATOR_SCOPE: OptionDef = oauth(
    "administrator_scope",
    OptionKind::Text,
    "tag:administrator",
    "The scope that makes the bearer of a token an administrator, without the prefix.",
);
pub(super) const OAUTH_CLOCK_SKEW_MS_MAX: OptionDef = oauth(
    "clock_skew_ms_max",
    OptionKind::Millis { min: 0, max: 600_000 },
    "30s",
    "How far the clock of who gives out tokens may be from this machine's.",
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
    "Journals of durability `sync` that flush side by side. New topics are spread over them. More than one pays only \
     on disks that flush in parallel.",
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
    "How much journal a start may have to replay before a checkpoint is written.",
);
pub(super) const DISK_RESERVE_BYTES: OptionDef = log(
    "disk_reserve_bytes",
    OptionKind::Bytes { min: 16 * MIB, max: TIB },
    "256MiB",
    "When less disk space than this is free, messages are refused; reading, commits and deletes go on.",
);
pub(super) const DISK_FREE_LIMIT_BYTES: OptionDef = log(
    "disk_free_limit_bytes",
    OptionKind::Bytes { min: 16 * MIB, max: TIB },
    "512MiB",
    "When less disk space than this is free, publishers of RabbitMQ's clients are told to wait (connection.blocked). It has no effect \
     below disk_reserve_bytes.",
);
pub(super) const BACKUP_BYTES_PER_SEC: OptionDef = log(
    "backup_bytes_per_sec",
    OptionKind::Bytes { min: MIB, max: TIB },
    "128MiB",
    "How fast `polylogue backup` may read at the most, a second. While messages come in it is slower: twice as fast as they come, and at least 32 MiB.",
);
pub(super) const BACKUP_MS_MAX: OptionDef = log(
    "backup_ms_max",
    OptionKind::Millis { min: 1_000, max: DAY_MS },
    "12h",
    "How long a backup may take. So long it keeps what is merged, trimmed or deleted meanwhile from giving its room back; it is broken off sooner when the disk \
     is short of room, or when nobody has taken anything of it for a minute.",
);
pub(super) const ASYNC_FLUSH_MS_MAX: OptionDef = log(
    "async_flush_ms_max",
    OptionKind::Millis { min: 1, max: DAY_MS },
    "1s",
    "How long an acknowledged message of durability `async` stays unflushed at the most.",
);
pub(super) const LAZY_FLUSH_MS_MAX: OptionDef = log(
    "lazy_flush_ms_max",
    OptionKind::Millis { min: 1, max: DAY_MS },
    "10ms",
    "How long a record that nobody waits for (acks=0) stays unflushed at the most.",
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
    "What a partition of durability `memory` keeps; its oldest messages go first.",
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
    "What that may grow to, over all journals, while readers are farther behind than it reaches and not farther than it may reach. What was kept \
     for a reader that has not come by for 20 seconds is given back. 0: a sixteenth of what the machine has, or its control group (version 2), \
     and at most 512 MiB.",
);
pub(super) const READ_CACHE_BYTES: OptionDef = log(
    "read_cache_bytes",
    OptionKind::Bytes { min: 0, max: TIB },
    "64MiB",
    "For each journal: what was read back of its files in pieces of 1 MiB, kept in memory for other partitions and readers of the same place, \
     as far as responses and new reads leave it. Taken only while there are readers behind; what was not used for 20 seconds is given back. \
     Below 1 MiB each batch is read by itself.",
);
pub(super) const INDEX_CACHE_BYTES: OptionDef = log(
    "index_cache_bytes",
    OptionKind::Bytes { min: 64 * KIB, max: TIB },
    "4MiB",
    "Pieces of segment indexes kept in memory, and as much again of indexes of what is not in segments yet.",
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
    "What a merge of many small batches brings into the page cache of the system before it begins, at most an eighth of what the machine has, or \
     its control group (version 2). Beyond that each batch is read from the disk by itself. 0: all of them are.",
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
    "What the server says that it is. Clients go by it: kombu, and so Celery, uses RabbitMQ's extensions only where it is RabbitMQ.",
);
pub(super) const AMQP_VERSION: OptionDef = amqp(
    "version",
    OptionKind::Text,
    "4.2.0",
    "Its version, three numbers: clients and tools compare it with RabbitMQ's to know what the server can do. From 4.3.0 on delivery limits, \
     priorities of quorum queues and late acknowledgements follow the rules of RabbitMQ 4.3, else those of 4.2.",
);
pub(super) const AMQP_CLUSTER_NAME: OptionDef = amqp(
    "cluster_name",
    OptionKind::Text,
    "polylogue",
    "The name of the cluster that clients, tools and links of federation are shown, as long as nobody sets another one through the \
     management API. `polylogue` stands for `polylogue@` and the cluster's id, which no two brokers have.",
);
pub(super) const AMQP_HEARTBEAT_SECONDS: OptionDef = amqp(
    "heartbeat_seconds",
    OptionKind::Count { min: 0, max: 65_535 },
    "60",
    "The heartbeat that is proposed to clients; 0 for none. The client decides.",
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
    "How long a consumer may take to acknowledge a message before its channel is closed (RabbitMQ's consumer_timeout), where neither \
     its queue nor a policy says otherwise. With `version` from 4.3.0 on only quorum queues mind, and cancel the consumer.",
);
pub(super) const AMQP_PUBLISH_CREDIT: OptionDef = amqp(
    "publish_credit",
    OptionKind::Count { min: 0, max: 1_000_000 },
    "2000",
    "How many messages a connection may publish without confirms before the queues that they go to have given credit for them (RabbitMQ's \
     credit_flow_default_credit); 0 for any number. A queue that has waiting consumers, and grows by more than twice as many messages or by 8 MiB, \
     withholds credit: publishers are slowed to what its consumers take. Publishers with confirms and transactions are not.",
);
pub(super) const AMQP_PUBLISH_CREDIT_MS_MAX: OptionDef = amqp(
    "publish_credit_ms_max",
    OptionKind::Millis { min: 1, max: DAY_MS },
    "100ms",
    "The longest that a queue withholds credit: so fast may a connection publish without confirms however slow the consumers are, by default \
     20,000 messages a second.",
);
pub(super) const AMQP_UNSENT_BYTES_MAX: OptionDef = amqp(
    "unsent_bytes_max",
    OptionKind::Bytes { min: 0, max: 64 * MIB },
    "128KiB",
    "Bytes that the system keeps for a client that takes less than it is sent; what else there is for it stays in its queues, where others may \
     have it. 0 for as many as the system likes, usually 4 MiB: tens of thousands of small messages, which are old when they come.",
);
/// An entry of the log holds such a message, with names and with properties of the largest frame.
const AMQP_MESSAGE_BYTES_MOST: u64 = 96 * MIB;
pub(super) const AMQP_MESSAGE_BYTES_MAX: OptionDef = amqp(
    "message_bytes_max",
    OptionKind::Bytes { min: KIB, max: AMQP_MESSAGE_BYTES_MOST },
    "16MiB",
    "The largest body of a message that clients publish (RabbitMQ's max_message_size); a larger one closes its channel.",
);
pub(super) const AMQP_BODY_MS_MAX: OptionDef = amqp(
    "body_ms_max",
    OptionKind::Millis { min: 1_000, max: DAY_MS },
    "1m",
    "How long the body of a message may take to come once its header is there, and a millisecond more for each 16 bytes of it; then its channel is \
     closed. While memory is short (server.memory_limit_bytes) it has a sixth of that, and its connection is closed. RabbitMQ waits for ever.",
);
pub(super) const AMQP_ANONYMOUS_USER: OptionDef = amqp(
    "anonymous_user",
    OptionKind::OptionalText,
    "",
    "The user as whom clients log in that say no name, by the mechanism ANONYMOUS (RabbitMQ's anonymous_login_user, which is guest there); \
     empty for nobody, and then the mechanism is not offered. No password is asked for: `guest` still logs in from this machine only.",
);
pub(super) const AMQP_CLASSIC_DELIVERY: OptionDef = amqp(
    "classic_delivery",
    OptionKind::OneOf(&["early", "flushed"]),
    "early",
    "Whether a classic queue hands a message to a waiting consumer before it is flushed, or after it, as a quorum queue does. Confirms wait \
     for the flush either way.",
);

/// All options of our own, in the order in which they are shown. Kafka's settings follow them.
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

// The defaults above are texts for people; these are the numbers the rest of the code starts from.
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
