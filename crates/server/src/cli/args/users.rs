//! `polylogue user`

use super::ServerArgs;
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum UserCommand {
    /// List users with their tags, and how they can log in
    List(ServerArgs),
    /// Make a user, or change a user's password and tags
    Set(SetUserArgs),
    /// Delete users with their permissions; their ACLs stay
    Delete(DeleteUsersArgs),
}

#[derive(Debug, Args)]
pub(in crate::cli) struct SetUserArgs {
    /// The login name
    pub(in crate::cli) name: String,
    /// Set a password: asked for at a terminal, else a line of standard input
    #[arg(long)]
    pub(in crate::cli) password: bool,
    /// A tag; may be repeated, and replaces those that the user has. An administrator may do everything
    #[arg(long, value_name = "TAG")]
    pub(in crate::cli) tag: Vec<String>,
    /// Take all tags away
    #[arg(long, conflicts_with = "tag")]
    pub(in crate::cli) no_tags: bool,
    #[command(flatten)]
    pub(in crate::cli) at: ServerArgs,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct DeleteUsersArgs {
    /// Their names
    #[arg(required = true)]
    pub(in crate::cli) names: Vec<String>,
    #[command(flatten)]
    pub(in crate::cli) at: ServerArgs,
}
