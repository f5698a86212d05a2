//! `polylogue-sim [FIRST [COUNT]]`: runs seeds one after the other; ends with 1 when one failed, after naming it.

use polylogue_sim::{Settings, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map(|a| a.parse::<u64>());
    let (Ok(first), Ok(count)) = (numbers.next().unwrap_or(Ok(1)), numbers.next().unwrap_or(Ok(100))) else {
        eprintln!("usage: polylogue-sim [FIRST SEED [HOW MANY]]");
        return ExitCode::from(2);
    };
    let mut failed = 0;
    for seed in first..first.saturating_add(count) {
        let report = run(seed, Settings::default());
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
