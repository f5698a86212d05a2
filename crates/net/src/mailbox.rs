//! Where a connection's task hears from the rest of the process.

use crate::handle::{Permit, ReplySink};
use parking_lot::Mutex;
use polylogue_api::{Event, Reply, Token};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::Notify;

/// One message.
#[derive(Debug)]
pub enum Mail {
    /// The broker's answer.
    Reply(Token, Reply),
    /// What the broker says unasked.
    Event(Event),
    /// The memory that was asked for.
    Permit(Permit),
    /// The bytes of files that were to be fetched are in memory, or will not be.
    Fetched,
    /// The server stops: finish what is in work and close.
    Stop,
    /// The resource alarm was raised or cleared: the session knows where to look.
    Alarm,
    /// An operator ends the connection: the client gets this reason.
    End(String),
    /// The user of this name is deleted: its connections are ended.
    UserGone(Arc<str>),
}

/// A connection's mailbox. Any thread may put something in, and only one task takes it out.
///
/// Bounded by what the connection asked for: a reply for each request, an event for each watch, one permit, one fetch, one stop;
/// and by how often operators end it or delete users, and the disk is short of room.
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
        // Many replies of one flush wake the task once: it was notified when the first came, and takes all there are.
        if first {
            self.wake.notify_one();
        }
    }

    /// Lets go of memory that is not used.
    pub fn rest(&self) {
        self.mail.lock().shrink_to_fit();
    }

    /// Moves everything that is there to the end of `into`.
    pub fn take(&self, into: &mut VecDeque<Mail>) {
        let mut mail = self.mail.lock();
        if into.is_empty() {
            std::mem::swap(&mut *mail, into);
        } else {
            into.append(&mut mail);
        }
    }

    /// Ends when there is something, or soon after there was.
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
