//! Memory use of the process, and the memory alarm that blocks publishers.
//!
//! Counted is memory that the system cannot reclaim: anonymous and shared memory, without file-backed pages. It is read each second:
//!
//! ```text
//!   /proc/self/status  RssAnon + RssShmem ──> at the limit or above: publishers to queues are blocked (connection.blocked)
//!                                             below 15/16 of it:     they continue
//!   the limit: server.memory_limit_bytes, or six tenths of the memory of the machine or control group (memory.max, also of its parents)
//! ```

use crate::encode_gauges;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Mount point of control groups, version 2.
const GROUPS: &str = "/sys/fs/cgroup";
/// The default limit as a share of the available memory, as RabbitMQ's `vm_memory_high_watermark`. Tenths.
const LIMIT_TENTHS: u64 = 6;
/// Hysteresis of the alarm: it is cleared when usage is below the limit by one in this many parts.
const RELIEF_SHARE: u64 = 16;
/// Share of the available memory that the tail caches may grow to for lagging readers: one in this many parts.
const TAILS_SHARE: u64 = 16;
/// The maximum of that: older data is read from segments. Bytes.
const TAILS_BYTES_MAX: usize = 512 << 20;

/// Share of the available memory that a merge may preload into the page cache: one in this many parts.
const MERGES_SHARE: u64 = 8;

/// The memory usage and its limit.
#[derive(Debug, Default)]
pub struct Memory {
    limit_bytes: u64,
    used_bytes: AtomicU64,
    alarm: AtomicBool,
}

impl Memory {
    /// Creates it with a limit; 0 for a share of the machine's memory.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Memory {
        let limit_bytes = if limit_bytes == 0 { fitting_bytes() } else { limit_bytes };
        Memory { limit_bytes, ..Memory::default() }
    }

    /// Returns the limit; 0 if it is unknown. Bytes.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Returns the last measured usage. Bytes.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Whether the memory alarm is raised: publishers to queues are blocked.
    #[must_use]
    pub fn is_alarm(&self) -> bool {
        self.alarm.load(Ordering::Relaxed)
    }

    /// The reason of the alarm, as text.
    #[must_use]
    pub fn alarm(&self) -> Option<String> {
        let why = "memory usage exceeds server.memory_limit_bytes; let consumers catch up, or raise the limit";
        self.is_alarm().then(|| why.to_owned())
    }

    /// Sets the usage as if measured.
    #[cfg(any(test, feature = "testing"))]
    pub fn pretend(&self, alarm: bool) {
        self.alarm.store(alarm, Ordering::Relaxed);
    }

    /// Measures the usage. Returns whether the alarm is raised.
    pub fn look(&self) -> bool {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let used = used_bytes_in(&status);
        self.used_bytes.store(used, Ordering::Relaxed);
        let was = self.is_alarm();
        let is = is_too_much(used, self.limit_bytes, was);
        self.alarm.store(is, Ordering::Relaxed);
        if is && !was {
            give_back_what_is_free();
        }
        is
    }
}

/// Returns free memory to the system. The allocator does that gradually under load; while the broker is idle it must be requested.
fn give_back_what_is_free() {
    #[cfg(feature = "jemalloc")]
    if let Err(e) = tikv_jemalloc_ctl::background_thread::write(true) {
        tracing::warn!("free memory may not go back to the system while publishers are blocked: {e}");
    }
}

fn is_too_much(used: u64, limit: u64, was: bool) -> bool {
    let bound = if was { limit - limit / RELIEF_SHARE } else { limit };
    limit > 0 && used >= bound
}

/// Sums the process's memory that the system cannot reclaim, from its status file.
fn used_bytes_in(status: &str) -> u64 {
    let kib = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    let sum: u64 = ["RssAnon", "RssShmem"].into_iter().filter_map(kib).sum();
    sum.saturating_mul(1_024)
}

/// Returns the default maximum of the tail caches: a sixteenth of the available memory, if known.
pub fn share_for_tails() -> usize {
    usize::try_from(all_bytes() / TAILS_SHARE).unwrap_or(usize::MAX).min(TAILS_BYTES_MAX)
}

/// Limits a merge's preload to an eighth of the available memory, if known. Bytes.
pub fn share_for_merges(wanted: u64) -> u64 {
    match all_bytes() {
        0 => wanted,
        all => wanted.min(all / MERGES_SHARE),
    }
}

/// Returns the default limit: six tenths of the available memory.
fn fitting_bytes() -> u64 {
    all_bytes() / 10 * LIMIT_TENTHS
}

/// Returns the memory of the machine or control group; 0 if unknown.
fn all_bytes() -> u64 {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| total_bytes_in(&text));
    let own = read(Path::new("/proc/self/cgroup"));
    let group = own.and_then(|own| group_bytes(Path::new(GROUPS), &own));
    machine.into_iter().chain(group).min().unwrap_or(0)
}

fn total_bytes_in(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
}

/// Returns the smallest limit of a control group and its parents.
fn group_bytes(groups: &Path, own: &str) -> Option<u64> {
    let name = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let limit =
        |folder: &Path| -> Option<u64> { std::fs::read_to_string(folder.join("memory.max")).ok()?.trim().parse().ok() };
    let folder = groups.join(name);
    folder.ancestors().take_while(|folder| folder.starts_with(groups)).filter_map(limit).min()
}

/// Its gauges.
#[derive(Debug)]
pub struct Gauges(pub Arc<crate::Shared>);

impl Collector for Gauges {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let memory = &self.0.memory;
        encode_gauges(
            encoder,
            [
                ("memory_alarm", "Whether publishers to queues are to wait for memory", u64::from(memory.is_alarm())),
                ("memory_bytes", "Memory of the process but pages of files, at most a second ago", memory.used_bytes()),
                ("memory_limit_bytes", "Memory above which publishers to queues are to wait", memory.limit_bytes()),
            ],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_do_not_count() {
        let status = "VmRSS:\t  9000 kB\nRssAnon:\t    1234 kB\nRssFile:\t  7000 kB\nRssShmem:\t       6 kB\n";
        assert_eq!((used_bytes_in(status), used_bytes_in("RssAnon:\tmany\n")), (1_240 << 10, 0));
    }

    #[test]
    fn the_alarm_ends_a_little_below_the_limit() {
        for (used, was, is) in [(1_599, false, false), (1_600, false, true), (1_500, true, true), (1_499, true, false)]
        {
            assert_eq!(is_too_much(used, 1_600, was), is, "{used} {was}");
        }
        assert!(!is_too_much(1 << 40, 0, false), "no one knows");
    }

    #[test]
    fn a_process_sees_how_much_it_takes() {
        let small = Memory::new(1);
        assert!(small.look() && small.is_alarm() && small.used_bytes() > 1 << 20);
        assert!(small.alarm().is_some_and(|why| why.contains("server.memory_limit_bytes")));
        let large = Memory::new(0);
        assert!(!large.look() && large.limit_bytes() > large.used_bytes() && large.alarm().is_none());
    }

    #[test]
    fn the_closest_of_all_limits_counts() {
        assert_eq!(total_bytes_in("MemTotal:       24683808 kB\nMemFree: 1 kB\n"), Some(24_683_808 << 10));
        let groups = std::env::temp_dir().join(format!("polylogue-groups-{}", std::process::id()));
        let (outer, inner) = (groups.join("outer"), groups.join("outer/inner"));
        std::fs::create_dir_all(&inner).unwrap();
        let own = "1:name=x:/else\n0::/outer/inner\n";
        assert_eq!(group_bytes(&groups, own), None);
        std::fs::write(inner.join("memory.max"), "max\n").unwrap();
        std::fs::write(outer.join("memory.max"), "1000\n").unwrap();
        assert_eq!(group_bytes(&groups, own), Some(1_000));
        std::fs::write(inner.join("memory.max"), "900\n").unwrap();
        assert_eq!(group_bytes(&groups, own), Some(900));
        assert_eq!(group_bytes(&groups, "1:name=x:/outer\n"), None);
        std::fs::remove_dir_all(&groups).unwrap();
    }
}
