//! Garbage collections of a JVM, from the file in which every HotSpot JVM keeps its counters.
//!
//! ```text
//!   /tmp/hsperfdata_USER/PID     a file mapped by the JVM; reading it disturbs no process
//!
//!   prologue   magic CA FE C0 C0 | byte order | major, minor | accessible | used: i32 | overflow: i32 | time: i64 |
//!              offset of the first entry: i32 | number of entries: i32                                          32 bytes
//!   entry      length: i32 | offset of the name: i32 | vector length: i32 | type: u8 | flags | unit | variability |
//!              offset of the data: i32                    offsets count from the entry; names end with a zero byte
//!
//!   sun.gc.collector.N.invocations, sun.gc.collector.N.time (in ticks), sun.os.hrt.frequency (ticks a second)
//! ```

use std::fs;
use std::path::PathBuf;

const MAGIC: [u8; 4] = [0xCA, 0xFE, 0xC0, 0xC0];
/// Position of the byte order of the rest: 0 is big-endian.
const ORDER_AT: usize = 4;
const ENTRY_AT: usize = 24;
const ENTRIES_AT: usize = 28;
/// A file with more entries than this is invalid; JVMs have some hundreds.
const ENTRIES_MAX: usize = 10_000;
/// The type of a counter: Java's type code of a long.
const LONG: u8 = b'J';

/// Garbage collections since the start of a JVM.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Collections {
    /// Number of collections.
    pub count: u64,
    /// Their time, pauses and concurrent work as the collectors count them. Milliseconds.
    pub ms: f64,
}

/// Returns the path of a process's counters; `None` if it is not a JVM, or has none.
#[must_use]
pub fn counters_of(pid: u32) -> Option<PathBuf> {
    let folders = fs::read_dir(std::env::temp_dir()).into_iter().chain(fs::read_dir("/tmp"));
    let users =
        folders.flatten().flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("hsperfdata_"));
    users.map(|user| user.path().join(pid.to_string())).find(|path| path.is_file())
}

impl Collections {
    /// Sums the counters of several JVMs; `None` if none of the files is valid.
    #[must_use]
    pub fn take_all(files: &[PathBuf]) -> Option<Collections> {
        let each = files.iter().filter_map(|file| parse(&fs::read(file).ok()?));
        each.reduce(|a, b| Collections { count: a.count + b.count, ms: a.ms + b.ms })
    }
}

/// Numbers of a file, in its own byte order.
struct Numbers<'a> {
    bytes: &'a [u8],
    little: bool,
}

impl Numbers<'_> {
    fn int(&self, at: usize) -> Option<usize> {
        let bytes: [u8; 4] = *self.bytes.get(at..)?.first_chunk()?;
        usize::try_from(if self.little { i32::from_le_bytes(bytes) } else { i32::from_be_bytes(bytes) }).ok()
    }

    fn long(&self, at: usize) -> Option<u64> {
        let bytes: [u8; 8] = *self.bytes.get(at..)?.first_chunk()?;
        Some(if self.little { u64::from_le_bytes(bytes) } else { u64::from_be_bytes(bytes) })
    }

    fn name(&self, at: usize) -> Option<&str> {
        std::str::from_utf8(self.bytes.get(at..)?.split(|byte| *byte == 0).next()?).ok()
    }
}

fn parse(bytes: &[u8]) -> Option<Collections> {
    bytes.strip_prefix(&MAGIC)?;
    let numbers = Numbers { bytes, little: *bytes.get(ORDER_AT)? != 0 };
    let (mut at, entries) = (numbers.int(ENTRY_AT)?, numbers.int(ENTRIES_AT)?.min(ENTRIES_MAX));
    let (mut count, mut ticks, mut frequency) = (0, 0, 0);
    for _ in 0..entries {
        let length = numbers.int(at).filter(|length| *length > 0)?;
        let name = numbers.name(at.checked_add(numbers.int(at.checked_add(4)?)?)?)?;
        if *bytes.get(at.checked_add(12)?)? == LONG {
            let value = numbers.long(at.checked_add(numbers.int(at.checked_add(16)?)?)?)?;
            let collector = name.strip_prefix("sun.gc.collector.").and_then(|rest| rest.split_once('.'));
            match collector.map(|(_, counter)| counter) {
                Some("invocations") => count += value,
                Some("time") => ticks += value,
                _ if name == "sun.os.hrt.frequency" => frequency = value,
                _ => {}
            }
        }
        at = at.checked_add(length)?;
    }
    (frequency > 0).then(|| Collections { count, ms: ticks as f64 / frequency as f64 * 1e3 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// A file with these counters as written by a JVM, with an entry of another type.
    fn file(counters: &[(&str, u64)]) -> Vec<u8> {
        let mut out = [&MAGIC[..], &[1, 2, 0, 1], &[0; 16], &32_i32.to_le_bytes()].concat();
        out.extend((counters.len() as i32 + 1).to_le_bytes());
        let mut entry = |name: &str, kind: u8, data: &[u8]| {
            let padded = name.len().next_multiple_of(8) + 8;
            let length = 24 + padded + data.len();
            let begin = out.len();
            out.extend([length as i32, 24, 0].iter().flat_map(|number| number.to_le_bytes()));
            out.extend([kind, 0, 1, 1]);
            out.extend((24 + padded as i32).to_le_bytes());
            out.resize(begin + 24, 0);
            out.extend(name.as_bytes());
            out.resize(begin + 24 + padded, 0);
            out.extend(data);
        };
        entry("java.property.java.version", b'B', b"21.0.1\0\0");
        counters.iter().for_each(|(name, value)| entry(name, LONG, &value.to_le_bytes()));
        out
    }

    #[test]
    fn collections_of_all_collectors_are_summed() {
        let counters = [
            ("sun.gc.collector.0.invocations", 7),
            ("sun.gc.collector.0.time", 3_000_000),
            ("sun.gc.collector.1.invocations", 1),
            ("sun.gc.collector.1.time", 500_000),
            ("sun.gc.cause.invocations", 99),
            ("sun.os.hrt.frequency", 1_000_000_000),
        ];
        assert_eq!(parse(&file(&counters)), Some(Collections { count: 8, ms: 3.5 }));
        assert_eq!(parse(&file(&counters[..4])), None, "without a frequency ticks mean nothing");
    }

    #[test]
    fn what_is_no_such_file_is_left_alone() {
        assert_eq!(parse(b"CAFE"), None);
        let whole = file(&[("sun.os.hrt.frequency", 1)]);
        assert_eq!(parse(&whole), Some(Collections::default()));
        for cut in 0..whole.len() - 8 {
            assert_eq!(parse(&whole[..cut]), None, "cut at {cut}");
        }
        assert_eq!(counters_of(std::process::id()), None, "this is no JVM");
    }

    /// If a JVM is installed: its collections are seen.
    #[test]
    fn a_jvm_is_seen_to_collect() {
        let place = std::env::temp_dir().join(format!("polylogue-bench-jvm-{}", std::process::id()));
        let folder = crate::process::Folder::create(&place).expect("a folder");
        let source = "class C { public static void main(String[] a) throws Exception { \
            for (int i = 0; i < 5; i++) System.gc(); System.out.println(); Thread.sleep(60000); } }";
        fs::write(folder.path().join("C.java"), source).expect("a source");
        let java =
            Command::new("java").arg(folder.path().join("C.java")).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let Ok(mut java) = java else { return };
        let mut said = [0];
        let heard = std::io::Read::read_exact(&mut java.stdout.take().expect("it is piped"), &mut said);
        let seen = counters_of(java.id()).and_then(|file| Collections::take_all(&[file]));
        java.kill().and_then(|()| java.wait()).expect("it ends");
        // A JVM that is too old to run a source file, or that cannot write to /tmp, yields nothing.
        if heard.is_ok() {
            let seen = seen.expect("its counters are there");
            assert!(seen.count >= 5 && seen.ms > 0.0, "{seen:?}");
        }
    }
}
