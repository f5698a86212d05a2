use super::*;
use crate::testing::{Topics, World, body};
use polylogue_amqp::codec::{TableBuilder, Value};
use polylogue_amqp_model::{Bind, BindDestination, Command, DeclareExchange};
use polylogue_api::Unavailable;
use polylogue_router::Argument;
use serde_json::json;

const NOW: Now = Now { wall_ms: 1_700_000_000_123, monotonic_ms: 5 };

fn dead(queue: PartitionId, offset: u64, reason: DeadReason, bytes: Bytes) -> DeadMessage {
    DeadMessage { queue, offset: Offset(offset), reason, bytes }
}

fn plain(key: &str) -> Bytes {
    store(b"", key.as_bytes(), Properties::none().raw(), None, &body("x"))
}

fn dead_letters(world: &World) -> DeadLetters {
    let mut dead_letters = DeadLetters::new(world.directory.clone(), Arc::new(Topics));
    assert!(matches!(dead_letters.poll_request(), Some((0, Request::MoveDead))));
    dead_letters
}

/// The publish request for messages, and its token.
fn published(dead_letters: &mut DeadLetters, dead: Vec<DeadMessage>) -> (Token, Vec<PublishMessage>) {
    dead_letters.on_event(Event::Dead(dead), NOW);
    match dead_letters.poll_request() {
        Some((token, Request::Publish(request))) => (token, request.messages),
        other => panic!("{other:?}"),
    }
}

fn answered(dead_letters: &mut DeadLetters) -> Vec<DeadLetterResult> {
    match dead_letters.poll_request() {
        Some((_, Request::DeadMoved(outcomes))) => outcomes.iter().map(|outcome| outcome.how).collect(),
        other => panic!("{other:?}"),
    }
}

/// All queues were searched for each of its messages, and its state was never dropped.
#[test]
fn a_deleted_queue_is_searched_once_and_forgotten() {
    let mut world = World::new();
    let work = world.queue("work", json!({"x-dead-letter-exchange": "nowhere"}));
    let mut dead_letters = dead_letters(&world);
    dead_letters.backoffs.insert(work, Backoff::default());
    dead_letters.partial.insert((work, Offset(1)), Vec::new());
    let id = world.directory.router().load().queue(world.vhost, b"work").expect("declared");
    world.act(Command::RemoveQueue(id, polylogue_amqp_model::DeletionCause::Expired));
    for partition in [work, PartitionId(9)] {
        dead_letters.on_event(Event::Dead(vec![dead(partition, 3, DeadReason::Expired, plain("work"))]), NOW);
        assert_eq!(answered(&mut dead_letters), [DeadLetterResult::Moved], "no queue has it");
        assert!(dead_letters.gone.contains(&partition));
    }
    assert_eq!((dead_letters.backoffs.len(), dead_letters.partial.len()), (0, 0));
    let back = world.queue("back", json!({}));
    dead_letters.queues.insert(PartitionId(9), world.directory.queues().remove(0));
    dead_letters.queues.clear();
    assert!(dead_letters.queue(PartitionId(9)).is_none() && dead_letters.queues.is_empty(), "it was searched again");
    assert!(dead_letters.queue(back).is_some());
}

fn queues(message: &PublishMessage) -> Vec<PartitionId> {
    message.queues.iter().map(|target| target.queue).collect()
}

#[test]
fn a_dead_message_keeps_its_history_and_is_settled_once_committed() {
    let mut world = World::new();
    let work = world.queue("work", json!({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave"}));
    let grave = world.queue("grave", json!({"x-message-ttl": 1_000}));
    let mut dead_letters = dead_letters(&world);
    let basic = BasicProperties {
        headers: Some(TableBuilder::new().with_text("k", "v").with_texts("CC", &["copy"]).build()),
        delivery_mode: Some(2),
        expiration: Some("60000".into()),
        ..BasicProperties::default()
    };
    let hidden = Hidden { bcc: vec![Bytes::from_static(b"blind")], ..Hidden::default() };
    let bytes = store(b"amq.direct", b"work", &basic.encode(), Some(&hidden), &body("x"));
    let (token, messages) = published(&mut dead_letters, vec![dead(work, 3, DeadReason::Expired, bytes)]);
    assert_eq!((messages.len(), queues(&messages[0])), (1, vec![grave]));
    assert_eq!(messages[0].queues[0].expires_at, Some(NOW.wall_ms + 1_000), "the queue's, not its own");
    assert!(!messages[0].flags.contains(polylogue_record::envelope::EntryFlags::TRANSIENT));
    let stored = open(&messages[0].bytes).expect("a message");
    assert_eq!((&stored.exchange[..], &stored.routing_key[..], &stored.body[..]), (&b""[..], &b"grave"[..], &b"x"[..]));
    let basic = BasicProperties::decode(&stored.properties).expect("properties");
    let headers = basic.headers.expect("headers");
    assert_eq!((basic.expiration, headers.get("CC"), stored.hidden.bcc), (None, None, vec![]));
    assert_eq!(headers.get("k"), Some(Value::LongStr(b"v")));
    assert_eq!(headers.get("x-first-death-reason"), Some(Value::LongStr(b"expired")));
    assert_eq!(headers.get("x-last-death-queue"), Some(Value::LongStr(b"work")));
    let deaths: Vec<_> = headers.get("x-death").expect("a history").elements().collect();
    let fields: Vec<_> = deaths[0].1.fields().map(|field| (field.name, field.value)).collect();
    let expected = [
        (&b"original-expiration"[..], Value::LongStr(b"60000")),
        (b"count", Value::I64(1)),
        (b"reason", Value::LongStr(b"expired")),
        (b"queue", Value::LongStr(b"work")),
        (b"time", Value::Timestamp(1_700_000_000)),
        (b"exchange", Value::LongStr(b"amq.direct")),
    ];
    assert_eq!((deaths.len(), &fields[..6]), (1, &expected[..]));
    let keys: Vec<_> = fields[6].1.elements().filter_map(|(_, key)| key.as_longstr()).collect();
    assert_eq!(keys, [&b"work"[..], b"copy"], "BCC stays hidden");
    assert!(dead_letters.poll_request().is_none(), "not before it is committed");
    dead_letters.on_reply(token, Reply::Publish(vec![Ok(())]));
    assert_eq!(answered(&mut dead_letters), [DeadLetterResult::Moved]);
    assert_eq!(dead_letters.take_counts(), DeadCounts { moved: 1, ..DeadCounts::default() });
}

#[test]
fn without_a_dead_letter_routing_key_all_keys_are_kept() {
    let mut world = World::new();
    let work = world.queue("work", json!({"x-dead-letter-exchange": "amq.direct"}));
    for (queue, key) in [("a", "work"), ("b", "copy"), ("c", "blind")] {
        world.queue(queue, json!({}));
        let to = BindDestination::Queue(queue.into());
        let bind = Bind { vhost: world.vhost, source: "amq.direct".into(), to, key: key.into(), arguments: Vec::new() };
        world.act(Command::Bind(bind));
    }
    let mut dead_letters = dead_letters(&world);
    let headers = Some(TableBuilder::new().with_texts("CC", &["copy"]).build());
    let basic = BasicProperties { headers, ..BasicProperties::default() };
    let hidden = Hidden { bcc: vec![Bytes::from_static(b"blind")], ..Hidden::default() };
    let bytes = store(b"", b"work", &basic.encode(), Some(&hidden), &body("x"));
    let (_, messages) = published(&mut dead_letters, vec![dead(work, 0, DeadReason::Rejected, bytes)]);
    assert_eq!(messages[0].queues.len(), 3);
    let stored = open(&messages[0].bytes).expect("a message");
    assert_eq!(stored.hidden.bcc, hidden.bcc);
    assert_eq!(&stored.routing_key[..], b"work");
}

#[test]
fn a_message_in_a_cycle_without_a_rejection_is_dropped() {
    let mut world = World::new();
    let to = |key: &str| json!({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": key});
    let (work, retry) = (world.queue("work", to("retry")), world.queue("retry", to("work")));
    let mut dead_letters = dead_letters(&world);
    for (first, dropped) in [(DeadReason::Rejected, false), (DeadReason::MaxLength, true)] {
        let (_, messages) = published(&mut dead_letters, vec![dead(work, 0, first, plain("work"))]);
        assert_eq!(queues(&messages[0]), [retry]);
        let again = dead(retry, 0, DeadReason::Expired, messages[0].bytes.clone());
        if dropped {
            dead_letters.on_event(Event::Dead(vec![again]), NOW);
            assert_eq!(answered(&mut dead_letters), [DeadLetterResult::Moved]);
            assert_eq!(dead_letters.take_counts().dropped, 1);
            continue;
        }
        let (_, messages) = published(&mut dead_letters, vec![again]);
        assert_eq!(queues(&messages[0]), [work], "the usual pattern for a delayed retry");
        let stored = open(&messages[0].bytes).expect("a message");
        let headers = Properties::new(stored.properties).expect("properties").headers().expect("headers");
        assert_eq!(headers.get("x-death").expect("a history").elements().count(), 2);
        let third = dead(work, 1, DeadReason::Rejected, messages[0].bytes.clone());
        let (_, messages) = published(&mut dead_letters, vec![third]);
        let history = open(&messages[0].bytes).expect("a message").hidden.history;
        let deaths = Deaths::decode(&history).expect("a history");
        let counts: Vec<_> = deaths.entries().iter().map(|d| (&d.queue[..], d.reason, d.count)).collect();
        assert_eq!(counts, [(&b"work"[..], Reason::Rejected, 2), (b"retry", Reason::Expired, 1)]);
    }
}

#[test]
fn undeliverable_messages_are_dropped_or_kept_by_strategy() {
    let mut world = World::new();
    let sure = |exchange: &str| {
        json!({"x-queue-type": "quorum", "x-overflow": "reject-publish", "x-dead-letter-strategy": "at-least-once",
               "x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": "k"})
    };
    let unsure = |exchange: &str| json!({"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": "k"});
    let nowhere = [world.queue("u0", unsure("nowhere")), world.queue("s0", sure("nowhere"))];
    let unbound = [world.queue("u1", unsure("amq.topic")), world.queue("s1", sure("amq.topic"))];
    let bound = [world.queue("u2", unsure("amq.fanout")), world.queue("s2", sure("amq.fanout"))];
    let targets = ["a", "b"].map(|name| {
        let queue = world.queue(name, json!({}));
        let to = BindDestination::Queue(name.into());
        let key = "".into();
        world.act(Command::Bind(Bind { vhost: world.vhost, source: "amq.fanout".into(), to, key, arguments: vec![] }));
        queue
    });
    let mut dead_letters = dead_letters(&world);
    for [unsure, sure] in [nowhere, unbound] {
        let both = [unsure, sure].map(|queue| dead(queue, 0, DeadReason::Rejected, plain("k")));
        dead_letters.on_event(Event::Dead(both.to_vec()), NOW);
        assert_eq!(answered(&mut dead_letters), [DeadLetterResult::Moved, DeadLetterResult::Later(RETRY.min_ms)]);
    }
    let both = bound.map(|queue| dead(queue, 0, DeadReason::Rejected, plain("k")));
    let (token, messages) = published(&mut dead_letters, both.to_vec());
    let to: Vec<_> = messages.iter().map(queues).collect();
    assert_eq!(to, [vec![targets[0], targets[1]], vec![targets[0]], vec![targets[1]]]);
    let full = Err(PublishError::QueueFull);
    dead_letters.on_reply(token, Reply::Publish(vec![full, Ok(()), full]));
    assert_eq!(answered(&mut dead_letters), [DeadLetterResult::Moved, DeadLetterResult::Later(RETRY.min_ms)]);
    for wait_ms in [2 * RETRY.min_ms, 4 * RETRY.min_ms] {
        let (token, messages) = published(&mut dead_letters, vec![both[1].clone()]);
        let to: Vec<_> = messages.iter().map(queues).collect();
        assert_eq!(to, [[targets[1]]], "the other one has it");
        dead_letters.on_reply(token, Reply::Publish(vec![Err(PublishError::Unavailable(Unavailable::StorageFull))]));
        assert_eq!(answered(&mut dead_letters), [DeadLetterResult::Later(wait_ms)]);
    }
    let (token, _) = published(&mut dead_letters, vec![both[1].clone()]);
    dead_letters.on_reply(token, Reply::Publish(vec![Ok(())]));
    assert_eq!(answered(&mut dead_letters), [DeadLetterResult::Moved]);
    assert!(dead_letters.partial.is_empty() && !dead_letters.backoffs.contains_key(&bound[1]));
    let declare = DeclareExchange {
        vhost: world.vhost,
        name: "nowhere".into(),
        kind: "fanout".into(),
        ..DeclareExchange::default()
    };
    world.act(Command::DeclareExchange(declare));
    let to = BindDestination::Queue("a".into());
    let (source, key) = ("nowhere".into(), "".into());
    world.act(Command::Bind(Bind { vhost: world.vhost, source, to, key, arguments: vec![] }));
    let (_, messages) = published(&mut dead_letters, vec![dead(nowhere[1], 0, DeadReason::Rejected, plain("k"))]);
    assert_eq!(queues(&messages[0]), [targets[0]], "the exchange exists now");
}

/// A message that its queue rejected, and that cannot be moved immediately, is stored nowhere: it was counted as a retry, and delayed the queue's
/// other messages.
#[test]
fn a_rejected_message_that_cannot_be_moved_is_dropped_without_delaying_others() {
    let mut world = World::new();
    let arguments = json!({"x-overflow": "reject-publish-dlx", "x-dead-letter-exchange": "amq.fanout"});
    let work = world.queue("work", arguments);
    for name in ["a", "b"] {
        world.queue(name, json!({}));
        let (source, to) = ("amq.fanout".into(), BindDestination::Queue(name.into()));
        world.act(Command::Bind(Bind { vhost: world.vhost, source, to, key: "".into(), arguments: vec![] }));
    }
    let mut dead_letters = dead_letters(&world);
    let refused = dead(work, DeadMessage::refused(1).0, DeadReason::MaxLength, plain("work"));
    for lost in [Reply::Publish(vec![Err(PublishError::Unavailable(Unavailable::StorageFull))]), Reply::Publish(vec![])]
    {
        let (token, _) = published(&mut dead_letters, vec![refused.clone()]);
        dead_letters.on_reply(token, lost);
        assert_eq!(answered(&mut dead_letters), [DeadLetterResult::Moved]);
        assert_eq!(dead_letters.take_counts(), DeadCounts { dropped: 1, ..DeadCounts::default() });
        assert!(dead_letters.backoffs.is_empty() && dead_letters.partial.is_empty());
    }
    // A message that was in its queue is kept there.
    let (token, _) = published(&mut dead_letters, vec![dead(work, 0, DeadReason::Expired, plain("work"))]);
    dead_letters.on_reply(token, Reply::Publish(vec![]));
    assert_eq!(answered(&mut dead_letters), [DeadLetterResult::Later(RETRY.min_ms)]);
    assert_eq!(dead_letters.take_counts(), DeadCounts { retried: 1, ..DeadCounts::default() });
    // A dropped message does not reset the queue's backoff either.
    let (token, _) = published(&mut dead_letters, vec![refused]);
    dead_letters.on_reply(token, Reply::Publish(vec![]));
    assert_eq!(answered(&mut dead_letters), [DeadLetterResult::Moved]);
    let (token, _) = published(&mut dead_letters, vec![dead(work, 0, DeadReason::Expired, plain("work"))]);
    dead_letters.on_reply(token, Reply::Publish(vec![]));
    assert_eq!(answered(&mut dead_letters), [DeadLetterResult::Later(2 * RETRY.min_ms)]);
}

/// cloudamqp/lavinmq#748: dead-lettered messages were lost at an exchange that delays them.
#[test]
fn a_dead_message_is_delayed_once() {
    let mut world = World::new();
    let work = world.queue("work", json!({"x-dead-letter-exchange": "later"}));
    let delayed = Argument {
        name: "x-delayed-type".into(),
        tag: b'S',
        value: polylogue_router::Value::Bytes(Bytes::from_static(b"fanout")),
    };
    let (kind, arguments) = ("x-delayed-message".into(), vec![delayed]);
    let (vhost, name) = (world.vhost, "later".into());
    world.act(Command::DeclareExchange(DeclareExchange { vhost, name, kind, arguments, ..DeclareExchange::default() }));
    let to = BindDestination::Queue("work".into());
    let (source, key) = ("later".into(), "".into());
    world.act(Command::Bind(Bind { vhost, source, to, key, arguments: vec![] }));
    let mut dead_letters = dead_letters(&world);
    let headers = Some(TableBuilder::new().with("x-delay", Value::I64(5_000)).build());
    let basic = BasicProperties { headers, ..BasicProperties::default() };
    let bytes = store(b"", b"work", &basic.encode(), None, &body("x"));
    let (_, messages) = published(&mut dead_letters, vec![dead(work, 0, DeadReason::Rejected, bytes)]);
    assert_eq!((queues(&messages[0]), messages[0].queues[0].deliver_at), (vec![work], Some(NOW.wall_ms + 5_000)));
    let stored = open(&messages[0].bytes).expect("a message");
    let headers = Properties::new(stored.properties).expect("properties").headers().expect("headers");
    assert_eq!(headers.get("x-delay"), Some(Value::I64(-5_000)), "as RabbitMQ shows it");
    let again = dead(work, 1, DeadReason::Rejected, messages[0].bytes.clone());
    let (_, messages) = published(&mut dead_letters, vec![again]);
    assert_eq!((queues(&messages[0]), messages[0].queues[0].deliver_at), (vec![work], None));
}

#[test]
fn invalid_messages_and_unknown_queues_are_completed() {
    let mut world = World::new();
    let work = world.queue("work", json!({"x-dead-letter-exchange": ""}));
    let mut dead_letters = dead_letters(&world);
    let garbage = dead(work, 0, DeadReason::Rejected, Bytes::from_static(b"garbage"));
    let gone = dead(PartitionId(9), 0, DeadReason::Rejected, plain("work"));
    dead_letters.on_event(Event::Dead(vec![garbage, gone]), NOW);
    assert_eq!(answered(&mut dead_letters), [DeadLetterResult::Moved; 2]);
}

/// Dead-lettered messages of a queue blocked their thread while they were routed, and were published to all of their queues in one request.
#[test]
fn dead_messages_are_routed_in_turns_and_published_in_pieces() {
    let mut world = World::new();
    let queues = 2 * TARGETS_PER_REQUEST + 100;
    let from = world.queue("q", json!({"x-dead-letter-exchange": "dlx"}));
    let (vhost, kind) = (world.vhost, "fanout".into());
    world.act(Command::DeclareExchange(DeclareExchange { vhost, name: "dlx".into(), kind, ..Default::default() }));
    for queue in 0..queues {
        let name = queue.to_string();
        world.queue(&name, json!({}));
        let (source, to) = ("dlx".into(), BindDestination::Queue(name.into()));
        world.act(Command::Bind(Bind { vhost, source, to, key: "".into(), arguments: Vec::new() }));
    }
    let mut dead_letters = dead_letters(&world);
    dead_letters.begin_turn(1_000);
    let died = (0..2).map(|offset| dead(from, offset, DeadReason::Rejected, plain("q"))).collect();
    dead_letters.on_event(Event::Dead(died), NOW);
    let mut turns = 1;
    while dead_letters.is_unfinished() {
        assert!(dead_letters.poll_request().is_none());
        dead_letters.begin_turn(1_000);
        turns += 1;
    }
    // One step for each found queue, and some more to look it up; a turn ends with the routed message.
    assert!((20..30).contains(&turns), "{turns} turns");
    let mut targets = 0;
    while let Some((token, request)) = dead_letters.poll_request() {
        let messages = match request {
            Request::Publish(request) => request.messages,
            Request::DeadMoved(outcomes) => {
                assert_eq!(outcomes.iter().map(|one| one.how).collect::<Vec<_>>(), [DeadLetterResult::Moved; 2]);
                break;
            }
            other => panic!("{other:?}"),
        };
        let sizes: Vec<_> = messages.iter().map(|message| message.queues.len()).collect();
        assert!(more_targets(&messages) <= TARGETS_PER_REQUEST, "{sizes:?}");
        targets += sizes.iter().sum::<usize>();
        dead_letters.on_reply(token, Reply::Publish(vec![Ok(()); messages.len()]));
    }
    assert_eq!(targets, 2 * queues);
    assert_eq!(dead_letters.take_counts().moved, 2);
}
