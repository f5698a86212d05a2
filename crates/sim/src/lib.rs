//! polylogue-sim
