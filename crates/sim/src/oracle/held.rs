//! The allowed values of a setting that one client changes, one change at a time.

use std::collections::BTreeMap;
use std::fmt;

/// The last acknowledged value, and later requested ones, with the node's start in which they were requested. A change that ended in an error may
/// take effect until the next start; a value read after that is final.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Held {
    sure: i64,
    doubts: BTreeMap<i64, u64>,
}

impl Held {
    pub(super) fn new(sure: i64) -> Held {
        Held { sure, doubts: BTreeMap::new() }
    }

    /// Records a requested change to `value`.
    pub(super) fn changes(&mut self, value: i64, life: u64) {
        self.doubts.insert(value, life);
    }

    pub(super) fn may_be(&self, value: i64) -> bool {
        self.sure == value || self.doubts.contains_key(&value)
    }

    /// Records that `value` was read. Returns whether it is allowed.
    pub(super) fn settles(&mut self, value: i64, life: u64) {
        if self.doubts.values().all(|asked| *asked < life) {
            *self = Held::new(value);
        }
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let doubts: Vec<_> = self.doubts.keys().collect();
        write!(f, "{} (or {doubts:?})", self.sure)
    }
}
