//! Reading frames back, by index.

use super::catalog::Located;
use super::inner::Inner;
use super::{LogView, Stats};
use crate::error::{Error, ErrorKind, Result};
use crate::frame::codec::{self, FrameError};
use crate::frame::{Frame, FramePlace};
use bytes::Bytes;
use polylogue_types::Index;
use std::sync::Arc;

impl Inner {
    /// See [`Journal::read`](super::Journal::read).
    pub(crate) fn read(&self, from: Index, max_bytes: usize) -> Result<Vec<Arc<Frame>>> {
        let end = self.committed().map_or(Index(0), Index::next);
        if from > end {
            return Err(Error::new(ErrorKind::OutOfRange, format!("index {from} is above the committed ones")));
        }
        self.read_range(from, end, max_bytes)
    }

    /// See [`Journal::view`](super::Journal::view).
    pub(crate) fn view(&self) -> LogView {
        let epoch = self.queue.epoch();
        let durable = self.pipeline.lock().durable_index();
        let catalog = self.catalog.lock();
        let last = catalog.next.checked_sub(1).map(Index);
        let purged = catalog.first.checked_sub(1).map(Index);
        LogView {
            first: Index(catalog.first),
            next: Index(catalog.next),
            committed: self.committed(),
            durable,
            last: last.and_then(|i| catalog.term_of(i).map(|t| (i, t))),
            purged: purged.and_then(|i| catalog.term_of(i).map(|t| (i, t))),
            epoch,
        }
    }

    /// See [`Journal::stats`](super::Journal::stats).
    pub(crate) fn stats(&self) -> Stats {
        let (queue_count, queue_bytes, refused) = self.queue.depth();
        let files = self.catalog.lock().len() as u64;
        Stats { queue_count, queue_bytes, refused, files, ..self.stats.lock().clone() }
    }

    /// See [`Journal::read_range`](super::Journal::read_range).
    pub(crate) fn read_range(&self, from: Index, end: Index, max_bytes: usize) -> Result<Vec<Arc<Frame>>> {
        let mut frames = Vec::new();
        let mut left = max_bytes as u64;
        for index in from.0..end.0 {
            let (found, first, next) = {
                let catalog = self.catalog.lock();
                (catalog.locate(Index(index)), catalog.first, catalog.next)
            };
            let Some(located) = found else {
                if index >= next && index >= first {
                    break;
                }
                if index >= first {
                    let what = format!("frame {index} was damaged when the journal was opened");
                    return Err(Error::new(ErrorKind::Damaged, what));
                }
                return Err(Error::new(ErrorKind::OutOfRange, format!("index {index} is gone, the first is {first}")));
            };
            let bytes = located.bound - located.position;
            if !frames.is_empty() && bytes > left {
                break;
            }
            left = left.saturating_sub(bytes);
            if let Some(frame) = read_frame(&located, Index(index))? {
                frames.push(Arc::new(frame));
            }
        }
        Ok(frames)
    }
}

/// Reads one frame and verifies its headers and its table; `None` for one of an unknown kind that may be passed over.
pub(crate) fn read_frame(located: &Located, index: Index) -> Result<Option<Frame>> {
    let Located { live, position, bound } = located;
    let damaged = |e: FrameError| {
        let path = live.path.display();
        Error::new(ErrorKind::Damaged, format!("frame {index} at {position} of {path}: {e}"))
    };
    let mut buffer = vec![0; usize::try_from(bound - position).map_err(|_| damaged(FrameError::Length))?];
    live.file.read_exact_at(&mut buffer, *position).map_err(|e| Error::io("cannot read the journal", e))?;
    let parsed = codec::parse(&buffer).map_err(damaged)?;
    if parsed.local.salt != live.salt {
        return Err(damaged(FrameError::Stale));
    }
    if parsed.replicated.is_none_or(|r| r.index != index) {
        return Err(damaged(FrameError::Index(index)));
    }
    let Some(kind) = codec::kind_of(&parsed).map_err(damaged)? else { return Ok(None) };
    buffer.truncate(parsed.local.len as usize);
    let place =
        FramePlace { file_sequence: live.sequence, file: live.source(), position: *position, len: parsed.local.len };
    codec::decode(kind, &parsed, Bytes::from(buffer), Some(place)).map(Some).map_err(damaged)
}
