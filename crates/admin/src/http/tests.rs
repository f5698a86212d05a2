//! Tests of the http listener over a real socket, with a scripted broker.

use super::metrics::registry;
use super::{App, Door, Entrance, HttpLimits, Login, Ready, serve};
use crate::api::{ErrorBody, Group, GroupReset, Groups, Options, Status, Topic, Topics};
use bytes::Bytes;
use polylogue_amqp_gateway::AmqpMachine;
use polylogue_amqp_model::Limits;
use polylogue_api::{
    CreatedTopic, DeletedTopic, FindOffset, FoundOffset, OffsetSpec, PartitionInfo, Reply, Request, TopicConfig,
    TopicError, TopicInfo, TopicRef,
};
use polylogue_auth::NoUsers;
use polylogue_config::Resolved;
use polylogue_kafka::config::LiveSettings;
use polylogue_kafka::settings::KafkaSettings;
use polylogue_kafka_codec::consumer_protocol_assignment::{ConsumerProtocolAssignment, TopicPartition};
use polylogue_kafka_codec::{ErrorCode, Message, StrBytes, Writer};
use polylogue_kafka_groups::command::{
    CommitTopic, DescribedConsumerGroup, DescribedGroup, DescribedMember, FetchedGroup, FetchedOffset, FetchedTopic,
    GroupCommand, GroupKind, GroupReply, GroupState, ListedGroup, TopicResults,
};
use polylogue_net::handle::{BrokerStatus, Figure, Health};
use polylogue_net::kafka::KafkaShared;
use polylogue_net::memory::Memory;
use polylogue_net::testing::{FakeBroker, FakeCatalog};
use polylogue_net::{AnswerGauge, Connections, Lanes, NetMetrics, OutputGauge, Shared, Workers};
use polylogue_types::{Offset, PartitionId, TopicId};
use serde::de::DeserializeOwned;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// A server with two listeners on its own thread, and a client.
struct Server {
    at: SocketAddr,
    also_at: SocketAddr,
    entrance: Arc<Entrance>,
    app: Arc<App>,
    agent: ureq::Agent,
    stop: watch::Sender<bool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

fn topic(name: &str, partitions: u64, config: TopicConfig) -> Arc<TopicInfo> {
    Arc::new(TopicInfo {
        name: name.into(),
        id: TopicId::from_random([7; 16]),
        internal: false,
        partitions: (1..=partitions).map(|id| PartitionInfo { id: PartitionId(id), leader_epoch: 3 }).collect(),
        config: Arc::new(config),
    })
}

/// Creates and deletes topics in the fake catalog; knows one group.
fn answer(topics: &FakeCatalog, request: &Request) -> Option<Reply> {
    match request {
        Request::CreateTopics(wanted) => {
            let create = |new: &polylogue_api::NewTopic| {
                let created = topic(&new.name, u64::from(new.partitions), new.config.clone());
                if topics.0.lock().iter().any(|t| t.name == created.name) {
                    return Err(TopicError::Exists);
                }
                if !wanted.validate_only {
                    topics.0.lock().push(created.clone());
                }
                Ok(CreatedTopic { topic: created })
            };
            Some(Reply::CreateTopics(wanted.topics.iter().map(create).collect()))
        }
        Request::DeleteTopics(wanted) => {
            let delete = |named: &TopicRef| {
                let mut topics = topics.0.lock();
                let is_it = |t: &Arc<TopicInfo>| match named {
                    TopicRef::Name(name) => *t.name == **name,
                    TopicRef::Id(id) => t.id == *id,
                };
                let at = topics.iter().position(is_it).ok_or(TopicError::UnknownName)?;
                let gone = topics.remove(at);
                Ok(DeletedTopic { name: gone.name.clone(), id: gone.id })
            };
            Some(Reply::DeleteTopics(wanted.topics.iter().map(delete).collect()))
        }
        Request::FindOffsets(wanted) => {
            let found = |question: &FindOffset| {
                let offset = match question.at {
                    OffsetSpec::Earliest => Some(Offset(10)),
                    OffsetSpec::Latest => Some(Offset(50)),
                    OffsetSpec::AtTimestamp(_) | OffsetSpec::MaxTimestamp => None,
                };
                Ok(FoundOffset { offset, log_start: Offset(10), leader_epoch: 3, entry: None })
            };
            Some(Reply::FindOffsets(wanted.iter().map(found).collect()))
        }
        Request::Machine(_, command) => {
            let reply = group_answer(command.downcast_ref::<GroupCommand>()?)?;
            Some(Reply::Machine(Ok(Box::new(reply))))
        }
        _ => None,
    }
}

fn group_answer(command: &GroupCommand) -> Option<GroupReply> {
    match command {
        GroupCommand::List(_) => Some(GroupReply::List(Ok(vec![ListedGroup {
            group_id: "readers".into(),
            protocol_type: "consumer".into(),
            state: GroupState::Stable,
            kind: GroupKind::Classic,
        }]))),
        GroupCommand::Describe(wanted) => Some(GroupReply::Describe(vec![described(&wanted.groups[0])])),
        GroupCommand::DescribeConsumers(wanted) => {
            let none =
                |group: &StrBytes| DescribedConsumerGroup::refused(group.clone(), ErrorCode::GroupIdNotFound, None);
            Some(GroupReply::DescribeConsumers(wanted.groups.iter().map(none).collect()))
        }
        GroupCommand::Delete(wanted) => {
            let result = |group: &StrBytes| match &**group {
                "readers" => ErrorCode::NonEmptyGroup,
                "idle" => ErrorCode::None,
                _ => ErrorCode::GroupIdNotFound,
            };
            Some(GroupReply::Delete(wanted.groups.iter().map(|group| (group.clone(), result(group))).collect()))
        }
        // A member joined `contested` after its state was read.
        GroupCommand::CommitOffsets(wanted) => {
            let error = match &*wanted.group_id {
                "contested" => ErrorCode::UnknownMemberId,
                _ => ErrorCode::None,
            };
            let topic = |topic: &CommitTopic| TopicResults {
                name: "".into(),
                id: topic.topic.parts().1,
                partitions: topic.partitions.iter().map(|p| (p.index, error)).collect(),
            };
            Some(GroupReply::CommitOffsets(wanted.topics.iter().map(topic).collect()))
        }
        GroupCommand::FetchOffsets(_) => Some(GroupReply::FetchOffsets(vec![FetchedGroup {
            group_id: "readers".into(),
            error: ErrorCode::None,
            topics: vec![FetchedTopic {
                name: "t".into(),
                id: TopicId::ZERO,
                partitions: vec![FetchedOffset {
                    index: 0,
                    offset: 41,
                    leader_epoch: -1,
                    metadata: "note".into(),
                    error: ErrorCode::None,
                }],
            }],
        }])),
        _ => None,
    }
}

fn described(group: &str) -> DescribedGroup {
    let mut writer = Writer::new();
    let partitions = TopicPartition { topic: "t".into(), partitions: vec![0, 2] };
    writer.i16(1);
    ConsumerProtocolAssignment { assigned_partitions: vec![partitions], user_data: None }
        .encode(&mut writer, 1)
        .unwrap();
    let chunks = writer.into_chunks();
    let assignment: Vec<u8> = chunks.iter().flat_map(|chunk| chunk.to_bytes().unwrap()).collect();
    let known = group == "readers";
    let member = DescribedMember {
        member_id: "m-1".into(),
        instance_id: None,
        client_id: "app".into(),
        client_host: "/127.0.0.1".into(),
        metadata: Bytes::new(),
        assignment: Bytes::from(assignment),
    };
    DescribedGroup {
        error: if known { ErrorCode::None } else { ErrorCode::GroupIdNotFound },
        error_message: None,
        group_id: group.into(),
        state: if known { GroupState::Stable } else { GroupState::Dead },
        protocol_type: "consumer".into(),
        protocol_name: "range".into(),
        members: if known { vec![member] } else { Vec::new() },
    }
}

impl Server {
    fn start() -> Server {
        let server = Server::starting(8, 8);
        server.entrance.open(server.app.clone());
        server
    }

    /// A server whose broker has not started.
    fn starting(connections_max: usize, connections_per_ip_max: usize) -> Server {
        let (bodies_per_ip_max, body_ms_max) = (8, 60_000);
        Server::limited(HttpLimits {
            connections_max,
            connections_per_ip_max,
            body_bytes_max: 4096,
            bodies_per_ip_max,
            body_ms_max,
        })
    }

    /// The same, with these limits.
    #[allow(clippy::disallowed_methods, reason = "a test's own thread")]
    fn limited(limits: HttpLimits) -> Server {
        let broker = FakeBroker::with_topics(answer);
        *broker.status.lock() = BrokerStatus {
            health: Health::default(),
            disk_free_bytes: None,
            figures: vec![Figure {
                name: "journal_flushes".into(),
                help: "Flushes".into(),
                is_counter: true,
                value: 12,
            }],
            stages: Vec::new(),
        };
        let mut registry = registry();
        let net = Shared {
            broker: broker.clone(),
            lanes: Lanes::new(1 << 20, 8),
            output: OutputGauge::new(1 << 20),
            answers: AnswerGauge::new(1 << 20),
            write_stall_ms_max: 1_000,
            memory: Memory::default(),
            workers: Workers::start(&polylogue_env::Env::real(), 1).unwrap(),
            metrics: NetMetrics::register(&mut registry, &["kafka"]),
            connections: Connections::default(),
        };
        let audit = Arc::new(polylogue_net::audit::Audit::new(broker.clone(), &mut registry));
        let live = Arc::new(LiveSettings::new(KafkaSettings::default()));
        let app = Arc::new(App {
            kafka: Arc::new(KafkaShared::new(live, broker.clone(), AmqpMachine::new(Limits::default()).directory())),
            broker,
            directory: AmqpMachine::new(Limits::default()).directory(),
            net: Arc::new(net),
            settings: Resolved::default().settings(),
            listeners: Vec::new(),
            registry,
            ready: Ready::default(),
            users: Arc::new(NoUsers),
            rng: polylogue_env::Env::real().rng,
            reports: None,
            audit,
            tokens: parking_lot::Mutex::default(),
            rabbitmq: super::RabbitmqSetup::default(),
        });
        let (stop, stopped) = watch::channel(false);
        let (tell, reported) = mpsc::channel();
        let entrance = Arc::new(Entrance::new(limits, app.net.metrics.clone()));
        let served = entrance.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let one = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let two = TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send((one.local_addr().unwrap(), two.local_addr().unwrap())).unwrap();
                let door = Door::new(Login::Remote, std::net::Ipv4Addr::LOCALHOST.into(), &[]);
                tokio::join!(
                    serve(one, door.clone(), None, served.clone(), stopped.clone()),
                    serve(two, door, None, served, stopped)
                );
            });
        });
        let (at, also_at) = reported.recv().unwrap();
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        Server { at, also_at, entrance, app, agent, stop, thread: Some(thread) }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at)
    }

    fn get_text(&self, path: &str) -> (u16, String) {
        let mut response = self.agent.get(self.url(path)).call().unwrap();
        (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
    }

    /// A client that sends only the head of a request; returns once the server waits for the body.
    fn slow_body(&self) -> std::net::TcpStream {
        let mut slow = std::net::TcpStream::connect(self.at).unwrap();
        slow.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let head = "POST /api/v1/topics HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\
                    Expect: 100-continue\r\n\r\n";
        slow.write_all(head.as_bytes()).unwrap();
        let mut go_on = [0; 25];
        slow.read_exact(&mut go_on).unwrap();
        assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
        slow
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> T {
        let (status, text) = self.get_text(path);
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    fn post(&self, path: &str, body: &str) -> (u16, String) {
        let request = self.agent.post(self.url(path)).header("content-type", "application/json");
        let mut response = request.send(body).unwrap();
        (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
    }

    fn delete(&self, path: &str) -> (u16, String) {
        let mut response = self.agent.delete(self.url(path)).call().unwrap();
        (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

fn error((status, text): (u16, String)) -> (u16, String, String) {
    let body: ErrorBody = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{status} {text}: {e}"));
    (status, body.error.code, body.error.message)
}

fn failure(status: u16, code: &str, message: &str) -> (u16, String, String) {
    (status, code.to_owned(), message.to_owned())
}

#[test]
fn health_is_not_readiness() {
    let server = Server::start();
    assert_eq!(server.get_text("/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(server.get_text("/readyz"), (503, "not ready\n".to_owned()));
    server.app.ready.set(true);
    assert_eq!(server.get_text("/readyz"), (200, "ready\n".to_owned()));
}

#[test]
fn a_backup_that_cannot_be_is_told_apart() {
    let server = Server::start();
    let refused = failure(409, "backup_running", "there is nothing to back up");
    assert_eq!(error(server.post("/api/v1/backup", "")), refused);
    let (status, code, _) = error(server.get_text("/api/v1/backup"));
    assert_eq!((status, code.as_str()), (405, "invalid_request"), "to look is not to begin one");
}

#[test]
fn topics_are_created_listed_described_and_deleted() {
    let server = Server::start();
    let body = r#"{"name":"t","partitions":3,"config":{"retention.ms":"1000","segment.bytes":"2097152"}}"#;
    let (status, text) = server.post("/api/v1/topics", body);
    assert_eq!(status, 201, "{text}");
    let created: Topic = serde_json::from_str(&text).unwrap();
    assert_eq!((created.name.as_str(), created.partitions.len()), ("t", 3));
    let described: Topic = server.get("/api/v1/topics/t");
    assert_eq!(described, created);
    let entry = |name: &str| described.config.iter().find(|e| e.name == name).cloned().unwrap();
    let retention = entry("retention.ms");
    assert_eq!((retention.value.as_str(), retention.source.as_str(), retention.has_effect), ("1000", "topic", true));
    assert!(!entry("segment.bytes").has_effect);
    assert_eq!(entry("max.message.bytes").source, "default");
    let listed: Topics = server.get("/api/v1/topics");
    assert_eq!(listed.topics.len(), 1);
    assert_eq!((listed.topics[0].partitions, listed.topics[0].durability.as_str()), (3, "sync"));
    assert_eq!(server.delete("/api/v1/topics/t"), (204, String::new()));
    assert_eq!(server.get::<Topics>("/api/v1/topics").topics.len(), 0);
}

#[test]
fn a_topic_without_a_number_gets_the_default_and_a_trial_creates_nothing() {
    let server = Server::start();
    let (status, _) = server.post("/api/v1/topics", r#"{"name":"trial","validate_only":true}"#);
    assert_eq!(status, 200);
    assert_eq!(server.get::<Topics>("/api/v1/topics").topics.len(), 0);
    let (status, text) = server.post("/api/v1/topics", r#"{"name":"plain"}"#);
    assert_eq!(status, 201, "{text}");
    assert_eq!(server.get::<Topic>("/api/v1/topics/plain").partitions.len(), 1);
}

#[test]
fn what_cannot_be_done_is_told_with_a_code() {
    let server = Server::start();
    server.post("/api/v1/topics", r#"{"name":"t"}"#);
    let post = |body: &str| error(server.post("/api/v1/topics", body));
    let taken = post(r#"{"name":"t"}"#);
    assert_eq!((taken.0, taken.1.as_str()), (409, "topic_exists"));
    for (body, part) in [
        (r#"{"name":"a b"}"#, "'a b' contains one or more characters other than"),
        (r#"{"name":"x","partitions":0}"#, "partitions"),
        (r#"{"name":"x","config":{"nope":"1"}}"#, "Unknown topic config name: nope"),
        (r#"{"name":"x","config":{"retention.ms":"long"}}"#, "Not a number of type LONG"),
        (r#"{"name":"x","color":"red"}"#, "unknown field `color`"),
        (r#"{"name":"#, "EOF while parsing"),
    ] {
        let (status, code, message) = post(body);
        assert_eq!((status, code.as_str()), (400, "invalid_request"), "{body}: {message}");
        assert!(message.contains(part), "{body}: {message}");
    }
    let large = format!(r#"{{"name":"{}"}}"#, "x".repeat(5_000));
    assert_eq!(post(&large), failure(413, "too_large", "the body is larger than server.http_body_bytes_max"));
    let get = |path: &str| error(server.get_text(path));
    assert_eq!(get("/api/v1/topics/none"), failure(404, "unknown_topic", "there is no topic none"));
    assert_eq!(get("/api/v1/groups/none"), failure(404, "unknown_group", "there is no group none"));
    assert_eq!(get("/api/v1/nothing"), failure(404, "not_found", "there is nothing at /api/v1/nothing"));
    assert_eq!(
        error(server.delete("/api/v1/topics")),
        failure(405, "invalid_request", "/api/v1/topics does not take this method")
    );
    let (status, code, _) = error(server.delete("/api/v1/topics/none"));
    assert_eq!((status, code.as_str()), (404, "unknown_topic"));
}

#[test]
fn groups_are_listed_and_described_with_their_members_and_lag() {
    let server = Server::start();
    let listed: Groups = server.get("/api/v1/groups");
    assert_eq!(listed.groups[0].group, "readers");
    assert_eq!(listed.groups[0].state, "Stable");
    let group: Group = server.get("/api/v1/groups/readers");
    assert_eq!((group.protocol.as_str(), group.members.len()), ("range", 1));
    assert_eq!(group.members[0].assignment[0].partitions, [0, 2]);
    assert_eq!((group.offsets[0].offset, group.offsets[0].metadata.as_str()), (41, "note"));
    assert_eq!(group.offsets[0].lag, None, "the topic was deleted");
}

#[test]
fn groups_without_members_are_deleted() {
    let server = Server::start();
    assert_eq!(server.delete("/api/v1/groups/idle"), (204, String::new()));
    let delete = |path: &str| error(server.delete(path));
    assert_eq!(delete("/api/v1/groups/none"), failure(404, "unknown_group", "there is no group none"));
    let text = "Group 'readers' could not be deleted: The group is not empty. Stop its members first.";
    assert_eq!(delete("/api/v1/groups/readers"), failure(409, "group_not_empty", text));
}

#[test]
fn offsets_are_reset_within_their_partitions() {
    let server = Server::start();
    server.post("/api/v1/topics", r#"{"name":"t","partitions":2}"#);
    let reset = |to: &str| {
        let body = format!(r#"{{"topics":[{{"topic":"t","partitions":[0]}}],"to":{to}}}"#);
        let (status, text) = server.post("/api/v1/groups/new/reset", &body);
        assert_eq!(status, 200, "{text}");
        let answer: GroupReset = serde_json::from_str(&text).unwrap();
        assert_eq!((answer.group.as_str(), answer.executed), ("new", true));
        assert_eq!((answer.offsets[0].before, answer.offsets.len()), (Some(41), 1));
        (answer.offsets[0].offset, answer.offsets[0].note.is_some())
    };
    for (to, offset, noted) in [
        (r#""earliest""#, 10, false),
        (r#""latest""#, 50, false),
        (r#"{"offset":50}"#, 50, false),
        (r#"{"offset":9}"#, 10, true),
        (r#"{"shift_by":-1}"#, 40, false),
        (r#"{"shift_by":9223372036854775807}"#, 50, true),
        (r#"{"time_ms":1700000000000}"#, 50, true),
    ] {
        assert_eq!(reset(to), (offset, noted), "{to}");
    }
    let (status, text) =
        server.post("/api/v1/groups/new/reset", r#"{"topics":[{"topic":"t"}],"to":"latest","validate_only":true}"#);
    let answer: GroupReset = serde_json::from_str(&text).unwrap();
    assert_eq!((status, answer.executed, answer.offsets.len()), (200, false, 2));
}

#[test]
fn a_reset_that_cannot_be_is_refused() {
    let server = Server::start();
    server.post("/api/v1/topics", r#"{"name":"t","partitions":2}"#);
    let post = |group: &str, body: &str| error(server.post(&format!("/api/v1/groups/{group}/reset"), body));
    let text = "Assignments can only be reset if the group 'readers' is inactive, but the current state is Stable.";
    let latest = r#"{"topics":[{"topic":"t"}],"to":"latest"}"#;
    assert_eq!(post("readers", latest), failure(409, "group_not_empty", text));
    // The coordinator checks the group's state again.
    let (status, code, _) = post("contested", latest);
    assert_eq!((status, code.as_str()), (409, "group_not_empty"));
    assert_eq!(
        post("new", r#"{"topics":[{"topic":"none"}],"to":"latest"}"#),
        failure(404, "unknown_topic", "there is no topic none")
    );
    for (body, part) in [
        (r#"{"topics":[],"to":"latest"}"#, "topics is empty"),
        (r#"{"topics":[{"topic":"t","partitions":[]}],"to":"latest"}"#, "an empty list"),
        (r#"{"topics":[{"topic":"t","partitions":[0,2]}],"to":"latest"}"#, "topic t has no partition 2: it has 2"),
        (r#"{"topics":[{"topic":"t","partitions":[-1]}],"to":"latest"}"#, "topic t has no partition -1"),
        (r#"{"topics":[{"topic":"t"}],"to":{"time_ms":-1}}"#, "time_ms is -1"),
        (r#"{"topics":[{"topic":"t"}],"to":"somewhere"}"#, "unknown variant"),
        (r#"{"topics":[{"topic":"t"}]}"#, "missing field `to`"),
        (
            r#"{"topics":[{"topic":"t","partitions":[1]}],"to":{"shift_by":1}}"#,
            "Cannot shift offset for partition t-1 since there is no current committed offset",
        ),
    ] {
        let (status, code, message) = post("new", body);
        assert_eq!((status, code.as_str()), (400, "invalid_request"), "{body}: {message}");
        assert!(message.contains(part), "{body}: {message}");
    }
}

#[test]
fn status_options_and_metrics_are_there() {
    let server = Server::start();
    server.post("/api/v1/topics", r#"{"name":"t","partitions":5}"#);
    let status: Status = server.get("/api/v1/status");
    assert_eq!((status.topics, status.partitions, status.cluster_id.as_str()), (1, 5, "test-cluster"));
    assert_eq!(status.figures["journal_flushes"], 12);
    let options: Options = server.get("/api/v1/config");
    let data = options.options.iter().find(|o| o.name == "server.data").unwrap();
    assert_eq!((data.variable.as_str(), data.source.as_str()), ("POLYLOGUE_DATA", "the defaults"));
    let (code, text) = server.get_text("/metrics");
    assert_eq!(code, 200);
    for line in [
        "polylogue_connections_open{protocol=\"kafka\"} 0",
        "polylogue_partitions 5",
        "polylogue_journal_flushes_total 12",
        "polylogue_ready 0",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1);
}

/// Silent clients take places up to the limit, and free them on timeout.
#[test]
fn connections_are_bounded() {
    let server = Server::starting(1, 8);
    // At the other listener: both share one limit.
    let silent = std::net::TcpStream::connect(server.also_at).unwrap();
    let impatient = ureq::Agent::config_builder().timeout_global(Some(Duration::from_millis(300))).build().new_agent();
    assert!(impatient.get(server.url("/metrics")).call().is_err(), "there is one place, and it is taken");
    drop(silent);
    assert_eq!(server.get_text("/metrics").0, 200);
}

/// Regression test: slow bodies took all places for half a minute, and a liveness probe failed.
#[test]
fn health_is_told_while_slow_bodies_take_all_places() {
    let server = Server::starting(2, 8);
    server.entrance.open(server.app.clone());
    let slow = [server.slow_body(), server.slow_body()];
    for _ in 0..20 {
        assert_eq!(server.get_text("/healthz"), (200, "ok\n".to_owned()));
        assert_eq!(server.get_text("/readyz").0, 503);
    }
    drop(slow);
    assert_eq!(server.get_text("/metrics").0, 200, "places come back");
}

#[test]
fn bodies_on_their_way_are_bounded_by_address() {
    let (connections_max, bodies_per_ip_max) = (64, 2);
    let limits = HttpLimits {
        connections_max,
        connections_per_ip_max: 64,
        body_bytes_max: 4096,
        bodies_per_ip_max,
        body_ms_max: 60_000,
    };
    let server = Server::limited(limits);
    server.entrance.open(server.app.clone());
    let slow = [server.slow_body(), server.slow_body()];
    let (status, code, message) = error(server.post("/api/v1/topics", "{}"));
    assert_eq!((status, code.as_str()), (503, "unavailable"), "{message}");
    assert_eq!(server.get_text("/metrics").0, 200, "a request without a body needs no place for one");
    drop(slow);
    let mut answers = std::iter::repeat_with(|| server.post("/api/v1/topics", "{}").0);
    assert!(answers.any(|status| status != 503));
    let (_, text) = server.get_text("/metrics");
    assert!(text.contains("polylogue_connections_refused_total{protocol=\"http\",cause=\"bodies_full\"} "), "{text}");
}

/// Regression test: a body that never arrives held its place for half a minute.
#[test]
fn a_body_that_does_not_come_is_not_waited_for() {
    let (connections_max, bodies_per_ip_max) = (8, 8);
    let limits = HttpLimits {
        connections_max,
        connections_per_ip_max: 8,
        body_bytes_max: 4096,
        bodies_per_ip_max,
        body_ms_max: 100,
    };
    let server = Server::limited(limits);
    server.entrance.open(server.app.clone());
    let mut slow = server.slow_body();
    slow.write_all(b"{").unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("http_body_ms_max"), "{answer}");
}

/// Regression test: a client that waited for the place of a silent connection waited for half a minute.
#[test]
fn a_connection_that_says_nothing_gives_its_place_back_soon() {
    let server = Server::starting(1, 8);
    let mut silent = std::net::TcpStream::connect(server.at).unwrap();
    silent.write_all(b"GET /healthz HT").unwrap();
    let patient = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(15))).build().new_agent();
    assert!(patient.get(server.url("/metrics")).call().is_ok(), "it waits, and is served");
    silent.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(silent.read(&mut [0; 10]).unwrap(), 0);
    server.entrance.open(server.app.clone());
    let (_, text) = server.get_text("/metrics");
    let line = "polylogue_connections_closed_total{protocol=\"http\",cause=\"silent\"} 1";
    assert!(text.lines().any(|l| l == line), "{text}");
}

/// Regression test: one client could take all places.
#[test]
fn one_address_does_not_take_all_places() {
    let server = Server::starting(8, 1);
    let mut first = std::net::TcpStream::connect(server.at).unwrap();
    // Wait until it has its place: which of two listeners accepts first is not determined.
    first.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    assert!(first.read(&mut [0; 10]).unwrap() > 0);
    let mut second = std::net::TcpStream::connect(server.also_at).unwrap();
    second.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // Regression: it was closed without a response, which looks like a server that is down.
    second.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    second.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("http_connections_per_ip_max"), "{answer}");
    drop(first);
    server.entrance.open(server.app.clone());
    // Until the server has noticed that the first client disconnected.
    let mut answers = std::iter::repeat_with(|| server.agent.get(server.url("/metrics")).call()).filter_map(Result::ok);
    let mut response = answers.find(|response| response.status() == 200);
    let text = response.as_mut().unwrap().body_mut().read_to_string().unwrap();
    let line = "polylogue_connections_refused_total{protocol=\"http\",cause=\"address_full\"} ";
    assert!(text.lines().any(|l| l.starts_with(line)), "{text}");
}

/// Regression test: while the broker recovered, no request was answered.
#[test]
fn without_a_broker_it_lives_and_is_not_ready() {
    let server = Server::starting(8, 8);
    assert_eq!(server.get_text("/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(server.get_text("/readyz"), (503, "not ready\n".to_owned()));
    // Regression: `up` was 1 and `ready` missing, so that an alert reported a process that had ended.
    let (status, metrics) = server.get_text("/metrics");
    assert!(status == 200 && metrics.contains("\npolylogue_ready 0\n"), "{metrics}");
    for path in ["/metrics/objects", "/api/v1/status", "/nothing"] {
        let (status, code, message) = error(server.get_text(path));
        assert_eq!((status, code.as_str()), (503, "unavailable"), "{path}: {message}");
    }
    server.entrance.open(server.app.clone());
    server.app.ready.set(true);
    assert_eq!(server.get_text("/readyz").0, 200);
    assert_eq!(server.get_text("/api/v1/status").0, 200);
}
