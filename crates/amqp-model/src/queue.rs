//! Queues, and whether a declaration is equivalent to an existing queue.

use crate::arguments::{known, same};
use crate::error::{Code, Named, Refused};
use crate::queue_kind::QueueKind;
use crate::table::type_name;
use bytestring::ByteString;
use polylogue_router::{Argument, QueueId, Value, VhostId, lookup};

/// The prefix of names that clients may not declare.
pub const RESERVED_PREFIX: &str = "amq.";
/// The pseudo queue of direct reply-to; no queue name starts with it.
pub const REPLY_TO: &str = "amq.rabbitmq.reply-to";

/// A process of a node: non-durable queues are removed when their node restarts. All zeros if it is not recorded, as by single-node builds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Home {
    /// The node; 0 for none.
    pub node: u64,
    /// A number that differs for each start of the node.
    pub boot: u64,
}

impl Home {
    /// Whether non-durable objects of this process are to be removed, now that `started` has started.
    #[must_use]
    pub fn is_over(self, started: Home) -> bool {
        self != started && (self.node == started.node || self == Home::default())
    }
}

/// A connection as the owner of exclusive queues.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OwnerId {
    /// The process that it is connected to.
    pub home: Home,
    /// A number that is unique within the process; 0 for none.
    pub connection: u64,
}

impl OwnerId {
    /// No connection.
    pub const NONE: OwnerId = OwnerId::local(0);

    /// A connection with this number, of an unknown process.
    #[must_use]
    pub const fn local(connection: u64) -> OwnerId {
        OwnerId { home: Home { node: 0, boot: 0 }, connection }
    }
}

/// A queue.
#[derive(Clone, PartialEq, Debug)]
pub struct Queue {
    /// Its id; never reused.
    pub id: QueueId,
    /// Its virtual host.
    pub vhost: VhostId,
    /// Its name.
    pub name: ByteString,
    /// Its type.
    pub kind: QueueKind,
    /// Whether it survives a restart. An exclusive queue never does.
    pub durable: bool,
    /// The process that declared it, if it is not durable.
    pub home: Home,
    /// Whether it is deleted with its last consumer.
    pub auto_delete: bool,
    /// The connection that it is exclusive to.
    pub owner: Option<OwnerId>,
    /// Its arguments, unchanged, including an `x-queue-type` from the virtual host's default.
    pub arguments: Vec<Argument>,
    /// The user who declared it; empty for the broker.
    pub declared_by: ByteString,
}

/// Why a queue was deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeletionCause {
    /// By a request.
    Asked,
    /// Its last consumer ended (`auto_delete`).
    AutoDelete,
    /// It was unused for the time of its `expires`.
    Expired,
    /// The connection that it was exclusive to ended.
    Owner,
    /// The broker restarted, and it was not durable.
    Restart,
    /// Its virtual host was deleted.
    Vhost,
}

/// Checks that a connection may use a queue: it is not exclusive to another connection.
///
/// # Errors
/// 405 otherwise.
pub fn check_exclusive(queue: &Queue, caller: OwnerId, vhost: &str) -> Result<(), Refused> {
    if queue.owner.is_none_or(|owner| owner == caller) { Ok(()) } else { Err(locked(&queue.name, vhost)) }
}

fn locked(queue: &str, vhost: &str) -> Refused {
    let named = Named { kind: crate::error::Resource::Queue, name: queue, vhost };
    Refused::new(
        Code::ResourceLocked,
        format!(
            "cannot obtain exclusive access to locked {named}. It could be originally declared on another connection or \
             the exclusive property value does not match that of the original declaration."
        ),
    )
}

/// Checks that a declaration is equivalent to the existing queue: owner, durability, auto-delete, and the arguments that its type supports.
pub(crate) fn equivalent(
    queue: &Queue,
    owner: Option<OwnerId>,
    durable: bool,
    auto_delete: bool,
    arguments: &[Argument],
    vhost: &str,
) -> Result<(), Refused> {
    if queue.owner != owner {
        return Err(locked(&queue.name, vhost));
    }
    let named = Named { kind: crate::error::Resource::Queue, name: &queue.name, vhost };
    for (field, received, current) in
        [("durable", durable, queue.durable), ("auto_delete", auto_delete, queue.auto_delete)]
    {
        if received != current {
            return Err(inequivalent(field, &named, &format!("'{received}'"), &format!("'{current}'")));
        }
    }
    for name in known(queue.kind) {
        equivalent_argument(name, &queue.arguments, arguments, &named)?;
    }
    Ok(())
}

/// Checks that one argument is equivalent. If both are present, values are compared and types are not; a missing queue type is `classic`.
pub(crate) fn equivalent_argument(
    name: &str,
    current: &[Argument],
    received: &[Argument],
    named: &Named<'_>,
) -> Result<(), Refused> {
    let (current, received) = (lookup(current, name.as_bytes()), lookup(received, name.as_bytes()));
    let is_classic = |a: &Argument| name == "x-queue-type" && a.value.bytes().is_some_and(|v| &**v == b"classic");
    match (current, received) {
        (None, None) => Ok(()),
        (Some(current), Some(received)) if same(&current.value, &received.value) => Ok(()),
        (Some(only), None) | (None, Some(only)) if is_classic(only) => Ok(()),
        (Some(current), Some(received)) => {
            let quoted = |a: &Argument| format!("'{}'", shown(&a.value));
            Err(inequivalent(name, named, &quoted(received), &quoted(current)))
        }
        (current, received) => {
            let value = |a: Option<&Argument>| {
                let typed = |a: &Argument| format!("the value '{}' of type '{}'", shown(&a.value), type_name(a.tag));
                a.map_or_else(|| "none".to_owned(), typed)
            };
            Err(inequivalent(name, named, &value(received), &value(current)))
        }
    }
}

pub(crate) fn inequivalent(field: &str, named: &Named<'_>, received: &str, current: &str) -> Refused {
    Refused::precondition(format!(
        "inequivalent arg '{field}' for {named}: received {received} but current is {current}"
    ))
}

/// A value in refusal texts.
fn shown(value: &Value) -> String {
    match value {
        Value::Void => "undefined".to_owned(),
        Value::Bool(v) => v.to_string(),
        Value::Int(v) => v.to_string(),
        Value::Float(v) => format!("{v:?}"),
        Value::Decimal(digits, v) => format!("{{{digits},{v}}}"),
        Value::Timestamp(v) => v.to_string(),
        Value::Bytes(v) => String::from_utf8_lossy(v).into_owned(),
        Value::Nested(..) => crate::table::json_of_arguments(&[Argument {
            name: bytes::Bytes::from_static(b"v"),
            tag: b'F',
            value: value.clone(),
        }])
        .get("v")
        .map(ToString::to_string)
        .unwrap_or_default(),
    }
}
