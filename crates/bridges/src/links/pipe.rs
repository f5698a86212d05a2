//! Two links and the messages in flight between them.

use super::link::{CHANNEL, Failure, Link};
use super::unconfirmed::{Moved, Unconfirmed};
use bytes::Bytes;
use polylogue_amqp::client::ClientEvent;
use polylogue_amqp::codec::BasicPublish;
use polylogue_amqp_model::AckMode;
use std::task::{Context, Poll};
use std::time::Duration;

/// Name of the end that messages come from.
pub(crate) const SOURCE: &str = "source";
/// Name of the end that messages go to.
pub(crate) const DESTINATION: &str = "destination";

/// Makes an error with this text.
pub(crate) fn failed(why: impl Into<String>) -> Failure {
    Failure::Other(why.into())
}

/// Prefixes an error with the name of the end.
pub(crate) fn of(end: &'static str) -> impl FnOnce(Failure) -> Failure {
    move |why| failed(format!("{end}: {why}"))
}

/// Runs `work` at one end while keeping the other end alive.
pub(crate) async fn beside<T>(
    doing: impl Future<Output = Result<T, Failure>>,
    name: &'static str,
    other: &mut Link,
) -> Result<T, Failure> {
    tokio::select! {
        biased;
        done = doing => done,
        why = other.idle() => Err(of(name)(why)),
    }
}

/// Settlements are sent to the source in the order of its deliveries.
pub(crate) struct Pipe {
    pub(crate) source: Link,
    pub(crate) destination: Link,
    ack_mode: AckMode,
    /// Whether the source does not expect acknowledgements.
    no_ack: bool,
    unconfirmed: Unconfirmed,
}

impl Pipe {
    /// Joins two links that are connected and prepared. Without `no_ack` the source expects acknowledgements in each mode.
    pub(crate) fn new(source: Link, destination: Link, ack_mode: AckMode, no_ack: bool) -> Pipe {
        Pipe { source, destination, ack_mode, no_ack, unconfirmed: Unconfirmed::new() }
    }

    /// Reads and writes as much as possible at both ends; ready when either made progress or failed.
    pub(crate) fn poll_io(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        let from = self.source.poll_io(cx).map_err(of(SOURCE));
        let to = self.destination.poll_io(cx).map_err(of(DESTINATION));
        match (from, to) {
            (Poll::Ready(Err(why)), _) | (_, Poll::Ready(Err(why))) => Poll::Ready(Err(why)),
            (Poll::Pending, Poll::Pending) => Poll::Pending,
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Returns the time until the next deadline of either end.
    pub(crate) fn wait(&self) -> Duration {
        let wait_ms = [self.source.wait_ms(), self.destination.wait_ms()].into_iter().flatten().min();
        Duration::from_millis(wait_ms.unwrap_or(60_000))
    }

    /// Handles deadlines that have passed.
    pub(crate) fn on_deadline(&mut self) -> Result<(), Failure> {
        self.source.on_deadline().map_err(of(SOURCE))?;
        self.destination.on_deadline().map_err(of(DESTINATION))
    }

    /// Whether the destination does not accept messages now.
    pub(crate) fn is_blocked(&self) -> bool {
        self.destination.client.is_paused(CHANNEL)
    }

    /// Whether no message waits for the destination.
    pub(crate) fn is_settled(&self) -> bool {
        self.unconfirmed.is_empty()
    }

    /// Acknowledges messages that the destination has; returns them, and whether the pipe can continue. A message that the destination
    /// rejects or cannot route must stay at the source: it ends the pipe.
    pub(crate) fn settle(&mut self) -> (Option<Moved>, Result<(), Failure>) {
        let mut refused = None;
        while let Some(event) = self.destination.client.poll_event() {
            match event {
                ClientEvent::Settled { first, last, taken: true, .. } => self.unconfirmed.confirmed(first, last),
                ClientEvent::Settled { taken: false, .. } => {
                    refused.get_or_insert(failed("destination: the server rejected a message (basic.nack)"));
                }
                ClientEvent::Returned { why, .. } => {
                    let why = format!("destination: a message was returned: {} {}", why.reply_code, why.reply_text);
                    refused.get_or_insert(failed(why));
                }
                ClientEvent::ChannelClosed { code, text, .. } => {
                    let why = Failure::Channel(code, text.to_string());
                    refused.get_or_insert(failed(format!("destination: {why}")));
                }
                ClientEvent::Cancelled { .. } => {
                    refused.get_or_insert(failed("destination: unexpected basic.cancel"));
                }
                _ => {}
            }
            if refused.is_some() {
                // A returned message is confirmed afterwards: it must stay at the source.
                break;
            }
        }
        if self.ack_mode != AckMode::OnConfirm {
            // Output that is still in memory is lost with the connection: a message counts as sent once the socket has it.
            self.unconfirmed.written(self.destination.written_bytes());
        }
        let moved = self.unconfirmed.take_moved();
        if let Some(moved) = moved.filter(|_| !self.no_ack) {
            self.source.client.ack(CHANNEL, moved.up_to, true);
        }
        (moved, refused.map_or(Ok(()), Err))
    }

    /// Returns the next event of the source, while the destination accepts messages.
    pub(crate) fn next(&mut self) -> Option<ClientEvent> {
        if self.destination.client.may_publish(CHANNEL) { self.source.client.poll_event() } else { None }
    }

    /// Publishes a message; `offset` is its offset in a stream.
    pub(crate) fn publish(
        &mut self,
        tag: u64,
        offset: Option<u64>,
        publish: BasicPublish,
        properties: &Bytes,
        body: Bytes,
    ) -> Result<(), Failure> {
        let published = self.destination.client.publish(CHANNEL, publish, properties, body);
        published.map_err(|_| failed("destination: the channel cannot be used"))?;
        self.unconfirmed.published(tag, offset, self.destination.said_bytes());
        Ok(())
    }

    /// Acknowledges a message that is not forwarded.
    pub(crate) fn drop_message(&mut self, tag: u64) {
        if !self.no_ack {
            self.source.client.ack(CHANNEL, tag, false);
        }
    }

    /// Flushes both ends and closes them, within the timeout.
    pub(crate) async fn part(self, patience: Duration) {
        tokio::join!(self.source.part(patience), self.destination.part(patience));
    }
}

/// Handles an event of the source that is not a delivery; an error ends the pipe.
pub(crate) fn ended(event: ClientEvent) -> Result<(), Failure> {
    match event {
        ClientEvent::Cancelled { .. } => Err(failed("source: the server cancelled the consumer")),
        ClientEvent::ChannelClosed { code, text, .. } => {
            Err(failed(format!("source: {}", Failure::Channel(code, text.to_string()))))
        }
        _ => Ok(()),
    }
}
