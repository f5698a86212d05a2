//! A refusal may depend on what is proposed and not committed: it does not leave before that is.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use polylogue_api::*;
use polylogue_meta::{MetaCommand, MetaMachine, MetaReply, MetaSettings, SharedCatalog};
use polylogue_types::{NodeId, ShardId};
use std::any::Any;
use std::sync::Arc;

/// A machine, and the effects of the last command.
struct Asked {
    machine: MetaMachine,
    catalog: SharedCatalog,
    effects: Effects,
}

impl Asked {
    fn new() -> Asked {
        let shard = ShardId(0);
        let machine = MetaMachine::new(MetaSettings {
            sync_shards: vec![shard],
            async_shard: shard,
            memory_shard: shard,
            partitions_max: 10,
            node: NodeId(1),
            resolver: Arc::new(IdentityResolver),
        });
        let cluster = ClusterInfo { cluster_id: "c".into(), node: NodeId(1) };
        let catalog = SharedCatalog::new(cluster, Arc::new(IdentityResolver));
        let mut asked = Asked { machine, catalog, effects: Effects::default() };
        let Asked { machine, catalog, .. } = &mut asked;
        machine.on_ready(&Context { now: Now::default(), catalog, queues: &NoQueues, random: 0 });
        asked
    }

    fn ask(&mut self, command: MetaCommand) {
        let context = Context { now: Now::default(), catalog: &self.catalog, queues: &NoQueues, random: 7 };
        self.effects = Effects::default();
        self.machine.handle(&context, Caller(1), Box::new(command), &mut self.effects);
    }

    fn create(&mut self) {
        let topic = NewTopic { name: "a".to_owned(), partitions: 1, config: TopicConfig::default(), internal: false };
        self.ask(MetaCommand::CreateTopics(CreateTopics { topics: vec![topic], validate_only: false }));
    }

    fn delete(&mut self) {
        self.ask(MetaCommand::DeleteTopics(DeleteTopics { topics: vec![TopicRef::Name("a".to_owned())] }));
    }

    /// Commits what the last command proposed; gives the error of its reply.
    fn commit(&mut self) -> Option<TopicError> {
        let effects = std::mem::take(&mut self.effects);
        assert_eq!(effects.replies.len(), 0, "the reply waits");
        let mut replies = Vec::new();
        for proposal in effects.proposals {
            self.machine.apply(&proposal.record, 0).unwrap();
            replies.extend(proposal.replies);
        }
        error_of(replies)
    }
}

fn error_of(mut replies: Vec<(Caller, Box<dyn Any + Send>)>) -> Option<TopicError> {
    assert_eq!(replies.len(), 1);
    match *replies.remove(0).1.downcast::<MetaReply>().unwrap() {
        MetaReply::Created(mut results) => results.remove(0).err(),
        MetaReply::Deleted(mut results) => results.remove(0).err(),
        other => panic!("{other:?}"),
    }
}

/// The client heard that the topic exists, and with the writer it was lost.
#[test]
fn a_topic_that_is_proposed_exists_once_it_is_committed() {
    let mut asked = Asked::new();
    asked.create();
    let first = std::mem::take(&mut asked.effects);
    asked.create();
    let second = std::mem::replace(&mut asked.effects, first);
    assert_eq!(asked.commit(), None);
    asked.effects = second;
    assert_eq!(asked.commit(), Some(TopicError::Exists));
    asked.create();
    assert_eq!(
        error_of(std::mem::take(&mut asked.effects.replies)),
        Some(TopicError::Exists),
        "at once: nothing is proposed"
    );
}

#[test]
fn a_topic_whose_deletion_is_proposed_is_unknown_once_that_is_committed() {
    let mut asked = Asked::new();
    asked.create();
    assert_eq!(asked.commit(), None);
    asked.delete();
    let first = std::mem::take(&mut asked.effects);
    asked.delete();
    let second = std::mem::replace(&mut asked.effects, first);
    assert_eq!(asked.commit(), None);
    asked.effects = second;
    assert_eq!(asked.commit(), Some(TopicError::UnknownName));
}

/// The writer was lost, or the log took nothing: what waits is counted from there on.
#[test]
fn what_was_lost_or_refused_is_not_waited_for() {
    let mut asked = Asked::new();
    for lost in [true, false] {
        asked.create();
        let records: Vec<_> = asked.effects.proposals.iter().map(|proposal| proposal.record.clone()).collect();
        let context = Context { now: Now::default(), catalog: &asked.catalog, queues: &NoQueues, random: 0 };
        match lost {
            true => asked.machine.on_writer_lost(&context, &mut Effects::default()),
            false => asked.machine.on_refused(&context, &records, &mut Effects::default()),
        }
        asked.delete();
        assert_eq!(error_of(std::mem::take(&mut asked.effects.replies)), Some(TopicError::UnknownName));
    }
}
