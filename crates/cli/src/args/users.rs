//! `polylogue user`

use super::ServerArgs;
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// List users with their tags and login mechanisms
    List(ServerArgs),
    /// Create a user, or change a user's password and tags
    Set(SetUserArgs),
    /// Delete users with their permissions; their ACLs stay
    Delete(DeleteUsersArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SetUserArgs {
    /// User name
    pub(crate) name: String,
    /// Set a password, read from the terminal, or from a line of standard input
    #[arg(long)]
    pub(crate) password: bool,
    /// A tag; may be repeated, and replaces the user's tags. The tag administrator permits everything
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Vec<String>,
    /// Remove all tags
    #[arg(long, conflicts_with = "tag")]
    pub(crate) no_tags: bool,
    #[command(flatten)]
    pub(crate) at: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteUsersArgs {
    /// Names of the users
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) at: ServerArgs,
}
