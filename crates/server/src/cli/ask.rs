//! Asking somebody at a terminal.

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use std::io::{self, BufRead as _};

/// Asks for something that is not shown while it is written.
///
/// # Errors
/// When standard input is no terminal, or has ended.
pub(super) fn ask_silently(question: &str) -> io::Result<String> {
    let stdin = io::stdin();
    let modes = tcgetattr(&stdin)?;
    let mut silent = modes.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    eprint!("{question}");
    tcsetattr(&stdin, OptionalActions::Flush, &silent)?;
    let mut line = String::new();
    let read = stdin.lock().read_line(&mut line);
    tcsetattr(&stdin, OptionalActions::Flush, &modes)?;
    eprintln!();
    read?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}
