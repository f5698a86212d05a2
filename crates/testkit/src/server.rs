//! A running broker.

use crate::{Deadline, Result, polylogue, wait_until};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

/// How long a start may take here. Seconds.
const START_SECS: u64 = 120;
/// How long an end may take here. Seconds.
const END_SECS: u64 = 60;
/// What is shown of standard error when a server did not do what it should. Bytes.
const SHOWN_BYTES: usize = 4_000;

/// A process `polylogue serve`. It is killed when this value goes.
#[derive(Debug)]
pub struct Server {
    child: Child,
    stderr: PathBuf,
    kafka: SocketAddr,
    http: Option<SocketAddr>,
    amqp: Option<SocketAddr>,
    management: Option<SocketAddr>,
    /// The addresses of all listeners that the server printed, by listener name.
    printed: BTreeMap<String, SocketAddr>,
}

/// The command that serves `data` on free ports. Add settings and surroundings to it, then [`Server::start`] it.
///
/// # Errors
/// When there is no binary.
pub fn serve(data: &Path) -> Result<Command> {
    let mut command = polylogue()?;
    command.arg("serve").arg("--data").arg(data);
    command.args(["--listen", "kafka=127.0.0.1:0", "--listen", "http=127.0.0.1:0"]);
    command.args(["--set", "kafka.group.initial.rebalance.delay.ms=0"]);
    Ok(command)
}

impl Server {
    /// Starts a command of [`serve`] and waits until it says that it is ready. What it says on standard error is
    /// appended to the file `stderr`.
    ///
    /// # Errors
    /// When it does not get ready: its exit status, and what it said.
    pub fn start(mut command: Command, stderr: &Path) -> Result<Server> {
        let errors = OpenOptions::new().create(true).append(true).open(stderr);
        let errors = errors.map_err(|e| format!("cannot open {}: {e}", stderr.display()))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        let child = command.spawn().map_err(|e| format!("cannot start {command:?}: {e}"))?;
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let stderr = stderr.to_owned();
        let mut server = Server {
            child,
            stderr,
            kafka: nowhere,
            http: None,
            amqp: None,
            management: None,
            printed: BTreeMap::new(),
        };
        let Some(stdout) = server.child.stdout.take() else { return Err("the server has no standard output".into()) };
        let (to, lines) = channel();
        std::thread::spawn(move || pass_on(stdout, &to));
        server.wait_ready(&lines)?;
        Ok(server)
    }

    fn wait_ready(&mut self, lines: &Receiver<String>) -> Result<()> {
        let deadline = Deadline::in_secs(START_SECS);
        loop {
            let line = match lines.recv_timeout(deadline.left()) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => return Err(self.explain("it was not ready in time")),
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.wait()?;
                    return Err(self.explain(&format!("it ended before it was ready, {status}")));
                }
            };
            if line == "polylogue ready" {
                return match self.kafka.port() {
                    0 => Err(self.explain("it was ready and had printed no Kafka address")),
                    _ => Ok(()),
                };
            }
            let address = |protocol: &str| {
                let rest = line.strip_prefix(protocol)?.strip_prefix(" listening on ")?;
                rest.split_whitespace().next()?.trim_end_matches(',').parse().ok()
            };
            if let Some((listener, at)) = line.split_once(" listening on ").and_then(|(listener, rest)| {
                Some((listener, rest.split_whitespace().next()?.trim_end_matches(',').parse().ok()?))
            }) {
                self.printed.insert(listener.to_owned(), at);
            }
            self.kafka = address("kafka").unwrap_or(self.kafka);
            self.http = address("http").or(self.http);
            self.amqp = address("amqp").or(self.amqp);
            self.management = address("rabbitmq-http").or(self.management);
        }
    }

    /// Where it speaks Kafka.
    #[must_use]
    pub fn kafka(&self) -> SocketAddr {
        self.kafka
    }

    /// Where it speaks HTTP, if it printed an address.
    #[must_use]
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Where it speaks AMQP, if it was asked to.
    #[must_use]
    pub fn amqp(&self) -> Option<SocketAddr> {
        self.amqp
    }

    /// Where it speaks RabbitMQ's management API, if it was asked to.
    #[must_use]
    pub fn management(&self) -> Option<SocketAddr> {
        self.management
    }

    /// Where a listener of this name is (`kafka+tls`), if it was asked for.
    #[must_use]
    pub fn listener(&self, name: &str) -> Option<SocketAddr> {
        self.printed.get(name).copied()
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `kill -9`, and waits until it is gone.
    ///
    /// # Errors
    /// When it had ended before by itself: what it said.
    pub fn kill(mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait().map_err(|e| e.to_string())? {
            return Err(self.explain(&format!("it ended by itself, {status}")));
        }
        self.child.kill().and_then(|()| self.child.wait()).map_err(|e| format!("cannot kill the server: {e}"))?;
        Ok(())
    }

    /// SIGTERM, and waits until it has ended.
    ///
    /// # Errors
    /// When it does not end, or not with 0.
    pub fn terminate(mut self) -> Result<()> {
        // The shell's own `kill`: not every system has the program.
        let asked = Command::new("sh").arg("-c").arg(format!("kill -TERM {}", self.pid())).status();
        asked.map_err(|e| format!("cannot run sh: {e}"))?;
        let status = self.wait()?;
        match status.success() {
            true => Ok(()),
            false => Err(self.explain(&format!("after SIGTERM it ended with {status}"))),
        }
    }

    /// Waits until it has ended by itself.
    ///
    /// # Errors
    /// When it does not.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        let child = &mut self.child;
        wait_until("the end of the server", END_SECS, || child.try_wait().map_err(|e| e.to_string()))
            .map_err(|e| self.explain(&e))
    }

    /// The most memory it ever had in use. Bytes.
    ///
    /// # Errors
    /// Where /proc does not tell.
    pub fn memory_peak_bytes(&self) -> Result<u64> {
        self.status_kib("VmHWM:").map(|kib| kib << 10)
    }

    /// The memory that it has in use. Bytes.
    ///
    /// # Errors
    /// Where /proc does not tell.
    pub fn memory_bytes(&self) -> Result<u64> {
        self.status_kib("VmRSS:").map(|kib| kib << 10)
    }

    fn status_kib(&self, field: &str) -> Result<u64> {
        let path = format!("/proc/{}/status", self.pid());
        let status = std::fs::read_to_string(&path).map_err(|e| self.explain(&format!("cannot read {path}: {e}")))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let number = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        number.ok_or_else(|| format!("{path} has no {field}"))
    }

    /// All that it said on standard error, and what servers before it said into the same file.
    #[must_use]
    pub fn said(&self) -> String {
        std::fs::read(&self.stderr).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    fn explain(&self, what: &str) -> String {
        let said = self.said();
        let from = (said.len().saturating_sub(SHOWN_BYTES)..said.len()).find(|at| said.is_char_boundary(*at));
        format!("the server: {what}. It said last:\n{}", from.and_then(|from| said.get(from..)).unwrap_or(&said))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads to the end even when no reader is left: a full pipe would stop the server.
fn pass_on(stdout: ChildStdout, to: &Sender<String>) {
    for line in BufReader::new(stdout).lines().map_while(|line| line.ok()) {
        let _ = to.send(line);
    }
}
