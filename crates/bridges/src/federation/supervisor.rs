//! Runs a link for each upstream of a federated exchange or queue.

use super::link::{Stop, Worker};
use super::status::{Federation, Key};
use super::wanted::{Bindings, Found, Wanted, find};
use crate::links::Surroundings;
use polylogue_amqp_gateway::{CLUSTER_NAME, Presence};
use polylogue_amqp_model::{Json, Queue};
use polylogue_net::declared;
use polylogue_router::QueueId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Changes within this time are applied together.
const GATHERING: Duration = Duration::from_millis(20);
/// Delay before definitions are read again after the broker could not answer.
const AGAIN: Duration = Duration::from_secs(1);
/// Interval at which federated queues are checked for messages and consumers.
const HUNGER: Duration = Duration::from_millis(100);
/// Timeout for a link to disconnect and to delete its objects.
const PATIENCE: Duration = Duration::from_secs(10);

impl Wake for Federation {
    fn wake(self: Arc<Self>) {
        self.knock.notify_one();
    }
}

/// Starts the supervisor. All links end with the runtime.
pub fn start(runtime: &tokio::runtime::Handle, around: Surroundings, federation: Arc<Federation>) {
    around.directory.federation_changes().wake(Waker::from(federation.clone()));
    // Initially the definitions are unread.
    federation.knock.notify_one();
    let supervisor = Supervisor { around, federation, links: BTreeMap::new() };
    runtime.spawn(supervisor.run());
}

struct Running {
    wanted: Wanted,
    bindings: watch::Sender<Bindings>,
    hungry: watch::Sender<bool>,
    queue: Option<Arc<Queue>>,
    stop: watch::Sender<Stop>,
    task: JoinHandle<()>,
}

struct Supervisor {
    around: Surroundings,
    federation: Arc<Federation>,
    links: BTreeMap<Key, Running>,
}

impl Supervisor {
    async fn run(mut self) {
        loop {
            let has_queues = self.links.values().any(|link| link.queue.is_some());
            tokio::select! {
                () = self.federation.knock.notified() => {}
                () = tokio::time::sleep(HUNGER), if has_queues => {
                    self.feed().await;
                    continue;
                }
            }
            tokio::time::sleep(GATHERING).await;
            while let Err(fault) = self.look().await {
                tracing::debug!(?fault, "the federation's definitions will be read again");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }

    /// Starts and stops links according to the definitions.
    async fn look(&mut self) -> Result<(), declared::Fault> {
        let view = declared::view(&self.around.broker).await?;
        let cluster_name = view.metadata.global(CLUSTER_NAME).map(Json::value);
        let cluster_name = cluster_name.and_then(|name| name.as_str().map(str::to_owned));
        let mut found = find(&view, &cluster_name.unwrap_or_else(|| self.around.settings.cluster_name.clone()));
        let restarts = self.federation.take_restarts();
        self.stop(|key, link| match found.get(key) {
            None => Stop::Unwanted,
            Some(found) if found.wanted != link.wanted || restarts.contains(key) => Stop::Replaced,
            Some(_) => Stop::No,
        })
        .await;
        for (key, link) in &mut self.links {
            let Some(Found { bindings, queue, .. }) = found.remove(key) else { continue };
            link.queue = queue;
            link.bindings.send_if_modified(|before| {
                let is_new = *before != bindings;
                *before = bindings;
                is_new
            });
        }
        for (key, found) in found {
            self.begin(key, found);
        }
        Ok(())
    }

    /// Stops links and waits for them, so that no two with the same key run at once.
    async fn stop(&mut self, how: impl Fn(&Key, &Running) -> Stop) {
        let ended: Vec<_> = self.links.extract_if(.., |key, link| how(key, link) != Stop::No).collect();
        for (key, link) in &ended {
            link.stop.send_replace(how(key, link));
        }
        for (key, Running { mut task, .. }) in ended {
            if tokio::time::timeout(PATIENCE, &mut task).await.is_err() {
                task.abort();
            }
            self.federation.forget(&key);
        }
    }

    fn begin(&mut self, key: Key, found: Found) {
        let Found { wanted, bindings, queue } = found;
        let (bindings, bindings_seen) = watch::channel(bindings);
        let (hungry, hungry_seen) = watch::channel(false);
        let (stop, stop_seen) = watch::channel(Stop::No);
        let task = match &wanted.upstream {
            Err(why) => {
                let why = why.trim_start_matches("Validation failed").trim().to_owned();
                self.federation.failed(&key, self.around.broker.now().wall_ms, why);
                tokio::spawn(std::future::ready(()))
            }
            Ok(upstream) => {
                let worker = Worker {
                    around: self.around.clone(),
                    federation: self.federation.clone(),
                    key: key.clone(),
                    upstream: upstream.clone(),
                    wanted: wanted.clone(),
                    bindings: bindings_seen,
                    hungry: hungry_seen,
                    stop: stop_seen,
                };
                tokio::spawn(worker.run())
            }
        };
        self.links.insert(key, Running { wanted, bindings, hungry, queue, stop, task });
    }

    /// Notifies links of queues whether the downstream wants messages.
    async fn feed(&self) {
        let mut queues: Vec<_> = self.links.values().filter_map(|link| link.queue.clone()).collect();
        queues.dedup_by_key(|queue| queue.id);
        let counts = declared::counts(&self.around.broker, &self.around.directory, &queues).await;
        // Without an answer the last state stays.
        let Ok(counts) = counts else { return };
        let room = room(&self.around.directory.clients());
        let hungry = queues.iter().zip(counts).map(|(queue, counts)| {
            let room = room.get(&queue.id).copied().unwrap_or(0);
            (queue.id, counts.ready == 0 && counts.held < room)
        });
        let hungry: BTreeMap<_, _> = hungry.collect();
        for link in self.links.values() {
            let Some(queue) = &link.queue else { continue };
            let now = hungry.get(&queue.id).copied().unwrap_or(false);
            link.hungry.send_if_modified(|before| std::mem::replace(before, now) != now);
        }
    }
}

/// Returns the free prefetch of each queue's consumers. Federation links of other brokers do not count: their demand is that of
/// another consumer.
fn room(clients: &[Arc<Presence>]) -> BTreeMap<QueueId, u64> {
    let mut room = BTreeMap::<_, u64>::new();
    for client in clients {
        for channel in client.channels().into_values() {
            for consumer in channel.consumers.into_values() {
                let priority = consumer.arguments.get("x-priority").and_then(|value| value.as_i64()).unwrap_or(0);
                if priority < 0 {
                    continue;
                }
                let prefetch =
                    [consumer.prefetch, channel.global_prefetch].into_iter().filter(|count| *count > 0).min();
                let own = prefetch.filter(|_| consumer.ack_required).map_or(u64::MAX, u64::from);
                let all = room.entry(consumer.queue).or_default();
                *all = all.saturating_add(own);
            }
        }
    }
    room
}
