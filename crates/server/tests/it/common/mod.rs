//! The real binary in tests: on free ports, in a directory of its own, gone afterwards.
#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests of real processes")]

pub(crate) mod amqp;
pub(crate) mod broker;
pub(crate) mod rabbit;
pub(crate) mod tls;

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A directory that is removed when dropped.
pub(crate) struct TempDir(pub(crate) PathBuf);

impl TempDir {
    pub(crate) fn new() -> TempDir {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("polylogue-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The binary with a clean environment.
pub(crate) fn polylogue() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polylogue"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("POLYLOGUE_")) {
        command.env_remove(name);
    }
    command.env("NO_COLOR", "1").env_remove("COLUMNS").stdin(Stdio::null());
    // Without the profiles of the user who runs the tests.
    command.env("XDG_CONFIG_HOME", "/nonexistent");
    command
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs a command to its end.
pub(crate) fn done(command: &mut Command) -> Done {
    let output = command.output().unwrap();
    Done {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs a command that reads `input`.
pub(crate) fn done_with(command: &mut Command, input: &[u8]) -> Done {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    Done {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A running broker.
pub(crate) struct Server {
    child: Child,
    pub(crate) kafka: SocketAddr,
    pub(crate) http: SocketAddr,
    /// What it wrote before it was ready.
    pub(crate) lines: Vec<String>,
}

impl Server {
    /// Starts one and waits until it serves.
    pub(crate) fn start(data: &Path, more: &[&str]) -> Server {
        Server::start_telling(data, more, Stdio::inherit())
    }

    /// One whose first start makes the administrator `admin` with the password `admin`.
    pub(crate) fn start_with_admin(data: &Path, more: &[&str]) -> Server {
        Server::start_command(polylogue().env("POLYLOGUE_ADMIN_PASSWORD", "admin"), data, more, Stdio::inherit())
    }

    /// As [`Server::start`]; its log goes there.
    pub(crate) fn start_telling(data: &Path, more: &[&str], log: Stdio) -> Server {
        Server::start_command(&mut polylogue(), data, more, log)
    }

    /// Starts one by this command, its arguments excepted.
    pub(crate) fn start_command(command: &mut Command, data: &Path, more: &[&str], log: Stdio) -> Server {
        command.args(["serve", "--listen", "kafka=127.0.0.1:0", "--listen", "http=127.0.0.1:0", "--data"]).arg(data);
        command.args(more).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().unwrap();
        let mut lines = Vec::new();
        for line in BufReader::new(child.stdout.as_mut().unwrap()).lines() {
            let line = line.unwrap();
            let ready = line == "polylogue ready";
            lines.push(line);
            if ready {
                break;
            }
        }
        let at = |protocol: &str| {
            let prefix = format!("{protocol} listening on ");
            let line = lines.iter().find_map(|line| line.strip_prefix(&prefix)).expect("the server did not start");
            line.split(' ').next().unwrap().parse().unwrap()
        };
        let (kafka, http) = (at("kafka"), at("http"));
        Server { child, kafka, http, lines }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// A command that goes to this server.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = polylogue();
        command.env("POLYLOGUE_SERVER", format!("http://{}", self.http));
        command.env("POLYLOGUE_BOOTSTRAP", self.kafka.to_string());
        command.args(args);
        command
    }

    /// Runs a command that must succeed, and gives what it wrote.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let done = done(&mut self.command(args));
        assert_eq!(done.code, Some(0), "{args:?}: {}", done.err);
        done.out
    }

    /// As [`Server::ok`], with something to read.
    pub(crate) fn ok_with(&self, args: &[&str], input: &[u8]) -> String {
        let done = done_with(&mut self.command(args), input);
        assert_eq!(done.code, Some(0), "{args:?}: {}", done.err);
        done.out
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// Sends a signal and waits for the end.
    pub(crate) fn stop(mut self, signal: rustix::process::Signal) -> Option<i32> {
        self.signal(signal);
        self.child.wait().unwrap().code()
    }

    /// What the http listener answers at a path.
    pub(crate) fn get(&self, path: &str) -> Option<(u16, String)> {
        get(self.http, path)
    }

    /// A metric's value, by its name in the text.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let (_, text) = self.get("/metrics").unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in\n{text}"))
    }

    /// Resident memory in KiB.
    pub(crate) fn memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

/// What an http server answers; `None` when it does not, or not within ten seconds.
pub(crate) fn get(at: SocketAddr, path: &str) -> Option<(u16, String)> {
    let config = ureq::Agent::config_builder().http_status_as_error(false);
    let agent = config.timeout_global(Some(Duration::from_secs(10))).build().new_agent();
    let mut response = agent.get(format!("http://{at}{path}")).call().ok()?;
    Some((response.status().as_u16(), response.body_mut().read_to_string().ok()?))
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Every file below a directory with its content.
pub(crate) fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(next) = left.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else {
                all.push((path.clone(), std::fs::read(&path).unwrap()));
            }
        }
    }
    all.sort();
    all
}
