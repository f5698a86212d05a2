//! `polylogue doctor`

use super::ServerArgs;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// File for the report, or - for standard output; an existing file is not overwritten [default: polylogue-doctor.json, or a
    /// free name like it]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Include the names of topics, groups and users in the report
    #[arg(long)]
    pub(crate) names: bool,
    #[command(flatten)]
    pub(crate) at: ServerArgs,
}
