//! Consumers of several queues under one limit: AMQP's prefetch for a whole channel.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::common;

use common::*;
use polylogue_lease::*;
use polylogue_types::SharedLimit;
use std::sync::Arc;

/// Queues whose consumers share a limit: consumer `n` and its like are those of queue `n / 10`.
struct Channel {
    limit: Arc<SharedLimit>,
    queues: Vec<Harness>,
}

impl Channel {
    fn new(max: u64, queues: usize) -> Channel {
        let limit = Arc::new(SharedLimit::default());
        limit.set_max(max);
        Channel { limit, queues: (0..queues).map(|_| Harness::new(Config::default())).collect() }
    }

    fn consumer(&mut self, id: u64, counts: bool) {
        let share = Some(Share { limit: self.limit.clone(), counts });
        self.queue(id).consumer(id, ConsumerConfig { share, settles: !counts, ..ConsumerConfig::default() });
    }

    fn queue(&mut self, consumer: u64) -> &mut Harness {
        &mut self.queues[consumer as usize / 10]
    }

    /// What is handed out, as a host does it: in each queue, then to those who wait where room became free.
    fn granted(&mut self) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        let mut freed = Vec::new();
        for harness in &mut self.queues {
            all.extend(pairs(&harness.grant()));
            freed.extend(harness.queue.take_freed());
        }
        while let Some(limit) = freed.pop() {
            let mut at = 0;
            while let Some((turn, consumer)) = limit.offer_next(at) {
                at = turn;
                let harness = self.queue(consumer);
                harness.queue.offer(ConsumerId(consumer)).unwrap();
                all.extend(pairs(&harness.grant()));
                freed.extend(harness.queue.take_freed());
            }
        }
        all
    }
}

/// Three queues of 1,000 messages with a prefetch of 10: after 1,500 acknowledgements the counts were 1,000, 500 and 0.
#[test]
fn room_that_becomes_free_goes_round_the_queues() {
    let mut channel = Channel::new(10, 3);
    for id in [0, 10, 20] {
        channel.queue(id).append(1_000);
        channel.consumer(id, true);
    }
    let mut held: std::collections::VecDeque<_> = channel.granted().into();
    let mut acked = [0; 3];
    // One by one, and many at once.
    for at_once in (1..=10).cycle().scan(0, |sum, n| (*sum < 1_500).then(|| (*sum += n, n).1)) {
        assert_eq!(held.len(), 10);
        for (consumer, offset) in held.drain(..at_once).collect::<Vec<_>>() {
            acked[consumer as usize / 10] += 1;
            let _ = channel.queue(consumer).ack(offset, 1);
        }
        held.extend(channel.granted());
    }
    assert!(acked.iter().all(|count| (450..=550).contains(count)), "{acked:?}");
    assert_eq!(channel.limit.held(), 10);
}

/// Of two consumers of a queue one got 100 messages and the other none.
#[test]
fn room_that_becomes_free_goes_round_the_consumers_of_a_queue() {
    let mut channel = Channel::new(4, 1);
    channel.queue(0).append(100);
    [1, 2].into_iter().for_each(|id| channel.consumer(id, true));
    let mut held: std::collections::VecDeque<_> = channel.granted().into();
    let mut acked = [0; 2];
    while let Some((consumer, offset)) = held.pop_front() {
        acked[consumer as usize - 1] += 1;
        let _ = channel.queue(consumer).ack(offset, 1);
        held.extend(channel.granted());
        assert!(held.len() <= 4);
    }
    assert_eq!(acked, [50, 50]);
    assert_eq!(channel.limit.held(), 0);
}

/// A queue without messages takes no room from others, and a waiting consumer gets room in whatever way it becomes free.
#[test]
fn nobody_waits_while_there_is_room() {
    let mut channel = Channel::new(2, 3);
    for id in [0, 10, 20] {
        channel.consumer(id, true);
    }
    assert_eq!(channel.granted(), []);
    channel.queue(10).append(3);
    assert_eq!(channel.granted(), [(10, 0), (10, 1)]);
    channel.queue(20).append(3);
    assert_eq!(channel.granted(), [], "there is no room");
    let back = Return { delay: Delay::None, ..Return::default() };
    let now = channel.queue(10).now;
    let _ = channel.queue(10).queue.release(0, 1, By::Consumer(ConsumerId(10)), back, now).unwrap();
    assert_eq!(channel.granted(), [(10, 0)], "its queue is looked at first, and it has waited as long");
    let _ = channel.queue(10).queue.reject(0, 1, By::Consumer(ConsumerId(10)), now).unwrap();
    assert_eq!(channel.granted(), [(20, 0)]);
    channel.queue(10).queue.remove_consumer(ConsumerId(10), back, now).unwrap();
    assert_eq!(channel.granted(), [(20, 1)]);
    // A writer that is lost holds nothing.
    channel.queue(0).append(3);
    assert_eq!((channel.granted(), channel.limit.held()), (vec![], 2));
    channel.queue(20).queue.on_writer_lost();
    assert_eq!(channel.limit.held(), 0);
    assert_eq!(channel.granted(), [(0, 0), (0, 1)]);
}

/// As with RabbitMQ: without acknowledgement a consumer takes no room, and gets nothing while there is none.
#[test]
fn a_consumer_without_acknowledgement_waits_for_room() {
    let mut channel = Channel::new(2, 2);
    channel.consumer(0, true);
    channel.consumer(10, false);
    channel.queue(10).append(5);
    assert_eq!(channel.granted().len(), 5);
    channel.queue(0).append(3);
    assert_eq!(channel.granted(), [(0, 0), (0, 1)]);
    channel.queue(10).append(2);
    assert_eq!(channel.granted(), []);
    let _ = channel.queue(0).ack(0, 1);
    assert_eq!(channel.granted(), [(0, 2)], "it looked first, and there is no room again");
    let _ = channel.queue(0).ack(1, 1);
    assert_eq!(channel.granted(), [(10, 5), (10, 6)]);
}

/// A limit that comes later counts what is held, and one that is raised or lifted reaches the consumers that wait.
#[test]
fn a_limit_may_come_later_and_change() {
    let mut channel = Channel::new(0, 1);
    let harness = channel.queue(0);
    harness.append(10);
    let one = harness.prefetch(1, 3);
    assert_eq!(offsets(&harness.grant()), [0, 1, 2]);
    let share = Share { limit: channel.limit.clone(), counts: true };
    channel.limit.set_max(2);
    for _ in 0..2 {
        channel.queue(0).queue.share(one, share.clone()).unwrap();
        assert_eq!(channel.limit.held(), 3);
    }
    let _ = channel.queue(0).ack(0, 1);
    assert_eq!(channel.granted(), []);
    let _ = channel.queue(0).ack(1, 1);
    assert_eq!(channel.granted(), [(1, 3)]);
    channel.limit.set_max(9);
    channel.queue(0).queue.offer(one).unwrap();
    assert_eq!(channel.granted(), [(1, 4)], "as many as its own prefetch is");
    channel.queue(0).queue.stop_consumer(one).unwrap();
    assert_eq!(channel.limit.held(), 3, "it keeps what it has");
    drop(channel.queues.pop());
    assert_eq!(channel.limit.held(), 0);
}
