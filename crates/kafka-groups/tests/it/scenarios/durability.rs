//! Crashes, and loss of the writer.

use crate::host::*;
use polylogue_kafka_codec::ErrorCode;
use polylogue_kafka_groups::command::*;
use polylogue_kafka_groups::{GroupSettings, GroupState};

#[test]
fn after_a_restart_members_go_on_in_their_generation() {
    let mut host = Host::quick();
    let ids = host.stable("g", 3);
    let generation = host.machine.summary("g").unwrap().generation;
    let before = host.machine.described("g");
    host.advance(9_999);
    host.crash();
    assert_eq!(host.machine.described("g"), before);
    // Sessions start again.
    host.advance(9_999);
    for id in &ids {
        assert_eq!(host.beat(beat("g", generation, id)), ErrorCode::None);
        assert_eq!(host.sync(sync("g", generation, id, &[])).assignment, id.as_bytes());
    }
    // Members that do not return are removed as usual.
    host.advance(5_000);
    assert_eq!(host.beat(beat("g", generation, &ids[0])), ErrorCode::None);
    host.advance(5_000);
    assert_eq!(host.beat(beat("g", generation, &ids[0])), ErrorCode::RebalanceInProgress);
}

#[test]
fn an_empty_group_keeps_its_generation_over_a_restart() {
    let mut host = Host::quick();
    let ids = host.stable("g", 1);
    host.leave("g", vec![leaving(&ids[0], None)]);
    host.crash();
    assert_eq!(host.machine.summary("g").unwrap().generation, 2);
    let (_, caller) = host.newcomer(join("g", ""));
    assert_eq!(host.joined(caller).generation, 3);
}

#[test]
fn a_rebalance_that_was_not_finished_is_forgotten_by_a_crash() {
    let mut host = Host::quick();
    let ids = host.stable("g", 1);
    let (second, new) = host.newcomer(join("g", ""));
    host.join(join("g", &ids[0]));
    host.joined(new);
    host.commit_at_once = false;
    let leader = host.send(GroupCommand::Sync(sync("g", 2, &ids[0], &[(&ids[0], "a"), (&second, "b")])));
    assert!(host.is_waiting(leader));
    host.crash();
    host.commit_at_once = true;
    assert_eq!(host.beat(beat("g", 2, &ids[0])), ErrorCode::IllegalGeneration);
    assert_eq!(host.beat(beat("g", 1, &ids[0])), ErrorCode::None);
    assert_eq!(host.join(join("g", &second)).error, ErrorCode::UnknownMemberId);
}

#[test]
fn a_group_over_a_bound_that_was_lowered_rebalances_after_a_restart() {
    let mut host = Host::quick();
    host.stable("g", 3);
    host.configure(GroupSettings { group_size_max: 2, ..GroupSettings::default() });
    host.crash();
    assert_eq!(host.state("g"), Some(GroupState::PreparingRebalance));
}

#[test]
fn who_waits_when_the_writer_is_lost_is_sent_to_find_the_coordinator() {
    let mut host = Host::quick();
    host.topics.create("t", 1);
    let ids = host.stable("g", 2);
    let generation = host.machine.summary("g").unwrap().generation;
    let joining = host.send(GroupCommand::Join(join("g", &ids[0])));
    host.commit_at_once = false;
    let request = CommitOffsets { generation, member_id: ids[1].clone(), ..commit("g", "t", &[(0, 1)]) };
    let committing = host.send(GroupCommand::CommitOffsets(request));
    host.lose_writer();
    let joined = host.joined(joining);
    assert_eq!((joined.error, &joined.member_id), (ErrorCode::NotCoordinator, &ids[0]));
    assert!(matches!(host.take(committing), Some(CallerReply::Unavailable)));
    assert_eq!(host.waiting(), 0);
    // The group has the committed state.
    assert_eq!(host.state("g"), Some(GroupState::Stable));
    assert_eq!(host.beat(beat("g", generation, &ids[1])), ErrorCode::None);
    assert_eq!(host.fetch_all("g"), []);
}

#[test]
fn a_generation_that_was_told_is_not_told_again_after_the_writer_was_lost() {
    let mut host = Host::quick();
    let ids = host.stable("g", 2);
    // Both get generation 3, whose assignment is dropped with the writer.
    let leader = host.send(GroupCommand::Join(join("g", &ids[0])));
    assert_eq!(host.join(join("g", &ids[1])).generation, 3);
    host.joined(leader);
    host.commit_at_once = false;
    let follower = host.send(GroupCommand::Sync(sync("g", 3, &ids[1], &[])));
    let leader = host.send(GroupCommand::Sync(sync("g", 3, &ids[0], &[(&ids[0], "old")])));
    host.lose_writer();
    assert!(matches!(host.take(follower), Some(CallerReply::Unavailable)));
    assert!(matches!(host.take(leader), Some(CallerReply::Unavailable)));
    host.commit_at_once = true;
    let leader = host.send(GroupCommand::Join(join("g", &ids[0])));
    assert_eq!(host.join(join("g", &ids[1])).generation, 4);
    assert_eq!(host.joined(leader).generation, 4);
    assert_eq!(host.sync(sync("g", 3, &ids[0], &[(&ids[0], "old")])).error, ErrorCode::IllegalGeneration);
}

#[test]
fn a_lost_writer_leaves_no_timers_behind() {
    let mut host = Host::quick();
    host.topics.create("t", 1);
    host.commit(commit("g", "t", &[(0, 1)]));
    host.stable("h", 3);
    for _ in 0..50 {
        host.advance(1_000);
        host.lose_writer();
    }
    host.deadlines = 0;
    host.advance(3_600_000);
    assert!(host.deadlines < 20, "{}", host.deadlines);
}

#[test]
fn a_static_member_whose_new_id_was_not_committed_is_its_predecessor_again() {
    let mut host = Host::quick();
    let old = host.join(static_join("g", "", "i")).member_id;
    host.sync(sync("g", 1, &old, &[(&old, "x")]));
    host.commit_at_once = false;
    let back = host.send(GroupCommand::Join(static_join("g", "", "i")));
    host.lose_writer();
    assert!(matches!(host.take(back), Some(CallerReply::Unavailable)));
    assert_eq!(host.beat(Heartbeat { instance_id: Some(text("i")), ..beat("g", 1, &old) }), ErrorCode::None);
}

#[test]
fn checkpoint_and_suffix_are_the_whole_log() {
    let mut host = Host::quick();
    host.topics.create("t", 300);
    host.topics.create("u", 2);
    let ids = host.stable("g", 2);
    host.commit(commit("h", "t", &(0..300).map(|n| (n, 1)).collect::<Vec<_>>()));
    host.commit(commit("h", "u", &[(0, 7)]));
    host.checkpoint();
    host.commit(commit("h", "t", &[(7, 2), (299, 3)]));
    host.leave("g", vec![leaving(&ids[0], None)]);
    host.delete_topic("u");
    host.stable("k", 1);
    host.advance(20_000);
    let [from_log, from_checkpoint, taken] = host.both_states();
    assert!(from_log == from_checkpoint && from_log == taken);
    assert!(from_log.len() > 3);
    let before = host.machine.described("k");
    host.crash();
    assert_eq!(host.machine.described("k"), before);
}

#[test]
fn a_record_that_cannot_be_read_is_told() {
    let mut host = Host::quick();
    let mut reported = Ok(());
    host.with(|machine, _, _| reported = polylogue_api::StateMachine::apply(machine, &[77, 1, 2, 3], 0));
    assert!(reported.is_err_and(|why| why.contains("77")));
}

#[test]
fn a_member_keeps_nothing_of_the_frame_it_came_in() {
    // A frame of a megabyte of which a few bytes are kept.
    let frame = bytes::Bytes::from(vec![b'x'; 1 << 20]);
    let piece = |at: usize| polylogue_kafka_codec::StrBytes::try_from(frame.slice(at..at + 4)).unwrap();
    let mut host = Host::quick();
    host.topics.create("t", 1);
    let request = JoinGroup {
        version: 3,
        group_id: piece(0),
        client_id: piece(8),
        client_host: piece(16),
        instance_id: Some(piece(24)),
        protocol_type: piece(32),
        protocols: vec![Protocol { name: piece(40), metadata: frame.slice(48..52) }],
        ..join("", "")
    };
    let joined = host.join(request);
    let assignments = vec![Assignment { member_id: joined.member_id.clone(), assignment: frame.slice(56..60) }];
    let request = SyncGroup {
        version: 4,
        protocol_name: None,
        protocol_type: None,
        group_id: piece(0),
        assignments,
        ..sync("", 1, &joined.member_id, &[])
    };
    host.sync(request);
    host.beat(Heartbeat { group_id: piece(0), ..beat("", 1, &joined.member_id) });
    let request =
        CommitOffsets { group_id: piece(0), generation: 1, member_id: joined.member_id, ..commit("", "t", &[(0, 1)]) };
    host.commit(request);
    assert!(frame.is_unique(), "something holds on to the frame");
}

/// Regression test: a refused record cost the writer, and all groups had to find the coordinator again.
#[test]
fn a_refused_assignment_concerns_its_group_alone() {
    let mut host = Host::quick();
    let other = host.stable("other", 2);
    let ids = host.stable("g", 1);
    let before = host.machine.described("g");
    let (second, new) = host.newcomer(join("g", ""));
    host.join(join("g", &ids[0]));
    assert_eq!(host.joined(new).generation, 2);
    let follower = host.send(GroupCommand::Sync(sync("g", 2, &second, &[])));
    host.refuses = true;
    let leader = host.send(GroupCommand::Sync(sync("g", 2, &ids[0], &[(&ids[0], "a"), (&second, "b")])));
    host.refuses = false;
    assert!(matches!(host.take(leader), Some(CallerReply::Unavailable)));
    assert!(!host.is_waiting(follower), "a member that waits for the assignment is answered");
    // The group has its last committed state, and continues from there.
    assert_eq!(host.machine.described("g"), before);
    assert_eq!(host.beat(beat("g", 2, &ids[0])), ErrorCode::IllegalGeneration);
    assert_eq!(host.beat(beat("g", 1, &ids[0])), ErrorCode::None);
    assert_eq!(host.join(join("g", &second)).error, ErrorCode::UnknownMemberId);
    let generation = host.machine.summary("other").unwrap().generation;
    assert!(other.iter().all(|id| host.beat(beat("other", generation, id)) == ErrorCode::None));
    let memory = host.machine.memory();
    host.crash();
    assert_eq!(host.machine.memory(), memory, "nothing of it is left");
}

/// The assignment before the refused one is still uncommitted: the group is rebuilt after its commit.
#[test]
fn a_group_waits_for_what_is_on_its_way_when_a_later_record_is_refused() {
    let mut host = Host::quick();
    host.topics.create("t", 1);
    let ids = host.stable("g", 1);
    host.commit_at_once = false;
    let members = vec![leaving(&ids[0], None)];
    host.send(GroupCommand::Leave(LeaveGroup { version: 5, group_id: text("g"), members }));
    let (second, new) = host.newcomer(join("g", ""));
    assert_eq!(host.joined(new).generation, 3);
    host.refuses = true;
    host.send(GroupCommand::Sync(sync("g", 3, &second, &[(&second, "b")])));
    host.refuses = false;
    for _ in 0..3 {
        assert_eq!(host.beat(beat("g", 3, &second)), ErrorCode::NotCoordinator);
        let reported = host.call(GroupCommand::CommitOffsets(commit("g", "t", &[(0, 7)])));
        let GroupReply::CommitOffsets(results) = reported else { panic!("{reported:?}") };
        assert_eq!(results[0].partitions, [(0, ErrorCode::NotCoordinator)]);
        host.advance(100);
    }
    let deletion = host.send(GroupCommand::Delete(DeleteGroups { groups: vec![text("g")] }));
    host.commit_at_once = true;
    host.commit_all();
    assert_eq!(host.reply(deletion), GroupReply::Delete(vec![(text("g"), ErrorCode::NonEmptyGroup)]));
    host.advance(100);
    assert_eq!(host.beat(beat("g", 3, &second)), ErrorCode::UnknownMemberId);
    let (_, third) = host.newcomer(join("g", ""));
    assert_eq!(host.joined(third).generation, 3, "after the last committed one");
}

/// Regression test: members and operators saw an uncommitted assignment as committed.
#[test]
fn what_is_told_of_a_group_waits_for_its_metadata() {
    let mut host = Host::quick();
    let ids = host.stable("g", 1);
    host.commit_at_once = false;
    let rejoined = host.send(GroupCommand::Join(join("g", &ids[0])));
    let generation = host.joined(rejoined).generation;
    host.send(GroupCommand::Sync(sync("g", generation, &ids[0], &[(&ids[0], "b")])));
    let beat = host.send(GroupCommand::Heartbeat(beat("g", generation, &ids[0])));
    let list = host.send(GroupCommand::List(ListGroups::default()));
    let describe = host.send(GroupCommand::Describe(DescribeGroups { version: 6, groups: vec![text("g")] }));
    let delete = host.send(GroupCommand::Delete(DeleteGroups { groups: vec![text("g")] }));
    let waiting = [beat, list, describe, delete];
    assert!(waiting.iter().all(|caller| host.is_waiting(*caller)));
    host.commit_all();
    assert_eq!(host.reply(beat), GroupReply::Heartbeat(ErrorCode::None));
    assert!([list, describe, delete].iter().all(|caller| host.take(*caller).is_some()));
}
