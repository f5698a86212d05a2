//! What a queue says of itself at any time, against every message of the model.

use super::*;

impl Harness {
    pub(super) fn check(&self) {
        let counts = self.queue.counts();
        let ready = self.ready();
        let (committed, ahead): (Vec<u64>, Vec<u64>) = ready.into_iter().partition(|at| self.messages[at].committed);
        let count = |what: &dyn Fn(&Message) -> bool| self.messages.values().filter(|message| what(message)).count();
        assert_eq!((counts.ready, counts.uncommitted), (committed.len() as u64, ahead.len() as u64));
        assert!(counts.ready + counts.uncommitted > 0 || counts.ready_size.bytes == 0, "{counts:?}");
        assert!(counts.held > 0 || counts.held_size.bytes == 0, "{counts:?}");
        let waits = |message: &Message| {
            let open = !message.now.settled && message.now.dead.is_none() && message.held.is_none();
            open && (message.committed || self.early) && message.now.not_before > self.now
        };
        if self.config.track_bytes && !self.forgetful {
            let size = |what: &dyn Fn(&Message) -> bool| {
                let mut size = Size::default();
                for Message { entry, .. } in self.messages.values().filter(|message| what(message)) {
                    let bytes = u64::from(entry.priority) + 1;
                    size += match entry.transient {
                        true => Size { bytes, transient: 1, transient_bytes: bytes },
                        false => Size { bytes, ..Size::default() },
                    };
                }
                size
            };
            assert_eq!(counts.ready_size, size(&|message| self.is_ready(message)));
            assert_eq!(counts.held_size, size(&|message| message.held.is_some()));
            assert_eq!(counts.delayed_size, size(&waits));
            assert_eq!(counts.dead_size, size(&|message| message.now.dead.is_some()));
        }
        assert_eq!(counts.held as usize, count(&|message| message.held.is_some()));
        assert_eq!(counts.dead as usize, count(&|message| message.now.dead.is_some()));
        assert_eq!(counts.delayed as usize, count(&waits));
        let floor = self.messages.iter().find(|(_, message)| !message.applied.settled || !message.committed);
        assert_eq!(self.queue.floor(), floor.map_or(self.queue.committed_end(), |(offset, _)| *offset));
        for (offset, message) in self.messages.iter().filter(|(_, message)| message.committed) {
            assert_eq!(self.queue.is_settled(*offset), message.applied.settled, "{offset}");
        }
        let lost = self.messages.values().any(|message| message.held.is_some_and(|(_, _, until)| until <= self.now));
        assert!(!lost, "a lease that ran out is still there");
        for id in self.consumers.keys() {
            assert_eq!(self.queue.held_by(ConsumerId(*id)), Ok(self.held_of(*id)));
        }
    }
}
