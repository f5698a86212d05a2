//! Measures the time of a step (`polylogue_types::turn`: about 0.1 µs) for selectors and texts that take long.
//!
//! `cargo run --release -p polylogue-filter --example cost`

#![allow(clippy::disallowed_methods, clippy::expect_used, clippy::print_stdout, reason = "a measurement")]

use polylogue_filter::{Filter, FilterSpec, Limits, Subject, Tag, Value};
use std::hint::black_box;
use std::time::Instant;

struct Message(Vec<(&'static str, String)>);

impl Subject for Message {
    fn tag(&self) -> Tag<'_> {
        Tag::Unknown
    }

    fn filter_value(&self) -> Option<&[u8]> {
        None
    }

    fn property(&self, name: &str) -> Option<Value<'_>> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| Value::Text(value))
    }
}

/// The number between the two smallest doubles above zero: 3 * 2^-1075, which is 3 * 5^1075 / 10^1075.
fn halfway() -> String {
    let mut digits = vec![3u8];
    for _ in 0..1_075 {
        let mut carry = 0;
        for digit in &mut digits {
            carry += *digit * 5;
            *digit = carry % 10;
            carry /= 10;
        }
        if carry > 0 {
            digits.push(carry);
        }
    }
    let digits: String = digits.iter().rev().map(|digit| char::from(b'0' + digit)).collect();
    format!("{digits}e-1075")
}

fn main() {
    let wide = 1 << 20;
    let with = |a: &str| Message(vec![("region", "eu-1".to_owned()), ("price", "42".to_owned()), ("a", a.to_owned())]);
    let needle = |length: usize| format!("a CONTAINS '{}b'", "a".repeat(length));
    let digits = "9".repeat(800);
    let cases = [
        ("typical", "region = 'eu-1' AND price > 40 AND a IS NOT NULL".to_owned(), with("x")),
        ("a list of 500", format!("region IN ({})", vec!["'us-east'"; 500].join(",")), with("x")),
        ("205 conditions", vec!["price = 1"; 205].join(" OR "), with("x")),
        ("205 of doubles", vec!["price = 1.5"; 205].join(" OR "), with("x")),
        ("1 MiB, needle of 8", needle(7), with(&"a".repeat(wide))),
        ("1 MiB, needle of 32", needle(31), with(&"a".repeat(wide))),
        ("1 MiB, needle of 33", needle(32), with(&"a".repeat(wide))),
        ("1 MiB, needle of 4096", needle(4095), with(&"a".repeat(wide))),
        ("1 MiB of zeros, integer", "a = 5".to_owned(), with(&"0".repeat(wide))),
        ("1 MiB of nines, double", "a > 5.5".to_owned(), with(&"9".repeat(wide))),
        ("800 digits, double", "a > 5.5".to_owned(), with(&format!("1.{digits}"))),
        ("800 digits, large", "a > 5.5".to_owned(), with(&format!("{digits}e-500"))),
        ("800 digits, subnormal", "a > 5.5".to_owned(), with(&format!("0.{digits}e-310"))),
        ("halfway", "a > 5.5".to_owned(), with("9007199254740993.00000000000000000000000000000000001")),
        ("halfway, small", "a > 5.5".to_owned(), with("2.47032822920623272088284396434110686182e-324")),
        ("halfway, smallest", "a > 5.5".to_owned(), with(&halfway())),
    ];
    println!("{:<26} {:>8} {:>12} {:>10}", "", "steps", "ns", "ns a step");
    for (name, selector, message) in cases {
        let filter = Filter::compile(&FilterSpec::Sql92(selector), &Limits::default()).expect("a selector");
        let steps = filter.evaluate(&message).steps;
        let rounds = (20_000_000 / (steps * 100)).max(5) as u32;
        let start = Instant::now();
        for _ in 0..rounds {
            black_box(filter.evaluate(black_box(&message)));
        }
        let ns = start.elapsed().as_nanos() as f64 / f64::from(rounds);
        println!("{name:<26} {steps:>8} {ns:>12.0} {:>10.1}", ns / steps as f64);
    }
    let names: Vec<String> = (0..512).map(|n| format!("property_of_message_{n:04}")).collect();
    let spec = FilterSpec::Sql92(names.join("="));
    let start = Instant::now();
    let rounds = 100;
    for _ in 0..rounds {
        black_box(Filter::compile(black_box(&spec), &Limits::default()).expect("a selector"));
    }
    println!("compiling 512 names: {} ns", start.elapsed().as_nanos() / rounds);
}
