//! A worker over TCP on the loopback.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::programs;
use polylogue_bench::contract::{COMMIT_MS, From, Shape, Spec, System};
use polylogue_bench::drive::Driver;
use polylogue_bench::null::{NullBroker, NullSpec};
use polylogue_bench::process::Interrupt;
use polylogue_bench::remote::{Server, drive_there};
use std::path::Path;

const TOKEN: &str = "a long enough word";

/// Starts a worker; returns its address, and the interrupt that stops it.
fn worker(name: &str) -> (String, Interrupt) {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("remote-{name}"));
    let server = Server::bind(([127, 0, 0, 1], 0).into(), TOKEN.to_owned(), programs(), place).expect("it listens");
    let (address, interrupt) = (server.address().expect("an address").to_string(), Interrupt::default());
    let stop = interrupt.clone();
    std::thread::Builder::new().spawn(move || server.serve(&stop)).expect("a thread");
    (address, interrupt)
}

fn spec(bootstrap: String) -> Spec {
    Spec {
        bootstrap,
        topic: "t".to_owned(),
        partitions: 3,
        producers: 1,
        producer_base: 0,
        consumers: 0,
        groups: 0,
        message_bytes: 100,
        rate: 2_000,
        messages: 0,
        warmup_ms: 0,
        window_ms: 1_000,
        batch_bytes: 16_384,
        linger_us: 1_000,
        batches_per_request: 1,
        in_flight: 5,
        from: From::Beginning,
        expect: 0,
        read_bytes_per_s_max: 0,
        gives_way: false,
        verify: true,
        queues: None,
        open_warmup: false,
        shape: Shape { histograms: true, ..Shape::default() },
        system: System::Kafka,
        create: false,
        admin: None,
        commit_ms: COMMIT_MS,
    }
}

fn null() -> String {
    let listen = ([127, 0, 0, 1], 0).into();
    let spec = NullSpec { listen, partitions: 3, message_bytes: 100, stall_ms: None, keeps: None };
    NullBroker::start(spec).expect("it starts").address().to_string()
}

#[test]
fn a_load_runs_elsewhere_and_its_result_is_here() {
    let (address, stop) = worker("runs");
    let mut heard = 0;
    let (stated, offset) =
        drive_there(&address, TOKEN, Driver::Raw, &spec(null()), &Interrupt::default(), &mut |_| heard += 1)
            .expect("it runs");
    assert_eq!((stated.done.sent, stated.done.acked, stated.done.error), (2_000, 2_000, None));
    assert!(heard > 0 && stated.seconds.iter().any(|second| second.publish.is_some()));
    // It is the same clock.
    assert!(offset.offset_ns.unsigned_abs() <= offset.round_trip_ns, "{offset:?}");
    stop.set();
}

#[test]
fn a_stranger_is_refused_and_a_failure_is_told() {
    let (address, stop) = worker("refuses");
    let ask = |token: &str, spec: &Spec| {
        let stated = drive_there(&address, token, Driver::Raw, spec, &Interrupt::default(), &mut |_| ());
        stated.expect_err("it is refused").to_string()
    };
    let stated = ask("another word", &spec(null()));
    assert!(stated.contains("token") || stated.contains("hung up"), "{stated}");
    let stated = ask(TOKEN, &spec("127.0.0.1:1".to_owned()));
    assert!(stated.contains("the worker fails"), "{stated}");
    stop.set();
}
