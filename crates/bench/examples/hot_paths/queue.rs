//! An AMQP queue: a publisher with confirms, and a consumer that acknowledges.
//!
//! ```text
//!   amqp::client::Client ──bytes──▶ Peer: amqp-gateway::Connection ──▶ Broker ──▶ journal, store
//!   (never counted)                       (counted)                   (stepped)
//! ```

use crate::cases::{Case, Meter};
use crate::node::{Mail, Mailbox, Node, Place, Result};
use bytes::{Bytes, BytesMut};
use polylogue_amqp::client::{Client, ClientEvent, ClientSettings};
use polylogue_amqp::codec::{
    BasicConsume, BasicProperties, BasicPublish, ConfirmSelect, Method, QueueBind, QueueDeclare, ShortStr,
};
use polylogue_amqp::settings::AmqpSettings;
use polylogue_amqp_gateway::{Connection, Directory, InternalIdentity};
use polylogue_broker::{ReplySink, SessionId};
use polylogue_types::Chunk;
use std::collections::VecDeque;
use std::sync::Arc;

/// Messages sent together, as clients flush them.
const BURST: u64 = 100;
/// Bursts before counting, and those counted.
const WARM_BURSTS: u64 = 20;
const COUNTED_BURSTS: u64 = 50;
/// Rounds until a client must have its reply.
const ROUNDS_MAX: usize = 1_000;
const QUEUE: &str = "hot";
const CHANNEL: u16 = 1;

/// A connection as in the server, and the client at its other end.
struct Peer {
    client: Client,
    connection: Connection,
    id: SessionId,
    mailbox: Arc<Mailbox>,
    sink: Arc<dyn ReplySink>,
    mail: VecDeque<Mail>,
    input: BytesMut,
    output: Vec<Chunk>,
    back: BytesMut,
}

impl Peer {
    fn open(node: &Node, directory: &Arc<Directory>) -> Result<Peer> {
        let (id, now) = (node.broker.new_session(), node.broker.now());
        let settings = Arc::new(AmqpSettings::default());
        let (directory, catalog) = (directory.clone(), node.catalog.clone());
        let connection = Connection::new(settings, directory, catalog, id.0, true, 7, now)
            .authenticated_as(InternalIdentity::Operator);
        let mailbox = Arc::<Mailbox>::default();
        let sink: Arc<dyn ReplySink> = mailbox.clone();
        let client = Client::new(ClientSettings::default(), now.monotonic_ms);
        let (mail, input, output, back) = (VecDeque::new(), BytesMut::new(), Vec::new(), BytesMut::new());
        let mut peer = Peer { client, connection, id, mailbox, sink, mail, input, output, back };
        peer.wait(node, |event| matches!(event, ClientEvent::Open))?;
        peer.client.open_channel(CHANNEL).map_err(|e| format!("{e:?}"))?;
        peer.wait(node, |event| matches!(event, ClientEvent::Reply(..)))?;
        Ok(peer)
    }

    fn ask(&mut self, node: &Node, method: impl Into<Method>) -> Result<()> {
        self.client.ask(CHANNEL, method).map_err(|e| format!("{e:?}"))?;
        self.wait(node, |event| matches!(event, ClientEvent::Reply(..)))
    }

    /// Runs until the client has received such an event.
    fn wait(&mut self, node: &Node, is_it: impl Fn(&ClientEvent) -> bool) -> Result<()> {
        for _ in 0..ROUNDS_MAX {
            self.put(node);
            self.take_input(node);
            node.pause();
            node.broker.tick();
            node.commit();
            self.take_mail(node);
            if self.said(node).iter().any(&is_it) {
                return Ok(());
            }
        }
        Err(format!("no answer: {:?}, {:?}", self.client.end(), self.connection.close_reason()).into())
    }

    /// Moves the client's output into the buffer of its connection.
    fn put(&mut self, node: &Node) {
        let mut out = Vec::new();
        self.client.poll_output(&mut out, node.broker.now().monotonic_ms);
        out.iter().filter_map(|chunk| chunk.to_bytes().ok()).for_each(|bytes| self.input.extend_from_slice(&bytes));
    }

    /// The connection processes its input, and sends requests to the broker.
    fn take_input(&mut self, node: &Node) {
        self.connection.begin_turn(u64::MAX);
        self.connection.on_bytes(&mut self.input, node.broker.now());
        self.submit(node);
    }

    /// The connection processes the broker's replies, and produces its output.
    fn take_mail(&mut self, node: &Node) {
        loop {
            self.mailbox.take(&mut self.mail);
            if self.mail.is_empty() {
                self.connection.poll_output(&mut self.output, node.broker.now());
                return self.submit(node);
            }
            while let Some(mail) = self.mail.pop_front() {
                match mail {
                    Mail::Reply(token, reply) => self.connection.on_reply(token, reply, node.broker.now()),
                    Mail::Event(event) => self.connection.on_event(event, node.broker.now()),
                }
            }
            self.submit(node);
        }
    }

    fn submit(&mut self, node: &Node) {
        while let Some((token, request)) = self.connection.poll_request() {
            node.broker.submit(&self.sink, self.id, token, request);
        }
    }

    /// Returns the events that the client receives.
    fn said(&mut self, node: &Node) -> Vec<ClientEvent> {
        let chunks = self.output.drain(..).filter_map(|chunk| chunk.to_bytes().ok());
        chunks.for_each(|bytes| self.back.extend_from_slice(&bytes));
        let mut events = Vec::new();
        loop {
            self.client.on_bytes(&mut self.back, node.broker.now().monotonic_ms);
            let before = events.len();
            events.extend(std::iter::from_fn(|| self.client.poll_event()));
            if events.len() == before {
                return events;
            }
        }
    }
}

/// A broker with a queue.
struct Rig {
    node: Node,
    publisher: Peer,
    consumer: Peer,
    publish: BasicPublish,
    properties: Vec<u8>,
    body: Bytes,
    // Dropped last, with its files.
    _place: Place,
}

impl Rig {
    fn new(body_bytes: usize, exchange: &'static str) -> Result<Rig> {
        let place = Place::new()?;
        let (node, directory) = place.open_for_queues()?;
        node.settle()?;
        let mut publisher = Peer::open(&node, &directory)?;
        let consumer = Peer::open(&node, &directory)?;
        let exchange = ShortStr::from_static(exchange);
        publisher.ask(&node, QueueDeclare { queue: QUEUE.into(), durable: true, ..QueueDeclare::default() })?;
        if !exchange.is_empty() {
            publisher
                .ask(&node, QueueBind { queue: QUEUE.into(), exchange: exchange.clone(), ..QueueBind::default() })?;
        }
        publisher.ask(&node, ConfirmSelect::default())?;
        let publish = BasicPublish { exchange, routing_key: QUEUE.into(), ..BasicPublish::default() };
        let properties = BasicProperties { delivery_mode: Some(2), ..BasicProperties::default() }.encode().to_vec();
        let body = Bytes::from(vec![0x5a; body_bytes]);
        Ok(Rig { node, publisher, consumer, publish, properties, body, _place: place })
    }

    /// Puts a burst of messages into the publisher's buffer.
    fn put(&mut self) -> Result<()> {
        for _ in 0..BURST {
            let published =
                self.publisher.client.publish(CHANNEL, self.publish.clone(), &self.properties, self.body.clone());
            published.map_err(|e| format!("{e:?}"))?;
        }
        self.publisher.put(&self.node);
        Ok(())
    }

    /// Number of messages that the broker has confirmed.
    fn confirmed(&mut self) -> u64 {
        let confirmed = |event: &ClientEvent| match event {
            ClientEvent::Settled { first, last, taken: true, .. } => last - first + 1,
            _ => 0,
        };
        self.publisher.said(&self.node).iter().map(confirmed).sum()
    }

    fn case(&self, path: &str) -> Case {
        let case = Case::new(path).with("burst_messages", BURST).with("body_bytes", self.body.len() as u64);
        case.unit("burst", COUNTED_BURSTS).unit("batch", COUNTED_BURSTS * BURST).unit("message", COUNTED_BURSTS * BURST)
    }
}

fn to(exchange: &str) -> &str {
    if exchange.is_empty() { "the default exchange" } else { exchange }
}

/// A burst, its flush, and its confirms. Each message counts as a batch.
pub(crate) fn publish(meter: &mut dyn Meter, body_bytes: usize, exchange: &'static str) -> Result<()> {
    let mut rig = Rig::new(body_bytes, exchange)?;
    for burst in 0..WARM_BURSTS + COUNTED_BURSTS {
        rig.put()?;
        let (node, publisher) = (&rig.node, &mut rig.publisher);
        let mut work = || {
            publisher.take_input(node);
            node.commit();
            publisher.take_mail(node);
        };
        if burst < WARM_BURSTS {
            work()
        } else {
            meter.count(&mut work)
        }
        let confirmed = rig.confirmed();
        if confirmed != BURST {
            return Err(format!("{confirmed} messages of {BURST} were confirmed").into());
        }
        rig.node.pause();
    }
    meter.end(rig.case(&format!("AMQP publish to {}", to(exchange))))
}

/// The same with a consumer, which acknowledges each burst with one frame.
pub(crate) fn deliver(meter: &mut dyn Meter, body_bytes: usize, exchange: &'static str) -> Result<()> {
    let mut rig = Rig::new(body_bytes, exchange)?;
    rig.consumer.ask(&rig.node, BasicConsume { queue: QUEUE.into(), ..BasicConsume::default() })?;
    for burst in 0..WARM_BURSTS + COUNTED_BURSTS {
        rig.put()?;
        let (node, publisher, consumer) = (&rig.node, &mut rig.publisher, &mut rig.consumer);
        let mut measure = |work: &mut dyn FnMut()| if burst < WARM_BURSTS { work() } else { meter.count(work) };
        measure(&mut || {
            publisher.take_input(node);
            node.commit();
            publisher.take_mail(node);
            consumer.take_mail(node);
        });
        let tag = |event: &ClientEvent| match event {
            ClientEvent::Delivered { deliver, .. } => Some(deliver.delivery_tag),
            _ => None,
        };
        let tags: Vec<u64> = consumer.said(node).iter().filter_map(tag).collect();
        let Some(last) = tags.last().filter(|_| tags.len() as u64 == BURST) else {
            return Err(format!("{} messages of {BURST} were delivered", tags.len()).into());
        };
        consumer.client.ack(CHANNEL, *last, true);
        consumer.put(node);
        measure(&mut || {
            consumer.take_input(node);
            node.commit();
            consumer.take_mail(node);
        });
        let confirmed = rig.confirmed();
        if confirmed != BURST {
            return Err(format!("{confirmed} messages of {BURST} were confirmed").into());
        }
        rig.node.pause();
    }
    meter.end(rig.case(&format!("AMQP publish to {}, deliver, acknowledge", to(exchange))))
}
