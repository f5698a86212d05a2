//! Tokens that name their bearer, signed by their issuer: JSON Web Tokens (RFC 7519, RFC 8725).
//!
//! ```text
//!   header . claims . signature        each base64url, without padding
//! ```
//!
//! No claim is used before the signature is verified, and keys come from [`TokenKeys`] alone, never from the token's header. A claim
//! of the wrong type makes the token invalid.

use crate::error::{AuthError, AuthErrorKind};
use crate::grants::{Grants, SCOPES_MAX};
use crate::token_keys::{Algorithm, TokenKeys};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};
use std::fmt;

/// The longest token. Bytes.
pub const JWT_BYTES_MAX: usize = 16 << 10;
/// The longest user name in a token. Bytes.
pub const JWT_NAME_BYTES_MAX: usize = 255;

/// Which tokens are accepted, and which of their claims are used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenRules {
    /// The required issuer (`iss`), if one is configured.
    pub issuer: Option<String>,
    /// The required audience (`aud`), if one is configured.
    pub audience: Option<String>,
    /// The claim with the user name.
    pub name_claim: String,
    /// The claim with the scopes: a string separated by spaces, or a list.
    pub scope_claim: String,
    /// Prefix of the scopes that are used; it is removed.
    pub scope_prefix: String,
    /// The scope that makes the bearer an administrator, without the prefix.
    pub administrator_scope: String,
    /// Allowed clock skew. Milliseconds.
    pub clock_skew_ms: u64,
}

/// Any issuer and audience, the usual claim names, and no clock skew.
impl Default for TokenRules {
    fn default() -> TokenRules {
        TokenRules {
            issuer: None,
            audience: None,
            name_claim: "sub".to_owned(),
            scope_claim: "scope".to_owned(),
            scope_prefix: String::new(),
            administrator_scope: "tag:administrator".to_owned(),
            clock_skew_ms: 0,
        }
    }
}

/// The verified bearer of a token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bearer {
    /// The name.
    pub name: String,
    /// The bearer's permissions.
    pub grants: Grants,
    /// Expiry of the token. Milliseconds since 1970.
    pub until_ms: i64,
}

/// A token whose signature is not verified yet.
pub struct Jwt<'a> {
    algorithm: Algorithm,
    key_id: Option<String>,
    /// The signed bytes.
    signed: &'a str,
    claims: &'a str,
    signature: Vec<u8>,
}

impl fmt::Debug for Jwt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jwt").field("algorithm", &self.algorithm).field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

fn malformed(text: impl Into<String>) -> AuthError {
    AuthError::new(AuthErrorKind::Malformed, text)
}

fn refused(text: impl Into<String>) -> AuthError {
    AuthError::new(AuthErrorKind::Refused, text)
}

/// An object in base64url.
fn object(part: &str) -> Option<Map<String, Value>> {
    let bytes = URL_SAFE_NO_PAD.decode(part).ok()?;
    match serde_json::from_slice(&bytes).ok()? {
        Value::Object(object) => Some(object),
        _ => None,
    }
}

/// A value from the client, shortened and escaped for a log line.
fn shown(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_default).collect()
}

impl<'a> Jwt<'a> {
    /// Parses a token without verifying it.
    ///
    /// # Errors
    /// The text is not a signed token, or its algorithm is not accepted.
    pub fn parse(token: &'a str) -> Result<Jwt<'a>, AuthError> {
        if token.len() > JWT_BYTES_MAX {
            return Err(malformed(format!("a token has at most {JWT_BYTES_MAX} bytes")));
        }
        let none = || malformed("it is no JSON Web Token with a signature");
        let (signed, signature) = token.rsplit_once('.').ok_or_else(none)?;
        let (header, claims) = signed.split_once('.').filter(|(_, claims)| !claims.contains('.')).ok_or_else(none)?;
        let header = object(header).ok_or_else(none)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| none())?;
        if header.contains_key("crit") {
            return Err(refused("the token has unknown critical extensions (\"crit\")"));
        }
        let name = header.get("alg").and_then(Value::as_str).ok_or_else(none)?;
        let algorithm = Algorithm::named(name);
        let algorithm = algorithm
            .ok_or_else(|| refused(format!("tokens signed with the algorithm \"{}\" are not accepted", shown(name))))?;
        let key_id = match header.get("kid") {
            None => None,
            Some(id) => Some(id.as_str().ok_or_else(none)?.to_owned()),
        };
        Ok(Jwt { algorithm, key_id, signed, claims, signature })
    }

    /// Whether the text has the form of a token rather than a password, valid or not.
    #[must_use]
    pub fn is_like(text: &[u8]) -> bool {
        let mut parts = text.split(|byte| *byte == b'.');
        let (Some(header), Some(_), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
            return false;
        };
        text.len() <= JWT_BYTES_MAX
            && std::str::from_utf8(header).ok().and_then(object).is_some_and(|header| header.contains_key("alg"))
    }

    /// Whether a known key may have signed the token. If not, the keys may have changed.
    #[must_use]
    pub fn has_key(&self, keys: &TokenKeys) -> bool {
        keys.has(self.algorithm, self.key_id.as_deref())
    }

    /// Returns the bearer if one of the keys signed the token and it is valid now (milliseconds since 1970).
    ///
    /// # Errors
    /// The reason why the token is refused.
    pub fn verify(&self, keys: &TokenKeys, rules: &TokenRules, now_ms: i64) -> Result<Bearer, AuthError> {
        let id = self.key_id.as_deref();
        if !self.has_key(keys) {
            let id = id.map_or_else(|| "without an id".to_owned(), |id| format!("\"{}\"", shown(id)));
            return Err(refused(format!("there is no key {id} for the token's signature ({:?})", self.algorithm)));
        }
        if !keys.verify(self.algorithm, id, self.signed.as_bytes(), &self.signature) {
            return Err(refused("the token's signature is wrong"));
        }
        let claims = object(self.claims).ok_or_else(|| malformed("the token's claims are no JSON object"))?;
        let until_ms = holds(&claims, rules, now_ms)?;
        is_meant(&claims, rules)?;
        let scopes = scopes(&claims, &rules.scope_claim)?;
        let grants = Grants::of(scopes, &rules.scope_prefix, &rules.administrator_scope);
        Ok(Bearer { name: name(&claims, &rules.name_claim)?, grants, until_ms })
    }
}

/// A claim that is a time, in milliseconds since 1970.
fn time(claims: &Map<String, Value>, name: &str) -> Result<Option<i64>, AuthError> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let whole = value.as_i64().map(|seconds| seconds.saturating_mul(1_000));
    // Times beyond the range saturate.
    let any = || value.as_f64().filter(|seconds| seconds.is_finite()).map(|seconds| (seconds * 1_000.0) as i64);
    let ms = whole.or_else(any).ok_or_else(|| malformed(format!("the token's claim \"{name}\" is no time")))?;
    Ok(Some(ms))
}

/// Returns the expiry if the token is valid now.
fn holds(claims: &Map<String, Value>, rules: &TokenRules, now_ms: i64) -> Result<i64, AuthError> {
    let skew_ms = i64::try_from(rules.clock_skew_ms).unwrap_or(i64::MAX);
    let end_ms = time(claims, "exp")?.ok_or_else(|| refused("the token has no expiry (\"exp\" is missing)"))?;
    let last_ms = end_ms.saturating_add(skew_ms);
    if now_ms >= last_ms {
        return Err(refused("the token has expired"));
    }
    if time(claims, "nbf")?.is_some_and(|from_ms| now_ms.saturating_add(skew_ms) < from_ms) {
        return Err(refused("the token is not valid yet (\"nbf\" is later)"));
    }
    time(claims, "iat")?;
    Ok(if now_ms < end_ms { end_ms } else { last_ms })
}

/// Checks issuer and audience.
fn is_meant(claims: &Map<String, Value>, rules: &TokenRules) -> Result<(), AuthError> {
    if let Some(issuer) = &rules.issuer
        && claims.get("iss").and_then(Value::as_str) != Some(issuer)
    {
        return Err(refused("the token's issuer (\"iss\") is not the configured one"));
    }
    let Some(audience) = &rules.audience else { return Ok(()) };
    let is_for = match claims.get("aud") {
        Some(Value::String(one)) => one == audience,
        Some(Value::Array(all)) => all.iter().any(|one| one.as_str() == Some(audience)),
        _ => false,
    };
    if is_for { Ok(()) } else { Err(refused("the token's audience (\"aud\") is not the configured one")) }
}

fn name(claims: &Map<String, Value>, claim: &str) -> Result<String, AuthError> {
    let name = claims.get(claim).and_then(Value::as_str);
    let name = name.ok_or_else(|| refused(format!("the token has no claim \"{claim}\" with a name")))?;
    if name.is_empty() || name.len() > JWT_NAME_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(refused(format!("the token's claim \"{claim}\" is no name")));
    }
    Ok(name.to_owned())
}

fn scopes<'a>(claims: &'a Map<String, Value>, claim: &str) -> Result<Vec<&'a str>, AuthError> {
    let none = || malformed(format!("the token's claim \"{claim}\" has no scopes"));
    let scopes: Vec<&str> = match claims.get(claim) {
        None => Vec::new(),
        Some(Value::String(text)) => text.split(' ').filter(|scope| !scope.is_empty()).collect(),
        Some(Value::Array(all)) => all.iter().map(Value::as_str).collect::<Option<_>>().ok_or_else(none)?,
        Some(_) => return Err(none()),
    };
    if scopes.len() > SCOPES_MAX {
        return Err(refused(format!("the token has more than {SCOPES_MAX} scopes")));
    }
    Ok(scopes)
}
