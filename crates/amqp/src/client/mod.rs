//! A client-side AMQP connection without its socket: bytes in, events out; requests in, bytes out.
//!
//! ```text
//!   input ──▶ on_bytes ──▶ frames ──▶ connection (channel 0) ──▶ poll_event ──▶ owner of the client
//!                                 └─▶ channels ───────────────▶                     │
//!   output ◀── poll_output ◀──── ask, publish, ack, nack, close, on_deadline ◀──────┘
//! ```
//!
//! How the owner drives a client, in a loop:
//! 1. while [`Client::wants_input`], read into the input, which may have to hold [`Client::input_bytes_max`], and call [`Client::on_bytes`]; call it
//!    also after events were taken, as long as bytes are left in the input;
//! 2. take each [`Client::poll_event`]; send the next request on a channel when the last one was answered;
//! 3. write what [`Client::poll_output`] returns;
//! 4. call [`Client::on_deadline`] at [`Client::next_deadline_ms`], and [`Client::on_end`] at the end of the input;
//! 5. close the socket when [`Client::end`] is set.
//!
//! **Trust.** The server is not trusted: its frames are checked against the available bytes and against the requests that were sent, and any mismatch
//! ends the connection. No input panics.
//!
//! **Memory.** Events that were not taken (`events_bytes_max`, plus the events of one frame), one arriving message per channel (`message_bytes_max`),
//! one bit for each unconfirmed publish (`unconfirmed_max`), and answers to requests of the server (`answers_bytes_max`): a server that does not read
//! its answers is not read either.

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

/// The memory of an event apart from its message. Bytes.
const EVENT_BYTES: usize = 256;

/// An event from the server.
#[derive(Clone, PartialEq, Debug)]
pub enum ClientEvent {
    /// The connection is open.
    Open,
    /// The answer to a request on a channel.
    Reply(u16, Method),
    /// The server closed a channel; its number is free again.
    ChannelClosed {
        /// The channel.
        channel: u16,
        /// The reply code.
        code: u16,
        /// The reply text.
        text: ShortStr,
    },
    /// A message for a consumer.
    Delivered {
        /// The channel.
        channel: u16,
        /// The consumer, the exchange and the routing key.
        deliver: BasicDeliver,
        /// Flags and properties, validated.
        properties: Properties,
        /// The body.
        body: Bytes,
    },
    /// A `mandatory` message that was routed to no queue.
    Returned {
        /// The channel.
        channel: u16,
        /// The reason.
        why: BasicReturn,
    },
    /// The server confirms or rejects publishes.
    Settled {
        /// The channel.
        channel: u16,
        /// The lowest sequence number.
        first: u64,
        /// The highest sequence number.
        last: u64,
        /// Whether they are confirmed; rejected otherwise.
        taken: bool,
    },
    /// The server cancelled a consumer.
    Cancelled {
        /// The channel.
        channel: u16,
        /// The consumer.
        consumer_tag: ShortStr,
    },
    /// The server stops or resumes the flow of messages, for the whole connection (channel 0) or for a channel.
    Paused {
        /// The channel.
        channel: u16,
        /// Whether the flow stops.
        paused: bool,
    },
}

impl ClientEvent {
    /// Its size in memory. Bytes.
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

/// Why a connection ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientEnd {
    /// This side closed it, and the server has confirmed.
    Done,
    /// The server closed it.
    Server(u16, ShortStr),
    /// The server refused the login.
    LoginRefused(String),
    /// The server violated the protocol, or cannot be used.
    Protocol(String),
    /// The connection was not open in time.
    HandshakeTimeout,
    /// No heartbeat was received from the server.
    HeartbeatTimeout,
    /// The server closed the socket without `connection.close`.
    Gone,
}

impl fmt::Display for ClientEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientEnd::Done => f.write_str("closed by this side"),
            ClientEnd::Server(code, text) => write!(f, "the server closed it: {code} {text}"),
            ClientEnd::LoginRefused(text) => write!(f, "the login is refused: {text}"),
            ClientEnd::Protocol(text) => write!(f, "AMQP 0-9-1 protocol error: {text}"),
            ClientEnd::HandshakeTimeout => f.write_str("the server did not open the connection in time"),
            ClientEnd::HeartbeatTimeout => f.write_str("missed heartbeats"),
            ClientEnd::Gone => f.write_str("the server closed the socket"),
        }
    }
}

/// The request is not possible now: the channel is not open, or another request is pending there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotNow;

/// A client-side AMQP connection. See the [module](self) for how it is used.
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
    /// The server's cluster name.
    cluster_name: Option<Bytes>,
    /// The part of `output` that answers requests of the server. Bytes.
    answers_bytes: usize,
}

impl Client {
    /// A client on a new connection.
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

    /// Takes complete frames from `input` as long as they can be processed, and leaves the rest.
    pub fn on_bytes(&mut self, input: &mut BytesMut, now_ms: u64) {
        self.clock.on_input(input.len(), now_ms);
        self.take_input(input);
        self.clock.on_parsed(input.len());
        self.clock.set_reading(self.wants_input(), now_ms);
    }

    /// Whether more input can be processed now. While it is false, do not read: this is the back-pressure. Taking events and [`Client::poll_output`]
    /// make it true again.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        self.end().is_none()
            && self.events_bytes < self.settings.events_bytes_max
            && self.answers_bytes < self.settings.answers_bytes_max
    }

    /// How many bytes the input must be able to hold. Bytes.
    #[must_use]
    pub fn input_bytes_max(&self) -> usize {
        self.settings.frame_bytes_max as usize
    }

    /// Bytes held by events and by arriving messages. Bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.events_bytes + self.channels.values().map(Channel::held_bytes).sum::<usize>()
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        let event = self.events.pop_front()?;
        self.events_bytes = self.events_bytes.saturating_sub(event.bytes());
        Some(event)
    }

    fn event(&mut self, event: ClientEvent) {
        self.events_bytes += event.bytes();
        self.events.push_back(event);
    }

    /// Moves all output to the end of `out`. Whether there was any.
    pub fn poll_output(&mut self, out: &mut Vec<Chunk>, now_ms: u64) -> bool {
        let some = self.output.take(out);
        if some {
            self.clock.last_write_ms = now_ms;
            self.answers_bytes = 0;
            self.clock.set_reading(self.wants_input(), now_ms);
        }
        some
    }

    /// Answers a request of the server. Publishes do not count: the server may send their outcomes before it continues to read.
    fn answer(&mut self, number: u16, method: &Method) {
        let before = self.output.len();
        self.output.method(number, method);
        self.answers_bytes += self.output.len() - before;
    }

    /// How much output waits. Bytes.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        self.output.len()
    }

    /// The server's cluster name, once it is known.
    #[must_use]
    pub fn cluster_name(&self) -> Option<&Bytes> {
        self.cluster_name.as_ref()
    }

    /// Whether the connection is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open)
    }

    /// Why the connection ended. Earlier output may not have been written by then.
    #[must_use]
    pub fn end(&self) -> Option<&ClientEnd> {
        if let Stage::Over(end) = &self.stage { Some(end) } else { None }
    }

    /// The input has ended.
    pub fn on_end(&mut self) {
        let end = match &self.stage {
            Stage::Over(_) => return,
            Stage::Closing { .. } => ClientEnd::Done,
            // Servers that cannot send the reason close the socket (RabbitMQ before 3.2, and when the client lacks the capability).
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
    /// The connection is not open, or the number is in use or above the negotiated maximum.
    pub fn open_channel(&mut self, number: u16) -> Result<(), NotNow> {
        let fits = number > 0 && (self.channel_max == 0 || number <= self.channel_max);
        if !self.is_open() || !fits || self.channels.contains_key(&number) {
            return Err(NotNow);
        }
        self.channels.insert(number, Channel::new());
        self.output.method(number, &ChannelOpen::default().into());
        Ok(())
    }

    /// Sends a request, which is answered by a [`ClientEvent::Reply`] or [`ClientEvent::ChannelClosed`].
    ///
    /// # Errors
    /// The channel is not open or waits for another answer, or the method has none.
    pub fn ask(&mut self, number: u16, method: impl Into<Method>) -> Result<(), NotNow> {
        let method = method.into();
        let channel = self.channels.get_mut(&number).filter(|_| matches!(self.stage, Stage::Open)).ok_or(NotNow)?;
        channel.begin(&method)?;
        self.output.method(number, &method);
        Ok(())
    }

    /// Whether a message may be published now: the flow is not stopped, and earlier output is within its limit.
    #[must_use]
    pub fn may_publish(&self, number: u16) -> bool {
        let open = self.channels.get(&number).filter(|channel| channel.life == Life::Open && !channel.paused);
        self.is_open()
            && !self.blocked
            && self.output.len() < self.settings.output_bytes_max
            && open.is_some_and(|channel| channel.unconfirmed() < self.settings.unconfirmed_max)
    }

    /// Whether the server has stopped the flow on a channel.
    #[must_use]
    pub fn is_paused(&self, number: u16) -> bool {
        self.blocked || self.channels.get(&number).is_some_and(|channel| channel.paused)
    }

    /// Publishes a message, regardless of [`Client::may_publish`]; `properties` are flags and properties in wire format. Returns its sequence number
    /// if the channel has confirms, else 0.
    ///
    /// # Errors
    /// The channel is not open, or too many publishes are unconfirmed.
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

    /// Acknowledges a delivery, or all up to it. Ignored on a closed channel.
    pub fn ack(&mut self, number: u16, delivery_tag: u64, multiple: bool) {
        self.send(number, BasicAck { delivery_tag, multiple }.into());
    }

    /// Requeues a delivery.
    pub fn nack(&mut self, number: u16, delivery_tag: u64) {
        self.send(number, BasicNack { delivery_tag, multiple: false, requeue: true }.into());
    }

    fn send(&mut self, number: u16, method: Method) {
        let open = self.channels.get(&number).is_some_and(|channel| channel.life == Life::Open);
        if open && self.is_open() {
            self.output.method(number, &method);
        }
    }

    /// Closes the connection; [`Client::end`] is set when the server has confirmed.
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
        arriving.then(|| self.clock.created_ms.saturating_add(self.settings.handshake_ms_max))
    }

    /// When the server is considered dead, while this side reads.
    fn peer_timeout_ms(&self) -> Option<u64> {
        self.clock.peer_timeout_ms(self.wants_input())
    }

    /// When [`Client::on_deadline`] must be called. Monotonic milliseconds.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        match &self.stage {
            Stage::Over(_) => None,
            Stage::Closing { until_ms } => Some(*until_ms),
            _ => [self.handshake_end_ms(), self.clock.heartbeat_due_ms(), self.peer_timeout_ms()]
                .into_iter()
                .flatten()
                .min(),
        }
    }

    /// Handles deadlines that have passed, if any.
    pub fn on_deadline(&mut self, now_ms: u64) {
        let passed = |deadline: Option<u64>| deadline.is_some_and(|deadline| deadline <= now_ms);
        match self.stage {
            Stage::Over(_) => {}
            Stage::Closing { until_ms } if until_ms <= now_ms => self.stage = Stage::Over(ClientEnd::Done),
            Stage::Closing { .. } => {}
            _ if passed(self.handshake_end_ms()) => self.stage = Stage::Over(ClientEnd::HandshakeTimeout),
            _ if passed(self.peer_timeout_ms()) => self.stage = Stage::Over(ClientEnd::HeartbeatTimeout),
            _ if passed(self.clock.heartbeat_due_ms()) => {
                // Output that waits to be written serves as a heartbeat.
                if self.output.is_empty() {
                    self.output.heartbeat();
                }
                self.clock.last_write_ms = now_ms;
            }
            _ => {}
        }
    }
}
