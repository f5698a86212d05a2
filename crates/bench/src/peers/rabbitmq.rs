//! RabbitMQ from Debian's packages: unpacked into a folder, started on the loopback with its data in a folder of its own.
//!
//! ```text
//!   peers/rabbitmq/packages/*.deb     as they were fetched
//!   peers/rabbitmq/usr/lib/...        as they are unpacked; nothing is installed, so no service starts
//!   peers/rabbitmq/bin/erl            finds Erlang here: Debian's own looks in /usr only
//! ```
//!
//! `epmd`, which Erlang starts as a daemon of the whole machine, is started before it as a process of its own, on a port of its
//! own: so all that is started is ended.

use super::succeed;
use crate::error::{BenchError, Context, Result};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The packages: the broker, and the parts of Erlang that it needs.
const PACKAGES: [&str; 18] = [
    "rabbitmq-server",
    "erlang-asn1",
    "erlang-base",
    "erlang-crypto",
    "erlang-eldap",
    "erlang-ftp",
    "erlang-inets",
    "erlang-mnesia",
    "erlang-os-mon",
    "erlang-parsetools",
    "erlang-public-key",
    "erlang-runtime-tools",
    "erlang-snmp",
    "erlang-ssl",
    "erlang-syntax-tools",
    "erlang-tftp",
    "erlang-tools",
    "erlang-xmerl",
];
/// What runs Erlang from where it was unpacked.
const ERL: &str = r#"#!/bin/sh
ROOTDIR=$(dirname "$(dirname "$0")")/usr/lib/erlang
BINDIR=$(echo "$ROOTDIR"/erts-*/bin)
EMU=beam
PROGNAME=erl
export ROOTDIR BINDIR EMU PROGNAME
exec "$BINDIR/erlexec" "$@"
"#;

/// Fetches RabbitMQ into the folder `to`, unless it is there.
///
/// # Errors
/// When there is no apt-get or no dpkg-deb, or the packages cannot be had.
pub fn install_rabbitmq(to: &Path) -> Result<()> {
    let (packages, erl) = (to.join("packages"), to.join("bin/erl"));
    if erl.exists() {
        return Ok(());
    }
    let made = |folder: &Path| std::fs::create_dir_all(folder).context(|| format!("cannot make {}", folder.display()));
    made(&packages)?;
    made(&to.join("bin"))?;
    let hint = "run apt-get update once, on a Debian of version 12 or later";
    succeed(Command::new("apt-get").args(["-qq", "download"]).args(PACKAGES).current_dir(&packages), hint)?;
    let fetched = std::fs::read_dir(&packages).context(|| format!("cannot list {}", packages.display()))?;
    for package in fetched.flatten() {
        succeed(Command::new("dpkg-deb").arg("-x").arg(package.path()).arg(to), "is the package whole?")?;
    }
    // Last, because it says that all is there.
    let said = || format!("cannot write {}", erl.display());
    std::fs::write(&erl, ERL).context(said)?;
    std::fs::set_permissions(&erl, std::fs::Permissions::from_mode(0o755)).context(said)
}

/// Ports of the loopback for one node.
#[derive(Debug, Clone, Copy)]
pub struct Ports {
    /// For clients.
    pub amqp: u16,
    /// For other nodes.
    pub nodes: u16,
    /// Where nodes are found.
    pub epmd: u16,
}

/// A RabbitMQ that is to be started.
#[derive(Debug)]
pub struct Rabbitmq<'a> {
    /// The folder that it was unpacked into.
    pub unpacked: &'a Path,
    /// The folder of this run.
    pub place: &'a Path,
    /// Its ports.
    pub ports: Ports,
}

impl Rabbitmq<'_> {
    /// The command that runs `epmd`.
    ///
    /// # Errors
    /// When RabbitMQ is not installed.
    pub fn epmd(&self) -> Result<Command> {
        let mut command = Command::new(self.found("usr/lib/erlang", "erts-")?.join("bin/epmd"));
        command.args(["-address", "127.0.0.1", "-port", &self.ports.epmd.to_string()]);
        Ok(command)
    }

    /// Writes its settings, and gives the command that runs it: the process is Erlang's, without a shell around it.
    ///
    /// # Errors
    /// When RabbitMQ is not installed, or the settings cannot be written.
    pub fn command(&self) -> Result<Command> {
        let home = self.found("usr/lib/rabbitmq/lib", "rabbitmq_server-")?;
        let kept = |name: &str, text: &str| {
            let file = self.place.join(name);
            std::fs::write(&file, text).context(|| format!("cannot write {}", file.display())).map(|()| file)
        };
        let settings = kept("rabbitmq.conf", &format!("listeners.tcp.local = 127.0.0.1:{}\n", self.ports.amqp))?;
        let plugins = kept("enabled_plugins", "[].\n")?;
        let environment = kept("rabbitmq-env.conf", "")?;
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(home.join("sbin/rabbitmq-server"));
        command
            .env("PATH", format!("{}:{path}", self.unpacked.join("bin").display()))
            .env("HOME", self.place)
            .env("RABBITMQ_NODENAME", "bench@localhost")
            .env("RABBITMQ_MNESIA_BASE", self.place.join("data"))
            .env("RABBITMQ_LOG_BASE", self.place.join("log"))
            .env("RABBITMQ_CONFIG_FILE", settings)
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", plugins)
            .env("RABBITMQ_CONF_ENV_FILE", environment)
            .env("RABBITMQ_DIST_PORT", self.ports.nodes.to_string())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("ERL_EPMD_PORT", self.ports.epmd.to_string())
            .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1}")
            // So the script becomes Erlang; else it stays, and passes signals on.
            .env("RUNNING_UNDER_SYSTEMD", "true");
        Ok(command)
    }

    /// The version that was unpacked.
    ///
    /// # Errors
    /// When RabbitMQ is not installed.
    pub fn version(unpacked: &Path) -> Result<String> {
        let home = found(unpacked, "usr/lib/rabbitmq/lib", "rabbitmq_server-")?;
        let name = home.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(name.trim_start_matches("rabbitmq_server-").to_owned())
    }

    fn found(&self, folder: &str, start: &str) -> Result<PathBuf> {
        found(self.unpacked, folder, start)
    }
}

/// The one entry of a folder whose name starts like that: it ends with a version.
fn found(unpacked: &Path, folder: &str, start: &str) -> Result<PathBuf> {
    let folder = unpacked.join(folder);
    let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(start));
    let found = named.next().map(|entry| entry.path());
    found.ok_or_else(|| BenchError::new(format!("{} has no {start}*; run peers install rabbitmq", folder.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_installed_is_told() {
        let place = Path::new("nowhere");
        let ports = Ports { amqp: 1, nodes: 2, epmd: 3 };
        let told = Rabbitmq { unpacked: place, place, ports }.command().expect_err("there is none").to_string();
        assert!(told.contains("peers install rabbitmq"), "{told}");
        assert!(Rabbitmq::version(place).is_err());
    }
}
