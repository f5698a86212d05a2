//! The measurements of each second of a run, and the resulting series.
//!
//! ```text
//!   start            1 s            2 s            3 s
//!     |--------------|--------------|--------------|
//!   look 0         look 1         look 2         look 3         of the first second: look 1 minus look 0, or look 1 itself
//! ```

use crate::cgroup;
use crate::contract::Second;
use crate::error::Result;
use crate::host::{Connections, Device, DeviceId, loopback_bytes, page_cache_bytes};
use crate::jvm::{Collections, counters_of};
use crate::ladder::backlogs;
use crate::results::Series;
use crate::sample::{Sample, parse_stat};
use std::path::{Path, PathBuf};

const MIB_SHIFT: u32 = 20;

/// Takes measurements.
#[derive(Debug, Clone)]
pub struct Probe {
    /// The broker's processes; empty for a running broker that was named.
    broker: Vec<u32>,
    /// Its shared memory before the load, each page counted once; the per-second figures count a page as often as it is mapped. Bytes.
    shared_bytes: u64,
    clients: Vec<u32>,
    /// Processes of brokers that are up without a load.
    others: Vec<u32>,
    device: Option<DeviceId>,
    /// The file with the page cache of the broker's control group.
    group: Option<PathBuf>,
    /// The page cache of the machine before the broker was started. Bytes.
    page_cache_before: Option<u64>,
    connections: Option<Connections>,
    broker_jvms: Vec<PathBuf>,
    client_jvms: Vec<PathBuf>,
}

/// The measurements of one second.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Look {
    /// The broker.
    pub broker: Option<Sample>,
    /// Its page cache. Bytes.
    pub page_cache_bytes: Option<u64>,
    /// The device.
    pub device: Option<Device>,
    /// Connections to the broker.
    pub connections: Option<u64>,
    /// Total bytes over the loopback.
    pub loopback_bytes: Option<u64>,
    /// Total garbage collections of the broker.
    pub collections: Option<Collections>,
    /// Total processor time of the clients. Seconds.
    pub client_cpu_s: Option<f64>,
    /// Total garbage collections of the clients.
    pub client_collections: Option<Collections>,
    /// Total processor time of the brokers that are up without a load. Seconds.
    pub others_cpu_s: Option<f64>,
}

impl Probe {
    /// Creates a probe for a broker with its data in `folder` and its address `bootstrap`; `page_cache_before` is the machine's page cache before
    /// the start, `group` the file with that of its control group.
    #[must_use]
    pub fn new(
        broker: Vec<u32>,
        folder: &Path,
        bootstrap: &str,
        group: Option<PathBuf>,
        page_cache_before: Option<u64>,
    ) -> Probe {
        let port = bootstrap.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        let mine = !broker.is_empty();
        Probe {
            shared_bytes: Sample::take_idle(&broker).map_or(0, |sample| sample.shared_bytes),
            broker_jvms: broker.iter().filter_map(|pid| counters_of(*pid)).collect(),
            client_jvms: Vec::new(),
            others: Vec::new(),
            broker,
            clients: Vec::new(),
            device: DeviceId::of(folder).ok().filter(|_| mine),
            group,
            page_cache_before: page_cache_before.filter(|_| mine),
            connections: port.filter(|_| mine).map(Connections::of),
        }
    }

    /// Adds clients to measure.
    pub fn with_clients(&mut self, clients: &[u32]) {
        clients.clone_into(&mut self.clients);
        self.client_jvms = clients.iter().filter_map(|pid| counters_of(*pid)).collect();
    }

    /// Adds brokers without a load, which should cost nothing.
    pub fn with_others(&mut self, others: &[u32]) {
        others.clone_into(&mut self.others);
    }

    /// Returns the broker's total processor time; `None` for a running broker that was named. Seconds.
    #[must_use]
    pub fn broker_cpu_s(&self) -> Option<f64> {
        Sample::take_all(&self.broker).ok().map(|sample| sample.cpu_s)
    }

    /// Replaces the shared memory by its size before the load, plus its growth.
    fn own(&self, sample: Sample) -> Sample {
        let shared_bytes = sample.shared_bytes.min(self.shared_bytes);
        Sample { anonymous_bytes: sample.anonymous_bytes.saturating_add(shared_bytes), shared_bytes, ..sample }
    }

    /// Takes the measurements.
    ///
    /// # Errors
    /// The broker has ended.
    pub fn look(&mut self) -> Result<Look> {
        let broker = if self.broker.is_empty() { None } else { Some(self.own(Sample::take_all(&self.broker)?)) };
        let grown = || Some(page_cache_bytes()?.saturating_sub(self.page_cache_before?));
        let page_cache_bytes = match &self.group {
            Some(stat) => cgroup::page_cache_bytes(stat),
            None => grown(),
        };
        Ok(Look {
            broker,
            page_cache_bytes,
            device: self.device.and_then(DeviceId::take),
            connections: self.connections.as_mut().and_then(Connections::take),
            loopback_bytes: loopback_bytes(),
            collections: Collections::take_all(&self.broker_jvms),
            client_cpu_s: Sample::take_all(&self.clients).ok().map(|sample| sample.cpu_s),
            client_collections: Collections::take_all(&self.client_jvms),
            others_cpu_s: (!self.others.is_empty()).then(|| self.others.iter().filter_map(|pid| cpu_s(*pid)).sum()),
        })
    }
}

/// Returns a process's total processor time. Seconds. Reads one file, where a sample reads four.
fn cpu_s(pid: u32) -> Option<f64> {
    let (ticks, _) = parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn hundredths(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Returns a value at the end of each second.
fn at_ends<T>(looks: &[Look], value: impl Fn(&Look) -> Option<T>) -> Vec<T> {
    looks.iter().skip(1).map_while(value).collect()
}

/// Returns the growth of a value in each second.
fn grown<T>(looks: &[Look], value: impl Fn(&Look) -> Option<T>, less: impl Fn(T, T) -> T) -> Vec<T> {
    let pairs = looks.iter().zip(looks.iter().skip(1));
    pairs.map_while(|(from, to)| Some(less(value(to)?, value(from)?))).collect()
}

/// Returns the series of a run: the clients' reports and the measurements.
#[must_use]
pub fn series(stated: &[Second], groups: u32, looks: &[Look]) -> Series {
    let micros = |p99: Option<u64>, max: u64| p99.unwrap_or(max) / 1_000;
    let counts = |value: &dyn Fn(&Look) -> Option<u64>| grown(looks, value, u64::saturating_sub);
    let times = |value: &dyn Fn(&Look) -> Option<f64>| grown(looks, value, |to, from| hundredths((to - from).max(0.0)));
    let broker = |value: fn(&Sample) -> u64| at_ends(looks, |look| look.broker.as_ref().map(value));
    Series {
        acked: stated.iter().map(|second| second.acked).collect(),
        received: stated.iter().map(|second| second.received).collect(),
        publish_us: stated.iter().map(|second| micros(second.publish_p99_ns, second.publish_max_ns)).collect(),
        end_to_end_us: stated.iter().map(|second| micros(second.end_to_end_p99_ns, second.end_to_end_max_ns)).collect(),
        broker_cpu_s: times(&|look| Some(look.broker?.cpu_s)),
        broker_anonymous_mib: broker(|sample| sample.anonymous_bytes >> MIB_SHIFT),
        sent: stated.iter().map(|second| second.sent).collect(),
        backlog: backlogs(stated, groups),
        broker_shared_mib: broker(|sample| sample.shared_bytes >> MIB_SHIFT),
        broker_file_mib: broker(|sample| sample.file_bytes >> MIB_SHIFT),
        page_cache_mib: at_ends(looks, |look| look.page_cache_bytes.map(|bytes| bytes >> MIB_SHIFT)),
        files: broker(|sample| sample.files),
        threads: broker(|sample| sample.threads),
        connections: at_ends(looks, |look| look.connections),
        device_read_bytes: counts(&|look| Some(look.device?.read_bytes)),
        device_write_bytes: counts(&|look| Some(look.device?.write_bytes)),
        device_operations: counts(&|look| Some(look.device?.operations)),
        device_busy: times(&|look| Some((look.device?.busy_ms as f64) / 1e3)),
        loopback_bytes: counts(&|look| look.loopback_bytes),
        collections: counts(&|look| Some(look.collections?.count)),
        collection_ms: times(&|look| Some(look.collections?.ms)),
        client_cpu_s: times(&|look| look.client_cpu_s),
        client_collections: counts(&|look| Some(look.client_collections?.count)),
        client_collection_ms: times(&|look| Some(look.client_collections?.ms)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_what_lies_between_two_looks() {
        let look = |number: u64| Look {
            broker: Some(Sample {
                cpu_s: 1.0 + 0.25 * number as f64,
                anonymous_bytes: (10 + number) << 20,
                files: 7,
                ..Sample::default()
            }),
            device: Some(Device { write_bytes: 100 * number * number, busy_ms: 500 * number, ..Device::default() }),
            connections: Some(number),
            ..Look::default()
        };
        let stated: Vec<Second> =
            (0..3).map(|second| Second { second, sent: 10, received: 8, ..Second::default() }).collect();
        let series = series(&stated, 1, &[look(0), look(1), look(2), look(3)]);
        assert_eq!(series.broker_cpu_s, [0.25; 3]);
        assert_eq!(series.broker_anonymous_mib, [11, 12, 13]);
        assert_eq!(series.device_write_bytes, [100, 300, 500]);
        assert_eq!((series.device_busy, series.connections), (vec![0.5; 3], vec![1, 2, 3]));
        assert_eq!((series.sent, series.backlog), (vec![10; 3], vec![2, 4, 6]));
        assert!(
            series.collections.is_empty() && series.client_cpu_s.is_empty(),
            "of what is not there nothing is stated"
        );
    }

    #[test]
    fn shared_memory_is_the_brokers_own_but_not_as_often_as_it_is_mapped() {
        let probe = Probe { shared_bytes: 2 << 30, ..Probe::new(Vec::new(), &std::env::temp_dir(), "h:1", None, None) };
        let sample = |shared_bytes| Sample { anonymous_bytes: 1 << 30, shared_bytes, ..Sample::default() };
        let looks =
            [0, 1 << 30, 6 << 30].map(|shared| Look { broker: Some(probe.own(sample(shared))), ..Look::default() });
        let series = series(&[], 0, &looks);
        assert_eq!((series.broker_shared_mib, series.broker_anonymous_mib), (vec![1_024, 2_048], vec![2_048, 3_072]));
    }

    #[test]
    fn this_process_is_looked_at() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let _held = std::net::TcpStream::connect(address).expect("connected");
        let before = page_cache_bytes();
        let (here, own) = (std::env::temp_dir(), std::process::id());
        let mut probe = Probe::new(vec![own], &here, &address.to_string(), None, before);
        probe.with_clients(&[own]);
        let look = probe.look().expect("it is there");
        assert!(look.broker.is_some_and(|sample| sample.threads > 0) && look.client_cpu_s.is_some());
        assert_eq!((look.connections, look.collections), (Some(1), None));
        assert!(look.loopback_bytes.is_some() && look.page_cache_bytes.is_some());
        let mut other = Probe::new(Vec::new(), &here, "example.org:9092", None, before);
        let look = other.look().expect("there is nothing to be gone");
        assert_eq!((look.broker, look.page_cache_bytes, look.device, look.connections), (None, None, None, None));
    }
}
