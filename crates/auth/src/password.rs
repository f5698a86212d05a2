//! Passwords as RabbitMQ keeps them, so that users of its definitions log in unchanged.
//!
//! ```text
//! hash = salt (4 bytes) | H(salt | password)        H: MD5 (before RabbitMQ 3.6), SHA-256, SHA-512
//! ```
//!
//! In JSON it is base64. A user without a hash (or with one shorter than its salt) has no password and cannot log in by one.

use crate::error::{AuthError, AuthErrorKind};
use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use md5::{Digest as _, Md5};
use subtle::ConstantTimeEq as _;

/// Bytes of a salt.
pub const SALT_BYTES: usize = 4;
/// The longest hash that is kept: a salt and 64 bytes of SHA-512. Bytes.
pub const HASH_BYTES_MAX: usize = SALT_BYTES + 64;

/// Which function hashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hashing {
    /// `rabbit_password_hashing_md5`: only to log in users of old definitions.
    Md5,
    /// `rabbit_password_hashing_sha256`: the default.
    Sha256,
    /// `rabbit_password_hashing_sha512`
    Sha512,
}

impl Hashing {
    /// Its name in definitions.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Hashing::Md5 => "rabbit_password_hashing_md5",
            Hashing::Sha256 => "rabbit_password_hashing_sha256",
            Hashing::Sha512 => "rabbit_password_hashing_sha512",
        }
    }

    /// By its name in definitions.
    #[must_use]
    pub fn named(name: &str) -> Option<Hashing> {
        [Hashing::Md5, Hashing::Sha256, Hashing::Sha512].into_iter().find(|hashing| hashing.name() == name)
    }

    fn digest(self, salt: &[u8], password: &[u8]) -> Vec<u8> {
        let run = |algorithm| {
            let mut context = digest::Context::new(algorithm);
            context.update(salt);
            context.update(password);
            context.finish().as_ref().to_vec()
        };
        match self {
            Hashing::Md5 => Md5::new().chain_update(salt).chain_update(password).finalize().to_vec(),
            Hashing::Sha256 => run(&digest::SHA256),
            Hashing::Sha512 => run(&digest::SHA512),
        }
    }
}

/// A hashed password.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash {
    /// The function.
    pub hashing: Hashing,
    /// Salt and hash; empty for none.
    pub bytes: Bytes,
}

impl std::fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not even a hash belongs into a log.
        f.debug_struct("PasswordHash").field("hashing", &self.hashing).finish_non_exhaustive()
    }
}

impl PasswordHash {
    /// No password: it cannot be used to log in.
    #[must_use]
    pub fn none() -> PasswordHash {
        PasswordHash { hashing: Hashing::Sha256, bytes: Bytes::new() }
    }

    /// Hashes a password. An empty one is none.
    #[must_use]
    pub fn of(hashing: Hashing, salt: [u8; SALT_BYTES], password: &[u8]) -> PasswordHash {
        if password.is_empty() {
            return PasswordHash { hashing, bytes: Bytes::new() };
        }
        let mut bytes = salt.to_vec();
        bytes.extend_from_slice(&hashing.digest(&salt, password));
        PasswordHash { hashing, bytes: Bytes::from(bytes) }
    }

    /// From base64, as definitions have it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_base64(hashing: Hashing, text: &str) -> Result<PasswordHash, AuthError> {
        let invalid = |text| AuthError::new(AuthErrorKind::Invalid, text);
        let bytes = STANDARD.decode(text).map_err(|e| invalid(format!("the password hash is not base64: {e}")))?;
        if bytes.len() > HASH_BYTES_MAX {
            return Err(invalid(format!("the password hash is longer than {HASH_BYTES_MAX} bytes")));
        }
        Ok(PasswordHash { hashing, bytes: Bytes::from(bytes) })
    }

    /// As base64.
    #[must_use]
    pub fn to_base64(&self) -> String {
        STANDARD.encode(&self.bytes)
    }

    /// Whether this is the password. Takes as long whatever differs. An empty password never is.
    #[must_use]
    pub fn verify(&self, password: &[u8]) -> bool {
        let Some((salt, hash)) = self.bytes.split_at_checked(SALT_BYTES) else { return false };
        let wanted = self.hashing.digest(salt, password);
        bool::from(wanted.ct_eq(hash)) && !password.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example in RabbitMQ's documentation of passwords.
    #[test]
    fn the_documented_hash_verifies() {
        let text = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR";
        let hash = PasswordHash::from_base64(Hashing::Sha256, text).unwrap();
        assert!(hash.verify(b"test12"));
        assert!(!hash.verify(b"test13"));
        assert!(!hash.verify(b""));
        assert_eq!(PasswordHash::of(Hashing::Sha256, [0x90, 0x8d, 0xc6, 0x0a], b"test12"), hash);
        assert_eq!(hash.to_base64(), text);
    }

    #[test]
    fn each_function_verifies_its_own() {
        for hashing in [Hashing::Md5, Hashing::Sha256, Hashing::Sha512] {
            let hash = PasswordHash::of(hashing, [1, 2, 3, 4], b"secret");
            assert!(hash.verify(b"secret"));
            assert!(!hash.verify(b"secret "));
            assert_eq!(Hashing::named(hashing.name()), Some(hashing));
            assert!(hash.bytes.len() <= HASH_BYTES_MAX);
        }
        assert_eq!(PasswordHash::of(Hashing::Md5, [0; 4], b"x").bytes.len(), 20);
    }

    #[test]
    fn no_hash_is_nobodys_password() {
        for hash in [PasswordHash::none(), PasswordHash::of(Hashing::Sha256, [0; 4], b"")] {
            assert!(!hash.verify(b"") && !hash.verify(b"x"));
        }
        assert!(PasswordHash::from_base64(Hashing::Sha256, "guest!").is_err());
        assert!(!PasswordHash::from_base64(Hashing::Sha256, "AAAA").unwrap().verify(b"x"));
    }
}
