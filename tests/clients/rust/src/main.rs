//! The client cases with rdkafka. See ../README.md.

mod cases;
mod cluster;

use cases::CASES;
use cluster::Cluster;
use std::process::ExitCode;

fn main() -> ExitCode {
    client_cases::run("client-cases BOOTSTRAP [CASE...]", &CASES, |bootstrap, case| case(&Cluster::new(bootstrap)))
}
