//! How a group comes from one generation to the next.
//!
//! ```text
//!            join                 all joined, or time is up          leader's sync
//!   Empty ────────► Preparing ──────────────────────────► Completing ─────────────► Stable
//!     ▲             Rebalance                             Rebalance                   │
//!     │                 │ ▲                                   │                       │
//!     │   no members    │ └───────────────────────────────────┴───────────────────────┘
//!     └─────────────────┘    a member joins, changes, leaves, falls silent; the leader joins again;
//!                            a member does not ask for its assignment
//! ```
//!
//! The group is Stable as soon as the leader's assignment is proposed; all members are answered when it is committed.

use super::command::{GroupReply, GroupState};
use super::live::Live;
use super::timers::TimerKind;
use super::turn::{Turn, group_key, join_accepted, session_key, sync_error};
use bytes::Bytes;
use polylogue_kafka_codec::{ErrorCode, StrBytes};

impl Turn<'_> {
    /// Begins a rebalance, or, while one is being prepared, sees whether that was the last member waited for.
    pub(super) fn rebalance(&mut self, live: &mut Live) {
        if live.state == GroupState::PreparingRebalance {
            self.maybe_complete_join(live);
        } else {
            self.prepare(live);
        }
    }

    /// Ends the join phase if everybody is there. An initial rebalance waits for its time instead.
    pub(super) fn maybe_complete_join(&mut self, live: &mut Live) {
        if live.state == GroupState::PreparingRebalance && !live.initial && live.all_joined() {
            self.complete_join(live);
        }
    }

    /// Has all members join again. Waiters for an assignment of the old generation get REBALANCE_IN_PROGRESS.
    pub(super) fn prepare(&mut self, live: &mut Live) {
        if live.state == GroupState::CompletingRebalance {
            for id in live.member_ids() {
                live.change(&id, |member| member.assignment = Bytes::new());
                if let Some(caller) = live.take_sync(&id) {
                    self.reply(caller, sync_error(ErrorCode::RebalanceInProgress));
                    self.heard_of(live, &id);
                }
            }
        }
        live.pending_sync.clear();
        live.sync_deadline.clear(self.timers, || group_key(&live.id, TimerKind::Sync));
        live.initial = live.state == GroupState::Empty;
        live.new_member_added = false;
        live.state = GroupState::PreparingRebalance;
        if !live.initial {
            if live.all_joined() {
                self.complete_join(live);
            } else {
                self.set_join_deadline(live, live.rebalance_timeout_ms());
            }
            return;
        }
        let delay_ms = self.settings.initial_rebalance_delay_ms;
        if delay_ms == 0 {
            self.complete_join(live);
        } else {
            live.initial_wait_ms = (delay_ms, live.rebalance_timeout_ms().saturating_sub(delay_ms));
            self.set_join_deadline(live, delay_ms);
        }
    }

    fn set_join_deadline(&mut self, live: &mut Live, delay_ms: u64) {
        let at_ms = self.after_ms(delay_ms);
        live.join_deadline.set(self.timers, at_ms, || group_key(&live.id, TimerKind::Join));
    }

    /// The time of the join phase is up. The initial one goes on while new members come, up to the rebalance timeout.
    pub(super) fn join_time_is_up(&mut self, live: &mut Live) {
        if live.state != GroupState::PreparingRebalance {
            return;
        }
        let (waited_ms, left_ms) = live.initial_wait_ms;
        if live.initial && live.new_member_added && left_ms != 0 {
            live.new_member_added = false;
            let delay_ms = self.settings.initial_rebalance_delay_ms.min(left_ms);
            live.initial_wait_ms = (delay_ms, left_ms.saturating_sub(waited_ms));
            self.set_join_deadline(live, delay_ms);
        } else {
            self.complete_join(live);
        }
    }

    /// Ends the join phase: members that did not join are out, unless they are static, and the next generation begins.
    pub(super) fn complete_join(&mut self, live: &mut Live) {
        live.join_deadline.clear(self.timers, || group_key(&live.id, TimerKind::Join));
        let absent = live.members().filter(|(_, m)| m.join.is_none() && m.instance_id.is_none());
        let absent: Vec<StrBytes> = absent.map(|(id, _)| id.clone()).collect();
        for id in absent {
            self.remove_member(live, &id);
        }
        if live.len() > 0 && !live.elect_joined_leader() {
            // only static members are left and none has joined: wait until one does, or their sessions end
            let again_ms = live.rebalance_timeout_ms().max(MIN_AGAIN_MS);
            self.set_join_deadline(live, again_ms);
            return;
        }
        live.next_generation();
        if live.state == GroupState::Empty {
            self.propose_metadata(live, []);
            return;
        }
        for id in live.member_ids() {
            let full = live.is_leader(&id);
            if let Some(parked) = live.take_join(&id) {
                let reply = join_accepted(live, &id, parked.version, full);
                self.answer_join(parked, GroupReply::Join(reply));
            }
            if let Some(member) = live.member_mut(&id) {
                member.is_new = false;
            }
            self.heard_of(live, &id);
            live.pending_sync.insert(id);
        }
        let at_ms = self.after_ms(live.rebalance_timeout_ms());
        live.sync_deadline.set(self.timers, at_ms, || group_key(&live.id, TimerKind::Sync));
    }

    /// Members that did not ask for their assignment in time are out.
    pub(super) fn sync_time_is_up(&mut self, live: &mut Live) {
        if !matches!(live.state, GroupState::CompletingRebalance | GroupState::Stable) || live.pending_sync.is_empty() {
            return;
        }
        for id in std::mem::take(&mut live.pending_sync) {
            self.remove_member(live, &id);
        }
        self.prepare(live);
    }

    /// A member asked for its assignment.
    pub(super) fn sync_received(&mut self, live: &mut Live, id: &str) {
        live.pending_sync.remove(id);
        if live.pending_sync.is_empty() {
            live.sync_deadline.clear(self.timers, || group_key(&live.id, TimerKind::Sync));
        }
    }

    /// A session timer came up: a member that was silent too long is out.
    pub(super) fn session_came_up(&mut self, live: &mut Live, id: &StrBytes) {
        let now_ms = self.now.monotonic_ms;
        let group = live.id.clone();
        if let Some(session) = live.pending_mut(id) {
            if session.came_up(self.timers, now_ms, || session_key(&group, id)) {
                live.take_pending(id);
                self.maybe_complete_join(live);
            }
            return;
        }
        let Some(member) = live.member_mut(id) else { return };
        if !member.session.came_up(self.timers, now_ms, || session_key(&group, id)) || member.waits_for_us() {
            // the next answer to one that waits starts its session anew
            return;
        }
        self.member_is_lost(live, id);
    }

    /// A member will not come back: it is out, and the others rebalance.
    pub(super) fn member_is_lost(&mut self, live: &mut Live, id: &StrBytes) {
        self.remove_member(live, id);
        match live.state {
            GroupState::Stable | GroupState::CompletingRebalance => self.prepare(live),
            _ => self.maybe_complete_join(live),
        }
    }
}

/// How soon at the earliest an empty-handed end of the join phase is tried again, whatever timeout members asked for.
/// Milliseconds.
const MIN_AGAIN_MS: u64 = 1_000;
