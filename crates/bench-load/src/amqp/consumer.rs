//! All consumers of a worker, on one thread. Each connection has one channel that consumes from its share of the queues.

use crate::amqp::input::{Frame, Input};
use crate::amqp::load::QueueLoad;
use crate::amqp::template::CHANNEL;
use crate::amqp::wire::{Wire, close_channel, said};
use crate::amqp::{queue_name, queues};
use crate::clock::{MS_NS, unix_ns, wait_until, wake_sharply};
use crate::contract::Spec;
use crate::error::{BenchError, Result};
use crate::raw::frames::{wait_for, write_some};
use crate::raw::reader::ReadOut;
use crate::raw::{Shared, Tally, Times};
use crate::stamp::Stamp;
use crate::verify::{Findings, Verifier};
use crate::worker::Read;
use bytes::{Buf, Bytes, BytesMut};
use polylogue_amqp::codec::{BasicAck, FrameKind, Method, encode_method};
use std::net::TcpStream;

/// The maximum wait before the clock is read again. Nanoseconds.
const WAIT_NS_MAX: u64 = 100 * MS_NS;
/// The maximum delay of an acknowledgement, however few messages there are. Nanoseconds.
const ACK_AFTER_NS: u64 = 10 * MS_NS;
/// Class and method id of `basic.deliver`, the start of a payload.
const DELIVER: &[u8] = &[0, 60, 0, 60];

/// A delivery being received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Delivery {
    queue: u32,
    tag: u64,
    redelivered: bool,
    stamp: Option<Stamp>,
    /// Size of the body, and the missing part of it; `None` before its header.
    size: u64,
    left: Option<u64>,
}

impl Delivery {
    /// Parses the payload of `basic.deliver`: the consumer tag is the queue's number. `None` if it is
    /// invalid.
    fn read(payload: &[u8]) -> Option<Delivery> {
        let (tag_len, rest) = payload.strip_prefix(DELIVER)?.split_first()?;
        let (consumer_tag, rest) = rest.split_at_checked(usize::from(*tag_len))?;
        let (tag, rest) = rest.split_first_chunk()?;
        let mut queue: u32 = 0;
        for digit in consumer_tag {
            let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
            queue = queue.checked_mul(10)?.checked_add(u32::from(digit))?;
        }
        let redelivered = rest.first()? & 1 == 1;
        Some(Delivery { queue, tag: u64::from_be_bytes(*tag), redelivered, stamp: None, size: 0, left: None })
    }
}

/// One consumer.
#[derive(Debug)]
struct Consumer {
    stream: TcpStream,
    input: Input,
    delivery: Option<Delivery>,
    /// The tag of the last message, the number of unacknowledged ones, and when the first of them arrived. Unix nanoseconds.
    last_tag: u64,
    unacked: u32,
    unacked_since_ns: u64,
    out: BytesMut,
    verifier: Verifier,
    received: u64,
}

/// All consumers.
#[derive(Debug)]
pub struct Consumers {
    spec: Spec,
    load: QueueLoad,
    consumers: Vec<Consumer>,
    out: ReadOut,
}

impl Read for Consumers {
    /// Connects them and starts consuming. The queues are empty.
    fn connect(spec: &Spec) -> Result<Consumers> {
        let load = queues(spec)?;
        if spec.groups > 1 {
            return Err(BenchError::new("a queue gives each message to one consumer: there is one group"));
        }
        let mut consumers = Vec::new();
        for number in 0..spec.consumers.min(spec.partitions) {
            let mut wire = Wire::connect(&spec.bootstrap)?;
            wire.open_channel()?;
            let mine = (number..spec.partitions).step_by(spec.consumers as usize);
            wire.consume(mine.map(|queue| (queue, queue_name(&spec.topic, queue))), load)?;
            let (stream, input) = wire.into_parts()?;
            consumers.push(Consumer {
                stream,
                input,
                delivery: None,
                last_tag: 0,
                unacked: 0,
                unacked_since_ns: 0,
                out: BytesMut::new(),
                verifier: Verifier::new(spec.partitions).only(spec.shape.only_producer),
                received: 0,
            });
        }
        Ok(Consumers { spec: spec.clone(), load, consumers, out: ReadOut::default() })
    }

    /// Consumes; acknowledges the rest at the end.
    fn run(mut self, times: &Times, shared: &Shared, tally: &mut Tally) -> ReadOut {
        wake_sharply();
        wait_until(times.start_ns());
        if let Err(e) = self.read_all(times, shared, tally) {
            self.out.error.get_or_insert(e.to_string());
            shared.stop();
        }
        tally.tick(unix_ns(), true);
        let mut found = Findings::default();
        self.consumers.iter().for_each(|consumer| found.add(consumer.verifier.findings()));
        let wanted = shared.wanted(&self.spec).unwrap_or(0);
        found.lost = found.lost.max(wanted.saturating_sub(found.received));
        self.out.findings.add(found);
        self.out
    }
}

impl Consumers {
    fn finished(&self, now: u64, times: &Times, shared: &Shared) -> bool {
        if now > times.deadline_ns() || shared.stopped() {
            return true;
        }
        let received: u64 = self.consumers.iter().map(|consumer| consumer.received).sum();
        shared.wanted(&self.spec).map_or(self.spec.producers == 0 && now >= times.end_ns(), |wanted| received >= wanted)
    }

    fn read_all(&mut self, times: &Times, shared: &Shared, tally: &mut Tally) -> Result<()> {
        loop {
            let now = unix_ns();
            tally.tick(now, false);
            let finished = self.finished(now, times, shared);
            let mut wake = now + WAIT_NS_MAX;
            for consumer in &mut self.consumers {
                consumer.take(&self.load, times, &mut self.out, tally)?;
                let late = consumer.unacked_since_ns + ACK_AFTER_NS;
                if consumer.unacked > 0 && (now >= late || finished) {
                    consumer.acknowledge_rest();
                } else if consumer.unacked > 0 {
                    wake = wake.min(late);
                }
                consumer.write_on()?;
            }
            if finished && self.consumers.iter().all(|consumer| consumer.out.is_empty()) {
                // Leaves the queues empty for the next run.
                return self
                    .consumers
                    .iter_mut()
                    .try_for_each(|consumer| close_channel(&consumer.stream, &mut consumer.input));
            }
            self.wait(wake)?;
        }
    }

    fn wait(&self, wake_ns: u64) -> Result<()> {
        let left = wake_ns.saturating_sub(unix_ns());
        wait_for(self.consumers.iter().map(|consumer| (&consumer.stream, !consumer.out.is_empty())), left)
    }
}

impl Consumer {
    /// Processes everything that the socket has now.
    fn take(&mut self, load: &QueueLoad, times: &Times, out: &mut ReadOut, tally: &mut Tally) -> Result<()> {
        loop {
            let more = self.input.fill(&self.stream)?;
            let now = unix_ns();
            while let Some(frame) = self.input.cut()? {
                let Some(delivery) = take_frame(&mut self.delivery, frame)? else { continue };
                let stamp = delivery.stamp.ok_or_else(|| BenchError::new("a message without a stamp"))?;
                if delivery.redelivered {
                    return Err(BenchError::new(format!(
                        "message {} of queue {} comes again",
                        stamp.sequence, delivery.queue
                    )));
                }
                self.received += 1;
                out.bytes += delivery.size;
                out.last_ns = now;
                tally.received();
                self.verifier.see(delivery.queue, stamp.producer, stamp.sequence);
                tally.latency(now.saturating_sub(stamp.intended_ns), 1, times.measures(stamp.intended_ns));
                self.last_tag = delivery.tag;
                if load.ack_every > 0 {
                    if self.unacked == 0 {
                        self.unacked_since_ns = now;
                    }
                    self.unacked += 1;
                    if self.unacked >= load.ack_every {
                        acknowledge(&mut self.out, self.last_tag);
                        self.unacked = 0;
                    }
                }
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// Acknowledges the rest.
    fn acknowledge_rest(&mut self) {
        acknowledge(&mut self.out, self.last_tag);
        self.unacked = 0;
    }

    fn write_on(&mut self) -> Result<()> {
        if !self.out.is_empty() {
            let written = write_some(&self.stream, &self.out)?;
            self.out.advance(written);
        }
        Ok(())
    }
}

fn acknowledge(out: &mut BytesMut, tag: u64) {
    encode_method(out, CHANNEL, &BasicAck { delivery_tag: tag, multiple: true }.into());
}

/// Processes a frame of a delivery; returns the delivery with its last frame.
fn take_frame(begun: &mut Option<Delivery>, frame: Frame<'_>) -> Result<Option<Delivery>> {
    match (frame.kind, begun.as_mut()) {
        (FrameKind::Heartbeat, _) => return Ok(None),
        (FrameKind::Method, None) => {
            let delivery = Delivery::read(frame.payload);
            *begun = Some(delivery.ok_or_else(|| match Method::decode(&Bytes::copy_from_slice(frame.payload)) {
                Ok(method) => said(&method, "the broker, to a consumer,"),
                Err(e) => BenchError::new(format!("the broker sends a consumer what is no method: {e}")),
            })?);
            return Ok(None);
        }
        (FrameKind::Header, Some(delivery)) if delivery.left.is_none() => {
            let size = frame.payload.get(4..).and_then(<[u8]>::first_chunk).copied();
            delivery.size = u64::from_be_bytes(size.ok_or_else(|| BenchError::new("a header without a size"))?);
            delivery.left = Some(delivery.size);
        }
        (FrameKind::Body, Some(Delivery { left: Some(left), stamp, .. })) => {
            // The stamp is in the first frame of the body.
            *stamp = stamp.or_else(|| Stamp::read(frame.payload));
            *left = left.saturating_sub(frame.payload.len() as u64);
        }
        (kind, _) => return Err(BenchError::new(format!("the broker sends {kind:?} out of turn"))),
    }
    Ok(begun.take_if(|delivery| delivery.left == Some(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use polylogue_amqp::codec::BasicDeliver;

    fn frame(kind: FrameKind, payload: &[u8]) -> Frame<'_> {
        Frame { kind, payload }
    }

    #[test]
    fn a_delivery_is_read_frame_by_frame() {
        let deliver = BasicDeliver {
            consumer_tag: "17".into(),
            delivery_tag: 9,
            redelivered: true,
            exchange: "".into(),
            routing_key: "measured-17".into(),
        };
        let mut out = BytesMut::new();
        encode_method(&mut out, 1, &deliver.into());
        let method = &out[7..out.len() - 1];
        let stamp = Stamp { intended_ns: 1, sequence: 2, producer: 3 };
        let mut body = [0; 30];
        body[..20].copy_from_slice(&stamp.to_bytes());
        let header = [&[0, 60, 0, 0][..], &30_u64.to_be_bytes(), &[0, 0]].concat();
        let mut begun = None;
        assert_eq!(take_frame(&mut begun, frame(FrameKind::Method, method)), Ok(None));
        assert_eq!(take_frame(&mut begun, frame(FrameKind::Heartbeat, &[])), Ok(None));
        assert_eq!(take_frame(&mut begun, frame(FrameKind::Header, &header)), Ok(None));
        assert_eq!(take_frame(&mut begun, frame(FrameKind::Body, &body[..25])), Ok(None));
        let delivery =
            take_frame(&mut begun, frame(FrameKind::Body, &body[25..])).expect("frames").expect("it is whole");
        let stated = (delivery.queue, delivery.tag, delivery.redelivered, delivery.size, delivery.stamp);
        assert_eq!(stated, (17, 9, true, 30, Some(stamp)));
        assert!(take_frame(&mut begun, frame(FrameKind::Body, &body)).is_err(), "nothing has begun");
    }

    #[test]
    fn what_a_broker_says_instead_of_delivering_is_told() {
        let close =
            polylogue_amqp::codec::ChannelClose { reply_code: 406, reply_text: "no".into(), ..Default::default() };
        let mut out = BytesMut::new();
        encode_method(&mut out, 1, &close.into());
        let stated =
            take_frame(&mut None, frame(FrameKind::Method, &out[7..out.len() - 1])).expect_err("it is an error");
        assert!(stated.to_string().contains("closes the channel: 406 no"), "{stated}");
    }
}
