//! The dead-letter history of a message: `x-death` and related headers.
//!
//! The broker stores the history beside the message ([`Deaths::encode`]) and shows it as headers ([`Deaths::headers`]); an `x-death` header from a
//! publisher has no effect, as since RabbitMQ 4.0. There is one entry per queue and reason, the latest first. Its `time` is that of the first death,
//! in seconds; its keys are those of the first death, with CC and without BCC.
//!
//! ```text
//! history  u8 version = 1, death reference first (reason, queue, exchange), the same for the last one, u32 count, count times:
//!          bytes queue, u8 reason, bytes exchange, u32 count, count times bytes key; u64 count, u64 first time ms,
//!          u8 0, or u8 1 and u64 ms to live
//! reference  u8 reason, bytes queue, bytes exchange
//! reason     1 rejected, 2 expired, 3 maxlen, 4 delivery_limit
//! ```
//!
//! Source: RabbitMQ's `mc:record_death`, `mc:is_death_cycle` and `mc_amqpl:death_table`.

use crate::table::{encode_array, encode_table, long, text};
use bytes::Bytes;
use polylogue_router::{Argument, Value};
use polylogue_types::bin::{BinError, BinReader, BinWriter};

/// The most entries per message; the oldest are dropped. Bounded because each further queue on a message's way adds one.
pub const DEATHS_MAX: usize = 64;

const VERSION: u8 = 1;

/// Why a message was dead-lettered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// A consumer rejected it.
    Rejected,
    /// Its TTL has passed.
    Expired,
    /// The queue exceeded its length limit.
    MaxLen,
    /// It exceeded the delivery limit.
    DeliveryLimit,
}

impl Reason {
    /// The name in headers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Reason::Rejected => "rejected",
            Reason::Expired => "expired",
            Reason::MaxLen => "maxlen",
            Reason::DeliveryLimit => "delivery_limit",
        }
    }

    fn number(self) -> u8 {
        match self {
            Reason::Rejected => 1,
            Reason::Expired => 2,
            Reason::MaxLen => 3,
            Reason::DeliveryLimit => 4,
        }
    }

    fn of(number: u8) -> Result<Reason, BinError> {
        Ok(match number {
            1 => Reason::Rejected,
            2 => Reason::Expired,
            3 => Reason::MaxLen,
            4 => Reason::DeliveryLimit,
            _ => return Err(BinError { field: "reason of a death" }),
        })
    }
}

/// A new death.
#[derive(Clone, Copy, Debug)]
pub struct NewDeath<'a> {
    /// The reason.
    pub reason: Reason,
    /// The queue.
    pub queue: &'a [u8],
    /// The exchange that the message was published to.
    pub exchange: &'a [u8],
    /// Its routing keys: the routing key, then those of CC and BCC.
    pub routing_keys: &'a [&'a [u8]],
    /// The BCC keys, which must not be visible.
    pub bcc: &'a [&'a [u8]],
    /// Its `expiration`, which is removed: it does not apply in the next queue.
    pub ttl_ms: Option<u64>,
}

/// The deaths in one queue for one reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Death {
    /// The queue.
    pub queue: Bytes,
    /// The reason.
    pub reason: Reason,
    /// The exchange that it was published to at the first death.
    pub exchange: Bytes,
    /// Its routing keys at the first death.
    pub routing_keys: Vec<Bytes>,
    /// How many deaths.
    pub count: u64,
    /// When the first death was. Milliseconds since the Unix epoch.
    pub first_ms: u64,
    /// Its `expiration` at the first death. Milliseconds.
    pub ttl_ms: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Reference {
    reason: Reason,
    queue: Bytes,
    exchange: Bytes,
}

impl Reference {
    fn headers(&self, which: &str) -> [Argument; 3] {
        let one = |field: &str, value: &[u8]| Argument {
            value: Value::Bytes(Bytes::copy_from_slice(value)),
            ..text(&format!("x-{which}-death-{field}"), "")
        };
        [one("reason", self.reason.name().as_bytes()), one("queue", &self.queue), one("exchange", &self.exchange)]
    }
}

/// See the module. Has at least one death.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deaths {
    first: Reference,
    last: Reference,
    /// The latest first.
    entries: Vec<Death>,
}

impl Deaths {
    /// Adds a death to the history of a message, if it has one.
    #[must_use]
    pub fn after(history: Option<Deaths>, died: &NewDeath<'_>, now_ms: u64) -> Deaths {
        let copy = Bytes::copy_from_slice;
        let last = Reference { reason: died.reason, queue: copy(died.queue), exchange: copy(died.exchange) };
        let (first, mut entries) = match history {
            Some(history) => (history.first, history.entries),
            None => (last.clone(), Vec::new()),
        };
        let same = |entry: &Death| entry.queue == died.queue && entry.reason == died.reason;
        let entry = match entries.iter().position(same) {
            Some(at) => {
                let mut entry = entries.remove(at);
                entry.count = entry.count.saturating_add(1);
                entry
            }
            None => Death {
                queue: last.queue.clone(),
                reason: died.reason,
                exchange: last.exchange.clone(),
                routing_keys: visible(died),
                count: 1,
                first_ms: now_ms,
                ttl_ms: died.ttl_ms,
            },
        };
        entries.insert(0, entry);
        entries.truncate(DEATHS_MAX);
        Deaths { first, last, entries }
    }

    /// Returns the entries, the latest first.
    #[must_use]
    pub fn entries(&self) -> &[Death] {
        &self.entries
    }

    /// Whether a message that just died must be dropped instead of being published to this queue: it has been there before and was not rejected
    /// since, so it would cycle forever.
    #[must_use]
    pub fn is_cycle(&self, queue: &[u8]) -> bool {
        let Some(there) = self.entries.iter().position(|entry| entry.queue == queue) else { return false };
        self.entries.iter().take(there + 1).all(|entry| entry.reason != Reason::Rejected)
    }

    /// Returns a message's headers with its history, which replaces headers of these names; sorted by name, without duplicates, as RabbitMQ does for
    /// dead-lettered messages.
    #[must_use]
    pub fn headers(&self, headers: &[Argument]) -> Vec<Argument> {
        let own = [self.x_death()].into_iter().chain(self.first.headers("first")).chain(self.last.headers("last"));
        let mut all: Vec<Argument> = own.collect();
        for header in headers {
            if !all.iter().any(|own| own.name == header.name) {
                all.push(header.clone());
            }
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Returns the header `x-death`.
    #[must_use]
    pub fn x_death(&self) -> Argument {
        let tables: Vec<_> = self.entries.iter().map(|entry| (b'F', Value::Nested(b'F', entry.table()))).collect();
        Argument { name: Bytes::from_static(b"x-death"), tag: b'A', value: Value::Nested(b'A', encode_array(&tables)) }
    }

    /// Encodes the history for storage.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut w = BinWriter::new();
        w.u8(VERSION);
        for reference in [&self.first, &self.last] {
            w.u8(reference.reason.number()).bytes(&reference.queue).bytes(&reference.exchange);
        }
        w.u32(self.entries.len() as u32);
        for entry in &self.entries {
            w.bytes(&entry.queue).u8(entry.reason.number()).bytes(&entry.exchange);
            w.u32(entry.routing_keys.len() as u32);
            entry.routing_keys.iter().for_each(|key| _ = w.bytes(key));
            w.u64(entry.count).u64(entry.first_ms);
            match entry.ttl_ms {
                None => _ = w.u8(0),
                Some(ttl_ms) => _ = w.u8(1).u64(ttl_ms),
            }
        }
        Bytes::from(w.out)
    }

    /// Decodes [`Deaths::encode`].
    ///
    /// # Errors
    /// When the bytes are invalid.
    pub fn decode(bytes: &[u8]) -> Result<Deaths, BinError> {
        let mut r = BinReader::new(bytes);
        let field = "history of a message";
        if r.u8(field)? != VERSION {
            return Err(BinError { field });
        }
        let (first, last) = (decode_reference(&mut r)?, decode_reference(&mut r)?);
        let count = r.count(34, field)?;
        if count == 0 || count > DEATHS_MAX {
            return Err(BinError { field });
        }
        let entries = (0..count).map(|_| decode_entry(&mut r)).collect::<Result<_, _>>()?;
        r.end(field)?;
        Ok(Deaths { first, last, entries })
    }
}

fn decode_reference(r: &mut BinReader<'_>) -> Result<Reference, BinError> {
    let reason = Reason::of(r.u8("reason of a death")?)?;
    let queue = Bytes::copy_from_slice(r.bytes("queue of a death")?);
    Ok(Reference { reason, queue, exchange: Bytes::copy_from_slice(r.bytes("exchange of a death")?) })
}

fn decode_entry(r: &mut BinReader<'_>) -> Result<Death, BinError> {
    let copy = Bytes::copy_from_slice;
    let queue = copy(r.bytes("queue of a death")?);
    let reason = Reason::of(r.u8("reason of a death")?)?;
    let exchange = copy(r.bytes("exchange of a death")?);
    let keys = r.count(4, "keys of a death")?;
    let routing_keys = (0..keys).map(|_| r.bytes("key of a death").map(copy)).collect::<Result<_, _>>()?;
    let (count, first_ms) = (r.u64("count of deaths")?, r.u64("time of a death")?);
    let ttl_ms = if r.u8("time to live")? == 0 { None } else { Some(r.u64("time to live")?) };
    Ok(Death { queue, reason, exchange, routing_keys, count, first_ms, ttl_ms })
}

/// The routing keys without one occurrence of each BCC key.
fn visible(died: &NewDeath<'_>) -> Vec<Bytes> {
    let mut keys: Vec<&[u8]> = died.routing_keys.to_vec();
    for hidden in died.bcc {
        if let Some(at) = keys.iter().position(|key| key == hidden) {
            keys.remove(at);
        }
    }
    keys.into_iter().map(Bytes::copy_from_slice).collect()
}

impl Death {
    /// The table of one entry, with RabbitMQ's order of fields.
    fn table(&self) -> Bytes {
        let bytes = |name: &str, value: &Bytes| Argument { value: Value::Bytes(value.clone()), ..text(name, "") };
        let keys: Vec<_> = self.routing_keys.iter().map(|key| (b'S', Value::Bytes(key.clone()))).collect();
        let expiration = self.ttl_ms.map(|ttl_ms| text("original-expiration", &ttl_ms.to_string()));
        let fields = [
            long("count", i64::try_from(self.count).unwrap_or(i64::MAX)),
            text("reason", self.reason.name()),
            bytes("queue", &self.queue),
            Argument { tag: b'T', value: Value::Timestamp(self.first_ms / 1_000), ..text("time", "") },
            bytes("exchange", &self.exchange),
            Argument { tag: b'A', value: Value::Nested(b'A', encode_array(&keys)), ..text("routing-keys", "") },
        ];
        let fields: Vec<Argument> = expiration.into_iter().chain(fields).collect();
        encode_table(&fields)
    }
}
