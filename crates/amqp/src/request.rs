//! What a session asks of the broker, and what it is told: the contract that a broker of AMQP is written against.
//!
//! ```text
//!   session ── (token, Request) ──▶ broker          in the order of Session::poll_request
//!   session ◀── (token, Reply) ──── broker          once for each request that wants one
//!   session ◀── Event ───────────── broker          when it likes, as said below
//! ```
//!
//! **Order.** The broker takes the requests of one channel in their order: each sees the effects of those before it (a
//! message published after a queue was bound reaches it; a message given back is there for the next get). Requests of
//! different channels have no order. A channel with a request that wants a reply sends nothing more until it has it; only
//! [`Request::Publish`], [`Request::CheckPublish`], [`Request::Settle`] and [`Request::Qos`] want none.
//!
//! **Life of a channel.** A [`ChannelRef`] is used once. It begins with [`Request::OpenChannel`] and ends with
//! [`Request::CloseChannel`] or [`Request::CloseConnection`], after which the broker sends no event that names it. Ending
//! it ends its consumers and gives everything that was delivered on it and not settled back to the queues, to the places it
//! had, deliveries on their way included. When the socket dies the server tells the broker what
//! [`Request::CloseConnection`] would.
//!
//! **Refusals.** A request that wants a reply is refused with [`Reply::Refused`]; one that does not, with
//! [`Event::CloseChannel`], before the broker takes the next request: what the client sent behind it has no effect then. The
//! session makes `channel.close` or `connection.close` of it, as the code says; of that channel only `CloseChannel` follows.
//!
//! **Publishing.** A message with a [`Publish::seq`] gets exactly one outcome: [`Event::Confirmed`] when it is durable in
//! all queues that it reached, or reached none; [`Event::Rejected`] when a queue did not take it. A message that is
//! `mandatory` and reached no queue comes back by [`Event::Return`] before that. Outcomes come in any order; the session
//! makes as few acknowledgements of them as it can.
//!
//! **Delivering.** The broker never has more deliveries unsettled than [`Consume::deliveries_max`] for a consumer that
//! acknowledges and than [`Request::Qos`] says for a channel, and makes none where [`super::session::Session::may_deliver`]
//! says no. A delivery is named by its [`Place`] until it is settled; a consumer without acknowledgement
//! settles by receiving. Deliveries of a consumer come after the reply to its `Consume` and before that to its `Cancel`.
//! Those that meet a channel without that consumer come back as [`Verdict::Requeue`].

use crate::codec::{MethodId, Properties, ShortStr, Table};
use crate::refusal::Refusal;
use bytes::Bytes;
use polylogue_types::Chunk;

/// One channel from its opening to its end: the number may come again, the life does not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ChannelRef {
    /// Its number on the wire.
    pub number: u16,
    /// Grows with each channel that the connection opens.
    pub life: u32,
}

/// One consumer; never used again in the same connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConsumerRef(pub u32);

/// What deliveries from `basic.get` belong to.
pub const NO_CONSUMER: ConsumerRef = ConsumerRef(0);

/// Where a delivery stands: the broker's own numbers, which the session only gives back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// Its queue.
    pub queue: u64,
    /// Which of the queue's. Neighbours in a queue should have neighbouring numbers: then ranges stay ranges.
    pub at: u64,
}

/// Who a client says that it is.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A name and a password.
    Password {
        /// The name.
        user: Bytes,
        /// The password. Never logged.
        password: Bytes,
    },
    /// Whatever the certificate of the connection says.
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

/// What is published.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Publish {
    /// Its number among the publishes of the channel since `confirm.select`, from 1; `None` when nobody waits.
    pub seq: Option<u64>,
    /// The exchange; empty for the default one.
    pub exchange: ShortStr,
    /// The routing key. On the default exchange, one that begins with [`REPLY_PREFIX`] goes to a reply consumer.
    pub routing_key: ShortStr,
    /// Whether it comes back when it reaches no queue.
    pub mandatory: bool,
    /// Flags and properties as they are to be delivered: looked through, the `BCC` header taken out, the reply address
    /// filled in.
    pub properties: Properties,
    /// How long it may wait. Milliseconds.
    pub expiration_ms: Option<u64>,
    /// More routing keys, from the `CC` header.
    pub cc: Vec<Bytes>,
    /// More routing keys, from the `BCC` header: nobody who receives the message learns of them.
    pub bcc: Vec<Bytes>,
    /// The body.
    pub body: Body,
}

/// The bytes of a message as they came, frame by frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// In one frame, or none.
    One(Bytes),
    /// In several.
    Many(Vec<Bytes>),
}

impl Body {
    /// All of it. Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pieces().iter().map(Bytes::len).sum()
    }

    /// Whether there is nothing.
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

/// A queue to declare, or to look for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeclareQueue {
    /// Its name: given out by the session when the client left it open, without line breaks. One that begins with
    /// [`REPLY_PREFIX`] is only looked for: it is there when a channel with that reply address is open.
    pub name: ShortStr,
    /// Whether the name was left open: some types of queues do not take that.
    pub server_named: bool,
    /// It is only looked for.
    pub passive: bool,
    /// As declared. A queue that is exclusive too is stored as not durable.
    pub durable: bool,
    /// Only for this connection, and deleted with it.
    pub exclusive: bool,
    /// Deleted after its last consumer.
    pub auto_delete: bool,
    /// `x-...`, as they came.
    pub arguments: Table,
}

/// An exchange to declare, or to look for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeclareExchange {
    /// Its name, without line breaks; never that of the default exchange. A new one must not begin with `amq.`
    /// ([`Refusal::reserved_name`]), an old one may.
    pub name: ShortStr,
    /// Its type.
    pub kind: ShortStr,
    /// It is only looked for.
    pub passive: bool,
    /// It outlives a restart.
    pub durable: bool,
    /// Deleted with its last binding.
    pub auto_delete: bool,
    /// Only other exchanges publish to it.
    pub internal: bool,
    /// `alternate-exchange` and what types know, as they came.
    pub arguments: Table,
}

/// A binding to add or to take away.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The exchange that messages come from; never the default one.
    pub source: ShortStr,
    /// Where they go: an exchange or a queue of this name.
    pub destination: ShortStr,
    /// Whether the destination is an exchange.
    pub to_exchange: bool,
    /// The key.
    pub routing_key: ShortStr,
    /// What types know, as they came.
    pub arguments: Table,
}

/// A consumer to add.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Consume {
    /// What it is called from now on.
    pub consumer: ConsumerRef,
    /// The queue.
    pub queue: ShortStr,
    /// What the client calls it: only for listings.
    pub tag: ShortStr,
    /// Deliveries are settled when they are made.
    pub no_ack: bool,
    /// Alone, or not at all.
    pub exclusive: bool,
    /// How many deliveries it may have unsettled: its prefetch, or what the session can remember. Does not
    /// count without acknowledgements.
    pub deliveries_max: u32,
    /// The prefetch as the client set it, 0 for none: some types of queues want one.
    pub prefetch: u16,
    /// `x-...`, as they came.
    pub arguments: Table,
}

/// What becomes of deliveries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Done with.
    Ack,
    /// Refused for good: dead-lettered, or dropped.
    Discard,
    /// Given back, and no failed attempt: by `basic.nack`, `basic.recover` or a consumer that is gone.
    Requeue,
    /// Given back after an attempt that failed: by `basic.reject`.
    RequeueFailed,
}

/// Neighbouring deliveries of one consumer: all places from the first to the last were delivered to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Whose unsettled deliveries become fewer; [`NO_CONSUMER`] for those of `basic.get`.
    pub consumer: ConsumerRef,
    /// The first.
    pub first: Place,
    /// How many, by rising `at`. At least 1.
    pub count: u64,
}

/// What a session asks for. Tokens of those without a reply are never used again either.
#[derive(Debug)]
pub enum Request {
    /// Is the client who it says? Answered by [`Reply::Authenticated`] or a refusal, whose text only the log sees.
    Authenticate(Credentials),
    /// May the client use this virtual host? Answered by [`Reply::Done`].
    OpenVhost(ShortStr),
    /// A new password or token of the user who is logged in, who may lose rights by it. Answered by [`Reply::Done`], or by
    /// [`Reply::Authenticated`] where it says something else of the user than the old one.
    UpdateSecret(Bytes),
    /// The connection is over: its channels end, its exclusive queues are deleted. Answered by [`Reply::Done`]. Sent once.
    CloseConnection,
    /// A channel begins. Answered by [`Reply::Done`].
    OpenChannel(ChannelRef),
    /// A channel ends. Answered by [`Reply::Done`] once what it had is back.
    CloseChannel(ChannelRef),
    /// Answered by [`Reply::Queue`].
    DeclareQueue(ChannelRef, DeclareQueue),
    /// Answered by [`Reply::Count`]: the messages that were in it. Nothing is deleted when it is not there: 0.
    DeleteQueue {
        /// Where it came.
        channel: ChannelRef,
        /// Its name.
        queue: ShortStr,
        /// Only if nobody consumes it ([`Refusal::in_use`]).
        if_unused: bool,
        /// Only if nothing is in it ([`Refusal::not_empty`]).
        if_empty: bool,
    },
    /// Takes away what is ready. Answered by [`Reply::Count`].
    PurgeQueue(ChannelRef, ShortStr),
    /// Answered by [`Reply::Done`].
    DeclareExchange(ChannelRef, DeclareExchange),
    /// Answered by [`Reply::Done`], when it was not there too.
    DeleteExchange {
        /// Where it came.
        channel: ChannelRef,
        /// Its name; never that of an exchange of the system.
        exchange: ShortStr,
        /// Only if it has no bindings ([`Refusal::in_use`]).
        if_unused: bool,
    },
    /// Answered by [`Reply::Done`], when it was there too.
    Bind(ChannelRef, Binding),
    /// Answered by [`Reply::Done`], when it was not there too.
    Unbind(ChannelRef, Binding),
    /// See the module. No reply.
    Publish(ChannelRef, Publish),
    /// May this be published? It is part of a transaction that is not committed yet; its body is left out. No reply.
    CheckPublish(ChannelRef, Publish),
    /// Deliveries are settled. No reply.
    Settle {
        /// Where they were made.
        channel: ChannelRef,
        /// What becomes of them.
        verdict: Verdict,
        /// Which, in the order in which they were made.
        runs: Vec<Run>,
    },
    /// How many deliveries all consumers of the channel together may have unsettled, 0 for as many as each may; those of
    /// `basic.get` do not count. No reply.
    Qos(ChannelRef, u16),
    /// Answered by [`Reply::Done`]; deliveries may follow.
    Consume(ChannelRef, Consume),
    /// No more deliveries to this consumer after the reply: [`Reply::Done`], when it was gone already too.
    Cancel(ChannelRef, ConsumerRef),
    /// One message, if there is one. Answered by [`Reply::Message`].
    Get {
        /// Where to.
        channel: ChannelRef,
        /// The queue.
        queue: ShortStr,
        /// It is settled by being delivered.
        no_ack: bool,
    },
    /// The channel takes replies: the broker makes up an address that nobody can guess and answers with
    /// [`Reply::ReplyAddress`]. Messages to it come as deliveries to this consumer, settled by being delivered.
    OpenReplies(ChannelRef, ConsumerRef),
    /// The channel takes no more replies. No reply to this either.
    CloseReplies(ChannelRef, ConsumerRef),
    /// A transaction: all publishes, then all verdicts, in this order; atomic a queue at least. Answered by
    /// [`Reply::Done`] when all is durable, or refused ([`Refusal::partial_tx`], or whatever one of the publishes alone would
    /// be refused with: RabbitMQ says that when it is published). Messages that come back do so before.
    Commit {
        /// Where it was.
        channel: ChannelRef,
        /// What was published; without numbers.
        publishes: Vec<Publish>,
        /// What was settled.
        settled: Vec<(Verdict, Vec<Run>)>,
    },
}

/// What the queue reply of a routing key or a `reply_to` begins with.
pub const REPLY_PREFIX: &str = "amq.rabbitmq.reply-to.";

/// The name by which a channel consumes replies.
pub const REPLY_QUEUE: &str = "amq.rabbitmq.reply-to";

/// A message on its way to a client.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// What to settle it by.
    pub place: Place,
    /// It may have been delivered before.
    pub redelivered: bool,
    /// The exchange that it was published to.
    pub exchange: ShortStr,
    /// The key that it was published with.
    pub routing_key: ShortStr,
    /// Flags and properties as they go over the wire.
    pub properties: Bytes,
    /// The body.
    pub payload: Payload,
}

/// The bytes of a message to be sent.
#[derive(Clone, Debug)]
pub enum Payload {
    /// One piece.
    One(Chunk),
    /// Several.
    Many(Vec<Chunk>),
}

impl Payload {
    /// All of it. Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pieces().iter().map(Chunk::len).sum()
    }

    /// Whether there is nothing.
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

/// What the broker answers.
#[derive(Debug)]
pub enum Reply {
    /// It is done.
    Done,
    /// It is not done.
    Refused(Refusal),
    /// To [`Request::Authenticate`], and to [`Request::UpdateSecret`].
    Authenticated {
        /// The user's name.
        user: Bytes,
        /// The user may publish in the name of others.
        impersonator: bool,
    },
    /// To [`Request::DeclareQueue`].
    Queue {
        /// Messages that are ready.
        messages: u32,
        /// Its consumers.
        consumers: u32,
    },
    /// To [`Request::DeleteQueue`] and [`Request::PurgeQueue`].
    Count(u32),
    /// To [`Request::Get`]: the message, and how many are ready behind it.
    Message(Option<Box<(Delivery, u32)>>),
    /// To [`Request::OpenReplies`]: what follows after [`REPLY_PREFIX`]; at most 128 bytes of letters, digits, `.`, `-`, `_`.
    ReplyAddress(ShortStr),
}

/// What the broker says unasked.
#[derive(Debug)]
pub enum Event {
    /// Messages for a consumer.
    Deliver {
        /// Where it is.
        channel: ChannelRef,
        /// Which.
        consumer: ConsumerRef,
        /// The messages in their order.
        deliveries: Vec<Delivery>,
    },
    /// A mandatory message reached no queue.
    Return {
        /// Where it was published.
        channel: ChannelRef,
        /// The exchange that it was published to.
        exchange: ShortStr,
        /// The key that it was published with.
        routing_key: ShortStr,
        /// Flags and properties as published.
        properties: Bytes,
        /// The body.
        payload: Payload,
    },
    /// Publishes have their outcome: all numbers from the first to the last are durable.
    Confirmed {
        /// Where they were published.
        channel: ChannelRef,
        /// The lowest number.
        first: u64,
        /// The highest number.
        last: u64,
    },
    /// Publishes have their outcome: none of the numbers from the first to the last was taken.
    Rejected {
        /// Where they were published.
        channel: ChannelRef,
        /// The lowest number.
        first: u64,
        /// The highest number.
        last: u64,
    },
    /// The consumer is gone, because its queue is, or its right to it.
    Cancelled {
        /// Where it was.
        channel: ChannelRef,
        /// Which.
        consumer: ConsumerRef,
    },
    /// The channel has to go: a publish or a verdict cannot be, or an acknowledgement did not come in time.
    CloseChannel {
        /// Which.
        channel: ChannelRef,
        /// Which method is to blame: `basic.publish`, `basic.ack`, ..., [`MethodId::NONE`].
        method: MethodId,
        /// Why.
        refusal: Refusal,
    },
    /// The connection has to go: the server stops, an operator wants it, the user is deleted.
    CloseConnection(Refusal),
    /// Something runs short: publishers have to wait. The reason as clients are shown it: `low on memory`. Said to each
    /// connection when it begins, and to one that is opened while it lasts.
    Blocked(ShortStr),
    /// Nothing runs short any more.
    Unblocked,
}
