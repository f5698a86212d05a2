//! Rewriting of moved messages: destination, properties and headers.

use crate::links::{prepended, short, with_header};
use bytes::Bytes;
use polylogue_amqp::codec::{
    BasicDeliver, BasicProperties, BasicPublish, Properties, ShortStr, Table, TableBuilder, Value,
};
use polylogue_amqp_model::{Shovel, ShovelDestination, SourceOf};

/// Header with the shovels that a message passed.
const SHOVELLED: &str = "x-shovelled";
/// Header with the time of the last move. Seconds.
const SHOVELLED_TIMESTAMP: &str = "x-shovelled-timestamp";

/// The identity of this broker in `x-shovelled`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mover<'a> {
    pub(super) cluster_name: &'a str,
    pub(super) name: &'a str,
    pub(super) vhost: &'a str,
    pub(super) source_uri: &'a str,
    pub(super) destination_uri: &'a str,
}

/// The changes to each message.
#[derive(Debug)]
pub(super) struct Rewrite {
    exchange: Option<ShortStr>,
    key: Option<ShortStr>,
    /// Whether a message must be routed to a queue: with a destination queue, an unroutable message is an error.
    mandatory: bool,
    properties: Vec<(String, serde_json::Value)>,
    /// The entry that is prepended to `x-shovelled`.
    forward: Option<Table>,
    timestamp: bool,
}

/// Returns the entry for `x-shovelled`, in RabbitMQ's field order.
fn forward(shovel: &Shovel, mover: Mover<'_>) -> Table {
    let to = &shovel.destination;
    let from = match &shovel.source.of {
        SourceOf::Queue(queue) => vec![("src-queue", &**queue)],
        SourceOf::Exchange(exchange, key) => vec![("src-exchange", &**exchange), ("src-exchange-key", &**key)],
    };
    let dest = [("dest-exchange", &to.exchange), ("dest-exchange-key", &to.key), ("dest-queue", &to.queue)];
    let dest = dest.into_iter().filter_map(|(name, value)| Some((name, &**value.as_ref()?)));
    let who = [
        ("shovelled-by", mover.cluster_name),
        ("shovel-type", "dynamic"),
        ("shovel-name", mover.name),
        ("shovel-vhost", mover.vhost),
        ("src-uri", mover.source_uri),
        ("dest-uri", mover.destination_uri),
    ];
    let all = who.into_iter().chain(from).chain(dest);
    all.fold(TableBuilder::new(), |table, (name, value)| table.with_text(name, value)).build()
}

fn set(basic: &mut BasicProperties, name: &str, value: &serde_json::Value) {
    let text = || value.as_str().map(short);
    let octet = || value.as_u64().and_then(|number| u8::try_from(number).ok());
    match name {
        "content_type" => basic.content_type = text(),
        "content_encoding" => basic.content_encoding = text(),
        "delivery_mode" => basic.delivery_mode = octet(),
        "priority" => basic.priority = octet(),
        "correlation_id" => basic.correlation_id = text(),
        "reply_to" => basic.reply_to = text(),
        "expiration" => basic.expiration = text(),
        "message_id" => basic.message_id = text(),
        "timestamp" => basic.timestamp = value.as_u64(),
        "type" => basic.kind = text(),
        "user_id" => basic.user_id = text(),
        "app_id" => basic.app_id = text(),
        "cluster_id" => basic.cluster_id = text(),
        _ => {}
    }
}

impl Rewrite {
    pub(super) fn new(shovel: &Shovel, mover: Mover<'_>) -> Rewrite {
        let ShovelDestination { queue, exchange, key, add_forward_headers, add_timestamp_header, properties, .. } =
            &shovel.destination;
        let (exchange, key) = match queue {
            Some(queue) => (Some(ShortStr::EMPTY), Some(short(queue))),
            None => (exchange.as_deref().map(short), key.as_deref().map(short)),
        };
        Rewrite {
            exchange,
            key,
            mandatory: queue.is_some(),
            properties: properties.iter().map(|(name, value)| (name.to_string(), value.clone())).collect(),
            forward: add_forward_headers.then(|| forward(shovel, mover)),
            timestamp: *add_timestamp_header,
        }
    }

    /// Returns the publish method for a delivery.
    pub(super) fn publish(&self, deliver: &BasicDeliver) -> BasicPublish {
        BasicPublish {
            exchange: self.exchange.clone().unwrap_or_else(|| deliver.exchange.clone()),
            routing_key: self.key.clone().unwrap_or_else(|| deliver.routing_key.clone()),
            mandatory: self.mandatory,
            ..BasicPublish::default()
        }
    }

    /// Returns the encoded properties.
    pub(super) fn properties(&self, came: &Properties, now_seconds: u64) -> Bytes {
        let mut raw = came.raw().clone();
        if !self.properties.is_empty() {
            let mut basic = came.to_basic();
            self.properties.iter().for_each(|(name, value)| set(&mut basic, name, value));
            raw = basic.encode();
        }
        if let Some(entry) = &self.forward {
            raw = prepended(came, raw, SHOVELLED, entry);
        }
        if self.timestamp {
            raw = with_header(raw, SHOVELLED_TIMESTAMP, Value::I64(i64::try_from(now_seconds).unwrap_or(i64::MAX)));
        }
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rewrite(more: &[(&str, serde_json::Value)]) -> Rewrite {
        let mut value = json!({"src-uri": "amqp://u:p@a", "src-queue": "from", "dest-uri": "amqp://"});
        for (name, field) in more {
            value.as_object_mut().expect("an object").insert((*name).to_owned(), field.clone());
        }
        let mover =
            Mover { cluster_name: "here", name: "s", vhost: "/", source_uri: "amqp://a", destination_uri: "amqp://" };
        Rewrite::new(&Shovel::parse("s", &value).expect("a shovel"), mover)
    }

    fn delivered() -> BasicDeliver {
        BasicDeliver { exchange: "x".into(), routing_key: "k".into(), ..Default::default() }
    }

    #[test]
    fn a_message_goes_where_it_is_told_and_else_where_it_went() {
        for (more, exchange, key, mandatory) in [
            (vec![], "x", "k", false),
            (vec![("dest-queue", json!("q"))], "", "q", true),
            (vec![("dest-exchange", json!("y"))], "y", "k", false),
            (vec![("dest-exchange-key", json!("l"))], "x", "l", false),
            (vec![("dest-exchange", json!("y")), ("dest-exchange-key", json!("l"))], "y", "l", false),
        ] {
            let publish = rewrite(&more).publish(&delivered());
            let found = (publish.exchange.to_string(), publish.routing_key.to_string(), publish.mandatory);
            assert_eq!(found, (exchange.to_owned(), key.to_owned(), mandatory));
        }
    }

    #[test]
    fn what_nobody_wants_changed_stays_byte_for_byte() {
        let headers = TableBuilder::new().with("n", Value::U16(7)).build();
        let basic = BasicProperties { headers: Some(headers), delivery_mode: Some(2), ..Default::default() };
        let came = Properties::from(&basic);
        assert_eq!(&rewrite(&[]).properties(&came, 1), came.raw());
    }

    #[test]
    fn headers_say_where_a_message_has_been_the_last_one_first() {
        let one = rewrite(&[("dest-add-forward-headers", json!(true)), ("dest-add-timestamp-header", json!(true))]);
        let headers = TableBuilder::new().with_text("mine", "m").with(SHOVELLED, Value::Void).build();
        let came = Properties::from(&BasicProperties { headers: Some(headers), ..Default::default() });
        let once = Properties::new(one.properties(&came, 99)).expect("properties");
        let twice = Properties::new(one.properties(&once, 100)).expect("properties");
        let headers = twice.headers().expect("headers");
        assert_eq!(headers.get("mine").and_then(|mine| mine.as_longstr()), Some(&b"m"[..]));
        assert_eq!(headers.get(SHOVELLED_TIMESTAMP), Some(Value::I64(100)));
        let entries: Vec<_> = headers.get(SHOVELLED).expect("the array").elements().collect();
        assert_eq!(entries.len(), 2);
        let said: Vec<_> = entries[0]
            .1
            .fields()
            .map(|field| {
                format!(
                    "{}={}",
                    String::from_utf8_lossy(field.name),
                    String::from_utf8_lossy(field.value.as_longstr().unwrap_or(b"?"))
                )
            })
            .collect();
        let expected = [
            "shovelled-by=here",
            "shovel-type=dynamic",
            "shovel-name=s",
            "shovel-vhost=/",
            "src-uri=amqp://a",
            "dest-uri=amqp://",
            "src-queue=from",
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn properties_are_set_over_what_came() {
        let more = json!({"delivery_mode": 1, "content_type": "t", "timestamp": 5, "type": "y"});
        let came = BasicProperties { delivery_mode: Some(2), app_id: Some("a".into()), ..Default::default() };
        let raw = rewrite(&[("dest-publish-properties", more)]).properties(&Properties::from(&came), 1);
        let expected = BasicProperties {
            delivery_mode: Some(1),
            content_type: Some("t".into()),
            timestamp: Some(5),
            kind: Some("y".into()),
            app_id: Some("a".into()),
            ..Default::default()
        };
        assert_eq!(BasicProperties::decode(&raw), Ok(expected));
    }
}
