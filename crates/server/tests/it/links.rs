//! Symbolic links in data directories and backups: the real binary.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests of real processes")]

use crate::common;

use common::{Server, TempDir, contents, done, polylogue};
use rustix::process::Signal;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A data directory with a message in it, of a server that has ended.
fn stopped(dir: &TempDir) -> PathBuf {
    let data = dir.join("data");
    let server = Server::start(&data, &[]);
    server.ok(&["topic", "create", "t"]);
    server.ok_with(&["produce", "t"], b"hello\n");
    server.stop(Signal::KILL);
    data
}

/// Every file of a journal.
fn journal_files(data: &Path) -> Vec<PathBuf> {
    let all = contents(data).into_iter().map(|(path, _)| path);
    all.filter(|path| path.parent().is_some_and(|dir| dir.ends_with("journal"))).collect()
}

/// Puts a link in a file's place; what it leads to holds what the file held.
fn link_to(file: &Path, target: &Path) {
    std::fs::copy(file, target).unwrap();
    std::fs::remove_file(file).unwrap();
    symlink(target, file).unwrap();
}

/// What a command says that fails.
fn fails(args: &[&str]) -> String {
    let reported = done(polylogue().args(args));
    assert!(reported.code.is_some_and(|code| code != 0), "{args:?}: {reported:?}");
    reported.out + &reported.err
}

/// What a server says that does not start.
fn starts_not(data: &str) -> String {
    let mut command = polylogue();
    command.args(["serve", "--data", data, "--listen", "kafka=127.0.0.1:0", "--listen", "http=127.0.0.1:0"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let is_ready = lines.into_iter().any(|line| line == "polylogue ready");
    if is_ready {
        child.kill().unwrap();
    }
    let reported = child.wait_with_output().unwrap();
    assert!(!is_ready, "it serves what a link leads to");
    String::from_utf8(reported.stderr).unwrap()
}

/// A journal file that was a link was followed, and what it led to was overwritten.
#[test]
fn a_journal_file_that_is_a_link_is_refused_and_its_target_stays() {
    let dir = TempDir::new();
    let data = stopped(&dir);
    let files = journal_files(&data);
    assert!(!files.is_empty());
    for (number, file) in files.iter().enumerate() {
        let target = dir.join(&format!("outside-{number}"));
        link_to(file, &target);
        let before = std::fs::read(&target).unwrap();
        let at = data.to_str().unwrap();
        let reported = [starts_not(at), fails(&["check", at]), fails(&["repair", at, "--fence"])];
        for reported in reported {
            assert!(reported.contains("symbolic link"), "{}: {reported}", file.display());
        }
        assert!(std::fs::read(&target).unwrap() == before, "{}: what it leads to was changed", file.display());
        assert!(file.is_symlink());
        std::fs::remove_file(file).unwrap();
        std::fs::copy(&target, file).unwrap();
    }
    // As it was, and reached by a link, it starts.
    let way = dir.join("way");
    symlink(&data, &way).unwrap();
    let server = Server::start(&way, &[]);
    assert_eq!(server.ok(&["consume", "t", "--from", "beginning", "--no-follow"]), "hello\n");
}

/// A restore read and wrote what links led to: files of other users, for who could hand over a backup.
#[test]
fn a_restore_follows_no_link_in_what_it_reads_or_writes() {
    let dir = TempDir::new();
    let data = stopped(&dir);
    let secret = dir.join("secret");
    let content = "another user's".repeat(100);
    std::fs::write(&secret, &content).unwrap();
    // One more file, which nothing verifies, and a directory.
    let shard = journal_files(&data)[0].parent().unwrap().to_owned();
    symlink(&secret, shard.join("stray")).unwrap();
    let to = dir.join("to");
    let reported = fails(&["restore", data.to_str().unwrap(), to.to_str().unwrap()]);
    assert!(reported.contains("symbolic link"), "{reported}");
    let copied = contents(&to).into_iter().any(|(_, bytes)| bytes.starts_with(content.as_bytes()));
    assert!(!copied && !to.join("IDENTITY").exists(), "what is not whole is no data directory");
    std::fs::remove_file(shard.join("stray")).unwrap();
    std::fs::remove_dir_all(&to).unwrap();
    // The directory that is written to may be reached by a link, and has none in it.
    let (real, way) = (dir.join("real"), dir.join("way"));
    std::fs::create_dir(&real).unwrap();
    symlink(&real, &way).unwrap();
    let restored = done(polylogue().args(["restore", data.to_str().unwrap(), way.to_str().unwrap()]));
    assert_eq!(restored.code, Some(0), "{}", restored.err);
    let server = Server::start(&real, &[]);
    assert_eq!(server.ok(&["consume", "t", "--from", "beginning", "--no-follow"]), "hello\n");
}
