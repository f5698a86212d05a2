//! Attaching and detaching consumers.

use crate::broker::Inner;
use crate::queues::host::Recipient;
use crate::queues::pump::lease_ms;
use crate::queues::stream::StreamHost;
use crate::queues::{QueueHost, note_shard};
use crate::shard::Shard;
use crate::sink::{Origin, SessionId};
use polylogue_api::{Attach, AttachError, ConsumerId, ConsumerSpec, Credit, Event, Reply, SettleError, Unavailable};
use polylogue_lease::{ConsumerConfig, LeaseError, Return, Share};
use polylogue_types::{Map, PartitionId, SharedLimit};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The queue of each consumer, and the consumers of each session.
#[derive(Debug, Default)]
pub(crate) struct Consumers {
    queues: Map<u64, (PartitionId, SessionId)>,
    /// Ordered by session, then by attachment.
    of: BTreeSet<(SessionId, u64)>,
    last: u64,
}

impl Consumers {
    /// Returns a new consumer id.
    pub(crate) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(crate) fn add(&mut self, queue: PartitionId, session: SessionId) -> u64 {
        let id = self.next();
        self.queues.insert(id, (queue, session));
        self.of.insert((session, id));
        id
    }

    /// Returns the queue of a consumer that belongs to this session.
    fn queue(&self, consumer: u64, session: SessionId) -> Option<PartitionId> {
        self.queues.get(&consumer).filter(|(_, of)| *of == session).map(|(queue, _)| *queue)
    }

    pub(crate) fn remove(&mut self, consumer: u64) {
        if let Some((_, session)) = self.queues.remove(&consumer) {
            self.of.remove(&(session, consumer));
        }
    }

    fn take_session(&mut self, session: SessionId) -> Vec<(u64, PartitionId)> {
        let consumers: Vec<_> = self.of.range((session, 0)..=(session, u64::MAX)).copied().collect();
        let removed = consumers.into_iter().filter_map(|of| {
            self.of.remove(&of);
            self.queues.remove(&of.1).map(|(queue, _)| (of.1, queue))
        });
        removed.collect()
    }
}

fn consumer_config(spec: &ConsumerSpec) -> ConsumerConfig {
    ConsumerConfig {
        priority: spec.priority,
        // A consumer that settles by receiving has no prefetch limit, see `Recipient::settles`.
        prefetch: if spec.settles { 0 } else { spec.prefetch },
        prefetch_bytes: if spec.settles { 0 } else { spec.prefetch_bytes },
        permits: spec.credit,
        pulls: spec.credit == Some(0),
        window_bytes: spec.window_bytes,
        lease_ms: spec.lease_ms,
        exclusive: spec.exclusive,
        share: spec.shared.clone().map(|limit| Share { limit, counts: !spec.settles }),
        ..ConsumerConfig::default()
    }
}

/// The reply for a consumer that the engine refuses.
fn attach_error(error: &LeaseError) -> AttachError {
    match error {
        LeaseError::NotWriter => AttachError::Unavailable(Unavailable::NotCommitted),
        _ => AttachError::Exclusive,
    }
}

impl Inner {
    pub(crate) fn attach(&self, origin: Origin, attach: &Attach) {
        let Some(shard) = self.partition_shard(attach.queue) else {
            return origin.reply(Reply::Attach(Err(AttachError::UnknownQueue)));
        };
        let config = consumer_config(&attach.consumer);
        let id = self.consumers.lock().add(attach.queue, origin.session);
        let attached = {
            let mut state = shard.state.lock();
            let is_closed = state.queues.is_closed(attach.queue);
            match state.queues.hosts.get_mut(&attach.queue).filter(|_| !is_closed) {
                None => Err(AttachError::UnknownQueue),
                Some(host) => match host.lease.add_consumer(polylogue_lease::ConsumerId(id), config.clone()) {
                    Err(e) => Err(attach_error(&e)),
                    Ok(()) => {
                        if host.recipients.is_empty() {
                            host.begin_growth();
                        }
                        let (sink, settles) = (origin.sink.clone(), attach.consumer.settles);
                        let recipient = Recipient { sink, config, settles, stopped: false };
                        host.add_recipient(id, recipient);
                        host.attaching += 1;
                        Ok(())
                    }
                },
            }
        };
        if let Err(why) = attached {
            self.consumers.lock().remove(id);
            return origin.reply(Reply::Attach(Err(why)));
        }
        // The session must know the consumer before it receives messages, also those that another thread finds meanwhile.
        let sink = origin.sink.clone();
        origin.reply(Reply::Attach(Ok(ConsumerId(id))));
        let is_there = {
            let mut state = shard.state.lock();
            let host = state.queues.hosts.get_mut(&attach.queue);
            let is_there = host.map(|host| host.attaching -= 1).is_some();
            state.queues.touch(attach.queue);
            is_there
        };
        if !is_there {
            // The consumer was detached meanwhile, and `Detached` was sent before `Attached`.
            sink.event(Event::Detached(ConsumerId(id)));
        }
        self.pump(&shard);
    }

    pub(crate) fn detach(&self, session: SessionId, consumer: ConsumerId) {
        let queue = {
            let mut consumers = self.consumers.lock();
            let queue = consumers.queue(consumer.0, session);
            if queue.is_some() {
                consumers.remove(consumer.0);
            }
            queue
        };
        match queue {
            Some(queue) => self.leave(&[(consumer.0, queue)]),
            None => self.directs.lock().remove(consumer, session),
        }
    }

    /// Stops deliveries to a consumer, which keeps its leases.
    pub(crate) fn stop_consumer(&self, origin: Origin, consumer: ConsumerId) {
        let queue = self.consumers.lock().queue(consumer.0, origin.session);
        let found = queue.and_then(|queue| Some((queue, self.partition_shard(queue)?)));
        let Some((queue, shard)) = found else { return origin.reply(Reply::Stopped) };
        let mut stopped = Some(origin);
        {
            let mut state = shard.state.lock();
            if let Some(host) = state.queues.hosts.get_mut(&queue) {
                // The consumer may have been dropped with the writer.
                let _ = host.lease.stop_consumer(polylogue_lease::ConsumerId(consumer.0));
                host.stop_recipient(consumer.0);
                if host.pumping {
                    // A delivery to it may be in progress, which may settle the message.
                    host.stops.extend(stopped.take());
                }
            } else if let Some(host) = state.queues.streams.get_mut(&queue) {
                host.stop(consumer.0);
            }
            state.queues.touch(queue);
        }
        if let Some(origin) = stopped {
            origin.reply(Reply::Stopped);
        }
        self.pump(&shard);
    }

    /// Detaches all consumers of a session.
    pub(crate) fn detach_session(&self, session: SessionId) {
        let gone = self.consumers.lock().take_session(session);
        self.leave(&gone);
    }

    fn leave(&self, gone: &[(u64, PartitionId)]) {
        let now_ms = lease_ms(self.env.clock.now_ms());
        let mut shards: Vec<Arc<Shard>> = Vec::new();
        for (consumer, queue) in gone {
            let Some(shard) = self.partition_shard(*queue) else { continue };
            let mut state = shard.state.lock();
            if let Some(host) = state.queues.hosts.get_mut(queue) {
                host.remove_recipient(*consumer);
                // The consumer may have been dropped with the writer.
                let back = Return { counts: true, ..Return::default() };
                let _ = host.lease.remove_consumer(polylogue_lease::ConsumerId(*consumer), back, now_ms);
            } else if let Some(host) = state.queues.streams.get_mut(queue) {
                host.remove(*consumer);
            }
            state.queues.touch(*queue);
            drop(state);
            note_shard(&mut shards, shard);
        }
        for shard in shards {
            self.pump(&shard);
        }
    }

    /// Notifies the consumers and waiters of a deleted queue.
    pub(crate) fn queue_gone(&self, mut queue: QueueHost) {
        let mut consumers = self.consumers.lock();
        for consumer in queue.recipients.keys() {
            consumers.remove(*consumer);
        }
        drop(consumers);
        for (consumer, recipient) in queue.recipients {
            recipient.sink.event(Event::Detached(ConsumerId(consumer)));
        }
        let waiters = queue.waiting.into_iter().map(|(_, waiter)| waiter);
        for waiter in waiters.chain(queue.withholding.take_all()) {
            waiter.answer(Some(SettleError::UnknownQueue));
        }
        let freed = queue.lease.limits();
        drop(queue.lease);
        self.offer(freed);
    }

    /// Notifies the readers of a deleted stream.
    pub(crate) fn stream_gone(&self, stream: &StreamHost) {
        let mut consumers = self.consumers.lock();
        stream.readers().for_each(|(reader, _)| consumers.remove(*reader));
        drop(consumers);
        for (id, reader) in stream.readers() {
            reader.sink.event(Event::Detached(ConsumerId(*id)));
        }
    }

    pub(crate) fn credit(&self, session: SessionId, consumer: ConsumerId, more: Credit) {
        let Some(queue) = self.consumers.lock().queue(consumer.0, session) else {
            return self.directs.lock().credit(consumer, session, more.messages);
        };
        let Some(shard) = self.partition_shard(queue) else { return };
        {
            let mut state = shard.state.lock();
            if let Some(host) = state.queues.hosts.get_mut(&queue) {
                // A consumer that was dropped with its writer is re-attached without its earlier credit.
                let _ = host.lease.add_permits(polylogue_lease::ConsumerId(consumer.0), more.messages, more.bytes);
            } else if let Some(reader) = state.queues.reader(queue, consumer.0) {
                reader.credit(more);
            }
            state.queues.touch(queue);
        }
        self.pump(&shard);
    }

    /// Puts a consumer under a shared limit. Not for readers of streams: a message that one has no room for cannot go to another consumer.
    pub(crate) fn share(&self, session: SessionId, consumer: ConsumerId, limit: Arc<SharedLimit>) {
        let queue = self.consumers.lock().queue(consumer.0, session);
        let Some((queue, shard)) = queue.and_then(|queue| Some((queue, self.partition_shard(queue)?))) else { return };
        let mut state = shard.state.lock();
        let Some(host) = state.queues.hosts.get_mut(&queue) else { return };
        let Some(recipient) = host.recipients.get_mut(&consumer.0) else { return };
        let share = Share { limit, counts: !recipient.settles };
        recipient.config.share = Some(share.clone());
        // A consumer that was dropped with its writer is re-attached with the limit.
        let _ = host.lease.share(polylogue_lease::ConsumerId(consumer.0), share);
    }

    /// Offers messages to a consumer that waits for room under a limit. Returns the shard of its queue, which must be pumped; `None` if the consumer
    /// is gone.
    pub(crate) fn offer_to(&self, consumer: u64) -> Option<Arc<Shard>> {
        let queue = self.consumers.lock().queues.get(&consumer)?.0;
        let shard = self.partition_shard(queue)?;
        let mut state = shard.state.lock();
        state.queues.hosts.get_mut(&queue)?.lease.offer(polylogue_lease::ConsumerId(consumer)).ok()?;
        state.queues.touch(queue);
        drop(state);
        Some(shard)
    }
}
