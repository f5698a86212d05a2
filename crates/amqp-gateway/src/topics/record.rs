//! Conversion of a stored message to a record: the mapping is in docs/protocols/mapping.md.

use crate::message::{Stored, body_len, open};
use bytes::Bytes;
use polylogue_amqp::codec::{BasicProperties, ShortStr, Value};
use polylogue_amqp_model::json_of_arguments;
use polylogue_api::{LogView, StoredMessage};
use polylogue_record::envelope::Form;
use polylogue_record::kafka::NewRecord;
use polylogue_router::{Argument, Value as OwnedValue};
use std::borrow::Cow;

/// The header with the exchange.
pub(crate) const EXCHANGE: &str = "amqp.exchange";

/// Messages of queues as Kafka records: the routing key is the key, the body the value; properties and headers become headers.
#[derive(Clone, Copy, Debug, Default)]
pub struct MessagesAsRecords;

/// A header; its value is part of the message or a generated text.
type Header<'m> = (Cow<'m, [u8]>, Option<Cow<'m, [u8]>>);

fn text<'m>(value: impl ToString) -> Option<Cow<'m, [u8]>> {
    Some(Cow::Owned(value.to_string().into_bytes()))
}

/// Formats a header value: texts unchanged, numbers in decimal, tables and arrays as JSON, void as null.
fn shown<'m>(tag: u8, value: Value<'m>) -> Option<Cow<'m, [u8]>> {
    match value {
        Value::LongStr(bytes) | Value::ByteArray(bytes) => Some(Cow::Borrowed(bytes)),
        Value::Bool(v) => text(v),
        Value::F32(v) => text(v),
        Value::F64(v) => text(v),
        Value::Decimal(scale, v) => Some(Cow::Owned(decimal(scale, v).into_bytes())),
        Value::Timestamp(seconds) => text(seconds),
        Value::Array(raw) | Value::Table(raw) => {
            let value = OwnedValue::Nested(tag, Bytes::copy_from_slice(raw));
            let json = json_of_arguments(&[Argument { name: Bytes::new(), tag, value }]);
            text(json.get("")?)
        }
        Value::Void => None,
        integer => integer.as_i64().and_then(text),
    }
}

/// A number with `scale` decimal places.
fn decimal(scale: u8, value: i32) -> String {
    let scale = usize::from(scale);
    let digits = format!("{:0>width$}", value.unsigned_abs(), width = scale + 1);
    let (whole, part) = digits.split_at(digits.len() - scale);
    let sign = if value < 0 { "-" } else { "" };
    if part.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{part}") }
}

fn add_properties<'m>(properties: &'m BasicProperties, headers: &mut Vec<Header<'m>>) {
    let BasicProperties { delivery_mode, priority, timestamp, .. } = properties;
    let texts: [(&str, &Option<ShortStr>); 10] = [
        ("amqp.content-type", &properties.content_type),
        ("amqp.content-encoding", &properties.content_encoding),
        ("amqp.correlation-id", &properties.correlation_id),
        ("amqp.reply-to", &properties.reply_to),
        ("amqp.expiration", &properties.expiration),
        ("amqp.message-id", &properties.message_id),
        ("amqp.type", &properties.kind),
        ("amqp.user-id", &properties.user_id),
        ("amqp.app-id", &properties.app_id),
        ("amqp.cluster-id", &properties.cluster_id),
    ];
    let name = |name: &'static str| Cow::Borrowed(name.as_bytes());
    for (property, value) in texts {
        headers.extend(value.as_ref().map(|value| (name(property), Some(Cow::Borrowed(value.as_ref())))));
    }
    headers.extend(delivery_mode.map(|mode| (name("amqp.delivery-mode"), text(mode))));
    headers.extend(priority.map(|priority| (name("amqp.priority"), text(priority))));
    headers.extend(timestamp.map(|seconds| (name("amqp.timestamp"), text(seconds))));
}

impl LogView for MessagesAsRecords {
    fn record(&self, message: StoredMessage<'_>, put: &mut dyn FnMut(&NewRecord<'_>)) {
        let Some(stored) = Some(message.bytes).filter(|_| message.form == Form::AmqpMessage).and_then(open) else {
            return;
        };
        let Stored { exchange, routing_key, properties, body, .. } = stored;
        // They were validated when the message was published.
        let properties = BasicProperties::decode(&properties).unwrap_or_default();
        let mut headers: Vec<Header<'_>> = vec![(Cow::Borrowed(EXCHANGE.as_bytes()), Some(Cow::Borrowed(&exchange)))];
        add_properties(&properties, &mut headers);
        let table = properties.headers.as_ref();
        let fields = table.into_iter().flat_map(|table| table.fields());
        headers.extend(fields.map(|field| (Cow::Borrowed(field.name), shown(field.tag, field.value))));
        let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_ref(), value.as_deref())).collect();
        put(&NewRecord {
            timestamp: message.timestamp,
            key: Some(&routing_key),
            value: Some(&body),
            headers: &headers,
        });
    }

    fn body_bytes(&self, form: Form, bytes: &[u8]) -> Option<usize> {
        if form == Form::AmqpMessage { body_len(bytes) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::store;
    use polylogue_amqp::codec::TableBuilder;

    type Shown = (Vec<u8>, Vec<u8>, i64, Vec<(String, Option<String>)>);

    fn record_of(form: Form, bytes: &Bytes) -> Option<Shown> {
        let mut shown = None;
        MessagesAsRecords.record(StoredMessage { form, timestamp: 1_234, bytes }, &mut |record| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let headers = record.headers.iter().map(|(name, value)| (text(name), value.map(text))).collect();
            let [key, value] = [record.key, record.value].map(|part| part.expect("a key and a value").to_vec());
            assert!(shown.replace((key, value, record.timestamp, headers)).is_none(), "once");
        });
        shown
    }

    #[test]
    fn each_property_and_header_is_mapped() {
        let nested = TableBuilder::new().with("n", Value::I32(1)).with_text("t", "x").build();
        let headers = TableBuilder::new()
            .with_text("text", "v")
            .with("bytes", Value::ByteArray(b"b"))
            .with("int", Value::I64(-5))
            .with("small", Value::U8(5))
            .with("bool", Value::Bool(true))
            .with("float", Value::F64(0.5))
            .with("decimal", Value::Decimal(2, -1))
            .with("time", Value::Timestamp(77))
            .with("nothing", Value::Void)
            .with("table", Value::Table(nested.raw()))
            .build();
        let basic = BasicProperties {
            content_type: Some("text/plain".into()),
            headers: Some(headers),
            delivery_mode: Some(2),
            priority: Some(3),
            timestamp: Some(99),
            kind: Some("order".into()),
            ..BasicProperties::default()
        };
        let stored = store(b"amq.topic", b"a.b", &basic.encode(), None, &crate::testing::body("hello"));
        let (key, value, timestamp, headers) = record_of(Form::AmqpMessage, &stored).expect("a record");
        assert_eq!((key, value, timestamp), (b"a.b".to_vec(), b"hello".to_vec(), 1_234));
        let expected = [
            ("amqp.exchange", Some("amq.topic")),
            ("amqp.content-type", Some("text/plain")),
            ("amqp.type", Some("order")),
            ("amqp.delivery-mode", Some("2")),
            ("amqp.priority", Some("3")),
            ("amqp.timestamp", Some("99")),
            ("text", Some("v")),
            ("bytes", Some("b")),
            ("int", Some("-5")),
            ("small", Some("5")),
            ("bool", Some("true")),
            ("float", Some("0.5")),
            ("decimal", Some("-0.01")),
            ("time", Some("77")),
            ("nothing", None),
            ("table", Some(r#"{"n":1,"t":"x"}"#)),
        ];
        let expected: Vec<_> =
            expected.iter().map(|(name, value)| ((*name).to_owned(), value.map(str::to_owned))).collect();
        assert_eq!(headers, expected);
    }

    #[test]
    fn invalid_messages_have_no_record() {
        assert_eq!(record_of(Form::AmqpMessage, &Bytes::from_static(b"x")), None);
        let stored = store(b"", b"q", b"\0\0", None, &crate::testing::body(""));
        assert_eq!(record_of(Form::KafkaV2, &stored), None);
        let (key, value, _, headers) = record_of(Form::AmqpMessage, &stored).expect("a record");
        assert_eq!((key, value), (b"q".to_vec(), Vec::new()));
        assert_eq!(headers, [("amqp.exchange".to_owned(), Some(String::new()))]);
    }
}
