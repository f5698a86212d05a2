use super::*;
use crate::sink::testing::Recorder;
use crate::{Broker, BrokerConfig, ReplySink};
use polylogue_api::machine::{Slots, Split};
use polylogue_api::{Request, TopicInfo};
use polylogue_env::sim::SimWorld;
use polylogue_replicate::Work;
use polylogue_types::{ShardId, TimestampMs};
use std::sync::Arc;

/// A machine that counts its records, and the replies sent before it applied the last one. An empty command is read-only.
#[derive(Debug, Default)]
struct Counter(u64, Arc<Recorder>, Arc<AtomicUsize>);

/// Counters in the shard of the partitions.
#[derive(Debug)]
struct InSlots(Arc<Recorder>, Arc<AtomicUsize>);

impl Slots for InSlots {
    fn machine(&self) -> Box<dyn StateMachine> {
        Box::new(Counter(0, self.0.clone(), self.1.clone()))
    }
    fn split(&self, command: Command, _: usize, _: &dyn Fn(&[u8]) -> usize) -> Split {
        Split { parts: vec![(0, command)], join: Box::new(|mut replies| replies.pop().unwrap()) }
    }
}

impl StateMachine for Counter {
    fn handle(&mut self, _: &Context<'_>, caller: Caller, command: Command, effects: &mut Effects) {
        let record = *command.downcast::<Bytes>().unwrap();
        let reply: Box<dyn Any + Send> = Box::new(self.0);
        match record.is_empty() {
            true => effects.replies.push((caller, reply)),
            false => effects.proposals.push(polylogue_api::Proposal { record, replies: vec![(caller, reply)] }),
        }
    }
    fn reads(&self, command: &Command) -> bool {
        command.downcast_ref::<Bytes>().is_some_and(Bytes::is_empty)
    }
    fn on_gone(&mut self, _: &Context<'_>, _: Caller, _: &mut Effects) {}
    fn apply(&mut self, _: &[u8], _: TimestampMs) -> Result<(), String> {
        self.0 += 1;
        self.2.store(self.1.replies.lock().len(), Ordering::SeqCst);
        Ok(())
    }
    fn on_ready(&mut self, _: &Context<'_>) {}
    fn on_refused(&mut self, _: &Context<'_>, _: &[Bytes], _: &mut Effects) {}
    fn on_writer_lost(&mut self, _: &Context<'_>, _: &mut Effects) {}
    fn next_deadline_ms(&self) -> Option<u64> {
        None
    }
    fn on_deadline(&mut self, _: &Context<'_>, _: &mut Effects) {}
    fn on_topics_deleted(&mut self, _: &Context<'_>, _: &[Arc<TopicInfo>], _: &mut Effects) {}
    fn take_changed_chunks(&mut self) -> Vec<(Bytes, Option<Bytes>)> {
        Vec::new()
    }
    fn change_all_chunks(&mut self) {}
    fn load_chunk(&mut self, _: &[u8], _: Bytes) -> Result<(), String> {
        Ok(())
    }
    fn slots(&self) -> Option<Arc<dyn Slots>> {
        Some(Arc::new(InSlots(self.1.clone(), self.2.clone())))
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// More is acknowledged than the machines have applied: a read-only command waits for it, a changing one does not.
#[test]
fn a_command_that_looks_waits_for_what_was_acknowledged_before() {
    let world = SimWorld::new(1);
    let mut config = BrokerConfig::new("/data".into());
    config.disk_reserve_bytes = 0;
    let counter: Box<dyn StateMachine> = Box::<Counter>::default();
    let broker = Broker::open(world.env(), config, BTreeMap::from([(MachineId::AMQP, counter)])).unwrap();
    let recorder = Arc::new(Recorder::default());
    let sink: Arc<dyn ReplySink> = recorder.clone();
    let session = broker.new_session();
    let ask = |token, record: &'static [u8]| {
        let command: Command = Box::new(Bytes::from_static(record));
        broker.submit(&sink, session, token, Request::Machine(MachineId::AMQP, command));
    };
    let drive = || while broker.log_step(Work::Write) | broker.log_step(Work::Flush) {};
    let seen = || {
        let number = |reply| match reply {
            Reply::Machine(Ok(reply)) => *reply.downcast::<u64>().unwrap(),
            other => panic!("{other:?}"),
        };
        std::mem::take(&mut *recorder.replies.lock())
            .into_iter()
            .map(|(token, reply)| (token, number(reply)))
            .collect::<Vec<_>>()
    };
    ask(1, b"a");
    drive();
    ask(2, b"");
    assert_eq!(seen(), [(1, 0), (2, 1)], "all is applied: it looks at once");
    let shard = broker.inner.shard(ShardId(1)).unwrap();
    shard.machines.applied.fetch_sub(1, Ordering::SeqCst);
    ask(3, b"");
    ask(4, b"b");
    assert!(seen().is_empty(), "one waits for what is applied, the other for its record");
    drive();
    assert_eq!(seen(), [(4, 1), (3, 2)]);
}

/// Replies to appends waited until the machines had applied the records committed with them.
#[test]
fn what_no_machine_decides_is_answered_before_the_machines_apply() {
    let world = SimWorld::new(1);
    let mut config = BrokerConfig::new("/data".into());
    config.disk_reserve_bytes = 0;
    let (recorder, replies) = (Arc::new(Recorder::default()), Arc::new(AtomicUsize::new(0)));
    let counter: Box<dyn StateMachine> = Box::new(Counter(0, recorder.clone(), replies.clone()));
    let broker = Broker::open(world.env(), config, BTreeMap::from([(MachineId::AMQP, counter)])).unwrap();
    let sink: Arc<dyn ReplySink> = recorder;
    let session = broker.new_session();
    let drive = || while broker.log_step(Work::Write) | broker.log_step(Work::Flush) {};
    let topic =
        polylogue_api::NewTopic { name: "t".into(), partitions: 1, config: Default::default(), internal: false };
    let create = polylogue_api::CreateTopics { topics: vec![topic], validate_only: false };
    broker.submit(&sink, session, 1, Request::CreateTopics(create));
    drive();
    let partition = broker.catalog().topic("t").unwrap().partitions[0].id;
    let entry = polylogue_api::AppendEntry {
        partition,
        form: polylogue_record::envelope::Form::Record,
        flags: Default::default(),
        bytes: Bytes::from_static(b"x"),
        count: 1,
        max_timestamp: -1,
        body_crc: polylogue_record::crc::crc32c(b"x"),
        summed_from: 0,
        producer: None,
    };
    let append = polylogue_api::AppendRequest { entries: vec![entry], ack: polylogue_api::Ack::Committed };
    broker.submit(&sink, session, 2, Request::Machine(MachineId::AMQP, Box::new(Bytes::from_static(b"a"))));
    broker.submit(&sink, session, 3, Request::Append(append));
    drive();
    assert_eq!(replies.load(Ordering::SeqCst), 2, "the one to the topic, and the one to the append");
}
