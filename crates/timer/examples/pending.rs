//! What pending timers cost: `cargo run --release -p polylogue-timer --example pending [timers]`.
//!
//! Inserts ten million timers over thirty days with checkpoints in between, starts anew from the checkpoint, and carries out
//! an hour of them. Prints times, bytes read at the start, and the most that was in memory.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a measurement, of wall time")]

use bytes::Bytes;
use polylogue_timer::{Kind, TimerId, TimerKey, TimerOp, Timers, record};
use std::collections::BTreeMap;
use std::time::Instant;

const NOW_MS: u64 = 1_800_000_000_000;
const DAYS_30_MS: u64 = 30 * 24 * 3600 * 1000;
const RECORD: u64 = 1000;

fn checkpoint(timers: &mut Timers, disk: &mut BTreeMap<Bytes, Bytes>) -> usize {
    let (number, chunks) = timers.take_changed_chunks();
    let mut written = 0;
    for (id, chunk) in chunks {
        match chunk {
            Some(chunk) => {
                written += chunk.len();
                disk.insert(id, chunk);
            }
            None => _ = disk.remove(&id),
        }
    }
    timers.saved(number);
    written
}

fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4 / 1024
}

fn main() {
    let count: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(10_000_000);
    let mut timers = Timers::new();
    let mut disk = BTreeMap::new();
    let (mut written, mut most) = (0, 0);
    let start = Instant::now();
    for first in (0..count).step_by(RECORD as usize) {
        let ops = (first..first + RECORD).map(|n| {
            let deadline_ms = NOW_MS + n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % DAYS_30_MS;
            TimerOp::Insert(TimerId { deadline_ms, kind: Kind::DELIVER, key: TimerKey { object: n % 100, item: n } })
        });
        timers.apply(&record(&ops.collect::<Vec<_>>()), NOW_MS as i64).unwrap();
        most = most.max(timers.resident());
        if timers.wants_checkpoint() {
            written += checkpoint(&mut timers, &mut disk);
        }
    }
    written += checkpoint(&mut timers, &mut disk);
    let on_disk: usize = disk.values().map(Bytes::len).sum();
    println!(
        "{count} timers in {:.1} s: {} ns each; {} MiB on disk in {} chunks, {} MiB written, at most {most} in memory",
        start.elapsed().as_secs_f64(),
        start.elapsed().as_nanos() / u128::from(count),
        on_disk >> 20,
        disk.len(),
        written >> 20,
    );
    drop(timers);
    let (before, start) = (resident_mib(), Instant::now());
    let mut timers = Timers::new();
    let mut read = 0;
    for (id, chunk) in disk.iter().filter(|(id, _)| !Timers::is_lazy(id)) {
        timers.load_chunk(id, chunk).unwrap();
        read += chunk.len();
    }
    timers.reset_tail();
    println!(
        "start: {read} bytes read in {} us, {} pending, {} in memory, {} MiB more than before",
        start.elapsed().as_micros(),
        timers.pending(),
        timers.resident(),
        resident_mib().saturating_sub(before),
    );
    let (mut now, mut done, mut late, mut most, mut parts) = (NOW_MS, 0u64, 0u64, 0, 0u64);
    let start = Instant::now();
    while now < NOW_MS + 3_600_000 {
        let mut due = Vec::new();
        timers.due(now as i64, 10_000, &mut due);
        done += due.len() as u64;
        late = late.max(due.first().map_or(0, |id| now - id.deadline_ms));
        timers.apply(&record(&due.into_iter().map(TimerOp::Remove).collect::<Vec<_>>()), now as i64).unwrap();
        // A disk that gives a thousand parts a second.
        for id in timers.wanted(10) {
            timers.load_part(&id, &disk[&id]).unwrap();
            parts += 1;
        }
        most = most.max(timers.resident());
        if timers.wants_checkpoint() {
            checkpoint(&mut timers, &mut disk);
        }
        now += 10;
    }
    println!(
        "an hour: {done} carried out in {:.1} s, {parts} parts read, the latest {late} ms late, at most {most} in memory",
        start.elapsed().as_secs_f64()
    );
}
