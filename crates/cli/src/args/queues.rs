//! `polylogue queue`, `exchange`, `binding` and `vhost`.

use super::ServerArgs;
use clap::{Args, Subcommand, ValueEnum};

/// The virtual host, and its server.
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
    /// List all queues with their message counts
    List(VhostArgs),
    /// Declare a queue
    Declare(DeclareQueueArgs),
    /// Show a queue with its counts and arguments
    Describe(InVhostArgs),
    /// Publish a message to a queue, or to an exchange
    Publish(PublishArgs),
    /// Show messages of a queue, without removing them by default
    #[command(after_help = "A body that is not UTF-8 is printed in base64, after the word base64.")]
    Get(GetArgs),
    /// Delete the ready messages of queues
    Purge(InVhostArgs),
    /// Move the ready messages of a queue to another queue, or to an exchange
    Move(MoveArgs),
    /// Move dead-lettered messages back to the queues they came from
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
    /// Name of the queue
    pub(crate) name: String,
    /// Type of the queue; by default the virtual host's
    #[arg(long = "type", short = 't', value_enum)]
    pub(crate) kind: Option<QueueType>,
    /// Do not keep the queue across a restart
    #[arg(long)]
    pub(crate) transient: bool,
    /// Delete the queue with its last consumer
    #[arg(long)]
    pub(crate) auto_delete: bool,
    /// A queue argument as in RabbitMQ (x-max-length=1000), its value as JSON or a string; may be repeated
    #[arg(long, short, value_name = "NAME=VALUE")]
    pub(crate) argument: Vec<String>,
    #[command(flatten)]
    pub(crate) within: VhostArgs,
}

/// Names of objects in a virtual host.
#[derive(Debug, Args)]
pub(crate) struct InVhostArgs {
    /// Names
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) within: VhostArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PublishArgs {
    /// The queue; with --exchange the routing key
    pub(crate) name: String,
    /// The body; by default it is read from standard input
    pub(crate) body: Option<String>,
    /// Publish to this exchange instead of to a queue
    #[arg(long, value_name = "NAME")]
    pub(crate) exchange: Option<String>,
    /// Header of the message; may be repeated
    #[arg(long, short = 'H', value_name = "NAME=VALUE")]
    pub(crate) header: Vec<String>,
    /// Content type of the body
    #[arg(long, value_name = "TYPE")]
    pub(crate) content_type: Option<String>,
    /// Do not keep the message across a restart
    #[arg(long)]
    pub(crate) transient: bool,
    #[command(flatten)]
    pub(crate) within: VhostArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteQueuesArgs {
    /// Names of the queues
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
    /// Only if they have no consumers
    #[arg(long)]
    pub(crate) if_unused: bool,
    /// Only if they are empty
    #[arg(long)]
    pub(crate) if_empty: bool,
    #[command(flatten)]
    pub(crate) within: VhostArgs,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// The queue
    pub(crate) name: String,
    /// Number of messages, at most 1000
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 1)]
    pub(crate) max: u32,
    /// Remove them from the queue
    #[arg(long)]
    pub(crate) remove: bool,
    /// Print exchange, routing key and properties before each body
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
    /// Routing key for the exchange; by default each message's own
    #[arg(long, value_name = "KEY", requires = "to_exchange")]
    pub(crate) routing_key: Option<String>,
    /// Maximum number of messages; by default all that are ready now
    #[arg(long, short = 'n', value_name = "COUNT")]
    pub(crate) limit: Option<u64>,
    #[command(flatten)]
    pub(crate) within: VhostArgs,
}

/// Exactly one of these.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct MoveTarget {
    /// Target queue
    #[arg(long, value_name = "QUEUE")]
    pub(crate) to: Option<String>,
    /// Target exchange
    #[arg(long, value_name = "EXCHANGE")]
    pub(crate) to_exchange: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RedriveArgs {
    /// The dead-letter queue
    pub(crate) name: String,
    /// Move all messages to this queue instead
    #[arg(long, value_name = "QUEUE")]
    pub(crate) to: Option<String>,
    /// Maximum number of messages; by default all that are ready now
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
    /// Name of the exchange
    pub(crate) name: String,
    /// Type: direct, fanout, topic, headers, x-consistent-hash, x-delayed-message
    #[arg(long = "type", short = 't', value_name = "TYPE", default_value = "direct")]
    pub(crate) kind: String,
    /// Do not keep the exchange across a restart
    #[arg(long)]
    pub(crate) transient: bool,
    /// Delete the exchange with its last binding
    #[arg(long)]
    pub(crate) auto_delete: bool,
    /// Allow publishing from other exchanges only
    #[arg(long)]
    pub(crate) internal: bool,
    /// An exchange argument as in RabbitMQ (alternate-exchange=lost), its value as JSON or a string; may be repeated
    #[arg(long, short, value_name = "NAME=VALUE")]
    pub(crate) argument: Vec<String>,
    #[command(flatten)]
    pub(crate) within: VhostArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteExchangesArgs {
    /// Names of the exchanges
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
    /// Only if they have no bindings
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
    /// Delete a binding
    Delete(BindingArgs),
}

#[derive(Debug, Args)]
pub(crate) struct BindingArgs {
    /// Source exchange
    pub(crate) source: String,
    /// Destination queue
    pub(crate) destination: String,
    /// The destination is an exchange
    #[arg(long)]
    pub(crate) to_exchange: bool,
    /// Routing key, or pattern
    #[arg(long, short, value_name = "KEY", default_value = "")]
    pub(crate) key: String,
    /// A binding argument as in RabbitMQ (x-match=any), its value as JSON or a string; may be repeated
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
    /// Delete virtual hosts with their queues and exchanges
    Delete(super::NamesArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CreateVhostArgs {
    /// Name of the virtual host
    pub(crate) name: String,
    /// Description
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// Default queue type
    #[arg(long, value_enum)]
    pub(crate) default_queue_type: Option<QueueType>,
    #[command(flatten)]
    pub(crate) at: ServerArgs,
}
