//! How commands are judged: by what will be there when all that is on its way is committed. Nothing here changes anything; a [`Draft`]
//! collects what is to change.

mod access;
mod acls;
mod exchanges;
mod parameters;
mod queues;
mod quotas;

use crate::change::Change;
use crate::command::{Caller, Command, Limits, Reply};
use crate::definitions::import;
use crate::error::{Code, Named, Refused, Resource};
use crate::queue::{Home, Queue};
use crate::vhost::Vhost;
use crate::world::{Effects, World};
use bytestring::ByteString;
use polylogue_router::{Command as Route, Exchange, NAME_BYTES_MAX, QueueId, RouterError, VhostId};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) use access::{put_user, put_vhost, set_permission, set_topic_permission, set_user_limit, set_vhost_limit};
pub(crate) use exchanges::{Unfit, exchange_kind, routed_bind};
pub(crate) use parameters::{
    OPERATOR_POLICY, VHOST_LIMITS, set_global, set_limits, set_parameter, set_policy, spec_of,
};
pub(crate) use queues::{deletable, new_queue};

/// What commands change, as far as they were judged.
pub(crate) struct Draft<'m> {
    /// What will be there. A copy only where several commands depend on each other.
    pub(crate) world: Cow<'m, World>,
    /// What will be there without the draft.
    base: &'m World,
    pub(crate) router: &'m polylogue_router::Definitions,
    pub(crate) limits: &'m Limits,
    pub(crate) random: [u8; 16],
    /// The user who asks, where that is one of the user store: recorded with what runs by that user's rights.
    pub(crate) author: Option<ByteString>,
    /// Where it is asked for.
    pub(crate) home: Home,
    pub(crate) changes: Vec<Change>,
    /// What the router is told, and what it is about.
    pub(crate) routes: Vec<(Route, About)>,
    /// What the draft itself declares, which the router does not know yet.
    pub(crate) new_queues: BTreeMap<(VhostId, ByteString), QueueId>,
    pub(crate) new_exchanges: BTreeSet<(VhostId, ByteString)>,
    /// Virtual hosts whose policies differ.
    pub(crate) policies_of: BTreeSet<VhostId>,
}

/// What to name when the router refuses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct About {
    pub(crate) vhost: ByteString,
    /// The item of definitions.
    pub(crate) item: Option<String>,
}

impl<'m> Draft<'m> {
    pub(crate) fn new(
        world: &'m World,
        router: &'m polylogue_router::Definitions,
        limits: &'m Limits,
        random: [u8; 16],
    ) -> Draft<'m> {
        Draft {
            world: Cow::Borrowed(world),
            base: world,
            router,
            limits,
            random,
            author: None,
            home: Home::default(),
            changes: Vec::new(),
            routes: Vec::new(),
            new_queues: BTreeMap::new(),
            new_exchanges: BTreeSet::new(),
            policies_of: BTreeSet::new(),
        }
    }

    /// The same, asked for by this caller.
    pub(crate) fn of(self, caller: &Caller) -> Draft<'m> {
        let author = caller.user.clone().filter(|_| caller.grants.is_none());
        Draft { author, home: caller.owner.home, ..self }
    }

    /// Adds a change. Later commands of the same draft see it only where the draft has a world of its own.
    pub(crate) fn push(&mut self, change: Change) {
        if let Cow::Owned(world) = &mut self.world {
            world.apply(&change, &mut Effects::default());
        }
        self.changes.push(change);
    }

    /// Takes back changes that undid each other.
    pub(crate) fn forget_changes_without_effect(&mut self) {
        if *self.world == *self.base {
            self.changes.clear();
        }
    }

    pub(crate) fn route(&mut self, vhost: &str, command: Route) {
        self.routes.push((command, About { vhost: vhost.into(), item: None }));
    }

    /// A virtual host that a management request names.
    pub(crate) fn host(&self, name: &str) -> Result<&Arc<Vhost>, Refused> {
        self.world
            .vhost_named(name)
            .ok_or_else(|| Refused::new(Code::NotFound, format!("vhost '{name}' does not exist")))
    }

    /// The name of the virtual host that a client is in.
    pub(crate) fn host_of(&self, id: VhostId) -> Result<ByteString, Refused> {
        let host = self.world.vhost(id).map(|host| host.name.clone());
        host.ok_or_else(|| Refused::new(Code::NotAllowed, "the virtual host of this connection was deleted"))
    }

    pub(crate) fn queue(&self, vhost: VhostId, name: &ByteString) -> Option<&Arc<Queue>> {
        let id = match self.router.queue(vhost, name.as_bytes()) {
            Some(queue) => queue.id,
            None => *self.new_queues.get(&(vhost, name.clone()))?,
        };
        self.world.queue(id)
    }

    pub(crate) fn exchange(&self, vhost: VhostId, name: &ByteString) -> Option<&'m Arc<Exchange>> {
        self.router.exchange(vhost, name.as_bytes())
    }

    /// Has the router give exchanges the alternate exchanges that policies name, where that may have changed.
    pub(crate) fn realign(&mut self) {
        let mut found = Vec::new();
        if !self.policies_of.is_empty() {
            for exchange in self.router.exchanges() {
                if self.policies_of.contains(&exchange.vhost) {
                    let name = ByteString::try_from(exchange.name.clone()).unwrap_or_default();
                    found.push((exchange.vhost, name, exchange.policy_alternate.clone()));
                }
            }
        }
        found.extend(self.new_exchanges.iter().map(|(vhost, name)| (*vhost, name.clone(), None)));
        for (vhost, name, before) in found {
            let Some(host) = self.world.vhost(vhost) else { continue };
            let alternate = self.world.policy_alternate(vhost, &name).map(ByteString::into_bytes);
            if alternate != before {
                let about = About { vhost: host.name.clone(), item: None };
                self.routes.push((Route::PolicyAlternate { vhost, name: name.into_bytes(), alternate }, about));
            }
        }
    }
}

/// Judges a command.
pub(crate) fn judge(draft: &mut Draft<'_>, caller: &Caller, command: &Command) -> Result<Reply, Refused> {
    match command {
        Command::Bootstrap(user) => access::bootstrap(draft, user),
        Command::PutVhost(put) => put_vhost(draft, put),
        Command::DeleteVhost(name) => access::delete_vhost(draft, name),
        Command::ProtectVhost(name, protected) => access::protect_vhost(draft, name, *protected),
        Command::SetVhostLimit(name, limit, value) => set_vhost_limit(draft, name, *limit, *value),
        Command::PutUser(put) => put_user(draft, put),
        Command::AlterScram(parts) => Ok(access::alter_scram(draft, parts)),
        Command::CreateAcls(acls) => Ok(acls::create(draft, acls)),
        Command::DeleteAcls(filters) => Ok(acls::delete(draft, filters)),
        Command::AlterQuotas(parts) => Ok(quotas::alter(draft, parts)),
        Command::DeleteUsers(names) => access::delete_users(draft, names),
        Command::SetUserLimit(name, limit, value) => set_user_limit(draft, name, *limit, *value),
        Command::SetPermission(user, vhost, patterns) => set_permission(draft, user, vhost, patterns),
        Command::ClearPermission(user, vhost) => access::clear_permission(draft, user, vhost),
        Command::SetTopicPermission(user, vhost, exchange, patterns) => {
            set_topic_permission(draft, user, vhost, exchange, patterns)
        }
        Command::ClearTopicPermission(user, vhost, exchange) => {
            access::clear_topic_permission(draft, user, vhost, exchange.as_ref())
        }
        Command::SetParameter(vhost, component, name, value) => {
            parameters::set_one(draft, vhost, component, name, value)
        }
        Command::ClearParameter(vhost, component, name) => parameters::clear(draft, vhost, component, name),
        Command::ClearParameterIf(vhost, component, name, value) => {
            parameters::clear_if(draft, vhost, component, name, value)
        }
        Command::SetGlobalParameter(name, value) => set_global(draft, name, value),
        Command::ClearGlobalParameter(name) => parameters::clear_global(draft, name),
        Command::SetPolicy(vhost, spec) => set_policy(draft, vhost, spec),
        Command::ClearPolicy(vhost, operator, name) => parameters::clear_policy(draft, vhost, *operator, name),
        Command::DeclareQueue(declare) => queues::declare(draft, caller, declare),
        Command::DeleteQueue(delete) => queues::delete(draft, caller, delete),
        Command::RemoveQueue(id, gone) => Ok(queues::remove(draft, *id, *gone)),
        Command::OwnerGone(owner) => Ok(queues::owner_gone(draft, *owner)),
        Command::Restarted => Ok(queues::restarted(draft, caller.owner.home)),
        Command::DeclareExchange(declare) => exchanges::declare(draft, caller, declare),
        Command::DeleteExchange(vhost, name, if_unused) => exchanges::delete(draft, caller, *vhost, name, *if_unused),
        Command::Bind(bind) => exchanges::bind(draft, caller, bind, true),
        Command::Unbind(bind) => exchanges::bind(draft, caller, bind, false),
        Command::SetTopicReads(reads) => exchanges::set_topic_reads(draft, caller, reads),
        Command::Import(definitions) => import(draft, definitions),
    }
}

/// What the router refused, as clients expect it said.
pub(crate) fn refused(error: &RouterError, vhost: &str) -> Refused {
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let missing = |kind, name: &[u8]| Refused::not_found(&Named { kind, name: &text(name), vhost });
    match error {
        RouterError::NoExchange(name) => missing(Resource::Exchange, name),
        RouterError::NoQueue(name) => missing(Resource::Queue, name),
        RouterError::DefaultExchange => default_exchange(),
        RouterError::InUse(name) => {
            let named = Named { kind: Resource::Exchange, name: &text(name), vhost };
            Refused::precondition(format!("{named} in use"))
        }
        other => Refused::precondition(other.to_string()),
    }
}

pub(crate) fn default_exchange() -> Refused {
    Refused::access("operation not permitted on the default exchange")
}

/// A name without the line ends that some clients send along.
pub(crate) fn stripped(name: &ByteString) -> ByteString {
    if name.contains(['\r', '\n']) { ByteString::from(name.replace(['\r', '\n'], "")) } else { name.clone() }
}

/// That a name of something new is not too long, and not empty.
pub(crate) fn check_length(what: &str, name: &str) -> Result<(), Refused> {
    match name.len() {
        0 => Err(Refused::bad(format!("the name of a {what} cannot be empty"))),
        1..=NAME_BYTES_MAX => Ok(()),
        _ => Err(Refused::bad(format!("the name of a {what} has at most {NAME_BYTES_MAX} bytes"))),
    }
}

/// That there may be one more.
pub(crate) fn check_count(what: &str, count: usize, max: usize) -> Result<(), Refused> {
    if count < max { Ok(()) } else { Err(Refused::precondition(format!("there can be at most {max} {what}"))) }
}
