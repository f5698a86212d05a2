//! The contract between a session and a broker: requests, replies and events.
//!
//! ```text
//!   session ── (token, Request) ──▶ broker          in the order of Session::poll_request
//!   session ◀── (token, Reply) ──── broker          once for each request that expects one
//!   session ◀── Event ───────────── broker          at any time, as said below
//! ```
//!
//! **Order.** The broker takes the requests of one channel in order: each sees the effects of those before it (a message published after a queue was
//! bound reaches it; a requeued message is available to the next get). Requests of different channels are not ordered. A channel with a request that
//! expects a reply sends no other request before the reply; only [`Request::Publish`], [`Request::CheckPublish`], [`Request::Settle`] and
//! [`Request::Qos`] expect none.
//!
//! **Life of a channel.** A [`ChannelRef`] is used once. It begins with [`Request::OpenChannel`] and ends with [`Request::CloseChannel`] or
//! [`Request::CloseConnection`], after which the broker sends no event that names it. The end of a channel ends its consumers and requeues all its
//! unsettled deliveries at their original positions, those that were not sent yet included. When the socket closes, the server sends the broker what
//! [`Request::CloseConnection`] would.
//!
//! **Refusals.** A request that expects a reply is refused with [`Reply::Refused`]; any other with [`Event::CloseChannel`], before the broker takes
//! the next request: what the client sent after it then has no effect. The session translates it into `channel.close` or `connection.close`,
//! depending on the code; for that channel only `CloseChannel` follows.
//!
//! **Publishing.** A message with a [`Publish::seq`] gets exactly one outcome: [`Event::Confirmed`] when it is durable in all queues it was routed
//! to, or was routed to none; [`Event::Rejected`] when a queue rejected it. A `mandatory` message that was routed to no queue is returned by
//! [`Event::Return`] before that. Outcomes arrive in any order; the session combines them into as few acknowledgements as it can.
//!
//! **Delivering.** The broker never has more unsettled deliveries than [`Consume::deliveries_max`] for a consumer that acknowledges, or than
//! [`Request::Qos`] for a channel, and delivers nothing while [`super::session::Session::may_deliver`] is false. A delivery is identified by its
//! [`Place`] until it is settled; for a consumer without acknowledgement delivery settles it. Deliveries of a consumer come after the reply to its
//! `Consume` and before the reply to its `Cancel`. Deliveries to a channel that no longer has the consumer are answered with [`Verdict::Requeue`].

use crate::codec::{MethodId, Properties, ShortStr, Table};
use crate::refusal::Refusal;
use bytes::Bytes;
use polylogue_types::Chunk;

/// One channel from its opening to its end: the number may be used again, the life is not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ChannelRef {
    /// Its number on the wire.
    pub number: u16,
    /// Incremented for each channel that the connection opens.
    pub life: u32,
}

/// One consumer; the number is never reused within a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConsumerRef(pub u32);

/// The consumer of deliveries from `basic.get`.
pub const NO_CONSUMER: ConsumerRef = ConsumerRef(0);

/// Identifies a delivery: numbers of the broker that the session returns unchanged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// Its queue.
    pub queue: u64,
    /// The position within the queue. Neighbouring messages should have consecutive numbers, so that they are settled as one range.
    pub at: u64,
}

/// How a client authenticates.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A name and a password.
    Password {
        /// The name.
        user: Bytes,
        /// The password. Never logged.
        password: Bytes,
    },
    /// The identity is that of the connection's TLS certificate.
    External,
    /// An anonymous user (RFC 4505).
    Anonymous,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Credentials::Password { user, .. } => write!(f, "Password({:?})", String::from_utf8_lossy(user)),
            Credentials::External => f.write_str("External"),
            Credentials::Anonymous => f.write_str("Anonymous"),
        }
    }
}

/// A message to publish.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Publish {
    /// Its sequence number among the publishes of the channel since `confirm.select`, from 1; `None` without confirms.
    pub seq: Option<u64>,
    /// The exchange; empty for the default one.
    pub exchange: ShortStr,
    /// The routing key. On the default exchange, one that begins with [`REPLY_PREFIX`] goes to a reply consumer.
    pub routing_key: ShortStr,
    /// Whether it is returned when it is routed to no queue.
    pub mandatory: bool,
    /// Flags and properties as they are delivered: validated, without the `BCC` header, with the reply address filled in.
    pub properties: Properties,
    /// Its TTL. Milliseconds.
    pub expiration_ms: Option<u64>,
    /// More routing keys, from the `CC` header.
    pub cc: Vec<Bytes>,
    /// More routing keys, from the `BCC` header, which is removed before delivery.
    pub bcc: Vec<Bytes>,
    /// The body.
    pub body: Body,
}

/// The body of a message, in the pieces of its frames.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// From one frame, or empty.
    One(Bytes),
    /// From several frames.
    Many(Vec<Bytes>),
}

impl Body {
    /// The total length. Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pieces().iter().map(Bytes::len).sum()
    }

    /// Whether the body is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces in their order.
    #[must_use]
    pub fn pieces(&self) -> &[Bytes] {
        match self {
            Body::One(piece) => std::slice::from_ref(piece),
            Body::Many(pieces) => pieces,
        }
    }
}

/// A queue to declare, or to check for (`passive`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeclareQueue {
    /// Its name without line breaks; generated by the session when the client left it empty. A name that starts with [`REPLY_PREFIX`] is only checked
    /// for: it exists while a channel with that reply address is open.
    pub name: ShortStr,
    /// Whether the server generated the name: some queue types refuse that.
    pub server_named: bool,
    /// Only checks that the queue exists.
    pub passive: bool,
    /// As declared. An exclusive queue is stored as not durable.
    pub durable: bool,
    /// Used by this connection only, and deleted with it.
    pub exclusive: bool,
    /// Deleted when its last consumer ends.
    pub auto_delete: bool,
    /// `x-...` arguments, unchanged.
    pub arguments: Table,
}

/// An exchange to declare, or to check for (`passive`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeclareExchange {
    /// Its name, without line breaks; never that of the default exchange. A new one must not begin with `amq.` ([`Refusal::reserved_name`]), an
    /// existing one may.
    pub name: ShortStr,
    /// Its type.
    pub kind: ShortStr,
    /// Only checks that the exchange exists.
    pub passive: bool,
    /// It survives a restart.
    pub durable: bool,
    /// Deleted with its last binding.
    pub auto_delete: bool,
    /// Clients cannot publish to it, only other exchanges.
    pub internal: bool,
    /// `alternate-exchange` and arguments of the exchange type, unchanged.
    pub arguments: Table,
}

/// A binding to add or to remove.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The source exchange; never the default one.
    pub source: ShortStr,
    /// The destination: an exchange or a queue of this name.
    pub destination: ShortStr,
    /// Whether the destination is an exchange.
    pub to_exchange: bool,
    /// The binding key.
    pub routing_key: ShortStr,
    /// Arguments of the exchange type, unchanged.
    pub arguments: Table,
}

/// A consumer to add.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Consume {
    /// Its id from now on.
    pub consumer: ConsumerRef,
    /// The queue.
    pub queue: ShortStr,
    /// The consumer tag, for listings.
    pub tag: ShortStr,
    /// Automatic acknowledgement: delivery settles.
    pub no_ack: bool,
    /// It must be the only consumer of the queue, or is refused.
    pub exclusive: bool,
    /// How many unsettled deliveries it may have: its prefetch, or what the session can remember. Ignored with automatic acknowledgement.
    pub deliveries_max: u32,
    /// The prefetch that the client set, 0 for none: some queue types require one.
    pub prefetch: u16,
    /// `x-...` arguments, unchanged.
    pub arguments: Table,
}

/// The outcome of a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Acknowledged.
    Ack,
    /// Rejected without requeueing: dead-lettered or dropped.
    Discard,
    /// Requeued, not counted as a failed attempt: by `basic.nack`, `basic.recover`, or at the end of a consumer.
    Requeue,
    /// Requeued and counted as a failed attempt: by `basic.reject`.
    RequeueFailed,
}

/// A range of deliveries to one consumer: all places from the first to the last were delivered to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The consumer whose unsettled count decreases; [`NO_CONSUMER`] for deliveries of `basic.get`.
    pub consumer: ConsumerRef,
    /// The first place.
    pub first: Place,
    /// How many, by ascending `at`. At least 1.
    pub count: u64,
}

/// A request of a session. Tokens of requests without a reply are not reused either.
#[derive(Debug)]
pub enum Request {
    /// Checks the client's credentials. Answered by [`Reply::Authenticated`] or a refusal, whose text goes only to the log.
    Authenticate(Credentials),
    /// Checks whether the client may use this virtual host. Answered by [`Reply::Done`].
    OpenVhost(ShortStr),
    /// Replaces the password or token of the authenticated user, who may lose rights by it. Answered by [`Reply::Done`], or by
    /// [`Reply::Authenticated`] when the new secret changes what the old one said of the user.
    UpdateSecret(Bytes),
    /// The connection ends: its channels end, its exclusive queues are deleted. Answered by [`Reply::Done`]. Sent once.
    CloseConnection,
    /// A channel begins. Answered by [`Reply::Done`].
    OpenChannel(ChannelRef),
    /// A channel ends. Answered by [`Reply::Done`] once its deliveries are requeued.
    CloseChannel(ChannelRef),
    /// Answered by [`Reply::Queue`].
    DeclareQueue(ChannelRef, DeclareQueue),
    /// Answered by [`Reply::Count`]: the messages that were in the queue; 0 when the queue does not exist.
    DeleteQueue {
        /// The channel of the request.
        channel: ChannelRef,
        /// Its name.
        queue: ShortStr,
        /// Only if the queue has no consumers ([`Refusal::in_use`]).
        if_unused: bool,
        /// Only if the queue is empty ([`Refusal::not_empty`]).
        if_empty: bool,
    },
    /// Deletes the ready messages. Answered by [`Reply::Count`].
    PurgeQueue(ChannelRef, ShortStr),
    /// Answered by [`Reply::Done`].
    DeclareExchange(ChannelRef, DeclareExchange),
    /// Answered by [`Reply::Done`], also when the exchange did not exist.
    DeleteExchange {
        /// The channel of the request.
        channel: ChannelRef,
        /// Its name; never that of a predeclared exchange.
        exchange: ShortStr,
        /// Only if the exchange has no bindings ([`Refusal::in_use`]).
        if_unused: bool,
    },
    /// Answered by [`Reply::Done`], also when the binding existed.
    Bind(ChannelRef, Binding),
    /// Answered by [`Reply::Done`], also when the binding did not exist.
    Unbind(ChannelRef, Binding),
    /// See "Publishing" in the module. No reply.
    Publish(ChannelRef, Publish),
    /// Checks a publish of an uncommitted transaction for permission; without its body. No reply.
    CheckPublish(ChannelRef, Publish),
    /// Settles deliveries. No reply.
    Settle {
        /// The channel that they were delivered on.
        channel: ChannelRef,
        /// Their outcome.
        verdict: Verdict,
        /// Which deliveries, in the order of delivery.
        runs: Vec<Run>,
    },
    /// The unsettled deliveries that all consumers of the channel together may have, 0 for no shared limit; those of `basic.get` do not count. No
    /// reply.
    Qos(ChannelRef, u16),
    /// Answered by [`Reply::Done`]; deliveries may follow.
    Consume(ChannelRef, Consume),
    /// No deliveries to this consumer follow the reply: [`Reply::Done`], also when it had already ended.
    Cancel(ChannelRef, ConsumerRef),
    /// One message, if there is one. Answered by [`Reply::Message`].
    Get {
        /// The channel of the request.
        channel: ChannelRef,
        /// The queue.
        queue: ShortStr,
        /// Automatic acknowledgement: delivery settles.
        no_ack: bool,
    },
    /// Registers the channel's reply consumer: the broker generates an unguessable address and answers with [`Reply::ReplyAddress`]. Messages to the
    /// address are delivered to this consumer, without acknowledgement.
    OpenReplies(ChannelRef, ConsumerRef),
    /// Removes the channel's reply consumer. No reply.
    CloseReplies(ChannelRef, ConsumerRef),
    /// Commits a transaction: all publishes, then all verdicts, in this order; atomic at least per queue. Answered by [`Reply::Done`] when all is
    /// durable, or refused ([`Refusal::partial_tx`], or the refusal of any of its publishes, which RabbitMQ sends at the publish). Messages are
    /// returned before the answer.
    Commit {
        /// The channel of the request.
        channel: ChannelRef,
        /// The publishes; without sequence numbers.
        publishes: Vec<Publish>,
        /// The verdicts.
        settled: Vec<(Verdict, Vec<Run>)>,
    },
}

/// The prefix of a reply queue's name in a routing key or a `reply_to`.
pub const REPLY_PREFIX: &str = "amq.rabbitmq.reply-to.";

/// The pseudo queue that a channel consumes replies from.
pub const REPLY_QUEUE: &str = "amq.rabbitmq.reply-to";

/// A message to deliver to a client.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Identifies it when it is settled.
    pub place: Place,
    /// It may have been delivered before.
    pub redelivered: bool,
    /// The exchange it was published to.
    pub exchange: ShortStr,
    /// The routing key it was published with.
    pub routing_key: ShortStr,
    /// Flags and properties in wire format.
    pub properties: Bytes,
    /// The body.
    pub payload: Payload,
}

/// The body of a message to send, in pieces.
#[derive(Clone, Debug)]
pub enum Payload {
    /// One piece.
    One(Chunk),
    /// Several.
    Many(Vec<Chunk>),
}

impl Payload {
    /// The total length. Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pieces().iter().map(Chunk::len).sum()
    }

    /// Whether the body is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces in their order.
    #[must_use]
    pub fn pieces(&self) -> &[Chunk] {
        match self {
            Payload::One(piece) => std::slice::from_ref(piece),
            Payload::Many(pieces) => pieces,
        }
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Payload {
        Payload::One(bytes.into())
    }
}

/// A reply of the broker.
#[derive(Debug)]
pub enum Reply {
    /// The request was carried out.
    Done,
    /// The request was refused.
    Refused(Refusal),
    /// To [`Request::Authenticate`], and to [`Request::UpdateSecret`].
    Authenticated {
        /// The user's name.
        user: Bytes,
        /// The user may set any `user_id` in messages.
        impersonator: bool,
    },
    /// To [`Request::DeclareQueue`].
    Queue {
        /// Its ready messages.
        messages: u32,
        /// Its consumers.
        consumers: u32,
    },
    /// To [`Request::DeleteQueue`] and [`Request::PurgeQueue`].
    Count(u32),
    /// To [`Request::Get`]: the message, and how many ready messages are left.
    Message(Option<Box<(Delivery, u32)>>),
    /// To [`Request::OpenReplies`]: the part after [`REPLY_PREFIX`]; at most 128 bytes of letters, digits, `.`, `-`, `_`.
    ReplyAddress(ShortStr),
}

/// An unsolicited event of the broker.
#[derive(Debug)]
pub enum Event {
    /// Messages for a consumer.
    Deliver {
        /// The consumer's channel.
        channel: ChannelRef,
        /// The consumer.
        consumer: ConsumerRef,
        /// The messages in their order.
        deliveries: Vec<Delivery>,
    },
    /// A mandatory message was routed to no queue.
    Return {
        /// The channel it was published on.
        channel: ChannelRef,
        /// The exchange it was published to.
        exchange: ShortStr,
        /// The routing key it was published with.
        routing_key: ShortStr,
        /// Flags and properties as published.
        properties: Bytes,
        /// The body.
        payload: Payload,
    },
    /// Publishes are confirmed: all sequence numbers from the first to the last are durable.
    Confirmed {
        /// The channel they were published on.
        channel: ChannelRef,
        /// The lowest sequence number.
        first: u64,
        /// The highest sequence number.
        last: u64,
    },
    /// Publishes are rejected: none of the sequence numbers from the first to the last was taken.
    Rejected {
        /// The channel they were published on.
        channel: ChannelRef,
        /// The lowest sequence number.
        first: u64,
        /// The highest sequence number.
        last: u64,
    },
    /// The broker cancelled the consumer, because its queue was deleted or its permission was removed.
    Cancelled {
        /// The consumer's channel.
        channel: ChannelRef,
        /// The consumer.
        consumer: ConsumerRef,
    },
    /// Closes the channel: a publish or a verdict was refused, or an acknowledgement timed out.
    CloseChannel {
        /// The channel.
        channel: ChannelRef,
        /// The method to report: `basic.publish`, `basic.ack`, ..., [`MethodId::NONE`].
        method: MethodId,
        /// The reason.
        refusal: Refusal,
    },
    /// Closes the connection: the server shuts down, an operator closes it, or the user was deleted.
    CloseConnection(Refusal),
    /// A resource alarm blocks publishers. The reason as clients see it: `low on memory`. Sent to each connection when the alarm is raised, and to
    /// one that is opened during the alarm.
    Blocked(ShortStr),
    /// The resource alarm was cleared.
    Unblocked,
}
