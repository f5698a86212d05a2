//! `polylogue acl`

use super::ServerArgs;
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum AclCommand {
    /// List what users are allowed and denied
    List(ListAclsArgs),
    /// Allow a user something, or deny it
    Add(AclArgs),
    /// Take back what was allowed or denied by `add` with the same arguments
    Delete(AclArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListAclsArgs {
    /// Only what is said of this user by name
    #[arg(long, value_name = "USER")]
    pub(crate) of: Option<String>,
    /// Only what holds for this topic
    #[arg(long, value_name = "NAME", conflicts_with = "group")]
    pub(crate) topic: Option<String>,
    /// Only what holds for this group
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
    #[command(flatten)]
    pub(crate) at: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AclArgs {
    /// The user, or * for everybody
    #[arg(value_name = "WHO")]
    pub(crate) who: String,
    /// What, with commas between: read, write, create, delete, alter, describe, describe-configs, alter-configs,
    /// idempotent-write, cluster-action or all
    #[arg(value_name = "OPERATIONS", value_delimiter = ',', required = true)]
    pub(crate) operations: Vec<String>,
    /// On this topic, or * for all; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) topic: Vec<String>,
    /// On this group, or * for all; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Vec<String>,
    /// On this transactional id, or * for all; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) transactional_id: Vec<String>,
    /// On the cluster
    #[arg(long)]
    pub(crate) cluster: bool,
    /// The names are what names begin with
    #[arg(long)]
    pub(crate) prefixed: bool,
    /// Deny it, whatever else allows it
    #[arg(long)]
    pub(crate) deny: bool,
    /// Only from this address
    #[arg(long, value_name = "ADDRESS", default_value = "*")]
    pub(crate) host: String,
    #[command(flatten)]
    pub(crate) at: ServerArgs,
}
