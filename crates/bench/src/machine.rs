//! The machine's own figures, which precede all others, on the line of the side "machine".
//!
//! ```text
//!   write_*, sendfile_*    bare loops: what no broker can avoid                                        bare.rs
//!   disk_flush_*           sequential writes of 4 KiB with a flush: the cost of a flush
//!   paced_flush_*          the same at a fixed rate, from when each was due: the disk under a steady load
//! ```

use crate::bare::{Bare, flushes, paced_flush, sendfile_loop, write_loop};
use crate::clock::seconds;
use crate::error::Result;
use crate::latency::Latency;
use crate::process::Folder;
use std::collections::BTreeMap;
use std::path::Path;

/// Size of the bare loops' file: larger than the processors' caches. Bytes.
const BARE_FILE_BYTES: u64 = 256 << 20;
/// Bytes of a bare loop: in full, in a smoke run, and with a flush for every small batch.
const BARE_BYTES: u64 = 4 << 30;
const BARE_QUICK_BYTES: u64 = 64 << 20;
const BARE_FLUSHED_BYTES: u64 = 512 << 20;
/// The paced flushes: size, rate per second, and duration. Seconds.
const PACED_BYTES: usize = 52 << 10;
const PACED_PER_S: u64 = 1_000;
const PACED_S: u64 = 20;
/// The sequential flushes: size, and number; fewer in a smoke run.
const FLUSH_BYTES: usize = 4_096;
const FLUSHES: u64 = 5_000;
const FLUSHES_QUICK: u64 = 200;
const MS_PER_S: f64 = 1e3;

/// Measures all figures of the machine in `folder`, which is created and removed.
///
/// # Errors
/// I/O errors.
pub fn machine_figures(folder: &Path, quick: bool) -> Result<BTreeMap<String, f64>> {
    let folder = Folder::create(folder)?;
    let mut figures = BTreeMap::new();
    for (name, bare) in bare_loops(folder.path(), quick)? {
        figures.insert(format!("{name}_cpu_s_per_million"), bare.cpu_s_per_million);
        figures.insert(format!("{name}_per_s"), bare.messages_per_s);
    }
    figures.extend(flush_figures(folder.path(), quick)?);
    Ok(figures)
}

/// Measures the cost of a flush on the disk of `folder`.
///
/// # Errors
/// I/O errors.
pub fn flush_figures(folder: &Path, quick: bool) -> Result<BTreeMap<String, f64>> {
    let mut figures = BTreeMap::new();
    let alone = flushes(folder, FLUSH_BYTES, if quick { FLUSHES_QUICK } else { FLUSHES }, BARE_FILE_BYTES)?;
    if let Some(mean_ns) = alone.mean() {
        figures.insert("disk_flush_mean_ms".to_owned(), mean_ns / 1e9 * MS_PER_S);
        figures.insert("disk_flushes_per_s".to_owned(), 1e9 / mean_ns);
    }
    figures.extend(named("disk_flush", &alone));
    // As flushed by a broker with 50,000 messages of 1 KiB per second and a flush each millisecond.
    let count = if quick { PACED_PER_S } else { PACED_S * PACED_PER_S };
    figures.extend(named("paced_flush", &paced_flush(folder, PACED_BYTES, PACED_PER_S, count, BARE_FILE_BYTES)?));
    Ok(figures)
}

fn named(what: &str, latency: &Latency) -> Vec<(String, f64)> {
    let mut stated = vec![(format!("{what}_max_ms"), seconds(latency.max()) * MS_PER_S)];
    for (name, percentile) in [("p50", 50.0), ("p99", 99.0), ("p99.9", 99.9)] {
        stated.extend(latency.percentile(percentile).map(|ns| (format!("{what}_{name}_ms"), seconds(ns) * MS_PER_S)));
    }
    stated
}

/// Runs all bare loops; returns their results by name.
fn bare_loops(folder: &Path, quick: bool) -> Result<Vec<(&'static str, Bare)>> {
    let bytes = |full| if quick { BARE_QUICK_BYTES } else { full };
    let write = |batch, flushed, full| write_loop(folder, bytes(full), batch, BARE_FILE_BYTES, flushed);
    Ok(vec![
        ("write_16KB", write(16_384, false, BARE_BYTES)?),
        ("write_16KB_flushed", write(16_384, true, BARE_FLUSHED_BYTES)?),
        ("write_1MB", write(1_000_000, false, BARE_BYTES)?),
        ("write_1MB_flushed", write(1_000_000, true, BARE_BYTES)?),
        ("sendfile", sendfile_loop(folder, bytes(4 * BARE_BYTES), BARE_FILE_BYTES)?),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_has_a_cost_that_is_told_in_both_ways() {
        let place = std::env::temp_dir().join(format!("polylogue-bench-machine-{}", std::process::id()));
        let folder = Folder::create(&place).expect("a folder");
        let stated = flush_figures(folder.path(), true).expect("it runs");
        let (mean, rate) = (stated["disk_flush_mean_ms"], stated["disk_flushes_per_s"]);
        assert!(mean > 0.0 && (mean * rate - MS_PER_S).abs() < 1e-6, "{stated:?}");
        for name in ["disk_flush_p50_ms", "disk_flush_max_ms", "paced_flush_p50_ms", "paced_flush_max_ms"] {
            assert!(stated[name] > 0.0, "{name}: {stated:?}");
        }
    }
}
