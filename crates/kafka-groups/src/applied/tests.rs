use super::*;
use crate::record::{CommittedOffset, MemberMetadata};

const TOPIC: TopicId = TopicId([1; 16]);
const OTHER: TopicId = TopicId([2; 16]);

fn text(s: &str) -> StrBytes {
    StrBytes::from(s)
}

fn commit(group: &str, topic: TopicId, indexes: impl IntoIterator<Item = i32>, offset: i64) -> Record {
    let offsets = indexes
        .into_iter()
        .map(|index| CommittedOffset { index, offset, leader_epoch: 5, metadata: text("m") })
        .collect();
    Record::Commit { group: text(group), retention_ms: -1, topics: vec![(topic, offsets)] }
}

fn metadata(generation: i32, members: &[&str]) -> Metadata {
    let members = members
        .iter()
        .map(|id| MemberMetadata {
            id: text(id),
            instance_id: None,
            client_id: text("c"),
            client_host: text("/h"),
            session_timeout_ms: 1,
            rebalance_timeout_ms: 2,
            metadata: Bytes::from_static(b"md"),
            assignment: Bytes::from_static(b"as"),
        })
        .collect();
    Metadata { generation, protocol_type: Some(text("consumer")), members, ..Metadata::default() }
}

fn reload(applied: &Applied) -> Applied {
    let all = |id: &StrBytes, group: &AppliedGroup| {
        let mut keys = BTreeSet::from([ChunkKey::Metadata(id.clone()), ChunkKey::Owner(id.clone())]);
        group.topics.iter().for_each(|(topic, offsets)| mark_offsets(&mut keys, id, *topic, offsets));
        keys
    };
    let mut loaded = Applied::default();
    for key in applied.groups().flat_map(|(id, group)| all(id, group)) {
        if let Some(chunk) = applied.chunk(&key) {
            loaded.load_chunk(&key.encode(), &chunk).unwrap();
        }
    }
    loaded
}

#[test]
fn chunks_bring_everything_back() {
    let mut applied = Applied::default();
    applied.apply(Record::Metadata { group: text("g"), metadata: metadata(3, &["a", "b"]) }, 10);
    applied.apply(commit("g", TOPIC, 0..300, 7), 11);
    applied.apply(commit("", OTHER, [5], 9), 12);
    let Record::Commit { group, topics, .. } = commit("g", OTHER, [1], 1) else { unreachable!() };
    applied.apply(Record::Commit { group, retention_ms: 50, topics }, 13);
    applied.apply(Record::Owner { group: text(""), user: text("alice") }, 14);
    let loaded = reload(&applied);
    assert_eq!(loaded.groups, applied.groups);
    assert_eq!(loaded.books, applied.books);
    assert!(loaded.changed.is_empty());
    assert_eq!(loaded.group("g").unwrap().topics[&OTHER][&1].expire_ms(), Some(63));
}

#[test]
fn a_commit_rewrites_its_block_only() {
    let mut applied = Applied::default();
    applied.apply(commit("g", TOPIC, 0..10_000, 1), 1);
    assert_eq!(applied.take_changed_chunks().len(), 79);
    applied.apply(commit("g", TOPIC, [4_000], 2), 2);
    let changed = applied.take_changed_chunks();
    assert_eq!(changed.len(), 1);
    assert!(changed[0].1.as_ref().is_some_and(|chunk| chunk.len() < 128 * 40));
    assert!(applied.take_changed_chunks().is_empty());
}

#[test]
fn all_chunks_together_are_all_that_was_committed() {
    let mut applied = Applied::default();
    applied.apply(Record::Metadata { group: text("g"), metadata: metadata(1, &["a"]) }, 1);
    applied.apply(commit("g", TOPIC, [0, 200, 4_000], 1), 1);
    applied.apply(commit("h", OTHER, [0], 1), 1);
    applied.take_changed_chunks();
    applied.apply(commit("h", OTHER, [1], 1), 1);
    applied.change_all_chunks();
    let mut loaded = Applied::default();
    for (id, chunk) in applied.take_changed_chunks() {
        loaded.load_chunk(&id, &chunk.unwrap()).unwrap();
    }
    assert_eq!(loaded.groups, applied.groups);
    assert!(applied.take_changed_chunks().is_empty());
}

#[test]
fn what_is_removed_removes_its_chunks_and_its_bytes() {
    let mut applied = Applied::default();
    applied.apply(Record::Metadata { group: text("g"), metadata: metadata(1, &["a"]) }, 1);
    applied.apply(commit("g", TOPIC, [0, 200], 1), 1);
    applied.apply(commit("h", TOPIC, [0], 1), 1);
    applied.take_changed_chunks();
    applied.apply(Record::ForgetTopics { topics: vec![TOPIC] }, 2);
    let gone = applied.take_changed_chunks();
    assert_eq!(gone.len(), 3);
    assert!(gone.iter().all(|(_, chunk)| chunk.is_none()));
    assert!(applied.group("h").is_none());
    applied.apply(Record::Delete { group: text("g") }, 3);
    assert_eq!(applied.take_changed_chunks().len(), 1);
    assert_eq!((applied.len(), applied.bytes()), (0, 0));
}

#[test]
fn an_expiry_spares_what_was_committed_since() {
    let mut applied = Applied::default();
    applied.apply(commit("g", TOPIC, [0, 1], 1), 100);
    applied.apply(commit("g", TOPIC, [1], 2), 200);
    let expire = Record::Expire { group: text("g"), topics: vec![(TOPIC, vec![(0, 100), (1, 100)])] };
    applied.apply(expire, 300);
    let left: Vec<i32> = applied.group("g").unwrap().topics[&TOPIC].keys().copied().collect();
    assert_eq!(left, [1]);
}

#[test]
fn a_drop_spares_a_group_that_was_used_since() {
    let drop = || Record::Drop { group: text("g"), generation: 2 };
    let used: [Record; 3] = [
        commit("g", TOPIC, [0], 1),
        Record::Metadata { group: text("g"), metadata: metadata(3, &[]) },
        Record::Metadata { group: text("g"), metadata: metadata(2, &["a"]) },
    ];
    for record in used {
        let mut applied = Applied::default();
        applied.apply(Record::Metadata { group: text("g"), metadata: metadata(2, &[]) }, 1);
        applied.apply(record.clone(), 2);
        applied.apply(drop(), 3);
        assert!(applied.group("g").is_some(), "{record:?}");
    }
    let mut applied = Applied::default();
    applied.apply(Record::Metadata { group: text("g"), metadata: metadata(2, &[]) }, 1);
    applied.apply(drop(), 3);
    assert!(applied.group("g").is_none());
}

#[test]
fn chunks_are_read_strictly() {
    let mut applied = Applied::default();
    applied.apply(commit("g", TOPIC, [0, 1], 1), 1);
    applied.apply(Record::Metadata { group: text("g"), metadata: metadata(1, &["a"]) }, 1);
    for (id, chunk) in applied.take_changed_chunks() {
        let chunk = chunk.unwrap();
        for end in 0..chunk.len() {
            assert!(Applied::default().load_chunk(&id, &chunk[..end]).is_err());
        }
        assert!(Applied::default().load_chunk(&id, &[&chunk[..], &[0]].concat()).is_err());
        assert!(Applied::default().load_chunk(&[], &chunk).is_err());
        assert!(Applied::default().load_chunk(&[9], &chunk).is_err());
    }
    // the block of partition 200 is not block 0
    let mut far = Applied::default();
    far.apply(commit("g", TOPIC, [200], 1), 1);
    let chunks = far.take_changed_chunks();
    let near = ChunkKey::Offsets(text("g"), TOPIC, 0).encode();
    assert!(Applied::default().load_chunk(&near, chunks[0].1.as_ref().unwrap()).is_err());
}

#[test]
fn a_negative_partition_is_kept_without_harm() {
    let mut applied = Applied::default();
    applied.apply(commit("g", TOPIC, [i32::MIN, -1, i32::MAX], 1), 1);
    assert_eq!(reload(&applied).groups, applied.groups);
}

#[test]
fn what_groups_hold_is_in_the_books_of_their_owners_until_they_go() {
    let mut applied = Applied::default();
    let own = |group: &'static str, user: &'static str| Record::Owner { group: text(group), user: text(user) };
    applied.apply(own("g", "alice"), 1);
    assert_eq!(applied.groups().count(), 0, "a group that has nothing has no owner");
    applied.apply(commit("g", TOPIC, 0..300, 7), 2);
    let held = applied.bytes();
    assert_eq!((applied.bytes_of(""), applied.bytes_of("alice")), (held, 0));
    applied.apply(own("g", "alice"), 3);
    applied.apply(own("g", "bob"), 4);
    assert_eq!((applied.bytes_of(""), applied.bytes_of("alice"), applied.bytes_of("bob")), (0, held, 0));
    applied.apply(commit("h", TOPIC, [1], 7), 5);
    applied.apply(Record::Metadata { group: text("h"), metadata: metadata(3, &["a", "b"]) }, 6);
    assert_eq!(applied.bytes_of("alice") + applied.bytes_of(""), applied.bytes());
    applied.apply(Record::ForgetTopics { topics: vec![TOPIC] }, 7);
    assert_eq!(applied.bytes_of("alice"), 0);
    applied.apply(Record::Delete { group: text("h") }, 8);
    assert_eq!(applied.books, Books::default());
    let chunks = applied.take_changed_chunks();
    assert!(chunks.iter().all(|(_, chunk)| chunk.is_none()), "nothing of them is left in a checkpoint");
}
