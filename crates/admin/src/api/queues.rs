//! Virtual hosts, queues, exchanges and bindings.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

fn yes() -> bool {
    true
}

/// `GET /vhosts`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Vhosts {
    /// In the order of creation.
    pub vhosts: Vec<Vhost>,
}

/// A virtual host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Vhost {
    /// The virtual host's name.
    pub name: String,
    /// The description.
    pub description: String,
    /// The default queue type: `classic`, `quorum` or `stream`.
    pub default_queue_type: String,
    /// Number of queues.
    pub queues: u64,
}

/// `POST /vhosts`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewVhost {
    /// The virtual host's name.
    pub name: String,
    /// The description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The default queue type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_queue_type: Option<String>,
}

/// `GET /vhosts/VHOST/queues`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Queues {
    /// Sorted by name.
    pub queues: Vec<Queue>,
    /// Number of queues that match, before `offset` and `limit` are applied.
    #[serde(default)]
    pub total: usize,
}

/// A queue.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Queue {
    /// The queue's name.
    pub name: String,
    /// The queue type: `classic`, `quorum` or `stream`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether the queue survives a restart.
    pub durable: bool,
    /// Whether the queue is deleted with its last consumer.
    pub auto_delete: bool,
    /// Whether the queue is exclusive to one connection.
    pub exclusive: bool,
    /// The queue arguments.
    pub arguments: Map<String, Value>,
    /// The name of the topic as which Kafka clients read the queue, if there is one.
    #[serde(default)]
    pub topic: Option<String>,
    /// Ready messages.
    pub ready: u64,
    /// Delivered and unacknowledged messages.
    pub unsettled: u64,
    /// Delayed messages.
    pub delayed: u64,
    /// Number of consumers.
    pub consumers: u64,
}

/// `POST /vhosts/VHOST/queues`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewQueue {
    /// The queue's name.
    pub name: String,
    /// The queue type: `classic`, `quorum` or `stream`; the virtual host's default if not set.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Whether the queue survives a restart.
    #[serde(default = "yes")]
    pub durable: bool,
    /// Whether the queue is deleted with its last consumer.
    #[serde(default)]
    pub auto_delete: bool,
    /// The queue arguments (`x-...`), as in RabbitMQ.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub arguments: Map<String, Value>,
}

/// `POST /vhosts/VHOST/queues/NAME/get`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetMessages {
    /// Number of messages to get at most.
    pub count: u32,
    /// Whether the messages are acknowledged. If not, they are requeued in place, with their delivery counted.
    #[serde(default)]
    pub remove: bool,
}

/// Response to `get`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Messages {
    /// In the order of the queue.
    pub messages: Vec<Message>,
}

/// A message.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Message {
    /// The exchange that the message was published to.
    pub exchange: String,
    /// The routing key that it was published with.
    pub routing_key: String,
    /// Whether it may have been delivered before.
    pub redelivered: bool,
    /// The properties that are set, `headers` among them.
    pub properties: Map<String, Value>,
    /// The body, in the given encoding.
    pub body: String,
    /// `text` or `base64`.
    pub encoding: String,
}

/// Response to `DELETE /vhosts/VHOST/queues/NAME/messages`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Purged {
    /// Number of ready messages that were deleted.
    pub purged: u64,
}

/// The target of moved messages: a queue, or an exchange.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveTo {
    /// The queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The exchange.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<String>,
    /// The routing key for the exchange; each message's own if not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing_key: Option<String>,
}

/// `POST /vhosts/VHOST/queues/NAME/move`. One request moves a batch; repeat it to move a whole queue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveMessages {
    /// The target; if not set, each message goes back to the queue of its `x-first-death-queue` header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<MoveTo>,
    /// Number of messages to move at most.
    pub limit: u32,
    /// Messages to skip at the head: those that earlier requests reported as `stay`.
    #[serde(default)]
    pub skip: u32,
}

/// Response to `move`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Moved {
    /// Messages that were stored in another queue and removed from this one.
    pub moved: u64,
    /// Messages that could not be moved and stay in this queue.
    pub stay: u64,
    /// Why the first of them could not be moved.
    pub why: Option<String>,
    /// Whether no more messages are left to move.
    pub done: bool,
}

/// `GET /vhosts/VHOST/exchanges`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Exchanges {
    /// Sorted by name, without the default exchange.
    pub exchanges: Vec<Exchange>,
}

/// An exchange.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Exchange {
    /// The exchange's name.
    pub name: String,
    /// `direct`, `fanout`, `topic`, `headers`, ...
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether the exchange survives a restart.
    pub durable: bool,
    /// Whether the exchange is deleted with its last binding.
    pub auto_delete: bool,
    /// Whether the exchange is internal: clients cannot publish to it.
    pub internal: bool,
    /// The exchange arguments.
    pub arguments: Map<String, Value>,
}

/// `POST /vhosts/VHOST/exchanges`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewExchange {
    /// The exchange's name.
    pub name: String,
    /// `direct`, `fanout`, `topic`, `headers`, ...
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether the exchange survives a restart.
    #[serde(default = "yes")]
    pub durable: bool,
    /// Whether the exchange is deleted with its last binding.
    #[serde(default)]
    pub auto_delete: bool,
    /// Whether the exchange is internal: clients cannot publish to it.
    #[serde(default)]
    pub internal: bool,
    /// The exchange arguments, as in RabbitMQ.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub arguments: Map<String, Value>,
}

/// `GET /vhosts/VHOST/bindings`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Bindings {
    /// Sorted by source, destination and key, without those of the default exchange.
    pub bindings: Vec<Binding>,
}

/// The kind of a binding's destination.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DestinationType {
    /// A queue.
    #[default]
    Queue,
    /// An exchange.
    Exchange,
}

/// A binding.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Binding {
    /// The source exchange.
    pub source: String,
    /// The destination queue or exchange.
    pub destination: String,
    /// Whether the destination is a queue or an exchange.
    pub destination_type: DestinationType,
    /// The routing key.
    pub routing_key: String,
    /// The binding arguments; part of the binding's identity.
    pub arguments: Map<String, Value>,
}

/// `POST /vhosts/VHOST/bindings` and `POST /vhosts/VHOST/bindings/delete`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewBinding {
    /// The source exchange.
    pub source: String,
    /// The destination queue or exchange.
    pub destination: String,
    /// Whether the destination is a queue or an exchange.
    #[serde(default)]
    pub destination_type: DestinationType,
    /// The routing key.
    #[serde(default)]
    pub routing_key: String,
    /// The binding arguments; part of the binding's identity.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub arguments: Map<String, Value>,
}

impl From<NewBinding> for Binding {
    fn from(new: NewBinding) -> Binding {
        let NewBinding { source, destination, destination_type, routing_key, arguments } = new;
        Binding { source, destination, destination_type, routing_key, arguments }
    }
}

/// `POST /vhosts/VHOST/publish`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPublish {
    /// The exchange; the default exchange if not set, which routes by queue name.
    #[serde(default)]
    pub exchange: String,
    /// The routing key.
    #[serde(default)]
    pub routing_key: String,
    /// The body.
    #[serde(default)]
    pub body: String,
    /// The encoding of `body`: `text`, or `base64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// Whether the message is persistent.
    #[serde(default = "yes")]
    pub persistent: bool,
    /// The content type of the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The correlation id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The message id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// The queue for replies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// The headers.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub headers: Map<String, Value>,
}

/// Response to `POST /vhosts/VHOST/publish`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Published {
    /// Whether the message was routed to a queue.
    pub routed: bool,
}
