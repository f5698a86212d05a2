//! Session tokens of browsers: each names its user until it expires.
//!
//! ```text
//! token = base64url(id: 8 bytes, secret: 24 bytes), without padding
//! ```
//!
//! The id is the lookup key; the secret is compared in constant time.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt;
use subtle::ConstantTimeEq as _;

/// The most valid tokens at a time; one more evicts the token that expires first.
pub const TOKENS_MAX: usize = 1_024;
/// Lifetime of a token. Milliseconds.
pub const TOKEN_MS: u64 = 12 * 3_600_000;
/// Random bytes that a token is made of.
pub const TOKEN_BYTES: usize = ID_BYTES + SECRET_BYTES;
const ID_BYTES: usize = 8;
const SECRET_BYTES: usize = 24;

/// One of them.
struct Kept {
    secret: [u8; SECRET_BYTES],
    name: String,
    /// Fingerprint of the stored credential at login; it changes with the password and when the user is created again.
    password: PasswordFingerprint,
    until_ms: u64,
}

/// The valid tokens. Times are monotonic milliseconds.
#[derive(Default)]
pub struct Tokens {
    kept: BTreeMap<[u8; ID_BYTES], Kept>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("kept", &self.kept.len()).finish_non_exhaustive()
    }
}

/// Fingerprint of a stored credential, over its hash and salts.
pub type PasswordFingerprint = Vec<Bytes>;

impl Tokens {
    /// Issues a token, made of these random bytes, for a user who has just logged in with the password of this credential.
    pub fn give(
        &mut self,
        name: &str,
        password: PasswordFingerprint,
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
        let (name, until_ms) = (name.to_owned(), now_ms.saturating_add(TOKEN_MS));
        self.kept.insert(id, Kept { secret, name, password, until_ms });
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

    /// Returns the user of a token. It is void if `now`, the credential stored for that user now, has changed or is missing.
    pub fn who(&self, token: &str, now_ms: u64, now: impl FnOnce(&str) -> Option<PasswordFingerprint>) -> Option<&str> {
        let (_, kept) = self.find(token, now_ms)?;
        let is_same = now(&kept.name).is_some_and(|now| !now.is_empty() && now == kept.password);
        is_same.then_some(kept.name.as_str())
    }

    /// Revokes the token.
    pub fn take_back(&mut self, token: &str, now_ms: u64) {
        let id = self.find(token, now_ms).map(|(id, _)| id);
        id.and_then(|id| self.kept.remove(&id));
    }

    /// Number of tokens; expired ones are counted until the next is issued.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether there are no tokens.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(number: u64) -> [u8; TOKEN_BYTES] {
        let mut bytes = [7; TOKEN_BYTES];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    fn mark(text: &'static str) -> PasswordFingerprint {
        vec![Bytes::from_static(text.as_bytes())]
    }

    #[test]
    fn a_token_says_who_somebody_is_until_its_time_or_its_password_is_over() {
        let mut tokens = Tokens::default();
        let token = tokens.give("ann", mark("before"), random(1), 1_000);
        let ann = |tokens: &Tokens, token: &str, at: u64, now: Option<PasswordFingerprint>| {
            tokens.who(token, at, |name| now.filter(|_| name == "ann")).map(ToOwned::to_owned)
        };
        let before = || Some(mark("before"));
        assert_eq!(ann(&tokens, &token, 1_000, before()).as_deref(), Some("ann"));
        assert_eq!(ann(&tokens, &token, TOKEN_MS + 999, before()).as_deref(), Some("ann"));
        assert_eq!(ann(&tokens, &token, TOKEN_MS + 1_000, before()), None, "its time is over");
        assert_eq!(ann(&tokens, &token, 1_000, Some(mark("after"))), None, "the password was changed");
        assert_eq!(ann(&tokens, &token, 1_000, None), None, "the user is there no more");
        let mut other = random(1);
        other[TOKEN_BYTES - 1] ^= 1;
        for bad in ["", "x", &token[1..], &URL_SAFE_NO_PAD.encode(other), &URL_SAFE_NO_PAD.encode(&other[..8])] {
            assert_eq!(ann(&tokens, bad, 1_000, before()), None, "{bad}");
            tokens.take_back(bad, 1_000);
        }
        tokens.take_back(&token, 1_000);
        assert!(ann(&tokens, &token, 1_000, before()).is_none() && tokens.is_empty());
    }

    /// Where nothing was looked at, before a change and after it, a token held over both.
    #[test]
    fn of_whom_nothing_is_kept_there_is_no_token() {
        let mut tokens = Tokens::default();
        let token = tokens.give("ann", Vec::new(), random(1), 1_000);
        assert_eq!(tokens.who(&token, 1_000, |_| Some(Vec::new())), None);
        assert_eq!(tokens.who(&token, 1_000, |_| None), None);
    }

    #[test]
    fn there_are_only_so_many_and_the_oldest_go() {
        let mut tokens = Tokens::default();
        let all: Vec<String> =
            (0..=TOKENS_MAX as u64).map(|n| tokens.give("ann", mark("hers"), random(n), n)).collect();
        assert_eq!(tokens.len(), TOKENS_MAX);
        let holds = |token: &String| tokens.who(token, 5_000, |_| Some(mark("hers"))).is_some();
        assert!(!holds(&all[0]) && all[1..].iter().all(holds));
        tokens.give("bob", mark("his"), random(99_999), TOKEN_MS * 2);
        assert_eq!(tokens.len(), 1);
        assert!(!format!("{tokens:?}").contains("bob"));
    }
}
