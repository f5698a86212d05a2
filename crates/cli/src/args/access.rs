//! `polylogue acl`

use super::ServerArgs;
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum AclCommand {
    /// List ACLs
    List(ListAclsArgs),
    /// Allow or deny operations to a user
    Add(AclArgs),
    /// Delete ACLs that `add` created with the same arguments
    Delete(AclArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListAclsArgs {
    /// Only ACLs of this user, not of *
    #[arg(long, value_name = "USER")]
    pub(crate) of: Option<String>,
    /// Only ACLs that apply to this topic
    #[arg(long, value_name = "NAME", conflicts_with = "group")]
    pub(crate) topic: Option<String>,
    /// Only ACLs that apply to this group
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
    #[command(flatten)]
    pub(crate) at: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AclArgs {
    /// The user, or * for all users
    #[arg(value_name = "WHO")]
    pub(crate) who: String,
    /// Operations, separated by commas: read, write, create, delete, alter, describe, describe-configs, alter-configs,
    /// idempotent-write, cluster-action or all
    #[arg(value_name = "OPERATIONS", value_delimiter = ',', required = true)]
    pub(crate) operations: Vec<String>,
    /// A topic, or * for all; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) topic: Vec<String>,
    /// A group, or * for all; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Vec<String>,
    /// A transactional id, or * for all; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) transactional_id: Vec<String>,
    /// The cluster
    #[arg(long)]
    pub(crate) cluster: bool,
    /// Treat the names as prefixes
    #[arg(long)]
    pub(crate) prefixed: bool,
    /// Deny the operations; takes precedence over rules that allow them
    #[arg(long)]
    pub(crate) deny: bool,
    /// Client address the rule applies to
    #[arg(long, value_name = "ADDRESS", default_value = "*")]
    pub(crate) host: String,
    #[command(flatten)]
    pub(crate) at: ServerArgs,
}
