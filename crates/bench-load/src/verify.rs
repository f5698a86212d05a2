//! Verification that every message arrives once and in order.
//!
//! ```text
//!   of one producer, in one partition
//!   arrives    0   1   2   5   6   4   5   7        next expected: 8
//!                          |       |   |            lost: 3
//!                    hole 3..5     |   '- seen before: duplicated
//!                                  '- fills a hole: out of order
//! ```

use std::collections::BTreeMap;

/// Limit on tracked holes of a producer and partition. A run with more has failed anyway; the oldest then count as lost.
pub const HOLES_MAX: usize = 4_096;
/// Limit on tracked producers of a partition. Messages of further producers are not of this run and count as duplicated.
pub const PRODUCERS_MAX: usize = 1_024;

/// Verification result of one reader or the sum over several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Findings {
    /// Distinct messages that arrived.
    pub received: u64,
    /// Messages that never arrived.
    pub lost: u64,
    /// Missing messages followed by later ones of the same producer and partition; `lost` may also include missing messages at the end.
    pub holes: u64,
    /// Messages that arrived again.
    pub duplicated: u64,
    /// Messages that arrived after later ones.
    pub out_of_order: u64,
}

impl Findings {
    /// Adds the result of another reader.
    pub fn add(&mut self, other: Findings) {
        // A message that is not of this run may have any sequence: the sums must not overflow.
        self.received = self.received.saturating_add(other.received);
        self.lost = self.lost.saturating_add(other.lost);
        self.holes = self.holes.saturating_add(other.holes);
        self.duplicated = self.duplicated.saturating_add(other.duplicated);
        self.out_of_order = self.out_of_order.saturating_add(other.out_of_order);
    }
}

/// The messages of one producer in one partition.
#[derive(Debug, Clone, Default)]
struct Track {
    next: u64,
    /// Sequences that were skipped: start and end (exclusive).
    holes: BTreeMap<u64, u64>,
    given_up: u64,
    findings: Findings,
}

impl Track {
    fn see(&mut self, sequence: u64) {
        if sequence >= self.next {
            if sequence > self.next {
                self.holes.insert(self.next, sequence);
                if self.holes.len() > HOLES_MAX {
                    let oldest = self.holes.pop_first();
                    self.given_up = self.given_up.saturating_add(oldest.map_or(0, |(start, end)| end - start));
                }
            }
            self.next = sequence.saturating_add(1);
            self.findings.received += 1;
        } else {
            self.see_again(sequence);
        }
    }

    fn see_again(&mut self, sequence: u64) {
        let hole = self.holes.range(..=sequence).next_back().map(|(start, end)| (*start, *end));
        match hole.filter(|(_, end)| sequence < *end) {
            None => self.findings.duplicated += 1,
            Some((start, end)) => {
                self.holes.remove(&start);
                if start < sequence {
                    self.holes.insert(start, sequence);
                }
                if sequence + 1 < end {
                    self.holes.insert(sequence + 1, end);
                }
                self.findings.received += 1;
                self.findings.out_of_order += 1;
            }
        }
    }

    fn findings(&self) -> Findings {
        let open = self.holes.iter().fold(self.given_up, |sum, (start, end)| sum.saturating_add(end - start));
        Findings { lost: open, holes: open, ..self.findings }
    }
}

/// Verifies the messages of one reader, over all its partitions.
#[derive(Debug, Clone, Default)]
pub struct Verifier {
    /// By partition: its producers, which are few.
    tracks: Vec<Vec<(u32, Track)>>,
    strangers: u64,
    only: Option<u32>,
}

impl Verifier {
    /// Creates a verifier of partitions 0 to `partitions` - 1.
    #[must_use]
    pub fn new(partitions: u32) -> Verifier {
        Verifier { tracks: vec![Vec::new(); partitions as usize], strangers: 0, only: None }
    }

    /// Restricts verification to one producer, if given: messages of others are ignored.
    #[must_use]
    pub fn only(self, producer: Option<u32>) -> Verifier {
        Verifier { only: producer, ..self }
    }

    /// Records a message. Ignored if the partition is out of range.
    pub fn see(&mut self, partition: u32, producer: u32, sequence: u64) {
        if self.only.is_some_and(|only| only != producer) {
            return;
        }
        let Some(tracks) = self.tracks.get_mut(partition as usize) else { return };
        let place = tracks.iter().position(|(number, _)| *number == producer).unwrap_or_else(|| {
            if tracks.len() < PRODUCERS_MAX {
                tracks.push((producer, Track::default()));
            }
            tracks.len() - 1
        });
        match tracks.get_mut(place).filter(|(number, _)| *number == producer) {
            Some((_, track)) => track.see(sequence),
            None => self.strangers += 1,
        }
    }

    /// Returns the result so far. Missing messages at the end leave no hole: compare `received` with the number sent.
    #[must_use]
    pub fn findings(&self) -> Findings {
        let mut findings = Findings { duplicated: self.strangers, ..Findings::default() };
        self.tracks.iter().flatten().for_each(|(_, track)| findings.add(track.findings()));
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn see(sequences: impl IntoIterator<Item = u64>) -> Findings {
        let mut verifier = Verifier::new(2);
        sequences.into_iter().for_each(|sequence| verifier.see(1, 7, sequence));
        verifier.findings()
    }

    #[test]
    fn messages_in_order_have_no_findings() {
        assert_eq!(see(0..1_000), Findings { received: 1_000, ..Findings::default() });
    }

    #[test]
    fn a_lost_message_is_found() {
        assert_eq!(see([0, 1, 3]), Findings { received: 3, lost: 1, holes: 1, ..Findings::default() });
        assert_eq!(see([2]), Findings { received: 1, lost: 2, holes: 2, ..Findings::default() });
    }

    #[test]
    fn a_duplicate_is_found() {
        assert_eq!(see([0, 1, 1, 2, 0]), Findings { received: 3, duplicated: 2, ..Findings::default() });
    }

    #[test]
    fn messages_out_of_order_are_found() {
        assert_eq!(see([0, 2, 1, 3]), Findings { received: 4, out_of_order: 1, ..Findings::default() });
        assert_eq!(
            see([0, 3, 2, 1, 2]),
            Findings { received: 4, out_of_order: 2, duplicated: 1, ..Findings::default() }
        );
    }

    #[test]
    fn producers_and_partitions_are_tracked_separately() {
        let mut verifier = Verifier::new(2);
        for sequence in 0..3 {
            for (partition, producer) in [(0, 1), (0, 2), (1, 1)] {
                verifier.see(partition, producer, sequence);
            }
        }
        verifier.see(2, 1, 0);
        assert_eq!(verifier.findings(), Findings { received: 9, ..Findings::default() });
    }

    #[test]
    fn holes_beyond_the_limit_stay_lost() {
        let odd = (0..3 * HOLES_MAX as u64).map(|n| 2 * n + 1);
        let findings = see(odd.chain([0]));
        assert_eq!(findings.lost, 3 * HOLES_MAX as u64);
        assert_eq!(findings.duplicated, 1, "a message of a dropped hole counts as duplicated");
    }
}
