//! `polylogue-bench`: see the library.

use clap::Parser;
use polylogue_bench::cli::Cli;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    match Cli::parse().execute() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            // If standard error is closed, the exit code remains.
            let _ = writeln!(std::io::stderr(), "polylogue-bench: {e}");
            ExitCode::FAILURE
        }
    }
}
