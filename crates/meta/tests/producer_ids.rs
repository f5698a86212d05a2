//! Producer ids: no id is given out twice.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use polylogue_api::{Caller, ClusterInfo, Context, Effects, IdentityResolver, NoQueues, Now, StateMachine};
use polylogue_meta::{MetaCommand, MetaMachine, MetaReply, MetaSettings, SharedCatalog};
use polylogue_types::{NodeId, ProducerId, ShardId};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;

fn machine() -> MetaMachine {
    let shard = ShardId(0);
    MetaMachine::new(MetaSettings {
        sync_shards: vec![shard],
        async_shard: shard,
        memory_shard: shard,
        partitions_max: 10,
        node: NodeId(1),
        resolver: Arc::new(IdentityResolver),
    })
}

/// Asks for an id; gives it and the records that were proposed.
fn allocate(machine: &mut MetaMachine, context: &Context<'_>) -> (ProducerId, Vec<bytes::Bytes>) {
    let mut effects = Effects::default();
    machine.handle(context, Caller(1), Box::new(MetaCommand::AllocateProducerId), &mut effects);
    let mut records = Vec::new();
    let mut replies = effects.replies;
    for proposal in effects.proposals {
        records.push(proposal.record);
        replies.extend(proposal.replies);
    }
    match replies.pop().expect("an answer").1.downcast::<MetaReply>().map(|reply| *reply) {
        Ok(MetaReply::Producer(id)) => (id, records),
        other => panic!("{other:?}"),
    }
}

/// The block was reserved just before the tail was thrown away, and the record came through: its ids were given out twice.
#[test]
fn a_block_that_was_reserved_before_the_tail_was_lost_is_not_used_again() {
    let catalog =
        SharedCatalog::new(ClusterInfo { cluster_id: "c".into(), node: NodeId(1) }, Arc::new(IdentityResolver));
    let context = Context { now: Now::default(), catalog: &catalog, queues: &NoQueues, random: 0 };
    let mut machine = machine();
    machine.on_ready(&context);
    let (first, records) = allocate(&mut machine, &context);
    machine.on_writer_lost(&context, &mut Effects::default());
    for record in &records {
        machine.apply(record, 0).unwrap();
    }
    let (second, _) = allocate(&mut machine, &context);
    assert!(second > first, "{second:?} after {first:?}");
}

proptest! {
    /// Each writer is a new machine that replays all committed records. It skips the rest of its predecessor's block.
    #[test]
    fn successive_writers_never_allocate_the_same_id(counts in proptest::collection::vec(1..2_200_usize, 1..6)) {
        let catalog = SharedCatalog::new(ClusterInfo { cluster_id: "c".into(), node: NodeId(1) }, Arc::new(IdentityResolver));
        let context = Context { now: Now::default(), catalog: &catalog, queues: &NoQueues, random: 0 };
        let mut log: Vec<bytes::Bytes> = Vec::new();
        let mut allocated = BTreeSet::new();
        for count in counts {
            let mut writer = machine();
            for record in &log {
                writer.apply(record, 0).unwrap();
            }
            writer.on_ready(&context);
            for _ in 0..count {
                let (id, records) = allocate(&mut writer, &context);
                for record in records {
                    writer.apply(&record, 0).unwrap();
                    log.push(record);
                }
                prop_assert!(allocated.insert(id), "{id:?} was allocated twice");
            }
        }
    }
}
