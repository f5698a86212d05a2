//! Properties of runs: the same seed gives the same run, and a run with too little activity is invalid.

use polylogue_sim::{Mode, Settings, run};

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let (first, again, other) = (run(7, Settings::default()), run(7, Settings::default()), run(8, Settings::default()));
    assert!(first.failures.is_empty(), "{first}");
    assert_eq!(first.to_string(), again.to_string());
    assert_ne!(first.hash, other.hash);
}

#[test]
fn a_run_in_which_too_little_happened_has_failed() {
    let much = Settings {
        mode: Mode::Alone,
        settled_min: 1,
        moved_min: 0,
        returned_min: 0,
        histories_min: 1,
        operations_min: 1 << 40,
        sequenced_min: 1 << 40,
        changes_min: 1 << 40,
        crashes_min: 1 << 40,
        faults_min: 1 << 40,
        steps_max: 1,
    };
    let report = run(1, much);
    for what in
        ["operations, wanted", "idempotent producers, wanted", "changes, wanted", "crashes, wanted", "faults, wanted"]
    {
        assert!(report.failures.iter().any(|why| why.contains(what)), "{report}");
    }
}
