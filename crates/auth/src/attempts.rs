//! Failed logins are slowed: who guesses passwords gets one answer in ten seconds soon, who has mistyped one notices nothing. And since a
//! guesser need not wait for answers, what is tried next is not even looked at before its turn: one try in two seconds, right or wrong.
//!
//! The first failures of a name from an address are answered after [`DELAY_MS`], and each further one after twice the time of the one before,
//! up to [`DELAY_MS_MAX`]. Tries that wait for their turn stand in a line of their name and address, whose last one is looked at first: however
//! many wrong ones wait, a right one has the next turn. A line has [`WAITING_MAX`] places; an attempt that is pushed out of it is refused immediately. After [`FORGET_MS`] without a failure, or with a right password, it begins anew. At most [`ATTEMPTS_MAX`] are
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
/// Tries of a name from an address that wait for their turn at a time.
pub const WAITING_MAX: usize = 16;
/// How long a turn is kept for the try that came last, and then for each one before it: it may be gone. Milliseconds.
const CLAIM_MS: u64 = 50;
/// When a failure is forgotten. Milliseconds.
pub const FORGET_MS: u64 = 15 * 60 * 1_000;
/// The longest name that is remembered as it is; of a longer one so much of its beginning. Bytes.
const NAME_BYTES_MAX: usize = 64;

/// Who tried, and from where.
type Key = (Box<[u8]>, IpAddr);

#[derive(Debug)]
struct Failed {
    count: u32,
    /// The last time, and which of the failures that was.
    at: (u64, u64),
    /// When the next try may be looked at.
    free_ms: u64,
    /// Tickets of those that wait, the last one last. Some may be gone.
    waiting: Vec<u64>,
}

/// A try's place in the line of its name and address, from its first question on.
#[derive(Debug, Default)]
pub struct Ticket(Option<u64>);

/// When a try is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Now.
    Now,
    /// Perhaps after so long, when it asks again. Milliseconds.
    After(u64),
    /// Never: too many came behind it.
    Refused,
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
    next_ticket: u64,
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
    /// An attempt begins. [`Turn::Now`] takes a turn; an attempt that has to wait asks again with the same ticket, and blocks
    /// no other one by being gone. `now_ms` never goes back.
    pub fn turn(&mut self, name: &str, address: IpAddr, ticket: &mut Ticket, now_ms: u64) -> Turn {
        self.forget(now_ms);
        let Some(failed) = self.failed.get_mut(&key(name, address)) else { return Turn::Now };
        let waiting = &mut failed.waiting;
        let at = match ticket.0 {
            Some(mine) => match waiting.iter().position(|ticket| *ticket == mine) {
                Some(at) => Some(at),
                None => return Turn::Refused,
            },
            None => None,
        };
        let behind = at.map_or(0, |at| waiting.len() - 1 - at);
        let due_ms = failed.free_ms.saturating_add(behind as u64 * CLAIM_MS);
        if due_ms <= now_ms {
            at.map(|at| waiting.remove(at));
            *ticket = Ticket::default();
            failed.free_ms = now_ms + gap_ms(failed.count.saturating_add(1));
            return Turn::Now;
        }
        if at.is_none() {
            if waiting.len() >= WAITING_MAX {
                waiting.remove(0);
            }
            self.next_ticket += 1;
            *ticket = Ticket(Some(self.next_ticket));
            waiting.push(self.next_ticket);
        }
        Turn::After(due_ms - now_ms)
    }

    /// An attempt failed: returns how long the answer has to wait. Milliseconds. `now_ms` never goes back.
    pub fn failed(&mut self, name: &str, address: IpAddr, now_ms: u64) -> u64 {
        self.forget(now_ms);
        let key = key(name, address);
        let before = self.failed.remove(&key);
        if let Some(before) = &before {
            self.by_age.remove(&before.at);
        } else if self.failed.len() >= ATTEMPTS_MAX
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.failed.remove(&oldest);
        }
        self.next += 1;
        let count = before.as_ref().map_or(0, |before| before.count).saturating_add(1);
        let at = (now_ms, self.next);
        self.by_age.insert(at, key.clone());
        let free_ms = before.as_ref().map_or(0, |before| before.free_ms).max(now_ms + gap_ms(count));
        let waiting = before.map(|before| before.waiting).unwrap_or_default();
        self.failed.insert(key, Failed { count, at, free_ms, waiting });
        delay_ms(count)
    }

    /// An attempt succeeded.
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

    /// Whether no name or address is remembered.
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
        assert_eq!(attempts.failed("user", there, 13), 50, "the user itself is not locked out by someone elsewhere");
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
            if attempts.turn("user", HERE, &mut Ticket::default(), now) == Turn::Now {
                attempts.failed("user", HERE, now);
                looked += 1;
            }
        }
        assert!((20..45).contains(&looked), "{looked}");
        let next = attempts.turn("user", HERE, &mut Ticket::default(), 60_000);
        assert!(matches!(next, Turn::After(1..=TURN_MS_MAX)), "the next one is not far off");
        assert_eq!(attempts.turn("other", HERE, &mut Ticket::default(), 60_000), Turn::Now, "others do not wait");
    }

    #[test]
    fn who_has_mistyped_a_password_notices_nothing() {
        let mut attempts = Attempts::default();
        for at in 0..u64::from(FREE_FAILURES) {
            assert_eq!(attempts.turn("user", HERE, &mut Ticket::default(), at), Turn::Now);
            attempts.failed("user", HERE, at);
        }
        assert_eq!(attempts.turn("user", HERE, &mut Ticket::default(), 4), Turn::Now);
        attempts.failed("user", HERE, 4);
        let (mut gone, mut there) = (Ticket::default(), Ticket::default());
        assert_eq!(attempts.turn("user", HERE, &mut there, 5), Turn::After(99));
        assert_eq!(attempts.turn("user", HERE, &mut gone, 6), Turn::After(98));
        assert_eq!(attempts.turn("user", HERE, &mut there, 104), Turn::After(50), "it is the turn of the last one");
        assert_eq!(attempts.turn("user", HERE, &mut there, 154), Turn::Now, "which is gone, and holds nothing");
        attempts.succeeded("user", HERE);
        assert_eq!(attempts.turn("user", HERE, &mut Ticket::default(), 155), Turn::Now);
    }

    /// Wrong tries, each asking again when it was due, had as many turns as the right one, which waited for minutes.
    #[test]
    fn a_right_password_has_the_next_turn_whatever_waits() {
        let mut attempts = Attempts::default();
        (0..20).for_each(|at| _ = attempts.failed("user", HERE, at));
        let start = 100_000;
        assert_eq!(attempts.turn("user", HERE, &mut Ticket::default(), start), Turn::Now);
        attempts.failed("user", HERE, start);
        let mut wrong: Vec<(Ticket, u64)> = (0..200).map(|_| (Ticket::default(), start + 1)).collect();
        let (mut right, mut right_ms) = (Ticket::default(), start + 5);
        let (mut refused, mut looked) = (0, None);
        for now in start + 1..start + 60_000 {
            // Those that wait longest ask first.
            wrong.retain_mut(|(ticket, at)| {
                if *at > now {
                    return true;
                }
                match attempts.turn("user", HERE, ticket, now) {
                    Turn::Now => _ = attempts.failed("user", HERE, now),
                    Turn::Refused => refused += 1,
                    Turn::After(ms) => *at = now + ms,
                }
                *at > now
            });
            if right_ms <= now {
                match attempts.turn("user", HERE, &mut right, now) {
                    Turn::Now => {
                        looked = Some(now - start);
                        break;
                    }
                    Turn::After(ms) => right_ms = now + ms,
                    Turn::Refused => panic!("it is refused"),
                }
            }
        }
        assert!(looked.is_some_and(|ms| ms <= TURN_MS_MAX), "{looked:?}");
        assert!(refused >= 200 - WAITING_MAX, "{refused} were reported, the others wait");
        assert_eq!(attempts.failed.values().map(|failed| failed.waiting.len()).max(), Some(WAITING_MAX - 1));
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
