//! A state machine in memory: it keeps every command that was applied, with its index.

use super::{Command, CommittedLeaderId, Group, RaftLogId};
use futures_util::{Stream, StreamExt};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder, Snapshot, SnapshotMeta, StoredMembership};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;

pub type Applied = Vec<(u64, Command)>;
type RaftMembership = StoredMembership<CommittedLeaderId, u64, ()>;
type RaftSnapshot = Snapshot<CommittedLeaderId, u64, (), Applied>;
type RaftSnapshotMeta = SnapshotMeta<CommittedLeaderId, u64, ()>;

/// See the module. Clones are handles of one machine.
#[derive(Clone, Debug, Default)]
pub struct Machine(Arc<Mutex<State>>);

#[derive(Clone, Debug, Default)]
struct State {
    last: Option<RaftLogId>,
    membership: RaftMembership,
    applied: Applied,
    snapshot: Option<RaftSnapshot>,
}

impl Machine {
    /// A machine that has everything up to `last`, at which the members were as given.
    pub fn at(last: RaftLogId, membership: RaftMembership) -> Machine {
        Machine(Arc::new(Mutex::new(State { last: Some(last), membership, ..State::default() })))
    }

    /// What was applied here, in order.
    pub fn applied(&self) -> Applied {
        self.0.lock().applied.clone()
    }
}

impl RaftSnapshotBuilder<Group> for Machine {
    type SnapshotData = Applied;

    async fn build_snapshot(&mut self) -> Result<RaftSnapshot, io::Error> {
        let mut state = self.0.lock();
        let meta = RaftSnapshotMeta { last_log_id: state.last, last_membership: state.membership.clone() };
        let snapshot = RaftSnapshot { meta, snapshot: state.applied.clone() };
        state.snapshot = Some(snapshot.clone());
        Ok(snapshot)
    }
}

impl RaftStateMachine<Group> for Machine {
    type SnapshotData = Applied;
    type SnapshotBuilder = Machine;

    async fn applied_state(&mut self) -> Result<(Option<RaftLogId>, RaftMembership), io::Error> {
        let state = self.0.lock();
        Ok((state.last, state.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<Group>, io::Error>> + Unpin + OptionalSend,
    {
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            let index = entry.log_id.index();
            {
                let mut state = self.0.lock();
                state.last = Some(entry.log_id);
                match entry.payload {
                    EntryPayload::Blank => {}
                    EntryPayload::Normal(command) => state.applied.push((index, command)),
                    EntryPayload::Membership(m) => state.membership = RaftMembership::new(Some(entry.log_id), m),
                }
            }
            if let Some(responder) = responder {
                responder.send(index);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Machine {
        self.clone()
    }

    async fn install_snapshot(&mut self, meta: &RaftSnapshotMeta, snapshot: Applied) -> Result<(), io::Error> {
        let mut state = self.0.lock();
        state.last = meta.last_log_id;
        state.membership = meta.last_membership.clone();
        state.applied.clone_from(&snapshot);
        state.snapshot = Some(RaftSnapshot { meta: meta.clone(), snapshot });
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<RaftSnapshot>, io::Error> {
        Ok(self.0.lock().snapshot.clone())
    }
}
