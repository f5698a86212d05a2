//! [`Authority`]: the queries of protocol sessions about users, permissions and quotas.

use crate::acl::{Acl, AclFilter, Operation, Resource, ResourceKind};
use crate::acl_book::Decision;
use crate::attempts::{Ticket, Turn};
use crate::error::{AuthError, AuthErrorKind};
use crate::jwt::Bearer;
use crate::quota::{QuotaKind, QuotaTable};
use crate::quotas::ClientQuota;
use crate::scram::SERVER_NONCE_BYTES;
use crate::scram_credential::{ScramCredential, ScramMechanism};
use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;

/// A claimed, unverified user name and the client's address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim<'a> {
    /// The name.
    pub name: &'a str,
    /// The address of the client.
    pub address: IpAddr,
}

/// The mechanism of a login, for metrics and the audit log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mechanism {
    /// `PLAIN`: the password itself.
    Plain,
    /// SCRAM: a proof of knowledge of the password.
    Scram(ScramMechanism),
    /// `EXTERNAL`: the client certificate of the TLS handshake.
    External,
    /// `OAUTHBEARER`: a token of an identity provider, in any protocol.
    Bearer,
    /// `ANONYMOUS`: no proof; the server's configuration sets the user.
    Anonymous,
}

impl Mechanism {
    /// The mechanisms with a password, in the order in which clients see them.
    pub const ALL: [Mechanism; 3] =
        [Mechanism::Plain, Mechanism::Scram(ScramMechanism::Sha256), Mechanism::Scram(ScramMechanism::Sha512)];

    /// Its name in SASL.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::Scram(mechanism) => mechanism.name(),
            Mechanism::External => "EXTERNAL",
            Mechanism::Bearer => "OAUTHBEARER",
            Mechanism::Anonymous => "ANONYMOUS",
        }
    }

    /// The SASL mechanisms that a client can choose: those with a password, and `OAUTHBEARER` if token logins are enabled.
    pub fn offered(with_tokens: bool) -> impl Iterator<Item = Mechanism> {
        Mechanism::ALL.into_iter().chain(with_tokens.then_some(Mechanism::Bearer))
    }
}

/// A user's SCRAM credentials, as listings show them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScramUser {
    /// The name.
    pub name: String,
    /// The mechanisms of the user's credentials, with their iterations.
    pub credentials: Vec<(ScramMechanism, u32)>,
}

/// Committed users, permissions and quotas, as sessions query them. The implementation provides the clock, the randomness and the record of
/// failed logins, which this crate lacks; without access control lists the defaults allow nothing.
pub trait Authority: Debug + Send + Sync {
    /// Returns the user's SCRAM credential for a mechanism; `None` also if the user may not log in with it.
    fn scram(&self, claim: &Claim<'_>, mechanism: ScramMechanism) -> Option<ScramCredential>;

    /// Whether this is the user's password, by any stored hash; takes milliseconds if only a SCRAM credential is stored. `false` also if the
    /// user may not log in with a password.
    fn is_password(&self, claim: &Claim<'_>, password: &[u8]) -> bool;

    /// Whether logins with tokens of identity providers are enabled.
    fn takes_tokens(&self) -> bool {
        false
    }

    /// Verifies a token and returns its bearer. A microsecond, or some hundreds where it is signed by RSA.
    ///
    /// # Errors
    /// The token is invalid; the reason is for the operator.
    fn bearer(&self, _token: &str) -> Result<Bearer, AuthError> {
        Err(AuthError::new(AuthErrorKind::Unsupported, "tokens are no logins here"))
    }

    /// Whether the user is an administrator, with all permissions, users and passwords included.
    fn is_administrator(&self, name: &str) -> bool;

    /// Users that have SCRAM credentials, by name: those of `names`, or all.
    fn scram_users(&self, names: Option<&[&str]>) -> Vec<ScramUser>;

    /// Whether this authenticated principal may perform an operation on a resource. Called for every request: it takes no more than some
    /// hundred nanoseconds.
    fn decide(&self, _who: &Claim<'_>, _operation: Operation, _resource: Resource<'_>) -> Decision {
        Decision::Denied
    }

    /// Whether the principal may perform the operation on at least one resource of a kind.
    fn decide_any(&self, _who: &Claim<'_>, _operation: Operation, _kind: ResourceKind) -> Decision {
        Decision::Denied
    }

    /// Returns all operations allowed on a resource, one bit each; `None` if the resource has no binding.
    fn operations(&self, _who: &Claim<'_>, _resource: Resource<'_>) -> Option<u32> {
        Some(0)
    }

    /// Returns the bindings that match the filter.
    fn acls(&self, _filter: &AclFilter) -> Vec<Arc<Acl>> {
        Vec::new()
    }

    /// A version that changes whenever results of [`Authority::quota`] may change; 0 if no quotas are set. Called for every request.
    fn quota_version(&self) -> u64 {
        0
    }

    /// Returns the limits of a client with this user and client id; the user is `None` without a login.
    fn quota(&self, _user: Option<&str>, _client_id: &str, _now_ms: u64) -> ClientQuota {
        ClientQuota::default()
    }

    /// Counts a client throttled by a quota of this kind.
    fn throttled(&self, _kind: QuotaKind) {}

    /// Returns the quotas that are set.
    fn quotas(&self) -> QuotaTable {
        QuotaTable::new()
    }

    /// Unpredictable random bytes, for a nonce.
    fn nonce(&self) -> [u8; SERVER_NONCE_BYTES];

    /// The secret from which salts of unknown names are derived. Constant for the life of the process.
    fn secret(&self) -> &[u8];

    /// A password is about to be tried: whether it is to be verified now, and else when this is asked again, with the same ticket.
    fn turn(&self, _claim: &Claim<'_>, _ticket: &mut Ticket) -> Turn {
        Turn::Now
    }

    /// Records a failed login. Returns the delay before the answer, in milliseconds. `why` is for the operator and holds no secret.
    fn failed(&self, claim: &Claim<'_>, mechanism: Mechanism, why: &str) -> u64;

    /// Records a correct password of a single request without a session: resets the record of failures.
    fn right(&self, _claim: &Claim<'_>) {}

    /// Records a successful login.
    fn succeeded(&self, claim: &Claim<'_>, mechanism: Mechanism);
}

/// An authority without users: every login fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NoUsers;

impl NoUsers {
    /// The same, shared.
    #[must_use]
    pub fn shared() -> Arc<dyn Authority> {
        Arc::new(NoUsers)
    }
}

impl Authority for NoUsers {
    fn scram(&self, _: &Claim<'_>, _: ScramMechanism) -> Option<ScramCredential> {
        None
    }

    fn is_password(&self, _: &Claim<'_>, _: &[u8]) -> bool {
        false
    }

    fn is_administrator(&self, _: &str) -> bool {
        false
    }

    fn scram_users(&self, _: Option<&[&str]>) -> Vec<ScramUser> {
        Vec::new()
    }

    fn nonce(&self) -> [u8; SERVER_NONCE_BYTES] {
        [0; SERVER_NONCE_BYTES]
    }

    fn secret(&self) -> &[u8] {
        &[]
    }

    fn failed(&self, _: &Claim<'_>, _: Mechanism, _: &str) -> u64 {
        0
    }

    fn succeeded(&self, _: &Claim<'_>, _: Mechanism) {}
}
