//! Quotas: throttling of clients (KIP-219), and describing and setting quotas (KIP-546).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use allocation_counter::measure;
use polylogue_api::{MachineId, Reply, Request as Ask};
use polylogue_auth::{
    AlterQuotas, QuotaEntity, QuotaKind, QuotaLimits, QuotaName, UsersCommand, UsersRefusal, UsersReply,
};
use polylogue_kafka_codec::alter_client_quotas::{AlterClientQuotasRequest, EntityData, OpData, RequestEntryData};
use polylogue_kafka_codec::describe_client_quotas::{ComponentData, DescribeClientQuotasRequest};
use polylogue_kafka_codec::fetch::{FetchRequest, FetchResponse};
use polylogue_kafka_codec::metadata::MetadataRequest;
use polylogue_kafka_codec::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use polylogue_kafka_codec::{ErrorCode, Records};
use polylogue_types::TopicId;
use session_host::broker::Broker;
use session_host::users::Users;
use session_host::{Host, batch, requests, text};
use std::sync::Arc;

fn named(name: &str) -> Option<QuotaName> {
    Some(QuotaName::Named(name.to_owned()))
}

fn of_client(name: &str) -> QuotaEntity {
    QuotaEntity { user: None, client_id: named(name) }
}

fn limits(kind: QuotaKind, value: f64) -> QuotaLimits {
    let mut limits = QuotaLimits::default();
    limits.set(kind, Some(value));
    limits
}

/// A connection of the tests' client, with a quota.
fn under(entity: &QuotaEntity, kind: QuotaKind, value: f64) -> (Host, Arc<Users>) {
    let users = Arc::new(Users::default());
    users.quotas.set(entity, limits(kind, value));
    let mut host = Host::new();
    host.users = users.clone();
    (host, users)
}

/// A batch for `a`-0, slightly larger than `bytes`.
fn produce(bytes: usize) -> ProduceRequest {
    ProduceRequest {
        transactional_id: None,
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name: text("a"),
            topic_id: TopicId::ZERO,
            partition_data: vec![PartitionProduceData {
                index: 0,
                records: Some(Records::from(batch(&[&vec![7; bytes]]))),
            }],
        }],
    }
}

fn serve_produce(host: &mut Host, broker: &mut Broker, bytes: usize) -> i32 {
    host.send(9, &produce(bytes));
    broker.serve(host);
    let response = host.response::<ProduceRequest>(9);
    assert_eq!(response.responses[0].partition_responses[0].error_code, 0);
    response.throttle_time_ms
}

#[test]
fn a_producer_is_answered_at_once_and_then_not_read_for_a_while() {
    let (mut host, users) = under(&of_client("test-client"), QuotaKind::Produce, 10_000.0);
    let mut broker = Broker::default();
    assert_eq!((serve_produce(&mut host, &mut broker, 9_000), host.wants_input()), (0, true));
    let throttle_ms = serve_produce(&mut host, &mut broker, 9_000);
    assert!((800..1_000).contains(&throttle_ms), "{throttle_ms}");
    assert!(!host.wants_input());
    let wait_ms = u64::try_from(throttle_ms).unwrap();
    assert_eq!((host.deadline_in(), users.quotas.throttled(QuotaKind::Produce)), (Some(wait_ms), 1));
    // Requests sent meanwhile are processed when the mute ends.
    host.send(9, &produce(10));
    assert_eq!(host.asked().len(), 0);
    host.pass(wait_ms - 1);
    assert!(!host.wants_input());
    host.pass(1);
    assert!(host.wants_input());
    host.pump();
    broker.serve(&mut host);
    assert_eq!(host.response::<ProduceRequest>(9).responses[0].partition_responses[0].error_code, 0);
}

/// A muted client is not idle, however long it is muted.
#[test]
fn a_client_that_waits_for_its_quota_is_not_idle() {
    let (mut host, _) = under(&of_client("test-client"), QuotaKind::Produce, 100.0);
    host.settings.idle_ms_max = 60_000;
    let throttle_ms = serve_produce(&mut host, &mut Broker::default(), 10_000);
    assert!(throttle_ms > 60_000, "{throttle_ms}");
    host.pass(u64::try_from(throttle_ms).unwrap());
    assert_eq!(host.close_reason(), None);
    assert_eq!(host.deadline_in(), Some(60_000));
}

/// Connections of the same client share its quota and its throttling.
#[test]
fn connections_of_one_client_share_its_quota() {
    let (mut first, users) = under(&of_client("test-client"), QuotaKind::Produce, 10_000.0);
    assert!(serve_produce(&mut first, &mut Broker::default(), 20_000) > 1_000);
    let mut second = Host::new();
    second.users = users.clone();
    assert!(serve_produce(&mut second, &mut Broker::default(), 10) > 1_000);
    // A client with another quota is not affected.
    users.quotas.set(&of_client("test-client"), QuotaLimits::default());
    users.quotas.set(&of_client("other"), limits(QuotaKind::Produce, 1.0));
    let mut third = Host::new();
    third.users = users;
    assert_eq!(serve_produce(&mut third, &mut Broker::default(), 20_000), 0);
}

/// A client without a login is Kafka's user ANONYMOUS.
#[test]
fn quotas_of_users_are_those_of_who_logged_in() {
    let of = |user: &str| QuotaEntity { user: named(user), client_id: None };
    let (mut host, users) = under(&of("ANONYMOUS"), QuotaKind::Produce, 10.0);
    assert!(serve_produce(&mut host, &mut Broker::default(), 100) > 0);
    // A removed quota no longer applies, though the throttle time sent before is waited for.
    users.quotas.set(&of("ANONYMOUS"), QuotaLimits::default());
    host.pass(300_000);
    assert_eq!(serve_produce(&mut host, &mut Broker::default(), 10_000), 0);
    users.quotas.set(&of("user"), limits(QuotaKind::Produce, 10.0));
    assert_eq!(serve_produce(&mut host, &mut Broker::default(), 10_000), 0);
}

fn fetch(host: &mut Host, broker: &mut Broker, request: &FetchRequest) -> FetchResponse {
    host.send(12, request);
    broker.serve(host);
    host.response::<FetchRequest>(12)
}

fn bytes_of(response: &FetchResponse) -> usize {
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    partitions.map(|row| row.records.as_ref().map_or(0, Records::len)).sum()
}

#[test]
fn a_consumer_gets_its_messages_and_then_nothing_until_they_are_repaid() {
    let (mut host, users) = under(&of_client("test-client"), QuotaKind::Fetch, 1_000.0);
    let mut broker = Broker::default();
    for _ in 0..2 {
        serve_produce(&mut host, &mut broker, 3_000);
    }
    let request = FetchRequest { session_epoch: -1, ..requests::fetch(12) };
    let first = fetch(&mut host, &mut broker, &request);
    // One batch, even if it exceeds the fetch limit: otherwise it could never be fetched.
    let bytes = bytes_of(&first);
    assert!((3_000..4_000).contains(&bytes), "{bytes}");
    assert_eq!(first.throttle_time_ms, i32::try_from(bytes).unwrap() - 1_000);
    assert!(!host.wants_input());
    // Another connection of the client while the quota is used up.
    let mut other = Host::new();
    other.users = users.clone();
    let empty = fetch(&mut other, &mut broker, &request);
    assert_eq!((empty.throttle_time_ms, empty.responses.len(), empty.error_code), (first.throttle_time_ms, 0, 0));
    assert_eq!((other.wants_input(), users.quotas.throttled(QuotaKind::Fetch)), (false, 2));
    let wait_ms = u64::try_from(first.throttle_time_ms).unwrap();
    host.pass(wait_ms);
    assert!(bytes_of(&fetch(&mut host, &mut broker, &request)) > 3_000);
}

/// `FetchSession.getThrottledResponse`: the session continues, and the next fetch gets the messages.
#[test]
fn a_fetch_session_outlives_being_throttled() {
    let (mut host, users) = under(&of_client("test-client"), QuotaKind::Fetch, 1_000.0);
    let mut broker = Broker::default();
    serve_produce(&mut host, &mut broker, 10);
    serve_produce(&mut host, &mut broker, 10);
    let begin = FetchRequest { session_epoch: 0, ..requests::fetch(12) };
    let begun = fetch(&mut host, &mut broker, &begin);
    assert_ne!(begun.session_id, 0);
    serve_produce(&mut host, &mut broker, 10);
    let bucket = users.quotas.of("ANONYMOUS", "test-client", host.now.monotonic_ms);
    bucket.bucket(QuotaKind::Fetch).unwrap().take(5_000, host.now.monotonic_ms);
    let go_on = |epoch| FetchRequest {
        session_id: begun.session_id,
        session_epoch: epoch,
        topics: Vec::new(),
        ..requests::fetch(12)
    };
    let empty = fetch(&mut host, &mut broker, &go_on(1));
    assert_eq!((empty.session_id, empty.responses.len(), empty.error_code), (begun.session_id, 0, 0));
    assert!(empty.throttle_time_ms > 0);
    host.pass(u64::try_from(empty.throttle_time_ms).unwrap());
    assert!(bytes_of(&fetch(&mut host, &mut broker, &go_on(2))) > 0);
    // Without a session none is created.
    bucket.bucket(QuotaKind::Fetch).unwrap().take(5_000, host.now.monotonic_ms);
    host.pass(1);
    let mut other = Host::new();
    other.users = users;
    let empty = fetch(&mut other, &mut broker, &begin);
    assert_eq!((empty.session_id, empty.responses.len()), (0, 0));
}

/// Polling is free while there are no messages.
#[test]
fn a_consumer_without_messages_is_not_throttled() {
    let (mut host, _) = under(&of_client("test-client"), QuotaKind::Fetch, 1.0);
    let request = FetchRequest { session_epoch: -1, max_wait_ms: 0, ..requests::fetch(12) };
    for _ in 0..3 {
        let empty = fetch(&mut host, &mut Broker::default(), &request);
        assert_eq!((empty.throttle_time_ms, host.wants_input()), (0, true));
    }
}

#[test]
fn time_of_threads_is_counted_from_the_first_request_on() {
    let (mut host, users) = under(&of_client("test-client"), QuotaKind::Requests, 10.0);
    assert!(!host.session.counts_time());
    host.ask(9, &MetadataRequest::default());
    assert!(host.session.counts_time());
    // A tenth of a second per second: the excess is throttled, for a second at most.
    for (ns, waits_ms) in [(100_000_000, 0), (50_000_000, 500), (1_000_000_000, 1_000)] {
        host.charge_time(ns);
        assert_eq!(
            (host.wants_input(), host.deadline_in().unwrap().min(1_001)),
            (
                waits_ms == 0,
                match waits_ms {
                    0 => 1_001,
                    ms => ms,
                }
            )
        );
        host.pass(waits_ms);
    }
    assert_eq!(users.quotas.throttled(QuotaKind::Requests), 2);
}

/// Regression test: the cached client id kept the request's frame in memory, a megabyte for each connection.
#[test]
fn what_is_remembered_of_a_client_is_not_its_request() {
    let (mut host, _) = under(&of_client("test-client"), QuotaKind::Produce, 1e9);
    let held = measure(|| {
        serve_produce(&mut host, &mut Broker::default(), 200_000);
        (host.input, host.output) = Default::default();
    });
    assert!(held.bytes_max > 200_000 && held.bytes_current < 20_000, "{held:?}");
}

fn entity(parts: &[(&str, Option<&str>)]) -> Vec<EntityData> {
    let part =
        |(kind, name): &(&str, Option<&str>)| EntityData { entity_type: text(kind), entity_name: name.map(text) };
    parts.iter().map(part).collect()
}

fn op(key: &str, value: Option<f64>) -> OpData {
    OpData { key: text(key), value: value.unwrap_or_default(), remove: value.is_none() }
}

fn alter(entries: Vec<(Vec<EntityData>, Vec<OpData>)>) -> AlterClientQuotasRequest {
    let entries = entries.into_iter().map(|(entity, ops)| RequestEntryData { entity, ops }).collect();
    AlterClientQuotasRequest { entries, validate_only: false }
}

#[test]
fn quotas_are_set_each_entity_by_itself() {
    let mut host = Host::new();
    let ann = || entity(&[("user", Some("ann"))]);
    let entries = vec![
        (ann(), vec![op("producer_byte_rate", Some(1_024.0)), op("consumer_byte_rate", None)]),
        (entity(&[("user", None), ("client-id", Some("app"))]), vec![op("request_percentage", Some(12.5))]),
        (entity(&[]), vec![]),
        (entity(&[("ip", Some("192.0.2.1"))]), vec![op("connection_creation_rate", Some(1.0))]),
        (entity(&[("group", Some("g"))]), vec![]),
        (entity(&[("user", Some(""))]), vec![]),
        (ann(), vec![op("rate", Some(1.0))]),
        (ann(), vec![op("controller_mutation_rate", Some(1.0))]),
        (ann(), vec![op("producer_byte_rate", Some(0.0))]),
        (ann(), vec![op("producer_byte_rate", Some(1.0)), op("producer_byte_rate", None)]),
        (entity(&[("client-id", None)]), vec![op("consumer_byte_rate", Some(7.0))]),
    ];
    host.send(1, &alter(entries));
    let (token, Ask::Machine(MachineId::AMQP, command)) = host.asked_one() else { panic!("another request") };
    let UsersCommand::AlterQuotas(parts) = *command.downcast::<UsersCommand>().unwrap() else {
        panic!("another command")
    };
    let expected = [
        AlterQuotas {
            entity: QuotaEntity { user: named("ann"), client_id: None },
            changes: vec![(QuotaKind::Produce, Some(1_024.0)), (QuotaKind::Fetch, None)],
        },
        AlterQuotas {
            entity: QuotaEntity { user: Some(QuotaName::Others), client_id: named("app") },
            changes: vec![(QuotaKind::Requests, Some(12.5))],
        },
        AlterQuotas {
            entity: QuotaEntity { user: None, client_id: Some(QuotaName::Others) },
            changes: vec![(QuotaKind::Fetch, Some(7.0))],
        },
    ];
    assert_eq!(parts, expected);
    let results = vec![Ok(()), Ok(()), Err(UsersRefusal::Refused("too many".to_owned()))];
    host.reply(token, Reply::Machine(Ok(Box::new(UsersReply::Each(results)))));
    let reported = host.response::<AlterClientQuotasRequest>(1);
    let reported: Vec<_> = reported
        .entries
        .iter()
        .map(|row| (ErrorCode::from_code(row.error_code).unwrap(), row.error_message.as_deref().unwrap_or_default()))
        .collect();
    let invalid = |text| (ErrorCode::InvalidRequest, text);
    let expected = [
        (ErrorCode::None, ""),
        (ErrorCode::None, ""),
        invalid("Invalid empty client quota entity"),
        invalid("Quotas of addresses (ip) are not kept by this broker; nothing was changed."),
        invalid("Unhandled client quota entity type: group"),
        invalid("Empty user not supported"),
        invalid("Invalid configuration key rate"),
        invalid("Quotas of controller_mutation_rate are not kept by this broker; nothing was changed."),
        invalid("Quota producer_byte_rate must be greater than 0"),
        invalid("Duplicate quota key producer_byte_rate; nothing was changed."),
        (ErrorCode::PolicyViolation, "too many"),
    ];
    assert_eq!(reported, expected);
    let only_looked_at = AlterClientQuotasRequest { validate_only: true, ..requests::alter_client_quotas(1) };
    assert_eq!(host.ask(1, &only_looked_at).entries[0].error_code, 0);
    assert!(host.asked().is_empty());
}

fn component(kind: &str, match_type: i8, name: Option<&str>) -> ComponentData {
    ComponentData { entity_type: text(kind), match_type, r#match: name.map(text) }
}

/// The cases of `ClientQuotaControlManager` and `ClientQuotasImageTest`.
#[test]
fn quotas_are_described_as_they_are_asked_for() {
    let (mut host, users) = under(&of_client("app"), QuotaKind::Produce, 1.0);
    let of = |user: Option<QuotaName>, client_id: Option<QuotaName>| QuotaEntity { user, client_id };
    users.quotas.set(&of(named("ann"), None), limits(QuotaKind::Produce, 2.0));
    users.quotas.set(&of(named("ann"), named("app")), limits(QuotaKind::Produce, 3.0));
    users.quotas.set(&of(Some(QuotaName::Others), None), limits(QuotaKind::Produce, 4.0));
    let mut found = |components: Vec<ComponentData>, strict| {
        let reported = host.ask(1, &DescribeClientQuotasRequest { components, strict });
        assert_eq!((reported.error_code, &reported.error_message), (0, &None));
        let mut values: Vec<_> = reported.entries.unwrap().iter().map(|entry| entry.values[0].value).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    assert_eq!(found(vec![], false), [1.0, 2.0, 3.0, 4.0]);
    assert!(found(vec![], true).is_empty());
    assert_eq!(found(vec![component("user", 0, Some("ann"))], false), [2.0, 3.0]);
    assert_eq!(found(vec![component("user", 0, Some("ann"))], true), [2.0]);
    assert_eq!(found(vec![component("user", 1, None)], false), [4.0]);
    assert_eq!(found(vec![component("user", 2, None)], false), [2.0, 3.0, 4.0]);
    assert_eq!(found(vec![component("client-id", 2, None)], true), [1.0]);
    assert_eq!(found(vec![component("user", 2, None), component("client-id", 0, Some("app"))], true), [3.0]);
    assert!(found(vec![component("ip", 2, None)], false).is_empty());
    let reported =
        host.ask(1, &DescribeClientQuotasRequest { components: vec![component("user", 1, None)], strict: true });
    let entry = &reported.entries.unwrap()[0];
    assert_eq!((&*entry.entity[0].entity_type, &entry.entity[0].entity_name), ("user", &None));
    assert_eq!((entry.entity.len(), &*entry.values[0].key), (1, "producer_byte_rate"));
}

#[test]
fn filters_that_make_no_sense_are_refused_in_kafkas_words() {
    let mut host = Host::new();
    for (components, error, text) in [
        (vec![component("", 0, Some("a"))], ErrorCode::InvalidRequest, "Invalid empty entity type."),
        (vec![component("x", 0, Some("a"))], ErrorCode::UnsupportedVersion, "Unsupported entity type x"),
        (
            vec![component("user", 2, None), component("user", 1, None)],
            ErrorCode::InvalidRequest,
            "Entity type user cannot appear more than once in the filter.",
        ),
        (
            vec![component("user", 0, None)],
            ErrorCode::InvalidRequest,
            "Request specified MATCH_TYPE_EXACT, but set match string to null.",
        ),
        (
            vec![component("user", 1, Some("a"))],
            ErrorCode::InvalidRequest,
            "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
        ),
        (vec![component("user", 3, None)], ErrorCode::InvalidRequest, "Unknown match type 3"),
        (
            vec![component("ip", 2, None), component("user", 2, None)],
            ErrorCode::InvalidRequest,
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId \
             filter component.",
        ),
    ] {
        let reported = host.ask(0, &DescribeClientQuotasRequest { components, strict: false });
        assert_eq!((reported.error_code, reported.error_message.as_deref()), (error.code(), Some(text)));
        assert_eq!(reported.entries, None);
    }
}
