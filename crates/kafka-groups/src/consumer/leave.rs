//! Members that leave, fall silent, or do not give up what they must.

use super::heartbeat::fenced_instance;
use super::model::{Change, Current, Held, LEFT_FOR_NOW};
use super::tail::Tail;
use super::turn::{ConsumerTurn, Draft, Refusal, rebalance_key, refuse};
use crate::KafkaGroups;
use crate::command::{ConsumerHeartbeat, ConsumerHeartbeatReply, GroupReply};
use crate::turn::session_key;
use polylogue_api::{Caller, Context, Effects};
use polylogue_kafka_codec::{ErrorCode, StrBytes};

impl KafkaGroups {
    /// A member leaves: for good, or a static one to come back.
    pub(super) fn consumer_leave(
        &mut self,
        context: &Context<'_>,
        caller: Caller,
        request: &ConsumerHeartbeat,
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        let id = &request.group_id;
        if !self.load_tail(id) {
            return refuse(ErrorCode::GroupIdNotFound, self.not_a_consumer_group(id, "Group"));
        }
        let left = self.visit_consumer(context, effects, id, |turn, tail| {
            let (member, current) = find_leaving(tail, request)?;
            let mut draft = Draft::new(&tail.id);
            if request.instance_id.is_some() && request.member_epoch == LEFT_FOR_NOW {
                let current = Current { epoch: LEFT_FOR_NOW, revoking: Held::default(), ..current };
                draft.push(tail, Change::Current { id: member.clone(), current });
            } else {
                turn.fence(tail, &mut draft, &member);
            }
            let reply = ConsumerHeartbeatReply {
                member_id: Some(member),
                member_epoch: request.member_epoch,
                ..ConsumerHeartbeatReply::refused(ErrorCode::None)
            };
            turn.finish(tail, draft, Some((caller, GroupReply::ConsumerHeartbeat(reply))), None);
            Ok(())
        });
        left.unwrap_or_else(|| refuse(ErrorCode::CoordinatorNotAvailable, String::new()))
    }
}

/// The member that leaves, and what it holds.
fn find_leaving(tail: &Tail, request: &ConsumerHeartbeat) -> Result<(StrBytes, Current), Refusal> {
    let (group, id) = (&tail.id, &request.member_id);
    let Some(instance_id) = &request.instance_id else {
        return match tail.group().members.get_key_value(id) {
            Some((id, member)) => Ok((id.clone(), member.current.clone())),
            None => refuse(ErrorCode::UnknownMemberId, format!("Member {id} is not a member of group {group}.")),
        };
    };
    match tail.static_member(instance_id) {
        None => refuse(ErrorCode::UnknownMemberId, format!("Instance id {instance_id} is unknown.")),
        Some((owner, _)) if owner != id => refuse(ErrorCode::FencedInstanceId, fenced_instance(id, instance_id, owner)),
        Some((owner, member)) => Ok((owner.clone(), member.current.clone())),
    }
}

impl ConsumerTurn<'_> {
    /// Takes a member out of the group, which needs a new assignment then.
    pub(super) fn fence(&mut self, tail: &mut Tail, draft: &mut Draft, id: &StrBytes) {
        let regex = tail.member(id).map(|member| member.subscription.regex.clone()).unwrap_or_default();
        draft.push(tail, Change::Remove { id: id.clone() });
        if tail.regex_count(&regex) == 0 && tail.group().regexes.contains_key(&regex) {
            draft.push(tail, Change::Regex { regex, resolved: None });
        }
        let (epoch, metadata_hash) = (tail.group().epoch().saturating_add(1), self.metadata_hash(tail));
        draft.push(tail, Change::Epoch { epoch, metadata_hash });
        self.forget_deadlines(tail, id);
    }

    /// The place of a session came up: a member that was silent too long is taken out.
    pub(crate) fn consumer_session_came_up(&mut self, tail: &mut Tail, id: &StrBytes) {
        let (group, now_ms) = (tail.id.clone(), self.now.monotonic_ms);
        let Some(deadlines) = tail.deadlines.get_mut(id) else { return };
        if deadlines.session.came_up(self.timers, now_ms, || session_key(&group, id)) {
            self.fence_and_finish(tail, id);
        }
    }

    /// The place of a revocation came up: a member that still has not given up what it must is taken out.
    pub(crate) fn revocation_came_up(&mut self, tail: &mut Tail, id: &StrBytes) {
        let (group, now_ms) = (tail.id.clone(), self.now.monotonic_ms);
        let Some(deadlines) = tail.deadlines.get_mut(id) else { return };
        let epoch = deadlines.rebalance_epoch;
        let is_over = deadlines.rebalance.came_up(self.timers, now_ms, || rebalance_key(&group, id));
        if is_over && tail.member(id).is_some_and(|member| member.current.epoch == epoch) {
            self.fence_and_finish(tail, id);
        }
    }

    fn fence_and_finish(&mut self, tail: &mut Tail, id: &StrBytes) {
        if tail.member(id).is_none() {
            return self.forget_deadlines(tail, id);
        }
        let mut draft = Draft::new(&tail.id);
        self.fence(tail, &mut draft, id);
        self.finish(tail, draft, None, None);
    }
}
