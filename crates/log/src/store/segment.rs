//! Segment files: their layout, reading and writing. See [`mod@format`] for the drawing.

pub mod entries;
pub mod format;
pub mod writer;

pub use entries::{Entries, Span};
pub use format::{Block, Expected, Row, SegmentKind, SegmentName, SparseIndex, Table};
