//! Cost of a change of a cluster setting on the committing thread, by the number of topics; one in ten topics has its own setting.
//!
//! ```text
//! cargo run --release -p polylogue-sim --example cluster_setting [TOPICS]
//! ```
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]
#![allow(clippy::disallowed_methods, reason = "it measures")]

use polylogue_api::*;
use polylogue_broker::{Broker, BrokerConfig, ReplySink, SessionId};
use polylogue_env::sim::SimWorld;
use polylogue_kafka::config::{LiveSettings, parse_topic_config};
use polylogue_kafka::settings::KafkaSettings;
use polylogue_replicate::Work;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

const TOPICS: u32 = 100_000;

#[derive(Debug)]
struct Silent;

impl ReplySink for Silent {
    fn reply(&self, _: Token, _: Reply) {}

    fn event(&self, _: Event) {}
}

fn ask(broker: &Broker, session: SessionId, request: Request) {
    let sink: Arc<dyn ReplySink> = Arc::new(Silent);
    broker.submit(&sink, session, 1, request);
    while broker.log_step(Work::Write) | broker.log_step(Work::Flush) {}
}

fn main() {
    let count = std::env::args().nth(1).map_or(TOPICS, |count| count.parse().unwrap());
    let world = SimWorld::new(1);
    let live = Arc::new(LiveSettings::new(KafkaSettings::default()));
    let mut config = BrokerConfig::new("/data".into());
    (config.disk_reserve_bytes, config.resolver) = (0, live.clone());
    let broker = Broker::open(world.env(), config, BTreeMap::new()).unwrap();
    let session = broker.new_session();
    let own =
        parse_topic_config(&TopicConfig::default(), &[("retention.bytes".into(), "1000000".into())].into()).unwrap();
    for first in (0..count).step_by(100) {
        let new = |at: u32| {
            let config = if at.is_multiple_of(10) { own.clone() } else { TopicConfig::default() };
            NewTopic { name: format!("t{at}"), partitions: 1, config, internal: false }
        };
        let topics = (first..count.min(first + 100)).map(new).collect();
        ask(&broker, session, Request::CreateTopics(CreateTopics { topics, validate_only: false }));
    }
    let set = |pairs: &[(&str, &str)]| pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let change = SettingsChange {
        scope: SettingsScope::Cluster,
        expected: set(&[]),
        settings: set(&[("log.retention.ms", "123456789")]),
    };
    let before = Instant::now();
    ask(&broker, session, Request::AlterSettings(AlterSettings { changes: vec![change], validate_only: false }));
    println!("{count} topics: the change {:?}", before.elapsed());
    let before = Instant::now();
    let topics = broker.catalog().topics();
    println!("all topics looked up after it {:?}", before.elapsed());
    assert!(topics.iter().all(|topic| topic.config.retention_ms == Some(123_456_789)));
    world.clock.advance_ms(2_000);
    let before = Instant::now();
    broker.tick();
    println!("the next look of retention {:?}", before.elapsed());
    world.clock.advance_ms(2_000);
    let before = Instant::now();
    broker.tick();
    println!("the one after it {:?}", before.elapsed());
}
