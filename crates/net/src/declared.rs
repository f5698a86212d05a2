//! Queries and changes of the AMQP metadata, for both http listeners.

use crate::Shared;
use crate::Visit;
use crate::handle::BrokerHandle;
use crate::mailbox::Mail;
use bytes::Bytes;
use bytestring::ByteString;
use polylogue_amqp::codec::ShortStr;
use polylogue_amqp::refusal::Refusal;
use polylogue_amqp::request::{self as amqp, Delivery, NO_CONSUMER, Place, Run, Verdict};
use polylogue_amqp_gateway::{
    AmqpAnswer, Directory, MANAGEMENT_CHANNEL, Presence, Principal, PrincipalOutput, View, managed, managed_by, sent_at,
};
use polylogue_amqp_model::{Command, Queue, QueueKind, Refused, Reply as Changed};
use polylogue_api::{Catalog, CreateTopics, Now, PeekQueues, QueueCounts, Reply, Request, TopicError, Unavailable};
use polylogue_types::STEPS_PER_TURN;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How long a handler waits for the broker.
const PATIENCE: Duration = Duration::from_secs(15);
/// Queues counted by one request to the broker.
const COUNTED_MAX: usize = 1_000;

/// Why a request failed.
#[derive(Debug)]
pub enum Fault {
    /// The AMQP metadata refused the change.
    Refused(Refused),
    /// The broker refused the request.
    Unavailable(Unavailable),
    /// No reply in time: whether the request took effect is unknown.
    Timeout,
    /// The broker returned an unexpected reply.
    Internal(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Refused(why) => f.write_str(&why.text),
            Fault::Unavailable(why) => write!(f, "the broker cannot do it now ({why:?})"),
            Fault::Timeout => f.write_str("the broker did not answer in time"),
            Fault::Internal(why) => f.write_str(why),
        }
    }
}

async fn in_time<T>(answer: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(result) => result,
        Err(_) => Err(Fault::Timeout),
    }
}

fn something_else() -> Fault {
    Fault::Internal("the broker returned a reply of the wrong kind".to_owned())
}

/// Sends one request and waits for its reply.
async fn one(broker: &Arc<dyn BrokerHandle>, request: Request) -> Result<Reply, Fault> {
    in_time(async {
        let visit = Visit::new(broker);
        visit.submit(0, request);
        loop {
            for mail in visit.mail().await {
                if let Mail::Reply(_, reply) = mail {
                    return Ok(reply);
                }
            }
        }
    })
    .await
}

async fn metadata(broker: &Arc<dyn BrokerHandle>, request: Request) -> Result<AmqpAnswer, Fault> {
    match one(broker, request).await? {
        Reply::Machine(Ok(answer)) => match answer.downcast::<AmqpAnswer>() {
            Ok(answer) => Ok(*answer),
            Err(_) => Err(something_else()),
        },
        Reply::Machine(Err(why)) => Err(Fault::Unavailable(why)),
        _ => Err(something_else()),
    }
}

/// Returns the current definitions.
pub async fn view(broker: &Arc<dyn BrokerHandle>) -> Result<Arc<View>, Fault> {
    match metadata(broker, polylogue_amqp_gateway::view()).await? {
        AmqpAnswer::View(view) => Ok(view),
        _ => Err(something_else()),
    }
}

/// Applies a management command.
pub async fn change(broker: &Arc<dyn BrokerHandle>, command: Command) -> Result<Changed, Fault> {
    changed(broker, managed(command)).await
}

/// The same, on behalf of a stored user, who is recorded as the author of the parameters it sets.
pub async fn change_by(broker: &Arc<dyn BrokerHandle>, author: ByteString, command: Command) -> Result<Changed, Fault> {
    changed(broker, managed_by(author, command)).await
}

async fn changed(broker: &Arc<dyn BrokerHandle>, request: Request) -> Result<Changed, Fault> {
    match metadata(broker, request).await? {
        AmqpAnswer::Done(reply) => Ok(reply),
        AmqpAnswer::Refused(why) => Err(Fault::Refused(why)),
        _ => Err(something_else()),
    }
}

/// Returns the queues' counts, in the same order; zeros for a queue whose topic is still being created.
pub async fn counts(
    broker: &Arc<dyn BrokerHandle>,
    directory: &Directory,
    queues: &[Arc<Queue>],
) -> Result<Vec<QueueCounts>, Fault> {
    let catalog = broker.catalog();
    let mut all = vec![QueueCounts::default(); queues.len()];
    let there: Vec<_> = queues
        .iter()
        .enumerate()
        .filter_map(|(at, queue)| Some((at, directory.partition(queue.id, catalog.as_ref())?)))
        .collect();
    for some in there.chunks(COUNTED_MAX) {
        let partitions = some.iter().map(|(_, partition)| *partition).collect();
        let Reply::DescribeQueues(counts) = one(broker, Request::DescribeQueues(partitions)).await? else {
            return Err(something_else());
        };
        for ((at, _), counts) in some.iter().zip(counts) {
            if let (Some(slot), Some(counts), Some(queue)) = (all.get_mut(*at), counts, queues.get(*at)) {
                *slot = of_queue(queue, counts);
            }
        }
    }
    Ok(all)
}

/// Adjusts the persistent counts as in RabbitMQ: a quorum queue has no transient messages, and a queue that is not durable has only those.
fn of_queue(queue: &Queue, counts: QueueCounts) -> QueueCounts {
    let (transient, transient_bytes) = match (queue.kind, queue.durable) {
        (QueueKind::Quorum | QueueKind::Stream, _) => (0, 0),
        (QueueKind::Classic, true) => (counts.transient, counts.transient_bytes),
        (QueueKind::Classic, false) => (counts.messages(), counts.bytes()),
    };
    QueueCounts { transient, transient_bytes, ..counts }
}

/// Returns the timestamp property of each queue's oldest message, in the same order. At most `reads_max` queues are read from disk; of others
/// the timestamp is known only if the message is in memory. Seconds since the Unix epoch.
pub async fn oldest_sent(
    broker: &Arc<dyn BrokerHandle>,
    directory: &Directory,
    queues: &[Arc<Queue>],
    reads_max: usize,
) -> Result<Vec<Option<u64>>, Fault> {
    let catalog = broker.catalog();
    let mut all = vec![None; queues.len()];
    let there: Vec<_> = queues
        .iter()
        .enumerate()
        .filter_map(|(at, queue)| Some((at, directory.partition(queue.id, catalog.as_ref())?)))
        .collect();
    for (some, reads_max) in there.chunks(COUNTED_MAX).zip(std::iter::once(reads_max).chain(std::iter::repeat(0))) {
        let queues = some.iter().map(|(_, partition)| *partition).collect();
        let peek = PeekQueues { queues, reads_max };
        let Reply::PeekQueues(heads) = one(broker, Request::PeekQueues(peek)).await? else {
            return Err(something_else());
        };
        for ((at, _), head) in some.iter().zip(heads) {
            if let Some(slot) = all.get_mut(*at) {
                *slot = head.as_ref().and_then(sent_at);
            }
        }
    }
    Ok(all)
}

/// Creates the missing topics of queues, such as those of imported definitions.
pub async fn make_topics(broker: &Arc<dyn BrokerHandle>, directory: &Directory) -> Result<(), Fault> {
    let catalog = broker.catalog();
    let view = view(broker).await?;
    loop {
        let topics = directory.missing_topics(&view, catalog.as_ref());
        if topics.is_empty() {
            return Ok(());
        }
        let create = CreateTopics { topics, validate_only: false };
        let Reply::CreateTopics(made) = one(broker, Request::CreateTopics(create)).await? else {
            return Err(something_else());
        };
        for made in made {
            match made {
                // A client that declares the queue creates it, too.
                Ok(_) | Err(TopicError::Exists) => {}
                Err(TopicError::Unavailable(why)) => return Err(Fault::Unavailable(why)),
                Err(other) => return Err(Fault::Internal(format!("a queue's topic cannot be made: {other:?}"))),
            }
        }
    }
}

/// Deletes a virtual host and closes its connections with RabbitMQ's reason.
pub async fn delete_vhost(
    broker: &Arc<dyn BrokerHandle>,
    directory: &Directory,
    net: &Shared,
    name: &str,
) -> Result<(), Fault> {
    let id = view(broker).await?.metadata.vhost_named(name).map(|vhost| vhost.id);
    change(broker, Command::DeleteVhost(name.into())).await?;
    end_connections(directory, net, |client| Some(client.vhost) == id, &format!("vhost '{name}' is deleted"));
    Ok(())
}

/// Closes the connections that match.
pub fn end_connections(directory: &Directory, net: &Shared, which: impl Fn(&Presence) -> bool, why: &str) {
    let clients = directory.clients();
    for client in clients.iter().filter(|client| which(client)) {
        net.connections.end(client.id, why);
    }
}

/// Closes the connections of a deleted user, of all protocols: its access control lists would otherwise stay in effect for them.
pub fn end_user(directory: &Directory, net: &Shared, name: &str) {
    let why = format!("user '{name}' is deleted");
    end_connections(directory, net, |client| client.user == *name, &why);
    net.connections.user_gone(name);
}

/// Returns a message's body as one buffer.
pub fn payload_of(delivery: &Delivery) -> Result<Bytes, Fault> {
    let mut whole = Vec::with_capacity(delivery.payload.len());
    for piece in delivery.payload.pieces() {
        let piece = piece.to_bytes().map_err(|error| Fault::Internal(error.to_string()))?;
        whole.extend_from_slice(&piece);
    }
    Ok(Bytes::from(whole))
}

/// An internal connection to a virtual host, with its transport.
#[derive(Debug)]
pub struct Asker<'a> {
    visit: Visit<'a>,
    broker: &'a Arc<dyn BrokerHandle>,
    principal: Principal,
}

impl<'a> Asker<'a> {
    /// Creates a principal by `who`, which is passed the session's id.
    pub fn new(
        broker: &'a Arc<dyn BrokerHandle>,
        who: impl FnOnce(Arc<dyn Catalog>, u64, Now) -> Principal,
    ) -> Asker<'a> {
        let visit = Visit::new(broker);
        let mut principal = who(broker.catalog(), visit.id.0, broker.now());
        principal.begin_turn(STEPS_PER_TURN);
        Asker { visit, broker, principal }
    }

    /// Sends a request that has no reply.
    pub fn tell(&mut self, request: amqp::Request) {
        self.principal.ask(request);
        self.submit();
    }

    fn submit(&mut self) {
        while let Some((token, request)) = self.principal.poll_request() {
            self.visit.submit(token, request);
        }
    }

    /// Publishes; the publish is sent to the broker at the next wait at the latest.
    pub fn publish(&mut self, publish: amqp::Publish) {
        self.principal.publish(publish);
        self.submit();
    }

    /// Whether the limit of unconfirmed publishes allows another one.
    pub fn may_publish(&self) -> bool {
        self.principal.may_publish()
    }

    /// Returns the next output if there is one already.
    pub fn ready_output(&mut self) -> Option<PrincipalOutput> {
        self.principal.poll_output()
    }

    /// Waits for the next output.
    pub async fn next_output(&mut self) -> Result<PrincipalOutput, Fault> {
        self.principal.flush();
        in_time(async {
            loop {
                // Work that exceeds a turn continues in slices, so that no connection waits for it.
                self.principal.begin_turn(STEPS_PER_TURN);
                self.submit();
                if let Some(output) = self.principal.poll_output() {
                    return Ok(output);
                }
                if self.principal.unfinished().is_some() {
                    tokio::task::yield_now().await;
                    continue;
                }
                let wait = self
                    .principal
                    .next_deadline_ms()
                    .map(|at| Duration::from_millis(at.saturating_sub(self.broker.now().monotonic_ms)));
                let mail = match wait {
                    None => self.visit.mail().await,
                    Some(wait) => tokio::time::timeout(wait, self.visit.mail()).await.unwrap_or_default(),
                };
                let now = self.broker.now();
                for mail in mail {
                    match mail {
                        Mail::Reply(token, reply) => self.principal.on_reply(token, reply, now),
                        Mail::Event(event) => self.principal.on_event(event, now),
                        Mail::Permit(_)
                        | Mail::Fetched
                        | Mail::Alarm
                        | Mail::Stop
                        | Mail::End(_)
                        | Mail::UserGone(_) => {}
                    }
                }
                self.principal.on_deadline(now);
            }
        })
        .await
    }

    /// Sends a request and waits for its reply.
    pub async fn ask(&mut self, request: amqp::Request) -> Result<amqp::Reply, Fault> {
        self.tell(request);
        match self.next_output().await? {
            PrincipalOutput::Reply(reply) => Ok(reply),
            PrincipalOutput::Event(_) | PrincipalOutput::Rejected { .. } => Err(something_else()),
        }
    }
}

/// Messages that one request got from queues. Unless it settles them, they return to their positions as if not delivered when it ends, so that
/// a client that disconnects loses nothing.
#[derive(Debug)]
pub struct Got<'a> {
    asker: Asker<'a>,
    places: Vec<Place>,
}

fn runs(places: &[Place]) -> Vec<Run> {
    places.iter().map(|place| Run { consumer: NO_CONSUMER, first: *place, count: 1 }).collect()
}

impl<'a> Got<'a> {
    /// Creates it without messages; `asker` gets them.
    pub fn new(asker: Asker<'a>) -> Got<'a> {
        Got { asker, places: Vec::new() }
    }

    /// Gets one more message, with the number of ready ones after it; `None` when none is ready.
    pub async fn get(&mut self, queue: &ShortStr) -> Result<Result<Option<(Delivery, u32)>, Refusal>, Fault> {
        let get = amqp::Request::Get { channel: MANAGEMENT_CHANNEL, queue: queue.clone(), no_ack: false };
        match self.asker.ask(get).await? {
            amqp::Reply::Message(message) => {
                let message = message.map(|message| *message);
                self.places.extend(message.as_ref().map(|(delivery, _)| delivery.place));
                Ok(Ok(message))
            }
            amqp::Reply::Refused(why) => Ok(Err(why)),
            _ => Err(something_else()),
        }
    }

    /// Returns the principal that gets them.
    pub fn asker(&mut self) -> &mut Asker<'a> {
        &mut self.asker
    }

    /// Acknowledges some of them. They are removed once the reply `Done` has arrived.
    pub async fn acknowledge(&mut self, mut places: Vec<Place>) -> Result<amqp::Reply, Fault> {
        let settled = vec![(Verdict::Ack, runs(&places))];
        // With priorities the order of delivery differs from that of positions.
        places.sort_unstable();
        self.places.retain(|place| places.binary_search(place).is_err());
        self.asker.ask(amqp::Request::Commit { channel: MANAGEMENT_CHANNEL, publishes: Vec::new(), settled }).await
    }

    /// Settles all of them.
    pub fn settle(&mut self, verdict: Verdict) {
        let places = std::mem::take(&mut self.places);
        if !places.is_empty() {
            self.asker.tell(amqp::Request::Settle { channel: MANAGEMENT_CHANNEL, verdict, runs: runs(&places) });
        }
    }
}

impl Drop for Got<'_> {
    fn drop(&mut self) {
        self.settle(Verdict::Requeue);
    }
}
