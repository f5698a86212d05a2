//! `polylogue doctor`

use super::ServerArgs;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Where the report goes; a file that is there is not overwritten
    #[arg(long, value_name = "FILE", default_value = "polylogue-doctor.json")]
    pub(crate) out: PathBuf,
    /// Put the names of topics, groups and users into the report as well
    #[arg(long)]
    pub(crate) names: bool,
    #[command(flatten)]
    pub(crate) at: ServerArgs,
}
