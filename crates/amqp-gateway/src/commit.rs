//! Transactions: publishes and settlements take effect at the commit.

use crate::connection::Connection;
use crate::convert::unavailable;
use crate::operation::Waits;
use crate::publish::{Routed, TARGETS_PER_REQUEST, more_targets};
use crate::replies::address_of;
use crate::route::PausedRoute;
use crate::turn::{Awaiting, TARGET_STEPS, Work};
use polylogue_amqp::refusal::Refusal;
use polylogue_amqp::request::{self as amqp, ChannelRef, Publish};
use polylogue_api::{Ack, PublishError, PublishMessage, PublishRequest, Request, SettleError, SettleRequest, Token};

/// The messages of a transaction, of which the first ones are routed.
#[derive(Debug)]
pub(crate) struct Commit {
    pub(crate) token: Token,
    pub(crate) channel: ChannelRef,
    pub(crate) publishes: Vec<Publish>,
    pub(crate) settled: Vec<(amqp::Verdict, Vec<amqp::Run>)>,
    /// The messages of the first publishes; `None` for a direct reply, which is not published to queues.
    pub(crate) messages: Vec<Option<PublishMessage>>,
}

impl Connection {
    /// Routes the messages of a transaction, or continues routing, and publishes them once all are routed.
    pub(crate) fn commit_on(
        &mut self,
        mut commit: Box<Commit>,
        mut paused_route: Option<Box<PausedRoute>>,
        is_later: bool,
    ) {
        let steps = self.turn.steps;
        while let Some(publish) = commit.publishes.get(commit.messages.len()) {
            if self.turn.steps == 0 {
                let is_long = is_later || self.turn.is_long(steps);
                return self.turn.work.push_front(Work::Commit(commit, paused_route, is_long));
            }
            let is_reply = publish.exchange.is_empty() && address_of(&publish.routing_key).is_some();
            let message = match is_reply {
                true => None,
                false => match self.route(publish, paused_route.take()) {
                    Ok(Routed::To(message, _)) => Some(message),
                    Ok(Routed::Left(paused_route)) => {
                        let is_long = is_later || self.turn.is_long(steps);
                        return self.turn.work.push_front(Work::Commit(commit, Some(paused_route), is_long));
                    }
                    Err(refusal) => return self.reply(commit.token, amqp::Reply::Refused(refusal)),
                },
            };
            commit.messages.push(message);
        }
        self.commit_messages(*commit);
    }

    fn commit_messages(&mut self, commit: Commit) {
        let Commit { token, channel, publishes, settled, messages } = commit;
        for (publish, message) in publishes.iter().zip(&messages) {
            if message.is_none()
                && let Some(to) = address_of(&publish.routing_key)
            {
                self.send_reply(channel, publish.clone(), to);
            }
        }
        for (publish, message) in publishes.iter().zip(&messages) {
            let Some(message) = message else { continue };
            self.received(channel, publish);
            self.tally.reached(message.queues.len(), publish.mandatory);
            if publish.mandatory && message.queues.is_empty() {
                self.return_message(channel, publish);
            }
        }
        let messages: Vec<_> = messages.into_iter().flatten().collect();
        if messages.is_empty() {
            // Settlements alone do not wait for disk space.
            return self.commit_settles(token, channel, &settled, &[]);
        }
        let targets = more_targets(&messages);
        if targets > TARGETS_PER_REQUEST {
            return self.send_in_pieces(messages.into(), Awaiting::Commit(token, channel, settled));
        }
        self.turn.charge(TARGET_STEPS * targets as u64);
        let request = PublishRequest { messages, ack: Ack::Committed, patient: false };
        self.ask(Request::Publish(request), Waits::CommitPublished(token, channel, settled));
    }

    pub(crate) fn commit_settled(&mut self, token: Token, results: &[Result<(), SettleError>]) {
        // A delivery that is no longer held is no error: its queue was deleted, or it was delivered to others.
        let failed = results.iter().find_map(|result| match result {
            Err(SettleError::Unavailable(why)) => Some(unavailable(*why)),
            _ => None,
        });
        self.reply(token, failed.map_or(amqp::Reply::Done, amqp::Reply::Refused));
    }

    pub(crate) fn commit_settles(
        &mut self,
        token: Token,
        channel: ChannelRef,
        settled: &[(amqp::Verdict, Vec<amqp::Run>)],
        results: &[Result<(), PublishError>],
    ) {
        if !results.iter().copied().all(crate::publish::arrived) {
            return self.reply(token, amqp::Reply::Refused(Refusal::partial_tx()));
        }
        let mut settlements = Vec::new();
        for (verdict, runs) in settled {
            settlements.extend(self.settlements(channel, *verdict, runs));
        }
        self.ask(Request::Settle(SettleRequest { settlements, wait: true }), Waits::CommitSettled(token));
        for (_, runs) in settled {
            self.remove_settled(channel, runs);
        }
        self.give_where_starved();
    }
}
