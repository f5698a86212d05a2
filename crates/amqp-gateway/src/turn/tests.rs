use super::*;
use crate::connection::InternalIdentity;
use crate::machine::AmqpAnswer;
use crate::management::{MANAGEMENT_CHANNEL, Principal, PrincipalOutput};
use crate::testing::{Topics, World};
use bytes::{Bytes, BytesMut};
use polylogue_amqp::client::{Client, ClientEvent, ClientSettings};
use polylogue_amqp::codec::{
    BasicPublish, ChannelClose, ConfirmSelect, ExchangeDelete, Method, MethodId, ShortStr, TxCommit, TxCommitOk,
    TxSelect, encode_header, encode_method,
};
use polylogue_amqp_model::{Bind, BindDestination, Command, DeclareExchange};
use polylogue_api::{Now, Reply};
use serde_json::json;
use std::sync::Arc;

/// The steps of a turn in these tests.
const STEPS: u64 = 200;
/// A message with this key takes about 4,000 steps at exchange `t`.
const SLOW: &str = "a.a.a.a.a.a.a.a.a.a";

fn declare(world: &mut World, name: &str, kind: &str) {
    let declare =
        DeclareExchange { vhost: world.vhost, name: name.into(), kind: kind.into(), ..DeclareExchange::default() };
    world.act(Command::DeclareExchange(declare));
}

fn bind(world: &mut World, source: &str, to: &str, key: String) {
    let (to, key) = (BindDestination::Queue(to.into()), key.into());
    world.act(Command::Bind(Bind { vhost: world.vhost, source: source.into(), to, key, arguments: Vec::new() }));
}

/// Queues `q` and `s`; `s` gets messages that come to exchange `t` with the key [`SLOW`].
fn world() -> World {
    let mut world = World::new();
    ["q", "s"].into_iter().for_each(|queue| _ = world.queue(queue, json!({})));
    declare(&mut world, "t", "topic");
    for number in 0..1_024 {
        let words: Vec<_> = (0..10).map(|bit| if number >> bit & 1 == 0 { "a" } else { "*" }).collect();
        bind(&mut world, "t", "s", words.join("."));
    }
    world
}

/// Queues `0` and so on, all bound to exchange `f`.
fn wide(queues: usize) -> World {
    let mut world = World::new();
    world.queue("q", json!({}));
    declare(&mut world, "f", "fanout");
    for queue in 0..queues {
        world.queue(&queue.to_string(), json!({}));
        bind(&mut world, "f", &queue.to_string(), String::new());
    }
    world
}

/// A client and its connection.
struct Wire {
    client: Client,
    connection: Connection,
    input: BytesMut,
    events: Vec<ClientEvent>,
    received: Option<BytesMut>,
}

impl Wire {
    /// With two channels.
    fn open(world: &World) -> Wire {
        let (directory, now) = (world.directory.clone(), Now::default());
        let connection = Connection::new(Arc::default(), directory, Arc::new(Topics), 7, true, 1, now);
        let connection = connection.authenticated_as(InternalIdentity::Operator);
        let client = Client::new(ClientSettings::default(), 0);
        let mut wire = Wire { client, connection, input: BytesMut::new(), events: Vec::new(), received: None };
        wire.run();
        for number in [1, 2] {
            wire.client.open_channel(number).expect("it is open");
            wire.run();
        }
        wire.events.clear();
        wire
    }

    /// Runs turns while either side has output.
    fn run(&mut self) {
        loop {
            let mut chunks = Vec::new();
            if self.received.is_none() {
                self.client.poll_output(&mut chunks, 0);
            }
            chunks.iter().for_each(|chunk| self.input.extend_from_slice(&chunk.to_bytes().expect("bytes")));
            self.connection.on_bytes(&mut self.input, Now::default());
            let (mut captured, mut bytes) = (Vec::new(), BytesMut::new());
            if !self.connection.poll_output(&mut captured, Now::default()) && chunks.is_empty() {
                return;
            }
            captured.iter().for_each(|chunk| bytes.extend_from_slice(&chunk.to_bytes().expect("bytes")));
            if let Some(received) = &mut self.received {
                received.extend_from_slice(&bytes);
                continue;
            }
            self.client.on_bytes(&mut bytes, 0);
            self.events.extend(std::iter::from_fn(|| self.client.poll_event()));
        }
    }

    fn turn(&mut self, steps: u64) {
        self.connection.begin_turn(steps);
        self.run();
    }

    fn ask(&mut self, number: u16, method: impl Into<Method>) {
        self.client.ask(number, method).expect("it may");
    }

    /// Sends a method that the client of this crate does not support: from now on the received bytes are collected.
    fn send(&mut self, number: u16, method: impl Into<Method>) {
        self.received.get_or_insert_default();
        encode_method(&mut self.input, number, &method.into());
    }

    /// Sends a message in the same way.
    fn send_message(&mut self, number: u16, exchange: &'static str, key: &'static str) {
        let exchange = ShortStr::from_static(exchange);
        self.send(number, BasicPublish { exchange, routing_key: ShortStr::from_static(key), ..Default::default() });
        encode_header(&mut self.input, number, 0, &[0, 0]);
    }

    /// How often this method was received on a channel since the last call.
    fn received(&mut self, number: u16, method: MethodId) -> usize {
        let received = std::mem::take(self.received.as_mut().expect("something was sent"));
        let [channel, class, id] = [number, method.class, method.method].map(u16::to_be_bytes);
        let begins =
            |frame: &&[u8]| frame[..3] == [&[1], &channel[..]].concat()[..] && frame[7..11] == [class, id].concat()[..];
        received.windows(11).filter(begins).count()
    }

    fn publish(&mut self, number: u16, exchange: &'static str, key: &'static str) {
        let exchange = ShortStr::from_static(exchange);
        let publish = BasicPublish { exchange, routing_key: ShortStr::from_static(key), ..Default::default() };
        self.client.publish(number, publish, &[0, 0], Bytes::from_static(b"x")).expect("it may");
    }

    /// The publish requests: the targets of each message of each request.
    fn published(&mut self) -> Vec<(Token, Vec<usize>)> {
        std::iter::from_fn(|| self.connection.poll_request())
            .filter_map(|(token, request)| match request {
                Request::Publish(request) => {
                    Some((token, request.messages.iter().map(|message| message.queues.len()).collect()))
                }
                _ => None,
            })
            .collect()
    }

    fn answer(&mut self, token: Token, results: Vec<Result<(), PublishError>>) {
        self.connection.on_reply(token, Reply::Publish(results), Now::default());
        self.run();
    }

    fn settled(&mut self) -> Vec<(u64, u64, bool)> {
        let settled = |event| match event {
            ClientEvent::Settled { first, last, taken, .. } => Some((first, last, taken)),
            _ => None,
        };
        std::mem::take(&mut self.events).into_iter().filter_map(settled).collect()
    }
}

/// One message blocked an I/O thread while it was routed, and with it all connections of the thread.
#[test]
fn a_long_routing_continues_in_later_turns_and_is_not_overtaken() {
    let mut wire = Wire::open(&world());
    wire.ask(1, ConfirmSelect::default());
    wire.run();
    wire.publish(1, "", "q");
    wire.publish(1, "t", SLOW);
    wire.publish(2, "", "q");
    wire.publish(1, "", "q");
    wire.turn(STEPS);
    assert_eq!(wire.published().len(), 1, "the earlier message");
    let mut turns = 1;
    while let Some(unfinished) = wire.connection.unfinished() {
        assert!(turns < 60, "it ends");
        if turns < 9 {
            assert_eq!((unfinished, wire.published().len()), (Unfinished::Worker, 0), "turn {turns}");
            assert!(!wire.connection.wants_input());
        }
        wire.turn(STEPS);
        turns += 1;
    }
    assert!(turns > 9, "{turns} turns of {STEPS} steps");
    assert!(wire.connection.wants_input());
    let requests = wire.published();
    let messages: Vec<_> = requests.iter().flat_map(|(_, messages)| messages).collect();
    assert_eq!(messages, [&1; 3]);
}

/// Frames to a client are in order while a message is being routed: an answer to another channel does not let later frames overtake it.
#[test]
fn an_answer_to_another_channel_does_not_reorder_a_routing() {
    let mut wire = Wire::open(&world());
    wire.send(2, ExchangeDelete { exchange: ShortStr::from_static("other"), ..Default::default() });
    wire.run();
    let (token, request) = wire.connection.poll_request().expect("it asks");
    assert!(matches!(request, Request::Machine(..)), "{request:?}");
    wire.send_message(1, "t", SLOW);
    // An error that closes its channel: the message was sent before.
    wire.send(1, TxCommit {});
    wire.turn(STEPS);
    assert_eq!(wire.connection.unfinished(), Some(Unfinished::Worker));
    let done = AmqpAnswer::Done(polylogue_amqp_model::Reply::Done);
    wire.connection.on_reply(token, Reply::Machine(Ok(Box::new(done))), Now::default());
    wire.run();
    assert_eq!(wire.received(1, ChannelClose::ID), 0, "later frames were processed");
    while wire.connection.unfinished().is_some() {
        wire.turn(STEPS);
    }
    assert_eq!(wire.received(1, ChannelClose::ID), 1);
    assert_eq!(wire.published().len(), 1, "it was taken");
}

#[test]
fn a_closed_connection_drops_pending_work() {
    let mut wire = Wire::open(&world());
    wire.publish(1, "t", SLOW);
    wire.turn(STEPS);
    assert_eq!(wire.connection.unfinished(), Some(Unfinished::Worker));
    wire.connection.on_closed();
    assert_eq!(wire.connection.unfinished(), None);
    wire.turn(u64::MAX);
    assert_eq!(wire.published(), []);
}

#[test]
fn ordinary_messages_beyond_a_turn_wait_for_the_next_one() {
    let mut wire = Wire::open(&world());
    (0..100).for_each(|_| wire.publish(1, "", "q"));
    let mut messages = 0;
    for turn in 1..=8 {
        wire.turn(STEPS);
        let more = wire.published().iter().map(|(_, messages)| messages.len()).sum::<usize>();
        assert!(more <= STEPS as usize / REQUEST_STEPS as usize, "{more} messages in turn {turn}");
        messages += more;
        let unfinished = (messages < 100).then_some(Unfinished::Turn);
        if unfinished.is_none() {
            break;
        }
        assert_eq!(wire.connection.unfinished(), unfinished);
    }
    assert_eq!(messages, 100);
}

/// All messages of a transaction are routed before one is published; the answer follows their commit.
#[test]
fn a_transaction_continues_in_later_turns() {
    let mut wire = Wire::open(&world());
    wire.send(1, TxSelect {});
    wire.run();
    (0..3).for_each(|_| wire.send_message(1, "t", SLOW));
    wire.send_message(1, "", "q");
    wire.run();
    wire.send(1, TxCommit {});
    let mut turns = 0;
    wire.turn(STEPS);
    while wire.connection.unfinished().is_some() {
        assert_eq!(wire.published(), []);
        wire.turn(STEPS);
        turns += 1;
    }
    assert!((27..120).contains(&turns), "{turns} turns");
    let requests = wire.published();
    let [(token, messages)] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(messages, &[1; 4]);
    assert_eq!(wire.received(1, TxCommitOk::ID), 0);
    wire.answer(*token, vec![Ok(()); 4]);
    // It settles nothing, which the broker confirms.
    let (token, request) = wire.connection.poll_request().expect("it settles");
    assert!(matches!(request, Request::Settle(_)));
    wire.connection.on_reply(token, Reply::Settle(Vec::new()), Now::default());
    wire.run();
    assert_eq!(wire.received(1, TxCommitOk::ID), 1);
}

/// A message to 10,000 queues was one request, which delayed everyone who writes to their shard; a hundred of them took seconds.
#[test]
fn a_large_fan_out_is_split_and_confirmed_once_complete() {
    let queues = TARGETS_UNANSWERED_MAX + 3 * TARGETS_PER_REQUEST;
    let world = wide(queues);
    let mut wire = Wire::open(&world);
    wire.ask(1, ConfirmSelect::default());
    wire.run();
    for (number, failure) in [(1, None), (2, Some(PublishError::QueueFull)), (3, Some(PublishError::UnknownQueue))] {
        wire.publish(1, "f", "");
        wire.publish(1, "", "q");
        wire.run();
        let (mut targets, mut asked, mut behind) = (0, wire.published(), None);
        let mut failed = failure;
        loop {
            let (first, pieces) = asked.split_first().expect("there are further parts");
            let sent: usize = asked.iter().flat_map(|(_, messages)| messages).sum();
            assert!(sent <= TARGETS_UNANSWERED_MAX + TARGETS_PER_REQUEST, "{sent} targets in flight");
            assert!(first.1.iter().sum::<usize>() <= TARGETS_PER_REQUEST);
            let (token, messages) = first.clone();
            let rest = pieces.to_vec();
            if messages == [1] {
                behind = Some(token);
                break;
            }
            assert!(behind.is_none() && wire.settled().is_empty(), "it is not in all queues");
            targets += messages[0];
            wire.answer(token, vec![failed.take().map_or(Ok(()), Err)]);
            asked = rest;
            asked.extend(wire.published());
        }
        assert_eq!(targets, queues);
        let taken = failure != Some(PublishError::QueueFull);
        assert_eq!(wire.settled(), [(2 * number - 1, 2 * number - 1, taken)]);
        wire.answer(behind.expect("the later message"), vec![Ok(())]);
        assert_eq!(wire.settled(), [(2 * number, 2 * number, true)]);
    }
    // Targets take steps: the rest fits into a turn, or not.
    wire.publish(1, "f", "");
    wire.turn(30_000);
    assert_eq!(wire.connection.unfinished(), Some(Unfinished::Worker), "its queues have to be looked up");
    wire.turn(100_000);
    wire.published().into_iter().for_each(|(token, _)| wire.answer(token, vec![Ok(())]));
    let mut seen = Vec::new();
    while let Some(unfinished) = wire.connection.unfinished() {
        seen.push(unfinished);
        wire.turn(10_000);
        let asked = wire.published();
        let targets: usize = asked.iter().flat_map(|(_, messages)| messages).sum();
        let most = 10_000 / TARGET_STEPS + PIECE_TARGETS_MIN + asked.len() as u64;
        assert!(targets as u64 <= most, "{targets} targets: at most one part beyond the steps");
        asked.into_iter().for_each(|(token, _)| wire.answer(token, vec![Ok(())]));
    }
    assert_eq!((seen.first(), seen.last()), (Some(&Unfinished::Worker), Some(&Unfinished::Turn)));
}

/// A million targets of messages without confirms could have been in flight.
#[test]
fn targets_without_confirms_are_limited_too() {
    let mut wire = Wire::open(&wide(1_000));
    (0..20).for_each(|_| wire.publish(1, "f", ""));
    wire.run();
    let mut waiting = wire.published();
    let targets = |requests: &[(Token, Vec<usize>)]| requests.iter().flat_map(|(_, messages)| messages).sum::<usize>();
    let mut all = targets(&waiting);
    assert!(all <= TARGETS_UNANSWERED_MAX + 2 * TARGETS_PER_REQUEST, "{all} targets in flight");
    assert!(!wire.connection.wants_input() && wire.connection.unfinished().is_none());
    while !waiting.is_empty() {
        let (token, messages) = waiting.remove(0);
        wire.answer(token, vec![Ok(()); messages.len()]);
        let more = wire.published();
        all += targets(&more);
        waiting.extend(more);
    }
    assert_eq!(all, 20_000);
}

/// A message for all of its queues or none is not split, and a later one waits.
#[test]
fn a_message_for_all_queues_or_none_is_not_split() {
    let world = wide(TARGETS_PER_REQUEST + 10);
    for all_or_none in [false, true] {
        let (directory, vhost) = (world.directory.clone(), (world.vhost, "/".into()));
        let operator = Principal::operator(directory, Arc::new(Topics), 9, vhost, Now::default());
        let mut operator = if all_or_none { operator.all_or_none() } else { operator };
        let publish = |seq, exchange, key| Publish {
            seq: Some(seq),
            exchange: ShortStr::from_static(exchange),
            routing_key: ShortStr::from_static(key),
            mandatory: false,
            properties: polylogue_amqp::codec::Properties::none(),
            expiration_ms: None,
            cc: Vec::new(),
            bcc: Vec::new(),
            body: amqp::Body::One(Bytes::from_static(b"x")),
        };
        operator.begin_turn(50);
        operator.publish(publish(1, "f", ""));
        operator.publish(publish(2, "", "q"));
        operator.ask(amqp::Request::Publish(MANAGEMENT_CHANNEL, publish(3, "", "q")));
        assert!(!operator.may_publish());
        let mut requests = Vec::new();
        while operator.unfinished().is_some() {
            operator.begin_turn(50);
            requests.extend(std::iter::from_fn(|| operator.poll_request()));
        }
        let mut sizes = Vec::new();
        for (token, request) in requests {
            let Request::Publish(request) = request else { panic!("{request:?}") };
            sizes.push(request.messages.iter().map(|message| message.queues.len()).collect::<Vec<_>>());
            assert!(request.messages.iter().all(|message| message.all_or_none == all_or_none));
            operator.on_reply(token, Reply::Publish(vec![Ok(()); request.messages.len()]), Now::default());
        }
        let mut sizes = sizes.concat();
        assert_eq!(sizes.split_off(sizes.len() - 2), [1, 1], "the later ones");
        assert_eq!(sizes.iter().sum::<usize>(), TARGETS_PER_REQUEST + 10);
        assert!(if all_or_none { sizes.len() == 1 } else { sizes.len() > 10 }, "{sizes:?}");
        let captured = std::iter::from_fn(|| operator.poll_output());
        let confirmed = |captured| match captured {
            PrincipalOutput::Event(amqp::Event::Confirmed { first, last, .. }) => first..=last,
            other => panic!("{other:?}"),
        };
        assert_eq!(captured.flat_map(confirmed).collect::<Vec<_>>(), [1, 2, 3]);
    }
}
