//! The AMQP cases with lapin. See ../../../../README.md.

mod cases;
mod place;

use cases::CASES;
use place::Place;
use std::process::ExitCode;

fn main() -> ExitCode {
    // What a case opened ends with its runtime.
    client_cases::run("lapin-cases ADDRESS [CASE...]", &CASES, |address, case| case(&Place::new(address)))
}
