//! The command line.
//!
//! Layer 5, below `server`: sends requests by the types of `admin::api` and by the Kafka protocol. `polylogue serve` calls the function passed to
//! [`main`]; `check`, `repair`, `backup` and `restore` open a data directory themselves.

mod access;
mod args;
mod ask;
mod backup;
mod check;
pub mod client;
mod completions;
mod config;
mod connections;
mod consume;
mod definitions;
mod doctor;
mod groups;
mod limits;
mod moving;
mod output;
mod pairs;
mod permissions;
mod policies;
mod produce;
mod profiles;
mod queues;
mod quotas;
mod routing;
mod settings;
mod shovels;
mod status;
mod time;
mod tls;
mod topics;
mod users;

pub use args::Cli;

use crate::client::{ClientError, INVALID};
use args::{Command, GroupCommand, ServeArgs, TopicCommand};
use clap::Parser;
use output::Out;
use polylogue_config::{ADMIN_PASSWORD_VARIABLE, LoginPolicy, OptionError, Resolved, ServerConfig, Setting, Sources};
use polylogue_net::users::Password;
use std::fmt;
use std::io::{self, IsTerminal};
use std::net::IpAddr;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// Why a server did not start, in one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StartError(pub String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

/// Runs a server until it is stopped. Arguments: the configuration, the options to show, the password of the first administrator if one is set,
/// and whether standard output is JSON.
pub type Serve = fn(&ServerConfig, Vec<Setting>, Option<Password>, bool) -> Result<(), StartError>;

/// The exit code of a valid command that failed.
const FAILED: u8 = 1;
/// The exit code of an invalid command or configuration: the same as clap's.
const USAGE: u8 = 2;

/// The error code of a required login, and the hint.
const NOT_LOGGED_IN: &str = "not_logged_in";
const HOW_TO_LOG_IN: &str = "give --user NAME, and its password in the variable POLYLOGUE_PASSWORD";

/// Why a command failed.
#[derive(Debug)]
enum Failure {
    /// The configuration or the arguments are invalid.
    Usage(String),
    /// The server cannot be reached or returned an error.
    Client(ClientError),
    /// Any other error, in one line.
    Other(String),
    /// Standard output was closed by its reader (`... | head`). Not an error.
    Unread,
    /// The command has reported everything, and its result is negative: `check` of a damaged directory.
    Reported,
}

impl Failure {
    /// Returns the error's text.
    fn text(self) -> String {
        match self {
            Failure::Usage(text) | Failure::Other(text) => text,
            Failure::Client(error) => error.message,
            Failure::Unread | Failure::Reported => String::new(),
        }
    }
}

impl From<OptionError> for Failure {
    fn from(e: OptionError) -> Failure {
        Failure::Usage(e.0)
    }
}

impl From<StartError> for Failure {
    fn from(e: StartError) -> Failure {
        Failure::Other(e.0)
    }
}

impl From<ClientError> for Failure {
    fn from(e: ClientError) -> Failure {
        Failure::Client(e)
    }
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Failure {
        if e.kind() == io::ErrorKind::BrokenPipe { Failure::Unread } else { Failure::Other(e.to_string()) }
    }
}

/// Runs a command line.
#[must_use]
pub fn main(server: Serve) -> ExitCode {
    let cli = Cli::parse();
    let json = cli.json;
    let (code, name, text) = match run(cli, server) {
        Ok(()) | Err(Failure::Unread) => return ExitCode::SUCCESS,
        Err(Failure::Reported) => return ExitCode::from(FAILED),
        Err(Failure::Usage(text)) => (USAGE, "invalid_request".to_owned(), text),
        Err(Failure::Client(e)) if e.code == NOT_LOGGED_IN => {
            (FAILED, e.code, format!("{}: {HOW_TO_LOG_IN}", e.message))
        }
        Err(Failure::Client(e)) if e.code == INVALID => (USAGE, "invalid_request".to_owned(), e.message),
        Err(Failure::Client(e)) => match command_that_lists(&e.code) {
            Some(command) => (FAILED, e.code, format!("{} (`polylogue {command}` lists all)", e.message)),
            None => (FAILED, e.code, e.message),
        },
        Err(Failure::Other(text)) => (FAILED, "failed".to_owned(), text),
    };
    if json {
        let error = polylogue_admin::api::ErrorObject { code: name, message: text };
        eprintln!("{}", serde_json::json!(polylogue_admin::api::ErrorBody { error }));
    } else {
        eprintln!("polylogue: {}", text.replace('\n', " "));
    }
    ExitCode::from(code)
}

/// Returns the command that lists what an error is about, if that does not exist.
fn command_that_lists(code: &str) -> Option<&'static str> {
    Some(match code {
        "unknown_topic" => "topic list --all",
        "unknown_group" => "group list",
        "unknown_vhost" => "vhost list",
        "unknown_queue" => "queue list",
        "unknown_exchange" => "exchange list",
        _ => return None,
    })
}

fn run(cli: Cli, server: Serve) -> Result<(), Failure> {
    let out = Out::new(cli.json);
    match cli.command {
        Command::Serve(args) => serve(&args, cli.json, server),
        Command::Config(args) => config::run(&args, &out),
        Command::Topic(TopicCommand::Create(args)) => topics::create(&args, &out),
        Command::Topic(TopicCommand::List(args)) => topics::list(&args, &out),
        Command::Topic(TopicCommand::Describe(args)) => topics::describe(&args, &out),
        Command::Topic(TopicCommand::Alter(args)) => topics::alter(&args, &out),
        Command::Topic(TopicCommand::Delete(args)) => topics::delete(&args, &out),
        Command::Group(GroupCommand::List(args)) => groups::list(&args, &out),
        Command::Group(GroupCommand::Describe(args)) => groups::describe(&args, &out),
        Command::Group(GroupCommand::Reset(args)) => groups::reset(&args, &out),
        Command::Group(GroupCommand::Delete(args)) => groups::delete(&args, &out),
        Command::Queue(command) => queues::run(&command, &out),
        Command::Exchange(command) => routing::exchanges(&command, &out),
        Command::Binding(command) => routing::bindings(&command, &out),
        Command::Vhost(command) => routing::vhosts(&command, &out),
        Command::Policy(command) => policies::run(&command, &out),
        Command::Definitions(command) => definitions::run(&command, &out),
        Command::Shovel(command) => shovels::run(&command, &out),
        Command::Federation(command) => shovels::federation(&command, &out),
        Command::Connection(command) => connections::run(&command, &out),
        Command::User(command) => users::run(&command, &out),
        Command::Permission(command) => permissions::run(&command, &out),
        Command::Acl(command) => access::run(&command, &out),
        Command::Quota(command) => quotas::run(&command, &out),
        Command::Produce(args) => produce::run(&args, &out),
        Command::Consume(args) => consume::run(&args, &out),
        Command::Backup(args) => backup::backup(&args, &out),
        Command::Restore(args) => backup::restore(&args, &out),
        Command::Check(args) => check::check(&args, &out),
        Command::Repair(args) => check::repair(&args, &out),
        Command::Status(at) => status::run(&at, &out),
        Command::Doctor(args) => doctor::run(&args, &out),
        Command::Profile(command) => profiles::run(&command, &out),
        Command::Tls(command) => tls::run(&command, &out),
        Command::Completions(args) => completions::run(&args),
        Command::Version => version(&out),
    }
}

fn serve(args: &ServeArgs, json: bool, server: Serve) -> Result<(), Failure> {
    let resolved = resolve(args)?;
    let config = ServerConfig::from_resolved(&resolved)?;
    start_logging(&config)?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    if config.login == LoginPolicy::Never && !config.listeners.iter().all(|one| is_loopback(&one.bind.host)) {
        tracing::warn!("server.login = never: every client that reaches a kafka or http listener has full access");
    }
    let admin = std::env::var(ADMIN_PASSWORD_VARIABLE).ok().and_then(Password::given);
    Ok(server(&config, resolved.settings(), admin, json)?)
}

/// Whether a configured address is a loopback address.
fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Resolves the options from these arguments and the environment.
fn resolve(args: &ServeArgs) -> Result<Resolved, Failure> {
    let utf8 = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let sources = Sources {
        file: args.config.clone(),
        variables: std::env::vars_os().filter_map(utf8).collect(),
        command_line: args.given().map_err(Failure::Usage)?,
    };
    Ok(Resolved::from_sources(&sources)?)
}

/// Returns a log filter whose level for `polylogue_server` also applies to the other crates of the server; a directive that names one of these
/// takes precedence.
fn with_parts_of_server(filter: &str) -> String {
    const PARTS: [&str; 5] =
        ["polylogue_net", "polylogue_admin", "polylogue_rabbitmq_http", "polylogue_bridges", "polylogue_cli"];
    let levels = filter.split(',').filter_map(|directive| directive.strip_prefix("polylogue_server="));
    let of_parts = levels.flat_map(|level| PARTS.map(|part| format!("{part}={level}")));
    of_parts.chain([filter.to_owned()]).collect::<Vec<_>>().join(",")
}

fn start_logging(config: &ServerConfig) -> Result<(), Failure> {
    let wrong =
        |e: &dyn std::fmt::Display| Failure::Usage(format!("server.log_filter = \"{}\": {e}", config.log_filter));
    let filter = EnvFilter::try_new(with_parts_of_server(&config.log_filter)).map_err(|e| wrong(&e))?;
    let color = output::wants_color() && io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(color);
    let started = if config.log_json { builder.json().try_init() } else { builder.try_init() };
    started.map_err(|e| wrong(&e))
}

fn version(out: &Out) -> Result<(), Failure> {
    let version = env!("CARGO_PKG_VERSION");
    if out.json {
        return out.value(&serde_json::json!({ "version": version }));
    }
    out.line(&format!("polylogue {version}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_filter_for_the_server_holds_for_its_parts() {
        for plain in ["info", "info,polylogue_log=debug", "polylogue_server::serve=debug", ""] {
            assert_eq!(with_parts_of_server(plain), plain);
        }
        let filter = with_parts_of_server("info,polylogue_server=debug,polylogue_net=warn");
        assert!(filter.starts_with("polylogue_net=debug,polylogue_admin=debug,"), "{filter}");
        assert!(filter.ends_with("polylogue_cli=debug,info,polylogue_server=debug,polylogue_net=warn"), "{filter}");
        let parsed = EnvFilter::try_new(filter).expect("a filter").to_string();
        assert!(parsed.contains("polylogue_net=warn") && !parsed.contains("polylogue_net=debug"), "{parsed}");
    }
}
