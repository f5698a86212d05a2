//! The command `faultfs-revert`, on a log written by hand.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use polylogue_faultfs::{Record, kept_dir};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

fn run(args: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_faultfs-revert")).args(args).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

#[test]
fn it_undoes_what_the_log_says_and_tells_how_much() {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("faultfs-cli-{}", std::process::id()));
    let (dir, log) = (root.join("dir"), root.join("undo"));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::create_dir_all(kept_dir(&log)).unwrap();
    let (x, y) = (dir.join("x"), dir.join("y"));
    std::fs::write(&x, "new bytes").unwrap();
    std::fs::write(&y, "").unwrap();
    let ino = |path: &Path| std::fs::metadata(path).unwrap().ino();
    let records = [
        Record::Create { path: x.clone(), ino: ino(&x) },
        Record::DirFlushed { path: dir.clone(), upto: 1 },
        Record::Write { ino: ino(&x), position: 0, len: 9, size_before: 3, old: b"old".to_vec() },
        Record::Create { path: y.clone(), ino: ino(&y) },
        // The kill came before the rename was done.
        Record::Rename { from: dir.join("z"), to: dir.join("w"), ino: 1, replaced: 0 },
    ];
    std::fs::write(&log, records.iter().flat_map(Record::to_bytes).collect::<Vec<u8>>()).unwrap();

    let args = ["--log", log.to_str().unwrap(), "--dir", dir.to_str().unwrap(), "--lose-all"];
    let (done, said) = run(&args);
    assert!(done, "{said}");
    assert_eq!(said, "files 1 sectors kept 0 lost 1 names kept 0 lost 2\n");
    assert_eq!(std::fs::read(&x).unwrap(), b"old");
    assert!(!y.exists() && !log.exists() && !kept_dir(&log).exists());
    // Nothing to undo is fine.
    assert!(run(&args).0);
    std::fs::remove_dir_all(root).unwrap();
}

#[test]
fn wrong_arguments_are_told() {
    let usage = "usage: faultfs-revert --log PATH --dir DIR (--seed N | --lose-all)";
    for args in [&["--log", "x"][..], &["--what"], &["--log"], &["--log", "x", "--dir", "y"]] {
        let (done, said) = run(args);
        assert!(!done && said.contains(usage), "{args:?}: {said}");
    }
    let (done, said) = run(&["--log", "x", "--dir", "y", "--seed", "many"]);
    assert!(!done && said.contains("--seed: invalid digit"), "{said}");
}
