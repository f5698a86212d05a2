//! `polylogue completions`.

use super::Failure;
use super::args::{Cli, CompletionsArgs, Shell};
use clap::CommandFactory;
use std::io::{self, Write};

pub(super) fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    let shell = match args.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut command = Cli::command();
    let name = command.get_name().to_owned();
    // Generated in memory first: the generator panics if standard output is closed.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    Ok(io::stdout().lock().write_all(&script)?)
}
