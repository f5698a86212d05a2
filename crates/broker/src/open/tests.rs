//! What a start asks the provider of a shard's log.
#![allow(clippy::panic, reason = "a test fails by panicking")]

use super::*;
use polylogue_log::Result;
use polylogue_log::journal::{Proposal, Refused};
use polylogue_replicate::{LogView, ReadLevel, Work};

/// A provider that is only asked whether it decides alone.
#[derive(Debug)]
struct Provider {
    decides_alone: bool,
}

impl ShardLog for Provider {
    fn view(&self) -> LogView {
        panic!()
    }

    fn acquire(&self) -> Result<Term> {
        panic!()
    }

    fn try_propose(&self, _: Proposal) -> std::result::Result<(), Refused> {
        panic!()
    }

    fn barrier(&self, _: ReadLevel) -> Result<Option<Index>> {
        panic!()
    }

    fn read(&self, _: Index, _: usize) -> Result<Vec<Arc<Frame>>> {
        panic!()
    }

    fn trim(&self, _: Index) -> Result<()> {
        panic!()
    }

    fn seal(&self, _: Term) -> Result<Option<Index>> {
        panic!()
    }

    fn decides_alone(&self) -> bool {
        self.decides_alone
    }

    fn step(&self, _: Work) -> bool {
        panic!()
    }

    fn run(&self) -> Result<()> {
        panic!()
    }

    fn shutdown(&self) {
        panic!()
    }
}

/// What a node hands out ahead of its commit may be replaced where others have a say.
#[test]
fn messages_are_delivered_early_only_where_the_provider_decides_alone() {
    for (early_deliveries, decides_alone) in [(false, false), (false, true), (true, false), (true, true)] {
        let config = BrokerConfig { early_deliveries, ..BrokerConfig::new("/data".into()) };
        assert_eq!(delivers_early(&config, &Provider { decides_alone }), early_deliveries && decides_alone);
    }
}
