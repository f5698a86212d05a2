//! Background work for queues, independent of connections: dead-lettering, links between topics and queues, and alarms.

use crate::health::{HealthChange, LoggedFaults};
use polylogue_amqp_gateway::{
    Count, DeadCounts, DeadLetters, Directory, ExchangeCounts, FromTopics, IdleQueues, MissingTopics, Resource,
    ToTopics, TopicCounts,
};
use polylogue_api::{Event, Now, ReadData, Reply, Request, Token};
use polylogue_net::handle::{BrokerHandle, ReplySink};
use polylogue_net::mailbox::{Mail, Mailbox};
use polylogue_net::{Shared, WorkerQueue, encode_gauges};
use polylogue_types::{Chunk, STEPS_PER_TURN};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::registry::Registry;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;
use tokio::sync::Notify;

/// Interval of memory checks.
const MEMORY_LOOK: Duration = Duration::from_secs(1);

/// Owner of the chores' long turns on worker threads. It is not a valid user name.
const WORK_OWNER: &str = "\0chores";
/// Label of the chores in metrics of long turns.
const KIND: &str = "topics to exchanges";

/// A sans-IO client of the broker that is not a connection.
pub(crate) trait Chore: Send + 'static {
    /// Returns the next request to the broker.
    fn poll_request(&mut self) -> Option<(Token, Request)>;

    /// Handles the broker's reply.
    fn on_reply(&mut self, token: Token, reply: Reply, now: Now);

    /// Handles an event of the broker.
    fn on_event(&mut self, _: Event, _: Now) {}

    /// When [`Chore::on_deadline`] must be called next. Monotonic milliseconds.
    fn next_deadline_ms(&self) -> Option<u64> {
        None
    }

    /// Handles deadlines that have passed, or a notification.
    fn on_deadline(&mut self, _: Now) {}

    /// Begins a turn of at most so many steps, and continues the work left from the last one.
    fn begin_turn(&mut self, _steps_max: u64, _: Now) {}

    /// Whether work is left that can continue in the next turn.
    fn is_unfinished(&self) -> bool {
        false
    }

    /// Whether work is left that may take longer than a turn: [`Chore::long_turn`] does it, on a worker thread.
    fn wants_long_turn(&self) -> bool {
        false
    }

    /// See [`Chore::wants_long_turn`].
    fn long_turn(&mut self, _steps_max: u64, _: Now) {}
}

/// Outcomes of dead-lettered messages since the start.
#[derive(Clone, Debug, Default)]
struct DeadMetrics {
    moved: Counter,
    dropped: Counter,
    retried: Counter,
}

impl DeadMetrics {
    /// Returns counters registered for metrics.
    fn register(registry: &mut Registry) -> DeadMetrics {
        let metrics = DeadMetrics::default();
        for (name, help, counter) in [
            ("dead_letters_moved", "Dead messages that are in another queue now", &metrics.moved),
            (
                "dead_letters_dropped",
                "Dead messages with no exchange or queue to go to, or only full ones, or that went round",
                &metrics.dropped,
            ),
            ("dead_letters_retried", "Tries to move a dead message that have to be made again", &metrics.retried),
        ] {
            registry.register(name, help, counter.clone());
        }
        metrics
    }

    fn count(&self, counts: DeadCounts) {
        let DeadCounts { moved, dropped, retried } = counts;
        for (counter, more) in [(&self.moved, moved), (&self.dropped, dropped), (&self.retried, retried)] {
            counter.inc_by(more);
        }
    }
}

/// Republishes dead-lettered messages, and counts them.
struct Moving(DeadLetters, DeadMetrics);

impl Chore for Moving {
    fn poll_request(&mut self) -> Option<(Token, Request)> {
        self.0.poll_request()
    }

    fn on_reply(&mut self, token: Token, reply: Reply, _: Now) {
        self.0.on_reply(token, reply);
        self.1.count(self.0.take_counts());
    }

    fn on_event(&mut self, event: Event, now: Now) {
        self.0.on_event(event, now);
        self.1.count(self.0.take_counts());
    }

    fn begin_turn(&mut self, steps_max: u64, _: Now) {
        self.0.begin_turn(steps_max);
        self.1.count(self.0.take_counts());
    }

    fn is_unfinished(&self) -> bool {
        self.0.is_unfinished()
    }
}

impl Chore for MissingTopics {
    fn poll_request(&mut self) -> Option<(Token, Request)> {
        MissingTopics::poll_request(self)
    }

    fn on_reply(&mut self, token: Token, reply: Reply, now: Now) {
        MissingTopics::on_reply(self, token, reply, now);
    }

    fn next_deadline_ms(&self) -> Option<u64> {
        MissingTopics::next_deadline_ms(self)
    }

    fn on_deadline(&mut self, now: Now) {
        MissingTopics::on_deadline(self, now);
    }
}

impl Chore for IdleQueues {
    fn poll_request(&mut self) -> Option<(Token, Request)> {
        IdleQueues::poll_request(self)
    }

    fn on_reply(&mut self, token: Token, reply: Reply, now: Now) {
        IdleQueues::on_reply(self, token, reply, now);
    }

    fn next_deadline_ms(&self) -> Option<u64> {
        IdleQueues::next_deadline_ms(self)
    }

    fn on_deadline(&mut self, now: Now) {
        IdleQueues::on_deadline(self, now);
    }
}

/// Appends messages of queues to topics, and counts them.
struct Appending {
    queues: ToTopics,
    appended: Counter,
    retried: Counter,
}

impl Appending {
    /// Returns a chore with registered counters.
    fn new(queues: ToTopics, registry: &mut Registry) -> Appending {
        let appending = Appending { queues, appended: Counter::default(), retried: Counter::default() };
        for (name, help, counter) in [
            ("queue_to_topic_appended", "Messages of queues that are in a topic now", &appending.appended),
            ("queue_to_topic_retried", "Tries to append a message that have to be made again", &appending.retried),
        ] {
            registry.register(name, help, counter.clone());
        }
        appending
    }
}

impl Chore for Appending {
    fn poll_request(&mut self) -> Option<(Token, Request)> {
        self.queues.poll_request()
    }

    fn on_reply(&mut self, token: Token, reply: Reply, now: Now) {
        self.queues.on_reply(token, reply, now);
        let TopicCounts { appended, retried } = self.queues.take_counts();
        self.appended.inc_by(appended);
        self.retried.inc_by(retried);
    }

    fn on_event(&mut self, event: Event, now: Now) {
        self.queues.on_event(event, now);
    }

    fn next_deadline_ms(&self) -> Option<u64> {
        self.queues.next_deadline_ms()
    }

    fn on_deadline(&mut self, now: Now) {
        self.queues.on_deadline(now);
    }
}

/// Publishes records of topics to exchanges, and counts them.
struct Publishing {
    exchanges: FromTopics,
    published: Counter,
    retried: Counter,
    skipped: Counter,
}

impl Publishing {
    /// Returns a chore with registered counters.
    fn new(exchanges: FromTopics, registry: &mut Registry) -> Publishing {
        let (published, retried, skipped) = Default::default();
        let publishing = Publishing { exchanges, published, retried, skipped };
        for (name, help, counter) in [
            (
                "topic_to_exchange_published",
                "Records of topics that were published to an exchange",
                &publishing.published,
            ),
            ("topic_to_exchange_retried", "Tries to publish a record that have to be made again", &publishing.retried),
            (
                "topic_to_exchange_skipped",
                "Records that cannot be messages, or that a queue can never take, and were passed over",
                &publishing.skipped,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
        publishing
    }
}

impl Chore for Publishing {
    fn poll_request(&mut self) -> Option<(Token, Request)> {
        self.exchanges.poll_request()
    }

    fn on_reply(&mut self, token: Token, reply: Reply, now: Now) {
        self.exchanges.on_reply(token, reply, now);
        let ExchangeCounts { published, retried, skipped } = self.exchanges.take_counts();
        for (counter, more) in [(&self.published, published), (&self.retried, retried), (&self.skipped, skipped)] {
            counter.inc_by(more);
        }
    }

    fn on_event(&mut self, event: Event, _: Now) {
        self.exchanges.on_event(event);
    }

    fn next_deadline_ms(&self) -> Option<u64> {
        self.exchanges.next_deadline_ms()
    }

    fn on_deadline(&mut self, now: Now) {
        self.exchanges.on_deadline(now);
    }

    fn begin_turn(&mut self, steps_max: u64, now: Now) {
        self.exchanges.begin_turn(steps_max, now);
    }

    fn is_unfinished(&self) -> bool {
        self.exchanges.is_unfinished()
    }

    fn wants_long_turn(&self) -> bool {
        self.exchanges.wants_long_turn()
    }

    fn long_turn(&mut self, steps_max: u64, now: Now) {
        self.exchanges.long_turn(steps_max, now);
    }
}

/// Wakes a chore.
#[derive(Default)]
struct Notifier(Notify);

impl Wake for Notifier {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Metrics by connection, on request.
#[derive(Debug)]
struct Census(Arc<Directory>);

impl Collector for Census {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for (name, help, what) in [
            ("amqp_routing_steps", "Steps that routing what AMQP's publishers sent took", Count::RoutingSteps),
            (
                "amqp_routing_pauses",
                "Turns of connections that ended before a message had its queues",
                Count::RoutingPauses,
            ),
            (
                "amqp_fanout_pieces",
                "Pieces of messages with more queues than go to the log at once",
                Count::FanoutPieces,
            ),
            (
                "amqp_fanout_waits",
                "Times that such a message waited until some of its pieces were in the log",
                Count::FanoutWaits,
            ),
            (
                "amqp_flow",
                "Times that a connection was not read because it published without confirms and had no credit",
                Count::Flows,
            ),
        ] {
            let counter = ConstCounter::new(self.0.traffic().count(what));
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        let (connections, channels) = self.0.client_counts();
        let late = ConstCounter::new(self.0.late_bodies());
        let help = "Bodies of messages that were given up because they did not come in time";
        late.encode(encoder.encode_descriptor("amqp_bodies_timed_out", help, None, late.metric_type())?)?;
        encode_gauges(
            encoder,
            [
                ("amqp_connections", "Connections of AMQP clients in a virtual host", connections),
                ("amqp_channels", "Channels of AMQP clients", channels),
                (
                    "amqp_connections_in_flow",
                    "Connections that are not read because they publish without confirms and have no credit",
                    self.0.clients_in_flow(),
                ),
            ],
        )
    }
}

/// The runtime of the chores.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) runtime: &'a tokio::runtime::Handle,
    pub(crate) broker: &'a Arc<dyn BrokerHandle>,
    /// Threads for work that takes longer than a turn.
    pub(crate) workers: &'a WorkerQueue,
}

impl Place<'_> {
    fn spawn(self, chore: impl Chore, notifier: Arc<Notifier>) {
        self.runtime.spawn(run(self.broker.clone(), self.workers.clone(), chore, notifier));
    }
}

/// Starts all chores of AMQP's queues; no message that they make of something else is larger. They end with the runtime.
pub(crate) fn start(place: Place<'_>, directory: &Arc<Directory>, message_bytes_max: u64, registry: &mut Registry) {
    let broker = place.broker;
    let dead = Moving(DeadLetters::new(directory.clone(), broker.catalog()), DeadMetrics::register(registry));
    place.spawn(dead, Arc::default());
    registry.register_collector(Box::new(Census(directory.clone())));
    let notifier: Arc<Notifier> = Arc::default();
    directory.idle_changes().wake(Waker::from(notifier.clone()));
    // An initial wake-up covers events before the subscription.
    notifier.0.notify_one();
    place.spawn(IdleQueues::new(directory.clone(), broker.catalog()), notifier);
    let notifier: Arc<Notifier> = Arc::default();
    directory.queue_changes().wake(Waker::from(notifier.clone()));
    notifier.0.notify_one();
    place.spawn(MissingTopics::new(directory.clone(), broker.catalog()), notifier);
    let notifier: Arc<Notifier> = Arc::default();
    directory.topic_changes().wake(Waker::from(notifier.clone()));
    notifier.0.notify_one();
    place.spawn(Appending::new(ToTopics::new(directory.clone(), broker.catalog()), registry), notifier);
    let notifier: Arc<Notifier> = Arc::default();
    directory.exchange_changes().wake(Waker::from(notifier.clone()));
    notifier.0.notify_one();
    let body_bytes_max = usize::try_from(message_bytes_max).unwrap_or(usize::MAX);
    let from_topics = FromTopics::new(directory.clone(), broker.catalog(), body_bytes_max);
    place.spawn(Publishing::new(from_topics, registry), notifier);
}

/// Notifies all connections when the disk or memory alarm is raised or cleared, and logs faults of the broker. Ends with the runtime.
pub(crate) fn watch_alarms(runtime: &tokio::runtime::Handle, directory: Arc<Directory>, net: Arc<Shared>) {
    let notifier: Arc<Notifier> = Arc::default();
    net.broker.wake_for_alarm(Waker::from(notifier.clone()));
    runtime.spawn(async move {
        let mut looks = tokio::time::interval(MEMORY_LOOK);
        let mut reported = LoggedFaults::default();
        loop {
            // The first check is immediate, and covers changes before the subscription.
            let alarms_changed = tokio::select! {
                () = notifier.0.notified() => directory.set_alarm(Resource::Disk, net.broker.is_disk_alarm()),
                _ = looks.tick() => {
                    let disk = directory.set_alarm(Resource::Disk, net.broker.is_disk_alarm());
                    let memory = directory.set_alarm(Resource::Memory, net.memory.look());
                    if memory {
                        let (used_bytes, limit_bytes) = (net.memory.used_bytes(), net.memory.limit_bytes());
                        match net.memory.is_alarm() {
                            true => tracing::warn!(used_bytes, limit_bytes, "memory alarm raised: publishers to queues are blocked"),
                            false => tracing::info!(used_bytes, limit_bytes, "memory alarm cleared: publishers to queues continue"),
                        }
                    }
                    disk || memory
                }
            };
            if alarms_changed {
                net.connections.alarm();
            }
            let now_ms = net.broker.now().monotonic_ms;
            reported.changes(net.broker.health(), now_ms).iter().for_each(HealthChange::log);
        }
    });
}

/// Reads file chunks into memory, on a thread that may block on the disk. Chunks that cannot be read stay files.
async fn in_memory(reply: Reply) -> Reply {
    let is_file = |data: &ReadData| data.chunks.iter().any(|chunk| matches!(chunk, Chunk::File(_)));
    match reply {
        Reply::Read(mut results) if results.iter().flatten().any(is_file) => {
            let reading = tokio::task::spawn_blocking(move || {
                for chunk in results.iter_mut().flatten().flat_map(|data| &mut data.chunks) {
                    if let Ok(bytes) = chunk.to_bytes() {
                        *chunk = Chunk::Bytes(bytes);
                    }
                }
                results
            });
            Reply::Read(reading.await.unwrap_or_default())
        }
        other => other,
    }
}

/// Passes requests, replies and events between a chore and the broker. Never returns.
async fn run(broker: Arc<dyn BrokerHandle>, workers: WorkerQueue, mut chore: impl Chore, notifier: Arc<Notifier>) {
    let mailbox = Arc::new(Mailbox::default());
    let sink: Arc<dyn ReplySink> = mailbox.clone();
    let session = broker.new_session();
    let mut mail = VecDeque::new();
    loop {
        chore.begin_turn(STEPS_PER_TURN, broker.now());
        if chore.wants_long_turn() {
            let now = broker.now();
            let long_turn = move || {
                chore.long_turn(STEPS_PER_TURN, now);
                chore
            };
            chore = workers.run(WORK_OWNER.into(), KIND, long_turn).await;
        }
        while let Some((token, request)) = chore.poll_request() {
            broker.submit(&sink, session, token, request);
        }
        let is_unfinished = chore.is_unfinished() || chore.wants_long_turn();
        let wait_ms = chore.next_deadline_ms().map(|at| at.saturating_sub(broker.now().monotonic_ms));
        let sleep = async {
            match wait_ms {
                Some(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = mailbox.arrived() => {}
            // Work longer than a turn continues in pieces, so that no connection waits for it.
            () = tokio::task::yield_now(), if is_unfinished => {}
            () = notifier.0.notified() => chore.on_deadline(broker.now()),
            () = sleep => chore.on_deadline(broker.now()),
        }
        mailbox.take(&mut mail);
        for one in mail.drain(..) {
            match one {
                Mail::Reply(token, reply) => {
                    let reply = in_memory(reply).await;
                    chore.on_reply(token, reply, broker.now());
                }
                Mail::Event(event) => chore.on_event(event, broker.now()),
                // Of connections only.
                Mail::Permit(_) | Mail::End(_) | Mail::UserGone(_) | Mail::Fetched | Mail::Alarm | Mail::Stop => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use polylogue_types::{FileRange, Offset, RangeSource};
    use std::io;

    /// Has `x` everywhere below a place, and nothing behind it.
    #[derive(Debug)]
    struct Below(u64);

    impl RangeSource for Below {
        fn read_exact_at(&self, into: &mut [u8], position: u64) -> io::Result<()> {
            into.fill(b'x');
            if position < self.0 { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
        }

        fn raw_fd(&self) -> Option<i32> {
            None
        }
    }

    #[tokio::test]
    async fn what_a_chore_reads_is_in_memory() {
        let file = |position| Chunk::File(FileRange { source: Arc::new(Below(10)), position, len: 3 });
        let data = |chunks| ReadData { chunks, high_watermark: Offset(1), log_start: Offset(0) };
        let read = vec![Ok(data(vec![Chunk::Bytes(Bytes::from_static(b"m")), file(0)])), Ok(data(vec![file(10)]))];
        let Reply::Read(results) = in_memory(Reply::Read(read)).await else { panic!("another answer") };
        let chunks: Vec<_> = results.into_iter().flatten().flat_map(|data| data.chunks).collect();
        assert!(
            matches!(&chunks[..], [Chunk::Bytes(m), Chunk::Bytes(xs), Chunk::File(_)] if m == "m" && xs == "xxx"),
            "{chunks:?}"
        );
    }
}
