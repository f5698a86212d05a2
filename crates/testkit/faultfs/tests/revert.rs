//! What undoing a log can leave, over many seeds: all that a power cut can, and nothing else. The changes are made
//! and logged here, without the injector.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use polylogue_env::{Disk, RealDisk};
use polylogue_faultfs::{Power, Record, Report, kept_dir, revert};
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A directory whose changes are logged.
struct Scene {
    root: PathBuf,
    dir: PathBuf,
    log: Vec<u8>,
}

impl Scene {
    fn new(name: &str) -> Scene {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("revert-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        let dir = root.join("dir");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::create_dir_all(kept_dir(&root.join("undo"))).unwrap();
        Scene { root, dir, log: Vec::new() }
    }

    /// One with a file `x` that holds this and was flushed.
    fn with_file(name: &str, bytes: &[u8]) -> Scene {
        let scene = Scene::new(name);
        std::fs::write(scene.dir.join("x"), bytes).unwrap();
        scene
    }

    fn ino(&self, name: &str) -> u64 {
        std::fs::metadata(self.dir.join(name)).unwrap().ino()
    }

    fn log(&mut self, record: &Record) {
        self.log.extend(record.to_bytes());
    }

    fn create(&mut self, name: &str) {
        std::fs::write(self.dir.join(name), name).unwrap();
        let (path, ino) = (self.dir.join(name), self.ino(name));
        self.log(&Record::Create { path, ino });
    }

    fn rename(&mut self, from: &str, to: &str) {
        let ino = self.ino(from);
        let (from, to) = (self.dir.join(from), self.dir.join(to));
        RealDisk::default().rename(&from, &to).unwrap();
        self.log(&Record::Rename { from, to, ino, replaced: 0 });
    }

    fn write(&mut self, bytes: &[u8], position: u64) {
        let before = std::fs::read(self.dir.join("x")).unwrap();
        let end = before.len().min(position as usize + bytes.len());
        let old = before[end.min(position as usize)..end].to_vec();
        let (ino, len, size_before) = (self.ino("x"), bytes.len() as u64, before.len() as u64);
        self.log(&Record::Write { ino, position, len, size_before, old });
        let file = OpenOptions::new().write(true).open(self.dir.join("x")).unwrap();
        file.write_all_at(bytes, position).unwrap();
    }

    fn cut(&mut self, len: u64) {
        let before = std::fs::read(self.dir.join("x")).unwrap();
        let (ino, size_before, old) = (self.ino("x"), before.len() as u64, before[len as usize..].to_vec());
        self.log(&Record::Cut { ino, size_before, size_after: len, old });
        OpenOptions::new().write(true).open(self.dir.join("x")).unwrap().set_len(len).unwrap();
    }

    /// Cuts the power, and says what is left of `x`, and what was done.
    fn revert(self, power: Power) -> (Option<Vec<u8>>, Vec<String>, Report) {
        let log = self.root.join("undo");
        std::fs::write(&log, &self.log).unwrap();
        let report = revert(&log, &self.dir, power).unwrap();
        let left = std::fs::read(self.dir.join("x")).ok();
        let names = RealDisk::default().list(&self.dir).unwrap();
        std::fs::remove_dir_all(self.root).unwrap();
        (left, names, report)
    }
}

#[test]
fn each_sector_has_any_version_that_it_had() {
    let seen: BTreeSet<(u8, u8)> = (0..600)
        .map(|seed| {
            let mut scene = Scene::with_file("versions", &[0; 1024]);
            (1..=3).for_each(|n| scene.write(&[n; 1024], 0));
            let left = scene.revert(Power::Cut { seed }).0.unwrap();
            assert!(left.len() == 1024 && left.chunks(512).all(|sector| sector == [sector[0]; 512]));
            (left[0], left[512])
        })
        .collect();
    let all: Vec<_> = (0..=3).flat_map(|a| (0..=3).map(move |b| (a, b))).collect();
    assert_eq!(Vec::from_iter(seen), all);
}

#[test]
fn bytes_from_before_a_cut_never_mix_with_those_from_after_it() {
    let (mut old, mut between, mut new, mut empty) = (0, 0, 0, 0);
    for seed in 0..400 {
        let mut scene = Scene::with_file("cut", &[1; 2048]);
        scene.write(&[2; 1024], 0);
        scene.cut(0);
        scene.write(&[3; 2048], 0);
        let left = scene.revert(Power::Cut { seed }).0.unwrap();
        let has = |byte| left.contains(&byte);
        assert!(!(has(3) && (has(1) || has(2))), "seed {seed}: {left:?}");
        assert!(left.len() == 2048 || left.is_empty(), "seed {seed}: {}", left.len());
        assert!(!has(1) || !has(0), "seed {seed}: part of the old file: {left:?}");
        old += usize::from(has(1) && !has(2));
        between += usize::from(has(2));
        new += usize::from(has(3));
        empty += usize::from(left.is_empty());
    }
    assert!(old > 0 && between > 0 && new > 0 && empty > 0, "{old} {between} {new} {empty}");
}

#[test]
fn a_flush_covers_what_was_logged_before_it_began() {
    let mut scene = Scene::with_file("upto", &[0; 512]);
    scene.write(&[1; 512], 0);
    let upto = scene.log.len() as u64;
    // While the flush is running.
    scene.write(&[2; 512], 0);
    let ino = scene.ino("x");
    scene.log(&Record::Flushed { ino, upto });
    assert_eq!(scene.revert(Power::CutLosingAll).0, Some(vec![1; 512]));

    let mut scene = Scene::new("dir-upto");
    scene.create("x");
    let upto = scene.log.len() as u64;
    scene.create("y");
    let path = scene.dir.clone();
    scene.log(&Record::DirFlushed { path, upto });
    assert_eq!(scene.revert(Power::CutLosingAll).1, ["x"]);
}

#[test]
fn a_change_of_names_survives_only_with_those_before_it() {
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let mut scene = Scene::new("chain");
        scene.create("a");
        scene.rename("a", "b");
        scene.rename("b", "c");
        let (_, names, report) = scene.revert(Power::Cut { seed });
        assert_eq!(names.concat(), ["", "a", "b", "c"][report.names_kept as usize], "seed {seed}");
        assert_eq!(report.names_kept + report.names_lost, 3);
        seen.insert(report.names_kept);
    }
    assert_eq!(Vec::from_iter(seen), [0, 1, 2, 3]);
}

#[test]
fn a_change_that_the_kill_prevented_is_not_undone() {
    let mut scene = Scene::with_file("prevented", b"x");
    let (ino, path, to) = (scene.ino("x"), scene.dir.join("x"), scene.dir.join("y"));
    std::fs::hard_link(&path, kept_dir(&scene.root.join("undo")).join(ino.to_string())).unwrap();
    scene.log(&Record::Remove { path: path.clone(), ino });
    scene.log(&Record::Rename { from: path.clone(), to, ino, replaced: 0 });
    let (left, names, _) = scene.revert(Power::CutLosingAll);
    assert_eq!((left.as_deref(), names.concat()), (Some(&b"x"[..]), "x".to_owned()));
}

#[test]
fn one_seed_gives_one_result() {
    let left = |seed| {
        let mut scene = Scene::with_file("again", &[0; 8192]);
        (1..=5).for_each(|n| scene.write(&[n; 4096], u64::from(n) * 700));
        scene.revert(Power::Cut { seed })
    };
    assert!((0..20).all(|seed| left(seed) == left(seed)));
    let all: BTreeSet<_> = (0..20).map(|seed| left(seed).0).collect();
    assert!(all.len() > 5, "{}", all.len());
}
