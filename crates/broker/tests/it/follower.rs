//! A follower on the simulated machine: it applies the writer's committed frames, serves reads, refuses everything else, and can take over.

use crate::node::{Node, entry, message, stamped};
use crate::queues::Queueing;
use polylogue_api::*;
use polylogue_broker::{Broker, BrokerConfig};
use polylogue_env::sim::SimWorld;
use polylogue_replicate::{Role, Work};
use polylogue_types::{Index, NodeId, Offset, PartitionId, ShardId};
use std::collections::BTreeMap;
use std::sync::Arc;

const SHARDS: u32 = 2;
const META_SHARD: ShardId = ShardId(0);

fn open_writer(world: &SimWorld) -> Node {
    Node::open(world, |config| {
        config.sync_shards = SHARDS;
        config.checkpoint_bytes_max = 1;
    })
}

fn open_follower(world: &SimWorld) -> Node {
    let mut config = BrokerConfig::new("/data".into());
    config.sync_shards = SHARDS;
    config.journal_file_bytes = 1 << 20;
    config.disk_reserve_bytes = 0;
    config.node = Some(NodeId(2));
    config.checkpoint_bytes_max = 1;
    let broker = Broker::open_follower(world.env(), config, BTreeMap::new()).expect("the directory opens");
    let session = broker.new_session();
    Node { broker, client: Arc::default(), session, next_token: 0 }
}

/// Sends the follower the frames that it lacks, the metadata's shard last.
fn copy(writer: &Node, follower: &Node) {
    for shard in writer.broker.shards().iter().rev() {
        let next = follower.broker.committed(shard.id).map_or(Index(0), Index::next);
        if writer.broker.committed(shard.id).is_some_and(|committed| committed >= next) {
            let frames = writer.broker.frames(shard.id, next, usize::MAX).unwrap();
            follower.broker.receive(shard.id, &frames).unwrap();
            follower.drive();
        }
    }
}

fn assert_same(one: &Node, other: &Node) {
    for shard in one.broker.shards() {
        let state = |node: &Node| node.broker.applied_state(shard.id).unwrap().unwrap();
        let (one, other) = (state(one), state(other));
        assert_eq!((one.index, one.differences(&other)), (other.index, vec![]), "shard {}", shard.id);
        assert_eq!(one.hash(), other.hash());
    }
}

fn epoch_end(node: &mut Node, partition: PartitionId) -> EpochEnd {
    let epoch = node.broker.catalog().topic("t").unwrap().partitions[0].leader_epoch;
    match node.ask_now(Request::EpochEnds(vec![EpochEndQuery { partition, epoch }])) {
        Reply::EpochEnds(mut ends) => ends.remove(0).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_follower_serves_reads_and_refuses_what_is_the_writers() {
    let (one, other) = (SimWorld::new(1), SimWorld::new(2));
    let (mut writer, mut follower) = (open_writer(&one), open_follower(&other));
    let topic = writer.create("t", 2, TopicConfig::default());
    let queue = writer.queue("q", QueueSettings::default());
    let partition = topic.partitions[0].id;
    writer.append(stamped(partition, "a", 0)).unwrap();
    writer.publish(vec![message(&[queue], "m")]).remove(0).unwrap();
    assert!(follower.broker.catalog().topic("t").is_none());
    copy(&writer, &follower);
    assert_same(&writer, &follower);
    assert_eq!(follower.text(partition, 0), "a");
    assert_eq!(follower.broker.catalog().topic("t"), writer.broker.catalog().topic("t"), "leader epochs among it");

    // Proposed and uncommitted entries are not visible, and do not end an epoch.
    writer.start(Request::Append(AppendRequest { entries: vec![entry(partition, "b")], ack: Ack::Committed }));
    assert_eq!(epoch_end(&mut writer, partition).end, Some(Offset(1)));
    assert_eq!(epoch_end(&mut follower, partition).end, Some(Offset(1)));
    assert_eq!(follower.read(partition, 1).unwrap().high_watermark, Offset(1));

    let lost = Unavailable::NotCommitted;
    assert_eq!(follower.append(entry(partition, "x")).unwrap_err(), AppendError::Unavailable(lost));
    assert_eq!(follower.publish(vec![message(&[queue], "x")]), [Err(PublishError::Unavailable(lost))]);
    assert_eq!(follower.attach(queue, ConsumerSpec::default()), Err(AttachError::Unavailable(lost)));
    let new = NewTopic { name: "n".into(), partitions: 1, config: TopicConfig::default(), internal: false };
    let create = CreateTopics { topics: vec![new], validate_only: false };
    let Reply::CreateTopics(created) = follower.ask_now(Request::CreateTopics(create)) else { panic!() };
    assert_eq!(created.into_iter().next().unwrap().unwrap_err(), TopicError::Unavailable(lost));
    for _ in 0..10 {
        other.clock.advance_ms(600_000);
        follower.background();
    }
    assert!(follower.delivered().is_empty());
    copy(&writer, &follower);
    for shard in follower.broker.shards() {
        assert_eq!(follower.broker.role(shard.id), Some(Role::Follower));
        assert_eq!(follower.broker.committed(shard.id), writer.broker.committed(shard.id), "nothing of its own");
    }
    assert_same(&writer, &follower);
}

/// What is set for a topic is a record in the shards of its partitions, and a follower applies it like any other.
#[test]
fn a_follower_has_the_settings_that_were_changed() {
    let (one, other) = (SimWorld::new(1), SimWorld::new(2));
    let (mut writer, follower) = (open_writer(&one), open_follower(&other));
    let topic = writer.create("t", 2, TopicConfig::default());
    copy(&writer, &follower);
    let raw = BTreeMap::from([("retention.bytes".to_owned(), "1000".to_owned())]);
    let config = TopicConfig { retention_bytes: Some(1_000), raw, ..TopicConfig::default() };
    let change = ConfigChange { expected: BTreeMap::new(), config };
    let changes = vec![TopicChange { topic: topic.id, config: Some(change), partitions: None }];
    let altered = writer.ask(Request::AlterTopics(AlterTopics { changes, validate_only: false }));
    assert!(matches!(altered, Reply::AlterTopics(results) if results == [Ok(())]));
    copy(&writer, &follower);
    assert_same(&writer, &follower);
}

/// A shard that a follower opened after it had applied the metadata had the metadata's partitions before its own frames opened them.
#[test]
fn a_shards_state_does_not_depend_on_how_far_the_metadata_is() {
    let worlds = [1, 2, 3].map(SimWorld::new);
    let mut writer = open_writer(&worlds[0]);
    let [after, before] = [1, 2].map(|world| open_follower(&worlds[world]));
    let topic = writer.create("t", 4, TopicConfig::default());
    writer.queue("q", QueueSettings::default());
    writer.append(entry(topic.partitions[0].id, "a")).unwrap();
    let frames = |shard| writer.broker.frames(shard, Index(0), usize::MAX).unwrap();
    after.broker.receive(META_SHARD, &frames(META_SHARD)).unwrap();
    after.drive();
    let mut compared = 0;
    for shard in writer.broker.shards().iter().map(|shard| shard.id).filter(|id| *id != META_SHARD) {
        for frame in frames(shard) {
            let states = [&after, &before].map(|node| {
                node.broker.receive(shard, std::slice::from_ref(&frame)).unwrap();
                node.drive();
                node.broker.applied_state(shard).unwrap().unwrap()
            });
            assert_eq!(states[0].differences(&states[1]), vec![], "shard {shard} at {}", frame.index);
            compared += 1;
        }
    }
    assert!(compared > 4, "{compared}");
}

/// A start took the metadata's partitions into shards whose own records had not opened them yet.
#[test]
fn nor_after_a_restart_behind_any_frame() {
    let worlds = [1, 2, 3].map(SimWorld::new);
    let mut writer = open_writer(&worlds[0]);
    let [mut after, mut before] = [1, 2].map(|world| open_follower(&worlds[world]));
    let topic = writer.create("t", 4, TopicConfig::default());
    writer.queue("q", QueueSettings::default());
    writer.append(entry(topic.partitions[0].id, "a")).unwrap();
    let frames = |shard| writer.broker.frames(shard, Index(0), usize::MAX).unwrap();
    after.broker.receive(META_SHARD, &frames(META_SHARD)).unwrap();
    after.drive();
    let mut compared = 0;
    for shard in writer.broker.shards().iter().map(|shard| shard.id).filter(|id| *id != META_SHARD) {
        for frame in frames(shard) {
            let mut states = Vec::new();
            for (node, world) in [(&mut after, &worlds[1]), (&mut before, &worlds[2])] {
                node.broker.receive(shard, std::slice::from_ref(&frame)).unwrap();
                node.drive();
                world.crash();
                *node = open_follower(world);
                states.push(node.broker.applied_state(shard).unwrap().unwrap());
            }
            assert_eq!(states[0].index, frame.index);
            assert_eq!(states[0].differences(&states[1]), vec![], "shard {shard} at {}", frame.index);
            compared += 1;
        }
    }
    assert!(compared > 4, "{compared}");
}

#[test]
fn a_follower_is_one_again_after_a_start() {
    let (one, other) = (SimWorld::new(1), SimWorld::new(2));
    let (mut writer, before) = (open_writer(&one), open_follower(&other));
    let partition = writer.create("t", 2, TopicConfig::default()).partitions[1].id;
    writer.append(entry(partition, "a")).unwrap();
    copy(&writer, &before);
    drop(before);
    other.crash();
    let mut follower = open_follower(&other);
    assert_eq!(follower.text(partition, 0), "a");
    writer.background();
    writer.append(stamped(partition, "b", 0)).unwrap();
    copy(&writer, &follower);
    assert_eq!(follower.text(partition, 1), "b");
    assert_same(&writer, &follower);
    // Both have written other checkpoints before this one, the follower a single one.
    writer.background();
    follower.background();
    for shard in writer.broker.shards() {
        let hash = writer.broker.checkpoint_hash(shard.id);
        assert!(hash.is_some_and(|(index, _)| Some(index) == writer.broker.committed(shard.id)), "{hash:?}");
        assert_eq!(hash, follower.broker.checkpoint_hash(shard.id), "shard {}", shard.id);
    }
}

/// A follower whose power went before it had the metadata did not open its other shards, and was sent their first frames again.
#[test]
fn a_follower_opens_shards_that_its_metadata_does_not_name_yet() {
    let (one, other) = (SimWorld::new(1), SimWorld::new(2));
    let (mut writer, before) = (open_writer(&one), open_follower(&other));
    let partition = writer.create("t", 1, TopicConfig::default()).partitions[0].id;
    writer.append(entry(partition, "a")).unwrap();
    let shard = ShardId(1);
    before.broker.receive(shard, &writer.broker.frames(shard, Index(0), usize::MAX).unwrap()).unwrap();
    before.drive();
    drop(before);
    other.crash();
    let mut follower = open_follower(&other);
    assert_eq!(follower.broker.committed(shard), writer.broker.committed(shard));
    copy(&writer, &follower);
    assert_same(&writer, &follower);
    assert_eq!(follower.text(partition, 0), "a");
}

#[test]
fn a_follower_that_takes_over_goes_on_where_the_writer_was() {
    let (one, other) = (SimWorld::new(1), SimWorld::new(2));
    let (mut writer, mut follower) = (open_writer(&one), open_follower(&other));
    let topic = writer.create("t", 2, TopicConfig::default());
    let (partition, epoch) = (topic.partitions[0].id, topic.partitions[0].leader_epoch);
    let queue = writer.queue("q", QueueSettings::default());
    writer.append(stamped(partition, "a", 0)).unwrap();
    writer.publish(vec![message(&[queue], "m"), message(&[queue], "n")]);
    writer.attach(queue, ConsumerSpec { credit: Some(1), ..ConsumerSpec::default() }).unwrap();
    let first = writer.delivered();
    assert_eq!(writer.settle(&first, Settle::Accept), [Ok(())]);
    copy(&writer, &follower);
    drop(writer);

    follower.broker.take_over().unwrap();
    follower.drive();
    let now = follower.broker.catalog().topic("t").unwrap().partitions[0].leader_epoch;
    assert!(now > epoch, "{now}");
    assert_eq!(epoch_end(&mut follower, partition).end, Some(Offset(1)));
    let again = follower.append(stamped(partition, "a", 0)).unwrap();
    assert_eq!((again.base_offset, again.duplicate), (Offset(0), true), "a retry is known");
    assert_eq!(follower.append(stamped(partition, "b", 1)).unwrap().base_offset, Offset(1));
    follower.attach(queue, ConsumerSpec::default()).unwrap();
    assert_eq!(crate::node::texts(&follower.delivered()), ["n"]);
    let new = follower.create("n", 1, TopicConfig::default()).partitions[0].id;
    assert_eq!(follower.append(entry(new, "x")).unwrap().base_offset, Offset(0));

    // From then on it is a writer's directory.
    drop(follower);
    other.kill();
    let mut again = open_writer(&other);
    assert_eq!(again.text(partition, 0), "ab");
    assert_eq!(again.text(new, 0), "x");
}

/// Frames are received in order, each once, in the writer's bytes.
#[test]
fn a_follower_takes_frames_in_their_order_only() {
    let (one, other) = (SimWorld::new(1), SimWorld::new(2));
    let (mut writer, follower) = (open_writer(&one), open_follower(&other));
    let partition = writer.create("t", 1, TopicConfig::default()).partitions[0].id;
    writer.append(entry(partition, "a")).unwrap();
    let shard = writer.broker.partition_status(partition).unwrap().shard;
    let frames = writer.broker.frames(shard, Index(0), usize::MAX).unwrap();
    assert!(follower.broker.receive(shard, &frames[1..]).is_err(), "a gap");
    follower.broker.receive(shard, &frames).unwrap();
    while follower.broker.log_step(Work::Write) | follower.broker.log_step(Work::Flush) {}
    assert!(follower.broker.receive(shard, &frames[..1]).is_err(), "once more");
    let copied = follower.broker.frames(shard, Index(0), usize::MAX).unwrap();
    assert_eq!(copied.len(), frames.len());
    for (copied, frame) in copied.iter().zip(&frames) {
        assert_eq!(copied.bytes[64..], frame.bytes[64..], "frame {}", frame.index);
    }
}
