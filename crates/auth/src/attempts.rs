//! Failed logins are slowed: who guesses passwords gets one answer in ten seconds soon, who has mistyped one notices nothing. And since a
//! guesser need not wait for answers, what is tried next is not even looked at before its turn: one try in two seconds, right or wrong.
//!
//! The first failures of a name from an address are answered after [`DELAY_MS`], and each further one after twice the time of the one before,
//! up to [`DELAY_MS_MAX`]. After [`FORGET_MS`] without a failure, or with a right password, it begins anew. At most [`ATTEMPTS_MAX`] are
//! remembered, those that failed last.

use polylogue_types::Map;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// How many names and addresses are remembered: about 10 MB.
pub const ATTEMPTS_MAX: usize = 65_536;
/// After how long the first failures are answered. Milliseconds.
pub const DELAY_MS: u64 = 50;
/// Failures that are answered after [`DELAY_MS`].
pub const FREE_FAILURES: u32 = 3;
/// The longest a failure's answer waits. Milliseconds.
pub const DELAY_MS_MAX: u64 = 10_000;
/// The longest that lies between two tries of a name from an address that are looked at. Milliseconds.
pub(crate) const TURN_MS_MAX: u64 = 2_000;
/// When a failure is forgotten. Milliseconds.
pub const FORGET_MS: u64 = 15 * 60 * 1_000;
/// The longest name that is remembered as it is; of a longer one so much of its beginning. Bytes.
const NAME_BYTES_MAX: usize = 64;

/// Who tried, and from where.
type Key = (Box<[u8]>, IpAddr);

#[derive(Clone, Copy, Debug)]
struct Failed {
    count: u32,
    /// The last time, and which of the failures that was.
    at: (u64, u64),
    /// When the next try may be looked at.
    free_ms: u64,
}

/// After how long the answer to so many failures comes.
fn delay_ms(count: u32) -> u64 {
    let doubled = count.saturating_sub(FREE_FAILURES).min(16);
    (DELAY_MS << doubled).min(DELAY_MS_MAX)
}

/// How long lies between two tries after so many failures.
fn gap_ms(count: u32) -> u64 {
    if count <= FREE_FAILURES { 0 } else { delay_ms(count).min(TURN_MS_MAX) }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Attempts {
    failed: Map<Key, Failed>,
    /// By when it was, and which failure.
    by_age: BTreeMap<(u64, u64), Key>,
    next: u64,
}

/// One machine has as many addresses of version 6 as it likes: those of its network are one.
fn key(name: &str, address: IpAddr) -> Key {
    let name = name.as_bytes();
    let address = match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        address => address,
    };
    (name.get(..NAME_BYTES_MAX).unwrap_or(name).into(), address)
}

impl Attempts {
    /// Somebody is about to try. 0 says that it is that one's turn, which is taken by it; else how long it is until the next one, for which it
    /// asks again: whoever is there then has it, and nobody holds one who has gone. Milliseconds. `now_ms` never goes back.
    pub fn turn(&mut self, name: &str, address: IpAddr, now_ms: u64) -> u64 {
        self.forget(now_ms);
        let Some(failed) = self.failed.get_mut(&key(name, address)) else { return 0 };
        let wait_ms = failed.free_ms.saturating_sub(now_ms);
        if wait_ms == 0 {
            failed.free_ms = now_ms + gap_ms(failed.count.saturating_add(1));
        }
        wait_ms
    }

    /// Somebody failed: how long the answer has to wait. Milliseconds. `now_ms` never goes back.
    pub fn failed(&mut self, name: &str, address: IpAddr, now_ms: u64) -> u64 {
        self.forget(now_ms);
        let key = key(name, address);
        let before = self.failed.get(&key).copied();
        if let Some(before) = before {
            self.by_age.remove(&before.at);
        } else if self.failed.len() >= ATTEMPTS_MAX
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.failed.remove(&oldest);
        }
        self.next += 1;
        let count = before.map_or(0, |before| before.count).saturating_add(1);
        let at = (now_ms, self.next);
        self.by_age.insert(at, key.clone());
        let free_ms = before.map_or(0, |before| before.free_ms).max(now_ms + gap_ms(count));
        self.failed.insert(key, Failed { count, at, free_ms });
        delay_ms(count)
    }

    /// Somebody logged in.
    pub fn succeeded(&mut self, name: &str, address: IpAddr) {
        if let Some(before) = self.failed.remove(&key(name, address)) {
            self.by_age.remove(&before.at);
        }
    }

    /// How many are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.failed.len()
    }

    /// Whether nobody is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.failed.is_empty()
    }

    fn forget(&mut self, now_ms: u64) {
        while let Some(oldest) = self.by_age.first_entry().filter(|oldest| oldest.key().0 + FORGET_MS <= now_ms) {
            self.failed.remove(&oldest.remove());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn who_guesses_waits_longer_and_longer() {
        let mut attempts = Attempts::default();
        let delays: Vec<u64> = (0..13).map(|at| attempts.failed("user", HERE, at)).collect();
        assert_eq!(delays, [50, 50, 50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000, 10_000]);
        let there = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(attempts.failed("user", there, 13), 50, "the user itself is not locked out by somebody elsewhere");
        assert_eq!(attempts.failed("other", HERE, 13), 50);
        attempts.succeeded("user", HERE);
        assert_eq!(attempts.failed("user", HERE, 14), 50);
        assert_eq!(attempts.len(), 3);
    }

    /// Who closed the connection without waiting for the answer guessed as fast as passwords can be looked at.
    #[test]
    fn a_try_is_not_looked_at_before_its_turn() {
        let mut attempts = Attempts::default();
        // A try each millisecond for a minute, none of whose answers is waited for.
        let mut looked = 0;
        for now in 0..60_000 {
            if attempts.turn("user", HERE, now) == 0 {
                attempts.failed("user", HERE, now);
                looked += 1;
            }
        }
        assert!((20..45).contains(&looked), "{looked}");
        assert!((1..=TURN_MS_MAX).contains(&attempts.turn("user", HERE, 60_000)), "the next one is not far off");
        assert_eq!(attempts.turn("other", HERE, 60_000), 0, "others do not wait");
    }

    #[test]
    fn who_has_mistyped_a_password_notices_nothing() {
        let mut attempts = Attempts::default();
        for at in 0..u64::from(FREE_FAILURES) {
            assert_eq!(attempts.turn("user", HERE, at), 0);
            attempts.failed("user", HERE, at);
        }
        assert_eq!(attempts.turn("user", HERE, 4), 0);
        attempts.failed("user", HERE, 4);
        assert_eq!(
            (attempts.turn("user", HERE, 5), attempts.turn("user", HERE, 6)),
            (99, 98),
            "who asks holds nothing"
        );
        attempts.succeeded("user", HERE);
        assert_eq!(attempts.turn("user", HERE, 6), 0);
    }

    #[test]
    fn a_network_of_version_6_is_one_address() {
        let mut attempts = Attempts::default();
        let at = |text: &str| text.parse::<IpAddr>().unwrap();
        (0..9).for_each(|_| _ = attempts.failed("user", at("2001:db8::1"), 1));
        assert!(attempts.failed("user", at("2001:db8::ffff:1"), 2) > DELAY_MS);
        assert_eq!(attempts.failed("user", at("2001:db8:0:1::1"), 2), DELAY_MS, "another one");
    }

    #[test]
    fn what_is_long_ago_is_forgotten() {
        let mut attempts = Attempts::default();
        (0..9).for_each(|_| _ = attempts.failed("user", HERE, 1_000));
        assert_eq!(attempts.failed("user", HERE, 1_000 + FORGET_MS - 1), 6_400);
        assert_eq!(attempts.failed("user", HERE, 1_000 + 2 * FORGET_MS - 1), 50);
        attempts.succeeded("user", HERE);
        assert!(attempts.is_empty() && attempts.by_age.is_empty());
    }

    #[test]
    fn a_flood_of_names_is_bounded_and_pushes_out_the_oldest() {
        let mut attempts = Attempts::default();
        (0..9).for_each(|_| _ = attempts.failed("first", HERE, 1));
        for at in 0..ATTEMPTS_MAX as u64 {
            attempts.failed(&format!("{at}{}", "x".repeat(1_000)), HERE, 2);
        }
        assert_eq!((attempts.len(), attempts.by_age.len()), (ATTEMPTS_MAX, ATTEMPTS_MAX));
        assert_eq!(attempts.failed("first", HERE, 3), 50, "it was forgotten");
        assert!(attempts.failed.keys().all(|(name, _)| name.len() <= NAME_BYTES_MAX));
    }
}
