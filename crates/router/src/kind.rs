//! Exchange types: the checks of their declarations and of their bindings.

use crate::error::RouterError;
use crate::ids::Destination;
use crate::value::{Argument, Value, lookup};
use bytes::Bytes;
use polylogue_types::bin::{BinError, BinReader, BinWriter};

/// The largest weight of a binding to a consistent-hash exchange.
pub const WEIGHT_MAX: u32 = 1 << 20;
/// Argument of a delayed exchange: the type that routes after the delay.
pub const DELAYED_TYPE: &[u8] = b"x-delayed-type";
/// Arguments of a consistent-hash exchange: the value to hash instead of the routing key.
pub const HASH_HEADER: &[u8] = b"hash-header";
/// See [`HASH_HEADER`].
pub const HASH_PROPERTY: &[u8] = b"hash-property";
/// The type of the exchanges that federation links create at their upstream.
pub const FEDERATION_UPSTREAM: &str = "x-federation-upstream";
/// Argument of such an exchange: the most links that a message may have passed, this one included.
pub const MAX_HOPS: &[u8] = b"x-max-hops";
/// Argument of such an exchange: the downstream cluster.
pub const DOWNSTREAM_NAME: &[u8] = b"x-downstream-name";
/// Argument of such an exchange: the downstream virtual host.
pub const DOWNSTREAM_VHOST: &[u8] = b"x-downstream-vhost";

/// A message property that a consistent-hash exchange can hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Property {
    /// `correlation_id`.
    CorrelationId,
    /// `message_id`.
    MessageId,
    /// `timestamp`.
    Timestamp,
}

/// The value that a consistent-hash exchange hashes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HashOn {
    /// The routing key (the first one of several).
    RoutingKey,
    /// A header. All messages without it have the same hash.
    Header(Bytes),
    /// A property. All messages without it have the same hash.
    Property(Property),
}

/// The downstream of a federation exchange, and the limit of hops.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Downstream {
    /// See [`MAX_HOPS`].
    pub hops_max: u32,
    /// See [`DOWNSTREAM_NAME`]; empty if not given.
    pub cluster: Bytes,
    /// See [`DOWNSTREAM_VHOST`]; empty if not given.
    pub vhost: Bytes,
}

impl Downstream {
    fn declared(arguments: &[Argument]) -> Result<Downstream, RouterError> {
        let bad = |problem| Err(RouterError::BadArgument { name: "x-max-hops", problem });
        let hops_max = match lookup(arguments, MAX_HOPS) {
            None => return bad("missing"),
            Some(Argument { tag: b'l', value: Value::Int(hops), .. }) => u32::try_from(*hops).unwrap_or(0),
            Some(_) => return bad("must be of type long"),
        };
        let text = |name| lookup(arguments, name).and_then(|a| a.value.bytes()).cloned().unwrap_or_default();
        Ok(Downstream { hops_max, cluster: text(DOWNSTREAM_NAME), vhost: text(DOWNSTREAM_VHOST) })
    }
}

/// The type of an exchange, which determines its routing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// To bindings whose key is the routing key.
    Direct,
    /// To all bindings.
    Fanout,
    /// To bindings whose pattern matches the routing key.
    Topic,
    /// To bindings whose arguments match the headers.
    Headers,
    /// To one destination, chosen by a hash; binding keys are weights.
    ConsistentHash(HashOn),
    /// To one of the bound queues, chosen at random.
    LocalRandom,
    /// To all bindings, unless the message has reached its limit of links, or has been at this link's downstream before.
    Federation(Downstream),
    /// Like another type, after the delay that the message requests.
    Delayed(Box<Kind>),
}

impl Kind {
    /// Parses a declared type: its name and the exchange's arguments.
    ///
    /// # Errors
    /// [`RouterError::UnknownKind`] and [`RouterError::BadArgument`].
    pub fn declared(name: &[u8], arguments: &[Argument]) -> Result<Kind, RouterError> {
        match name {
            b"x-delayed-message" => {
                let inner = lookup(arguments, DELAYED_TYPE).and_then(|argument| argument.value.bytes());
                match inner {
                    Some(inner) if *inner != name => Ok(Kind::Delayed(Box::new(Kind::plain(inner, arguments)?))),
                    _ => Err(RouterError::BadArgument {
                        name: "x-delayed-type",
                        problem: "must name an exchange type other than x-delayed-message",
                    }),
                }
            }
            name if name == FEDERATION_UPSTREAM.as_bytes() => Ok(Kind::Federation(Downstream::declared(arguments)?)),
            name => Kind::plain(name, arguments),
        }
    }

    fn plain(name: &[u8], arguments: &[Argument]) -> Result<Kind, RouterError> {
        Ok(match name {
            b"direct" => Kind::Direct,
            b"fanout" => Kind::Fanout,
            b"topic" => Kind::Topic,
            b"headers" => Kind::Headers,
            b"x-consistent-hash" => Kind::ConsistentHash(hash_on(arguments)?),
            b"x-local-random" => Kind::LocalRandom,
            _ => return Err(RouterError::UnknownKind(Bytes::copy_from_slice(name))),
        })
    }

    /// The name of the type.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Direct => "direct",
            Kind::Fanout => "fanout",
            Kind::Topic => "topic",
            Kind::Headers => "headers",
            Kind::ConsistentHash(_) => "x-consistent-hash",
            Kind::LocalRandom => "x-local-random",
            Kind::Federation(_) => FEDERATION_UPSTREAM,
            Kind::Delayed(_) => "x-delayed-message",
        }
    }

    /// The type that routes: for a delayed exchange, the inner one.
    #[must_use]
    pub fn routes_as(&self) -> &Kind {
        if let Kind::Delayed(inner) = self { inner } else { self }
    }

    /// Checks that a binding is valid for this type.
    ///
    /// # Errors
    /// [`RouterError::BadBinding`].
    pub fn check_binding(&self, to: Destination, key: &[u8], arguments: &[Argument]) -> Result<(), RouterError> {
        let bad = |problem| Err(RouterError::BadBinding { key: Bytes::copy_from_slice(key), problem });
        match self.routes_as() {
            Kind::ConsistentHash(_) if weight(key).is_none() => {
                bad("the key of a binding to a consistent-hash exchange is its weight: a number from 1 to 1048576")
            }
            Kind::LocalRandom if !key.is_empty() => bad("a binding to a local random exchange has no key"),
            Kind::LocalRandom if !matches!(to, Destination::Queue(_)) => {
                bad("a local random exchange leads to queues only")
            }
            Kind::Headers => match lookup(arguments, b"x-match").map(|a| a.value.bytes().map(|b| &**b)) {
                None | Some(Some(b"all" | b"any" | b"all-with-x" | b"any-with-x")) => Ok(()),
                Some(_) => bad("x-match must be one of all, any, all-with-x, any-with-x"),
            },
            _ => Ok(()),
        }
    }

    pub(crate) fn encode(&self, w: &mut BinWriter) {
        match self {
            Kind::Direct => w.u8(1),
            Kind::Fanout => w.u8(2),
            Kind::Topic => w.u8(3),
            Kind::Headers => w.u8(4),
            Kind::ConsistentHash(HashOn::RoutingKey) => w.u8(5).u8(0),
            Kind::ConsistentHash(HashOn::Header(name)) => w.u8(5).u8(1).bytes(name),
            Kind::ConsistentHash(HashOn::Property(Property::CorrelationId)) => w.u8(5).u8(2),
            Kind::ConsistentHash(HashOn::Property(Property::MessageId)) => w.u8(5).u8(3),
            Kind::ConsistentHash(HashOn::Property(Property::Timestamp)) => w.u8(5).u8(4),
            Kind::LocalRandom => w.u8(6),
            Kind::Federation(Downstream { hops_max, cluster, vhost }) => {
                w.u8(8).u32(*hops_max).bytes(cluster).bytes(vhost)
            }
            Kind::Delayed(inner) => {
                inner.encode(w.u8(7));
                w
            }
        };
    }

    pub(crate) fn decode(r: &mut BinReader<'_>) -> Result<Kind, BinError> {
        let bad = BinError { field: "exchange type" };
        match r.u8("exchange type")? {
            7 => match Kind::decode_plain(r.u8("exchange type")?, r)? {
                Some(inner) => Ok(Kind::Delayed(Box::new(inner))),
                None => Err(bad),
            },
            8 => {
                let hops_max = r.u32("links at the most")?;
                let cluster = Bytes::copy_from_slice(r.bytes("cluster")?);
                Ok(Kind::Federation(Downstream { hops_max, cluster, vhost: Bytes::copy_from_slice(r.bytes("vhost")?) }))
            }
            tag => Kind::decode_plain(tag, r)?.ok_or(bad),
        }
    }

    fn decode_plain(tag: u8, r: &mut BinReader<'_>) -> Result<Option<Kind>, BinError> {
        Ok(Some(match tag {
            1 => Kind::Direct,
            2 => Kind::Fanout,
            3 => Kind::Topic,
            4 => Kind::Headers,
            5 => Kind::ConsistentHash(match r.u8("what is hashed")? {
                0 => HashOn::RoutingKey,
                1 => HashOn::Header(Bytes::copy_from_slice(r.bytes("header that is hashed")?)),
                2 => HashOn::Property(Property::CorrelationId),
                3 => HashOn::Property(Property::MessageId),
                4 => HashOn::Property(Property::Timestamp),
                _ => return Err(BinError { field: "what is hashed" }),
            }),
            6 => Kind::LocalRandom,
            _ => return Ok(None),
        }))
    }
}

fn hash_on(arguments: &[Argument]) -> Result<HashOn, RouterError> {
    let bad = |name, problem| Err(RouterError::BadArgument { name, problem });
    match (lookup(arguments, HASH_HEADER), lookup(arguments, HASH_PROPERTY)) {
        (None, None) => Ok(HashOn::RoutingKey),
        (Some(_), Some(_)) => bad("hash-header", "and hash-property are mutually exclusive"),
        (Some(header), None) => match header.value.bytes() {
            Some(name) => Ok(HashOn::Header(name.clone())),
            None => bad("hash-header", "must be text"),
        },
        (None, Some(property)) => Ok(HashOn::Property(match property.value.bytes().map(|b| &**b) {
            Some(b"correlation_id") => Property::CorrelationId,
            Some(b"message_id") => Property::MessageId,
            Some(b"timestamp") => Property::Timestamp,
            _ => return bad("hash-property", "must be one of correlation_id, message_id, timestamp"),
        })),
    }
}

/// Parses the weight in a binding key of a consistent-hash exchange.
pub(crate) fn weight(key: &[u8]) -> Option<u32> {
    let weight: u32 = std::str::from_utf8(key).ok()?.parse().ok()?;
    (1..=WEIGHT_MAX).contains(&weight).then_some(weight)
}
