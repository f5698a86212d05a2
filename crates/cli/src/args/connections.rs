//! `polylogue connection`

use super::ServerArgs;
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum ConnectionCommand {
    /// List client connections of all protocols
    List(ListConnectionsArgs),
    /// Close connections; clients may connect again
    Close(CloseConnectionsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListConnectionsArgs {
    /// Only those with this text in the protocol, address, user, client or virtual host
    #[arg(long, value_name = "TEXT")]
    pub(crate) search: Option<String>,
    #[command(flatten)]
    pub(crate) at: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CloseConnectionsArgs {
    /// Ids, as `connection list` shows them
    #[arg(required = true)]
    pub(crate) ids: Vec<u64>,
    #[command(flatten)]
    pub(crate) at: ServerArgs,
}
