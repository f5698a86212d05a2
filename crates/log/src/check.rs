//! see below
use crate::frame::{Frame, LostRange};
/// Ranges.
pub(crate) fn lost_in(frame: &Frame) -> Vec<LostRange> {
    crate::frame::codec::damaged_entries(frame)
        .into_iter()
        .filter_map(|i| frame.entries.get(i))
        .map(|e| LostRange { partition: e.envelope.partition, first: e.envelope.base_offset, end: e.envelope.next_offset() })
        .collect()
}
