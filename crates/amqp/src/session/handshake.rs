//! The handshake from the protocol header to an open connection, and the methods of channel 0.
//!
//! ```text
//!   client  header      start_ok                tune_ok  open               (channels)          close                   end
//!   server       start            [broker] tune                [broker] open_ok                        [broker] close_ok
//!   stage   Header Starting Authenticating Tuning Opening OpeningVhost   Open                   Ending          Closing  Closed
//! ```

use super::close::{CloseReason, Closing};
use super::core::Capabilities;
use super::{CLIENT_PROPERTIES_BYTES_MAX, Session};
use crate::codec::*;
use crate::refusal::{Code, Refusal};
use crate::request::{Credentials, Reply, Request};
use crate::settings::{AmqpSettings, Mechanism};
use bytes::Bytes;
use polylogue_api::Token;

/// The stage of a connection's life.
#[derive(Debug)]
pub(super) enum Stage {
    /// The protocol header is awaited.
    Header,
    /// `connection.start` is sent.
    Starting,
    /// The broker checks the credentials.
    Authenticating { token: Token, mechanism: Mechanism },
    /// `connection.tune` is sent.
    Tuning,
    /// `connection.open` is awaited.
    Opening,
    /// The broker checks the virtual host.
    OpeningVhost { token: Token },
    /// It is open; `secret` is the token of a new secret that the broker is checking.
    Open { secret: Option<Token> },
    /// The client has closed it; the broker's reply is outstanding.
    Ending { token: Token },
    /// It is closed, and the peer's confirmation is awaited.
    Closing(Closing),
    /// A login was refused, and the client lacks the capability to receive that: it is kept waiting.
    Silent { until_ms: u64 },
    /// It is over.
    Closed(CloseReason),
}

impl Stage {
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Stage::Open { .. } | Stage::Ending { .. })
    }

    /// Whether nothing but the end can follow.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Stage::Closing(_) | Stage::Silent { .. } | Stage::Closed(_))
    }

    /// Whether the broker has state to clean up, and was not sent [`Request::CloseConnection`].
    pub(super) fn is_known_to_broker(&self) -> bool {
        matches!(self, Stage::OpeningVhost { .. } | Stage::Open { .. })
    }

    /// Whether a method of channel 0 waits for the broker.
    pub(super) fn waits(&self) -> bool {
        matches!(
            self,
            Stage::Authenticating { .. }
                | Stage::OpeningVhost { .. }
                | Stage::Open { secret: Some(_) }
                | Stage::Ending { .. }
        )
    }

    /// RabbitMQ's name of the stage.
    fn name(&self) -> &'static str {
        match self {
            Stage::Header => "pre_init",
            Stage::Starting => "starting",
            Stage::Authenticating { .. } => "securing",
            Stage::Tuning => "tuning",
            Stage::Opening | Stage::OpeningVhost { .. } => "opening",
            Stage::Open { .. } => "running",
            Stage::Ending { .. } => "closing",
            Stage::Closing(_) | Stage::Silent { .. } | Stage::Closed(_) => "closed",
        }
    }

    /// Takes the stage, if it waits for the reply to this token.
    pub(super) fn take_awaited(&mut self, token: Token) -> Option<Answered> {
        match self {
            Stage::Authenticating { token: awaited, mechanism } if *awaited == token => {
                Some(Answered::Login(*mechanism))
            }
            Stage::OpeningVhost { token: awaited } if *awaited == token => Some(Answered::Vhost),
            Stage::Ending { token: awaited } if *awaited == token => Some(Answered::End),
            _ => None,
        }
    }

    /// Whether this was the token of a new secret.
    pub(super) fn take_secret(&mut self, token: Token) -> bool {
        match self {
            Stage::Open { secret } => secret.take_if(|awaited| *awaited == token).is_some(),
            _ => false,
        }
    }
}

/// The step of the handshake that was answered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answered {
    Login(Mechanism),
    Vhost,
    End,
}

/// The header of AMQP 0-9, which is compatible.
const HEADER_0_9: [u8; 8] = *b"AMQP\x01\x01\x00\x09";

/// The capabilities that RabbitMQ announces, in its order. `crates/server/tests/it/capabilities.rs` tests each of them.
const CAPABILITIES: [&str; 9] = [
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
];

fn server_properties(settings: &AmqpSettings) -> Table {
    let mut capabilities = TableBuilder::new();
    for capability in CAPABILITIES {
        capabilities = capabilities.with(capability, Value::Bool(true));
    }
    TableBuilder::new()
        .with_table("capabilities", &capabilities.build())
        .with_text("cluster_name", &settings.cluster_name)
        .with_text("copyright", &settings.copyright)
        .with_text("information", &settings.information)
        .with_text("platform", &settings.platform)
        .with_text("product", &settings.product)
        .with_text("version", &settings.version)
        .build()
}

fn capabilities(client_properties: &Table) -> Capabilities {
    let mut can = Capabilities::default();
    for field in client_properties.get("capabilities").iter().flat_map(Value::fields) {
        let yes = field.value == Value::Bool(true);
        match field.name {
            b"consumer_cancel_notify" => can.consumer_cancel_notify = yes,
            b"connection.blocked" => can.connection_blocked = yes,
            b"authentication_failure_close" => can.authentication_failure_close = yes,
            _ => {}
        }
    }
    can
}

/// Parses a PLAIN response: two parts, each after a zero byte; like RabbitMQ, without an authorisation identity.
fn plain(response: &Bytes) -> Result<Credentials, Refusal> {
    let mut parts = response.split(|byte| *byte == 0);
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some([]), Some(user), Some(password), None) => {
            Ok(Credentials::Password { user: response.slice_ref(user), password: response.slice_ref(password) })
        }
        _ => Err(Refusal::bad_plain_response()),
    }
}

/// Parses an AMQPLAIN response: a table without its size field, with `LOGIN` and `PASSWORD`.
fn amqplain(response: Bytes) -> Result<Credentials, Refusal> {
    let table = Table::new(response).map_err(|_| Refusal::bad_amqplain_response())?;
    let text = |name| table.get(name).and_then(|value| value.as_longstr()).map(Bytes::copy_from_slice);
    match (text("LOGIN"), text("PASSWORD")) {
        (Some(user), Some(password)) => Ok(Credentials::Password { user, password }),
        _ => Err(Refusal::bad_amqplain_response()),
    }
}

/// Checks that the client's choice is within the server's proposal; 0 is no limit.
fn negotiated(field: &str, value: u32, min: u32, max: u32) -> Result<(), Refusal> {
    if value != 0 && value < min {
        return Err(Refusal::negotiated_below(field, value, min));
    }
    if max != 0 && (value == 0 || value > max) {
        return Err(Refusal::negotiated_above(field, value, max));
    }
    Ok(())
}

impl Session {
    /// Handles the protocol header.
    pub(super) fn on_protocol_header(&mut self, header: [u8; 8]) {
        if header != PROTOCOL_HEADER && header != HEADER_0_9 {
            self.core.output.raw(&PROTOCOL_HEADER);
            self.end(CloseReason::ProtocolHeader(header));
            return;
        }
        let settings = &self.core.settings;
        let mechanisms: Vec<_> = settings.mechanisms.iter().map(|mechanism| mechanism.name()).collect();
        let start = ConnectionStart {
            version_major: 0,
            version_minor: 9,
            server_properties: server_properties(settings),
            mechanisms: Bytes::from(mechanisms.join(" ")),
            locales: Bytes::from_static(b"en_US"),
        };
        self.send(start);
        self.stage = Stage::Starting;
    }

    /// Handles a method of channel 0.
    pub(super) fn on_connection_method(&mut self, method: Method, now_ms: u64) {
        let id = method.id();
        if let Err(refusal) = self.connection_method(method) {
            self.close(id, refusal, now_ms);
        }
    }

    fn connection_method(&mut self, method: Method) -> Result<(), Refusal> {
        match (&self.stage, method) {
            (Stage::Starting, Method::ConnectionStartOk(start_ok)) => self.on_start_ok(start_ok),
            (Stage::Tuning, Method::ConnectionTuneOk(tune_ok)) => self.on_tune_ok(&tune_ok),
            (Stage::Opening, Method::ConnectionOpen(open)) => {
                self.core.peer.vhost = open.virtual_host.to_owned_bytes();
                let token = self.core.ask(Request::OpenVhost(self.core.peer.vhost.clone()));
                self.stage = Stage::OpeningVhost { token };
                Ok(())
            }
            (Stage::Open { .. }, Method::ConnectionUpdateSecret(update)) => {
                let secret = self.core.ask(Request::UpdateSecret(update.new_secret));
                self.stage = Stage::Open { secret: Some(secret) };
                Ok(())
            }
            // RabbitMQ accepts it only on an open connection; this server answers it at any earlier stage.
            (_, Method::ConnectionClose(_)) => {
                self.on_client_close();
                Ok(())
            }
            (stage, _) => Err(Refusal::unexpected_method(stage.name())),
        }
    }

    fn on_start_ok(&mut self, start_ok: ConnectionStartOk) -> Result<(), Refusal> {
        let ConnectionStartOk { client_properties, mechanism: name, response, .. } = start_ok;
        self.core.peer.can = capabilities(&client_properties);
        if client_properties.raw().len() <= CLIENT_PROPERTIES_BYTES_MAX {
            self.core.peer.client_properties = client_properties.to_owned_bytes();
        }
        let known = [Mechanism::Plain, Mechanism::AmqPlain, Mechanism::External, Mechanism::Anonymous];
        let mechanism = known.into_iter().find(|known| known.name().as_bytes() == &name[..]);
        let mechanism = mechanism.ok_or_else(|| Refusal::unknown_mechanism(&name))?;
        if !self.core.settings.mechanisms.contains(&mechanism) {
            return Err(Refusal::invalid_mechanism(&name));
        }
        let credentials = match mechanism {
            Mechanism::Plain => plain(&response)?,
            Mechanism::AmqPlain => amqplain(response)?,
            Mechanism::External => Credentials::External,
            // The client's trace information is informational (RFC 4505).
            Mechanism::Anonymous => Credentials::Anonymous,
        };
        let token = self.core.ask(Request::Authenticate(credentials));
        self.stage = Stage::Authenticating { token, mechanism };
        Ok(())
    }

    fn on_tune_ok(&mut self, tune_ok: &ConnectionTuneOk) -> Result<(), Refusal> {
        let settings = &self.core.settings;
        negotiated("frame_max", tune_ok.frame_max, settings.frame_bytes_max_min, settings.frame_bytes_max)?;
        negotiated("channel_max", tune_ok.channel_max.into(), 1, settings.channel_max.into())?;
        self.core.frame_bytes_max = tune_ok.frame_max;
        self.channel_max = tune_ok.channel_max;
        self.clock.heartbeat_ms = u64::from(tune_ok.heartbeat) * 1000;
        self.stage = Stage::Opening;
        Ok(())
    }

    pub(super) fn on_handshake_reply(&mut self, answered: Answered, reply: Reply, now_ms: u64) {
        match (answered, reply) {
            (Answered::Login(_), Reply::Authenticated { user, impersonator }) => {
                self.core.peer.user = user;
                self.core.peer.impersonator = impersonator;
                let settings = &self.core.settings;
                let tune = ConnectionTune {
                    channel_max: settings.channel_max,
                    frame_max: settings.frame_bytes_max,
                    heartbeat: settings.heartbeat_seconds,
                };
                self.send(tune);
                self.stage = Stage::Tuning;
            }
            (Answered::Login(mechanism), Reply::Refused(refusal)) if refusal.code == Code::AccessRefused => {
                self.on_login_refused(mechanism, now_ms);
            }
            (Answered::Vhost, Reply::Done) => {
                self.stage = Stage::Open { secret: None };
                self.send(ConnectionOpenOk::default());
            }
            // The connection is over anyway.
            (Answered::End, _) => self.wait_for_client_close(now_ms),
            (Answered::Login(_), Reply::Refused(refusal)) => self.close(ConnectionStartOk::ID, refusal, now_ms),
            (Answered::Vhost, Reply::Refused(refusal)) => self.close(ConnectionOpen::ID, refusal, now_ms),
            (Answered::Login(_) | Answered::Vhost, _) => {
                let refusal = Refusal::internal("the broker's reply does not match the request");
                self.close(MethodId::NONE, refusal, now_ms);
            }
        }
    }

    /// A client that cannot receive the refusal is kept waiting, which also slows down password guessing.
    fn on_login_refused(&mut self, mechanism: Mechanism, now_ms: u64) {
        if self.core.peer.can.authentication_failure_close {
            self.close(MethodId::NONE, Refusal::login_refused(mechanism.name()), now_ms);
        } else {
            let until_ms = now_ms.saturating_add(self.core.settings.refused_login_ms);
            self.stage = Stage::Silent { until_ms };
        }
    }
}
