//! What a session of whatever protocol asks about users.

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

/// A claimed user name, and the client's address. Nothing is proven by it.
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
    /// A proof that the password is known.
    Scram(ScramMechanism),
    /// `EXTERNAL`: the certificate that was shown when the connection was made.
    External,
    /// `OAUTHBEARER`: a token of an identity provider, in whatever protocol it came.
    Bearer,
    /// `ANONYMOUS`: nothing is proven; the server says who it is.
    Anonymous,
}

impl Mechanism {
    /// Those by a password, in the order in which clients see them.
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

    /// Those that a client can choose by their names in SASL: by a password, and where tokens are logins by one.
    pub fn offered(with_tokens: bool) -> impl Iterator<Item = Mechanism> {
        Mechanism::ALL.into_iter().chain(with_tokens.then_some(Mechanism::Bearer))
    }
}

/// A user's SCRAM credentials, as listings show them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScramUser {
    /// The name.
    pub name: String,
    /// For which mechanisms there is a credential, with its iterations.
    pub credentials: Vec<(ScramMechanism, u32)>,
}

/// Users and what they may do, as sessions know them: what is committed. Its implementation has the clock, the randomness and the books of
/// failures that this crate has not; who keeps no access control lists allows nothing.
pub trait Authority: Debug + Send + Sync {
    /// What is kept of a user's password for a mechanism; `None` as well for a user who may not log in so.
    fn scram(&self, claim: &Claim<'_>, mechanism: ScramMechanism) -> Option<ScramCredential>;

    /// Whether this is the user's password, by whatever is kept of it; milliseconds of work where that is a SCRAM credential only. `false` as
    /// well for a user who may not log in so.
    fn is_password(&self, claim: &Claim<'_>, password: &[u8]) -> bool;

    /// Whether tokens of others are logins here.
    fn takes_tokens(&self) -> bool {
        false
    }

    /// Who a token says that its bearer is. A microsecond, or some hundreds where it is signed by RSA.
    ///
    /// # Errors
    /// Why it is not believed; for the operator.
    fn bearer(&self, _token: &str) -> Result<Bearer, AuthError> {
        Err(AuthError::new(AuthErrorKind::Unsupported, "tokens are no logins here"))
    }

    /// Whether a user may do everything, users and their passwords included.
    fn is_administrator(&self, name: &str) -> bool;

    /// Users that have SCRAM credentials, by name: those of `names`, or all.
    fn scram_users(&self, names: Option<&[&str]>) -> Vec<ScramUser>;

    /// Whether this authenticated principal may perform an operation on a resource. Asked for every request: it takes no more than some hundred
    /// nanoseconds.
    fn decide(&self, _who: &Claim<'_>, _operation: Operation, _resource: Resource<'_>) -> Decision {
        Decision::Denied
    }

    /// Whether they may do it to any resource of a kind.
    fn decide_any(&self, _who: &Claim<'_>, _operation: Operation, _kind: ResourceKind) -> Decision {
        Decision::Denied
    }

    /// Everything that they may do to a resource, a bit an operation; `None` where there is no binding for the resource.
    fn operations(&self, _who: &Claim<'_>, _resource: Resource<'_>) -> Option<u32> {
        Some(0)
    }

    /// The bindings that are meant.
    fn acls(&self, _filter: &AclFilter) -> Vec<Arc<Acl>> {
        Vec::new()
    }

    /// Another number than before where [`Authority::quota`] may say something else than before; 0 where there are no quotas at all. Asked for
    /// every request.
    fn quota_version(&self) -> u64 {
        0
    }

    /// How much a client may take that calls itself so; one that did not log in has no user.
    fn quota(&self, _user: Option<&str>, _client_id: &str, _now_ms: u64) -> ClientQuota {
        ClientQuota::default()
    }

    /// A client was throttled by a quota of this kind.
    fn throttled(&self, _kind: QuotaKind) {}

    /// The quotas that are set.
    fn quotas(&self) -> QuotaTable {
        QuotaTable::new()
    }

    /// Unpredictable random bytes, for a nonce.
    fn nonce(&self) -> [u8; SERVER_NONCE_BYTES];

    /// The secret from which salts of unknown names are derived. The same for the life of the process, and secret.
    fn secret(&self) -> &[u8];

    /// A password is about to be tried: whether it is to be verified now, and else when this is asked again, with the same ticket.
    fn turn(&self, _claim: &Claim<'_>, _ticket: &mut Ticket) -> Turn {
        Turn::Now
    }

    /// A login failed: returns how long the answer has to wait. Milliseconds. `why` is for the operator and holds no secret.
    fn failed(&self, claim: &Claim<'_>, mechanism: Mechanism, why: &str) -> u64;

    /// The password was right, for one request that is no login: what failed before is forgotten.
    fn right(&self, _claim: &Claim<'_>) {}

    /// A login succeeded.
    fn succeeded(&self, claim: &Claim<'_>, mechanism: Mechanism);
}

/// An authority without users: every login fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NoUsers;

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
