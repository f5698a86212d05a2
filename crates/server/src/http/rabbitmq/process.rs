//! What the system says of this process.

use rustix::process::{Resource, getrlimit};

/// Where the open descriptors of this process are.
const DESCRIPTORS: &str = "/proc/self/fd";

/// Memory of this process that is in memory. Bytes.
pub(super) fn resident_bytes() -> Option<u64> {
    resident_bytes_in(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn resident_bytes_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1_024)
}

/// Descriptors that are open.
pub(super) fn open_descriptors() -> Option<u64> {
    // Linux 6.2 and later say it there; before, they are to be counted, without the one that it takes to count them.
    match std::fs::metadata(DESCRIPTORS).ok()?.len() {
        0 => Some((std::fs::read_dir(DESCRIPTORS).ok()?.count() as u64).saturating_sub(1)),
        said => Some(said),
    }
}

/// How many there may be; `None` for any number.
pub(super) fn descriptors_max() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_says_what_this_process_has() {
        assert_eq!(resident_bytes_in("Name:\tx\nVmRSS:\t    1234 kB\nThreads:\t5\n"), Some(1_234 << 10));
        assert_eq!(resident_bytes_in("VmRSS:\t1234\n"), None);
        assert!(resident_bytes().is_some_and(|bytes| bytes > 1 << 20));
        let open = open_descriptors().unwrap();
        assert!(open >= 3 && descriptors_max().is_none_or(|max| open <= max), "{open}");
    }
}
