//! What a session may have changed of the users: commands for the machine that keeps them, whose own types it does not know.

use crate::acl::{Acl, AclFilter};
use crate::quota::{QuotaEntity, QuotaKind};
use crate::scram_credential::{ScramCredential, ScramMechanism};
use std::sync::Arc;

/// A command.
#[derive(Clone, PartialEq, Debug)]
pub enum UsersAsk {
    /// Sets and takes away SCRAM credentials. Answered by [`UsersAnswer::Each`], when it is committed.
    AlterScram(Vec<AlterScram>),
    /// Adds bindings; one that is there stays. Answered by [`UsersAnswer::Each`], when it is committed.
    CreateAcls(Vec<Acl>),
    /// Takes away the bindings that these mean, each after those before it. Answered by [`UsersAnswer::Deleted`], when it is committed.
    DeleteAcls(Vec<AclFilter>),
    /// Sets and takes away quotas. Answered by [`UsersAnswer::Each`], when it is committed.
    AlterQuotas(Vec<AlterQuotas>),
}

/// Quotas of one entity.
#[derive(Clone, PartialEq, Debug)]
pub struct AlterQuotas {
    /// Whose.
    pub entity: QuotaEntity,
    /// What becomes of which; `None` takes it away, and one that is not there is not missed.
    pub changes: Vec<(QuotaKind, Option<f64>)>,
}

/// A credential of one user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AlterScram {
    /// Whose. Who is not there and gets a credential is there from then on, without any right.
    pub user: String,
    /// What becomes of it.
    pub change: ScramChange,
}

/// A change of one credential.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ScramChange {
    /// It is this one from now on. A password of RabbitMQ's clients that was kept beside it counts no longer: it may be another one.
    Set(ScramCredential),
    /// There is none any more.
    Remove(ScramMechanism),
}

impl ScramChange {
    /// Which one it changes.
    #[must_use]
    pub fn mechanism(&self) -> ScramMechanism {
        match self {
            ScramChange::Set(credential) => credential.mechanism(),
            ScramChange::Remove(mechanism) => *mechanism,
        }
    }
}

/// What is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UsersAnswer {
    /// One result a part of the command, in the same order.
    Each(Vec<Result<(), UsersRefusal>>),
    /// What each filter of the command took away, in the same order.
    Deleted(Vec<Result<Vec<Arc<Acl>>, UsersRefusal>>),
}

/// Why something was not changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UsersRefusal {
    /// There is no such credential.
    NotFound,
    /// It cannot be: a name that is too long, more users or bindings than there may be. The caller gets the reason.
    Refused(String),
}
