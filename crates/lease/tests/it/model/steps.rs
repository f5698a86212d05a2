//! What is done to a queue and its model, drawn at random.

use proptest::prelude::*;

pub(crate) type Pick = prop::sample::Index;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// An entry: messages, priority, key, and milliseconds to its delivery and expiry.
    Append(u32, u8, u32, Option<u64>, Option<u64>),
    /// A consumer with so much prefetch comes, with or without leases that run out.
    Join(u32, bool),
    Leave(Pick, bool, u64),
    Grant(u64),
    Pull(Pick, u64),
    /// From a message that is held on, so many are settled by their holder, if it holds them all.
    Settle(Pick, u64),
    /// From any message on, by any caller.
    SettleAny(Pick, u64),
    SettleTo(Pick),
    /// Of the entry of any message those are settled of which a bit of the number, over and over, is 0.
    SettleBatch(Pick, u64),
    Release(Pick, u64, bool, u64),
    Reject(Pick, u64),
    /// They were never sent.
    Unsend(Pick, u64),
    Extend(Pick, u64),
    Tick(u64),
    /// What is to be recorded is proposed.
    Propose,
    /// So many of what was proposed are committed.
    Commit(usize),
    TellDead(usize),
    /// Of those that were reported some are moved, one could not be.
    Moved(usize),
    Purge,
    Seek(Pick),
    Checkpoint,
    /// The process ends; so many of what was proposed turn out to be committed.
    Crash(usize),
}

/// From 1 to 1,000, as often below 10 as between 10 and 100 and above.
fn log_uniform() -> impl Strategy<Value = u64> {
    (0.0..=3.0f64).prop_map(|power| 10f64.powf(power).round() as u64)
}

/// Entries of 1 to 1,000 messages, of which as many are handed out, settled and given back at once.
pub(crate) fn large_step() -> impl Strategy<Value = Step> {
    (step(), log_uniform(), any::<u64>()).prop_map(|(step, n, bits)| match step {
        Step::Append(_, priority, key, late, until) => Step::Append(n as u32, priority, key, late, until),
        Step::Grant(max) if max < u64::MAX => Step::Grant(n),
        Step::Join(prefetch, leased) if prefetch % 2 == 1 => Step::Join(n as u32, leased),
        Step::Pull(who, _) => Step::Pull(who, n),
        Step::Settle(at, _) => Step::Settle(at, n),
        Step::SettleAny(at, few) if few % 2 == 0 => Step::SettleBatch(at, bits),
        Step::SettleAny(at, _) => Step::SettleAny(at, n),
        Step::Release(at, _, counts, ms) => Step::Release(at, n, counts, ms),
        Step::Reject(at, _) => Step::Reject(at, n),
        Step::Unsend(at, _) => Step::Unsend(at, n),
        other => other,
    })
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let pick = any::<Pick>;
    let delay = || prop_oneof![3 => Just(0u64), 1 => 1u64..60];
    let time = || prop::option::weighted(0.15, 1u64..60);
    let special = (prop_oneof![Just(0u8), Just(0), Just(4), Just(200)], 0u32..5, time(), time());
    let count = prop_oneof![1u32..4, Just(9), Just(40)];
    prop_oneof![
        8 => (count, special).prop_map(|(n, (priority, key, late, until))| Step::Append(n, priority, key, late, until)),
        2 => (0u32..9, any::<bool>()).prop_map(|(prefetch, leased)| Step::Join(prefetch, leased)),
        1 => (pick(), any::<bool>(), delay()).prop_map(|(who, counts, ms)| Step::Leave(who, counts, ms)),
        8 => prop_oneof![Just(u64::MAX), 1u64..9].prop_map(Step::Grant),
        3 => (pick(), 1u64..20).prop_map(|(who, count)| Step::Pull(who, count)),
        8 => (pick(), 1u64..9).prop_map(|(at, count)| Step::Settle(at, count)),
        2 => (pick(), 1u64..9).prop_map(|(at, count)| Step::SettleAny(at, count)),
        1 => pick().prop_map(Step::SettleTo),
        5 => (pick(), 1u64..9, any::<bool>(), delay()).prop_map(|(at, n, counts, ms)| Step::Release(at, n, counts, ms)),
        2 => (pick(), 1u64..4).prop_map(|(at, count)| Step::Reject(at, count)),
        2 => (pick(), 1u64..4).prop_map(|(at, count)| Step::Unsend(at, count)),
        1 => (pick(), 1u64..90).prop_map(|(at, ms)| Step::Extend(at, ms)),
        4 => (0u64..50).prop_map(Step::Tick),
        6 => Just(Step::Propose),
        6 => (0usize..5).prop_map(Step::Commit),
        2 => (1usize..4).prop_map(Step::TellDead),
        2 => (0usize..4).prop_map(Step::Moved),
        1 => Just(Step::Purge),
        1 => pick().prop_map(Step::Seek),
        2 => Just(Step::Checkpoint),
        1 => (0usize..9).prop_map(Step::Crash),
    ]
}
