//! Status of links, for the management API and for metrics.

use bytestring::ByteString;
use parking_lot::Mutex;
use polylogue_net::encode_gauges;
use polylogue_types::TimestampMs;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use tokio::sync::Notify;

/// The kind of object that is federated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Of {
    Exchange,
    Queue,
}

impl Of {
    pub fn name(self) -> &'static str {
        match self {
            Of::Exchange => "exchange",
            Of::Queue => "queue",
        }
    }
}

/// Identifies a link.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    pub vhost: ByteString,
    pub of: Of,
    /// The downstream exchange or queue.
    pub name: ByteString,
    pub upstream: ByteString,
    /// The upstream exchange or queue.
    pub there: ByteString,
}

impl Key {
    /// Returns a short id, stable within a build.
    fn id(&self) -> String {
        let mut hasher = std::collections::hash_map::DefaultHasher::new();
        self.hash(&mut hasher);
        format!("{:08x}", hasher.finish() as u32)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    Starting,
    Running,
    /// An error, until the next attempt.
    Failed(String),
}

/// The status of a link. Contains no passwords.
#[derive(Clone, Debug)]
struct Shown {
    state: State,
    since_ms: TimestampMs,
    uri: String,
    consumer_tag: ByteString,
}

impl Shown {
    /// Converts it to RabbitMQ's JSON.
    fn shape(&self, key: &Key, node: &str) -> Value {
        let at = UNIX_EPOCH + Duration::from_millis(u64::try_from(self.since_ms).unwrap_or_default());
        let at = humantime::format_rfc3339_seconds(at).to_string().replace('T', " ");
        let mut map = serde_json::Map::new();
        let mut put = |name: &str, value: Value| _ = map.insert(name.to_owned(), value);
        put("node", json!(node));
        put(key.of.name(), json!(&*key.name));
        put(&format!("upstream_{}", key.of.name()), json!(&*key.there));
        if key.of == Of::Queue {
            put("consumer_tag", json!(&*self.consumer_tag));
        }
        put("type", json!(key.of.name()));
        put("vhost", json!(&*key.vhost));
        put("upstream", json!(&*key.upstream));
        put("id", json!(key.id()));
        match &self.state {
            State::Starting => put("status", json!("starting")),
            State::Running => put("status", json!("running")),
            State::Failed(why) => {
                put("status", json!("error"));
                put("error", json!(why));
            }
        }
        put("uri", json!(self.uri));
        put("timestamp", json!(at.trim_end_matches('Z')));
        Value::Object(map)
    }
}

/// The status of all links. Shared by the supervisor, the links and the management API.
#[derive(Debug, Default)]
pub struct Federation {
    all: Mutex<BTreeMap<Key, Shown>>,
    /// Links that a user wants to restart.
    restarts: Mutex<Vec<Key>>,
    /// Wakes the supervisor.
    pub(super) knock: Notify,
    forwarded: Counter,
    stopped: Counter,
    restarted: Counter,
}

impl Federation {
    /// Creates it with its metrics registered.
    pub fn registered(registry: &mut Registry) -> Arc<Federation> {
        let federation: Arc<Federation> = Arc::default();
        for (name, help, counter) in [
            ("federation_messages_forwarded", "Messages forwarded by federation links", &federation.forwarded),
            (
                "federation_messages_stopped",
                "Messages received by federation links and dropped because of max-hops or a cycle",
                &federation.stopped,
            ),
            ("federation_restarts", "Restarts of federation links after an error", &federation.restarted),
        ] {
            registry.register(name, help, counter.clone());
        }
        registry.register_collector(Box::new(Census(federation.clone())));
        federation
    }

    /// Returns the links that match, as RabbitMQ's JSON.
    pub fn shown(&self, node: &str, which: impl Fn(&Key) -> bool) -> Vec<Value> {
        self.all.lock().iter().filter(|(key, _)| which(key)).map(|(key, shown)| shown.shape(key, node)).collect()
    }

    /// Restarts the link with this id. Returns whether it exists.
    pub fn restart(&self, vhost: &str, id: &str) -> bool {
        let found = self.all.lock().keys().find(|key| *key.vhost == *vhost && key.id() == id).cloned();
        let is_there = found.is_some();
        self.restarts.lock().extend(found);
        self.knock.notify_one();
        is_there
    }

    pub(super) fn take_restarts(&self) -> Vec<Key> {
        std::mem::take(&mut self.restarts.lock())
    }

    pub(super) fn forget(&self, key: &Key) {
        self.all.lock().remove(key);
    }

    pub(super) fn starting(&self, key: &Key, now_ms: TimestampMs, uri: String, consumer_tag: &ByteString) {
        let shown = Shown { state: State::Starting, since_ms: now_ms, uri, consumer_tag: consumer_tag.clone() };
        self.all.lock().insert(key.clone(), shown);
    }

    pub(super) fn running(&self, key: &Key, now_ms: TimestampMs, uri: &str) {
        if let Some(shown) = self.all.lock().get_mut(key) {
            (shown.state, shown.since_ms) = (State::Running, now_ms);
            uri.clone_into(&mut shown.uri);
        }
    }

    pub(super) fn failed(&self, key: &Key, now_ms: TimestampMs, why: String) {
        let nothing =
            || Shown { state: State::Starting, since_ms: now_ms, uri: String::new(), consumer_tag: ByteString::new() };
        let mut all = self.all.lock();
        let shown = all.entry(key.clone()).or_insert_with(nothing);
        (shown.state, shown.since_ms) = (State::Failed(why), now_ms);
    }

    pub(super) fn restarted(&self) {
        self.restarted.inc();
    }

    /// Counts messages that were forwarded, and that were dropped.
    pub(super) fn moved(&self, forwarded: u64, stopped: u64) {
        self.forwarded.inc_by(forwarded);
        self.stopped.inc_by(stopped);
    }

    fn counts(&self) -> (u64, u64) {
        let all = self.all.lock();
        (all.len() as u64, all.values().filter(|shown| shown.state == State::Running).count() as u64)
    }
}

/// Counts the links at scrape time.
#[derive(Debug)]
struct Census(Arc<Federation>);

impl Collector for Census {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let (all, running) = self.0.counts();
        encode_gauges(
            encoder,
            [
                ("federation_links", "Federation links", all),
                ("federation_links_running", "Federation links that are connected to their upstream", running),
            ],
        )
    }
}
