//! What a broker's process costs: read from /proc.
//!
//! ```text
//!   /proc/PID/stat       user and system time, in ticks of 10 ms     threads
//!   /proc/PID/status     RssAnon, RssFile, RssShmem                  cheap: each second
//!   /proc/PID/smaps_rollup    Anonymous, Pss_Shmem                   walks all pages and would be noticed: of an idle broker only
//!   /proc/PID/io         read_bytes, write_bytes                     what went to and came from the device
//!   /proc/PID/fd         open files, by the size of the folder
//!   /proc/PID/task/*/children    helpers of a broker of several processes: all are counted together
//!   /proc/stat           how much of the machine was idle
//! ```
//!
//! A heap may be shared memory: that of a JVM with ZGC is, and is mapped several times. `RssShmem` counts each page as often as it is mapped,
//! `Pss_Shmem` once. Shared memory without a file is a process's own as its anonymous memory is, and is counted with that.

use crate::clock::{SECOND_NS, monotonic_ns, seconds, unix_ns};
use crate::error::{BenchError, Context, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// How often a process is looked at.
const EVERY: Duration = Duration::from_secs(1);
/// The most samples that are kept: four hours of them.
const SAMPLES_MAX: usize = 4 * 3_600;
/// A broker is idle when it uses less than this share of one core over [`EVERY`],
const IDLE_SHARE: f64 = 0.03;
/// or less than this one so many times in a row: RocketMQ's processes take 5 to 14 % of a core with nothing to do.
const RESTING_SHARE: f64 = 0.15;
/// See [`RESTING_SHARE`].
const RESTING_TIMES: u32 = 4;
/// How long is waited for a broker's background work. Seconds.
pub const IDLE_S_MAX: u64 = 90;

/// A process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since sampling began.
    pub at_s: f64,
    /// User and system time since the process began. Seconds.
    pub cpu_s: f64,
    /// Memory of its own: anonymous and, when it was [`Sample::taken_idle`], shared. Bytes.
    pub anonymous_bytes: u64,
    /// Shared memory: each page once when it was [`Sample::taken_idle`], else as often as it is mapped. Bytes.
    #[serde(default)]
    pub shared_bytes: u64,
    /// Mapped files, as far as they are in memory. Bytes.
    pub file_bytes: u64,
    /// Open files and sockets.
    pub files: u64,
    /// Threads.
    pub threads: u64,
    /// Bytes that had to come from the device since the process began.
    pub read_bytes: u64,
    /// Bytes that were written for the device since the process began.
    pub write_bytes: u64,
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).context(|| format!("cannot read {path}"))
}

/// The number after `name` in lines of `NAME: NUMBER ...`.
pub(crate) fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// User and system time, and the number of threads, of a line of /proc/PID/stat. The name in it, in brackets, may hold anything.
pub fn parse_stat(text: &str) -> Option<(u64, u64)> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some((number(11)? + number(12)?, number(17)?))
}

/// How many files and sockets a process has open. Since Linux 6.2 their folder tells it as its size (`/proc/PID/fd` in the kernel's
/// filesystems/proc.rst); a program that lists 15,000 of them takes 11 ms for it, in which nothing else has that core.
fn open_files(pid: u32) -> Result<u64> {
    let folder = format!("/proc/{pid}/fd");
    let said = || format!("cannot list {folder}");
    match fs::metadata(&folder).context(said)?.len() {
        0 => Ok(fs::read_dir(&folder).context(said)?.count() as u64),
        stated => Ok(stated),
    }
}

impl Sample {
    /// Looks at a process.
    ///
    /// # Errors
    /// When it is gone or belongs to another user.
    pub fn take(pid: u32) -> Result<Sample> {
        let stat = read(&format!("/proc/{pid}/stat"))?;
        let (ticks, threads) =
            parse_stat(&stat).ok_or_else(|| BenchError::new(format!("/proc/{pid}/stat is not as expected: {stat}")))?;
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

    /// Looks at all processes of a broker. The first one must be there; a helper may have gone.
    ///
    /// # Errors
    /// When the first one is gone or belongs to another user.
    pub fn take_all(pids: &[u32]) -> Result<Sample> {
        let (first, helpers) = pids.split_first().ok_or_else(|| BenchError::new("no process to look at"))?;
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

    /// Looks at all processes of a broker that has nothing to do, and counts their memory page by page: it would be noticed otherwise.
    ///
    /// # Errors
    /// As [`Sample::take_all`].
    pub fn take_idle(pids: &[u32]) -> Result<Sample> {
        Sample::take_all(pids).map(|sample| sample.taken_idle(pids))
    }

    /// The same with the memory of these processes as it is counted page by page.
    #[must_use]
    fn taken_idle(self, pids: &[u32]) -> Sample {
        let own: Vec<(u64, u64)> = pids.iter().filter_map(|pid| own_memory(*pid)).collect();
        match own.is_empty() {
            // A kernel that does not tell: what is mapped several times is counted as often.
            true => Sample { anonymous_bytes: self.anonymous_bytes.saturating_add(self.shared_bytes), ..self },
            false => {
                let (anonymous, shared_bytes) = own.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
                Sample { anonymous_bytes: anonymous + shared_bytes, shared_bytes, ..self }
            }
        }
    }
}

/// What a process has of anonymous and of shared memory, each page once. Bytes; `None` when the system does not tell.
fn own_memory(pid: u32) -> Option<(u64, u64)> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let bytes = |name| Some(field(&rollup, name)?.saturating_mul(1_024));
    Some((bytes("Anonymous")?, bytes("Pss_Shmem")?))
}

/// A process and all that it has started, and they.
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

/// How much processor time the machine had and how much of it was idle, in ticks since it was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    idle: u64,
    all: u64,
}

impl Machine {
    /// Looks at the machine.
    ///
    /// # Errors
    /// When /proc/stat cannot be read.
    pub fn take() -> Result<Machine> {
        let text = read("/proc/stat")?;
        let first = text.lines().next().unwrap_or_default();
        // user nice system idle iowait irq softirq steal; guest times are part of user and nice.
        let ticks: Vec<u64> = first.split_whitespace().skip(1).take(8).filter_map(|tick| tick.parse().ok()).collect();
        let idle = ticks.get(3).zip(ticks.get(4)).map(|(idle, waiting)| idle + waiting);
        let idle = idle.ok_or_else(|| BenchError::new(format!("/proc/stat is not as expected: {first}")))?;
        Ok(Machine { idle, all: ticks.iter().sum() })
    }

    /// The idle share of the time since `before`, 0 to 1.
    #[must_use]
    pub fn idle_since(&self, before: &Machine) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        self.idle.saturating_sub(before.idle) as f64 / all as f64
    }
}

/// Whether a broker is idle, by what it used in one look after the other.
#[derive(Debug, Default)]
struct Rest {
    times: u32,
}

impl Rest {
    fn is_idle(&mut self, share: f64) -> bool {
        self.times = if share <= RESTING_SHARE { self.times + 1 } else { 0 };
        share <= IDLE_SHARE || self.times >= RESTING_TIMES
    }
}

/// Waits until all processes of a broker have been idle for a second, or rest for some, and gives the sample then; after [`IDLE_S_MAX`] the one there is, and `false`.
///
/// # Errors
/// When the first process has gone.
pub fn wait_idle(pids: &[u32]) -> Result<(Sample, bool)> {
    let end = monotonic_ns().saturating_add(IDLE_S_MAX * SECOND_NS);
    let mut before = Sample::take_all(pids)?;
    let mut rest = Rest::default();
    loop {
        std::thread::sleep(EVERY);
        let now = Sample::take_all(pids)?;
        if rest.is_idle((now.cpu_s - before.cpu_s) / (now.at_s - before.at_s)) {
            return Ok((now.taken_idle(pids), true));
        }
        if monotonic_ns() > end {
            return Ok((now.taken_idle(pids), false));
        }
        before = now;
    }
}

/// Looks at something every second on a thread of its own.
#[derive(Debug)]
pub struct Sampler<T> {
    stop: Sender<()>,
    thread: JoinHandle<Vec<T>>,
}

impl<T: Send + 'static> Sampler<T> {
    /// Begins: `look` is called at once, and then every second.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn looking(look: impl FnMut() -> Result<T> + Send + 'static) -> Result<Sampler<T>> {
        Sampler::looking_from(unix_ns(), look)
    }

    /// The same from a moment on, and whole seconds after it. Unix nanoseconds.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn looking_from(start_ns: u64, mut look: impl FnMut() -> Result<T> + Send + 'static) -> Result<Sampler<T>> {
        let (stop, stopped): (Sender<()>, Receiver<()>) = channel();
        let body = move || {
            let mut samples = Vec::new();
            let mut next_ns = start_ns;
            loop {
                let left = Duration::from_nanos(next_ns.saturating_sub(unix_ns()));
                // What has begun of a second is looked at as well: its end may be what is asked for.
                let ended = stopped.recv_timeout(left) != Err(RecvTimeoutError::Timeout);
                next_ns += SECOND_NS;
                match look() {
                    Ok(sample) if samples.len() < SAMPLES_MAX => samples.push(sample),
                    // A process that has gone is found by its starter.
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

    /// Ends, and gives what was seen.
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

    /// RocketMQ was never idle: each of its runs waited for three times 90 s and did not count.
    #[test]
    fn a_broker_that_always_does_a_little_is_idle_after_some_seconds_and_one_that_works_is_not() {
        let looks = |shares: &[f64]| {
            let mut rest = Rest::default();
            shares.iter().position(|share| rest.is_idle(*share))
        };
        assert_eq!(looks(&[0.9, 0.4, 0.02, 0.0]), Some(2));
        assert_eq!(looks(&[0.14, 0.11, 0.05, 0.14, 0.05]), Some(3));
        assert_eq!(looks(&[0.14, 0.11, 0.5, 0.14, 0.05, 0.1]), None);
        assert_eq!(looks(&[0.16; 90]), None);
    }

    #[test]
    fn stat_is_read_whatever_the_process_is_called() {
        let line = "4711 (a) b ) (c) S 1 2 3 4 5 6 7 8 9 10 111 22 0 0 20 0 33 0 99 1000 500";
        assert_eq!(parse_stat(line), Some((133, 33)));
        assert_eq!(parse_stat("4711 (short) S 1"), None);
        assert_eq!(field("RssAnon:\t  12 kB\nRssFile:\t 3 kB\n", "RssFile"), Some(3));
    }

    #[test]
    fn every_second_is_looked_at_to_its_end() {
        let mut looks = 0;
        let count = move || {
            looks += 1;
            Ok(looks)
        };
        let samples = Sampler::looking(count).expect("a thread").finish();
        assert!(!samples.is_empty(), "what has begun is looked at");
        let past = unix_ns() - 2 * SECOND_NS - SECOND_NS / 2;
        let mut looks = 0;
        let count = move || {
            looks += 1;
            Ok(looks)
        };
        let samples = Sampler::looking_from(past, count).expect("a thread").finish();
        assert!((1..=4).contains(&samples.len()), "{samples:?}");
    }

    /// This very process burns a while. The clock of its processor time is read before and after each sample: what was sampled
    /// lies between the shorter and the longer span, but for a tick at either end, whatever other tests burn meanwhile.
    #[test]
    fn processor_time_agrees_with_the_systems_own_clock() {
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
        assert!((least..=most).contains(&sampled), "sampled {sampled}, the clock says {least} to {most}");
        assert!(after.threads >= 1 && after.files >= 3);
    }

    /// A program with a buffer of 128 MiB that it has filled waits until it is read. What was sampled is what it has taken, and what
    /// the system counts page by page, to 2 %.
    #[test]
    fn memory_agrees_with_what_was_taken_and_with_the_systems_own_count() {
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
            assert!(off <= 0.02, "sampled {sampled}, right were {right}");
        }
    }

    /// They were listed: a broker with many files had its clients wait for that each second.
    #[test]
    fn open_files_are_as_many_as_the_system_lists() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().expect("it starts");
        let (stated, listed) = (open_files(child.id()), fs::read_dir(format!("/proc/{}/fd", child.id())));
        let listed = listed.map(Iterator::count);
        child.kill().and_then(|()| child.wait()).expect("it ends");
        assert_eq!(stated.expect("they are stated"), listed.expect("they are listed") as u64);
        assert!(open_files(u32::MAX).is_err(), "absent");
    }

    /// Where there is a Python: one that has filled 128 MiB of shared memory, which it has mapped twice, as a JVM with ZGC does with its heap.
    /// Half of it was not counted at all, and as mapped files twice.
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
        assert!(cheap.file_bytes < taken, "it is no mapped file: {cheap:?}");
    }

    #[test]
    fn an_idle_process_is_seen_to_be_idle() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().expect("sleep starts");
        let idle = wait_idle(&[child.id()]);
        child.kill().and_then(|()| child.wait()).expect("it ends");
        assert!(idle.expect("it was there").1);
    }

    #[test]
    fn helpers_of_a_process_are_counted_with_it() {
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
