//! `polylogue user`

use super::ServerArgs;
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// List users with their tags, and how they can log in
    List(ServerArgs),
    /// Make a user, or change a user's password and tags
    Set(SetUserArgs),
    /// Delete users with their permissions; their ACLs stay
    Delete(DeleteUsersArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SetUserArgs {
    /// The login name
    pub(crate) name: String,
    /// Set a password: asked for at a terminal, else a line of standard input
    #[arg(long)]
    pub(crate) password: bool,
    /// A tag; may be repeated, and replaces those that the user has. An administrator may do everything
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Vec<String>,
    /// Take all tags away
    #[arg(long, conflicts_with = "tag")]
    pub(crate) no_tags: bool,
    #[command(flatten)]
    pub(crate) at: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteUsersArgs {
    /// Their names
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) at: ServerArgs,
}
