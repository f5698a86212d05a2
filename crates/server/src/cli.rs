//! The command line.

mod access;
mod args;
mod ask;
mod backup;
mod check;
mod completions;
mod config;
mod consume;
mod doctor;
mod groups;
mod moving;
mod output;
mod pairs;
mod permissions;
mod produce;
mod queues;
mod quotas;
mod routing;
mod settings;
mod time;
mod topics;
mod users;

pub use args::Cli;

use crate::client::ClientError;
use crate::options::{ADMIN_PASSWORD_VARIABLE, LoginPolicy, OptionError, Resolved, ServerConfig, Sources};
use crate::serve::{self, StartError};
use crate::users::Password;
use args::{Command, GroupCommand, ServeArgs, TopicCommand};
use clap::Parser;
use output::Out;
use std::io::{self, IsTerminal};
use std::net::IpAddr;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// The exit code of a command that was understood and failed.
const FAILED: u8 = 1;
/// The exit code of a command or configuration that cannot be: the same as clap's for a bad command line.
const USAGE: u8 = 2;

/// What a server calls it that wants to know who somebody is, and what helps.
const NOT_LOGGED_IN: &str = "not_logged_in";
const HOW_TO_LOG_IN: &str = "give --user NAME, and its password in the variable POLYLOGUE_PASSWORD";

/// Why a command failed.
#[derive(Debug)]
enum Failure {
    /// The configuration or the arguments cannot be.
    Usage(String),
    /// A server says no, or cannot be reached.
    Client(ClientError),
    /// Anything else, in one line.
    Other(String),
    /// Nobody reads what is written any more (`... | head`). That is no failure.
    Unread,
    /// It has said everything itself, and the answer is no: `check` of a damaged directory.
    Told,
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

/// Runs what the command line says.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let json = cli.json;
    let (code, name, text) = match run(cli) {
        Ok(()) | Err(Failure::Unread) => return ExitCode::SUCCESS,
        Err(Failure::Told) => return ExitCode::from(FAILED),
        Err(Failure::Usage(text)) => (USAGE, "invalid_request".to_owned(), text),
        Err(Failure::Client(e)) if e.code == NOT_LOGGED_IN => {
            (FAILED, e.code, format!("{}: {HOW_TO_LOG_IN}", e.message))
        }
        Err(Failure::Client(e)) => (FAILED, e.code, e.message),
        Err(Failure::Other(text)) => (FAILED, "failed".to_owned(), text),
    };
    if json {
        let error = crate::api::ErrorObject { code: name, message: text };
        eprintln!("{}", serde_json::json!(crate::api::ErrorBody { error }));
    } else {
        eprintln!("polylogue: {}", text.replace('\n', " "));
    }
    ExitCode::from(code)
}

fn run(cli: Cli) -> Result<(), Failure> {
    let out = Out::new(cli.json);
    match cli.command {
        Command::Serve(args) => serve(&args, cli.json),
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
        Command::Doctor(args) => doctor::run(&args, &out),
        Command::Completions(args) => completions::run(&args),
        Command::Version => version(&out),
    }
}

fn serve(args: &ServeArgs, json: bool) -> Result<(), Failure> {
    let resolved = resolve(args)?;
    let config = ServerConfig::from_resolved(&resolved)?;
    start_logging(&config)?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    if config.login == LoginPolicy::Never && !config.listeners.iter().all(|one| is_loopback(&one.bind.host)) {
        tracing::warn!("server.login = never: whoever reaches a kafka or http listener may do everything");
    }
    let admin = std::env::var(ADMIN_PASSWORD_VARIABLE).ok().and_then(Password::given);
    Ok(serve::run(&config, resolved.settings(), admin, json)?)
}

/// Whether an address, as written, is one of this machine alone.
fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The options that hold under these arguments and this environment.
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

fn start_logging(config: &ServerConfig) -> Result<(), Failure> {
    let wrong =
        |e: &dyn std::fmt::Display| Failure::Usage(format!("server.log_filter = \"{}\": {e}", config.log_filter));
    let filter = EnvFilter::try_new(&config.log_filter).map_err(|e| wrong(&e))?;
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
