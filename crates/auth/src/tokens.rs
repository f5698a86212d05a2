//! Tokens of people who have logged in with a browser: each says who somebody is until its time is over.
//!
//! ```text
//! token = base64url(id: 8 bytes, secret: 24 bytes), without padding
//! ```
//!
//! The id finds a token, and the secret, compared in constant time, is what has to be known.

use crate::ScramCredential;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt;
use subtle::ConstantTimeEq as _;

/// Tokens that hold at a time; when there is one more, the one whose time is over first goes.
pub const TOKENS_MAX: usize = 1_024;
/// How long a token holds. Milliseconds.
pub const TOKEN_MS: u64 = 12 * 3_600_000;
/// Random bytes that a token is made of.
pub const TOKEN_BYTES: usize = ID_BYTES + SECRET_BYTES;
const ID_BYTES: usize = 8;
const SECRET_BYTES: usize = 24;

/// One of them.
struct Kept {
    secret: [u8; SECRET_BYTES],
    name: String,
    /// The salt of the password that was given: another password has another one.
    salt: Option<Bytes>,
    until_ms: u64,
}

/// Those that hold. Times are monotonic milliseconds.
#[derive(Default)]
pub struct Tokens {
    kept: BTreeMap<[u8; ID_BYTES], Kept>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("kept", &self.kept.len()).finish_non_exhaustive()
    }
}

fn salt_of(credential: Option<&ScramCredential>) -> Option<Bytes> {
    credential.map(|credential| credential.salt().clone())
}

impl Tokens {
    /// A token, made of these random bytes, for somebody who has just said a password of whom this is kept.
    pub fn give(
        &mut self,
        name: &str,
        credential: Option<&ScramCredential>,
        random: [u8; TOKEN_BYTES],
        now_ms: u64,
    ) -> String {
        self.kept.retain(|_, kept| now_ms < kept.until_ms);
        while self.kept.len() >= TOKENS_MAX {
            let first = self.kept.iter().min_by_key(|(_, kept)| kept.until_ms).map(|(id, _)| *id);
            first.and_then(|id| self.kept.remove(&id));
        }
        let (mut id, mut secret) = ([0; ID_BYTES], [0; SECRET_BYTES]);
        let (first, rest) = random.split_at(ID_BYTES);
        id.copy_from_slice(first);
        secret.copy_from_slice(rest);
        let (name, salt, until_ms) = (name.to_owned(), salt_of(credential), now_ms.saturating_add(TOKEN_MS));
        self.kept.insert(id, Kept { secret, name, salt, until_ms });
        URL_SAFE_NO_PAD.encode(random)
    }

    fn find(&self, token: &str, now_ms: u64) -> Option<([u8; ID_BYTES], &Kept)> {
        let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (id, secret) = bytes.split_at_checked(ID_BYTES)?;
        let id: [u8; ID_BYTES] = id.try_into().ok()?;
        let kept = self.kept.get(&id)?;
        let is_it = bool::from(kept.secret.ct_eq(secret)) && now_ms < kept.until_ms;
        is_it.then_some((id, kept))
    }

    /// Whose token that is. It does not hold any more when `credential`, what is kept of that user's password now, is another one.
    pub fn who(
        &self,
        token: &str,
        now_ms: u64,
        credential: impl FnOnce(&str) -> Option<ScramCredential>,
    ) -> Option<&str> {
        let (_, kept) = self.find(token, now_ms)?;
        let now = credential(&kept.name);
        (salt_of(now.as_ref()) == kept.salt).then_some(kept.name.as_str())
    }

    /// The token holds no longer.
    pub fn take_back(&mut self, token: &str, now_ms: u64) {
        let id = self.find(token, now_ms).map(|(id, _)| id);
        id.and_then(|id| self.kept.remove(&id));
    }

    /// How many hold, more or less: those whose time is over go when one is given.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether none holds.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ITERATIONS_MIN, ScramMechanism};

    fn random(number: u64) -> [u8; TOKEN_BYTES] {
        let mut bytes = [7; TOKEN_BYTES];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    fn credential(salt: &'static [u8]) -> ScramCredential {
        ScramCredential::of(ScramMechanism::Sha256, b"p", Bytes::from_static(salt), ITERATIONS_MIN).unwrap()
    }

    #[test]
    fn a_token_says_who_somebody_is_until_its_time_or_its_password_is_over() {
        let mut tokens = Tokens::default();
        let (before, after) = (credential(b"one salt"), credential(b"another salt"));
        let token = tokens.give("ann", Some(&before), random(1), 1_000);
        let ann = |tokens: &Tokens, token: &str, at: u64, now: Option<&ScramCredential>| {
            tokens.who(token, at, |name| now.filter(|_| name == "ann").cloned()).map(ToOwned::to_owned)
        };
        assert_eq!(ann(&tokens, &token, 1_000, Some(&before)).as_deref(), Some("ann"));
        assert_eq!(ann(&tokens, &token, TOKEN_MS + 999, Some(&before)).as_deref(), Some("ann"));
        assert_eq!(ann(&tokens, &token, TOKEN_MS + 1_000, Some(&before)), None, "its time is over");
        assert_eq!(ann(&tokens, &token, 1_000, Some(&after)), None, "the password was changed");
        assert_eq!(ann(&tokens, &token, 1_000, None), None, "the user has no password any more");
        let mut other = random(1);
        other[TOKEN_BYTES - 1] ^= 1;
        for bad in ["", "x", &token[1..], &URL_SAFE_NO_PAD.encode(other), &URL_SAFE_NO_PAD.encode(&other[..8])] {
            assert_eq!(ann(&tokens, bad, 1_000, Some(&before)), None, "{bad}");
            tokens.take_back(bad, 1_000);
        }
        tokens.take_back(&token, 1_000);
        assert!(ann(&tokens, &token, 1_000, Some(&before)).is_none() && tokens.is_empty());
    }

    #[test]
    fn there_are_only_so_many_and_the_oldest_go() {
        let mut tokens = Tokens::default();
        let all: Vec<String> = (0..=TOKENS_MAX as u64).map(|n| tokens.give("ann", None, random(n), n)).collect();
        assert_eq!(tokens.len(), TOKENS_MAX);
        let holds = |token: &String| tokens.who(token, 5_000, |_| None).is_some();
        assert!(!holds(&all[0]) && all[1..].iter().all(holds));
        tokens.give("bob", None, random(99_999), TOKEN_MS * 2);
        assert_eq!(tokens.len(), 1);
        assert!(!format!("{tokens:?}").contains("bob"));
    }
}
