//! openraft on a journal: the types of the group, its log ([`log`]) and its state machine ([`machine`]); a life of such a log in a
//! simulated world ([`life`]), and what it is held against ([`model`]).
//!
//! | openraft | journal |
//! | --- | --- |
//! | `(term, index)` of an entry | the frame's own |
//! | normal entry | frame of kind `Data` with envelopes, or `SegmentCut` |
//! | blank entry | frame of kind `Noop` |
//! | membership | frame of kind `Membership`, one plain set of voters |
//! | vote, committed, purged, truncation | local frames |
//!
//! Leader ids are terms alone (`leader_id_std`), so that a frame's header names the whole log id, and another Raft library can
//! read the log too. Joint memberships and learners have no form here: who has more than one node decides on it.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]

pub mod life;
pub mod log;
pub mod machine;
pub mod model;

use bytes::Bytes;
use openraft::vote::leader_id_std;
use openraft::{Entry, EntryPayload, LogId, Membership};
use polylogue_log::frame::MembershipBody;
use polylogue_log::journal::{Append, Content, Draft};
use polylogue_log::{Frame, Kind};
use polylogue_record::envelope::{Body, Envelope};
use polylogue_types::{Index, NodeId, Term, TimestampMs};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

openraft::declare_raft_types!(
    /// A group whose entries are frames.
    pub Group:
        D = Command,
        R = u64,
        NodeId = u64,
        Node = (),
        LeaderId = LeaderId,
);

pub type LeaderId = leader_id_std::LeaderId<u64, u64>;
pub type CommittedLeaderId = leader_id_std::CommittedLeaderId<u64>;
pub type RaftEntry = Entry<CommittedLeaderId, EntryPayload<Command, u64, ()>>;
pub type RaftLogId = LogId<CommittedLeaderId>;
pub type RaftVote = openraft::Vote<LeaderId>;

/// What a normal entry says.
#[derive(Clone, PartialEq, Debug)]
pub enum Command {
    /// Entries of partitions: envelope and native bytes (of a reference those it refers to).
    Entries(Vec<(Envelope, Bytes)>),
    /// The body of a `SegmentCut`.
    Cut(Bytes),
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::Entries(entries) => write!(f, "{} entries", entries.len()),
            Command::Cut(body) => write!(f, "a cut of {} bytes", body.len()),
        }
    }
}

/// The log id of a place in the log.
pub fn log_id(term: Term, index: Index) -> RaftLogId {
    LogId::new(CommittedLeaderId::new(term.0), index.0)
}

pub fn term_of(id: &RaftLogId) -> Term {
    Term(id.committed_leader_id().term)
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The entry that a frame is.
pub fn entry_of(frame: &Frame) -> io::Result<RaftEntry> {
    let payload = match frame.kind {
        Kind::Data => {
            let entries = frame.entries.iter().map(|e| (e.envelope.clone(), frame.native(e)));
            EntryPayload::Normal(Command::Entries(entries.collect()))
        }
        Kind::SegmentCut => EntryPayload::Normal(Command::Cut(frame.body.clone())),
        Kind::Noop => EntryPayload::Blank,
        Kind::Membership => {
            let Some(body) = MembershipBody::decode(&frame.body) else {
                return Err(invalid(format!("the membership at index {} cannot be read", frame.index)));
            };
            let voters: BTreeSet<u64> = body.voters.iter().map(|n| n.0).collect();
            EntryPayload::Membership(Membership::new_with_defaults(vec![voters], []))
        }
        other => return Err(invalid(format!("a {other:?} frame at index {} is no entry", frame.index))),
    };
    Ok(Entry { log_id: log_id(frame.term, frame.index), payload })
}

/// The frame that an entry becomes, stamped by the node that leads.
pub fn append_of(entry: RaftEntry, leader: NodeId, time_ms: TimestampMs) -> io::Result<Append> {
    let (kind, content) = match entry.payload {
        EntryPayload::Blank => (Kind::Noop, Content::Opaque(Bytes::new())),
        EntryPayload::Normal(Command::Cut(body)) => (Kind::SegmentCut, Content::Opaque(body)),
        EntryPayload::Normal(Command::Entries(entries)) => {
            (Kind::Data, Content::Entries(entries.into_iter().map(draft_of).collect()))
        }
        EntryPayload::Membership(membership) => {
            let [voters] = membership.get_joint_config().as_slice() else {
                return Err(invalid(format!("{membership} is not one plain set of voters")));
            };
            if membership.learner_ids().next().is_some() {
                return Err(invalid(format!("{membership} has learners")));
            }
            let body = MembershipBody { voters: voters.iter().map(|n| NodeId(*n)).collect() };
            (Kind::Membership, Content::Opaque(Bytes::from(body.encode())))
        }
    };
    let index = Index(entry.log_id.index());
    Ok(Append { term: term_of(&entry.log_id), index, leader, time_ms, kind, content })
}

fn draft_of((envelope, bytes): (Envelope, Bytes)) -> Draft {
    let bytes = if matches!(envelope.body, Body::Ref { .. }) { Bytes::new() } else { bytes };
    Draft::new(envelope, bytes)
}

/// A directory that goes when the test ends.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new(name: &str) -> TempDir {
        let dir = std::env::temp_dir().join(format!("polylogue-replicate-{name}-{}", std::process::id()));
        // What a test that was killed has left.
        let _ = std::fs::remove_dir_all(&dir);
        TempDir(dir)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
