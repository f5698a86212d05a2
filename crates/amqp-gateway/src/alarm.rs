//! What publishers may have to wait for.

use std::sync::atomic::{AtomicU8, Ordering};

/// What a server can be short of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resource {
    /// Room on the disk.
    Disk = 1,
    /// Memory.
    Memory = 2,
}

/// What it is short of now.
#[derive(Debug, Default)]
pub(crate) struct Alarms(AtomicU8);

impl Alarms {
    /// It is short of that, or no longer. Whether that is news.
    pub(crate) fn set(&self, of: Resource, on: bool) -> bool {
        let bit = of as u8;
        let before = match on {
            true => self.0.fetch_or(bit, Ordering::AcqRel),
            false => self.0.fetch_and(!bit, Ordering::AcqRel),
        };
        (before & bit != 0) != on
    }

    /// The reason of `connection.blocked`, where publishers are to wait (`rabbit_reader:blocked_by_message`).
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
    fn each_of_them_comes_and_goes_by_itself() {
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
