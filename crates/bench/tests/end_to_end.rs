//! A broker's faults appear in the results: a broker that misbehaves, a separate worker process, the run that judges, and the
//! line.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::programs;
use polylogue_bench::amqp::load::{QueueKind, QueueLoad};
use polylogue_bench::drive::Driver;
use polylogue_bench::how::{How, Pinning, WarmUp};
use polylogue_bench::ladder::Ladder;
use polylogue_bench::matrix::{Batching, Kind, Load, Many, Side};
use polylogue_bench::null::{Faults, NullBroker, NullSpec, amqp};
use polylogue_bench::process::Interrupt;
use polylogue_bench::results::{ResultLine, Stamped};
use polylogue_bench::run::{Surroundings, run};
use polylogue_bench::steady::Steadiness;
use polylogue_bench::target::Target;
use std::path::Path;

const LOAD: Load = Load {
    message_bytes: 100,
    partitions: 1,
    groups: 1,
    rate: 2_000,
    messages: 0,
    warm_messages: 0,
    warmup_ms: 0,
    window_ms: 1_000,
    // One message per batch: a fault of a batch is one of a message.
    batching: Batching { name: "none", bytes: 1, linger_us: 0, per_request: 1 },
    in_flight: 5,
    backlog: 0,
    cold_bytes_per_s: 0,
    queue: None,
    stream: false,
    connections: 0,
    many: Many { topics: 1, producers: 1, consumers: 1, filter: None },
    how: How {
        warm_up: WarmUp::Fixed,
        pinning: Pinning::Unpinned,
        trace_flushes: false,
        flush_delay_ms: 0,
        memory_limit_bytes: 0,
        again_warmup_ms: 0,
        ladder: None,
    },
};

/// Starts a broker in this process; returns its target.
fn kafka(faults: Faults, stall_ms: Option<(u64, u64)>) -> Target {
    let listen = ([127, 0, 0, 1], 0).into();
    let spec = NullSpec { listen, partitions: 1, message_bytes: 100, stall_ms, keeps: Some(faults) };
    Target::At(NullBroker::start(spec).expect("it starts").address().to_string())
}

/// Returns the line of a run; smoke runs are not failed for a machine that is busy with other tests.
fn line(name: &str, kind: Kind, driver: Driver, target: Target, load: Load) -> ResultLine {
    let work = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("end-to-end-{name}"));
    let (programs, interrupt) = (programs(), Interrupt::default());
    let around = Surroundings { programs: &programs, work: &work, interrupt: &interrupt, kept: None };
    let mut line = Stamped::here(true).expect("a machine").line(name, "the side", 1);
    let side = Side { label: "the side".to_owned(), target, load };
    run(kind, driver, &side, &around, &mut line, &mut |_| ()).expect("it runs");
    line
}

/// Checks the failure. A reader that counts messages takes a duplicate for a missing one: it may miss the last ones as well.
fn stated(failures: &[String], what: &str) {
    assert!(failures.iter().any(|failure| failure == what), "{failures:?}");
}

fn read(name: &str, faults: Faults) -> Vec<String> {
    line(name, Kind::Latency, Driver::Raw, kafka(faults, None), LOAD).failures
}

#[test]
fn a_broker_that_does_nothing_wrong_has_no_failures() {
    let line = line("right", Kind::Latency, Driver::Raw, kafka(Faults::default(), None), LOAD);
    assert_eq!(line.failures, [""; 0]);
    assert_eq!(line.figures["produce_per_s"], 2_000.0);
    assert!(line.figures.contains_key("end_to_end_p50_ms") && line.figures["held_share"] > 0.99);
    let series = line.series.expect("second by second");
    assert_eq!((series.sent.iter().sum::<u64>(), series.received.iter().sum::<u64>()), (2_000, 2_000));
    assert_eq!(series.backlog.last(), Some(&0));
    assert!(!series.client_cpu_s.is_empty() && series.broker_cpu_s.is_empty(), "the broker is not ours to look at");
}

#[test]
fn a_stall_of_300_ms_stands_in_the_tail() {
    let line = line("stall", Kind::Latency, Driver::Raw, kafka(Faults::default(), Some((300, 300))), LOAD);
    assert_eq!(line.failures, [""; 0]);
    for figure in ["publish_max_ms", "end_to_end_max_ms"] {
        assert!(line.figures[figure] >= 290.0, "{figure}: {:?}", line.figures);
    }
}

/// As many are duplicated, so that the run ends without a timeout.
#[test]
fn a_dropped_message_is_reported() {
    stated(&read("drop", Faults { lose: 999, double: 998, ..Faults::default() }), "2 messages lost");
}

#[test]
fn a_doubled_message_is_reported() {
    stated(&read("double", Faults { double: 700, ..Faults::default() }), "2 messages duplicated");
}

/// The reader takes 100 ms for a message while 2,000 per second are written, and is stopped in between.
#[test]
fn what_a_slow_broker_has_not_handed_out_in_time_is_not_lost() {
    let slow = kafka(Faults { fetch_us: 100_000, ..Faults::default() }, None);
    let failures = line("slow", Kind::Latency, Driver::Raw, slow, LOAD).failures;
    assert!(failures.iter().all(|failure| !failure.contains("lost")), "{failures:?}");
    assert!(
        failures.iter().any(|failure| failure.starts_with("readers had not come to the end after 60 s")),
        "{failures:?}"
    );
}

/// Everything is read in the end, but more slowly than it was written.
#[test]
fn readers_that_fall_behind_are_told_where_no_rate_was_given() {
    let load = Load { rate: 0, window_ms: 2_000, in_flight: 1, message_bytes: 8_000, ..LOAD };
    let slow = kafka(Faults { fetch_us: 100, ..Faults::default() }, None);
    let line = line("lags", Kind::Size, Driver::Raw, slow, load);
    assert_eq!(line.failures, [""; 0]);
    let figures = &line.figures;
    assert_eq!(figures["readers_fell_behind"], 1.0, "{figures:?}");
    assert!(figures["fetch_per_s"] < figures["produce_per_s"] && figures["backlog_growth_per_s"] > 0.0, "{figures:?}");
}

/// Regression test: the cost of a window without a whole second was searched before its start.
#[test]
fn a_window_may_be_shorter_than_a_second() {
    let load = Load { warmup_ms: 100, window_ms: 600, ..LOAD };
    let line = line("short", Kind::Latency, Driver::Raw, kafka(Faults::default(), None), load);
    assert_eq!(line.failures, [""; 0]);
    assert!(line.figures["produce_per_s"] > 0.0);
}

#[test]
fn a_swapped_message_is_reported() {
    assert_eq!(read("swap", Faults { swap: 600, ..Faults::default() }), ["3 messages out of order"]);
}

#[test]
fn the_same_is_reported_of_queues() {
    let queue = QueueLoad {
        kind: QueueKind::Classic,
        durable: true,
        confirms: true,
        prefetch: 0,
        ack_every: 0,
        exchange: None,
    };
    let load = Load { queue: Some(queue), in_flight: 100, ..LOAD };
    let read = |name, faults| {
        let server = amqp::start(([127, 0, 0, 1], 0).into(), faults).expect("it starts");
        line(name, Kind::Latency, Driver::Amqp, Target::At(server.to_string()), load).failures
    };
    assert_eq!(read("queue-right", Faults::default()), [""; 0]);
    stated(&read("queue-double", Faults { double: 700, ..Faults::default() }), "2 messages duplicated");
    assert_eq!(read("queue-swap", Faults { swap: 600, ..Faults::default() }), ["3 messages out of order"]);
    stated(&read("queue-drop", Faults { lose: 999, double: 998, ..Faults::default() }), "2 messages lost");
}

/// Regression test: without confirms there is no publish latency: the met share was derived from it, and was 0.
#[test]
fn rates_of_queues_without_confirms_are_held() {
    let queue = QueueLoad {
        kind: QueueKind::Classic,
        durable: false,
        confirms: false,
        prefetch: 0,
        ack_every: 0,
        exchange: None,
    };
    let ladder =
        Ladder { published: &[400, 800], scale_per_mille: 1_000, step_ms: 500, step_warmup_ms: 100, search_steps: 1 };
    let how = How { ladder: Some(ladder), ..How::default() };
    let load = Load { how, queue: Some(queue), in_flight: 100, rate: 0, warmup_ms: 200, window_ms: 800, ..LOAD };
    let server = amqp::start(([127, 0, 0, 1], 0).into(), Faults::default()).expect("it starts");
    let line = line("unconfirmed", Kind::Ladder, Driver::Amqp, Target::At(server.to_string()), load);
    assert_eq!(line.failures, [""; 0]);
    let figure = |name: &str| line.figures.get(name).copied();
    assert_eq!((figure("step.400.held"), figure("step.800.held")), (Some(1.0), Some(1.0)), "{:?}", line.figures);
    assert_eq!((figure("held_max_per_s"), figure("produce_per_s")), (Some(800.0), Some(800.0)), "{:?}", line.figures);
    assert_eq!(figure("publish_p50_ms"), None, "no one has stated when anything was there");
}

#[test]
fn a_warm_up_ends_when_all_is_steady() {
    let steady = Steadiness { window_s: 1, windows: 3, tolerance_per_mille: 300, least_s: 4, least_messages: 1_000 };
    let how = How { warm_up: WarmUp::Steady(steady), ..How::default() };
    let load = Load { how, warmup_ms: 60_000, ..LOAD };
    let line = line("steady", Kind::Latency, Driver::Raw, kafka(Faults::default(), None), load);
    assert_eq!(line.failures, [""; 0]);
    assert!((4.0..20.0).contains(&line.figures["warm_up_s"]), "{:?}", line.figures);
    assert_eq!((line.figures["warm_up_capped"], line.figures["produce_per_s"]), (0.0, 2_000.0));
    assert!(line.conditions.expect("some").warm_up.starts_with("until steady (3 windows of 1 s"));
}

#[test]
fn a_warm_up_that_never_becomes_steady_is_capped_and_says_so() {
    let never = Steadiness { least_messages: u64::MAX, ..Steadiness::QUICK };
    let how = How { warm_up: WarmUp::Steady(never), ..How::default() };
    let load = Load { how, warmup_ms: 2_000, ..LOAD };
    let line = line("capped", Kind::Latency, Driver::Raw, kafka(Faults::default(), None), load);
    assert_eq!((line.figures["warm_up_capped"], line.figures["warm_up_s"]), (1.0, 2.0));
    assert_eq!((line.failures, line.figures["produce_per_s"]), (Vec::new(), 2_000.0));
}

#[test]
fn rates_are_stepped_and_the_highest_that_holds_is_run_in_full() {
    // One message at a time, each answered before the next: far more than the lower rates, far less than the highest.
    let ladder = Ladder {
        published: &[400, 800, 2_000_000],
        scale_per_mille: 500,
        step_ms: 500,
        step_warmup_ms: 100,
        search_steps: 1,
    };
    let how = How { ladder: Some(ladder), pinning: Pinning::Split, ..How::default() };
    let load = Load { how, in_flight: 1, rate: 0, groups: 0, ..LOAD };
    let line = line("ladder", Kind::Ladder, Driver::Raw, kafka(Faults::default(), None), load);
    let held = |rate: u64| line.figures.get(&format!("step.{rate}.held")).copied();
    assert_eq!((held(200), held(400), held(1_000_000)), (Some(1.0), Some(1.0), Some(0.0)), "{:?}", line.figures);
    assert_eq!(line.figures.get("held_max_per_s"), Some(&400.0), "{:?}", line.figures);
    assert!(!line.figures.contains_key("step.1000000.publish_p50_ms"), "a missed rate has no latency");
    assert!(line.conditions.expect("some").ladder.starts_with("published 400 800 2000000; run 200 400 1000000"));
}
