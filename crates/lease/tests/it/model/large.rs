//! Entries of 1 to 1,000 messages, in the words of four protocols: each has some of the steps, and none has all.

use super::run;
use super::steps::{Step, large_step};
use polylogue_lease::Config;
use proptest::prelude::*;

/// One by one, by whom they were sent to.
fn of_amqp(step: Step) -> Step {
    match step {
        Step::Join(prefetch, _) => Step::Join(prefetch, false),
        Step::Extend(..) | Step::Seek(_) | Step::SettleTo(_) | Step::SettleBatch(..) => Step::Propose,
        other => other,
    }
}

/// Batches as a whole, in part by their indexes, and all up to a position.
fn of_pulsar(step: Step) -> Step {
    match step {
        Step::Append(count, _, key, late, _) => Step::Append(count, 0, key, late, None),
        Step::Join(prefetch, _) => Step::Join(prefetch, false),
        Step::Pull(..) | Step::Extend(..) => Step::Propose,
        other => other,
    }
}

/// Acquired for a time; accepted, released, rejected and renewed.
fn of_share_group(step: Step) -> Step {
    match step {
        Step::Append(count, _, key, _, _) => Step::Append(count, 0, key, None, None),
        Step::Join(..) => Step::Join(8, true),
        Step::SettleAny(..) | Step::SettleTo(_) | Step::SettleBatch(..) | Step::Purge | Step::Seek(_) => {
            Step::Commit(1)
        }
        Step::Grant(max) => Step::Tick(max % 50),
        other => other,
    }
}

/// Popped, and invisible for a time that can be changed.
fn of_pop(step: Step) -> Step {
    match step {
        Step::Append(count, _, key, late, _) => Step::Append(count, 0, key, late, None),
        Step::Join(..) => Step::Join(8, true),
        Step::Reject(at, _) => Step::Extend(at, 60),
        Step::SettleAny(..) | Step::SettleTo(_) | Step::SettleBatch(..) | Step::Seek(_) => Step::Commit(1),
        Step::Grant(max) => Step::Tick(max % 50),
        other => other,
    }
}

fn log_of(steps: Vec<Step>, vocabulary: fn(Step) -> Step) -> Vec<Step> {
    // A consumer is attached from the beginning.
    [Step::Join(0, false), Step::Join(5, true)].into_iter().chain(steps).map(vocabulary).collect()
}

// Each step looks at all messages, of which there are thousands.
proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn large_entries_in_the_words_of_amqp(
        steps in prop::collection::vec(large_step(), 1..80),
        early in any::<bool>(),
        dead_letter in any::<bool>(),
        failures_max in prop::option::of(1u16..4),
        parks in any::<bool>(),
    ) {
        let config = Config { dead_letter, failures_max, mark_handed: true, track_bytes: true, ..Config::default() };
        run(config, early, parks, log_of(steps, of_amqp));
    }

    #[test]
    fn large_entries_in_the_words_of_pulsar(
        steps in prop::collection::vec(large_step(), 1..80),
        quantum in 1u32..40,
    ) {
        let config = Config { whole_entries: true, quantum, track_bytes: true, ..Config::default() };
        run(config, false, false, log_of(steps, of_pulsar));
    }

    #[test]
    fn large_entries_in_the_words_of_a_share_group(steps in prop::collection::vec(large_step(), 1..80)) {
        let config = Config { failures_max: Some(5), ..Config::default() };
        run(config, false, false, log_of(steps, of_share_group));
    }

    #[test]
    fn large_entries_in_the_words_of_pop(
        steps in prop::collection::vec(large_step(), 1..80),
        parks in any::<bool>(),
    ) {
        let config = Config { dead_letter: true, failures_max: Some(3), ..Config::default() };
        run(config, false, parks, log_of(steps, of_pop));
    }
}
