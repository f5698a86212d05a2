//! A session of the Kafka protocol between a client that sends anything and a broker that answers everything: nothing
//! panics, the requests in flight stay within their limit, and the output consists of whole frames. Where authentication is required, no request
//! reaches the broker before it.

#![no_main]

#[path = "../../crates/kafka/tests/it/session_host/mod.rs"]
mod session_host;

use libfuzzer_sys::fuzz_target;
use polylogue_kafka::settings::KafkaSettings;
use session_host::Host;
use session_host::broker::Broker;
use session_host::users::Users;
use std::sync::Arc;

fuzz_target!(|data: &[u8]| {
    // the first byte says how the rest is cut, the second how time passes
    let Some(([cut, pass_ms], mut rest)) = data.split_first_chunk::<2>() else { return };
    let piece = 1 + usize::from(*cut & 0x7f) * 16;
    let asks = *cut >= 0x80;
    let mut host = Host::with(KafkaSettings { request_bytes_max: 1 << 16, ..KafkaSettings::default() });
    if asks {
        host = host.asking(Arc::new(Users::default()));
    }
    let mut broker = Broker::default();
    if pass_ms % 2 == 1 {
        host.session.ask_for_room();
    }
    while !rest.is_empty() && host.close_reason().is_none() {
        let (now, later) = rest.split_at(piece.min(rest.len()));
        rest = later;
        host.feed(now);
        host.on_room();
        // A token without a header is answered by one, which is no frame with a number.
        if asks && host.session.user().is_none() {
            assert!(host.asked().is_empty(), "a stranger reached the broker");
        }
        broker.serve(&mut host);
        // each is taken as a whole, or the host panics
        while host.response_frame().is_some() {}
        assert!(host.output.is_empty());
        assert!(host.session.inflight() <= host.settings.inflight_requests_max);
        host.pass(u64::from(*pass_ms) * 10);
    }
    drop(host.session.on_closed());
});
