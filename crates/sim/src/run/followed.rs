//! A run with a follower besides the node that clients use: it follows at its own pace, is compared and read, and takes over.

use super::{DATA, Mode, SHARDS, World, whole_partition};
use crate::clients;
use crate::node::{self, Follower};
use polylogue_broker::Broker;
use polylogue_kafka_codec::Records;
use polylogue_log::Frame;
use polylogue_types::{Index, ShardId};
use std::sync::Arc;

/// In one of this many steps a shard's state is recorded for comparison with the follower's.
const EXPECT_ODDS: u64 = 200;
/// The follower has a turn in one of this many steps.
const FOLLOW_ODDS: u64 = 3;
/// In one of this many steps a partition is read at the follower.
const READ_ODDS: u64 = 300;

/// Frames of each shard, in order.
type Rest = Vec<(ShardId, Vec<Arc<Frame>>)>;

impl World {
    /// Records every shard's state at its current index for comparison.
    pub(super) fn expect_all(&mut self, writer: &Broker) {
        let Some(follower) = &mut self.follower else { return };
        let expected = writer.shards().iter().try_for_each(|shard| follower.expect(writer, shard.id));
        self.failures.extend(expected.err());
    }

    /// After the node's last crash: the follower receives all committed frames and some of the rest, becomes the writer, and clients continue with
    /// it.
    pub(super) fn change_over(&mut self) {
        let Some(mut follower) = self.follower.take() else { return };
        let ready = self.hand_over(&mut follower);
        self.compared += follower.compared;
        if let Err(why) = ready {
            return self.failures.push(why);
        }
        self.faults += self.sim.disk.stats().faults;
        let Follower { sim, broker, live, directory, .. } = follower;
        (self.sim, self.live) = (sim, live);
        self.oracle.new_life();
        self.letters.new_life(directory);
        self.inject();
        self.live(&broker);
        self.lost_connections();
        broker.forget_reads();
        drop(broker);
        // The node's own frames, and those it received before, are recorded already.
        self.die();
        if let Some(broker) = self.open() {
            self.finish(&broker);
            broker.forget_reads();
        }
    }

    fn hand_over(&self, follower: &mut Follower) -> Result<(), String> {
        follower.catch_up(&self.recorder)?;
        for shard in self.recorder.logs().keys() {
            follower.check_bytes(&self.recorder, *shard)?;
        }
        for (shard, rest) in self.uncommitted()? {
            let reached = self.rng.below(rest.len() as u64 + 1) as usize;
            follower.feed(shard, rest.get(..reached).unwrap_or_default())?;
        }
        follower.broker.take_over().map_err(|e| format!("no take-over: {e}"))
    }

    /// Returns the frames that the crashed node had written and not committed, as its restart would find them. Any prefix may have reached other
    /// nodes.
    fn uncommitted(&self) -> Result<Rest, String> {
        let (machines, _) = node::machines();
        let opened = Broker::open(self.sim.env(), node::config(DATA, SHARDS), machines);
        let broker = opened.map_err(|e| format!("the node that died does not open: {e}"))?;
        let mut all = Vec::new();
        for shard in broker.shards() {
            let from = Index(self.recorder.logs().get(&shard.id).map_or(0, |log| log.len() as u64));
            let written = broker.frames(shard.id, from, usize::MAX).map_err(|e| e.to_string())?;
            let rest = written.into_iter().take_while(|frame| frame.term < shard.term);
            all.push((shard.id, rest.collect()));
        }
        broker.forget_reads();
        Ok(all)
    }

    /// Sets whether the node's commits are recorded.
    pub(super) fn records(&self) -> bool {
        self.follower.is_some() || matches!(self.mode, Mode::Replayed(_))
    }

    /// Records the states of the node's shards.
    pub(super) fn note_ends(&mut self, broker: &Broker) {
        if self.mode == Mode::Alone {
            return;
        }
        for shard in broker.shards() {
            match broker.applied_state(shard.id) {
                Ok(Some(state)) => _ = self.ends.insert((shard.id, state.index), state),
                Ok(None) => {}
                Err(why) => self.failures.push(why.to_string()),
            }
        }
    }

    /// Gives the follower its turn in some steps.
    pub(super) fn follow(&mut self, writer: &Broker) -> Result<(), String> {
        let Some(follower) = &mut self.follower else { return Ok(()) };
        if self.rng.below(EXPECT_ODDS) == 0 {
            let shards = writer.shards();
            if let Some(shard) = shards.get(self.rng.below(shards.len().max(1) as u64) as usize) {
                follower.expect(writer, shard.id)?;
            }
        }
        if self.rng.below(FOLLOW_ODDS) == 0 {
            follower.step(&self.recorder, &self.rng)?;
        }
        if self.rng.below(READ_ODDS) == 0 {
            let broker = follower.broker.clone();
            self.read_at(&broker)?;
        }
        Ok(())
    }

    /// Reads a partition at the follower, from some offset on. Its entries are acknowledged by the writer, or not replied to yet.
    fn read_at(&mut self, follower: &Broker) -> Result<(), String> {
        let places = self.oracle.places();
        let Some(place) = places.get(self.rng.below(places.len().max(1) as u64) as usize) else { return Ok(()) };
        // Until the follower has the topic and its partition, the response is an error.
        let known = follower.catalog().topic(&place.0).and_then(|t| t.partitions.get(place.1 as usize).copied());
        let Some(status) = known.and_then(|known| follower.partition_status(known.id)) else { return Ok(()) };
        let (start, end) = (status.log_start.0, status.high_watermark.0);
        let from = start + self.rng.below(end - start + 1);
        let response = self.ask(follower, 12, &whole_partition(place, from as i64))?;
        let partition = response.responses.into_iter().flat_map(|t| t.partitions).next();
        let partition = partition.ok_or("a fetch response without the partition")?;
        if partition.error_code != 0 || partition.high_watermark != end as i64 {
            let (error, reported) = (partition.error_code, partition.high_watermark);
            return Err(format!("{place:?} at the follower, offset {from} of {end}: error {error}, end {reported}"));
        }
        let values = clients::values_of(partition.records.and_then(Records::into_bytes).unwrap_or_default())?;
        if values.is_empty() != (from == end) || values.iter().any(|(offset, _)| *offset >= end as i64) {
            return Err(format!("{place:?} at the follower, offset {from} of {end}: {values:?}"));
        }
        for (offset, value) in values.iter().filter(|(offset, _)| *offset >= from as i64) {
            self.oracle.read(place, *offset, value);
        }
        Ok(())
    }
}
