//! The real broker behind [`BrokerHandle`].

use super::{Backup, BrokerHandle, BrokerStatus, Figure, Health, Stage};
use polylogue_api::{Catalog, Now, Request, Token};
use polylogue_broker::{Broker, PartitionStatus, ReplySink, SessionId, ShardStatus};
use polylogue_types::PartitionId;
use std::sync::Arc;
use std::task::Waker;

impl BrokerHandle for Broker {
    fn new_session(&self) -> SessionId {
        Broker::new_session(self)
    }

    fn submit(&self, from: &Arc<dyn ReplySink>, session: SessionId, token: Token, request: Request) {
        Broker::submit(self, from, session, token, request);
    }

    fn run_reader(&self, job: Box<dyn FnOnce() + Send>) -> bool {
        Broker::run_reader(self, job)
    }

    fn session_gone(&self, session: SessionId) {
        Broker::session_gone(self, session);
    }

    fn catalog(&self) -> Arc<dyn Catalog> {
        Broker::catalog(self)
    }

    fn now(&self) -> Now {
        Broker::now(self)
    }

    fn partition_status(&self, id: PartitionId) -> Option<PartitionStatus> {
        Broker::partition_status(self, id)
    }

    fn status(&self) -> BrokerStatus {
        let (disk_free_bytes, figures, stages) = (self.free_bytes(), figures(self), stages(self));
        BrokerStatus { health: self.health(), disk_free_bytes, figures, stages }
    }

    fn health(&self) -> Health {
        let refuses_writes = self.is_disk_full().then(|| {
            "less disk space is free than log.disk_reserve_bytes; free disk space, or shorten the retention of topics"
                .to_owned()
        });
        let disk_alarm = Broker::is_disk_alarm(self).then(|| {
            "less disk space is free than log.disk_free_limit_bytes, or a journal file could not be allocated; free disk space".to_owned()
        });
        Health { refuses_writes, disk_alarm, writers_lost: self.writers_lost(), failures: self.failures() }
    }

    fn begin_backup(&self) -> Result<Backup, polylogue_broker::Error> {
        Broker::begin_backup(self)
    }

    fn is_disk_alarm(&self) -> bool {
        Broker::is_disk_alarm(self)
    }

    fn wake_for_alarm(&self, waker: Waker) {
        Broker::wake_for_alarm(self, waker);
    }
}

/// Sums over all shards.
#[derive(Default)]
struct Figures(Vec<Figure>);

impl Figures {
    fn add(&mut self, is_counter: bool, name: &str, help: &str, value: u64) {
        match self.0.iter_mut().find(|figure| figure.name == name) {
            Some(figure) => figure.value += value,
            None => self.0.push(Figure { name: name.to_owned(), help: help.to_owned(), is_counter, value }),
        }
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.add(true, name, help, value);
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.add(false, name, help, value);
    }
}

/// Returns the stages' histograms, over all journals.
fn stages(broker: &Broker) -> Vec<Stage> {
    let names = [
        ("journal_queue", "Time in a journal's queue of the first message of a group that has a waiter"),
        ("journal_write", "Time to build and write the frames of a group"),
        ("journal_flush", "Time of a flush"),
        ("journal_deliver", "Time to apply a group and answer its waiters"),
    ];
    let mut all = names.map(|(name, help)| Stage { name, help, times: Default::default() });
    for journal in broker.shards().iter().filter_map(|shard| shard.journal.as_ref()) {
        let times = [&journal.queue, &journal.write, &journal.flush, &journal.deliver];
        all.iter_mut().zip(times).for_each(|(stage, times)| stage.times.add(times));
    }
    all.into()
}

/// Adds the figures of disk space.
fn disk_figures(broker: &Broker, all: &mut Figures) {
    all.gauge("disk_full", "Whether messages are refused for want of disk space", u64::from(broker.is_disk_full()));
    let alarm = u64::from(broker.is_disk_alarm());
    all.gauge("disk_alarm", "Whether publishers to queues are to wait for want of disk space", alarm);
    let reserve = broker.reserve_bytes();
    all.gauge(
        "disk_reserve_bytes",
        "Bytes that the file RESERVE keeps for starts and deletions on a full disk",
        reserve,
    );
    let held = broker.publishes_held_bytes();
    all.gauge("publishes_held_bytes", "Bytes of messages to queues that wait for disk space", held);
}

/// Adds the figures of publisher credit.
fn credit_figures(broker: &Broker, all: &mut Figures) {
    let (withheld, late) = broker.credit_withheld();
    all.counter(
        "credit_withheld",
        "Publishes without confirms whose credit a queue withheld because its consumers did not keep up",
        withheld,
    );
    all.counter(
        "credit_granted_late",
        "Credit that was given back because it had been withheld for as long as it may",
        late,
    );
}

/// Adds the figures of reads and their caches.
fn read_figures(shard: &ShardStatus, all: &mut Figures) {
    let store = &shard.store;
    all.gauge("store_tail_bytes_max", "Bytes that recent messages in memory may grow to", store.tail_bytes_max as u64);
    all.counter("store_read_tail_bytes", "Bytes of messages read from memory", store.read_tail_bytes);
    let read_cache = store.read_cache_bytes as u64;
    all.gauge("store_read_cache_bytes", "Bytes of pieces of journals in memory that were read back", read_cache);
    all.counter(
        "store_read_back_bytes",
        "Bytes of messages read from pieces of journals that were read back",
        store.read_back_bytes,
    );
    all.counter("store_read_back_pieces", "Pieces of journals that were read back", store.read_back_pieces);
    all.counter("store_read_file_bytes", "Bytes of messages read from files", store.read_file_bytes);
}

/// Adds the figures of one journal.
fn journal_figures(journal: &polylogue_log::journal::Stats, all: &mut Figures) {
    all.counter("journal_bytes", "Bytes written to journals", journal.bytes_written);
    all.counter(
        "journal_cached_bytes",
        "Of bytes written to journals, those that went through the page cache",
        journal.bytes_cached,
    );
    all.counter("journal_prewritten_bytes", "Bytes written ahead into new journal files", journal.bytes_prewritten);
    all.counter("journal_payload_bytes", "Bytes of messages written to journals", journal.payload_bytes);
    all.counter("journal_entries", "Batches written to journals", journal.entries);
    all.counter("journal_frames", "Frames written to journals", journal.frames);
    all.counter(
        "journal_cached_frames",
        "Of frames written to journals, those that went through the page cache",
        journal.frames_cached,
    );
    all.counter(
        "journal_prompt_groups",
        "Groups of writes that the thread of a client's connection put into the page cache itself",
        journal.groups_prompt,
    );
    all.counter("journal_flushes", "Flushes of journals", journal.flush.count);
    all.counter("journal_flush_nanoseconds", "Time spent in flushes of journals", journal.flush.ns);
    all.counter("journal_refused", "Writes refused because the queue was full", journal.refused);
    all.gauge("journal_files", "Journal files", journal.files);
    all.gauge("journal_queue_bytes", "Bytes that wait to be written to journals", journal.queue_bytes);
}

fn figures(broker: &Broker) -> Vec<Figure> {
    let mut all = Figures::default();
    let shards = broker.shards();
    all.gauge("shards", "Journals", shards.len() as u64);
    all.gauge("feature_level", "The feature level of the data directory", u64::from(broker.feature_level()));
    disk_figures(broker, &mut all);
    let backups = broker.backups();
    all.gauge("backup_running", "Whether a backup is under way", u64::from(backups.running));
    all.counter("backups_completed", "Backups that were handed out as a whole", backups.completed);
    all.counter("backups_failed", "Backups that were refused, broken off or given up", backups.failed);
    all.counter("backup_bytes", "Bytes of files handed out to backups", backups.bytes);
    all.gauge("reads_waiting", "Reads that wait for a thread", broker.reads_waiting() as u64);
    for shard in &shards {
        all.gauge("watches", "Readers that wait for new messages", shard.watches as u64);
        all.gauge(
            "consumer_window_bytes",
            "Bytes of messages that consumers of queues were handed and have not taken",
            shard.window_bytes,
        );
        all.gauge("timers_pending", "Messages of queues that wait for a time far off", shard.timers_pending);
        all.gauge("timers_resident", "Of their times, what is in memory", shard.timers_resident);
        all.counter("timers_late", "Messages that became ready more than 10 ms after their time", shard.timers_late);
        all.gauge(
            "followed",
            "Partitions that readers of many want to know of when they change",
            shard.followed as u64,
        );
        all.gauge("proposals_open", "Writes whose outcome is not known yet", shard.proposals_open);
        let waiting = shard.commands_waiting as u64;
        all.gauge(
            "commands_waiting",
            "Requests for the state of groups and queues that wait until it is applied",
            waiting,
        );
        all.gauge("writers_lost", "Journals whose writer was lost", u64::from(shard.writer_lost));
        if let Some(journal) = &shard.journal {
            journal_figures(journal, &mut all);
        }
        let store = &shard.store;
        all.gauge("store_segments", "Segments", store.segments as u64);
        all.gauge("store_segment_bytes", "Bytes of segments", store.segment_bytes);
        all.gauge("store_live_bytes", "Bytes of messages that are kept", store.kept_bytes);
        all.gauge("store_tail_bytes", "Bytes of recent messages in memory", store.tail_bytes as u64);
        all.gauge("store_index_bytes", "Bytes of indexes in memory", store.index_bytes as u64);
        let cached = (store.sparse_bytes + store.divided_bytes) as u64;
        all.gauge("store_index_cache_bytes", "Bytes of pieces of indexes in memory that can be read again", cached);
        all.gauge("store_fenced", "Ranges that cannot be read because of damage", store.fenced as u64);
        all.gauge("store_segments_lost", "Segments that cannot be read at all", store.segments_lost as u64);
        read_figures(shard, &mut all);
        all.counter("store_merged_bytes", "Bytes written by merges", store.merged_bytes);
        all.counter("store_preloaded_bytes", "Bytes brought into the page cache for merges", store.preloaded_bytes);
    }
    credit_figures(broker, &mut all);
    all.counter(
        "dead_letters_refused_dropped",
        "Messages refused by full queues with reject-publish-dlx that were not dead-lettered: too many were on their way",
        broker.refused_dropped(),
    );
    let failures: u64 = broker.failures().values().map(|failure| failure.count).sum();
    all.counter("background_failures", "Background work that failed", failures);
    all.0
}
