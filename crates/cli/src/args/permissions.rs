//! `polylogue permission`

use super::{ServerArgs, VhostArgs};
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum PermissionCommand {
    /// List permissions of users in virtual hosts
    List(ServerArgs),
    /// Set a user's permissions in a virtual host
    #[command(
        after_help = "Each pattern is a regular expression for names of queues and exchanges, as in RabbitMQ: ^app- matches a prefix, '' matches nothing."
    )]
    Set(SetPermissionArgs),
    /// Delete a user's permissions in a virtual host
    Delete(DeletePermissionArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SetPermissionArgs {
    /// The user
    pub(crate) name: String,
    /// Names that the user may declare and delete
    #[arg(long, value_name = "PATTERN", default_value = ".*")]
    pub(crate) configure: String,
    /// Names that the user may publish to and bind
    #[arg(long, value_name = "PATTERN", default_value = ".*")]
    pub(crate) write: String,
    /// Names that the user may consume from and bind to
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
