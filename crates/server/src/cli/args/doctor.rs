//! `polylogue doctor`

use super::ServerArgs;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(in crate::cli) struct DoctorArgs {
    /// Where the report goes; a file that is there is not overwritten
    #[arg(long, value_name = "FILE", default_value = "polylogue-doctor.json")]
    pub(in crate::cli) out: PathBuf,
    /// Put the names of topics, groups and users into the report as well
    #[arg(long)]
    pub(in crate::cli) names: bool,
    #[command(flatten)]
    pub(in crate::cli) at: ServerArgs,
}
