//! Bodies that the journal itself writes into frames with an index.

use polylogue_types::{NodeId, Offset, PartitionId};

const VERSION: u8 = 1;
const COMPLETE: u8 = 1;
const RANGE_BYTES: usize = 24;

/// Offsets of one partition that damage took.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LostRange {
    /// Whose.
    pub partition: PartitionId,
    /// The first offset lost.
    pub first: Offset,
    /// The offset after the last one lost.
    pub end: Offset,
}

/// The body of a frame of kind [`Kind::Lost`](super::Kind::Lost).
///
/// ```text
///    0     1       2    4         8
///   +-----+-------+----+---------+-----------+-----------+----------+----
///   | u8=1| flags | 0  | count   | partition | first     | end      | ...
///   |     | bit 0: the list is   | u64       | u64       | u64      |
///   |     | complete u32         |           |           |          |
///   +-----+-------+----+---------+-----------+-----------+----------+----
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LostBody {
    /// Whether `ranges` is all that was lost. Otherwise other partitions, or other offsets, may be affected too.
    pub complete: bool,
    /// What is known to be lost.
    pub ranges: Vec<LostRange>,
}

impl LostBody {
    /// Reads a body. Bytes that are none say that the loss is not known.
    pub(crate) fn decode(bytes: &[u8]) -> LostBody {
        let Some((head, rest)) = bytes.split_first_chunk::<8>() else {
            return LostBody::default();
        };
        let count = super::header::u32_at(head, 4) as usize;
        if head[0] != VERSION || rest.len() / RANGE_BYTES < count {
            return LostBody::default();
        }
        let (chunks, _) = rest.as_chunks::<RANGE_BYTES>();
        let ranges = chunks.iter().take(count).map(|c| LostRange {
            partition: PartitionId(super::header::u64_at(c, 0)),
            first: Offset(super::header::u64_at(c, 8)),
            end: Offset(super::header::u64_at(c, 16)),
        });
        LostBody { complete: head[1] & COMPLETE != 0, ranges: ranges.collect() }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, u8::from(self.complete) * COMPLETE, 0, 0];
        out.extend_from_slice(&count(self.ranges.len()));
        for range in &self.ranges {
            out.extend_from_slice(&range.partition.0.to_le_bytes());
            out.extend_from_slice(&range.first.0.to_le_bytes());
            out.extend_from_slice(&range.end.0.to_le_bytes());
        }
        out
    }
}

/// The body of a [`Kind::Membership`](super::Kind::Membership) frame that this crate writes: one plain set of voters.
///
/// ```text
///    0     1       4        8
///   +-----+-------+--------+--------+----
///   | u8=1| zeros | count  | node   | ...
///   |     |       | u32    | u64    |
///   +-----+-------+--------+--------+----
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MembershipBody {
    /// The nodes that vote.
    pub voters: Vec<NodeId>,
}

impl MembershipBody {
    /// The encoding.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, 0, 0, 0];
        out.extend_from_slice(&count(self.voters.len()));
        for node in &self.voters {
            out.extend_from_slice(&node.0.to_le_bytes());
        }
        out
    }

    /// Reads a body; `None` for bytes that are none (a consensus engine's own memberships, for one).
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<MembershipBody> {
        let (head, rest) = bytes.split_first_chunk::<8>()?;
        let (nodes, trailing) = rest.as_chunks::<8>();
        if head[..4] != [VERSION, 0, 0, 0] || !trailing.is_empty() {
            return None;
        }
        let voters: Vec<NodeId> = nodes.iter().map(|b| NodeId(u64::from_le_bytes(*b))).collect();
        (voters.len() == super::header::u32_at(head, 4) as usize).then_some(MembershipBody { voters })
    }
}

/// A number of list elements; the lists are built in memory and far below 2^32.
fn count(len: usize) -> [u8; 4] {
    u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_body_is_read_back() {
        let body = LostBody {
            complete: true,
            ranges: vec![LostRange { partition: PartitionId(7), first: Offset(10), end: Offset(12) }],
        };
        assert_eq!(LostBody::decode(&body.encode()), body);
    }

    #[test]
    fn a_lost_body_with_a_hostile_count_is_an_unknown_loss() {
        let mut bytes = LostBody::default().encode();
        bytes[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(LostBody::decode(&bytes), LostBody::default());
        assert_eq!(LostBody::decode(&[1]), LostBody::default());
    }

    #[test]
    fn a_membership_is_read_back_and_nothing_else_is() {
        let body = MembershipBody { voters: vec![NodeId(3), NodeId(9)] };
        let bytes = body.encode();
        assert_eq!(MembershipBody::decode(&bytes), Some(body));
        assert_eq!(MembershipBody::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(MembershipBody::decode(&[]), None);
    }
}
