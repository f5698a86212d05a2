//! Measures the processing time of a session per message, with input from memory and without a socket.
//!
//! `cargo run --release -p polylogue-amqp --example session_cost`. Each line is the best of many timed runs; on a noisy machine compare only lines of
//! one run. The copy into the input replaces the read from the socket.

#![allow(clippy::disallowed_methods, reason = "this measures time")]

use bytes::{BufMut, Bytes, BytesMut};
use polylogue_amqp::codec::*;
use polylogue_amqp::request::*;
use polylogue_amqp::session::Session;
use polylogue_amqp::settings::AmqpSettings;
use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

/// Messages per run.
const MESSAGES: u64 = 1_000;
const RUNS: usize = 300;

struct Bench {
    session: Session,
    channel: ChannelRef,
    consumer: ConsumerRef,
    seq: u64,
    tag: u64,
}

fn frame(channel: u16, method: impl Into<Method>) -> BytesMut {
    let mut out = BytesMut::new();
    encode_method(&mut out, channel, &method.into());
    out
}

impl Bench {
    fn feed(&mut self, bytes: &[u8]) -> Vec<(u64, Request)> {
        self.session.on_bytes(&mut BytesMut::from(bytes), 1);
        std::iter::from_fn(|| self.session.poll_request()).collect()
    }

    fn answer(&mut self, bytes: &[u8], reply: Reply) -> Option<Request> {
        let (token, request) = self.feed(bytes).pop()?;
        self.session.on_reply(token, reply, 1);
        Some(request)
    }

    /// An open connection with a channel that has confirms and a consumer.
    fn new() -> Result<Bench, Box<dyn Error>> {
        let session = Session::new(Arc::new(AmqpSettings::default()), 1, 1);
        let none = ChannelRef { number: 1, life: 1 };
        let mut bench = Bench { session, channel: none, consumer: NO_CONSUMER, seq: 0, tag: 0 };
        bench.feed(&PROTOCOL_HEADER);
        let response = Bytes::from_static(b"\0guest\0guest");
        let start_ok = ConnectionStartOk { mechanism: "PLAIN".into(), response, ..Default::default() };
        let known = Reply::Authenticated { user: Bytes::new(), impersonator: false };
        bench.answer(&frame(0, start_ok), known).ok_or("no login")?;
        let mut open = frame(0, ConnectionTuneOk { channel_max: 2047, frame_max: 131_072, heartbeat: 0 });
        open.unsplit(frame(0, ConnectionOpen::default()));
        bench.answer(&open, Reply::Done).ok_or("no virtual host")?;
        let Some(Request::OpenChannel(channel)) = bench.answer(&frame(1, ChannelOpen::default()), Reply::Done) else {
            return Err("no channel".into());
        };
        bench.channel = channel;
        bench.feed(&frame(1, ConfirmSelect::default()));
        let consume = BasicConsume { queue: "queue".into(), consumer_tag: "ctag1.0".into(), ..Default::default() };
        let Some(Request::Consume(_, consume)) = bench.answer(&frame(1, consume), Reply::Done) else {
            return Err("no consumer".into());
        };
        bench.consumer = consume.consumer;
        bench.session.poll_output(&mut Vec::new(), 1);
        Ok(bench)
    }

    /// Publishes, each confirmed separately; the confirms are sent at the end.
    fn publish(&mut self, bytes: &[u8]) -> usize {
        self.session.on_bytes(&mut BytesMut::from(bytes), 1);
        while let Some((_, request)) = self.session.poll_request() {
            black_box(request);
            self.seq += 1;
            let (first, last) = (self.seq, self.seq);
            self.session.on_event(Event::Confirmed { channel: self.channel, first, last }, 1);
        }
        self.output()
    }

    fn output(&mut self) -> usize {
        let mut out = Vec::new();
        self.session.poll_output(&mut out, 1);
        out.iter().map(polylogue_types::Chunk::len).sum()
    }

    /// Deliveries, each acknowledged separately.
    fn deliver(&mut self, body: &Bytes) -> usize {
        let delivery = |at| Delivery {
            place: Place { queue: 1, at },
            redelivered: false,
            exchange: ShortStr::EMPTY,
            routing_key: ShortStr::from_static("queue"),
            properties: Bytes::from_static(&[0x10, 0, 2]),
            payload: body.clone().into(),
        };
        let (channel, consumer) = (self.channel, self.consumer);
        let deliveries = (self.tag + 1..=self.tag + MESSAGES).map(delivery).collect();
        self.session.on_event(Event::Deliver { channel, consumer, deliveries }, 1);
        let len = self.output();
        let mut acks = BytesMut::new();
        for _ in 0..MESSAGES {
            self.tag += 1;
            encode_method(&mut acks, 1, &BasicAck { delivery_tag: self.tag, multiple: false }.into());
        }
        self.session.on_bytes(&mut acks, 1);
        while let Some(request) = self.session.poll_request() {
            black_box(request);
        }
        len
    }
}

fn best(mut run: impl FnMut() -> usize) -> f64 {
    let timed = |run: &mut dyn FnMut() -> usize| {
        let start = Instant::now();
        black_box(run());
        start.elapsed().as_secs_f64()
    };
    (0..RUNS).map(|_| timed(&mut run)).fold(f64::MAX, f64::min)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut bench = Bench::new()?;
    for size in [16usize, 1024, 16 << 10] {
        let body = Bytes::from(vec![7; size]);
        let mut message = frame(1, BasicPublish { routing_key: "queue".into(), ..Default::default() });
        encode_header(&mut message, 1, size as u64, &[0x10, 0, 2]);
        message.put_slice(&body_prefix(1, size as u32));
        message.put_slice(&body);
        message.put_u8(FRAME_END);
        let messages = message.repeat(MESSAGES as usize);
        let per = |seconds: f64| seconds * 1e9 / MESSAGES as f64;
        let copy = per(best(|| black_box(BytesMut::from(&messages[..])).len()));
        let publish = per(best(|| bench.publish(&messages)));
        let deliver = per(best(|| bench.deliver(&body)));
        println!(
            "{size:>6} B  publish and confirm {publish:>7.1} ns, of it the copy {copy:>7.1} ns   deliver and ack {deliver:>7.1} ns"
        );
    }
    Ok(())
}
