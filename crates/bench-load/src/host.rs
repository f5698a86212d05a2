//! The machine's figures during a run, in addition to the broker's process: the device, the page cache, connections, the network.
//!
//! ```text
//!   /proc/diskstats    the line of the device with the data directory        operations, bytes, busy time
//!   /proc/meminfo      Cached - Shmem                                        page cache of the machine; brokers run one at a time
//!   /proc/net/dev      the line "lo"                                         loopback traffic of clients and broker
//!   /proc/net/tcp, tcp6    established ones with the broker's local port     connections
//!   /proc/net/sockstat, sockstat6    TCP sockets in use                      whether connections have changed
//! ```
//!
//! Each is a small file, except for the connections: the kernel takes 3 ms for their list, twice, however few there are (it scans a table
//! sized by the machine's memory), and occupies a core. So it is read only after the number of sockets has changed, and with
//! many of them every tenth time.

use crate::error::{BenchError, Context, Result};
use rustix::fs::{major, minor};
use std::fs;
use std::path::Path;

/// The sector size of /proc/diskstats, whatever the device's is. Bytes.
const SECTOR_BYTES: u64 = 512;
/// With more sockets than this on the machine connections are read every [`SELDOM`]th time: the time for their list grows with them.
const SOCKETS_MAX: u64 = 2_000;
/// See [`SOCKETS_MAX`].
const SELDOM: u64 = 10;
/// The state of an established connection in /proc/net/tcp.
const ESTABLISHED: &str = "01";
/// Index of the state in a line, after the number, the local and the remote address.
const STATE: usize = 3;

/// A device's counters since the machine was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Device {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Completed operations: reads, writes and flushes.
    pub operations: u64,
    /// Busy time. Milliseconds.
    pub busy_ms: u64,
}

/// The device of a directory, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceId {
    major: u32,
    minor: u32,
}

impl DeviceId {
    /// Returns the device of a directory. A file system without a device (in memory, or an overlay) is not in /proc/diskstats.
    ///
    /// # Errors
    /// The directory does not exist.
    pub fn of(folder: &Path) -> Result<DeviceId> {
        let found = rustix::fs::stat(folder).context(|| format!("cannot look at {}", folder.display()))?;
        Ok(DeviceId { major: major(found.st_dev), minor: minor(found.st_dev) })
    }

    /// Returns its counters; `None` if the system has none.
    #[must_use]
    pub fn take(self) -> Option<Device> {
        parse_diskstats(&fs::read_to_string("/proc/diskstats").ok()?, self)
    }
}

fn parse_diskstats(text: &str, id: DeviceId) -> Option<Device> {
    let numbers = text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let same = words.next()?.parse() == Ok(id.major) && words.next()?.parse() == Ok(id.minor);
        // Then its name.
        same.then(|| words.skip(1).map(|word| word.parse().unwrap_or(0)).collect::<Vec<u64>>())
    })?;
    let at = |place: usize| numbers.get(place).copied();
    // reads, merged, sectors, ms; writes, merged, sectors, ms; in flight, busy ms, weighted ms; discards (4); flushes, ms
    Some(Device {
        read_bytes: at(2)?.saturating_mul(SECTOR_BYTES),
        write_bytes: at(6)?.saturating_mul(SECTOR_BYTES),
        operations: at(0)?.saturating_add(at(4)?).saturating_add(at(15).unwrap_or(0)),
        busy_ms: at(9)?,
    })
}

/// Returns the page cache of the machine, without shared memory. Bytes.
#[must_use]
pub fn page_cache_bytes() -> Option<u64> {
    parse_page_cache(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse_page_cache(text: &str) -> Option<u64> {
    let kib = |name| crate::sample::field(text, name);
    Some(kib("Cached")?.saturating_sub(kib("Shmem").unwrap_or(0)).saturating_mul(1_024))
}

/// Returns the available memory: free, and reclaimable page cache. Bytes.
///
/// # Errors
/// It is unknown.
pub fn available_bytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo").context(|| "cannot read /proc/meminfo".to_owned())?;
    let kib = crate::sample::field(&text, "MemAvailable");
    kib.map(|kib| kib.saturating_mul(1_024)).ok_or_else(|| BenchError::new("/proc/meminfo tells no MemAvailable"))
}

/// Returns the bytes sent over the loopback since the machine was started.
#[must_use]
pub fn loopback_bytes() -> Option<u64> {
    parse_loopback(&fs::read_to_string("/proc/net/dev").ok()?)
}

fn parse_loopback(text: &str) -> Option<u64> {
    // Sent and received bytes are the same.
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("lo:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Counts the connections of a port.
#[derive(Debug, Clone)]
pub struct Connections {
    port: u16,
    looks: u64,
    /// Number of sockets of the machine at the last count.
    sockets: Option<u64>,
    last: Option<u64>,
}

impl Connections {
    /// Counts connections of this local port.
    #[must_use]
    pub fn of(port: u16) -> Connections {
        Connections { port, looks: 0, sockets: None, last: None }
    }

    /// Returns their number; with many sockets on the machine, a recent one.
    pub fn take(&mut self) -> Option<u64> {
        let texts =
            ["/proc/net/sockstat", "/proc/net/sockstat6"].map(|path| fs::read_to_string(path).unwrap_or_default());
        let sockets = sockets_in_use(&texts);
        if self.is_stale(sockets) {
            let lists = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
            self.last = Some(lists.iter().map(|list| established(list, self.port)).sum());
            self.sockets = sockets;
        }
        self.looks += 1;
        self.last
    }

    /// Whether they must be counted again, given the number of sockets.
    fn is_stale(&self, sockets: Option<u64>) -> bool {
        let skipped = sockets > Some(SOCKETS_MAX) && !self.looks.is_multiple_of(SELDOM);
        let same = sockets.is_some() && sockets == self.sockets;
        self.last.is_none() || !(same || skipped)
    }
}

/// Returns the number of TCP sockets of both kinds; `None` if unknown.
fn sockets_in_use(texts: &[String]) -> Option<u64> {
    let of = |line: &str| {
        let stated = line.strip_prefix("TCP: inuse ").or_else(|| line.strip_prefix("TCP6: inuse "))?;
        stated.split_whitespace().next()?.parse::<u64>().ok()
    };
    texts.iter().flat_map(|text| text.lines()).filter_map(of).reduce(u64::saturating_add)
}

fn established(list: &str, port: u16) -> u64 {
    let wanted = format!(":{port:04X}");
    let is_one = |line: &&str| {
        let mut words = line.split_whitespace();
        words.nth(1).is_some_and(|local| local.ends_with(&wanted)) && words.nth(STATE - 2) == Some(ESTABLISHED)
    };
    list.lines().filter(is_one).count() as u64
}

/// The machine's memory. Bytes; 0 when unknown.
#[must_use]
pub fn memory_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    crate::sample::field(&text, "MemTotal").unwrap_or(0).saturating_mul(1_024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Folder;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_device_is_found_by_its_numbers() {
        let text = "   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0\n 254       0 vda 100 5 2048 9 30 6 4096 7 0 550 16 1 2 3 4 20 8\n";
        let device = parse_diskstats(text, DeviceId { major: 254, minor: 0 });
        let wanted = Device { read_bytes: 1 << 20, write_bytes: 2 << 20, operations: 150, busy_ms: 550 };
        assert_eq!(device, Some(wanted));
        assert_eq!(parse_diskstats(text, DeviceId { major: 0, minor: 40 }), None, "a file system without a device");
        let older = " 8 1 sda1 100 5 2048 9 30 6 4096 7 0 550 16\n";
        assert_eq!(parse_diskstats(older, DeviceId { major: 8, minor: 1 }).map(|d| d.operations), Some(130));
    }

    /// At least what this process has written and flushed is counted for the device.
    #[test]
    fn what_is_flushed_is_seen_on_the_device() {
        let place = std::env::temp_dir().join(format!("polylogue-bench-device-{}", std::process::id()));
        let folder = Folder::create(&place).expect("a folder");
        let id = DeviceId::of(folder.path()).expect("it is there");
        // If the temporary directory is in memory there is nothing to see.
        let Some(before) = id.take() else { return };
        let bytes = 16 << 20;
        let mut file = fs::File::create(folder.path().join("written")).expect("a file");
        file.write_all(&vec![7; bytes]).and_then(|()| file.sync_all()).expect("it is flushed");
        let after = id.take().expect("it is still there");
        let written = after.write_bytes - before.write_bytes;
        assert!(written as f64 >= 0.98 * bytes as f64, "{bytes} bytes were flushed, {written} were seen");
        assert!(after.operations > before.operations);
    }

    #[test]
    fn the_page_cache_is_told_without_shared_memory() {
        assert_eq!(parse_page_cache("MemTotal: 9 kB\nCached:  100 kB\nShmem:  40 kB\n"), Some(60 << 10));
        assert!(page_cache_bytes().is_some() && available_bytes().is_ok_and(|bytes| bytes > 0));
    }

    #[test]
    fn the_loopback_is_told_from_other_interfaces() {
        let text = "Inter-|   Receive\n face |bytes    packets\n  eth0: 9 9 9\n    lo: 4711 12 0 0 0 0 0 0 4711 12 0\n";
        assert_eq!(parse_loopback(text), Some(4_711));
        assert_eq!(parse_loopback("  eth0: 9 9\n"), None);
    }

    #[test]
    fn connections_of_a_port_are_counted() {
        let list = "  sl  local_address rem_address   st\n\
            0: 0100007F:2384 00000000:0000 0A 0\n\
            1: 0100007F:2384 0100007F:C350 01 0\n\
            2: 0100007F:C350 0100007F:2384 01 0\n\
            3: 0000000000000000FFFF00000100007F:2384 0000000000000000FFFF00000100007F:C351 01 0\n";
        assert_eq!(established(list, 0x2384), 2, "not the listener, and not the other ends");
        let stats = ["sockets: used 9\nTCP: inuse 27 orphan 0\n", "TCP6: inuse 4\nUDP6: inuse 1\n"].map(str::to_owned);
        assert_eq!((sockets_in_use(&stats), sockets_in_use(&[])), (Some(31), None));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let held: Vec<_> = (0..3)
            .map(|_| (TcpStream::connect(address).expect("connected"), listener.accept().expect("accepted")))
            .collect();
        assert_eq!(Connections::of(address.port()).take(), Some(held.len() as u64));
    }

    /// Regression test: the list was read each second, which took the client's core for 3 ms, twice: visible in p99.9 of every broker.
    #[test]
    fn connections_are_counted_again_when_sockets_have_changed() {
        let mut connections = Connections::of(1);
        assert!(connections.is_stale(Some(27)), "the first time");
        (connections.last, connections.sockets, connections.looks) = (Some(3), Some(27), 1);
        assert_eq!([Some(27), Some(28), None].map(|sockets| connections.is_stale(sockets)), [false, true, true]);
        let many = Some(SOCKETS_MAX + 1);
        assert!(!connections.is_stale(many), "the list grows with them");
        connections.looks = SELDOM;
        assert!(connections.is_stale(many));
    }
}
