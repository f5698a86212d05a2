//! Resource alarms, which block publishers.

use std::sync::atomic::{AtomicU8, Ordering};

/// A resource of the server that may be short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resource {
    /// Disk space.
    Disk = 1,
    /// Memory.
    Memory = 2,
}

/// The alarms that are raised.
#[derive(Debug, Default)]
pub(crate) struct Alarms(AtomicU8);

impl Alarms {
    /// Raises or clears an alarm. Returns whether it changed.
    pub(crate) fn set(&self, of: Resource, on: bool) -> bool {
        let bit = of as u8;
        let before = match on {
            true => self.0.fetch_or(bit, Ordering::AcqRel),
            false => self.0.fetch_and(!bit, Ordering::AcqRel),
        };
        (before & bit != 0) != on
    }

    /// The reason for `connection.blocked`, if an alarm is raised (`rabbit_reader:blocked_by_message`).
    pub(crate) fn reason(&self) -> Option<&'static str> {
        let all = self.0.load(Ordering::Acquire);
        let is_on = |of: Resource| all & of as u8 != 0;
        match (is_on(Resource::Disk), is_on(Resource::Memory)) {
            (false, false) => None,
            (true, false) => Some("low on disk"),
            (false, true) => Some("low on memory"),
            (true, true) => Some("low on disk & memory"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_are_independent() {
        let alarms = Alarms::default();
        assert_eq!((alarms.reason(), alarms.set(Resource::Disk, false)), (None, false));
        assert!(alarms.set(Resource::Memory, true) && !alarms.set(Resource::Memory, true));
        assert_eq!(alarms.reason(), Some("low on memory"));
        assert!(alarms.set(Resource::Disk, true));
        assert_eq!(alarms.reason(), Some("low on disk & memory"));
        assert!(alarms.set(Resource::Memory, false) && !alarms.set(Resource::Memory, false));
        assert_eq!(alarms.reason(), Some("low on disk"));
        assert!(alarms.set(Resource::Disk, false));
        assert_eq!(alarms.reason(), None);
    }
}
