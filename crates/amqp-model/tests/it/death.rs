//! The dead-letter history of messages, as clients see it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::common;

use common::*;
use polylogue_amqp_model::*;
use polylogue_router::Value;
use proptest::prelude::*;
use serde_json::json;

fn died(queue: &'static str, reason: Reason) -> NewDeath<'static> {
    NewDeath { reason, queue: queue.as_bytes(), exchange: b"x", routing_keys: &[b"k"], bcc: &[], ttl_ms: None }
}

/// The history after these deaths, one per second.
fn history(deaths: &[(&'static str, Reason)]) -> Deaths {
    let one = |(at, (queue, reason)): (usize, &(&'static str, Reason))| (died(queue, *reason), at as u64 * 1_000);
    let all = deaths.iter().enumerate().map(one);
    all.fold(None, |history, (died, now_ms)| Some(Deaths::after(history, &died, now_ms))).unwrap()
}

fn shown(deaths: &Deaths) -> serde_json::Value {
    json_of_arguments(&deaths.headers(&[]))
}

use Reason::{DeliveryLimit, Expired, MaxLen, Rejected};

#[test]
fn the_first_death_has_all_its_fields_in_order() {
    let first = NewDeath {
        routing_keys: &[b"key", b"cc", b"hidden"],
        bcc: &[b"hidden"],
        ttl_ms: Some(5_000),
        ..died("q", Expired)
    };
    let deaths = Deaths::after(None, &first, 1_234_567);
    assert_eq!(
        shown(&deaths),
        json!({
            "x-death": [{
                "original-expiration": "5000", "count": 1, "reason": "expired", "queue": "q", "time": 1_234,
                "exchange": "x", "routing-keys": ["key", "cc"]
            }],
            "x-first-death-reason": "expired", "x-first-death-queue": "q", "x-first-death-exchange": "x",
            "x-last-death-reason": "expired", "x-last-death-queue": "q", "x-last-death-exchange": "x",
        })
    );
    let Value::Nested(b'A', array) = deaths.x_death().value else { panic!("not an array") };
    let (tag, Value::Nested(b'F', table)) = decode_array(&array).unwrap().remove(0) else { panic!("not a table") };
    let fields: Vec<_> = decode_table(&table).unwrap().iter().map(|f| (f.name.clone(), f.tag)).collect();
    let expected: Vec<_> = [
        ("original-expiration", b'S'),
        ("count", b'l'),
        ("reason", b'S'),
        ("queue", b'S'),
        ("time", b'T'),
        ("exchange", b'S'),
        ("routing-keys", b'A'),
    ]
    .map(|(name, tag)| (bytes::Bytes::from(name), tag))
    .to_vec();
    assert_eq!((tag, fields), (b'F', expected));
}

#[test]
fn one_entry_per_queue_and_reason_the_latest_first() {
    for (deaths, expected) in [
        (vec![("a", Rejected)], vec![("a", "rejected", 1, 0)]),
        (vec![("a", Rejected), ("a", Rejected)], vec![("a", "rejected", 2, 0)]),
        (vec![("a", Rejected), ("b", Expired)], vec![("b", "expired", 1, 1), ("a", "rejected", 1, 0)]),
        (vec![("a", Rejected), ("b", Expired), ("a", Rejected)], vec![("a", "rejected", 2, 0), ("b", "expired", 1, 1)]),
        (
            vec![("a", MaxLen), ("a", DeliveryLimit), ("a", MaxLen)],
            vec![("a", "maxlen", 2, 0), ("a", "delivery_limit", 1, 1)],
        ),
    ] {
        let deaths = history(&deaths);
        let json = shown(&deaths);
        let entries = json["x-death"].as_array().unwrap().iter();
        let found: Vec<_> = entries
            .map(|e| {
                (
                    e["queue"].as_str().unwrap(),
                    e["reason"].as_str().unwrap(),
                    e["count"].as_u64().unwrap(),
                    e["time"].as_u64().unwrap(),
                )
            })
            .collect();
        assert_eq!(found, expected, "{deaths:?}");
    }
}

#[test]
fn the_first_death_is_kept_and_the_last_one_updated() {
    let json = shown(&history(&[("a", Rejected), ("b", Expired), ("c", MaxLen)]));
    assert_eq!((&json["x-first-death-queue"], &json["x-first-death-reason"]), (&json!("a"), &json!("rejected")));
    assert_eq!((&json["x-last-death-queue"], &json["x-last-death-reason"]), (&json!("c"), &json!("maxlen")));
}

#[test]
fn a_cycle_without_a_rejection_is_detected() {
    for (deaths, target, cycle) in [
        (vec![("a", Expired)], "a", true),
        (vec![("a", Expired)], "b", false),
        (vec![("a", Rejected)], "a", false),
        // From a to b and back: no consumer rejected it.
        (vec![("a", Expired), ("b", MaxLen)], "a", true),
        // Rejected in b, on the way from a to here.
        (vec![("a", Expired), ("b", Rejected)], "a", false),
        // Rejected long before its first death in a: that breaks no cycle.
        (vec![("z", Rejected), ("a", Expired), ("b", Expired)], "a", true),
        // It was rejected in a itself, later.
        (vec![("a", Expired), ("b", Expired), ("a", Rejected)], "b", false),
        (vec![("a", Rejected), ("a", Expired)], "a", true),
    ] {
        assert_eq!(history(&deaths).is_cycle(target.as_bytes()), cycle, "{deaths:?} to {target}");
    }
}

#[test]
fn death_headers_of_a_publisher_are_replaced_and_others_kept() {
    let headers = [
        argument("z", b'S', text("last")),
        argument("x-death", b'S', text("forged")),
        argument("x-first-death-queue", b'S', text("forged")),
        argument("a", b'I', Value::Int(1)),
        argument("a", b'I', Value::Int(2)),
    ];
    let after = history(&[("q", Rejected)]).headers(&headers);
    let names: Vec<_> = after.iter().map(|h| String::from_utf8_lossy(&h.name).into_owned()).collect();
    assert!(names.is_sorted() && names.iter().collect::<std::collections::BTreeSet<_>>().len() == names.len());
    let json = json_of_arguments(&after);
    assert_eq!((&json["a"], &json["z"], &json["x-first-death-queue"]), (&json!(1), &json!("last"), &json!("q")));
    assert_eq!(json["x-death"].as_array().unwrap().len(), 1);
}

#[test]
fn the_history_is_limited() {
    let names: Vec<String> = (0..2 * DEATHS_MAX).map(|at| format!("q{at}")).collect();
    let mut deaths = None;
    for name in &names {
        deaths = Some(Deaths::after(deaths, &NewDeath { queue: name.as_bytes(), ..died("", Expired) }, 0));
    }
    let deaths = deaths.unwrap();
    assert_eq!(deaths.entries().len(), DEATHS_MAX);
    assert_eq!(shown(&deaths)["x-first-death-queue"], json!("q0"));
}

fn reason() -> impl Strategy<Value = Reason> {
    prop::sample::select(vec![Rejected, Expired, MaxLen, DeliveryLimit])
}

proptest! {
    #[test]
    fn a_history_round_trips_and_counts_every_death(
        all in prop::collection::vec((prop::sample::select(vec!["a", "b", "c"]), reason(), prop::option::of(any::<u64>())), 1..20),
    ) {
        let mut deaths = None;
        for (at, (queue, reason, ttl_ms)) in all.iter().enumerate() {
            let died = NewDeath { ttl_ms: *ttl_ms, ..died(queue, *reason) };
            deaths = Some(Deaths::after(deaths, &died, at as u64));
        }
        let deaths = deaths.unwrap();
        prop_assert_eq!(Deaths::decode(&deaths.encode()), Ok(deaths.clone()));
        prop_assert_eq!(deaths.entries().iter().map(|entry| entry.count).sum::<u64>(), all.len() as u64);
        let (queue, reason, _) = all.last().unwrap();
        let latest = &deaths.entries()[0];
        prop_assert_eq!((&*latest.queue, latest.reason), (queue.as_bytes(), *reason));
    }

    #[test]
    fn any_bytes_are_refused_or_decoded(bytes in prop::collection::vec(any::<u8>(), 0..200), version in any::<bool>()) {
        let mut bytes = bytes;
        if version && !bytes.is_empty() {
            bytes[0] = 1;
        }
        if let Ok(deaths) = Deaths::decode(&bytes) {
            _ = deaths.headers(&[]);
        }
    }
}
