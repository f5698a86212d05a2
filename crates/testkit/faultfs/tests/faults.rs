//! Held and failing system calls.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::Place;
use std::os::unix::fs::{MetadataExt, symlink};
use std::time::Duration;

/// The process that the faults strike. Does nothing when it is not started as such.
#[test]
fn victim() {
    common::victim();
}

/// Milliseconds that `body` takes.
fn duration(body: impl FnOnce()) -> u64 {
    let clock = polylogue_env::Env::real().clock;
    let start = clock.monotonic_ns();
    body();
    (clock.monotonic_ns() - start) / 1_000_000
}

#[test]
fn a_flush_is_held_until_it_is_let_go() {
    let place = Place::new("hold");
    let mut victim = place.start();
    victim.all(&["create x", "write x 0 10 1"]);
    place.set(&["hold_sync_ms=60000"]);
    let took = duration(|| {
        for flush in ["flush x", "flushdir ."] {
            let before = events(&place);
            victim.send(flush);
            wait_until("the flush is held", || events(&place) != before);
            victim.send("create after");
            // Long enough for a flush that is not held to come back.
            pause(50);
            assert!(!place.dir.join("after").exists(), "the flush came back");
            place.set(&["hold_sync_ms=0"]);
            assert_eq!((victim.next(), victim.next()), ("ok".into(), "ok".into()));
            victim.all(&["remove after"]);
            place.set(&["hold_sync_ms=60000"]);
        }
        let held = format!("hold_sync {0}/x\nhold_sync {0}\n", place.dir.display());
        assert_eq!(events(&place), held);
        place.set(&["hold_sync_ms=60000", "only=/y"]);
        victim.all(&["flush x"]);
    });
    assert!(took < 50_000, "{took} ms: something was held to its end");
    victim.kill();
}

#[test]
fn a_held_flush_takes_as_long_as_asked() {
    let place = Place::new("hold-time");
    let mut victim = place.start_with(|command| {
        command.env("FAULTFS", "hold_sync_ms=300");
    });
    victim.all(&["create x", "write x 0 10 1"]);
    let took = duration(|| victim.all(&["flush x"]));
    assert!(took >= 300, "{took} ms");
    victim.kill();
}

#[test]
fn a_flush_fails_until_it_is_let_go() {
    let place = Place::new("fail-sync");
    let mut victim = place.start();
    victim.all(&["create x", "write x 0 10 1"]);
    place.set(&["fail_sync=EIO"]);
    let said = victim.run("flush x");
    assert_eq!(said, format!("cannot flush {}/x: Input/output error (os error 5)", place.dir.display()));
    assert!(victim.run("flushdir .").ends_with("Input/output error (os error 5)"));
    victim.all(&["write x 10 10 1"]);
    assert_eq!(events(&place), format!("fail_sync {0}/x\nfail_sync {0}\n", place.dir.display()));
    place.set(&[]);
    victim.all(&["flush x", "flushdir ."]);
    victim.kill();
}

#[test]
fn a_write_fails_and_changes_nothing_until_it_is_let_go() {
    let place = Place::new("fail-write");
    let mut victim = place.start();
    victim.all(&["create x", "write x 0 10 1"]);
    place.set(&["fail_write=ENOSPC"]);
    for command in ["write x 0 10 2", "allocate x 4096", "length x 100", "append x text"] {
        let said = victim.run(command);
        assert!(said.ends_with("No space left on device (os error 28)"), "{command}: {said}");
    }
    assert_eq!(std::fs::read(place.dir.join("x")).unwrap(), [1; 10]);
    assert_eq!(events(&place).lines().count(), 4);
    // A full disk can be made emptier, and has room for names.
    victim.all(&["length x 5", "create y", "flush x"]);
    assert_eq!(victim.run("punch x 0 4096"), "true");
    place.set(&[]);
    victim.all(&["write x 0 10 3", "allocate x 4096"]);
    assert_eq!(std::fs::read(place.dir.join("x")).unwrap()[..10], [3; 10]);
    victim.kill();
}

#[test]
fn a_file_system_without_reservation_is_made_do() {
    let place = Place::new("fail-allocate");
    place.set(&["fail_allocate=EOPNOTSUPP"]);
    let mut victim = place.start();
    victim.all(&["create x", "write x 0 10 1", "allocate x 1000000", "allocate x 10"]);
    assert_eq!(victim.run("punch x 0 4096"), "false");
    let found = std::fs::metadata(place.dir.join("x")).unwrap();
    assert_eq!((found.len(), found.blocks() <= 8), (1_000_000, true));
    assert_eq!(std::fs::read(place.dir.join("x")).unwrap()[..11], [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0]);
    place.set(&["fail_allocate=ENOSPC"]);
    assert!(victim.run("allocate x 2000000").contains("No space left"));
    victim.kill();
}

#[test]
fn free_space_is_as_told() {
    let place = Place::new("free");
    let mut victim = place.start();
    assert_ne!(victim.run("free"), "8192");
    place.set(&["free_bytes=8192"]);
    assert_eq!(victim.run("free"), "8192");
    assert!(victim.run("free ..") == "8192");
    victim.kill();
}

#[test]
fn only_what_lies_below_the_directory_is_struck() {
    let place = Place::new("outside");
    place.set(&["fail_write=EIO", "fail_sync=EIO"]);
    let mut victim = place.start();
    victim.all(&["create ../y", "write ../y 0 10 1", "flush ../y", "flushdir .."]);
    victim.all(&["create x"]);
    assert!(victim.run("write x 0 10 1").contains("Input/output error"));
    // By whatever name.
    symlink(&place.dir, place.root.join("link")).unwrap();
    assert!(victim.run("write ../link/x 0 10 1").contains("Input/output error"));
    assert!(victim.run("flush ../dir/./x").contains("Input/output error"));
    victim.kill();

    let mut victim = place.start_with(|command| {
        command.env("FAULTFS_DIR", place.root.join("link"));
    });
    assert!(victim.run("write x 0 10 1").contains("Input/output error"));
    victim.kill();
}

#[test]
fn without_a_directory_nothing_happens() {
    let place = Place::new("nothing");
    place.set(&["fail_write=EIO", "fail_sync=EIO"]);
    let mut victim = place.start_with(|command| {
        command.env_remove("FAULTFS_DIR");
    });
    victim.all(&["create x", "write x 0 10 1", "flush x", "rename x y", "remove y"]);
    victim.kill();
}

#[test]
fn a_setting_that_is_not_one_ends_the_program() {
    for (nth, setting) in ["fail_sync=EWHAT", "hold_sync_ms=soon", "what=1", "what"].into_iter().enumerate() {
        let place = Place::new(&format!("settings-{nth}"));
        let mut victim = place.start();
        victim.all(&["create x"]);
        // Half a line is not looked at: the test may be writing it.
        std::fs::write(place.root.join("faults.control"), setting).unwrap();
        victim.all(&["flush x"]);
        place.set(&[setting]);
        assert_eq!(victim.run("flush x"), "ended");
        let (code, said) = victim.ended();
        assert_eq!(code, Some(99));
        assert!(said.contains("faultfs: ") && said.contains(setting), "{said}");
    }
}

fn events(place: &Place) -> String {
    place.injector.events().unwrap().iter().map(|line| format!("{line}\n")).collect()
}

/// Asks again and again until it is so.
fn wait_until(what: &str, so: impl Fn() -> bool) {
    for _ in 0..2000 {
        if so() {
            return;
        }
        pause(5);
    }
    panic!("waited in vain: {what}");
}

#[allow(clippy::disallowed_methods, reason = "this test waits for another process")]
fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}
