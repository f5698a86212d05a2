//! `polylogue config`, and `polylogue topic alter`.

use super::{ServeArgs, ServerArgs};
use clap::{Args, Subcommand};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) what: Option<ConfigCommand>,
    #[command(flatten)]
    pub(crate) sources: ServeArgs,
    /// Only options that differ from their defaults
    #[arg(long)]
    pub(crate) changed: bool,
    /// Write the reference of all options as Markdown
    #[arg(long, conflicts_with = "changed")]
    pub(crate) markdown: bool,
    /// Write the table of all limits as Markdown
    #[arg(long, conflicts_with_all = ["changed", "markdown"])]
    pub(crate) limits: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show settings of a running server
    Get(GetArgs),
    /// Change settings of a running server; they take effect at once and are kept across restarts
    Set(SetArgs),
}

/// The scope of settings.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct ScopeArgs {
    /// Settings of this node only, instead of all nodes
    #[arg(long)]
    pub(crate) node: bool,
    /// Settings of a consumer group
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
    /// Settings of a client metrics subscription
    #[arg(long, value_name = "NAME")]
    pub(crate) client_metrics: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// Only these settings; by default all that are set
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) scope: ScopeArgs,
    /// Include settings that are not set
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) at: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// Settings to set
    #[arg(value_name = "NAME=VALUE", required_unless_present = "delete")]
    pub(crate) set: Vec<String>,
    /// A setting to delete; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) delete: Vec<String>,
    #[command(flatten)]
    pub(crate) scope: ScopeArgs,
    /// Only validate the request
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) at: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AlterArgs {
    /// Name of the topic
    pub(crate) name: String,
    /// A topic config to set; may be repeated
    #[arg(long, visible_alias = "config", value_name = "NAME=VALUE", required_unless_present_any = ["delete", "partitions"])]
    pub(crate) set: Vec<String>,
    /// A topic config to delete; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) delete: Vec<String>,
    /// New number of partitions; it cannot be reduced later
    #[arg(long, short, value_name = "COUNT")]
    pub(crate) partitions: Option<u32>,
    /// Only validate the request
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) at: ServerArgs,
}
