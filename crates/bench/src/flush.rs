//! Observed durability: how often a broker flushes, and how much each flush carries.
//!
//! ```text
//!   broker  LD_PRELOAD=libpolylogue_bench_flushes.so  BENCH_FLUSHES=place/flushes
//!     fsync, fdatasync, msync, O_DSYNC writes  ---- counted, delayed --> the system
//!                                                     |
//!   place/flushes, mapped by all its processes: [delay us][fsync][msync][O_DSYNC][sync_file_range][took ns][-][-]
//! ```
//!
//! Bytes per flush are the bytes that the broker's processes wrote to the device (/proc/PID/io: dirtied pages, mapped files
//! included), divided by the number of flushes.

use crate::clock::{monotonic_ns, seconds};
use crate::error::{BenchError, Context, Result};
use crate::sample::Sample;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The library's file name.
const LIBRARY: &str = "libpolylogue_bench_flushes.so";
/// Number of words of the shared file, and their indexes.
const WORDS: usize = 8;
const WORD_BYTES: usize = size_of::<u64>();
const FSYNC: usize = 1;
const MSYNC: usize = 2;
const SYNCHRONOUS_WRITE: usize = 3;
const RANGE: usize = 4;
const TOOK_NS: usize = 5;

/// Returns the path of the library: in the directory of this program, or its parent, as in cargo's layout.
///
/// # Errors
/// It has not been built.
pub fn library(bench: &Path) -> Result<PathBuf> {
    let found = bench.ancestors().skip(1).take(2).map(|folder| folder.join(LIBRARY)).find(|path| path.is_file());
    found.ok_or_else(|| {
        BenchError::new(format!(
            "there is no {LIBRARY} beside {}: build it with cargo build -p polylogue-bench-flushes",
            bench.display()
        ))
    })
}

/// Flush counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flushes {
    /// Calls of fsync and fdatasync.
    pub fsync: u64,
    /// Calls of msync with MS_SYNC.
    pub msync: u64,
    /// Writes to files opened for synchronous writes.
    pub synchronous_writes: u64,
    /// Calls of sync_file_range, which make nothing durable.
    pub ranges: u64,
    /// Time in the first three, delays included. Nanoseconds.
    pub took_ns: u64,
}

impl Flushes {
    /// Number of calls that make data durable.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.fsync + self.msync + self.synchronous_writes
    }
}

/// Counts and delays the flushes of processes that are started with [`Counter::environment`].
#[derive(Debug)]
pub struct Counter {
    library: PathBuf,
    path: PathBuf,
    file: File,
}

impl Counter {
    /// Creates a counter with its file in `place`; every flush is delayed by `hold_ms`.
    ///
    /// # Errors
    /// The library is missing or the file cannot be created.
    pub fn create(bench: &Path, place: &Path, hold_ms: u64) -> Result<Counter> {
        let (library, path) = (library(bench)?, place.join("flushes"));
        let said = || format!("cannot make {}", path.display());
        let open = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&path);
        let file = open.context(said)?;
        let mut words = [0; WORDS * WORD_BYTES];
        let held = hold_ms.saturating_mul(1_000).to_ne_bytes();
        words.iter_mut().zip(held).for_each(|(into, byte)| *into = byte);
        file.write_all_at(&words, 0).context(said)?;
        Ok(Counter { library, path, file })
    }

    /// Returns the environment variables for the processes.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, OsString)> {
        vec![
            ("LD_PRELOAD".to_owned(), self.library.clone().into_os_string()),
            ("BENCH_FLUSHES".to_owned(), self.path.clone().into_os_string()),
        ]
    }

    /// Reads the counts.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn take(&self) -> Result<Flushes> {
        let mut words = [0; WORDS * WORD_BYTES];
        self.file.read_exact_at(&mut words, 0).context(|| format!("cannot read {}", self.path.display()))?;
        let word = |place: usize| {
            let bytes = words.get(place * WORD_BYTES..).and_then(<[u8]>::first_chunk);
            bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
        };
        Ok(Flushes {
            fsync: word(FSYNC),
            msync: word(MSYNC),
            synchronous_writes: word(SYNCHRONOUS_WRITE),
            ranges: word(RANGE),
            took_ns: word(TOOK_NS),
        })
    }
}

/// A span over which flushes are counted.
#[derive(Debug)]
pub struct Span {
    pids: Vec<u32>,
    began_ns: u64,
    flushes: Flushes,
    write_bytes: u64,
}

impl Counter {
    /// Starts a span for the processes of a broker.
    ///
    /// # Errors
    /// The counter or the broker's processes cannot be read.
    pub fn begin(&self, pids: Vec<u32>) -> Result<Span> {
        let write_bytes = Sample::take_all(&pids)?.write_bytes;
        Ok(Span { pids, began_ns: monotonic_ns(), flushes: self.take()?, write_bytes })
    }

    /// Ends a span; returns the figures by name.
    ///
    /// # Errors
    /// As [`Counter::begin`].
    pub fn end(&self, span: &Span) -> Result<Vec<(&'static str, f64)>> {
        let (now, took_s) = (self.take()?, seconds(monotonic_ns() - span.began_ns));
        let bytes = Sample::take_all(&span.pids)?.write_bytes.saturating_sub(span.write_bytes);
        Ok(figures(&span.flushes, &now, bytes, took_s))
    }
}

fn figures(before: &Flushes, after: &Flushes, bytes: u64, took_s: f64) -> Vec<(&'static str, f64)> {
    let count = after.count().saturating_sub(before.count());
    let mut stated = vec![
        ("flushes_per_s", count as f64 / took_s),
        ("flushes_msync_share", after.msync.saturating_sub(before.msync) as f64 / count as f64),
        (
            "flushes_synchronous_write_share",
            after.synchronous_writes.saturating_sub(before.synchronous_writes) as f64 / count as f64,
        ),
        ("sync_file_range_per_s", after.ranges.saturating_sub(before.ranges) as f64 / took_s),
        ("flush_mean_ms", after.took_ns.saturating_sub(before.took_ns) as f64 / 1e6 / count as f64),
        ("bytes_per_flush", bytes as f64 / count as f64),
    ];
    // Without flushes there are no averages.
    stated.retain(|(_, value)| value.is_finite());
    stated
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Folder, Interrupt, Process, SpawnSettings};
    use std::process::Command;
    use std::time::Duration;

    /// Builds the library: the tests of one package do not build another.
    fn built() -> PathBuf {
        let mut command = Command::new(env!("CARGO"));
        let out =
            command.args(["build", "--quiet", "--package", "polylogue-bench-flushes", "--message-format", "json"]);
        let said = String::from_utf8(out.output().expect("cargo runs").stdout).expect("text");
        let library = said.split('"').find(|word| word.ends_with(LIBRARY)).expect("cargo says where the library is");
        PathBuf::from(library)
    }

    /// Counts the flushes of a shell command, each delayed by `hold_ms`.
    fn counted(name: &str, hold_ms: u64, command: &str) -> Flushes {
        let place = std::env::temp_dir().join(format!("polylogue-bench-flush-{name}-{}", std::process::id()));
        let folder = Folder::create(&place).expect("a folder");
        let counter = Counter::create(&built(), folder.path(), hold_ms).expect("a counter");
        let given = SpawnSettings { environment: counter.environment(), ..SpawnSettings::default() };
        let mut shell = Command::new("sh");
        shell.args(["-ec", command]).current_dir(folder.path());
        let started = given.apply(|| Process::start("a shell", shell, &folder.path().join("log"), false));
        let mut process = started.expect("it starts");
        process.wait(Duration::from_secs(60), &Interrupt::default()).expect("it ends well");
        counter.take().expect("it is there")
    }

    #[test]
    fn flushes_of_a_process_and_its_children_are_counted() {
        let flushes = counted("all", 0, "dd if=/dev/zero of=a bs=4k count=20 oflag=dsync; sync a; sync -d a a");
        assert_eq!((flushes.fsync, flushes.synchronous_writes), (3, 20), "{flushes:?}");
        assert!(flushes.took_ns > 0 && flushes.count() == 23, "{flushes:?}");
    }

    #[test]
    fn what_flushes_nothing_has_none() {
        assert_eq!(counted("none", 5, "dd if=/dev/zero of=a bs=4k count=20; cat a > b"), Flushes::default());
    }

    #[test]
    fn a_flush_takes_longer_when_it_is_held() {
        let flushes = counted("held", 20, "echo > a; for each in 1 2 3 4 5; do sync a; done");
        assert_eq!(flushes.fsync, 5);
        assert!(flushes.took_ns >= 5 * 20_000_000, "{flushes:?}");
    }

    #[test]
    fn figures_are_of_the_span() {
        let before = Flushes { fsync: 100, took_ns: 5_000_000, ..Flushes::default() };
        let after = Flushes { fsync: 130, msync: 10, took_ns: 25_000_000, ..before };
        let stated: std::collections::BTreeMap<&str, f64> =
            figures(&before, &after, 40 << 10, 2.0).into_iter().collect();
        assert_eq!((stated["flushes_per_s"], stated["bytes_per_flush"]), (20.0, 1_024.0));
        assert_eq!((stated["flushes_msync_share"], stated["flush_mean_ms"]), (0.25, 0.5));
        let none: Vec<&str> = figures(&before, &before, 7, 2.0).into_iter().map(|(name, _)| name).collect();
        assert_eq!(none, ["flushes_per_s", "sync_file_range_per_s"]);
        let stated = library(Path::new("/nowhere/at/all")).expect_err("it is not there").to_string();
        assert!(stated.contains("cargo build -p polylogue-bench-flushes"), "{stated}");
    }
}
