//! The functions that stand in for the C library's.

mod content;
mod flush;
mod names;
