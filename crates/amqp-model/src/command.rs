//! What the declared world may be told, and what it answers.

use crate::definitions::Definitions;
use crate::json::Json;
use crate::policy::PolicySpec;
use crate::queue::{Gone, OwnerId, Queue};
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

/// How much there may be, in all virtual hosts together.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Users.
    pub users_max: usize,
    /// Permissions, those of topics counted too.
    pub permissions_max: usize,
    /// Bindings of access control lists.
    pub acls_max: usize,
    /// Entities that have quotas.
    pub quotas_max: usize,
    /// Policies and operator policies.
    pub policies_max: usize,
    /// Parameters, global ones counted too.
    pub parameters_max: usize,
    /// Those of them that are shovels.
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

/// Who gives a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// Whose permissions count, and who is recorded as the author of parameters; `None` for the broker itself and for management, which checks by
    /// other rules.
    pub user: Option<ByteString>,
    /// The connection, as far as it owns queues.
    pub owner: OwnerId,
    /// What the user may do, where a token says so and not the user's permissions.
    pub grants: Option<Arc<Grants>>,
}

impl Caller {
    /// The broker itself: nothing is refused for want of permission.
    #[must_use]
    pub fn broker() -> Caller {
        Caller { user: None, owner: OwnerId::NONE, grants: None }
    }

    /// A user, by the user's permissions.
    #[must_use]
    pub fn user(name: ByteString, owner: OwnerId) -> Caller {
        Caller { user: Some(name), owner, grants: None }
    }

    /// Whose permissions count; `None` where nobody's do.
    #[must_use]
    pub fn subject(&self) -> Option<Subject<'_>> {
        let user = self.user.as_deref()?;
        Some(Subject { user, grants: self.grants.as_deref() })
    }
}

/// A virtual host to be made, or changed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PutVhost {
    /// Its name.
    pub name: ByteString,
    /// `None` leaves it as it is, as with all that follows.
    pub description: Option<ByteString>,
    /// Tags.
    pub tags: Option<Vec<ByteString>>,
    /// The inner `None` takes the default away.
    pub default_queue_type: Option<Option<QueueKind>>,
    /// Whether messages are traced.
    pub tracing: Option<bool>,
    /// Other metadata, a JSON object.
    pub metadata: Option<Json>,
}

/// A user to be made, or changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PutUser {
    /// The login name.
    pub name: ByteString,
    /// `None` leaves it as it is; a new user then has none.
    pub password: Option<PasswordHash>,
    /// What is kept of the same password beside its hash. With another hash than before, these take the place of what was there, even when they
    /// are none: nobody may log in by a password that was changed.
    pub scram: Vec<ScramCredential>,
    /// Tags, in place of those that there are; `None` leaves them as they are by then.
    pub tags: Option<Vec<ByteString>>,
}

/// `queue.declare`
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DeclareQueue {
    /// In which virtual host.
    pub vhost: VhostId,
    /// Its name; empty for one that the broker gives.
    pub name: ByteString,
    /// The name was given by the server's side of the session, which may give reserved ones.
    pub server_named: bool,
    /// Only ask whether it is there.
    pub passive: bool,
    /// Whether it outlives a restart.
    pub durable: bool,
    /// Whether it is the connection's alone.
    pub exclusive: bool,
    /// Whether it goes with its last consumer.
    pub auto_delete: bool,
    /// Arguments as they came.
    pub arguments: Vec<Argument>,
}

/// `queue.delete`
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeleteQueue {
    /// In which virtual host.
    pub vhost: VhostId,
    /// Its name.
    pub name: ByteString,
    /// Only when it has no consumers.
    pub if_unused: bool,
    /// Only when it has no messages.
    pub if_empty: bool,
    /// How many consumers it has, as the engine knows. Whoever says so sees to it that no others come.
    pub consumers: u64,
    /// How many ready messages it has, as the engine knows.
    pub messages: u64,
}

impl DeleteQueue {
    /// Whether it is refused for the queue's messages. Streams do not look at the flags (`rabbit_stream_queue:delete`).
    #[must_use]
    pub fn minds_messages(&self, queue: &Queue) -> bool {
        self.if_empty && queue.kind != QueueKind::Stream
    }

    /// Whether it is refused for the queue's consumers.
    #[must_use]
    pub fn minds_consumers(&self, queue: &Queue) -> bool {
        self.if_unused && queue.kind != QueueKind::Stream
    }
}

/// `exchange.declare`
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DeclareExchange {
    /// In which virtual host.
    pub vhost: VhostId,
    /// Its name.
    pub name: ByteString,
    /// The name of its type.
    pub kind: ByteString,
    /// Only ask whether it is there.
    pub passive: bool,
    /// Whether it outlives a restart.
    pub durable: bool,
    /// Whether it goes with its last binding.
    pub auto_delete: bool,
    /// Whether clients may not publish to it.
    pub internal: bool,
    /// Arguments as they came.
    pub arguments: Vec<Argument>,
}

/// Where a binding leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum To {
    /// To a queue.
    Queue(ByteString),
    /// To an exchange.
    Exchange(ByteString),
}

/// `queue.bind`, `exchange.bind`, and what undoes them.
#[derive(Clone, PartialEq, Debug)]
pub struct Bind {
    /// In which virtual host.
    pub vhost: VhostId,
    /// From which exchange.
    pub source: ByteString,
    /// To where.
    pub to: To,
    /// The binding key.
    pub key: ByteString,
    /// Arguments as they came.
    pub arguments: Vec<Argument>,
}

/// How far the topic of an exchange was read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TopicReads {
    /// The exchange.
    pub exchange: ExchangeId,
    /// Partitions ([`READS_BEGUN`](crate::READS_BEGUN) for that reading has begun), and the offset that comes next in each.
    pub at: Vec<(u64, u64)>,
    /// Partitions that are gone.
    pub gone: Vec<u64>,
}

/// What the declared world may be told.
#[derive(Clone, PartialEq, Debug)]
pub enum Command {
    /// Where nothing is there yet: the virtual host `/` and a first administrator.
    Bootstrap(PutUser),
    /// Makes or changes a virtual host.
    PutVhost(PutVhost),
    /// A virtual host goes with all that is in it, unless it is protected.
    DeleteVhost(ByteString),
    /// A virtual host is protected from deletion, or no longer.
    ProtectVhost(ByteString, bool),
    /// A limit of a virtual host; below 0 or `None` for none.
    SetVhostLimit(ByteString, VhostLimit, Option<i64>),
    /// Makes or changes a user.
    PutUser(PutUser),
    /// SCRAM credentials are set and taken away. Each part for itself: answered by [`Reply::Each`].
    AlterScram(Vec<AlterScram>),
    /// Bindings of access control lists are added. Each for itself: answered by [`Reply::Each`].
    CreateAcls(Vec<Acl>),
    /// The bindings that these mean go. Each for itself: answered by [`Reply::DeletedAcls`].
    DeleteAcls(Vec<AclFilter>),
    /// Quotas are set and taken away. Each entity for itself: answered by [`Reply::Each`].
    AlterQuotas(Vec<AlterQuotas>),
    /// Users go with their permissions. Those that are not there are not missed.
    DeleteUsers(Vec<ByteString>),
    /// A limit of a user; below 0 or `None` for none.
    SetUserLimit(ByteString, UserLimit, Option<i64>),
    /// User, virtual host, configure, write, read.
    SetPermission(ByteString, ByteString, [ByteString; 3]),
    /// User, virtual host.
    ClearPermission(ByteString, ByteString),
    /// User, virtual host, exchange, write, read.
    SetTopicPermission(ByteString, ByteString, ByteString, [ByteString; 2]),
    /// User, virtual host, exchange; `None` for all exchanges.
    ClearTopicPermission(ByteString, ByteString, Option<ByteString>),
    /// Virtual host, component, name, value. The components `policy`, `operator_policy` and `vhost-limits` are what they say.
    SetParameter(ByteString, ByteString, ByteString, serde_json::Value),
    /// Virtual host, component, name.
    ClearParameter(ByteString, ByteString, ByteString),
    /// Virtual host, component, name, value: the same, unless it has another value by now.
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
    /// A client deletes a queue. One that is not there is not missed.
    DeleteQueue(DeleteQueue),
    /// The broker removes a queue. One that is not there is not missed.
    RemoveQueue(QueueId, Gone),
    /// A connection is gone: the queues that were its alone go.
    OwnerGone(OwnerId),
    /// The broker was started anew: what is not durable goes.
    Restarted,
    /// A client declares an exchange.
    DeclareExchange(DeclareExchange),
    /// Virtual host, name, only when nothing is bound to it. One that is not there is not missed.
    DeleteExchange(VhostId, ByteString, bool),
    /// A client binds.
    Bind(Bind),
    /// A client unbinds. What is not there is not missed.
    Unbind(Bind),
    /// The broker has read so far for an exchange. One that is not there is not missed, and what says that reading begins says it once: as
    /// long as the exchange is there the next one changes nothing.
    SetTopicReads(TopicReads),
    /// Definitions: all of them or none.
    Import(Box<Definitions>),
}

/// What is to be answered once the record is committed.
#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    /// It is as told.
    Done,
    /// It is as told; whether it was there before.
    Put {
        /// It was not there.
        created: bool,
    },
    /// What became of each part of the command.
    Each(Vec<Result<(), UsersRefusal>>),
    /// The bindings that go by each filter of the command.
    DeletedAcls(Vec<Result<Vec<Arc<Acl>>, UsersRefusal>>),
    /// The queue.
    Queue {
        /// As declared.
        queue: Arc<Queue>,
        /// It was not there.
        created: bool,
    },
    /// The exchange that was asked for; `None` when it is new.
    Exchange(Option<Arc<Exchange>>),
    /// The queue that goes, if it was there.
    Deleted {
        /// As declared.
        queue: Option<Arc<Queue>>,
        /// The ready messages that go with it, where the command says.
        messages: u64,
    },
}

/// What a committed record did, in order.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// A virtual host is there, or is another than before.
    VhostSet(Arc<crate::vhost::Vhost>),
    /// A virtual host is gone; what was in it was said before.
    VhostRemoved(Arc<crate::vhost::Vhost>),
    /// A user is there, or is another than before.
    UserSet(Arc<User>),
    /// A user is gone.
    UserRemoved(Arc<User>),
    /// A user may do something else than before in a virtual host.
    PermissionsChanged(VhostId, ByteString),
    /// A parameter (virtual host, component, name) has a value, or none any more.
    Parameter(VhostId, ByteString, ByteString, Option<Json>),
    /// A global parameter has a value, or none any more.
    GlobalParameter(ByteString, Option<Json>),
    /// The policies of a virtual host changed. What then holds for queues is found by [`Event::Realign`].
    PoliciesChanged(VhostId),
    /// A queue is there, and this holds for it.
    QueueDeclared(Arc<Queue>, Box<crate::settings::Effective>),
    /// Something else may hold for queues: see [`crate::Model::realign`].
    Realign(Realign),
    /// A queue is gone.
    QueueDeleted(Arc<Queue>, Gone),
    /// Reading of a topic has begun for an exchange.
    TopicReadsBegun(ExchangeId),
    /// A binding of access control lists is there.
    AclSet(Arc<Acl>),
    /// One is gone.
    AclRemoved(Arc<Acl>),
    /// These quotas are set for an entity; empty where none are any more.
    QuotaSet(QuotaEntity, QuotaLimits),
    /// What happened to exchanges and bindings.
    Router(RouterEvent),
}
