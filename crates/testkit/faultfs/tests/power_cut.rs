//! `kill -9`, and then the undo log: what had been flushed is there, and what had not may be gone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{Place, RECORD_BYTES, command, record};
use polylogue_env::sim::{SimDisk, SimRng};
use polylogue_env::{Disk, OpenMode};
use polylogue_faultfs::{Power, Report, kept_dir};
use std::collections::BTreeMap;
use std::path::Path;

/// The process that is killed. Does nothing when it is not started as such.
#[test]
fn victim() {
    common::victim();
}

fn cut(place: &Place, power: Power) -> Report {
    let log = place.injector.log();
    assert!(log.exists(), "nothing was logged");
    let report = place.injector.cut_power(power).unwrap();
    assert!(!log.exists() && !kept_dir(&log).exists(), "the log stayed");
    report
}

/// Runs commands in a victim, kills it, cuts the power.
fn killed(name: &str, power: Power, commands: &[&str]) -> (Place, Report) {
    let place = Place::new(name);
    let mut victim = place.start();
    victim.all(commands);
    victim.kill();
    let report = cut(&place, power);
    (place, report)
}

fn content(place: &Place, name: &str) -> Option<Vec<u8>> {
    std::fs::read(place.dir.join(name)).ok()
}

/// How many of 30 seeds leave file `x` with 2,000 bytes of 7, after these commands.
fn survivals(name: &str, commands: &[&str]) -> usize {
    let survived = (0..30).filter(|seed| {
        let (place, _) = killed(&format!("{name}-{seed}"), Power::Cut { seed: *seed }, commands);
        content(&place, "x") == Some(vec![7; 2000])
    });
    survived.count()
}

#[test]
fn what_was_flushed_survives_every_cut() {
    let careful = [
        "create x.tmp",
        "write x.tmp 0 2000 7",
        "flush x.tmp",
        "rename x.tmp x",
        "flushdir .",
        // And then something else.
        "create y",
        "write y 0 2000 8",
        "create z",
        "remove y",
    ];
    assert_eq!(survivals("careful", &careful), 30);
}

#[test]
fn an_omitted_flush_is_found() {
    let omitted = [
        ("no-data", vec!["create x.tmp", "write x.tmp 0 2000 7", "rename x.tmp x", "flushdir ."]),
        ("no-dir", vec!["create x.tmp", "write x.tmp 0 2000 7", "flush x.tmp", "rename x.tmp x"]),
        ("too-early", vec!["create x", "flush x", "flushdir .", "write x 0 2000 7"]),
        ("wrong-dir", vec!["mkdir d", "create x", "write x 0 2000 7", "flush x", "flushdir d"]),
        ("other-file", vec!["create x", "create y", "write x 0 2000 7", "flush y", "flushdir ."]),
        ("only-dir", vec!["create x", "flushdir .", "write x 0 2000 7", "flushdir ."]),
        ("cut", vec!["create x", "write x 0 3000 7", "flush x", "flushdir .", "length x 2000"]),
    ];
    for (name, commands) in omitted {
        let survived = survivals(name, &commands);
        assert!((1..30).contains(&survived), "{name}: {survived} of 30 survived");
    }
}

#[test]
fn sectors_are_torn_and_reordered_but_never_invented() {
    let (mut torn, mut reordered, mut all, mut none) = (0, 0, 0, 0);
    let flushed = ["create x", "write x 0 16384 100", "flush x", "flushdir ."];
    for seed in 0..60 {
        let rng = SimRng::new(seed);
        let writes: Vec<(u64, u64)> = (0..6).map(|_| (rng.below(28), rng.below(4) + 1)).collect();
        let commands = writes.iter().zip(1..).map(|((at, len), n)| format!("write x {} {} {n}", at * 512, len * 512));
        let commands: Vec<String> = flushed.iter().map(|c| (*c).to_owned()).chain(commands).collect();
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        let (place, report) = killed(&format!("sectors-{seed}"), Power::Cut { seed }, &commands);
        let left = content(&place, "x").unwrap();
        assert_eq!(left.len(), 16384);
        for (sector, bytes) in left.chunks(512).enumerate() {
            let covers = |(at, len): (u64, u64)| (at..at + len).contains(&(sector as u64));
            let known = bytes[0] == 100 || covers(writes[usize::from(bytes[0]) - 1]);
            assert!(known && bytes == [bytes[0]; 512], "seed {seed}, sector {sector}: {bytes:?}");
        }
        all += usize::from(report.sectors_lost == 0);
        none += usize::from(report.sectors_kept == 0);
        torn += usize::from(report.sectors_lost > 0 && report.sectors_kept > 0);
        // The newest write is there in part, and an older one that it does not cover is not.
        reordered += usize::from(left.contains(&6) && !left.contains(&1) && writes[0].0.abs_diff(writes[5].0) > 4);
    }
    assert!(all > 0 && none > 0 && torn > 0 && reordered > 0, "{all} {none} {torn} {reordered}");
}

#[test]
fn four_threads_lose_nothing_that_they_flushed() {
    let mut lost_in_total = 0;
    for seed in 0..6 {
        let place = Place::new(&format!("threads-{seed}"));
        let mut victim = place.start();
        victim.send("busy t");
        let mut flushed: BTreeMap<u8, u64> = BTreeMap::new();
        for _ in 0..150 + seed * 40 {
            let said = victim.next();
            let words: Vec<&str> = said.split(' ').collect();
            flushed.insert(words[1].parse().unwrap(), words[2].parse().unwrap());
        }
        victim.kill();
        lost_in_total += cut(&place, Power::Cut { seed }).sectors_lost;
        assert_eq!(flushed.len(), 4);
        for (thread, last) in flushed {
            let left = content(&place, &format!("t.{thread}")).expect("a flushed file");
            for n in 0..=last {
                let from = (n * RECORD_BYTES) as usize;
                let found = left.get(from..from + RECORD_BYTES as usize);
                assert_eq!(found, Some(&record(thread, n)[..]), "seed {seed}, thread {thread}, record {n}");
            }
        }
    }
    assert!(lost_in_total > 0, "nothing was ever lost");
}

#[test]
fn a_log_goes_on_over_a_restart() {
    let place = Place::new("restart");
    let mut first = place.start();
    first.all(&["create x", "write x 0 2000 7", "flush x", "flushdir .", "write x 0 1000 8"]);
    first.kill();
    // The kill may have torn the last record.
    let mut log = std::fs::read(place.injector.log()).unwrap();
    log.extend_from_slice(&[9, 0, 0, 0, 1]);
    std::fs::write(place.injector.log(), log).unwrap();
    let mut second = place.start();
    second.all(&["create y", "write y 0 10 1", "flush y", "flushdir .", "write x 0 2000 9", "remove y"]);
    second.kill();
    cut(&place, Power::CutLosingAll);
    assert_eq!(content(&place, "x"), Some(vec![7; 2000]));
    assert_eq!(content(&place, "y"), Some(vec![1; 10]));
}

#[test]
fn a_failed_flush_makes_nothing_durable() {
    let place = Place::new("failed");
    let mut victim = place.start();
    victim.all(&["create x", "flushdir .", "write x 0 10 1"]);
    place.set(&["fail_sync=EIO"]);
    assert!(victim.run("flush x").contains("Input/output error"));
    victim.kill();
    cut(&place, Power::CutLosingAll);
    assert_eq!(content(&place, "x"), Some(vec![]));
}

#[test]
fn what_goes_around_pwrite_is_seen_too() {
    let flushed = ["create x", "append x one", "create y", "flush x", "flush y", "flushdir ."];
    let unflushed =
        [vec!["append x two"], vec!["appendv x two"], vec!["truncate x"], vec!["link x z"], vec!["copy x y"]];
    for (nth, commands) in unflushed.iter().enumerate() {
        let (place, _) = killed(&format!("around-{nth}"), Power::CutLosingAll, &[&flushed[..], &commands[..]].concat());
        assert_eq!(content(&place, "x").as_deref(), Some(&b"one"[..]), "{commands:?}");
        assert_eq!(content(&place, "y").as_deref(), Some(&b""[..]), "{commands:?}");
        assert_eq!(content(&place, "z"), None);
    }
    let then_flushed = ["truncate x", "appendv x two", "copy x y", "link x z", "flush x", "flush y", "flushdir ."];
    let commands = [&flushed[..], &then_flushed[..], &["append y three"]].concat();
    let (place, _) = killed("around-flushed", Power::CutLosingAll, &commands);
    for name in ["x", "y", "z"] {
        assert_eq!(content(&place, name).as_deref(), Some(&b"two<>"[..]), "{name}");
    }
}

#[test]
fn a_new_directory_goes_with_all_that_is_in_it() {
    let commands = ["mkdir d/e", "create d/x", "write d/x 0 10 1", "flush d/x", "flushdir d/e", "flushdir d"];
    let (place, _) = killed("new-dir", Power::CutLosingAll, &commands);
    assert!(!place.dir.join("d").exists());
    let commands = [&commands[..], &["flushdir ."]].concat();
    let (place, _) = killed("new-dir-flushed", Power::CutLosingAll, &commands);
    assert_eq!(content(&place, "d/x"), Some(vec![1; 10]));
    assert!(place.dir.join("d/e").exists());
}

#[test]
fn what_cannot_be_undone_ends_the_program() {
    let place = Place::new("refused");
    for command in ["rename d e", "rmdir d", "rename ../out x"] {
        let mut victim = place.start();
        victim.all(&["mkdir d"]);
        std::fs::write(place.root.join("out"), b"").unwrap();
        assert_eq!(victim.run(command), "ended");
        let (code, said) = victim.ended();
        assert_eq!(code, Some(99), "{said}");
        assert!(said.contains("faultfs: cannot undo"), "{said}");
    }
}

/// Random commands that make sense mostly; what fails must fail on both disks.
fn random_command(rng: &SimRng) -> String {
    let names = ["a", "b", "c", "d/a", "d/b"];
    let name = || names[rng.below(5) as usize];
    let (x, at, len, byte) = (name(), rng.below(20_000), rng.below(6_000) + 1, rng.below(255) + 1);
    match rng.below(16) {
        0..=2 => format!("create {x}"),
        3..=6 => format!("write {x} {at} {len} {byte}"),
        7..=8 => format!("flush {x}"),
        9 => "flushdir .".into(),
        10 => "flushdir d".into(),
        11 => format!("rename {x} {}", name()),
        12 => format!("remove {x}"),
        13 => format!("length {x} {at}"),
        14 => format!("allocate {x} {at}"),
        _ => format!("punch {x} {at} {len}"),
    }
}

/// All files of a disk below a directory, by name.
fn tree(disk: &dyn Disk, base: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut tree = BTreeMap::new();
    for dir in [".", "d"] {
        for name in disk.list(&base.join(dir)).unwrap_or_default() {
            let path = base.join(dir).join(&name);
            if disk.list(&path).is_ok() {
                continue;
            }
            let file = disk.open(&path, OpenMode::Read).unwrap();
            let mut bytes = vec![0; file.size().unwrap() as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            tree.insert(format!("{dir}/{name}"), bytes);
        }
    }
    tree
}

#[test]
fn losing_all_leaves_what_the_simulated_disk_leaves() {
    let mut lost = 0;
    for seed in 0..40 {
        let rng = SimRng::new(seed);
        let (sim, base) = (SimDisk::new(seed), Path::new("/base"));
        sim.create_dir_all(base).unwrap();
        sim.sync_dir(Path::new("/")).unwrap();
        let place = Place::new(&format!("differential-{seed}"));
        let mut victim = place.start();
        let mut commands = vec!["mkdir d".to_owned(), "flushdir .".to_owned()];
        commands.truncate(if seed % 4 == 0 { 1 } else { 2 });
        commands.extend((0..80).map(|_| random_command(&rng)));
        for line in &commands {
            let on_sim = command(&sim, base, line);
            let on_real = victim.run(line);
            assert_eq!(on_sim.is_ok(), !on_real.starts_with("cannot"), "seed {seed}: {line}: {on_real}");
        }
        victim.kill();
        let real = polylogue_env::RealDisk::default();
        let before = tree(&real, &place.dir);
        assert_eq!(before, tree(&sim, base), "seed {seed}: before the cut");
        cut(&place, Power::CutLosingAll);
        sim.crash_losing_all();
        let after = tree(&real, &place.dir);
        assert!(after == tree(&sim, base), "seed {seed}: {commands:#?}");
        lost += usize::from(after != before);
    }
    assert!(lost > 30, "only {lost} of 40 lost anything");
}
