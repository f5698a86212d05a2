//! What the user sees while something runs: one line that changes on a terminal, one line a side elsewhere.

use crate::clock::{MS_NS, monotonic_ns, seconds};
use crate::contract::Second;
use crate::results::ResultLine;
use std::io::{IsTerminal, Write, stderr};

const BOLD: &str = "\x1b[1m";
const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const PLAIN: &str = "\x1b[0m";
/// To the start of the line, and clear it.
const AGAIN: &str = "\r\x1b[2K";

/// Writes to standard error.
#[derive(Debug)]
pub struct Progress {
    terminal: bool,
    done: usize,
    total: usize,
    began_ns: u64,
    now: String,
}

impl Default for Progress {
    fn default() -> Progress {
        Progress::new()
    }
}

impl Progress {
    /// With colours when standard error is a terminal and `NO_COLOR` is not set.
    #[must_use]
    pub fn new() -> Progress {
        let terminal = stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Progress { terminal, done: 0, total: 0, began_ns: monotonic_ns(), now: String::new() }
    }

    fn colour(&self, colour: &'static str) -> &'static str {
        if self.terminal { colour } else { "" }
    }

    fn say(&self, text: &str) {
        // A closed standard error is no reason to stop measuring.
        let _ = write!(stderr(), "{text}").and_then(|()| stderr().flush());
    }

    /// So many sides are to be run, and so many are there from an earlier run.
    pub fn start(&mut self, total: usize, there: usize) {
        if there > 0 {
            self.say(&format!("{there} sides are there already, {total} are left\n"));
        }
        self.total = total;
        self.began_ns = monotonic_ns();
    }

    /// A side begins.
    pub fn side(&mut self, cell: &str, side: &str, round: u32) {
        self.now = format!("[{}/{}] {cell}  {side}  round {round}", self.done + 1, self.total);
        if self.terminal {
            self.say(&format!("{AGAIN}{}", self.now));
        }
    }

    /// A second of the load has passed.
    pub fn second(&mut self, second: &Second) {
        if !self.terminal {
            return;
        }
        let p99 = second.publish_p99_ns.unwrap_or(second.publish_max_ns);
        let rate = second.acked.max(second.received);
        self.say(&format!("{AGAIN}{}  {rate}/s  p99 {} ms", self.now, p99 / MS_NS));
    }

    /// A side has ended.
    pub fn line(&mut self, line: &ResultLine) {
        self.done += 1;
        let again = if self.terminal { AGAIN } else { "" };
        let (colour, mark) = if line.failures.is_empty() { (GREEN, "ok") } else { (RED, "does not count") };
        let told = [
            "produce_per_s",
            "produce_cpu_s_per_million",
            "fetch_cpu_s_per_million",
            "publish_p99_ms",
            "end_to_end_p99_ms",
        ];
        let figures: Vec<String> =
            told.iter().filter_map(|name| line.figures.get(*name).map(|value| format!("{name} {value:.2}"))).collect();
        let (on, off) = (self.colour(colour), self.colour(PLAIN));
        self.say(&format!("{again}{}  {on}{mark}{off}  {}\n", self.now, figures.join("  ")));
        for failure in &line.failures {
            self.say(&format!("    {failure}\n"));
        }
    }

    /// All is done.
    pub fn end(&self) {
        let took = seconds(monotonic_ns().saturating_sub(self.began_ns));
        let (on, off) = (self.colour(BOLD), self.colour(PLAIN));
        self.say(&format!("{on}{} sides in {took:.0} s{off}\n", self.done));
    }
}
