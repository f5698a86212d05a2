//! The AMQP metadata as a state machine on the log.
//!
//! Proposed state (*tail*) is kept beside committed state (*applied*). [`Model::plan`] checks a command against the tail and puts its changes, the
//! router's part included, into one record; [`Model::apply`] is the only place where applied state changes.

use crate::change::{Change, Key, ROUTER_CHUNK, decode, encode};
use crate::command::{Caller, Command, DeleteQueue, Event, Limits, Reply};
use crate::error::{Code, Named, Refused, Resource};
use crate::metadata::{Effect, Effects, Metadata};
use crate::plan::{About, Draft, check_command, deletable, refused};
use crate::policy::Policy;
use crate::queue::{Queue, check_exclusive};
use crate::realign::Realign;
use crate::settings::Effective;
use bytes::Bytes;
use polylogue_auth::Access;
use polylogue_router::{Exchange, Kind, Proposed, Router, RouterEvent, SharedRouter, VhostId};
use polylogue_types::bin::BinError;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The most queues that one batch visits.
const VISITED_PER_BATCH_MAX: usize = 4_096;
/// The most queues for which one batch computes effective settings.
const MATCHED_PER_BATCH_MAX: usize = 256;

/// The plan for a command.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// The record to propose; `None` when nothing changes and no proposal is uncommitted. It may be without a change: the reply then depends on
    /// uncommitted proposals, and must not be sent before they are committed.
    pub record: Option<Bytes>,
    /// The reply to send once the record is committed.
    pub reply: Reply,
    /// The command changes policies: the effect on queues ([`Model::realign`]) comes later than the commit of the record.
    pub policies: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Model {
    limits: Limits,
    pub(crate) applied: Metadata,
    tail: Metadata,
    router: Router,
    /// Records that were proposed and not yet applied.
    in_flight: u64,
    /// Replay is over: a tail is kept.
    live: bool,
    /// How to undo the records planned in the current call if the log refuses them, in order.
    undo: Vec<Undo>,
    changed: BTreeSet<Key>,
}

/// How to undo one planned record.
#[derive(Debug)]
struct Undo {
    /// To be applied in reverse order.
    changes: Vec<Change>,
    /// The next ids of virtual hosts and queues.
    next: (u32, u64),
    router: Proposed,
}

impl Model {
    /// Makes an empty model, without the virtual host `/`: see [`Command::Bootstrap`].
    #[must_use]
    pub fn new(limits: Limits) -> Model {
        Model {
            limits,
            applied: Metadata::default(),
            tail: Metadata::default(),
            router: Router::new(limits.router),
            in_flight: 0,
            live: false,
            undo: Vec::new(),
            changed: BTreeSet::new(),
        }
    }

    /// Returns the committed state, except exchanges and bindings.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.applied
    }

    /// Returns the state as it will be when all proposals are committed.
    #[must_use]
    pub fn proposed(&self) -> &Metadata {
        &self.tail
    }

    /// Returns the exchanges and bindings as they will be when all proposals are committed.
    #[must_use]
    pub fn proposed_routes(&self) -> &polylogue_router::Definitions {
        self.router.proposed()
    }

    /// Returns the committed exchanges and bindings.
    #[must_use]
    pub fn routes(&self) -> &polylogue_router::Definitions {
        self.router.definitions()
    }

    /// Returns the router over the latest published state.
    #[must_use]
    pub fn shared(&self) -> Arc<SharedRouter> {
        self.router.shared()
    }

    /// Returns a committed queue by its name.
    #[must_use]
    pub fn queue(&self, vhost: VhostId, name: &str) -> Option<&Arc<Queue>> {
        self.applied.queue(self.router.definitions().queue(vhost, name.as_bytes())?.id)
    }

    /// Returns the queue that a client consumes from, gets from or purges, in proposed state: the client's own earlier commands may be uncommitted.
    ///
    /// # Errors
    /// 403 without permission, 404 when it does not exist, 405 when it is exclusive to another connection.
    pub fn queue_for(
        &self,
        caller: &Caller,
        vhost: VhostId,
        name: &str,
        access: Access,
    ) -> Result<&Arc<Queue>, Refused> {
        if let Some(user) = caller.subject() {
            self.tail.check(user, vhost, access, Resource::Queue, name)?;
        }
        let host = self.tail.vhost_name(vhost);
        let id = self.router.proposed().queue(vhost, name.as_bytes()).map(|queue| queue.id);
        let queue = id.and_then(|id| self.tail.queue(id));
        let named = Named { kind: Resource::Queue, name, vhost: host };
        let queue = queue.ok_or_else(|| Refused::not_found(&named))?;
        check_exclusive(queue, caller.owner, host)?;
        Ok(queue)
    }

    /// Returns the queue that a client may delete, regardless of messages and consumers; in proposed state like [`Model::queue_for`]. `None` when it
    /// does not exist.
    ///
    /// # Errors
    /// 403, 405, or 540 when its type does not support the flags.
    pub fn queue_to_delete(&self, caller: &Caller, delete: &DeleteQueue) -> Result<Option<Arc<Queue>>, Refused> {
        let draft = Draft::new(&self.tail, self.router.proposed(), &self.limits, [0; 16]);
        deletable(&draft, caller, delete)
    }

    /// Returns the exchange that a client publishes to with a key, `None` for the default one; in proposed state like [`Model::queue_for`].
    ///
    /// # Errors
    /// 403 without permission or when the exchange is internal, 404 when it does not exist.
    pub fn exchange_for(
        &self,
        caller: &Caller,
        vhost: VhostId,
        name: &str,
        key: &str,
    ) -> Result<Option<&Arc<Exchange>>, Refused> {
        if let Some(user) = caller.subject() {
            self.tail.check(user, vhost, Access::Write, Resource::Exchange, name)?;
        }
        if name.is_empty() {
            return Ok(None);
        }
        let named = Named { kind: Resource::Exchange, name, vhost: self.tail.vhost_name(vhost) };
        let exchange = self.router.proposed().exchange(vhost, name.as_bytes());
        let exchange = exchange.ok_or_else(|| Refused::not_found(&named))?;
        if exchange.internal {
            return Err(Refused::access(format!("cannot publish to internal {named}")));
        }
        if let (Some(user), Kind::Topic) = (caller.subject(), &exchange.kind) {
            self.tail.check_topic(user, vhost, Access::Write, name, key, None)?;
        }
        Ok(Some(exchange))
    }

    /// Checks a command and makes one record of its changes. The record must be proposed, or [`Model::take_back`] or [`Model::on_writer_lost`]
    /// called. `random` is used for generated names and must differ between calls.
    ///
    /// # Errors
    /// The refusal. Nothing is changed then.
    pub fn plan(&mut self, caller: &Caller, command: &Command, random: [u8; 16]) -> Result<Plan, Refused> {
        let mut draft = Draft::new(&self.tail, self.router.proposed(), &self.limits, random).of(caller);
        let reply = check_command(&mut draft, caller, command)?;
        draft.realign();
        let changes = std::mem::take(&mut draft.changes);
        let (routes, about): (Vec<_>, Vec<_>) = std::mem::take(&mut draft.routes).into_iter().unzip();
        drop(draft);
        let (mut routed, mark) = (None, self.router.mark());
        if !routes.is_empty() {
            let planned = self.router.plan(&routes).map_err(|(at, error)| refused_with_item(&about, at, &error))?;
            routed = planned.record;
        }
        let next = (self.tail.next_vhost, self.tail.next_queue);
        let mut effects = Effects::with_undo();
        changes.iter().for_each(|change| self.tail.apply(change, &mut effects));
        let nothing = changes.is_empty() && routed.is_none();
        let record = (!nothing || self.in_flight > 0).then(|| encode(&changes, routed.as_deref()));
        if record.is_some() {
            self.in_flight += 1;
            self.undo.push(Undo { changes: effects.undo.unwrap_or_default(), next, router: mark });
        }
        let of_policies = |change: &Change| matches!(change, Change::Policy(_) | Change::PolicyRemoved(..));
        Ok(Plan { record, reply, policies: changes.iter().any(of_policies) })
    }

    /// Returns a record that an answer from proposed state has to wait for; `None` when all proposals are committed. Like the record of a plan, it
    /// must be proposed or taken back.
    pub fn barrier(&mut self) -> Option<Bytes> {
        if self.in_flight == 0 {
            return None;
        }
        self.in_flight += 1;
        let next = (self.tail.next_vhost, self.tail.next_queue);
        self.undo.push(Undo { changes: Vec::new(), next, router: self.router.mark() });
        Some(encode(&[], None))
    }

    /// The log has accepted all planned records.
    pub fn taken(&mut self) {
        self.undo.clear();
    }

    /// The log refused all records planned since [`Model::taken`]: restores the proposed state of that time. Nothing was applied since.
    pub fn take_back(&mut self) {
        while let Some(undo) = self.undo.pop() {
            let mut effects = Effects::default();
            undo.changes.iter().rev().for_each(|change| self.tail.apply(change, &mut effects));
            (self.tail.next_vhost, self.tail.next_queue) = undo.next;
            self.router.take_back(undo.router);
            self.in_flight -= 1;
        }
    }

    /// Applies a committed record and returns its effects.
    ///
    /// # Errors
    /// When the record cannot be decoded. The state in memory is then not the committed state.
    pub fn apply(&mut self, record: &[u8]) -> Result<Vec<Event>, String> {
        let (changes, routed) =
            decode(record).map_err(|e: BinError| format!("cannot decode a record of AMQP metadata: {e}"))?;
        let realigns = self.realigns(&changes);
        self.undo.clear();
        let mut effects = Effects::default();
        changes.iter().for_each(|change| self.applied.apply(change, &mut effects));
        let routed = routed.map(|record| self.router.apply(record)).transpose()?.unwrap_or_default();
        for event in &routed {
            if let RouterEvent::ExchangeDeleted(exchange, _) = event {
                self.applied.forget_topic_reads(exchange.id, &mut effects);
                self.tail.forget_topic_reads(exchange.id, &mut Effects::default());
            }
        }
        let mut events = Vec::with_capacity(effects.list.len() + routed.len());
        events.extend(effects.list.into_iter().map(|effect| self.event(effect)));
        events.extend(realigns.into_iter().map(Event::Realign));
        events.extend(routed.into_iter().map(Event::Router));
        self.changed.extend(effects.keys);
        if self.in_flight > 0 {
            // The tail has had it since it was planned.
            self.in_flight -= 1;
        } else if self.live {
            // It was planned elsewhere.
            let mut effects = Effects::default();
            changes.iter().for_each(|change| self.tail.apply(change, &mut effects));
        }
        Ok(events)
    }

    fn event(&self, effect: Effect) -> Event {
        match effect {
            Effect::VhostSet(vhost) => Event::VhostSet(vhost),
            Effect::VhostRemoved(vhost) => Event::VhostRemoved(vhost),
            Effect::UserSet(user) => Event::UserSet(user),
            Effect::UserRemoved(user) => Event::UserRemoved(user),
            Effect::Permissions(vhost, user) => Event::PermissionsChanged(vhost, user),
            Effect::Parameter(vhost, component, name, value) => Event::Parameter(vhost, component, name, value),
            Effect::Global(name, value) => Event::GlobalParameter(name, value),
            Effect::Policies(vhost) => Event::PoliciesChanged(vhost),
            Effect::QueueAdded(queue) => {
                let effective: Box<Effective> = Box::new(self.applied.effective(&queue));
                Event::QueueDeclared(queue, effective)
            }
            Effect::QueueRemoved(queue, gone) => Event::QueueDeleted(queue, gone),
            Effect::TopicReadsBegun(exchange) => Event::TopicReadsBegun(exchange),
            Effect::AclSet(acl) => Event::AclSet(acl),
            Effect::AclRemoved(acl) => Event::AclRemoved(acl),
            Effect::Quotas(entity, limits) => Event::QuotaSet(entity, limits),
        }
    }

    /// Called once after replay, before the first command. [`Command::Restarted`] should be the first one.
    pub fn on_ready(&mut self) {
        self.live = true;
        self.on_writer_lost();
    }

    /// Drops uncommitted proposals: the tail is copied from applied state again.
    pub fn on_writer_lost(&mut self) {
        self.in_flight = 0;
        self.undo.clear();
        self.tail = self.applied.clone();
        self.router.reset_tail();
    }

    /// Publishes the committed exchanges and bindings to routing threads. Called after the records of a frame.
    pub fn publish(&mut self) {
        self.router.publish();
    }

    /// Returns the chunks of applied state that changed since the last call, `None` for deleted ones.
    pub fn take_changed_chunks(&mut self) -> Vec<(Bytes, Option<Bytes>)> {
        let changed = std::mem::take(&mut self.changed);
        let own = changed.into_iter().map(|key| {
            let chunk = self.applied.chunk(&key).map(|change| encode(&[change], None));
            (key.encode(), chunk)
        });
        let mut chunks: Vec<_> = own.collect();
        chunks.extend(self.router.take_changed_chunks().into_iter().map(|(id, chunk)| {
            let id: Bytes = [&[ROUTER_CHUNK][..], &id].concat().into();
            (id, chunk)
        }));
        chunks
    }

    /// Marks every chunk as changed.
    pub fn change_all_chunks(&mut self) {
        self.changed.extend(self.applied.keys());
        self.router.change_all_chunks();
    }

    /// Loads a chunk of a checkpoint, before replay; in any order.
    ///
    /// # Errors
    /// When the chunk is invalid.
    pub fn load_chunk(&mut self, id: &[u8], chunk: &[u8]) -> Result<(), String> {
        if let Some(id) = id.strip_prefix(&[ROUTER_CHUNK]) {
            return self.router.load_chunk(id, chunk);
        }
        let (changes, routed) =
            decode(chunk).map_err(|e| format!("cannot decode chunk {id:?} of AMQP metadata: {e}"))?;
        match (&changes[..], routed) {
            ([change], None) if Key::set_by(change).is_some_and(|key| key.encode() == id) => {
                self.applied.apply(change, &mut Effects::default());
                Ok(())
            }
            _ => Err(format!("chunk {id:?} of AMQP metadata does not match its id")),
        }
    }
}

/// The refusal of the router, with the item of definitions that caused it.
fn refused_with_item(about: &[About], at: usize, error: &polylogue_router::RouterError) -> Refused {
    let Some(about) = about.get(at) else { return refused(error, "") };
    let plain = refused(error, &about.vhost);
    match &about.item {
        None => plain,
        Some(item) => Refused::new(Code::BadRequest, format!("{item}: {}", plain.text)),
    }
}

impl Model {
    /// Returns the queues to visit for these changes, computed before they are applied.
    pub(crate) fn realigns(&self, changes: &[Change]) -> Vec<Realign> {
        let mut policies: BTreeMap<VhostId, Vec<Arc<Policy>>> = BTreeMap::new();
        for change in changes {
            let (vhost, operator, name) = match change {
                Change::Policy(policy) => {
                    policies.entry(policy.vhost).or_default().push(policy.clone());
                    (policy.vhost, policy.operator, &policy.name)
                }
                Change::PolicyRemoved(vhost, operator, name) => (*vhost, *operator, name),
                _ => continue,
            };
            policies.entry(vhost).or_default().extend(self.applied.policy(vhost, operator, name).cloned());
        }
        let there = policies.into_iter().filter(|(_, policies)| !policies.is_empty());
        there.map(|(vhost, policies)| Realign { vhost, policies, after: None }).collect()
    }

    /// Visits the next batch of queues; returns those that the policies match, with their effective settings, which may be unchanged. `None` when all
    /// were visited.
    pub fn realign(&self, realign: &mut Realign) -> Option<Vec<(Arc<Queue>, Effective)>> {
        let mut found = Vec::new();
        let mut seen = 0;
        for queue in self.applied.queues_after(realign.after) {
            realign.after = Some(queue.id);
            seen += 1;
            if realign.touches(queue) {
                found.push((queue.clone(), self.applied.effective(queue)));
            }
            if seen == VISITED_PER_BATCH_MAX || found.len() == MATCHED_PER_BATCH_MAX {
                break;
            }
        }
        (seen > 0).then_some(found)
    }
}
