//! DeleteRecords, DescribeLogDirs and DescribeProducers: requests about the stored messages of partitions.

use super::errors;
use super::topics::{Lookup, invalid_name, is_queue, owned, partition_of};
use super::work::{Pending, Step, Work};
use polylogue_api::{PRODUCERS_PER_REPLY_MAX, ProducerInfo, ProducersError, Reply, Request, TopicInfo, TrimPartition};
use polylogue_auth::Operation;
use polylogue_kafka_codec::delete_records::{
    DeleteRecordsPartition, DeleteRecordsPartitionResult, DeleteRecordsRequest, DeleteRecordsResponse,
    DeleteRecordsTopicResult,
};
use polylogue_kafka_codec::describe_log_dirs::{
    DescribeLogDirsPartition, DescribeLogDirsRequest, DescribeLogDirsResponse, DescribeLogDirsResult,
    DescribeLogDirsTopic,
};
use polylogue_kafka_codec::describe_producers::{
    DescribeProducersRequest, DescribeProducersResponse, PartitionResponse, ProducerState, TopicResponse,
};
use polylogue_kafka_codec::{DecodeError, ErrorCode, Message, Reader, StrBytes};
use polylogue_types::{Offset, PartitionId, TopicId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The offset that means the high watermark (Kafka's `DeleteRecordsRequest.HIGH_WATERMARK`).
const HIGH_WATERMARK: i64 = -1;
/// The low watermark of a partition with an error (Kafka's `INVALID_LOW_WATERMARK`).
const NO_WATERMARK: i64 = -1;
/// An unknown size of a volume (Kafka's `UNKNOWN_VOLUME_BYTES`).
const UNKNOWN_BYTES: i64 = -1;

/// Rows of a response by topic and partition number.
type Places = Vec<(usize, usize)>;

#[derive(Debug)]
struct Trimming {
    response: DeleteRecordsResponse,
    places: Places,
}

pub(super) fn start_delete_records(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let request = DeleteRecordsRequest::decode(body, work.head.version)?;
    let mut lookup = Lookup::new(work.catalog);
    let mut response = DeleteRecordsResponse::default();
    let (mut trims, mut places) = (Vec::new(), Places::new());
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        let may_delete = work.may_topic(Operation::Delete, &topic.name);
        for wanted in topic.partitions {
            let trim = match may_delete {
                true => trim(&mut lookup, &topic.name, &wanted),
                false => Err(ErrorCode::TopicAuthorizationFailed),
            };
            let error_code = trim.as_ref().err().copied().unwrap_or(ErrorCode::None).code();
            if let Ok(trim) = trim {
                places.push((response.topics.len(), partitions.len()));
                trims.push(trim);
            }
            let partition_index = wanted.partition_index;
            partitions.push(DeleteRecordsPartitionResult { partition_index, low_watermark: NO_WATERMARK, error_code });
        }
        response.topics.push(DeleteRecordsTopicResult { name: topic.name, partitions });
    }
    if trims.is_empty() {
        return Ok(work.answer(&response));
    }
    let token = work.ask(Request::TrimPartitions(trims));
    Ok(Step::Wait(token, Box::new(Trimming { response, places })))
}

fn trim(lookup: &mut Lookup<'_>, name: &str, wanted: &DeleteRecordsPartition) -> Result<TrimPartition, ErrorCode> {
    let topic = lookup.topic(name, TopicId::ZERO).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let partition = partition_of(topic, wanted.partition_index)?.id;
    if is_queue(topic) {
        // The response has no error text; the same code as for a compacted topic.
        return Err(ErrorCode::PolicyViolation);
    }
    let cleanup = topic.config.cleanup;
    if cleanup.compact && !cleanup.delete {
        return Err(ErrorCode::PolicyViolation);
    }
    let first = match wanted.offset {
        HIGH_WATERMARK => None,
        offset => Some(Offset(u64::try_from(offset).map_err(|_| ErrorCode::OffsetOutOfRange)?)),
    };
    Ok(TrimPartition { partition, first })
}

impl Pending for Trimming {
    fn on_reply(mut self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step {
        let Reply::TrimPartitions(results) = reply else { return work.wrong_reply() };
        if results.len() != self.places.len() {
            return work.wrong_reply();
        }
        for (result, (topic, partition)) in results.into_iter().zip(self.places) {
            let topic = self.response.topics.get_mut(topic);
            let Some(row) = topic.and_then(|topic| topic.partitions.get_mut(partition)) else { continue };
            match result {
                Ok(first) => row.low_watermark = i64::try_from(first.0).unwrap_or(i64::MAX),
                Err(error) => row.error_code = errors::of_trim(error).code(),
            }
        }
        work.answer(&self.response)
    }
}

/// The requested partitions by topic: number and id.
type Chosen = Vec<(Arc<TopicInfo>, Vec<(i32, PartitionId)>)>;

#[derive(Debug)]
struct Measuring {
    chosen: Chosen,
}

pub(super) fn start_describe_log_dirs(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let request = DescribeLogDirsRequest::decode(body, work.head.version)?;
    if !work.may_cluster(Operation::Describe) {
        let error_code = ErrorCode::ClusterAuthorizationFailed.code();
        return Ok(work.answer(&DescribeLogDirsResponse { error_code, ..DescribeLogDirsResponse::default() }));
    }
    let all = |topic: Arc<TopicInfo>| {
        let partitions = (0..).zip(topic.partitions.iter().map(|p| p.id)).collect();
        (topic, partitions)
    };
    let chosen: Chosen = match request.topics {
        None => work.catalog.topics().into_iter().map(all).collect(),
        Some(topics) => {
            let mut wanted = BTreeMap::<StrBytes, BTreeSet<i32>>::new();
            topics.into_iter().for_each(|t| wanted.entry(t.topic).or_default().extend(t.partitions));
            // An unknown topic or partition has no row.
            let known = wanted.into_iter().filter_map(|(name, partitions)| {
                let topic = work.catalog.topic(&name)?;
                let ids = partitions.into_iter().filter_map(|p| Some((p, partition_of(&topic, p).ok()?.id))).collect();
                Some((topic, ids))
            });
            known.collect()
        }
    };
    let ids = chosen.iter().flat_map(|(_, partitions)| partitions.iter().map(|(_, id)| *id)).collect();
    let token = work.ask(Request::DescribePartitions(ids));
    Ok(Step::Wait(token, Box::new(Measuring { chosen })))
}

impl Pending for Measuring {
    fn on_reply(self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step {
        let Reply::DescribePartitions(sizes) = reply else { return work.wrong_reply() };
        let mut measured = sizes.partitions.into_iter();
        let mut topics = Vec::new();
        for (topic, partitions) in self.chosen {
            let mut rows = Vec::with_capacity(partitions.len());
            for (partition_index, _) in partitions {
                let Some(size) = measured.next() else { return work.wrong_reply() };
                rows.extend(size.map(|size| DescribeLogDirsPartition {
                    partition_index,
                    partition_size: i64::try_from(size.bytes).unwrap_or(i64::MAX),
                    ..DescribeLogDirsPartition::default()
                }));
            }
            if !rows.is_empty() {
                topics.push(DescribeLogDirsTopic { name: owned(&topic.name), partitions: rows });
            }
        }
        let result = DescribeLogDirsResult {
            log_dir: sizes.directory.into(),
            topics,
            total_bytes: UNKNOWN_BYTES,
            usable_bytes: sizes.free_bytes.map_or(UNKNOWN_BYTES, |free| i64::try_from(free).unwrap_or(i64::MAX)),
            ..DescribeLogDirsResult::default()
        };
        work.answer(&DescribeLogDirsResponse { results: vec![result], ..DescribeLogDirsResponse::default() })
    }
}

#[derive(Debug)]
struct Listing {
    response: DescribeProducersResponse,
    places: Places,
}

pub(super) fn start_describe_producers(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let request = DescribeProducersRequest::decode(body, work.head.version)?;
    let mut lookup = Lookup::new(work.catalog);
    let mut response = DescribeProducersResponse::default();
    let (mut ids, mut places) = (Vec::new(), Places::new());
    for topic in request.topics {
        let refused = if work.may_topic(Operation::Read, &topic.name) {
            invalid_name(&topic.name).map(|text| (ErrorCode::InvalidTopicException, StrBytes::from(text)))
        } else {
            Some(errors::with_message(ErrorCode::TopicAuthorizationFailed))
        };
        let mut partitions = Vec::with_capacity(topic.partition_indexes.len());
        for partition_index in topic.partition_indexes {
            let mut row = PartitionResponse { partition_index, error_message: None, ..PartitionResponse::default() };
            let found = match &refused {
                Some(refused) => Err(refused.clone()),
                None => found(&mut lookup, &topic.name, partition_index),
            };
            match found {
                Ok(id) => {
                    places.push((response.topics.len(), partitions.len()));
                    ids.push(id);
                }
                Err((error, text)) => {
                    row.error_code = error.code();
                    row.error_message = Some(text);
                }
            }
            partitions.push(row);
        }
        response.topics.push(TopicResponse { name: topic.name, partitions });
    }
    if ids.is_empty() {
        return Ok(work.answer(&response));
    }
    let token = work.ask(Request::DescribeProducers(ids));
    Ok(Step::Wait(token, Box::new(Listing { response, places })))
}

fn found(lookup: &mut Lookup<'_>, name: &str, index: i32) -> Result<PartitionId, (ErrorCode, StrBytes)> {
    let unknown = errors::with_message;
    let topic = lookup.topic(name, TopicId::ZERO).ok_or_else(|| unknown(ErrorCode::UnknownTopicOrPartition))?;
    partition_of(topic, index).map(|partition| partition.id).map_err(unknown)
}

impl Pending for Listing {
    fn on_reply(mut self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step {
        let Reply::DescribeProducers(results) = reply else { return work.wrong_reply() };
        if results.len() != self.places.len() {
            return work.wrong_reply();
        }
        for (result, (topic, partition)) in results.into_iter().zip(self.places) {
            let topic = self.response.topics.get_mut(topic);
            let Some(row) = topic.and_then(|topic| topic.partitions.get_mut(partition)) else { continue };
            match result {
                Ok(producers) => row.active_producers = producers.into_iter().map(producer).collect(),
                Err(ProducersError::UnknownPartition) => {
                    let (error, text) = errors::with_message(ErrorCode::UnknownTopicOrPartition);
                    (row.error_code, row.error_message) = (error.code(), Some(text));
                }
                Err(ProducersError::TooMany) => {
                    let text = format!(
                        "One response tells of {PRODUCERS_PER_REPLY_MAX} producers at the most: ask for fewer partitions."
                    );
                    (row.error_code, row.error_message) = (ErrorCode::InvalidRequest.code(), Some(text.into()));
                }
            }
        }
        work.answer(&self.response)
    }
}

/// Returns a producer's state; without transactions, no coordinator and no open transaction.
fn producer(info: ProducerInfo) -> ProducerState {
    ProducerState {
        producer_id: info.id.0,
        producer_epoch: i32::from(info.epoch),
        last_sequence: info.last_sequence,
        last_timestamp: info.last_timestamp,
        coordinator_epoch: -1,
        current_txn_start_offset: -1,
    }
}
