//! Expiry of offsets and of groups (KIP-211, KIP-496).

use crate::host::*;
use polylogue_kafka_codec::ErrorCode;
use polylogue_kafka_groups::command::*;
use polylogue_kafka_groups::{GroupSettings, GroupState};

const DAY_MS: u64 = 24 * 3_600_000;
const CHECK_MS: u64 = 10 * 60 * 1_000;

fn host() -> Host {
    let mut host = Host::quick();
    host.topics.create("t", 4);
    host.topics.create("u", 4);
    host
}

#[test]
fn offsets_of_an_empty_group_go_a_week_after_it_became_empty() {
    let mut host = host();
    let ids = host.stable("g", 1);
    let request = CommitOffsets { generation: 1, member_id: ids[0].clone(), ..commit("g", "t", &[(0, 5)]) };
    assert_eq!(host.commit(request), [ErrorCode::None]);
    for _ in 0..(20 * DAY_MS / 9_000) {
        host.advance(9_000);
        host.beat(beat("g", 1, &ids[0]));
    }
    assert_eq!(host.fetch_all("g").len(), 1, "twenty days in use");
    host.leave("g", vec![leaving(&ids[0], None)]);
    host.advance(7 * DAY_MS - 1);
    assert_eq!(host.fetch_all("g").len(), 1);
    host.advance(CHECK_MS);
    assert_eq!(host.fetch_all("g"), []);
    assert_eq!(host.state("g"), None, "the group is deleted with its last offset");
    assert_eq!((host.machine.memory(), host.next_deadline().is_some()), (0, true));
    host.advance(CHECK_MS);
    assert_eq!(host.next_deadline(), None);
}

#[test]
fn expiry_is_a_record_and_survives_a_restart() {
    let mut host = host();
    host.commit(commit("g", "t", &[(0, 5)]));
    let records = host.log.len();
    host.advance(7 * DAY_MS + CHECK_MS);
    assert_eq!(host.log.len(), records + 1);
    host.crash();
    assert_eq!(host.fetch_all("g"), []);
}

#[test]
fn offsets_of_who_is_no_member_go_a_week_after_their_commit() {
    let mut host = host();
    host.commit(commit("g", "t", &[(0, 5)]));
    host.advance(3 * DAY_MS);
    host.commit(commit("g", "t", &[(1, 6)]));
    host.advance(4 * DAY_MS + CHECK_MS);
    assert_eq!(host.fetch_all("g"), [("t".into(), 1, 6)]);
    host.advance(3 * DAY_MS);
    assert_eq!(host.state("g"), None);
}

#[test]
fn a_commit_renews_its_offset() {
    let mut host = host();
    host.commit(commit("g", "t", &[(0, 5)]));
    for n in 0..5 {
        host.advance(6 * DAY_MS);
        host.commit(commit("g", "t", &[(0, n)]));
    }
    assert_eq!(host.fetch_all("g").len(), 1);
}

#[test]
fn a_commit_on_its_way_is_not_expired_with_its_predecessor() {
    let mut host = host();
    host.commit(commit("g", "t", &[(0, 5)]));
    host.advance(7 * DAY_MS - 1_000);
    host.commit_at_once = false;
    let caller = host.send(GroupCommand::CommitOffsets(commit("g", "t", &[(0, 6)])));
    host.advance(CHECK_MS);
    assert_eq!(host.in_flight.len(), 2, "the commit, and the expiry of the offsets before it");
    host.commit_all();
    assert!(matches!(host.reply(caller), GroupReply::CommitOffsets(_)));
    assert_eq!(host.fetch_all("g"), [("t".into(), 0, 6)]);
}

#[test]
fn a_client_may_ask_for_another_time_as_old_versions_could() {
    let mut host = host();
    let request = |partition, retention_time_ms| CommitOffsets {
        version: 4,
        retention_time_ms,
        ..commit("g", "t", &[(partition, 1)])
    };
    host.commit(request(0, 3_600_000));
    host.commit(request(1, 30 * i64::try_from(DAY_MS).unwrap()));
    host.commit(request(2, -1));
    // As in Kafka, any other negative time has already expired.
    host.commit(request(3, -2));
    let left = |host: &mut Host| host.fetch_all("g").iter().map(|o| o.1).collect::<Vec<_>>();
    host.advance(CHECK_MS);
    assert_eq!(left(&mut host), [0, 1, 2]);
    host.advance(3_600_000);
    assert_eq!(left(&mut host), [1, 2]);
    host.advance(7 * DAY_MS);
    assert_eq!(left(&mut host), [1]);
    host.advance(24 * DAY_MS);
    assert_eq!(host.state("g"), None);
}

#[test]
fn a_stable_group_loses_offsets_of_topics_that_it_no_longer_reads() {
    let mut host = host();
    host.commit(commit("g", "t", &[(0, 5)]));
    host.commit(commit("g", "u", &[(0, 5)]));
    let ids = host.stable("g", 1);
    for _ in 0..(7 * DAY_MS / 9_000) + 100 {
        host.advance(9_000);
        host.beat(beat("g", 1, &ids[0]));
    }
    assert_eq!(host.fetch_all("g"), [("t".into(), 0, 5)]);
}

#[test]
fn an_empty_group_without_offsets_is_gone_at_the_next_look() {
    let mut host = host();
    let ids = host.stable("g", 1);
    host.leave("g", vec![leaving(&ids[0], None)]);
    assert_eq!(host.state("g"), Some(GroupState::Empty));
    host.advance(CHECK_MS);
    assert_eq!(host.state("g"), None);
    host.crash();
    assert_eq!(host.state("g"), None);
}

#[test]
fn a_group_that_somebody_joins_while_it_is_dropped_lives_on() {
    let mut host = host();
    let ids = host.stable("g", 1);
    host.leave("g", vec![leaving(&ids[0], None)]);
    host.commit_at_once = false;
    host.advance(CHECK_MS);
    assert_eq!(host.in_flight.len(), 1, "the group is to be dropped");
    let (id, caller) = host.newcomer(join("g", ""));
    let joined = host.joined(caller);
    assert_eq!(joined.generation, 3);
    host.commit_at_once = true;
    host.commit_all();
    assert_eq!(host.sync(sync("g", 3, &id, &[(&id, "x")])).error, ErrorCode::None);
    host.crash();
    assert_eq!(host.beat(beat("g", 3, &id)), ErrorCode::None);
}

#[test]
fn retention_can_be_changed_while_running() {
    let mut host = host();
    host.commit(commit("g", "t", &[(0, 5)]));
    host.advance(DAY_MS);
    host.configure(GroupSettings { offsets_retention_ms: DAY_MS, ..GroupSettings::default() });
    host.advance(CHECK_MS);
    assert_eq!(host.state("g"), None);
}

#[test]
fn a_hundred_thousand_timers_do_not_come_in_one_call() {
    let mut host = host();
    for n in 0..3_000 {
        host.commit(commit(&format!("g{n}"), "t", &[(0, 1)]));
    }
    // One call visits a bounded number of groups, and the next deadline is then still in the past.
    host.advance(CHECK_MS - 1);
    host.now.monotonic_ms += 1;
    host.deadline();
    assert!(host.next_deadline().is_some_and(|at| at <= host.now.monotonic_ms));
    for _ in 0..3 {
        host.deadline();
    }
    assert!(host.next_deadline().is_some_and(|at| at > host.now.monotonic_ms));
}
