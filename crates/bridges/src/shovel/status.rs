//! Status of shovels, for the management API and for metrics.

use bytestring::ByteString;
use parking_lot::Mutex;
use polylogue_amqp_model::{Shovel, SourceOf};
use polylogue_net::encode_gauges;
use polylogue_types::{Map as HashedMap, TimestampMs};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use tokio::sync::Notify;

/// A shovel's virtual host and name.
pub(super) type Key = (ByteString, ByteString);

/// The state of a shovel.
#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    Starting,
    /// Connected to both ends; `true` while the destination does not accept messages.
    Running {
        blocked: bool,
    },
    /// An error, until the next attempt if there is one.
    Terminated(String),
}

/// The status of a shovel. Contains no passwords.
#[derive(Clone, Debug)]
pub struct Shown {
    state: State,
    since_ms: TimestampMs,
    /// The URIs of both ends, while it runs.
    uris: Option<(String, String)>,
    /// Source and destination.
    ends: Vec<(&'static str, ByteString)>,
    /// Messages still to be moved, and to be sent; `None` without a limit.
    remaining: Option<(u64, u64)>,
    forwarded: u64,
}

impl Shown {
    fn new(since_ms: TimestampMs) -> Shown {
        Shown { state: State::Starting, since_ms, uris: None, ends: Vec::new(), remaining: None, forwarded: 0 }
    }

    /// Converts it to RabbitMQ's JSON.
    pub fn shape(&self, node: &str, vhost: &str, name: &str) -> Value {
        let at = UNIX_EPOCH + Duration::from_millis(u64::try_from(self.since_ms).unwrap_or_default());
        let at = humantime::format_rfc3339_seconds(at).to_string().replace('T', " ");
        let mut map = Map::new();
        let mut put = |name: &str, value: Value| _ = map.insert(name.to_owned(), value);
        put("node", json!(node));
        put("timestamp", json!(at.trim_end_matches('Z')));
        put("name", json!(name));
        put("vhost", json!(vhost));
        put("type", json!("dynamic"));
        match &self.state {
            State::Starting => put("state", json!("starting")),
            State::Terminated(why) => {
                put("state", json!("terminated"));
                put("reason", json!(why));
            }
            State::Running { blocked } => {
                let state = if *blocked { "blocked" } else { "running" };
                put("state", json!(state));
                put("blocked_status", json!(state));
                let (source, destination) = self.uris.clone().unwrap_or_default();
                put("src_uri", json!(source));
                put("src_protocol", json!("amqp091"));
                put("dest_protocol", json!("amqp091"));
                put("dest_uri", json!(destination));
                for (name, value) in &self.ends {
                    put(name, json!(&**value));
                }
                let unlimited = || json!("unlimited");
                put("remaining", self.remaining.map_or_else(unlimited, |(moved, _)| json!(moved)));
                put("remaining_unacked", self.remaining.map_or_else(unlimited, |(_, sent)| json!(sent)));
                put("forwarded", json!(self.forwarded));
            }
        }
        Value::Object(map)
    }
}

/// Returns a shovel's source and destination, under the field names of the status.
fn ends(shovel: &Shovel) -> Vec<(&'static str, ByteString)> {
    let mut all = match &shovel.source.of {
        SourceOf::Queue(queue) => vec![("src_queue", queue.clone())],
        SourceOf::Exchange(exchange, key) => {
            vec![("src_exchange", exchange.clone()), ("src_exchange_key", key.clone())]
        }
    };
    let to = &shovel.destination;
    let dest = [("dest_exchange", &to.exchange), ("dest_exchange_key", &to.key), ("dest_queue", &to.queue)];
    all.extend(dest.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))));
    all
}

/// The status of all shovels. Shared by the supervisor, the workers and the management API.
#[derive(Debug, Default)]
pub struct Shovels {
    all: Mutex<HashedMap<Key, Shown>>,
    /// Shovels that a user wants to restart.
    restarts: Mutex<Vec<Key>>,
    /// Workers that have moved all requested messages.
    finished: Mutex<Vec<(Key, u64)>>,
    /// Wakes the supervisor.
    pub(super) knock: Notify,
    moved: Counter,
    restarted: Counter,
}

impl Shovels {
    /// Creates it with its metrics registered.
    pub fn registered(registry: &mut Registry) -> Arc<Shovels> {
        let shovels: Arc<Shovels> = Arc::default();
        for (name, help, counter) in [
            ("shovel_messages_moved", "Messages moved by shovels", &shovels.moved),
            ("shovel_restarts", "Restarts of shovels after an error", &shovels.restarted),
        ] {
            registry.register(name, help, counter.clone());
        }
        registry.register_collector(Box::new(Census(shovels.clone())));
        shovels
    }

    /// Returns a shovel's status, once it has started.
    pub fn shown(&self, vhost: &ByteString, name: &ByteString) -> Option<Shown> {
        self.all.lock().get(&(vhost.clone(), name.clone())).cloned()
    }

    /// A shovel was deleted. One that is set under the same name later is a different one, even with the same definition: this makes the
    /// supervisor end the worker in any case.
    pub fn deleted(&self, vhost: ByteString, name: ByteString) {
        self.restart(vhost, name);
    }

    /// Whether a shovel is to be restarted.
    pub(super) fn is_to_restart(&self, key: &Key) -> bool {
        self.restarts.lock().contains(key)
    }

    /// Restarts a shovel.
    pub fn restart(&self, vhost: ByteString, name: ByteString) {
        let key = (vhost, name);
        let mut restarts = self.restarts.lock();
        if !restarts.contains(&key) {
            restarts.push(key);
        }
        drop(restarts);
        self.knock.notify_one();
    }

    pub(super) fn take_restarts(&self) -> Vec<Key> {
        std::mem::take(&mut self.restarts.lock())
    }

    /// A worker has moved all requested messages.
    pub(super) fn finished(&self, key: Key, worker: u64) {
        self.finished.lock().push((key, worker));
        self.knock.notify_one();
    }

    pub(super) fn take_finished(&self) -> Vec<(Key, u64)> {
        std::mem::take(&mut self.finished.lock())
    }

    pub(super) fn forget(&self, key: &Key) {
        self.all.lock().remove(key);
    }

    fn change(&self, key: &Key, now_ms: TimestampMs, change: impl FnOnce(&mut Shown)) {
        change(self.all.lock().entry(key.clone()).or_insert_with(|| Shown::new(now_ms)));
    }

    fn enter(&self, key: &Key, now_ms: TimestampMs, state: State) {
        self.change(key, now_ms, |shown| {
            shown.state = state;
            shown.since_ms = now_ms;
        });
    }

    pub(super) fn starting(&self, key: &Key, now_ms: TimestampMs) {
        self.enter(key, now_ms, State::Starting);
    }

    pub(super) fn terminated(&self, key: &Key, now_ms: TimestampMs, why: String) {
        self.enter(key, now_ms, State::Terminated(why));
    }

    pub(super) fn restarted(&self) {
        self.restarted.inc();
    }

    pub(super) fn running(&self, key: &Key, now_ms: TimestampMs, shovel: &Shovel, uris: (String, String)) {
        self.enter(key, now_ms, State::Running { blocked: false });
        self.change(key, now_ms, |shown| {
            shown.uris = Some(uris);
            shown.ends = ends(shovel);
        });
    }

    /// Whether the destination does not accept messages.
    pub(super) fn blocked(&self, key: &Key, now_ms: TimestampMs, blocked: bool) {
        self.enter(key, now_ms, State::Running { blocked });
    }

    /// Counts moved messages; `remaining` are still to be moved, and to be sent.
    pub(super) fn moved(&self, key: &Key, now_ms: TimestampMs, count: u64, remaining: Option<(u64, u64)>) {
        self.moved.inc_by(count);
        self.change(key, now_ms, |shown| {
            shown.forwarded += count;
            shown.remaining = remaining;
        });
    }

    fn counts(&self) -> (u64, u64) {
        let all = self.all.lock();
        (all.len() as u64, all.values().filter(|shown| matches!(shown.state, State::Running { .. })).count() as u64)
    }
}

/// Counts the shovels at scrape time.
#[derive(Debug)]
struct Census(Arc<Shovels>);

impl Collector for Census {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let (all, running) = self.0.counts();
        encode_gauges(
            encoder,
            [("shovels", "Shovels", all), ("shovels_running", "Shovels that are connected to both ends", running)],
        )
    }
}
