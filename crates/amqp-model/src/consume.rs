//! Arguments of `basic.consume`.

use crate::arguments::{bool_of, duration_ms, integer_of};
use crate::error::{Named, Refused};
use crate::queue_kind::QueueKind;
use crate::table::{decode_array, type_name};
use bytestring::ByteString;
use polylogue_router::{Argument, Value, lookup};

/// The most filter values of one consumer.
pub const FILTERS_MAX: usize = 64;

/// Where a stream consumer starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StreamOffset {
    /// At the oldest available message.
    First,
    /// At the last chunk.
    Last,
    /// After the last available message.
    #[default]
    Next,
    /// At an offset.
    Offset(u64),
    /// At the first message with this timestamp or a later one. Milliseconds since the Unix epoch.
    TimestampMs(u64),
    /// At messages of the last so many milliseconds.
    AgoMs(u64),
}

/// The settings that a consumer's arguments request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ConsumerSettings {
    /// Consumers with a lower priority receive messages only while all with a higher one are busy.
    pub priority: i64,
    /// Streams: where it starts.
    pub offset: StreamOffset,
    /// Streams: only chunks with one of these filter values; empty for all.
    pub filters: Vec<ByteString>,
    /// Streams: chunks without a filter value too.
    pub match_unfiltered: bool,
    /// How long it may hold a delivery unacknowledged.
    pub timeout_ms: Option<u64>,
}

const CLASSIC: &[&str] = &["x-priority", "x-cancel-on-ha-failover", "x-credit"];
const QUORUM: &[&str] = &["x-priority", "x-consumer-timeout"];
const STREAM: &[&str] = &["x-stream-offset", "x-stream-filter", "x-stream-match-unfiltered", "x-credit"];

impl ConsumerSettings {
    /// Parses the arguments of a consumer of a queue of this type. Unknown arguments are ignored.
    ///
    /// # Errors
    /// 406 for an invalid argument.
    pub fn of(kind: QueueKind, arguments: &[Argument], named: &Named<'_>) -> Result<ConsumerSettings, Refused> {
        let known = match kind {
            QueueKind::Classic => CLASSIC,
            QueueKind::Quorum => QUORUM,
            QueueKind::Stream => STREAM,
        };
        let get = |name: &str| lookup(arguments, name.as_bytes()).filter(|_| known.contains(&name));
        let invalid =
            |name: &str, why: String| Refused::precondition(format!("invalid arg '{name}' for {named}: {why}"));
        let mut settings = ConsumerSettings::default();
        if let Some(argument) = get("x-priority") {
            settings.priority = integer_of(argument).map_err(|why| invalid("x-priority", why))?;
        }
        if let Some(argument) = get("x-cancel-on-ha-failover") {
            bool_of(argument).map_err(|why| invalid("x-cancel-on-ha-failover", why))?;
        }
        if let Some(argument) = get("x-stream-offset") {
            settings.offset = offset_of(argument).map_err(|why| invalid("x-stream-offset", why))?;
        }
        if let Some(argument) = get("x-consumer-timeout") {
            let value = integer_of(argument).map_err(|why| invalid("x-consumer-timeout", why))?;
            let value = u64::try_from(value)
                .map_err(|_| invalid("x-consumer-timeout", format!("{{value_negative,{value}}}")))?;
            settings.timeout_ms = Some(value);
        }
        if let Some(argument) = get("x-stream-filter") {
            settings.filters = filters_of(argument).map_err(|why| invalid("x-stream-filter", why))?;
        }
        if let Some(argument) = get("x-stream-match-unfiltered") {
            settings.match_unfiltered = bool_of(argument).map_err(|why| invalid("x-stream-match-unfiltered", why))?;
        }
        let foreign = |name: &&str| !known.contains(name) && lookup(arguments, name.as_bytes()).is_some();
        match CLASSIC.iter().chain(QUORUM).chain(STREAM).copied().find(foreign) {
            None => Ok(settings),
            Some(name) => {
                let module = kind.module();
                Err(Refused::precondition(format!("invalid arg '{name}' for {named} of queue type {module}")))
            }
        }
    }
}

fn offset_of(argument: &Argument) -> Result<StreamOffset, String> {
    let invalid = |value: String| format!("{{invalid_stream_offset_arg,{{{},{value}}}}}", type_name(argument.tag));
    match &argument.value {
        Value::Bytes(text) => match std::str::from_utf8(text).unwrap_or_default() {
            "first" => Ok(StreamOffset::First),
            "last" => Ok(StreamOffset::Last),
            "next" => Ok(StreamOffset::Next),
            text => match duration_ms(text) {
                Some(ms) => Ok(StreamOffset::AgoMs(ms)),
                None => Err(invalid(format!("<<\"{text}\">>"))),
            },
        },
        Value::Timestamp(seconds) => Ok(StreamOffset::TimestampMs(seconds.saturating_mul(1_000))),
        Value::Int(offset) => u64::try_from(*offset).map(StreamOffset::Offset).map_err(|_| invalid(offset.to_string())),
        _ => Err(invalid("undefined".to_owned())),
    }
}

/// A text, or an array of texts.
fn filters_of(argument: &Argument) -> Result<Vec<ByteString>, String> {
    let bad = || format!("{{unacceptable_type,{}}}", type_name(argument.tag));
    let text = |value: &Value| match value {
        Value::Bytes(text) => ByteString::try_from(text.clone()).map_err(|_| bad()),
        _ => Err(bad()),
    };
    match &argument.value {
        Value::Nested(b'A', content) => {
            let items = decode_array(content).map_err(|_| bad())?;
            if items.len() > FILTERS_MAX {
                return Err(format!("\"more than {FILTERS_MAX} filters\""));
            }
            items.iter().map(|(_, value)| text(value)).collect()
        }
        value => text(value).map(|one| vec![one]),
    }
}
