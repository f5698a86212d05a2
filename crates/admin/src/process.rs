//! Resource usage of this process, as the system reports it.

use rustix::process::{Resource, getrlimit};

/// Directory of the open descriptors.
const DESCRIPTORS: &str = "/proc/self/fd";

/// Resident memory of this process. Bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resident {
    /// All resident pages.
    pub all: u64,
    /// File-backed pages: mostly the program itself.
    pub files: u64,
}

impl Resident {
    /// Reads the current values.
    pub fn now() -> Option<Resident> {
        Resident::of(&std::fs::read_to_string("/proc/self/status").ok()?)
    }

    fn of(status: &str) -> Option<Resident> {
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
        };
        Some(Resident { all: bytes("VmRSS:")?, files: bytes("RssFile:").unwrap_or(0) })
    }
}

/// Returns the number of open descriptors.
pub fn open_descriptors() -> Option<u64> {
    // Linux 6.2 and later report it as the directory's size; before, the entries are counted, without the one opened for counting.
    match std::fs::metadata(DESCRIPTORS).ok()?.len() {
        0 => Some((std::fs::read_dir(DESCRIPTORS).ok()?.count() as u64).saturating_sub(1)),
        said => Some(said),
    }
}

/// Returns the limit on open descriptors; `None` for no limit.
pub fn descriptors_max() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_says_what_this_process_has() {
        let known = Resident::of("Name:\tx\nVmRSS:\t    1234 kB\nRssFile:\t 34 kB\nThreads:\t5\n");
        assert_eq!(known, Some(Resident { all: 1_234 << 10, files: 34 << 10 }));
        assert_eq!(Resident::of("VmRSS:\t1234\n"), None);
        assert!(Resident::now().is_some_and(|now| now.all > 1 << 20 && now.files < now.all));
        let open = open_descriptors().unwrap();
        assert!(open >= 3 && descriptors_max().is_none_or(|max| open <= max), "{open}");
    }
}
