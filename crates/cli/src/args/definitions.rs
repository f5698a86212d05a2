//! `polylogue definitions`

use super::ServerArgs;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum DefinitionsCommand {
    /// Write virtual hosts, users, queues, exchanges, bindings, policies and parameters as RabbitMQ does
    #[command(after_help = "Without --vhost it contains hashes of passwords, and passwords in addresses of shovels.")]
    Export(ExportArgs),
    /// Create what a file of definitions contains, as RabbitMQ exports it: all of it, or nothing
    Import(ImportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// A file to create; by default standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Only this virtual host
    #[arg(long, value_name = "NAME")]
    pub(crate) vhost: Option<String>,
    #[command(flatten)]
    pub(crate) at: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The file, or - for standard input
    pub(crate) file: PathBuf,
    /// Import into this virtual host
    #[arg(long, value_name = "NAME")]
    pub(crate) vhost: Option<String>,
    #[command(flatten)]
    pub(crate) at: ServerArgs,
}
