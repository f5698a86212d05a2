//! Progress display: one changing line on a terminal, one line per side elsewhere.
//!
//! ```text
//!   lane 0   [7/336] A4/...  kafka  round 1  1000/s  p99 3 ms     the changing line is that of the first lane that runs something
//!   lane 1   [8/336] B1/...  pulsar  round 1                      printed when it has ended, above that line
//! ```

use crate::clock::{MS_NS, monotonic_ns, seconds};
use crate::contract::Second;
use crate::results::ResultLine;
use std::fmt;
use std::io::{IsTerminal, Write, stderr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const BOLD: &str = "\x1b[1m";
const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const PLAIN: &str = "\x1b[0m";
/// Returns to the start of the line and clears it.
const AGAIN: &str = "\r\x1b[2K";

/// Figures of a line that are printed if present.
const PRINTED: [&str; 7] = [
    "produce_per_s",
    "produce_cpu_s_per_million",
    "fetch_cpu_s_per_million",
    "publish_p99_ms",
    "end_to_end_p99_ms",
    "rate",
    "cpu_s_per_million",
];

/// The display of one lane, on standard error.
#[derive(Debug)]
pub struct Progress {
    board: Arc<Mutex<Board>>,
    lane: usize,
    now: String,
}

/// The display shared by all lanes.
struct Board {
    out: Box<dyn Write + Send>,
    terminal: bool,
    begun: usize,
    total: usize,
    began_ns: u64,
    /// The changing line of each lane; empty while it runs nothing.
    live: Vec<String>,
}

impl fmt::Debug for Board {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Board").field("begun", &self.begun).field("total", &self.total).finish_non_exhaustive()
    }
}

impl Board {
    fn colour(&self, colour: &'static str) -> &'static str {
        if self.terminal { colour } else { "" }
    }

    fn say(&mut self, text: &str) {
        // A closed standard error must not stop the measurement.
        let _ = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
    }

    /// Sets a lane's changing line, and shows it if it is the visible one.
    fn show(&mut self, lane: usize, text: String) {
        let Some(place) = self.live.get_mut(lane) else { return };
        *place = text;
        if self.terminal && self.live.iter().position(|text| !text.is_empty()) == Some(lane) {
            let text = format!("{AGAIN}{}", self.live.get(lane).map_or("", String::as_str));
            self.say(&text);
        }
    }

    /// Prints a line above the changing one; the lane runs nothing afterwards.
    fn tell(&mut self, lane: usize, text: &str) {
        if let Some(place) = self.live.get_mut(lane) {
            place.clear();
        }
        let again = self.colour(AGAIN);
        let shown = self.live.iter().find(|text| self.terminal && !text.is_empty()).map_or("", String::as_str);
        let text = format!("{again}{text}{shown}");
        self.say(&text);
    }
}

impl Drop for Board {
    /// Ends the changing line, so that later output starts on a new one.
    fn drop(&mut self) {
        if self.terminal && self.live.iter().any(|text| !text.is_empty()) {
            self.say(AGAIN);
        }
    }
}

impl Default for Progress {
    fn default() -> Progress {
        Progress::new()
    }
}

impl Progress {
    /// With colours if standard error is a terminal and `NO_COLOR` is not set.
    #[must_use]
    pub fn new() -> Progress {
        let terminal = stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Progress::to(Box::new(stderr()), terminal)
    }

    /// Without output.
    #[cfg(test)]
    pub(crate) fn silent() -> Progress {
        Progress::to(Box::new(std::io::sink()), false)
    }

    fn to(out: Box<dyn Write + Send>, terminal: bool) -> Progress {
        let live = vec![String::new()];
        let board = Board { out, terminal, begun: 0, total: 0, began_ns: monotonic_ns(), live };
        Progress { board: Arc::new(Mutex::new(board)), lane: 0, now: String::new() }
    }

    /// Returns the display of another lane.
    #[must_use]
    pub fn beside(&self) -> Progress {
        let mut board = self.board();
        board.live.push(String::new());
        Progress { board: Arc::clone(&self.board), lane: board.live.len() - 1, now: String::new() }
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the number of sides to run, and of those done by an earlier run.
    pub fn start(&mut self, total: usize, there: usize) {
        let mut board = self.board();
        if there > 0 {
            board.say(&format!("{there} sides are there already, {total} are left\n"));
        }
        board.total = total;
        board.began_ns = monotonic_ns();
    }

    /// A side starts.
    pub fn side(&mut self, cell: &str, side: &str, round: u32) {
        let mut board = self.board();
        board.begun += 1;
        let now = format!("[{}/{}] {cell}  {side}  round {round}", board.begun, board.total);
        board.show(self.lane, now.clone());
        drop(board);
        self.now = now;
    }

    /// A second of the load has passed.
    pub fn second(&mut self, second: &Second) {
        let p99 = second.publish_p99_ns.unwrap_or(second.publish_max_ns);
        let rate = second.acked.max(second.received);
        let text = format!("{}  {rate}/s  p99 {} ms", self.now, p99 / MS_NS);
        self.board().show(self.lane, text);
    }

    /// A side has ended.
    pub fn line(&mut self, line: &ResultLine) {
        let mut board = self.board();
        let (colour, mark) = if line.failures.is_empty() { (GREEN, "ok") } else { (RED, "does not count") };
        let figures: Vec<String> = PRINTED
            .iter()
            .filter_map(|name| line.figures.get(*name).map(|value| format!("{name} {value:.2}")))
            .collect();
        let (on, off) = (board.colour(colour), board.colour(PLAIN));
        let mut text = format!("{}  {on}{mark}{off}  {}\n", self.now, figures.join("  "));
        for failure in &line.failures {
            text.push_str(&format!("    {failure}\n"));
        }
        board.tell(self.lane, &text);
    }

    /// The run has ended.
    pub fn end(&self) {
        let mut board = self.board();
        let took = seconds(monotonic_ns().saturating_sub(board.began_ns));
        let (on, off) = (board.colour(BOLD), board.colour(PLAIN));
        let text = format!("{on}{} sides in {took:.0} s{off}\n", board.begun);
        board.say(&text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Machine, Stamped};

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no one fails with it").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Paper {
        /// Takes the output since the last call.
        fn take(&self) -> String {
            String::from_utf8(std::mem::take(&mut *self.0.lock().expect("no one fails with it"))).expect("text")
        }
    }

    /// Creates a display into a buffer, and its first lane.
    fn shown(terminal: bool, total: usize, there: usize) -> (Paper, Progress) {
        let paper = Paper::default();
        let mut progress = Progress::to(Box::new(paper.clone()), terminal);
        progress.start(total, there);
        (paper, progress)
    }

    fn line(side: &str, failures: &[&str]) -> ResultLine {
        let machine = Machine { cores: 2, processor: "p".to_owned(), memory_bytes: 1, kernel: "6".to_owned() };
        let stamped = Stamped { run: "now".to_owned(), commit: "c".to_owned(), built: None, machine, quick: true };
        let mut line = stamped.line("A4", side, 1);
        line.failures = failures.iter().map(|&failure| failure.to_owned()).collect();
        line
    }

    #[test]
    fn a_side_is_one_line_where_nobody_looks() {
        let (paper, mut progress) = shown(false, 2, 1);
        progress.side("A4", "kafka", 1);
        progress.second(&Second::default());
        progress.line(&line("kafka", &["1 messages lost"]));
        let stated = paper.take();
        let wanted =
            "1 sides are there already, 2 are left\n[1/2] A4  kafka  round 1  does not count  \n    1 messages lost\n";
        assert_eq!(stated, wanted);
    }

    /// Otherwise two lanes would overwrite each other's line.
    #[test]
    fn on_a_terminal_the_first_lane_that_runs_something_has_the_line_that_changes() {
        let (paper, mut first) = shown(true, 3, 0);
        let mut second = first.beside();
        first.side("A4", "kafka", 1);
        assert_eq!(paper.take(), format!("{AGAIN}[1/3] A4  kafka  round 1"));
        second.side("A4", "pulsar", 1);
        second.second(&Second::default());
        assert_eq!(paper.take(), "", "the other one is at work");
        second.line(&line("pulsar", &[]));
        let pulsar = format!("{AGAIN}[2/3] A4  pulsar  round 1  {GREEN}ok{PLAIN}  \n");
        assert_eq!(paper.take(), format!("{pulsar}[1/3] A4  kafka  round 1"), "above the line that changes");
        second.side("B1", "pulsar", 1);
        first.line(&line("kafka", &[]));
        let kafka = format!("{AGAIN}[1/3] A4  kafka  round 1  {GREEN}ok{PLAIN}  \n");
        assert_eq!(paper.take(), format!("{kafka}[3/3] B1  pulsar  round 1"), "now the other one has it");
        second.second(&Second::default());
        assert!(paper.take().starts_with(&format!("{AGAIN}[3/3] B1  pulsar  round 1  0/s")));
        second.line(&line("pulsar", &[]));
        second.end();
        assert!(paper.take().contains("3 sides in"), "of all lanes");
    }
    #[test]
    fn what_is_said_of_an_interruption_has_a_line_of_its_own() {
        let (paper, mut progress) = shown(true, 1, 0);
        progress.side("A4", "kafka", 1);
        drop(progress);
        assert!(paper.take().ends_with(AGAIN));
    }
}
