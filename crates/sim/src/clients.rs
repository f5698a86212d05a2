//! The simulated clients: each repeats one kind of operation through its own connection, and reports to the oracle what it sent, which responses it
//! got and what it read.

use crate::connection::{Connection, Response};
use crate::oracle::{Oracle, Place};
use bytes::Bytes;
use polylogue_broker::Broker;
use polylogue_env::sim::SimRng;
use polylogue_kafka::settings::KafkaSettings;
use polylogue_kafka_codec::{ErrorCode, Records, fetch, init_producer_id, offset_commit, offset_fetch, produce};
use polylogue_record::compress::Codec;
use polylogue_record::kafka::{BatchBuilder, BatchIter, NewRecord, records};
use std::collections::VecDeque;

/// The largest decompressed batch. Bytes.
const CAP_BYTES: usize = 1 << 20;
/// In-flight batches of a producer, as of an idempotent Kafka producer.
const INFLIGHT_MAX: usize = 5;

/// A client's kind of operation.
#[derive(Debug)]
enum Role {
    Producer(Producer),
    Consumer { offset: i64, waiting: Option<i32> },
    Committer { group: String, next: i64, waiting: Option<(i32, i64)>, fetching: Option<i32> },
}

/// A producer of one partition.
#[derive(Debug)]
struct Producer {
    name: String,
    idempotent: bool,
    id: Option<i64>,
    asking_id: Option<i32>,
    /// Unacknowledged batches, oldest first: sequence, values, and the correlation id while in flight.
    open: VecDeque<(i32, Vec<String>, Option<i32>)>,
    next_sequence: i32,
    next_value: u64,
}

/// One client.
#[derive(Debug)]
pub struct Client {
    place: Place,
    role: Role,
    connection: Option<Connection>,
    /// Requests sent.
    pub operations: u64,
}

/// The world that a client uses in its turn.
#[derive(Debug)]
pub struct Turn<'a> {
    /// The node; none while it is down.
    pub broker: &'a Broker,
    /// The protocol's settings.
    pub settings: &'a KafkaSettings,
    /// The driver's random numbers.
    pub rng: &'a SimRng,
    /// The oracle.
    pub oracle: &'a mut Oracle,
}

impl Client {
    fn new(place: &Place, role: Role) -> Client {
        Client { place: place.clone(), role, connection: None, operations: 0 }
    }

    /// Returns a producer whose values start with `name`.
    #[must_use]
    pub fn producer(place: &Place, name: &str, idempotent: bool) -> Client {
        let producer = Producer {
            name: name.to_owned(),
            idempotent,
            id: None,
            asking_id: None,
            open: VecDeque::new(),
            next_sequence: 0,
            next_value: 0,
        };
        Client::new(place, Role::Producer(producer))
    }

    /// Returns a consumer that reads from the start, repeatedly.
    #[must_use]
    pub fn consumer(place: &Place) -> Client {
        Client::new(place, Role::Consumer { offset: 0, waiting: None })
    }

    /// Returns a client that commits growing offsets for a group, and fetches them.
    #[must_use]
    pub fn committer(place: &Place, group: &str) -> Client {
        Client::new(place, Role::Committer { group: group.to_owned(), next: 0, waiting: None, fetching: None })
    }

    /// Handles a crash of the node: pending requests have an unknown outcome.
    pub fn lost_connection(&mut self) {
        self.connection = None;
        match &mut self.role {
            Role::Producer(p) => {
                p.asking_id = None;
                p.open.iter_mut().for_each(|(_, _, waiting)| *waiting = None);
                if !p.idempotent {
                    // Without sequence numbers a retry could duplicate messages: the outcome stays unknown.
                    p.open.clear();
                }
            }
            Role::Consumer { waiting, .. } => *waiting = None,
            Role::Committer { waiting, fetching, .. } => (*waiting, *fetching) = (None, None),
        }
    }

    /// Takes a turn: handles responses, and possibly sends a request.
    ///
    /// # Errors
    /// A protocol error.
    pub fn turn(&mut self, turn: &mut Turn<'_>) -> Result<(), String> {
        let mut connection = self.connection.take().unwrap_or_else(|| Connection::new(turn.broker));
        match connection.pump(turn.broker, turn.settings) {
            Ok(responses) => {
                for response in responses {
                    self.on_response(response, turn)?;
                }
            }
            // The node may close a connection when it has a fault; the client reconnects.
            Err(_) => {
                connection.close(turn.broker);
                self.lost_connection();
                return Ok(());
            }
        }
        // Often more than one, so that several batches of a producer are committed and unacknowledged at a crash.
        while self.send_next(&mut connection, turn)? {
            self.operations += 1;
            if turn.rng.chance(500_000) {
                break;
            }
        }
        self.connection = Some(connection);
        Ok(())
    }

    fn send_next(&mut self, connection: &mut Connection, turn: &mut Turn<'_>) -> Result<bool, String> {
        let place = self.place.clone();
        match &mut self.role {
            Role::Producer(producer) => producer.send_next(&place, connection, turn),
            Role::Consumer { offset, waiting } => {
                if waiting.is_some() {
                    return Ok(false);
                }
                let request = fetch_request(&place, *offset, turn.rng);
                *waiting = Some(connection.send(12, &request)?);
                Ok(true)
            }
            Role::Committer { group, next, waiting, fetching } => {
                if waiting.is_some() || fetching.is_some() {
                    return Ok(false);
                }
                if turn.rng.chance(500_000) {
                    *next += 1 + turn.rng.below(10) as i64;
                    turn.oracle.commits(group, &place, *next);
                    *waiting = Some((connection.send(8, &commit_request(group, &place, *next))?, *next));
                } else {
                    *fetching = Some(connection.send(8, &fetch_commit_request(group, &place))?);
                }
                Ok(true)
            }
        }
    }

    fn on_response(&mut self, response: Response, turn: &mut Turn<'_>) -> Result<(), String> {
        let place = self.place.clone();
        match &mut self.role {
            Role::Producer(producer) => producer.on_response(&place, response, turn),
            Role::Consumer { offset, waiting } => {
                *waiting = None;
                on_fetched(&place, offset, response, turn)
            }
            Role::Committer { group, waiting, fetching, .. } => {
                if let Some((_, committed)) = waiting.take_if(|(c, _)| *c == response.correlation) {
                    let response: offset_commit::OffsetCommitResponse = response.decode()?;
                    let code = response.topics.first().and_then(|t| t.partitions.first()).map(|p| p.error_code);
                    if code == Some(0) {
                        turn.oracle.committed(group, &place, committed);
                    }
                } else if fetching.take_if(|c| *c == response.correlation).is_some() {
                    let response: offset_fetch::OffsetFetchResponse = response.decode()?;
                    let found = response.groups.first().filter(|g| g.error_code == 0);
                    let found = found.and_then(|g| g.topics.first()).and_then(|t| t.partitions.first());
                    if let Some(found) = found.filter(|p| p.error_code == 0) {
                        turn.oracle.fetched_commit(group, &place, found.committed_offset);
                    }
                }
                Ok(())
            }
        }
    }
}

impl Producer {
    fn send_next(&mut self, place: &Place, connection: &mut Connection, turn: &mut Turn<'_>) -> Result<bool, String> {
        if self.idempotent && self.id.is_none() {
            if self.asking_id.is_none() {
                // The message's default is an empty transactional id, which is refused.
                let request = init_producer_id::InitProducerIdRequest {
                    transactional_id: None,
                    transaction_timeout_ms: 1,
                    ..Default::default()
                };
                self.asking_id = Some(connection.send(4, &request)?);
                return Ok(true);
            }
            return Ok(false);
        }
        // Unacknowledged batches are sent first, in order, and none is overtaken.
        let id = self.id;
        if let Some((sequence, values, waiting)) = self.open.iter_mut().find(|(_, _, waiting)| waiting.is_none()) {
            *waiting = Some(connection.send(9, &produce_request(place, id, *sequence, values, turn.rng)?)?);
            return Ok(true);
        }
        if self.open.len() >= INFLIGHT_MAX || turn.rng.chance(300_000) {
            return Ok(false);
        }
        let values: Vec<_> = (0..1 + turn.rng.below(6))
            .map(|_| {
                self.next_value += 1;
                format!("{}-{}", self.name, self.next_value)
            })
            .collect();
        for value in &values {
            turn.oracle.sends(place, value, self.idempotent);
        }
        let request = produce_request(place, id, self.next_sequence, &values, turn.rng)?;
        let correlation = connection.send(9, &request)?;
        let count = values.len() as i32;
        self.open.push_back((self.next_sequence, values, Some(correlation)));
        self.next_sequence += count;
        Ok(true)
    }

    fn on_response(&mut self, place: &Place, response: Response, turn: &mut Turn<'_>) -> Result<(), String> {
        if self.asking_id.take_if(|c| *c == response.correlation).is_some() {
            let response: init_producer_id::InitProducerIdResponse = response.decode()?;
            if response.error_code == 0 {
                self.id = Some(response.producer_id);
            }
            return Ok(());
        }
        let correlation = response.correlation;
        let Some(at) = self.open.iter().position(|(_, _, waiting)| *waiting == Some(correlation)) else {
            return Err(format!("{}: an answer to nothing", self.name));
        };
        let response: produce::ProduceResponse = response.decode()?;
        let answer = response.responses.first().and_then(|t| t.partition_responses.first());
        let answer = answer.ok_or("a produce response without a partition")?;
        match code(answer.error_code) {
            ErrorCode::None => {
                let (_, values, _) = self.open.remove(at).unwrap_or_default();
                for (offset, value) in (answer.base_offset..).zip(&values) {
                    turn.oracle.acknowledged(place, offset, value);
                }
            }
            code if code.retriable() && self.idempotent => self.send_again(at),
            code if code.retriable() => {
                self.open.remove(at);
            }
            // An earlier batch failed and this one was refused because of it: it is sent again after that one.
            ErrorCode::OutOfOrderSequenceNumber if self.idempotent && at > 0 => {
                self.send_again(at);
            }
            code => {
                let text =
                    format!("{}: batch at sequence {:?} got {code:?}", self.name, self.open.get(at).map(|b| b.0));
                turn.oracle.violation(text);
                self.open.remove(at);
            }
        }
        Ok(())
    }

    fn send_again(&mut self, at: usize) {
        if let Some((_, _, waiting)) = self.open.get_mut(at) {
            *waiting = None;
        }
    }
}

fn produce_request(
    place: &Place,
    id: Option<i64>,
    sequence: i32,
    values: &[String],
    rng: &SimRng,
) -> Result<produce::ProduceRequest, String> {
    let codecs = [Codec::None, Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
    let codec = codecs.get(rng.below(codecs.len() as u64) as usize).copied().unwrap_or(Codec::None);
    let mut builder = BatchBuilder::new().compression(codec, None);
    if let Some(id) = id {
        builder = builder.producer(id, 0, sequence);
    }
    for value in values {
        let record = NewRecord { timestamp: 1_000, key: None, value: Some(value.as_bytes()), headers: &[] };
        builder.push(&record).map_err(|e| format!("{e:?}"))?;
    }
    let batch = builder.build().map_err(|e| format!("{e:?}"))?;
    let partition = produce::PartitionProduceData { index: place.1, records: Some(Records::from(batch)) };
    let topic = produce::TopicProduceData {
        name: place.0.as_str().into(),
        partition_data: vec![partition],
        ..Default::default()
    };
    Ok(produce::ProduceRequest { acks: -1, timeout_ms: 30_000, topic_data: vec![topic], ..Default::default() })
}

fn fetch_request(place: &Place, offset: i64, rng: &SimRng) -> fetch::FetchRequest {
    let partition = fetch::FetchPartition {
        partition: place.1,
        fetch_offset: offset,
        current_leader_epoch: -1,
        partition_max_bytes: 1 << (6 + rng.below(12)),
        ..Default::default()
    };
    let topic = fetch::FetchTopic { topic: place.0.as_str().into(), partitions: vec![partition], ..Default::default() };
    fetch::FetchRequest {
        replica_id: -1,
        max_wait_ms: rng.below(50) as i32,
        min_bytes: 1,
        max_bytes: 1 << 20,
        session_epoch: -1,
        topics: vec![topic],
        ..Default::default()
    }
}

fn on_fetched(place: &Place, next: &mut i64, response: Response, turn: &mut Turn<'_>) -> Result<(), String> {
    let response: fetch::FetchResponse = response.decode()?;
    let Some(partition) = response.responses.into_iter().flat_map(|t| t.partitions).next() else { return Ok(()) };
    match code(partition.error_code) {
        ErrorCode::None => turn.oracle.high_watermark(place, partition.high_watermark),
        // A power cut removed what this client had read.
        ErrorCode::OffsetOutOfRange if turn.oracle.may_end_before(place, *next) => *next = 0,
        ErrorCode::OffsetOutOfRange => {
            // Retention is off in these runs: only readers of deleted messages may get this.
            match turn.oracle.start_at_most(place) {
                start if *next < start => *next = start,
                _ => {
                    turn.oracle.violation(format!("{place:?}: offset {next} is out of range"));
                    *next = 0;
                }
            }
        }
        _ => return Ok(()),
    }
    let bytes = partition.records.and_then(Records::into_bytes).unwrap_or_default();
    for (offset, value) in values_of(bytes)? {
        if offset >= *next {
            if offset > *next && !turn.oracle.damaged {
                turn.oracle.violation(format!("{place:?}: from offset {next} the next message is at {offset}"));
            }
            turn.oracle.read(place, offset, &value);
            *next = offset + 1;
        }
    }
    // Occasionally from the start: old data must be unchanged.
    if turn.rng.chance(5_000) {
        *next = 0;
    }
    Ok(())
}

/// Returns the messages of fetched batches.
///
/// # Errors
/// An invalid batch.
pub fn values_of(bytes: Bytes) -> Result<Vec<(i64, String)>, String> {
    let mut values = Vec::new();
    for batch in BatchIter::new(bytes) {
        let batch = batch.map_err(|e| format!("a fetched batch is broken: {e:?}"))?;
        for record in records(&batch.bytes, CAP_BYTES).map_err(|e| format!("a fetched batch is broken: {e:?}"))? {
            let record = record.map_err(|e| format!("a fetched record is broken: {e:?}"))?;
            let value = record.value.unwrap_or_default();
            values.push((record.offset, String::from_utf8_lossy(&value).into_owned()));
        }
    }
    Ok(values)
}

/// Returns a request that commits one offset without a member id.
pub(crate) fn commit_request(group: &str, place: &Place, offset: i64) -> offset_commit::OffsetCommitRequest {
    let partition = offset_commit::OffsetCommitRequestPartition {
        partition_index: place.1,
        committed_offset: offset,
        committed_leader_epoch: -1,
        committed_metadata: Some("m".into()),
    };
    let topic = offset_commit::OffsetCommitRequestTopic {
        name: place.0.as_str().into(),
        partitions: vec![partition],
        ..Default::default()
    };
    offset_commit::OffsetCommitRequest {
        group_id: group.into(),
        generation_id_or_member_epoch: -1,
        topics: vec![topic],
        ..Default::default()
    }
}

/// Returns the committed offset of a group for one partition.
pub(crate) fn fetch_commit_request(group: &str, place: &Place) -> offset_fetch::OffsetFetchRequest {
    let topic = offset_fetch::OffsetFetchRequestTopics {
        name: place.0.as_str().into(),
        partition_indexes: vec![place.1],
        ..Default::default()
    };
    let group = offset_fetch::OffsetFetchRequestGroup {
        group_id: group.into(),
        topics: Some(vec![topic]),
        ..Default::default()
    };
    offset_fetch::OffsetFetchRequest { groups: vec![group], ..Default::default() }
}

fn code(code: i16) -> ErrorCode {
    ErrorCode::from_code(code).unwrap_or(ErrorCode::UnknownServerError)
}
