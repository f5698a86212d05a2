//! The log records of the AMQP metadata, and the chunks of its checkpoint.
//!
//! ```text
//! record    u8 version = 1, u32 count, count times change, bytes record of the router (empty for none)
//! change    u8 tag, then
//!    1 virtual host           u32 id, text name, text description, texts tags, u8 default type of queues (0 none, else as below),
//!                             u8 tracing, text metadata, number max connections, number max queues
//!    2 virtual host removed   u32 id; with everything in it
//!    3 user                   text name, u8 hash function (1 MD5, 2 SHA-256, 3 SHA-512), bytes hash, texts tags,
//!                             number max connections, number max channels
//!    4 user removed           text name; with its permissions
//!    5 permission             u32 virtual host, text user, text configure, text write, text read
//!    6 permission removed     u32 virtual host, text user
//!    7 topic permission       u32 virtual host, text user, text exchange, text write, text read
//!    8 topic perm. removed    u32 virtual host, text user, text exchange
//!    9 parameter              u32 virtual host, text component, text name, text value
//!   10 parameter removed      u32 virtual host, text component, text name
//!   11 global parameter       text name, text value
//!   12 global param. removed  text name
//!   13 policy                 u32 virtual host, u8 operator, text name, text pattern, u8 apply-to, i64 priority, text definition
//!   14 policy removed         u32 virtual host, u8 operator, text name
//!   15 queue                  u64 id, u32 virtual host, text name, u8 type (1 classic, 2 quorum, 3 stream), u8 bits (1 durable,
//!                             2 auto-delete, 4 exclusive), u64 owner (0 when not exclusive), arguments, text user who declared it
//!   16 queue removed          u64 id, u8 cause
//!   17 restarted              nothing; removes everything that is not durable
//!   18 counters               u32 next virtual host, u64 next queue; in checkpoints only
//!   19 topic read             u64 exchange, u64 partition, u64 offset; partition 2^64 - 1: reading for the exchange has begun
//!   20 topic read removed     u64 exchange, u64 partition; those of a deleted exchange are removed without a change of their own
//!   21 user with credentials  as 3, then u8 count, count times bytes SCRAM credential (`polylogue_auth::ScramCredential`); 3 if there are none
//!   22 ACL                    bytes binding (`polylogue_auth::Acl`)
//!   23 ACL removed            bytes binding
//!   24 quotas                 bytes entity and limits (`polylogue_auth::QuotaEntity`, `QuotaLimits`)
//!   25 quotas removed         bytes entity
//!   26 parameter of a user    as 9, then text user who set it
//!   27 queue of a process     as 15, then u64 node, u64 boot: for a non-durable queue, if known
//!
//! text      u32 length, UTF-8        texts  u32 count, count times text        values, metadata and definitions are JSON
//! number    u8 0 for none, or u8 1 and u64
//! arguments u32 count, count times: bytes name, u8 letter, u8 kind of value, value
//!    0 nothing  1 bool u8  2 i64  3 f64 bits u64  4 decimal u8 and i32  5 seconds u64  6 bytes  7 u8 letter and bytes
//!
//! chunk     u8 version = 1, u32 count = 1, the change that sets it, u32 0         (as a record with this one change)
//!   id  u8 tag of that change, then its key: 1 u32 id | 3 text | 5 u32, text | 7 u32, text, text | 9 u32, text, text |
//!       11 text | 13 u32, u8, text | 15 u64 | 18 nothing | 19 u64, u64 | 22 bytes binding | 24 bytes entity
//!   id  'R' and a chunk id of the router: that chunk
//! ```

use crate::json::Json;
use crate::pattern::Pattern;
use crate::policy::{ApplyTo, Policy};
use crate::queue::{DeletionCause, Home, OwnerId, Queue};
use crate::queue_kind::QueueKind;
use crate::user::{Permission, TopicPermission, User};
use crate::vhost::Vhost;
use bytes::Bytes;
use bytestring::ByteString;
use polylogue_auth::{Acl, Hashing, PasswordHash, QuotaEntity, QuotaLimits, ScramCredential};
use polylogue_router::{ExchangeId, QueueId, VhostId, decode_arguments, encode_arguments};
use polylogue_types::bin::{BinError, BinReader, BinWriter};
use std::sync::Arc;

const VERSION: u8 = 1;
/// The first byte of the id of a router chunk.
pub(crate) const ROUTER_CHUNK: u8 = b'R';
/// Takes the place of a partition in [`Change::TopicRead`]: reading for the exchange has begun; a partition that is created later is read from
/// its beginning.
pub const READS_BEGUN: u64 = u64::MAX;

/// A change of the metadata.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Change {
    Vhost(Arc<Vhost>),
    VhostRemoved(VhostId),
    User(Arc<User>),
    UserRemoved(ByteString),
    Permission(VhostId, ByteString, Arc<Permission>),
    PermissionRemoved(VhostId, ByteString),
    Topic(VhostId, ByteString, ByteString, Arc<TopicPermission>),
    TopicRemoved(VhostId, ByteString, ByteString),
    /// With the user who set it, if known.
    Parameter(VhostId, ByteString, ByteString, Json, Option<ByteString>),
    ParameterRemoved(VhostId, ByteString, ByteString),
    Global(ByteString, Json),
    GlobalRemoved(ByteString),
    Policy(Arc<Policy>),
    PolicyRemoved(VhostId, bool, ByteString),
    Queue(Arc<Queue>),
    QueueRemoved(QueueId, DeletionCause),
    Restarted,
    Counters(u32, u64),
    TopicRead(ExchangeId, u64, u64),
    TopicReadRemoved(ExchangeId, u64),
    Acl(Arc<Acl>),
    AclRemoved(Arc<Acl>),
    Quotas(QuotaEntity, QuotaLimits),
    QuotasRemoved(QuotaEntity),
}

/// The key of a chunk. Ordered as in checkpoints.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Key {
    Vhost(VhostId),
    User(ByteString),
    Permission(VhostId, ByteString),
    Topic(VhostId, ByteString, ByteString),
    Parameter(VhostId, ByteString, ByteString),
    Global(ByteString),
    Policy(VhostId, bool, ByteString),
    Queue(QueueId),
    Counters,
    TopicRead(ExchangeId, u64),
    Acl(Arc<Acl>),
    Quotas(QuotaEntity),
}

impl Key {
    /// Returns the key that a change sets; `None` for a removal.
    pub(crate) fn set_by(change: &Change) -> Option<Key> {
        Some(match change {
            Change::Vhost(vhost) => Key::Vhost(vhost.id),
            Change::User(user) => Key::User(user.name.clone()),
            Change::Permission(vhost, user, _) => Key::Permission(*vhost, user.clone()),
            Change::Topic(vhost, user, exchange, _) => Key::Topic(*vhost, user.clone(), exchange.clone()),
            Change::Parameter(vhost, component, name, ..) => Key::Parameter(*vhost, component.clone(), name.clone()),
            Change::Global(name, _) => Key::Global(name.clone()),
            Change::Policy(policy) => Key::Policy(policy.vhost, policy.operator, policy.name.clone()),
            Change::Queue(queue) => Key::Queue(queue.id),
            Change::Counters(..) => Key::Counters,
            Change::TopicRead(exchange, partition, _) => Key::TopicRead(*exchange, *partition),
            Change::Acl(acl) => Key::Acl(acl.clone()),
            Change::Quotas(entity, _) => Key::Quotas(entity.clone()),
            _ => return None,
        })
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut w = BinWriter::new();
        match self {
            Key::Vhost(id) => w.u8(1).u32(id.0),
            Key::User(name) => w.u8(3).str(name),
            Key::Permission(vhost, user) => w.u8(5).u32(vhost.0).str(user),
            Key::Topic(vhost, user, exchange) => w.u8(7).u32(vhost.0).str(user).str(exchange),
            Key::Parameter(vhost, component, name) => w.u8(9).u32(vhost.0).str(component).str(name),
            Key::Global(name) => w.u8(11).str(name),
            Key::Policy(vhost, operator, name) => w.u8(13).u32(vhost.0).u8(u8::from(*operator)).str(name),
            Key::Queue(id) => w.u8(15).u64(id.0),
            Key::Counters => w.u8(18),
            Key::TopicRead(exchange, partition) => w.u8(19).u64(exchange.0).u64(*partition),
            Key::Acl(acl) => encode_acl(acl, w.u8(22)),
            Key::Quotas(entity) => encode_quotas(entity, None, w.u8(24)),
        };
        Bytes::from(w.out)
    }
}

/// Encodes a record.
pub(crate) fn encode(changes: &[Change], router: Option<&[u8]>) -> Bytes {
    let mut w = BinWriter::new();
    w.u8(VERSION).u32(changes.len() as u32);
    changes.iter().for_each(|change| encode_change(change, &mut w));
    w.bytes(router.unwrap_or_default());
    Bytes::from(w.out)
}

/// Decodes a record: its changes, and the router's part if any.
pub(crate) fn decode(record: &[u8]) -> Result<(Vec<Change>, Option<&[u8]>), BinError> {
    let mut r = BinReader::new(record);
    if r.u8("version")? != VERSION {
        return Err(BinError { field: "version" });
    }
    let count = r.count(1, "changes")?;
    let mut changes = Vec::new();
    for _ in 0..count {
        changes.push(decode_change(&mut r)?);
    }
    let router = r.bytes("record of the router")?;
    r.end("record of AMQP metadata")?;
    Ok((changes, (!router.is_empty()).then_some(router)))
}

fn encode_change(change: &Change, w: &mut BinWriter) {
    match change {
        Change::Vhost(vhost) => encode_vhost(vhost, w.u8(1)),
        Change::VhostRemoved(id) => _ = w.u8(2).u32(id.0),
        Change::User(user) if user.scram.is_empty() => encode_user(user, w.u8(3)),
        Change::User(user) => {
            encode_user(user, w.u8(21));
            // One per mechanism.
            w.u8(user.scram.len() as u8);
            for credential in &user.scram {
                let mut bytes = Vec::new();
                credential.encode(&mut bytes);
                w.bytes(&bytes);
            }
        }
        Change::UserRemoved(name) => _ = w.u8(4).str(name),
        Change::Permission(vhost, user, p) => {
            w.u8(5).u32(vhost.0).str(user).str(p.configure.text()).str(p.write.text()).str(p.read.text());
        }
        Change::PermissionRemoved(vhost, user) => _ = w.u8(6).u32(vhost.0).str(user),
        Change::Topic(vhost, user, exchange, p) => {
            w.u8(7).u32(vhost.0).str(user).str(exchange).str(p.write.text()).str(p.read.text());
        }
        Change::TopicRemoved(vhost, user, exchange) => _ = w.u8(8).u32(vhost.0).str(user).str(exchange),
        Change::Parameter(vhost, component, name, value, author) => {
            let kind = if author.is_some() { 26 } else { 9 };
            w.u8(kind).u32(vhost.0).str(component).str(name).str(value.text());
            author.iter().for_each(|author| _ = w.str(author));
        }
        Change::ParameterRemoved(vhost, component, name) => _ = w.u8(10).u32(vhost.0).str(component).str(name),
        Change::Global(name, value) => _ = w.u8(11).str(name).str(value.text()),
        Change::GlobalRemoved(name) => _ = w.u8(12).str(name),
        Change::Policy(policy) => encode_policy(policy, w.u8(13)),
        Change::PolicyRemoved(vhost, operator, name) => {
            w.u8(14).u32(vhost.0).u8(u8::from(*operator)).str(name);
        }
        Change::Queue(queue) if queue.home == Home::default() => encode_queue(queue, w.u8(15)),
        Change::Queue(queue) => {
            encode_queue(queue, w.u8(27));
            w.u64(queue.home.node).u64(queue.home.boot);
        }
        Change::QueueRemoved(id, gone) => _ = w.u8(16).u64(id.0).u8(gone_number(*gone)),
        Change::Restarted => _ = w.u8(17),
        Change::Counters(vhost, queue) => _ = w.u8(18).u32(*vhost).u64(*queue),
        Change::TopicRead(exchange, partition, offset) => {
            w.u8(19).u64(exchange.0).u64(*partition).u64(*offset);
        }
        Change::TopicReadRemoved(exchange, partition) => _ = w.u8(20).u64(exchange.0).u64(*partition),
        Change::Acl(acl) => _ = encode_acl(acl, w.u8(22)),
        Change::AclRemoved(acl) => _ = encode_acl(acl, w.u8(23)),
        Change::Quotas(entity, limits) => _ = encode_quotas(entity, Some(limits), w.u8(24)),
        Change::QuotasRemoved(entity) => _ = encode_quotas(entity, None, w.u8(25)),
    }
}

fn encode_acl<'w>(acl: &Acl, w: &'w mut BinWriter) -> &'w mut BinWriter {
    let mut bytes = Vec::new();
    acl.encode(&mut bytes);
    w.bytes(&bytes)
}

fn encode_quotas<'w>(entity: &QuotaEntity, limits: Option<&QuotaLimits>, w: &'w mut BinWriter) -> &'w mut BinWriter {
    let mut bytes = Vec::new();
    entity.encode(&mut bytes);
    limits.iter().for_each(|limits| limits.encode(&mut bytes));
    w.bytes(&bytes)
}

fn decode_quotas(r: &mut BinReader<'_>) -> Result<Change, BinError> {
    let corrupt = |_| BinError { field: "quotas" };
    let mut bytes = Bytes::copy_from_slice(r.bytes("quotas")?);
    let entity = QuotaEntity::decode(&mut bytes).map_err(corrupt)?;
    let limits = QuotaLimits::decode(&mut bytes).map_err(corrupt)?;
    let is_whole = bytes.is_empty() && !limits.is_empty();
    if is_whole { Ok(Change::Quotas(entity, limits)) } else { Err(BinError { field: "quotas" }) }
}

fn decode_quota_entity(r: &mut BinReader<'_>) -> Result<QuotaEntity, BinError> {
    let field = "entity of quotas";
    let mut bytes = Bytes::copy_from_slice(r.bytes(field)?);
    let entity = QuotaEntity::decode(&mut bytes).map_err(|_| BinError { field })?;
    if bytes.is_empty() { Ok(entity) } else { Err(BinError { field }) }
}

fn decode_acl(r: &mut BinReader<'_>) -> Result<Arc<Acl>, BinError> {
    let field = "ACL";
    let mut bytes = Bytes::copy_from_slice(r.bytes(field)?);
    let acl = Acl::decode(&mut bytes).map_err(|_| BinError { field })?;
    if bytes.is_empty() { Ok(Arc::new(acl)) } else { Err(BinError { field }) }
}

fn decode_change(r: &mut BinReader<'_>) -> Result<Change, BinError> {
    Ok(match r.u8("kind of change")? {
        1 => Change::Vhost(Arc::new(decode_vhost(r)?)),
        2 => Change::VhostRemoved(vhost_id(r)?),
        3 => Change::User(Arc::new(decode_user(r)?)),
        21 => {
            let mut user = decode_user(r)?;
            for _ in 0..r.u8("count of credentials")? {
                user.scram.push(decode_credential(r)?);
            }
            if !user.scram.is_sorted_by(|a, b| a.mechanism() < b.mechanism()) {
                return Err(BinError { field: "credentials" });
            }
            Change::User(Arc::new(user))
        }
        4 => Change::UserRemoved(text(r, "user")?),
        5 => {
            let (vhost, user) = (vhost_id(r)?, text(r, "user")?);
            let mut pattern =
                || Pattern::permission(text(r, "permission")?).map_err(|_| BinError { field: "permission" });
            let permission = Permission { configure: pattern()?, write: pattern()?, read: pattern()? };
            Change::Permission(vhost, user, Arc::new(permission))
        }
        6 => Change::PermissionRemoved(vhost_id(r)?, text(r, "user")?),
        7 => {
            let (vhost, user, exchange) = (vhost_id(r)?, text(r, "user")?, text(r, "exchange")?);
            let field = "topic permission";
            let mut pattern = || Pattern::topic(text(r, field)?).map_err(|_| BinError { field });
            let permission = TopicPermission { write: pattern()?, read: pattern()? };
            Change::Topic(vhost, user, exchange, Arc::new(permission))
        }
        8 => Change::TopicRemoved(vhost_id(r)?, text(r, "user")?, text(r, "exchange")?),
        kind @ (9 | 26) => {
            let (vhost, component, name) = (vhost_id(r)?, text(r, "component")?, text(r, "parameter")?);
            let value = json(r, "value of a parameter")?;
            let author = if kind == 26 { Some(text(r, "author of a parameter")?) } else { None };
            Change::Parameter(vhost, component, name, value, author)
        }
        10 => Change::ParameterRemoved(vhost_id(r)?, text(r, "component")?, text(r, "parameter")?),
        11 => Change::Global(text(r, "global parameter")?, json(r, "value of a global parameter")?),
        12 => Change::GlobalRemoved(text(r, "global parameter")?),
        13 => Change::Policy(Arc::new(decode_policy(r)?)),
        14 => Change::PolicyRemoved(vhost_id(r)?, r.u8("operator policy")? != 0, text(r, "policy")?),
        15 => Change::Queue(Arc::new(decode_queue(r)?)),
        27 => {
            let mut queue = decode_queue(r)?;
            queue.home = Home { node: r.u64("node of a queue")?, boot: r.u64("boot of a queue")? };
            queue.owner.iter_mut().for_each(|owner| owner.home = queue.home);
            Change::Queue(Arc::new(queue))
        }
        16 => Change::QueueRemoved(QueueId(r.u64("queue id")?), decode_gone(r)?),
        17 => Change::Restarted,
        18 => Change::Counters(r.u32("next virtual host")?, r.u64("next queue")?),
        19 => Change::TopicRead(exchange_id(r)?, r.u64("partition")?, r.u64("offset")?),
        20 => Change::TopicReadRemoved(exchange_id(r)?, r.u64("partition")?),
        22 => Change::Acl(decode_acl(r)?),
        23 => Change::AclRemoved(decode_acl(r)?),
        24 => decode_quotas(r)?,
        25 => Change::QuotasRemoved(decode_quota_entity(r)?),
        _ => return Err(BinError { field: "kind of change" }),
    })
}

fn text(r: &mut BinReader<'_>, field: &'static str) -> Result<ByteString, BinError> {
    Ok(ByteString::from(r.str(field)?))
}

fn json(r: &mut BinReader<'_>, field: &'static str) -> Result<Json, BinError> {
    Json::from_text(r.str(field)?).map_err(|_| BinError { field })
}

fn exchange_id(r: &mut BinReader<'_>) -> Result<ExchangeId, BinError> {
    Ok(ExchangeId(r.u64("exchange")?))
}

/// An id that can be incremented.
fn vhost_id(r: &mut BinReader<'_>) -> Result<VhostId, BinError> {
    let field = "virtual host";
    let id = r.u32(field)?;
    if id < u32::MAX { Ok(VhostId(id)) } else { Err(BinError { field }) }
}

fn encode_texts(texts: &[ByteString], w: &mut BinWriter) {
    w.u32(texts.len() as u32);
    texts.iter().for_each(|text| _ = w.str(text));
}

fn decode_texts(r: &mut BinReader<'_>, field: &'static str) -> Result<Vec<ByteString>, BinError> {
    let count = r.count(4, field)?;
    (0..count).map(|_| text(r, field)).collect()
}

fn encode_number(number: Option<u64>, w: &mut BinWriter) {
    match number {
        None => _ = w.u8(0),
        Some(number) => _ = w.u8(1).u64(number),
    }
}

fn decode_number(r: &mut BinReader<'_>, field: &'static str) -> Result<Option<u64>, BinError> {
    Ok(if r.u8(field)? == 0 { None } else { Some(r.u64(field)?) })
}

fn kind_number(kind: QueueKind) -> u8 {
    match kind {
        QueueKind::Classic => 1,
        QueueKind::Quorum => 2,
        QueueKind::Stream => 3,
    }
}

fn kind_of(number: u8) -> Result<QueueKind, BinError> {
    Ok(match number {
        1 => QueueKind::Classic,
        2 => QueueKind::Quorum,
        3 => QueueKind::Stream,
        _ => return Err(BinError { field: "type of a queue" }),
    })
}

fn gone_number(gone: DeletionCause) -> u8 {
    match gone {
        DeletionCause::Asked => 1,
        DeletionCause::AutoDelete => 2,
        DeletionCause::Expired => 3,
        DeletionCause::Owner => 4,
        DeletionCause::Restart => 5,
        DeletionCause::Vhost => 6,
    }
}

fn decode_gone(r: &mut BinReader<'_>) -> Result<DeletionCause, BinError> {
    let field = "cause of a queue's removal";
    Ok(match r.u8(field)? {
        1 => DeletionCause::Asked,
        2 => DeletionCause::AutoDelete,
        3 => DeletionCause::Expired,
        4 => DeletionCause::Owner,
        5 => DeletionCause::Restart,
        6 => DeletionCause::Vhost,
        _ => return Err(BinError { field }),
    })
}

fn encode_vhost(vhost: &Vhost, w: &mut BinWriter) {
    w.u32(vhost.id.0).str(&vhost.name).str(&vhost.description);
    encode_texts(&vhost.tags, w);
    w.u8(vhost.default_queue_type.map_or(0, kind_number)).u8(u8::from(vhost.tracing)).str(vhost.metadata.text());
    encode_number(vhost.connections_max, w);
    encode_number(vhost.queues_max, w);
}

fn decode_vhost(r: &mut BinReader<'_>) -> Result<Vhost, BinError> {
    let (id, name, description) = (vhost_id(r)?, text(r, "virtual host")?, text(r, "description")?);
    let tags = decode_texts(r, "tags")?;
    let default_queue_type = match r.u8("default type of queues")? {
        0 => None,
        number => Some(kind_of(number)?),
    };
    Ok(Vhost {
        id,
        name,
        description,
        tags,
        default_queue_type,
        tracing: r.u8("tracing")? != 0,
        metadata: json(r, "metadata")?,
        connections_max: decode_number(r, "limit of connections")?,
        queues_max: decode_number(r, "limit of queues")?,
    })
}

fn encode_user(user: &User, w: &mut BinWriter) {
    let function = match user.password.hashing {
        Hashing::Md5 => 1,
        Hashing::Sha256 => 2,
        Hashing::Sha512 => 3,
    };
    w.str(&user.name).u8(function).bytes(&user.password.bytes);
    encode_texts(&user.tags, w);
    encode_number(user.connections_max, w);
    encode_number(user.channels_max, w);
}

fn decode_user(r: &mut BinReader<'_>) -> Result<User, BinError> {
    let name = text(r, "user")?;
    let hashing = match r.u8("hash function")? {
        1 => Hashing::Md5,
        2 => Hashing::Sha256,
        3 => Hashing::Sha512,
        _ => return Err(BinError { field: "hash function" }),
    };
    let bytes = Bytes::copy_from_slice(r.bytes("password hash")?);
    Ok(User {
        name,
        password: PasswordHash { hashing, bytes },
        scram: Vec::new(),
        tags: decode_texts(r, "tags")?,
        connections_max: decode_number(r, "limit of connections")?,
        channels_max: decode_number(r, "limit of channels")?,
    })
}

fn decode_credential(r: &mut BinReader<'_>) -> Result<ScramCredential, BinError> {
    let field = "credential";
    let mut bytes = Bytes::copy_from_slice(r.bytes(field)?);
    let credential = ScramCredential::decode(&mut bytes).map_err(|_| BinError { field })?;
    if bytes.is_empty() { Ok(credential) } else { Err(BinError { field }) }
}

fn apply_to_number(apply_to: ApplyTo) -> u8 {
    match apply_to {
        ApplyTo::All => 1,
        ApplyTo::Queues => 2,
        ApplyTo::ClassicQueues => 3,
        ApplyTo::QuorumQueues => 4,
        ApplyTo::Streams => 5,
        ApplyTo::Exchanges => 6,
    }
}

fn encode_policy(policy: &Policy, w: &mut BinWriter) {
    w.u32(policy.vhost.0).u8(u8::from(policy.operator)).str(&policy.name).str(policy.pattern.text());
    w.u8(apply_to_number(policy.apply_to)).i64(policy.priority).str(policy.definition.text());
}

fn decode_policy(r: &mut BinReader<'_>) -> Result<Policy, BinError> {
    let (vhost, operator, name) = (vhost_id(r)?, r.u8("operator policy")? != 0, text(r, "policy")?);
    let field = "pattern of a policy";
    let pattern = Pattern::policy(text(r, field)?).map_err(|_| BinError { field })?;
    let apply_to = match r.u8("apply-to of a policy")? {
        1 => ApplyTo::All,
        2 => ApplyTo::Queues,
        3 => ApplyTo::ClassicQueues,
        4 => ApplyTo::QuorumQueues,
        5 => ApplyTo::Streams,
        6 => ApplyTo::Exchanges,
        _ => return Err(BinError { field: "apply-to of a policy" }),
    };
    let priority = r.i64("priority of a policy")?;
    let definition = json(r, "definition of a policy")?;
    Ok(Policy::build(vhost, operator, name, pattern, apply_to, priority, definition))
}

fn encode_queue(queue: &Queue, w: &mut BinWriter) {
    w.u64(queue.id.0).u32(queue.vhost.0).str(&queue.name).u8(kind_number(queue.kind));
    let bits = [queue.durable, queue.auto_delete, queue.owner.is_some()];
    w.u8(bits.iter().rev().fold(0, |bits, bit| bits << 1 | u8::from(*bit)));
    w.u64(queue.owner.map_or(0, |owner| owner.connection));
    encode_arguments(&queue.arguments, w);
    w.str(&queue.declared_by);
}

fn decode_queue(r: &mut BinReader<'_>) -> Result<Queue, BinError> {
    let field = "queue id";
    let id = r.u64(field)?;
    if id == u64::MAX {
        return Err(BinError { field });
    }
    let (vhost, name, kind) = (vhost_id(r)?, text(r, "queue")?, kind_of(r.u8("type of a queue")?)?);
    let bits = r.u8("bits of a queue")?;
    let owner = r.u64("owner of a queue")?;
    Ok(Queue {
        id: QueueId(id),
        vhost,
        name,
        kind,
        durable: bits & 1 != 0,
        home: Home::default(),
        auto_delete: bits & 2 != 0,
        owner: (bits & 4 != 0).then_some(OwnerId::local(owner)),
        arguments: decode_arguments(r)?,
        declared_by: text(r, "user who declared a queue")?,
    })
}
