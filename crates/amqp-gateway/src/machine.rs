//! The AMQP metadata as a state machine that the broker hosts.

use crate::aligning::{Aligning, Answer};
use crate::changes::ExchangeChange;
use crate::directory::{Directory, queue_of, topic_of};
use crate::management::View;
use bytes::Bytes;
use bytestring::ByteString;
use polylogue_amqp_model::{
    Access, Caller as ModelCaller, Command, DEFAULT_VHOST, DeletionCause, Event, Hashing, Home, Json, Limits, Model,
    OwnerId, PasswordHash, Plan, PutUser, PutVhost, Queue, Refused, Reply, SALT_BYTES, SHOVEL, Subject, UPSTREAM,
    UPSTREAM_SET, exchange_topic,
};
use polylogue_api::machine::Command as Boxed;
use polylogue_api::{Caller, Catalog, CloseIf, Context, Effects, Proposal, StateMachine, TopicChange, TopicInfo};
use polylogue_auth::{UsersCommand, UsersRefusal, UsersReply};
use polylogue_router::{Exchange, RouterEvent, VhostId};
use polylogue_types::{PartitionId, TimestampMs};
use std::any::Any;
use std::sync::Arc;

/// RabbitMQ users with this tag may set another user's `user_id`.
pub(crate) const IMPERSONATOR: &str = "impersonator";
/// Users with this tag have all permissions.
pub const ADMINISTRATOR: &str = "administrator";
/// The initial user, whose password equals its name.
pub const FIRST_USER: &str = "guest";
/// When the commands of a start are retried after they could not be proposed. Milliseconds.
const START_RETRY_MS: u64 = 100;

/// A request of a connection to the metadata.
#[derive(Debug)]
pub enum AmqpRequest {
    /// Checks whether a user may open a virtual host. Answered by [`AmqpAnswer::Vhost`].
    OpenVhost {
        /// The caller.
        who: ModelCaller,
        /// Its name.
        vhost: ByteString,
    },
    /// A change. Answered by [`AmqpAnswer::Done`] when it is committed.
    Do(ModelCaller, Box<Command>),
    /// Looks up a queue to consume, get from or purge. Answered by [`AmqpAnswer::Queue`].
    Queue {
        /// The caller.
        who: ModelCaller,
        /// The virtual host.
        vhost: VhostId,
        /// Its name.
        name: ByteString,
        /// The permission needed.
        access: Access,
    },
    /// Returns all metadata. Answered by [`AmqpAnswer::View`].
    View,
}

/// The global parameter that holds the cluster's name.
pub const CLUSTER_NAME: &str = "cluster_name";

/// The rules for the user [`FIRST_USER`] in this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GuestRule {
    /// The user is created in empty metadata.
    pub is_made: bool,
    /// The user may log in, from this machine; otherwise never.
    pub may_log_in: bool,
}

impl Default for GuestRule {
    fn default() -> GuestRule {
        GuestRule { is_made: true, may_log_in: true }
    }
}

/// A reply to a connection.
#[derive(Debug)]
pub enum AmqpAnswer {
    /// The virtual host.
    Vhost(VhostId),
    /// The reply of the model.
    Done(Reply),
    /// The queue.
    Queue(Arc<Queue>),
    /// All committed metadata.
    View(Arc<View>),
    /// The request was refused.
    Refused(Refused),
}

/// See the module.
#[derive(Debug)]
pub struct AmqpMachine {
    model: Model,
    directory: Arc<Directory>,
    makes_guest: bool,
    dead_topics: Vec<String>,
    /// Commands to propose when the machine runs, and when.
    start: Vec<Command>,
    start_ms: u64,
    /// How many of their records are proposed with an unknown outcome.
    starting: usize,
    /// Queues closed in the current call, because it proposes their deletion.
    closing: Vec<PartitionId>,
    /// Exclusive queues may have outlived their connections, and topics their queues: checked at [`AmqpMachine::start_ms`].
    checks_leftovers: bool,
    rights_changed: bool,
    /// Pending effects of policies on queues.
    aligning: Aligning,
    /// There are upstreams: federation is notified of more changes.
    federated: bool,
    /// Replay is over: connections are accepted.
    ready: bool,
    /// The identity of this process.
    home: Home,
    /// A copy of committed state for readers, until the next change.
    view: Option<Arc<View>>,
}

impl AmqpMachine {
    /// Makes a machine with empty metadata.
    #[must_use]
    pub fn new(limits: Limits) -> AmqpMachine {
        let model = Model::new(limits);
        let directory = Arc::new(Directory::new(model.shared()));
        AmqpMachine {
            model,
            directory,
            makes_guest: true,
            dead_topics: Vec::new(),
            start: Vec::new(),
            start_ms: 0,
            starting: 0,
            closing: Vec::new(),
            checks_leftovers: false,
            rights_changed: false,
            aligning: Aligning::default(),
            federated: false,
            ready: false,
            home: Home::default(),
            view: None,
        }
    }

    /// Sets another rule for the first user.
    #[must_use]
    pub fn with_guest(self, rule: GuestRule) -> AmqpMachine {
        self.directory.let_guest(rule.may_log_in);
        AmqpMachine { makes_guest: rule.is_made, ..self }
    }

    /// Returns the shared routing state of connections.
    #[must_use]
    pub fn directory(&self) -> Arc<Directory> {
        self.directory.clone()
    }

    /// Returns the model.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Returns committed state. Copied at most once per change.
    fn view(&mut self) -> Arc<View> {
        let model = &self.model;
        let view = || Arc::new(View { metadata: model.metadata().clone(), routes: model.routes().clone() });
        self.view.get_or_insert_with(view).clone()
    }

    /// Closes a queue that a client deletes or that is unused, unless its messages or consumers prevent that: the counts given to the model stay
    /// valid until the record is committed, because no consumer can attach meanwhile. Returns the closed queue.
    ///
    /// # Errors
    /// The reply if the queue is kept.
    fn close(
        &self,
        who: &ModelCaller,
        command: &mut Command,
        context: &Context<'_>,
    ) -> Result<Option<PartitionId>, AmqpAnswer> {
        let partition = |id| self.directory.partition(id, context.catalog);
        match command {
            Command::DeleteQueue(delete) => {
                let found = self.model.queue_to_delete(who, delete).map_err(AmqpAnswer::Refused)?;
                let found = found.and_then(|queue| Some((partition(queue.id)?, queue)));
                let Some((partition, queue)) = found else { return Ok(None) };
                let only = CloseIf { unused: delete.checks_if_unused(&queue), empty: delete.checks_if_empty(&queue) };
                // If it cannot be closed, the model determines the refusal.
                let (Ok(counts) | Err(counts)) = context.queues.close(partition, only);
                (delete.consumers, delete.messages) = (counts.consumers, counts.ready);
                Ok(Some(partition))
            }
            Command::RemoveQueue(id, DeletionCause::AutoDelete | DeletionCause::Expired)
                if self.model.proposed().queue(*id).is_some() =>
            {
                let Some(partition) = partition(*id) else { return Ok(None) };
                let closed = context.queues.close(partition, CloseIf { unused: true, empty: false });
                // It has a consumer again, which will detach later.
                let stays = |_| AmqpAnswer::Done(Reply::Deleted { queue: None, messages: 0 });
                closed.map(|_| Some(partition)).map_err(stays)
            }
            _ => Ok(None),
        }
    }

    fn plan(
        &mut self,
        who: &ModelCaller,
        mut command: Command,
        context: &Context<'_>,
        caller: Option<Caller>,
        effects: &mut Effects,
    ) {
        let random = context.random;
        let mut seed = [0; 16];
        seed[..8].copy_from_slice(&random.to_le_bytes());
        seed[8..].copy_from_slice(&random.rotate_left(31).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        let answer = |answer: AmqpAnswer| caller.map(|caller| (caller, Box::new(answer) as Box<dyn Any + Send>));
        if let Command::OwnerGone(owner) = &mut command {
            owner.home = self.home;
        }
        let closed = match self.close(who, &mut command, context) {
            Ok(closed) => closed,
            Err(stays) => return self.answer_after_commit(answer(stays), effects),
        };
        match self.model.plan(who, &command, seed) {
            Err(why) => {
                closed.into_iter().for_each(|queue| context.queues.open(queue));
                self.answer_after_commit(answer(AmqpAnswer::Refused(why)), effects);
            }
            Ok(plan) => {
                let reply = answer(AmqpAnswer::Done(plan.reply));
                caller.filter(|_| plan.policies).into_iter().for_each(|caller| self.aligning.planned_by(caller));
                self.closing.extend(closed);
                match plan.record {
                    Some(record) => effects.proposals.push(Proposal { record, replies: reply.into_iter().collect() }),
                    None => effects.replies.extend(reply),
                }
            }
        }
    }

    /// Sends a reply from proposed state: not before all of that is committed.
    fn answer_after_commit(&mut self, reply: Option<(Caller, Box<dyn Any + Send>)>, effects: &mut Effects) {
        let Some(reply) = reply else { return };
        match self.model.barrier() {
            Some(record) => effects.proposals.push(Proposal { record, replies: vec![reply] }),
            None => effects.replies.push(reply),
        }
    }

    /// Handles a command about users from a protocol that does not know this crate.
    fn handle_users(&mut self, caller: Caller, command: Boxed, effects: &mut Effects) {
        let Ok(ask) = command.downcast::<UsersCommand>() else {
            return effects.replies.push((caller, Box::new(())));
        };
        let (count, command) = match *ask {
            UsersCommand::AlterScram(parts) => (parts.len(), Command::AlterScram(parts)),
            UsersCommand::CreateAcls(acls) => (acls.len(), Command::CreateAcls(acls)),
            UsersCommand::DeleteAcls(filters) => (filters.len(), Command::DeleteAcls(filters)),
            UsersCommand::AlterQuotas(parts) => (parts.len(), Command::AlterQuotas(parts)),
        };
        let (record, answer) = match self.model.plan(&ModelCaller::broker(), &command, [0; 16]) {
            Ok(Plan { record, reply: Reply::Each(results), .. }) => (record, UsersReply::Each(results)),
            Ok(Plan { record, reply: Reply::DeletedAcls(results), .. }) => (record, UsersReply::Deleted(results)),
            Ok(_) => (None, UsersReply::Each(vec![Ok(()); count])),
            Err(why) => (None, UsersReply::Each(vec![Err(UsersRefusal::Refused(why.text)); count])),
        };
        let reply: (Caller, Box<dyn Any + Send>) = (caller, Box::new(answer));
        match record {
            Some(record) => effects.proposals.push(Proposal { record, replies: vec![reply] }),
            None => self.answer_after_commit(Some(reply), effects),
        }
    }

    /// Notifies federation of a change that may affect links.
    fn notify_federation(&mut self, event: &Event) {
        let matters = match event {
            Event::Parameter(_, component, ..) if component == UPSTREAM => {
                self.federated = self.model.metadata().parameters().any(|(_, component, ..)| *component == UPSTREAM);
                true
            }
            Event::Parameter(_, component, ..) => self.federated && component == UPSTREAM_SET,
            Event::PoliciesChanged(_)
            | Event::GlobalParameter(..)
            | Event::QueueDeclared(..)
            | Event::QueueDeleted(..)
            | Event::Router(_) => self.federated,
            _ => false,
        };
        if matters {
            self.directory.federation_changes().update(|()| ());
        }
    }

    fn update_directory(&mut self, event: Event) {
        self.notify_federation(&event);
        match event {
            Event::QueueDeclared(queue, effective) => self.directory.set(queue, effective.settings),
            Event::Realign(realign) => self.aligning.add(realign),
            Event::QueueDeleted(queue, _) => {
                self.directory.remove(queue.id);
                self.aligning.forget(queue.id);
                self.dead_topics.push(topic_of(queue.id));
            }
            Event::AclSet(acl) => self.directory.set_acl(&acl, true),
            Event::AclRemoved(acl) => self.directory.set_acl(&acl, false),
            Event::QuotaSet(entity, limits) => self.directory.quotas().set(&entity, limits),
            Event::UserSet(user) => {
                self.directory.set_administrator(&user.name, user.has_tag(ADMINISTRATOR));
                self.rights_changed = true;
                self.notify_authors_changed();
            }
            Event::UserRemoved(user) => {
                self.directory.set_administrator(&user.name, false);
                self.rights_changed = true;
                self.notify_authors_changed();
            }
            Event::PermissionsChanged(..) | Event::VhostSet(_) | Event::VhostRemoved(_) => self.rights_changed = true,
            Event::GlobalParameter(name, _) if name == CLUSTER_NAME => self.update_cluster_name(),
            Event::TopicReadsBegun(exchange) => {
                let reads = self.model.metadata().topic_reads(exchange).collect();
                self.directory
                    .exchange_changes()
                    .update(|changes| changes.push(ExchangeChange::Begun(exchange, reads)));
            }
            Event::Parameter(_, component, ..) if component == SHOVEL => {
                self.directory.shovel_changes().update(|()| ())
            }
            Event::Router(RouterEvent::ExchangeDeclared(exchange)) => self.notify_exchange(&exchange),
            Event::Router(RouterEvent::ExchangeDeleted(exchange, _))
                if exchange_topic(&exchange.arguments).is_some() =>
            {
                self.directory.exchange_changes().update(|changes| changes.push(ExchangeChange::Deleted(exchange.id)));
            }
            _ => {}
        }
    }

    /// Shovels and federation links run with the rights of their authors, whose administrator tag may have changed.
    fn notify_authors_changed(&self) {
        if self.model.metadata().parameters().any(|(_, component, ..)| *component == SHOVEL) {
            self.directory.shovel_changes().update(|()| ());
        }
        if self.federated {
            self.directory.federation_changes().update(|()| ());
        }
    }

    fn update_cluster_name(&self) {
        let name = self.model.metadata().global(CLUSTER_NAME).map(Json::value);
        self.directory.set_cluster_name(name.and_then(|name| name.as_str().map(str::to_owned)));
    }

    /// Notifies [`crate::FromTopics`] of an exchange that names a topic.
    fn notify_exchange(&self, exchange: &Arc<Exchange>) {
        if exchange_topic(&exchange.arguments).is_some() {
            let reads = self.model.metadata().topic_reads(exchange.id).collect();
            self.directory
                .exchange_changes()
                .update(|changes| changes.push(ExchangeChange::Declared(exchange.clone(), reads)));
        }
    }

    /// Schedules the commands of a start: the first user and virtual host, and the removal of non-durable objects.
    fn begin(&mut self, context: &Context<'_>, in_ms: u64) {
        self.start.clear();
        let metadata = self.model.metadata();
        if metadata.vhosts().len() == 0 && metadata.users().len() == 0 {
            self.start.push(match self.makes_guest {
                true => Command::Bootstrap(AmqpMachine::first_user(context.random)),
                false => Command::PutVhost(default_vhost()),
            });
        }
        self.start.push(Command::Restarted);
        self.start_ms = context.now.monotonic_ms + in_ms;
    }

    /// A command may be lost or refused: it is proposed again a little later.
    fn retry_start(&mut self, context: &Context<'_>) {
        self.starting = 0;
        if !self.directory.has_begun() {
            return self.begin(context, START_RETRY_MS);
        }
        self.checks_leftovers = true;
        self.start_ms = context.now.monotonic_ms + START_RETRY_MS;
    }

    /// The same caller, connected to this process.
    fn at_home(&self, who: ModelCaller) -> ModelCaller {
        ModelCaller { owner: OwnerId { home: self.home, ..who.owner }, ..who }
    }

    /// The log has accepted the proposals of the last call.
    fn taken(&mut self) {
        self.model.taken();
        self.aligning.called(true);
        self.closing.clear();
    }

    /// The first user, in empty metadata; the salt is derived from the host's random number.
    fn first_user(random: u64) -> PutUser {
        let mut salt = [0; SALT_BYTES];
        for (to, from) in salt.iter_mut().zip(random.to_le_bytes()) {
            *to = from;
        }
        let password = PasswordHash::of(Hashing::Sha256, salt, FIRST_USER.as_bytes());
        let (password, scram) = (Some(password), Vec::new());
        PutUser { name: FIRST_USER.into(), password, scram, tags: Some(vec![ADMINISTRATOR.into()]) }
    }
}

impl StateMachine for AmqpMachine {
    fn handle(&mut self, context: &Context<'_>, caller: Caller, command: Boxed, effects: &mut Effects) {
        self.taken();
        match command.downcast::<AmqpRequest>() {
            Ok(ask) => match *ask {
                AmqpRequest::Do(who, command) => {
                    self.plan(&self.at_home(who), *command, context, Some(caller), effects)
                }
                AmqpRequest::View => effects.replies.push((caller, Box::new(AmqpAnswer::View(self.view())))),
                AmqpRequest::OpenVhost { who, vhost } => {
                    let subject = who.subject().unwrap_or(Subject { user: "", grants: None });
                    let found = self.model.proposed().check_vhost(subject, &vhost);
                    let answer = found.map_or_else(AmqpAnswer::Refused, AmqpAnswer::Vhost);
                    self.answer_after_commit(Some((caller, Box::new(answer))), effects);
                }
                AmqpRequest::Queue { who, vhost, name, access } => {
                    let found = self.model.queue_for(&self.at_home(who), vhost, &name, access).cloned();
                    let answer = found.map_or_else(AmqpAnswer::Refused, AmqpAnswer::Queue);
                    self.answer_after_commit(Some((caller, Box::new(answer))), effects);
                }
            },
            Err(command) => self.handle_users(caller, command, effects),
        }
    }

    fn reads(&self, command: &Boxed) -> bool {
        matches!(command.downcast_ref(), Some(AmqpRequest::View))
    }

    fn on_gone(&mut self, _: &Context<'_>, caller: Caller, _: &mut Effects) {
        self.aligning.gone(caller);
    }

    fn apply(&mut self, record: &[u8], _: TimestampMs) -> Result<(), String> {
        let events = self.model.apply(record)?;
        // Positions in topics change all the time and are not part of views.
        if !events.is_empty() {
            self.view = None;
        }
        if !self.ready {
            // `on_ready` publishes everything at once.
            return Ok(());
        }
        events.into_iter().for_each(|event| self.update_directory(event));
        self.model.publish();
        if std::mem::take(&mut self.rights_changed) {
            self.directory.rights_changed(self.model.metadata().clone());
        }
        // No other command is proposed before.
        if self.starting > 0 {
            self.starting -= 1;
            if self.starting == 0 {
                self.directory.set_begun();
            }
        }
        Ok(())
    }

    fn on_ready(&mut self, context: &Context<'_>) {
        self.ready = true;
        // 0 is no boot number.
        self.home = Home { node: context.catalog.cluster().node.0, boot: context.random | 1 };
        self.directory.set_home(self.home);
        self.view = None;
        self.model.on_ready();
        self.model.publish();
        for queue in self.model.metadata().queues() {
            let settings = self.model.metadata().effective(queue).settings;
            self.directory.set(queue.clone(), settings);
        }
        self.model.routes().exchanges().iter().for_each(|exchange| self.notify_exchange(exchange));
        self.federated = self.model.metadata().parameters().any(|(_, component, ..)| *component == UPSTREAM);
        self.update_cluster_name();
        self.aligning.check_all(&self.model);
        self.dead_topics.clear();
        self.rights_changed = false;
        self.directory.fill_book(self.model.metadata());
        self.directory.rights_changed(self.model.metadata().clone());
        self.begin(context, 0);
    }

    fn on_refused(&mut self, context: &Context<'_>, _: &[Bytes], _: &mut Effects) {
        self.model.take_back();
        self.aligning.called(false);
        std::mem::take(&mut self.closing).into_iter().for_each(|queue| context.queues.open(queue));
        // It may have been a command of a start, or the end of a connection.
        self.retry_start(context);
    }

    fn on_topics_refused(&mut self, context: &Context<'_>) {
        self.aligning.check_all(&self.model);
        self.retry_start(context);
    }

    fn on_writer_lost(&mut self, context: &Context<'_>, _: &mut Effects) {
        self.model.on_writer_lost();
        self.aligning.writer_lost();
        self.closing.clear();
        // Requested changes may have been lost.
        self.aligning.check_all(&self.model);
        // Ends of owners of queues may have been lost too.
        self.retry_start(context);
    }

    fn next_deadline_ms(&self) -> Option<u64> {
        let start_ms = (self.checks_leftovers || !self.start.is_empty()).then_some(self.start_ms);
        start_ms.into_iter().chain(self.aligning.next_deadline_ms().filter(|_| self.ready)).min()
    }

    fn on_deadline(&mut self, context: &Context<'_>, effects: &mut Effects) {
        self.taken();
        self.aligning.piece(&self.model, &self.directory, context.now.monotonic_ms);
        let starts = self.checks_leftovers || !self.start.is_empty();
        if !starts || context.now.monotonic_ms < self.start_ms {
            return;
        }
        if std::mem::take(&mut self.checks_leftovers) {
            let owners = self.model.proposed().owners();
            let here = owners.into_iter().filter(|owner| owner.home == self.home);
            let gone = here.filter(|owner| !self.directory.is_connected(*owner));
            self.start.extend(gone.map(Command::OwnerGone));
        }
        let left = context.catalog.topics();
        let gone = left
            .iter()
            .filter(|topic| queue_of(&topic.name).is_some_and(|id| self.model.metadata().queue(id).is_none()));
        self.dead_topics.extend(gone.map(|topic| topic.name.to_string()));
        for command in std::mem::take(&mut self.start) {
            self.plan(&self.at_home(ModelCaller::broker()), command, context, None, effects);
        }
        if !self.directory.has_begun() {
            self.starting = effects.proposals.len();
            if self.starting == 0 {
                self.directory.set_begun();
            }
        }
    }

    fn on_topics_deleted(&mut self, _: &Context<'_>, _: &[Arc<TopicInfo>], _: &mut Effects) {}

    fn take_dead_topics(&mut self) -> Vec<String> {
        std::mem::take(&mut self.dead_topics)
    }

    fn take_topic_changes(&mut self, catalog: &dyn Catalog) -> Vec<TopicChange> {
        self.aligning.topic_changes(&self.directory, catalog)
    }

    fn due_replies(&mut self, committed: Vec<Answer>) -> Vec<Answer> {
        self.aligning.due(committed)
    }

    fn take_changed_chunks(&mut self) -> Vec<(Bytes, Option<Bytes>)> {
        self.model.take_changed_chunks()
    }

    fn change_all_chunks(&mut self) {
        self.model.change_all_chunks();
    }

    fn load_chunk(&mut self, id: &[u8], chunk: Bytes) -> Result<(), String> {
        self.model.load_chunk(id, &chunk)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The first virtual host, if no first user is created.
fn default_vhost() -> PutVhost {
    let description = Some("Default virtual host".into());
    PutVhost { name: DEFAULT_VHOST.into(), description, ..PutVhost::default() }
}

/// The owner id of a connection's exclusive queues.
pub(crate) fn owner(connection: u64) -> OwnerId {
    // 0 means no owner.
    OwnerId::local(connection.saturating_add(1))
}

#[cfg(test)]
mod tests;
