//! From entries to the bytes of a frame, and back.

use super::header::{LOCAL_BYTES, LocalHeader, REPLICATED_BYTES, ReplicatedHeader};
use super::{EntryRef, Frame, FramePlace, Kind, tag_is_local, tag_may_be_skipped};
use bytes::Bytes;
use polylogue_env::DIRECT_BYTES;
use polylogue_record::crc::crc32c;
use polylogue_record::envelope::{Body, Envelope, EnvelopeError, FIXED_BYTES};
use polylogue_types::{Index, NodeId, ShardId, Term};
use std::fmt;
use std::ops::Range;

/// Bytes in front of a replicated frame's body.
pub(crate) const HEADERS_BYTES: usize = LOCAL_BYTES + REPLICATED_BYTES;

/// Why a frame is not what it should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FrameError {
    /// No local header verifies here.
    NoFrame,
    /// The frame would end behind the file.
    Cut,
    /// It was written in an earlier life of the file.
    Stale,
    /// It does not follow from the frame before.
    Chain,
    /// The replicated header or the envelope table does not verify.
    Content,
    /// The parts do not add up to the length.
    Length,
    /// A kind that this version would have to know.
    UnknownKind(u8),
    /// The frame belongs to another shard.
    Shard(ShardId),
    /// An index that does not follow from the one before.
    Index(Index),
    /// An envelope that cannot be read.
    Envelope(EnvelopeError),
    /// An entry refers to another that is not there or is itself a reference.
    Reference(u32),
    /// The bytes of a local record are too few.
    Record,
    /// The native bytes of this many entries do not verify.
    Payload(u32),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFrame => f.write_str("no frame header verifies"),
            Self::Cut => f.write_str("the frame ends behind the file"),
            Self::Stale => f.write_str("the frame is of an earlier life of the file"),
            Self::Chain => f.write_str("the frame does not follow from the one before it"),
            Self::Content => f.write_str("the frame's header or envelope table does not verify"),
            Self::Length => f.write_str("the frame's parts do not add up to its length"),
            Self::UnknownKind(tag) => write!(f, "frame kind {tag} is unknown to this version"),
            Self::Shard(shard) => write!(f, "the frame belongs to shard {shard}"),
            Self::Index(index) => write!(f, "index {index} does not follow from the one before it"),
            Self::Envelope(e) => write!(f, "{e}"),
            Self::Reference(n) => write!(f, "entry {n} refers to an entry that has no bytes"),
            Self::Record => f.write_str("a local record is too short"),
            Self::Payload(n) => write!(f, "the bytes of {n} entries do not verify"),
        }
    }
}

/// A frame whose headers verify.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parsed {
    pub(crate) local: LocalHeader,
    /// The local header's own crc: what the next frame names as `previous`.
    pub(crate) crc: u32,
    /// `None` for local kinds.
    pub(crate) replicated: Option<ReplicatedHeader>,
}

/// Verifies the headers, the body and the envelope table of a whole frame; not the chain and not the native bytes.
pub(crate) fn parse(bytes: &[u8]) -> Result<Parsed, FrameError> {
    let (local, crc) = LocalHeader::decode(bytes).ok_or(FrameError::NoFrame)?;
    let rest = bytes.get(LOCAL_BYTES..local.len as usize).ok_or(FrameError::Cut)?;
    if tag_is_local(local.kind) {
        if crc32c(rest) != local.content {
            return Err(FrameError::Content);
        }
        return Ok(Parsed { local, crc, replicated: None });
    }
    let (header, content) = ReplicatedHeader::decode(rest).ok_or(FrameError::Content)?;
    if content != local.content || header.kind != local.kind {
        return Err(FrameError::Content);
    }
    if header.frame_len() != u64::from(local.len) {
        return Err(FrameError::Length);
    }
    Ok(Parsed { local, crc, replicated: Some(header) })
}

/// The kind of a parsed frame; `None` for an unknown one that may be passed over.
pub(crate) fn kind_of(parsed: &Parsed) -> Result<Option<Kind>, FrameError> {
    let tag = parsed.local.kind;
    match Kind::from_tag(tag) {
        Some(kind) => Ok(Some(kind)),
        None if tag_may_be_skipped(tag) => Ok(None),
        None => Err(FrameError::UnknownKind(tag)),
    }
}

/// Makes a [`Frame`] of a parsed one. Native bytes are not verified; [`damaged_entries`] does.
pub(crate) fn decode(
    kind: Kind,
    parsed: &Parsed,
    bytes: Bytes,
    place: Option<FramePlace>,
) -> Result<Frame, FrameError> {
    let Some(header) = parsed.replicated else {
        let body = bytes.slice(LOCAL_BYTES..parsed.local.len as usize);
        return Ok(Frame {
            shard: ShardId::default(),
            term: Term::default(),
            index: Index(u64::MAX),
            leader: NodeId::default(),
            time_ms: 0,
            kind,
            bytes,
            entries: Vec::new(),
            body,
            place,
        });
    };
    let table_start = HEADERS_BYTES + header.body_len as usize;
    let native_start = table_start + header.table_len as usize;
    let table = bytes.get(table_start..native_start).ok_or(FrameError::Length)?;
    let entries = decode_table(table, &header, native_start)?;
    Ok(Frame {
        shard: header.shard,
        term: header.term,
        index: header.index,
        leader: header.leader,
        time_ms: header.time_ms,
        kind,
        body: bytes.slice(HEADERS_BYTES..table_start),
        bytes,
        entries,
        place,
    })
}

fn decode_table(mut table: &[u8], header: &ReplicatedHeader, native_start: usize) -> Result<Vec<EntryRef>, FrameError> {
    let count = header.entries as usize;
    if table.len() / FIXED_BYTES < count {
        return Err(FrameError::Length);
    }
    let mut entries = Vec::with_capacity(count);
    let mut at = native_start as u64;
    let end = at + u64::from(header.native_len);
    for _ in 0..count {
        let (envelope, used) = Envelope::decode(table).map_err(FrameError::Envelope)?;
        table = table.get(used..).ok_or(FrameError::Length)?;
        let len = match envelope.body {
            Body::Inline { len, .. } => len,
            Body::Ref { .. } => 0,
        };
        let start = at;
        at += u64::from(len);
        if at > end {
            return Err(FrameError::Length);
        }
        // Below `end`, hence below the frame's length, which is a u32.
        entries.push(EntryRef { envelope, native: (start as u32)..(at as u32) });
    }
    if at != end || !table.is_empty() {
        return Err(FrameError::Length);
    }
    resolve_references(&mut entries).map_err(FrameError::Reference)?;
    Ok(entries)
}

/// Points the entries that are references to the bytes of those they refer to. The error is the number of one that
/// refers to nothing.
pub(crate) fn resolve_references(entries: &mut [EntryRef]) -> Result<(), u32> {
    for i in 0..entries.len() {
        if let Body::Ref { entry } = entries[i].envelope.body {
            let target = entries.get(entry as usize);
            let target = target.filter(|t| matches!(t.envelope.body, Body::Inline { .. }));
            let native: Range<u32> = target.map(|t| t.native.clone()).ok_or(i as u32)?;
            entries[i].native = native;
        }
    }
    Ok(())
}

/// The numbers of the entries whose native bytes do not verify, references to such ones included.
pub(crate) fn damaged_entries(frame: &Frame) -> Vec<usize> {
    let inline_ok = |entry: &EntryRef, checksum: u32| {
        let range = entry.native.start as usize..entry.native.end as usize;
        frame.bytes.get(range).is_some_and(|native| crc32c(native) == checksum)
    };
    let mut bad: Vec<usize> = Vec::new();
    for (i, entry) in frame.entries.iter().enumerate() {
        if let Body::Inline { checksum, .. } = entry.envelope.body
            && !inline_ok(entry, checksum)
        {
            bad.push(i);
        }
    }
    if bad.is_empty() {
        return bad;
    }
    let references = frame.entries.iter().enumerate().filter_map(|(i, e)| match e.envelope.body {
        Body::Ref { entry } if bad.binary_search(&(entry as usize)).is_ok() => Some(i),
        _ => None,
    });
    let references: Vec<usize> = references.collect();
    bad.extend(references);
    bad.sort_unstable();
    bad
}

/// The fields of a frame with an index that its builder chooses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameHead {
    pub(crate) kind: Kind,
    pub(crate) shard: ShardId,
    pub(crate) term: Term,
    pub(crate) index: Index,
    pub(crate) leader: NodeId,
    pub(crate) time_ms: i64,
}

/// Lays out a frame with an index in one buffer: body, then the table, then the native bytes, which the caller appends
/// in the order of the envelopes.
///
/// ```text
///    buffer   | room | what stands before it in its page | frame ...                    | room to the end of its page |
///             ^ page (only of a frame that is large)     ^ `lead`
/// ```
#[derive(Debug)]
pub(crate) struct FrameBuilder {
    buffer: Vec<u8>,
    /// Where the frame begins; all other places count from there.
    lead: usize,
    table_start: usize,
    native_start: usize,
}

impl FrameBuilder {
    /// A frame with room for `capacity` bytes in all.
    pub(crate) fn new(capacity: usize, body: &[u8]) -> FrameBuilder {
        let buffer = Vec::with_capacity(capacity.max(HEADERS_BYTES + body.len()));
        FrameBuilder::begin(buffer, 0, body)
    }

    /// A frame that is to stand at `position` of a file: if its memory allows it, the page in which it begins begins at an
    /// address of that kind too, so that it is written from where it is.
    pub(crate) fn placed(capacity: usize, body: &[u8], position: u64) -> FrameBuilder {
        let mut buffer: Vec<u8> = Vec::with_capacity(capacity.max(HEADERS_BYTES + body.len()) + 3 * DIRECT_BYTES);
        let page = buffer.as_ptr().align_offset(DIRECT_BYTES).min(DIRECT_BYTES);
        let lead = page + (position % DIRECT_BYTES as u64) as usize;
        buffer.resize(lead, 0);
        FrameBuilder::begin(buffer, lead, body)
    }

    fn begin(mut buffer: Vec<u8>, lead: usize, body: &[u8]) -> FrameBuilder {
        buffer.resize(lead + HEADERS_BYTES, 0);
        buffer.extend_from_slice(body);
        let table_start = buffer.len() - lead;
        FrameBuilder { buffer, lead, table_start, native_start: table_start }
    }

    /// Adds an envelope to the table. All envelopes come before the first native byte.
    pub(crate) fn envelope(&mut self, envelope: &Envelope) {
        envelope.encode_into(&mut self.buffer);
        self.native_start = self.position();
    }

    /// Where native bytes that are appended now will be in the frame.
    pub(crate) fn position(&self) -> usize {
        self.buffer.len() - self.lead
    }

    /// Adds native bytes.
    pub(crate) fn native(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Fills in the replicated header. The local one is still missing: [`seal`] writes it when the place is known. Gives the
    /// buffer, where the frame begins in it, and the checksum of its content.
    pub(crate) fn finish(mut self, head: &FrameHead, entries: usize) -> (Vec<u8>, usize, u32) {
        let header = ReplicatedHeader {
            kind: head.kind as u8,
            shard: head.shard,
            entries: entries as u32,
            term: head.term,
            index: head.index,
            leader: head.leader,
            time_ms: head.time_ms,
            body_len: (self.table_start - HEADERS_BYTES) as u32,
            table_len: (self.native_start - self.table_start) as u32,
            native_len: (self.position() - self.native_start) as u32,
        };
        let (_, part) = self.buffer.split_at_mut(self.lead + LOCAL_BYTES);
        if let Some(block) = part.first_chunk_mut() {
            header.encode(block);
        }
        let content = crc32c(&part[4..self.native_start - LOCAL_BYTES]);
        part[..4].copy_from_slice(&content.to_le_bytes());
        (self.buffer, self.lead, content)
    }
}

/// Writes the local header over the first bytes of a frame and returns its crc.
pub(crate) fn seal(frame: &mut [u8], local: &LocalHeader) -> u32 {
    frame.first_chunk_mut().map_or(0, |block| local.encode(block))
}

/// What a local frame says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LocalRecord {
    Vote {
        term: Term,
        node: NodeId,
        committed: bool,
    },
    Committed {
        index: Index,
    },
    /// `None`: everything is void.
    TruncateAfter {
        index: Option<Index>,
    },
    Purged {
        index: Index,
        term: Term,
    },
    Mark,
}

impl LocalRecord {
    /// The kind of its frame.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Vote { .. } => Kind::Vote,
            Self::Committed { .. } => Kind::Committed,
            Self::TruncateAfter { .. } => Kind::TruncateAfter,
            Self::Purged { .. } => Kind::Purged,
            Self::Mark => Kind::Mark,
        }
    }

    /// A frame without its local header, and the checksum of its content. All bodies are two numbers and a flag:
    ///
    /// ```text
    ///   kind           0            8            16
    ///   Vote           term         node         committed (1 or 0)   24
    ///   Committed      index
    ///   TruncateAfter  index (2^64-1: everything is void)
    ///   Purged         index        term
    ///   Mark           -
    /// ```
    pub(crate) fn encode(&self) -> (Vec<u8>, u32) {
        let numbers: &[u64] = match *self {
            Self::Vote { term, node, committed } => &[term.0, node.0, u64::from(committed)],
            Self::Committed { index } => &[index.0],
            Self::TruncateAfter { index } => &[index.map_or(u64::MAX, |i| i.0)],
            Self::Purged { index, term } => &[index.0, term.0],
            Self::Mark => &[],
        };
        let mut frame = Vec::with_capacity(LOCAL_BYTES + numbers.len() * 8);
        frame.resize(LOCAL_BYTES, 0);
        for n in numbers {
            frame.extend_from_slice(&n.to_le_bytes());
        }
        let content = crc32c(&frame[LOCAL_BYTES..]);
        (frame, content)
    }

    /// Reads the body of a local frame.
    pub(crate) fn decode(kind: Kind, body: &[u8]) -> Result<LocalRecord, FrameError> {
        let number = |i: usize| -> Result<u64, FrameError> {
            let bytes = body.get(i * 8..).and_then(|b| b.first_chunk()).ok_or(FrameError::Record)?;
            Ok(u64::from_le_bytes(*bytes))
        };
        Ok(match kind {
            Kind::Vote => {
                LocalRecord::Vote { term: Term(number(0)?), node: NodeId(number(1)?), committed: number(2)? != 0 }
            }
            Kind::Committed => LocalRecord::Committed { index: Index(number(0)?) },
            Kind::TruncateAfter => {
                let after = number(0)?;
                LocalRecord::TruncateAfter { index: (after != u64::MAX).then_some(Index(after)) }
            }
            Kind::Purged => LocalRecord::Purged { index: Index(number(0)?), term: Term(number(1)?) },
            Kind::Mark => LocalRecord::Mark,
            Kind::Data | Kind::Noop | Kind::Membership | Kind::SegmentCut | Kind::Lost => {
                return Err(FrameError::UnknownKind(kind as u8));
            }
        })
    }
}
