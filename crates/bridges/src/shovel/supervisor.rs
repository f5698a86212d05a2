//! Runs one worker for each shovel.

use super::status::{Key, Shovels};
use super::worker::Worker;
use crate::links::{Author, Surroundings};
use polylogue_amqp_gateway::{CLUSTER_NAME, View};
use polylogue_amqp_model::{Command, Json, SHOVEL, Shovel};
use polylogue_net::declared;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Delay before definitions are read again after the broker could not answer.
const AGAIN: Duration = Duration::from_secs(1);
/// Timeout for a worker to disconnect.
const PATIENCE: Duration = Duration::from_secs(5);

impl Wake for Shovels {
    fn wake(self: Arc<Self>) {
        self.knock.notify_one();
    }
}

/// Starts the supervisor. All shovels end with the runtime.
pub fn start(runtime: &tokio::runtime::Handle, around: Surroundings, shovels: Arc<Shovels>) {
    around.directory.shovel_changes().wake(Waker::from(shovels.clone()));
    // Initially the definitions are unread.
    shovels.knock.notify_one();
    let supervisor = Supervisor { around, shovels, workers: BTreeMap::new(), last_worker: 0 };
    runtime.spawn(supervisor.run());
}

/// A shovel that runs, or has finished.
struct Running {
    value: Json,
    author: Author,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    /// Unique for the life of the process.
    worker: u64,
    /// It has moved all requested messages and is to be deleted.
    finished: bool,
}

struct Supervisor {
    around: Surroundings,
    shovels: Arc<Shovels>,
    workers: BTreeMap<Key, Running>,
    last_worker: u64,
}

impl Supervisor {
    async fn run(mut self) {
        loop {
            self.shovels.knock.notified().await;
            while let Err(fault) = self.look().await {
                tracing::debug!(?fault, "the shovels' definitions will be read again");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }

    /// Starts and stops workers according to the definitions.
    async fn look(&mut self) -> Result<(), declared::Fault> {
        let view = declared::view(&self.around.broker).await?;
        let mut wanted = wanted(&view);
        // Workers are stopped before finished ones are cleared: a shovel deleted or redefined meanwhile must not be deleted as finished.
        for key in self.shovels.take_restarts() {
            self.stop(|at, _| *at == key).await;
        }
        let is_wanted = |key: &Key, running: &Running| {
            wanted.get(key).is_some_and(|(value, author)| (value, author) == (&running.value, &running.author))
        };
        self.stop(|key, running| !is_wanted(key, running)).await;
        let cleared = self.clear_finished().await?;
        if cleared {
            // `wanted` still has the deleted shovels: read the definitions again.
            self.shovels.knock.notify_one();
            return Ok(());
        }
        wanted.retain(|key, _| !self.workers.contains_key(key));
        for (key, (value, author)) in wanted {
            self.begin(&view, key, value, author);
        }
        Ok(())
    }

    /// Stops workers and waits for them, so that no two with the same key run at once.
    async fn stop(&mut self, which: impl Fn(&Key, &Running) -> bool) {
        let ended: Vec<_> = self.workers.extract_if(.., |key, running| which(key, running)).collect();
        for (_, running) in &ended {
            let _ = running.stop.send(true);
        }
        for (key, Running { mut task, .. }) in ended {
            if tokio::time::timeout(PATIENCE, &mut task).await.is_err() {
                task.abort();
            }
            self.shovels.forget(&key);
        }
    }

    /// Deletes finished shovels. Returns whether there were any.
    async fn clear_finished(&mut self) -> Result<bool, declared::Fault> {
        for (key, worker) in self.shovels.take_finished() {
            // A shovel that was set again meanwhile has another worker.
            if let Some(running) = self.workers.get_mut(&key).filter(|running| running.worker == worker) {
                running.finished = true;
            }
        }
        let finished = self.workers.iter().filter(|(_, running)| running.finished);
        let finished: Vec<_> = finished.map(|(key, running)| (key.clone(), running.value.clone())).collect();
        let any = !finished.is_empty();
        for (key, value) in finished {
            if self.shovels.is_to_restart(&key) {
                // It was deleted, and the current definition has not run.
                continue;
            }
            let (vhost, name) = key.clone();
            tracing::info!(
                shovel = &*name,
                vhost = &*vhost,
                "a shovel has moved all the messages it was to move, and is deleted"
            );
            // Conditional on the value: a definition set meanwhile has not run yet.
            let clear = Command::ClearParameterIf(vhost, SHOVEL.into(), name, value);
            declared::change(&self.around.broker, clear).await?;
            self.workers.remove(&key);
            self.shovels.forget(&key);
        }
        Ok(any)
    }

    fn begin(&mut self, view: &View, key: Key, value: Json, author: Author) {
        let (stop, stopped) = watch::channel(false);
        self.last_worker += 1;
        let now_ms = self.around.broker.now().wall_ms;
        let task = match Shovel::parse(&key.1, &value.value()) {
            Err(why) => {
                let why = why.text().trim_start_matches("Validation failed").trim().to_owned();
                self.shovels.terminated(&key, now_ms, why);
                let mut stopped = stopped;
                tokio::spawn(async move {
                    polylogue_net::stopped(&mut stopped).await;
                })
            }
            Ok(shovel) => {
                self.shovels.starting(&key, now_ms);
                let cluster_name = view.metadata.global(CLUSTER_NAME).map(Json::value);
                let cluster_name = cluster_name.and_then(|name| name.as_str().map(str::to_owned));
                let worker = Worker {
                    around: self.around.clone(),
                    shovels: self.shovels.clone(),
                    key: key.clone(),
                    shovel,
                    author: author.clone(),
                    cluster_name: cluster_name.unwrap_or_else(|| self.around.settings.cluster_name.clone()),
                    stop: stopped,
                };
                let (shovels, key, worker_id) = (self.shovels.clone(), key.clone(), self.last_worker);
                tokio::spawn(async move {
                    if worker.run().await {
                        shovels.finished(key, worker_id);
                    }
                })
            }
        };
        let worker = self.last_worker;
        self.workers.insert(key, Running { value, author, stop, task, worker, finished: false });
    }
}

/// Returns the wanted shovels with their authors.
fn wanted(view: &View) -> BTreeMap<Key, (Json, Author)> {
    let metadata = &view.metadata;
    let all = metadata.parameters().filter(|(_, component, ..)| *component == SHOVEL);
    all.map(|(id, component, name, value)| {
        let vhost = metadata.vhost_name(id);
        let author = Author::of(metadata, vhost, &[metadata.parameter_author(id, component, name).cloned()]);
        ((vhost.into(), name.clone()), (value.clone(), author))
    })
    .collect()
}
