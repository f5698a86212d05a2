//! Child processes: starting, waiting and stopping; working directories with a lock.

use crate::error::{BenchError, Context, Result};
use crate::pin::Pinned;
use rustix::process::{Pid, Signal, kill_process};
use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::Builder;
use std::time::Duration;

/// Polls for the end of a process after SIGTERM, then SIGKILL; and the interval between them.
const END_TRIES: u32 = 600;
const END_WAIT: Duration = Duration::from_millis(50);
/// Limit on buffered lines of a process's output; at the limit the process blocks.
const LINES_MAX: usize = 1_024;
/// Interval between checks for an interrupt while waiting.
const POLL_EVERY: Duration = Duration::from_millis(100);
/// Bytes of a process's log in an error, from its end.
const SHOWN_BYTES: usize = 2_000;
/// Environment variable with the libraries to preload; values are joined by a colon.
const PRELOAD: &str = "LD_PRELOAD";

/// A flag that SIGINT and SIGTERM set: the user wants to stop.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Installs handlers for both signals. Waiting code must check the flag: the first signal no longer ends the process.
    ///
    /// # Errors
    /// The handlers cannot be installed.
    pub fn listen() -> Result<Interrupt> {
        let interrupt = Interrupt::default();
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // A second signal ends the process at once.
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&interrupt.0))
                .context(|| "cannot listen for signals".to_owned())?;
            signal_hook::flag::register(signal, Arc::clone(&interrupt.0))
                .context(|| "cannot listen for signals".to_owned())?;
        }
        Ok(interrupt)
    }

    /// Returns whether the flag is set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Sets the flag, as a signal does.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Checks the flag.
    ///
    /// # Errors
    /// It is set.
    pub fn check(&self) -> Result<()> {
        if self.is_set() { Err(BenchError::new("interrupted")) } else { Ok(()) }
    }
}

/// Settings of all processes that a thread starts, helpers of brokers included.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SpawnSettings {
    /// Cores to pin to. Empty: the affinity of this process.
    pub cores: Vec<usize>,
    /// Environment variables to add.
    pub environment: Vec<(String, OsString)>,
    /// The `cgroup.procs` file of the control group to join.
    pub group: Option<PathBuf>,
    /// Memory limit of that group. Bytes; 0 is no limit.
    pub memory_limit_bytes: u64,
}

thread_local! {
    static SPAWN_SETTINGS: RefCell<SpawnSettings> = RefCell::default();
}

impl SpawnSettings {
    /// Returns the memory limit of processes that this thread starts now. Bytes; 0 is no limit.
    #[must_use]
    pub fn memory_limit_bytes_here() -> u64 {
        SPAWN_SETTINGS.with_borrow(|settings| settings.memory_limit_bytes)
    }

    /// Runs `body`, and applies these settings to all processes that it starts on this thread.
    pub fn apply<T>(&self, body: impl FnOnce() -> T) -> T {
        let before = SPAWN_SETTINGS.replace(self.clone());
        let given = body();
        SPAWN_SETTINGS.set(before);
        given
    }

    /// Starts `command` with these settings.
    fn spawn(&self, mut command: Command, (input, output, errors): (Stdio, Stdio, Stdio)) -> Result<Child> {
        for (name, value) in &self.environment {
            let given = command.get_envs().find(|(given, _)| *given == name.as_str()).and_then(|(_, value)| value);
            let value = match given.filter(|_| name == PRELOAD) {
                // Some peers already preload a library, which restricts them to the loopback.
                Some(given) => [given, value.as_os_str()].join(OsStr::new(":")),
                None => value.clone(),
            };
            command.env(name, value);
        }
        if let Some(procs) = &self.group {
            command = joining(procs, &command);
        }
        command = with_parent_death_signal(command);
        let pinned = (!self.cores.is_empty()).then(|| Pinned::on(&self.cores)).transpose()?;
        command.stdin(input).stdout(output).stderr(errors);
        let child = command.spawn().context(|| format!("cannot run {:?}", command.get_program()));
        drop(pinned);
        child
    }
}

/// Returns a shell command that joins a control group and then execs `command`, so that the group accounts all of its memory.
fn joining(procs: &Path, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(procs);
    wrap(shell, command)
}

/// Returns the command with the scheduling policy `SCHED_IDLE` (sched(7)): it runs only on cores that are otherwise idle.
/// `chrt` of util-linux sets the policy and execs the command; without `chrt` the command is unchanged.
#[must_use]
pub fn with_idle_priority(command: Command) -> Command {
    let Some(mut chrt) = tool("chrt") else { return command };
    chrt.args(["--idle", "0"]);
    wrap(chrt, &command)
}

/// Returns a command of util-linux, if it is installed.
fn tool(name: &str) -> Option<Command> {
    let paths = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(name));
    paths.into_iter().find(|path| path.exists()).map(Command::new)
}

/// Returns `outer` with `command` as its arguments, and with the environment and working directory of `command`.
fn wrap(mut outer: Command, command: &Command) -> Command {
    outer.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    command.get_current_dir().map(|folder| outer.current_dir(folder));
    outer
}

/// A child process. Stopped when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    lines: Option<Receiver<String>>,
}

impl Process {
    /// Starts `command`. The kernel kills it when the calling thread ends, however that happens.
    ///
    /// Standard error is appended to the file `log`, and so is standard output unless `talks`: then [`Process::line`] returns its lines.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn start(name: &str, command: Command, log: &Path, talks: bool) -> Result<Process> {
        let errors = append(log)?;
        let output = if talks { Stdio::piped() } else { Stdio::from(append(log)?) };
        let input = if talks { Stdio::piped() } else { Stdio::null() };
        let settings = SPAWN_SETTINGS.with_borrow(Clone::clone);
        let child = settings.spawn(command, (input, output, Stdio::from(errors)));
        let mut child = child.context(|| format!("cannot start {name}"))?;
        let lines = child.stdout.take().map(|output| {
            let (to, lines) = sync_channel(LINES_MAX);
            let body = move || {
                for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
                    if to.send(line).is_err() {
                        return;
                    }
                }
            };
            Builder::new().name("bench-lines".to_owned()).spawn(body).map(|_| lines)
        });
        let lines = lines.transpose().context(|| "cannot start a thread".to_owned())?;
        Ok(Process { name: name.to_owned(), child, log: log.to_owned(), lines })
    }

    /// Returns its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Takes its standard input; `None` the second time.
    #[must_use]
    pub fn stdin(&mut self) -> Option<std::process::ChildStdin> {
        self.child.stdin.take()
    }

    /// Returns whether it has exited.
    pub fn ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits up to `patience` for the next line on its standard output.
    ///
    /// # Errors
    /// Timeout, the process has exited, or the run is interrupted.
    pub fn line(&mut self, patience: Duration, interrupt: &Interrupt) -> Result<String> {
        let mut left = patience;
        loop {
            interrupt.check()?;
            let Some(lines) = &self.lines else { return Err(self.explain("its standard output is not captured")) };
            match lines.recv_timeout(POLL_EVERY) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Timeout) => match left.checked_sub(POLL_EVERY) {
                    Some(rest) => left = rest,
                    None => return Err(self.explain(&format!("no output for {} s", patience.as_secs()))),
                },
                Err(RecvTimeoutError::Disconnected) => return Err(self.explain("the process has exited")),
            }
        }
    }

    /// Waits up to `patience` until it exits with success.
    ///
    /// # Errors
    /// Timeout, the process fails, or the run is interrupted.
    pub fn wait(&mut self, patience: Duration, interrupt: &Interrupt) -> Result<()> {
        let mut left = patience;
        loop {
            interrupt.check()?;
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(self.explain(&format!("the process failed: {status}"))),
                Ok(None) => std::thread::sleep(END_WAIT),
                Err(e) => return Err(self.explain(&format!("cannot wait for the process: {e}"))),
            }
            match left.checked_sub(END_WAIT) {
                Some(rest) => left = rest,
                None => return Err(self.explain(&format!("the process still runs after {} s", patience.as_secs()))),
            }
        }
    }

    /// Stops it: closes standard input, sends SIGTERM, and SIGKILL after 30 s.
    pub fn end(&mut self) {
        // Standard input first: a worker that waits for a line then exits by itself.
        drop(self.child.stdin.take());
        self.lines = None;
        if let (Ok(None), Ok(pid)) = (self.child.try_wait(), i32::try_from(self.child.id())) {
            // The process may have exited meanwhile.
            let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, Signal::TERM));
        }
        for _ in 0..END_TRIES {
            if self.ended() {
                return;
            }
            std::thread::sleep(END_WAIT);
        }
        self.kill();
    }

    /// Kills it (SIGKILL), without waiting for it to store its data.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Returns an error with the end of its log.
    #[must_use]
    pub fn explain(&self, what: &str) -> BenchError {
        let said = std::fs::read(&self.log).unwrap_or_default();
        let tail = said.get(said.len().saturating_sub(SHOWN_BYTES)..).unwrap_or_default();
        let said = String::from_utf8_lossy(tail);
        let output = if said.trim().is_empty() { "no output".to_owned() } else { format!("its output:\n{said}") };
        BenchError::new(format!("{}: {what}; {output}", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns the command with a parent-death signal: the kernel kills it when the thread that starts it ends.
/// `setpriv` of util-linux sets the signal and execs the command; without `setpriv` only [`Process::end`] stops it.
fn with_parent_death_signal(command: Command) -> Command {
    let Some(mut setpriv) = tool("setpriv") else { return command };
    setpriv.args(["--pdeathsig", "KILL"]);
    wrap(setpriv, &command)
}

fn append(log: &Path) -> Result<File> {
    OpenOptions::new().create(true).append(true).open(log).context(|| format!("cannot write {}", log.display()))
}

/// Locks a directory, and creates it if it is missing. The lock is released when the returned file is closed.
///
/// Without the lock, the brokers of two benchmarks in one directory would remove each other's files.
///
/// # Errors
/// Another process has the lock, or the directory cannot be created.
pub fn lock_folder(folder: &Path) -> Result<File> {
    let said = || format!("cannot use the directory {}", folder.display());
    std::fs::create_dir_all(folder).context(said)?;
    let lock = File::open(folder).context(said)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(BenchError::new(format!(
            "another polylogue-bench uses {}: wait until it ends, or set another directory with --build",
            folder.display()
        ))),
        Err(TryLockError::Error(e)) => Err(e).context(said),
    }
}

/// A locked directory. Removed with its contents when dropped.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    // Keeps the lock.
    _lock: File,
}

impl Folder {
    /// Creates an empty directory; contents of an earlier run are removed. Its path is made absolute, because brokers have other working
    /// directories.
    ///
    /// # Errors
    /// A process has locked it, this process included, or it cannot be created or emptied.
    pub fn create(path: &Path) -> Result<Folder> {
        let path =
            std::path::absolute(path).context(|| format!("cannot find the absolute path of {}", path.display()))?;
        let lock = lock_folder(&path)?;
        empty(&path).context(|| format!("cannot empty {}", path.display()))?;
        Ok(Folder { path, _lock: lock })
    }

    /// Returns its absolute path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn empty(folder: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => std::fs::remove_dir_all(entry.path())?,
            false => std::fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Remaining files are removed by the next run.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: a reader far behind delayed the client on the same core by up to 3 ms, which was reported as the broker's latency.
    #[test]
    fn a_process_with_idle_priority_has_the_idle_policy() {
        let cat = || {
            let mut cat = Command::new("cat");
            cat.arg("/proc/self/stat");
            cat
        };
        let policy = |mut command: Command| {
            let out = command.output().expect("it runs").stdout;
            let text = String::from_utf8(out).expect("text");
            // Field 41 of proc_pid_stat(5); the third one follows the name.
            text.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(38).map(str::to_owned))
        };
        assert_eq!(policy(with_idle_priority(cat())).as_deref(), Some("5"), "SCHED_IDLE");
        assert_eq!(policy(cat()).as_deref(), Some("0"));
    }

    #[test]
    fn two_benchmarks_cannot_use_one_directory() {
        let place = std::env::temp_dir().join(format!("polylogue-bench-claim-{}", std::process::id()));
        let folder = Folder::create(&place).expect("it is not locked");
        std::fs::write(place.join("data"), "a broker's").expect("a file");
        let stated = [lock_folder(&place).err(), Folder::create(&place).err()].map(|e| e.map(|e| e.to_string()));
        assert!(
            stated.iter().all(|stated| stated.as_ref().is_some_and(|stated| stated.contains("--build"))),
            "{stated:?}"
        );
        assert!(place.join("data").exists(), "what is in it stays");
        drop(folder);
        assert!(!place.exists());
        let lock = lock_folder(&place).expect("the lock is released");
        std::fs::write(place.join("data"), "left").expect("a file");
        drop(lock);
        let folder = Folder::create(&place).expect("it is not locked");
        assert!(!folder.path().join("data").exists(), "it was left by an earlier run");
    }

    /// Regression test: with a relative path, peers with another working directory did not find their settings.
    #[test]
    fn the_path_of_a_directory_is_absolute() {
        let here = std::env::current_dir().expect("a folder");
        let place = std::env::temp_dir().join(format!("polylogue-bench-relative-{}", std::process::id()));
        let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
        let named = up.join(place.strip_prefix("/").expect("an absolute path"));
        let folder = Folder::create(&named).expect("a folder");
        assert!(named.is_relative() && folder.path().is_absolute());
        assert!(place.is_dir());
    }

    /// Regression test: the bench waited for brokers to store data in a directory that was about to be removed.
    #[test]
    fn kill_does_not_wait_for_a_process_that_ignores_sigterm() {
        let place = std::env::temp_dir().join(format!("polylogue-bench-kill-{}", std::process::id()));
        let folder = Folder::create(&place).expect("a folder");
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; echo ready; exec sleep 600"]);
        let mut process = Process::start("a shell", command, &folder.path().join("log"), true).expect("it starts");
        process.line(Duration::from_secs(60), &Interrupt::default()).expect("a line");
        process.kill();
        assert!(process.ended(), "it ignores SIGTERM");
    }

    /// Regression test: a peer outlived a benchmark that was killed.
    #[test]
    fn a_process_is_killed_with_the_thread_that_started_it() {
        let place = std::env::temp_dir().join(format!("polylogue-bench-orphan-{}", std::process::id()));
        let folder = Folder::create(&place).expect("a folder");
        let log = folder.path().join("log");
        let starts = move || {
            let mut command = Command::new("sh");
            command.args(["-c", "echo $KEPT; exec sleep 600"]).env("KEPT", "it is there");
            let mut process = Process::start("a shell", command, &log, true).expect("it starts");
            let said = process.line(Duration::from_secs(60), &Interrupt::default()).expect("a line");
            let pid = process.pid();
            // As when the benchmark is killed: nothing stops it.
            std::mem::forget(process);
            (said, pid)
        };
        let (said, pid) = Builder::new().spawn(starts).expect("a thread").join().expect("it ends");
        assert_eq!(said, "it is there", "its environment is kept");
        let state = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Then it is a zombie, because no process waits for it.
        let gone =
            || state(pid).rsplit(')').next().is_none_or(|rest| rest.trim().is_empty() || rest.trim().starts_with('Z'));
        for _ in 0..END_TRIES {
            if gone() {
                return;
            }
            std::thread::sleep(END_WAIT);
        }
        panic!("it outlives its thread: {}", state(pid));
    }

    #[test]
    fn spawn_settings_apply_within_their_scope_only() {
        let place = std::env::temp_dir().join(format!("polylogue-bench-process-{}", std::process::id()));
        let folder = Folder::create(&place).expect("a folder");
        let (log, procs) = (folder.path().join("log"), folder.path().join("cgroup.procs"));
        let start = || {
            let mut command = Command::new("sh");
            command.args(["-c", "echo \"$$ [$GIVEN] $(grep Cpus_allowed_list /proc/self/status) $0\""]).arg("a b");
            let mut process = Process::start("a shell", command, &log, true).expect("it starts");
            let line = process.line(Duration::from_secs(10), &Interrupt::default()).expect("a line");
            (process.pid().to_string(), line)
        };
        let environment = vec![("GIVEN".to_owned(), OsString::from("this"))];
        let given =
            SpawnSettings { cores: vec![0], environment, group: Some(procs.clone()), memory_limit_bytes: 3 << 30 };
        assert_eq!(given.apply(SpawnSettings::memory_limit_bytes_here), 3 << 30);
        assert_eq!(SpawnSettings::memory_limit_bytes_here(), 0);
        let (pid, line) = given.apply(start);
        assert_eq!(line, format!("{pid} [this] Cpus_allowed_list:\t0 a b"));
        assert_eq!(
            std::fs::read_to_string(&procs).expect("a file").trim(),
            pid,
            "it joined before it became the command"
        );
        assert!(start().1.contains("[] "), "the settings no longer apply");
    }

    /// Regression test: the library that counts flushes replaced the library that restricts a peer to the loopback.
    #[test]
    fn preloaded_libraries_are_joined() {
        let place = std::env::temp_dir().join(format!("polylogue-bench-preload-{}", std::process::id()));
        let folder = Folder::create(&place).expect("a folder");
        let environment = vec![(PRELOAD.to_owned(), OsString::from("/second"))];
        let line = SpawnSettings { environment, ..SpawnSettings::default() }.apply(|| {
            let mut command = Command::new("sh");
            command.args(["-c", "echo $LD_PRELOAD"]).env(PRELOAD, "/first");
            let mut process = Process::start("a shell", command, &folder.path().join("log"), true).expect("it starts");
            process.line(Duration::from_secs(10), &Interrupt::default()).expect("a line")
        });
        assert_eq!(line, "/first:/second");
    }
}
