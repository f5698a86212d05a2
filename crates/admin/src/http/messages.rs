//! `/api/v1/topics/NAME/messages`: reads messages, writes one, deletes all.
//!
//! RabbitMQ queues are read under their topic names, as Kafka clients read them; reading changes nothing in the queue.

use super::App;
use super::ask;
use super::error::Failure;
use crate::api::messages::{
    Content, MessageHeader, MessagesQuery, NewMessage, PartitionRange, TopicMessage, TopicMessages, Written,
};
use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use polylogue_api::TopicInfo;
use polylogue_kafka_codec::ErrorCode;
use polylogue_kafka_codec::delete_records::{DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic};
use polylogue_kafka_codec::fetch::{FetchPartition, FetchRequest, FetchTopic, PartitionData};
use polylogue_kafka_codec::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use polylogue_kafka_codec::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use polylogue_record::kafka::{BatchBuilder, BatchIter, NewRecord, Record, partition_of_key, records};
use polylogue_types::limits;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The versions of Kafka's requests that are sent: the newest that name topics.
const LIST_OFFSETS_VERSION: i16 = 7;
const FETCH_VERSION: i16 = 12;
const PRODUCE_VERSION: i16 = 9;
const DELETE_RECORDS_VERSION: i16 = 2;
/// Kafka's names for the ends of a partition.
const END: i64 = -1;
const BEGINNING: i64 = -2;
/// The timeout of a change. Milliseconds.
const CHANGE_MS_MAX: i32 = 10_000;
/// The default and maximum number of messages of one request.
const MESSAGES: u32 = 50;
const MESSAGES_MAX: u32 = 500;
/// The maximum number of partitions of one request.
const PARTITIONS_MAX: usize = 256;
/// Fetch limits, of all partitions and of one. Bytes.
const READ_BYTES_MAX: i32 = 8 << 20;
const PARTITION_BYTES_MAX: i32 = 1 << 20;
/// Length at which a key, a value or a header is truncated unless `whole` is set. Bytes.
const SHOWN_BYTES_MAX: usize = 16 << 10;
/// No more messages are added to a response that has reached this size. Bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;

fn topic(app: &App, name: &str) -> Result<Arc<TopicInfo>, Failure> {
    app.kafka.catalog().topic(name).ok_or_else(|| Failure::unknown_topic(name))
}

fn number(index: usize) -> i32 {
    i32::try_from(index).unwrap_or(i32::MAX)
}

/// Checks that the partition exists.
fn is_there(topic: &TopicInfo, partition: i32) -> Result<(), Failure> {
    let count = topic.partitions.len();
    if usize::try_from(partition).is_ok_and(|index| index < count) {
        return Ok(());
    }
    Err(Failure::invalid(format!("topic {} has no partition {partition}: it has {count}", topic.name)))
}

/// Returns one end of each of these partitions.
async fn ends(app: &App, name: &str, partitions: &[i32], end: i64) -> Result<BTreeMap<i32, i64>, Failure> {
    let wanted = |partition: &i32| ListOffsetsPartition {
        partition_index: *partition,
        timestamp: end,
        ..ListOffsetsPartition::default()
    };
    let topic = ListOffsetsTopic { name: name.into(), partitions: partitions.iter().map(wanted).collect() };
    let request = ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..ListOffsetsRequest::default() };
    let response = ask::kafka(app, LIST_OFFSETS_VERSION, &request).await?;
    let mut ends = BTreeMap::new();
    for found in response.topics.iter().flat_map(|topic| &topic.partitions) {
        match Failure::of_kafka(found.error_code, None) {
            Some(failure) => return Err(failure),
            None => ends.insert(found.partition_index, found.offset),
        };
    }
    Ok(ends)
}

async fn ranges(app: &App, name: &str, partitions: &[i32]) -> Result<Vec<PartitionRange>, Failure> {
    let starts = ends(app, name, partitions, BEGINNING).await?;
    let ends = ends(app, name, partitions, END).await?;
    let range = |(partition, end): (&i32, &i64)| PartitionRange {
        partition: *partition,
        log_start: starts.get(partition).copied().unwrap_or(*end).min(*end),
        high_watermark: *end,
    };
    Ok(ends.iter().map(range).collect())
}

/// Fetches from the given offsets.
async fn fetch(app: &App, name: &str, from: &[(i32, i64)]) -> Result<Vec<PartitionData>, Failure> {
    let wanted = |(partition, offset): &(i32, i64)| FetchPartition {
        partition: *partition,
        fetch_offset: *offset,
        partition_max_bytes: PARTITION_BYTES_MAX,
        ..FetchPartition::default()
    };
    let topic =
        FetchTopic { topic: name.into(), partitions: from.iter().map(wanted).collect(), ..FetchTopic::default() };
    let request = FetchRequest {
        max_wait_ms: 0,
        min_bytes: 0,
        max_bytes: READ_BYTES_MAX,
        session_epoch: -1,
        topics: vec![topic],
        ..FetchRequest::default()
    };
    let response = ask::kafka(app, FETCH_VERSION, &request).await?;
    match Failure::of_kafka(response.error_code, None) {
        Some(failure) => Err(failure),
        None => Ok(response.responses.into_iter().flat_map(|topic| topic.partitions).collect()),
    }
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    query: Result<Query<MessagesQuery>, QueryRejection>,
) -> Result<Json<TopicMessages>, Failure> {
    let Query(query) = query.map_err(|e| Failure::invalid(e.body_text()))?;
    let limit = query.limit.unwrap_or(MESSAGES);
    if !(1..=MESSAGES_MAX).contains(&limit) {
        return Err(Failure::invalid(format!("limit is {limit}, and must be from 1 to {MESSAGES_MAX}")));
    }
    let limit = limit as usize;
    let topic = topic(&app, &name)?;
    let partitions: Vec<i32> = match query.partition {
        Some(partition) => {
            is_there(&topic, partition)?;
            vec![partition]
        }
        None if query.offset.is_some() || query.whole => {
            return Err(Failure::invalid("offset and whole require partition".to_owned()));
        }
        None if topic.partitions.len() > PARTITIONS_MAX => {
            let count = topic.partitions.len();
            let text = format!("topic {name} has {count} partitions, too many for one request: set partition");
            return Err(Failure::invalid(text));
        }
        None => (0..topic.partitions.len()).map(number).collect(),
    };
    let ranges = ranges(&app, &name, &partitions).await?;
    let from = ranges.iter().map(|range| (range.partition, begin(range, query.offset, limit)));
    let from: Vec<(i32, i64)> = from.collect();
    let room = if query.whole { ANSWER_BYTES_MAX } else { SHOWN_BYTES_MAX };
    let mut messages = read(&app, &name, from, &ranges, limit, room).await?;
    if partitions.len() > 1 {
        messages.sort_by_key(|message| (message.timestamp_ms, message.partition, message.offset));
        messages.drain(..messages.len().saturating_sub(limit));
    }
    Ok(Json(TopicMessages { partitions: ranges, messages }))
}

/// Returns the first offset to read: the wanted one, clamped to the partition, or the one that leaves `limit` messages.
fn begin(range: &PartitionRange, wanted: Option<i64>, limit: usize) -> i64 {
    let newest = range.high_watermark.saturating_sub(i64::try_from(limit).unwrap_or(i64::MAX));
    wanted.unwrap_or(newest).clamp(range.log_start, range.high_watermark)
}

/// Reads up to `limit` messages of each partition. May take several fetches: transaction markers are not messages, and batches vary in size.
async fn read(
    app: &App,
    name: &str,
    mut from: Vec<(i32, i64)>,
    ranges: &[PartitionRange],
    limit: usize,
    room: usize,
) -> Result<Vec<TopicMessage>, Failure> {
    let end_of =
        |partition: i32| ranges.iter().find(|range| range.partition == partition).map_or(0, |r| r.high_watermark);
    let mut messages = Vec::new();
    let mut counts: BTreeMap<i32, usize> = BTreeMap::new();
    let mut budget = ANSWER_BYTES_MAX;
    from.retain(|(partition, offset)| *offset < end_of(*partition));
    while !from.is_empty() && budget > 0 {
        let mut left = Vec::new();
        for data in fetch(app, name, &from).await? {
            let partition = data.partition_index;
            let Some((_, next)) = from.iter().find(|(wanted, _)| *wanted == partition).copied() else { continue };
            // Deleted meanwhile.
            if data.error_code == ErrorCode::OffsetOutOfRange.code() {
                continue;
            }
            if let Some(failure) = Failure::of_kafka(data.error_code, None) {
                return Err(failure);
            }
            let count = counts.entry(partition).or_default();
            let bytes = data.records.and_then(polylogue_kafka_codec::Records::into_bytes).unwrap_or_default();
            let (left_of_it, budget) = (limit - *count, &mut budget);
            let mut taken = Taken { partition, from: next, next, left: left_of_it, room, budget };
            taken.take(bytes, &mut messages)?;
            *count = limit - taken.left;
            if taken.left > 0 && taken.next > next && taken.next < end_of(partition) {
                left.push((partition, taken.next));
            }
        }
        // Of several partitions only the first response is used: it has the newest messages.
        from = if ranges.len() > 1 { Vec::new() } else { left };
    }
    Ok(messages)
}

/// Collects messages of a partition.
struct Taken<'a> {
    partition: i32,
    from: i64,
    next: i64,
    /// Messages still to collect.
    left: usize,
    /// Length at which a key, a value or a header is truncated. Bytes.
    room: usize,
    /// Space left in the response. Bytes.
    budget: &'a mut usize,
}

impl Taken<'_> {
    fn take(&mut self, bytes: Bytes, messages: &mut Vec<TopicMessage>) -> Result<(), Failure> {
        let partition = self.partition;
        let unreadable = |e| Failure::internal(format!("partition {partition} holds an unreadable batch: {e}"));
        for batch in BatchIter::new(bytes) {
            // A fetch may end with a partial batch.
            let Ok(batch) = batch else { break };
            if !batch.header.is_control() {
                for record in records(&batch.bytes, limits::DECOMPRESSED_BYTES_MAX).map_err(unreadable)? {
                    let record = record.map_err(unreadable)?;
                    if record.offset >= self.from && self.left > 0 && *self.budget > 0 {
                        self.left -= 1;
                        let message = self.shown(&record);
                        *self.budget = self.budget.saturating_sub(size_of_message(&message));
                        messages.push(message);
                    }
                }
            }
            self.next = self.next.max(batch.header.last_offset().saturating_add(1));
        }
        Ok(())
    }

    fn shown(&self, record: &Record) -> TopicMessage {
        let content = |bytes: &Bytes| content(bytes, self.room);
        let header = |(name, value): (Bytes, Option<Bytes>)| MessageHeader {
            name: String::from_utf8_lossy(&name).into_owned(),
            value: value.as_ref().map(content),
        };
        TopicMessage {
            partition: self.partition,
            offset: record.offset,
            timestamp_ms: record.timestamp,
            key: record.key.as_ref().map(content),
            value: record.value.as_ref().map(content),
            headers: record.headers.iter().map(header).collect(),
        }
    }
}

/// Returns the approximate size of a message in the response. Bytes.
fn size_of_message(message: &TopicMessage) -> usize {
    let of = |content: &Option<Content>| content.as_ref().map_or(0, |content| content.data.len());
    let headers = message.headers.iter().map(|header| header.name.len() + of(&header.value));
    of(&message.key) + of(&message.value) + headers.sum::<usize>()
}

/// Converts bytes for JSON, truncated to `room` bytes; text is cut at a character boundary.
fn content(bytes: &Bytes, room: usize) -> Content {
    let cut = bytes.len() > room;
    let beginning = bytes.get(..room).unwrap_or(bytes);
    let text = match std::str::from_utf8(beginning) {
        Ok(text) => Some(text),
        // Text that was cut within its last character is still text.
        Err(e) if cut && e.error_len().is_none() => {
            beginning.get(..e.valid_up_to()).and_then(|bytes| std::str::from_utf8(bytes).ok())
        }
        Err(_) => None,
    };
    match text {
        Some(text) => Content { data: text.to_owned(), encoding: "text".to_owned(), bytes: bytes.len(), cut },
        None => Content { data: STANDARD.encode(beginning), encoding: "base64".to_owned(), bytes: bytes.len(), cut },
    }
}

/// Decodes a key or a value of a request.
fn given(text: Option<&String>, encoding: &str) -> Result<Option<Vec<u8>>, Failure> {
    let Some(text) = text else { return Ok(None) };
    match encoding {
        "text" => Ok(Some(text.clone().into_bytes())),
        "base64" => {
            let bytes = STANDARD.decode(text);
            bytes.map(Some).map_err(|e| Failure::invalid(format!("a key or a value is not base64: {e}")))
        }
        other => Err(Failure::invalid(format!("encoding is {other}: it must be text or base64"))),
    }
}

/// Returns the partition of a message without one.
fn partition_for(app: &App, key: Option<&[u8]>, partitions: usize) -> i32 {
    match key {
        Some(key) => number(partition_of_key(key, partitions)),
        None => {
            let mut random = [0; 8];
            app.rng.fill(&mut random);
            number(usize::from_le_bytes(random) % partitions.max(1))
        }
    }
}

pub(super) async fn write(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    body: Result<Json<NewMessage>, JsonRejection>,
) -> Result<(StatusCode, Json<Written>), Failure> {
    let Json(wanted) = body?;
    let topic = topic(&app, &name)?;
    let encoding = wanted.encoding.as_deref().unwrap_or("text");
    let (key, value) = (given(wanted.key.as_ref(), encoding)?, given(wanted.value.as_ref(), encoding)?);
    let partition = match wanted.partition {
        Some(partition) => partition,
        None => partition_for(&app, key.as_deref(), topic.partitions.len()),
    };
    is_there(&topic, partition)?;
    let header = |header: &crate::api::messages::NewHeader| {
        (header.name.clone().into_bytes(), header.value.clone().map(String::into_bytes))
    };
    let headers: Vec<(Vec<u8>, Option<Vec<u8>>)> = wanted.headers.iter().map(header).collect();
    let headers: Vec<(&[u8], Option<&[u8]>)> = headers.iter().map(|(n, v)| (n.as_slice(), v.as_deref())).collect();
    let timestamp = app.broker.now().wall_ms;
    let record = NewRecord { timestamp, key: key.as_deref(), value: value.as_deref(), headers: &headers };
    let mut batch = BatchBuilder::new();
    let cannot_be =
        |e: polylogue_record::kafka::BatchError| Failure::invalid(format!("the message cannot be encoded: {e}"));
    batch.push(&record).map_err(cannot_be)?;
    let batch = batch.build().map_err(cannot_be)?;
    let data = PartitionProduceData { index: partition, records: Some(batch.into()) };
    let data =
        TopicProduceData { name: name.as_str().into(), partition_data: vec![data], ..TopicProduceData::default() };
    let request =
        ProduceRequest { transactional_id: None, acks: -1, timeout_ms: CHANGE_MS_MAX, topic_data: vec![data] };
    let response = ask::kafka(&app, PRODUCE_VERSION, &request).await?;
    let result = response.responses.first().and_then(|topic| topic.partition_responses.first());
    let result = result.ok_or_else(|| Failure::internal("the broker returned no partition".to_owned()))?;
    match Failure::of_kafka(result.error_code, result.error_message.as_deref()) {
        Some(failure) => Err(failure),
        None => Ok((StatusCode::CREATED, Json(Written { partition, offset: result.base_offset }))),
    }
}

/// Deletes all current messages; offsets continue.
pub(super) async fn delete(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<StatusCode, Failure> {
    let topic = topic(&app, &name)?;
    let partition = |index| DeleteRecordsPartition { partition_index: number(index), offset: END };
    let partitions = (0..topic.partitions.len()).map(partition).collect();
    let topic = DeleteRecordsTopic { name: name.as_str().into(), partitions };
    let request = DeleteRecordsRequest { topics: vec![topic], timeout_ms: CHANGE_MS_MAX };
    let response = ask::kafka(&app, DELETE_RECORDS_VERSION, &request).await?;
    for result in response.topics.iter().flat_map(|topic| &topic.partitions) {
        if let Some(failure) = Failure::of_kafka(result.error_code, None) {
            return Err(failure);
        }
    }
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_as_text_or_else_in_base64_and_cut_between_characters() {
        let shown = |bytes: &'static [u8], room| {
            let content = content(&Bytes::from_static(bytes), room);
            (content.data, content.encoding, content.bytes, content.cut)
        };
        let text = |data: &str, bytes, cut| (data.to_owned(), "text".to_owned(), bytes, cut);
        assert_eq!(shown("größe".as_bytes(), 16), text("größe", 7, false));
        assert_eq!(shown("größe".as_bytes(), 4), text("grö", 7, true));
        assert_eq!(shown("größe".as_bytes(), 3), text("gr", 7, true));
        assert_eq!(shown(b"", 0), text("", 0, false));
        assert_eq!(shown(b"\xff\x00", 16), ("/wA=".to_owned(), "base64".to_owned(), 2, false));
        assert_eq!(shown(b"\xff\x00", 1), ("/w==".to_owned(), "base64".to_owned(), 2, true));
        // Ends within a character, and was not truncated.
        assert_eq!(shown(b"gr\xc3", 16), ("Z3LD".to_owned(), "base64".to_owned(), 3, false));
    }

    #[test]
    fn reading_begins_at_what_is_wanted_or_so_that_the_newest_are_read() {
        let range = PartitionRange { partition: 0, log_start: 10, high_watermark: 50 };
        let from = |wanted| begin(&range, wanted, 15);
        assert_eq!((from(None), from(Some(20)), from(Some(3)), from(Some(90)), from(Some(-7))), (35, 20, 10, 50, 10));
        assert_eq!(begin(&range, None, 500), 10);
    }

    #[test]
    fn what_is_given_is_text_or_base64() {
        let text = "aGk=".to_owned();
        assert_eq!(given(Some(&text), "text").unwrap(), Some(b"aGk=".to_vec()));
        assert_eq!(given(Some(&text), "base64").unwrap(), Some(b"hi".to_vec()));
        assert_eq!(given(None, "anything").unwrap(), None);
        assert!(given(Some(&text), "hex").is_err() && given(Some(&"?".to_owned()), "base64").is_err());
    }
}
