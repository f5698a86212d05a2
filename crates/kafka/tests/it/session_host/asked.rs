//! A connection to a listener that requires a login.

use super::Host;
use super::users::{DELAY_MS, Users};
use polylogue_kafka::session::CloseReason;
use polylogue_kafka::settings::KafkaSettings;
use polylogue_kafka_codec::ErrorCode;
use polylogue_kafka_codec::metadata::MetadataRequest;
use polylogue_kafka_codec::sasl_authenticate::{SaslAuthenticateRequest, SaslAuthenticateResponse};
use std::sync::Arc;

/// The connection and its users.
pub struct Asked {
    pub host: Host,
    pub users: Arc<Users>,
}

impl Asked {
    pub fn new() -> Asked {
        Asked::with(KafkaSettings::default())
    }

    pub fn with(settings: KafkaSettings) -> Asked {
        let users = Arc::new(Users::default());
        Asked { host: Host::with(settings).asking(users.clone()), users }
    }

    /// Sends a token of the chosen mechanism.
    pub fn token(&mut self, version: i16, token: &str) -> SaslAuthenticateResponse {
        self.host.ask(version, &SaslAuthenticateRequest { auth_bytes: token.to_owned().into() })
    }

    /// Returns the error for a refused token, which is delayed and closes the connection.
    pub fn refused(&mut self, token: &str) -> String {
        self.host.send(2, &SaslAuthenticateRequest { auth_bytes: token.to_owned().into() });
        assert_eq!((self.host.response_frame(), self.host.deadline_in()), (None, Some(DELAY_MS)));
        self.host.pass(DELAY_MS);
        let response = self.host.response::<SaslAuthenticateRequest>(2);
        assert_eq!(response.error_code, ErrorCode::SaslAuthenticationFailed.code());
        assert!(matches!(self.host.close_reason(), Some(CloseReason::Login { .. })));
        response.error_message.unwrap().to_string()
    }

    /// Whether the client is served as an authenticated one.
    pub fn is_served(&mut self) -> bool {
        self.host.send(12, &MetadataRequest::default());
        self.host.response_frame().is_some()
    }

    /// Takes the reported logins.
    pub fn reported(&self) -> Vec<String> {
        std::mem::take(&mut self.users.reported.lock().unwrap())
    }
}
