//! State that all channels of a connection share: pending requests, output, limits, counters.

use super::bodies::Bodies;
use super::names::Names;
use super::unacked::add_to_runs;
use crate::codec::{BasicReturn, ConnectionBlocked, ConnectionUnblocked, Method, ShortStr, Table};
use crate::output::Output;
use crate::refusal::{Code, Kind, Named};
use crate::request::{ChannelRef, ConsumerRef, Payload, Place, Request, Run, Verdict};
use crate::settings::AmqpSettings;
use bytes::Bytes;
use polylogue_api::Token;
use std::collections::VecDeque;
use std::sync::Arc;

/// Capabilities that the client announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Capabilities {
    /// It accepts `basic.cancel` from the server.
    pub(super) consumer_cancel_notify: bool,
    /// It accepts `connection.blocked`.
    pub(super) connection_blocked: bool,
    /// It accepts `connection.close` for a refused login.
    pub(super) authentication_failure_close: bool,
}

/// The peer, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct Peer {
    pub(super) user: Bytes,
    pub(super) impersonator: bool,
    pub(super) vhost: ShortStr,
    pub(super) can: Capabilities,
    /// The client properties of `connection.start_ok`, until they are taken.
    pub(super) client_properties: Table,
}

/// The state of the resource alarm.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    /// The resource that is short.
    reason: Option<ShortStr>,
    /// The client was sent `connection.blocked`.
    notified: bool,
    /// The client has published at least once.
    published: bool,
    /// It has published during the alarm: only messages that have begun are still read.
    pub(super) stopped: bool,
}

impl Alarm {
    /// Whether body timeouts are suspended: while disk space is low the connection is not read, so delay is not the client's fault.
    pub(super) fn stops_body_timers(&self) -> bool {
        self.reason.is_some() && !self.is_of_memory()
    }

    /// Whether memory is low.
    pub(super) fn is_of_memory(&self) -> bool {
        const MEMORY: &[u8] = b"memory";
        self.reason.as_ref().is_some_and(|reason| reason.windows(MEMORY.len()).any(|part| part == MEMORY))
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) settings: Arc<AmqpSettings>,
    pub(super) names: Names,
    pub(super) peer: Peer,
    pub(super) alarm: Alarm,
    pub(super) output: Output,
    pub(super) requests: VecDeque<(Token, Request)>,
    /// Verdicts that are still being collected: the latest of their channel.
    settle: Option<(ChannelRef, Verdict, Vec<Run>)>,
    /// The largest frame that the client accepts, 0 for any. Bytes.
    pub(super) frame_bytes_max: u32,
    /// Bytes held by incomplete messages. Bytes.
    pub(super) assembling_bytes: usize,
    /// Timeouts of those messages.
    pub(super) bodies: Bodies,
    /// Channels with outcomes of publishes to send.
    pub(super) pending_confirms: Vec<u16>,
    next_token: Token,
    next_consumer: u32,
    /// The time of the last reply or event. Milliseconds.
    pub(super) now_ms: u64,
}

impl Core {
    pub(super) fn new(settings: Arc<AmqpSettings>, seed: u128) -> Core {
        Core {
            frame_bytes_max: settings.frame_bytes_max,
            settings,
            names: Names::new(seed),
            peer: Peer::default(),
            alarm: Alarm::default(),
            output: Output::default(),
            requests: VecDeque::new(),
            settle: None,
            assembling_bytes: 0,
            bodies: Bodies::default(),
            pending_confirms: Vec::new(),
            next_token: 0,
            next_consumer: NO_CONSUMERS,
            now_ms: 0,
        }
    }

    /// Makes a token for a request of this channel: 0 for the connection itself.
    fn token(&mut self, channel: u16) -> Token {
        self.next_token += 1;
        self.next_token << 16 | Token::from(channel)
    }

    /// Returns the channel that the reply to a token belongs to.
    pub(super) fn channel_of(token: Token) -> u16 {
        token as u16
    }

    pub(super) fn release_memory(&mut self) {
        self.output.release_memory();
        self.requests.shrink_to_fit();
        self.pending_confirms.shrink_to_fit();
    }

    /// Sends a request of the connection.
    pub(super) fn ask(&mut self, request: Request) -> Token {
        self.flush();
        let token = self.token(0);
        self.requests.push_back((token, request));
        token
    }

    /// Sends a request of a channel, after the verdicts collected for it.
    pub(super) fn ask_for(&mut self, channel: ChannelRef, request: Request) -> Token {
        if self.settle.as_ref().is_some_and(|(of, _, _)| *of == channel) {
            self.flush();
        }
        let token = self.token(channel.number);
        self.requests.push_back((token, request));
        token
    }

    /// Settles a delivery. Consecutive ones of one read are combined into one request.
    pub(super) fn settle(&mut self, channel: ChannelRef, verdict: Verdict, consumer: ConsumerRef, place: Place) {
        match &mut self.settle {
            Some((of, as_, runs)) if *of == channel && *as_ == verdict => add_to_runs(runs, consumer, place),
            _ => {
                self.flush();
                let runs = vec![Run { consumer, first: place, count: 1 }];
                self.settle = Some((channel, verdict, runs));
            }
        }
    }

    /// Turns the collected verdicts into a request.
    pub(super) fn flush(&mut self) {
        if let Some((channel, verdict, runs)) = self.settle.take() {
            let token = self.token(channel.number);
            self.requests.push_back((token, Request::Settle { channel, verdict, runs }));
        }
    }

    /// Assigns the id of a new consumer.
    pub(super) fn consumer(&mut self) -> ConsumerRef {
        self.next_consumer = self.next_consumer.wrapping_add(1).max(NO_CONSUMERS + 1);
        ConsumerRef(self.next_consumer)
    }

    /// Names an exchange of the virtual host for texts.
    pub(super) fn exchange<'a>(&'a self, name: &'a [u8]) -> Named<'a> {
        Named { kind: Kind::Exchange, name, vhost: &self.peer.vhost }
    }

    /// The client has published.
    pub(super) fn published(&mut self) {
        self.alarm.published = true;
        if self.alarm.reason.is_some() {
            self.alarm.stopped = true;
            self.notify_blocked();
        }
    }

    /// A resource alarm was raised.
    pub(super) fn blocked(&mut self, reason: ShortStr) {
        self.alarm.reason = Some(reason);
        self.bodies.check_now(self.now_ms);
        if self.alarm.published {
            self.notify_blocked();
        }
    }

    fn notify_blocked(&mut self) {
        let Some(reason) = self.alarm.reason.clone().filter(|_| !self.alarm.notified) else { return };
        self.alarm.notified = true;
        if self.peer.can.connection_blocked {
            self.output.method(0, &ConnectionBlocked { reason }.into());
        }
    }

    /// The resource alarm was cleared.
    pub(super) fn unblocked(&mut self) {
        self.alarm.reason = None;
        self.alarm.stopped = false;
        if std::mem::take(&mut self.alarm.notified) && self.peer.can.connection_blocked {
            self.output.method(0, &ConnectionUnblocked {}.into());
        }
    }

    /// Returns a mandatory message that was routed to no queue.
    pub(super) fn return_message(
        &mut self,
        channel: ChannelRef,
        exchange: ShortStr,
        routing_key: ShortStr,
        properties: &[u8],
        payload: &Payload,
    ) {
        let reply_text = ShortStr::from_static(Code::NoRoute.name());
        let back = BasicReturn { reply_code: Code::NoRoute.number(), reply_text, exchange, routing_key };
        self.output.method(channel.number, &back.into());
        self.output.content(channel.number, self.frame_bytes_max, properties, payload);
    }

    /// Sends an answer, unless the client set `nowait`.
    pub(super) fn answer(&mut self, channel: ChannelRef, nowait: bool, method: impl Into<Method>) {
        if !nowait {
            self.output.method(channel.number, &method.into());
        }
    }
}

/// One less than the id of the first consumer.
const NO_CONSUMERS: u32 = crate::request::NO_CONSUMER.0;
