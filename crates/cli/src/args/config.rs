//! `polylogue config`, and changing topics.

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
    /// Write the table of what is bounded as Markdown
    #[arg(long, conflicts_with_all = ["changed", "markdown"])]
    pub(crate) limits: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show what is set at a running server
    Get(GetArgs),
    /// Change settings of a running server; they hold at once, and after its next start
    Set(SetArgs),
}

/// What settings are for.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct ScopeArgs {
    /// Settings of this node alone, instead of all nodes
    #[arg(long)]
    pub(crate) node: bool,
    /// Settings of a consumer group
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
    /// Settings of a subscription to clients' metrics
    #[arg(long, value_name = "NAME")]
    pub(crate) client_metrics: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// Only these settings; all that are set without
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) scope: ScopeArgs,
    /// Also settings that are not set
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) at: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// What to set
    #[arg(value_name = "NAME=VALUE", required_unless_present = "delete")]
    pub(crate) set: Vec<String>,
    /// A setting to forget; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) delete: Vec<String>,
    #[command(flatten)]
    pub(crate) scope: ScopeArgs,
    /// Only say whether it could be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) at: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AlterArgs {
    /// Its name
    pub(crate) name: String,
    /// A topic config to set; may be repeated
    #[arg(long, value_name = "NAME=VALUE", required_unless_present_any = ["delete", "partitions"])]
    pub(crate) set: Vec<String>,
    /// A topic config to forget; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) delete: Vec<String>,
    /// How many partitions it is to have; there is no way back
    #[arg(long, short, value_name = "COUNT")]
    pub(crate) partitions: Option<u32>,
    /// Only say whether it could be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) at: ServerArgs,
}
