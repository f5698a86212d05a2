//! That the log alone decides: a run's shard logs, replayed into fresh nodes in random interleavings.
//!
//! Each node gets the frames of all shards in an order of its own: one shard may be at its end before another begins, metadata's among them.
//! At equal indexes all of them have equal states, and at the end the writer's.

use crate::node::{Follower, Recorder, same};
use crate::run::{DATA, SHARDS};
use polylogue_broker::AppliedState;
use polylogue_env::sim::{SimClock, SimRng};
use polylogue_types::{Index, ShardId};
use std::collections::BTreeMap;

/// Indexes of a shard at which states are compared, beside the last one.
const LOOKS: u64 = 5;
/// Frames that are replayed of a shard before another one has its turn, at the most.
const TURN_FRAMES_MAX: u64 = 40;

/// States by shard and index.
type States = BTreeMap<(ShardId, Index), AppliedState>;

/// Replays what was recorded in so many interleavings. `ends` are the writer's own states. Returns how many states were compared.
///
/// # Errors
/// What differs, or why a node does not take the frames.
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
            // Clocks of nodes differ, and so do the times at which they keep house.
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
