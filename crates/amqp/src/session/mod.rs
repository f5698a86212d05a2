//! A server-side AMQP connection without its socket: bytes in, requests out, replies and events in, bytes out.
//!
//! ```text
//!   input ──▶ on_bytes ──▶ frames ──▶ connection (channel 0)            ──▶ poll_request ──▶ the broker
//!                                 └─▶ channel: assembling, acknowledging ─┘                      │
//!   output ◀── poll_output ◀──── on_reply, on_event, on_deadline ◀──────────────────────────────┘
//! ```
//!
//! How the server drives a session, in a loop:
//! 1. while [`Session::wants_input`], read into the input, which may have to hold [`Session::input_bytes_max`], and call [`Session::on_bytes`]; call
//!    it also after replies, events and output, as long as bytes are left in the input;
//! 2. pass each [`Session::poll_request`] to the broker, until there is none, and each reply and event back: the contract is in [`crate::request`];
//! 3. when the last output is written, take the next with [`Session::poll_output`];
//! 4. call [`Session::on_deadline`] at [`Session::next_deadline_ms`];
//! 5. close when [`Session::close_reason`] is set. If the socket closes earlier, send the broker what [`Request::CloseConnection`] would, unless the
//!    session has sent it already.
//!
//! **Order.** A channel whose last method waits for the broker processes nothing more; a frame for it blocks the frames behind it. So only input that
//! was already read is queued here. Publishes and acknowledgements do not wait for a reply. But no frame is processed before the broker has taken the
//! request of the frame before it: a publish that the broker refuses closes its channel before anything behind it has an effect or is answered.
//!
//! **Memory.** A connection holds input that is not processed (the server limits how much it reads), incomplete messages (`assembling_bytes_max`), 32
//! bytes for each unsettled delivery (`unacked_per_channel_max`), and transactions (`tx_bytes_max`). Input is split into frames once and not copied,
//! unless a transaction keeps it.

mod answers;
mod bodies;
mod channel;
mod close;
mod confirms;
mod consume;
mod core;
mod declare;
mod frames;
mod handshake;
mod names;
mod publish;
mod tx;
mod unacked;

pub use close::CloseReason;
pub use publish::UncheckedPublish;

use self::channel::{Channel, Life};
use self::core::Core;
use crate::clock::Clock;
use crate::codec::{ConnectionUpdateSecret, MethodId, Table};
use crate::refusal::Refusal;
use crate::request::{ChannelRef, ConsumerRef, Event, Place, Reply, Request};
use crate::settings::AmqpSettings;
use bytes::BytesMut;
use close::Closing;
use frames::Unread;
use handshake::Stage;
use polylogue_api::Token;
use polylogue_types::{Chunk, Map};
use std::sync::Arc;

/// The most bytes of client properties that are kept. Bytes.
pub const CLIENT_PROPERTIES_BYTES_MAX: usize = 4 << 10;

/// A server-side AMQP connection. See the [module](self) for how it is used.
#[derive(Debug)]
pub struct Session {
    core: Core,
    stage: Stage,
    /// Complete frames that were read and not yet processed.
    unread: Unread,
    /// The broker has a request whose acceptance is not known yet: no frame is processed meanwhile.
    awaits_outcome: bool,
    /// The broker has not finished a request without a reply: no frame is processed meanwhile.
    is_held: bool,
    channels: Map<u16, Box<Channel>>,
    next_life: u32,
    /// The highest channel number that was ever opened.
    highest_channel: u16,
    channel_max: u16,
    clock: Clock,
}

impl Session {
    /// A new connection. `seed` determines the names that the server generates; it must differ between connections.
    #[must_use]
    pub fn new(settings: Arc<AmqpSettings>, seed: u128, now_ms: u64) -> Session {
        let channel_max = settings.channel_max;
        let clock = Clock::new(now_ms);
        Session {
            core: Core::new(settings, seed),
            stage: Stage::Header,
            unread: Unread::default(),
            awaits_outcome: false,
            is_held: false,
            channels: Map::default(),
            next_life: 0,
            highest_channel: 0,
            channel_max,
            clock,
        }
    }

    /// The connection is idle: releases unused memory.
    pub fn release_memory(&mut self) {
        self.core.release_memory();
    }

    /// Takes the client properties that were sent at login, once; empty if they were longer than [`CLIENT_PROPERTIES_BYTES_MAX`]. For listings.
    pub fn take_client_properties(&mut self) -> Table {
        std::mem::take(&mut self.core.peer.client_properties)
    }

    /// Takes complete frames from `input` as long as they can be processed, and leaves the rest.
    pub fn on_bytes(&mut self, input: &mut BytesMut, now_ms: u64) {
        self.core.now_ms = now_ms;
        self.clock.on_input(input.len(), now_ms);
        self.take_input(input, now_ms);
        self.clock.on_parsed(input.len());
        self.resume(now_ms);
    }

    /// Continues with frames that had to wait, until there is a request.
    fn resume(&mut self, now_ms: u64) {
        self.take_frames(now_ms);
        // Verdicts are collected over the frames of one read, until another request of their channel.
        if self.core.requests.is_empty() && !self.awaits_outcome {
            self.core.flush();
        }
        self.clock.set_reading(self.wants_input(), now_ms);
    }

    /// Whether more input can be processed now. While it is false, do not read: this is the back-pressure.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        self.takes_frames() && self.unread.is_empty()
    }

    /// Suspends the processing of frames, regardless of replies, until called with `false`: the broker is still working on a request that it has
    /// taken, and later ones have to wait.
    pub fn hold(&mut self, is_held: bool, now_ms: u64) {
        if std::mem::replace(&mut self.is_held, is_held) != is_held {
            self.clock.set_reading(self.wants_input(), now_ms);
        }
    }

    /// Whether this channel exists and is open, so that its frames have an effect.
    #[must_use]
    pub fn is_in_use(&self, channel: ChannelRef) -> bool {
        self.channels.get(&channel.number).is_some_and(|open| open.me == channel && open.life == Life::Open)
    }

    /// Returns the next request for the broker. Calling it again, or a reply, means that the broker has taken the previous request, or has refused it
    /// by [`Event::CloseChannel`]: only then later frames are processed.
    pub fn poll_request(&mut self) -> Option<(Token, Request)> {
        self.awaits_outcome = false;
        if self.core.requests.is_empty() {
            self.resume(self.core.now_ms);
        }
        let request = self.core.requests.pop_front();
        self.awaits_outcome = request.is_some();
        request
    }

    /// Handles a reply of the broker. Replies that are no longer awaited are dropped.
    pub fn on_reply(&mut self, token: Token, reply: Reply, now_ms: u64) {
        self.core.now_ms = now_ms;
        self.awaits_outcome = false;
        match Core::channel_of(token) {
            0 => self.on_connection_reply(token, reply, now_ms),
            number => self.on_channel_reply(number, token, reply, now_ms),
        }
        self.resume(now_ms);
    }

    fn on_channel_reply(&mut self, number: u16, token: Token, reply: Reply, now_ms: u64) {
        let Some(channel) = self.channels.get_mut(&number) else { return };
        let Some(awaited) = channel.awaited.take_if(|awaited| awaited.token == token) else { return };
        let ends = channel.life == Life::Ending;
        match channel.on_reply(&mut self.core, awaited.waiting, reply) {
            Ok(()) if ends => drop(self.channels.remove(&number)),
            Ok(()) => {}
            Err(refusal) => self.refuse(number, awaited.method, refusal, now_ms),
        }
    }

    /// Handles an event of the broker. Events for a closed channel are dropped.
    pub fn on_event(&mut self, event: Event, now_ms: u64) {
        self.core.now_ms = now_ms;
        match event {
            Event::Deliver { channel, consumer, deliveries } => {
                if let Some((open, core)) = self.open_channel(channel) {
                    open.on_deliveries(core, consumer, deliveries);
                    core.flush();
                }
            }
            Event::Return { channel, exchange, routing_key, properties, payload } => {
                if let Some((_, core)) = self.open_channel(channel) {
                    core.return_message(channel, exchange, routing_key, &properties, &payload);
                }
            }
            Event::Confirmed { channel, first, last } => self.on_outcome(channel, first, last, true),
            Event::Rejected { channel, first, last } => self.on_outcome(channel, first, last, false),
            Event::Cancelled { channel, consumer } => {
                if let Some((open, core)) = self.open_channel(channel) {
                    open.on_broker_cancel(core, consumer);
                }
            }
            Event::CloseChannel { channel, method, refusal } => {
                if self.open_channel(channel).is_some() {
                    self.refuse(channel.number, method, refusal, now_ms);
                }
            }
            Event::CloseConnection(refusal) => self.close(MethodId::NONE, refusal, now_ms),
            Event::Blocked(reason) if !self.stage.is_over() => {
                if self.core.alarm.stops_body_timers() {
                    self.restart_body_timers(now_ms);
                }
                self.core.blocked(reason);
            }
            Event::Unblocked if !self.stage.is_over() => {
                self.core.unblocked();
                self.restart_body_timers(now_ms);
            }
            // The connection no longer publishes.
            Event::Blocked(_) | Event::Unblocked => {}
        }
        self.resume(now_ms);
    }

    /// Returns the channel, if it exists and is open.
    fn open_channel(&mut self, wanted: ChannelRef) -> Option<(&mut Channel, &mut Core)> {
        let channel = self.channels.get_mut(&wanted.number)?;
        (channel.me == wanted && channel.life == Life::Open).then_some((&mut **channel, &mut self.core))
    }

    fn on_outcome(&mut self, channel: ChannelRef, first: u64, last: u64, taken: bool) {
        let Some((open, core)) = self.open_channel(channel) else { return };
        let channel::Mode::Confirm(confirms) = &mut open.mode else { return };
        let had_pending = confirms.has_pending();
        confirms.settle(first, last, taken);
        if !had_pending && confirms.has_pending() {
            core.pending_confirms.push(channel.number);
        }
    }

    /// Turns outcomes of publishes into methods.
    fn flush_confirms(&mut self) {
        for number in std::mem::take(&mut self.core.pending_confirms) {
            if let Some(channel) = self.channels.get_mut(&number)
                && let channel::Mode::Confirm(confirms) = &mut channel.mode
            {
                confirms.send_pending(|method| self.core.output.method(number, &method));
            }
        }
    }

    /// Moves all output to the end of `out`; call it once the previous output is written. Whether there was any.
    pub fn poll_output(&mut self, out: &mut Vec<Chunk>, now_ms: u64) -> bool {
        self.core.now_ms = now_ms;
        self.flush_confirms();
        let some = self.core.output.take(out);
        if some {
            self.clock.last_write_ms = now_ms;
        }
        self.resume(now_ms);
        some
    }

    /// Whether output waits to be written: the client has not read the previous output.
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.core.output.is_empty()
    }

    /// When [`Session::on_deadline`] must be called. Monotonic milliseconds.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        match &self.stage {
            Stage::Closed(_) => None,
            Stage::Closing(Closing { until_ms, .. }) | Stage::Silent { until_ms } => Some(*until_ms),
            stage => {
                let handshake = (!stage.is_open()).then(|| self.handshake_end_ms());
                [handshake, self.clock.heartbeat_due_ms(), self.peer_timeout_ms(), self.core.bodies.due_ms()]
                    .into_iter()
                    .flatten()
                    .min()
            }
        }
    }

    fn handshake_end_ms(&self) -> u64 {
        self.clock.created_ms.saturating_add(self.core.settings.handshake_ms_max)
    }

    /// When the client is considered dead: after two heartbeat intervals without input, while this side reads.
    fn peer_timeout_ms(&self) -> Option<u64> {
        self.clock.peer_timeout_ms(self.wants_input())
    }

    /// Handles deadlines that have passed, if any.
    pub fn on_deadline(&mut self, now_ms: u64) {
        self.core.now_ms = now_ms;
        let passed = |deadline: Option<u64>| deadline.is_some_and(|deadline| deadline <= now_ms);
        match &mut self.stage {
            Stage::Closed(_) => {}
            Stage::Closing(closing) => {
                if closing.until_ms <= now_ms {
                    self.stage = Stage::Closed(closing.reason.clone());
                }
            }
            Stage::Silent { until_ms } => {
                if *until_ms <= now_ms {
                    self.stage = Stage::Closed(CloseReason::LoginRefused);
                }
            }
            stage => {
                let is_open = stage.is_open();
                if !is_open && passed(Some(self.handshake_end_ms())) {
                    self.end(CloseReason::HandshakeTimeout);
                } else if passed(self.peer_timeout_ms()) {
                    self.end(CloseReason::HeartbeatTimeout);
                } else if passed(self.core.bodies.due_ms()) {
                    self.time_out_bodies(now_ms);
                } else if passed(self.clock.heartbeat_due_ms()) {
                    // Output that waits to be written serves as a heartbeat.
                    if self.core.output.is_empty() {
                        self.core.output.heartbeat();
                    }
                    self.clock.last_write_ms = now_ms;
                }
            }
        }
    }

    /// Why the connection has to be closed now. All previous output has been taken by then.
    #[must_use]
    pub fn close_reason(&self) -> Option<&CloseReason> {
        match &self.stage {
            Stage::Closed(reason) if self.core.output.is_empty() => Some(reason),
            _ => None,
        }
    }

    /// Whether the broker may deliver on this channel: it is open, below its limit of unsettled deliveries, and earlier deliveries have been written.
    #[must_use]
    pub fn may_deliver(&self, channel: ChannelRef) -> bool {
        let settings = &self.core.settings;
        self.channels.get(&channel.number).is_some_and(|open| {
            open.me == channel && open.life == Life::Open && open.unacked.len() < settings.unacked_per_channel_max
        }) && self.core.output.len() < settings.output_bytes_max
    }

    /// Returns the consumer and delivery time of the oldest unsettled delivery on this channel; the time may be up to a quarter of a second late.
    /// Milliseconds.
    #[must_use]
    pub fn oldest_unacked(&self, channel: ChannelRef) -> Option<(ConsumerRef, u64)> {
        let channel = self.channels.get(&channel.number).filter(|open| open.me == channel)?;
        let oldest = channel.unacked.oldest()?;
        Some((oldest.consumer, oldest.made_ms()))
    }

    /// Takes back deliveries that are unsettled for longer than `timeout_ms` returns for their consumer and place, and passes them to `each`: later
    /// acknowledgements of them have no effect. Returns when the next one is due. Milliseconds.
    pub fn take_back_late(
        &mut self,
        channel: ChannelRef,
        now_ms: u64,
        mut timeout_ms: impl FnMut(ConsumerRef, Place) -> Option<u64>,
        mut each: impl FnMut(ConsumerRef, Place),
    ) -> Option<u64> {
        let channel = self.channels.get_mut(&channel.number).filter(|open| open.me == channel)?;
        let timeout = |entry: &unacked::Unacked| timeout_ms(entry.consumer, entry.place);
        channel.unacked.take_back_late(now_ms, timeout, |entry| each(entry.consumer, entry.place))
    }

    /// Whether the client accepts notifications that a consumer was cancelled ([`Event::Cancelled`]).
    #[must_use]
    pub fn notifies_cancellation(&self) -> bool {
        self.core.peer.can.consumer_cancel_notify
    }

    /// How many deliveries on this channel are unsettled.
    #[must_use]
    pub fn unacked(&self, channel: ChannelRef) -> usize {
        let channel = self.channels.get(&channel.number).filter(|open| open.me == channel);
        channel.map_or(0, |channel| channel.unacked.len())
    }

    /// How many publishes on this channel have no outcome yet.
    #[must_use]
    pub fn unconfirmed(&self, channel: ChannelRef) -> u64 {
        let channel = self.channels.get(&channel.number).filter(|open| open.me == channel);
        match channel.map(|channel| &channel.mode) {
            Some(channel::Mode::Confirm(confirms)) => confirms.waiting(),
            _ => 0,
        }
    }

    /// Bytes held by incomplete messages and unprocessed frames. Bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.core.assembling_bytes + self.unread.len()
    }

    /// How many channels are open, being opened or being closed.
    #[must_use]
    pub fn channel_count(&self) -> usize {
        self.channels.len()
    }

    fn is_open(&self) -> bool {
        self.stage.is_open()
    }

    /// Handles replies to requests of the connection itself.
    fn on_connection_reply(&mut self, token: Token, reply: Reply, now_ms: u64) {
        match self.stage.take_awaited(token) {
            Some(stage) => self.on_handshake_reply(stage, reply, now_ms),
            None => {
                if self.stage.take_secret(token) {
                    match reply {
                        Reply::Done => self.send(crate::codec::ConnectionUpdateSecretOk {}),
                        // The rights of the old secret end.
                        Reply::Authenticated { impersonator, .. } => {
                            self.core.peer.impersonator = impersonator;
                            self.send(crate::codec::ConnectionUpdateSecretOk {});
                        }
                        _ => self.close(ConnectionUpdateSecret::ID, Refusal::secret_refused(), now_ms),
                    }
                }
            }
        }
    }
}
