//! The server that a command connects to, and the login there.

use super::super::ask::ask_silently;
use super::super::profiles::{Profile, Profiles, password_of};
use crate::client::http::HttpClient;
use crate::client::kafka::KafkaClient;
use crate::client::management::Management;
use crate::client::{ClientError, Login, lookup};
use clap::Args;
use polylogue_config::{
    BOOTSTRAP_VARIABLE, CA_VARIABLE, PASSWORD_VARIABLE, PROFILE_VARIABLE, SERVER_VARIABLE, USER_VARIABLE,
};
use polylogue_net::Trust;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Addresses without any option, variable or profile.
const SERVER: &str = "http://127.0.0.1:9600";
const BOOTSTRAP: &str = "127.0.0.1:9092";

/// The server that admin commands connect to.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// The server's http listener [default: http://127.0.0.1:9600]
    #[arg(long, value_name = "URL", env = SERVER_VARIABLE)]
    server: Option<String>,
    /// CA certificates for https (PEM), or the server's own certificate; by default the system's
    #[arg(long, value_name = "FILE", env = CA_VARIABLE)]
    ca: Option<PathBuf>,
    #[command(flatten)]
    who: LoginArgs,
}

/// A server, and with what it is reached.
struct Reached {
    client: HttpClient,
    login: Option<Login>,
    ca: Option<PathBuf>,
}

impl ServerArgs {
    /// Returns a client for this server. An error of these arguments is that of the client's first request.
    pub(crate) fn client(&self) -> HttpClient {
        self.reach().map_or_else(HttpClient::failed, |reached| reached.client)
    }

    /// Returns a client of this server's management API.
    ///
    /// # Errors
    /// See [`Management::of`].
    pub(crate) fn management(&self) -> Result<Management, ClientError> {
        let Reached { client, login, ca } = self.reach()?;
        Management::of(&client, login.as_ref(), ca.as_deref())
    }

    fn reach(&self) -> Result<Reached, ClientError> {
        let bootstrap = variable(BOOTSTRAP_VARIABLE);
        let profile = self.who.profile(self.server.is_some() || bootstrap.is_some())?;
        let login = self.who.login(&profile)?;
        let ca = self.ca.clone().or(profile.ca);
        let client = match (self.server.as_ref().or(profile.server.as_ref()), profile.bootstrap.or(bootstrap)) {
            (Some(server), _) => HttpClient::new(server, login.as_ref(), ca.as_deref()),
            (None, Some(bootstrap)) => {
                let trust = trust(profile.tls || ca.is_some(), ca.as_deref())?;
                lookup::http_of(&bootstrap, login.as_ref(), trust.as_ref(), ca.as_deref())?
            }
            (None, None) => HttpClient::new(SERVER, login.as_ref(), ca.as_deref()),
        };
        Ok(Reached { client, login, ca })
    }
}

/// The server that `produce` and `consume` connect to.
#[derive(Debug, Args)]
pub(crate) struct BootstrapArgs {
    /// The server's kafka listener [default: 127.0.0.1:9092, or that of the server of --server]
    #[arg(long, value_name = "HOST:PORT", env = BOOTSTRAP_VARIABLE, value_parser = super::address)]
    bootstrap: Option<String>,
    /// The server's http listener, which is asked for its kafka listener
    #[arg(long, value_name = "URL", env = SERVER_VARIABLE)]
    server: Option<String>,
    /// Use TLS
    #[arg(long)]
    tls: bool,
    /// Use TLS with these CA certificates (PEM), or with the server's own certificate; by default the system's
    #[arg(long, value_name = "FILE", env = CA_VARIABLE)]
    ca: Option<PathBuf>,
    #[command(flatten)]
    who: LoginArgs,
}

impl BootstrapArgs {
    /// Connects to this server.
    ///
    /// # Errors
    /// See [`KafkaClient::connect`].
    pub(crate) fn connect(&self) -> Result<KafkaClient, ClientError> {
        let profile = self.who.profile(self.bootstrap.is_some() || self.server.is_some())?;
        let login = self.who.login(&profile)?;
        let ca = self.ca.clone().or(profile.ca);
        let tls = self.tls || profile.tls;
        let given = self.bootstrap.clone().or_else(|| profile.bootstrap.filter(|_| self.server.is_none()));
        let (bootstrap, tls) = match (given, self.server.as_ref().or(profile.server.as_ref())) {
            (Some(bootstrap), _) => (bootstrap, tls || ca.is_some()),
            (None, Some(server)) => lookup::kafka_of(server, login.as_ref(), ca.as_deref(), tls)?,
            (None, None) => (BOOTSTRAP.to_owned(), tls || ca.is_some()),
        };
        KafkaClient::connect(&bootstrap, login.as_ref(), trust(tls, ca.as_deref())?.as_ref())
    }
}

fn trust(tls: bool, ca: Option<&std::path::Path>) -> Result<Option<Trust>, ClientError> {
    let trust = tls.then(|| Trust::load(ca)).transpose();
    trust.map_err(|why| ClientError::new("invalid_request", why))
}

/// Returns a variable that is set and not empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The login of commands that connect to a server.
#[derive(Debug, Args)]
pub(crate) struct LoginArgs {
    /// Addresses, CA and user of this profile; by default those of the profile in use, unless an address is given
    #[arg(long, value_name = "NAME", env = PROFILE_VARIABLE)]
    profile: Option<String>,
    /// The user to log in as; the password is read from the variable POLYLOGUE_PASSWORD
    #[arg(long, value_name = "NAME", env = USER_VARIABLE)]
    user: Option<String>,
}

impl LoginArgs {
    /// Returns the profile that holds; an empty one if there is none. The one in use belongs to its own addresses: its password is not
    /// for a server whose address was given.
    fn profile(&self, has_address: bool) -> Result<Profile, ClientError> {
        let invalid = |failure: crate::Failure| ClientError::new("invalid_request", failure.text());
        if let Some(name) = self.profile.as_ref().filter(|name| !name.is_empty()) {
            return Profiles::of_user().and_then(|profiles| profiles.get(name)).map_err(invalid);
        }
        let Some(profiles) = Profiles::of_user().ok().filter(|_| !has_address) else { return Ok(Profile::default()) };
        match profiles.current().map_err(invalid)? {
            Some(name) => profiles.get(&name).map_err(invalid),
            None => Ok(Profile::default()),
        }
    }

    /// Returns the user and the password: that of the variable, or of the profile's file, or one that is asked for once if there is a terminal.
    /// Else it is empty, and the server refuses it.
    fn login(&self, profile: &Profile) -> Result<Option<Login>, ClientError> {
        static ASKED: OnceLock<String> = OnceLock::new();
        let Some(user) = self.user.clone().or_else(|| profile.user.clone()) else { return Ok(None) };
        let file = profile.password_file.as_ref().filter(|_| profile.user.as_ref() == Some(&user));
        let password = match (std::env::var(PASSWORD_VARIABLE), file) {
            (Ok(password), _) => password,
            (Err(_), Some(file)) => {
                password_of(file).map_err(|failure| ClientError::new("invalid_request", failure.text()))?
            }
            (Err(_), None) => {
                let ask = || match std::io::stdin().is_terminal() {
                    true => ask_silently(&format!("password of {user}: ")).unwrap_or_default(),
                    false => String::new(),
                };
                ASKED.get_or_init(ask).clone()
            }
        };
        Ok(Some(Login { user, password }))
    }
}
