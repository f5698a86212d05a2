//! `polylogue profile`

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum ProfileCommand {
    /// Create a profile
    #[command(after_help = "\
One address is enough: the server is asked for its kafka listener. From --bootstrap alone, the
http listener is found if it has the same host and port 9600.
A profile holds no password: it is read from POLYLOGUE_PASSWORD or the password file, or asked for.")]
    Create(CreateProfileArgs),
    /// List all profiles
    List,
    /// Show a profile
    Show(ShowProfileArgs),
    /// Use a profile in all commands without --profile and without an address
    Use(UseProfileArgs),
    /// Delete profiles
    Delete(DeleteProfilesArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CreateProfileArgs {
    /// Name of the profile
    pub(crate) name: String,
    /// The server's http listener
    #[arg(long, value_name = "URL", required_unless_present = "bootstrap")]
    pub(crate) server: Option<String>,
    /// The server's kafka listener
    #[arg(long, value_name = "HOST:PORT", value_parser = super::address)]
    pub(crate) bootstrap: Option<String>,
    /// The kafka listener uses TLS, and the system trusts its certificate
    #[arg(long, requires = "bootstrap")]
    pub(crate) tls: bool,
    /// CA certificates (PEM); by default the system's
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// The user to log in as
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// A file whose first line is the password; only its owner may have access (0600)
    #[arg(long, value_name = "FILE", requires = "user")]
    pub(crate) password_file: Option<PathBuf>,
    /// Replace the profile if it exists
    #[arg(long)]
    pub(crate) replace: bool,
    /// Use the profile from now on
    #[arg(long = "use")]
    pub(crate) use_it: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShowProfileArgs {
    /// Name of the profile; by default the one in use
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct UseProfileArgs {
    /// Name of the profile
    #[arg(required_unless_present = "none")]
    pub(crate) name: Option<String>,
    /// Use no profile
    #[arg(long, conflicts_with = "name")]
    pub(crate) none: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteProfilesArgs {
    /// Names of the profiles
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
}
