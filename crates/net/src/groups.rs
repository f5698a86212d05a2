//! The group coordinator, with queues visible as topics.

use bytes::Bytes;
use polylogue_amqp_gateway::{AmqpMachine, Directory, GuestRule, QueuesAsTopics};
use polylogue_amqp_model::Limits;
use polylogue_api::machine::{Command, Slots, Split};
use polylogue_api::{Caller, Catalog, Context, Effects, MachineId, StateMachine, TopicChange, TopicInfo};
use polylogue_kafka_groups::{GroupSettings, GroupUsage, KafkaGroups};
use polylogue_types::TimestampMs;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

/// State machines by id.
pub type Machines = BTreeMap<MachineId, Box<dyn StateMachine>>;

/// Returns the protocols' state machines in their initial state, and the directory of AMQP definitions that connections read.
#[must_use]
pub fn machines(groups: GroupSettings, guest: GuestRule) -> (Machines, Arc<Directory>, Arc<GroupUsage>) {
    let declared = AmqpMachine::new(Limits::default()).with_guest(guest);
    let directory = declared.directory();
    let groups = KafkaGroups::new(groups);
    let usage = groups.usage();
    let groups: Box<dyn StateMachine> = Box::new(SeesQueues::new(Box::new(groups), directory.clone()));
    let declared: Box<dyn StateMachine> = Box::new(declared);
    (BTreeMap::from([(MachineId::KAFKA_GROUPS, groups), (MachineId::AMQP, declared)]), directory, usage)
}

/// A state machine that sees queues as topics, as its clients do: it commits by the names that they know.
#[derive(Debug)]
pub struct SeesQueues {
    machine: Box<dyn StateMachine>,
    queues: Arc<Directory>,
}

impl SeesQueues {
    /// Wraps a machine, with the queues of a directory.
    #[must_use]
    pub fn new(machine: Box<dyn StateMachine>, queues: Arc<Directory>) -> SeesQueues {
        SeesQueues { machine, queues }
    }

    /// Calls the machine with a catalog that includes queues.
    fn seeing<R>(&mut self, context: &Context<'_>, act: impl FnOnce(&mut dyn StateMachine, &Context<'_>) -> R) -> R {
        let catalog = QueuesAsTopics::new(context.catalog, self.queues.clone());
        act(self.machine.as_mut(), &Context { catalog: &catalog, ..*context })
    }
}

impl StateMachine for SeesQueues {
    fn handle(&mut self, context: &Context<'_>, caller: Caller, command: Command, effects: &mut Effects) {
        self.seeing(context, |machine, context| machine.handle(context, caller, command, effects));
    }

    fn reads(&self, command: &Command) -> bool {
        self.machine.reads(command)
    }

    fn on_gone(&mut self, context: &Context<'_>, caller: Caller, effects: &mut Effects) {
        self.seeing(context, |machine, context| machine.on_gone(context, caller, effects));
    }

    fn apply(&mut self, record: &[u8], time_ms: TimestampMs) -> Result<(), String> {
        self.machine.apply(record, time_ms)
    }

    fn on_ready(&mut self, context: &Context<'_>) {
        self.seeing(context, |machine, context| machine.on_ready(context));
    }

    fn on_refused(&mut self, context: &Context<'_>, records: &[Bytes], effects: &mut Effects) {
        self.seeing(context, |machine, context| machine.on_refused(context, records, effects));
    }

    fn on_topics_refused(&mut self, context: &Context<'_>) {
        self.seeing(context, |machine, context| machine.on_topics_refused(context));
    }

    fn on_writer_lost(&mut self, context: &Context<'_>, effects: &mut Effects) {
        self.seeing(context, |machine, context| machine.on_writer_lost(context, effects));
    }

    fn next_deadline_ms(&self) -> Option<u64> {
        self.machine.next_deadline_ms()
    }

    fn on_deadline(&mut self, context: &Context<'_>, effects: &mut Effects) {
        self.seeing(context, |machine, context| machine.on_deadline(context, effects));
    }

    fn on_topics_deleted(&mut self, context: &Context<'_>, topics: &[Arc<TopicInfo>], effects: &mut Effects) {
        self.seeing(context, |machine, context| machine.on_topics_deleted(context, topics, effects));
    }

    fn take_dead_topics(&mut self) -> Vec<String> {
        self.machine.take_dead_topics()
    }

    fn due_replies(&mut self, committed: Vec<(Caller, Box<dyn Any + Send>)>) -> Vec<(Caller, Box<dyn Any + Send>)> {
        self.machine.due_replies(committed)
    }

    fn take_topic_changes(&mut self, catalog: &dyn Catalog) -> Vec<TopicChange> {
        self.machine.take_topic_changes(catalog)
    }

    fn take_changed_chunks(&mut self) -> Vec<(Bytes, Option<Bytes>)> {
        self.machine.take_changed_chunks()
    }

    fn change_all_chunks(&mut self) {
        self.machine.change_all_chunks();
    }

    fn load_chunk(&mut self, id: &[u8], chunk: Bytes) -> Result<(), String> {
        self.machine.load_chunk(id, chunk)
    }

    fn slots(&self) -> Option<Arc<dyn Slots>> {
        Some(Arc::new(SlotsSeeQueues { slots: self.machine.slots()?, queues: self.queues.clone() }))
    }

    fn as_any(&self) -> &dyn Any {
        self.machine.as_any()
    }
}

/// Makes machines to which queues are topics.
#[derive(Debug)]
struct SlotsSeeQueues {
    slots: Arc<dyn Slots>,
    queues: Arc<Directory>,
}

impl Slots for SlotsSeeQueues {
    fn machine(&self) -> Box<dyn StateMachine> {
        Box::new(SeesQueues::new(self.slots.machine(), self.queues.clone()))
    }

    fn split(&self, command: Command, places: usize, place: &dyn Fn(&[u8]) -> usize) -> Split {
        self.slots.split(command, places, place)
    }
}

/// The coordinator's gauges.
#[derive(Debug)]
pub struct GroupCensus(pub Arc<GroupUsage>);

impl Collector for GroupCensus {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let bytes = ConstGauge::new(i64::try_from(self.0.memory_bytes()).unwrap_or(i64::MAX));
        let help = "What groups of Kafka's clients and their offsets hold in memory, as an estimate";
        bytes.encode(encoder.encode_descriptor("group_memory_bytes", help, None, MetricType::Gauge)?)?;
        let refused = ConstCounter::new(self.0.refused());
        let help = "Commits and joins that were refused because the groups of their user hold all that they may";
        refused.encode(encoder.encode_descriptor("groups_refused", help, None, MetricType::Counter)?)
    }
}
