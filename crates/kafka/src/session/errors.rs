//! What the broker says, in Kafka's error codes. Codes that clients take as final are used only where trying again
//! cannot help; -1 (UNKNOWN_SERVER_ERROR) is never one of them, because producers give up on it.

use crate::codec::{ErrorCode, StrBytes};
use polylogue_api::{AlterError, AppendError, ReadError, TopicError, TrimError, Unavailable};

/// Why an append failed. `by_id`: the request named its topics by id.
pub(super) fn of_append(error: AppendError, by_id: bool) -> (ErrorCode, Option<StrBytes>) {
    match error {
        AppendError::UnknownPartition => (unknown_topic(by_id), None),
        AppendError::OutOfOrderSequence => (ErrorCode::OutOfOrderSequenceNumber, None),
        AppendError::InvalidProducerEpoch => (ErrorCode::InvalidProducerEpoch, None),
        AppendError::Storage => (ErrorCode::KafkaStorageError, None),
        AppendError::Unavailable(why) => {
            let (code, text) = match why {
                Unavailable::StorageFull => (ErrorCode::KafkaStorageError, "the disk is full; nothing was written"),
                Unavailable::Unknown => (ErrorCode::RequestTimedOut, "the outcome is not known"),
                Unavailable::NotCommitted => {
                    (ErrorCode::NotLeaderOrFollower, "nothing was written: the writer changed")
                }
                Unavailable::Busy => (ErrorCode::RequestTimedOut, "too much is in flight; nothing was written"),
                Unavailable::TooLarge => (ErrorCode::MessageTooLarge, "larger than a record of the log may be"),
                Unavailable::Stopping => (ErrorCode::NotLeaderOrFollower, "the broker is shutting down"),
            };
            (code, Some(StrBytes::from_static(text)))
        }
    }
}

/// Why nothing was read, or no offset was found.
pub(super) fn of_read(error: ReadError, by_id: bool) -> ErrorCode {
    match error {
        ReadError::UnknownPartition => unknown_topic(by_id),
        ReadError::OutOfRange { .. } => ErrorCode::OffsetOutOfRange,
        ReadError::Storage => ErrorCode::KafkaStorageError,
    }
}

/// Why a coordinator cannot say anything. All of these make clients try again, but for the one where that cannot help.
pub(super) fn of_coordinator(why: Unavailable) -> ErrorCode {
    match why {
        Unavailable::StorageFull | Unavailable::Unknown => ErrorCode::CoordinatorNotAvailable,
        Unavailable::NotCommitted | Unavailable::Stopping => ErrorCode::NotCoordinator,
        Unavailable::Busy => ErrorCode::CoordinatorLoadInProgress,
        // As Kafka answers where a record of a group does not fit into its log.
        Unavailable::TooLarge => ErrorCode::UnknownServerError,
    }
}

/// Why a topic was not created or deleted, with the text that tools show.
pub(super) fn of_topic(error: &TopicError, name: &str) -> (ErrorCode, StrBytes) {
    match error {
        TopicError::Exists => (ErrorCode::TopicAlreadyExists, format!("Topic '{name}' already exists.").into()),
        TopicError::UnknownName => with_message(ErrorCode::UnknownTopicOrPartition),
        TopicError::UnknownId => with_message(ErrorCode::UnknownTopicId),
        TopicError::TooManyPartitions { partitions_max } => too_many_partitions(*partitions_max),
        TopicError::Unavailable(why) => of_metadata(*why),
    }
}

/// Why a topic, or what is set for something, was not changed, with the text that tools show.
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

/// Why a partition was not trimmed.
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

/// The code with the text that Kafka's brokers send for it.
pub(super) fn with_message(code: ErrorCode) -> (ErrorCode, StrBytes) {
    (code, StrBytes::from_static(code.message()))
}

/// A topic that is not there.
pub(super) fn unknown_topic(by_id: bool) -> ErrorCode {
    if by_id { ErrorCode::UnknownTopicId } else { ErrorCode::UnknownTopicOrPartition }
}
