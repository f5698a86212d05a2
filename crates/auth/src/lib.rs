//! Authentication, authorization and quotas for all protocols: SASL mechanisms, stored credentials, tokens issued by identity
//! providers, delays after failed logins, session tokens of browsers, access control lists, and quotas.
//!
//! Layer 1, sans-IO. It has no protocol session, no user store, no clock and no randomness: nonces, salts and the time are arguments, and
//! the caller stores credentials in the log.
//!
//! **Invariants.** No input from a client causes a panic, and every length is checked against a bound before an allocation. An exchange
//! returns a user only when it is complete: each step consumes the state before it. Secrets are compared in constant time and never
//! shown, not even their hashes. An unknown name is challenged like any other, and gets the error of a wrong password.
//! A deny rule takes precedence over every allow rule.

mod acl;
mod acl_book;
mod attempts;
mod authority;
mod bearer;
mod error;
mod grants;
mod jwt;
mod password;
mod plain;
mod quota;
mod quotas;
mod scram;
mod scram_credential;
mod token_keys;
mod tokens;
mod users_command;

pub use acl::{
    ACL_TEXT_BYTES_MAX, Acl, AclFilter, CLUSTER_RESOURCE, Operation, PatternFilter, PatternKind, Permission, Resource,
    ResourceKind, WILDCARD,
};
pub use acl_book::{AclBook, Decision, find as find_acls};
pub use attempts::{
    ATTEMPTS_MAX, Attempts, DELAY_MS, DELAY_MS_MAX, FORGET_MS, FREE_FAILURES, Ticket, Turn, WAITING_MAX,
};
pub use authority::{Authority, Claim, Mechanism, NoUsers, ScramUser};
pub use bearer::{
    BEARER_ACKNOWLEDGED, BEARER_EXTENSIONS_MAX, BEARER_MESSAGE_BYTES_MAX, BEARER_REFUSED, BearerMessage, bearer_token,
};
pub use error::{AuthError, AuthErrorKind};
pub use grants::{Access, Grants, SCOPES_MAX};
pub use jwt::{Bearer, JWT_BYTES_MAX, JWT_NAME_BYTES_MAX, Jwt, TokenRules};
pub use password::{HASH_BYTES_MAX, Hashing, PasswordHash, SALT_BYTES};
pub use plain::{PLAIN_MESSAGE_BYTES_MAX, Plain};
pub use quota::{
    QUOTA_NAME_BYTES_MAX, QuotaEntity, QuotaKind, QuotaLimits, QuotaName, QuotaTable, SHARE_NAME_BYTES_MAX,
};
pub use quotas::{BUCKETS_MAX, Bucket, ClientQuota, Quotas, REQUESTS_THROTTLE_MS_MAX, THROTTLE_MS_MAX};
pub use scram::{
    CLIENT_NONCE_BYTES_MAX, Challenged, ClientFirst, EXTENSIONS_MAX, Proven, SCRAM_MESSAGE_BYTES_MAX,
    SERVER_NONCE_BYTES,
};
pub use scram_credential::{ITERATIONS_MAX, ITERATIONS_MIN, SCRAM_SALT_BYTES_MAX, ScramCredential, ScramMechanism};
pub use token_keys::{KEY_SET_BYTES_MAX, KEY_TRIES_MAX, KEYS_MAX, TokenKeys};
pub use tokens::{PasswordFingerprint, TOKEN_BYTES, TOKEN_MS, TOKENS_MAX, Tokens};
pub use users_command::{AlterQuotas, AlterScram, ScramChange, UsersCommand, UsersRefusal, UsersReply};
