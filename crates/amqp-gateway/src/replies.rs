//! Direct reply-to: replies from one connection to another, without a queue.
//!
//! ```text
//!   address  amq.rabbitmq.reply-to.CONSUMER.SECRET      both in hexadecimal; a client that knows it may write there
//! ```

use crate::connection::Connection;
use crate::message::store;
use crate::operation::Waits;
use bytestring::ByteString;
use polylogue_amqp::refusal::{Kind, Named, Refusal};
use polylogue_amqp::request::{self as amqp, ChannelRef, ConsumerRef, Publish, REPLY_PREFIX};
use polylogue_api::{ConsumerId, Credit, Direct, DirectAddress, Request, Token};

/// The reply consumer of a channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replies {
    pub(crate) consumer: ConsumerRef,
    pub(crate) id: ConsumerId,
    /// Replies received since credit was last granted.
    pub(crate) owed: Credit,
}

/// The part of an address after the prefix.
fn suffix(address: DirectAddress) -> String {
    format!("{:x}.{:032x}", address.consumer.0, address.secret)
}

/// Parses the address in a routing key or a queue's name; the inner `None` for an invalid one.
pub(crate) fn address_of(key: &[u8]) -> Option<Option<DirectAddress>> {
    let suffix = key.strip_prefix(REPLY_PREFIX.as_bytes())?;
    let parsed = || {
        let (consumer, secret) = std::str::from_utf8(suffix).ok()?.split_once('.')?;
        let consumer = ConsumerId(u64::from_str_radix(consumer, 16).ok()?);
        Some(DirectAddress { consumer, secret: u128::from_str_radix(secret, 16).ok()? })
    };
    Some(parsed())
}

impl Connection {
    pub(crate) fn open_replies(&mut self, token: Token, channel: ChannelRef, consumer: ConsumerRef) {
        self.ask(Request::AttachDirect, Waits::Replies(token, channel, consumer));
    }

    pub(crate) fn replies_open(
        &mut self,
        token: Token,
        channel: ChannelRef,
        consumer: ConsumerRef,
        address: DirectAddress,
    ) {
        let Some(open) = self.channels.get_mut(&channel) else {
            return self.notify_broker(Request::Detach(address.consumer));
        };
        open.replies = Some(Replies { consumer, id: address.consumer, owed: Credit::default() });
        self.consumers.insert(address.consumer, (channel, consumer));
        self.reply(token, amqp::Reply::ReplyAddress(suffix(address).into()));
    }

    pub(crate) fn close_replies(&mut self, channel: ChannelRef) {
        let Some(replies) = self.channels.get_mut(&channel).and_then(|open| open.replies.take()) else { return };
        self.consumers.remove(&replies.id);
        self.notify_broker(Request::Detach(replies.id));
    }

    /// Sends a message to a reply consumer.
    pub(crate) fn send_reply(&mut self, channel: ChannelRef, publish: Publish, to: Option<DirectAddress>) {
        if let Err(refusal) = self.check_publish(&publish) {
            return self.refuse_publish(channel, refusal);
        }
        self.received(channel, &publish);
        let Some(to) = to else { return self.reply_sent(channel, &publish, false) };
        let direct = direct(&publish, to);
        self.ask(Request::SendDirect(vec![direct]), Waits::ReplySent(channel, Box::new(publish)));
    }

    pub(crate) fn reply_sent(&mut self, channel: ChannelRef, publish: &Publish, there: bool) {
        self.tally.reached(usize::from(there), publish.mandatory);
        if !there && publish.mandatory {
            self.return_message(channel, publish);
        }
        if let Some(seq) = publish.seq {
            self.confirm(channel, seq, seq);
        }
    }

    /// Checks whether a reply consumer exists, for a declaration of such a name.
    pub(crate) fn check_replies(&mut self, token: Token, name: ByteString, to: Option<DirectAddress>) {
        match to {
            Some(to) => {
                self.ask(Request::SendDirect(vec![Direct { to, bytes: None }]), Waits::ReplyLooked(token, name))
            }
            None => self.replies_checked(token, &name, false),
        }
    }

    pub(crate) fn replies_checked(&mut self, token: Token, name: &ByteString, there: bool) {
        let queue = Named { kind: Kind::Queue, name: name.as_bytes(), vhost: self.vhost_name.as_bytes() };
        let reply = match there {
            true => amqp::Reply::Queue { messages: 0, consumers: 1 },
            false => amqp::Reply::Refused(Refusal::missing(queue)),
        };
        self.reply(token, reply);
    }
}

/// The message to send.
pub(crate) fn direct(publish: &Publish, to: DirectAddress) -> Direct {
    let (key, raw) = (publish.routing_key.as_ref(), publish.properties.raw());
    Direct { to, bytes: Some(store(b"", key, raw, None, publish.body.pieces())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::AmqpMachine;
    use crate::testing::Topics;
    use polylogue_amqp_model::Limits;
    use polylogue_api::{Now, Reply};
    use std::sync::Arc;

    #[test]
    fn an_address_round_trips() {
        let address = DirectAddress { consumer: ConsumerId(0x1f), secret: 5 << 90 };
        let name = format!("{REPLY_PREFIX}{}", suffix(address));
        assert_eq!(address_of(name.as_bytes()), Some(Some(address)));
        assert_eq!(address_of(b"amq.rabbitmq.reply-to.invalid"), Some(None));
        assert_eq!(address_of(b"amq.rabbitmq.reply-to"), None);
        assert_eq!(address_of(b"queue"), None);
    }

    #[test]
    fn a_channel_that_ends_takes_no_more_replies() {
        let directory = AmqpMachine::new(Limits::default()).directory();
        let now = Now::default();
        let mut connection = Connection::new(Arc::default(), directory, Arc::new(Topics), 7, true, 1, now);
        let channel = ChannelRef { number: 1, life: 1 };
        connection.begin(1, amqp::Request::OpenChannel(channel));
        connection.begin(2, amqp::Request::OpenReplies(channel, ConsumerRef(1)));
        let Some((token, Request::AttachDirect)) = connection.poll_request() else { panic!("nothing is asked") };
        let address = DirectAddress { consumer: ConsumerId(4), secret: 9 };
        connection.on_reply(token, Reply::AttachDirect(address), now);
        connection.begin(3, amqp::Request::CloseChannel(channel));
        assert!(matches!(connection.poll_request(), Some((_, Request::Detach(ConsumerId(4))))));
    }
}
