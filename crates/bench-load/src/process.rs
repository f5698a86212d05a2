//! Processes that this one starts, and ends.

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

/// How long a process may take to end after SIGTERM before it is killed, and how often that is looked at.
const END_TRIES: u32 = 600;
const END_WAIT: Duration = Duration::from_millis(50);
/// Lines of a process that wait to be read; then it waits.
const LINES_MAX: usize = 1_024;
/// How often an interruption is looked for while waiting.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// What is shown of a log when a process did not do what it should. Bytes.
const SHOWN_BYTES: usize = 2_000;
/// The variable of libraries that are loaded into a program; several of them may be wanted.
const PRELOAD: &str = "LD_PRELOAD";

/// Whether the user wants to stop: set by SIGINT and SIGTERM.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens for both signals. Waiting code must look at it: the process is no longer ended by them.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn listen() -> Result<Interrupt> {
        let interrupt = Interrupt::default();
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // The second time it ends the process at once, should the first have been of no use.
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&interrupt.0))
                .context(|| "cannot listen for signals".to_owned())?;
            signal_hook::flag::register(signal, Arc::clone(&interrupt.0))
                .context(|| "cannot listen for signals".to_owned())?;
        }
        Ok(interrupt)
    }

    /// Whether the user wants to stop.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// As if the user wanted to.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Goes on, or not.
    ///
    /// # Errors
    /// When the user wants to stop.
    pub fn check(&self) -> Result<()> {
        if self.is_set() { Err(BenchError::new("interrupted")) } else { Ok(()) }
    }
}

/// What all processes get that a thread starts meanwhile. What is said of a broker holds for its helpers too, by whichever process they are started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Surround {
    /// The cores that they may use; none: as this process.
    pub cores: Vec<usize>,
    /// Variables of their environment.
    pub environment: Vec<(String, OsString)>,
    /// The file of a control group into which they write their ids.
    pub group: Option<PathBuf>,
    /// What that group may use; 0: as much as there is.
    pub memory_limit_bytes: u64,
}

thread_local! {
    static SURROUND: RefCell<Surround> = RefCell::default();
}

impl Surround {
    /// What processes that are started here and now may use together; 0: as much as there is.
    #[must_use]
    pub fn memory_limit_bytes_here() -> u64 {
        SURROUND.with_borrow(|surround| surround.memory_limit_bytes)
    }

    /// Does something, and gives these to all processes that it starts.
    pub fn around<T>(&self, body: impl FnOnce() -> T) -> T {
        let before = SURROUND.replace(self.clone());
        let given = body();
        SURROUND.set(before);
        given
    }

    /// Starts `command` in them.
    fn spawn(&self, mut command: Command, (input, output, errors): (Stdio, Stdio, Stdio)) -> Result<Child> {
        for (name, value) in &self.environment {
            let given = command.get_envs().find(|(given, _)| *given == name.as_str()).and_then(|(_, value)| value);
            let value = match given.filter(|_| name == PRELOAD) {
                // Some peers have a library of their own in them, which keeps them on the loopback.
                Some(given) => [given, value.as_os_str()].join(OsStr::new(":")),
                None => value.clone(),
            };
            command.env(name, value);
        }
        if let Some(procs) = &self.group {
            command = joining(procs, &command);
        }
        command = dying_with_us(command);
        let pinned = (!self.cores.is_empty()).then(|| Pinned::on(&self.cores)).transpose()?;
        command.stdin(input).stdout(output).stderr(errors);
        let child = command.spawn().context(|| format!("{:?}", command.get_program()));
        drop(pinned);
        child
    }
}

/// A shell that joins a control group and becomes the command: so it belongs to the group from its first page on.
fn joining(procs: &Path, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(procs);
    within(shell, command)
}

/// The same command, which uses a core only while it is otherwise idle (`SCHED_IDLE`, sched(7)): `chrt` of util-linux asks for that and
/// becomes the command. Where there is none, it is as it was.
#[must_use]
pub fn giving_way(command: Command) -> Command {
    let Some(mut chrt) = tool("chrt") else { return command };
    chrt.args(["--idle", "0"]);
    within(chrt, &command)
}

/// A program of util-linux, where the system has it.
fn tool(name: &str) -> Option<Command> {
    let paths = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(name));
    paths.into_iter().find(|path| path.exists()).map(Command::new)
}

/// A command that becomes another one, with the variables and the folder of that.
fn within(mut outer: Command, command: &Command) -> Command {
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

/// A process that is ended when this value goes.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    lines: Option<Receiver<String>>,
}

impl Process {
    /// Starts `command`. It is killed when the thread that calls this ends, however that comes: nothing is left behind. What it says on standard error is appended to the file `log`; what it says on standard output too,
    /// unless `talks`: then its lines are for [`Process::line`].
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(name: &str, command: Command, log: &Path, talks: bool) -> Result<Process> {
        let errors = append(log)?;
        let output = if talks { Stdio::piped() } else { Stdio::from(append(log)?) };
        let input = if talks { Stdio::piped() } else { Stdio::null() };
        let surround = SURROUND.with_borrow(Clone::clone);
        let child = surround.spawn(command, (input, output, Stdio::from(errors)));
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

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it takes on standard input, once.
    #[must_use]
    pub fn stdin(&mut self) -> Option<std::process::ChildStdin> {
        self.child.stdin.take()
    }

    /// Whether it has ended.
    pub fn ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// The next line on its standard output.
    ///
    /// # Errors
    /// When there comes none for `patience`, when it ends, or when the user wants to stop.
    pub fn line(&mut self, patience: Duration, interrupt: &Interrupt) -> Result<String> {
        let mut left = patience;
        loop {
            interrupt.check()?;
            let Some(lines) = &self.lines else { return Err(self.explain("its output is not read")) };
            match lines.recv_timeout(LOOK_EVERY) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Timeout) => match left.checked_sub(LOOK_EVERY) {
                    Some(rest) => left = rest,
                    None => return Err(self.explain(&format!("it has said nothing for {} s", patience.as_secs()))),
                },
                Err(RecvTimeoutError::Disconnected) => return Err(self.explain("it has ended")),
            }
        }
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// When it takes longer than `patience`, fails, or the user wants to stop.
    pub fn wait(&mut self, patience: Duration, interrupt: &Interrupt) -> Result<()> {
        let mut left = patience;
        loop {
            interrupt.check()?;
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(self.explain(&format!("it ended with {status}"))),
                Ok(None) => std::thread::sleep(END_WAIT),
                Err(e) => return Err(self.explain(&format!("cannot wait for it: {e}"))),
            }
            match left.checked_sub(END_WAIT) {
                Some(rest) => left = rest,
                None => return Err(self.explain(&format!("it has not ended after {} s", patience.as_secs()))),
            }
        }
    }

    /// Ends it: SIGTERM, and SIGKILL when that does not help.
    pub fn end(&mut self) {
        // Standard input first: a worker that waits for a line then ends by itself.
        drop(self.child.stdin.take());
        self.lines = None;
        if let (Ok(None), Ok(pid)) = (self.child.try_wait(), i32::try_from(self.child.id())) {
            // A process that has ended meanwhile needs no signal.
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

    /// Ends it at once, when what it would store first is not needed.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// An error that shows what it said last.
    #[must_use]
    pub fn explain(&self, what: &str) -> BenchError {
        let said = std::fs::read(&self.log).unwrap_or_default();
        let tail = said.get(said.len().saturating_sub(SHOWN_BYTES)..).unwrap_or_default();
        let said = String::from_utf8_lossy(tail);
        let said = if said.trim().is_empty() { "it said nothing".to_owned() } else { format!("it said:\n{said}") };
        BenchError::new(format!("{}: {what}; {said}", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// The same command, which the kernel kills when the thread that starts it ends: `setpriv` of util-linux asks for that and becomes the
/// command. Where there is none, it is ended by [`Process::end`] only.
fn dying_with_us(command: Command) -> Command {
    let Some(mut setpriv) = tool("setpriv") else { return command };
    setpriv.args(["--pdeathsig", "KILL"]);
    within(setpriv, &command)
}

fn append(log: &Path) -> Result<File> {
    OpenOptions::new().create(true).append(true).open(log).context(|| format!("cannot write {}", log.display()))
}

/// Takes a folder, and makes it where it is missing: no other process has it until the file that this gives is closed, at the latest with the
/// process. The brokers of two benchmarks in one folder removed each other's files.
///
/// # Errors
/// When another process has it, or it cannot be made.
pub fn take_folder(folder: &Path) -> Result<File> {
    let said = || format!("cannot work in {}", folder.display());
    std::fs::create_dir_all(folder).context(said)?;
    let lock = File::open(folder).context(said)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(BenchError::new(format!(
            "another polylogue-bench works in {}: wait until it ends, or give this one another folder with --build",
            folder.display()
        ))),
        Err(TryLockError::Error(e)) => Err(e).context(said),
    }
}

/// A folder that no other process has, removed with all that is in it when this value goes.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    // Held, not read.
    _lock: File,
}

impl Folder {
    /// Makes an empty folder; what an earlier run has left in its place is removed. Brokers run in folders of their own: its path is
    /// absolute, whatever is given.
    ///
    /// # Errors
    /// When a process works in it, this process included, or it cannot be made or emptied.
    pub fn create(path: &Path) -> Result<Folder> {
        let path = std::path::absolute(path).context(|| format!("where is {}", path.display()))?;
        let lock = take_folder(&path)?;
        empty(&path).context(|| format!("cannot empty {}", path.display()))?;
        Ok(Folder { path, _lock: lock })
    }

    /// Where it is.
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
        // What cannot be removed now is removed by the next run.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader far behind kept the client beside it from its core for up to 3 ms, and the broker was reported to be that slow.
    #[test]
    fn what_gives_way_uses_a_core_that_nobody_wants() {
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
        assert_eq!(policy(giving_way(cat())).as_deref(), Some("5"), "SCHED_IDLE");
        assert_eq!(policy(cat()).as_deref(), Some("0"));
    }

    #[test]
    fn two_benchmarks_do_not_work_in_one_folder() {
        let place = std::env::temp_dir().join(format!("polylogue-bench-claim-{}", std::process::id()));
        let folder = Folder::create(&place).expect("no one has it");
        std::fs::write(place.join("data"), "a broker's").expect("a file");
        let stated = [take_folder(&place).err(), Folder::create(&place).err()].map(|e| e.map(|e| e.to_string()));
        assert!(
            stated.iter().all(|stated| stated.as_ref().is_some_and(|stated| stated.contains("--build"))),
            "{stated:?}"
        );
        assert!(place.join("data").exists(), "what is in it stays");
        drop(folder);
        assert!(!place.exists());
        let lock = take_folder(&place).expect("no one has it any more");
        std::fs::write(place.join("data"), "left").expect("a file");
        drop(lock);
        let folder = Folder::create(&place).expect("no one has it");
        assert!(!folder.path().join("data").exists(), "it was left by an earlier run");
    }

    /// Peers that run in a folder of their own did not find their settings when the folder was named from somewhere else.
    #[test]
    fn a_folder_is_found_from_everywhere() {
        let here = std::env::current_dir().expect("a folder");
        let place = std::env::temp_dir().join(format!("polylogue-bench-relative-{}", std::process::id()));
        let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
        let named = up.join(place.strip_prefix("/").expect("an absolute path"));
        let folder = Folder::create(&named).expect("a folder");
        assert!(named.is_relative() && folder.path().is_absolute());
        assert!(place.is_dir());
    }

    /// Brokers whose folder goes were waited for while they put everything away in it.
    #[test]
    fn what_is_killed_is_not_waited_for() {
        let place = std::env::temp_dir().join(format!("polylogue-bench-kill-{}", std::process::id()));
        let folder = Folder::create(&place).expect("a folder");
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; echo ready; exec sleep 600"]);
        let mut process = Process::start("a shell", command, &folder.path().join("log"), true).expect("it starts");
        process.line(Duration::from_secs(60), &Interrupt::default()).expect("it talks");
        process.kill();
        assert!(process.ended(), "it does not listen to SIGTERM");
    }

    /// A peer outlived a benchmark that was killed.
    #[test]
    fn a_process_goes_with_the_thread_that_started_it() {
        let place = std::env::temp_dir().join(format!("polylogue-bench-orphan-{}", std::process::id()));
        let folder = Folder::create(&place).expect("a folder");
        let log = folder.path().join("log");
        let starts = move || {
            let mut command = Command::new("sh");
            command.args(["-c", "echo $KEPT; exec sleep 600"]).env("KEPT", "it is there");
            let mut process = Process::start("a shell", command, &log, true).expect("it starts");
            let said = process.line(Duration::from_secs(60), &Interrupt::default()).expect("it talks");
            let pid = process.pid();
            // As when the benchmark is killed: no process ends it.
            std::mem::forget(process);
            (said, pid)
        };
        let (said, pid) = Builder::new().spawn(starts).expect("a thread").join().expect("it ends");
        assert_eq!(said, "it is there", "its environment is kept");
        let state = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // It is a zombie then, because no process waits for it.
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
    fn processes_get_what_is_around_them_and_later_ones_do_not() {
        let place = std::env::temp_dir().join(format!("polylogue-bench-process-{}", std::process::id()));
        let folder = Folder::create(&place).expect("a folder");
        let (log, procs) = (folder.path().join("log"), folder.path().join("cgroup.procs"));
        let start = || {
            let mut command = Command::new("sh");
            command.args(["-c", "echo \"$$ [$GIVEN] $(grep Cpus_allowed_list /proc/self/status) $0\""]).arg("a b");
            let mut process = Process::start("a shell", command, &log, true).expect("it starts");
            let line = process.line(Duration::from_secs(10), &Interrupt::default()).expect("it speaks");
            (process.pid().to_string(), line)
        };
        let environment = vec![("GIVEN".to_owned(), OsString::from("this"))];
        let given = Surround { cores: vec![0], environment, group: Some(procs.clone()), memory_limit_bytes: 3 << 30 };
        assert_eq!(given.around(Surround::memory_limit_bytes_here), 3 << 30);
        assert_eq!(Surround::memory_limit_bytes_here(), 0);
        let (pid, line) = given.around(start);
        assert_eq!(line, format!("{pid} [this] Cpus_allowed_list:\t0 a b"));
        assert_eq!(std::fs::read_to_string(&procs).expect("a file").trim(), pid, "it has joined before it began");
        assert!(start().1.contains("[] "), "it is over");
    }

    /// What counts flushes took the place of what keeps a peer on the loopback.
    #[test]
    fn libraries_that_are_loaded_into_a_process_are_all_loaded() {
        let place = std::env::temp_dir().join(format!("polylogue-bench-preload-{}", std::process::id()));
        let folder = Folder::create(&place).expect("a folder");
        let environment = vec![(PRELOAD.to_owned(), OsString::from("/second"))];
        let line = Surround { environment, ..Surround::default() }.around(|| {
            let mut command = Command::new("sh");
            command.args(["-c", "echo $LD_PRELOAD"]).env(PRELOAD, "/first");
            let mut process = Process::start("a shell", command, &folder.path().join("log"), true).expect("it starts");
            process.line(Duration::from_secs(10), &Interrupt::default()).expect("it speaks")
        });
        assert_eq!(line, "/first:/second");
    }
}
