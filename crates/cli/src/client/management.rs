//! A client of RabbitMQ's management API, for what polylogue's own API does not have.

use super::http::{HttpClient, WRONG_LOGIN};
use super::{ClientError, Login, lookup};
use crate::NOT_LOGGED_IN;
use polylogue_admin::api::Status;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;

/// The listener that serves it.
const PROTOCOL: &str = "rabbitmq-http";
/// The user of RabbitMQ's tools if none is given; it may log in on this machine only.
const GUEST: &str = "guest";
/// The API's code for an object that does not exist.
const NOT_FOUND: &str = "not_found";

/// See the module. Each request has the text for an object that does not exist: the API says only that.
#[derive(Debug)]
pub(crate) struct Management {
    http: HttpClient,
    /// Whether no user was given.
    is_guest: bool,
}

impl Management {
    /// Finds the listener of this server.
    ///
    /// # Errors
    /// The server cannot be reached, or has no such listener.
    pub(crate) fn of(server: &HttpClient, login: Option<&Login>, ca: Option<&Path>) -> Result<Management, ClientError> {
        let status: Status = server.get("/status")?;
        let is_secured = server.server().starts_with("https://");
        let listener = lookup::listener_of(&status, PROTOCOL, is_secured).ok_or_else(|| {
            let text = format!(
                "this command uses RabbitMQ's management API, which {} does not serve: start the broker with \
                 --listen rabbitmq-http=127.0.0.1:15672",
                server.server()
            );
            ClientError::new("no_address", text)
        })?;
        let scheme = if listener.tls { "https" } else { "http" };
        let url = format!("{scheme}://{}", lookup::address_of(listener, lookup::host_of(server.server())));
        let guest = Login { user: GUEST.to_owned(), password: GUEST.to_owned() };
        let http = HttpClient::management(&url, login.unwrap_or(&guest), ca);
        Ok(Management { http, is_guest: login.is_none() })
    }

    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str, missing: &str) -> Result<T, ClientError> {
        self.http.get(path).map_err(|error| self.named(error, missing))
    }

    pub(crate) fn put<B: Serialize>(&self, path: &str, body: &B, missing: &str) -> Result<(), ClientError> {
        self.http.put(path, body).map_err(|error| self.named(error, missing))
    }

    pub(crate) fn post<B: Serialize>(&self, path: &str, body: &B, missing: &str) -> Result<(), ClientError> {
        self.http.tell(path, body).map_err(|error| self.named(error, missing))
    }

    pub(crate) fn delete(&self, path: &str, missing: &str) -> Result<(), ClientError> {
        self.http.delete(path).map_err(|error| self.named(error, missing))
    }

    fn named(&self, error: ClientError, missing: &str) -> ClientError {
        match error.code.as_str() {
            NOT_FOUND => ClientError::new(NOT_FOUND, missing),
            WRONG_LOGIN if self.is_guest => {
                let text = "RabbitMQ's management API requires a user, and guest may not log in";
                ClientError::new(NOT_LOGGED_IN, text)
            }
            _ => error,
        }
    }
}
