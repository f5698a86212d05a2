use super::model::{Change, ConsumerGroup, Current, Held, Member, MemberState, Partitions, Resolved, Subscription};
use super::reconcile::{Goal, reconcile};
use super::tail::Tail;
use crate::record::Record;
use polylogue_kafka_codec::StrBytes;
use polylogue_types::TopicId;

const T: TopicId = TopicId([1; 16]);
const U: TopicId = TopicId([2; 16]);

fn text(s: &str) -> StrBytes {
    StrBytes::from(s)
}

fn partitions(of: &[i32]) -> Partitions {
    of.iter().map(|partition| (T, *partition)).collect()
}

fn held(of: &[(i32, i32)]) -> Held {
    of.iter().map(|(partition, epoch)| (T, *partition, *epoch)).collect()
}

fn member(current: Current, target: &[i32]) -> Member {
    Member { subscription: Subscription::default(), current, target: partitions(target) }
}

fn current(epoch: i32, state: MemberState, assigned: &[(i32, i32)], revoking: &[(i32, i32)]) -> Current {
    Current { epoch, previous_epoch: epoch - 1, state, assigned: held(assigned), revoking: held(revoking) }
}

/// One step towards the assignment of that epoch. `others`: what other members hold.
fn step(member: &Member, epoch: i32, owned: Option<&[i32]>, others: &[i32]) -> Option<Current> {
    let owned = owned.map(|owned| vec![(T, owned.to_vec())]);
    let own = |partition: i32| {
        member.current.assigned.contains(T, partition) || member.current.revoking.contains(T, partition)
    };
    let goal = Goal {
        assignment_epoch: epoch,
        subscribes: &|_| true,
        is_held: &|_, partition| others.contains(&partition) || own(partition),
        owned: owned.as_deref(),
        subscription_changed: false,
    };
    reconcile(member, &goal)
}

#[test]
fn a_stable_member_follows_a_new_assignment_at_once_where_it_gives_up_nothing() {
    let stable = member(current(10, MemberState::Stable, &[(1, 9)], &[]), &[1, 2]);
    let next = step(&stable, 11, None, &[]).unwrap();
    assert_eq!(next, current(11, MemberState::Stable, &[(1, 9), (2, 11)], &[]));
    assert_eq!(step(&Member { current: next, ..stable }, 11, None, &[]), None);
}

#[test]
fn a_member_revokes_before_it_goes_on() {
    let stable = member(current(10, MemberState::Stable, &[(1, 9), (2, 9)], &[]), &[2, 3]);
    let revoking = step(&stable, 11, None, &[]).unwrap();
    assert_eq!(revoking, Current { previous_epoch: 10, ..current(10, MemberState::Unrevoked, &[(2, 9)], &[(1, 9)]) });
    let stable = Member { current: revoking, ..stable };
    // it has not said anything, or still owns it
    assert_eq!(step(&stable, 11, None, &[]), None);
    assert_eq!(step(&stable, 11, Some(&[1, 2]), &[]), None);
    let next = step(&stable, 11, Some(&[2]), &[]).unwrap();
    assert_eq!(next, current(11, MemberState::Stable, &[(2, 9), (3, 11)], &[]));
}

#[test]
fn what_others_hold_is_waited_for() {
    let stable = member(current(10, MemberState::Stable, &[(1, 9)], &[]), &[1, 2, 3]);
    let waiting = step(&stable, 11, None, &[2, 3]).unwrap();
    assert_eq!(waiting, current(11, MemberState::Unreleased, &[(1, 9)], &[]));
    let stable = Member { current: waiting, ..stable };
    let some = step(&stable, 11, None, &[3]).unwrap();
    let expected = Current { previous_epoch: 11, ..current(11, MemberState::Unreleased, &[(1, 9), (2, 11)], &[]) };
    assert_eq!(some, expected);
    let all = step(&Member { current: some, ..stable }, 11, None, &[]).unwrap();
    assert_eq!((all.state, all.assigned.len()), (MemberState::Stable, 3));
}

#[test]
fn what_a_member_was_about_to_give_up_it_may_take_back() {
    let unrevoked = member(current(10, MemberState::Unrevoked, &[(2, 9)], &[(1, 9)]), &[1, 2]);
    let next = step(&unrevoked, 12, Some(&[2]), &[]).unwrap();
    assert_eq!(next.assigned, held(&[(1, 12), (2, 9)]));
    assert_eq!((next.state, next.epoch), (MemberState::Stable, 12));
}

#[test]
fn a_topic_that_is_no_longer_subscribed_to_is_given_up_before_there_is_an_assignment() {
    let member = Member {
        current: Current {
            assigned: [(T, 1, 9), (U, 1, 9)].into_iter().collect(),
            ..current(10, MemberState::Stable, &[], &[])
        },
        target: [(T, 1), (U, 1)].into_iter().collect(),
        subscription: Subscription::default(),
    };
    let mut goal = Goal {
        assignment_epoch: 10,
        subscribes: &|topic| topic == T,
        is_held: &|_, _| true,
        owned: None,
        subscription_changed: true,
    };
    let next = reconcile(&member, &goal).unwrap();
    assert_eq!((next.state, next.epoch), (MemberState::Unrevoked, 10));
    assert_eq!((next.assigned, next.revoking), (held(&[(1, 9)]), [(U, 1, 9)].into_iter().collect()));
    // given up already
    let owned = [(T, vec![1])];
    goal.owned = Some(&owned);
    let next = reconcile(&member, &goal).unwrap();
    assert_eq!((next.state, next.assigned), (MemberState::Stable, held(&[(1, 9)])));
}

fn changes() -> Vec<Change> {
    let subscription = Subscription {
        instance_id: Some(text("i")),
        rack_id: None,
        client_id: text("c"),
        client_host: text("/h"),
        rebalance_timeout_ms: 5_000,
        assignor: Some(text("range")),
        topics: vec![text("t"), text("u")],
        regex: text("a.*"),
    };
    let id = text("m");
    vec![
        Change::Epoch { epoch: 3, metadata_hash: u64::MAX },
        Change::Member { id: id.clone(), subscription },
        Change::Targets { epoch: 3, targets: vec![(id.clone(), partitions(&[0, 7]))] },
        Change::Current { id: id.clone(), current: current(3, MemberState::Unrevoked, &[(0, 3)], &[(7, 2)]) },
        Change::Regex { regex: text("a.*"), resolved: Some(Resolved { topics: vec![text("aa"), text("ab")] }) },
        Change::Regex { regex: text("a.*"), resolved: None },
        Change::Remove { id },
    ]
}

#[test]
fn changes_survive_the_log() {
    let record = Record::Consumer { group: text("g"), changes: changes() };
    assert_eq!(Record::decode(&record.encode()), Ok(record));
    for change in changes() {
        let record = Record::Consumer { group: text("g"), changes: vec![change] };
        let bytes = record.encode();
        // the head alone is a record without changes
        let head = Record::Consumer { group: text("g"), changes: Vec::new() }.encode().len();
        for end in (0..bytes.len()).filter(|end| *end != head) {
            assert!(Record::decode(&bytes[..end]).is_err(), "{record:?} cut to {end} bytes");
        }
        assert!(Record::decode(&[&bytes[..], &[0]].concat()).is_err());
    }
}

#[test]
fn lists_that_do_not_rise_are_refused() {
    let encoded = |change: Change| Record::Consumer { group: text("g"), changes: vec![change] }.encode();
    let good = encoded(Change::Targets { epoch: 1, targets: vec![(text("m"), partitions(&[1, 2]))] });
    let mut bad = good.to_vec();
    let at = bad.len() - 8;
    bad[at] = 9;
    assert!(Record::decode(&good).is_ok() && Record::decode(&bad).is_err());
    let twice = Resolved { topics: vec![text("b"), text("a")] };
    assert!(Record::decode(&encoded(Change::Regex { regex: text("x"), resolved: Some(twice) })).is_err());
}

#[test]
fn the_books_balance() {
    let mut group = ConsumerGroup::default();
    let empty = group.bytes();
    let mut tail = Tail::new(text("g"), text(""), None);
    for change in changes() {
        group.apply(change.clone());
        tail.apply(change);
        assert_eq!(tail.group(), &group);
    }
    assert_eq!((group.bytes(), tail.bytes()), (empty, empty));
    assert!(tail.subscribed().is_empty() && tail.regexes().next().is_none() && tail.static_member("i").is_none());
    assert!(!tail.is_held(T, 0) && !tail.is_held(T, 7));
}

#[test]
fn indexes_follow_from_the_group() {
    let mut group = ConsumerGroup::default();
    let mut tail = Tail::new(text("g"), text(""), None);
    for change in changes().into_iter().take(5) {
        group.apply(change.clone());
        tail.apply(change);
    }
    let made = Tail::new(text("g"), text(""), Some(&group));
    for tail in [&tail, &made] {
        assert_eq!(tail.subscribed(), ["aa", "ab", "t", "u"].into_iter().map(text).collect());
        assert!(tail.is_held(T, 0) && tail.is_held(T, 7) && !tail.is_held(U, 0));
        assert_eq!(tail.static_member("i").map(|(id, _)| &**id), Some("m"));
        assert_eq!(tail.wanted_assignor().map(|name| &**name), Some("range"));
    }
    assert_eq!(made.bytes(), tail.bytes());
}

#[test]
fn member_ids_are_made_as_kafka_makes_them() {
    let ids: std::collections::BTreeSet<_> = (0..1_000).map(super::new_member_id).collect();
    assert_eq!(ids.len(), 1_000);
    assert!(ids.iter().all(|id| id.len() == 22 && !id.starts_with('-')));
}
