//! Runs for queues only: throughput, and a start with many queues.

use super::{MEASURED_PRODUCER, OneSide, WARM_PRODUCER};
use crate::amqp::queue_name;
use crate::amqp::wire::{Wire, declare_all};
use crate::clock::{monotonic_ns, seconds};
use crate::contract::Spec;
use crate::error::{BenchError, Result};
use crate::target::{Protocol, Running};

const KIB: f64 = 1_024.0;

impl OneSide<'_> {
    /// Publishes and consumes this many messages concurrently.
    pub(super) fn through_queues(&mut self) -> Result<()> {
        let load = self.load;
        let spec = |side: &Self, messages, producer| Spec { groups: 1, ..side.counted(messages, producer) };
        // A count of 0 would be a run by time.
        if load.warm_messages > 0 {
            let warm = spec(self, load.warm_messages, WARM_PRODUCER);
            self.drive(&[warm])?;
        }
        let before = self.idle()?;
        let measured = spec(self, load.messages, MEASURED_PRODUCER);
        let span = self.begin_span()?;
        let done = self.drive(&[measured])?.into_iter().next().unwrap_or_default().done;
        self.end_span(span)?;
        let after = self.idle()?;
        self.figure("produce_per_s", done.acked as f64 / done.publish_s);
        self.figure("fetch_per_s", done.received as f64 / done.read_s);
        self.costs("produce", before, after, done.acked, Some(done.cpu_s));
        Ok(())
    }

    /// Stops the broker, which has the queues by now, and restarts it with its data.
    pub(super) fn start_again(&mut self) -> Result<()> {
        let load = self.load;
        let queue = load.queue.ok_or_else(|| BenchError::new("there are no queues to start with"))?;
        // Declared a second time to measure the cost for existing queues.
        let began = monotonic_ns();
        drop(declare_all(self.running.bootstrap(), &self.topic, load.partitions, queue)?);
        self.figure("redeclare_per_s", f64::from(load.partitions) / seconds(monotonic_ns() - began));
        self.idle()?;
        self.running.end();
        let began = monotonic_ns();
        let (programs, interrupt) = (self.around.programs, self.around.interrupt);
        let (target, place) = (&self.target, self.place.path());
        let again = || Running::start(target, programs, place, Protocol::Amqp, (1, 1), interrupt);
        self.running = self.spawn_settings.apply(again)?;
        let mut wire = Wire::connect(self.running.bootstrap())?;
        wire.open_channel()?;
        wire.find(queue_name(&self.topic, load.partitions.saturating_sub(1)))?;
        self.figure("start_s", seconds(monotonic_ns() - began));
        for number in 0..load.partitions {
            wire.find(queue_name(&self.topic, number))?;
        }
        if let Some(sample) = self.idle()? {
            self.figure("anonymous_mib", sample.anonymous_bytes as f64 / KIB / KIB);
            self.figure("files", sample.files as f64);
        }
        Ok(())
    }
}
