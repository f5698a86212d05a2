//! Authorization of requests (KIP-11). The operation and resource that each request requires, and the errors, are Kafka's (`KafkaApis`,
//! `ControllerApis`, `AuthHelper`); each handler checks before it reveals or changes anything.
//!
//! On a listener without logins every operation is allowed.

use super::work::Work;
use polylogue_auth::{Claim, Decision, Operation, Resource, ResourceKind};
use polylogue_kafka_groups::command::MayDescribe;

impl Work<'_> {
    /// Whether the client may perform an operation on a resource, which need not exist.
    fn may(&self, operation: Operation, resource: Resource<'_>) -> bool {
        let Some(who) = self.peer.login.claim() else { return !self.peer.login.is_asked() };
        self.peer.login.is_administrator() || self.is_allowed(self.users.decide(&who, operation, resource))
    }

    fn is_allowed(&self, decision: Decision) -> bool {
        is_allowed(decision, self.settings.allow_without_acls)
    }

    /// Which topics the client may describe, for the coordinator; `None` for all.
    pub(super) fn may_describe(&self) -> Option<MayDescribe> {
        let Some(Claim { address, .. }) = self.peer.login.claim() else {
            return self.peer.login.is_asked().then(|| MayDescribe::new(|_| false));
        };
        if self.peer.login.is_administrator() {
            return None;
        }
        let user = self.peer.login.name().cloned().unwrap_or_default();
        let (users, allow_without_acls) = (self.users.clone(), self.settings.allow_without_acls);
        Some(MayDescribe::new(move |name| {
            let who = Claim { name: &user, address };
            let topic = Resource { kind: ResourceKind::Topic, name };
            is_allowed(users.decide(&who, Operation::Describe, topic), allow_without_acls)
        }))
    }

    /// Whether the client may perform an operation on a topic.
    pub(super) fn may_topic(&self, operation: Operation, name: &str) -> bool {
        self.may(operation, Resource { kind: ResourceKind::Topic, name })
    }

    /// Whether the client may perform an operation on a group.
    pub(super) fn may_group(&self, operation: Operation, name: &str) -> bool {
        self.may(operation, Resource { kind: ResourceKind::Group, name })
    }

    /// Whether the client may perform an operation on the cluster.
    pub(super) fn may_cluster(&self, operation: Operation) -> bool {
        self.may(operation, Resource::CLUSTER)
    }

    /// Whether the client may use a transactional id.
    pub(super) fn may_transactional_id(&self, operation: Operation, name: &str) -> bool {
        self.may(operation, Resource { kind: ResourceKind::TransactionalId, name })
    }

    /// Whether the client may write to any topic, and so be an idempotent producer (KIP-679).
    pub(super) fn may_write_idempotently(&self) -> bool {
        let Some(who) = self.peer.login.claim() else { return !self.peer.login.is_asked() };
        let anywhere = || self.users.decide_any(&who, Operation::Write, ResourceKind::Topic);
        self.may_cluster(Operation::IdempotentWrite) || self.is_allowed(anywhere())
    }

    /// Whether the client may create a topic of this name.
    pub(super) fn may_create_topic(&self, name: &str) -> bool {
        self.may_cluster(Operation::Create) || self.may_topic(Operation::Create, name)
    }

    /// Returns the operations that the client may perform, out of those that apply to the resource (KIP-430).
    pub(super) fn operations(&self, kind: ResourceKind, name: &str, known: i32) -> i32 {
        let Some(who) = self.peer.login.claim() else {
            return if self.peer.login.is_asked() { 0 } else { known };
        };
        if self.peer.login.is_administrator() {
            return known;
        }
        match self.users.operations(&who, Resource { kind, name }) {
            Some(allowed) => known & allowed.cast_signed(),
            None if self.settings.allow_without_acls => known,
            None => 0,
        }
    }
}

/// What a decision comes to. `without_acls`: whether a resource without access control lists is open to all users.
fn is_allowed(decision: Decision, without_acls: bool) -> bool {
    match decision {
        Decision::Allowed => true,
        Decision::Denied => false,
        Decision::Unknown => without_acls,
    }
}
