//! What tests of the whole need: real processes started and ended, and rules that hold for the tree.
//!
//! Nothing depends on this crate but tests.
