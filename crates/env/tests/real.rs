//! The parts of the real surroundings that the simulated ones do not have.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use polylogue_env::{Disk, Env, OpenMode, RealDisk, raw_os_error, send_file};
use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// Makes a test of this file end by [`polylogue_env::Fatal::fatal`] when it runs in a process of its own.
const END: &str = "POLYLOGUE_ENV_TEST_END";

#[test]
fn a_full_device_is_a_full_disk() {
    let file = RealDisk::default().open(Path::new("/dev/full"), OpenMode::ReadWrite).unwrap();
    let e = file.write_all_at(b"x", 0).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::StorageFull);
    assert_eq!(raw_os_error(&e), Some(libc::ENOSPC));
    assert_eq!(e.to_string(), "cannot write 1 bytes at 0 of /dev/full: No space left on device (os error 28)");
}

/// A backup could be verified and restored only by the user who had made it.
#[test]
fn a_lock_is_held_by_somebody_who_may_only_read_it() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("env-lock-{}", std::process::id()));
    // A file that no user can open for writing.
    std::fs::create_dir(&path).unwrap();
    let disk = RealDisk::default();
    let held = disk.lock(&path).unwrap();
    assert_eq!(disk.lock(&path).unwrap_err().kind(), ErrorKind::WouldBlock);
    drop(held);
    drop(disk.lock(&path).unwrap());
    std::fs::remove_dir(&path).unwrap();
}

/// Messages and password hashes could be read by everybody on the machine.
#[test]
fn directories_are_for_who_made_them() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("env-mode-{}", std::process::id()));
    RealDisk::default().create_dir_all(&path.join("below")).unwrap();
    for made in [path.clone(), path.join("below")] {
        assert_eq!(std::fs::metadata(made).unwrap().permissions().mode() & 0o777, 0o700);
    }
    std::fs::remove_dir_all(&path).unwrap();
}

/// What a link in a data directory led to was read, written and cut.
#[test]
fn no_link_below_a_data_directory_is_followed() {
    let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("env-links-{}", std::process::id()));
    let (real, way, outside) = (base.join("real"), base.join("way"), base.join("outside"));
    RealDisk::default().create_dir_all(&real.join("sub")).unwrap();
    RealDisk::default().create_dir_all(&outside).unwrap();
    std::fs::write(outside.join("file"), "kept").unwrap();
    // The directory's own path may be a link.
    std::os::unix::fs::symlink(&real, &way).unwrap();
    std::os::unix::fs::symlink(outside.join("file"), way.join("file")).unwrap();
    std::os::unix::fs::symlink(outside.join("new"), way.join("dangling")).unwrap();
    std::os::unix::fs::symlink(&outside, way.join("dir")).unwrap();
    let disk = RealDisk::within(&[&way]);
    let looped = |e: std::io::Error| {
        assert_eq!(raw_os_error(&e), Some(libc::ELOOP), "{e}");
        assert!(e.to_string().contains("symbolic link"), "{e}");
    };
    for name in ["file", "dir/file"] {
        for mode in [OpenMode::ReadWrite, OpenMode::Read, OpenMode::Direct] {
            looped(disk.open(&way.join(name), mode).unwrap_err());
        }
    }
    for name in ["file", "dangling"] {
        let e = disk.open(&way.join(name), OpenMode::CreateNew).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::AlreadyExists);
        looped(disk.lock(&way.join(name)).unwrap_err());
        assert!(disk.exists(&way.join(name)));
    }
    for failed in [
        disk.open(&way.join("dir/new"), OpenMode::CreateNew).map(drop),
        disk.create_dir_all(&way.join("dir/new")),
        disk.remove(&way.join("dir/file")),
        disk.rename(&way.join("dir/file"), &way.join("moved")),
        disk.rename(&way.join("file"), &way.join("dir/moved")),
    ] {
        looped(failed.unwrap_err());
    }
    assert!(disk.list(&way.join("dir")).is_err() && disk.sync_dir(&way.join("dir")).is_err());
    assert!(!disk.exists(&way.join("dir/file")));
    assert_eq!(
        (std::fs::read_to_string(outside.join("file")).unwrap(), std::fs::read_dir(&outside).unwrap().count()),
        ("kept".to_owned(), 1)
    );
    // What is no link is as ever, and a link is renamed and removed like a file.
    disk.create_dir_all(&way.join("sub/below")).unwrap();
    let made = disk.open(&way.join("sub/below/a"), OpenMode::CreateNew).unwrap();
    made.write_all_at(b"here", 0).unwrap();
    disk.rename(&way.join("sub/below/a"), &way.join("b")).unwrap();
    disk.sync_dir(&way.join("sub/below")).unwrap();
    disk.rename(&way.join("file"), &way.join("sub/file")).unwrap();
    disk.remove(&way.join("sub/file")).unwrap();
    assert_eq!(disk.list(&way).unwrap(), ["b", "dangling", "dir", "sub"]);
    assert_eq!(disk.list(&way.join("sub")).unwrap(), ["below"]);
    assert_eq!(std::fs::metadata(way.join("sub/below")).unwrap().permissions().mode() & 0o777, 0o700);
    let mut read = [0; 4];
    disk.open(&way.join("b"), OpenMode::Read).unwrap().read_exact_at(&mut read, 0).unwrap();
    assert_eq!(&read, b"here");
    drop(disk.lock(&way.join("LOCK")).unwrap());
    assert_eq!(std::fs::read_to_string(outside.join("file")).unwrap(), "kept");
    std::fs::remove_dir_all(&base).unwrap();
}

#[test]
fn a_file_goes_to_a_socket_by_range() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("env-send-{}", std::process::id()));
    std::fs::write(&path, b"0123456789").unwrap();
    let file = RealDisk::default().open(&path, OpenMode::Read).unwrap();
    let (out, mut into) = UnixStream::pair().unwrap();
    let fd = file.raw_fd().unwrap();
    assert_eq!(send_file(out.as_raw_fd(), fd, 3, 4).unwrap(), 4);
    assert_eq!(send_file(out.as_raw_fd(), fd, 8, 100).unwrap(), 2);
    assert_eq!(send_file(out.as_raw_fd(), fd, 10, 100).unwrap(), 0);
    let mut got = [0; 6];
    into.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"345689");

    out.set_nonblocking(true).unwrap();
    let full = (0..1_000_000).find_map(|_| send_file(out.as_raw_fd(), fd, 0, 10).err());
    assert_eq!(full.map(|e| e.kind()), Some(ErrorKind::WouldBlock));
    assert_eq!(send_file(-1, fd, 0, 1).unwrap_err().raw_os_error(), Some(libc::EBADF));
    assert_eq!(send_file(out.as_raw_fd(), fd, u64::MAX, 1).unwrap_err().raw_os_error(), Some(libc::EFBIG));
    RealDisk::default().remove(&path).unwrap();
}

#[test]
fn clocks_go_forward_and_random_numbers_differ() {
    let env = Env::real();
    let (wall, start) = (env.clock.now_ms(), env.clock.monotonic_ns());
    assert!(wall > 1_700_000_000_000);
    while env.clock.monotonic_ns() < start + 2_000_000 {}
    assert!(env.clock.now_ms() > wall);
    let mut bytes = [0; 1000];
    env.rng.fill(&mut bytes);
    // The chance that a good generator leaves 32 zeros at the end is 2^-256.
    assert_ne!(bytes[968..], [0; 32]);
    assert_ne!(env.rng.next_u64(), env.rng.next_u64());
}

#[test]
fn threads_run_are_named_and_are_waited_for() {
    let env = Env::real();
    let ran = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&ran);
    let body = move || seen.store(std::thread::current().name() == Some("flush 0"), Ordering::SeqCst);
    // A zero byte must not bring the process down.
    env.tasks.spawn("flush\u{0}0", Box::new(body)).unwrap().join();
    assert!(ran.load(Ordering::SeqCst));
}

#[test]
fn work_that_nobody_waits_for_stands_back() {
    /// The nice value of this thread: field 19, of which the second may hold spaces.
    fn nice() -> i32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let after = stat.rsplit_once(") ").unwrap().1;
        after.split(' ').nth(16).unwrap().parse().unwrap()
    }
    let env = Env::real();
    let (mine, theirs) = (nice(), Arc::new(AtomicI32::new(-100)));
    let seen = Arc::clone(&theirs);
    env.tasks.spawn_behind("behind", Box::new(move || seen.store(nice(), Ordering::SeqCst))).unwrap().join();
    assert_eq!(theirs.load(Ordering::SeqCst), (mine + 5).min(19));
    assert_eq!(nice(), mine, "only that thread");
}

#[test]
fn a_fatal_error_ends_the_process() {
    if std::env::var_os(END).is_some() {
        let env = Env::real();
        let again = env.clone();
        let ends = move || loop {
            again.fatal.fatal("cannot flush /x:\nInput/output error");
        };
        let _second = env.tasks.spawn("second", Box::new(ends.clone())).unwrap();
        ends();
    }
    let myself = std::env::current_exe().unwrap();
    let args = ["a_fatal_error_ends_the_process", "--exact", "--nocapture"];
    let ended = Command::new(myself).args(args).env(END, "1").output().unwrap();
    assert_eq!(ended.status.code(), Some(70));
    let said = String::from_utf8(ended.stderr).unwrap();
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("fatal")).collect();
    assert_eq!(lines, ["polylogue: fatal: cannot flush /x: Input/output error"]);
}
