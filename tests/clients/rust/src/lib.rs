//! What the programs of this package share: which cases run, and what is said of each. See ../../README.md.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

/// Runs the cases that the arguments name, or all, each by `each` with the address that comes before them.
pub fn run<C: Copy>(usage: &str, cases: &[(&str, C)], each: impl Fn(&str, C)) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "--list") {
        cases.iter().for_each(|(name, _)| println!("{name}"));
        return ExitCode::SUCCESS;
    }
    let Some((address, names)) = arguments.split_first() else {
        eprintln!("usage: {usage}");
        return ExitCode::from(2);
    };
    let wanted = cases.iter().filter(|(name, _)| names.is_empty() || names.iter().any(|n| n == name));
    let mut failed = names.iter().filter(|n| !cases.iter().any(|(name, _)| n == name)).count();
    for (name, case) in wanted {
        match catch_unwind(AssertUnwindSafe(|| each(address, *case))) {
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
