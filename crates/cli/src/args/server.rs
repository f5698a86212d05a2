//! The server that a command connects to, and the login there.

use super::super::ask::ask_silently;
use super::super::profiles::{Profile, Profiles, password_of};
use crate::client::http::HttpClient;
use crate::client::kafka::KafkaClient;
use crate::client::management::Management;
use crate::client::{ClientError, INVALID, Login, lookup};
use clap::Args;
use polylogue_config::{
    BOOTSTRAP_VARIABLE, CA_VARIABLE, PASSWORD_VARIABLE, PROFILE_VARIABLE, SERVER_VARIABLE, USER_VARIABLE,
};
use polylogue_net::Trust;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Addresses without any option, variable or profile.
const SERVER: &str = "http://127.0.0.1:9600";
const BOOTSTRAP: &str = "127.0.0.1:9092";

/// The server that admin commands connect to.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// The server's http listener [default: http://127.0.0.1:9600] [env: POLYLOGUE_SERVER]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// CA certificates for https (PEM), or the server's own certificate; by default the system's [env: POLYLOGUE_CA]
    #[arg(long, value_name = "FILE")]
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
        let (Profile { server, bootstrap, tls, .. }, ca, login) =
            self.who.resolve(self.server.is_some(), self.ca.as_ref())?;
        let client = match (self.server.as_ref().or(server.as_ref()), bootstrap) {
            (Some(server), _) => HttpClient::new(server, login.as_ref(), ca.as_deref()),
            (None, Some(bootstrap)) => {
                let trust = trust(tls || ca.is_some(), ca.as_deref())?;
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
    /// The server's kafka listener [default: 127.0.0.1:9092, or that of the server of --server] [env: POLYLOGUE_BOOTSTRAP]
    #[arg(long, value_name = "HOST:PORT", value_parser = super::address)]
    bootstrap: Option<String>,
    /// The server's http listener, which is asked for its kafka listener [env: POLYLOGUE_SERVER]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Use TLS
    #[arg(long)]
    tls: bool,
    /// Use TLS with these CA certificates (PEM), or with the server's own certificate; by default the system's [env: POLYLOGUE_CA]
    #[arg(long, value_name = "FILE")]
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
        let has_address = self.bootstrap.is_some() || self.server.is_some();
        let (profile, ca, login) = self.who.resolve(has_address, self.ca.as_ref())?;
        let tls = self.tls || profile.tls;
        // Of two addresses the option is asked, also if it names the other listener.
        let given = self.bootstrap.clone().or_else(|| profile.bootstrap.filter(|_| self.server.is_none()));
        let (bootstrap, tls) = match (given, self.server.as_ref().or(profile.server.as_ref())) {
            (Some(bootstrap), _) => (bootstrap, tls || ca.is_some()),
            (None, Some(server)) => lookup::kafka_of(server, login.as_ref(), ca.as_deref(), tls)?,
            (None, None) => (BOOTSTRAP.to_owned(), tls || ca.is_some()),
        };
        KafkaClient::connect(&bootstrap, login.as_ref(), trust(tls, ca.as_deref())?.as_ref())
    }
}

fn trust(tls: bool, ca: Option<&Path>) -> Result<Option<Trust>, ClientError> {
    let trust = tls.then(|| Trust::load(ca)).transpose();
    trust.map_err(|why| ClientError::new("invalid_request", why))
}

/// Returns a variable that is set and not empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns the variables as a profile.
///
/// # Errors
/// One of them is invalid.
fn variables() -> Result<Profile, ClientError> {
    let bootstrap = variable(BOOTSTRAP_VARIABLE).map(|text| super::address(&text)).transpose();
    Ok(Profile {
        server: variable(SERVER_VARIABLE),
        bootstrap: bootstrap.map_err(|why| ClientError::new(INVALID, format!("{BOOTSTRAP_VARIABLE}: {why}")))?,
        ca: variable(CA_VARIABLE).map(PathBuf::from),
        user: variable(USER_VARIABLE),
        ..Profile::default()
    })
}

/// The login of commands that connect to a server.
#[derive(Debug, Args)]
pub(crate) struct LoginArgs {
    /// Addresses, CA and user of this profile; by default those of the profile in use, unless an address is given
    /// [env: POLYLOGUE_PROFILE]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// The user to log in as; the password is read from the variable POLYLOGUE_PASSWORD [env: POLYLOGUE_USER]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

impl LoginArgs {
    /// Returns the profile that applies, or the variables if there is none, with the CA and the login. Options take precedence over a profile, and
    /// it over variables.
    fn resolve(
        &self,
        has_address: bool,
        ca: Option<&PathBuf>,
    ) -> Result<(Profile, Option<PathBuf>, Option<Login>), ClientError> {
        let variables = variables()?;
        let has_variable = variables.server.is_some() || variables.bootstrap.is_some();
        let profile = match self.profile(has_address || has_variable)? {
            Some(profile) => Profile { user: profile.user.clone().or(variables.user), ..profile },
            // An address that was given is not joined by the other listener's of another server.
            None if has_address => Profile { server: None, bootstrap: None, ..variables },
            None => variables,
        };
        let login = self.login(&profile)?;
        Ok((profile.clone(), ca.cloned().or(profile.ca), login))
    }

    /// Returns the named profile, or the one in use. That belongs to its own addresses: its password is not for a server whose address was
    /// given.
    fn profile(&self, has_address: bool) -> Result<Option<Profile>, ClientError> {
        let invalid = |failure: crate::Failure| ClientError::new(INVALID, failure.text());
        if let Some(name) = self.profile.clone().or_else(|| variable(PROFILE_VARIABLE)) {
            return Profiles::of_user().and_then(|profiles| profiles.get(&name)).map(Some).map_err(invalid);
        }
        let Some(profiles) = Profiles::of_user().ok().filter(|_| !has_address) else { return Ok(None) };
        let name = profiles.current().map_err(invalid)?;
        name.map(|name| profiles.get(&name)).transpose().map_err(invalid)
    }

    /// Returns the user and the password: that of the profile's file, or of the variable, or one that is asked for once if there is a terminal.
    /// Else it is empty, and the server refuses it.
    fn login(&self, profile: &Profile) -> Result<Option<Login>, ClientError> {
        static ASKED: OnceLock<String> = OnceLock::new();
        let Some(user) = self.user.clone().or_else(|| profile.user.clone()) else { return Ok(None) };
        let file = profile.password_file.as_ref().filter(|_| profile.user.as_ref() == Some(&user));
        let password = match (file, std::env::var(PASSWORD_VARIABLE)) {
            (Some(file), _) => password_of(file).map_err(|failure| ClientError::new(INVALID, failure.text()))?,
            (None, Ok(password)) => password,
            (None, Err(_)) => {
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
