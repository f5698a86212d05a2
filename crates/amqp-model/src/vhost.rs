//! Virtual hosts: a namespace with its defaults and limits.

use crate::json::Json;
use crate::queue_kind::QueueKind;
use bytestring::ByteString;
use polylogue_router::VhostId;
use serde_json::Value;

/// The virtual host that exists from the beginning.
pub const DEFAULT_VHOST: &str = "/";
/// The component of parameters that are limits of virtual hosts.
pub(crate) const VHOST_LIMITS: &str = "vhost-limits";

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vhost {
    /// Its id; never reused.
    pub id: VhostId,
    /// Its name.
    pub name: ByteString,
    /// A description for people.
    pub description: ByteString,
    /// Tags, in their order.
    pub tags: Vec<ByteString>,
    /// The type of queues that are declared without one, if the declaration is compatible with it.
    pub default_queue_type: Option<QueueKind>,
    /// Whether messages are copied to `amq.rabbitmq.trace`.
    pub tracing: bool,
    /// Other metadata: a JSON object, kept for export.
    pub metadata: Json,
    /// `max-connections`; `None` for no limit.
    pub connections_max: Option<u64>,
    /// `max-queues`; `None` for no limit.
    pub queues_max: Option<u64>,
}

/// The key of [`Vhost::metadata`] that protects a virtual host from deletion.
const PROTECTED: &str = "protected_from_deletion";

impl Vhost {
    /// Whether it is protected from deletion.
    #[must_use]
    pub fn is_protected(&self) -> bool {
        self.metadata.value().get(PROTECTED) == Some(&Value::Bool(true))
    }

    /// Returns the metadata with the protection set or removed.
    pub(crate) fn protected(&self, protected: bool) -> Json {
        let mut metadata = self.metadata.value();
        if let Value::Object(map) = &mut metadata {
            map.insert(PROTECTED.to_owned(), Value::Bool(protected));
        }
        Json::new(&metadata)
    }

    /// Returns new metadata; the protection is kept unless the new metadata sets it.
    pub(crate) fn with_metadata(&self, new: &Json) -> Json {
        let mut metadata = new.value();
        if let (Value::Object(map), Some(before)) = (&mut metadata, self.metadata.value().get(PROTECTED)) {
            map.entry(PROTECTED).or_insert_with(|| before.clone());
        }
        Json::new(&metadata)
    }
}

/// A limit of a virtual host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VhostLimit {
    /// `max-connections`
    Connections,
    /// `max-queues`
    Queues,
}

impl VhostLimit {
    /// Parses the name in the management API.
    #[must_use]
    pub fn named(name: &str) -> Option<VhostLimit> {
        match name {
            "max-connections" => Some(VhostLimit::Connections),
            "max-queues" => Some(VhostLimit::Queues),
            _ => None,
        }
    }
}

/// The predeclared exchanges of each virtual host: names, types, and whether they are internal. All are durable: clients redeclare them as such.
pub const PREDECLARED: [(&str, &str, bool); 6] = [
    ("amq.direct", "direct", false),
    ("amq.fanout", "fanout", false),
    ("amq.topic", "topic", false),
    ("amq.headers", "headers", false),
    ("amq.match", "headers", false),
    ("amq.rabbitmq.trace", "topic", true),
];
