//! What `polylogue queue`, `exchange`, `binding` and `vhost` look like.

use super::ServerArgs;
use clap::{Args, Subcommand, ValueEnum};

/// Which virtual host, and where it is.
#[derive(Debug, Args)]
pub(in crate::cli) struct VhostArgs {
    /// The virtual host
    #[arg(long, value_name = "NAME", default_value = "/")]
    pub(in crate::cli) vhost: String,
    #[command(flatten)]
    pub(in crate::cli) at: ServerArgs,
}

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum QueueCommand {
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
pub(in crate::cli) enum QueueType {
    Classic,
    Quorum,
    Stream,
}

impl QueueType {
    pub(in crate::cli) fn name(self) -> &'static str {
        match self {
            QueueType::Classic => "classic",
            QueueType::Quorum => "quorum",
            QueueType::Stream => "stream",
        }
    }
}

#[derive(Debug, Args)]
pub(in crate::cli) struct DeclareQueueArgs {
    /// Its name
    pub(in crate::cli) name: String,
    /// Its type; the virtual host decides without
    #[arg(long = "type", short = 't', value_enum)]
    pub(in crate::cli) kind: Option<QueueType>,
    /// It does not outlive a restart
    #[arg(long)]
    pub(in crate::cli) transient: bool,
    /// It goes with its last consumer
    #[arg(long)]
    pub(in crate::cli) auto_delete: bool,
    /// An argument as with RabbitMQ (x-max-length=1000), its value in JSON or a text; may be repeated
    #[arg(long, short, value_name = "NAME=VALUE")]
    pub(in crate::cli) argument: Vec<String>,
    #[command(flatten)]
    pub(in crate::cli) within: VhostArgs,
}

/// Things of a virtual host.
#[derive(Debug, Args)]
pub(in crate::cli) struct InVhostArgs {
    /// Their names
    #[arg(required = true)]
    pub(in crate::cli) names: Vec<String>,
    #[command(flatten)]
    pub(in crate::cli) within: VhostArgs,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct DeleteQueuesArgs {
    /// Their names
    #[arg(required = true)]
    pub(in crate::cli) names: Vec<String>,
    /// Only those that nobody consumes
    #[arg(long)]
    pub(in crate::cli) if_unused: bool,
    /// Only those that hold nothing
    #[arg(long)]
    pub(in crate::cli) if_empty: bool,
    #[command(flatten)]
    pub(in crate::cli) within: VhostArgs,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct GetArgs {
    /// The queue
    pub(in crate::cli) name: String,
    /// How many messages, at most 1000
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 1)]
    pub(in crate::cli) max: u32,
    /// Remove them from the queue
    #[arg(long)]
    pub(in crate::cli) remove: bool,
    /// Write exchange, routing key and properties in front of each body
    #[arg(long, short)]
    pub(in crate::cli) verbose: bool,
    #[command(flatten)]
    pub(in crate::cli) within: VhostArgs,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct MoveArgs {
    /// The queue
    pub(in crate::cli) name: String,
    #[command(flatten)]
    pub(in crate::cli) to: MoveTarget,
    /// The routing key for the exchange; each message's own without
    #[arg(long, value_name = "KEY", requires = "to_exchange")]
    pub(in crate::cli) routing_key: Option<String>,
    /// How many messages at the most; those that are ready now without
    #[arg(long, short = 'n', value_name = "COUNT")]
    pub(in crate::cli) limit: Option<u64>,
    #[command(flatten)]
    pub(in crate::cli) within: VhostArgs,
}

/// Exactly one of them.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(in crate::cli) struct MoveTarget {
    /// The queue that they go to
    #[arg(long, value_name = "QUEUE")]
    pub(in crate::cli) to: Option<String>,
    /// The exchange that they go to
    #[arg(long, value_name = "EXCHANGE")]
    pub(in crate::cli) to_exchange: Option<String>,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct RedriveArgs {
    /// The queue of dead letters
    pub(in crate::cli) name: String,
    /// Into this queue, wherever they died
    #[arg(long, value_name = "QUEUE")]
    pub(in crate::cli) to: Option<String>,
    /// How many messages at the most; those that are ready now without
    #[arg(long, short = 'n', value_name = "COUNT")]
    pub(in crate::cli) limit: Option<u64>,
    #[command(flatten)]
    pub(in crate::cli) within: VhostArgs,
}

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum ExchangeCommand {
    /// List all exchanges
    List(VhostArgs),
    /// Declare an exchange
    Declare(DeclareExchangeArgs),
    /// Delete exchanges with their bindings
    Delete(DeleteExchangesArgs),
}

#[derive(Debug, Args)]
pub(in crate::cli) struct DeclareExchangeArgs {
    /// Its name
    pub(in crate::cli) name: String,
    /// Its type: direct, fanout, topic, headers, x-consistent-hash, x-delayed-message
    #[arg(long = "type", short = 't', value_name = "TYPE", default_value = "direct")]
    pub(in crate::cli) kind: String,
    /// It does not outlive a restart
    #[arg(long)]
    pub(in crate::cli) transient: bool,
    /// It goes with its last binding
    #[arg(long)]
    pub(in crate::cli) auto_delete: bool,
    /// Only other exchanges publish to it
    #[arg(long)]
    pub(in crate::cli) internal: bool,
    /// An argument as with RabbitMQ (alternate-exchange=lost), its value in JSON or a text; may be repeated
    #[arg(long, short, value_name = "NAME=VALUE")]
    pub(in crate::cli) argument: Vec<String>,
    #[command(flatten)]
    pub(in crate::cli) within: VhostArgs,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct DeleteExchangesArgs {
    /// Their names
    #[arg(required = true)]
    pub(in crate::cli) names: Vec<String>,
    /// Only those from which nothing is bound
    #[arg(long)]
    pub(in crate::cli) if_unused: bool,
    #[command(flatten)]
    pub(in crate::cli) within: VhostArgs,
}

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum BindingCommand {
    /// List all bindings
    List(VhostArgs),
    /// Bind a queue or an exchange to an exchange
    Add(BindingArgs),
    /// Take a binding away
    Delete(BindingArgs),
}

#[derive(Debug, Args)]
pub(in crate::cli) struct BindingArgs {
    /// The exchange that messages come from
    pub(in crate::cli) source: String,
    /// The queue that they go to
    pub(in crate::cli) destination: String,
    /// They go to an exchange
    #[arg(long)]
    pub(in crate::cli) to_exchange: bool,
    /// The routing key, or the pattern
    #[arg(long, short, value_name = "KEY", default_value = "")]
    pub(in crate::cli) key: String,
    /// An argument as with RabbitMQ (x-match=any), its value in JSON or a text; may be repeated
    #[arg(long, short, value_name = "NAME=VALUE")]
    pub(in crate::cli) argument: Vec<String>,
    #[command(flatten)]
    pub(in crate::cli) within: VhostArgs,
}

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum VhostCommand {
    /// List all virtual hosts
    List(ServerArgs),
    /// Create a virtual host
    Create(CreateVhostArgs),
    /// Delete virtual hosts with everything in them
    Delete(super::NamesArgs),
}

#[derive(Debug, Args)]
pub(in crate::cli) struct CreateVhostArgs {
    /// Its name
    pub(in crate::cli) name: String,
    /// What it is for
    #[arg(long, value_name = "TEXT")]
    pub(in crate::cli) description: Option<String>,
    /// The type of queues that are declared without one
    #[arg(long, value_enum)]
    pub(in crate::cli) default_queue_type: Option<QueueType>,
    #[command(flatten)]
    pub(in crate::cli) at: ServerArgs,
}
