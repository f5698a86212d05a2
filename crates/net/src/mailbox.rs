//! The mailbox of a connection's task.

use crate::handle::{Permit, ReplySink};
use parking_lot::Mutex;
use polylogue_api::{Event, Reply, Token};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::Notify;

/// One message.
#[derive(Debug)]
pub enum Mail {
    /// A reply of the broker.
    Reply(Token, Reply),
    /// An event of the broker.
    Event(Event),
    /// A requested memory permit.
    Permit(Permit),
    /// A fetch of file data has ended.
    Fetched,
    /// The server is stopping: finish requests in progress and close.
    Stop,
    /// The resource alarm was raised or cleared; the session reads its state.
    Alarm,
    /// An operator closes the connection, with a reason for the client.
    End(String),
    /// The user of this name was deleted.
    UserGone(Arc<str>),
}

/// A connection's mailbox. Any thread may send; one task receives.
///
/// Bounded by the connection's requests: a reply for each, an event for each watch, one permit, one fetch, one stop;
/// and by the number of operator actions, deletions of users, and alarms.
#[derive(Debug, Default)]
pub struct Mailbox {
    mail: Mutex<VecDeque<Mail>>,
    wake: Notify,
}

impl Mailbox {
    pub fn put(&self, mail: Mail) {
        let mut queue = self.mail.lock();
        queue.push_back(mail);
        let first = queue.len() == 1;
        drop(queue);
        // Many replies of one flush wake the task once: it was notified at the first, and takes all.
        if first {
            self.wake.notify_one();
        }
    }

    /// Releases unused memory.
    pub fn release_buffers(&self) {
        self.mail.lock().shrink_to_fit();
    }

    /// Appends all mail to `into`.
    pub fn take(&self, into: &mut VecDeque<Mail>) {
        let mut mail = self.mail.lock();
        if into.is_empty() {
            std::mem::swap(&mut *mail, into);
        } else {
            into.append(&mut mail);
        }
    }

    /// Waits for mail; may also return soon after it was taken.
    pub async fn arrived(&self) {
        self.wake.notified().await;
    }
}

impl ReplySink for Mailbox {
    fn reply(&self, token: Token, reply: Reply) {
        self.put(Mail::Reply(token, reply));
    }

    fn event(&self, event: Event) {
        self.put(Mail::Event(event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn many_messages_wake_once_and_none_is_missed() {
        let mailbox = Mailbox::default();
        for token in 0..100 {
            mailbox.event(Event::Changed(token));
        }
        mailbox.arrived().await;
        let mut taken = VecDeque::new();
        mailbox.take(&mut taken);
        assert_eq!(taken.len(), 100);
        let idle = tokio::time::timeout(std::time::Duration::ZERO, mailbox.arrived()).await;
        assert!(idle.is_err(), "one wake-up for all of them");
        mailbox.event(Event::Changed(100));
        mailbox.arrived().await;
        mailbox.take(&mut taken);
        assert_eq!(taken.len(), 101, "what was there stays in front");
    }
}
