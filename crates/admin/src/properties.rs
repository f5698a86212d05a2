//! AMQP message properties as JSON.

use bytes::Bytes;
use polylogue_amqp::codec::BasicProperties;
use polylogue_amqp_model::{decode_table, json_of_arguments};
use serde_json::{Map, Value};

/// Converts properties to JSON; only those that are set.
#[must_use]
pub fn shown_properties(raw: &Bytes) -> Map<String, Value> {
    let basic = BasicProperties::decode(raw).unwrap_or_default();
    let mut map = Map::new();
    let texts = [
        ("content_type", basic.content_type),
        ("content_encoding", basic.content_encoding),
        ("correlation_id", basic.correlation_id),
        ("reply_to", basic.reply_to),
        ("expiration", basic.expiration),
        ("message_id", basic.message_id),
        ("type", basic.kind),
        ("user_id", basic.user_id),
        ("app_id", basic.app_id),
        ("cluster_id", basic.cluster_id),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            map.insert(name.to_owned(), Value::from(String::from_utf8_lossy(&text).into_owned()));
        }
    }
    let numbers = [
        ("delivery_mode", basic.delivery_mode.map(u64::from)),
        ("priority", basic.priority.map(u64::from)),
        ("timestamp", basic.timestamp),
    ];
    map.extend(numbers.into_iter().filter_map(|(name, number)| Some((name.to_owned(), Value::from(number?)))));
    if let Some(headers) = basic.headers {
        let fields = decode_table(headers.raw()).unwrap_or_default();
        map.insert("headers".to_owned(), json_of_arguments(&fields));
    }
    map
}
