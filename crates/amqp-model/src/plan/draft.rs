//! The changes of a command, collected while the command is checked.

use crate::change::Change;
use crate::command::{Caller, Limits};
use crate::error::{Code, Refused};
use crate::metadata::{Effects, Metadata};
use crate::queue::{Home, Queue};
use crate::vhost::Vhost;
use bytestring::ByteString;
use polylogue_router::{Command as Route, Exchange, QueueId, VhostId};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The changes of one or more commands that were checked so far.
pub(crate) struct Draft<'m> {
    /// The state with the draft's changes. A copy only when commands depend on earlier ones.
    pub(crate) metadata: Cow<'m, Metadata>,
    /// The state without the draft's changes.
    base: &'m Metadata,
    pub(crate) router: &'m polylogue_router::Definitions,
    pub(crate) limits: &'m Limits,
    pub(crate) random: [u8; 16],
    /// The calling user, if it is in the user store: recorded for operations that run with that user's permissions.
    pub(crate) author: Option<ByteString>,
    /// The process that the caller is connected to.
    pub(crate) home: Home,
    pub(crate) changes: Vec<Change>,
    /// Commands to the router, and the context of each.
    pub(crate) routes: Vec<(Route, About)>,
    /// Queues and exchanges that the draft declares and the router does not know yet.
    pub(crate) new_queues: BTreeMap<(VhostId, ByteString), QueueId>,
    pub(crate) new_exchanges: BTreeSet<(VhostId, ByteString)>,
    /// Virtual hosts whose policies changed.
    pub(crate) policies_of: BTreeSet<VhostId>,
}

/// The context of a router command, for refusals.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct About {
    pub(crate) vhost: ByteString,
    /// The item of definitions.
    pub(crate) item: Option<String>,
}

impl<'m> Draft<'m> {
    pub(crate) fn new(
        metadata: &'m Metadata,
        router: &'m polylogue_router::Definitions,
        limits: &'m Limits,
        random: [u8; 16],
    ) -> Draft<'m> {
        Draft {
            metadata: Cow::Borrowed(metadata),
            base: metadata,
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

    /// Sets the caller.
    pub(crate) fn of(self, caller: &Caller) -> Draft<'m> {
        let author = caller.user.clone().filter(|_| caller.grants.is_none());
        Draft { author, home: caller.owner.home, ..self }
    }

    /// Adds a change. Later commands of the same draft see it only if the draft has its own copy of the state.
    pub(crate) fn push(&mut self, change: Change) {
        if let Cow::Owned(metadata) = &mut self.metadata {
            metadata.apply(&change, &mut Effects::default());
        }
        self.changes.push(change);
    }

    /// Drops all changes if together they change nothing.
    pub(crate) fn drop_changes_without_effect(&mut self) {
        if *self.metadata == *self.base {
            self.changes.clear();
        }
    }

    pub(crate) fn route(&mut self, vhost: &str, command: Route) {
        self.routes.push((command, About { vhost: vhost.into(), item: None }));
    }

    /// Returns the virtual host of a management request.
    pub(crate) fn host(&self, name: &str) -> Result<&Arc<Vhost>, Refused> {
        self.metadata
            .vhost_named(name)
            .ok_or_else(|| Refused::new(Code::NotFound, format!("vhost '{name}' does not exist")))
    }

    /// Returns the name of a connection's virtual host.
    pub(crate) fn host_of(&self, id: VhostId) -> Result<ByteString, Refused> {
        let host = self.metadata.vhost(id).map(|host| host.name.clone());
        host.ok_or_else(|| Refused::new(Code::NotAllowed, "the virtual host of this connection was deleted"))
    }

    pub(crate) fn queue(&self, vhost: VhostId, name: &ByteString) -> Option<&Arc<Queue>> {
        let id = match self.router.queue(vhost, name.as_bytes()) {
            Some(queue) => queue.id,
            None => *self.new_queues.get(&(vhost, name.clone()))?,
        };
        self.metadata.queue(id)
    }

    pub(crate) fn exchange(&self, vhost: VhostId, name: &ByteString) -> Option<&'m Arc<Exchange>> {
        self.router.exchange(vhost, name.as_bytes())
    }

    /// Updates the alternate exchanges that policies set, in the router, where they may have changed.
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
            let Some(host) = self.metadata.vhost(vhost) else { continue };
            let alternate = self.metadata.policy_alternate(vhost, &name).map(ByteString::into_bytes);
            if alternate != before {
                let about = About { vhost: host.name.clone(), item: None };
                self.routes.push((Route::PolicyAlternate { vhost, name: name.into_bytes(), alternate }, about));
            }
        }
    }
}
