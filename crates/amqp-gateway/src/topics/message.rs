//! Conversion of a record to a message, the reverse of [`super::record`]. The mapping is in docs/protocols/mapping.md.

use super::record::EXCHANGE;
use bytes::Bytes;
use polylogue_amqp::codec::{BasicProperties, Properties, ShortStr, TableBuilder, Value};
use polylogue_record::kafka::Record;

/// The header with the topic that a message came from.
pub(crate) const TOPIC_HEADER: &str = "x-polylogue-topic";
const PARTITION_HEADER: &str = "x-polylogue-partition";
const OFFSET_HEADER: &str = "x-polylogue-offset";
/// The largest properties: they are sent to a client in one frame, of 128 KiB by default, together with headers that the broker adds. Bytes.
const PROPERTIES_BYTES_MAX: usize = 120 << 10;
/// Messages are persistent unless their record says otherwise.
const PERSISTENT: u8 = 2;
/// The largest `expiration`, as for clients. Milliseconds.
const EXPIRATION_MS_MAX: u64 = u32::MAX as u64;

/// The source of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordOf<'a> {
    pub(crate) topic: &'a str,
    /// The partition's number in its topic.
    pub(crate) partition: usize,
}

/// A record as a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RecordMessage {
    pub(crate) routing_key: Bytes,
    pub(crate) properties: Properties,
    pub(crate) expiration_ms: Option<u64>,
    pub(crate) body: Bytes,
}

/// Converts a record. `None` if its body would be larger than `body_bytes_max`, or its properties too large for a frame.
pub(crate) fn message_of(record: &Record, of: RecordOf<'_>, body_bytes_max: usize) -> Option<RecordMessage> {
    let body = record.value.clone().unwrap_or_default();
    if body.len() > body_bytes_max {
        return None;
    }
    let mut basic = BasicProperties::default();
    let mut expiration_ms = None;
    let mut table = TableBuilder::new()
        .with_text(TOPIC_HEADER, of.topic)
        .with(PARTITION_HEADER, Value::I64(of.partition as i64))
        .with(OFFSET_HEADER, Value::I64(record.offset));
    for (name, value) in &record.headers {
        // Names in AMQP are UTF-8 and not longer.
        let Some(name) = std::str::from_utf8(&name).ok().filter(|name| name.len() <= ShortStr::BYTES_MAX) else {
            continue;
        };
        let is_ours = matches!(name, EXCHANGE | TOPIC_HEADER | PARTITION_HEADER | OFFSET_HEADER);
        let property = name.strip_prefix("amqp.").zip(value.as_ref());
        if is_ours || property.is_some_and(|(name, value)| set(&mut basic, &mut expiration_ms, name, value).is_some()) {
            continue;
        }
        table = table.with(name, value.as_ref().map_or(Value::Void, |value| Value::LongStr(value)));
    }
    basic.headers = Some(table.build());
    basic.delivery_mode = basic.delivery_mode.or(Some(PERSISTENT));
    basic.timestamp = basic.timestamp.or_else(|| u64::try_from(record.timestamp).ok().map(|ms| ms / 1_000));
    let properties = Properties::from(&basic);
    let key = record.key.clone().filter(|key| key.len() <= ShortStr::BYTES_MAX && std::str::from_utf8(key).is_ok());
    let routing_key = key.unwrap_or_default();
    let fits = properties.raw().len() <= PROPERTIES_BYTES_MAX;
    fits.then_some(RecordMessage { routing_key, properties, expiration_ms, body })
}

/// Sets a property that is not set yet. `None` for an unknown property or an invalid value: it remains a header.
fn set(basic: &mut BasicProperties, expiration_ms: &mut Option<u64>, name: &str, value: &Bytes) -> Option<()> {
    let number = || std::str::from_utf8(value).ok()?.parse::<u64>().ok();
    let octet = || number().and_then(|number| u8::try_from(number).ok());
    let text = match name {
        "content-type" => &mut basic.content_type,
        "content-encoding" => &mut basic.content_encoding,
        "correlation-id" => &mut basic.correlation_id,
        "reply-to" => &mut basic.reply_to,
        "message-id" => &mut basic.message_id,
        "type" => &mut basic.kind,
        "user-id" => &mut basic.user_id,
        "app-id" => &mut basic.app_id,
        "cluster-id" => &mut basic.cluster_id,
        "expiration" => {
            let ms = number().filter(|ms| *ms <= EXPIRATION_MS_MAX)?;
            put(&mut basic.expiration, ShortStr::new(value.clone())?)?;
            *expiration_ms = Some(ms);
            return Some(());
        }
        "delivery-mode" => return put(&mut basic.delivery_mode, octet()?),
        "priority" => return put(&mut basic.priority, octet()?),
        "timestamp" => return put(&mut basic.timestamp, number()?),
        _ => return None,
    };
    put(text, ShortStr::new(value.clone())?)
}

fn put<T>(place: &mut Option<T>, value: T) -> Option<()> {
    if place.is_some() {
        return None;
    }
    *place = Some(value);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::store;
    use crate::testing::{body, one_record};
    use crate::topics::MessagesAsRecords;
    use polylogue_api::{LogView, StoredMessage};
    use polylogue_record::envelope::Form;
    use polylogue_record::kafka::NewRecord;

    const OF: RecordOf<'_> = RecordOf { topic: "orders", partition: 3 };
    const MAX: usize = 1 << 10;

    fn headers_of(message: &RecordMessage) -> Vec<(String, String)> {
        let headers = message.properties.headers().expect("headers");
        let shown = |value| match value {
            Value::LongStr(text) => String::from_utf8_lossy(text).into_owned(),
            other => format!("{other:?}"),
        };
        headers.fields().map(|field| (String::from_utf8_lossy(field.name).into_owned(), shown(field.value))).collect()
    }

    #[test]
    fn a_forwarded_message_round_trips() {
        let basic = BasicProperties {
            content_type: Some("text/plain".into()),
            content_encoding: Some("gzip".into()),
            headers: Some(TableBuilder::new().with_text("a", "1").with("none", Value::Void).build()),
            delivery_mode: Some(1),
            priority: Some(7),
            correlation_id: Some("c".into()),
            reply_to: Some("r".into()),
            expiration: Some("5000".into()),
            message_id: Some("m".into()),
            timestamp: Some(99),
            kind: Some("order".into()),
            user_id: Some("guest".into()),
            app_id: Some("app".into()),
            cluster_id: Some("x".into()),
        };
        let bytes = store(b"sales", b"order.eu", &basic.encode(), None, &body("hello"));
        let mut record = None;
        MessagesAsRecords.record(StoredMessage { form: Form::AmqpMessage, timestamp: 5, bytes: &bytes }, &mut |new| {
            record = Some(one_record(new));
        });
        let message = message_of(&record.expect("a record"), OF, MAX).expect("a message");
        assert_eq!((&message.routing_key[..], &message.body[..]), (&b"order.eu"[..], &b"hello"[..]));
        assert_eq!(message.expiration_ms, Some(5_000));
        let came = message.properties.to_basic();
        assert_eq!(came, BasicProperties { headers: came.headers.clone(), ..basic });
        let ours =
            [("x-polylogue-topic", "orders"), ("x-polylogue-partition", "I64(3)"), ("x-polylogue-offset", "I64(0)")];
        let expected = ours.into_iter().chain([("a", "1"), ("none", "Void")]);
        let expected: Vec<_> = expected.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        assert_eq!(headers_of(&message), expected);
    }

    #[test]
    fn invalid_properties_remain_headers() {
        let long = "n".repeat(256);
        let headers: &[(&[u8], Option<&[u8]>)] = &[
            (b"amqp.priority", Some(b"high")),
            (b"amqp.priority", Some(b"9")),
            (b"amqp.priority", Some(b"8")),
            (b"amqp.delivery-mode", Some(b"300")),
            (b"amqp.expiration", Some(b"soon")),
            (b"amqp.content-type", None),
            (b"amqp.type", Some(long.as_bytes())),
            (b"amqp.other", Some(b"o")),
            (b"x-polylogue-topic", Some(b"another")),
            (b"x-polylogue-offset", None),
            (long.as_bytes(), Some(b"left out")),
            (b"\xff", Some(b"left out")),
        ];
        let record = one_record(&NewRecord { timestamp: 12_345, key: None, value: None, headers });
        let message = message_of(&record, OF, MAX).expect("a message");
        assert!(message.routing_key.is_empty() && message.body.is_empty());
        let basic = message.properties.to_basic();
        let expected = BasicProperties {
            headers: basic.headers.clone(),
            delivery_mode: Some(2),
            priority: Some(9),
            timestamp: Some(12),
            ..BasicProperties::default()
        };
        assert_eq!((basic, message.expiration_ms), (expected, None));
        let expected = [
            ("amqp.priority", "high"),
            ("amqp.priority", "8"),
            ("amqp.delivery-mode", "300"),
            ("amqp.expiration", "soon"),
            ("amqp.content-type", "Void"),
            ("amqp.type", &long),
            ("amqp.other", "o"),
        ];
        let expected: Vec<_> = expected.iter().map(|(name, v)| ((*name).to_owned(), (*v).to_owned())).collect();
        assert_eq!(headers_of(&message)[3..], expected);
    }

    #[test]
    fn invalid_routing_keys_are_dropped_and_large_records_skipped() {
        let record = |key: &[u8], value: &[u8], header: &[u8]| {
            let headers: &[(&[u8], Option<&[u8]>)] = &[(b"h", Some(header))];
            one_record(&NewRecord { timestamp: -1, key: Some(key), value: Some(value), headers })
        };
        let key_of = |key: &[u8]| message_of(&record(key, b"", b""), OF, MAX).expect("a message").routing_key;
        assert_eq!((&key_of(b"k")[..], key_of(&[b'k'; 255]).len()), (&b"k"[..], 255));
        assert!(key_of(&[b'k'; 256]).is_empty() && key_of(b"\xff").is_empty());
        let message = message_of(&record(b"k", &[0; MAX], b""), OF, MAX).expect("a message");
        assert_eq!(message.properties.to_basic().timestamp, None);
        assert_eq!(message_of(&record(b"k", &[0; MAX + 1], b""), OF, MAX), None);
        assert_eq!(message_of(&record(b"k", b"", &[b'h'; PROPERTIES_BYTES_MAX]), OF, MAX), None);
    }
}
