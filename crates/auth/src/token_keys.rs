//! The keys with which an issuer signs tokens: a JSON Web Key Set (RFC 7517), its public keys for signatures.
//!
//! A key of a kind that is not known, or for something else, is skipped, as the RFC says: an issuer that publishes keys for others too
//! is not shut out by them. What an algorithm is checked with is a key of its own family, so that nothing that was
//! published for one purpose is believed for another.

use crate::error::{AuthError, AuthErrorKind};
use aws_lc_rs::signature::{self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};
use std::fmt;

/// The longest document. Bytes.
pub const KEY_SET_BYTES_MAX: usize = 256 << 10;
/// Keys of a document, of whatever kind.
pub const KEYS_MAX: usize = 256;
/// Keys that a token is tried with: those that have its id, or all where it says none.
pub const KEY_TRIES_MAX: usize = 8;
/// An RSA key's modulus. Bytes.
const MODULUS_BYTES: std::ops::RangeInclusive<usize> = 256..=1_024;
/// An RSA key's exponent, as far as any is in use. Bytes.
const EXPONENT_BYTES_MAX: usize = 8;
/// What a point of a curve begins with that is written with both coordinates.
const UNCOMPRESSED: u8 = 4;

/// A signature that is believed. There is none without a key, and none with a key that both sides have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

/// Which keys an algorithm fits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Family {
    Rsa,
    P256,
    P384,
    Ed25519,
}

impl Algorithm {
    /// By its name (RFC 7518, RFC 8037).
    pub(crate) fn named(name: &str) -> Option<Algorithm> {
        Some(match name {
            "RS256" => Algorithm::Rs256,
            "RS384" => Algorithm::Rs384,
            "RS512" => Algorithm::Rs512,
            "PS256" => Algorithm::Ps256,
            "PS384" => Algorithm::Ps384,
            "PS512" => Algorithm::Ps512,
            "ES256" => Algorithm::Es256,
            "ES384" => Algorithm::Es384,
            "EdDSA" | "Ed25519" => Algorithm::EdDsa,
            _ => return None,
        })
    }

    fn family(self) -> Family {
        match self {
            Algorithm::Es256 => Family::P256,
            Algorithm::Es384 => Family::P384,
            Algorithm::EdDsa => Family::Ed25519,
            _ => Family::Rsa,
        }
    }

    /// How it is checked with an RSA key; `None` where it is not.
    fn rsa(self) -> Option<&'static RsaParameters> {
        Some(match self {
            Algorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
            Algorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
            Algorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
            Algorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
            Algorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
            Algorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
            _ => return None,
        })
    }
}

/// What a key is made of.
enum Material {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    Point(Family, Vec<u8>),
}

/// One key.
struct Key {
    id: Option<String>,
    /// The only algorithm that it is for, where that is said.
    only: Option<Algorithm>,
    material: Material,
}

impl Key {
    /// `None` for what is no key for signatures that are known here.
    fn parse(key: &Map<String, Value>) -> Option<Key> {
        let text = |name: &str| key.get(name).map(|value| value.as_str());
        if text("use").is_some_and(|purpose| purpose != Some("sig")) {
            return None;
        }
        let operations = key.get("key_ops").map(|value| value.as_array().map(Vec::as_slice).unwrap_or_default());
        if operations.is_some_and(|all| !all.iter().any(|one| one == "verify")) {
            return None;
        }
        let only = match text("alg") {
            None => None,
            Some(name) => Some(Algorithm::named(name?)?),
        };
        let id = match text("kid") {
            None => None,
            Some(id) => Some(id?.to_owned()),
        };
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(key.get(name)?.as_str()?).ok();
        let material = match (text("kty")??, text("crv").flatten()) {
            ("RSA", _) => rsa(&bytes("n")?, &bytes("e")?)?,
            ("EC", Some("P-256")) => point(Family::P256, 32, &bytes("x")?, &bytes("y")?)?,
            ("EC", Some("P-384")) => point(Family::P384, 48, &bytes("x")?, &bytes("y")?)?,
            ("OKP", Some("Ed25519")) => Material::Point(Family::Ed25519, bytes("x").filter(|x| x.len() == 32)?),
            _ => return None,
        };
        let key = Key { id, only, material };
        key.only.is_none_or(|only| only.family() == key.family()).then_some(key)
    }

    fn family(&self) -> Family {
        match &self.material {
            Material::Rsa { .. } => Family::Rsa,
            Material::Point(family, _) => *family,
        }
    }

    /// Whether a token that says this of its signature may be signed with it.
    fn fits(&self, algorithm: Algorithm, id: Option<&str>) -> bool {
        let is_named = id.is_none_or(|id| self.id.as_deref() == Some(id));
        is_named && self.family() == algorithm.family() && self.only.is_none_or(|only| only == algorithm)
    }

    fn verify(&self, algorithm: Algorithm, signed: &[u8], signature: &[u8]) -> bool {
        match (&self.material, algorithm.rsa()) {
            (Material::Rsa { modulus, exponent }, Some(how)) => {
                RsaPublicKeyComponents { n: modulus, e: exponent }.verify(how, signed, signature).is_ok()
            }
            (Material::Point(family, bytes), None) if *family == algorithm.family() => {
                let how: &'static dyn VerificationAlgorithm = match family {
                    Family::P256 => &signature::ECDSA_P256_SHA256_FIXED,
                    Family::P384 => &signature::ECDSA_P384_SHA384_FIXED,
                    Family::Ed25519 => &signature::ED25519,
                    Family::Rsa => return false,
                };
                UnparsedPublicKey::new(how, bytes).verify(signed, signature).is_ok()
            }
            _ => false,
        }
    }
}

fn rsa(modulus: &[u8], exponent: &[u8]) -> Option<Material> {
    // Some write a zero in front, as signed numbers have it.
    let bare = |bytes: &[u8]| bytes.iter().skip_while(|byte| **byte == 0).copied().collect::<Vec<u8>>();
    let (modulus, exponent) = (bare(modulus), bare(exponent));
    let is_one = MODULUS_BYTES.contains(&modulus.len()) && (1..=EXPONENT_BYTES_MAX).contains(&exponent.len());
    is_one.then_some(Material::Rsa { modulus, exponent })
}

fn point(family: Family, bytes: usize, x: &[u8], y: &[u8]) -> Option<Material> {
    let is_one = x.len() == bytes && y.len() == bytes;
    is_one.then(|| Material::Point(family, [&[UNCOMPRESSED], x, y].concat()))
}

/// Those of a document.
#[derive(Default)]
pub struct TokenKeys {
    keys: Vec<Key>,
}

impl fmt::Debug for TokenKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<_> = self.keys.iter().map(|key| key.id.as_deref().unwrap_or_default()).collect();
        f.debug_struct("TokenKeys").field("ids", &ids).finish_non_exhaustive()
    }
}

impl TokenKeys {
    /// Reads a document.
    ///
    /// # Errors
    /// When it is none, or has no key that could be used.
    pub fn parse(document: &[u8]) -> Result<TokenKeys, AuthError> {
        let invalid = |text: String| AuthError::new(AuthErrorKind::Invalid, text);
        if document.len() > KEY_SET_BYTES_MAX {
            return Err(invalid(format!("{} bytes, and {KEY_SET_BYTES_MAX} are allowed", document.len())));
        }
        let read: Value = serde_json::from_slice(document).map_err(|e| invalid(format!("it is no JSON: {e}")))?;
        let all = read.get("keys").and_then(Value::as_array);
        let all = all.ok_or_else(|| invalid("it is no JSON Web Key Set: \"keys\" is missing".to_owned()))?;
        if all.len() > KEYS_MAX {
            return Err(invalid(format!("{} keys, and {KEYS_MAX} are allowed", all.len())));
        }
        let keys: Vec<Key> = all.iter().filter_map(Value::as_object).filter_map(Key::parse).collect();
        if keys.is_empty() {
            return Err(invalid(format!(
                "none of its {} keys is a public one for signatures (RSA from 2048 bits on, P-256, P-384, Ed25519)",
                all.len()
            )));
        }
        Ok(TokenKeys { keys })
    }

    /// How many can be used.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether none can.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    fn fitting(&self, algorithm: Algorithm, id: Option<&str>) -> impl Iterator<Item = &Key> {
        self.keys.iter().filter(move |key| key.fits(algorithm, id)).take(KEY_TRIES_MAX)
    }

    /// Whether there is a key that a signature may have been made with.
    pub(crate) fn has(&self, algorithm: Algorithm, id: Option<&str>) -> bool {
        self.fitting(algorithm, id).next().is_some()
    }

    /// Whether one of them made this signature.
    pub(crate) fn verify(&self, algorithm: Algorithm, id: Option<&str>, signed: &[u8], signature: &[u8]) -> bool {
        self.fitting(algorithm, id).any(|key| key.verify(algorithm, signed, signature))
    }
}
