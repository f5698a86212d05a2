//! `polylogue shovel` and `polylogue federation`

use super::queues::{InVhostArgs, VhostArgs};
use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum ShovelCommand {
    /// List shovels with their state
    List(VhostArgs),
    /// Show the status of shovels
    Status(InVhostArgs),
    /// Create or replace a shovel, which moves messages from a queue or an exchange to another, also of another broker
    Create(Box<CreateShovelArgs>),
    /// Delete shovels; the messages stay
    Delete(InVhostArgs),
}

/// When a shovel acknowledges a message at its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AckMode {
    /// Once the destination has confirmed it
    OnConfirm,
    /// Once it was sent
    OnPublish,
    /// At once
    NoAck,
}

impl AckMode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            AckMode::OnConfirm => "on-confirm",
            AckMode::OnPublish => "on-publish",
            AckMode::NoAck => "no-ack",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct CreateShovelArgs {
    /// Name of the shovel
    pub(crate) name: String,
    /// Address of the source; amqp:// is this broker
    #[arg(long, value_name = "URI", default_value = "amqp://")]
    pub(crate) from: String,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Routing key by which the source exchange is bound
    #[arg(long, value_name = "KEY", requires = "from_exchange")]
    pub(crate) from_key: Option<String>,
    /// Address of the destination; amqp:// is this broker
    #[arg(long, value_name = "URI", default_value = "amqp://")]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) destination: DestinationArgs,
    /// Routing key for the destination exchange; by default each message's own
    #[arg(long, value_name = "KEY", requires = "to_exchange")]
    pub(crate) to_key: Option<String>,
    /// When a message is acknowledged at the source
    #[arg(long, value_enum, default_value_t = AckMode::OnConfirm)]
    pub(crate) ack_mode: AckMode,
    /// Delete the shovel after this many messages, or those that are there at its start (queue-length)
    #[arg(long, value_name = "COUNT")]
    pub(crate) delete_after: Option<String>,
    #[command(flatten)]
    pub(crate) within: VhostArgs,
}

/// Exactly one of these.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct SourceArgs {
    /// Source queue
    #[arg(long, value_name = "QUEUE")]
    pub(crate) from_queue: Option<String>,
    /// Source exchange
    #[arg(long, value_name = "EXCHANGE")]
    pub(crate) from_exchange: Option<String>,
}

/// Exactly one of these.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct DestinationArgs {
    /// Destination queue
    #[arg(long, value_name = "QUEUE")]
    pub(crate) to_queue: Option<String>,
    /// Destination exchange
    #[arg(long, value_name = "EXCHANGE")]
    pub(crate) to_exchange: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FederationCommand {
    /// List federation links with their state
    List(ListLinksArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListLinksArgs {
    /// Only links that are not running
    #[arg(long)]
    pub(crate) down: bool,
    #[command(flatten)]
    pub(crate) within: VhostArgs,
}
