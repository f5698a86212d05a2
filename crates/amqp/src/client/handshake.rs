//! The handshake from the protocol header to `connection.open_ok`, and the later methods of channel 0.

use super::{Client, ClientEnd, ClientEvent};
use crate::codec::*;
use crate::settings::Mechanism;
use bytes::Bytes;

/// The smallest valid `frame_max`. Bytes.
const FRAME_BYTES_MAX_MIN: u32 = 4096;
/// Reply code 403, ACCESS_REFUSED.
const ACCESS_REFUSED: u16 = 403;

/// The stage of a connection's life.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// `connection.start` is awaited.
    Starting,
    /// The credentials were sent; `connection.tune` is awaited.
    Tuning,
    /// `connection.open_ok` is awaited.
    Opening,
    Open,
    /// `connection.close_ok` is awaited.
    Closing {
        until_ms: u64,
    },
    Over(ClientEnd),
}

/// The client properties, with all capabilities.
fn client_properties(connection_name: &str) -> Table {
    let mut capabilities = TableBuilder::new();
    for name in [
        "publisher_confirms",
        "exchange_exchange_bindings",
        "basic.nack",
        "consumer_cancel_notify",
        "connection.blocked",
        "authentication_failure_close",
    ] {
        capabilities = capabilities.with(name, Value::Bool(true));
    }
    let properties = TableBuilder::new()
        .with_text("product", "polylogue")
        .with_text("version", env!("CARGO_PKG_VERSION"))
        .with_table("capabilities", &capabilities.build());
    match connection_name {
        "" => properties.build(),
        name => properties.with_text("connection_name", name).build(),
    }
}

/// The lower of two limits; 0 is no limit.
fn lower(ours: u32, theirs: u32) -> u32 {
    match (ours, theirs) {
        (0, one) | (one, 0) => one,
        (ours, theirs) => ours.min(theirs),
    }
}

/// Longer cluster names are cut. Bytes.
const CLUSTER_NAME_BYTES_MAX: usize = 255;

fn cut(name: &[u8]) -> &[u8] {
    name.get(..CLUSTER_NAME_BYTES_MAX).unwrap_or(name)
}

impl Client {
    fn response(&self, mechanism: Mechanism) -> Bytes {
        let (user, password) = (&self.settings.user[..], &self.settings.password[..]);
        match mechanism {
            Mechanism::AmqPlain => {
                let table = TableBuilder::new();
                let table = table.with("LOGIN", Value::LongStr(user)).with("PASSWORD", Value::LongStr(password));
                table.build().raw().clone()
            }
            Mechanism::Anonymous => Bytes::new(),
            Mechanism::Plain | Mechanism::External => Bytes::from([b"\0", user, b"\0", password].concat()),
        }
    }

    fn on_start(&mut self, start: &ConnectionStart) {
        if (start.version_major, start.version_minor) != (0, 9) {
            return self.fail(format!("unsupported protocol version {}-{}", start.version_major, start.version_minor));
        }
        let name = start.server_properties.get("cluster_name");
        self.cluster_name = name.and_then(|name| name.as_longstr()).map(|name| Bytes::copy_from_slice(cut(name)));
        let offered = |mechanism: &Mechanism| {
            *mechanism != Mechanism::External
                && start.mechanisms.split(|byte| *byte == b' ').any(|name| name == mechanism.name().as_bytes())
        };
        let Some(mechanism) = self.settings.mechanisms.iter().copied().find(offered) else {
            let names = String::from_utf8_lossy(&start.mechanisms).chars().take(100).collect::<String>();
            self.stage =
                Stage::Over(ClientEnd::LoginRefused(format!("the server offers only the mechanisms '{names}'")));
            return;
        };
        let start_ok = ConnectionStartOk {
            client_properties: client_properties(&self.settings.connection_name),
            mechanism: mechanism.name().into(),
            response: self.response(mechanism),
            locale: "en_US".into(),
        };
        self.output.method(0, &start_ok.into());
        self.stage = Stage::Tuning;
    }

    fn on_tune(&mut self, tune: &ConnectionTune) {
        self.frame_bytes_max = lower(self.settings.frame_bytes_max, tune.frame_max);
        if self.frame_bytes_max < FRAME_BYTES_MAX_MIN {
            return self.fail(format!("invalid frame_max {}", tune.frame_max));
        }
        let channel_max = lower(self.settings.channel_max.into(), tune.channel_max.into());
        self.channel_max = u16::try_from(channel_max).unwrap_or(u16::MAX);
        let heartbeat = lower(self.settings.heartbeat_seconds.into(), tune.heartbeat.into());
        let heartbeat = u16::try_from(heartbeat).unwrap_or(u16::MAX);
        self.clock.heartbeat_ms = u64::from(heartbeat) * 1_000;
        let (channel_max, frame_max) = (self.channel_max, self.frame_bytes_max);
        self.output.method(0, &ConnectionTuneOk { channel_max, frame_max, heartbeat }.into());
        let open = ConnectionOpen { virtual_host: self.settings.vhost.clone(), ..Default::default() };
        self.output.method(0, &open.into());
        self.stage = Stage::Opening;
    }

    /// Handles a method of channel 0.
    pub(super) fn on_connection_method(&mut self, method: Method) {
        match (&self.stage, method) {
            (Stage::Over(_), _) => {}
            (Stage::Closing { .. }, Method::ConnectionCloseOk(_)) => self.stage = Stage::Over(ClientEnd::Done),
            (_, Method::ConnectionClose(close)) => {
                self.output.method(0, &ConnectionCloseOk {}.into());
                let text = close.reply_text.to_owned_bytes();
                self.stage = Stage::Over(match &self.stage {
                    Stage::Closing { .. } => ClientEnd::Done,
                    Stage::Tuning if close.reply_code == ACCESS_REFUSED => ClientEnd::LoginRefused(text.to_string()),
                    _ => ClientEnd::Server(close.reply_code, text),
                });
            }
            // Methods that were in flight when this side closed the connection.
            (Stage::Closing { .. }, _) => {}
            (Stage::Starting, Method::ConnectionStart(start)) => self.on_start(&start),
            (Stage::Tuning, Method::ConnectionTune(tune)) => self.on_tune(&tune),
            (Stage::Opening, Method::ConnectionOpenOk(_)) => {
                self.stage = Stage::Open;
                self.event(ClientEvent::Open);
            }
            (Stage::Open, Method::ConnectionBlocked(_)) => self.block(true),
            (Stage::Open, Method::ConnectionUnblocked(_)) => self.block(false),
            (_, method) => {
                let id = method.id();
                self.fail(format!("unexpected method {}", id.name().unwrap_or("a method")));
            }
        }
    }

    fn block(&mut self, paused: bool) {
        if std::mem::replace(&mut self.blocked, paused) != paused {
            self.event(ClientEvent::Paused { channel: 0, paused });
        }
    }
}
