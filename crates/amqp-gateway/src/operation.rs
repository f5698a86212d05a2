//! Requests of a session, step by step until their reply.

use crate::begin::begin;
use crate::commit::Commit;
use crate::connection::{Channel, Connection};
use crate::convert::{arguments, name, refusal, unattached, unavailable, unsettled};
use crate::counts::{Count, QueueCount};
use crate::deliver::{Cancelled, Consumer, Pull, WINDOW_MESSAGES, delivery_of};
use crate::directory::QueueEntry;
use crate::flow::Amount;
use crate::login::Password;
use crate::machine::{AmqpAnswer, AmqpRequest};
use crate::presence::{ChannelLimit, Entry, SHOWN_ARGUMENTS_BYTES_MAX, ShownConsumer};
use crate::replies::address_of;
use crate::stream;
use bytes::Bytes;
use bytestring::ByteString;
use polylogue_amqp::codec::{ShortStr, Table};
use polylogue_amqp::refusal::{Kind, Named, Refusal};
use polylogue_amqp::request::{self as amqp, ChannelRef, Consume, ConsumerRef, NO_CONSUMER};
use polylogue_amqp_model::{
    Access, Bind, BindDestination, Caller, Command, ConsumerSettings, DeclareExchange, DeclareQueue, DeleteQueue,
    DeletionCause, Queue, QueueKind, Reply as ModelReply, Resource, exchange_topic,
};
use polylogue_api::{
    Attach, AttachError, AttachReader, ConsumerId, ConsumerSpec, CreateTopics, Credit, PublishError, QueueCounts,
    Reply, Request, SettleError, Take, Taken, Token, TopicError, Unavailable,
};
use polylogue_auth::{Operation, Ticket};
use polylogue_router::{ExchangeId, QueueId};
use polylogue_types::PartitionId;
use std::sync::Arc;

/// How often a topic that another connection is creating is looked up. Milliseconds.
const TOPIC_POLL_MS: u64 = 2;
/// The most lookups; then the broker is unavailable.
const TOPIC_POLLS_MAX: u32 = 2_000;

/// The operation to perform on a queue once it is found.
#[derive(Debug)]
pub(crate) enum Then {
    Consume(ChannelRef, Consume),
    Get { channel: ChannelRef, no_ack: bool },
    Purge,
}

/// A declared queue.
#[derive(Debug)]
pub(crate) struct Declared {
    queue: Arc<Queue>,
    /// A passive declaration: a queue that was deleted meanwhile is missing.
    passive: bool,
}

/// Consumers that are ending: the waiting request is answered when the last holder of this is done. RabbitMQ deletes auto-delete queues before it
/// confirms that their last consumer is cancelled, or the channel closed.
#[derive(Debug)]
pub(crate) struct EndingConsumers(Option<Token>);

/// An operation that waits for a reply of the broker. The token is that of the session's request.
#[derive(Debug)]
pub(crate) enum Waits {
    Nothing,
    /// A failed login, which is answered after a delay.
    WrongLogin(Token),
    /// A name and a password, which are checked when it is their turn.
    Login(Token, ByteString, Password, Ticket),
    Vhost(Token, ByteString),
    Done(Token),
    /// Channels and sequence numbers of messages, their bytes, and their targets beyond the first one of each.
    Confirms(Vec<(ChannelRef, u64)>, usize, usize),
    /// Credit for publishes; the bytes and targets counted until then.
    Credit(Amount, Option<(usize, usize)>),
    /// The fan-out that it is a part of, its bytes and its targets.
    Piece(u64, usize, usize),
    /// Whether the declaration is passive.
    Declared(Token, bool),
    /// The topic of a declared queue, and the number of lookups.
    Topic(Token, Declared, u32),
    /// The message and consumer counts of a declared queue.
    Counts(Token, Declared),
    Deleted(Token),
    /// The declaration of an exchange that names a topic.
    Exchange(Token, ByteString),
    /// The ends of the partitions of its topic.
    Ends(Token, ExchangeId, Vec<PartitionId>),
    Found(Token, Then),
    Purged(Token, Arc<QueueEntry>),
    /// With its acknowledgement timeout.
    Attached(Token, ChannelRef, Consume, Arc<QueueEntry>, Option<u64>),
    PullAttached(Token, ChannelRef, PartitionId, bool, Arc<QueueEntry>),
    /// Whether acknowledgement is automatic.
    Taken(Token, Arc<QueueEntry>, bool),
    /// A consumer that is cancelled once deliveries in flight were sent.
    Stopped(Token, ChannelRef, ConsumerRef, ConsumerId),
    /// A consumer that was cancelled for an acknowledgement timeout.
    LateConsumer(ChannelRef, ConsumerRef),
    /// An auto-delete queue that may have lost its last consumer, and the request that waits for all ending consumers.
    AutoDelete(QueueId, Arc<EndingConsumers>),
    CommitPublished(Token, ChannelRef, Vec<(amqp::Verdict, Vec<amqp::Run>)>),
    CommitSettled(Token),
    /// A reply address.
    Replies(Token, ChannelRef, ConsumerRef),
    ReplySent(ChannelRef, Box<amqp::Publish>),
    ReplyLooked(Token, ByteString),
}

fn shown_consumer(consume: &Consume, queue: QueueId) -> ShownConsumer {
    ShownConsumer {
        tag: Bytes::copy_from_slice(consume.tag.bytes()),
        queue,
        ack_required: !consume.no_ack,
        exclusive: consume.exclusive,
        prefetch: consume.prefetch,
        arguments: match consume.arguments.raw().len() {
            0..=SHOWN_ARGUMENTS_BYTES_MAX => consume.arguments.to_owned_bytes(),
            _ => Table::EMPTY,
        },
    }
}

impl Connection {
    /// Handles a request of the session.
    pub(crate) fn begin(&mut self, token: Token, request: amqp::Request) {
        let begun = match request {
            amqp::Request::Publish(channel, publish) => return self.publish(channel, publish),
            amqp::Request::CheckPublish(channel, publish) => return self.check(channel, &publish),
            amqp::Request::Settle { channel, verdict, runs } => return self.settle(channel, verdict, &runs),
            amqp::Request::Qos(channel, count) => {
                self.share_prefetch(channel, count);
                return self.show(|shown| shown.prefetch(channel, count));
            }
            amqp::Request::CloseReplies(channel, _) => return self.close_replies(channel),
            amqp::Request::OpenReplies(channel, consumer) => return self.open_replies(token, channel, consumer),
            amqp::Request::OpenChannel(channel) => self.open_channel(channel).map(|()| Some(amqp::Reply::Done)),
            amqp::Request::CloseChannel(channel) => {
                let ending = Arc::new(EndingConsumers(Some(token)));
                self.close_channel(channel, &ending);
                self.left(ending);
                Ok(None)
            }
            amqp::Request::CloseConnection => self.close_all(token),
            amqp::Request::Authenticate(credentials) => self.login(token, credentials),
            amqp::Request::OpenVhost(vhost) => self.open_vhost(token, &vhost),
            amqp::Request::UpdateSecret(secret) => self.update_secret(&secret).map(Some),
            amqp::Request::DeclareQueue(_, declare) => self.declare_queue(token, declare),
            amqp::Request::DeleteQueue { queue, if_unused, if_empty, .. } => {
                self.delete_queue(token, &queue, if_unused, if_empty)
            }
            amqp::Request::PurgeQueue(_, queue) => self.find(token, &queue, Then::Purge),
            amqp::Request::DeclareExchange(_, declare) => self.declare_exchange(token, declare),
            amqp::Request::DeleteExchange { exchange, if_unused, .. } => name(&exchange).map(|exchange| {
                self.change(Command::DeleteExchange(self.vhost, exchange, if_unused), Waits::Done(token));
                None
            }),
            amqp::Request::Bind(_, binding) => self.bind(token, binding, Command::Bind),
            amqp::Request::Unbind(_, binding) => self.bind(token, binding, Command::Unbind),
            amqp::Request::Consume(channel, consume) => {
                let queue = consume.queue.clone();
                self.find(token, &queue, Then::Consume(channel, consume))
            }
            amqp::Request::Cancel(channel, consumer) => Ok(self.stop(token, channel, consumer)),
            amqp::Request::Get { channel, queue, no_ack } => self.find(token, &queue, Then::Get { channel, no_ack }),
            amqp::Request::Commit { channel, publishes, settled } => {
                let messages = Vec::with_capacity(publishes.len());
                return self.commit_on(Box::new(Commit { token, channel, publishes, settled, messages }), None, false);
            }
        };
        match begun {
            Ok(None) => {}
            Ok(Some(reply)) => self.reply(token, reply),
            Err(why) => self.reply(token, amqp::Reply::Refused(why)),
        }
    }

    fn declare_queue(&mut self, token: Token, declare: amqp::DeclareQueue) -> Result<Option<amqp::Reply>, Refusal> {
        let name = name(&declare.name)?;
        if let Some(to) = address_of(name.as_bytes()) {
            self.check_replies(token, name, to);
            return Ok(None);
        }
        let command = DeclareQueue {
            vhost: self.vhost,
            name,
            server_named: declare.server_named,
            passive: declare.passive,
            durable: declare.durable,
            exclusive: declare.exclusive,
            auto_delete: declare.auto_delete,
            arguments: arguments(&declare.arguments)?,
        };
        let passive = command.passive;
        if !passive {
            self.check_topic(&command.arguments, Operation::Write)?;
        }
        self.change(Command::DeclareQueue(command), Waits::Declared(token, passive));
        Ok(None)
    }

    fn declare_exchange(
        &mut self,
        token: Token,
        declare: amqp::DeclareExchange,
    ) -> Result<Option<amqp::Reply>, Refusal> {
        let command = DeclareExchange {
            vhost: self.vhost,
            name: name(&declare.name)?,
            kind: name(&declare.kind)?,
            passive: declare.passive,
            durable: declare.durable,
            auto_delete: declare.auto_delete,
            internal: declare.internal,
            arguments: arguments(&declare.arguments)?,
        };
        if !command.passive {
            self.check_topic(&command.arguments, Operation::Read)?;
        }
        let reads = !command.passive && exchange_topic(&command.arguments).is_some();
        let waits = if reads { Waits::Exchange(token, command.name.clone()) } else { Waits::Done(token) };
        self.change(Command::DeclareExchange(command), waits);
        Ok(None)
    }

    fn bind(
        &mut self,
        token: Token,
        binding: amqp::Binding,
        command: fn(Bind) -> Command,
    ) -> Result<Option<amqp::Reply>, Refusal> {
        let to = name(&binding.destination)?;
        let bind = Bind {
            vhost: self.vhost,
            source: name(&binding.source)?,
            to: if binding.to_exchange { BindDestination::Exchange(to) } else { BindDestination::Queue(to) },
            key: name(&binding.routing_key)?,
            arguments: arguments(&binding.arguments)?,
        };
        self.change(command(bind), Waits::Done(token));
        Ok(None)
    }

    fn open_channel(&mut self, channel: ChannelRef) -> Result<(), Refusal> {
        if let Some(shown) = &self.shown {
            let user_max = self.directory.metadata().user(&self.user).and_then(|user| user.channels_max);
            let opened = shown.opened(channel, user_max, self.settings.channels_max);
            opened.map_err(|full| match full {
                ChannelLimit::User(max) => Refusal::too_many_channels_of_user(&self.user, max),
                ChannelLimit::Node(max) => Refusal::too_many_channels_of_node(self.catalog.cluster().node.0, max),
            })?;
        }
        self.channels.insert(channel, Channel::default());
        Ok(())
    }

    /// Updates its entry in listings.
    pub(crate) fn show(&self, change: impl FnOnce(&Entry)) {
        if let Some(shown) = &self.shown {
            change(shown);
        }
    }

    /// Looks up a queue for an operation: without the metadata's lock, which declarations hold, if that suffices.
    fn find(&mut self, token: Token, queue: &ShortStr, then: Then) -> Result<Option<amqp::Reply>, Refusal> {
        let (name, who) = (name(queue)?, self.who());
        if let Some(entry) = self.find_committed(&who, &name) {
            self.found(token, then, &entry.queue);
            return Ok(None);
        }
        let ask = AmqpRequest::Queue { who, vhost: self.vhost, name, access: Access::Read };
        self.ask_machine(ask, Waits::Found(token, then));
        Ok(None)
    }

    /// Looks up a queue that the connection may read in what is committed and published, which has every change that was answered. `None` if the
    /// machine has to decide: because of this connection's own unanswered changes, for exclusive queues, and to refuse.
    fn find_committed(&self, who: &Caller, name: &str) -> Option<Arc<QueueEntry>> {
        if !self.changing.is_empty() {
            return None;
        }
        let id = self.directory.router().load().queue(self.vhost, name.as_bytes())?;
        let entry = self.directory.queue(id).filter(|entry| entry.queue.owner.is_none())?;
        if let Some(user) = who.subject() {
            let metadata = self.directory.metadata();
            metadata.check(user, self.vhost, Access::Read, Resource::Queue, name).ok()?;
        }
        Some(entry)
    }

    fn delete_queue(
        &mut self,
        token: Token,
        queue: &ShortStr,
        if_unused: bool,
        if_empty: bool,
    ) -> Result<Option<amqp::Reply>, Refusal> {
        // Consumers and messages are counted where the deletion is checked.
        let delete =
            DeleteQueue { vhost: self.vhost, name: name(queue)?, if_unused, if_empty, ..DeleteQueue::default() };
        self.change(Command::DeleteQueue(delete), Waits::Deleted(token));
        Ok(None)
    }

    fn close_channel(&mut self, channel: ChannelRef, ending: &Arc<EndingConsumers>) {
        self.close_replies(channel);
        let Some(open) = self.channels.remove(&channel) else { return };
        self.show(|shown| shown.closed(channel));
        let consumers = open.consumers.into_values().map(|consumer| (consumer.id, Some(consumer.entry)));
        let others = open
            .pulls
            .into_values()
            .map(|pull| pull.id)
            .chain(open.cancelled.into_values().map(|one| one.id))
            .map(|id| (id, None));
        for (id, entry) in consumers.chain(others) {
            self.consumers.remove(&id);
            self.notify_broker(Request::Detach(id));
            if let Some(entry) = entry {
                self.leave(&entry, ending);
            }
        }
    }

    fn close_all(&mut self, token: Token) -> Result<Option<amqp::Reply>, Refusal> {
        let channels: Vec<_> = self.channels.keys().copied().collect();
        // Later requests are answered later.
        let ending = Arc::new(EndingConsumers(None));
        channels.into_iter().for_each(|channel| self.close_channel(channel, &ending));
        match self.on_closed() {
            Some((_, request)) => {
                self.ask(request, Waits::Done(token));
                Ok(None)
            }
            None => Ok(Some(amqp::Reply::Done)),
        }
    }

    /// Stops a consumer. Deliveries in flight are sent to the client first: without acknowledgement they are settled by delivery.
    fn stop(&mut self, token: Token, channel: ChannelRef, consumer: ConsumerRef) -> Option<amqp::Reply> {
        let known = self.channels.get(&channel).and_then(|open| open.consumers.get(&consumer));
        let Some(id) = known.map(|known| known.id) else { return Some(amqp::Reply::Done) };
        self.ask(Request::Stop(id), Waits::Stopped(token, channel, consumer, id));
        None
    }

    fn cancel(&mut self, channel: ChannelRef, consumer: ConsumerRef, ending: &Arc<EndingConsumers>) {
        let Some(open) = self.channels.get_mut(&channel) else { return };
        let Some(cancelled) = open.consumers.remove(&consumer) else { return };
        let Consumer { id, unsettled, entry, ack_ms_max, .. } = cancelled;
        if unsettled > 0 {
            open.cancelled.insert(consumer, Cancelled { id, unsettled, ack_ms_max, kind: entry.queue.kind });
        }
        self.show(|shown| shown.cancelled(channel, consumer));
        if unsettled == 0 {
            // No reply will follow for it.
            self.consumers.remove(&id);
            self.notify_broker(Request::Detach(id));
        }
        self.leave(&entry, ending);
    }

    /// A consumer has detached from a queue, which may be auto-delete: other consumers are checked at the deletion.
    fn leave(&mut self, entry: &QueueEntry, ending: &Arc<EndingConsumers>) {
        entry.used(self.now);
        if entry.queue.auto_delete {
            let id = entry.queue.id;
            let remove =
                AmqpRequest::Do(Caller::broker(), Box::new(Command::RemoveQueue(id, DeletionCause::AutoDelete)));
            self.ask_machine(remove, Waits::AutoDelete(id, ending.clone()));
        }
    }

    /// One of the ending consumers is done.
    fn left(&mut self, ending: Arc<EndingConsumers>) {
        if let Some(EndingConsumers(Some(token))) = Arc::into_inner(ending) {
            self.reply(token, amqp::Reply::Done);
        }
    }

    /// Handles a reply of the broker to a pending operation.
    pub(crate) fn resume(&mut self, waits: Waits, reply: Reply) {
        match (waits, reply) {
            (Waits::Nothing, _) => {}
            (Waits::Stopped(token, channel, consumer, _), Reply::Stopped) => {
                let ending = Arc::new(EndingConsumers(Some(token)));
                self.cancel(channel, consumer, &ending);
                self.left(ending);
            }
            (Waits::LateConsumer(channel, consumer), Reply::Stopped) => self.late_consumer_cancelled(channel, consumer),
            (Waits::Piece(group, bytes, targets), Reply::Publish(results)) => {
                self.piece_answered(group, bytes, targets, Some(&results));
            }
            (Waits::Credit(amount, counted), Reply::Publish(_)) => self.credited(amount, counted),
            (Waits::Confirms(numbers, bytes, targets), Reply::Publish(results)) => {
                self.publish_answered(bytes, targets);
                self.confirmed(&numbers, &results);
            }
            (waits, Reply::Machine(Ok(answer))) => match answer.downcast::<AmqpAnswer>() {
                Ok(answer) => self.answered(waits, *answer),
                Err(_) => self.refuse(waits, Refusal::internal("the broker's reply does not match the request")),
            },
            (waits, Reply::Machine(Err(why))) => self.refuse(waits, unavailable(why)),
            (Waits::Topic(token, declared, polls), Reply::CreateTopics(mut results)) => match results.pop() {
                Some(Err(TopicError::Unavailable(why))) => self.reply(token, amqp::Reply::Refused(unavailable(why))),
                _ => self.poll_topic(token, declared, polls),
            },
            (Waits::Counts(token, declared), Reply::DescribeQueues(counts)) => {
                self.counted(token, &declared, counts.into_iter().flatten().next());
            }
            (Waits::Ends(token, id, partitions), Reply::DescribePartitions(sizes)) => {
                self.ask(begin(id, &partitions, &sizes.partitions), Waits::Done(token));
            }
            (Waits::Purged(token, entry), Reply::Purge(purged)) => self.purged(token, &entry, purged),
            (Waits::Attached(token, channel, consume, entry, ack_ms_max), Reply::Attach(attached)) => {
                self.attached(token, channel, consume, entry, ack_ms_max, attached);
            }
            (Waits::PullAttached(token, channel, queue, no_ack, entry), Reply::Attach(attached)) => {
                self.pull_attached(token, (channel, queue, no_ack), entry, attached);
            }
            (Waits::Taken(token, entry, no_ack), Reply::Take(taken)) => self.taken(token, &entry, no_ack, taken),
            (Waits::CommitPublished(token, channel, settled), Reply::Publish(results)) => {
                self.commit_settles(token, channel, &settled, &results);
            }
            (Waits::CommitSettled(token), Reply::Settle(results)) => self.commit_settled(token, &results),
            (Waits::Replies(token, channel, consumer), Reply::AttachDirect(address)) => {
                self.replies_open(token, channel, consumer, address);
            }
            (Waits::ReplySent(channel, publish), Reply::SendDirect(there)) => {
                self.reply_sent(channel, &publish, there.first() == Some(&true));
            }
            (Waits::ReplyLooked(token, name), Reply::SendDirect(there)) => {
                self.replies_checked(token, &name, there.first() == Some(&true));
            }
            (waits, _) => self.refuse(waits, Refusal::internal("the broker's reply does not match the request")),
        }
    }

    /// Handles a reply of the metadata.
    fn answered(&mut self, waits: Waits, answer: AmqpAnswer) {
        match (waits, answer) {
            (Waits::Vhost(token, vhost), AmqpAnswer::Vhost(id)) => match self.enter(id, vhost) {
                Err(why) => self.reply(token, amqp::Reply::Refused(why)),
                Ok(()) => self.entered(token),
            },
            (Waits::Nothing, _) => {}
            (waits, AmqpAnswer::Refused(why)) => self.refuse(waits, refusal(why)),
            (Waits::Declared(token, passive), AmqpAnswer::Done(ModelReply::Queue { queue, .. })) => {
                self.poll_topic(token, Declared { queue, passive }, 0);
            }
            (Waits::AutoDelete(_, ending), AmqpAnswer::Done(_)) => self.left(ending),
            (Waits::Deleted(token), AmqpAnswer::Done(ModelReply::Deleted { messages, .. })) => {
                self.reply(token, amqp::Reply::Count(u32::try_from(messages).unwrap_or(u32::MAX)));
            }
            (Waits::Found(token, then), AmqpAnswer::Queue(queue)) => self.found(token, then, &queue),
            (Waits::Exchange(token, name), AmqpAnswer::Done(ModelReply::Exchange(None))) => {
                self.begin_reading(token, name.as_bytes());
            }
            (Waits::Exchange(token, _), AmqpAnswer::Done(_)) => self.reply(token, amqp::Reply::Done),
            (Waits::Done(token), AmqpAnswer::Done(_)) => self.reply(token, amqp::Reply::Done),
            (waits, _) => self.refuse(waits, Refusal::internal("the broker's reply does not match the request")),
        }
    }

    /// Refuses a pending operation.
    fn refuse(&mut self, waits: Waits, why: Refusal) {
        match waits {
            Waits::Nothing | Waits::ReplySent(..) | Waits::LateConsumer(..) => {}
            Waits::AutoDelete(queue, ending) => {
                // The consumer has detached regardless of its queue's deletion, which is retried.
                self.directory.consumers_left(std::iter::once(queue));
                self.left(ending);
            }
            Waits::Piece(group, bytes, targets) => self.piece_answered(group, bytes, targets, None),
            Waits::Credit(amount, counted) => self.credited(amount, counted),
            Waits::Confirms(numbers, bytes, targets) => {
                self.publish_answered(bytes, targets);
                let why = PublishError::Unavailable(Unavailable::Unknown);
                numbers.into_iter().for_each(|(channel, seq)| self.rejected(channel, seq, seq, why));
            }
            Waits::WrongLogin(token)
            | Waits::Login(token, ..)
            | Waits::Vhost(token, _)
            | Waits::Done(token)
            | Waits::Declared(token, _)
            | Waits::Topic(token, ..)
            | Waits::Counts(token, _)
            | Waits::Deleted(token)
            | Waits::Exchange(token, _)
            | Waits::Ends(token, ..)
            | Waits::Found(token, _)
            | Waits::Purged(token, _)
            | Waits::Attached(token, ..)
            | Waits::PullAttached(token, ..)
            | Waits::Taken(token, ..)
            | Waits::Stopped(token, ..)
            | Waits::CommitPublished(token, ..)
            | Waits::Replies(token, ..)
            | Waits::ReplyLooked(token, _)
            | Waits::CommitSettled(token) => self.reply(token, amqp::Reply::Refused(why)),
        }
    }

    /// Continues a deferred operation.
    pub(crate) fn again(&mut self, waits: Waits) {
        match waits {
            Waits::Topic(token, declared, polls) => self.poll_topic(token, declared, polls),
            Waits::WrongLogin(token) => self.reply(token, amqp::Reply::Refused(Refusal::login_refused("PLAIN"))),
            Waits::Login(token, name, password, ticket) => {
                match self.login_by_password(token, name, password, ticket) {
                    Ok(Some(reply)) => self.reply(token, reply),
                    Ok(None) => {}
                    Err(refusal) => self.reply(token, amqp::Reply::Refused(refusal)),
                }
            }
            _ => {}
        }
    }

    /// Replies to a declaration once the queue's topic exists.
    fn poll_topic(&mut self, token: Token, declared: Declared, polls: u32) {
        let entry = self.directory.queue(declared.queue.id);
        if let Some(entry) = &entry {
            entry.used(self.now);
        }
        if let Some(partition) = entry.as_ref().and_then(|entry| entry.partition(self.catalog.as_ref())) {
            return self.ask(Request::DescribeQueues(vec![partition]), Waits::Counts(token, declared));
        }
        if polls >= TOPIC_POLLS_MAX {
            return self.reply(token, amqp::Reply::Refused(unavailable(Unavailable::Busy)));
        }
        if polls > 0 {
            let at = self.now.monotonic_ms + TOPIC_POLL_MS;
            if polls > 1 {
                return self.later.push_back((at, Waits::Topic(token, declared, polls + 1)));
            }
        }
        // A queue that was deleted during its declaration has no entry; a topic created for it is removed at the next start.
        let Some(entry) = entry else { return self.counted(token, &declared, None) };
        let create = CreateTopics { topics: vec![entry.new_topic()], validate_only: false };
        self.ask(Request::CreateTopics(create), Waits::Topic(token, declared, polls + 1));
    }

    /// Replies with the counts of a declared queue; `None` if it was deleted meanwhile.
    fn counted(&mut self, token: Token, declared: &Declared, counts: Option<QueueCounts>) {
        if counts.is_none() && declared.passive {
            let missing = Refusal::missing(self.named(&declared.queue));
            return self.reply(token, amqp::Reply::Refused(missing));
        }
        if !declared.passive {
            self.tally.more(Count::QueuesDeclared, 1);
        }
        let counts = counts.unwrap_or_default();
        let [messages, consumers] = [counts.ready, counts.consumers].map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        self.reply(token, amqp::Reply::Queue { messages, consumers });
    }

    /// Continues an operation whose queue was found.
    fn found(&mut self, token: Token, then: Then, queue: &Queue) {
        let Some(entry) = self.directory.queue(queue.id) else {
            // It was deleted since, or its declaration is not answered yet.
            let missing = Refusal::missing(self.named(queue));
            return self.reply(token, amqp::Reply::Refused(missing));
        };
        let Some(partition) = entry.partition(self.catalog.as_ref()) else {
            return self.reply(token, amqp::Reply::Refused(unavailable(Unavailable::Busy)));
        };
        if !matches!(then, Then::Purge) {
            entry.used(self.now);
        }
        if let Some(why) = self.unsupported(&then, &entry) {
            return self.reply(token, amqp::Reply::Refused(why));
        }
        match then {
            Then::Purge => self.ask(Request::Purge(partition), Waits::Purged(token, entry)),
            Then::Get { channel, no_ack } => {
                let known = self.channels.get(&channel).and_then(|open| open.pulls.get(&(partition, no_ack)).copied());
                match known {
                    Some(pull) => self.take(token, partition, pull.id, no_ack, entry),
                    None => {
                        let consumer = ConsumerSpec { credit: Some(0), settles: no_ack, ..ConsumerSpec::default() };
                        let attach = Attach { queue: partition, consumer };
                        let waits = Waits::PullAttached(token, channel, partition, no_ack, entry);
                        self.ask(Request::Attach(attach), waits);
                    }
                }
            }
            Then::Consume(channel, consume) => self.consume(token, channel, consume, partition, entry),
        }
    }

    /// Returns the refusal of an operation that the queue's type does not support.
    fn unsupported(&self, then: &Then, entry: &QueueEntry) -> Option<Refusal> {
        let queue = self.named(&entry.queue);
        let is_quorum = entry.queue.kind == QueueKind::Quorum;
        let is_stream = entry.queue.kind == QueueKind::Stream;
        match then {
            // Its messages go only to its topic.
            Then::Get { .. } | Then::Consume(..) if entry.settings.topic.is_some() => {
                Some(Refusal::exclusive_use(queue))
            }
            Then::Get { .. } if is_stream => Some(Refusal::not_for_streams("basic.get", queue)),
            Then::Purge if is_stream => Some(Refusal::not_for_streams("queue.purge", queue)),
            Then::Get { .. } if is_quorum && entry.settings.single_active_consumer && !self.is_operator => {
                Some(Refusal::get_with_single_active_consumer(queue))
            }
            Then::Consume(channel, _) if is_quorum && self.channels.get(channel).is_some_and(|open| open.qos > 0) => {
                Some(Refusal::global_qos(queue))
            }
            _ => None,
        }
    }

    /// Names a queue of this virtual host for texts.
    fn named<'a>(&'a self, queue: &'a Queue) -> Named<'a> {
        Named { kind: Kind::Queue, name: queue.name.as_bytes(), vhost: self.vhost_name.as_bytes() }
    }

    fn consume(
        &mut self,
        token: Token,
        channel: ChannelRef,
        consume: Consume,
        partition: PartitionId,
        entry: Arc<QueueEntry>,
    ) {
        let refused = |why| amqp::Reply::Refused(why);
        let vhost_name = self.vhost_name.clone();
        let named = polylogue_amqp_model::Named { kind: Resource::Queue, name: &entry.queue.name, vhost: &vhost_name };
        let settings = arguments(&consume.arguments)
            .and_then(|arguments| ConsumerSettings::of(entry.queue.kind, &arguments, &named).map_err(refusal));
        let settings = match settings {
            Ok(settings) => settings,
            Err(why) => return self.reply(token, refused(why)),
        };
        let ack_ms_max = self.ack_ms_max(entry.queue.kind, settings.timeout_ms.or(entry.settings.consumer_timeout_ms));
        let shared = self.channels.get(&channel).map_or(0, |open| open.qos);
        if entry.queue.kind == QueueKind::Stream {
            if let Err(why) = stream::check(&consume, shared, self.named(&entry.queue)) {
                return self.reply(token, refused(why));
            }
            let reader = match stream::reader(partition, settings, self.now.wall_ms) {
                Ok(reader) => reader,
                Err(why) => return self.reply(token, amqp::Reply::Refused(Refusal::internal(&why.to_string()))),
            };
            let attach = AttachReader {
                prefetch: consume.deliveries_max,
                credit: Some(WINDOW_MESSAGES),
                window_bytes: self.settings.consumer_window_bytes,
                ..reader
            };
            let waits = Waits::Attached(token, channel, consume, entry, ack_ms_max);
            return self.ask(Request::AttachReader(attach), waits);
        }
        let priority = settings.priority.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
        let consumer = ConsumerSpec {
            priority,
            prefetch: if consume.no_ack { 0 } else { consume.deliveries_max },
            credit: Some(WINDOW_MESSAGES),
            window_bytes: self.settings.consumer_window_bytes,
            settles: consume.no_ack,
            exclusive: consume.exclusive,
            shared: self.channels.get(&channel).and_then(|open| open.limit.clone()),
            ..ConsumerSpec::default()
        };
        let attach = Attach { queue: partition, consumer };
        self.ask(Request::Attach(attach), Waits::Attached(token, channel, consume, entry, ack_ms_max));
    }

    fn attached(
        &mut self,
        token: Token,
        channel: ChannelRef,
        consume: Consume,
        entry: Arc<QueueEntry>,
        ack_ms_max: Option<u64>,
        attached: Result<ConsumerId, AttachError>,
    ) {
        let why = match attached {
            Ok(id) => {
                let Some(open) = self.channels.get_mut(&channel) else {
                    return self.notify_broker(Request::Detach(id));
                };
                let shown = shown_consumer(&consume, entry.queue.id);
                // The channel's shared prefetch may have changed since the request.
                let limit = open.limit.clone().filter(|_| entry.queue.kind != QueueKind::Stream);
                let (no_ack, owed) = (consume.no_ack, Credit::default());
                let consumer = Consumer { id, entry, no_ack, ack_ms_max, owed, unsettled: 0 };
                open.consumers.insert(consume.consumer, consumer);
                if let Some(limit) = limit {
                    self.notify_broker(Request::Share(id, limit));
                }
                self.show(|all| all.consumes(channel, consume.consumer, shown));
                self.consumers.insert(id, (channel, consume.consumer));
                return self.reply(token, amqp::Reply::Done);
            }
            Err(why) => unattached(why, self.named(&entry.queue)),
        };
        self.reply(token, amqp::Reply::Refused(why));
    }

    fn pull_attached(
        &mut self,
        token: Token,
        (channel, queue, no_ack): (ChannelRef, PartitionId, bool),
        entry: Arc<QueueEntry>,
        attached: Result<ConsumerId, AttachError>,
    ) {
        match attached {
            Ok(id) => {
                let Some(open) = self.channels.get_mut(&channel) else {
                    return self.notify_broker(Request::Detach(id));
                };
                open.pulls.insert((queue, no_ack), Pull { id, kind: entry.queue.kind });
                self.consumers.insert(id, (channel, NO_CONSUMER));
                self.take(token, queue, id, no_ack, entry);
            }
            Err(why) => {
                let refused = unattached(why, self.named(&entry.queue));
                self.reply(token, amqp::Reply::Refused(refused));
            }
        }
    }

    fn take(&mut self, token: Token, queue: PartitionId, consumer: ConsumerId, no_ack: bool, entry: Arc<QueueEntry>) {
        self.ask(Request::Take(Take { queue, consumer, messages_max: 1 }), Waits::Taken(token, entry, no_ack));
    }

    fn purged(&mut self, token: Token, entry: &QueueEntry, purged: Result<u64, SettleError>) {
        let reply = match purged {
            Ok(count) => amqp::Reply::Count(u32::try_from(count).unwrap_or(u32::MAX)),
            Err(why) => amqp::Reply::Refused(unsettled(why, self.named(&entry.queue))),
        };
        self.reply(token, reply);
    }

    fn taken(&mut self, token: Token, entry: &QueueEntry, no_ack: bool, taken: Result<Taken, SettleError>) {
        let Taken { mut deliveries, ready } = match taken {
            Ok(taken) => taken,
            Err(why) => {
                let refused = unsettled(why, self.named(&entry.queue));
                return self.reply(token, amqp::Reply::Refused(refused));
            }
        };
        let kind = entry.queue.kind;
        let delivery = deliveries.pop();
        let message = delivery.as_ref().and_then(|delivery| delivery_of(delivery, Some(kind), &self.settings));
        let got = match (&message, no_ack) {
            (None, _) => QueueCount::GotNothing,
            (Some(_), true) => QueueCount::GotAutoAck,
            (Some(_), false) => QueueCount::GotManualAck,
        };
        self.tally.of_queue(got, kind, 1);
        if let Some(message) = &message {
            self.tally.of_queue(QueueCount::Redelivered, kind, u64::from(message.redelivered));
            self.acks_expected(self.ack_ms_max(kind, None));
            if let Some(delivery) = delivery.filter(|_| self.directory.is_tracing()) {
                self.trace_got(delivery.consumer, entry, message);
            }
        }
        let ready = u32::try_from(ready).unwrap_or(u32::MAX);
        self.reply(token, amqp::Reply::Message(message.map(|message| Box::new((message, ready)))));
    }
}

#[cfg(test)]
mod tests;
