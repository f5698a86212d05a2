//! `POST /api/v1/groups/NAME/reset`: the rules and words of Kafka's `kafka-consumer-groups --reset-offsets`.

use super::{FETCH_VERSION, state_of, surprise};
use crate::api::{GroupReset, ResetGroup, ResetOffset, ResetTo, ResetTopic};
use crate::http::App;
use crate::http::ask;
use crate::http::error::Failure;
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use polylogue_api::TopicInfo;
use polylogue_kafka_codec::ErrorCode;
use polylogue_kafka_codec::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use polylogue_kafka_codec::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use polylogue_kafka_groups::GroupState;
use polylogue_kafka_groups::command::{FetchGroup, FetchOffsets, FetchTopic, GroupCommand, GroupReply, TopicKey};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The versions of the Kafka requests that are sent: the newest.
const LIST_OFFSETS_VERSION: i16 = 11;
const COMMIT_VERSION: i16 = 10;
/// Kafka's names for the ends of a partition.
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;

/// The partitions to reset, by topic name.
type Places = BTreeMap<String, (Arc<TopicInfo>, BTreeSet<i32>)>;
/// Offsets by topic and partition.
type Offsets = BTreeMap<(String, i32), i64>;

pub(in crate::http) async fn reset(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    body: Result<Json<ResetGroup>, JsonRejection>,
) -> Result<Json<GroupReset>, Failure> {
    let Json(wanted) = body?;
    let places = places(&app, &wanted.topics)?;
    must_be_inactive(&name, state_of(&app, &name).await?)?;
    let before = committed(&app, &name, &places).await?;
    let offsets = plan(&app, wanted.to, &places, &before).await?;
    if !wanted.validate_only {
        commit(&app, &name, &places, &offsets).await?;
    }
    Ok(Json(GroupReset { group: name, executed: !wanted.validate_only, offsets }))
}

fn places(app: &App, wanted: &[ResetTopic]) -> Result<Places, Failure> {
    if wanted.is_empty() {
        return Err(Failure::invalid("topics is empty: name at least one topic".to_owned()));
    }
    let mut places = Places::new();
    for ResetTopic { topic: name, partitions } in wanted {
        let topic = app.broker.catalog().topic(name).ok_or_else(|| Failure::unknown_topic(name))?;
        let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
        let numbers: BTreeSet<i32> = match partitions {
            None => (0..count).collect(),
            Some(numbers) => numbers.iter().copied().collect(),
        };
        if numbers.is_empty() {
            return Err(Failure::invalid(format!(
                "the partitions of topic {name} are an empty list: leave it out for all"
            )));
        }
        if let Some(none) = numbers.iter().find(|number| !(0..count).contains(*number)) {
            return Err(Failure::invalid(format!("topic {name} has no partition {none}: it has {count}")));
        }
        places.entry(name.clone()).or_insert_with(|| (topic, BTreeSet::new())).1.extend(numbers);
    }
    Ok(places)
}

/// An unknown group may be reset too: the reset creates it.
fn must_be_inactive(name: &str, found: GroupState) -> Result<(), Failure> {
    match found {
        GroupState::Empty | GroupState::Dead => Ok(()),
        other => Err(Failure::group_not_empty(format!(
            "Assignments can only be reset if the group '{name}' is inactive, but the current state is {}.",
            other.name()
        ))),
    }
}

async fn committed(app: &App, name: &str, places: &Places) -> Result<Offsets, Failure> {
    let topic = |(topic, numbers): &(Arc<TopicInfo>, BTreeSet<i32>)| FetchTopic {
        topic: TopicKey::Id(topic.id),
        partitions: numbers.iter().copied().collect(),
    };
    let topics = Some(places.values().map(topic).collect());
    let group = FetchGroup { group_id: name.into(), member_id: None, member_epoch: -1, topics };
    let fetch = FetchOffsets { version: FETCH_VERSION, groups: vec![group], require_stable: false };
    let GroupReply::FetchOffsets(fetched) = ask::groups(app, GroupCommand::FetchOffsets(fetch)).await? else {
        return Err(surprise());
    };
    let fetched = fetched.first().ok_or_else(surprise)?;
    if let Some(failure) = Failure::of_kafka(fetched.error.code(), None) {
        return Err(failure);
    }
    let mut offsets = Offsets::new();
    for topic in &fetched.topics {
        for partition in topic.partitions.iter().filter(|p| p.error == ErrorCode::None && p.offset >= 0) {
            offsets.insert((topic.name.to_string(), partition.index), partition.offset);
        }
    }
    Ok(offsets)
}

/// Returns the offsets at a timestamp, or at an end. Partitions without a message at or after the timestamp are left out.
async fn find(app: &App, places: &Places, timestamp: i64) -> Result<Offsets, Failure> {
    let partition =
        |number: &i32| ListOffsetsPartition { partition_index: *number, current_leader_epoch: -1, timestamp };
    let topic = |(name, (_, numbers)): (&String, &(Arc<TopicInfo>, BTreeSet<i32>))| ListOffsetsTopic {
        name: name.as_str().into(),
        partitions: numbers.iter().map(partition).collect(),
    };
    let topics = places.iter().map(topic).collect();
    let request = ListOffsetsRequest { replica_id: -1, topics, ..ListOffsetsRequest::default() };
    let response = ask::kafka(app, LIST_OFFSETS_VERSION, &request).await?;
    let mut offsets = Offsets::new();
    for topic in &response.topics {
        for partition in &topic.partitions {
            if let Some(failure) = Failure::of_kafka(partition.error_code, None) {
                return Err(failure);
            }
            if partition.offset >= 0 {
                offsets.insert((topic.name.to_string(), partition.partition_index), partition.offset);
            }
        }
    }
    Ok(offsets)
}

async fn plan(app: &App, to: ResetTo, places: &Places, before: &Offsets) -> Result<Vec<ResetOffset>, Failure> {
    let earliest = find(app, places, EARLIEST).await?;
    let latest = find(app, places, LATEST).await?;
    let at_time = match to {
        ResetTo::TimeMs(time_ms) if time_ms < 0 => {
            return Err(Failure::invalid(format!("time_ms is {time_ms}: expected milliseconds since 1970")));
        }
        ResetTo::TimeMs(time_ms) => find(app, places, time_ms).await?,
        _ => Offsets::new(),
    };
    let mut offsets = Vec::new();
    for (name, (_, numbers)) in places {
        for number in numbers {
            let place = (name.clone(), *number);
            let missing = || Failure::internal(format!("the broker returned no offsets for {name}-{number}"));
            let first = *earliest.get(&place).ok_or_else(missing)?;
            let end = *latest.get(&place).ok_or_else(missing)?;
            let current = before.get(&place).copied();
            let (offset, note) = match to {
                ResetTo::Earliest => (first, None),
                ResetTo::Latest => (end, None),
                ResetTo::Offset(offset) => within(offset, first, end, &place),
                ResetTo::TimeMs(_) => match at_time.get(&place) {
                    Some(offset) => (*offset, None),
                    None => {
                        let text = format!(
                            "{name}-{number} has no message at or after that time: the end of the partition is used"
                        );
                        (end, Some(text))
                    }
                },
                ResetTo::ShiftBy(shift) => {
                    let current = current.ok_or_else(|| {
                        Failure::invalid(format!(
                            "Cannot shift offset for partition {name}-{number} since there is no current committed offset"
                        ))
                    })?;
                    within(current.saturating_add(shift), first, end, &place)
                }
            };
            offsets.push(ResetOffset { topic: name.clone(), partition: *number, before: current, offset, note });
        }
    }
    Ok(offsets)
}

/// Clamps the offset to the partition, with a note if it was changed.
fn within(offset: i64, first: i64, end: i64, (name, number): &(String, i32)) -> (i64, Option<String>) {
    let note = |what: &str, value: i64| {
        let at = format!("for topic partition {name}-{number}. Value will be set to {value}");
        (value, Some(format!("New offset ({offset}) is {what} {at}")))
    };
    if offset > end {
        note("higher than latest offset", end)
    } else if offset < first {
        note("lower than earliest offset", first)
    } else {
        (offset, None)
    }
}

async fn commit(app: &App, name: &str, places: &Places, offsets: &[ResetOffset]) -> Result<(), Failure> {
    let mut topics: Vec<OffsetCommitRequestTopic> = Vec::new();
    for (topic_name, (topic, _)) in places {
        let partition = |offset: &ResetOffset| OffsetCommitRequestPartition {
            partition_index: offset.partition,
            committed_offset: offset.offset,
            committed_leader_epoch: -1,
            committed_metadata: Some("".into()),
        };
        let partitions = offsets.iter().filter(|offset| offset.topic == *topic_name).map(partition).collect();
        // By id: a topic that was deleted and created again meanwhile is a different one.
        topics.push(OffsetCommitRequestTopic { topic_id: topic.id, partitions, ..OffsetCommitRequestTopic::default() });
    }
    let request = OffsetCommitRequest {
        group_id: name.into(),
        generation_id_or_member_epoch: -1,
        topics,
        ..OffsetCommitRequest::default()
    };
    let response = ask::kafka(app, COMMIT_VERSION, &request).await?;
    for partition in response.topics.iter().flat_map(|topic| &topic.partitions) {
        // The error that a group with members returns to a client that is not a member.
        if partition.error_code == ErrorCode::UnknownMemberId.code() {
            must_be_inactive(name, state_of(app, name).await?)?;
            return Err(Failure::group_not_empty(format!("Group '{name}' had members a moment ago. Try again.")));
        }
        if let Some(failure) = Failure::of_kafka(partition.error_code, None) {
            return Err(failure);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_stay_within_their_partition() {
        let at = |offset| within(offset, 3, 9, &("t".to_owned(), 1));
        for inside in [3, 5, 9] {
            assert_eq!(at(inside), (inside, None));
        }
        let text = "New offset (10) is higher than latest offset for topic partition t-1. Value will be set to 9";
        assert_eq!(at(10), (9, Some(text.to_owned())));
        let text = "New offset (-4) is lower than earliest offset for topic partition t-1. Value will be set to 3";
        assert_eq!(at(-4), (3, Some(text.to_owned())));
    }

    #[test]
    fn only_a_group_without_members_is_reset() {
        assert!(must_be_inactive("g", GroupState::Empty).is_ok());
        assert!(must_be_inactive("g", GroupState::Dead).is_ok());
        for busy in [GroupState::Stable, GroupState::PreparingRebalance, GroupState::CompletingRebalance] {
            assert!(must_be_inactive("g", busy).is_err());
        }
    }
}
