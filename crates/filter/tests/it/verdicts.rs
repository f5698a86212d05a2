//! What RocketMQ 5.5.0 itself says about 2,000 random selectors and texts, each with the properties of a message.
//!
//! tests/verdicts/rocketmq-5.5.0.tsv has a line for each: verdict, selector, then each property as name=value, with tabs between them, and
//! `\\`, `\t`, `\n`, `\r` escaped. The verdict is T true, F false, U unknown (null), E an exception, R the selector is refused.
//! To make it anew: run the ignored test with FILTER_CASES=FILE, then tests/verdicts/Verdicts.java.

use crate::message::{Message, Owned};
use crate::model::{NAMES, any_text, selector, texts};
use polylogue_filter::{Limits, Outcome, Selector};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::collections::BTreeMap;

const VERDICTS: &str = include_str!("../verdicts/rocketmq-5.5.0.tsv");

/// What Java reads as a number, and what it does not.
const NUMBERS: &[&str] = &[
    "NaN",
    "-NaN",
    "nan",
    "Infinity",
    "-Infinity",
    "inf",
    "-0",
    "-0.0",
    "0.0",
    "\u{665}",
    "\u{ff15}",
    "1e400",
    "5f",
    "5.0D",
    "+",
    "-",
    ".5",
    "5.",
    ".",
    "1_0",
    " 5",
    "5 ",
    "\u{a0}5",
    "5L",
    "0005",
    "2147483648",
    "-2147483648",
    "1e",
    "1e-400",
    "9223372036854775808",
    "TrUe",
    "\u{1d7d3}",
    "5.5.5",
    "1.e2",
    "+.5e+1",
    "1ff",
    "\t5.5\n",
];

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r")
}

fn unescaped(text: &str) -> String {
    let mut out = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        out.push(match character {
            '\\' => match characters.next().expect("an escape") {
                't' => '\t',
                'n' => '\n',
                'r' => '\r',
                other => other,
            },
            character => character,
        });
    }
    out
}

#[test]
fn every_verdict_is_rocketmqs() {
    let mut counts = BTreeMap::<&str, usize>::new();
    let mut wrong = Vec::new();
    for line in VERDICTS.lines() {
        let mut fields = line.split('\t');
        let verdict = fields.next().expect("a verdict");
        let text = unescaped(fields.next().expect("a selector"));
        let properties = fields.map(|property| {
            let (name, value) = property.split_once('=').expect("a property");
            (name.to_owned(), Owned::Text(unescaped(value)))
        });
        let message = Message::new(properties);
        let ours = match Selector::parse(&text, &Limits::default()).map(|selector| selector.evaluate(&message).outcome)
        {
            Err(_) => "R",
            Ok(Outcome::Match) => "T",
            Ok(Outcome::NoMatch) => "F",
            Ok(Outcome::Unknown) => "U",
            Ok(Outcome::Failed) => "E",
        };
        *counts.entry(verdict).or_default() += 1;
        if ours != verdict {
            wrong.push(format!("{ours} instead of {line}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {counts:?}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(["T", "F", "U", "E", "R"].into_iter().all(|verdict| counts[verdict] >= 100), "{counts:?}");
}

#[test]
#[ignore = "writes cases for RocketMQ to FILTER_CASES"]
fn write_cases() {
    let path = std::env::var("FILTER_CASES").expect("FILTER_CASES");
    let count: usize = std::env::var("FILTER_CASES_COUNT").map_or(2_000, |count| count.parse().expect("a number"));
    let mut runner = TestRunner::deterministic();
    let text = prop_oneof![
        2 => selector().prop_map(|expr| expr.print(0, false)),
        1 => any_text().prop_filter("small", |text| text.len() < 200),
    ];
    let number = prop::collection::btree_map(prop::sample::select(&NAMES[..]), prop::sample::select(NUMBERS), 1..4)
        .prop_map(|map| map.into_iter().map(|(name, text)| (name.to_owned(), Owned::text(text))).collect());
    let properties = prop_oneof![texts(), number];
    let mut lines = String::new();
    for _ in 0..count {
        let (text, properties) = (&text, &properties).new_tree(&mut runner).expect("a case").current();
        lines += &escaped(&text);
        for (name, value) in properties {
            let Owned::Text(value) = value else { panic!("not a text") };
            lines += &format!("\t{name}={}", escaped(&value));
        }
        lines.push('\n');
    }
    std::fs::write(path, lines).expect("written");
}
