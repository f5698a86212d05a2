//! Offsets of groups of the consumer protocol: who commits, who asks, and in which epoch.

use super::*;
use crate::host::{commit, fetch_group};

fn member_commits(member: &str, epoch: i32, partition: i32) -> CommitOffsets {
    CommitOffsets { generation: epoch, member_id: text(member), ..commit("g", "t", &[(partition, 9)]) }
}

#[test]
fn members_commit_in_their_epoch() {
    let (mut host, id) = host(2);
    host.two("g", id, 2);
    assert_eq!(host.commit(member_commits("a", 2, 0)), [ErrorCode::None]);
    assert_eq!(host.commit(member_commits("a", 3, 0)), [ErrorCode::StaleMemberEpoch]);
    assert_eq!(host.commit(member_commits("x", 2, 0)), [ErrorCode::UnknownMemberId]);
    assert_eq!(host.commit(commit("g", "t", &[(0, 1)])), [ErrorCode::UnknownMemberId]);
    let old = CommitOffsets { version: 8, ..member_commits("a", 2, 0) };
    assert_eq!(host.commit(old), [ErrorCode::UnsupportedVersion]);
    assert_eq!(host.fetch_all("g"), [("t".into(), 0, 9)]);
}

#[test]
fn a_commit_of_an_earlier_epoch_is_taken_for_what_was_held_then() {
    let (mut host, id) = host(2);
    host.two("g", id, 2);
    // a has held 0 since epoch 1, and b has held 1 since epoch 2
    assert_eq!(host.commit(member_commits("a", 1, 0)), [ErrorCode::None]);
    assert_eq!(host.commit(member_commits("a", 1, 1)), [ErrorCode::StaleMemberEpoch]);
    assert_eq!(host.commit(member_commits("b", 1, 1)), [ErrorCode::StaleMemberEpoch]);
    assert_eq!(host.commit(member_commits("a", 0, 0)), [ErrorCode::StaleMemberEpoch]);
}

#[test]
fn what_is_to_be_revoked_can_be_committed() {
    let (mut host, id) = host(2);
    host.taken(joins("g", "a"));
    host.taken(joins("g", "b"));
    host.taken(owns("g", "a", 1, id, &[0, 1]));
    assert_eq!(host.commit(member_commits("a", 1, 1)), [ErrorCode::None]);
}

#[test]
fn tools_commit_while_the_group_is_empty() {
    let (mut host, _) = host(1);
    host.taken(joins("g", "a"));
    host.taken(beats("g", "a", -1));
    assert_eq!(host.commit(commit("g", "t", &[(0, 1)])), [ErrorCode::None]);
    assert_eq!(host.commit(member_commits("a", 1, 0)), [ErrorCode::UnknownMemberId]);
}

#[test]
fn a_commit_is_no_heartbeat() {
    let (mut host, _) = host(1);
    host.taken(joins("g", "a"));
    host.advance(44_000);
    assert_eq!(host.commit(member_commits("a", 1, 0)), [ErrorCode::None]);
    host.advance(1_000);
    assert_eq!(host.state("g"), Some(GroupState::Empty));
}

#[test]
fn members_ask_for_offsets_in_their_epoch() {
    let (mut host, id) = host(2);
    host.two("g", id, 2);
    let ask = |host: &mut Host, member: Option<&str>, epoch: i32| {
        let group = FetchGroup { member_id: member.map(text), member_epoch: epoch, ..fetch_group("g", None) };
        host.fetch(9, vec![group])[0].error
    };
    assert_eq!(ask(&mut host, Some("a"), 2), ErrorCode::None);
    assert_eq!(ask(&mut host, Some("a"), 1), ErrorCode::StaleMemberEpoch);
    assert_eq!(ask(&mut host, Some("x"), 2), ErrorCode::UnknownMemberId);
    assert_eq!(ask(&mut host, None, -1), ErrorCode::None);
}
