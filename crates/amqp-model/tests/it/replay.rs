//! Random commands, lost proposals and checkpoints: a model rebuilt from its records, or from a checkpoint and the records after it, equals the live
//! one; proposals that were not lost are committed in the end.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::common;

use bytes::Bytes;
use bytestring::ByteString;
use common::*;
use polylogue_amqp_model::*;
use polylogue_router::{ExchangeId, QueueId, VhostId};
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    Do(u64, Command),
    /// This many of the uncommitted records are committed.
    Commit(u8),
    /// All uncommitted records are lost.
    Lose,
    Checkpoint,
}

fn name() -> impl Strategy<Value = ByteString> {
    prop::sample::select(vec!["a", "b", "c"]).prop_map(ByteString::from)
}

fn host() -> impl Strategy<Value = ByteString> {
    prop::sample::select(vec!["/", "/", "two"]).prop_map(ByteString::from)
}

fn host_id() -> impl Strategy<Value = VhostId> {
    prop::sample::select(vec![0, 0, 1, 2]).prop_map(VhostId)
}

fn pattern() -> impl Strategy<Value = ByteString> {
    prop::sample::select(vec!["", ".*", "^a", "(?!a)b", "("]).prop_map(ByteString::from)
}

fn queue_arguments() -> impl Strategy<Value = serde_json::Value> {
    prop::sample::select(vec![
        json!({}),
        json!({"x-queue-type": "quorum"}),
        json!({"x-queue-type": "stream", "x-max-age": "1h"}),
        json!({"x-message-ttl": 5, "x-dead-letter-exchange": "a"}),
        json!({"x-max-length": 3, "nested": [1, {"a": "b"}], "f": 0.1}),
    ])
}

fn definition() -> impl Strategy<Value = serde_json::Value> {
    prop::sample::select(vec![
        json!({"max-length": 2}),
        json!({"alternate-exchange": "b", "message-ttl": 9}),
        json!({"delivery-limit": 2}),
        json!({"foo": 1}),
    ])
}

fn declare_queue() -> impl Strategy<Value = Command> {
    let bits = any::<(bool, bool, bool)>();
    (host_id(), name(), bits, queue_arguments()).prop_map(|(vhost, name, (durable, exclusive, auto_delete), json)| {
        let declare = DeclareQueue { vhost, name, durable, exclusive, auto_delete, ..queue_with("", json) };
        Command::DeclareQueue(declare)
    })
}

fn binding() -> impl Strategy<Value = Bind> {
    let to = prop_oneof![name().prop_map(BindDestination::Queue), name().prop_map(BindDestination::Exchange)];
    let source = prop_oneof![name(), Just(ByteString::from("amq.topic"))];
    (host_id(), source, to, name()).prop_map(|(vhost, source, to, key)| Bind { vhost, ..bind(&source, to, &key) })
}

fn administration() -> impl Strategy<Value = Command> {
    let three = [pattern(), pattern(), pattern()];
    let two = [pattern(), pattern()];
    prop_oneof![
        (host(), prop::option::of(0..3i64)).prop_map(|(name, max)| Command::SetVhostLimit(
            name,
            VhostLimit::Queues,
            max
        )),
        (host(), name()).prop_map(|(name, description)| Command::PutVhost(PutVhost {
            name,
            description: Some(description),
            ..PutVhost::default()
        })),
        host().prop_map(Command::DeleteVhost),
        (host(), any::<bool>()).prop_map(|(host, protected)| Command::ProtectVhost(host, protected)),
        name().prop_map(|name| Command::PutUser(put_user(&name))),
        name().prop_map(|name| Command::DeleteUsers(vec![name])),
        (name(), host(), three).prop_map(|(user, host, patterns)| Command::SetPermission(user, host, patterns)),
        (name(), host()).prop_map(|(user, host)| Command::ClearPermission(user, host)),
        (name(), host(), name(), two)
            .prop_map(|(user, host, x, patterns)| Command::SetTopicPermission(user, host, x, patterns)),
        (name(), host()).prop_map(|(user, host)| Command::ClearTopicPermission(user, host, None)),
        (host(), name(), name(), any::<i8>()).prop_map(|(host, component, name, value)| Command::SetParameter(
            host,
            component,
            name,
            json!({"v": value})
        )),
        (host(), name(), name()).prop_map(|(host, component, name)| Command::ClearParameter(host, component, name)),
        (host(), name(), name(), any::<i8>()).prop_map(|(host, component, name, value)| Command::ClearParameterIf(
            host,
            component,
            name,
            Json::new(&json!({"v": value}))
        )),
        (name(), any::<f64>()).prop_map(|(name, value)| Command::SetGlobalParameter(name, json!(value))),
        name().prop_map(Command::ClearGlobalParameter),
        (host(), name(), definition(), any::<bool>(), -2..2i64).prop_map(
            |(host, name, definition, operator, priority)| {
                Command::SetPolicy(host, PolicySpec { operator, priority, ..policy(&name, &name, definition) })
            }
        ),
        (host(), any::<bool>(), name()).prop_map(|(host, operator, name)| Command::ClearPolicy(host, operator, name)),
    ]
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        4 => declare_queue(),
        1 => (host_id(), name()).prop_map(|(vhost, name)| Command::DeleteQueue(DeleteQueue { vhost, ..delete(&name) })),
        1 => (0..6u64).prop_map(|id| Command::RemoveQueue(QueueId(id), DeletionCause::Expired)),
        1 => (0..3u64).prop_map(|owner| Command::OwnerGone(OwnerId::local(owner))),
        1 => Just(Command::Restarted),
        2 => (host_id(), name(), prop::sample::select(vec!["direct", "topic", "fanout"]), any::<(bool, bool)>()).prop_map(
            |(vhost, name, kind, (durable, auto_delete))| {
                Command::DeclareExchange(DeclareExchange { vhost, durable, auto_delete, ..exchange(&name, kind) })
            }
        ),
        1 => (host_id(), name(), any::<bool>()).prop_map(|(vhost, name, unused)| Command::DeleteExchange(vhost, name, unused)),
        4 => binding().prop_map(Command::Bind),
        1 => binding().prop_map(Command::Unbind),
        6 => administration(),
        // The predeclared exchanges have the first ids.
        4 => (0..20u64, prop::collection::vec((0..3u64, 0..5u64), 0..3), prop::collection::vec(0..3u64, 0..2)).prop_map(
            |(id, at, gone)| Command::SetTopicReads(TopicReads { exchange: ExchangeId(id), at, gone })
        ),
        1 => name().prop_map(|name| import(json!({
            "vhosts": [{"name": "two"}],
            "queues": [{"name": &*name, "vhost": "two", "durable": true, "arguments": {}}],
            "bindings": [{"source": "amq.topic", "vhost": "two", "destination": &*name, "destination_type": "queue"}]
        }))),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..3u64, command()).prop_map(|(owner, command)| Step::Do(owner, command)),
        4 => (0..4u8).prop_map(Step::Commit),
        1 => Just(Step::Lose),
        1 => Just(Step::Checkpoint),
    ]
}

#[derive(Default)]
struct Life {
    on_their_way: Vec<Bytes>,
    log: Vec<Bytes>,
    /// The chunks of the last checkpoint, and how much of the log it covers.
    checkpoint: (BTreeMap<Bytes, Bytes>, usize),
}

/// A connection; some belong to another process than recorded.
fn caller(owner: u64) -> Caller {
    let home = if owner == 2 { Home { node: 1, boot: 2 } } else { Home::default() };
    Caller { owner: OwnerId { home, connection: owner }, ..connection(owner) }
}

fn live(model: &mut Model, steps: Vec<Step>) -> Life {
    let mut life = Life::default();
    model.on_ready();
    let guest = Command::Bootstrap(put_user("guest"));
    life.on_their_way.extend(model.plan(&Caller::broker(), &guest, [0; 16]).unwrap().record);
    let end = [Step::Commit(u8::MAX), Step::Lose];
    for (at, step) in steps.into_iter().chain(end).enumerate() {
        match step {
            Step::Do(owner, command) => {
                model.taken();
                let (before, routes) = (model.proposed().clone(), model.proposed_routes().exchanges());
                let refused = model.plan(&caller(owner), &command, [at as u8; 16]);
                // The log refuses it once: the state is as before, and the same command has the same effect.
                model.take_back();
                assert!(*model.proposed() == before, "{command:?} changed the proposed state");
                assert_eq!(model.proposed_routes().exchanges(), routes);
                let planned = model.plan(&caller(owner), &command, [at as u8; 16]);
                assert_eq!(planned, refused);
                life.on_their_way.extend(planned.ok().and_then(|plan| plan.record));
            }
            Step::Commit(count) => {
                let count = usize::from(count).min(life.on_their_way.len());
                for record in life.on_their_way.drain(..count) {
                    model.apply(&record).unwrap();
                    life.log.push(record);
                }
                if life.on_their_way.is_empty() {
                    assert!(model.metadata() == model.proposed(), "without uncommitted proposals both are equal");
                }
            }
            Step::Lose => {
                life.on_their_way.clear();
                model.on_writer_lost();
            }
            Step::Checkpoint => {
                for (id, chunk) in model.take_changed_chunks() {
                    match chunk {
                        Some(chunk) => _ = life.checkpoint.0.insert(id, chunk),
                        None => _ = life.checkpoint.0.remove(&id),
                    }
                }
                life.checkpoint.1 = life.log.len();
            }
        }
    }
    life
}

fn rebuilt(chunks: &BTreeMap<Bytes, Bytes>, log: &[Bytes], backwards: bool) -> Model {
    let mut model = Model::new(Limits::default());
    let load = |model: &mut Model, (id, chunk): (&Bytes, &Bytes)| model.load_chunk(id, chunk).unwrap();
    if backwards {
        chunks.iter().rev().for_each(|chunk| load(&mut model, chunk));
    } else {
        chunks.iter().for_each(|chunk| load(&mut model, chunk));
    }
    for record in log {
        model.apply(record).unwrap();
    }
    model.on_ready();
    model
}

/// All chunks of a model.
fn whole(model: &mut Model) -> BTreeMap<Bytes, Bytes> {
    model.change_all_chunks();
    model.take_changed_chunks().into_iter().filter_map(|(id, chunk)| Some((id, chunk?))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_rebuilt_model_equals_the_live_one(steps in prop::collection::vec(step(), 0..60), backwards in any::<bool>()) {
        let mut model = Model::new(Limits::default());
        let life = live(&mut model, steps);
        let from_records = rebuilt(&BTreeMap::new(), &life.log, false);
        prop_assert!(same(&model, &from_records));
        let (chunks, covered) = &life.checkpoint;
        let mut from_checkpoint = rebuilt(chunks, &life.log[*covered..], backwards);
        prop_assert!(same(&model, &from_checkpoint));
        prop_assert_eq!(whole(&mut model), whole(&mut from_checkpoint));
        // Both continue in the same way: ids and names included.
        let next = Command::DeclareQueue(queue("next"));
        let plan = |model: &mut Model| model.plan(&Caller::broker(), &next, [9; 16]);
        prop_assert_eq!(plan(&mut model), plan(&mut from_checkpoint));
    }

    #[test]
    fn any_bytes_are_refused_or_applied(bytes in prop::collection::vec(any::<u8>(), 0..300), version in any::<bool>()) {
        let mut bytes = bytes;
        if version && !bytes.is_empty() {
            bytes[0] = 1;
        }
        let mut model = Model::new(Limits::default());
        _ = model.apply(&bytes);
        _ = model.load_chunk(&bytes[..bytes.len() / 4], &bytes[bytes.len() / 4..]);
        model.on_ready();
        _ = whole(&mut model);
    }

    #[test]
    fn a_damaged_record_is_refused_or_applied(
        steps in prop::collection::vec(step(), 1..20),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut model = Model::new(Limits::default());
        let life = live(&mut model, steps);
        let mut damaged = Model::new(Limits::default());
        for record in &life.log {
            let mut record = record.to_vec();
            for (at, byte) in &damage {
                let at = at.index(record.len());
                record[at] = *byte;
            }
            _ = damaged.apply(&record);
        }
        damaged.on_ready();
        _ = whole(&mut damaged);
        _ = export(damaged.metadata(), damaged.routes(), None, &product());
    }
}
