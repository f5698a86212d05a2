//! A client that performs arbitrary valid steps, fragmented arbitrarily, against a broker that checks the session's contract: no message is lost,
//! none is settled twice, and each publish gets its outcome.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use bytes::Bytes;
use polylogue_amqp::codec::*;
use polylogue_amqp::settings::AmqpSettings;
use proptest::prelude::*;
use session_host::broker::Broker;
use session_host::*;
use std::collections::{BTreeMap, BTreeSet};

const QUEUES: [&str; 2] = ["q0", "q1"];

#[derive(Clone, Debug)]
enum Step {
    Publish {
        channel: u16,
        queue: usize,
        size: usize,
    },
    Consume {
        channel: u16,
        queue: usize,
        no_ack: bool,
        prefetch: u16,
    },
    Cancel {
        channel: u16,
    },
    Get {
        channel: u16,
        queue: usize,
        no_ack: bool,
    },
    /// Settles the delivery at this position among the client's unsettled ones.
    Settle {
        channel: u16,
        at: usize,
        multiple: bool,
        how: u8,
    },
    Recover {
        channel: u16,
    },
    Reopen {
        channel: u16,
    },
    DeleteQueue {
        channel: u16,
        queue: usize,
    },
    /// The broker processes its requests only now.
    Serve,
}

fn step() -> impl Strategy<Value = Step> {
    let (channel, queue) = (1u16..4, 0usize..2);
    prop_oneof![
        6 => (channel.clone(), queue.clone(), 0usize..12_000).prop_map(|(channel, queue, size)| Step::Publish { channel, queue, size: if size < 9_000 { size % 300 } else { size } }),
        2 => (channel.clone(), queue.clone(), any::<bool>(), 0u16..4)
            .prop_map(|(channel, queue, no_ack, prefetch)| Step::Consume { channel, queue, no_ack, prefetch }),
        1 => channel.clone().prop_map(|channel| Step::Cancel { channel }),
        2 => (channel.clone(), queue.clone(), any::<bool>()).prop_map(|(channel, queue, no_ack)| Step::Get { channel, queue, no_ack }),
        6 => (channel.clone(), 0usize..9, any::<bool>(), 0u8..4)
            .prop_map(|(channel, at, multiple, how)| Step::Settle { channel, at, multiple, how }),
        1 => channel.clone().prop_map(|channel| Step::Recover { channel }),
        1 => channel.clone().prop_map(|channel| Step::Reopen { channel }),
        1 => (channel, queue).prop_map(|(channel, queue)| Step::DeleteQueue { channel, queue }),
        3 => Just(Step::Serve),
    ]
}

/// The client's state.
#[derive(Debug, Default)]
struct Client {
    next_body: u64,
    published: BTreeSet<u64>,
    /// Unconfirmed publishes of each channel, and the next sequence number.
    unconfirmed: BTreeMap<u16, (BTreeSet<u64>, u64)>,
    /// Unsettled deliveries of each channel: tag and message.
    have: BTreeMap<u16, BTreeMap<u64, u64>>,
    /// Consumers with automatic acknowledgement.
    no_ack: BTreeSet<ShortStr>,
    /// Unanswered gets of each channel: whether acknowledgement is automatic.
    gets: BTreeMap<u16, Vec<bool>>,
    consumers: BTreeMap<u16, Vec<ShortStr>>,
    done: BTreeSet<u64>,
    deleted: bool,
}

impl Client {
    fn on_output(&mut self, sent: &[Sent]) {
        let mut contents = contents_by_channel(sent);
        for one in sent {
            let Sent::Method(channel, method) = one else { continue };
            let (unconfirmed, _) = self.unconfirmed.entry(*channel).or_default();
            match method {
                Method::BasicAck(ack) if ack.multiple => *unconfirmed = unconfirmed.split_off(&(ack.delivery_tag + 1)),
                Method::BasicAck(ack) => assert!(unconfirmed.remove(&ack.delivery_tag), "{ack:?}"),
                Method::BasicDeliver(deliver) => {
                    let message = contents.get_mut(channel).unwrap().remove(0);
                    self.take(*channel, deliver.delivery_tag, message, self.no_ack.contains(&deliver.consumer_tag));
                }
                Method::BasicGetOk(ok) => {
                    let message = contents.get_mut(channel).unwrap().remove(0);
                    let no_ack = self.gets.get_mut(channel).unwrap().remove(0);
                    self.take(*channel, ok.delivery_tag, message, no_ack);
                }
                Method::BasicGetEmpty(_) => drop(self.gets.get_mut(channel).unwrap().remove(0)),
                Method::ChannelClose(close) => panic!("{close:?}"),
                Method::ConnectionClose(close) => panic!("{close:?}"),
                _ => {}
            }
        }
    }

    fn take(&mut self, channel: u16, tag: u64, message: u64, no_ack: bool) {
        if no_ack {
            assert!(self.done.insert(message), "{message} twice");
        } else {
            let before = self.have.entry(channel).or_default().insert(tag, message);
            assert!(before.is_none(), "tag {tag} twice");
        }
        let held = self.have.values().flat_map(BTreeMap::values).filter(|held| **held == message).count();
        assert!(held + usize::from(self.done.contains(&message)) == 1, "{message} is had twice");
    }

    /// Returns the frames of a step, and updates the client's state.
    fn act(&mut self, step: &Step) -> Vec<u8> {
        match *step {
            Step::Publish { channel, queue, size } => {
                self.next_body += 1;
                self.published.insert(self.next_body);
                let (unconfirmed, next) = self.unconfirmed.entry(channel).or_default();
                *next += 1;
                unconfirmed.insert(*next);
                let mut body = self.next_body.to_be_bytes().to_vec();
                body.resize(8 + size, 7);
                frames_of(channel, to_queue(QUEUES[queue]), &[0, 0], &body, 4_000).to_vec()
            }
            Step::Consume { channel, queue, no_ack, prefetch } => {
                self.next_body += 1;
                let tag = ShortStr::from(format!("c{}", self.next_body));
                if no_ack {
                    self.no_ack.insert(tag.clone());
                }
                self.consumers.entry(channel).or_default().push(tag.clone());
                let mut bytes = frame_of(channel, BasicQos { prefetch_count: prefetch, ..Default::default() });
                let consume =
                    BasicConsume { queue: QUEUES[queue].into(), consumer_tag: tag, no_ack, ..Default::default() };
                bytes.extend_from_slice(&frame_of(channel, consume));
                bytes.to_vec()
            }
            Step::Cancel { channel } => match self.consumers.entry(channel).or_default().pop() {
                Some(consumer_tag) => frame_of(channel, BasicCancel { consumer_tag, nowait: false }).to_vec(),
                None => Vec::new(),
            },
            Step::Get { channel, queue, no_ack } => {
                self.gets.entry(channel).or_default().push(no_ack);
                frame_of(channel, BasicGet { queue: QUEUES[queue].into(), no_ack, ..Default::default() }).to_vec()
            }
            Step::Settle { channel, at, multiple, how } => self.settle(channel, at, multiple, how),
            Step::Recover { channel } => frame_of(channel, BasicRecover { requeue: true }).to_vec(),
            Step::Reopen { channel } => {
                let mut bytes = frame_of(channel, ChannelClose::default());
                bytes.extend_from_slice(&frame_of(channel, ChannelOpen::default()));
                bytes.extend_from_slice(&frame_of(channel, ConfirmSelect::default()));
                bytes.to_vec()
            }
            Step::DeleteQueue { channel, queue } => {
                self.deleted = true;
                let mut bytes = frame_of(channel, QueueDelete { queue: QUEUES[queue].into(), ..Default::default() });
                let declare = QueueDeclare { queue: QUEUES[queue].into(), nowait: true, ..Default::default() };
                bytes.extend_from_slice(&frame_of(channel, declare));
                bytes.to_vec()
            }
            Step::Serve => Vec::new(),
        }
    }

    fn forget(&mut self, channel: u16) {
        self.have.remove(&channel);
        self.unconfirmed.remove(&channel);
        self.gets.remove(&channel);
        self.consumers.remove(&channel);
    }

    fn settle(&mut self, channel: u16, at: usize, multiple: bool, how: u8) -> Vec<u8> {
        let have = self.have.entry(channel).or_default();
        let Some(tag) = have.keys().nth(at % have.len().max(1)).copied() else { return Vec::new() };
        // A rejection is always of one delivery.
        let multiple = multiple && how != 3;
        let settled: Vec<u64> = match multiple {
            true => {
                let rest = have.split_off(&(tag + 1));
                std::mem::replace(have, rest).into_values().collect()
            }
            false => have.remove(&tag).into_iter().collect(),
        };
        let requeue = how == 2;
        if how == 0 || how == 1 {
            for message in settled {
                assert!(self.done.insert(message));
            }
        }
        let method: Method = match how {
            0 => BasicAck { delivery_tag: tag, multiple }.into(),
            1 | 2 => BasicNack { delivery_tag: tag, multiple, requeue }.into(),
            _ => BasicReject { delivery_tag: tag, requeue: true }.into(),
        };
        frame_of(channel, method).to_vec()
    }
}

/// Returns the numbers of the messages on each channel, in order.
fn contents_by_channel(sent: &[Sent]) -> BTreeMap<u16, Vec<u64>> {
    let mut bodies: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
    let mut left: BTreeMap<u16, u64> = BTreeMap::new();
    for one in sent {
        match one {
            Sent::Header(channel, header) => drop(left.insert(*channel, header.body_size)),
            Sent::Body(channel, part) => {
                let left = left.get_mut(channel).unwrap();
                if bodies_begin(part, *left) {
                    let number = u64::from_be_bytes(*part.first_chunk().unwrap());
                    bodies.entry(*channel).or_default().push(number);
                }
                *left |= 1 << 63;
            }
            _ => {}
        }
    }
    bodies
}

/// Whether this is the first part of a body: the marker is not set.
fn bodies_begin(part: &Bytes, left: u64) -> bool {
    left >> 63 == 0 && part.len() >= 8
}

fn run(steps: &[Step], piece: usize, serve_each: bool) {
    let mut host = Host::open_with(
        AmqpSettings { frame_bytes_max: 4096, output_bytes_max: 30_000, ..Default::default() },
        client_properties(),
    );
    let (mut broker, mut client) = (Broker::default(), Client::default());
    for channel in 1..4 {
        host.send(channel, ChannelOpen::default());
        host.send(channel, ConfirmSelect { nowait: true });
    }
    for queue in QUEUES {
        host.send(1, QueueDeclare { queue: queue.into(), ..Default::default() });
    }
    broker_serve_first(&mut broker, &mut host);
    client.on_output(&host.sent());
    for step in steps {
        let sent = client.act(step);
        // A step that depends on the client's state must not cross output in flight to it.
        let crosses = matches!(step, Step::Recover { .. } | Step::Reopen { .. });
        for bytes in sent.chunks(piece) {
            host.feed(bytes);
        }
        if crosses || serve_each || matches!(step, Step::Serve) {
            broker.serve(&mut host);
            let sent = host.sent();
            if crosses {
                forget_crossed(&mut client, step, &sent);
            } else {
                client.on_output(&sent);
            }
        }
    }
    finish(&mut host, &mut broker, &mut client);
}

/// Asks the broker for `channel.open` directly: the host has no open channel yet.
fn broker_serve_first(broker: &mut Broker, host: &mut Host) {
    broker.serve(host);
    assert_eq!(host.session.channel_count(), 3);
}

/// Of the output while the step was in flight, only what followed its answer counts.
fn forget_crossed(client: &mut Client, step: &Step, sent: &[Sent]) {
    let (channel, answer) = match step {
        Step::Recover { channel } => (*channel, BasicRecoverOk::ID),
        Step::Reopen { channel } => (*channel, ChannelCloseOk::ID),
        _ => unreachable!("only these cross"),
    };
    let at = sent
        .iter()
        .position(|sent| matches!(sent, Sent::Method(of, method) if *of == channel && method.id() == answer));
    let (before, after) = sent.split_at(at.expect("the step is answered"));
    client.on_output(before);
    if answer == BasicRecoverOk::ID {
        client.have.entry(channel).or_default().clear();
    } else {
        client.forget(channel);
    }
    client.on_output(after);
}

fn finish(host: &mut Host, broker: &mut Broker, client: &mut Client) {
    broker.serve(host);
    client.on_output(&host.sent());
    for (channel, (unconfirmed, _)) in &client.unconfirmed {
        assert!(unconfirmed.is_empty(), "no outcome on {channel}: {unconfirmed:?}");
    }
    for channel in 1..4 {
        host.send(channel, ChannelClose::default());
        broker.serve(host);
        forget_crossed(client, &Step::Reopen { channel }, &host.sent());
    }
    assert_eq!((broker.unsettled(), host.session.channel_count(), host.session.held_bytes()), (0, 0, 0));
    if !client.deleted {
        let ready: usize = QUEUES.iter().map(|queue| broker.ready(queue)).sum();
        assert_eq!(ready + client.done.len(), client.published.len());
    }
    assert_eq!(host.session.close_reason(), None);
}

/// A frame of any type, whose payload begins like a method or a header.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let id = proptest::sample::select(MethodId::ALL);
    (0u8..9, 0u16..4, id, proptest::collection::vec(any::<u8>(), 0..30), any::<bool>()).prop_map(
        |(kind, channel, id, fields, whole)| {
            let mut payload = [id.class.to_be_bytes(), id.method.to_be_bytes()].concat();
            payload.extend_from_slice(&fields);
            let kind = if kind < 6 { 1 } else { kind - 4 };
            let mut frame = FramePrefix { kind, channel, size: payload.len() as u32 }.to_bytes().to_vec();
            frame.extend_from_slice(&payload);
            frame.push(if whole || fields.len() > 3 { FRAME_END } else { 0 });
            frame
        },
    )
}

proptest! {
    #[test]
    fn no_frames_make_it_panic(frames in proptest::collection::vec(any_frame(), 1..20), open in any::<bool>()) {
        let settings = AmqpSettings { unacked_per_channel_max: 5, ..Default::default() };
        let mut host = if open { Host::open_with(settings, client_properties()) } else { Host::with(settings) };
        let mut broker = Broker::default();
        if open {
            host.send(1, ChannelOpen::default());
        } else {
            host.feed(&PROTOCOL_HEADER);
        }
        for frame in frames {
            host.feed(&frame);
            broker.serve(&mut host);
            // Complete frames, or the host panics.
            host.sent();
        }
        host.pass(100_000);
        prop_assert!(host.session.held_bytes() < 10_000);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_and_nothing_comes_twice(
        steps in proptest::collection::vec(step(), 1..60),
        piece in prop_oneof![Just(usize::MAX), 1usize..40, 1000usize..5000],
        serve_each in any::<bool>(),
    ) {
        run(&steps, piece, serve_each);
    }
}
