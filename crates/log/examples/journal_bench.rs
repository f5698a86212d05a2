//! How fast one journal takes proposals on this machine's disk, and what that costs.
//!
//! ```text
//! cargo run --release -p polylogue-log --example journal_bench -- [DIRECTORY] [SECONDS] [BYTES WINDOW]
//! ```
//!
//! Every row is one run on a fresh journal: the size of a proposal (one entry), how many are under way at a time, and the
//! class. "us" are microseconds from the proposal to its outcome, "CPU" is the whole process, proposer included, "written"
//! is what went to the files for each byte of payload, zeros included, "open" is what the next start takes with that many
//! megabytes of journal. The rows "raw" are what the disk gives: one thread that writes as much over a file that was written
//! before, and flushes after each write. With a BYTES and a WINDOW only rows of these are run.

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use polylogue_env::{Env, OpenMode};
use polylogue_log::frame::Frame;
use polylogue_log::journal::{
    CommitSink, Config, Draft, Durability, Identity, Journal, Outcome, Proposal, STAGE_BUCKETS_US, Stats,
};
use polylogue_log::{Error, Result};
use polylogue_record::crc::crc32c;
use polylogue_record::envelope::{Body, Envelope, Form};
use polylogue_types::{Index, NodeId, Offset, Ordinal, PartitionId, ShardId, Term};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Clock ticks of /proc in a second, on every Linux there is.
const TICKS_PER_SEC: u64 = 100;
const NS_PER_SEC: f64 = 1e9;

/// One row.
struct Case {
    bytes: usize,
    window: usize,
    durability: Durability,
    /// Release behind the writer, so that files are recycled.
    release: bool,
}

#[derive(Default)]
struct Progress {
    /// When each proposal under way was made, by ticket modulo the window.
    started: Vec<u64>,
    latencies: Vec<u64>,
    done: u64,
}

struct Sink {
    env: Env,
    progress: Mutex<Progress>,
    more: Condvar,
}

impl CommitSink for Sink {
    fn committed(&self, _: &[Arc<Frame>], outcomes: &[(u64, Outcome)]) {
        let now = self.env.clock.monotonic_ns();
        let mut progress = self.progress.lock();
        let window = progress.started.len() as u64;
        for (ticket, _) in outcomes {
            let began = progress.started[(ticket % window) as usize];
            progress.latencies.push(now - began);
        }
        progress.done += outcomes.len() as u64;
        drop(progress);
        self.more.notify_one();
    }
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().map_or_else(|| std::env::temp_dir().join("polylogue-journal-bench"), PathBuf::from);
    let seconds: u64 = args.next().and_then(|s| s.parse().ok()).unwrap_or(3);
    let only: Vec<usize> = args.filter_map(|s| s.parse().ok()).collect();
    println!(
        "   bytes  window  class   per sec     MB/s   p50 us   p99 us  p999 us  CPU s/GB  flushes written    late   open ms of MB"
    );
    for bytes in [1_000, 100_000, 1_000_000] {
        if only.first().is_none_or(|b| *b == bytes) {
            raw(&dir, seconds, bytes)?;
        }
    }
    for durability in [Durability::Sync, Durability::Async] {
        for (bytes, window) in [(1_000, 1), (1_000, 32), (1_000, 2_000), (100_000, 1), (100_000, 64), (1_000_000, 16)] {
            for release in [true, false] {
                let wanted = only.is_empty() || only == [bytes, window];
                if wanted && (release || window > 32) {
                    run(&dir, seconds, &Case { bytes, window, durability, release })?;
                }
            }
        }
    }
    Ok(())
}

/// Writes and flushes without a journal.
fn raw(dir: &Path, seconds: u64, bytes: usize) -> Result<()> {
    const FILE_BYTES: u64 = 64 << 20;
    let _ = std::fs::remove_dir_all(dir);
    let env = Env::real();
    let io = |e| Error::io("the raw disk", e);
    env.disk.create_dir_all(dir).map_err(io)?;
    let file = env.disk.open(&dir.join("raw"), OpenMode::CreateNew).map_err(io)?;
    file.write_all_at(&vec![0; FILE_BYTES as usize], 0).map_err(io)?;
    file.sync_data().map_err(io)?;
    let payload = vec![0x5a; bytes.next_multiple_of(4_096)];
    let (cpu, began) = (cpu_ticks(), env.clock.monotonic_ns());
    let (mut position, mut took) = (0, Vec::new());
    while env.clock.monotonic_ns() - began < seconds * 1_000_000_000 {
        let start = env.clock.monotonic_ns();
        file.write_all_at(&payload, position).map_err(io)?;
        file.sync_data().map_err(io)?;
        took.push(env.clock.monotonic_ns() - start);
        position += payload.len() as u64;
        if position + payload.len() as u64 > FILE_BYTES {
            position = 0;
        }
    }
    let elapsed = (env.clock.monotonic_ns() - began) as f64 / NS_PER_SEC;
    let cpu = cpu_ticks() - cpu;
    let count = took.len();
    took.sort_unstable();
    let at = |per_mille: usize| took.get(count * per_mille / 1_000).map_or(0, |ns| ns / 1_000);
    let payload = (count * bytes) as f64;
    println!(
        "{bytes:>8} {:>7} {:>6} {:>9.0} {:>8.1} {:>8} {:>8} {:>8} {:>9.2} {count:>8}",
        1,
        "raw",
        count as f64 / elapsed,
        payload / elapsed / 1e6,
        at(500),
        at(990),
        at(999),
        cpu as f64 / TICKS_PER_SEC as f64 / (payload / 1e9),
    );
    Ok(())
}

fn run(dir: &Path, seconds: u64, case: &Case) -> Result<()> {
    let _ = std::fs::remove_dir_all(dir);
    let env = Env::real();
    let identity = Identity { cluster: [1; 16], node: NodeId(1), directory: [2; 16], shard: ShardId(0) };
    let mut config = Config::new(dir.to_owned(), identity);
    config.durability = case.durability;
    let journal = Journal::open(&env, config.clone(), Index(0), &mut |_| Ok(()))?;
    let started = vec![0; case.window];
    let progress = Mutex::new(Progress { started, ..Progress::default() });
    let sink = Arc::new(Sink { env: env.clone(), progress, more: Condvar::new() });
    journal.attach(sink.clone());
    journal.run_threads()?;
    let epoch = journal.acquire()?;
    let payload = Bytes::from(vec![0x5a; case.bytes]);
    let checksum = crc32c(&payload);
    let (cpu, began) = (cpu_ticks(), env.clock.monotonic_ns());
    let (mut ticket, mut released) = (0, 0);
    while env.clock.monotonic_ns() - began < seconds * 1_000_000_000 {
        wait_for_room(&sink, ticket, case.window);
        propose(&journal, &sink, epoch, ticket, &payload, checksum);
        ticket += 1;
        let written = ticket * case.bytes as u64;
        if case.release && written - released > 64 << 20 {
            released = written;
            if let Some(durable) = journal.view().durable {
                journal.release(durable)?;
            }
        }
    }
    wait_for_room(&sink, ticket + case.window as u64 - 1, case.window);
    let ns = env.clock.monotonic_ns() - began;
    let cpu = cpu_ticks() - cpu;
    journal.shutdown()?;
    let (stats, from) = (journal.stats(), journal.view().first);
    drop(journal);
    let began = env.clock.monotonic_ns();
    let again = Journal::open(&env, config, from, &mut |_| Ok(()))?;
    let open = (env.clock.monotonic_ns() - began, again.recovery().bytes_read);
    report(case, ns, cpu, &mut sink.progress.lock(), &stats, open);
    let _ = std::fs::remove_dir_all(dir);
    Ok(())
}

/// Waits until fewer than `window` proposals are under way.
fn wait_for_room(sink: &Sink, ticket: u64, window: usize) {
    let mut progress = sink.progress.lock();
    while ticket - progress.done >= window as u64 {
        sink.more.wait(&mut progress);
    }
}

fn propose(journal: &Journal, sink: &Sink, epoch: Term, ticket: u64, payload: &Bytes, checksum: u32) {
    let mut envelope = Envelope::new(PartitionId(1 + ticket % 10), Form::Opaque);
    envelope.base_offset = Offset(ticket / 10);
    envelope.ordinal = Ordinal(ticket / 10);
    envelope.count = 1;
    envelope.body = Body::Inline { len: payload.len() as u32, checksum };
    let now = sink.env.clock.monotonic_ns();
    {
        let mut progress = sink.progress.lock();
        let window = progress.started.len() as u64;
        progress.started[(ticket % window) as usize] = now;
    }
    let mut proposal = Proposal::data(epoch, ticket, vec![Draft::new(envelope, payload.clone())]);
    while let Err(refused) = journal.try_propose(proposal) {
        proposal = *refused.proposal;
        std::thread::yield_now();
    }
}

/// User and system time of the process so far.
fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    after_name.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum()
}

fn report(case: &Case, ns: u64, cpu_ticks: u64, progress: &mut Progress, stats: &Stats, open: (u64, u64)) {
    let seconds = ns as f64 / NS_PER_SEC;
    let bytes = progress.done as f64 * case.bytes as f64;
    progress.latencies.sort_unstable();
    let at = |per_mille: usize| {
        let i = (progress.latencies.len() * per_mille / 1_000).min(progress.latencies.len().saturating_sub(1));
        progress.latencies.get(i).map_or(0, |ns| ns / 1_000)
    };
    let class = if case.durability == Durability::Sync { "sync" } else { "async" };
    println!(
        "{:>8} {:>7} {:>6} {:>9.0} {:>8.1} {:>8} {:>8} {:>8} {:>9.2} {:>8} {:>7.2} {:>7} {:>9.1} {:>5}{}",
        case.bytes,
        case.window,
        class,
        progress.done as f64 / seconds,
        bytes / seconds / 1e6,
        at(500),
        at(990),
        at(999),
        cpu_ticks as f64 / TICKS_PER_SEC as f64 / (bytes / 1e9),
        stats.flush.count,
        (stats.bytes_written + stats.bytes_prewritten) as f64 / bytes,
        stats.files_made_late,
        open.0 as f64 / 1e6,
        open.1 >> 20,
        if case.release { "" } else { "  no release" },
    );
    if std::env::var_os("JOURNAL_BENCH_FLUSHES").is_some() {
        let buckets = STAGE_BUCKETS_US.iter().map(ToString::to_string).chain(["more".to_owned()]);
        for (bound, count) in buckets.zip(stats.flush.buckets).filter(|(_, count)| *count > 0) {
            println!("         flushes up to {bound} us: {count}");
        }
    }
}
