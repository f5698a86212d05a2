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
    /// In the order in which they were made.
    pub vhosts: Vec<Vhost>,
}

/// A virtual host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Vhost {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// The type of queues that are declared without one: `classic`, `quorum` or `stream`.
    pub default_queue_type: String,
    /// How many queues it has.
    pub queues: u64,
}

/// `POST /vhosts`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewVhost {
    /// Its name.
    pub name: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The type of queues that are declared without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_queue_type: Option<String>,
}

/// `GET /vhosts/VHOST/queues`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Queues {
    /// By name.
    pub queues: Vec<Queue>,
    /// How many there are, those left out by `offset` and `limit` included.
    #[serde(default)]
    pub total: usize,
}

/// A queue.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// `classic`, `quorum` or `stream`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it outlives a restart.
    pub durable: bool,
    /// Whether it goes with its last consumer.
    pub auto_delete: bool,
    /// Whether it is one connection's alone.
    pub exclusive: bool,
    /// What it was declared with.
    pub arguments: Map<String, Value>,
    /// The topic as which it can be read without being disturbed, if there is one.
    #[serde(default)]
    pub topic: Option<String>,
    /// Messages that a consumer could have now.
    pub ready: u64,
    /// Messages that consumers have and did not settle.
    pub unsettled: u64,
    /// Messages that wait for their time.
    pub delayed: u64,
    /// Who consumes.
    pub consumers: u64,
}

/// `POST /vhosts/VHOST/queues`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewQueue {
    /// Its name.
    pub name: String,
    /// `classic`, `quorum` or `stream`; the virtual host's default without.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Whether it outlives a restart.
    #[serde(default = "yes")]
    pub durable: bool,
    /// Whether it goes with its last consumer.
    #[serde(default)]
    pub auto_delete: bool,
    /// `x-...` as with RabbitMQ.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub arguments: Map<String, Value>,
}

/// `POST /vhosts/VHOST/queues/NAME/get`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetMessages {
    /// How many at the most.
    pub count: u32,
    /// Whether they are gone then. Else they stay where they are, as delivered before.
    #[serde(default)]
    pub remove: bool,
}

/// What `get` answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Messages {
    /// In the order of the queue.
    pub messages: Vec<Message>,
}

/// A message.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Message {
    /// The exchange that it was published to.
    pub exchange: String,
    /// The key that it was published with.
    pub routing_key: String,
    /// Whether a consumer may have had it before.
    pub redelivered: bool,
    /// Its properties, `headers` among them; only those that it has.
    pub properties: Map<String, Value>,
    /// The body: as it is, or in base64.
    pub body: String,
    /// `text` or `base64`.
    pub encoding: String,
}

/// What `DELETE /vhosts/VHOST/queues/NAME/messages` answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Purged {
    /// Messages that were ready and are gone.
    pub purged: u64,
}

/// Where messages go: into a queue, or to an exchange.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveTo {
    /// The queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The exchange.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<String>,
    /// The key for the exchange; each message's own without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing_key: Option<String>,
}

/// `POST /vhosts/VHOST/queues/NAME/move`. One request moves a piece; to move a whole queue, the request is repeated.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveMessages {
    /// Where to; each back into the queue in which it died first without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<MoveTo>,
    /// How many at the most.
    pub limit: u32,
    /// Messages at the head that are passed over: those of which earlier requests said that they stay.
    #[serde(default)]
    pub skip: u32,
}

/// What `move` answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Moved {
    /// Messages that are safe in another queue, and gone from this one.
    pub moved: u64,
    /// Messages that stay, because they could not go there.
    pub stay: u64,
    /// Why, of the first one.
    pub why: Option<String>,
    /// Whether there was nothing more to be moved.
    pub done: bool,
}

/// `GET /vhosts/VHOST/exchanges`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Exchanges {
    /// By name; the default exchange, which has none, is not among them.
    pub exchanges: Vec<Exchange>,
}

/// An exchange.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Exchange {
    /// Its name.
    pub name: String,
    /// `direct`, `fanout`, `topic`, `headers`, ...
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it outlives a restart.
    pub durable: bool,
    /// Whether it goes with its last binding.
    pub auto_delete: bool,
    /// Whether only other exchanges publish to it.
    pub internal: bool,
    /// What it was declared with.
    pub arguments: Map<String, Value>,
}

/// `POST /vhosts/VHOST/exchanges`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewExchange {
    /// Its name.
    pub name: String,
    /// `direct`, `fanout`, `topic`, `headers`, ...
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it outlives a restart.
    #[serde(default = "yes")]
    pub durable: bool,
    /// Whether it goes with its last binding.
    #[serde(default)]
    pub auto_delete: bool,
    /// Whether only other exchanges publish to it.
    #[serde(default)]
    pub internal: bool,
    /// As with RabbitMQ.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub arguments: Map<String, Value>,
}

/// `GET /vhosts/VHOST/bindings`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Bindings {
    /// By source, destination and key; those of the default exchange are not among them.
    pub bindings: Vec<Binding>,
}

/// What a binding leads to.
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
    /// The exchange that messages come from.
    pub source: String,
    /// The queue or exchange that they go to.
    pub destination: String,
    /// Which of both.
    pub destination_type: DestinationType,
    /// The key.
    pub routing_key: String,
    /// What tells it from others with the same key.
    pub arguments: Map<String, Value>,
}

/// `POST /vhosts/VHOST/bindings` and `POST /vhosts/VHOST/bindings/delete`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewBinding {
    /// The exchange that messages come from.
    pub source: String,
    /// The queue or exchange that they go to.
    pub destination: String,
    /// Which of both.
    #[serde(default)]
    pub destination_type: DestinationType,
    /// The key.
    #[serde(default)]
    pub routing_key: String,
    /// What tells it from others with the same key.
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
    /// The exchange; without it the default one, whose keys are the names of queues.
    #[serde(default)]
    pub exchange: String,
    /// The key.
    #[serde(default)]
    pub routing_key: String,
    /// The body.
    #[serde(default)]
    pub body: String,
    /// What `body` is in: `text`, or `base64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// Whether it outlives a restart in a queue that does.
    #[serde(default = "yes")]
    pub persistent: bool,
    /// The type of the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// To which message it belongs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// Its own name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// The queue in which an answer is expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// Its headers.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub headers: Map<String, Value>,
}

/// What `POST /vhosts/VHOST/publish` answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Published {
    /// Whether it reached a queue.
    pub routed: bool,
}
