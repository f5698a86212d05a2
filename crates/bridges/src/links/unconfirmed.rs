//! Deliveries of a source that wait for the destination's confirms, in order.

use std::collections::VecDeque;

/// A settlement for the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Moved {
    /// The last delivery tag settled; all before it are settled too.
    pub(crate) up_to: u64,
    /// Number of messages settled.
    pub(crate) count: u64,
    /// The stream offset of the last one.
    pub(crate) offset: Option<u64>,
}

/// A delivery in flight.
#[derive(Debug)]
struct Waiting {
    tag: u64,
    offset: Option<u64>,
    /// End position of its publish in the output to the destination. Bytes.
    end: u64,
    confirmed: bool,
}

/// Deliveries by the sequence number of their publish.
#[derive(Debug)]
pub(crate) struct Unconfirmed {
    /// Sequence number of the first.
    base: u64,
    waiting: VecDeque<Waiting>,
}

impl Unconfirmed {
    pub(crate) fn new() -> Unconfirmed {
        Unconfirmed { base: 1, waiting: VecDeque::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds a publish under the next number; `offset` is its stream offset, `end` its end position in the output to the destination. Bytes.
    pub(crate) fn published(&mut self, tag: u64, offset: Option<u64>, end: u64) {
        self.waiting.push_back(Waiting { tag, offset, end, confirmed: false });
    }

    /// Counts publishes up to this output position as done, if being written is enough. Bytes.
    pub(crate) fn written(&mut self, bytes: u64) {
        self.waiting.iter_mut().take_while(|waiting| waiting.end <= bytes).for_each(|waiting| waiting.confirmed = true);
    }

    /// Marks a range as confirmed.
    pub(crate) fn confirmed(&mut self, first: u64, last: u64) {
        for number in first.max(self.base)..=last {
            let at = usize::try_from(number - self.base).unwrap_or(usize::MAX);
            let Some(waiting) = self.waiting.get_mut(at) else { return };
            waiting.confirmed = true;
        }
    }

    /// Returns what the source may be sent: the confirmed prefix, settled by a single acknowledgement.
    pub(crate) fn take_moved(&mut self) -> Option<Moved> {
        let mut moved: Option<Moved> = None;
        while let Some(Waiting { tag, offset, confirmed: true, .. }) = self.waiting.front() {
            let count = moved.map_or(0, |moved| moved.count) + 1;
            moved = Some(Moved { up_to: *tag, count, offset: *offset });
            self.waiting.pop_front();
            self.base += 1;
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_hears_of_messages_in_their_order() {
        let mut all = Unconfirmed::new();
        (0..5).for_each(|n| all.published(10 + n, Some(n), 0));
        all.confirmed(2, 3);
        assert_eq!(all.take_moved(), None, "the first one is unconfirmed");
        all.confirmed(1, 1);
        assert_eq!(all.take_moved(), Some(Moved { up_to: 12, count: 3, offset: Some(2) }));
        all.confirmed(1, 2);
        all.confirmed(5, 9);
        assert_eq!(all.take_moved(), None);
        all.confirmed(4, 4);
        assert_eq!(all.take_moved(), Some(Moved { up_to: 14, count: 2, offset: Some(4) }));
        assert!(all.waiting.is_empty());
    }

    #[test]
    fn what_is_not_written_to_its_last_byte_was_not_sent() {
        let mut all = Unconfirmed::new();
        (1..=3).for_each(|n| all.published(n, None, n * 100));
        all.written(99);
        assert_eq!(all.take_moved(), None);
        all.written(299);
        assert_eq!(all.take_moved(), Some(Moved { up_to: 2, count: 2, offset: None }));
        all.written(300);
        assert_eq!(all.take_moved(), Some(Moved { up_to: 3, count: 1, offset: None }));
    }
}
