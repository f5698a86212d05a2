//! Attaching readers of streams, and their reads from the log.

use crate::broker::Inner;
use crate::queues::stream::{Found, Reader, Turn};
use crate::shard::{Shard, ShardState};
use crate::sink::Origin;
use polylogue_api::{AttachError, AttachReader, ConsumerId, Event, ReadFrom, Reply};
use polylogue_log::ErrorKind as LogErrorKind;
use polylogue_log::store::{EntryAt, Lookup};
use polylogue_types::{Offset, PartitionId, TimestampMs};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl ShardState {
    /// Returns the range of offsets in a stream.
    pub(crate) fn there(&self, stream: PartitionId) -> Range<Offset> {
        self.partitions.get(&stream).map_or(Offset(0)..Offset(0), |p| p.log_start..p.high_watermark)
    }

    /// Returns the turns that readers of a stream may take now; none if it is not a stream.
    pub(crate) fn turns(&mut self, stream: PartitionId) -> Vec<Turn> {
        let ShardState { partitions, queues, .. } = self;
        let Some(host) = queues.streams.get_mut(&stream) else { return Vec::new() };
        let there = partitions.get(&stream).map(|partition| partition.log_start..partition.high_watermark);
        there.map(|there| host.turns(stream, &there)).unwrap_or_default()
    }
}

impl Inner {
    pub(crate) fn attach_reader(&self, origin: Origin, attach: &AttachReader) {
        let queue = attach.queue;
        let Some(shard) = self.partition_shard(queue) else {
            return origin.reply(Reply::Attach(Err(AttachError::UnknownQueue)));
        };
        let id = self.consumers.lock().add(queue, origin.session);
        // Attached immediately, without a position, so that it is removed with its session at any time.
        let is_stream = {
            let mut state = shard.state.lock();
            let is_closed = state.queues.is_closed(queue);
            let host = state.queues.streams.get_mut(&queue).filter(|_| !is_closed);
            host.map(|host| host.insert(id, Reader::new(origin.sink.clone(), attach))).is_some()
        };
        if !is_stream {
            self.consumers.lock().remove(id);
            return origin.reply(Reply::Attach(Err(AttachError::UnknownQueue)));
        }
        let ReadFrom::Time(time) = attach.from else {
            return self.begin_reading(origin, &shard, (queue, id), attach.from);
        };
        let Some(inner) = self.this.upgrade() else { return };
        let job = Box::new(move || {
            let from = inner.begin_at_time(&shard, queue, time);
            inner.begin_reading(origin, &shard, (queue, id), from);
        });
        if let Err(job) = self.readers.submit(job) {
            job();
        }
    }

    /// Returns the position of a reader that starts at a time. Reads the disk.
    fn begin_at_time(&self, shard: &Shard, queue: PartitionId, time: TimestampMs) -> ReadFrom {
        let there = shard.state.lock().there(queue);
        match shard.store.find_by_time(queue, time, there.start).and_then(Lookup::wait) {
            // The first messages of an entry may be deleted.
            Ok(Some(entry)) => ReadFrom::Offset(entry.base.max(there.start)),
            Ok(None) => ReadFrom::Next,
            Err(e) => {
                self.gauges.background_failed("delivery", &format!("the time {time} in stream {queue}: {e}"));
                // The position is unknown: too many messages rather than too few.
                ReadFrom::First
            }
        }
    }

    /// Sets a reader's position.
    fn begin_reading(&self, origin: Origin, shard: &Arc<Shard>, (queue, id): (PartitionId, u64), from: ReadFrom) {
        let begun = {
            let mut state = shard.state.lock();
            let there = state.there(queue);
            let offset = match from {
                ReadFrom::First => there.start,
                ReadFrom::Last => Offset(there.end.0.saturating_sub(1)).max(there.start),
                ReadFrom::Next | ReadFrom::Time(_) => there.end,
                ReadFrom::Offset(offset) => offset,
            };
            state.queues.reader(queue, id).map(|reader| reader.begin_at(offset)).is_some()
        };
        // The session must know the consumer before it receives messages.
        let attached = if begun { Ok(ConsumerId(id)) } else { Err(AttachError::UnknownQueue) };
        origin.reply(Reply::Attach(attached));
        self.turn_is_over(shard, queue, id);
        self.pump(shard);
    }

    /// Runs the turns of readers. Must not be called with a lock held.
    pub(crate) fn take_turns(&self, shard: &Arc<Shard>, turns: Vec<Turn>) {
        if self.stopping.load(Ordering::Relaxed) {
            // The reader threads' queue is closed: a reader far behind would delay the stop until it has read everything.
            return;
        }
        for turn in turns {
            match shard.store.entries_from(turn.stream, turn.offsets.start, turn.entries_max, turn.bytes_max) {
                Ok(Lookup::Ready(entries)) => self.turn_taken(shard, &turn, Ok(entries)),
                Err(e) => self.turn_taken(shard, &turn, Err(e)),
                Ok(Lookup::NeedsIo(plan)) => {
                    self.read_and_pump(shard, move |inner, shard| inner.turn_taken(shard, &turn, plan.run()));
                }
            }
        }
    }

    /// Ends a turn: sends the matching messages, and allows further reads.
    fn turn_taken(&self, shard: &Shard, turn: &Turn, read: polylogue_log::Result<Vec<EntryAt>>) {
        let found = match read {
            Ok(entries) => turn.take(entries),
            Err(e) => match self.behind(shard, turn, &e) {
                Some(next) => Found::nothing(next),
                None => return self.end_reader(shard, turn),
            },
        };
        let taken = {
            let mut state = shard.state.lock();
            let reader = state.queues.reader(turn.stream, turn.reader);
            reader.map(|reader| (reader.takes(found), reader.sink.clone()))
        };
        if let Some((deliveries, sink)) = taken
            && !deliveries.is_empty()
        {
            sink.event(Event::Deliver(deliveries));
        }
        self.turn_is_over(shard, turn.stream, turn.reader);
    }

    fn turn_is_over(&self, shard: &Shard, stream: PartitionId, reader: u64) {
        let mut state = shard.state.lock();
        if let Some(reader) = state.queues.reader(stream, reader) {
            reader.turn_is_over();
        }
        state.queues.touch(stream);
    }

    /// Returns where a reader continues if the messages are lost permanently; `None` if the disk error may be temporary.
    fn behind(&self, shard: &Shard, turn: &Turn, error: &polylogue_log::Error) -> Option<Offset> {
        let at = turn.offsets.start;
        match error.kind {
            LogErrorKind::OutOfRange => {
                // Trimmed since the turn began.
                let first = shard.store.partition_stats(turn.stream).map(|stats| stats.first);
                Some(first.unwrap_or_default().max(at.plus(1)))
            }
            LogErrorKind::Damaged => {
                self.gauges.background_failed("delivery", &format!("message {at} of stream {}: {error}", turn.stream));
                let end = shard.store.damaged_until(turn.stream, at);
                Some(end.unwrap_or_default().max(at.plus(1)))
            }
            _ => {
                self.gauges.background_failed("delivery", &format!("message {at} of stream {}: {error}", turn.stream));
                None
            }
        }
    }

    /// Ends a reader that cannot continue: it is notified, and may attach again.
    fn end_reader(&self, shard: &Shard, turn: &Turn) {
        let gone = {
            let mut state = shard.state.lock();
            let host = state.queues.streams.get_mut(&turn.stream);
            host.and_then(|host| host.remove(turn.reader))
        };
        if let Some(reader) = gone {
            self.consumers.lock().remove(turn.reader);
            reader.sink.event(Event::Detached(ConsumerId(turn.reader)));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::sink::testing::Recorder;
    use crate::{Broker, BrokerConfig, ReplySink};
    use bytes::Bytes;
    use polylogue_api::*;
    use polylogue_env::sim::SimWorld;
    use polylogue_record::envelope::{EntryFlags, Form};
    use polylogue_replicate::Work;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    const MESSAGES: usize = 20_000;
    const STACK_BYTES: usize = 256 << 10;

    /// A filter that matches nothing.
    #[derive(Debug)]
    struct Nothing;

    impl EntryFilter for Nothing {
        fn wants(&self, _: &Bytes) -> bool {
            false
        }
    }

    /// When reader threads took no more jobs, as at every stop, each check of a stream ran within the one before it, until the stack overflowed.
    #[test]
    fn a_stream_is_read_turn_by_turn_where_readers_take_no_more() {
        let world = SimWorld::new(1);
        let mut config = BrokerConfig::new("/data".into());
        config.disk_reserve_bytes = 0;
        config.store.tail_cache_bytes = 0;
        let broker = Broker::open(world.env(), config, BTreeMap::new()).unwrap();
        let sink: Arc<dyn ReplySink> = Arc::new(Recorder::default());
        let session = broker.new_session();
        let ask = |request| {
            broker.submit(&sink, session, 1, request);
            while broker.log_step(Work::Write) | broker.log_step(Work::Flush) {}
        };
        let queue = Some(QueueSettings { mode: ConsumerMode::Readers, ..QueueSettings::default() });
        let config = TopicConfig { queue, retention_ms: None, ..TopicConfig::default() };
        let topic = NewTopic { name: "s".into(), partitions: 1, config, internal: false };
        ask(Request::CreateTopics(CreateTopics { topics: vec![topic], validate_only: false }));
        let queue = broker.catalog().topic("s").unwrap().partitions[0].id;
        let message = PublishMessage {
            queues: vec![Target { queue, priority: None, expires_at: None, deliver_at: None }],
            form: Form::AmqpMessage,
            flags: EntryFlags::NONE,
            bytes: Bytes::from_static(b"x"),
            timestamp: -1,
            key_hash: None,
            all_or_none: false,
        };
        for _ in 0..MESSAGES / 1_000 {
            let messages = vec![message.clone(); 1_000];
            ask(Request::Publish(PublishRequest { messages, ack: Ack::Committed, patient: false }));
        }
        broker.inner.readers.stop();
        let filter: Option<Arc<dyn EntryFilter>> = Some(Arc::new(Nothing));
        let attach = AttachReader { queue, from: ReadFrom::First, filter, prefetch: 0, credit: None, window_bytes: 0 };
        let read = || broker.submit(&sink, session, 2, Request::AttachReader(attach));
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, read).unwrap();
            thread.join().unwrap();
        });
        let shard = broker.inner.partition_shard(queue).unwrap();
        let mut state = shard.state.lock();
        assert!(state.turns(queue).is_empty() && !state.queues.has_work(), "it has looked at all of it");
    }
}
