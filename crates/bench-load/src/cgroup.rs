//! The same memory limit for every broker: a control group, if this machine permits one.
//!
//! ```text
//!   /sys/fs/cgroup/<own group>/polylogue-bench-PID-NAME/           one for each lane of a smoke run
//!        memory.max           limit, page cache included          "cold" means that the backlog does not fit
//!        memory.swap.max      0
//!        memory.stat          anon, file                          the page cache
//!        cgroup.procs         the broker and its children
//! ```
//!
//! With version 1 the files have other names: memory.limit_in_bytes, and `cache` in memory.stat. Without a control group the backlog is instead
//! four times the machine's available memory.

use crate::error::{BenchError, Context, Result};
use crate::host::available_bytes;
use std::fs;
use std::path::{Path, PathBuf};

/// Mount point of control groups.
const ROOT: &str = "/sys/fs/cgroup";
/// Size of a cold backlog in multiples of the page cache that a broker may have.
pub const COLD_FACTOR: u64 = 4;

/// A group for one broker; removed when dropped, after the broker has ended.
#[derive(Debug)]
pub struct MemoryGroup {
    folder: PathBuf,
}

impl MemoryGroup {
    /// Returns the directory in which groups can be created; `None` if there is none.
    #[must_use]
    pub fn place() -> Option<PathBuf> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        place_in(Path::new(ROOT), &own).or_else(|| place_of_version_1(Path::new(ROOT), &own))
    }

    /// Creates a group in `place` with a limit. A process has one of a `name` at a time.
    ///
    /// # Errors
    /// The system refuses.
    pub fn create(place: &Path, name: &str, limit_bytes: u64) -> Result<MemoryGroup> {
        let folder = place.join(format!("polylogue-bench-{}-{name}", std::process::id()));
        let refused = || format!("cannot make the control group {}", folder.display());
        if !folder.is_dir() {
            fs::create_dir(&folder).context(refused)?;
        }
        // Version 1, if it exists.
        let old = folder.join("memory.limit_in_bytes");
        let limit = if old.exists() { old } else { folder.join("memory.max") };
        fs::write(limit, limit_bytes.to_string()).context(refused)?;
        // A kernel without swap accounting has no such file.
        let _ = fs::write(folder.join("memory.swap.max"), "0");
        Ok(MemoryGroup { folder })
    }

    /// Returns the file to which a process writes its id to join the group.
    #[must_use]
    pub fn procs(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// Returns the file with the page cache.
    #[must_use]
    pub fn stat(&self) -> PathBuf {
        self.folder.join("memory.stat")
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // A group with running processes stays; the next one has another name.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Returns this process's group below `root`, if it delegates memory and is writable.
fn place_in(root: &Path, own: &str) -> Option<PathBuf> {
    // "0::/path" is version 2; version 1 has lines with other numbers, usually with memory among them.
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let folder = root.join(path);
    let handed_on = fs::read_to_string(folder.join("cgroup.subtree_control")).ok()?;
    let ours = handed_on.split_whitespace().any(|controller| controller == "memory")
        && rustix::fs::access(&folder, rustix::fs::Access::WRITE_OK).is_ok();
    ours.then_some(folder)
}

/// Returns this process's group in the memory hierarchy below `root`, if it is of version 1 and writable.
fn place_of_version_1(root: &Path, own: &str) -> Option<PathBuf> {
    let memory = |line: &str| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(":/")?;
        controllers.split(',').any(|controller| controller == "memory").then(|| path.to_owned())
    };
    let folder = root.join("memory").join(own.lines().find_map(memory)?);
    // Without hierarchical accounting the limits of parent groups would not apply.
    let counts = fs::read_to_string(folder.join("memory.use_hierarchy")).is_ok_and(|text| text.trim() == "1");
    let ours = counts && rustix::fs::access(&folder, rustix::fs::Access::WRITE_OK).is_ok();
    ours.then_some(folder)
}

/// Returns the page cache of a group, from its memory.stat. Bytes.
#[must_use]
pub fn page_cache_bytes(stat: &Path) -> Option<u64> {
    parse_file(&fs::read_to_string(stat).ok()?)
}

fn parse_file(stat: &str) -> Option<u64> {
    let of = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    of("file ").or_else(|| of("cache "))
}

/// The memory limit of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Room {
    /// A group's limit. Bytes.
    Group(u64),
    /// No group: the machine's available memory. Bytes.
    Machine(u64),
}

impl Room {
    /// Returns the limit for a broker that should have `limit_bytes`.
    ///
    /// # Errors
    /// The machine's memory is unknown.
    pub fn of(limit_bytes: u64) -> Result<Room> {
        match MemoryGroup::place() {
            Some(_) => Ok(Room::Group(limit_bytes)),
            None => Ok(Room::Machine(available_bytes()?)),
        }
    }

    /// Returns the maximum page cache of a broker.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Room::Group(bytes) | Room::Machine(bytes) => *bytes,
        }
    }

    /// Returns the minimum size of a cold backlog. Bytes.
    #[must_use]
    pub fn backlog_bytes(&self) -> u64 {
        self.bytes().saturating_mul(COLD_FACTOR)
    }

    /// Checks the size of a backlog.
    ///
    /// # Errors
    /// It is too small, with the required size.
    pub fn check(&self, backlog_bytes: u64) -> Result<()> {
        if backlog_bytes >= self.backlog_bytes() {
            return Ok(());
        }
        let whose = match self {
            Room::Group(_) => "the broker's memory",
            Room::Machine(_) => "the machine's free memory",
        };
        let (least, mib) = (self.backlog_bytes() >> 20, 1_u64 << 20);
        Err(BenchError::new(format!(
            "the backlog of {} MiB is not cold: {COLD_FACTOR} times {whose} are {least} MiB",
            backlog_bytes / mib
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Folder;

    fn root(name: &str) -> Folder {
        let place = std::env::temp_dir().join(format!("polylogue-bench-cgroup-{name}-{}", std::process::id()));
        Folder::create(&place).expect("a folder")
    }

    #[test]
    fn a_group_of_version_2_is_divided_where_memory_is_handed_on() {
        let root = root("v2");
        let own = root.path().join("user.slice/ours");
        fs::create_dir_all(&own).expect("a folder");
        let stated = "0::/user.slice/ours\n";
        assert_eq!(place_in(root.path(), stated), None, "it hands nothing on");
        fs::write(own.join("cgroup.subtree_control"), "cpu io\n").expect("a file");
        assert_eq!(place_in(root.path(), stated), None, "it does not hand on memory");
        fs::write(own.join("cgroup.subtree_control"), "cpu memory io\n").expect("a file");
        assert_eq!(place_in(root.path(), stated), Some(own.clone()));
        assert_eq!(place_in(root.path(), "4:memory:/user.slice/ours\n"), None, "version 1");

        let group = MemoryGroup::create(&own, "lane-0", 2 << 30).expect("it is made");
        let limit = group.folder.join("memory.max");
        assert_eq!(fs::read_to_string(&limit).expect("a limit"), (2_u64 << 30).to_string());
        assert_eq!(group.procs().file_name().and_then(|name| name.to_str()), Some("cgroup.procs"));
        fs::write(group.stat(), "anon 5\nfile_mapped 6\nfile 4096\n").expect("a file");
        assert_eq!(page_cache_bytes(&group.stat()), Some(4_096));

        // Regression: two lanes of a smoke run had each other's limit.
        let second = MemoryGroup::create(&own, "lane-1", 1 << 30).expect("another one");
        assert_ne!(group.procs(), second.procs());
        assert_eq!(fs::read_to_string(limit).expect("a limit"), (2_u64 << 30).to_string(), "as it was");
    }

    /// Regression test: such machines were treated as without control groups, and would have needed a backlog of four times their memory.
    #[test]
    fn a_group_of_version_1_is_divided_too() {
        let root = root("v1");
        let stated = "9:name=systemd:/\n4:cpu,memory:/ours/deep\n0::/\n";
        let own = root.path().join("memory/ours/deep");
        fs::create_dir_all(&own).expect("a folder");
        assert_eq!(place_of_version_1(root.path(), stated), None, "nothing is charged upwards");
        fs::write(own.join("memory.use_hierarchy"), "1\n").expect("a file");
        assert_eq!(place_of_version_1(root.path(), stated), Some(own.clone()));
        assert_eq!(place_of_version_1(root.path(), "0::/ours\n"), None, "version 2");
        // Normally created by the kernel.
        let folder = own.join(format!("polylogue-bench-{}-run", std::process::id()));
        fs::create_dir(&folder).expect("a folder");
        fs::write(folder.join("memory.limit_in_bytes"), "").expect("a file");
        let group = MemoryGroup::create(&own, "run", 3 << 30).expect("it is made");
        let limit = fs::read_to_string(folder.join("memory.limit_in_bytes")).expect("a limit");
        assert_eq!(limit, (3_u64 << 30).to_string());
        fs::write(group.stat(), "cache 8192\nrss 5\n").expect("a file");
        assert_eq!(page_cache_bytes(&group.stat()), Some(8_192));
    }

    #[test]
    fn a_backlog_is_cold_when_it_is_four_times_the_memory() {
        let group = Room::Group(1 << 30);
        assert_eq!(group.check(4 << 30), Ok(()));
        let stated = group.check((4 << 30) - 1).expect_err("too small").to_string();
        assert!(stated.contains("4096 MiB") && stated.contains("the broker's memory"), "{stated}");
        let machine = Room::Machine(3 << 30);
        assert!(machine.check(4 << 30).expect_err("too small").to_string().contains("the machine's free memory"));
        assert!(Room::of(1 << 30).is_ok_and(|room| room.bytes() > 0));
    }
}
