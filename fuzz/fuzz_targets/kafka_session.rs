//! A session of the Kafka protocol between a client that sends anything and a broker that answers everything: nothing
//! panics, no more is in work than allowed, and what comes out are whole frames.

#![no_main]

#[path = "../../crates/kafka/tests/session_host/mod.rs"]
mod session_host;

use libfuzzer_sys::fuzz_target;
use polylogue_kafka::settings::KafkaSettings;
use session_host::Host;
use session_host::broker::Broker;

fuzz_target!(|data: &[u8]| {
    // the first byte says how the rest is cut, the second how time passes
    let Some(([cut, pass_ms], mut rest)) = data.split_first_chunk::<2>() else { return };
    let piece = 1 + usize::from(*cut) * 8;
    let mut host = Host::with(KafkaSettings { request_bytes_max: 1 << 16, ..KafkaSettings::default() });
    let mut broker = Broker::default();
    if pass_ms % 2 == 1 {
        host.session.ask_for_room();
    }
    while !rest.is_empty() && host.close_reason().is_none() {
        let (now, later) = rest.split_at(piece.min(rest.len()));
        rest = later;
        host.feed(now);
        host.on_room();
        broker.serve(&mut host);
        // each is taken as a whole, or the host panics
        while host.response_frame().is_some() {}
        assert!(host.output.is_empty());
        assert!(host.session.inflight() <= host.settings.inflight_requests_max);
        host.pass(u64::from(*pass_ms) * 10);
    }
    drop(host.session.on_closed());
});
