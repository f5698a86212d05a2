//! An AMQP message in its stored format, and its `x-death` header, decoded independently.
//!
//! Shares no code with the writer of the format, and implements the rules of the history once more, so that the gateway's errors are not repeated
//! here.

use bytes::{BufMut, Bytes, BytesMut};
use polylogue_amqp::codec::{BasicProperties, Table, TableBuilder, Value};
use polylogue_api::DeadReason;

/// The form of a message that was never dead-lettered.
const PLAIN: u8 = 1;
/// The form of a message with broker-internal fields.
const WITH_HIDDEN: u8 = 2;
const PERSISTENT: u8 = 2;
/// A publisher's header, which must never change.
const OWN_HEADER: &str = "own";

/// An entry of `x-death`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) queue: String,
    pub(super) reason: String,
    pub(super) count: i64,
    /// Time of the first death there. Seconds since the Unix epoch.
    pub(super) time_s: u64,
    exchange: String,
    keys: Vec<String>,
}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Letter {
    exchange: String,
    key: String,
    pub(super) text: String,
    /// The latest entry first.
    pub(super) deaths: Vec<Entry>,
    /// Reason, queue and exchange of the first and of the last death.
    first: Option<[String; 3]>,
    last: Option<[String; 3]>,
}

/// Queue, reason and time of a death.
#[derive(Clone, Copy, Debug)]
pub(super) struct Death<'a> {
    pub(super) queue: &'a str,
    pub(super) reason: DeadReason,
    pub(super) time_s: u64,
}

/// Returns a message as stored by a publisher's session that sends it to a queue through the default exchange.
pub(super) fn new_letter(queue: &str, text: &str) -> Bytes {
    let headers = Some(TableBuilder::new().with_text(OWN_HEADER, text).build());
    let basic = BasicProperties { headers, delivery_mode: Some(PERSISTENT), ..BasicProperties::default() };
    let properties = basic.encode();
    let mut out = BytesMut::new();
    out.put_u8(PLAIN);
    out.put_u8(0);
    out.put_u8(queue.len() as u8);
    out.put_slice(queue.as_bytes());
    out.put_u32(properties.len() as u32);
    out.put_slice(&properties);
    out.put_slice(text.as_bytes());
    out.freeze()
}

/// Decodes a stored message.
pub(super) fn read_letter(stored: &Bytes) -> Result<Letter, String> {
    let mut left = stored.clone();
    let version = take(&mut left, 1)?;
    let exchange = short(&mut left)?;
    let key = short(&mut left)?;
    let properties = long(&mut left)?;
    match version.first() {
        Some(&PLAIN) => {}
        Some(&WITH_HIDDEN) => {
            let keys = take(&mut left, 2)?;
            if keys.iter().any(|byte| *byte != 0) {
                return Err("it has keys of BCC".into());
            }
            long(&mut left)?;
        }
        _ => return Err("another version".into()),
    }
    let text = text_of(&left);
    let basic = BasicProperties::decode(&properties).map_err(|e| e.to_string())?;
    if basic.delivery_mode != Some(PERSISTENT) || basic.expiration.is_some() {
        return Err(format!("other properties: {basic:?}"));
    }
    let headers = basic.headers.unwrap_or(Table::EMPTY);
    if headers.get(OWN_HEADER) != Some(Value::LongStr(text.as_bytes())) {
        return Err(format!("the publisher's header is gone: {headers:?}"));
    }
    let deaths = headers.get("x-death").into_iter().flat_map(|all| all.elements().collect::<Vec<_>>());
    let deaths = deaths.map(|(_, table)| entry(table)).collect::<Result<_, _>>()?;
    let (first, last) = (reference(&headers, "first"), reference(&headers, "last"));
    Ok(Letter { exchange, key, text, deaths, first, last })
}

fn take(left: &mut Bytes, len: usize) -> Result<Bytes, String> {
    if left.len() < len { Err("it is cut off".into()) } else { Ok(left.split_to(len)) }
}

fn short(left: &mut Bytes) -> Result<String, String> {
    let len = take(left, 1)?.first().copied().map_or(0, usize::from);
    Ok(text_of(&take(left, len)?))
}

fn long(left: &mut Bytes) -> Result<Bytes, String> {
    let len = take(left, 4)?.first_chunk().map_or(0, |len| u32::from_be_bytes(*len) as usize);
    take(left, len)
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn entry(table: Value<'_>) -> Result<Entry, String> {
    let field = |name: &str| table.fields().find(|field| field.name == name.as_bytes()).map(|field| field.value);
    let text = |name: &str| field(name).and_then(|value| value.as_longstr().map(text_of));
    let (Some(queue), Some(reason), Some(exchange)) = (text("queue"), text("reason"), text("exchange")) else {
        return Err(format!("an entry without a text: {table:?}"));
    };
    let (Some(Value::I64(count)), Some(Value::Timestamp(time_s))) = (field("count"), field("time")) else {
        return Err(format!("an entry without a number: {table:?}"));
    };
    let keys = field("routing-keys").into_iter().flat_map(|keys| keys.elements().collect::<Vec<_>>());
    let keys = keys.filter_map(|(_, key)| key.as_longstr().map(text_of)).collect();
    Ok(Entry { queue, reason, count, time_s, exchange, keys })
}

fn reference(headers: &Table, which: &str) -> Option<[String; 3]> {
    let field = |name: &str| Some(text_of(headers.get(&format!("x-{which}-death-{name}"))?.as_longstr()?));
    Some([field("reason")?, field("queue")?, field("exchange")?])
}

fn name(reason: DeadReason) -> &'static str {
    match reason {
        DeadReason::Rejected => "rejected",
        DeadReason::DeliveryLimit => "delivery_limit",
        DeadReason::Expired => "expired",
        DeadReason::MaxLength => "maxlen",
    }
}

impl Letter {
    /// Returns the message as it arrives in a queue through the default exchange after its death.
    pub(super) fn after(&self, death: Death<'_>, to: &str) -> Letter {
        let reason = name(death.reason);
        let last = [reason.to_owned(), death.queue.to_owned(), self.exchange.clone()];
        let mut deaths = self.deaths.clone();
        let known = deaths.iter().position(|entry| entry.queue == death.queue && entry.reason == reason);
        let mut entry = known.map_or_else(
            || Entry {
                queue: death.queue.to_owned(),
                reason: reason.to_owned(),
                count: 0,
                time_s: death.time_s,
                exchange: self.exchange.clone(),
                keys: vec![self.key.clone()],
            },
            |at| deaths.remove(at),
        );
        entry.count += 1;
        deaths.insert(0, entry);
        let first = self.first.clone().or_else(|| Some(last.clone()));
        Letter { exchange: String::new(), key: to.to_owned(), text: self.text.clone(), deaths, first, last: Some(last) }
    }

    /// Returns the number of deaths in a queue, and of those for this reason.
    pub(super) fn died_in(&self, queue: &str, reason: DeadReason) -> (i64, i64) {
        let here = || self.deaths.iter().filter(|entry| entry.queue == queue);
        let so = here().filter(|entry| entry.reason == name(reason));
        (here().map(|entry| entry.count).sum(), so.map(|entry| entry.count).sum())
    }
}
