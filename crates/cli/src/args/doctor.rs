//! `polylogue doctor`

use super::ServerArgs;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// File for the report; an existing file is not overwritten
    #[arg(long, value_name = "FILE", default_value = "polylogue-doctor.json")]
    pub(crate) out: PathBuf,
    /// Include the names of topics, groups and users in the report
    #[arg(long)]
    pub(crate) names: bool,
    #[command(flatten)]
    pub(crate) at: ServerArgs,
}
