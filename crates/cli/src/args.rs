//! The command line's definition.

mod access;
mod config;
mod connections;
mod definitions;
mod doctor;
mod groups;
mod permissions;
mod policies;
mod profiles;
mod queues;
mod quotas;
mod server;
mod shovels;
mod tls;
mod users;

pub(super) use access::{AclArgs, AclCommand, ListAclsArgs};
pub(super) use config::{AlterArgs, ConfigArgs, ConfigCommand, GetArgs, ScopeArgs, SetArgs};
pub(super) use connections::{CloseConnectionsArgs, ConnectionCommand, ListConnectionsArgs};
pub(super) use definitions::{DefinitionsCommand, ExportArgs, ImportArgs};
pub(super) use doctor::DoctorArgs;
pub(super) use groups::{GroupCommand, ResetArgs};
pub(super) use permissions::{DeletePermissionArgs, PermissionCommand, SetPermissionArgs};
pub(super) use policies::{DeletePoliciesArgs, ListPoliciesArgs, PolicyCommand, SetPolicyArgs};
pub(super) use profiles::{CreateProfileArgs, ProfileCommand, ShowProfileArgs, UseProfileArgs};
pub(super) use queues::{
    BindingArgs, BindingCommand, CreateVhostArgs, DeclareExchangeArgs, DeclareQueueArgs, DeleteExchangesArgs,
    DeleteQueuesArgs, ExchangeCommand, GetArgs as GetMessagesArgs, InVhostArgs, MoveArgs, PublishArgs, QueueCommand,
    RedriveArgs, VhostArgs, VhostCommand,
};
pub(super) use quotas::{QuotaCommand, QuotaOfArgs, SetQuotaArgs};
pub(super) use server::{BootstrapArgs, ServerArgs};
pub(super) use shovels::{CreateShovelArgs, FederationCommand, ListLinksArgs, ShovelCommand};
pub(super) use tls::{CreateTlsArgs, TlsCommand};
pub(super) use users::{DeleteUsersArgs, SetUserArgs, UserCommand};

use clap::{Args, Parser, Subcommand, ValueEnum};
use polylogue_net::address::{EVERY_PROTOCOL, HostPort, ProtocolAddress};
use std::path::PathBuf;

/// A message broker for Kafka and RabbitMQ clients, over one durable log.
#[derive(Debug, Parser)]
#[command(name = "polylogue", version, max_term_width = 100)]
pub struct Cli {
    /// Write JSON, one document or one line per message, for programs
    #[arg(long, global = true)]
    pub json: bool,
    /// The command to run
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run a broker until it is stopped
    Serve(ServeArgs),
    /// Create, list, describe, change and delete topics
    #[command(subcommand)]
    Topic(TopicCommand),
    /// List, describe, reset and delete consumer groups
    #[command(subcommand)]
    Group(GroupCommand),
    /// List, declare, read, purge, move and delete queues
    #[command(subcommand)]
    Queue(QueueCommand),
    /// List, declare and delete exchanges
    #[command(subcommand)]
    Exchange(ExchangeCommand),
    /// List, add and delete bindings of exchanges
    #[command(subcommand)]
    Binding(BindingCommand),
    /// List, create and delete virtual hosts
    #[command(subcommand)]
    Vhost(VhostCommand),
    /// List, set and delete policies of queues and exchanges
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Export and import RabbitMQ's definitions
    #[command(subcommand)]
    Definitions(DefinitionsCommand),
    /// List, show, create and delete shovels, which move messages between queues and brokers
    #[command(subcommand)]
    Shovel(ShovelCommand),
    /// List links of federated exchanges and queues
    #[command(subcommand)]
    Federation(FederationCommand),
    /// List and close client connections
    #[command(subcommand)]
    Connection(ConnectionCommand),
    /// List, create, change and delete users
    #[command(subcommand)]
    User(UserCommand),
    /// List, set and delete permissions: what users may access in virtual hosts
    #[command(subcommand)]
    Permission(PermissionCommand),
    /// List, add and delete ACLs: what users may do with topics, groups and the cluster
    #[command(subcommand)]
    Acl(AclCommand),
    /// List, set and delete quotas of Kafka clients
    #[command(subcommand)]
    Quota(QuotaCommand),
    /// Write messages to a topic, one per line
    Produce(ProduceArgs),
    /// Read messages of a topic as they arrive
    Consume(ConsumeArgs),
    /// Copy the current data of a running broker into a new data directory
    Backup(BackupArgs),
    /// Verify a backup and copy it into the data directory of a new broker
    Restore(RestoreArgs),
    /// Verify a data directory that no broker uses, without changing it
    Check(CheckArgs),
    /// Make a damaged data directory usable again, keeping the damaged bytes
    Repair(RepairArgs),
    /// Show every option, or show and change settings of a running server
    Config(ConfigArgs),
    /// Show a running server's health, listeners, rates and slowest consumer groups
    Status(ServerArgs),
    /// Look for common problems, and write a report for a bug report
    Doctor(DoctorArgs),
    /// Create, list, show, choose and delete profiles: servers by name
    #[command(subcommand)]
    Profile(ProfileCommand),
    /// Create certificates for TLS
    #[command(subcommand)]
    Tls(TlsCommand),
    /// Write a completion script for bash, zsh or fish
    Completions(CompletionsArgs),
    /// Show the version
    Version,
}

#[derive(Debug, Clone, Default, Args)]
pub(super) struct ServeArgs {
    /// The configuration file (TOML) [env: POLYLOGUE_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// The data directory [default: ./polylogue-data] [env: POLYLOGUE_DATA]
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// Listen address, or `all` for a listener of each protocol on 127.0.0.1; may be repeated [default: kafka=127.0.0.1:9092 and
    /// http=127.0.0.1:9600] [env: POLYLOGUE_LISTEN]
    #[arg(long, value_name = "PROTOCOL=HOST:PORT", value_parser = listen)]
    listen: Vec<String>,
    /// Address advertised to clients, one per listener of the protocol [env: POLYLOGUE_ADVERTISE]
    #[arg(long, value_name = "PROTOCOL=HOST:PORT", value_parser = ProtocolAddress::parse)]
    advertise: Vec<ProtocolAddress>,
    /// Any option listed by `polylogue config`; may be repeated
    #[arg(long, value_name = "SECTION.NAME=VALUE")]
    set: Vec<String>,
}

impl ServeArgs {
    /// Returns all given options, as `section.name` and value.
    pub(super) fn given(&self) -> Result<Vec<(String, String)>, String> {
        let mut given = Vec::new();
        let list = |list: &[ProtocolAddress]| list.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        if let Some(data) = &self.data {
            given.push(("server.data".to_owned(), data.clone()));
        }
        if !self.listen.is_empty() {
            given.push(("server.listen".to_owned(), self.listen.join(",")));
        }
        if !self.advertise.is_empty() {
            given.push(("server.advertise".to_owned(), list(&self.advertise)));
        }
        for set in &self.set {
            let pair = set.split_once('=').ok_or_else(|| format!("--set {set}: expected SECTION.NAME=VALUE"))?;
            given.push((pair.0.trim().to_owned(), pair.1.to_owned()));
        }
        Ok(given)
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum TopicCommand {
    /// Create a topic
    Create(CreateArgs),
    /// List topics with their messages and sizes
    List(ListTopicsArgs),
    /// Show a topic with its partitions and configs
    Describe(NameArgs),
    /// Change a topic's configs, or add partitions
    Alter(AlterArgs),
    /// Delete topics with all their messages
    Delete(NamesArgs),
}

#[derive(Debug, Args)]
pub(super) struct ListTopicsArgs {
    /// Internal topics too, those of queues among them
    #[arg(long)]
    pub(super) all: bool,
    #[command(flatten)]
    pub(super) at: ServerArgs,
}

#[derive(Debug, Args)]
pub(super) struct CreateArgs {
    /// Name of the topic
    pub(super) name: String,
    /// Number of partitions; by default the broker's setting
    #[arg(long, short, value_name = "COUNT")]
    pub(super) partitions: Option<u32>,
    /// A topic config; may be repeated
    #[arg(long, short, visible_alias = "set", value_name = "NAME=VALUE")]
    pub(super) config: Vec<String>,
    /// Only validate the request
    #[arg(long)]
    pub(super) dry_run: bool,
    #[command(flatten)]
    pub(super) at: ServerArgs,
}

#[derive(Debug, Args)]
pub(super) struct NameArgs {
    /// Name
    pub(super) name: String,
    #[command(flatten)]
    pub(super) at: ServerArgs,
}

#[derive(Debug, Args)]
pub(super) struct NamesArgs {
    /// Names
    #[arg(required = true)]
    pub(super) names: Vec<String>,
    #[command(flatten)]
    pub(super) at: ServerArgs,
}

fn listen(text: &str) -> Result<String, String> {
    match text {
        EVERY_PROTOCOL => Ok(text.to_owned()),
        one => ProtocolAddress::parse(one).map(|one| one.to_string()),
    }
}

fn address(text: &str) -> Result<String, String> {
    match HostPort::parse(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("expected HOST:PORT".to_owned()),
    }
}

/// What a write waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Acks {
    /// Nothing
    #[value(name = "0")]
    None,
    /// The topic's durability
    #[value(name = "1")]
    One,
    /// The topic's durability
    All,
}

/// Compression of batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum CodecArg {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

/// The input format of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum InputFormat {
    /// The value, one line per message
    Text,
    /// A JSON object per line, as `consume --json` writes them: key, value, headers and timestamp are taken
    Json,
}

#[derive(Debug, Args)]
pub(super) struct ProduceArgs {
    /// The topic
    pub(super) topic: String,
    /// Read lines from a file instead of standard input
    #[arg(long, short, value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
    /// Write the whole file as one message
    #[arg(long, requires = "file", conflicts_with_all = ["key_separator", "format"])]
    pub(super) whole_file: bool,
    /// Input format
    #[arg(long, value_enum, default_value_t = InputFormat::Text)]
    pub(super) format: InputFormat,
    /// Separator between key and value in each line
    #[arg(long, value_name = "TEXT", conflicts_with = "key")]
    pub(super) key_separator: Option<String>,
    /// Key of all messages
    #[arg(long, short, value_name = "TEXT")]
    pub(super) key: Option<String>,
    /// Header of all messages; may be repeated
    #[arg(long, short = 'H', value_name = "NAME=VALUE")]
    pub(super) header: Vec<String>,
    /// Partition; by default chosen by the key, or round-robin without a key
    #[arg(long, short, value_name = "NUMBER")]
    pub(super) partition: Option<i32>,
    /// Write an empty line as a tombstone: a message without a value
    #[arg(long)]
    pub(super) empty_as_tombstone: bool,
    /// Compression of batches
    #[arg(long, short = 'z', value_enum, default_value_t = CodecArg::None)]
    pub(super) compression: CodecArg,
    /// What a write waits for
    #[arg(long, value_enum, default_value_t = Acks::All)]
    pub(super) acks: Acks,
    #[command(flatten)]
    pub(super) at: BootstrapArgs,
}

/// The output format of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// The value, one line per message
    Text,
    /// A JSON object, one line per message
    Json,
    /// The value in hexadecimal, one line per message
    Hex,
    /// The bytes of the value without separators
    Raw,
}

#[derive(Debug, Args)]
pub(super) struct ConsumeArgs {
    /// The topic
    pub(super) topic: String,
    /// Where to start: `beginning`, `end`, an offset, -N for the last N messages of each partition, a duration ago such as 1h or
    /// 30m, or a time as 2026-01-31T12:00:00Z, 2026-01-31T14:00:00+02:00 or @MILLISECONDS since 1970
    #[arg(long, value_name = "WHERE", default_value = "end", allow_hyphen_values = true)]
    pub(super) from: String,
    /// Read only this partition; may be repeated
    #[arg(long, short, value_name = "NUMBER")]
    pub(super) partition: Vec<i32>,
    /// Stop after this many messages
    #[arg(long, short = 'n', value_name = "COUNT")]
    pub(super) max: Option<u64>,
    /// Stop at the current end instead of waiting for more
    #[arg(long)]
    pub(super) no_follow: bool,
    /// Stop before this offset or time in each partition, or at its current `end`; written as for --from
    #[arg(long, value_name = "WHERE", conflicts_with = "no_follow")]
    pub(super) until: Option<String>,
    /// Output format; with --json it is json
    #[arg(long, short = 'o', value_enum, default_value_t = Format::Text)]
    pub(super) format: Format,
    /// Print partition, offset, time, key and headers before each value
    #[arg(long, short)]
    pub(super) verbose: bool,
    #[command(flatten)]
    pub(super) at: BootstrapArgs,
}

#[derive(Debug, Args)]
pub(super) struct BackupArgs {
    /// The directory to create
    pub(super) dir: PathBuf,
    #[command(flatten)]
    pub(super) at: ServerArgs,
}

#[derive(Debug, Args)]
pub(super) struct RestoreArgs {
    /// The backup
    pub(super) from: PathBuf,
    /// The data directory: a new or an empty one
    pub(super) data: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// The data directory
    pub(super) dir: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct RepairArgs {
    /// The data directory
    pub(super) dir: PathBuf,
    /// Accept the loss of damaged ranges: fence them and move their bytes aside
    #[arg(long)]
    pub(super) fence: bool,
}

/// A shell with completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Shell {
    Bash,
    Zsh,
    Fish,
}

#[derive(Debug, Args)]
pub(super) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(super) shell: Shell,
}
