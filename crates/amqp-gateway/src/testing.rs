//! The metadata machine without a broker: proposals are committed immediately, and each queue has its topic.

use crate::directory::{Directory, queue_of, topic_of};
use crate::machine::{AmqpMachine, AmqpRequest};
use bytes::Bytes;
use polylogue_amqp_model::{Caller as ModelCaller, Command, DeclareQueue, Limits, arguments_of_json};
use polylogue_api::{
    Caller, Catalog, ClusterInfo, Context, Effects, NoQueues, Now, PartitionInfo, Settings, SettingsScope,
    StateMachine, TopicConfig, TopicInfo,
};
use polylogue_record::kafka::{BatchBuilder, NewRecord, Record, records};
use polylogue_router::{QueueId, VhostId};
use polylogue_types::{NodeId, PartitionId, TopicId};
use std::sync::Arc;

/// Each queue's topic exists; the id of its one partition is 1,000 more than the queue's.
#[derive(Debug)]
pub(crate) struct Topics;

impl Catalog for Topics {
    fn topic(&self, name: &str) -> Option<Arc<TopicInfo>> {
        let queue = queue_of(name)?;
        let partition = PartitionInfo { id: partition(queue), leader_epoch: 0 };
        Some(Arc::new(TopicInfo {
            name: name.into(),
            id: TopicId([0; 16]),
            internal: true,
            partitions: vec![partition],
            config: Arc::new(TopicConfig::default()),
        }))
    }
    fn topic_by_id(&self, _: TopicId) -> Option<Arc<TopicInfo>> {
        None
    }
    fn topics(&self) -> Vec<Arc<TopicInfo>> {
        Vec::new()
    }
    fn cluster(&self) -> ClusterInfo {
        ClusterInfo { cluster_id: "c".into(), node: NodeId(1) }
    }
    fn settings(&self, _: &SettingsScope) -> Arc<Settings> {
        Arc::default()
    }
    fn settings_scopes(&self) -> Vec<SettingsScope> {
        Vec::new()
    }
    fn version(&self) -> u64 {
        0
    }
}

/// Each queue has a topic with this configuration, or none has one yet.
#[derive(Debug)]
pub(crate) struct OtherTopics(pub(crate) Option<TopicConfig>);

impl Catalog for OtherTopics {
    fn topic(&self, name: &str) -> Option<Arc<TopicInfo>> {
        let (topic, config) = (Topics.topic(name)?, self.0.clone()?);
        Some(Arc::new(TopicInfo { config: Arc::new(config), ..TopicInfo::clone(&topic) }))
    }
    fn topic_by_id(&self, id: TopicId) -> Option<Arc<TopicInfo>> {
        Topics.topic_by_id(id)
    }
    fn topics(&self) -> Vec<Arc<TopicInfo>> {
        Topics.topics()
    }
    fn cluster(&self) -> ClusterInfo {
        Topics.cluster()
    }
    fn settings(&self, scope: &SettingsScope) -> Arc<Settings> {
        Topics.settings(scope)
    }
    fn settings_scopes(&self) -> Vec<SettingsScope> {
        Topics.settings_scopes()
    }
    fn version(&self) -> u64 {
        0
    }
}

fn partition(queue: QueueId) -> PartitionId {
    PartitionId(1_000 + queue.0)
}

/// A machine that is its own log.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) machine: AmqpMachine,
    pub(crate) directory: Arc<Directory>,
    pub(crate) vhost: VhostId,
}

impl World {
    pub(crate) fn new() -> World {
        let mut machine = AmqpMachine::new(Limits::default());
        machine.on_ready(&context());
        let directory = machine.directory();
        let mut effects = Effects::default();
        machine.on_deadline(&context(), &mut effects);
        let mut world = World { machine, directory, vhost: VhostId(0) };
        world.commit(effects);
        world.vhost = world.machine.model().metadata().vhosts().next().expect("the first one").id;
        world
    }

    pub(crate) fn commit(&mut self, effects: Effects) {
        for proposal in effects.proposals {
            self.machine.apply(&proposal.record, 0).expect("it can be read");
        }
    }

    /// Visits the queues that policies match, up to one batch of their topics.
    pub(crate) fn visit_queues(&mut self) {
        for _ in 0..3 {
            if self.machine.next_deadline_ms() == Some(0) {
                self.machine.on_deadline(&context(), &mut Effects::default());
            }
        }
    }

    /// Commits the command's effects, and computes the effects on queues.
    pub(crate) fn act(&mut self, command: Command) {
        self.act_as(ModelCaller::broker(), command);
        self.visit_queues();
    }

    pub(crate) fn act_as(&mut self, who: ModelCaller, command: Command) {
        let mut effects = Effects::default();
        let ask = AmqpRequest::Do(who, Box::new(command));
        self.machine.handle(&context(), Caller(1), Box::new(ask), &mut effects);
        assert!(effects.replies.is_empty(), "refused: {:?}", effects.replies);
        self.commit(effects);
    }

    /// Declares a durable queue.
    pub(crate) fn queue(&mut self, name: &str, arguments: serde_json::Value) -> PartitionId {
        let serde_json::Value::Object(arguments) = arguments else { panic!("no arguments") };
        let declare = DeclareQueue {
            vhost: self.vhost,
            name: name.into(),
            durable: true,
            arguments: arguments_of_json(&arguments).expect("arguments"),
            ..DeclareQueue::default()
        };
        self.act(Command::DeclareQueue(declare));
        let id = self.directory.router().load().queue(self.vhost, name.as_bytes()).expect("declared");
        assert_eq!(queue_of(&topic_of(id)), Some(id));
        partition(id)
    }
}

pub(crate) fn context() -> Context<'static> {
    Context { now: Now::default(), catalog: &Topics, queues: &NoQueues, random: 7 }
}

/// A body in one piece.
pub(crate) fn body(text: &str) -> [Bytes; 1] {
    [Bytes::copy_from_slice(text.as_bytes())]
}

/// A record as it is read from a batch of its own.
pub(crate) fn one_record(record: &NewRecord<'_>) -> Record {
    let mut batch = BatchBuilder::new();
    batch.push(record).expect("a record");
    let batch = batch.build().expect("a batch");
    records(&batch, 1 << 20).expect("records").next().expect("one").expect("whole")
}
