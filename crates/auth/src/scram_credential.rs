//! What the server keeps of a password for SCRAM (RFC 5802, section 3): enough to recognise who knows it, too little to log in elsewhere.
//!
//! ```text
//! salted     = PBKDF2(password, salt, iterations)
//! stored_key = H(HMAC(salted, "Client Key"))        server_key = HMAC(salted, "Server Key")
//!
//! a record:   mechanism u8 (1: SHA-256, 2: SHA-512) | iterations u32 LE | salt length u8     | salt | stored_key | server_key
//! of a long   mechanism u8, its highest bit set     | iterations u32 LE | salt length u16 LE | salt | stored_key | server_key
//! salt (256 bytes and more)
//! ```

use crate::error::{AuthError, AuthErrorKind};
use aws_lc_rs::{digest, hmac, pbkdf2};
use bytes::{Buf as _, BufMut as _, Bytes};
use std::fmt;
use std::num::NonZeroU32;
use subtle::ConstantTimeEq as _;

/// The fewest iterations, Kafka's; also its default.
pub const ITERATIONS_MIN: u32 = 4_096;
/// The most iterations, Kafka's: a client of the server would have to do them too.
pub const ITERATIONS_MAX: u32 = 16_384;
/// The longest salt. Bytes. Kafka takes salts of every length, none at all among them, and names no bound.
pub const SCRAM_SALT_BYTES_MAX: usize = u16::MAX as usize;
/// Says in a record that the salt's length takes two bytes.
const LONG_SALT: u8 = 0x80;

/// Which hash function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ScramMechanism {
    /// `SCRAM-SHA-256`
    Sha256,
    /// `SCRAM-SHA-512`
    Sha512,
}

impl ScramMechanism {
    /// Both.
    pub const ALL: [ScramMechanism; 2] = [ScramMechanism::Sha256, ScramMechanism::Sha512];

    /// Its name in SASL.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ScramMechanism::Sha256 => "SCRAM-SHA-256",
            ScramMechanism::Sha512 => "SCRAM-SHA-512",
        }
    }

    /// By its name in SASL.
    #[must_use]
    pub fn named(name: &str) -> Option<ScramMechanism> {
        ScramMechanism::ALL.into_iter().find(|mechanism| mechanism.name() == name)
    }

    /// Its number in Kafka's requests and in records (KIP-554).
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            ScramMechanism::Sha256 => 1,
            ScramMechanism::Sha512 => 2,
        }
    }

    /// By its number.
    #[must_use]
    pub fn numbered(number: u8) -> Option<ScramMechanism> {
        ScramMechanism::ALL.into_iter().find(|mechanism| mechanism.number() == number)
    }

    /// What a hash has. Bytes.
    #[must_use]
    pub fn hash_bytes(self) -> usize {
        match self {
            ScramMechanism::Sha256 => 32,
            ScramMechanism::Sha512 => 64,
        }
    }

    pub(crate) fn hash(self, data: &[u8]) -> Vec<u8> {
        match self {
            ScramMechanism::Sha256 => digest::digest(&digest::SHA256, data).as_ref().to_vec(),
            ScramMechanism::Sha512 => digest::digest(&digest::SHA512, data).as_ref().to_vec(),
        }
    }

    pub(crate) fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        let algorithm = match self {
            ScramMechanism::Sha256 => hmac::HMAC_SHA256,
            ScramMechanism::Sha512 => hmac::HMAC_SHA512,
        };
        let mut context = hmac::Context::with_key(&hmac::Key::new(algorithm, key));
        parts.iter().for_each(|part| context.update(part));
        context.sign().as_ref().to_vec()
    }

    /// `Hi` of RFC 5802: what a client sends in place of its password where it sets one (KIP-554). Milliseconds of work.
    #[must_use]
    pub fn salted(self, password: &[u8], salt: &[u8], iterations: u32) -> Vec<u8> {
        let mut salted = vec![0; self.hash_bytes()];
        let algorithm = match self {
            ScramMechanism::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            ScramMechanism::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        };
        let iterations = NonZeroU32::new(iterations).unwrap_or(NonZeroU32::MIN);
        pbkdf2::derive(algorithm, iterations, salt, password, &mut salted);
        salted
    }
}

impl fmt::Display for ScramMechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is kept of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramCredential {
    mechanism: ScramMechanism,
    iterations: u32,
    salt: Bytes,
    stored_key: Bytes,
    server_key: Bytes,
}

impl fmt::Debug for ScramCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys do not belong into a log.
        f.debug_struct("ScramCredential")
            .field("mechanism", &self.mechanism)
            .field("iterations", &self.iterations)
            .finish_non_exhaustive()
    }
}

fn invalid(text: String) -> AuthError {
    AuthError::new(AuthErrorKind::Invalid, text)
}

impl ScramCredential {
    /// Of a password. Milliseconds of work.
    ///
    /// # Errors
    /// When the password is empty, or [`ScramCredential::of_salted`] refuses.
    pub fn of(
        mechanism: ScramMechanism,
        password: &[u8],
        salt: Bytes,
        iterations: u32,
    ) -> Result<ScramCredential, AuthError> {
        if password.is_empty() {
            return Err(invalid("a password cannot be empty".to_owned()));
        }
        check(&salt, iterations)?;
        ScramCredential::of_salted(mechanism, &mechanism.salted(password, &salt, iterations), salt, iterations)
    }

    /// Of what [`ScramMechanism::salted`] made of a password, as `AlterUserScramCredentials` carries it.
    ///
    /// # Errors
    /// When there are too few or too many iterations, or the salt or what was salted have a length that they cannot have.
    pub fn of_salted(
        mechanism: ScramMechanism,
        salted: &[u8],
        salt: Bytes,
        iterations: u32,
    ) -> Result<ScramCredential, AuthError> {
        check(&salt, iterations)?;
        if salted.len() != mechanism.hash_bytes() {
            return Err(invalid(format!("a salted password of {mechanism} has {} bytes", mechanism.hash_bytes())));
        }
        let stored_key = mechanism.hash(&mechanism.hmac(salted, &[b"Client Key"]));
        let server_key = mechanism.hmac(salted, &[b"Server Key"]);
        Ok(ScramCredential {
            mechanism,
            iterations,
            salt,
            stored_key: Bytes::from(stored_key),
            server_key: Bytes::from(server_key),
        })
    }

    /// One that no proof fits: its stored key is the hash of no key.
    pub(crate) fn unknown(mechanism: ScramMechanism) -> ScramCredential {
        let nothing = Bytes::from(vec![0; mechanism.hash_bytes()]);
        ScramCredential {
            mechanism,
            iterations: ITERATIONS_MIN,
            salt: Bytes::new(),
            stored_key: nothing.clone(),
            server_key: nothing,
        }
    }

    /// Its hash function.
    #[must_use]
    pub fn mechanism(&self) -> ScramMechanism {
        self.mechanism
    }

    /// How often it is hashed.
    #[must_use]
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Its salt, which clients receive.
    #[must_use]
    pub fn salt(&self) -> &Bytes {
        &self.salt
    }

    pub(crate) fn stored_key(&self) -> &[u8] {
        &self.stored_key
    }

    pub(crate) fn server_key(&self) -> &[u8] {
        &self.server_key
    }

    /// Whether this is the password, for mechanisms that send it. Milliseconds of work.
    #[must_use]
    pub fn verify(&self, password: &[u8]) -> bool {
        let salted = self.mechanism.salted(password, &self.salt, self.iterations);
        let stored_key = self.mechanism.hash(&self.mechanism.hmac(&salted, &[b"Client Key"]));
        bool::from(stored_key.ct_eq(&self.stored_key)) && !password.is_empty()
    }

    /// Appends it as a record has it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match u8::try_from(self.salt.len()) {
            Ok(salt_bytes) => {
                out.put_u8(self.mechanism.number());
                out.put_u32_le(self.iterations);
                out.put_u8(salt_bytes);
            }
            Err(_) => {
                out.put_u8(self.mechanism.number() | LONG_SALT);
                out.put_u32_le(self.iterations);
                // Its length was checked when it was made.
                out.put_u16_le(u16::try_from(self.salt.len()).unwrap_or(u16::MAX));
            }
        }
        out.extend_from_slice(&self.salt);
        out.extend_from_slice(&self.stored_key);
        out.extend_from_slice(&self.server_key);
    }

    /// Takes one from the beginning of a record.
    ///
    /// # Errors
    /// When there is none.
    pub fn decode(input: &mut Bytes) -> Result<ScramCredential, AuthError> {
        let corrupt = |text: &str| AuthError::new(AuthErrorKind::Corrupt, text);
        let short = |_| corrupt("a SCRAM credential is cut off");
        let number = input.try_get_u8().map_err(short)?;
        let mechanism = ScramMechanism::numbered(number & !LONG_SALT);
        let mechanism = mechanism.ok_or_else(|| corrupt("no such SCRAM mechanism"))?;
        let iterations = input.try_get_u32_le().map_err(short)?;
        let salt_bytes = if number & LONG_SALT == 0 {
            usize::from(input.try_get_u8().map_err(short)?)
        } else {
            usize::from(input.try_get_u16_le().map_err(short)?)
        };
        if input.remaining() < salt_bytes + 2 * mechanism.hash_bytes() {
            return Err(corrupt("a SCRAM credential is cut off"));
        }
        let salt = input.split_to(salt_bytes);
        check(&salt, iterations).map_err(|error| corrupt(&error.text))?;
        let stored_key = input.split_to(mechanism.hash_bytes());
        let server_key = input.split_to(mechanism.hash_bytes());
        Ok(ScramCredential { mechanism, iterations, salt, stored_key, server_key })
    }
}

fn check(salt: &Bytes, iterations: u32) -> Result<(), AuthError> {
    // The texts are Kafka's (ScramControlManager).
    if iterations < ITERATIONS_MIN {
        return Err(invalid("Too few iterations".to_owned()));
    }
    if iterations > ITERATIONS_MAX {
        return Err(invalid("Too many iterations".to_owned()));
    }
    if salt.len() > SCRAM_SALT_BYTES_MAX {
        return Err(invalid(format!("a salt has {} bytes, and may have {SCRAM_SALT_BYTES_MAX}", salt.len())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    /// RFC 4231, test case 2.
    #[test]
    fn hmac_matches_the_rfc() {
        let mac = |mechanism: ScramMechanism| mechanism.hmac(b"Jefe", &[b"what do ya want ", b"for nothing?"]);
        let short = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(mac(ScramMechanism::Sha256), hex(short));
        let long = "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554\
                    9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737";
        assert_eq!(mac(ScramMechanism::Sha512), hex(long));
    }

    /// The inputs of RFC 6070 with HMAC-SHA-256.
    #[test]
    fn pbkdf2_matches_known_results() {
        for (iterations, expected) in [
            (1, "120fb6cffcf8b32c43e7225256c4f837a86548c92ccc35480805987cb70be17b"),
            (2, "ae4d0c95af6b46d32d0adff928f06dd02a303f8ef3c251dfd6e2d85a95474c43"),
            (4_096, "c5e478d59288c841aa530db6845c4c8d962893a001ce4e11a4963873aa98134a"),
        ] {
            assert_eq!(ScramMechanism::Sha256.salted(b"password", b"salt", iterations), hex(expected));
        }
    }

    fn some(mechanism: ScramMechanism) -> ScramCredential {
        ScramCredential::of(mechanism, b"secret", Bytes::from_static(b"saltsalt"), 4_096).unwrap()
    }

    #[test]
    fn a_password_is_recognised() {
        for mechanism in ScramMechanism::ALL {
            let credential = some(mechanism);
            assert!(credential.verify(b"secret"));
            assert!(!credential.verify(b"Secret") && !credential.verify(b""));
            let salted = mechanism.salted(b"secret", credential.salt(), 4_096);
            let same = ScramCredential::of_salted(mechanism, &salted, credential.salt().clone(), 4_096).unwrap();
            assert_eq!(same, credential, "a client that salts it itself sets the same one");
            assert!(!format!("{credential:?}").contains("key"));
            assert_eq!(ScramMechanism::named(mechanism.name()), Some(mechanism));
            assert_eq!(ScramMechanism::numbered(mechanism.number()), Some(mechanism));
        }
        assert_eq!((ScramMechanism::named("SCRAM-SHA-1"), ScramMechanism::numbered(0)), (None, None));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let of = |password: &[u8], salt: &'static [u8], iterations| {
            ScramCredential::of(ScramMechanism::Sha256, password, Bytes::from_static(salt), iterations)
                .map_err(|error| (error.kind, error.text))
        };
        for (password, salt, iterations, why) in [
            (&b""[..], &b"saltsalt"[..], 4_096, "a password cannot be empty"),
            (b"p", &[7; 65_536], 4_096, "a salt has 65536 bytes, and may have 65535"),
            (b"p", b"saltsalt", 4_095, "Too few iterations"),
            (b"p", b"saltsalt", 16_385, "Too many iterations"),
        ] {
            assert_eq!(of(password, salt, iterations), Err((AuthErrorKind::Invalid, why.to_owned())));
        }
        let salted = [0; 31];
        let short = ScramCredential::of_salted(ScramMechanism::Sha256, &salted, Bytes::from_static(b"saltsalt"), 4_096);
        assert_eq!(short.map_err(|e| e.text), Err("a salted password of SCRAM-SHA-256 has 32 bytes".to_owned()));
    }

    /// Salts of less than 8 and of more than 255 bytes were refused; Kafka takes them.
    #[test]
    fn salts_have_any_length() {
        static SALT: [u8; 65_535] = [7; 65_535];
        for bytes in [0, 1, 4, 8, 254, 255, 256, 1_000, 65_535] {
            let salt = Bytes::from_static(&SALT[..bytes]);
            let credential = ScramCredential::of(ScramMechanism::Sha512, b"secret", salt, 4_096).unwrap();
            assert!(credential.verify(b"secret") && !credential.verify(b"other"), "{bytes}");
            let mut record = Vec::new();
            credential.encode(&mut record);
            assert_eq!(record.len(), 5 + if bytes < 256 { 1 } else { 2 } + bytes + 2 * 64);
            for cut in [record.len() - 1, bytes / 2, 7, 6] {
                let cut = Bytes::copy_from_slice(&record[..cut.min(record.len() - 1)]);
                assert_eq!(ScramCredential::decode(&mut cut.clone()).unwrap_err().kind, AuthErrorKind::Corrupt);
            }
            assert_eq!(ScramCredential::decode(&mut record.into()), Ok(credential), "{bytes}");
        }
    }

    #[test]
    fn records_are_read_again_and_what_is_none_is_not() {
        for mechanism in ScramMechanism::ALL {
            let credential = some(mechanism);
            let mut record = Vec::new();
            credential.encode(&mut record);
            let whole = record.len();
            record.push(9);
            let mut input = Bytes::from(record.clone());
            assert_eq!(ScramCredential::decode(&mut input), Ok(credential));
            assert_eq!(&input[..], [9], "what follows is left");
            for cut in 0..whole {
                let error = ScramCredential::decode(&mut Bytes::copy_from_slice(&record[..cut])).unwrap_err();
                assert_eq!(error.kind, AuthErrorKind::Corrupt);
            }
        }
        for record in
            [&[3, 0, 16, 0, 0, 8][..], &[1, 0, 0, 0, 0, 8], &[0x83, 0, 16, 0, 0, 8, 0], &[0x81, 0, 0, 0, 0, 8, 0]]
        {
            let mut record = record.to_vec();
            record.resize(256, 1);
            assert_eq!(ScramCredential::decode(&mut record.into()).unwrap_err().kind, AuthErrorKind::Corrupt);
        }
    }

    proptest! {
        #[test]
        fn no_record_makes_it_panic(record in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = ScramCredential::decode(&mut record.into());
        }
    }
}
