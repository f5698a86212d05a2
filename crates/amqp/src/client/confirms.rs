//! Publishes of a channel that the server has confirmed or rejected.

use std::collections::VecDeque;

/// Publishes by sequence number, from 1 on.
#[derive(Debug)]
pub(super) struct Confirms {
    /// The sequence number of the first element of `settled`.
    base: u64,
    /// Whether there is an outcome, for each number from `base` on; the first one never has.
    settled: VecDeque<bool>,
}

impl Confirms {
    pub(super) fn new() -> Confirms {
        Confirms { base: 1, settled: VecDeque::new() }
    }

    /// How many entries are kept: publishes without an outcome, and those between them.
    pub(super) fn len(&self) -> usize {
        self.settled.len()
    }

    /// Assigns a sequence number.
    pub(super) fn publish(&mut self) -> u64 {
        self.settled.push_back(false);
        self.base + self.settled.len() as u64 - 1
    }

    /// Records the outcome of one publish, or of all up to it (`multiple`; 0 for all). Passes the newly settled ranges, first and last number, to
    /// `run`. `None` for a number that was never assigned.
    pub(super) fn settle(&mut self, tag: u64, multiple: bool, mut run: impl FnMut(u64, u64)) -> Option<()> {
        let next = self.base + self.settled.len() as u64;
        let last = if tag == 0 && multiple { next - 1 } else { tag };
        if last >= next || (tag == 0 && !multiple) {
            return None;
        }
        let first = if multiple { self.base } else { last };
        // Numbers that were settled before are not reported again.
        let mut open: Option<u64> = None;
        for number in first.max(self.base)..=last {
            let Some(settled) = self.settled.get_mut((number - self.base) as usize) else { break };
            match (std::mem::replace(settled, true), open) {
                (false, None) => open = Some(number),
                (true, Some(from)) => {
                    run(from, number - 1);
                    open = None;
                }
                _ => {}
            }
        }
        if let Some(from) = open {
            run(from, last);
        }
        while self.settled.front() == Some(&true) {
            self.settled.pop_front();
            self.base += 1;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_publish_is_reported_once() {
        let mut confirms = Confirms::new();
        assert_eq!((0..6).map(|_| confirms.publish()).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
        let mut runs = Vec::new();
        for (tag, multiple, expected) in [
            (3, false, Some(vec![(3, 3)])),
            (3, false, Some(vec![])),
            (4, true, Some(vec![(1, 2), (4, 4)])),
            (2, true, Some(vec![])),
            (2, false, Some(vec![])),
            (7, false, None),
            (0, false, None),
            (0, true, Some(vec![(5, 6)])),
            (0, true, Some(vec![])),
            (1, true, Some(vec![])),
        ] {
            runs.clear();
            let known = confirms.settle(tag, multiple, |first, last| runs.push((first, last)));
            assert_eq!(known.map(|()| runs.clone()), expected, "{tag} {multiple}");
        }
        assert_eq!((confirms.len(), confirms.publish()), (0, 7));
    }
}
