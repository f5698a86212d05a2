//! The other side of a connection: a client, without the connection. Bytes in, events out; what is asked for in, bytes out.
//!
//! ```text
//!   input ──▶ on_bytes ──▶ frames ──▶ connection (channel 0) ──▶ poll_event ──▶ whoever owns the client
//!                                 └─▶ channels ───────────────▶                     │
//!   output ◀── poll_output ◀──── ask, publish, ack, nack, close, on_deadline ◀──────┘
//! ```
//!
//! What its owner does, in a loop:
//! 1. while [`Client::wants_input`], read into the input, which may have to hold [`Client::input_bytes_max`], and call
//!    [`Client::on_bytes`]; call it too after events were taken, as long as something is left in the input;
//! 2. take each [`Client::poll_event`]; ask for the next thing on a channel when it has answered;
//! 3. write what [`Client::poll_output`] brings;
//! 4. call [`Client::on_deadline`] at [`Client::next_deadline_ms`], and [`Client::on_end`] when nothing more can be read;
//! 5. close the socket when [`Client::end`] has a reason.
//!
//! **Trust.** A server is not trusted more than a client is: what it says is held against the bytes that are there and against what was
//! asked, and whatever does not fit ends the connection. Nothing it can send panics.
//!
//! **Memory.** Events that were not taken (`events_bytes_max`, and what one frame more brings), for each channel one message that is
//! arriving (`message_bytes_max`), a bit for each publish without its confirmation (`unconfirmed_max`), and answers to what the server
//! asks by itself (`answers_bytes_max`): a server that does not read them is not read either.

mod channel;
mod confirms;
mod frames;
mod handshake;
mod settings;

pub use settings::ClientSettings;

use crate::clock::Clock;
use crate::codec::{
    BasicAck, BasicDeliver, BasicNack, BasicPublish, BasicReturn, ChannelOpen, ConnectionClose, Method, Properties,
    ShortStr,
};
use crate::output::Output;
use bytes::{Bytes, BytesMut};
use channel::{Channel, Life};
use handshake::Stage;
use polylogue_types::{Chunk, Map};
use std::collections::VecDeque;
use std::fmt;

/// What an event takes beside the message that it brings. Bytes.
const EVENT_BYTES: usize = 256;

/// What the server says.
#[derive(Clone, PartialEq, Debug)]
pub enum ClientEvent {
    /// The connection is open.
    Open,
    /// The answer to what was asked on a channel.
    Reply(u16, Method),
    /// A channel is closed by the server, and its number is free again.
    ChannelClosed {
        /// Which.
        channel: u16,
        /// Why.
        code: u16,
        /// Why.
        text: ShortStr,
    },
    /// A message for a consumer.
    Delivered {
        /// The channel.
        channel: u16,
        /// To whom, and where it was published.
        deliver: BasicDeliver,
        /// Flags and properties, looked through.
        properties: Properties,
        /// The body.
        body: Bytes,
    },
    /// A message that was published with `mandatory` and is in no queue.
    Returned {
        /// The channel.
        channel: u16,
        /// Why.
        why: BasicReturn,
    },
    /// The server answers for publishes of these numbers.
    Settled {
        /// The channel.
        channel: u16,
        /// The lowest.
        first: u64,
        /// The highest.
        last: u64,
        /// Whether it has them, or does not.
        taken: bool,
    },
    /// A consumer is cancelled by the server.
    Cancelled {
        /// The channel.
        channel: u16,
        /// Which.
        consumer_tag: ShortStr,
    },
    /// The server takes no messages for a while, or takes them again: of the whole connection (channel 0), or of a channel.
    Paused {
        /// Which.
        channel: u16,
        /// Whether it begins.
        paused: bool,
    },
}

impl ClientEvent {
    /// What it takes in memory. Bytes.
    fn bytes(&self) -> usize {
        EVENT_BYTES
            + match self {
                ClientEvent::Delivered { deliver, properties, body, .. } => {
                    let names = deliver.consumer_tag.len() + deliver.exchange.len() + deliver.routing_key.len();
                    names + properties.raw().len() + body.len()
                }
                ClientEvent::Returned { why, .. } => why.reply_text.len() + why.exchange.len() + why.routing_key.len(),
                _ => 0,
            }
    }
}

/// Why a connection is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientEnd {
    /// It was closed from this side, and the server knows.
    Done,
    /// The server closed it.
    Server(u16, ShortStr),
    /// The server does not let this user in.
    LoginRefused(String),
    /// The server says what it should not, or cannot.
    Protocol(String),
    /// It was not open in time.
    HandshakeTimeout,
    /// The server showed no sign of life.
    HeartbeatTimeout,
    /// The server closed the socket without a word.
    Gone,
}

impl fmt::Display for ClientEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientEnd::Done => f.write_str("it was closed"),
            ClientEnd::Server(code, text) => write!(f, "the server closed it: {code} {text}"),
            ClientEnd::LoginRefused(text) => write!(f, "the login is refused: {text}"),
            ClientEnd::Protocol(text) => write!(f, "the server is none of AMQP 0-9-1: {text}"),
            ClientEnd::HandshakeTimeout => f.write_str("the server took too long to let the connection in"),
            ClientEnd::HeartbeatTimeout => f.write_str("missed heartbeats"),
            ClientEnd::Gone => f.write_str("the server closed the socket"),
        }
    }
}

/// Something was asked for that is not possible now: the channel is not open, or something else was asked there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotNow;

/// One connection to a server. See the [module](self) for how it is used.
#[derive(Debug)]
pub struct Client {
    settings: ClientSettings,
    stage: Stage,
    clock: Clock,
    output: Output,
    events: VecDeque<ClientEvent>,
    events_bytes: usize,
    channels: Map<u16, Channel>,
    channel_max: u16,
    frame_bytes_max: u32,
    blocked: bool,
    /// What the server calls its cluster.
    cluster_name: Option<Bytes>,
    /// How much of `output` answers what the server asked by itself. Bytes.
    answers_bytes: usize,
}

impl Client {
    /// For a connection that has just been made.
    #[must_use]
    pub fn new(settings: ClientSettings, now_ms: u64) -> Client {
        let mut output = Output::default();
        output.raw(&crate::codec::PROTOCOL_HEADER);
        Client {
            stage: Stage::Starting,
            clock: Clock::new(now_ms),
            output,
            events: VecDeque::new(),
            events_bytes: 0,
            channels: Map::default(),
            channel_max: settings.channel_max,
            frame_bytes_max: settings.frame_bytes_max,
            blocked: false,
            cluster_name: None,
            answers_bytes: 0,
            settings,
        }
    }

    /// Takes whole frames from `input` as long as they can be used, and leaves the rest there.
    pub fn on_bytes(&mut self, input: &mut BytesMut, now_ms: u64) {
        self.clock.hear(input.len(), now_ms);
        self.take_input(input);
        self.clock.seen(input.len());
        self.clock.listen(self.wants_input(), now_ms);
    }

    /// Whether more input could be used now. While it is false, nothing should be read: the server waits. Taking events and
    /// [`Client::poll_output`] make it true again.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        self.end().is_none()
            && self.events_bytes < self.settings.events_bytes_max
            && self.answers_bytes < self.settings.answers_bytes_max
    }

    /// How much the input has to be able to hold. Bytes.
    #[must_use]
    pub fn input_bytes_max(&self) -> usize {
        self.settings.frame_bytes_max as usize
    }

    /// What events and messages that are arriving take. Bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.events_bytes + self.channels.values().map(Channel::held_bytes).sum::<usize>()
    }

    /// The next thing that the server says.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        let event = self.events.pop_front()?;
        self.events_bytes = self.events_bytes.saturating_sub(event.bytes());
        Some(event)
    }

    fn event(&mut self, event: ClientEvent) {
        self.events_bytes += event.bytes();
        self.events.push_back(event);
    }

    /// Moves all that is to be written to the end of `out`. Whether there was anything.
    pub fn poll_output(&mut self, out: &mut Vec<Chunk>, now_ms: u64) -> bool {
        let some = self.output.take(out);
        if some {
            self.clock.said_ms = now_ms;
            self.answers_bytes = 0;
            self.clock.listen(self.wants_input(), now_ms);
        }
        some
    }

    /// Answers what the server asks by itself. Publishes do not count here: what a server owes for them it may say before it reads on.
    fn answer(&mut self, number: u16, method: &Method) {
        let before = self.output.len();
        self.output.method(number, method);
        self.answers_bytes += self.output.len() - before;
    }

    /// What [`Client::poll_output`] would bring. Bytes.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        self.output.len()
    }

    /// What the server calls its cluster, once it has said so.
    #[must_use]
    pub fn cluster_name(&self) -> Option<&Bytes> {
        self.cluster_name.as_ref()
    }

    /// Whether the connection is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open)
    }

    /// Why it is over. What was to be said before has not always been written by then.
    #[must_use]
    pub fn end(&self) -> Option<&ClientEnd> {
        if let Stage::Over(end) = &self.stage { Some(end) } else { None }
    }

    /// Nothing more can be read.
    pub fn on_end(&mut self) {
        let end = match &self.stage {
            Stage::Over(_) => return,
            Stage::Closing { .. } => ClientEnd::Done,
            // Servers that cannot say so close the socket (RabbitMQ before 3.2, and where the client is too old).
            Stage::Tuning => ClientEnd::LoginRefused("the server closed the socket".to_owned()),
            Stage::Starting | Stage::Opening | Stage::Open => ClientEnd::Gone,
        };
        self.stage = Stage::Over(end);
    }

    fn fail(&mut self, why: impl Into<String>) {
        if self.end().is_none() {
            self.stage = Stage::Over(ClientEnd::Protocol(why.into()));
        }
    }

    /// Opens a channel; its [`ClientEvent::Reply`] is `channel.open_ok`.
    ///
    /// # Errors
    /// The connection is not open, or the number is in use, or above what was agreed on.
    pub fn open_channel(&mut self, number: u16) -> Result<(), NotNow> {
        let fits = number > 0 && (self.channel_max == 0 || number <= self.channel_max);
        if !self.is_open() || !fits || self.channels.contains_key(&number) {
            return Err(NotNow);
        }
        self.channels.insert(number, Channel::new());
        self.output.method(number, &ChannelOpen::default().into());
        Ok(())
    }

    /// Asks for something that has an answer, which is a [`ClientEvent::Reply`] or [`ClientEvent::ChannelClosed`].
    ///
    /// # Errors
    /// The channel is not open, or waits for another answer, or the method has none.
    pub fn ask(&mut self, number: u16, method: impl Into<Method>) -> Result<(), NotNow> {
        let method = method.into();
        let channel = self.channels.get_mut(&number).filter(|_| matches!(self.stage, Stage::Open)).ok_or(NotNow)?;
        channel.begin(&method)?;
        self.output.method(number, &method);
        Ok(())
    }

    /// Whether a message should be published now: the server takes some, and those before are on their way.
    #[must_use]
    pub fn may_publish(&self, number: u16) -> bool {
        let open = self.channels.get(&number).filter(|channel| channel.life == Life::Open && !channel.paused);
        self.is_open()
            && !self.blocked
            && self.output.len() < self.settings.output_bytes_max
            && open.is_some_and(|channel| channel.unconfirmed() < self.settings.unconfirmed_max)
    }

    /// Whether the server takes no messages on a channel for a while.
    #[must_use]
    pub fn is_paused(&self, number: u16) -> bool {
        self.blocked || self.channels.get(&number).is_some_and(|channel| channel.paused)
    }

    /// Publishes a message, whatever [`Client::may_publish`] says of what waits to be written; `properties` are flags and properties as they go
    /// over the wire. Its number where the channel has confirms, else 0.
    ///
    /// # Errors
    /// The channel is not open, or too much waits for its confirmation.
    pub fn publish(
        &mut self,
        number: u16,
        publish: BasicPublish,
        properties: &[u8],
        body: Bytes,
    ) -> Result<u64, NotNow> {
        let channel = self.channels.get_mut(&number).filter(|channel| channel.life == Life::Open).ok_or(NotNow)?;
        if !matches!(self.stage, Stage::Open) || channel.unconfirmed() >= self.settings.unconfirmed_max {
            return Err(NotNow);
        }
        let seq = channel.confirms.as_mut().map_or(0, confirms::Confirms::publish);
        self.output.method(number, &publish.into());
        self.output.content(number, self.frame_bytes_max, properties, &body.into());
        Ok(seq)
    }

    /// Acknowledges a delivery, or all up to it. Of a channel that is gone, nothing.
    pub fn ack(&mut self, number: u16, delivery_tag: u64, multiple: bool) {
        self.tell(number, BasicAck { delivery_tag, multiple }.into());
    }

    /// Gives a delivery back to its queue.
    pub fn nack(&mut self, number: u16, delivery_tag: u64) {
        self.tell(number, BasicNack { delivery_tag, multiple: false, requeue: true }.into());
    }

    fn tell(&mut self, number: u16, method: Method) {
        let open = self.channels.get(&number).is_some_and(|channel| channel.life == Life::Open);
        if open && self.is_open() {
            self.output.method(number, &method);
        }
    }

    /// Ends the connection; [`Client::end`] says when the server knows.
    pub fn close(&mut self, now_ms: u64) {
        match self.stage {
            Stage::Open => {
                let close = ConnectionClose { reply_code: 200, reply_text: "Goodbye".into(), ..Default::default() };
                self.output.method(0, &close.into());
                self.stage = Stage::Closing { until_ms: now_ms.saturating_add(self.settings.closing_ms_max) };
            }
            Stage::Starting | Stage::Tuning | Stage::Opening => self.stage = Stage::Over(ClientEnd::Done),
            Stage::Closing { .. } | Stage::Over(_) => {}
        }
    }

    fn handshake_end_ms(&self) -> Option<u64> {
        let arriving = matches!(self.stage, Stage::Starting | Stage::Tuning | Stage::Opening);
        arriving.then(|| self.clock.born_ms.saturating_add(self.settings.handshake_ms_max))
    }

    /// When the server is taken for dead, while it is listened to.
    fn hear_ms(&self) -> Option<u64> {
        self.clock.hear_ms(self.wants_input())
    }

    /// When [`Client::on_deadline`] wants to be called. Monotonic milliseconds.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        match &self.stage {
            Stage::Over(_) => None,
            Stage::Closing { until_ms } => Some(*until_ms),
            _ => [self.handshake_end_ms(), self.clock.say_ms(), self.hear_ms()].into_iter().flatten().min(),
        }
    }

    /// A deadline may have passed. Does nothing when none has.
    pub fn on_deadline(&mut self, now_ms: u64) {
        let passed = |deadline: Option<u64>| deadline.is_some_and(|deadline| deadline <= now_ms);
        match self.stage {
            Stage::Over(_) => {}
            Stage::Closing { until_ms } if until_ms <= now_ms => self.stage = Stage::Over(ClientEnd::Done),
            Stage::Closing { .. } => {}
            _ if passed(self.handshake_end_ms()) => self.stage = Stage::Over(ClientEnd::HandshakeTimeout),
            _ if passed(self.hear_ms()) => self.stage = Stage::Over(ClientEnd::HeartbeatTimeout),
            _ if passed(self.clock.say_ms()) => {
                // Whatever waits to be written is a sign of life too.
                if self.output.is_empty() {
                    self.output.heartbeat();
                }
                self.clock.said_ms = now_ms;
            }
            _ => {}
        }
    }
}
