//! Users for the sessions of all protocols, and the first administrator.
//!
//! Users are stored in the AMQP metadata ([`Directory`]); this module adds the clock, randomness and the record of failed logins, which sessions
//! do not have. Failed logins are delayed ([`Attempts`]), counted (`polylogue_logins_total`) and logged, at most [`LINES_PER_SECOND_MAX`]
//! per second; a line contains the name, the address and the reason, and never a password.

use crate::audit::Audit;
use crate::declared::{self, Fault};
use crate::handle::BrokerHandle;
use crate::lines::Lines;
use crate::oauth::OAuth;
use bytes::Bytes;
use parking_lot::Mutex;
use polylogue_amqp_gateway::{ADMINISTRATOR, Directory, FIRST_USER};
use polylogue_amqp_model::{Command, PutUser};
use polylogue_auth::{
    Acl, AclFilter, Attempts, AuthError, AuthErrorKind, Authority, Bearer, Claim, ClientQuota, Decision, Hashing,
    ITERATIONS_MIN, Mechanism, Operation, PasswordHash, QuotaKind, QuotaTable, Resource, ResourceKind, SALT_BYTES,
    SERVER_NONCE_BYTES, ScramCredential, ScramMechanism, ScramUser, Ticket, Turn,
};
use polylogue_env::Rng;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::Arc;

/// The maximum number of log lines about failed logins per second; beyond it lines are only counted.
pub const LINES_PER_SECOND_MAX: u32 = 5;
/// The name of the first administrator.
pub const FIRST_ADMINISTRATOR: &str = "admin";
/// The variable with the first administrator's password, used while there is no administrator.
pub const ADMIN_PASSWORD_VARIABLE: &str = "POLYLOGUE_ADMIN_PASSWORD";
/// The user of clients without a login in quotas, as in Kafka (`KafkaPrincipal.ANONYMOUS`).
const ANONYMOUS: &str = "ANONYMOUS";
/// Random bytes of a generated password.
const PASSWORD_BYTES: usize = 18;
/// Salt bytes of a generated SCRAM credential.
const SCRAM_SALT_BYTES: usize = 16;

/// Operations that change definitions: refused ones are in the audit log.
const CHANGES: [Operation; 4] = [Operation::Create, Operation::Delete, Operation::Alter, Operation::AlterConfigs];

/// Label: the outcome of a login.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LoginLabel {
    mechanism: &'static str,
    outcome: &'static str,
}

/// The users of this broker.
#[derive(Debug)]
pub struct Users {
    directory: Arc<Directory>,
    broker: Arc<dyn BrokerHandle>,
    rng: Arc<dyn Rng>,
    secret: [u8; 32],
    attempts: Mutex<Attempts>,
    remembered: Gauge,
    put_off: Counter,
    lines: Mutex<Lines>,
    /// The audit log for changes that access control lists deny.
    audit: Option<Arc<Audit>>,
    /// Verifies tokens, if they are accepted.
    tokens: Option<Arc<OAuth>>,
    logins: Family<LoginLabel, Counter>,
}

impl Users {
    /// Creates it for this broker.
    #[must_use]
    pub fn new(
        directory: Arc<Directory>,
        broker: Arc<dyn BrokerHandle>,
        rng: Arc<dyn Rng>,
        registry: &mut Registry,
    ) -> Users {
        let mut secret = [0; 32];
        rng.fill(&mut secret);
        let (logins, remembered) = (Family::<LoginLabel, Counter>::default(), Gauge::default());
        for mechanism in
            Mechanism::ALL.into_iter().chain([Mechanism::External, Mechanism::Bearer, Mechanism::Anonymous])
        {
            for outcome in ["succeeded", "failed"] {
                drop(logins.get_or_create(&LoginLabel { mechanism: mechanism.name(), outcome }));
            }
        }
        registry.register("logins", "Logins, by SASL mechanism and how they ended", logins.clone());
        let text = "Names and addresses whose failed logins are remembered, at most 65,536";
        registry.register("login_failures_remembered", text, remembered.clone());
        let put_off = Counter::default();
        let text = "Tries to log in that were not looked at, because too many of their name and address waited";
        registry.register("logins_put_off", text, put_off.clone());
        let (attempts, lines) = (Mutex::default(), Mutex::new(Lines::new(LINES_PER_SECOND_MAX)));
        Users {
            directory,
            broker,
            rng,
            secret,
            attempts,
            remembered,
            put_off,
            lines,
            audit: None,
            tokens: None,
            logins,
        }
    }

    /// Adds the audit log.
    #[must_use]
    pub fn with_audit(self, audit: Arc<Audit>) -> Users {
        Users { audit: Some(audit), ..self }
    }

    /// Accepts tokens.
    #[must_use]
    pub fn with_tokens(self, tokens: Option<Arc<OAuth>>) -> Users {
        Users { tokens, ..self }
    }

    /// Logs a change that access control lists deny: it never reaches the broker, where changes are logged.
    fn refused(&self, who: &Claim<'_>, operation: Operation, resource: Resource<'_>) {
        if let Some(audit) = &self.audit {
            let what = format!("{} {} {}", operation.name(), resource.kind.name(), resource.name);
            audit.tell(Some(who.name), who.address, "kafka", &what, "refused");
        }
    }

    fn count(&self, mechanism: Mechanism, outcome: &'static str) {
        self.logins.get_or_create(&LoginLabel { mechanism: mechanism.name(), outcome }).inc();
    }
}

impl Authority for Users {
    fn scram(&self, claim: &Claim<'_>, mechanism: ScramMechanism) -> Option<ScramCredential> {
        self.directory.scram(claim, mechanism)
    }

    fn is_password(&self, claim: &Claim<'_>, password: &[u8]) -> bool {
        self.directory.is_password(claim, password)
    }

    fn takes_tokens(&self) -> bool {
        self.tokens.is_some()
    }

    /// A token grants administrator access by a scope, and must not name a stored administrator; `guest` may log in over AMQP only.
    fn bearer(&self, token: &str) -> Result<Bearer, AuthError> {
        let refused = |kind, text: &str| AuthError { kind, text: text.to_owned() };
        let Some(tokens) = &self.tokens else {
            return Err(refused(AuthErrorKind::Unsupported, "tokens are not accepted"));
        };
        let bearer = tokens.bearer(token, self.broker.now().wall_ms)?;
        if bearer.name == FIRST_USER {
            return Err(refused(
                AuthErrorKind::Refused,
                "the token names the user guest, who cannot log in with a token",
            ));
        }
        if !bearer.grants.is_administrator() && self.directory.is_administrator(&bearer.name) {
            let text = "the token names an administrator without having the administrator scope";
            return Err(refused(AuthErrorKind::Refused, text));
        }
        Ok(bearer)
    }

    fn is_administrator(&self, name: &str) -> bool {
        self.directory.is_administrator(name)
    }

    fn scram_users(&self, names: Option<&[&str]>) -> Vec<ScramUser> {
        self.directory.scram_users(names)
    }

    fn decide(&self, who: &Claim<'_>, operation: Operation, resource: Resource<'_>) -> Decision {
        let decision = self.directory.decide(who, operation, resource);
        if decision == Decision::Denied && CHANGES.contains(&operation) {
            self.refused(who, operation, resource);
        }
        decision
    }

    fn decide_any(&self, who: &Claim<'_>, operation: Operation, kind: ResourceKind) -> Decision {
        self.directory.decide_any(who, operation, kind)
    }

    fn operations(&self, who: &Claim<'_>, resource: Resource<'_>) -> Option<u32> {
        self.directory.operations(who, resource)
    }

    fn acls(&self, filter: &AclFilter) -> Vec<Arc<Acl>> {
        self.directory.acls(filter)
    }

    fn quota_version(&self) -> u64 {
        self.directory.quotas().version()
    }

    fn quota(&self, user: Option<&str>, client_id: &str, now_ms: u64) -> ClientQuota {
        self.directory.quotas().of(user.unwrap_or(ANONYMOUS), client_id, now_ms)
    }

    fn throttled(&self, kind: QuotaKind) {
        self.directory.quotas().count_throttled(kind);
    }

    fn quotas(&self) -> QuotaTable {
        self.directory.quotas().table()
    }

    fn nonce(&self) -> [u8; SERVER_NONCE_BYTES] {
        let mut nonce = [0; SERVER_NONCE_BYTES];
        self.rng.fill(&mut nonce);
        nonce
    }

    fn secret(&self) -> &[u8] {
        &self.secret
    }

    fn turn(&self, claim: &Claim<'_>, ticket: &mut Ticket) -> Turn {
        let turn = self.attempts.lock().turn(claim.name, claim.address, ticket, self.broker.now().monotonic_ms);
        if turn == Turn::Refused {
            self.put_off.inc();
        }
        turn
    }

    fn failed(&self, claim: &Claim<'_>, mechanism: Mechanism, why: &str) -> u64 {
        self.count(mechanism, "failed");
        let now_ms = self.broker.now().monotonic_ms;
        if let Some(left_out) = self.lines.lock().next(now_ms) {
            let user: String = claim.name.chars().take(64).collect();
            tracing::warn!(user, address = %claim.address, mechanism = mechanism.name(), left_out, "a login failed: {why}");
        }
        let mut attempts = self.attempts.lock();
        let delay_ms = attempts.failed(claim.name, claim.address, now_ms);
        self.remembered.set(attempts.len() as i64);
        delay_ms
    }

    fn right(&self, claim: &Claim<'_>) {
        let mut attempts = self.attempts.lock();
        attempts.succeeded(claim.name, claim.address);
        self.remembered.set(attempts.len() as i64);
    }

    fn succeeded(&self, claim: &Claim<'_>, mechanism: Mechanism) {
        self.count(mechanism, "succeeded");
        self.right(claim);
    }
}

/// Returns what is stored of a password: a hash for protocols that send it, and a SCRAM credential for each mechanism. Takes some
/// milliseconds. An empty password yields neither.
pub fn kept(rng: &dyn Rng, password: &[u8]) -> (PasswordHash, Vec<ScramCredential>) {
    let mut salt = [0; SALT_BYTES];
    rng.fill(&mut salt);
    let credential = |mechanism| {
        let mut salt = vec![0; SCRAM_SALT_BYTES];
        rng.fill(&mut salt);
        ScramCredential::of(mechanism, password, Bytes::from(salt), ITERATIONS_MIN).ok()
    };
    let credentials = ScramMechanism::ALL.into_iter().filter_map(credential).collect();
    (PasswordHash::of(Hashing::Sha256, salt, password), credentials)
}

/// A password, which `Debug` does not show.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// Returns a given password; `None` if it is empty.
    #[must_use]
    pub fn given(text: String) -> Option<Password> {
        (!text.is_empty()).then_some(Password(text))
    }

    /// Generates a random password.
    fn made_up(rng: &dyn Rng) -> Password {
        use base64::Engine as _;
        let mut bytes = [0; PASSWORD_BYTES];
        rng.fill(&mut bytes);
        Password(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Returns the password itself.
    pub fn shown(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

/// Creates the first administrator if one is required and missing: the user [`FIRST_ADMINISTRATOR`] with the given password, or with a generated
/// one, which is returned to be shown once.
///
/// # Errors
/// The change failed.
pub async fn first_administrator(
    broker: &Arc<dyn BrokerHandle>,
    directory: &Directory,
    rng: &dyn Rng,
    given: Option<&Password>,
) -> Result<Option<Password>, Fault> {
    if directory.has_administrator() {
        return Ok(None);
    }
    let made_up = given.is_none().then(|| Password::made_up(rng));
    let Some(password) = given.or(made_up.as_ref()) else { return Ok(None) };
    let (hash, scram) = kept(rng, password.shown().as_bytes());
    let (password, tags) = (Some(hash), vec![ADMINISTRATOR.into()]);
    let put = PutUser { name: FIRST_ADMINISTRATOR.into(), password, scram, tags: Some(tags) };
    declared::change(broker, Command::PutUser(put)).await?;
    let all = [".*", ".*", ".*"].map(bytestring::ByteString::from_static);
    let vhost = polylogue_amqp_model::DEFAULT_VHOST.into();
    match declared::change(broker, Command::SetPermission(FIRST_ADMINISTRATOR.into(), vhost, all)).await {
        // The virtual host may have been deleted.
        Ok(_) | Err(Fault::Refused(_)) => Ok(made_up),
        Err(fault) => Err(fault),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_a_password_recognises_it_and_never_shows_it() {
        let rng = polylogue_env::sim::SimRng::new(7);
        let (hash, scram) = kept(&rng, b"secret");
        assert!(hash.verify(b"secret") && scram.len() == 2);
        assert!(scram.iter().all(|credential| credential.verify(b"secret") && !credential.verify(b"Secret")));
        assert_ne!(scram[0].salt(), scram[1].salt());
        let (hash, scram) = kept(&rng, b"");
        assert!(!hash.verify(b"") && scram.is_empty());
        let password = Password::made_up(&rng);
        assert!(password.shown().len() == 24 && format!("{password:?}") == "Password(..)");
        assert_eq!(Password::given(String::new()), None);
    }
}
