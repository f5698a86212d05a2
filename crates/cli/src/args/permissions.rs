//! `polylogue permission`

use super::{ServerArgs, VhostArgs};
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum PermissionCommand {
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
pub(crate) struct SetPermissionArgs {
    /// The user
    pub(crate) name: String,
    /// What the user may declare and delete
    #[arg(long, value_name = "PATTERN", default_value = ".*")]
    pub(crate) configure: String,
    /// What the user may publish to, and bind
    #[arg(long, value_name = "PATTERN", default_value = ".*")]
    pub(crate) write: String,
    /// What the user may consume, and bind to
    #[arg(long, value_name = "PATTERN", default_value = ".*")]
    pub(crate) read: String,
    #[command(flatten)]
    pub(crate) within: VhostArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DeletePermissionArgs {
    /// The user
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) within: VhostArgs,
}
