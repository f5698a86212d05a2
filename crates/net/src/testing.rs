//! A scripted broker and catalog for tests.

use crate::handle::{Backup, BrokerHandle, BrokerStatus, PartitionStatus, ReplySink, SessionId};
use parking_lot::{Condvar, Mutex};
use polylogue_api::{Catalog, ClusterInfo, Now, Reply, Request, Token, TopicInfo};
use polylogue_env::Env;
use polylogue_types::{NodeId, PartitionId, TopicId};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

/// A request that waits for the test to answer it.
pub struct Asked {
    pub from: Arc<dyn ReplySink>,
    pub session: SessionId,
    pub token: Token,
    pub request: Request,
}

impl std::fmt::Debug for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {} {:?}", self.session, self.token, self.request)
    }
}

/// Answers requests; `None` leaves one to the test.
type Answer = Box<dyn Fn(&Request) -> Option<Reply> + Send + Sync>;

/// A broker scripted by a test, with a clock that the test can advance.
pub struct FakeBroker {
    env: Env,
    ahead_ms: AtomicU64,
    /// By how much each reading of the clock advances it. Milliseconds.
    pub look_ms: AtomicU64,
    /// From when on only the test advances the clock, so that a slow machine does not look like a slow client. Monotonic milliseconds.
    stands_at_ms: OnceLock<u64>,
    sessions: AtomicU64,
    asked: Mutex<Vec<Asked>>,
    arrived: Condvar,
    /// Jobs for reader threads, which the test runs or drops.
    pub jobs: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
    /// Whether such jobs are refused.
    pub refuses_jobs: AtomicBool,
    pub gone: Mutex<Vec<SessionId>>,
    answer: Answer,
    pub topics: Arc<FakeCatalog>,
    pub status: Mutex<BrokerStatus>,
}

impl std::fmt::Debug for FakeBroker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FakeBroker")
    }
}

impl FakeBroker {
    pub fn new(answer: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static) -> Arc<FakeBroker> {
        Arc::new(FakeBroker {
            env: Env::real(),
            ahead_ms: AtomicU64::new(0),
            look_ms: AtomicU64::new(0),
            stands_at_ms: OnceLock::new(),
            sessions: AtomicU64::new(1),
            asked: Mutex::default(),
            arrived: Condvar::new(),
            jobs: Mutex::default(),
            refuses_jobs: AtomicBool::new(false),
            gone: Mutex::default(),
            answer: Box::new(answer),
            topics: Arc::default(),
            status: Mutex::default(),
        })
    }

    /// Creates a broker whose answers depend on its topics.
    pub fn with_topics(answer: fn(&FakeCatalog, &Request) -> Option<Reply>) -> Arc<FakeBroker> {
        let topics: Arc<FakeCatalog> = Arc::default();
        let seen = topics.clone();
        let broker = FakeBroker::new(move |request| answer(&seen, request));
        match Arc::try_unwrap(broker) {
            Ok(broker) => Arc::new(FakeBroker { topics, ..broker }),
            Err(broker) => broker,
        }
    }

    /// Advances the clock.
    pub fn advance_ms(&self, ms: u64) {
        self.ahead_ms.fetch_add(ms, Ordering::Relaxed);
    }

    /// From now on only the test advances the clock.
    pub fn stop_clock(&self) {
        self.stands_at_ms.get_or_init(|| self.real_ms());
    }

    fn real_ms(&self) -> u64 {
        self.env.clock.monotonic_ns() / 1_000_000
    }

    /// Number of requests not taken by the test.
    pub fn waiting(&self) -> usize {
        self.asked.lock().len()
    }

    /// Takes the oldest unanswered request. Waits for one; only for tests whose server runs on other threads.
    pub fn next(&self) -> Asked {
        let mut asked = self.asked.lock();
        while asked.is_empty() {
            self.arrived.wait(&mut asked);
        }
        asked.remove(0)
    }
}

impl BrokerHandle for FakeBroker {
    fn new_session(&self) -> SessionId {
        SessionId(self.sessions.fetch_add(1, Ordering::Relaxed))
    }

    fn submit(&self, from: &Arc<dyn ReplySink>, session: SessionId, token: Token, request: Request) {
        match (self.answer)(&request) {
            Some(reply) => from.reply(token, reply),
            None => {
                self.asked.lock().push(Asked { from: from.clone(), session, token, request });
                self.arrived.notify_all();
            }
        }
    }

    fn run_reader(&self, job: Box<dyn FnOnce() + Send>) -> bool {
        let takes = !self.refuses_jobs.load(Ordering::Relaxed);
        if takes {
            self.jobs.lock().push(job);
        }
        takes
    }

    fn session_gone(&self, session: SessionId) {
        self.gone.lock().push(session);
    }

    fn catalog(&self) -> Arc<dyn Catalog> {
        self.topics.clone()
    }

    fn now(&self) -> Now {
        let ahead_ms = self.ahead_ms.fetch_add(self.look_ms.load(Ordering::Relaxed), Ordering::Relaxed);
        let monotonic_ms = self.stands_at_ms.get().copied().unwrap_or_else(|| self.real_ms());
        Now { wall_ms: self.env.clock.now_ms(), monotonic_ms: monotonic_ms + ahead_ms }
    }

    fn partition_status(&self, _id: PartitionId) -> Option<PartitionStatus> {
        None
    }

    fn status(&self) -> BrokerStatus {
        self.status.lock().clone()
    }

    fn begin_backup(&self) -> Result<Backup, polylogue_broker::Error> {
        let text = "there is nothing to back up";
        Err(polylogue_broker::Error::new(polylogue_broker::ErrorKind::Busy, text))
    }

    fn is_disk_alarm(&self) -> bool {
        self.status.lock().health.disk_alarm.is_some()
    }

    fn wake_for_alarm(&self, _: Waker) {}
}

/// A catalog of topics set by the test.
#[derive(Debug, Default)]
pub struct FakeCatalog(pub Mutex<Vec<Arc<TopicInfo>>>);

impl Catalog for FakeCatalog {
    fn topic(&self, name: &str) -> Option<Arc<TopicInfo>> {
        self.0.lock().iter().find(|topic| &*topic.name == name).cloned()
    }

    fn topic_by_id(&self, id: TopicId) -> Option<Arc<TopicInfo>> {
        self.0.lock().iter().find(|topic| topic.id == id).cloned()
    }

    fn topics(&self) -> Vec<Arc<TopicInfo>> {
        self.0.lock().clone()
    }

    fn cluster(&self) -> ClusterInfo {
        ClusterInfo { cluster_id: "test-cluster".into(), node: NodeId(1) }
    }

    fn settings(&self, _: &polylogue_api::SettingsScope) -> Arc<polylogue_api::Settings> {
        Arc::default()
    }

    fn settings_scopes(&self) -> Vec<polylogue_api::SettingsScope> {
        Vec::new()
    }

    fn version(&self) -> u64 {
        0
    }
}
