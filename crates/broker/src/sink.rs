//! Receivers of replies and events.

use polylogue_api::{Event, Reply, Token};
use std::fmt;
use std::sync::Arc;

/// The receiving end of a session. Called from the journal's threads: implementations must only queue and wake.
pub trait ReplySink: Send + Sync + fmt::Debug {
    /// Receives the reply to a request; each token gets exactly one reply.
    fn reply(&self, token: Token, reply: Reply);
    /// Receives an event.
    fn event(&self, event: Event);
}

/// Id of a session, unique within the process. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(pub u64);

/// The origin of a request: session and token.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) sink: Arc<dyn ReplySink>,
    pub(crate) session: SessionId,
    pub(crate) token: Token,
}

impl Origin {
    pub(crate) fn key(&self) -> (u64, u64) {
        (self.session.0, self.token)
    }

    pub(crate) fn reply(self, reply: Reply) {
        self.sink.reply(self.token, reply);
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use parking_lot::Mutex;

    /// Keeps what it receives.
    #[derive(Debug, Default)]
    pub(crate) struct Recorder {
        pub(crate) replies: Mutex<Vec<(Token, Reply)>>,
        pub(crate) events: Mutex<Vec<Event>>,
    }

    impl Recorder {
        pub(crate) fn origin(session: u64, token: Token) -> Origin {
            Origin { sink: Arc::new(Recorder::default()), session: SessionId(session), token }
        }
    }

    impl ReplySink for Recorder {
        fn reply(&self, token: Token, reply: Reply) {
            self.replies.lock().push((token, reply));
        }

        fn event(&self, event: Event) {
            self.events.lock().push(event);
        }
    }
}
