//! A broker with queues only, which checks the session's side of the contract: it panics when a session settles a delivery that it does not have, or
//! uses a channel that is not open.

use super::Host;
use bytes::{Bytes, BytesMut};
use polylogue_amqp::codec::{BasicPublish, MethodId, ShortStr};
use polylogue_amqp::refusal::{Code, Kind, Named, Refusal};
use polylogue_amqp::request::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[derive(Clone, Debug)]
struct Message {
    at: u64,
    redelivered: bool,
    exchange: ShortStr,
    routing_key: ShortStr,
    properties: Bytes,
    body: Bytes,
}

#[derive(Debug, Default)]
struct Queue {
    id: u64,
    next: u64,
    ready: VecDeque<Message>,
    consumers: Vec<(ChannelRef, ConsumerRef)>,
}

#[derive(Debug)]
struct Consumer {
    queue: ShortStr,
    no_ack: bool,
    max: u32,
    out: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Broker {
    queues: BTreeMap<ShortStr, Queue>,
    channels: BTreeSet<ChannelRef>,
    /// Channels whose requests are dropped until they are closed.
    refused: BTreeSet<ChannelRef>,
    consumers: BTreeMap<(ChannelRef, ConsumerRef), Consumer>,
    replies: BTreeMap<(ChannelRef, ConsumerRef), ShortStr>,
    /// Unsettled deliveries: by queue and number.
    out: BTreeMap<(u64, u64), (ChannelRef, ConsumerRef, ShortStr, Message)>,
    closed: bool,
    next_queue: u64,
    /// Publishes whose outcome is delayed, for tests of outcomes out of order.
    pub hold_confirms: bool,
    pub held: Vec<(ChannelRef, u64)>,
    /// All published messages, in order.
    pub published: Vec<Publish>,
}

fn joined(body: &Body) -> Bytes {
    let mut out = BytesMut::new();
    body.pieces().iter().for_each(|piece| out.extend_from_slice(piece));
    out.freeze()
}

impl Broker {
    /// A broker that knows a channel that was opened without it.
    pub fn of(channel: ChannelRef) -> Broker {
        Broker { channels: BTreeSet::from([channel]), ..Broker::default() }
    }

    /// Answers requests until there are none.
    pub fn serve(&mut self, host: &mut Host) {
        loop {
            while let Some((token, request)) = host.poll_request() {
                if let Some(reply) = self.on_request(host, request) {
                    host.reply(token, reply);
                }
            }
            if !self.deliver(host) {
                return;
            }
        }
    }

    /// Returns how many messages are ready.
    pub fn ready(&self, queue: &'static str) -> usize {
        self.queues.get(&ShortStr::from(queue)).map_or(0, |queue| queue.ready.len())
    }

    /// Returns how many deliveries are unsettled.
    pub fn unsettled(&self) -> usize {
        self.out.len()
    }

    fn missing(name: &[u8]) -> Reply {
        Reply::Refused(Refusal::missing(Named { kind: Kind::Queue, name, vhost: b"/" }))
    }

    fn on_request(&mut self, host: &mut Host, request: Request) -> Option<Reply> {
        assert!(!self.closed, "after the end: {request:?}");
        if let Some(channel) = channel_of(&request) {
            let opens = matches!(request, Request::OpenChannel(_));
            assert_eq!(self.channels.contains(&channel), !opens, "{request:?}");
            if self.refused.contains(&channel) && !matches!(request, Request::CloseChannel(_)) {
                return None;
            }
        }
        Some(match request {
            Request::OpenChannel(channel) => {
                self.channels.insert(channel);
                Reply::Done
            }
            Request::CloseChannel(channel) => {
                self.end(channel);
                Reply::Done
            }
            Request::DeclareExchange(..) | Request::DeleteExchange { .. } => Reply::Done,
            Request::Bind(..) | Request::Unbind(..) => Reply::Done,
            Request::DeclareQueue(_, wanted) => self.declare(wanted),
            Request::DeleteQueue { queue, .. } => Reply::Count(self.delete(host, &queue)),
            Request::PurgeQueue(_, queue) => match self.queues.get_mut(&queue) {
                Some(queue) => Reply::Count(std::mem::take(&mut queue.ready).len() as u32),
                None => Self::missing(&queue),
            },
            Request::Publish(channel, publish) => {
                self.publish(host, channel, publish);
                return None;
            }
            Request::CheckPublish(channel, publish) => {
                if self.is_missing(&publish) {
                    self.refuse_publish(host, channel, &publish);
                }
                return None;
            }
            Request::Settle { channel, verdict, runs } => {
                self.settle(channel, verdict, &runs);
                return None;
            }
            Request::Qos(..) => return None,
            Request::Consume(channel, consume) => self.consume(channel, consume),
            Request::Cancel(channel, consumer) => {
                // It may have been deleted with its queue.
                self.consumers.remove(&(channel, consumer));
                self.queues.values_mut().for_each(|queue| queue.consumers.retain(|at| *at != (channel, consumer)));
                Reply::Done
            }
            Request::Get { channel, queue, no_ack } => self.get(channel, &queue, no_ack),
            Request::OpenReplies(channel, consumer) => {
                let address = ShortStr::from(format!("{}-{}", channel.life, consumer.0));
                self.replies.insert((channel, consumer), address.clone());
                Reply::ReplyAddress(address)
            }
            Request::CloseReplies(channel, consumer) => {
                assert!(self.replies.remove(&(channel, consumer)).is_some());
                return None;
            }
            Request::Commit { channel, publishes, settled } => {
                for publish in publishes {
                    self.publish(host, channel, publish);
                }
                for (verdict, runs) in settled {
                    self.settle(channel, verdict, &runs);
                }
                if self.refused.contains(&channel) {
                    return None;
                }
                Reply::Done
            }
            of_connection => self.on_connection_request(of_connection),
        })
    }

    fn on_connection_request(&mut self, request: Request) -> Reply {
        match request {
            Request::Authenticate(Credentials::Password { user, password }) if user == password => {
                Reply::Authenticated { user, impersonator: false }
            }
            Request::Authenticate(_) => Reply::Refused(Refusal::new(Code::AccessRefused, "no")),
            Request::OpenVhost(vhost) if &vhost[..] == b"/" => Reply::Done,
            Request::OpenVhost(vhost) => Reply::Refused(Refusal::no_vhost(&vhost)),
            Request::CloseConnection => {
                for channel in self.channels.clone() {
                    self.end(channel);
                }
                self.closed = true;
                Reply::Done
            }
            _ => Reply::Done,
        }
    }

    fn declare(&mut self, wanted: DeclareQueue) -> Reply {
        if !self.queues.contains_key(&wanted.name) {
            if wanted.passive {
                return Self::missing(&wanted.name);
            }
            self.next_queue += 1;
            let queue = Queue { id: self.next_queue, ..Queue::default() };
            self.queues.insert(wanted.name.clone(), queue);
        }
        let queue = &self.queues[&wanted.name];
        Reply::Queue { messages: queue.ready.len() as u32, consumers: queue.consumers.len() as u32 }
    }

    fn delete(&mut self, host: &mut Host, name: &ShortStr) -> u32 {
        let Some(queue) = self.queues.remove(name) else { return 0 };
        for (channel, consumer) in queue.consumers {
            self.consumers.remove(&(channel, consumer));
            host.event(Event::Cancelled { channel, consumer });
        }
        queue.ready.len() as u32
    }

    fn end(&mut self, channel: ChannelRef) {
        self.channels.remove(&channel);
        self.refused.remove(&channel);
        self.consumers.retain(|(of, _), _| *of != channel);
        self.replies.retain(|(of, _), _| *of != channel);
        self.queues.values_mut().for_each(|queue| queue.consumers.retain(|(of, _)| *of != channel));
        let back: Vec<_> = self.out.iter().filter(|(_, out)| out.0 == channel).map(|(at, _)| *at).collect();
        for at in back {
            let (_, _, name, message) = self.out.remove(&at).expect("it is out");
            self.put_back(at.0, &name, message);
        }
    }

    fn put_back(&mut self, id: u64, name: &ShortStr, message: Message) {
        let Some(queue) = self.queues.get_mut(name).filter(|queue| queue.id == id) else { return };
        let at = queue.ready.partition_point(|ready| ready.at < message.at);
        queue.ready.insert(at, Message { redelivered: true, ..message });
    }

    fn publish(&mut self, host: &mut Host, channel: ChannelRef, publish: Publish) {
        self.published.push(publish.clone());
        if self.is_missing(&publish) {
            return self.refuse_publish(host, channel, &publish);
        }
        let Publish { seq, exchange, routing_key, mandatory, properties, cc, bcc, body, .. } = publish;
        let (body, properties) = (joined(&body), properties.raw().clone());
        let keys = [routing_key.bytes().clone()].into_iter().chain(cc).chain(bcc);
        let keys: BTreeSet<Bytes> = keys.collect();
        let mut reached = self.reply(host, &routing_key, &properties, &body);
        for key in keys.into_iter().filter_map(ShortStr::new) {
            let Some(queue) = self.queues.get_mut(&key) else { continue };
            reached = true;
            queue.next += 1;
            queue.ready.push_back(Message {
                at: queue.next,
                redelivered: false,
                exchange: exchange.clone(),
                routing_key: routing_key.clone(),
                properties: properties.clone(),
                body: body.clone(),
            });
        }
        if !reached && mandatory {
            host.event(Event::Return { channel, exchange, routing_key, properties, payload: body.into() });
        }
        match seq {
            Some(seq) if self.hold_confirms => self.held.push((channel, seq)),
            Some(seq) => host.event(Event::Confirmed { channel, first: seq, last: seq }),
            None => {}
        }
    }

    /// Whether a message is refused.
    fn is_missing(&self, publish: &Publish) -> bool {
        &publish.exchange[..] == b"missing"
    }

    /// Refuses a message. No request may follow for later frames of its channel.
    fn refuse_publish(&mut self, host: &mut Host, channel: ChannelRef, publish: &Publish) {
        let refusal = Refusal::missing(Named { kind: Kind::Exchange, name: &publish.exchange, vhost: b"/" });
        host.event(Event::CloseChannel { channel, method: BasicPublish::ID, refusal });
        loop {
            match host.poll_request() {
                Some((_, Request::CloseChannel(of))) if of == channel => return self.end(channel),
                // Malformed bytes came before the broker took the publish.
                Some((token, request @ Request::CloseConnection)) => {
                    let reply = self.on_connection_request(request);
                    return host.reply(token, reply);
                }
                // Another channel, which was closed before, continues.
                Some((token, request)) if channel_of(&request).is_some_and(|of| of != channel) => {
                    if let Some(reply) = self.on_request(host, request) {
                        host.reply(token, reply);
                    }
                }
                other => panic!("{other:?} behind a refused publish"),
            }
        }
    }

    /// Delivers a message to a reply consumer.
    fn reply(&mut self, host: &mut Host, key: &ShortStr, properties: &Bytes, body: &Bytes) -> bool {
        let address = key.strip_prefix(REPLY_PREFIX.as_bytes());
        let to = self.replies.iter().find(|(_, of)| address == Some(&of[..])).map(|(at, _)| *at);
        let Some((channel, consumer)) = to else { return false };
        let delivery = Delivery {
            place: Place { queue: 0, at: 0 },
            redelivered: false,
            exchange: ShortStr::EMPTY,
            routing_key: key.clone(),
            properties: properties.clone(),
            payload: body.clone().into(),
        };
        host.event(Event::Deliver { channel, consumer, deliveries: vec![delivery] });
        true
    }

    fn settle(&mut self, channel: ChannelRef, verdict: Verdict, runs: &[Run]) {
        for run in runs {
            assert!(run.count > 0);
            for at in run.first.at..run.first.at + run.count {
                let key = (run.first.queue, at);
                let (of, consumer, name, message) = self.out.remove(&key).expect("settled twice, or never delivered");
                assert_eq!((of, consumer), (channel, run.consumer));
                if let Some(consumer) = self.consumers.get_mut(&(channel, consumer)) {
                    consumer.out -= 1;
                }
                if matches!(verdict, Verdict::Requeue | Verdict::RequeueFailed) {
                    self.put_back(key.0, &name, message);
                }
            }
        }
    }

    fn consume(&mut self, channel: ChannelRef, consume: Consume) -> Reply {
        let Some(queue) = self.queues.get_mut(&consume.queue) else { return Self::missing(&consume.queue) };
        queue.consumers.push((channel, consume.consumer));
        let Consume { queue, no_ack, deliveries_max: max, .. } = consume;
        let before = self.consumers.insert((channel, consume.consumer), Consumer { queue, no_ack, max, out: 0 });
        assert!(before.is_none(), "a consumer twice");
        Reply::Done
    }

    fn get(&mut self, channel: ChannelRef, name: &ShortStr, no_ack: bool) -> Reply {
        let Some(queue) = self.queues.get_mut(name) else { return Self::missing(name) };
        let Some(message) = queue.ready.pop_front() else { return Reply::Message(None) };
        let (id, left) = (queue.id, queue.ready.len() as u32);
        let delivery = self.hand_out(channel, NO_CONSUMER, (id, name), message, no_ack);
        Reply::Message(Some(Box::new((delivery, left))))
    }

    fn hand_out(
        &mut self,
        channel: ChannelRef,
        consumer: ConsumerRef,
        (id, name): (u64, &ShortStr),
        message: Message,
        no_ack: bool,
    ) -> Delivery {
        let delivery = Delivery {
            place: Place { queue: id, at: message.at },
            redelivered: message.redelivered,
            exchange: message.exchange.clone(),
            routing_key: message.routing_key.clone(),
            properties: message.properties.clone(),
            payload: message.body.clone().into(),
        };
        if !no_ack {
            let before = self.out.insert((id, message.at), (channel, consumer, name.clone(), message));
            assert!(before.is_none());
        }
        delivery
    }

    /// Delivers all that can be delivered; whether there was anything.
    fn deliver(&mut self, host: &mut Host) -> bool {
        let at: Vec<_> = self.consumers.keys().copied().collect();
        let mut any = false;
        for (channel, consumer) in at {
            let Some(entry) = self.consumers.get(&(channel, consumer)) else { continue };
            let (name, no_ack) = (entry.queue.clone(), entry.no_ack);
            let free = if no_ack { 16 } else { entry.max - entry.out };
            if self.refused.contains(&channel) || !host.session.may_deliver(channel) {
                continue;
            }
            let mut deliveries = Vec::new();
            for _ in 0..free.min(16) {
                let Some(queue) = self.queues.get_mut(&name) else { break };
                let Some(message) = queue.ready.pop_front() else { break };
                let id = queue.id;
                deliveries.push(self.hand_out(channel, consumer, (id, &name), message, no_ack));
            }
            if let Some(entry) = self.consumers.get_mut(&(channel, consumer)).filter(|_| !no_ack) {
                entry.out += deliveries.len() as u32;
            }
            if !deliveries.is_empty() {
                any = true;
                host.event(Event::Deliver { channel, consumer, deliveries });
            }
        }
        any
    }

    /// Closes a channel, as for an acknowledgement timeout.
    pub fn refuse_any(&mut self, host: &mut Host) {
        if let Some(channel) = self.channels.iter().find(|channel| !self.refused.contains(channel)).copied() {
            self.refused.insert(channel);
            let refusal = Refusal::unknown_delivery_tag(0);
            host.event(Event::CloseChannel { channel, method: MethodId::NONE, refusal });
        }
    }
}

fn channel_of(request: &Request) -> Option<ChannelRef> {
    Some(match request {
        Request::Authenticate(_) | Request::OpenVhost(_) | Request::UpdateSecret(_) | Request::CloseConnection => {
            return None;
        }
        Request::OpenChannel(channel)
        | Request::CloseChannel(channel)
        | Request::DeclareQueue(channel, _)
        | Request::PurgeQueue(channel, _)
        | Request::DeclareExchange(channel, _)
        | Request::Bind(channel, _)
        | Request::Unbind(channel, _)
        | Request::Publish(channel, _)
        | Request::CheckPublish(channel, _)
        | Request::Qos(channel, _)
        | Request::Consume(channel, _)
        | Request::Cancel(channel, _)
        | Request::OpenReplies(channel, _)
        | Request::CloseReplies(channel, _)
        | Request::DeleteQueue { channel, .. }
        | Request::DeleteExchange { channel, .. }
        | Request::Settle { channel, .. }
        | Request::Get { channel, .. }
        | Request::Commit { channel, .. } => *channel,
    })
}
