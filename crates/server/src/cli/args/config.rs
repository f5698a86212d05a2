//! `polylogue config`, and changing topics.

use super::{ServeArgs, ServerArgs};
use clap::{Args, Subcommand};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(in crate::cli) struct ConfigArgs {
    #[command(subcommand)]
    pub(in crate::cli) what: Option<ConfigCommand>,
    #[command(flatten)]
    pub(in crate::cli) sources: ServeArgs,
    /// Only options that differ from their defaults
    #[arg(long)]
    pub(in crate::cli) changed: bool,
    /// Write the reference of all options as Markdown
    #[arg(long, conflicts_with = "changed")]
    pub(in crate::cli) markdown: bool,
    /// Write the table of what is bounded as Markdown
    #[arg(long, conflicts_with_all = ["changed", "markdown"])]
    pub(in crate::cli) limits: bool,
}

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum ConfigCommand {
    /// Show what is set at a running server
    Get(GetArgs),
    /// Change settings of a running server; they hold at once, and after its next start
    Set(SetArgs),
}

/// What settings are for.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(in crate::cli) struct ScopeArgs {
    /// Settings of this node alone, instead of all nodes
    #[arg(long)]
    pub(in crate::cli) node: bool,
    /// Settings of a consumer group
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) group: Option<String>,
    /// Settings of a subscription to clients' metrics
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) client_metrics: Option<String>,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct GetArgs {
    /// Only these settings; all that are set without
    pub(in crate::cli) names: Vec<String>,
    #[command(flatten)]
    pub(in crate::cli) scope: ScopeArgs,
    /// Also settings that nobody set
    #[arg(long)]
    pub(in crate::cli) all: bool,
    #[command(flatten)]
    pub(in crate::cli) at: ServerArgs,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct SetArgs {
    /// What to set
    #[arg(value_name = "NAME=VALUE", required_unless_present = "delete")]
    pub(in crate::cli) set: Vec<String>,
    /// A setting to forget; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) delete: Vec<String>,
    #[command(flatten)]
    pub(in crate::cli) scope: ScopeArgs,
    /// Only say whether it could be done
    #[arg(long)]
    pub(in crate::cli) dry_run: bool,
    #[command(flatten)]
    pub(in crate::cli) at: ServerArgs,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct AlterArgs {
    /// Its name
    pub(in crate::cli) name: String,
    /// A topic config to set; may be repeated
    #[arg(long, value_name = "NAME=VALUE", required_unless_present_any = ["delete", "partitions"])]
    pub(in crate::cli) set: Vec<String>,
    /// A topic config to forget; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) delete: Vec<String>,
    /// How many partitions it is to have; there is no way back
    #[arg(long, short, value_name = "COUNT")]
    pub(in crate::cli) partitions: Option<u32>,
    /// Only say whether it could be done
    #[arg(long)]
    pub(in crate::cli) dry_run: bool,
    #[command(flatten)]
    pub(in crate::cli) at: ServerArgs,
}
