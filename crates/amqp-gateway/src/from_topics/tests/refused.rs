//! Messages that a queue rejects, temporarily or permanently.

use super::*;

#[test]
fn messages_to_a_full_queue_are_retried_before_later_ones() {
    let mut rig = Rig::with_queue(Some(&[1, 2]), json!({"x-overflow": "reject-publish", "x-max-length": 5}));
    rig.declare();
    rig.produce(1, &["a", "b", "c"]);
    rig.answer(&[Ok(()), FULL, FULL]);
    rig.produce(1, &["d"]);
    rig.produce(2, &["other"]);
    assert_eq!(rig.drained(), ["other"], "another partition does not wait for it");
    let mut waits = Vec::new();
    for _ in 0..10 {
        let due = rig.from.due.iter().find(|(_, due)| matches!(due, Due::Retry(..))).expect("a time for it").0;
        waits.push(due - rig.ms);
        rig.tick(due - rig.ms);
        assert_eq!(rig.bodies(), ["b", "c"], "committed messages are not repeated, and later ones wait");
        rig.answer(&[FULL, FULL]);
    }
    assert_eq!(waits, [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000, 1_000]);
    rig.tick(SAVE_MS);
    assert_eq!(rig.positions()[0], (1, 1));
    rig.tick(1_000);
    rig.answer(&[Ok(()), FULL]);
    rig.tick(1_000);
    assert_eq!(rig.bodies(), ["c"]);
    rig.answer(&[Ok(())]);
    assert_eq!(rig.drained(), ["d"]);
    rig.tick(SAVE_MS);
    assert_eq!(rig.positions()[0], (1, 4));
    let counts = rig.from.take_counts();
    assert_eq!((counts.published, counts.retried, counts.skipped), (5, 23, 0));
}

/// A queue that accepted a message got it again with each retry, while another one was full.
#[test]
fn a_message_is_retried_only_for_queues_that_lack_it() {
    let mut rig = Rig::new(Some(&[1]));
    let full = rig.world.queue("full", json!({"x-overflow": "reject-publish", "x-max-length": 5}));
    rig.declare();
    rig.bind("full");
    rig.produce(1, &["a", "b"]);
    assert_eq!(rig.published(), [("a".to_owned(), 2), ("b".to_owned(), 2)]);
    rig.answer(&[FULL, Ok(())]);
    rig.tick(1_000);
    assert_eq!(rig.published(), [("a".to_owned(), 1), ("a".to_owned(), 1)], "to each separately");
    let refused =
        rig.publishes[0].1.iter().map(|m| if m.queues[0].queue == full { FULL } else { Ok(()) }).collect::<Vec<_>>();
    rig.answer(&refused);
    for how in [FULL, Err(PublishError::Unavailable(Unavailable::StorageFull)), Ok(())] {
        rig.tick(1_000);
        assert_eq!(rig.publishes[0].1[0].queues[0].queue, full);
        assert_eq!(rig.published(), [("a".to_owned(), 1)]);
        rig.answer(&[how]);
    }
    assert_eq!((rig.bodies(), rig.watches.len()), (vec![], 1));
    let counts = rig.from.take_counts();
    assert_eq!((counts.published, counts.retried), (2, 4));
}

#[test]
fn messages_without_a_queue_or_to_a_deleted_queue_are_completed() {
    let mut rig = Rig::new(Some(&[1]));
    rig.declare();
    rig.produce(1, &["a"]);
    rig.answer(&[Err(PublishError::UnknownQueue)]);
    assert_eq!(rig.watches.len(), 1);
    let (vhost, source, to) = (rig.world.vhost, "sales".into(), BindDestination::Queue("q".into()));
    rig.world.act(Command::Unbind(Bind { vhost, source, to, key: "".into(), arguments: Vec::new() }));
    rig.produce(1, &["b"]);
    assert_eq!((rig.publishes.len(), rig.watches.len()), (0, 1));
    rig.tick(SAVE_MS);
    assert_eq!(rig.positions()[0], (1, 2));
    assert_eq!(rig.from.take_counts(), ExchangeCounts { published: 2, ..ExchangeCounts::default() });
}

#[test]
fn unconvertible_records_are_skipped() {
    let mut rig = Rig::new(Some(&[1]));
    rig.declare();
    rig.holds_reads = true;
    rig.produce(1, &["a", &"x".repeat(2_000), "b"]);
    rig.produce_as(1, Codec::Lz4, &["c", "d"], &[]);
    rig.produce(1, &["e", "f"]);
    rig.produce(1, &["g"]);
    rig.produce(1, &["h"]);
    {
        let mut logs = rig.logs.partitions.lock();
        let batches = &mut logs.get_mut(&PartitionId(1)).expect("a partition").0;
        let damage = |batch: &mut Bytes, at: usize, byte: u8| {
            let mut bytes = batch.to_vec();
            bytes[at] = byte;
            *batch = bytes.into();
        };
        // The frame of LZ4; the length of a record; the version of a batch.
        damage(&mut batches[1], 61, 0);
        damage(&mut batches[2], 61, 0xff);
        damage(&mut batches[3], 16, 9);
    }
    rig.holds_reads = false;
    let (token, part) = rig.reads.pop_front().expect("a read");
    let data = rig.logs.read(part);
    rig.from.on_reply(token, Reply::Read(vec![data]), rig.now());
    rig.run();
    assert_eq!(rig.drained(), ["a", "b", "h"]);
    assert_eq!(rig.from.take_counts(), ExchangeCounts { published: 3, retried: 0, skipped: 6 });
    assert_eq!(rig.watches.values().copied().collect::<Vec<_>>(), [(PartitionId(1), 9)]);
}

/// A message larger than its queue's limit was rejected forever, and blocked all later ones. One with a smaller body was skipped because of its
/// headers.
#[test]
fn permanently_rejected_messages_do_not_block_others() {
    let arguments = json!({"x-overflow": "reject-publish", "x-max-length-bytes": 500});
    let mut rig = Rig::with_queue(Some(&[1]), arguments);
    rig.declare();
    let fits = "b".repeat(500);
    rig.produce(1, &["a", &"x".repeat(501), &fits]);
    assert_eq!(rig.bodies(), ["a"], "a smaller one must not pass one that was refused");
    assert_eq!(rig.drained(), ["a", &fits]);
    assert_eq!(rig.from.take_counts().skipped, 1);
}

/// A queue that dead-letters rejected messages dead-lettered a message with each retry.
#[test]
fn rejected_and_dead_lettered_messages_count_as_published() {
    let arguments = json!({"x-overflow": "reject-publish-dlx", "x-max-length": 1, "x-dead-letter-exchange": "d"});
    let mut rig = Rig::with_queue(Some(&[1]), arguments);
    rig.world.queue("other", json!({}));
    rig.declare();
    rig.bind("other");
    rig.produce(1, &["a"]);
    assert_eq!(rig.published(), [("a".to_owned(), 1), ("a".to_owned(), 1)]);
    rig.answer(&[FULL, Ok(())]);
    assert_eq!(rig.from.take_counts(), ExchangeCounts { published: 1, ..ExchangeCounts::default() });
    assert_eq!(rig.watches.len(), 1);
}
