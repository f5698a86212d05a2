//! A broker session for a request of the server itself.

use crate::handle::{BrokerHandle, ReplySink, SessionId};
use crate::mailbox::{Mail, Mailbox};
use polylogue_api::{Request, Token};
use std::collections::VecDeque;
use std::sync::Arc;

/// A broker session for one request, ended when dropped.
#[derive(Debug)]
pub struct Visit<'a> {
    /// The broker.
    pub broker: &'a Arc<dyn BrokerHandle>,
    /// The session id.
    pub id: SessionId,
    mailbox: Arc<Mailbox>,
    sink: Arc<dyn ReplySink>,
}

impl<'a> Visit<'a> {
    pub fn new(broker: &'a Arc<dyn BrokerHandle>) -> Visit<'a> {
        let mailbox = Arc::new(Mailbox::default());
        Visit { broker, id: broker.new_session(), sink: mailbox.clone(), mailbox }
    }

    /// Submits a request.
    pub fn submit(&self, token: Token, request: Request) {
        self.broker.submit(&self.sink, self.id, token, request);
    }

    /// Waits for mail and returns all of it.
    pub async fn mail(&self) -> VecDeque<Mail> {
        let mut mail = VecDeque::new();
        self.mailbox.arrived().await;
        self.mailbox.take(&mut mail);
        mail
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.broker.session_gone(self.id);
    }
}
