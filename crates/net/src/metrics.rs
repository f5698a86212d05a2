//! Metrics of connections.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// The target duration of a turn on an I/O thread. Nanoseconds.
const TURN_NS_MAX: u64 = 2_000_000;

/// Label: the protocol of a listener.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ProtocolLabel {
    protocol: &'static str,
}

/// Label: why a connection ended or was refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CauseLabel {
    protocol: &'static str,
    cause: &'static str,
}

/// Metrics of all listeners. Label values are constants of the code, so that clients cannot make them many.
#[derive(Clone, Debug, Default)]
pub struct NetMetrics {
    open: Family<ProtocolLabel, Gauge>,
    accepted: Family<ProtocolLabel, Counter>,
    refused: Family<CauseLabel, Counter>,
    closed: Family<CauseLabel, Counter>,
    received: Family<ProtocolLabel, Counter>,
    sent: Family<ProtocolLabel, Counter>,
    frames: Family<ProtocolLabel, Counter>,
    reads_held_back: Family<ProtocolLabel, Counter>,
    answers_held_back: Family<ProtocolLabel, Counter>,
    requests_held_back: Family<ProtocolLabel, Counter>,
    fetches: Family<ProtocolLabel, Counter>,
    fetches_refused: Family<ProtocolLabel, Counter>,
    turn_steps_max: Family<ProtocolLabel, Gauge>,
    turn_seconds_max: Family<ProtocolLabel, Gauge<f64, AtomicU64>>,
    turns_over: Family<ProtocolLabel, Counter>,
    protocols: Arc<[&'static str]>,
}

/// Counters of one protocol's connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProtocolCounts {
    /// The protocol.
    pub protocol: &'static str,
    /// Open connections.
    pub open: u64,
    /// Requests received.
    pub requests: u64,
    /// Bytes read from clients.
    pub received_bytes: u64,
    /// Bytes written to clients.
    pub sent_bytes: u64,
}

/// A connection counted as open until [`Counted::close`].
#[derive(Debug)]
pub struct Counted {
    protocol: &'static str,
    all: NetMetrics,
}

/// The counters of one protocol, looked up once per connection.
#[derive(Debug)]
pub(super) struct ConnectionMetrics {
    counted: Counted,
    pub(super) received: Counter,
    pub(super) sent: Counter,
    pub(super) frames: Counter,
    pub(super) reads_held_back: Counter,
    pub(super) answers_held_back: Counter,
    pub(super) requests_held_back: Counter,
    pub(super) fetches: Counter,
    pub(super) fetches_refused: Counter,
    turn_steps_max: Gauge,
    turn_seconds_max: Gauge<f64, AtomicU64>,
    turns_over: Counter,
}

impl NetMetrics {
    /// Registers the metrics, initialized for these protocols.
    #[must_use]
    pub fn register(registry: &mut Registry, protocols: &[&'static str]) -> NetMetrics {
        let metrics = NetMetrics { protocols: protocols.into(), ..NetMetrics::default() };
        for protocol in protocols {
            let label = ProtocolLabel { protocol };
            drop(metrics.open.get_or_create(&label));
            let counters = [&metrics.received, &metrics.sent, &metrics.frames];
            let held_back = [&metrics.reads_held_back, &metrics.answers_held_back, &metrics.requests_held_back];
            let fetches = [&metrics.fetches, &metrics.fetches_refused];
            drop(metrics.turn_steps_max.get_or_create(&label));
            drop(metrics.turn_seconds_max.get_or_create(&label));
            for counter in
                counters.into_iter().chain(held_back).chain(fetches).chain([&metrics.accepted, &metrics.turns_over])
            {
                drop(counter.get_or_create(&label));
            }
        }
        registry.register("connections_open", "Connections that are open", metrics.open.clone());
        registry.register("connections_accepted", "Connections taken", metrics.accepted.clone());
        registry.register("connections_refused", "Connections turned away, by cause", metrics.refused.clone());
        registry.register("connections_closed", "Connections ended, by cause", metrics.closed.clone());
        registry.register("received_bytes", "Bytes read from clients", metrics.received.clone());
        registry.register("sent_bytes", "Bytes written to clients", metrics.sent.clone());
        registry.register("requests", "Requests taken in", metrics.frames.clone());
        registry.register(
            "reads_held_back",
            "Reads that waited because their client had not taken earlier responses",
            metrics.reads_held_back.clone(),
        );
        registry.register(
            "answers_held_back",
            "Requests with answers that may be long that waited for room for these",
            metrics.answers_held_back.clone(),
        );
        registry.register(
            "requests_held_back",
            "Requests that waited because others of their connection or user held their share of the memory for requests",
            metrics.requests_held_back.clone(),
        );
        registry.register(
            "response_fetches",
            "Pieces of responses that were fetched from the disk before they could be sent",
            metrics.fetches.clone(),
        );
        registry.register(
            "response_fetches_refused",
            "Pieces of responses that were not fetched because too many reads waited already",
            metrics.fetches_refused.clone(),
        );
        registry.register(
            "turn_steps_max",
            "The most steps (0.1 µs) that a turn of a connection has taken on an I/O thread since the start",
            metrics.turn_steps_max.clone(),
        );
        registry.register(
            "turn_max_seconds",
            "The longest turn of a connection on an I/O thread since the start, with the time that other threads had its processor",
            metrics.turn_seconds_max.clone(),
        );
        registry.register(
            "turns_over_2ms",
            "Turns of connections on an I/O thread that took longer than 2 ms",
            metrics.turns_over.clone(),
        );
        metrics
    }

    /// Returns the current values for each initialized protocol.
    #[must_use]
    pub fn counts(&self) -> Vec<ProtocolCounts> {
        let counts = |protocol: &&'static str| {
            let label = ProtocolLabel { protocol };
            ProtocolCounts {
                protocol,
                open: u64::try_from(self.open.get_or_create(&label).get()).unwrap_or(0),
                requests: self.frames.get_or_create(&label).get(),
                received_bytes: self.received.get_or_create(&label).get(),
                sent_bytes: self.sent.get_or_create(&label).get(),
            }
        };
        self.protocols.iter().map(counts).collect()
    }

    pub fn refused(&self, protocol: &'static str, cause: &'static str) {
        self.refused.get_or_create(&CauseLabel { protocol, cause }).inc();
    }

    /// Counts a connection as open, without its traffic.
    pub fn count(&self, protocol: &'static str) -> Counted {
        let label = ProtocolLabel { protocol };
        self.open.get_or_create(&label).inc();
        self.accepted.get_or_create(&label).inc();
        Counted { protocol, all: self.clone() }
    }

    /// Counts a connection as open until [`ConnectionMetrics::close`].
    pub(super) fn open(&self, protocol: &'static str) -> ConnectionMetrics {
        let label = ProtocolLabel { protocol };
        ConnectionMetrics {
            counted: self.count(protocol),
            received: self.received.get_or_create(&label).clone(),
            sent: self.sent.get_or_create(&label).clone(),
            frames: self.frames.get_or_create(&label).clone(),
            reads_held_back: self.reads_held_back.get_or_create(&label).clone(),
            answers_held_back: self.answers_held_back.get_or_create(&label).clone(),
            requests_held_back: self.requests_held_back.get_or_create(&label).clone(),
            fetches: self.fetches.get_or_create(&label).clone(),
            fetches_refused: self.fetches_refused.get_or_create(&label).clone(),
            turn_steps_max: self.turn_steps_max.get_or_create(&label).clone(),
            turn_seconds_max: self.turn_seconds_max.get_or_create(&label).clone(),
            turns_over: self.turns_over.get_or_create(&label).clone(),
        }
    }
}

impl ConnectionMetrics {
    /// Counts a turn on an I/O thread.
    pub(super) fn on_turn(&self, steps: u64, ns: u64) {
        let steps = i64::try_from(steps).unwrap_or(i64::MAX);
        if steps > self.turn_steps_max.get() {
            self.turn_steps_max.set(steps);
        }
        if ns > TURN_NS_MAX {
            self.turns_over.inc();
            let seconds = Duration::from_nanos(ns).as_secs_f64();
            if seconds > self.turn_seconds_max.get() {
                self.turn_seconds_max.set(seconds);
            }
        }
    }

    pub(super) fn close(self, cause: &'static str) {
        self.counted.close(cause);
    }
}

impl Counted {
    pub fn close(self, cause: &'static str) {
        let protocol = self.protocol;
        self.all.open.get_or_create(&ProtocolLabel { protocol }).dec();
        self.all.closed.get_or_create(&CauseLabel { protocol, cause }).inc();
    }
}
