//! `polylogue-sim [follow | replay] [FIRST [COUNT]]`: runs seeds in sequence; names the first failing seed and exits with 1.

use polylogue_sim::{Mode, Settings, run};
use std::process::ExitCode;

/// Interleavings in which a run's logs are replayed.
const INTERLEAVINGS: u64 = 50;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    let mode = match arguments.peek().map(String::as_str) {
        Some("follow") => Mode::Followed,
        Some("replay") => Mode::Replayed(INTERLEAVINGS),
        _ => Mode::Alone,
    };
    let mut numbers = arguments.skip(usize::from(mode != Mode::Alone)).map(|a| a.parse::<u64>());
    let (Ok(first), Ok(count)) = (numbers.next().unwrap_or(Ok(1)), numbers.next().unwrap_or(Ok(100))) else {
        eprintln!("usage: polylogue-sim [follow | replay] [FIRST SEED [HOW MANY]]");
        return ExitCode::from(2);
    };
    let mut failed = 0;
    for seed in first..first.saturating_add(count) {
        let report = run(seed, Settings { mode, ..Settings::default() });
        if !report.failures.is_empty() {
            failed += 1;
            println!("FAILED {report}");
        } else if seed % 100 == 0 || count < 20 {
            println!("{report}");
        }
    }
    println!("{} passed, {failed} failed", count - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
