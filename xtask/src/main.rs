//! What developers run and users never do: `cargo run -p xtask -- COMMAND`.
#![allow(clippy::disallowed_methods, reason = "a tool at the developer's desk: nothing here is ever simulated")]

mod codegen;
mod mutants;
mod words;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo run -p xtask -- COMMAND

  codegen kafka [--check]   write the Kafka codec from Kafka's message descriptors;
                            with --check: compare only, and fail on a difference
  mutants [NAME...]         build the tree with each seeded bug of tests/mutants and see
                            that it is found
  words                     report words and phrases in comments, messages and docs that
                            leave a reader guessing; fail when there are any";

/// The result of a command: an exit code, or the error that stopped it.
type Outcome = Result<ExitCode, Box<dyn Error>>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match args.as_slice() {
        ["codegen", rest @ ..] => codegen::run(rest),
        ["mutants", names @ ..] => mutants::run(names),
        ["words"] => words::run(),
        _ => usage(),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("xtask: {error}");
        ExitCode::FAILURE
    })
}

fn usage() -> Outcome {
    eprintln!("{USAGE}");
    Ok(ExitCode::from(2))
}

/// The root of the checkout.
fn root() -> PathBuf {
    let mut path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    path.pop();
    path
}
