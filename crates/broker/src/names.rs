//! Topic and partition names for a data directory that cannot be opened.

use crate::checkpoint::machine_chunk;
use crate::datadir::shard_dir;
use polylogue_api::{IdentityResolver, MachineId, StateMachine};
use polylogue_env::Env;
use polylogue_log::check;
use polylogue_log::checkpoint::read_checkpoint;
use polylogue_meta::{META_SHARD, MetaMachine, MetaSettings};
use polylogue_types::{NodeId, PartitionId};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Returns the topic and number of each partition, as far as they can be read from a directory that is not in use, damaged or not: for reports of
/// damaged partitions. Unreadable data is skipped. Reads only.
#[must_use]
pub fn partition_names(env: &Env, data_dir: &Path) -> BTreeMap<PartitionId, (String, u32)> {
    let dir = shard_dir(data_dir, META_SHARD);
    let mut meta = MetaMachine::new(MetaSettings {
        sync_shards: vec![META_SHARD],
        async_shard: META_SHARD,
        memory_shard: META_SHARD,
        partitions_max: 0,
        node: NodeId::default(),
        resolver: Arc::new(IdentityResolver),
    });
    let checkpoint = read_checkpoint(env, &dir, &mut |key, bytes| {
        if let Some((MachineId::META, id)) = machine_chunk(&key) {
            drop(meta.load_chunk(&id, bytes));
        }
        Ok(())
    });
    let applied = checkpoint.ok().flatten();
    // `check` has reported unreadable data already, and the names are for its report.
    drop(check::frames(env, &dir, &mut |frame| {
        for entry in frame.entries.iter().filter(|e| e.envelope.partition == MachineId::META.partition()) {
            if Some(frame.index) > applied {
                drop(meta.apply(&frame.native(entry), frame.time_ms));
            }
        }
        meta.take_events();
    }));
    let numbered = |topic: &polylogue_meta::TopicMeta| {
        let name = topic.name().to_owned();
        topic.placement().zip(0..).map(move |((id, _), number)| (id, (name.clone(), number))).collect::<Vec<_>>()
    };
    meta.topics().flat_map(|topic| numbered(topic)).collect()
}
