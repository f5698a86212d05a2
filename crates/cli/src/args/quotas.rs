//! `polylogue quota`

use super::ServerArgs;
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum QuotaCommand {
    /// List what clients may take
    List(ServerArgs),
    /// Set what clients may take: what is not given is not limited
    Set(SetQuotaArgs),
    /// Take a quota away
    Delete(QuotaOfArgs),
}

#[derive(Debug, Args)]
pub(crate) struct QuotaOfArgs {
    /// Of this user by name
    #[arg(long, value_name = "USER", conflicts_with = "other_users")]
    pub(crate) of: Option<String>,
    /// Of each user that has no quota of its own
    #[arg(long)]
    pub(crate) other_users: bool,
    /// Of this client id
    #[arg(long, value_name = "ID", conflicts_with = "other_client_ids")]
    pub(crate) client_id: Option<String>,
    /// Of each client id that has no quota of its own
    #[arg(long)]
    pub(crate) other_client_ids: bool,
    #[command(flatten)]
    pub(crate) at: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SetQuotaArgs {
    /// Bytes of produce requests a second
    #[arg(long, value_name = "BYTES")]
    pub(crate) produce: Option<f64>,
    /// Bytes of messages in answers to fetches a second
    #[arg(long, value_name = "BYTES")]
    pub(crate) fetch: Option<f64>,
    /// Time of the broker's threads, in percent of one thread
    #[arg(long, value_name = "PERCENT")]
    pub(crate) threads: Option<f64>,
    #[command(flatten)]
    pub(crate) whose: QuotaOfArgs,
}
