//! Commands by which sessions change users, ACLs and quotas, independent of the types of the state machine that stores them.

use crate::acl::{Acl, AclFilter};
use crate::quota::{QuotaEntity, QuotaKind};
use crate::scram_credential::{ScramCredential, ScramMechanism};
use std::sync::Arc;

/// A command.
#[derive(Clone, PartialEq, Debug)]
pub enum UsersCommand {
    /// Sets and removes SCRAM credentials. Answered with [`UsersReply::Each`] after commit.
    AlterScram(Vec<AlterScram>),
    /// Adds bindings; existing ones are kept. Answered with [`UsersReply::Each`] after commit.
    CreateAcls(Vec<Acl>),
    /// Removes the bindings that match these filters, which are applied in order. Answered with [`UsersReply::Deleted`] after commit.
    DeleteAcls(Vec<AclFilter>),
    /// Sets and removes quotas. Answered with [`UsersReply::Each`] after commit.
    AlterQuotas(Vec<AlterQuotas>),
}

/// A change of the quotas of one entity.
#[derive(Clone, PartialEq, Debug)]
pub struct AlterQuotas {
    /// The entity.
    pub entity: QuotaEntity,
    /// New values by kind; `None` removes the quota, and is no error if there is none.
    pub changes: Vec<(QuotaKind, Option<f64>)>,
}

/// A change of one user's credential.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AlterScram {
    /// The user. Setting a credential creates a missing user, without permissions.
    pub user: String,
    /// The change.
    pub change: ScramChange,
}

/// A change of one credential.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ScramChange {
    /// Sets the credential. A password hash stored for RabbitMQ's clients is dropped: it may be of another password.
    Set(ScramCredential),
    /// Removes the credential.
    Remove(ScramMechanism),
}

impl ScramChange {
    /// The mechanism of the credential.
    #[must_use]
    pub fn mechanism(&self) -> ScramMechanism {
        match self {
            ScramChange::Set(credential) => credential.mechanism(),
            ScramChange::Remove(mechanism) => *mechanism,
        }
    }
}

/// The answer to a [`UsersCommand`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UsersReply {
    /// One result for each part of the command, in the same order.
    Each(Vec<Result<(), UsersRefusal>>),
    /// The bindings that each filter of the command removed, in the same order.
    Deleted(Vec<Result<Vec<Arc<Acl>>, UsersRefusal>>),
}

/// Why a change was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UsersRefusal {
    /// The credential does not exist.
    NotFound,
    /// The change is invalid or exceeds a limit: a name too long, too many users or bindings. Holds the reason for the caller.
    Refused(String),
}
