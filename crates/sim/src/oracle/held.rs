//! What may hold for something that one client changes, one change at a time.

use std::collections::BTreeMap;
use std::fmt;

/// The value that was acknowledged last, and those that were asked for since, with the life of the node in which that was. A change
/// that ended in an error may come into force until the life is over; what a later life shows is decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Held {
    sure: i64,
    doubts: BTreeMap<i64, u64>,
}

impl Held {
    pub(super) fn new(sure: i64) -> Held {
        Held { sure, doubts: BTreeMap::new() }
    }

    /// It is about to become `value`.
    pub(super) fn changes(&mut self, value: i64, life: u64) {
        self.doubts.insert(value, life);
    }

    pub(super) fn may_be(&self, value: i64) -> bool {
        self.sure == value || self.doubts.contains_key(&value)
    }

    /// It was seen to be `value`, which it may be.
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
