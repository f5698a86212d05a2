//! Resource usage of a broker's processes, sampled from /proc.
//!
//! ```text
//!   /proc/PID/stat       user and system time, in ticks of 10 ms     threads
//!   /proc/PID/status     RssAnon, RssFile, RssShmem                  cheap: sampled each second
//!   /proc/PID/smaps_rollup    Anonymous, Pss_Shmem                   walks all pages, which disturbs a busy broker: when idle only
//!   /proc/PID/io         read_bytes, write_bytes                     device I/O
//!   /proc/PID/fd         open files: the size of the directory
//!   /proc/PID/task/*/children    child processes: a broker is the sum of its processes
//!   /proc/stat           idle share of the machine
//! ```
//!
//! A heap may be shared memory, mapped several times, as in a JVM with ZGC. `RssShmem` counts a page once per mapping, `Pss_Shmem`
//! once. Shared memory without a file is private to the broker, as anonymous memory is, and is added to it.

use crate::clock::{SECOND_NS, monotonic_ns, seconds, unix_ns};
use crate::error::{BenchError, Context, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Sampling interval.
const EVERY: Duration = Duration::from_secs(1);
/// Limit on samples: four hours.
const SAMPLES_MAX: usize = 4 * 3_600;
/// A broker is idle if it uses at most this share of a core over [`EVERY`],
const IDLE_SHARE: f64 = 0.03;
/// or at most this share [`RESTING_TIMES`] times in a row: RocketMQ's processes take 5 to 14 % of a core when idle.
const RESTING_SHARE: f64 = 0.15;
/// See [`RESTING_SHARE`].
const RESTING_TIMES: u32 = 4;
/// Timeout for a broker's background work. Seconds.
pub const IDLE_S_MAX: u64 = 90;

/// Resource usage of a process, or the sum over several.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Sample {
    /// When it was taken, by the monotonic clock. Seconds.
    pub at_s: f64,
    /// User and system time since the process started. Seconds.
    pub cpu_s: f64,
    /// Anonymous memory; after [`Sample::taken_idle`] including shared memory. Bytes.
    pub anonymous_bytes: u64,
    /// Shared memory: each page once after [`Sample::taken_idle`], else once per mapping. Bytes.
    #[serde(default)]
    pub shared_bytes: u64,
    /// Resident memory of mapped files. Bytes.
    pub file_bytes: u64,
    /// Open files and sockets.
    pub files: u64,
    /// Threads.
    pub threads: u64,
    /// Bytes read from the device since the process started.
    pub read_bytes: u64,
    /// Bytes written to the device since the process started.
    pub write_bytes: u64,
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).context(|| format!("cannot read {path}"))
}

/// Returns the number after `name` in lines of the form `NAME: NUMBER ...`.
pub(crate) fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Parses /proc/PID/stat: user and system time in ticks, and the number of threads. The name in parentheses may contain any character.
pub fn parse_stat(text: &str) -> Option<(u64, u64)> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some((number(11)? + number(12)?, number(17)?))
}

/// Returns the number of open files and sockets of a process: since Linux 6.2 the size of `/proc/PID/fd` (the kernel's
/// filesystems/proc.rst). Listing 15,000 entries instead would occupy a core for 11 ms.
fn open_files(pid: u32) -> Result<u64> {
    let folder = format!("/proc/{pid}/fd");
    let said = || format!("cannot list {folder}");
    match fs::metadata(&folder).context(said)?.len() {
        0 => Ok(fs::read_dir(&folder).context(said)?.count() as u64),
        stated => Ok(stated),
    }
}

impl Sample {
    /// Samples a process.
    ///
    /// # Errors
    /// It does not exist or belongs to another user.
    pub fn take(pid: u32) -> Result<Sample> {
        let stat = read(&format!("/proc/{pid}/stat"))?;
        let (ticks, threads) =
            parse_stat(&stat).ok_or_else(|| BenchError::new(format!("cannot parse /proc/{pid}/stat: {stat}")))?;
        let status = read(&format!("/proc/{pid}/status"))?;
        let io = read(&format!("/proc/{pid}/io"))?;
        let files = open_files(pid)?;
        let kib = |name| field(&status, name).unwrap_or(0).saturating_mul(1_024);
        Ok(Sample {
            at_s: seconds(monotonic_ns()),
            cpu_s: ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
            anonymous_bytes: kib("RssAnon"),
            shared_bytes: kib("RssShmem"),
            file_bytes: kib("RssFile"),
            files,
            threads,
            read_bytes: field(&io, "read_bytes").unwrap_or(0),
            write_bytes: field(&io, "write_bytes").unwrap_or(0),
        })
    }

    /// Samples all processes of a broker, and returns their sum. Helpers, all but the first, may have exited.
    ///
    /// # Errors
    /// The first one does not exist or belongs to another user.
    pub fn take_all(pids: &[u32]) -> Result<Sample> {
        let (first, helpers) = pids.split_first().ok_or_else(|| BenchError::new("no process to sample"))?;
        let mut sum = Sample::take(*first)?;
        for helper in helpers.iter().filter_map(|pid| Sample::take(*pid).ok()) {
            sum.cpu_s += helper.cpu_s;
            sum.anonymous_bytes += helper.anonymous_bytes;
            sum.shared_bytes += helper.shared_bytes;
            sum.file_bytes += helper.file_bytes;
            sum.files += helper.files;
            sum.threads += helper.threads;
            sum.read_bytes += helper.read_bytes;
            sum.write_bytes += helper.write_bytes;
        }
        Ok(sum)
    }

    /// Samples all processes of an idle broker, with its memory counted page by page, which would disturb a busy one.
    ///
    /// # Errors
    /// As [`Sample::take_all`].
    pub fn take_idle(pids: &[u32]) -> Result<Sample> {
        Sample::take_all(pids).map(|sample| sample.taken_idle(pids))
    }

    /// Replaces the memory by that of these processes, counted page by page.
    #[must_use]
    fn taken_idle(self, pids: &[u32]) -> Sample {
        let own: Vec<(u64, u64)> = pids.iter().filter_map(|pid| own_memory(*pid)).collect();
        match own.is_empty() {
            // Without smaps_rollup, shared memory is counted once per mapping.
            true => Sample { anonymous_bytes: self.anonymous_bytes.saturating_add(self.shared_bytes), ..self },
            false => {
                let (anonymous, shared_bytes) = own.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
                Sample { anonymous_bytes: anonymous + shared_bytes, shared_bytes, ..self }
            }
        }
    }
}

/// Returns anonymous and shared memory of a process, each page once. Bytes. `None` without smaps_rollup.
fn own_memory(pid: u32) -> Option<(u64, u64)> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let bytes = |name| Some(field(&rollup, name)?.saturating_mul(1_024));
    Some((bytes("Anonymous")?, bytes("Pss_Shmem")?))
}

/// Returns the ids of a process and all of its descendants.
#[must_use]
pub fn family(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(parent) = all.get(next) {
        for task in fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
        next += 1;
    }
    all
}

/// Processor time of the machine since boot: total and idle. Ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    idle: u64,
    all: u64,
}

impl Machine {
    /// Samples the machine.
    ///
    /// # Errors
    /// /proc/stat cannot be read.
    pub fn take() -> Result<Machine> {
        let text = read("/proc/stat")?;
        let first = text.lines().next().unwrap_or_default();
        // user nice system idle iowait irq softirq steal; guest times are part of user and nice.
        let ticks: Vec<u64> = first.split_whitespace().skip(1).take(8).filter_map(|tick| tick.parse().ok()).collect();
        let idle = ticks.get(3).zip(ticks.get(4)).map(|(idle, waiting)| idle + waiting);
        let idle = idle.ok_or_else(|| BenchError::new(format!("cannot parse /proc/stat: {first}")))?;
        Ok(Machine { idle, all: ticks.iter().sum() })
    }

    /// Returns the idle share since `before`, 0 to 1.
    #[must_use]
    pub fn idle_since(&self, before: &Machine) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        self.idle.saturating_sub(before.idle) as f64 / all as f64
    }
}

/// Detects an idle broker from consecutive samples.
#[derive(Debug, Default)]
struct IdleDetector {
    times: u32,
}

impl IdleDetector {
    fn is_idle(&mut self, share: f64) -> bool {
        self.times = if share <= RESTING_SHARE { self.times + 1 } else { 0 };
        share <= IDLE_SHARE || self.times >= RESTING_TIMES
    }
}

/// Waits until a broker is idle. Returns the sample then and `true`, or after [`IDLE_S_MAX`] the last one and `false`.
///
/// # Errors
/// The first process has exited.
pub fn wait_idle(pids: &[u32]) -> Result<(Sample, bool)> {
    let end = monotonic_ns().saturating_add(IDLE_S_MAX * SECOND_NS);
    let mut before = Sample::take_all(pids)?;
    let mut detector = IdleDetector::default();
    loop {
        std::thread::sleep(EVERY);
        let now = Sample::take_all(pids)?;
        if detector.is_idle((now.cpu_s - before.cpu_s) / (now.at_s - before.at_s)) {
            return Ok((now.taken_idle(pids), true));
        }
        if monotonic_ns() > end {
            return Ok((now.taken_idle(pids), false));
        }
        before = now;
    }
}

/// Takes samples every second on a thread of its own.
#[derive(Debug)]
pub struct Sampler<T> {
    stop: Sender<()>,
    thread: JoinHandle<Vec<T>>,
}

impl<T: Send + 'static> Sampler<T> {
    /// Starts sampling: calls `look` at once, and then every second.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(look: impl FnMut() -> Result<T> + Send + 'static) -> Result<Sampler<T>> {
        Sampler::start_at(unix_ns(), look)
    }

    /// Starts sampling at a time (Unix nanoseconds), and every second after it.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start_at(start_ns: u64, mut look: impl FnMut() -> Result<T> + Send + 'static) -> Result<Sampler<T>> {
        let (stop, stopped): (Sender<()>, Receiver<()>) = channel();
        let body = move || {
            let mut samples = Vec::new();
            let mut next_ns = start_ns;
            loop {
                let left = Duration::from_nanos(next_ns.saturating_sub(unix_ns()));
                // The last second is sampled even if it is incomplete: its end may be needed.
                let ended = stopped.recv_timeout(left) != Err(RecvTimeoutError::Timeout);
                next_ns += SECOND_NS;
                match look() {
                    Ok(sample) if samples.len() < SAMPLES_MAX => samples.push(sample),
                    // An exited process is detected by the code that started it.
                    Ok(_) | Err(_) => {}
                }
                if ended {
                    return samples;
                }
            }
        };
        let thread = Builder::new()
            .name("bench-sample".to_owned())
            .spawn(body)
            .context(|| "cannot start a thread".to_owned())?;
        Ok(Sampler { stop, thread })
    }

    /// Stops sampling, and returns the samples.
    #[must_use]
    pub fn finish(self) -> Vec<T> {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::process_cpu_ns;
    use std::hint::black_box;

    /// Regression test: RocketMQ was never idle: each of its runs waited three times 90 s and did not count.
    #[test]
    fn a_broker_with_little_background_work_is_idle_after_some_seconds() {
        let looks = |shares: &[f64]| {
            let mut detector = IdleDetector::default();
            shares.iter().position(|share| detector.is_idle(*share))
        };
        assert_eq!(looks(&[0.9, 0.4, 0.02, 0.0]), Some(2));
        assert_eq!(looks(&[0.14, 0.11, 0.05, 0.14, 0.05]), Some(3));
        assert_eq!(looks(&[0.14, 0.11, 0.5, 0.14, 0.05, 0.1]), None);
        assert_eq!(looks(&[0.16; 90]), None);
    }

    #[test]
    fn stat_is_parsed_with_any_process_name() {
        let line = "4711 (a) b ) (c) S 1 2 3 4 5 6 7 8 9 10 111 22 0 0 20 0 33 0 99 1000 500";
        assert_eq!(parse_stat(line), Some((133, 33)));
        assert_eq!(parse_stat("4711 (short) S 1"), None);
        assert_eq!(field("RssAnon:\t  12 kB\nRssFile:\t 3 kB\n", "RssFile"), Some(3));
    }

    #[test]
    fn an_incomplete_second_is_sampled() {
        let mut looks = 0;
        let count = move || {
            looks += 1;
            Ok(looks)
        };
        let samples = Sampler::start(count).expect("a thread").finish();
        assert!(!samples.is_empty(), "the incomplete second is sampled");
        let past = unix_ns() - 2 * SECOND_NS - SECOND_NS / 2;
        let mut looks = 0;
        let count = move || {
            looks += 1;
            Ok(looks)
        };
        let samples = Sampler::start_at(past, count).expect("a thread").finish();
        assert!((1..=4).contains(&samples.len()), "{samples:?}");
    }

    /// This process is busy for a second. Its CPU clock is read before and after each sample: the sampled time is between the shorter
    /// and the longer span, except for a tick at either end, regardless of other tests in this process.
    #[test]
    fn processor_time_agrees_with_the_cpu_clock() {
        let me = std::process::id();
        let look = || {
            let earlier = process_cpu_ns();
            let sample = Sample::take(me).expect("a sample");
            (seconds(earlier), sample, seconds(process_cpu_ns()))
        };
        let (before_from, before, before_to) = look();
        let (start, mut sum) = (process_cpu_ns(), 0_u64);
        while process_cpu_ns() - start < SECOND_NS {
            sum = black_box(sum.wrapping_add(black_box(1)));
        }
        let (after_from, after, after_to) = look();
        let sampled = after.cpu_s - before.cpu_s;
        let (least, most) = (after_from - before_to - 0.02, after_to - before_from + 0.02);
        assert!((least..=most).contains(&sampled), "sampled {sampled}, by the clock {least} to {most}");
        assert!(after.threads >= 1 && after.files >= 3);
    }

    /// A program with a filled buffer of 128 MiB. The sample agrees within 2 % with that size and with the kernel's count by page.
    #[test]
    fn memory_agrees_with_the_allocated_size_and_the_count_by_page() {
        let taken = 128_u64 << 20;
        let mut command = std::process::Command::new("dd");
        command.args(["if=/dev/zero", "bs=128M", "count=1"]).stdout(std::process::Stdio::piped());
        let mut child = command.stderr(std::process::Stdio::null()).spawn().expect("dd starts");
        let end = monotonic_ns() + 60 * SECOND_NS;
        let sampled = loop {
            let sampled = Sample::take(child.id()).expect("it is there").anonymous_bytes;
            if sampled >= taken || monotonic_ns() > end {
                break sampled;
            }
            std::thread::yield_now();
        };
        let counted = read(&format!("/proc/{}/smaps_rollup", child.id())).expect("it is there");
        child.kill().and_then(|()| child.wait()).expect("it ends");
        let counted = field(&counted, "Anonymous").expect("a count") * 1_024;
        for right in [taken, counted] {
            let off = (sampled as f64 - right as f64).abs() / right as f64;
            assert!(off <= 0.02, "sampled {sampled}, expected {right}");
        }
    }

    /// Regression test: listing the files delayed the clients of a broker with many files each second.
    #[test]
    fn the_number_of_open_files_is_that_of_the_listing() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().expect("it starts");
        let (stated, listed) = (open_files(child.id()), fs::read_dir(format!("/proc/{}/fd", child.id())));
        let listed = listed.map(Iterator::count);
        child.kill().and_then(|()| child.wait()).expect("it ends");
        assert_eq!(stated.expect("a count"), listed.expect("a listing") as u64);
        assert!(open_files(u32::MAX).is_err(), "absent");
    }

    /// Regression test: such memory was counted as mapped files, once per mapping. If Python is installed, it fills 128 MiB of shared memory
    /// that it has mapped twice, as a JVM with ZGC does with its heap.
    #[test]
    fn a_heap_of_shared_memory_is_counted_once() {
        let taken = 128_u64 << 20;
        let script = "import mmap, os, sys\nprint(flush=True); sys.stdin.readline()\nn = 128 << 20\nf = os.memfd_create('heap')\n\
            os.ftruncate(f, n)\na, b = mmap.mmap(f, n), mmap.mmap(f, n)\n\
            for at in range(0, n, 4096): a[at] = 1; b[at] = 2\nprint(flush=True); sys.stdin.readline()";
        let mut command = std::process::Command::new("python3");
        command.args(["-c", script]).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let Ok(mut child) = command.stderr(std::process::Stdio::null()).spawn() else { return };
        let (mut to, mut from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let mut wait = || std::io::Read::read_exact(&mut from, &mut [0]);
        let pids = [child.id()];
        let looks = wait().and_then(|()| {
            let before = Sample::take_idle(&pids);
            std::io::Write::write_all(&mut to, b"\n")?;
            wait().map(|()| (before, Sample::take(child.id()), Sample::take_idle(&pids)))
        });
        child.kill().and_then(|()| child.wait()).expect("it ends");
        let Ok((Ok(before), Ok(cheap), Ok(after))) = looks else { return };
        for grown in [after.anonymous_bytes - before.anonymous_bytes, after.shared_bytes - before.shared_bytes] {
            let off = (grown as f64 - taken as f64).abs() / taken as f64;
            assert!(off <= 0.02, "{grown} for {taken}");
        }
        assert!(cheap.shared_bytes >= 2 * taken, "the cheap count has each page twice: {cheap:?}");
        assert!(cheap.file_bytes < taken, "it is not counted as a mapped file: {cheap:?}");
    }

    #[test]
    fn a_sleeping_process_is_idle() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().expect("sleep starts");
        let idle = wait_idle(&[child.id()]);
        child.kill().and_then(|()| child.wait()).expect("it ends");
        assert!(idle.expect("it was there").1);
    }

    #[test]
    fn child_processes_are_included() {
        let mut shell = std::process::Command::new("sh");
        let mut child = shell.args(["-c", "sleep 30 & sleep 30 & wait"]).spawn().expect("a shell starts");
        let pids = loop {
            let pids = family(child.id());
            if pids.len() == 3 {
                break pids;
            }
            std::thread::yield_now();
        };
        let alone = Sample::take(child.id()).expect("it is there");
        let all = Sample::take_all(&pids).expect("it is there");
        for pid in pids.iter().skip(1) {
            let pid = i32::try_from(*pid).ok().and_then(rustix::process::Pid::from_raw).expect("a process id");
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it ends");
        }
        child.wait().expect("it ends");
        assert_eq!((alone.threads, all.threads), (1, 3));
        assert!(all.anonymous_bytes > alone.anonymous_bytes);
    }
}
