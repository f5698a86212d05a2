//! What is proposed to a memory shard, weighed and made into a frame.

use bytes::BytesMut;
use polylogue_log::frame::EntryRef;
use polylogue_log::journal::{Draft, Proposal};
use polylogue_log::{Frame, Kind};
use polylogue_record::envelope::Body;
use polylogue_types::{Index, NodeId, ShardId, Term, TimestampMs, limits};

/// What a frame of a memory shard says about itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) shard: ShardId,
    pub(super) term: Term,
    pub(super) index: Index,
    pub(super) leader: NodeId,
    pub(super) time_ms: TimestampMs,
}

/// The bytes that a proposal holds, envelopes included.
pub(super) fn bytes_of(proposal: &Proposal) -> usize {
    let entries = proposal.entries.iter().map(|d| d.envelope.encoded_len() + d.bytes.len());
    entries.sum::<usize>() + proposal.body.len()
}

/// Whether a proposal keeps the rules of a journal: those of its kind, and that every reference has a target.
pub(super) fn is_valid(proposal: &Proposal, entry_bytes_max: usize) -> bool {
    let right_kind = match proposal.kind {
        Kind::Data => proposal.body.is_empty() && !proposal.entries.is_empty(),
        Kind::Membership | Kind::SegmentCut => proposal.entries.is_empty() && proposal.body.len() <= entry_bytes_max,
        _ => false,
    };
    let right_entries = proposal.entries.iter().all(|draft| match draft.envelope.body {
        Body::Inline { len, .. } => {
            len as usize == draft.bytes.len()
                && draft.bytes.len() <= entry_bytes_max
                && draft.patch.as_slice().len() <= draft.bytes.len()
        }
        Body::Ref { entry } => {
            let target = proposal.entries.get(entry as usize);
            draft.bytes.is_empty() && target.is_some_and(|t| matches!(t.envelope.body, Body::Inline { .. }))
        }
    });
    right_kind && right_entries && bytes_of(proposal) <= entry_bytes_max + limits::FRAME_BYTES_MAX
}

/// The first frame of a term.
pub(super) fn noop(head: Head) -> Frame {
    frame(head, Kind::Noop)
}

fn frame(head: Head, kind: Kind) -> Frame {
    let Head { shard, term, index, leader, time_ms } = head;
    let (bytes, entries, body) = Default::default();
    Frame { shard, term, index, leader, time_ms, kind, bytes, entries, body, place: None }
}

/// The frame of a valid proposal: entries by partition, otherwise in the order in which they were proposed.
pub(super) fn build(head: Head, proposal: Proposal) -> Frame {
    let mut drafts: Vec<(usize, Draft)> = proposal.entries.into_iter().enumerate().collect();
    drafts.sort_by_key(|(_, draft)| draft.envelope.partition);
    let mut ranks = vec![0; drafts.len()];
    for (at, (number, _)) in drafts.iter().enumerate() {
        // Far below 2^32: an entry takes 64 bytes and more, and a proposal is bounded by bytes.
        ranks[*number] = at as u32;
    }
    let mut bytes = BytesMut::with_capacity(drafts.iter().map(|(_, d)| d.bytes.len()).sum());
    let mut entries: Vec<EntryRef> = Vec::with_capacity(drafts.len());
    for (_, draft) in drafts {
        let start = bytes.len() as u32;
        let patch = draft.patch.as_slice();
        bytes.extend_from_slice(patch);
        bytes.extend_from_slice(draft.bytes.get(patch.len()..).unwrap_or_default());
        let mut envelope = draft.envelope;
        envelope.append_time = head.time_ms;
        if let Body::Ref { entry } = &mut envelope.body {
            *entry = ranks.get(*entry as usize).copied().unwrap_or(*entry);
        }
        entries.push(EntryRef { envelope, native: start..bytes.len() as u32 });
    }
    // After all are there: a reference may stand before its target.
    for at in 0..entries.len() {
        if let Body::Ref { entry } = entries[at].envelope.body {
            entries[at].native = entries.get(entry as usize).map_or(0..0, |target| target.native.clone());
        }
    }
    Frame { bytes: bytes.freeze(), entries, body: proposal.body, ..frame(head, proposal.kind) }
}
