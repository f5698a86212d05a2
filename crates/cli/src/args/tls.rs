//! `polylogue tls`

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum TlsCommand {
    /// Create a CA, and a certificate for the broker signed by it
    #[command(after_help = "\
Writes ca.crt, ca.key, server.crt and server.key (PEM); the keys are readable by their owner only.
The broker uses server.crt and server.key (tls.certificate, tls.key); clients trust ca.crt.
With --renew the CA and the keys stay. A running broker reloads the certificate.")]
    Create(CreateTlsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CreateTlsArgs {
    /// The directory, which is created if it is missing
    pub(crate) dir: PathBuf,
    /// A DNS name or an IP address by which clients reach the broker; may be repeated [default: localhost, 127.0.0.1 and ::1; with
    /// --renew the names of the old certificate]
    #[arg(long, value_name = "HOST", value_parser = super::super::tls::host_name)]
    pub(crate) name: Vec<String>,
    /// Validity of the broker's certificate in days; the CA's is 3650
    #[arg(long, value_name = "DAYS", default_value_t = 825, value_parser = clap::value_parser!(u16).range(1..=3650))]
    pub(crate) days: u16,
    /// Replace server.crt by a new certificate of the CA that is there
    #[arg(long)]
    pub(crate) renew: bool,
}
