//! What `polylogue queue`, `exchange`, `binding` and `vhost` look like.

use super::ServerArgs;
use clap::{Args, Subcommand, ValueEnum};

/// Which virtual host, and where it is.
#[derive(Debug, Args)]
pub(crate) struct VhostArgs {
    /// The virtual host
    #[arg(long, value_name = "NAME", default_value = "/")]
    pub(crate) vhost: String,
    #[command(flatten)]
    pub(crate) at: ServerArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// List all queues with what they hold
    List(VhostArgs),
    /// Declare a queue
    Declare(DeclareQueueArgs),
    /// Show messages of a queue; they stay in it
    #[command(after_help = "A body that is not UTF-8 comes in base64, with that word in front of it.")]
    Get(GetArgs),
    /// Delete what is ready in queues
    Purge(InVhostArgs),
    /// Move what is ready in a queue to another queue, or to an exchange
    Move(MoveArgs),
    /// Move dead letters back into the queues in which they died
    Redrive(RedriveArgs),
    /// Delete queues with all their messages
    Delete(DeleteQueuesArgs),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum QueueType {
    Classic,
    Quorum,
    Stream,
}

impl QueueType {
    pub(crate) fn name(self) -> &'static str {
        match self {
            QueueType::Classic => "classic",
            QueueType::Quorum => "quorum",
            QueueType::Stream => "stream",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct DeclareQueueArgs {
    /// Its name
    pub(crate) name: String,
    /// Its type; the virtual host decides without
    #[arg(long = "type", short = 't', value_enum)]
    pub(crate) kind: Option<QueueType>,
    /// It does not outlive a restart
    #[arg(long)]
    pub(crate) transient: bool,
    /// It goes with its last consumer
    #[arg(long)]
    pub(crate) auto_delete: bool,
    /// An argument as with RabbitMQ (x-max-length=1000), its value in JSON or a text; may be repeated
    #[arg(long, short, value_name = "NAME=VALUE")]
    pub(crate) argument: Vec<String>,
    #[command(flatten)]
    pub(crate) within: VhostArgs,
}

/// Things of a virtual host.
#[derive(Debug, Args)]
pub(crate) struct InVhostArgs {
    /// Their names
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) within: VhostArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteQueuesArgs {
    /// Their names
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
    /// Only those without consumers
    #[arg(long)]
    pub(crate) if_unused: bool,
    /// Only those that hold nothing
    #[arg(long)]
    pub(crate) if_empty: bool,
    #[command(flatten)]
    pub(crate) within: VhostArgs,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// The queue
    pub(crate) name: String,
    /// How many messages, at most 1000
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 1)]
    pub(crate) max: u32,
    /// Remove them from the queue
    #[arg(long)]
    pub(crate) remove: bool,
    /// Write exchange, routing key and properties in front of each body
    #[arg(long, short)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) within: VhostArgs,
}

#[derive(Debug, Args)]
pub(crate) struct MoveArgs {
    /// The queue
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) to: MoveTarget,
    /// The routing key for the exchange; each message's own without
    #[arg(long, value_name = "KEY", requires = "to_exchange")]
    pub(crate) routing_key: Option<String>,
    /// How many messages at the most; those that are ready now without
    #[arg(long, short = 'n', value_name = "COUNT")]
    pub(crate) limit: Option<u64>,
    #[command(flatten)]
    pub(crate) within: VhostArgs,
}

/// Exactly one of them.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct MoveTarget {
    /// The queue that they go to
    #[arg(long, value_name = "QUEUE")]
    pub(crate) to: Option<String>,
    /// The exchange that they go to
    #[arg(long, value_name = "EXCHANGE")]
    pub(crate) to_exchange: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RedriveArgs {
    /// The queue of dead letters
    pub(crate) name: String,
    /// Into this queue, wherever they died
    #[arg(long, value_name = "QUEUE")]
    pub(crate) to: Option<String>,
    /// How many messages at the most; those that are ready now without
    #[arg(long, short = 'n', value_name = "COUNT")]
    pub(crate) limit: Option<u64>,
    #[command(flatten)]
    pub(crate) within: VhostArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExchangeCommand {
    /// List all exchanges
    List(VhostArgs),
    /// Declare an exchange
    Declare(DeclareExchangeArgs),
    /// Delete exchanges with their bindings
    Delete(DeleteExchangesArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DeclareExchangeArgs {
    /// Its name
    pub(crate) name: String,
    /// Its type: direct, fanout, topic, headers, x-consistent-hash, x-delayed-message
    #[arg(long = "type", short = 't', value_name = "TYPE", default_value = "direct")]
    pub(crate) kind: String,
    /// It does not outlive a restart
    #[arg(long)]
    pub(crate) transient: bool,
    /// It goes with its last binding
    #[arg(long)]
    pub(crate) auto_delete: bool,
    /// Only other exchanges publish to it
    #[arg(long)]
    pub(crate) internal: bool,
    /// An argument as with RabbitMQ (alternate-exchange=lost), its value in JSON or a text; may be repeated
    #[arg(long, short, value_name = "NAME=VALUE")]
    pub(crate) argument: Vec<String>,
    #[command(flatten)]
    pub(crate) within: VhostArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteExchangesArgs {
    /// Their names
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
    /// Only those from which nothing is bound
    #[arg(long)]
    pub(crate) if_unused: bool,
    #[command(flatten)]
    pub(crate) within: VhostArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BindingCommand {
    /// List all bindings
    List(VhostArgs),
    /// Bind a queue or an exchange to an exchange
    Add(BindingArgs),
    /// Take a binding away
    Delete(BindingArgs),
}

#[derive(Debug, Args)]
pub(crate) struct BindingArgs {
    /// The exchange that messages come from
    pub(crate) source: String,
    /// The queue that they go to
    pub(crate) destination: String,
    /// They go to an exchange
    #[arg(long)]
    pub(crate) to_exchange: bool,
    /// The routing key, or the pattern
    #[arg(long, short, value_name = "KEY", default_value = "")]
    pub(crate) key: String,
    /// An argument as with RabbitMQ (x-match=any), its value in JSON or a text; may be repeated
    #[arg(long, short, value_name = "NAME=VALUE")]
    pub(crate) argument: Vec<String>,
    #[command(flatten)]
    pub(crate) within: VhostArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum VhostCommand {
    /// List all virtual hosts
    List(ServerArgs),
    /// Create a virtual host
    Create(CreateVhostArgs),
    /// Delete virtual hosts with everything in them
    Delete(super::NamesArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CreateVhostArgs {
    /// Its name
    pub(crate) name: String,
    /// What it is for
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// The type of queues that are declared without one
    #[arg(long, value_enum)]
    pub(crate) default_queue_type: Option<QueueType>,
    #[command(flatten)]
    pub(crate) at: ServerArgs,
}
