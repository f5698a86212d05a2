//! A program to inject faults into: this test's own executable, started again, which takes commands on standard
//! input and does them through `polylogue_env::RealDisk`, as the broker does its work.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use polylogue_env::{Disk, DiskFile, OpenMode, RealDisk};
use polylogue_faultfs::Injector;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

/// Set in the process that is to be the victim.
const VICTIM: &str = "FAULTFS_TEST_VICTIM";

/// A directory for one test, with everything beside it that the injector wants.
pub(crate) struct Place {
    pub(crate) root: PathBuf,
    /// The watched directory.
    pub(crate) dir: PathBuf,
    pub(crate) injector: Injector,
}

impl Place {
    pub(crate) fn new(name: &str) -> Place {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("faultfs-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        let dir = root.join("dir");
        std::fs::create_dir_all(&dir).unwrap();
        let injector = Injector::new(&dir, &root).unwrap();
        Place { root, dir, injector }
    }

    pub(crate) fn set(&self, settings: &[&str]) {
        self.injector.set(settings).unwrap();
    }

    /// Starts the victim with an undo log.
    pub(crate) fn start(&self) -> Victim {
        self.start_with(|_| ())
    }

    /// The same with other surroundings.
    pub(crate) fn start_with(&self, change: impl FnOnce(&mut Command)) -> Victim {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["victim", "--exact", "--nocapture"]);
        command.env(VICTIM, &self.dir).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.injector.preload(&mut command);
        change(&mut command);
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Victim { child, input, output: BufReader::new(output) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            std::fs::remove_dir_all(&self.root).unwrap();
        }
    }
}

/// The running victim.
pub(crate) struct Victim {
    pub(crate) child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Victim {
    /// Sends a command without waiting for its result.
    pub(crate) fn send(&mut self, command: &str) {
        writeln!(self.input, "{command}").unwrap();
    }

    /// The next result: what the command said, or "ended".
    pub(crate) fn next(&mut self) -> String {
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).unwrap() == 0 {
                return "ended".into();
            }
            if let Some((_, result)) = line.trim_end().split_once("> ") {
                return result.to_owned();
            }
        }
    }

    /// Does one command and says how it went.
    pub(crate) fn run(&mut self, command: &str) -> String {
        self.send(command);
        self.next()
    }

    /// Does commands that must succeed.
    pub(crate) fn all(&mut self, commands: &[&str]) {
        for command in commands {
            assert_eq!(self.run(command), "ok", "{command}");
        }
    }

    /// `kill -9`. Returns what it said on standard error.
    pub(crate) fn kill(mut self) -> String {
        self.child.kill().unwrap();
        self.ended().1
    }

    /// Waits for its end: the exit code, if it was not killed, and what it said on standard error.
    pub(crate) fn ended(self) -> (Option<i32>, String) {
        drop(self.input);
        let output = self.child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// The victim's own main. Does nothing in the test's process.
pub(crate) fn victim() {
    let Some(dir) = std::env::var_os(VICTIM) else { return };
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        // As the broker opens its data directory, which is left by no name in it.
        let disk = if line.contains("..") { RealDisk::default() } else { RealDisk::within(&[Path::new(&dir)]) };
        let said = command(&disk, Path::new(&dir), &line);
        println!("> {}", said.unwrap_or_else(|e| e.to_string()));
    }
}

/// Does one command on a disk: `create x`, `write x 512 1024 7` (position, length, byte), `flush x`, `flushdir d`,
/// `mkdir d`, `rename x y`, `remove x`, `length x 100`, `allocate x 100`, `punch x 0 4096`, `free`, and some that go
/// around the disk trait and are not for the simulated one: `append x text`, `appendv x text`, `copy x y`, `link x y`, `rmdir d`, `truncate x`,
/// `busy x` (see [`busy`]).
pub(crate) fn command(disk: &dyn Disk, base: &Path, line: &str) -> std::io::Result<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let path = |n: usize| base.join(words[n]);
    let number = |n: usize| words[n].parse::<u64>().unwrap();
    let file = || -> std::io::Result<Arc<dyn DiskFile>> { disk.open(&path(1), OpenMode::ReadWrite) };
    match words[0] {
        "create" => drop(disk.open(&path(1), OpenMode::CreateNew)?),
        "write" => file()?.write_all_at(&vec![number(4) as u8; number(3) as usize], number(2))?,
        "flush" => file()?.sync_data()?,
        "flushdir" => disk.sync_dir(&path(1))?,
        "mkdir" => disk.create_dir_all(&path(1))?,
        "rename" => disk.rename(&path(1), &path(2))?,
        "remove" => disk.remove(&path(1))?,
        "length" => file()?.set_len(number(2))?,
        "allocate" => file()?.allocate(number(2))?,
        "punch" => return Ok(file()?.punch(number(2), number(3))?.to_string()),
        "free" => return Ok(disk.free_bytes(base)?.to_string()),
        "append" | "appendv" => {
            let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path(1))?;
            let (text, end) = (words[2].as_bytes(), b"<>".as_slice());
            if words[0] == "append" {
                file.write_all(text)?;
            } else {
                let parts = [std::io::IoSlice::new(text), std::io::IoSlice::new(end)];
                assert_eq!(file.write_vectored(&parts)?, text.len() + end.len());
            }
        }
        "copy" => drop(std::fs::copy(path(1), path(2))?),
        "link" => std::fs::hard_link(path(1), path(2))?,
        "rmdir" => std::fs::remove_dir(path(1))?,
        "truncate" => drop(std::fs::OpenOptions::new().write(true).truncate(true).open(path(1))?),
        "busy" => busy(&path(1)),
        _ => panic!("unknown command {line}"),
    }
    Ok("ok".into())
}

/// Four threads that append numbered records to a file each until the process is killed, and say which are flushed.
fn busy(path: &Path) {
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            scope.spawn(move || {
                let disk = RealDisk::within(&[path.parent().unwrap()]);
                let file = disk.open(&path.with_extension(thread.to_string()), OpenMode::CreateNew).unwrap();
                disk.sync_dir(path.parent().unwrap()).unwrap();
                for n in 0.. {
                    file.write_all_at(&record(thread, n), n * RECORD_BYTES).unwrap();
                    // Every third record is left to the next flush.
                    if n % 3 != 0 {
                        file.sync_data().unwrap();
                        println!("> flushed {thread} {n}");
                    }
                }
            });
        }
    });
}

/// Not a multiple of a sector, so that records share sectors.
pub(crate) const RECORD_BYTES: u64 = 700;

/// What thread `thread` of [`busy`] writes as record `n`.
pub(crate) fn record(thread: u8, n: u64) -> Vec<u8> {
    let mut text = String::new();
    while text.len() < RECORD_BYTES as usize {
        write!(text, "{thread}:{n} ").unwrap();
    }
    text.truncate(RECORD_BYTES as usize);
    text.into_bytes()
}
