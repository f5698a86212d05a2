//! The log records of the router, and the chunks of its checkpoint.
//!
//! ```text
//! record    u8 version = 1, u32 count, count times: u8 tag, then
//!    1 virtual host added    u32 id
//!    2 virtual host removed  u32 id; with everything in it
//!    3 exchange declared     exchange
//!    4 exchange deleted      u64 id; with its bindings
//!    5 policy alternate      u64 exchange id, optional name
//!    6 queue added           queue
//!    7 queue removed         u64 id; with its bindings
//!    8 bound                 binding
//!    9 unbound               u64 id
//!   10 restarted             nothing; removes everything that is not durable
//!
//! exchange  u64 id, u32 virtual host, bytes name, type, u8 bits (1 durable, 2 auto-delete, 4 internal),
//!           optional alternate, optional alternate of a policy, arguments
//! type      u8 (1 direct, 2 fanout, 3 topic, 4 headers, 5 consistent hash, 6 local random, 7 delayed), then
//!   5       u8 what is hashed (0 key, 1 header and bytes its name, 2 correlation id, 3 message id, 4 timestamp)
//!   7       the type inside
//! queue     u64 id, u32 virtual host, bytes name, u8 durable
//! binding   u64 id, u64 source, u8 kind of destination (0 queue, 1 exchange), u64 destination, bytes key, arguments
//! arguments u32 count, count times: bytes name, u8 letter, u8 kind of value, value
//! optional  u8 0, or u8 1 and bytes
//!
//! chunks    u8 version = 1 before each value
//!   C                 u64 next exchange, u64 next binding
//!   V u32 id          nothing
//!   X u64 id          exchange
//!   Q u64 id          queue
//!   B u64 number      the bindings with ids from 64 * number on: u32 count, count times binding
//! ```
//!
//! A record holds the changes of one command (or one batch of commands): all of it is applied, or nothing. Consequences of a change (the bindings of
//! a removed queue, the auto-delete exchange that lost its last binding) are derived when it is applied. Ids in chunk names are big endian.

use crate::ids::{BindingId, Destination, ExchangeId, QueueId, VhostId};
use crate::kind::Kind;
use crate::objects::{Binding, Exchange, Queue};
use crate::value::{decode_arguments, encode_arguments};
use bytes::Bytes;
use polylogue_types::bin::{BinError, BinReader, BinWriter};
use std::sync::Arc;

const VERSION: u8 = 1;
/// Bindings per chunk, as a power of two: a checkpoint writes the chunks of changed bindings.
const CHUNK_BITS: u32 = 6;

/// A change of exchanges, queues or bindings.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Change {
    VhostAdded(VhostId),
    VhostRemoved(VhostId),
    ExchangeDeclared(Arc<Exchange>),
    ExchangeDeleted(ExchangeId),
    PolicyAlternate(ExchangeId, Option<Bytes>),
    QueueAdded(Arc<Queue>),
    QueueRemoved(QueueId),
    Bound(Arc<Binding>),
    Unbound(BindingId),
    Restarted,
}

pub(crate) fn encode(changes: &[Change]) -> Bytes {
    let mut w = BinWriter::new();
    w.u8(VERSION).u32(changes.len() as u32);
    for change in changes {
        match change {
            Change::VhostAdded(id) => _ = w.u8(1).u32(id.0),
            Change::VhostRemoved(id) => _ = w.u8(2).u32(id.0),
            Change::ExchangeDeclared(exchange) => encode_exchange(exchange, w.u8(3)),
            Change::ExchangeDeleted(id) => _ = w.u8(4).u64(id.0),
            Change::PolicyAlternate(id, name) => encode_optional(name.as_ref(), w.u8(5).u64(id.0)),
            Change::QueueAdded(queue) => encode_queue(queue, w.u8(6)),
            Change::QueueRemoved(id) => _ = w.u8(7).u64(id.0),
            Change::Bound(binding) => encode_binding(binding, w.u8(8)),
            Change::Unbound(id) => _ = w.u8(9).u64(id.0),
            Change::Restarted => _ = w.u8(10),
        }
    }
    Bytes::from(w.out)
}

pub(crate) fn decode(record: &[u8]) -> Result<Vec<Change>, BinError> {
    let mut r = BinReader::new(record);
    version(&mut r)?;
    let count = r.count(1, "changes")?;
    let mut changes = Vec::new();
    for _ in 0..count {
        changes.push(match r.u8("kind of change")? {
            1 => Change::VhostAdded(VhostId(r.u32("virtual host")?)),
            2 => Change::VhostRemoved(VhostId(r.u32("virtual host")?)),
            3 => Change::ExchangeDeclared(Arc::new(decode_exchange(&mut r)?)),
            4 => Change::ExchangeDeleted(ExchangeId(r.u64("exchange id")?)),
            5 => Change::PolicyAlternate(ExchangeId(r.u64("exchange id")?), decode_optional(&mut r)?),
            6 => Change::QueueAdded(Arc::new(decode_queue(&mut r)?)),
            7 => Change::QueueRemoved(QueueId(r.u64("queue id")?)),
            8 => Change::Bound(Arc::new(decode_binding(&mut r)?)),
            9 => Change::Unbound(BindingId(r.u64("binding id")?)),
            10 => Change::Restarted,
            _ => return Err(BinError { field: "kind of change" }),
        });
    }
    r.end("record of the router")?;
    Ok(changes)
}

fn version(r: &mut BinReader<'_>) -> Result<(), BinError> {
    let field = "version";
    if r.u8(field)? == VERSION { Ok(()) } else { Err(BinError { field }) }
}

fn encode_optional(value: Option<&Bytes>, w: &mut BinWriter) {
    match value {
        None => _ = w.u8(0),
        Some(value) => _ = w.u8(1).bytes(value),
    }
}

fn decode_optional(r: &mut BinReader<'_>) -> Result<Option<Bytes>, BinError> {
    Ok(match r.u8("optional name")? {
        0 => None,
        _ => Some(Bytes::copy_from_slice(r.bytes("optional name")?)),
    })
}

fn encode_exchange(exchange: &Exchange, w: &mut BinWriter) {
    w.u64(exchange.id.0).u32(exchange.vhost.0).bytes(&exchange.name);
    exchange.kind.encode(w);
    let bits = [exchange.durable, exchange.auto_delete, exchange.internal];
    w.u8(bits.iter().rev().fold(0, |bits, bit| bits << 1 | u8::from(*bit)));
    encode_optional(exchange.alternate.as_ref(), w);
    encode_optional(exchange.policy_alternate.as_ref(), w);
    encode_arguments(&exchange.arguments, w);
}

/// An id that can be incremented.
fn id(r: &mut BinReader<'_>, field: &'static str) -> Result<u64, BinError> {
    let id = r.u64(field)?;
    if id < u64::MAX { Ok(id) } else { Err(BinError { field }) }
}

fn decode_exchange(r: &mut BinReader<'_>) -> Result<Exchange, BinError> {
    let id = ExchangeId(id(r, "exchange id")?);
    let vhost = VhostId(r.u32("virtual host")?);
    let name = Bytes::copy_from_slice(r.bytes("exchange name")?);
    let kind = Kind::decode(r)?;
    let bits = r.u8("bits of an exchange")?;
    Ok(Exchange {
        id,
        vhost,
        name,
        kind,
        durable: bits & 1 != 0,
        auto_delete: bits & 2 != 0,
        internal: bits & 4 != 0,
        alternate: decode_optional(r)?,
        policy_alternate: decode_optional(r)?,
        arguments: decode_arguments(r)?,
    })
}

fn encode_queue(queue: &Queue, w: &mut BinWriter) {
    w.u64(queue.id.0).u32(queue.vhost.0).bytes(&queue.name).u8(u8::from(queue.durable));
}

fn decode_queue(r: &mut BinReader<'_>) -> Result<Queue, BinError> {
    Ok(Queue {
        id: QueueId(r.u64("queue id")?),
        vhost: VhostId(r.u32("virtual host")?),
        name: Bytes::copy_from_slice(r.bytes("queue name")?),
        durable: r.u8("queue durable")? != 0,
    })
}

fn encode_binding(binding: &Binding, w: &mut BinWriter) {
    w.u64(binding.id.0).u64(binding.source.0);
    match binding.destination {
        Destination::Queue(id) => w.u8(0).u64(id.0),
        Destination::Exchange(id) => w.u8(1).u64(id.0),
    };
    w.bytes(&binding.key);
    encode_arguments(&binding.arguments, w);
}

fn decode_binding(r: &mut BinReader<'_>) -> Result<Binding, BinError> {
    let id = BindingId(id(r, "binding id")?);
    let source = ExchangeId(r.u64("source of a binding")?);
    let kind = r.u8("kind of destination")?;
    let to = r.u64("destination of a binding")?;
    let destination = match kind {
        0 => Destination::Queue(QueueId(to)),
        1 => Destination::Exchange(ExchangeId(to)),
        _ => return Err(BinError { field: "kind of destination" }),
    };
    let key = Bytes::copy_from_slice(r.bytes("binding key")?);
    Ok(Binding { id, source, destination, key, arguments: decode_arguments(r)? })
}

/// The name of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum ChunkId {
    Counters,
    Vhost(VhostId),
    Exchange(ExchangeId),
    Queue(QueueId),
    Bindings(u64),
}

impl ChunkId {
    /// The chunk that contains a binding.
    pub(crate) fn of(binding: BindingId) -> ChunkId {
        ChunkId::Bindings(binding.0 >> CHUNK_BITS)
    }

    /// The ids of the bindings in the chunk of this number.
    pub(crate) fn bindings(number: u64) -> impl Iterator<Item = BindingId> {
        (0..1 << CHUNK_BITS).map(move |place| BindingId(number << CHUNK_BITS | place))
    }

    pub(crate) fn encode(self) -> Bytes {
        let (tag, number) = match self {
            ChunkId::Counters => return Bytes::from_static(b"C"),
            ChunkId::Vhost(id) => (b'V', u64::from(id.0)),
            ChunkId::Exchange(id) => (b'X', id.0),
            ChunkId::Queue(id) => (b'Q', id.0),
            ChunkId::Bindings(number) => (b'B', number),
        };
        let mut out = vec![tag];
        match self {
            ChunkId::Vhost(id) => out.extend_from_slice(&id.0.to_be_bytes()),
            _ => out.extend_from_slice(&number.to_be_bytes()),
        }
        Bytes::from(out)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<ChunkId> {
        let (tag, rest) = bytes.split_first()?;
        let number = || Some(u64::from_be_bytes(rest.try_into().ok()?));
        Some(match tag {
            b'C' if rest.is_empty() => ChunkId::Counters,
            b'V' => ChunkId::Vhost(VhostId(u32::from_be_bytes(rest.try_into().ok()?))),
            b'X' => ChunkId::Exchange(ExchangeId(number()?)),
            b'Q' => ChunkId::Queue(QueueId(number()?)),
            b'B' => ChunkId::Bindings(number()?),
            _ => return None,
        })
    }
}

/// The content of a chunk.
#[derive(Debug)]
pub(crate) enum Chunk {
    Counters { next_exchange: u64, next_binding: u64 },
    Vhost(VhostId),
    Exchange(Arc<Exchange>),
    Queue(Arc<Queue>),
    Bindings(Vec<Arc<Binding>>),
}

impl Chunk {
    pub(crate) fn encode(&self) -> Bytes {
        let mut w = BinWriter::new();
        w.u8(VERSION);
        match self {
            Chunk::Counters { next_exchange, next_binding } => _ = w.u64(*next_exchange).u64(*next_binding),
            Chunk::Vhost(_) => {}
            Chunk::Exchange(exchange) => encode_exchange(exchange, &mut w),
            Chunk::Queue(queue) => encode_queue(queue, &mut w),
            Chunk::Bindings(bindings) => {
                w.u32(bindings.len() as u32);
                bindings.iter().for_each(|binding| encode_binding(binding, &mut w));
            }
        }
        Bytes::from(w.out)
    }

    pub(crate) fn decode(id: ChunkId, bytes: &[u8]) -> Result<Chunk, BinError> {
        let mut r = BinReader::new(bytes);
        version(&mut r)?;
        let chunk = match id {
            ChunkId::Counters => {
                Chunk::Counters { next_exchange: r.u64("next exchange")?, next_binding: r.u64("next binding")? }
            }
            ChunkId::Vhost(id) => Chunk::Vhost(id),
            ChunkId::Exchange(_) => Chunk::Exchange(Arc::new(decode_exchange(&mut r)?)),
            ChunkId::Queue(_) => Chunk::Queue(Arc::new(decode_queue(&mut r)?)),
            ChunkId::Bindings(_) => {
                let count = r.count(33, "bindings")?;
                Chunk::Bindings((0..count).map(|_| Ok(Arc::new(decode_binding(&mut r)?))).collect::<Result<_, _>>()?)
            }
        };
        r.end("chunk of the router")?;
        Ok(chunk)
    }
}
