//! `polylogue quota`

use super::ServerArgs;
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum QuotaCommand {
    /// List quotas
    List(ServerArgs),
    /// Set the quotas of clients; limits that are not given are removed
    Set(SetQuotaArgs),
    /// Delete the quotas of clients
    Delete(QuotaOfArgs),
}

#[derive(Debug, Args)]
pub(crate) struct QuotaOfArgs {
    /// A user
    #[arg(long, value_name = "USER", conflicts_with = "other_users")]
    pub(crate) of: Option<String>,
    /// Users that have no quota of their own
    #[arg(long)]
    pub(crate) other_users: bool,
    /// A client id
    #[arg(long, value_name = "ID", conflicts_with = "other_client_ids")]
    pub(crate) client_id: Option<String>,
    /// Client ids that have no quota of their own
    #[arg(long)]
    pub(crate) other_client_ids: bool,
    #[command(flatten)]
    pub(crate) at: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SetQuotaArgs {
    /// Bytes of produce requests per second
    #[arg(long, value_name = "BYTES")]
    pub(crate) produce: Option<f64>,
    /// Bytes of messages in fetch responses per second
    #[arg(long, value_name = "BYTES")]
    pub(crate) fetch: Option<f64>,
    /// Time of the broker's threads, in percent of one thread
    #[arg(long, value_name = "PERCENT")]
    pub(crate) threads: Option<f64>,
    #[command(flatten)]
    pub(crate) whose: QuotaOfArgs,
}
