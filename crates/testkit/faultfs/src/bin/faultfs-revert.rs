//! `faultfs-revert --log PATH --dir DIR (--seed N | --lose-all)`: turns a `kill -9` into a power cut.

use polylogue_faultfs::{Power, revert};
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: faultfs-revert --log PATH --dir DIR (--seed N | --lose-all)";

fn main() -> ExitCode {
    match run(std::env::args().skip(1)) {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(said) => {
            eprintln!("{said}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut args: impl Iterator<Item = String>) -> Result<String, String> {
    let (mut log, mut dir, mut power) = (None, None, None);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value\n{USAGE}"));
        match arg.as_str() {
            "--log" => log = Some(value()?),
            "--dir" => dir = Some(value()?),
            "--seed" => {
                let seed = value()?.parse().map_err(|e| format!("--seed: {e}"))?;
                power = Some(Power::Cut { seed });
            }
            "--lose-all" => power = Some(Power::CutLosingAll),
            _ => return Err(format!("unknown option {arg}\n{USAGE}")),
        }
    }
    let (Some(log), Some(dir), Some(power)) = (log, dir, power) else { return Err(USAGE.into()) };
    let report = revert(Path::new(&log), Path::new(&dir), power).map_err(|e| format!("cannot revert {dir}: {e}"))?;
    Ok(format!(
        "files {} sectors kept {} lost {} names kept {} lost {}",
        report.files_pending, report.sectors_kept, report.sectors_lost, report.names_kept, report.names_lost
    ))
}
