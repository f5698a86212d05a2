//! Authentication: SaslHandshake and SaslAuthenticate (KIP-43, KIP-152), and re-authentication (KIP-368).
//!
//! ```text
//!   ApiVersions ─▶ SaslHandshake v1: mechanism ─▶ SaslAuthenticate: token ─▶ ... ─▶ anything
//!                  SaslHandshake v0: mechanism ─▶ i32 length, token         ─▶ ... ─▶ anything
//! ```
//!
//! Before authentication a client learns only the supported versions and mechanisms; any other request closes its connection, as
//! in Kafka (`SaslServerAuthenticator`). A failure is answered after the delay of [`Authority::failed`], and is the last response. Texts are
//! Kafka's, except that a wrong password and an unknown user get the same one.

use super::close::CloseReason;
use super::work::{Pending, Step, WaitsFor, Work};
use bytes::Bytes;
use polylogue_api::Reply;
use polylogue_auth::{
    AuthError, AuthErrorKind, BEARER_REFUSED, Bearer, BearerMessage, Challenged, Claim, ClientFirst, Mechanism, Plain,
    Ticket, Turn,
};
use polylogue_kafka_codec::frame::LENGTH_BYTES;
use polylogue_kafka_codec::sasl_authenticate::{SaslAuthenticateRequest, SaslAuthenticateResponse};
use polylogue_kafka_codec::sasl_handshake::{SaslHandshakeRequest, SaslHandshakeResponse};
use polylogue_kafka_codec::{ApiKey, DecodeError, ErrorCode, Message, Reader, StrBytes};
use polylogue_types::Chunk;
use std::net::IpAddr;

/// The longest frame before a login. Bytes.
pub const LOGIN_FRAME_BYTES_MAX: usize = 64 << 10;
/// Timeout for a login. Milliseconds.
pub const LOGIN_MS_MAX: u64 = 30_000;
/// Stands for the version of a SaslAuthenticate whose token came without a header.
const BARE: i16 = -1;
/// The first version of SaslHandshake after which tokens are sent in SaslAuthenticate.
const HEADERS_FROM: i16 = 1;
/// SCRAM's extension for a login by a delegation token (KIP-48).
const TOKEN_EXTENSION: &str = "tokenauth";

/// The state of a connection's login.
#[derive(Debug)]
pub(super) struct Login {
    /// Whether the listener requires a login.
    is_asked: bool,
    /// Whether a login failed: the connection is going to be closed.
    has_failed: bool,
    /// The client's address.
    address: IpAddr,
    /// When the connection was accepted. Monotonic milliseconds.
    since_ms: u64,
    known: Option<Box<Known>>,
    exchange: Option<Box<Exchange>>,
}

/// An authenticated client.
#[derive(Debug)]
struct Known {
    name: StrBytes,
    mechanism: Mechanism,
    /// Whether its token grants administrator access.
    is_administrator: bool,
    /// When it must re-authenticate. Monotonic milliseconds.
    until_ms: Option<u64>,
}

/// The error for a wrong password: PlainSaslServer's text.
const WRONG_PASSWORD: &str = "Authentication failed: Invalid username or password";

/// A chosen mechanism with the state of its exchange.
#[derive(Debug)]
struct Exchange {
    mechanism: Mechanism,
    /// Whether tokens and responses have no headers.
    is_bare: bool,
    challenged: Option<Challenged>,
    /// Why its token is rejected; sent after the client has acknowledged the error status (RFC 7628).
    refused: Option<String>,
}

/// The result of a token.
enum Led {
    /// The server sends a challenge, and the client continues.
    On(Bytes, Box<Challenged>),
    /// The client is authenticated.
    In(String, Bytes),
    /// Authenticated by an identity provider's token.
    ByToken(Bearer),
}

/// Why a login failed.
struct Failure {
    /// The claimed user, if known.
    name: String,
    /// The error for the client.
    reported: String,
    /// The reason for the operator.
    why: String,
    /// Whether the error is sent as a challenge that the client must answer.
    goes_on: bool,
}

impl Login {
    pub(super) fn new(is_asked: bool, address: IpAddr, now_ms: u64) -> Login {
        Login {
            is_asked,
            has_failed: false,
            address: address.to_canonical(),
            since_ms: now_ms,
            known: None,
            exchange: None,
        }
    }

    /// Authenticates the client by its certificate, before its first request; it may still log in as another user by a
    /// password. On a listener without logins there is no user.
    pub(super) fn certify(&mut self, name: StrBytes) {
        if self.is_asked {
            let (mechanism, is_administrator) = (Mechanism::External, false);
            self.known = Some(Box::new(Known { name, mechanism, is_administrator, until_ms: None }));
        }
    }

    /// Whether the listener requires a login.
    pub(super) fn is_asked(&self) -> bool {
        self.is_asked
    }

    /// Returns the user; `None` if no login was required.
    pub(super) fn name(&self) -> Option<&StrBytes> {
        self.known.as_ref().map(|known| &known.name)
    }

    /// The user and the address, once authenticated.
    pub(super) fn claim(&self) -> Option<Claim<'_>> {
        self.known.as_ref().map(|known| Claim { name: &known.name, address: self.address })
    }

    /// Whether its token grants administrator access.
    pub(super) fn is_administrator(&self) -> bool {
        self.known.as_ref().is_some_and(|known| known.is_administrator)
    }

    /// Whether the client may send this request now.
    pub(super) fn admits(&self, api: ApiKey, now_ms: u64) -> bool {
        if !self.is_asked {
            return true;
        }
        let is_login = matches!(api, ApiKey::ApiVersions | ApiKey::SaslHandshake | ApiKey::SaslAuthenticate);
        let is_known = self.known.as_ref().is_some_and(|known| known.until_ms.is_none_or(|until| now_ms < until));
        !self.has_failed && (is_login || (is_known && self.exchange.is_none()))
    }

    /// Whether the next frame is a token without a header.
    pub(super) fn is_bare(&self) -> bool {
        self.exchange.as_ref().is_some_and(|exchange| exchange.is_bare)
    }

    /// Whether the client is not authenticated yet.
    pub(super) fn is_open(&self) -> bool {
        self.is_asked && self.known.is_none()
    }

    /// Returns the deadline of the login, or of re-authentication. Monotonic milliseconds.
    pub(super) fn deadline_ms(&self) -> Option<u64> {
        self.is_open().then(|| self.since_ms.saturating_add(LOGIN_MS_MAX))
    }
}

/// Returns the version that stands for a token without a header in [`start_authenticate`].
pub(super) const fn bare_version() -> i16 {
    BARE
}

pub(super) fn start_handshake(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let version = work.head.version;
    let request = SaslHandshakeRequest::decode(body, version)?;
    let offered = || Mechanism::offered(work.users.takes_tokens());
    let all: Vec<_> = offered().map(|mechanism| StrBytes::from_static(mechanism.name())).collect();
    let chosen = offered().find(|mechanism| mechanism.name() == &*request.mechanism);
    let login = &mut work.peer.login;
    if !login.is_asked {
        let error_code = ErrorCode::IllegalSaslState.code();
        return Ok(work.answer(&SaslHandshakeResponse { error_code, mechanisms: Vec::new() }));
    }
    if login.exchange.is_some() {
        return Ok(Step::Close(CloseReason::NotLoggedIn { api: ApiKey::SaslHandshake }));
    }
    let Some(mechanism) = chosen else {
        login.has_failed = true;
        let error_code = ErrorCode::UnsupportedSaslMechanism.code();
        let answer = work.answer(&SaslHandshakeResponse { error_code, mechanisms: all });
        let why = format!("the SASL mechanism \"{}\" is not known here", shown(&request.mechanism));
        return Ok(answer.and_close(CloseReason::Login { why }));
    };
    let is_bare = version < HEADERS_FROM;
    login.exchange = Some(Box::new(Exchange { mechanism, is_bare, challenged: None, refused: None }));
    Ok(work.answer(&SaslHandshakeResponse { error_code: 0, mechanisms: all }))
}

pub(super) fn start_authenticate(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let version = work.head.version;
    let token = match version {
        BARE => body.rest(),
        _ => SaslAuthenticateRequest::decode(body, version)?.auth_bytes,
    };
    let Some(exchange) = work.peer.login.exchange.take() else {
        if work.peer.login.is_open() {
            return Ok(Step::Close(CloseReason::NotLoggedIn { api: ApiKey::SaslAuthenticate }));
        }
        // As in Kafka if no login is required or the client is authenticated (`KafkaApis`).
        return Ok(work.answer(&SaslAuthenticateResponse {
            error_code: ErrorCode::IllegalSaslState.code(),
            error_message: Some("SaslAuthenticate request received after successful authentication".into()),
            ..SaslAuthenticateResponse::default()
        }));
    };
    if let Some(why) = exchange.refused {
        // It was logged and delayed before.
        work.peer.login.has_failed = true;
        let refusing = Refusing { reported: BEARER_REFUSED.to_owned(), why, deadline_ms: 0, goes_on: false };
        return Ok(Box::new(refusing).on_deadline(work));
    }
    let now_ms = work.now.monotonic_ms;
    let until_ms = work.peer.login.deadline_ms().unwrap_or(now_ms.saturating_add(LOGIN_MS_MAX));
    Ok(Held { exchange, token, ticket: Ticket::default(), deadline_ms: now_ms, until_ms }.in_turn(work))
}

/// Returns the user whose password a token is verified against, if known.
fn name_in(exchange: &Exchange, token: &[u8]) -> Option<String> {
    match (exchange.mechanism, &exchange.challenged) {
        (Mechanism::Plain, _) => Some(Plain::parse(token).ok()?.as_itself().ok()?.name.to_owned()),
        (Mechanism::Scram(_), Some(challenged)) => Some(challenged.name().to_owned()),
        _ => None,
    }
}

fn turn_of(work: &Work<'_>, exchange: &Exchange, token: &[u8], ticket: &mut Ticket) -> Turn {
    let Some(name) = name_in(exchange, token) else { return Turn::Now };
    work.users.turn(&Claim { name: &name, address: work.peer.login.address }, ticket)
}

/// A token that waits for its verification slot.
struct Held {
    exchange: Box<Exchange>,
    token: Bytes,
    ticket: Ticket,
    deadline_ms: u64,
    /// Until when it may wait. Monotonic milliseconds.
    until_ms: u64,
}

impl Held {
    /// Verifies the token when it gets its slot ([`polylogue_auth::Authority::turn`]). Without a slot in time the connection is closed without a response:
    /// clients treat that as transient, and an error as a wrong password.
    fn in_turn(mut self, work: &mut Work<'_>) -> Step {
        let now_ms = work.now.monotonic_ms;
        let why = match turn_of(work, &self.exchange, &self.token, &mut self.ticket) {
            Turn::Now => return attempt(work, *self.exchange, &self.token),
            Turn::After(ms) if now_ms < self.until_ms => {
                self.deadline_ms = now_ms.saturating_add(ms).min(self.until_ms);
                return Step::Wait(work.token(), Box::new(self));
            }
            Turn::After(_) => format!("the password could not be verified within {LOGIN_MS_MAX} ms"),
            Turn::Refused => "too many pending logins with this name from this address".to_owned(),
        };
        work.peer.login.has_failed = true;
        Step::Close(CloseReason::Login { why })
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The token may contain a password.
        f.debug_struct("Held").field("deadline_ms", &self.deadline_ms).finish_non_exhaustive()
    }
}

impl Pending for Held {
    fn on_reply(self: Box<Self>, work: &mut Work<'_>, _: Reply) -> Step {
        work.wrong_reply()
    }

    fn on_deadline(self: Box<Self>, work: &mut Work<'_>) -> Step {
        self.in_turn(work)
    }

    fn deadline_ms(&self) -> Option<u64> {
        Some(self.deadline_ms)
    }

    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Time
    }
}

/// Verifies a token.
fn attempt(work: &mut Work<'_>, exchange: Exchange, token: &[u8]) -> Step {
    let (mechanism, version) = (exchange.mechanism, work.head.version);
    let led = match go_on(work, exchange, token) {
        Ok(Led::In(name, last)) => let_in(work, mechanism, name, last, None),
        Ok(Led::ByToken(bearer)) => let_in(work, mechanism, bearer.name.clone(), Bytes::new(), Some(&bearer)),
        Ok(Led::On(message, challenged)) => {
            let is_bare = version == BARE;
            let challenged = Some(*challenged);
            work.peer.login.exchange = Some(Box::new(Exchange { mechanism, is_bare, challenged, refused: None }));
            Ok(say(work, message, 0))
        }
        Err(failure) if failure.goes_on => {
            let refused = Some(failure.why.clone());
            let is_bare = version == BARE;
            work.peer.login.exchange = Some(Box::new(Exchange { mechanism, is_bare, challenged: None, refused }));
            Err(failure)
        }
        Err(failure) => Err(failure),
    };
    led.unwrap_or_else(|failure| refuse(work, mechanism, failure))
}

/// Passes a token to its exchange.
fn go_on(work: &mut Work<'_>, exchange: Exchange, token: &[u8]) -> Result<Led, Failure> {
    let Exchange { mechanism, challenged, .. } = exchange;
    let address = work.peer.login.address;
    match (mechanism, challenged) {
        (Mechanism::Plain, _) => {
            let plain =
                Plain::parse(token).and_then(Plain::as_itself).map_err(|error| Failure::of(mechanism, "", &error))?;
            let claim = Claim { name: plain.name, address };
            match work.users.is_password(&claim, plain.password) {
                true => Ok(Led::In(plain.name.to_owned(), Bytes::new())),
                false => Err(Failure {
                    name: plain.name.to_owned(),
                    reported: WRONG_PASSWORD.to_owned(),
                    why: "the name or the password is wrong".to_owned(),
                    goes_on: false,
                }),
            }
        }
        (Mechanism::Bearer, _) => by_token(work, token),
        (Mechanism::Scram(scram), None) => {
            let first = ClientFirst::parse(scram, token).map_err(|error| Failure::of(mechanism, "", &error))?;
            if first.extension(TOKEN_EXTENSION).is_some_and(|value| value.eq_ignore_ascii_case("true")) {
                let error = "delegation tokens are not supported";
                return Err(Failure::said(mechanism, first.name(), error));
            }
            let credential = work.users.scram(&Claim { name: first.name(), address }, scram);
            let (message, challenged) = first.answer(credential.as_ref(), work.users.secret(), work.users.nonce());
            Ok(Led::On(message, Box::new(challenged)))
        }
        // Unreachable: a client cannot choose these mechanisms.
        (Mechanism::External | Mechanism::Anonymous, _) => {
            Err(Failure::said(mechanism, "", "the mechanism has no SASL messages"))
        }
        (Mechanism::Scram(scram), Some(challenged)) => {
            let name = challenged.name().to_owned();
            let kept = work.users.scram(&Claim { name: &name, address }, scram);
            if !challenged.is_of(kept.as_ref()) {
                return Err(Failure::said(mechanism, &name, "the user or its password changed during the exchange"));
            }
            let proven = challenged.finish(token).map_err(|error| Failure::of(mechanism, &name, &error))?;
            Ok(Led::In(proven.name, proven.server_final))
        }
    }
}

/// Verifies an identity provider's token (RFC 7628).
fn by_token(work: &Work<'_>, message: &[u8]) -> Result<Led, Failure> {
    let mechanism = Mechanism::Bearer;
    let message = BearerMessage::parse(message).map_err(|error| Failure::of(mechanism, "", &error))?;
    let refused = |error: AuthError| Failure {
        name: String::new(),
        reported: BEARER_REFUSED.to_owned(),
        why: error.text,
        goes_on: true,
    };
    let bearer = work.users.bearer(message.token).map_err(refused)?;
    message.as_named(&bearer.name).map_err(|error| Failure::of(mechanism, &bearer.name, &error))?;
    Ok(Led::ByToken(bearer))
}

/// Returns the session lifetime until re-authentication: that of the token, limited by the settings. Milliseconds.
fn lifetime_ms(work: &Work<'_>, bearer: Option<&Bearer>) -> Option<u64> {
    let set = Some(work.settings.reauth_ms_max).filter(|ms| *ms > 0);
    // An accepted token has some lifetime left.
    let token =
        bearer.map(|bearer| u64::try_from(bearer.until_ms.saturating_sub(work.now.wall_ms)).unwrap_or(0).max(1));
    [set, token].into_iter().flatten().min()
}

/// Completes authentication or re-authentication.
fn let_in(
    work: &mut Work<'_>,
    mechanism: Mechanism,
    name: String,
    last: Bytes,
    bearer: Option<&Bearer>,
) -> Result<Step, Failure> {
    let before = work.peer.login.known.as_ref();
    if let Some(before) = before.filter(|before| before.mechanism != Mechanism::External) {
        if before.mechanism != mechanism {
            let reported = format!(
                "SASL mechanism '{}' requested by client is not supported for re-authentication of mechanism '{}'",
                mechanism.name(),
                before.mechanism.name()
            );
            return Err(Failure { name, why: reported.clone(), reported, goes_on: false });
        }
        if *before.name != *name {
            let reported =
                format!("Cannot change principals during re-authentication from User:{}: User:{name}", before.name);
            return Err(Failure { name, why: reported.clone(), reported, goes_on: false });
        }
    }
    work.users.succeeded(&Claim { name: &name, address: work.peer.login.address }, mechanism);
    let lifetime_ms = lifetime_ms(work, bearer);
    let until_ms = lifetime_ms.map(|ms| work.now.monotonic_ms.saturating_add(ms));
    let is_administrator = bearer.is_some_and(|bearer| bearer.grants.is_administrator());
    work.peer.login.known = Some(Box::new(Known { name: name.into(), mechanism, is_administrator, until_ms }));
    Ok(say(work, last, lifetime_ms.unwrap_or(0)))
}

/// Answers with a server token.
fn say(work: &Work<'_>, token: Bytes, lifetime_ms: u64) -> Step {
    if work.head.version == BARE {
        return bare(&token);
    }
    work.answer(&SaslAuthenticateResponse {
        error_code: 0,
        error_message: None,
        auth_bytes: token,
        session_lifetime_ms: i64::try_from(lifetime_ms).unwrap_or(i64::MAX),
    })
}

/// Encodes a token without a header.
fn bare(token: &[u8]) -> Step {
    let mut frame = Vec::with_capacity(LENGTH_BYTES + token.len());
    frame.extend_from_slice(&u32::try_from(token.len()).unwrap_or(u32::MAX).to_be_bytes());
    frame.extend_from_slice(token);
    Step::Answer(vec![Chunk::Bytes(frame.into())])
}

/// A refusal that waits for its delay.
#[derive(Debug)]
struct Refusing {
    reported: String,
    why: String,
    deadline_ms: u64,
    /// As in [`Failure`].
    goes_on: bool,
}

fn refuse(work: &mut Work<'_>, mechanism: Mechanism, failure: Failure) -> Step {
    let Failure { name, reported, why, goes_on } = failure;
    work.peer.login.has_failed |= !goes_on;
    let delay_ms = work.users.failed(&Claim { name: &name, address: work.peer.login.address }, mechanism, &why);
    let until_ms = work.peer.login.deadline_ms().unwrap_or(u64::MAX);
    let deadline_ms = work.now.monotonic_ms.saturating_add(delay_ms).min(until_ms);
    let refusing = Box::new(Refusing { reported, why, deadline_ms, goes_on });
    if delay_ms == 0 {
        return refusing.on_deadline(work);
    }
    Step::Wait(work.token(), refusing)
}

impl Pending for Refusing {
    fn on_reply(self: Box<Self>, work: &mut Work<'_>, _: Reply) -> Step {
        work.wrong_reply()
    }

    fn on_deadline(self: Box<Self>, work: &mut Work<'_>) -> Step {
        if self.goes_on {
            return say(work, self.reported.into(), 0);
        }
        let reason = CloseReason::Login { why: self.why };
        if work.head.version == BARE {
            // There is no response format for it.
            return Step::Close(reason);
        }
        let response = SaslAuthenticateResponse {
            error_code: ErrorCode::SaslAuthenticationFailed.code(),
            error_message: Some(self.reported.into()),
            ..SaslAuthenticateResponse::default()
        };
        work.answer(&response).and_close(reason)
    }

    fn deadline_ms(&self) -> Option<u64> {
        Some(self.deadline_ms)
    }

    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Time
    }
}

impl Failure {
    /// Maps an authentication error. The client gets no more detail than from Kafka.
    fn of(mechanism: Mechanism, name: &str, error: &AuthError) -> Failure {
        match error.kind {
            AuthErrorKind::Refused => {
                let reported = format!(
                    "Authentication failed during authentication due to invalid credentials with SASL mechanism {}",
                    mechanism.name()
                );
                Failure { name: name.to_owned(), reported, why: error.text.clone(), goes_on: false }
            }
            _ => Failure::said(mechanism, name, &error.text),
        }
    }

    /// Makes the failure for a client's mistake, with the error it gets.
    fn said(mechanism: Mechanism, name: &str, why: &str) -> Failure {
        let reported = format!("Authentication failed: {why} (SASL mechanism {})", mechanism.name());
        Failure { name: name.to_owned(), reported, why: why.to_owned(), goes_on: false }
    }
}

/// Formats a client's text for the log.
fn shown(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_default).collect()
}
