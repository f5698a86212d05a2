//! Allocations of a session: none while it is idle, and none per message.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use allocation_counter::measure;
use bytes::{Bytes, BytesMut};
use polylogue_amqp::codec::*;
use polylogue_amqp::request::*;
use polylogue_amqp::session::Session;
use polylogue_amqp::settings::AmqpSettings;
use session_host::*;
use std::sync::Arc;

/// Feeds without the host's own buffers.
fn feed(host: &mut Host, bytes: &[u8], requests: &mut Vec<(u64, Request)>) -> u64 {
    let mut input = BytesMut::from(bytes);
    let cost = measure(|| {
        host.session.on_bytes(&mut input, 1);
        requests.extend(std::iter::from_fn(|| host.session.poll_request()));
    });
    assert!(input.is_empty());
    cost.count_total
}

#[test]
fn the_memory_of_a_new_connection() {
    let settings = Arc::new(AmqpSettings::default());
    let cost = measure(|| drop(Session::new(settings.clone(), 1, 1)));
    assert_eq!(cost.count_total, 0);
    assert!(size_of::<Session>() <= 1024, "{} bytes", size_of::<Session>());
}

/// RabbitMQ takes about 100 KB per connection: a buffer that was used once must not be kept.
#[test]
fn an_idle_connection_keeps_little_memory() {
    let mut open = None;
    let cost = measure(|| open = Some(Host::open()));
    assert!(cost.bytes_current <= 8 << 10, "{} bytes", cost.bytes_current);
    drop(open);
}

#[test]
fn publishes_are_not_copied_and_not_allocated_for() {
    let (mut host, _) = Host::open();
    host.send(1, ConfirmSelect { nowait: true });
    let properties = BasicProperties { delivery_mode: Some(2), message_id: Some("m".into()), ..Default::default() };
    let message = frames_of(1, to_queue("queue"), &properties.encode(), &[7; 200], usize::MAX).repeat(1000);
    let mut requests = Vec::with_capacity(4000);
    feed(&mut host, &message, &mut requests);
    let count = feed(&mut host, &message, &mut requests);
    assert!(count <= 2, "{count} allocations for 1000 messages");
    assert_eq!(requests.len(), 2000);
}

#[test]
fn confirms_allocate_nothing_per_message() {
    let (mut host, channel) = Host::open();
    host.send(1, ConfirmSelect { nowait: true });
    let message = frames_of(1, to_queue("queue"), &[0, 0], b"", usize::MAX).repeat(1000);
    feed(&mut host, &message, &mut Vec::with_capacity(1000));
    let mut out = Vec::with_capacity(16);
    let mut cost = 0;
    for at in 1..=1000 {
        cost += measure(|| host.session.on_event(Event::Confirmed { channel, first: at, last: at }, 1)).count_total;
    }
    cost += measure(|| assert!(host.session.poll_output(&mut out, 1))).count_total;
    assert!(cost <= 16, "{cost} allocations for 1000 confirms");
    assert_eq!(out.iter().map(polylogue_types::Chunk::len).sum::<usize>(), frame_of(1, BasicAck::default()).len());
}

#[test]
fn deliveries_and_acknowledgements_are_not_allocated_for() {
    let (mut host, channel) = Host::open();
    host.send(1, BasicConsume { queue: "q".into(), consumer_tag: "c".into(), ..Default::default() });
    let request = host.answer(Reply::Done);
    let Request::Consume(_, Consume { consumer, .. }) = request else { panic!("{request:?}") };
    let mut acks = Vec::new();
    for delivery_tag in 1..=1000 {
        acks.extend_from_slice(&frame_of(1, BasicAck { delivery_tag, multiple: false }));
    }
    let body = Bytes::from(vec![7; 200]);
    let deliveries = (1..=1000)
        .map(|at| Delivery {
            place: Place { queue: 1, at },
            redelivered: false,
            exchange: ShortStr::EMPTY,
            routing_key: "q".into(),
            properties: Bytes::from_static(&[0, 0]),
            payload: body.clone().into(),
        })
        .collect();
    let mut out = Vec::with_capacity(64);
    let event = Event::Deliver { channel, consumer, deliveries };
    let cost = measure(|| {
        host.session.on_event(event, 1);
        host.session.poll_output(&mut out, 1);
    });
    assert!(cost.count_total <= 32, "{} allocations for 1000 deliveries", cost.count_total);
    let mut requests = Vec::with_capacity(16);
    let count = feed(&mut host, &acks, &mut requests);
    assert!(count <= 4, "{count} allocations for 1000 acknowledgements");
    assert_eq!(requests.len(), 1);
}

#[test]
fn a_hundred_thousand_deliveries_take_32_bytes_each() {
    let (mut host, channel) = Host::open();
    host.send(1, BasicConsume { queue: "q".into(), consumer_tag: "c".into(), ..Default::default() });
    let request = host.answer(Reply::Done);
    let Request::Consume(_, Consume { consumer, .. }) = request else { panic!("{request:?}") };
    let mut kept = 0;
    for at in 1..=100_000 {
        kept += measure(|| {
            let deliveries = vec![Delivery {
                place: Place { queue: 1, at: at * 7 },
                redelivered: false,
                exchange: ShortStr::EMPTY,
                routing_key: ShortStr::EMPTY,
                properties: Bytes::from_static(&[0, 0]),
                payload: Bytes::new().into(),
            }];
            host.session.on_event(Event::Deliver { channel, consumer, deliveries }, 1);
            let mut out = Vec::new();
            host.session.poll_output(&mut out, 1);
        })
        .bytes_current;
    }
    // A deque doubles.
    assert!((0..2 * 32 * 131_072).contains(&kept), "{kept} bytes");
}
