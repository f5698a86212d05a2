//! RabbitMQ from Debian's packages: unpacked into a directory, started on the loopback with its data in a separate directory.
//!
//! ```text
//!   peers/rabbitmq/packages/*.deb     the fetched packages
//!   peers/rabbitmq/apt/               apt-get's state for the suite; the machine's own state is not touched
//!   peers/rabbitmq/usr/lib/...        unpacked; nothing is installed, so no service starts
//!   peers/rabbitmq/bin/erl            starts Erlang from here: Debian's own uses /usr only
//! ```
//!
//! Debian releases have an old RabbitMQ; the newest is in unreleased suites. Their packages need a newer C library, which is
//! unpacked too; its loader starts the programs.
//!
//! Erlang would start `epmd` as a daemon that outlives it. Instead, `epmd` is started first, as a child process on a port of its
//! own, and stopped with the broker.

use super::{Setting, put, succeed};
use crate::error::{BenchError, Context, Result};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::UNIX_EPOCH;

/// Suites of Debian, newest RabbitMQ first.
const SUITES: [&str; 2] = ["sid", "trixie"];
/// The keyring that verifies their packages.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
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
/// Dependencies of the packages of unreleased suites: the C library and others, and one more part of Erlang.
const DEPENDENCIES: [&str; 11] = [
    "erlang-eunit",
    "libc6",
    "libgcc-s1",
    "libstdc++6",
    "libtinfo6",
    "zlib1g",
    "libsystemd0",
    "libsctp1",
    "libssl3t64",
    "libzstd1",
    "libcap2",
];
/// Script: runs a program of Erlang with the unpacked loader and libraries.
const LOADED: &str = r#"#!/bin/sh
root=${0%/usr/lib/erlang/*}
exec "$root/LOADER" --library-path "$root/LIBRARIES" --argv0 "$0" "$0.bin" "$@"
"#;
/// Script: runs Erlang from the directory that it was unpacked into.
const ERL: &str = r#"#!/bin/sh
ROOTDIR=$(dirname "$(dirname "$0")")/usr/lib/erlang
BINDIR=$(echo "$ROOTDIR"/erts-*/bin)
EMU=beam
PROGNAME=erl
export ROOTDIR BINDIR EMU PROGNAME
exec "$BINDIR/erlexec" "$@"
"#;

/// Fetches RabbitMQ into the directory `to`, unless it exists.
///
/// # Errors
/// apt-get or dpkg-deb is missing, or the packages are not available.
pub fn install_rabbitmq(to: &Path) -> Result<()> {
    let (packages, erl) = (to.join("packages"), to.join("bin/erl"));
    if erl.exists() {
        return Ok(());
    }
    let made =
        |folder: &Path| std::fs::create_dir_all(folder).context(|| format!("cannot create {}", folder.display()));
    made(&packages)?;
    made(&to.join("bin"))?;
    let newest = SUITES.into_iter().map(|suite| fetch(to, &packages, suite)).find(Result::is_ok);
    if newest.is_none() {
        let hint = "run apt-get update once, on a Debian of version 12 or later";
        succeed(Command::new("apt-get").args(["-qq", "download"]).args(PACKAGES).current_dir(&packages), hint)?;
    }
    let fetched = std::fs::read_dir(&packages).context(|| format!("cannot list {}", packages.display()))?;
    for package in fetched.flatten() {
        succeed(Command::new("dpkg-deb").arg("-x").arg(package.path()).arg(to), "is the package complete?")?;
    }
    if newest.is_some() {
        use_unpacked_loader(to)?;
    }
    // Last, because it marks the installation as complete.
    script(&erl, ERL)
}

fn script(file: &Path, text: &str) -> Result<()> {
    let said = || format!("cannot write {}", file.display());
    std::fs::write(file, text).context(said)?;
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).context(said)
}

/// Fetches the packages of a suite, with a separate apt-get state.
fn fetch(to: &Path, packages: &Path, suite: &str) -> Result<()> {
    let state = to.join("apt").join(suite);
    for folder in ["lists/partial", "cache/archives/partial"] {
        std::fs::create_dir_all(state.join(folder)).context(|| format!("cannot create {}", state.display()))?;
    }
    let source = format!("deb [signed-by={KEYRING}] http://deb.debian.org/debian {suite} main\n");
    let sources = put(&state, "sources.list", &source)?;
    let status = put(&state, "status", "")?;
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.arg("-qq").current_dir(packages);
        for (name, value) in [
            ("Dir::Etc::sourcelist", sources.as_path()),
            ("Dir::Etc::sourceparts", Path::new("/nonexistent")),
            ("Dir::State::lists", &state.join("lists")),
            ("Dir::State::status", &status),
            ("Dir::Cache", &state.join("cache")),
        ] {
            command.arg("-o").arg(format!("{name}={}", value.display()));
        }
        succeed(command.args(["-o", "APT::Sandbox::User=root"]).args(arguments), "does this machine run Debian?")
            .map(drop)
    };
    apt(&["update"])?;
    apt(&[&["download"][..], &PACKAGES, &DEPENDENCIES].concat())
}

/// Replaces each program of Erlang by a script that starts it with the unpacked loader.
fn use_unpacked_loader(to: &Path) -> Result<()> {
    let lists = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_loader = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("ld-linux") && path.is_file()
    };
    let loader = lists(to.join("usr/lib")).filter(|path| path.is_dir()).flat_map(&lists).find(is_loader);
    let loader =
        loader.ok_or_else(|| BenchError::new("the fetched C library package (libc6) has no loader (ld-linux*)"))?;
    let inside = |path: &Path| path.strip_prefix(to).unwrap_or(path).display().to_string();
    let libraries = inside(loader.parent().unwrap_or(to));
    let text = LOADED.replace("LOADER", &inside(&loader)).replace("LIBRARIES", &libraries);
    let erlang = to.join("usr/lib/erlang");
    let own = lists(erlang.clone()).map(|path| path.join("bin"));
    let helpers = lists(erlang.join("lib")).map(|path| path.join("priv/bin"));
    for program in own.chain(helpers).flat_map(lists).filter(|path| is_elf(path)) {
        let kept = PathBuf::from(format!("{}.bin", program.display()));
        std::fs::rename(&program, &kept).context(|| format!("cannot move {}", program.display()))?;
        script(&program, &text)?;
    }
    Ok(())
}

fn is_elf(path: &Path) -> bool {
    use std::io::Read;
    let mut start = [0; 4];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == *b"\x7fELF"
}

/// A profile of RabbitMQ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// The defaults.
    Default,
    /// The recommendations of its guides.
    Tuned,
}

/// Sources of the tuned settings.
pub const SOURCES: [&str; 3] = [
    "rabbitmq.com/docs/production-checklist: memory watermark of 0.4 to 0.7, free disk space as large as that",
    "rabbitmq.com/docs/networking: buffers for throughput, Nagle's algorithm off",
    "rabbitmq.com/docs/runtime: no busy waiting of schedulers where processors are shared",
];
/// The runtime's flags of the tuned profile.
pub const ERLANG_TUNED: &str = "+sbwt none +sbwtdcpu none +sbwtdio none";

/// Returns the settings that differ from the defaults of this version, except ports and directories.
#[must_use]
pub fn settings(profile: Profile, version: &str) -> Vec<Setting> {
    let mut all = Vec::new();
    if version.split('.').next().and_then(|major| major.parse::<u32>().ok()).is_some_and(|major| major >= 4) {
        let why = "so that transient queues, which are deprecated, can still be measured";
        all.push(Setting::new("deprecated_features.permit.transient_nonexcl_queues", "true", why));
    }
    if profile == Profile::Tuned {
        all.extend([
            Setting::new("vm_memory_high_watermark.relative", "0.6", SOURCES[0]),
            Setting::new("disk_free_limit.absolute", "4GB", SOURCES[0]),
            Setting::new("tcp_listen_options.backlog", "4096", SOURCES[1]),
            Setting::new("tcp_listen_options.nodelay", "true", SOURCES[1]),
            Setting::new("tcp_listen_options.sndbuf", "196608", SOURCES[1]),
            Setting::new("tcp_listen_options.recbuf", "196608", SOURCES[1]),
        ]);
    }
    all
}

/// Loopback ports of one node.
#[derive(Debug, Clone, Copy)]
pub struct Ports {
    /// AMQP clients.
    pub amqp: u16,
    /// Clients of the stream protocol.
    pub streams: u16,
    /// Erlang distribution.
    pub nodes: u16,
    /// epmd.
    pub epmd: u16,
}

/// A RabbitMQ to start.
#[derive(Debug)]
pub struct Rabbitmq<'a> {
    /// The directory that it was unpacked into.
    pub unpacked: &'a Path,
    /// The directory of this run.
    pub place: &'a Path,
    /// The profile.
    pub profile: Profile,
    /// Its ports.
    pub ports: Ports,
}

impl Rabbitmq<'_> {
    /// Returns the command that runs `epmd`.
    ///
    /// # Errors
    /// RabbitMQ is not installed.
    pub fn epmd(&self) -> Result<Command> {
        let mut command = Command::new(self.found("usr/lib/erlang", "erts-")?.join("bin/epmd"));
        command.args(["-address", "127.0.0.1", "-port", &self.ports.epmd.to_string()]);
        Ok(command)
    }

    /// Writes its settings, and returns the command that runs it. The process becomes Erlang itself, without a shell around it.
    ///
    /// # Errors
    /// RabbitMQ is not installed, or the settings cannot be written.
    pub fn command(&self) -> Result<Command> {
        let home = self.found("usr/lib/rabbitmq/lib", "rabbitmq_server-")?;
        let kept = |name: &str, text: &str| {
            let file = self.place.join(name);
            std::fs::write(&file, text).context(|| format!("cannot write {}", file.display())).map(|()| file)
        };
        let settings = kept("rabbitmq.conf", &self.settings_file(&Rabbitmq::version(self.unpacked)?))?;
        let plugins = kept("enabled_plugins", "[rabbitmq_stream].\n")?;
        let environment = kept("rabbitmq-env.conf", "")?;
        let path = std::env::var("PATH").unwrap_or_default();
        let tuned = if self.profile == Profile::Tuned { ERLANG_TUNED } else { "" };
        let erlang = format!("-start_epmd false -kernel inet_dist_use_interface {{127,0,0,1}} {tuned}");
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
            .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", erlang)
            // With this variable the script replaces itself by Erlang; otherwise it stays as the parent and forwards signals.
            .env("RUNNING_UNDER_SYSTEMD", "true");
        Ok(command)
    }

    fn settings_file(&self, version: &str) -> String {
        let mut text = format!("listeners.tcp.local = 127.0.0.1:{}\n", self.ports.amqp);
        text.push_str(&format!("stream.listeners.tcp.local = 127.0.0.1:{}\n", self.ports.streams));
        for Setting { name, value, .. } in settings(self.profile, version) {
            text.push_str(&format!("{name} = {value}\n"));
        }
        text
    }

    /// Returns the date on which the unpacked version was packaged, from the times of its files.
    ///
    /// # Errors
    /// RabbitMQ is not installed.
    pub fn released(unpacked: &Path) -> Result<String> {
        let home = found(unpacked, "usr/lib/rabbitmq/lib", "rabbitmq_server-")?;
        let said = || format!("cannot read the modification time of {}/INSTALL", home.display());
        let modified = home.join("INSTALL").metadata().and_then(|found| found.modified()).context(said)?;
        let day = UNIX_EPOCH + modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(humantime::format_rfc3339_seconds(day).to_string().chars().take(10).collect())
    }

    /// Returns the unpacked version.
    ///
    /// # Errors
    /// RabbitMQ is not installed.
    pub fn version(unpacked: &Path) -> Result<String> {
        let home = found(unpacked, "usr/lib/rabbitmq/lib", "rabbitmq_server-")?;
        let name = home.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(name.trim_start_matches("rabbitmq_server-").to_owned())
    }

    fn found(&self, folder: &str, start: &str) -> Result<PathBuf> {
        found(self.unpacked, folder, start)
    }
}

/// Returns the only entry of a directory whose name is this prefix and a version.
fn found(unpacked: &Path, folder: &str, start: &str) -> Result<PathBuf> {
    let folder = unpacked.join(folder);
    let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(start));
    let found = named.next().map(|entry| entry.path());
    found.ok_or_else(|| {
        BenchError::new(format!("{} has no {start}*; run polylogue-bench peers install rabbitmq", folder.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTS: Ports = Ports { amqp: 1, streams: 4, nodes: 2, epmd: 3 };

    #[test]
    fn the_profiles_of_rabbitmq_differ_in_the_recommended_settings() {
        let place = Path::new("somewhere");
        let of = |profile, version| Rabbitmq { unpacked: place, place, profile, ports: PORTS }.settings_file(version);
        let old = of(Profile::Default, "3.10.8");
        assert_eq!(old, "listeners.tcp.local = 127.0.0.1:1\nstream.listeners.tcp.local = 127.0.0.1:4\n");
        let new = of(Profile::Default, "4.3.6");
        assert!(new.starts_with(&old) && new.contains("transient_nonexcl_queues = true\n"), "{new}");
        let tuned = of(Profile::Tuned, "4.3.6");
        assert!(tuned.starts_with(&new) && tuned.contains("tcp_listen_options.sndbuf = 196608\n"), "{tuned}");
    }

    #[test]
    fn a_missing_installation_is_an_error() {
        let place = Path::new("nowhere");
        let rabbitmq = Rabbitmq { unpacked: place, place, profile: Profile::Default, ports: PORTS };
        let stated = rabbitmq.command().expect_err("there is none").to_string();
        assert!(stated.contains("peers install rabbitmq"), "{stated}");
        assert!(Rabbitmq::version(place).is_err());
    }
}
