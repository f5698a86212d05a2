//! Maps the broker's errors to Kafka's error codes. Codes that clients treat as final are used only where a retry cannot
//! help; -1 (UNKNOWN_SERVER_ERROR) is avoided, because producers treat it as final.

use polylogue_api::{AlterError, AppendError, ReadError, TopicError, TrimError, Unavailable};
use polylogue_kafka_codec::{ErrorCode, StrBytes};

/// Maps an append error. `by_id`: the request identifies topics by id.
pub(super) fn of_append(error: AppendError, by_id: bool) -> (ErrorCode, Option<StrBytes>) {
    match error {
        AppendError::UnknownPartition => (unknown_topic(by_id), None),
        AppendError::OutOfOrderSequence => (ErrorCode::OutOfOrderSequenceNumber, None),
        AppendError::InvalidProducerEpoch => (ErrorCode::InvalidProducerEpoch, None),
        AppendError::Storage => (ErrorCode::KafkaStorageError, None),
        AppendError::Unavailable(why) => {
            let (code, text) = match why {
                Unavailable::StorageFull => (ErrorCode::KafkaStorageError, "the disk is full; nothing was written"),
                Unavailable::Unknown => (ErrorCode::RequestTimedOut, "the outcome is unknown"),
                Unavailable::NotCommitted => {
                    (ErrorCode::NotLeaderOrFollower, "nothing was written: the writer changed")
                }
                Unavailable::Busy => (ErrorCode::RequestTimedOut, "too much is in flight; nothing was written"),
                Unavailable::TooLarge => (ErrorCode::MessageTooLarge, "larger than the largest record of the log"),
                Unavailable::Stopping => (ErrorCode::NotLeaderOrFollower, "the broker is shutting down"),
            };
            (code, Some(StrBytes::from_static(text)))
        }
    }
}

/// Maps a read error, or that of an offset lookup.
pub(super) fn of_read(error: ReadError, by_id: bool) -> ErrorCode {
    match error {
        ReadError::UnknownPartition => unknown_topic(by_id),
        ReadError::OutOfRange { .. } => ErrorCode::OffsetOutOfRange,
        ReadError::Storage => ErrorCode::KafkaStorageError,
    }
}

/// Maps a coordinator error. Clients retry on all of these, except the one where that cannot help.
pub(super) fn of_coordinator(why: Unavailable) -> ErrorCode {
    match why {
        Unavailable::StorageFull | Unavailable::Unknown => ErrorCode::CoordinatorNotAvailable,
        Unavailable::NotCommitted | Unavailable::Stopping => ErrorCode::NotCoordinator,
        Unavailable::Busy => ErrorCode::CoordinatorLoadInProgress,
        // As in Kafka when a group's record does not fit into its log.
        Unavailable::TooLarge => ErrorCode::UnknownServerError,
    }
}

/// Maps the error of a topic's creation or deletion, with Kafka's text.
pub(super) fn of_topic(error: &TopicError, name: &str) -> (ErrorCode, StrBytes) {
    match error {
        TopicError::Exists => (ErrorCode::TopicAlreadyExists, format!("Topic '{name}' already exists.").into()),
        TopicError::UnknownName => with_message(ErrorCode::UnknownTopicOrPartition),
        TopicError::UnknownId => with_message(ErrorCode::UnknownTopicId),
        TopicError::TooManyPartitions { partitions_max } => too_many_partitions(*partitions_max),
        TopicError::Unavailable(why) => of_metadata(*why),
    }
}

/// Maps the error of a change of a topic or of settings, with Kafka's text.
pub(super) fn of_alter(error: &AlterError, name: &str) -> (ErrorCode, StrBytes) {
    match error {
        AlterError::UnknownTopic => {
            (ErrorCode::UnknownTopicOrPartition, format!("The topic '{name}' does not exist.").into())
        }
        AlterError::Conflict(_) => {
            let text = "Others change the same at the same time, again and again; nothing was changed. Try again.";
            (ErrorCode::RequestTimedOut, StrBytes::from_static(text))
        }
        AlterError::DurabilityFixed => {
            let text = "A topic of durability memory stays that, and no other topic can become it.";
            (ErrorCode::InvalidConfig, StrBytes::from_static(text))
        }
        AlterError::TooManyPartitions { partitions_max } => too_many_partitions(*partitions_max),
        AlterError::TooLarge { bytes, bytes_max } => {
            let text = format!("All configs of one resource may have {bytes_max} bytes, and these have {bytes}.");
            (ErrorCode::InvalidConfig, text.into())
        }
        AlterError::TooManyDocuments { documents_max } => {
            let text = format!("Configs can be set for {documents_max} groups and subscriptions, and that many are.");
            (ErrorCode::PolicyViolation, text.into())
        }
        AlterError::Unavailable(why) => of_metadata(*why),
    }
}

/// Maps the error of DeleteRecords.
pub(super) fn of_trim(error: TrimError) -> ErrorCode {
    match error {
        TrimError::UnknownPartition => ErrorCode::UnknownTopicOrPartition,
        TrimError::OutOfRange { .. } => ErrorCode::OffsetOutOfRange,
        TrimError::Unavailable(Unavailable::StorageFull | Unavailable::TooLarge) => ErrorCode::KafkaStorageError,
        TrimError::Unavailable(Unavailable::Unknown | Unavailable::Busy) => ErrorCode::RequestTimedOut,
        TrimError::Unavailable(Unavailable::NotCommitted | Unavailable::Stopping) => ErrorCode::NotLeaderOrFollower,
    }
}

fn too_many_partitions(partitions_max: u64) -> (ErrorCode, StrBytes) {
    let text =
        format!("All topics together may have {partitions_max} partitions (partitions_max), and these would be more.");
    (ErrorCode::InvalidPartitions, text.into())
}

pub(super) fn of_metadata(why: Unavailable) -> (ErrorCode, StrBytes) {
    let text = match why {
        Unavailable::StorageFull => "The disk is full.",
        Unavailable::Unknown => "The outcome is not known.",
        Unavailable::NotCommitted => "Nothing was changed: the writer changed. Try again.",
        Unavailable::Busy => "Too much is in flight. Try again.",
        Unavailable::TooLarge => "It is larger than a record of the log may be.",
        Unavailable::Stopping => "The broker is shutting down.",
    };
    let code = match why {
        Unavailable::StorageFull => ErrorCode::KafkaStorageError,
        Unavailable::Unknown | Unavailable::Busy => ErrorCode::RequestTimedOut,
        Unavailable::NotCommitted | Unavailable::Stopping => ErrorCode::NotController,
        Unavailable::TooLarge => ErrorCode::PolicyViolation,
    };
    (code, StrBytes::from_static(text))
}

/// Adds the default text that Kafka brokers send with the code.
pub(super) fn with_message(code: ErrorCode) -> (ErrorCode, StrBytes) {
    (code, StrBytes::from_static(code.message()))
}

/// Returns the error for an unknown topic.
pub(super) fn unknown_topic(by_id: bool) -> ErrorCode {
    if by_id { ErrorCode::UnknownTopicId } else { ErrorCode::UnknownTopicOrPartition }
}
