//! The declared world as a state machine on the log.
//!
//! What was proposed (*tail*) stands beside what is committed (*applied*). [`Model::plan`] judges a command by the tail and puts what it
//! changes, the router's part included, into one record; [`Model::apply`] is the only place where applied state changes.

use crate::change::{Change, Key, ROUTER_CHUNK, decode, encode};
use crate::command::{Caller, Command, DeleteQueue, Event, Limits, Reply};
use crate::error::{Code, Named, Refused, Resource};
use crate::plan::{About, Draft, deletable, judge, refused};
use crate::policy::Policy;
use crate::queue::{Queue, check_exclusive};
use crate::realign::Realign;
use crate::settings::Effective;
use crate::world::{Did, Effects, World};
use bytes::Bytes;
use polylogue_auth::Access;
use polylogue_router::{Exchange, Kind, Proposed, Router, RouterEvent, SharedRouter, VhostId};
use polylogue_types::bin::BinError;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Queues that one piece looks at, at the most.
const SEEN_PER_PIECE_MAX: usize = 4_096;
/// Queues for which one piece works out what holds, at the most.
const FOUND_PER_PIECE_MAX: usize = 256;

/// What to do about a command.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// The record to propose; `None` when nothing changes and nothing is on its way. It may be without a change: the reply then
    /// tells of what is on its way, and must not leave before it.
    pub record: Option<Bytes>,
    /// What to answer once the record is committed.
    pub reply: Reply,
    /// Policies differ by it: what follows for queues ([`Model::realign`]) holds later than the record is committed.
    pub policies: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Model {
    limits: Limits,
    pub(crate) applied: World,
    tail: World,
    router: Router,
    /// Records that were proposed and are not applied.
    in_flight: u64,
    /// Replay is over: a tail is kept.
    live: bool,
    /// How the records of the call under way are taken back if the log refuses them, in their order.
    undo: Vec<Undo>,
    changed: BTreeSet<Key>,
}

/// How one planned record is taken back.
#[derive(Debug)]
struct Undo {
    /// To be made in reverse order.
    changes: Vec<Change>,
    /// The next numbers of virtual hosts and queues.
    next: (u32, u64),
    router: Proposed,
}

impl Model {
    /// An empty one, without even the virtual host `/`: see [`Command::Bootstrap`].
    #[must_use]
    pub fn new(limits: Limits) -> Model {
        Model {
            limits,
            applied: World::default(),
            tail: World::default(),
            router: Router::new(limits.router),
            in_flight: 0,
            live: false,
            undo: Vec::new(),
            changed: BTreeSet::new(),
        }
    }

    /// What is committed, exchanges and bindings aside.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.applied
    }

    /// What will be there when all that is on its way is committed.
    #[must_use]
    pub fn proposed(&self) -> &World {
        &self.tail
    }

    /// The exchanges and bindings that will be there when all that is on its way is committed.
    #[must_use]
    pub fn proposed_routes(&self) -> &polylogue_router::Definitions {
        self.router.proposed()
    }

    /// The committed exchanges and bindings.
    #[must_use]
    pub fn routes(&self) -> &polylogue_router::Definitions {
        self.router.definitions()
    }

    /// What routes by the newest published state.
    #[must_use]
    pub fn shared(&self) -> Arc<SharedRouter> {
        self.router.shared()
    }

    /// A committed queue by its name.
    #[must_use]
    pub fn queue(&self, vhost: VhostId, name: &str) -> Option<&Arc<Queue>> {
        self.applied.queue(self.router.definitions().queue(vhost, name.as_bytes())?.id)
    }

    /// The queue that a client consumes from, gets from or purges, by what is proposed: a client's own commands are on their way
    /// in its order.
    ///
    /// # Errors
    /// 403 without permission, 404 when it is not there, 405 when it is another connection's alone.
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

    /// The queue that a client may delete, whatever is in it and whoever consumes it; by what is proposed, as [`Model::queue_for`].
    /// `None` when it is not there.
    ///
    /// # Errors
    /// 403, 405, or 540 where its type does not know the flags.
    pub fn queue_to_delete(&self, caller: &Caller, delete: &DeleteQueue) -> Result<Option<Arc<Queue>>, Refused> {
        let draft = Draft::new(&self.tail, self.router.proposed(), &self.limits, [0; 16]);
        deletable(&draft, caller, delete)
    }

    /// The exchange that a client publishes to with a key, `None` for the default one; by what is proposed, as
    /// [`Model::queue_for`].
    ///
    /// # Errors
    /// 403 without permission or when the exchange is internal, 404 when it is not there.
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

    /// Judges a command and makes one record of what it changes. The record must be proposed, or [`Model::take_back`] or
    /// [`Model::on_writer_lost`] called. `random` is for names and must differ from call to call.
    ///
    /// # Errors
    /// Why it cannot be done. Nothing is changed then.
    pub fn plan(&mut self, caller: &Caller, command: &Command, random: [u8; 16]) -> Result<Plan, Refused> {
        let mut draft = Draft::new(&self.tail, self.router.proposed(), &self.limits, random).of(caller);
        let reply = judge(&mut draft, caller, command)?;
        draft.realign();
        let changes = std::mem::take(&mut draft.changes);
        let (routes, about): (Vec<_>, Vec<_>) = std::mem::take(&mut draft.routes).into_iter().unzip();
        drop(draft);
        let (mut routed, mark) = (None, self.router.mark());
        if !routes.is_empty() {
            let planned = self.router.plan(&routes).map_err(|(at, error)| name_it(&about, at, &error))?;
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

    /// The record behind which an answer leaves that follows from what is proposed; `None` when all of that is committed. As of a plan, it must
    /// be proposed or taken back.
    pub fn barrier(&mut self) -> Option<Bytes> {
        if self.in_flight == 0 {
            return None;
        }
        self.in_flight += 1;
        let next = (self.tail.next_vhost, self.tail.next_queue);
        self.undo.push(Undo { changes: Vec::new(), next, router: self.router.mark() });
        Some(encode(&[], None))
    }

    /// The log has taken all records that were planned.
    pub fn taken(&mut self) {
        self.undo.clear();
    }

    /// The log refused all records that were planned since [`Model::taken`]: what is proposed is what it was then. Nothing was applied since.
    pub fn take_back(&mut self) {
        while let Some(undo) = self.undo.pop() {
            let mut effects = Effects::default();
            undo.changes.iter().rev().for_each(|change| self.tail.apply(change, &mut effects));
            (self.tail.next_vhost, self.tail.next_queue) = undo.next;
            self.router.take_back(undo.router);
            self.in_flight -= 1;
        }
    }

    /// Applies a committed record and says what it did.
    ///
    /// # Errors
    /// Why the record cannot be read. What is in memory is then not what was committed.
    pub fn apply(&mut self, record: &[u8]) -> Result<Vec<Event>, String> {
        let (changes, routed) =
            decode(record).map_err(|e: BinError| format!("a record of the declared world cannot be read: {e}"))?;
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
        let mut events = Vec::with_capacity(effects.did.len() + routed.len());
        events.extend(effects.did.into_iter().map(|did| self.event(did)));
        events.extend(realigns.into_iter().map(Event::Realign));
        events.extend(routed.into_iter().map(Event::Router));
        self.changed.extend(effects.keys);
        if self.in_flight > 0 {
            // The tail has it since it was planned.
            self.in_flight -= 1;
        } else if self.live {
            // Planned elsewhere.
            let mut effects = Effects::default();
            changes.iter().for_each(|change| self.tail.apply(change, &mut effects));
        }
        Ok(events)
    }

    fn event(&self, did: Did) -> Event {
        match did {
            Did::VhostSet(vhost) => Event::VhostSet(vhost),
            Did::VhostRemoved(vhost) => Event::VhostRemoved(vhost),
            Did::UserSet(user) => Event::UserSet(user),
            Did::UserRemoved(user) => Event::UserRemoved(user),
            Did::Permissions(vhost, user) => Event::PermissionsChanged(vhost, user),
            Did::Parameter(vhost, component, name, value) => Event::Parameter(vhost, component, name, value),
            Did::Global(name, value) => Event::GlobalParameter(name, value),
            Did::Policies(vhost) => Event::PoliciesChanged(vhost),
            Did::QueueAdded(queue) => {
                let effective: Box<Effective> = Box::new(self.applied.effective(&queue));
                Event::QueueDeclared(queue, effective)
            }
            Did::QueueRemoved(queue, gone) => Event::QueueDeleted(queue, gone),
            Did::TopicReadsBegun(exchange) => Event::TopicReadsBegun(exchange),
            Did::AclSet(acl) => Event::AclSet(acl),
            Did::AclRemoved(acl) => Event::AclRemoved(acl),
            Did::Quotas(entity, limits) => Event::QuotaSet(entity, limits),
        }
    }

    /// Called once after replay, before the first command. [`Command::Restarted`] should be the first one.
    pub fn on_ready(&mut self) {
        self.live = true;
        self.on_writer_lost();
    }

    /// What was proposed and not committed is void: the tail is derived from applied state again.
    pub fn on_writer_lost(&mut self) {
        self.in_flight = 0;
        self.undo.clear();
        self.tail = self.applied.clone();
        self.router.reset_tail();
    }

    /// Shows committed exchanges and bindings to whoever routes. Called after the records of a frame.
    pub fn publish(&mut self) {
        self.router.publish();
    }

    /// Chunks of applied state that changed since the last call, `None` for those that are gone.
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

    /// Counts every chunk as changed.
    pub fn change_all_chunks(&mut self) {
        self.changed.extend(self.applied.keys());
        self.router.change_all_chunks();
    }

    /// Takes a chunk of a checkpoint, before replay; in any order.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn load_chunk(&mut self, id: &[u8], chunk: &[u8]) -> Result<(), String> {
        if let Some(id) = id.strip_prefix(&[ROUTER_CHUNK]) {
            return self.router.load_chunk(id, chunk);
        }
        let (changes, routed) =
            decode(chunk).map_err(|e| format!("the chunk {id:?} of the declared world cannot be read: {e}"))?;
        match (&changes[..], routed) {
            ([change], None) if Key::set_by(change).is_some_and(|key| key.encode() == id) => {
                self.applied.apply(change, &mut Effects::default());
                Ok(())
            }
            _ => Err(format!("the chunk {id:?} of the declared world is not about what its name says")),
        }
    }
}

/// What the router refused, with the item of definitions that it was about.
fn name_it(about: &[About], at: usize, error: &polylogue_router::RouterError) -> Refused {
    let Some(about) = about.get(at) else { return refused(error, "") };
    let plain = refused(error, &about.vhost);
    match &about.item {
        None => plain,
        Some(item) => Refused::new(Code::BadRequest, format!("{item}: {}", plain.text)),
    }
}

impl Model {
    /// What is to be looked at when these changes are applied, by what is applied before.
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

    /// Looks at the next queues; gives those that policies touch with what holds for them now, which may be what held before. `None` when all
    /// were looked at.
    pub fn realign(&self, realign: &mut Realign) -> Option<Vec<(Arc<Queue>, Effective)>> {
        let mut found = Vec::new();
        let mut seen = 0;
        for queue in self.applied.queues_after(realign.after) {
            realign.after = Some(queue.id);
            seen += 1;
            if realign.touches(queue) {
                found.push((queue.clone(), self.applied.effective(queue)));
            }
            if seen == SEEN_PER_PIECE_MAX || found.len() == FOUND_PER_PIECE_MAX {
                break;
            }
        }
        (seen > 0).then_some(found)
    }
}
