//! A session of AMQP between a client that sends anything and a broker that holds it to its contract: nothing panics, nothing is
//! settled twice, and what comes out are whole frames.
//!
//! Each step is a byte that says what is sent, and bytes for its fields: mostly methods that make sense, sometimes any bytes.

#![no_main]

#[path = "../../crates/amqp/tests/it/session_host/mod.rs"]
mod session_host;

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use polylogue_amqp::codec::*;
use polylogue_amqp::settings::AmqpSettings;
use session_host::broker::Broker;
use session_host::{Host, client_properties, frame_of, frames_of};

/// What is left of the input.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    fn name(&mut self) -> ShortStr {
        ["", "q", "p", "amq.rabbitmq.reply-to", "missing", "amq.gen-x", "c", "d"][usize::from(self.byte() % 8)].into()
    }

    fn table(&mut self) -> Table {
        match self.byte() % 4 {
            0 => TableBuilder::new().with_texts("CC", &["q"]).with_texts("BCC", &["p"]).build(),
            1 => TableBuilder::new().with("CC", Value::Void).build(),
            _ => Table::EMPTY,
        }
    }

    fn method(&mut self) -> Method {
        let (queue, nowait) = (self.name(), self.flag());
        match self.byte() % 22 {
            0 => ChannelOpen::default().into(),
            1 => ChannelClose::default().into(),
            2 => ChannelCloseOk {}.into(),
            3 => QueueDeclare { queue, nowait, passive: self.flag(), ..Default::default() }.into(),
            4 => QueueDelete { queue, nowait, ..Default::default() }.into(),
            5 => QueueBind { queue, nowait, exchange: self.name(), ..Default::default() }.into(),
            6 => QueuePurge { queue, nowait, ..Default::default() }.into(),
            7 => BasicQos { prefetch_count: self.byte().into(), global: nowait, ..Default::default() }.into(),
            8 | 9 => {
                let (consumer_tag, no_ack) = (self.name(), self.flag());
                BasicConsume { queue, nowait, consumer_tag, no_ack, ..Default::default() }.into()
            }
            10 => BasicCancel { consumer_tag: self.name(), nowait }.into(),
            11 => BasicGet { queue, no_ack: nowait, ..Default::default() }.into(),
            12 | 13 => BasicAck { delivery_tag: self.byte().into(), multiple: nowait }.into(),
            14 => BasicNack { delivery_tag: self.byte().into(), multiple: nowait, requeue: self.flag() }.into(),
            15 => BasicReject { delivery_tag: self.byte().into(), requeue: nowait }.into(),
            16 => BasicRecover { requeue: true }.into(),
            17 => ConfirmSelect { nowait }.into(),
            18 => TxSelect {}.into(),
            19 => TxCommit {}.into(),
            20 => TxRollback {}.into(),
            _ => ConnectionUpdateSecret::default().into(),
        }
    }

    fn message(&mut self, channel: u16) -> BytesMut {
        let publish = BasicPublish {
            exchange: if self.byte() % 8 == 0 { "missing".into() } else { ShortStr::EMPTY },
            routing_key: self.name(),
            mandatory: self.flag(),
            ..Default::default()
        };
        let headers = Some(self.table()).filter(|table| !table.is_empty());
        let reply_to = Some(self.name()).filter(|_| headers.is_none());
        let properties = BasicProperties { headers, reply_to, ..Default::default() };
        let len = usize::from(self.byte()) * 40;
        frames_of(channel, publish, &properties.encode(), &vec![7; len], 2_000)
    }

    fn bytes(&mut self) -> BytesMut {
        let channel = u16::from(self.byte() % 4);
        match self.byte() % 8 {
            0 => {
                let len = usize::from(self.byte()).min(self.0.len());
                let (taken, rest) = self.0.split_at(len);
                self.0 = rest;
                taken.into()
            }
            1 => frame_of(0, self.method()),
            2..=4 => self.message(channel.max(1)),
            _ => frame_of(channel.max(1), self.method()),
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut rest = Rest(data);
    let (piece, how) = (1 + usize::from(rest.byte()) * 8, rest.byte());
    let settings = AmqpSettings {
        frame_bytes_max: 4096,
        unacked_per_channel_max: 20,
        assembling_bytes_max: 30_000,
        output_bytes_max: 20_000,
        tx_messages_max: 10,
        tx_settled_max: 10,
        consumers_per_channel_max: 5,
        ..AmqpSettings::default()
    };
    // half of the time from the first byte on
    let mut host = if how & 1 == 0 { Host::open_with(settings, client_properties()) } else { Host::with(settings) };
    let mut broker = Broker::default();
    while !rest.0.is_empty() && host.session.close_reason().is_none() {
        let (bytes, act) = (rest.bytes(), rest.byte());
        for part in bytes.chunks(piece) {
            host.feed(part);
        }
        match act % 16 {
            0 => host.pass(u64::from(act) * 100),
            1 => broker.refuse_any(&mut host),
            2 => host.event(polylogue_amqp::request::Event::Blocked("low on disk".into())),
            3 => host.event(polylogue_amqp::request::Event::Unblocked),
            4..=6 => {}
            _ => broker.serve(&mut host),
        }
        host.sent();
        assert!(host.session.held_bytes() < 200_000);
    }
    broker.serve(&mut host);
});
