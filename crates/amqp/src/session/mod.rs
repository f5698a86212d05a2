//! One connection of an AMQP client, without the connection: bytes in, requests out, replies and events in, bytes out.
//!
//! ```text
//!   input ──▶ on_bytes ──▶ frames ──▶ connection (channel 0)            ──▶ poll_request ──▶ the broker
//!                                 └─▶ channel: assembling, acknowledging ─┘                      │
//!   output ◀── poll_output ◀──── on_reply, on_event, on_deadline ◀──────────────────────────────┘
//! ```
//!
//! What the server does with a session, in a loop:
//! 1. while [`Session::wants_input`], read into the input, which may have to hold [`Session::input_bytes_max`], and call
//!    [`Session::on_bytes`]; call it too after replies, events and output, as long as something is left in the input;
//! 2. hand each [`Session::poll_request`] to the broker, until there is none, and each reply and event back: the contract is in
//!    [`crate::request`];
//! 3. when the last output is written, take the next with [`Session::poll_output`];
//! 4. call [`Session::on_deadline`] at [`Session::next_deadline_ms`];
//! 5. close when [`Session::close_reason`] has one. When the socket is gone before, tell the broker what
//!    [`Request::CloseConnection`] would, unless the session has said it itself.
//!
//! **Order.** A channel whose last method waits for the broker takes nothing more; a frame for it holds up the frames behind
//! it. So nothing is queued here but what was read already. Publishes and acknowledgements wait for no answer. But no frame is
//! looked at before the broker has taken the request of the one before it: a publish that the broker refuses closes its channel
//! before anything behind it has an effect, or an answer.
//!
//! **Memory.** A connection holds what was read and not looked at (the server decides how much it reads), the messages that are
//! not complete (`assembling_bytes_max`), 32 bytes for each delivery that is not settled (`unacked_per_channel_max`), and
//! transactions (`tx_bytes_max`). What is read is cut into frames once and never copied, unless a transaction keeps it.

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
pub use publish::Said;

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

/// What is kept of what a client says of itself. Bytes.
pub const CLIENT_PROPERTIES_BYTES_MAX: usize = 4 << 10;

/// One connection of an AMQP client. See the [module](self) for how it is used.
#[derive(Debug)]
pub struct Session {
    core: Core,
    stage: Stage,
    /// Whole frames that were read and not looked at.
    unread: Unread,
    /// The broker has a request of which it is not known whether it was taken or refused: no frame is looked at meanwhile.
    is_judged: bool,
    /// The broker has not finished with a request that has no answer: no frame is looked at meanwhile.
    is_held: bool,
    channels: Map<u16, Box<Channel>>,
    next_life: u32,
    /// No channel above this number was ever opened.
    highest_channel: u16,
    channel_max: u16,
    clock: Clock,
}

impl Session {
    /// A connection that has just been made. `seed` makes the names that the server gives out; no two connections have the
    /// same.
    #[must_use]
    pub fn new(settings: Arc<AmqpSettings>, seed: u128, now_ms: u64) -> Session {
        let channel_max = settings.channel_max;
        let clock = Clock::new(now_ms);
        Session {
            core: Core::new(settings, seed),
            stage: Stage::Header,
            unread: Unread::default(),
            is_judged: false,
            is_held: false,
            channels: Map::default(),
            next_life: 0,
            highest_channel: 0,
            channel_max,
            clock,
        }
    }

    /// Nothing has come for a while: lets go of memory that is not used.
    pub fn rest(&mut self) {
        self.core.rest();
    }

    /// What the client said of itself when it logged in, once: a copy of its own, empty where it was longer than
    /// [`CLIENT_PROPERTIES_BYTES_MAX`]. For listings.
    pub fn take_client_properties(&mut self) -> Table {
        std::mem::take(&mut self.core.peer.client_properties)
    }

    /// Takes whole frames from `input` as long as they can be used, and leaves the rest there.
    pub fn on_bytes(&mut self, input: &mut BytesMut, now_ms: u64) {
        self.core.now_ms = now_ms;
        self.clock.hear(input.len(), now_ms);
        self.take_input(input, now_ms);
        self.clock.seen(input.len());
        self.resume(now_ms);
    }

    /// Goes on with what was held up, until there is a request.
    fn resume(&mut self, now_ms: u64) {
        self.take_frames(now_ms);
        // Verdicts are collected over the frames of one read, as long as no request of their channel comes between.
        if self.core.requests.is_empty() && !self.is_judged {
            self.core.flush();
        }
        self.clock.listen(self.wants_input(), now_ms);
    }

    /// Whether more input could be used now. While it is false, nothing should be read: the peer waits.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        self.takes_frames() && self.unread.is_empty()
    }

    /// Holds back all frames, replies or not, until it is called with `false`: the broker goes on later with a request that it has taken,
    /// and what is behind that waits for it.
    pub fn hold(&mut self, is_held: bool, now_ms: u64) {
        if std::mem::replace(&mut self.is_held, is_held) != is_held {
            self.clock.listen(self.wants_input(), now_ms);
        }
    }

    /// Whether a channel is this one and in use: what happens on it has an effect.
    #[must_use]
    pub fn is_in_use(&self, channel: ChannelRef) -> bool {
        self.channels.get(&channel.number).is_some_and(|open| open.me == channel && open.life == Life::Open)
    }

    /// The next thing to ask the broker. By calling it again, or by a reply, the broker says that it has taken the one before, or has
    /// refused it by [`Event::CloseChannel`]: only now the frames behind it are looked at.
    pub fn poll_request(&mut self) -> Option<(Token, Request)> {
        self.is_judged = false;
        if self.core.requests.is_empty() {
            self.resume(self.core.now_ms);
        }
        let request = self.core.requests.pop_front();
        self.is_judged = request.is_some();
        request
    }

    /// The broker's answer. One that nobody waits for any more is dropped.
    pub fn on_reply(&mut self, token: Token, reply: Reply, now_ms: u64) {
        self.core.now_ms = now_ms;
        self.is_judged = false;
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

    /// What the broker says unasked. Events for a channel that is gone are dropped.
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
                    core.give_back(channel, exchange, routing_key, &properties, &payload);
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
                if self.core.alarm.excuses_bodies() {
                    self.excuse_bodies(now_ms);
                }
                self.core.blocked(reason);
            }
            Event::Unblocked if !self.stage.is_over() => {
                self.core.unblocked();
                self.excuse_bodies(now_ms);
            }
            // nobody publishes any more
            Event::Blocked(_) | Event::Unblocked => {}
        }
        self.resume(now_ms);
    }

    /// The channel, if it is this one and in use.
    fn open_channel(&mut self, wanted: ChannelRef) -> Option<(&mut Channel, &mut Core)> {
        let channel = self.channels.get_mut(&wanted.number)?;
        (channel.me == wanted && channel.life == Life::Open).then_some((&mut **channel, &mut self.core))
    }

    fn on_outcome(&mut self, channel: ChannelRef, first: u64, last: u64, taken: bool) {
        let Some((open, core)) = self.open_channel(channel) else { return };
        let channel::Mode::Confirm(confirms) = &mut open.mode else { return };
        let had_news = confirms.has_news();
        confirms.settle(first, last, taken);
        if !had_news && confirms.has_news() {
            core.news.push(channel.number);
        }
    }

    /// Outcomes of publishes become methods.
    fn tell_news(&mut self) {
        for number in std::mem::take(&mut self.core.news) {
            if let Some(channel) = self.channels.get_mut(&number)
                && let channel::Mode::Confirm(confirms) = &mut channel.mode
            {
                confirms.tell(|method| self.core.output.method(number, &method));
            }
        }
    }

    /// Moves all that is to be written to the end of `out`, once the last of it is written. Whether there was anything.
    pub fn poll_output(&mut self, out: &mut Vec<Chunk>, now_ms: u64) -> bool {
        self.core.now_ms = now_ms;
        self.tell_news();
        let some = self.core.output.take(out);
        if some {
            self.clock.said_ms = now_ms;
        }
        self.resume(now_ms);
        some
    }

    /// Whether something waits to be written: the client has not taken what came before.
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.core.output.is_empty()
    }

    /// When [`Session::on_deadline`] wants to be called. Monotonic milliseconds.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        match &self.stage {
            Stage::Closed(_) => None,
            Stage::Closing(Closing { until_ms, .. }) | Stage::Silent { until_ms } => Some(*until_ms),
            stage => {
                let handshake = (!stage.is_open()).then(|| self.handshake_end_ms());
                [handshake, self.clock.say_ms(), self.hear_ms(), self.core.bodies.due_ms()].into_iter().flatten().min()
            }
        }
    }

    fn handshake_end_ms(&self) -> u64 {
        self.clock.born_ms.saturating_add(self.core.settings.handshake_ms_max)
    }

    /// When the client is taken for dead: after two heartbeats of silence, while it is listened to.
    fn hear_ms(&self) -> Option<u64> {
        self.clock.hear_ms(self.wants_input())
    }

    /// A deadline may have passed. Does nothing when none has.
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
                } else if passed(self.hear_ms()) {
                    self.end(CloseReason::HeartbeatTimeout);
                } else if passed(self.core.bodies.due_ms()) {
                    self.give_up_late_bodies(now_ms);
                } else if passed(self.clock.say_ms()) {
                    // whatever waits to be written is a sign of life too
                    if self.core.output.is_empty() {
                        self.core.output.heartbeat();
                    }
                    self.clock.said_ms = now_ms;
                }
            }
        }
    }

    /// Why the connection is to be closed now. What was to be said before has been taken by then.
    #[must_use]
    pub fn close_reason(&self) -> Option<&CloseReason> {
        match &self.stage {
            Stage::Closed(reason) if self.core.output.is_empty() => Some(reason),
            _ => None,
        }
    }

    /// Whether the broker may hand out deliveries on this channel: it is in use, remembers not too many that are not settled,
    /// and what was handed out has been written.
    #[must_use]
    pub fn may_deliver(&self, channel: ChannelRef) -> bool {
        let settings = &self.core.settings;
        self.channels.get(&channel.number).is_some_and(|open| {
            open.me == channel && open.life == Life::Open && open.unacked.len() < settings.unacked_per_channel_max
        }) && self.core.output.len() < settings.output_bytes_max
    }

    /// Of the deliveries on this channel that are not settled the oldest: whose it is, and when it was made, or a quarter of a second
    /// after at the most. Milliseconds.
    #[must_use]
    pub fn oldest_unacked(&self, channel: ChannelRef) -> Option<(ConsumerRef, u64)> {
        let channel = self.channels.get(&channel.number).filter(|open| open.me == channel)?;
        let oldest = channel.unacked.oldest()?;
        Some((oldest.consumer, oldest.made_ms()))
    }

    /// Takes deliveries back that are not settled after as long as `patience_ms` says of each, by its consumer and place, and hands them to
    /// `each`: what the client says of them later has no effect. Returns when the next one is due. Milliseconds.
    pub fn take_back_late(
        &mut self,
        channel: ChannelRef,
        now_ms: u64,
        mut patience_ms: impl FnMut(ConsumerRef, Place) -> Option<u64>,
        mut each: impl FnMut(ConsumerRef, Place),
    ) -> Option<u64> {
        let channel = self.channels.get_mut(&channel.number).filter(|open| open.me == channel)?;
        let patience = |entry: &unacked::Unacked| patience_ms(entry.consumer, entry.place);
        channel.unacked.take_back_late(now_ms, patience, |entry| each(entry.consumer, entry.place))
    }

    /// Whether the client can be told that a consumer is gone ([`Event::Cancelled`]).
    #[must_use]
    pub fn tells_cancellation(&self) -> bool {
        self.core.peer.can.consumer_cancel_notify
    }

    /// How many deliveries on this channel are not settled.
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

    /// What is held of messages that are not complete, and of frames that were not looked at. Bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.core.assembling_bytes + self.unread.len()
    }

    /// How many channels are open, or on their way from or to that.
    #[must_use]
    pub fn channel_count(&self) -> usize {
        self.channels.len()
    }

    fn is_open(&self) -> bool {
        self.stage.is_open()
    }

    /// Replies to what the connection itself asked.
    fn on_connection_reply(&mut self, token: Token, reply: Reply, now_ms: u64) {
        match self.stage.take_awaited(token) {
            Some(stage) => self.on_handshake_reply(stage, reply, now_ms),
            None => {
                if self.stage.take_secret(token) {
                    match reply {
                        Reply::Done => self.say(crate::codec::ConnectionUpdateSecretOk {}),
                        // What the old secret allowed is over.
                        Reply::Authenticated { impersonator, .. } => {
                            self.core.peer.impersonator = impersonator;
                            self.say(crate::codec::ConnectionUpdateSecretOk {});
                        }
                        _ => self.close(ConnectionUpdateSecret::ID, Refusal::secret_refused(), now_ms),
                    }
                }
            }
        }
    }
}
