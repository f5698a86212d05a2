//! How busy a client was. A saturated client hides the broker's limit.
//!
//! ```text
//!   raw driver           one thread for each role: its processor time over the time of its run
//!   AMQP driver          the same, with both roles concurrently: two threads
//!   librdkafka, Java     two for each role, application and network, limited by the client's cores
//!   perf-test            another program's process: /proc/PID/task/TID/stat, the busiest thread
//! ```

use crate::clock::{monotonic_ns, seconds};
use crate::drive::Driver;
use crate::error::{Context, Result};
use crate::sample::parse_stat;
use std::collections::BTreeMap;
use std::fs;

/// A client at least this busy is the limit of its run. A share of what it can use.
pub const BOUND_SHARE: f64 = 0.85;
/// Time after the start of a JVM that is not representative. Seconds.
const START_S: f64 = 2.0;

/// Returns the number of threads of a client that work for one role (write or read) concurrently; `None` if that is observed from
/// outside.
#[must_use]
pub fn threads(driver: Driver) -> Option<usize> {
    match driver {
        Driver::Raw => Some(1),
        Driver::Amqp | Driver::Librdkafka | Driver::Java => Some(2),
        Driver::PerfTest => None,
    }
}

/// A sample of a process's threads.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Threads {
    /// Time of the sample. Seconds of the monotonic clock.
    pub at_s: f64,
    /// User and system time of each thread since its start, by id. Seconds.
    pub cpu_s: BTreeMap<u32, f64>,
}

impl Threads {
    /// Samples the threads of a process.
    ///
    /// # Errors
    /// It has ended or belongs to another user.
    pub fn take(pid: u32) -> Result<Threads> {
        let folder = format!("/proc/{pid}/task");
        let mut cpu_s = BTreeMap::new();
        for entry in fs::read_dir(&folder).context(|| format!("cannot list {folder}"))?.flatten() {
            // A thread that has just ended has no file any more.
            let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
            let id = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
            if let Some((id, (ticks, _))) = id.zip(parse_stat(&stat)) {
                cpu_s.insert(id, ticks as f64 / rustix::param::clock_ticks_per_second() as f64);
            }
        }
        Ok(Threads { at_s: seconds(monotonic_ns()), cpu_s })
    }
}

/// Returns the share of a core used by the busiest thread, without the process's first seconds; `None` if it ran for less.
#[must_use]
pub fn busiest(samples: &[Threads]) -> Option<f64> {
    let began_s = samples.first()?.at_s + START_S;
    let mut rest = samples.iter().skip_while(|sample| sample.at_s < began_s);
    let first = rest.next()?;
    // A thread counts up to the sample in which it was last seen.
    let mut last: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    for sample in rest {
        last.extend(sample.cpu_s.iter().map(|(id, cpu_s)| (*id, (sample.at_s, *cpu_s))));
    }
    let share = |(id, (at_s, cpu_s)): (&u32, &(f64, f64))| {
        (cpu_s - first.cpu_s.get(id).copied().unwrap_or(0.0)) / (at_s - first.at_s)
    };
    last.iter().map(share).filter(|share| share.is_finite()).max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{MS_NS, thread_cpu_ns};
    use std::hint::black_box;

    fn threads(at_s: f64, cpu_s: &[(u32, f64)]) -> Threads {
        Threads { at_s, cpu_s: cpu_s.iter().copied().collect() }
    }

    #[test]
    fn the_busiest_thread_tells_how_busy_a_process_is() {
        let samples = [
            threads(10.0, &[(1, 0.0)]),
            threads(11.0, &[(1, 1.0)]),
            threads(12.0, &[(1, 1.9), (2, 0.1)]),
            threads(13.0, &[(1, 2.0), (2, 1.0), (3, 0.1)]),
            threads(14.0, &[(1, 2.1), (3, 0.2)]),
        ];
        let share = busiest(&samples).expect("two seconds are left");
        assert!((share - 0.9).abs() < 1e-9, "the second thread, until it ended; its start is left out: {share}");
        assert_eq!(busiest(&samples[..3]), None, "nothing is left of a run of two seconds");
        assert_eq!(busiest(&[]), None);
    }

    #[test]
    fn a_thread_that_works_is_seen_by_itself() {
        let me = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let look = || {
            let threads = Threads::take(std::process::id()).expect("the threads");
            (seconds(thread_cpu_ns()), threads.at_s, threads.cpu_s.get(&me).copied().expect("this thread"))
        };
        let (clock_before, at_before, seen_before) = look();
        let (start, mut sum) = (thread_cpu_ns(), 0_u64);
        while thread_cpu_ns() - start < 300 * MS_NS {
            sum = black_box(sum.wrapping_add(black_box(1)));
        }
        let (clock_after, at_after, seen_after) = look();
        let (clock, seen) = (clock_after - clock_before, seen_after - seen_before);
        assert!((clock - seen).abs() < 0.05, "the clock says {clock}, seen were {seen}");
        assert!(at_after > at_before);
    }
}
