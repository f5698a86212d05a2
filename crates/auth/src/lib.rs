//! Who somebody is and what they may do, for all protocols: SASL mechanisms, credentials, tokens, certificates, access control lists.
//!
//! Layer 1, sans-IO. Knows no protocol session, no user store, no clock and no randomness: nonces, salts and the time are handed in, and
//! whoever calls keeps credentials and lists on the log.
//!
//! **Invariants.** Nothing a client sends may panic, and every length is held against a bound before anything is allocated. An exchange says
//! who somebody is only when it is complete: each step consumes the state before it. Secrets are compared in constant time and never
//! shown, not even their hashes. A name that nobody has costs a client as much as one with a wrong password, and is told the same.

mod error;

pub use error::{AuthError, AuthErrorKind};
