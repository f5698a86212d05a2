//! Tokens that name their bearer, signed by their issuer: JSON Web Tokens (RFC 7519, RFC 8725).
//!
//! ```text
//!   header . claims . signature        each base64url, without padding
//! ```
//!
//! Nothing of a token counts before its signature is right, and nothing of its header says which key is believed: keys come from
//! [`TokenKeys`] alone. A claim that is there and is not of its type makes a token none.

use crate::error::{AuthError, AuthErrorKind};
use crate::grants::{Grants, SCOPES_MAX};
use crate::token_keys::{Algorithm, TokenKeys};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};
use std::fmt;

/// The longest token. Bytes.
pub const JWT_BYTES_MAX: usize = 16 << 10;
/// The longest name that a token gives. Bytes.
pub const JWT_NAME_BYTES_MAX: usize = 255;

/// Which tokens are believed, and what of them counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenRules {
    /// Who has to have given them out (`iss`), where that is asked.
    pub issuer: Option<String>,
    /// Whom they have to be for (`aud`), where that is asked.
    pub audience: Option<String>,
    /// The claim that has the name.
    pub name_claim: String,
    /// The claim that has the scopes: a text with spaces between, or a list.
    pub scope_claim: String,
    /// Scopes count that begin with this, without it.
    pub scope_prefix: String,
    /// The scope that makes its bearer an administrator, without the prefix.
    pub administrator_scope: String,
    /// How far clocks may be apart. Milliseconds.
    pub clock_skew_ms: u64,
}

/// Anybody's tokens, for whomever they are, by the usual names of claims and a clock like ours.
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

/// Who a token says that its bearer is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bearer {
    /// The name.
    pub name: String,
    /// What the bearer may do.
    pub grants: Grants,
    /// Until when that holds. Milliseconds since 1970.
    pub until_ms: i64,
}

/// A token whose signature is not verified yet.
pub struct Jwt<'a> {
    algorithm: Algorithm,
    key_id: Option<String>,
    /// What is signed.
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

/// What a client said, as far as it belongs into a line for the operator.
fn shown(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_default).collect()
}

impl<'a> Jwt<'a> {
    /// Reads a token, without believing anything of it.
    ///
    /// # Errors
    /// When it is none, or is signed in a way that is not believed.
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
        let algorithm = algorithm.ok_or_else(|| {
            refused(format!("tokens that are signed by the algorithm \"{}\" are not believed", shown(name)))
        })?;
        let key_id = match header.get("kid") {
            None => None,
            Some(id) => Some(id.as_str().ok_or_else(none)?.to_owned()),
        };
        Ok(Jwt { algorithm, key_id, signed, claims, signature })
    }

    /// Whether that is a token rather than a password, whatever is wrong with it.
    #[must_use]
    pub fn is_like(text: &[u8]) -> bool {
        let mut parts = text.split(|byte| *byte == b'.');
        let (Some(header), Some(_), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
            return false;
        };
        text.len() <= JWT_BYTES_MAX
            && std::str::from_utf8(header).ok().and_then(object).is_some_and(|header| header.contains_key("alg"))
    }

    /// Whether there is a key that it may have been signed with. Where there is none, the keys may have changed.
    #[must_use]
    pub fn has_key(&self, keys: &TokenKeys) -> bool {
        keys.has(self.algorithm, self.key_id.as_deref())
    }

    /// Who its bearer is, if one of the keys signed it and it holds now (milliseconds since 1970).
    ///
    /// # Errors
    /// Why it is not believed.
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
    // Beyond what fits, a time is as good as the furthest that does.
    let any = || value.as_f64().filter(|seconds| seconds.is_finite()).map(|seconds| (seconds * 1_000.0) as i64);
    let ms = whole.or_else(any).ok_or_else(|| malformed(format!("the token's claim \"{name}\" is no time")))?;
    Ok(Some(ms))
}

/// Until when the token holds, if it does now.
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

/// That it comes from whom it has to, for whom it has to.
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
