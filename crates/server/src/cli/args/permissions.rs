//! `polylogue permission`

use super::{ServerArgs, VhostArgs};
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum PermissionCommand {
    /// List what users may do in virtual hosts
    List(ServerArgs),
    /// Say what a user may do in a virtual host
    #[command(
        after_help = "Each is a regular expression for names of queues and exchanges, as with RabbitMQ: ^app- is what begins so, '' is nothing."
    )]
    Set(SetPermissionArgs),
    /// Take away what a user may do in a virtual host
    Delete(DeletePermissionArgs),
}

#[derive(Debug, Args)]
pub(in crate::cli) struct SetPermissionArgs {
    /// The user
    pub(in crate::cli) name: String,
    /// What the user may declare and delete
    #[arg(long, value_name = "PATTERN", default_value = ".*")]
    pub(in crate::cli) configure: String,
    /// What the user may publish to, and bind
    #[arg(long, value_name = "PATTERN", default_value = ".*")]
    pub(in crate::cli) write: String,
    /// What the user may consume, and bind to
    #[arg(long, value_name = "PATTERN", default_value = ".*")]
    pub(in crate::cli) read: String,
    #[command(flatten)]
    pub(in crate::cli) within: VhostArgs,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct DeletePermissionArgs {
    /// The user
    pub(in crate::cli) name: String,
    #[command(flatten)]
    pub(in crate::cli) within: VhostArgs,
}
