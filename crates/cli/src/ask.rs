//! Prompts at a terminal.

use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::io::{self, Read as _, Stdin};
use std::time::Duration;

/// How long the end by an interrupt may take.
const INTERRUPT_MAX: Duration = Duration::from_secs(1);
const INTERRUPT: u8 = 0x03;
const END: u8 = 0x04;
const BACKSPACE: u8 = 0x08;
const CLEAR: u8 = 0x15;
const DELETE: u8 = 0x7f;

/// Asks for a line without echo. An interrupt ends the process as usual, after the terminal's modes are restored.
///
/// # Errors
/// Standard input is not a terminal, or cannot be read.
pub(super) fn ask_silently(question: &str) -> io::Result<String> {
    let stdin = io::stdin();
    let silent = Silent::new(&stdin)?;
    // The mode change discards input typed before, so that the prompt comes after it.
    eprint!("{question}");
    let mut line = Vec::new();
    let mut bytes = stdin.lock().bytes();
    let end = loop {
        match bytes.next() {
            None => break End::Enter,
            Some(byte) => {
                if let Some(end) = write(&mut line, byte?) {
                    break end;
                }
            }
        }
    };
    drop(silent);
    eprintln!();
    if end == End::Interrupt {
        kill_process(getpid(), Signal::INT)?;
        // Another thread may take the signal, and end the process a moment later. Where it is ignored, this is the end.
        std::thread::park_timeout(INTERRUPT_MAX);
        return Err(io::ErrorKind::Interrupted.into());
    }
    String::from_utf8(line).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "that is not UTF-8"))
}

/// A terminal without echo and line editing; restored when dropped.
struct Silent<'a> {
    stdin: &'a Stdin,
    before: Termios,
}

impl<'a> Silent<'a> {
    fn new(stdin: &'a Stdin) -> io::Result<Silent<'a>> {
        let before = tcgetattr(stdin)?;
        let mut modes = before.clone();
        // Without its signals: their default action would end the process with echo still off.
        modes.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        tcsetattr(stdin, OptionalActions::Flush, &modes)?;
        Ok(Silent { stdin, before })
    }
}

impl Drop for Silent<'_> {
    fn drop(&mut self) {
        // An error cannot be reported in a destructor.
        let _ = tcsetattr(self.stdin, OptionalActions::Flush, &self.before);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Enter,
    Interrupt,
}

/// Applies a key to the line, as a terminal would.
fn write(line: &mut Vec<u8>, key: u8) -> Option<End> {
    match key {
        b'\n' | b'\r' => return Some(End::Enter),
        END if line.is_empty() => return Some(End::Enter),
        INTERRUPT => return Some(End::Interrupt),
        CLEAR => line.clear(),
        BACKSPACE | DELETE => {
            // Remove a whole UTF-8 character: its continuation bytes, then the first one.
            while line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
        }
        key if key < b' ' => {}
        key => line.push(key),
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(keys: &str) -> (Option<End>, String) {
        let mut line = Vec::new();
        let end = keys.bytes().find_map(|key| write(&mut line, key));
        (end, String::from_utf8(line).unwrap())
    }

    #[test]
    fn a_line_is_written_as_at_a_terminal() {
        for (keys, end, line) in [
            ("secret\n", Some(End::Enter), "secret"),
            ("secret\rmore", Some(End::Enter), "secret"),
            ("söö\x7f\x7fe\x08 x\n", Some(End::Enter), "s x"),
            ("\x7f\x7fa\n", Some(End::Enter), "a"),
            ("wrong\x15right\n", Some(End::Enter), "right"),
            ("\x04", Some(End::Enter), ""),
            ("a\x04\tb\x1b", None, "ab"),
            ("sec\x03ret\n", Some(End::Interrupt), "sec"),
        ] {
            assert_eq!(written(keys), (end, line.to_owned()), "{keys:?}");
        }
    }
}
