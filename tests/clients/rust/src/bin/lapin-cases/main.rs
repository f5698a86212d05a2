//! The AMQP cases with lapin. See ../../../../README.md.

mod cases;
mod place;

use place::Place;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "--list") {
        cases::CASES.iter().for_each(|(name, _)| println!("{name}"));
        return ExitCode::SUCCESS;
    }
    let Some((address, names)) = arguments.split_first() else {
        eprintln!("usage: lapin-cases ADDRESS [CASE...]");
        return ExitCode::from(2);
    };
    let wanted = cases::CASES.iter().filter(|(name, _)| names.is_empty() || names.iter().any(|n| n == name));
    let mut failed = names.iter().filter(|n| !cases::CASES.iter().any(|(name, _)| n == name)).count();
    for (name, case) in wanted {
        // What a case opened ends with its runtime.
        match catch_unwind(AssertUnwindSafe(|| case(&Place::new(address)))) {
            Ok(()) => println!("ok {name}"),
            Err(why) => {
                failed += 1;
                println!("FAIL {name}: {}", text(&*why));
            }
        }
    }
    ExitCode::from(u8::from(failed > 0))
}

fn text(why: &(dyn Any + Send)) -> &str {
    let owned = why.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| why.downcast_ref::<&str>().copied()).unwrap_or("a panic")
}
