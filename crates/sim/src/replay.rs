//! Replay test: a run's shard logs are replayed into fresh nodes in random interleavings, because applied state depends on the log only.
//!
//! Each node receives the frames of all shards in its own order: one shard may be complete before another begins, the metadata's included. At equal
//! indexes all states are equal, and at the end equal to the writer's.

use crate::node::{Follower, Recorder, same};
use crate::run::{DATA, SHARDS};
use polylogue_broker::AppliedState;
use polylogue_env::sim::{SimClock, SimRng};
use polylogue_types::{Index, ShardId};
use std::collections::BTreeMap;

/// Indexes of a shard at which states are compared, besides the last one.
const LOOKS: u64 = 5;
/// Frames of a shard that are replayed before another shard has its turn, at most.
const TURN_FRAMES_MAX: u64 = 40;

/// States by shard and index.
type States = BTreeMap<(ShardId, Index), AppliedState>;

/// Replays the recorded frames in this many interleavings. `ends`: the writer's own states. Returns the number of compared states.
///
/// # Errors
/// The differences, or why a node refuses the frames.
pub fn interleave(seed: u64, recorder: &Recorder, ends: &States, times: u64) -> Result<u64, String> {
    let logs = recorder.logs();
    let rng = SimRng::derive(seed, "interleavings");
    let mut looks: BTreeMap<ShardId, Vec<u64>> = BTreeMap::new();
    for (shard, log) in &logs {
        let mut at: Vec<u64> = (0..LOOKS).map(|_| rng.below(log.len().max(1) as u64)).collect();
        at.extend(log.len().checked_sub(1).map(|last| last as u64));
        at.extend(ends.keys().filter(|(of, _)| of == shard).map(|(_, index)| index.0));
        at.sort_unstable();
        at.dedup();
        looks.insert(*shard, at);
    }
    let (mut known, mut compared) = (ends.clone(), 0);
    for turn in 0..times {
        let why = |why: String| format!("interleaving {turn}: {why}");
        let clock = SimClock::default();
        let mut node = Follower::new(seed ^ turn, &clock, DATA, SHARDS)?;
        let mut next: BTreeMap<ShardId, u64> = logs.keys().map(|shard| (*shard, 0)).collect();
        loop {
            let left: Vec<ShardId> =
                next.iter().filter(|(shard, at)| **at < logs[shard].len() as u64).map(|(shard, _)| *shard).collect();
            let Some(shard) = left.get(rng.below(left.len().max(1) as u64) as usize).copied() else { break };
            // Nodes have different clocks, and run background work at different times.
            clock.advance_ms(rng.below(2_000));
            if rng.below(8) == 0 {
                node.broker.tick();
                node.broker.background_step();
            }
            let mut turn_left = 1 + rng.below(TURN_FRAMES_MAX);
            while turn_left > 0 {
                let at = next[&shard];
                let stop = looks[&shard].iter().copied().find(|look| *look >= at).map_or(u64::MAX, |look| look + 1);
                let end = stop.min(at + turn_left).min(logs[&shard].len() as u64);
                if end == at {
                    break;
                }
                node.feed(shard, &logs[&shard][at as usize..end as usize]).map_err(why)?;
                next.insert(shard, end);
                turn_left -= (end - at).min(turn_left);
                if looks[&shard].contains(&(end - 1)) {
                    let state = node.broker.applied_state(shard).map_err(|e| why(e.to_string()))?;
                    let state = state.ok_or_else(|| why(format!("shard {shard} is not open")))?;
                    compared += 1;
                    same(shard, known.entry((shard, state.index)).or_insert_with(|| state.clone()), &state)
                        .map_err(why)?;
                }
            }
        }
        node.broker.forget_reads();
    }
    Ok(compared)
}
