//! Groups of the consumer protocol in lists, descriptions and deletions.

use super::*;

fn list(host: &mut Host, states: &[&str], types: &[&str]) -> Vec<(String, &'static str, &'static str)> {
    let texts = |names: &[&str]| names.iter().map(|name| text(name)).collect();
    match host.call(GroupCommand::List(ListGroups { states: texts(states), types: texts(types) })) {
        GroupReply::List(Ok(groups)) => {
            groups.into_iter().map(|g| (g.group_id.to_string(), g.state.name(), g.kind.name())).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn lists_tell_types_and_states() {
    let (mut host, _) = host(1);
    host.stable("classic", 1);
    host.taken(joins("g", "a"));
    host.taken(joins("h", "a"));
    host.taken(joins("h", "b"));
    host.taken(beats("h", "b", -1));
    host.taken(joins("k", "a"));
    host.taken(beats("k", "a", -1));
    let stable = ("g".to_owned(), "Stable", "consumer");
    let all = list(&mut host, &[], &[]);
    let rest = [("h".to_owned(), "Assigning", "consumer"), ("k".to_owned(), "Empty", "consumer")];
    assert_eq!(all, [vec![("classic".to_owned(), "Stable", "classic"), stable.clone()], rest.to_vec()].concat());
    assert_eq!(list(&mut host, &[], &["Consumer"]).len(), 3);
    assert_eq!(list(&mut host, &["stable"], &["consumer"]), [stable]);
    assert_eq!(list(&mut host, &["assigning", "Empty"], &[]), rest);
    assert!(list(&mut host, &[], &["share"]).is_empty());
}

#[test]
fn a_group_is_described_with_what_its_members_have_and_shall_have() {
    let (mut host, id) = host(2);
    host.taken(ConsumerHeartbeat { rack_id: Some(text("r")), ..joins("g", "a") });
    host.taken(joins("g", "b"));
    host.taken(owns("g", "a", 1, id, &[0, 1]));
    let group = host.describe_consumer("g");
    assert_eq!(
        (group.error, group.state, group.epoch, group.assignment_epoch),
        (ErrorCode::None, GroupState::Reconciling, 2, 2)
    );
    assert_eq!(&*group.assignor, "uniform");
    let [a, b] = &group.members[..] else { panic!("{group:?}") };
    assert_eq!((&*a.member_id, a.epoch, a.rack_id.as_deref(), &*a.client_id), ("a", 1, Some("r"), "client"));
    let topic = |partitions: &[i32]| vec![DescribedTopic { id, name: text("t"), partitions: partitions.to_vec() }];
    assert_eq!((&a.assigned, &a.target), (&topic(&[0]), &topic(&[0])));
    assert_eq!((&b.assigned, &b.target), (&Vec::new(), &topic(&[1])));
    assert_eq!((&a.topics, &a.regex), (&vec![text("t")], &None));
}

#[test]
fn each_protocol_describes_its_own_groups_only() {
    let (mut host, _) = host(1);
    host.stable("classic", 1);
    host.taken(joins("g", "a"));
    for (group, why) in [("classic", "Group classic is not a consumer group."), ("none", "Group none not found.")] {
        let described = host.describe_consumer(group);
        assert_eq!((described.error, described.error_message.as_deref()), (ErrorCode::GroupIdNotFound, Some(why)));
    }
    let command = |version| GroupCommand::Describe(DescribeGroups { version, groups: vec![text("g")] });
    let GroupReply::Describe(groups) = host.call(command(6)) else { panic!() };
    let text = "Group g is not a classic group.";
    assert_eq!((groups[0].error, groups[0].error_message.as_deref()), (ErrorCode::GroupIdNotFound, Some(text)));
    assert_eq!(groups[0].state, GroupState::Dead);
    let GroupReply::Describe(groups) = host.call(command(5)) else { panic!() };
    assert_eq!((groups[0].error, groups[0].state), (ErrorCode::None, GroupState::Dead));
}

fn delete(host: &mut Host, group: &str) -> ErrorCode {
    match host.call(GroupCommand::Delete(DeleteGroups { groups: vec![text(group)] })) {
        GroupReply::Delete(results) => results[0].1,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_group_with_members_is_not_deleted_and_one_that_was_begins_anew() {
    let (mut host, _) = host(1);
    host.taken(joins("g", "a"));
    assert_eq!(delete(&mut host, "g"), ErrorCode::NonEmptyGroup);
    host.taken(beats("g", "a", -1));
    host.commit(crate::host::commit("g", "t", &[(0, 1)]));
    assert_eq!(delete(&mut host, "g"), ErrorCode::None);
    assert_eq!((host.state("g"), delete(&mut host, "g")), (None, ErrorCode::GroupIdNotFound));
    assert_eq!(host.fetch_all("g"), []);
    assert_eq!(host.taken(joins("g", "a")), (1, Some(vec![0])));
}

#[test]
fn a_member_that_joins_behind_a_deletion_finds_a_new_group() {
    let (mut host, _) = host(1);
    host.taken(joins("g", "a"));
    host.taken(beats("g", "a", -1));
    host.commit_at_once = false;
    let deleting = host.send(GroupCommand::Delete(DeleteGroups { groups: vec![text("g")] }));
    let joining = host.send(GroupCommand::ConsumerHeartbeat(joins("g", "b")));
    host.commit_all();
    assert!(matches!(host.reply(deleting), GroupReply::Delete(results) if results[0].1 == ErrorCode::None));
    assert_eq!(host.consumed(joining).member_epoch, 1);
    let [from_log, from_checkpoint, taken] = host.both_states();
    assert!(from_log == from_checkpoint && from_log == taken);
    let before = host.describe_consumer("g");
    host.crash();
    assert_eq!(host.describe_consumer("g"), before);
}

#[test]
fn offsets_of_topics_that_members_read_are_not_deleted() {
    let (mut host, _) = host(1);
    host.topics.create("u", 1);
    host.taken(joins("g", "a"));
    for topic in ["t", "u"] {
        let request =
            CommitOffsets { generation: 1, member_id: text("a"), ..crate::host::commit("g", topic, &[(0, 1)]) };
        host.commit(request);
    }
    let topics = vec![(text("t"), vec![0]), (text("u"), vec![0])];
    let GroupReply::DeleteOffsets(reply) =
        host.call(GroupCommand::DeleteOffsets(DeleteOffsets { group_id: text("g"), topics }))
    else {
        panic!()
    };
    let codes: Vec<_> = reply.topics.iter().map(|t| t.partitions[0].1).collect();
    assert_eq!((reply.error, codes), (ErrorCode::None, vec![ErrorCode::GroupSubscribedToTopic, ErrorCode::None]));
    assert_eq!(host.fetch_all("g"), [("t".into(), 0, 1)]);
}

#[test]
fn people_see_consumer_groups_too() {
    let (mut host, id) = host(2);
    host.two("g", id, 2);
    let summary = host.machine.summary("g").unwrap();
    assert_eq!(
        (summary.state, &*summary.protocol_type, summary.generation, summary.members),
        (GroupState::Stable, "consumer", 2, 2)
    );
}
