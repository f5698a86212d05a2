//! A client of AMQP beside a server that sends anything: nothing panics, and what is held has bounds.
//!
//! Each step is a byte that says what the server sends, bytes for its fields, and a byte for what the owner of the client does: mostly
//! methods that make sense, sometimes any bytes.

#![no_main]

use bytes::{BufMut, Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use polylogue_amqp::client::{Client, ClientEvent, ClientSettings};
use polylogue_amqp::codec::*;

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

    fn method(&mut self) -> Method {
        let (tag, flag) = (u64::from(self.byte() % 8), self.flag());
        match self.byte() % 20 {
            0 => ConnectionStart { version_minor: 9, mechanisms: "PLAIN AMQPLAIN".into(), ..Default::default() }.into(),
            1 => ConnectionTune { channel_max: 3, frame_max: 4_096, heartbeat: tag as u16 }.into(),
            2 => ConnectionOpenOk::default().into(),
            3 => ConnectionBlocked::default().into(),
            4 => ConnectionUnblocked {}.into(),
            5 => ConnectionClose { reply_code: 320, ..Default::default() }.into(),
            6 => ConnectionCloseOk {}.into(),
            7 => ChannelOpenOk::default().into(),
            8 => ChannelClose { reply_code: 404, ..Default::default() }.into(),
            9 => ChannelCloseOk {}.into(),
            10 => ChannelFlow { active: flag }.into(),
            11 => QueueDeclareOk::default().into(),
            12 => ConfirmSelectOk {}.into(),
            13 => BasicConsumeOk::default().into(),
            14 | 15 => BasicAck { delivery_tag: tag, multiple: flag }.into(),
            16 => BasicNack { delivery_tag: tag, multiple: flag, requeue: false }.into(),
            17 => BasicCancel { consumer_tag: "c".into(), nowait: flag }.into(),
            18 => BasicReturn { reply_code: 312, ..Default::default() }.into(),
            _ => BasicDeliver { delivery_tag: tag, redelivered: flag, ..Default::default() }.into(),
        }
    }

    fn message(&mut self, channel: u16, out: &mut BytesMut) {
        let method = BasicDeliver { delivery_tag: u64::from(self.byte()), ..Default::default() };
        encode_method(out, channel, &method.into());
        let len = usize::from(self.byte()) * 40;
        let said = if self.byte() % 8 == 0 { u64::from(self.byte()) << 40 } else { len as u64 };
        let headers = TableBuilder::new().with("n", Value::I64(1)).build();
        let properties = BasicProperties { headers: Some(headers), ..Default::default() };
        encode_header(out, channel, said, &properties.encode());
        for part in vec![7; len].chunks(1 + usize::from(self.byte()) * 16) {
            out.put_slice(&body_prefix(channel, part.len() as u32));
            out.put_slice(part);
            out.put_u8(FRAME_END);
        }
    }

    fn bytes(&mut self) -> BytesMut {
        let (channel, mut out) = (u16::from(self.byte() % 4), BytesMut::new());
        match self.byte() % 8 {
            0 => {
                let len = usize::from(self.byte()).min(self.0.len());
                let (taken, rest) = self.0.split_at(len);
                self.0 = rest;
                out.put_slice(taken);
            }
            1 | 2 => self.message(channel, &mut out),
            3 => encode_method(&mut out, 0, &self.method()),
            4 => {
                let method = self.method();
                (0..self.byte()).for_each(|_| encode_method(&mut out, channel, &method));
            }
            _ => encode_method(&mut out, channel, &self.method()),
        }
        out
    }
}

fn act(client: &mut Client, rest: &mut Rest<'_>, now_ms: &mut u64) {
    let channel = 1 + u16::from(rest.byte() % 3);
    if client.output_bytes() > OUTPUT_BYTES_MAX {
        return;
    }
    match rest.byte() % 12 {
        0 => _ = client.open_channel(channel),
        1 => _ = client.ask(channel, ConfirmSelect::default()),
        2 => _ = client.ask(channel, QueueDeclare::default()),
        3 => _ = client.ask(channel, BasicConsume::default()),
        4 => _ = client.ask(channel, ChannelClose::default()),
        5 | 6 => _ = client.publish(channel, BasicPublish::default(), &[0, 0], Bytes::from(vec![1; 5_000])),
        7 => client.ack(channel, 1, true),
        8 => client.close(*now_ms),
        9 => {
            *now_ms += u64::from(rest.byte()) * 100;
            client.on_deadline(*now_ms);
        }
        _ => {}
    }
}

/// What waits to be written before the owner of the client says nothing more. Bytes.
const OUTPUT_BYTES_MAX: usize = 10_000;
/// What one thing that it says may take. Bytes.
const SAID_BYTES_MAX: usize = 5_500;
/// Answers that may wait. Bytes.
const ANSWERS_BYTES_MAX: usize = 1_000;

fuzz_target!(|data: &[u8]| {
    let mut rest = Rest(data);
    let (piece, open) = (1 + usize::from(rest.byte()) * 8, rest.flag());
    let settings = ClientSettings {
        events_bytes_max: 10_000,
        message_bytes_max: 10_000,
        unconfirmed_max: 5,
        output_bytes_max: OUTPUT_BYTES_MAX,
        answers_bytes_max: ANSWERS_BYTES_MAX,
        ..ClientSettings::default()
    };
    let (mut client, mut input, mut now_ms) = (Client::new(settings, 1_000), BytesMut::new(), 1_000);
    if open {
        let start = ConnectionStart { version_minor: 9, mechanisms: "PLAIN".into(), ..Default::default() };
        encode_method(&mut input, 0, &start.into());
        encode_method(&mut input, 0, &ConnectionTune { channel_max: 3, frame_max: 4_096, heartbeat: 1 }.into());
        encode_method(&mut input, 0, &ConnectionOpenOk::default().into());
        client.on_bytes(&mut input, now_ms);
        assert!(client.is_open() && client.poll_event() == Some(ClientEvent::Open));
    }
    while !rest.0.is_empty() && client.end().is_none() {
        let bytes = rest.bytes();
        for part in bytes.chunks(piece) {
            input.extend_from_slice(part);
            client.on_bytes(&mut input, now_ms);
        }
        act(&mut client, &mut rest, &mut now_ms);
        if rest.flag() {
            while let Some(event) = client.poll_event() {
                if let ClientEvent::Settled { first, last, .. } = event {
                    assert!(first > 0 && first <= last);
                }
                client.on_bytes(&mut input, now_ms);
            }
        }
        if rest.flag() {
            let mut out = Vec::new();
            client.poll_output(&mut out, now_ms);
            client.on_bytes(&mut input, now_ms);
        }
        assert!(client.output_bytes() < OUTPUT_BYTES_MAX + SAID_BYTES_MAX + ANSWERS_BYTES_MAX + 300);
        assert!(client.held_bytes() < 60_000);
        // Input that the client has not consumed stays with the caller.
        input.truncate(100_000);
    }
});
