//! SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), the server's side, without channel binding.
//!
//! ```text
//!   client                                                    server
//!   n,,n=NAME,r=CNONCE[,ext]                  ──────────▶     ClientFirst::parse, ClientFirst::answer
//!                                             ◀──────────     r=CNONCE SNONCE,s=SALT,i=ITERATIONS
//!   c=biws,r=CNONCE SNONCE[,ext],p=PROOF      ──────────▶     Challenged::finish
//!                                             ◀──────────     v=SIGNATURE
//! ```
//!
//! Each step consumes the one before it, and only the last returns a [`Proven`]: an aborted exchange proves nothing.
//! An unknown name is challenged with a salt that is always the same for it, and fails where a wrong password does.

use crate::error::{AuthError, AuthErrorKind};
use crate::scram_credential::{ITERATIONS_MIN, ScramCredential, ScramMechanism};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use subtle::ConstantTimeEq as _;

/// The longest message of a client. Bytes.
pub const SCRAM_MESSAGE_BYTES_MAX: usize = 4 << 10;
/// The longest nonce of a client. Bytes.
pub const CLIENT_NONCE_BYTES_MAX: usize = 256;
/// Random bytes in the server's part of the nonce.
pub const SERVER_NONCE_BYTES: usize = 24;
/// Extensions of a message that are looked at. Clients of Kafka send one.
pub const EXTENSIONS_MAX: usize = 16;
/// Bytes of a salt that is made up.
const MADE_UP_SALT_BYTES: usize = 16;

fn malformed(text: impl Into<String>) -> AuthError {
    AuthError::new(AuthErrorKind::Malformed, text)
}

fn unsupported(text: impl Into<String>) -> AuthError {
    AuthError::new(AuthErrorKind::Unsupported, text)
}

/// The one error for a wrong name, a wrong password and unusable credentials.
fn refused() -> AuthError {
    AuthError::new(AuthErrorKind::Refused, "invalid credentials")
}

fn text_of(message: &[u8]) -> Result<&str, AuthError> {
    if message.len() > SCRAM_MESSAGE_BYTES_MAX {
        return Err(malformed(format!("a SCRAM message has at most {SCRAM_MESSAGE_BYTES_MAX} bytes")));
    }
    let text = std::str::from_utf8(message).map_err(|_| malformed("a SCRAM message is not UTF-8"))?;
    if text.contains('\0') { Err(malformed("a SCRAM message holds a NUL")) } else { Ok(text) }
}

/// The value of an attribute: `r=abc` of `r`.
fn value_of(attribute: Option<&str>, letter: char) -> Result<&str, AuthError> {
    attribute
        .and_then(|text| text.strip_prefix(letter)?.strip_prefix('='))
        .ok_or_else(|| malformed(format!("the attribute {letter}= is missing")))
}

/// A name on the wire, where `,` and `=` are written `=2C` and `=3D`.
fn name_of(text: &str) -> Result<String, AuthError> {
    let mut name = String::with_capacity(text.len());
    let mut pieces = text.split('=');
    name.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let (escaped, rest) = match piece.as_bytes() {
            [b'2', b'C', ..] => (',', piece.get(2..)),
            [b'3', b'D', ..] => ('=', piece.get(2..)),
            _ => return Err(malformed("a name holds = that is neither =2C nor =3D")),
        };
        name.push(escaped);
        name.push_str(rest.unwrap_or_default());
    }
    if name.is_empty() { Err(malformed("the name is empty")) } else { Ok(name) }
}

/// `a=value` for each of what is left: what RFC 5802 calls optional extensions; Kafka writes words for the letter.
fn extensions<'a>(attributes: impl Iterator<Item = &'a str>) -> Result<Vec<(String, String)>, AuthError> {
    let mut found = Vec::new();
    for attribute in attributes {
        let Some((name, value)) = attribute.split_once('=') else {
            return Err(malformed("an extension is not of the form name=value"));
        };
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return Err(malformed("the name of an extension is not made of letters"));
        }
        if found.len() == EXTENSIONS_MAX {
            return Err(malformed(format!("more than {EXTENSIONS_MAX} extensions")));
        }
        found.push((name.to_owned(), value.to_owned()));
    }
    Ok(found)
}

/// The first message of a client, read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientFirst {
    mechanism: ScramMechanism,
    /// The message without its GS2 header (`client-first-message-bare`): the start of the signed text.
    bare: String,
    /// The GS2 header (channel binding and authorization identity), which the last message repeats.
    gs2: String,
    name: String,
    nonce: String,
    extensions: Vec<(String, String)>,
}

impl ClientFirst {
    /// Reads it.
    ///
    /// # Errors
    /// When it is no such message; wants the channel bound, an extension that must not be ignored, or to be another user than the one who
    /// logs in.
    pub fn parse(mechanism: ScramMechanism, message: &[u8]) -> Result<ClientFirst, AuthError> {
        let text = text_of(message)?;
        let mut parts = text.splitn(3, ',');
        let (binding, authzid, bare) = match (parts.next(), parts.next(), parts.next()) {
            (Some(binding), Some(authzid), Some(bare)) => (binding, authzid, bare),
            _ => return Err(malformed("the first SCRAM message has no header")),
        };
        match binding {
            // `y`: the client could bind the channel and believes that the server cannot, which is so.
            "n" | "y" => {}
            other if other.starts_with("p=") => return Err(unsupported("channel binding is not supported")),
            _ => return Err(malformed("the header of the first SCRAM message is neither n, y nor p=")),
        }
        let mut attributes = bare.split(',');
        let first = attributes.next();
        if first.is_some_and(|text| text.starts_with("m=")) {
            return Err(unsupported("mandatory extensions are not supported"));
        }
        let name = name_of(value_of(first, 'n')?)?;
        if !authzid.is_empty() && name_of(value_of(Some(authzid), 'a')?)? != name {
            return Err(unsupported("a client can log in as itself only: its authorization identity is another name"));
        }
        let nonce = value_of(attributes.next(), 'r')?;
        // RFC 5802, section 7: printable, no comma.
        if nonce.is_empty()
            || nonce.len() > CLIENT_NONCE_BYTES_MAX
            || !nonce.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Err(malformed(format!("a nonce has 1 to {CLIENT_NONCE_BYTES_MAX} printable characters")));
        }
        Ok(ClientFirst {
            mechanism,
            bare: bare.to_owned(),
            gs2: format!("{binding},{authzid},"),
            name,
            nonce: nonce.to_owned(),
            extensions: extensions(attributes)?,
        })
    }

    /// The claimed user name, not verified yet.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// An extension, such as `tokenauth`, with which Kafka's clients log in by a delegation token.
    #[must_use]
    pub fn extension(&self, name: &str) -> Option<&str> {
        self.extensions.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// The server's first message. `credential` is what the user store has of [`ClientFirst::name`] for this mechanism; without one the
    /// client is challenged all the same, with a salt that follows from the name and `secret`, which must not change while the
    /// process runs. `nonce` is random.
    #[must_use]
    pub fn answer(
        self,
        credential: Option<&ScramCredential>,
        secret: &[u8],
        nonce: [u8; SERVER_NONCE_BYTES],
    ) -> (Bytes, Challenged) {
        let credential = credential.filter(|credential| credential.mechanism() == self.mechanism);
        let (salt, iterations) = match credential {
            Some(credential) => (credential.salt().clone(), credential.iterations()),
            None => {
                let mut salt = self.mechanism.hmac(secret, &[self.name.as_bytes()]);
                salt.truncate(MADE_UP_SALT_BYTES);
                (Bytes::from(salt), ITERATIONS_MIN)
            }
        };
        let nonce = format!("{}{}", self.nonce, STANDARD.encode(nonce));
        let message = format!("r={nonce},s={},i={iterations}", STANDARD.encode(&salt));
        let challenged =
            Challenged { nonce, server_first: message.clone(), credential: credential.cloned(), first: self };
        (Bytes::from(message), challenged)
    }
}

/// An exchange in which the server's first message was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Challenged {
    first: ClientFirst,
    nonce: String,
    server_first: String,
    credential: Option<ScramCredential>,
}

/// A client that has proven knowledge of the password.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proven {
    /// The user.
    pub name: String,
    /// The last message of the exchange, by which the client knows that the server is the right one.
    pub server_final: Bytes,
}

impl Challenged {
    /// The claimed user name, not verified yet.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.first.name
    }

    /// Whether this is still what is kept of the user's password. An exchange may take its time, and a user be deleted meanwhile.
    #[must_use]
    pub fn is_of(&self, credential: Option<&ScramCredential>) -> bool {
        self.credential.as_ref() == credential
    }

    /// The client's last message: who it is, if it has the password.
    ///
    /// # Errors
    /// When it is no such message, of another exchange, or its proof is wrong.
    pub fn finish(self, message: &[u8]) -> Result<Proven, AuthError> {
        let text = text_of(message)?;
        let Some((without_proof, proof)) = text.rsplit_once(",p=") else {
            return Err(malformed("the attribute p= is missing"));
        };
        let mut attributes = without_proof.split(',');
        let header = STANDARD
            .decode(value_of(attributes.next(), 'c')?)
            .map_err(|_| malformed("the attribute c= is not base64"))?;
        if header != self.first.gs2.as_bytes() {
            return Err(malformed("the last SCRAM message has another header than the first"));
        }
        if value_of(attributes.next(), 'r')? != self.nonce {
            return Err(malformed("the nonce is not that of this exchange"));
        }
        extensions(attributes)?;
        let proof = STANDARD.decode(proof).map_err(|_| malformed("the proof is not base64"))?;
        let mechanism = self.first.mechanism;
        let signed = format!("{},{},{without_proof}", self.first.bare, self.server_first);
        // An unknown user costs the same two HMACs and a hash.
        let made_up;
        let credential = match &self.credential {
            Some(credential) => credential,
            None => {
                made_up = ScramCredential::unknown(mechanism);
                &made_up
            }
        };
        let mut key = mechanism.hmac(credential.stored_key(), &[signed.as_bytes()]);
        if proof.len() != key.len() {
            return Err(malformed("the proof has another length than its hash function"));
        }
        key.iter_mut().zip(&proof).for_each(|(key, proof)| *key ^= proof);
        let is_right = mechanism.hash(&key).ct_eq(credential.stored_key());
        let signature = mechanism.hmac(credential.server_key(), &[signed.as_bytes()]);
        if !bool::from(is_right) || self.credential.is_none() {
            return Err(refused());
        }
        let server_final = Bytes::from(format!("v={}", STANDARD.encode(signature)));
        Ok(Proven { name: self.first.name, server_final })
    }
}

#[cfg(test)]
mod tests;
