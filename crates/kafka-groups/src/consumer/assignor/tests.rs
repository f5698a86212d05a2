use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn text(s: &str) -> StrBytes {
    StrBytes::from(s)
}

fn topic(n: u8) -> TopicId {
    TopicId([n; 16])
}

/// A member of a test: its id, its instance id, its topics, and what it is to read so far.
#[derive(Clone, Debug)]
struct Test {
    id: StrBytes,
    instance_id: Option<StrBytes>,
    topics: Vec<u8>,
    target: Partitions,
}

fn member(id: &str, topics: &[u8], target: &[(u8, &[i32])]) -> Test {
    let target = target.iter().flat_map(|(t, all)| all.iter().map(|partition| (topic(*t), *partition))).collect();
    Test { id: text(id), instance_id: None, topics: topics.to_vec(), target }
}

fn sizes(all: &[(u8, i32)]) -> TopicSizes {
    all.iter().map(|(t, size)| (topic(*t), *size)).collect()
}

fn run(assignor: Assignor, members: &[Test], sizes: &TopicSizes) -> Vec<Partitions> {
    let participants: Vec<Participant<'_>> = members
        .iter()
        .map(|member| Participant {
            id: &member.id,
            instance_id: member.instance_id.as_ref(),
            topics: member.topics.iter().map(|t| topic(*t)).collect(),
            target: &member.target,
        })
        .collect();
    assign(assignor, &participants, sizes)
}

fn of(assigned: &Partitions, t: u8) -> Vec<i32> {
    assigned.of(topic(t)).to_vec()
}

fn lens(assigned: &[Partitions]) -> Vec<usize> {
    assigned.iter().map(Partitions::len).collect()
}

/// The partitions that members still read.
fn kept(members: &[Test], assigned: &[Partitions]) -> usize {
    let both = |(member, now): (&Test, &Partitions)| member.target.iter().filter(|(t, p)| now.contains(*t, *p)).count();
    members.iter().zip(assigned).map(both).sum()
}

/// Every partition of every topic that has a subscriber is with one of its subscribers.
fn is_whole(members: &[Test], sizes: &TopicSizes, assigned: &[Partitions]) {
    let mut seen = BTreeSet::new();
    for (member, assigned) in members.iter().zip(assigned) {
        for (t, partition) in assigned.iter() {
            assert!(member.topics.iter().any(|own| topic(*own) == t), "{} does not subscribe to {t:?}", member.id);
            assert!(seen.insert((t, partition)), "{t:?}-{partition} is assigned twice");
        }
    }
    let subscribed: BTreeSet<TopicId> = members.iter().flat_map(|m| &m.topics).map(|t| topic(*t)).collect();
    let all: usize = subscribed.iter().map(|t| size_of(sizes, *t)).sum();
    assert_eq!(seen.len(), all);
}

#[test]
fn uniform_gives_all_members_equally_many() {
    let members = [member("a", &[1, 3], &[]), member("b", &[1, 3], &[])];
    let assigned = run(Assignor::Uniform, &members, &sizes(&[(1, 3), (3, 2)]));
    is_whole(&members, &sizes(&[(1, 3), (3, 2)]), &assigned);
    assert_eq!(lens(&assigned), [3, 2]);
    let members = ["a", "b", "c"].map(|id| member(id, &[3], &[]));
    assert_eq!(lens(&run(Assignor::Uniform, &members, &sizes(&[(3, 2)]))), [1, 1, 0]);
}

#[test]
fn uniform_takes_from_members_only_what_a_new_one_gets() {
    let sizes = sizes(&[(1, 3), (2, 3)]);
    let members = [
        member("a", &[1, 2], &[(1, &[0, 2]), (2, &[0])]),
        member("b", &[1, 2], &[(1, &[1]), (2, &[1, 2])]),
        member("c", &[1, 2], &[]),
    ];
    let assigned = run(Assignor::Uniform, &members, &sizes);
    is_whole(&members, &sizes, &assigned);
    assert_eq!(lens(&assigned), [2, 2, 2]);
    assert_eq!(kept(&members, &assigned), 4);
}

#[test]
fn uniform_gives_what_a_member_left_to_the_others() {
    let sizes = sizes(&[(1, 3), (2, 3)]);
    let members = [member("a", &[1, 2], &[(1, &[0]), (2, &[0])]), member("c", &[1, 2], &[(1, &[2]), (2, &[2])])];
    let assigned = run(Assignor::Uniform, &members, &sizes);
    is_whole(&members, &sizes, &assigned);
    assert_eq!((lens(&assigned), kept(&members, &assigned)), (vec![3, 3], 4));
}

#[test]
fn uniform_leaves_the_odd_partition_where_it_is() {
    // by chance the last one has one more
    let sizes = sizes(&[(1, 4)]);
    let members =
        [member("a", &[1], &[(1, &[0])]), member("b", &[1], &[(1, &[1])]), member("c", &[1], &[(1, &[2, 3])])];
    let assigned = run(Assignor::Uniform, &members, &sizes);
    assert_eq!(kept(&members, &assigned), 4);
}

#[test]
fn uniform_forgets_topics_and_partitions_that_are_gone() {
    let sizes = sizes(&[(1, 2)]);
    let members = [member("a", &[1], &[(1, &[0, 7]), (9, &[0])]), member("b", &[1], &[(1, &[0])])];
    let assigned = run(Assignor::Uniform, &members, &sizes);
    is_whole(&members, &sizes, &assigned);
    assert_eq!((of(&assigned[0], 1), of(&assigned[1], 1)), (vec![0], vec![1]));
}

#[test]
fn uniform_with_different_subscriptions_gives_members_equally_many_as_far_as_they_subscribe() {
    let sizes = sizes(&[(1, 3), (2, 4), (3, 2)]);
    let members = [member("a", &[1, 2], &[]), member("b", &[3], &[]), member("c", &[2, 3], &[])];
    let assigned = run(Assignor::Uniform, &members, &sizes);
    is_whole(&members, &sizes, &assigned);
    // topic 1 is for a alone; b takes topic 3, and c what is left of topic 2
    assert_eq!(lens(&assigned), [4, 2, 3]);
}

#[test]
fn no_subscription_means_no_partitions() {
    for assignor in Assignor::ALL {
        let members = [member("a", &[], &[(1, &[0])]), member("b", &[], &[])];
        assert_eq!(lens(&run(assignor, &members, &sizes(&[]))), [0, 0]);
        assert_eq!(run(assignor, &[], &sizes(&[])), []);
    }
}

#[test]
fn range_gives_ranges_of_each_topic() {
    let members = [member("a", &[1, 3], &[]), member("b", &[1, 3], &[])];
    let assigned = run(Assignor::Range, &members, &sizes(&[(1, 3), (3, 2)]));
    assert_eq!((of(&assigned[0], 1), of(&assigned[0], 3)), (vec![0, 1], vec![0]));
    assert_eq!((of(&assigned[1], 1), of(&assigned[1], 3)), (vec![2], vec![1]));
    // different subscriptions
    let members = [member("a", &[1, 2], &[]), member("b", &[3], &[]), member("c", &[2, 3], &[])];
    let assigned = run(Assignor::Range, &members, &sizes(&[(1, 3), (2, 3), (3, 2)]));
    assert_eq!((of(&assigned[0], 1), of(&assigned[0], 2)), (vec![0, 1, 2], vec![0, 1]));
    assert_eq!(of(&assigned[1], 3), [0]);
    assert_eq!((of(&assigned[2], 2), of(&assigned[2], 3)), (vec![2], vec![1]));
}

#[test]
fn range_goes_by_instance_ids_so_that_a_restart_changes_nothing() {
    let with = |ids: [&str; 3]| {
        let mut members = ids.map(|id| member(id, &[1], &[]));
        members[0].instance_id = Some(text("i-2"));
        members[2].instance_id = Some(text("i-1"));
        run(Assignor::Range, &members, &sizes(&[(1, 3)]))
    };
    let assigned = with(["a", "b", "c"]);
    assert_eq!([&assigned[0], &assigned[1], &assigned[2]].map(|a| of(a, 1)), [vec![1], vec![2], vec![0]]);
    assert_eq!(with(["x", "b", "a"]), assigned);
}

/// Groups of up to 12 members with up to 5 topics of up to 12 partitions.
fn groups(same: bool) -> impl Strategy<Value = (Vec<Test>, TopicSizes)> {
    let sizes = proptest::collection::vec(0i32..12, 1..=5);
    let members = proptest::collection::vec(proptest::collection::vec(any::<bool>(), 5), 1..=12);
    let owners = proptest::collection::vec(0usize..20, 60);
    (sizes, members, owners).prop_map(move |(counts, wanted, owners)| {
        let sizes: TopicSizes = counts.iter().zip(1u8..).map(|(count, t)| (topic(t), *count)).collect();
        let mut members: Vec<Test> = Vec::new();
        for (at, wants) in wanted.iter().enumerate() {
            let wants = if same { &wanted[0] } else { wants };
            let topics = (1u8..=5).zip(wants).filter(|(t, wants)| **wants && usize::from(*t) <= counts.len());
            let topics: Vec<u8> = topics.map(|(t, _)| t).collect();
            members.push(member(&format!("m-{at:02}"), &topics, &[]));
        }
        // what they read so far, whether they subscribe to it or not
        let all =
            counts.iter().zip(1u8..).flat_map(|(count, t)| (0..*count).map(move |partition| (topic(t), partition)));
        for ((t, partition), owner) in all.zip(owners) {
            if let Some(member) = members.get_mut(owner) {
                member.target.extend([(t, partition)]);
            }
        }
        (members, sizes)
    })
}

/// What must hold of every assignor: nothing is lost, and what was assigned once stays.
fn holds(assignor: Assignor, members: &[Test], sizes: &TopicSizes) -> Vec<Partitions> {
    let assigned = run(assignor, members, sizes);
    is_whole(members, sizes, &assigned);
    let next: Vec<Test> =
        members.iter().zip(&assigned).map(|(m, now)| Test { target: now.clone(), ..m.clone() }).collect();
    assert_eq!(run(assignor, &next, sizes), assigned, "the same group is assigned otherwise");
    assigned
}

proptest! {
    #[test]
    fn uniform_of_equal_subscriptions_is_balanced_and_moves_as_little_as_it_can((members, sizes) in groups(true)) {
        let assigned = holds(Assignor::Uniform, &members, &sizes);
        let lens = lens(&assigned);
        let (least, most) = (lens.iter().min().unwrap(), lens.iter().max().unwrap());
        prop_assert!(most - least <= 1, "{lens:?}");
        // Of what each has that still exists it keeps its share, and one more where it had more and one is left over.
        let all: usize = lens.iter().sum();
        let (share, extra) = (all / members.len(), all % members.len());
        let exists = |m: &Test| m.target.iter().filter(|(t, p)| m.topics.iter().any(|own| topic(*own) == *t) && usize::try_from(*p).unwrap() < size_of(&sizes, *t)).count();
        let had: Vec<usize> = members.iter().map(exists).collect();
        let over = had.iter().filter(|had| **had > share).count().min(extra);
        let best: usize = had.iter().map(|had| (*had).min(share)).sum::<usize>() + over;
        prop_assert_eq!(kept(&members, &assigned), best);
    }

    #[test]
    fn uniform_of_different_subscriptions_is_balanced((members, sizes) in groups(false)) {
        let assigned = holds(Assignor::Uniform, &members, &sizes);
        // No single partition could move to a subscriber that has two less.
        for (at, member) in members.iter().enumerate() {
            for (other, theirs) in assigned.iter().enumerate() {
                let may_move = theirs.iter().any(|(t, _)| member.topics.iter().any(|own| topic(*own) == t));
                prop_assert!(at == other || !may_move || assigned[at].len() + 1 >= theirs.len(), "{:?}", lens(&assigned));
            }
        }
    }

    #[test]
    fn range_is_whole_and_keeps_equal_partitions_together((members, mut sizes) in groups(true)) {
        sizes.values_mut().for_each(|size| *size = 7);
        let assigned = holds(Assignor::Range, &members, &sizes);
        for assigned in &assigned {
            let mut lists = assigned.topics().map(|(_, partitions)| partitions);
            let first = lists.next();
            prop_assert!(lists.all(|list| Some(list) == first));
        }
    }

    #[test]
    fn range_of_different_subscriptions_is_whole((members, sizes) in groups(false)) {
        let assigned = holds(Assignor::Range, &members, &sizes);
        for (topic, partitions) in assigned.iter().flat_map(Partitions::topics) {
            prop_assert!(partitions.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{topic:?} has gaps");
        }
    }
}

#[test]
fn a_thousand_members_and_ten_thousand_partitions_take_no_time() {
    let topics: Vec<u8> = (1..=100).collect();
    let sizes: TopicSizes = topics.iter().map(|t| (topic(*t), 100)).collect();
    let mut members: Vec<Test> = (0..1_000).map(|n| member(&format!("m-{n:04}"), &topics, &[])).collect();
    for assignor in Assignor::ALL {
        let assigned = run(assignor, &members, &sizes);
        is_whole(&members, &sizes, &assigned);
    }
    // half of them want something else
    members.iter_mut().step_by(2).for_each(|member| member.topics.truncate(50));
    let assigned = run(Assignor::Uniform, &members, &sizes);
    is_whole(&members, &sizes, &assigned);
    assert_eq!((lens(&assigned).iter().min(), lens(&assigned).iter().max()), (Some(&10), Some(&10)));
}
