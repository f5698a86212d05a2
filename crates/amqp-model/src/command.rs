//! Commands to the AMQP metadata, their replies, and the events of committed records.

use crate::definitions::Definitions;
use crate::json::Json;
use crate::policy::PolicySpec;
use crate::queue::{DeletionCause, OwnerId, Queue};
use crate::queue_kind::QueueKind;
use crate::realign::Realign;
use crate::user::{Subject, User, UserLimit};
use crate::vhost::VhostLimit;
use bytestring::ByteString;
use polylogue_auth::{
    Acl, AclFilter, AlterQuotas, AlterScram, Grants, PasswordHash, QuotaEntity, QuotaLimits, ScramCredential,
    UsersRefusal,
};
use polylogue_router::{Argument, Exchange, ExchangeId, QueueId, RouterEvent, VhostId};
use std::sync::Arc;

/// Limits on the number of objects, over all virtual hosts.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Users.
    pub users_max: usize,
    /// Permissions, topic permissions included.
    pub permissions_max: usize,
    /// ACL bindings.
    pub acls_max: usize,
    /// Entities with quotas.
    pub quotas_max: usize,
    /// Policies and operator policies.
    pub policies_max: usize,
    /// Parameters, global ones included.
    pub parameters_max: usize,
    /// Parameters that are shovels.
    pub shovels_max: usize,
    /// Virtual hosts, exchanges, queues, bindings.
    pub router: polylogue_router::Limits,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            users_max: 100_000,
            permissions_max: 1_000_000,
            acls_max: 100_000,
            quotas_max: 100_000,
            policies_max: 10_000,
            parameters_max: 100_000,
            shovels_max: 1_000,
            router: polylogue_router::Limits::default(),
        }
    }
}

/// The caller of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// The user whose permissions are checked, and who is recorded as the author of parameters; `None` for the broker itself and for the management
    /// API, which has its own checks.
    pub user: Option<ByteString>,
    /// The connection, as the owner of exclusive queues.
    pub owner: OwnerId,
    /// The rights that the user's token grants, instead of the user's permissions.
    pub grants: Option<Arc<Grants>>,
}

impl Caller {
    /// The broker itself: no permissions are checked.
    #[must_use]
    pub fn broker() -> Caller {
        Caller { user: None, owner: OwnerId::NONE, grants: None }
    }

    /// A user, with the user's own permissions.
    #[must_use]
    pub fn user(name: ByteString, owner: OwnerId) -> Caller {
        Caller { user: Some(name), owner, grants: None }
    }

    /// The subject of permission checks; `None` if none are made.
    #[must_use]
    pub fn subject(&self) -> Option<Subject<'_>> {
        let user = self.user.as_deref()?;
        Some(Subject { user, grants: self.grants.as_deref() })
    }
}

/// A virtual host to create or change.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PutVhost {
    /// Its name.
    pub name: ByteString,
    /// `None` leaves it unchanged, as for all following fields.
    pub description: Option<ByteString>,
    /// Tags.
    pub tags: Option<Vec<ByteString>>,
    /// The inner `None` removes the default.
    pub default_queue_type: Option<Option<QueueKind>>,
    /// Whether messages are traced.
    pub tracing: Option<bool>,
    /// Other metadata, a JSON object.
    pub metadata: Option<Json>,
}

/// A user to create or change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PutUser {
    /// The login name.
    pub name: ByteString,
    /// `None` leaves it unchanged; a new user then has no password.
    pub password: Option<PasswordHash>,
    /// SCRAM credentials of the same password. When the hash changes, they replace the existing ones, even if empty: the old password must no longer
    /// work.
    pub scram: Vec<ScramCredential>,
    /// Tags, which replace the existing ones; `None` leaves them unchanged.
    pub tags: Option<Vec<ByteString>>,
}

/// `queue.declare`
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DeclareQueue {
    /// The virtual host.
    pub vhost: VhostId,
    /// Its name; empty to have the broker generate one.
    pub name: ByteString,
    /// The session generated the name, so it may be a reserved one.
    pub server_named: bool,
    /// Only check that the queue exists.
    pub passive: bool,
    /// Whether it survives a restart.
    pub durable: bool,
    /// Whether it is exclusive to the connection.
    pub exclusive: bool,
    /// Whether it is deleted with its last consumer.
    pub auto_delete: bool,
    /// Arguments, unchanged.
    pub arguments: Vec<Argument>,
}

/// `queue.delete`
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeleteQueue {
    /// The virtual host.
    pub vhost: VhostId,
    /// Its name.
    pub name: ByteString,
    /// Refuse if it has consumers.
    pub if_unused: bool,
    /// Refuse if it has messages.
    pub if_empty: bool,
    /// How many consumers it has, according to the queue engine. The caller prevents new ones from attaching.
    pub consumers: u64,
    /// How many ready messages it has, according to the queue engine.
    pub messages: u64,
}

impl DeleteQueue {
    /// Whether `if_empty` applies to the queue. Streams ignore the flags (`rabbit_stream_queue:delete`).
    #[must_use]
    pub fn checks_if_empty(&self, queue: &Queue) -> bool {
        self.if_empty && queue.kind != QueueKind::Stream
    }

    /// Whether `if_unused` applies to the queue.
    #[must_use]
    pub fn checks_if_unused(&self, queue: &Queue) -> bool {
        self.if_unused && queue.kind != QueueKind::Stream
    }
}

/// `exchange.declare`
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DeclareExchange {
    /// The virtual host.
    pub vhost: VhostId,
    /// Its name.
    pub name: ByteString,
    /// The name of its type.
    pub kind: ByteString,
    /// Only check that the exchange exists.
    pub passive: bool,
    /// Whether it survives a restart.
    pub durable: bool,
    /// Whether it is deleted with its last binding.
    pub auto_delete: bool,
    /// Whether clients may not publish to it.
    pub internal: bool,
    /// Arguments, unchanged.
    pub arguments: Vec<Argument>,
}

/// The destination of a binding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BindDestination {
    /// A queue.
    Queue(ByteString),
    /// An exchange.
    Exchange(ByteString),
}

/// `queue.bind`, `exchange.bind`, and their unbinds.
#[derive(Clone, PartialEq, Debug)]
pub struct Bind {
    /// The virtual host.
    pub vhost: VhostId,
    /// The source exchange.
    pub source: ByteString,
    /// The destination.
    pub to: BindDestination,
    /// The binding key.
    pub key: ByteString,
    /// Arguments, unchanged.
    pub arguments: Vec<Argument>,
}

/// How far the topic of an exchange was read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TopicReads {
    /// The exchange.
    pub exchange: ExchangeId,
    /// Partitions ([`READS_BEGUN`](crate::READS_BEGUN) marks that reading has begun), and the next offset of each.
    pub at: Vec<(u64, u64)>,
    /// Partitions that were removed.
    pub gone: Vec<u64>,
}

/// A command to the AMQP metadata.
#[derive(Clone, PartialEq, Debug)]
pub enum Command {
    /// Creates the virtual host `/` and the first administrator, if the metadata is empty.
    Bootstrap(PutUser),
    /// Creates or changes a virtual host.
    PutVhost(PutVhost),
    /// Deletes a virtual host with everything in it, unless it is protected.
    DeleteVhost(ByteString),
    /// Protects a virtual host from deletion, or removes the protection.
    ProtectVhost(ByteString, bool),
    /// Sets a limit of a virtual host; below 0 or `None` for no limit.
    SetVhostLimit(ByteString, VhostLimit, Option<i64>),
    /// Creates or changes a user.
    PutUser(PutUser),
    /// Sets and removes SCRAM credentials. Each part succeeds or fails separately: answered by [`Reply::Each`].
    AlterScram(Vec<AlterScram>),
    /// Adds ACL bindings. Each succeeds or fails separately: answered by [`Reply::Each`].
    CreateAcls(Vec<Acl>),
    /// Deletes the ACL bindings that match. Each filter succeeds or fails separately: answered by [`Reply::DeletedAcls`].
    DeleteAcls(Vec<AclFilter>),
    /// Sets and removes quotas. Each entity succeeds or fails separately: answered by [`Reply::Each`].
    AlterQuotas(Vec<AlterQuotas>),
    /// Deletes users with their permissions. Unknown users are no error.
    DeleteUsers(Vec<ByteString>),
    /// Sets a limit of a user; below 0 or `None` for no limit.
    SetUserLimit(ByteString, UserLimit, Option<i64>),
    /// User, virtual host, configure, write, read.
    SetPermission(ByteString, ByteString, [ByteString; 3]),
    /// User, virtual host.
    ClearPermission(ByteString, ByteString),
    /// User, virtual host, exchange, write, read.
    SetTopicPermission(ByteString, ByteString, ByteString, [ByteString; 2]),
    /// User, virtual host, exchange; `None` for all exchanges.
    ClearTopicPermission(ByteString, ByteString, Option<ByteString>),
    /// Virtual host, component, name, value. The components `policy`, `operator_policy` and `vhost-limits` set what they name.
    SetParameter(ByteString, ByteString, ByteString, serde_json::Value),
    /// Virtual host, component, name.
    ClearParameter(ByteString, ByteString, ByteString),
    /// Virtual host, component, name, value: clears the parameter only if it still has this value.
    ClearParameterIf(ByteString, ByteString, ByteString, Json),
    /// Name, value.
    SetGlobalParameter(ByteString, serde_json::Value),
    /// Name.
    ClearGlobalParameter(ByteString),
    /// Virtual host, policy.
    SetPolicy(ByteString, PolicySpec),
    /// Virtual host, operator policy or not, name.
    ClearPolicy(ByteString, bool, ByteString),
    /// A client declares a queue.
    DeclareQueue(DeclareQueue),
    /// A client deletes a queue. A missing queue is no error.
    DeleteQueue(DeleteQueue),
    /// The broker removes a queue. A missing queue is no error.
    RemoveQueue(QueueId, DeletionCause),
    /// A connection ended: its exclusive queues are deleted.
    OwnerGone(OwnerId),
    /// The broker has restarted: everything that is not durable is removed.
    Restarted,
    /// A client declares an exchange.
    DeclareExchange(DeclareExchange),
    /// Virtual host, name, whether to refuse if it has bindings. A missing exchange is no error.
    DeleteExchange(VhostId, ByteString, bool),
    /// A client adds a binding.
    Bind(Bind),
    /// A client removes a binding. A missing binding is no error.
    Unbind(Bind),
    /// Records how far the broker has read the topic of an exchange. A missing exchange is no error. The mark that reading has begun is set once:
    /// while the exchange exists, later ones change nothing.
    SetTopicReads(TopicReads),
    /// Imports definitions: all of them or none.
    Import(Box<Definitions>),
}

/// The reply to send once the record is committed.
#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    /// The command was carried out.
    Done,
    /// The object was created or changed.
    Put {
        /// Whether it is new.
        created: bool,
    },
    /// The outcome of each part of the command.
    Each(Vec<Result<(), UsersRefusal>>),
    /// The ACL bindings that each filter of the command deleted.
    DeletedAcls(Vec<Result<Vec<Arc<Acl>>, UsersRefusal>>),
    /// The queue.
    Queue {
        /// As declared.
        queue: Arc<Queue>,
        /// Whether it is new.
        created: bool,
    },
    /// The existing exchange; `None` when it is new.
    Exchange(Option<Arc<Exchange>>),
    /// The deleted queue, if it existed.
    Deleted {
        /// As declared.
        queue: Option<Arc<Queue>>,
        /// The number of ready messages that were deleted with it, as stated in the command.
        messages: u64,
    },
}

/// An effect of a committed record; events are in order.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// A virtual host was created or changed.
    VhostSet(Arc<crate::vhost::Vhost>),
    /// A virtual host was deleted; events for its contents came before.
    VhostRemoved(Arc<crate::vhost::Vhost>),
    /// A user was created or changed.
    UserSet(Arc<User>),
    /// A user was deleted.
    UserRemoved(Arc<User>),
    /// A user's permissions in a virtual host changed.
    PermissionsChanged(VhostId, ByteString),
    /// A parameter (virtual host, component, name) was set, or cleared (`None`).
    Parameter(VhostId, ByteString, ByteString, Option<Json>),
    /// A global parameter was set, or cleared (`None`).
    GlobalParameter(ByteString, Option<Json>),
    /// The policies of a virtual host changed. The effect on queues follows from [`Event::Realign`].
    PoliciesChanged(VhostId),
    /// A queue was declared, with its effective settings.
    QueueDeclared(Arc<Queue>, Box<crate::settings::Effective>),
    /// The effective settings of queues may have changed: see [`crate::Model::realign`].
    Realign(Realign),
    /// A queue was deleted.
    QueueDeleted(Arc<Queue>, DeletionCause),
    /// Reading of the topic of an exchange has begun.
    TopicReadsBegun(ExchangeId),
    /// An ACL binding was added.
    AclSet(Arc<Acl>),
    /// An ACL binding was deleted.
    AclRemoved(Arc<Acl>),
    /// The quotas of an entity changed; empty if all were removed.
    QuotaSet(QuotaEntity, QuotaLimits),
    /// A change of exchanges or bindings.
    Router(RouterEvent),
}
