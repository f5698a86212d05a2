//! Queues as declared, and when a declaration is of the queue that is there.

use crate::arguments::{known, same};
use crate::error::{Code, Named, Refused};
use crate::queue_kind::QueueKind;
use crate::table::type_name;
use bytestring::ByteString;
use polylogue_router::{Argument, QueueId, Value, VhostId, lookup};

/// The names that a client cannot give: they begin like this.
pub const RESERVED_PREFIX: &str = "amq.";
/// The pseudo queue of direct reply-to; no queue has a name that begins like this.
pub const REPLY_TO: &str = "amq.rabbitmq.reply-to";

/// A process of a node: what is not durable goes when its node starts anew. All zeros where it is not recorded, as by builds that knew one node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Home {
    /// The node; 0 for none.
    pub node: u64,
    /// A number that no other start of the node gets.
    pub boot: u64,
}

impl Home {
    /// Whether what was declared there is over, now that this process of a node has started.
    #[must_use]
    pub fn is_over(self, started: Home) -> bool {
        self != started && (self.node == started.node || self == Home::default())
    }
}

/// A connection, as far as it owns queues.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OwnerId {
    /// Where it is connected.
    pub home: Home,
    /// A number that no other connection there gets; 0 for none.
    pub connection: u64,
}

impl OwnerId {
    /// No connection.
    pub const NONE: OwnerId = OwnerId::local(0);

    /// A connection of that number, of a process that is not said.
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
    /// Whether it outlives a restart. An exclusive queue never does.
    pub durable: bool,
    /// Where it was declared, if it is not durable.
    pub home: Home,
    /// Whether it goes when its last consumer goes.
    pub auto_delete: bool,
    /// Whose it is alone.
    pub owner: Option<OwnerId>,
    /// Its arguments as they came, `x-queue-type` of a virtual host's default included.
    pub arguments: Vec<Argument>,
    /// Who declared it; empty for the broker.
    pub declared_by: ByteString,
}

/// Why a queue went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gone {
    /// It was told to.
    Asked,
    /// Its last consumer went.
    AutoDelete,
    /// Nobody used it for the time of its `expires`.
    Expired,
    /// The connection that it was exclusive to went.
    Owner,
    /// The broker was started anew, and it was not durable.
    Restart,
    /// Its virtual host went.
    Vhost,
}

/// That a connection may touch a queue: it is nobody's alone, or its own.
///
/// # Errors
/// 405
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

/// That a declaration is of the queue that is there: owner, durability, auto-delete, and those arguments that its type knows.
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

/// That one argument is what it was. Of two that are there values count and not their types; no type of a queue is `classic`.
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

/// A value as the texts show it.
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
