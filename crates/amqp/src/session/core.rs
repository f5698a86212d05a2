//! What all channels of a connection share: requests on their way out, bytes on their way out, limits, numbers.

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

/// What the client said that it can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Capabilities {
    /// It wants to know when a consumer is cancelled.
    pub(super) consumer_cancel_notify: bool,
    /// It wants to know when it may not publish.
    pub(super) connection_blocked: bool,
    /// It wants to know that its login was refused.
    pub(super) authentication_failure_close: bool,
}

/// Who is at the other end, as far as is known.
#[derive(Debug, Default)]
pub(super) struct Peer {
    pub(super) user: Bytes,
    pub(super) impersonator: bool,
    pub(super) vhost: ShortStr,
    pub(super) can: Capabilities,
    /// What it said of itself, until somebody takes it.
    pub(super) client_properties: Table,
}

/// Whether publishers have to wait.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    /// What runs short.
    reason: Option<ShortStr>,
    /// The client knows.
    told: bool,
    /// The client has published, ever.
    published: bool,
    /// It has published while something ran short: nothing more is read, but for what has begun.
    pub(super) stopped: bool,
}

impl Alarm {
    /// Whether bodies may be late: what waits for room on the disk is not read, and its client is not to blame.
    pub(super) fn excuses_bodies(&self) -> bool {
        self.reason.is_some() && !self.is_of_memory()
    }

    /// Whether memory does.
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
    /// Verdicts that are still being collected: the last of their channel.
    settle: Option<(ChannelRef, Verdict, Vec<Run>)>,
    /// The largest frame that the client takes, 0 for any. Bytes.
    pub(super) frame_bytes_max: u32,
    /// What is held of messages that are not complete. Bytes.
    pub(super) assembling_bytes: usize,
    /// Those messages.
    pub(super) bodies: Bodies,
    /// Channels that have outcomes of publishes to tell.
    pub(super) news: Vec<u16>,
    next_token: Token,
    next_consumer: u32,
    /// As of the last reply or event. Milliseconds.
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
            news: Vec::new(),
            next_token: 0,
            next_consumer: NO_CONSUMERS,
            now_ms: 0,
        }
    }

    /// A token whose reply belongs to this channel: 0 for the connection itself.
    fn token(&mut self, channel: u16) -> Token {
        self.next_token += 1;
        self.next_token << 16 | Token::from(channel)
    }

    /// The channel that the reply to a token belongs to.
    pub(super) fn channel_of(token: Token) -> u16 {
        token as u16
    }

    pub(super) fn rest(&mut self) {
        self.output.rest();
        self.requests.shrink_to_fit();
        self.news.shrink_to_fit();
    }

    /// Asks for something of the connection.
    pub(super) fn ask(&mut self, request: Request) -> Token {
        self.flush();
        let token = self.token(0);
        self.requests.push_back((token, request));
        token
    }

    /// Asks for something of a channel, after the verdicts that came before on it.
    pub(super) fn ask_for(&mut self, channel: ChannelRef, request: Request) -> Token {
        if self.settle.as_ref().is_some_and(|(of, _, _)| *of == channel) {
            self.flush();
        }
        let token = self.token(channel.number);
        self.requests.push_back((token, request));
        token
    }

    /// A delivery is settled. Neighbours in one read become one request.
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

    /// The verdicts that were collected become a request.
    pub(super) fn flush(&mut self) {
        if let Some((channel, verdict, runs)) = self.settle.take() {
            let token = self.token(channel.number);
            self.requests.push_back((token, Request::Settle { channel, verdict, runs }));
        }
    }

    /// The name of a new consumer.
    pub(super) fn consumer(&mut self) -> ConsumerRef {
        self.next_consumer = self.next_consumer.wrapping_add(1).max(NO_CONSUMERS + 1);
        ConsumerRef(self.next_consumer)
    }

    /// An exchange of the virtual host, as texts name it.
    pub(super) fn exchange<'a>(&'a self, name: &'a [u8]) -> Named<'a> {
        Named { kind: Kind::Exchange, name, vhost: &self.peer.vhost }
    }

    /// The client publishes.
    pub(super) fn published(&mut self) {
        self.alarm.published = true;
        if self.alarm.reason.is_some() {
            self.alarm.stopped = true;
            self.tell_blocked();
        }
    }

    /// Something runs short.
    pub(super) fn blocked(&mut self, reason: ShortStr) {
        self.alarm.reason = Some(reason);
        self.bodies.hurry(self.now_ms);
        if self.alarm.published {
            self.tell_blocked();
        }
    }

    fn tell_blocked(&mut self) {
        let Some(reason) = self.alarm.reason.clone().filter(|_| !self.alarm.told) else { return };
        self.alarm.told = true;
        if self.peer.can.connection_blocked {
            self.output.method(0, &ConnectionBlocked { reason }.into());
        }
    }

    /// Nothing runs short any more.
    pub(super) fn unblocked(&mut self) {
        self.alarm.reason = None;
        self.alarm.stopped = false;
        if std::mem::take(&mut self.alarm.told) && self.peer.can.connection_blocked {
            self.output.method(0, &ConnectionUnblocked {}.into());
        }
    }

    /// A mandatory message reached no queue.
    pub(super) fn give_back(
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

    /// Answers a method, unless no answer is wanted.
    pub(super) fn answer(&mut self, channel: ChannelRef, nowait: bool, method: impl Into<Method>) {
        if !nowait {
            self.output.method(channel.number, &method.into());
        }
    }
}

/// The number below that of the first consumer.
const NO_CONSUMERS: u32 = crate::request::NO_CONSUMER.0;
