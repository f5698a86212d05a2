//! The coordinator's groups in slots: each shard's coordinator has the groups of its slots. A command about several groups goes to each of theirs.

use super::command::{DeleteGroups, DescribeConsumerGroups, DescribeGroups, FetchOffsets, ListedGroup};
use super::{GroupCommand, GroupReply, GroupSettings, GroupUsage, KafkaGroups};
use polylogue_api::machine::{Command, Join, Slots, Split};
use polylogue_api::{MachineReply, StateMachine, Unavailable};
use polylogue_kafka_codec::StrBytes;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Makes coordinators that count what they hold together.
#[derive(Debug)]
pub(super) struct GroupSlots {
    pub(super) settings: GroupSettings,
    pub(super) usage: Arc<GroupUsage>,
}

impl Slots for GroupSlots {
    fn machine(&self) -> Box<dyn StateMachine> {
        Box::new(KafkaGroups { usage: self.usage.clone(), ..KafkaGroups::new(self.settings.clone()) })
    }

    fn split(&self, command: Command, places: usize, place: &dyn Fn(&[u8]) -> usize) -> Split {
        let command = match command.downcast::<GroupCommand>() {
            Ok(command) => *command,
            // Settings, which the host gives to each machine.
            Err(other) => return one(0, other),
        };
        let of = |group: &StrBytes| place(group.as_bytes());
        match command {
            GroupCommand::List(list) => {
                let part = |at| (at, Box::new(GroupCommand::List(list.clone())) as Command);
                Split { parts: (0..places).map(part).collect(), join: Box::new(join_lists) }
            }
            GroupCommand::Describe(DescribeGroups { version, groups }) => divide(
                groups,
                of,
                move |groups| GroupCommand::Describe(DescribeGroups { version, groups }),
                |reply| if let GroupReply::Describe(groups) = reply { Some(groups) } else { None },
                GroupReply::Describe,
            ),
            GroupCommand::DescribeConsumers(DescribeConsumerGroups { groups }) => divide(
                groups,
                of,
                |groups| GroupCommand::DescribeConsumers(DescribeConsumerGroups { groups }),
                |reply| if let GroupReply::DescribeConsumers(groups) = reply { Some(groups) } else { None },
                GroupReply::DescribeConsumers,
            ),
            GroupCommand::Delete(DeleteGroups { groups }) => divide(
                groups,
                of,
                |groups| GroupCommand::Delete(DeleteGroups { groups }),
                |reply| if let GroupReply::Delete(groups) = reply { Some(groups) } else { None },
                GroupReply::Delete,
            ),
            GroupCommand::FetchOffsets(FetchOffsets { version, groups, require_stable }) => divide(
                groups,
                |group| of(&group.group_id),
                move |groups| GroupCommand::FetchOffsets(FetchOffsets { version, groups, require_stable }),
                |reply| if let GroupReply::FetchOffsets(groups) = reply { Some(groups) } else { None },
                GroupReply::FetchOffsets,
            ),
            command => {
                let at = match &command {
                    GroupCommand::Join(request) => of(&request.group_id),
                    GroupCommand::Sync(request) => of(&request.group_id),
                    GroupCommand::Heartbeat(request) => of(&request.group_id),
                    GroupCommand::Leave(request) => of(&request.group_id),
                    GroupCommand::CommitOffsets(request) => of(&request.group_id),
                    GroupCommand::DeleteOffsets(request) => of(&request.group_id),
                    GroupCommand::ConsumerHeartbeat(request) => of(&request.group_id),
                    GroupCommand::List(_)
                    | GroupCommand::Describe(_)
                    | GroupCommand::DescribeConsumers(_)
                    | GroupCommand::Delete(_)
                    | GroupCommand::FetchOffsets(_) => 0,
                };
                one(at, Box::new(command))
            }
        }
    }
}

fn one(at: usize, command: Command) -> Split {
    Split { parts: vec![(at, command)], join: Box::new(|mut replies| replies.pop().unwrap_or(WRONG)) }
}

/// The reply to a command whose parts were answered by something else.
const WRONG: MachineReply = Err(Unavailable::Unknown);

/// Divides what is asked of groups by their places. The answers come back in the order asked.
fn divide<Q, A: Send + 'static>(
    asked: Vec<Q>,
    of: impl Fn(&Q) -> usize,
    command: impl Fn(Vec<Q>) -> GroupCommand,
    answers: fn(GroupReply) -> Option<Vec<A>>,
    reply: fn(Vec<A>) -> GroupReply,
) -> Split {
    let mut places: BTreeMap<usize, (Vec<usize>, Vec<Q>)> = BTreeMap::new();
    for (position, asked) in asked.into_iter().enumerate() {
        let (positions, of_place) = places.entry(of(&asked)).or_default();
        positions.push(position);
        of_place.push(asked);
    }
    // An empty command is answered too.
    if places.is_empty() {
        return one(0, Box::new(command(Vec::new())));
    }
    let (mut parts, mut positions) = (Vec::new(), Vec::new());
    for (at, (of_place, asked)) in places {
        positions.push(of_place);
        parts.push((at, Box::new(command(asked)) as Command));
    }
    let join: Join = Box::new(move |replies| {
        let mut ordered = BTreeMap::new();
        for (positions, part) in positions.into_iter().zip(replies) {
            let part = part?.downcast::<GroupReply>().map_err(|_| Unavailable::Unknown)?;
            // A coordinator leaves out what does not fit into a reply, from the end.
            ordered.extend(positions.into_iter().zip(answers(*part).ok_or(Unavailable::Unknown)?));
        }
        Ok(Box::new(reply(ordered.into_values().collect())))
    });
    Split { parts, join }
}

fn join_lists(replies: Vec<MachineReply>) -> MachineReply {
    let mut all: Vec<ListedGroup> = Vec::new();
    for part in replies {
        match part?.downcast::<GroupReply>().map(|part| *part) {
            Ok(GroupReply::List(Ok(listed))) => all.extend(listed),
            Ok(refused @ GroupReply::List(Err(_))) => return Ok(Box::new(refused)),
            _ => return WRONG,
        }
    }
    all.sort_by(|a, b| a.group_id.cmp(&b.group_id));
    Ok(Box::new(GroupReply::List(Ok(all))))
}

#[cfg(test)]
mod tests {
    use super::super::command::{DescribedGroup, GroupKind, GroupState, ListGroups};
    use super::*;
    use polylogue_kafka_codec::ErrorCode;

    fn slots() -> GroupSlots {
        GroupSlots { settings: GroupSettings::default(), usage: Arc::default() }
    }

    /// The place of a group is the number that its name ends with.
    fn place(key: &[u8]) -> usize {
        usize::from(key[key.len() - 1] - b'0')
    }

    fn names(command: &Command) -> Vec<String> {
        match command.downcast_ref().unwrap() {
            GroupCommand::Describe(request) => request.groups.iter().map(ToString::to_string).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_asked_of_groups_of_several_shards_is_answered_in_the_order_asked() {
        let groups = ["b2", "a0", "c2", "d1"].map(StrBytes::from).to_vec();
        let command = GroupCommand::Describe(DescribeGroups { version: 6, groups });
        let Split { parts, join } = slots().split(Box::new(command), 3, &place);
        let asked: Vec<_> = parts.iter().map(|(at, command)| (*at, names(command))).collect();
        assert_eq!(asked, [(0, vec!["a0".into()]), (1, vec!["d1".into()]), (2, vec!["b2".into(), "c2".into()])]);
        let described =
            |name: &str| DescribedGroup::without_members(StrBytes::from(name), GroupState::Empty, ErrorCode::None);
        let answer = |(_, names): &(usize, Vec<String>)| -> MachineReply {
            Ok(Box::new(GroupReply::Describe(names.iter().map(|name| described(name)).collect())))
        };
        let joined = join(asked.iter().map(answer).collect()).unwrap().downcast::<GroupReply>().unwrap();
        assert_eq!(*joined, GroupReply::Describe(["b2", "a0", "c2", "d1"].map(described).to_vec()));
    }

    #[test]
    fn lists_of_all_shards_are_one_list_by_name_and_none_is_left_out() {
        let Split { parts, join } = slots().split(Box::new(GroupCommand::List(ListGroups::default())), 2, &place);
        assert_eq!(parts.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 1]);
        let list = |name: &str| -> MachineReply {
            let (group_id, protocol_type) = (StrBytes::from(name), StrBytes::new());
            let listed = ListedGroup { group_id, protocol_type, state: GroupState::Empty, kind: GroupKind::Classic };
            Ok(Box::new(GroupReply::List(Ok(vec![listed]))))
        };
        let joined = join(vec![list("b"), list("a")]).unwrap().downcast::<GroupReply>().unwrap();
        let GroupReply::List(Ok(listed)) = *joined else { panic!("{joined:?}") };
        assert_eq!(listed.iter().map(|group| &*group.group_id).collect::<Vec<_>>(), ["a", "b"]);
        let Split { join, .. } = slots().split(Box::new(GroupCommand::List(ListGroups::default())), 2, &place);
        assert!(matches!(join(vec![list("b"), Err(Unavailable::NotCommitted)]), Err(Unavailable::NotCommitted)));
    }

    #[test]
    fn a_command_about_one_group_goes_to_its_shard_and_an_empty_one_to_any() {
        let of =
            |command| slots().split(Box::new(command), 3, &place).parts.iter().map(|(at, _)| *at).collect::<Vec<_>>();
        let heartbeat = super::super::command::Heartbeat {
            group_id: StrBytes::from("g2"),
            generation: 1,
            member_id: StrBytes::new(),
            instance_id: None,
        };
        assert_eq!(of(GroupCommand::Heartbeat(heartbeat)), [2]);
        assert_eq!(of(GroupCommand::Delete(DeleteGroups { groups: Vec::new() })), [0]);
    }
}
