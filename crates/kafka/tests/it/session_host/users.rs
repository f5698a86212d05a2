//! Users of a listener that requires a login.

use bytes::Bytes;
use polylogue_auth::{
    Acl, AclBook, AclFilter, AuthError, AuthErrorKind, Authority, Bearer, Claim, ClientQuota, Decision, Mechanism,
    Operation, PatternKind, Permission, QuotaKind, QuotaTable, Quotas, Resource, ResourceKind, SERVER_NONCE_BYTES,
    ScramCredential, ScramMechanism, ScramUser, Ticket, Turn,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The delay of a failed login. Milliseconds.
pub const DELAY_MS: u64 = 50;
/// That of RFC 7677's example.
const SALT: [u8; 16] = [0x5b, 0x6d, 0x99, 0x68, 0x9d, 0x12, 0x35, 0x8e, 0xec, 0xa0, 0x4b, 0x14, 0x12, 0x36, 0xfa, 0x81];

/// `user` with the password `pencil`, and `root`, an administrator, with `root`.
#[derive(Debug)]
pub struct Users {
    /// Their ACLs.
    pub book: Mutex<AclBook>,
    /// Their quotas.
    pub quotas: Quotas,
    /// Reported logins.
    pub reported: Mutex<Vec<String>>,
    /// Valid tokens, if tokens are accepted.
    pub tokens: Mutex<Option<BTreeMap<String, Bearer>>>,
    /// Wait of a login for its verification, `u64::MAX` if refused. Milliseconds.
    pub turn_ms: Mutex<u64>,
    /// Whether `user` was deleted.
    pub is_gone: Mutex<bool>,
}

impl Default for Users {
    fn default() -> Users {
        let mut book = AclBook::default();
        book.set_administrator("root", true);
        Users {
            book: Mutex::new(book),
            quotas: Quotas::default(),
            reported: Mutex::default(),
            tokens: Mutex::default(),
            turn_ms: Mutex::default(),
            is_gone: Mutex::default(),
        }
    }
}

impl Users {
    /// An ACL that allows an operation on a resource.
    pub fn acl(user: &str, operation: Operation, resource: Resource<'_>) -> Acl {
        Acl {
            kind: resource.kind,
            name: resource.name.to_owned(),
            pattern: PatternKind::Literal,
            principal: format!("User:{user}"),
            host: "*".to_owned(),
            operation,
            permission: Permission::Allow,
        }
    }

    pub fn allow(&self, user: &str, operation: Operation, resource: Resource<'_>) {
        self.book.lock().unwrap().insert(Arc::new(Users::acl(user, operation, resource)));
    }

    pub fn take_back(&self, user: &str, operation: Operation, resource: Resource<'_>) {
        assert!(self.book.lock().unwrap().remove(&Users::acl(user, operation, resource)));
    }
}

impl Authority for Users {
    fn scram(&self, claim: &Claim<'_>, mechanism: ScramMechanism) -> Option<ScramCredential> {
        let credential = || ScramCredential::of(mechanism, b"pencil", Bytes::copy_from_slice(&SALT), 4_096).unwrap();
        (claim.name == "user" && !*self.is_gone.lock().unwrap()).then(credential)
    }

    fn is_password(&self, claim: &Claim<'_>, password: &[u8]) -> bool {
        matches!((claim.name, password), ("user", b"pencil") | ("root", b"root"))
    }

    fn takes_tokens(&self) -> bool {
        self.tokens.lock().unwrap().is_some()
    }

    fn bearer(&self, token: &str) -> Result<Bearer, AuthError> {
        let bearer = self.tokens.lock().unwrap().as_ref().and_then(|tokens| tokens.get(token).cloned());
        bearer.ok_or_else(|| AuthError { kind: AuthErrorKind::Refused, text: "the token has expired".to_owned() })
    }

    fn is_administrator(&self, name: &str) -> bool {
        self.book.lock().unwrap().is_administrator(name)
    }

    fn decide(&self, who: &Claim<'_>, operation: Operation, resource: Resource<'_>) -> Decision {
        self.book.lock().unwrap().decide(who.name, who.address, operation, resource)
    }

    fn decide_any(&self, who: &Claim<'_>, operation: Operation, kind: ResourceKind) -> Decision {
        self.book.lock().unwrap().decide_any(who.name, who.address, operation, kind)
    }

    fn operations(&self, who: &Claim<'_>, resource: Resource<'_>) -> Option<u32> {
        self.book.lock().unwrap().operations(who.name, who.address, resource)
    }

    fn acls(&self, filter: &AclFilter) -> Vec<Arc<Acl>> {
        self.book.lock().unwrap().find(filter)
    }

    fn scram_users(&self, names: Option<&[&str]>) -> Vec<ScramUser> {
        let user = ScramUser { name: "user".to_owned(), credentials: vec![(ScramMechanism::Sha512, 8_192)] };
        if names.is_none_or(|names| names.contains(&"user")) { vec![user] } else { Vec::new() }
    }

    fn quota_version(&self) -> u64 {
        self.quotas.version()
    }

    fn quota(&self, user: Option<&str>, client_id: &str, now_ms: u64) -> ClientQuota {
        self.quotas.of(user.unwrap_or("ANONYMOUS"), client_id, now_ms)
    }

    fn throttled(&self, kind: QuotaKind) {
        self.quotas.count_throttled(kind);
    }

    fn quotas(&self) -> QuotaTable {
        self.quotas.table()
    }

    fn nonce(&self) -> [u8; SERVER_NONCE_BYTES] {
        std::array::from_fn(|at| at as u8)
    }

    fn secret(&self) -> &[u8] {
        b"secret"
    }

    fn turn(&self, _: &Claim<'_>, _: &mut Ticket) -> Turn {
        match *self.turn_ms.lock().unwrap() {
            0 => Turn::Now,
            u64::MAX => Turn::Refused,
            ms => Turn::After(ms),
        }
    }

    fn failed(&self, claim: &Claim<'_>, mechanism: Mechanism, why: &str) -> u64 {
        let reported = format!("{} from {} by {}: {why}", claim.name, claim.address, mechanism.name());
        self.reported.lock().unwrap().push(reported);
        DELAY_MS
    }

    fn succeeded(&self, claim: &Claim<'_>, mechanism: Mechanism) {
        self.reported.lock().unwrap().push(format!("{} by {}", claim.name, mechanism.name()));
    }
}
