//! `polylogue-bench`: see the library.

use clap::Parser;
use polylogue_bench::cli::Cli;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    match Cli::parse().execute() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            // Without a standard error there is still the exit code.
            let _ = writeln!(std::io::stderr(), "polylogue-bench: {e}");
            ExitCode::FAILURE
        }
    }
}
