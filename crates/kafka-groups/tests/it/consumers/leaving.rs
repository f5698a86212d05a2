//! Members leave, and fall silent.

use super::*;

#[test]
fn what_a_member_leaves_is_for_the_others() {
    let (mut host, id) = host(4);
    host.two("g", id, 4);
    let reply = host.consumer(beats("g", "a", -1));
    assert_eq!((reply.error, reply.member_id.as_deref(), reply.member_epoch), (ErrorCode::None, Some("a"), -1));
    assert_eq!((reply.heartbeat_interval_ms, reply.assignment), (0, None));
    assert_eq!(host.state("g"), Some(GroupState::Assigning));
    assert_eq!(host.taken(beats("g", "b", 2)), (3, Some(vec![0, 1, 2, 3])));
    let reply = host.consumer(beats("g", "a", -1));
    assert_eq!(refused(&reply), (ErrorCode::UnknownMemberId, "Member a is not a member of group g."));
}

#[test]
fn the_last_member_leaves_an_empty_group_whose_epoch_goes_on() {
    let (mut host, _) = host(1);
    host.taken(joins("g", "a"));
    host.taken(beats("g", "a", -1));
    assert_eq!(host.state("g"), Some(GroupState::Empty));
    assert_eq!(host.describe_consumer("g").epoch, 2);
    host.crash();
    assert_eq!(host.taken(joins("g", "a")), (3, Some(vec![0])));
}

#[test]
fn a_silent_member_is_removed_after_the_session_timeout() {
    let (mut host, id) = host(2);
    host.two("g", id, 2);
    for _ in 0..5 {
        host.advance(44_000);
        assert_eq!(host.consumer(beats("g", "b", 2)).error, ErrorCode::None);
        host.taken(beats("g", "a", 2));
    }
    host.advance(44_999);
    host.taken(beats("g", "b", 2));
    host.advance(1);
    assert_eq!(host.consumer(beats("g", "a", 2)).error, ErrorCode::UnknownMemberId);
    assert_eq!(host.taken(beats("g", "b", 2)), (3, Some(vec![0, 1])));
}

#[test]
fn an_empty_group_without_offsets_ends_with_the_next_look_and_begins_anew() {
    let (mut host, _) = host(1);
    host.taken(joins("g", "a"));
    host.taken(beats("g", "a", -1));
    host.commit(crate::host::commit("g", "t", &[(0, 1)]));
    host.advance(1_200_000);
    assert_eq!(host.state("g"), Some(GroupState::Empty));
    // the offset expires a week after it was committed
    host.advance(7 * 24 * 3_600_000);
    assert_eq!(host.state("g"), None);
    assert_eq!(host.taken(joins("g", "a")), (1, Some(vec![0])));
}

#[test]
fn offsets_of_topics_that_members_read_do_not_expire() {
    let (mut host, _) = host(1);
    host.topics.create("u", 1);
    host.taken(joins("g", "a"));
    for topic in ["t", "u"] {
        let request =
            CommitOffsets { generation: 1, member_id: text("a"), ..crate::host::commit("g", topic, &[(0, 1)]) };
        assert_eq!(host.commit(request), [ErrorCode::None]);
    }
    for _ in 0..=7 * 24 * 120 {
        host.advance(30_000);
        host.taken(beats("g", "a", 1));
    }
    host.advance(30_000);
    assert_eq!(host.fetch_all("g"), [("t".into(), 0, 1)]);
}

#[test]
fn nothing_is_left_of_a_group_that_is_gone() {
    let (mut host, id) = host(10);
    let before = host.machine.memory();
    host.two("g", id, 10);
    assert!(host.machine.memory() > before + 2_000);
    host.advance(100_000);
    host.advance(1_200_000);
    assert_eq!((host.state("g"), host.machine.memory()), (None, before));
    host.deadlines = 0;
    host.advance(3_600_000);
    assert!(host.deadlines < 10, "{}", host.deadlines);
}
