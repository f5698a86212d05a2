//! Topic exchanges against a matcher that tries everything: whatever patterns are bound and taken away, a message reaches the queues that
//! the specification says, each once.
//!
//! Each step is a byte that says what is done, one for a queue, and words until an even byte: mostly words that meet.

#![no_main]

#[path = "../../crates/router/tests/common/mod.rs"]
mod common;

use common::{World, to_queue};
use libfuzzer_sys::fuzz_target;
use polylogue_router::{BINDING_KEY_BYTES_MAX, Command, Kind};
use std::collections::BTreeSet;

const QUEUES: u64 = 6;
const WORDS: [&str; 10] = ["a", "b", "*", "#", "", "ab", "#", "*", "a", "**"];

/// Whether a key is one of a pattern: `*` stands for one word, `#` for any number of them.
fn is_match(pattern: &[&str], key: &[&str]) -> bool {
    // reaches[i]: the words of the pattern so far stand for the first i of the key
    let mut reaches = vec![false; key.len() + 1];
    reaches[0] = true;
    for word in pattern {
        let mut next = vec![false; key.len() + 1];
        match *word {
            "#" => {
                let mut any = false;
                for (at, slot) in next.iter_mut().enumerate() {
                    any |= reaches[at];
                    *slot = any;
                }
            }
            word => {
                for at in 0..key.len() {
                    next[at + 1] = reaches[at] && (word == "*" || word == key[at]);
                }
            }
        }
        reaches = next;
    }
    reaches[key.len()]
}

/// The words of a text: none in an empty one.
fn words(text: &str) -> Vec<&str> {
    if text.is_empty() { Vec::new() } else { text.split('.').collect() }
}

/// A text of words, up to an even byte.
fn text(rest: &mut &[u8]) -> String {
    let mut words = Vec::new();
    while let Some((byte, left)) = rest.split_first() {
        *rest = left;
        words.push(WORDS[usize::from(byte / 2) % WORDS.len()]);
        if byte % 2 == 0 {
            break;
        }
    }
    let mut text = words.join(".");
    text.truncate(BINDING_KEY_BYTES_MAX.min(255));
    text
}

fuzz_target!(|input: &[u8]| {
    let mut world = World::new(QUEUES);
    world.declare("t", Kind::Topic);
    let mut bound: BTreeSet<(u64, String)> = BTreeSet::new();
    let mut rest = input;
    while let Some((how, left)) = rest.split_first() {
        rest = left;
        let text = text(&mut rest);
        let queue = 1 + u64::from(how / 4) % QUEUES;
        match how % 4 {
            0 | 1 => {
                world.bind(to_queue("t", queue, &text));
                bound.insert((queue, text));
            }
            2 if how & 64 == 0 => {
                world.run(Command::Unbind(to_queue("t", queue, &text))).expect("unbinding");
                bound.remove(&(queue, text));
            }
            2 => {
                // One that is there goes.
                if let Some((queue, pattern)) = bound.pop_first() {
                    world.run(Command::Unbind(to_queue("t", queue, &pattern))).expect("unbinding");
                }
            }
            _ => {
                let key = words(&text);
                let matching = bound.iter().filter(|(_, pattern)| is_match(&words(pattern), &key));
                let expected: BTreeSet<u64> = matching.map(|(queue, _)| *queue).collect();
                let reached = world.route("t", &[&text]);
                let once: BTreeSet<u64> = reached.iter().copied().collect();
                assert_eq!(once.len(), reached.len(), "a queue twice: {reached:?}");
                assert_eq!(once, expected, "{text:?} by {bound:?}");
            }
        }
    }
});
