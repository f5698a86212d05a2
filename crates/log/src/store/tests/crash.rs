//! Power cuts at every operation of background work.

use super::rig::{Rig, dir, kafka, opaque, small};
use crate::store::{SealedJournal, ShardStore, StoreConfig, check_segments};
use polylogue_env::Env;
use polylogue_env::sim::{Fault, FaultKind, FaultOp, SimDisk, SimWorld};
use polylogue_types::{Offset, PartitionId};
use std::sync::Arc;

/// Returns the content of every partition.
fn contents(rig: &Rig) -> Vec<Vec<u8>> {
    [(1, 0), (2, 4), (3, 0)].map(|(p, from)| rig.read_all(p, from, 700).unwrap().1).to_vec()
}

/// A store with work of every kind: a segment with dead runs, a dead segment, sealed files.
fn busy(seed: u64, config: StoreConfig) -> Rig {
    let rig = Rig::on(SimWorld::new(seed), config, 9 << 10);
    for i in 0..4 {
        rig.write(&[kafka(4, i, i, 1, 5, 3000)]);
    }
    rig.merge_all();
    for i in 0..12 {
        rig.write(&[kafka(1, i, i * 10, 10, 5, 1900), opaque(2, i, i, 1, 5, 600), kafka(5, i, i, 1, 5, 2200)]);
    }
    rig.merge_all();
    for i in 12..24 {
        rig.write(&[kafka(1, i, i * 10, 10, 5, 1900), opaque(2, i, i, 1, 5, 600)]);
    }
    rig.journal.seal();
    rig.write(&[kafka(3, 0, 0, 1, 5, 7000)]);
    rig.journal.seal();
    rig.checkpoint();
    rig.store.trim(PartitionId(4), Offset(4));
    rig.store.drop_partition(PartitionId(5));
    rig.store.trim(PartitionId(2), Offset(4));
    rig
}

/// Runs `work` on copies of a simulated system with a power cut at the first, second, ... operation, and checks the result.
fn cut_everywhere(config: StoreConfig, work: impl Fn(&Rig) -> crate::error::Result<()>) -> u32 {
    let mut cuts = 0;
    for seed in 0..3u64 {
        for nth in 1u64.. {
            let mut rig = busy(seed * 1000 + nth, config);
            let expected = contents(&rig);
            rig.world.disk.inject(Fault::nth(FaultOp::AnyChange, nth, FaultKind::PowerCut));
            let done = work(&rig);
            let cut = rig.world.disk.is_stopped();
            assert!(cut || done.is_ok(), "{done:?}");
            rig.world.disk.clear_faults();
            rig.world.crash();
            for life in 0..2 {
                rig.reopen(life == 1);
                rig.store.trim(PartitionId(4), Offset(4));
                rig.store.trim(PartitionId(2), Offset(4));
                rig.store.retain_partitions(|p| p != PartitionId(5));
                assert!(contents(&rig) == expected, "operation {nth}, life {life}");
                assert_eq!(check_segments(&rig.world.env(), &dir()).unwrap(), []);
                // All work can be completed afterwards.
                rig.merge_all();
                while rig.store.reclaim_step().unwrap().more {}
                assert!(contents(&rig) == expected, "operation {nth}, life {life}, merged");
            }
            if !cut {
                break;
            }
            cuts += 1;
        }
    }
    cuts
}

fn merge(rig: &Rig) -> crate::error::Result<()> {
    let upto = rig.journal.sealed_files().last().unwrap().indexes.unwrap().1;
    rig.try_merge(upto, &|p| (p.0 % 2) as u8).map(|_| ())
}

#[test]
fn a_merge_can_be_cut_anywhere() {
    assert!(cut_everywhere(small(), merge) > 30);
}

#[test]
fn an_adoption_can_be_cut_anywhere() {
    let config = StoreConfig { adopt_run_bytes_min: 1000, ..small() };
    let adopting = |rig: &Rig| {
        merge(rig)?;
        assert!(rig.store.stats().adopted_bytes > 10_000);
        Ok(())
    };
    assert!(cut_everywhere(config, adopting) > 30);
}

#[test]
fn reclaiming_can_be_cut_anywhere() {
    let reclaim = |rig: &Rig| {
        while rig.store.reclaim_step()?.more {}
        assert!(rig.store.stats().punched_bytes > 0);
        Ok(())
    };
    assert!(cut_everywhere(small(), reclaim) > 10);
}

#[test]
fn a_rewrite_can_be_cut_anywhere() {
    let solid =
        |disk: &SimDisk, env: Env| Env { disk: Arc::new(super::room::Solid(Arc::new(disk.of_this_life()))), ..env };
    let rewrite = |rig: &Rig| {
        let env = solid(&rig.world.disk, rig.world.env());
        let (store, _) = ShardStore::open(env, &dir(), rig.config)?;
        store.trim(PartitionId(4), Offset(4));
        store.retain_partitions(|p| p != PartitionId(5));
        let before = store.stats().segments;
        while store.reclaim_step()?.more {}
        assert!(before > 1 && store.stats().merged_bytes > 10_000);
        Ok(())
    };
    assert!(cut_everywhere(small(), rewrite) > 10);
}
