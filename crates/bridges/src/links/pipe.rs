//! Two links, and what is on its way from the one to the other.

use super::link::{CHANNEL, Failure, Link};
use super::unconfirmed::{Moved, Unconfirmed};
use bytes::Bytes;
use polylogue_amqp::client::ClientEvent;
use polylogue_amqp::codec::BasicPublish;
use polylogue_amqp_model::AckMode;
use std::task::{Context, Poll};
use std::time::Duration;

/// What the end is called that messages come from.
pub(crate) const SOURCE: &str = "source";
/// What the end is called that they go to.
pub(crate) const DESTINATION: &str = "destination";

/// An end cannot be used, in a few words.
pub(crate) fn failed(why: impl Into<String>) -> Failure {
    Failure::Other(why.into())
}

/// Says at which end something went wrong.
pub(crate) fn of(end: &'static str) -> impl FnOnce(Failure) -> Failure {
    move |why| failed(format!("{end}: {why}"))
}

/// Does something with one end while the other one, which is called so, stays alive.
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

/// See the module. Settlements go to the source in the order in which messages came from it.
pub(crate) struct Pipe {
    pub(crate) source: Link,
    pub(crate) destination: Link,
    ack_mode: AckMode,
    /// The source does not wait for acknowledgements.
    no_ack: bool,
    unconfirmed: Unconfirmed,
}

impl Pipe {
    /// Between two that are connected and prepared. Where `no_ack` is not said the source waits for acknowledgements in each mode.
    pub(crate) fn new(source: Link, destination: Link, ack_mode: AckMode, no_ack: bool) -> Pipe {
        Pipe { source, destination, ack_mode, no_ack, unconfirmed: Unconfirmed::new() }
    }

    /// Reads and writes at both ends as much as is possible now; ready when anything was, or when one of them is over.
    pub(crate) fn poll_io(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        let from = self.source.poll_io(cx).map_err(of(SOURCE));
        let to = self.destination.poll_io(cx).map_err(of(DESTINATION));
        match (from, to) {
            (Poll::Ready(Err(why)), _) | (_, Poll::Ready(Err(why))) => Poll::Ready(Err(why)),
            (Poll::Pending, Poll::Pending) => Poll::Pending,
            _ => Poll::Ready(Ok(())),
        }
    }

    /// How long until something is due at one of both ends.
    pub(crate) fn wait(&self) -> Duration {
        let wait_ms = [self.source.wait_ms(), self.destination.wait_ms()].into_iter().flatten().min();
        Duration::from_millis(wait_ms.unwrap_or(60_000))
    }

    /// A deadline may have passed.
    pub(crate) fn on_deadline(&mut self) -> Result<(), Failure> {
        self.source.on_deadline().map_err(of(SOURCE))?;
        self.destination.on_deadline().map_err(of(DESTINATION))
    }

    /// Whether the destination takes nothing at this time.
    pub(crate) fn is_blocked(&self) -> bool {
        self.destination.client.is_paused(CHANNEL)
    }

    /// Whether nothing waits for the destination.
    pub(crate) fn is_settled(&self) -> bool {
        self.unconfirmed.is_empty()
    }

    /// Tells the source of what the destination has: which messages that are, and whether things can go on. What the destination
    /// refuses, or cannot put anywhere, must stay where it was: it ends what is between them.
    pub(crate) fn settle(&mut self) -> (Option<Moved>, Result<(), Failure>) {
        let mut refused = None;
        while let Some(event) = self.destination.client.poll_event() {
            match event {
                ClientEvent::Settled { first, last, taken: true, .. } => self.unconfirmed.confirmed(first, last),
                ClientEvent::Settled { taken: false, .. } => {
                    refused.get_or_insert(failed("destination: it refused a message (basic.nack)"));
                }
                ClientEvent::Returned { why, .. } => {
                    let why = format!("destination: a message came back: {} {}", why.reply_code, why.reply_text);
                    refused.get_or_insert(failed(why));
                }
                ClientEvent::ChannelClosed { code, text, .. } => {
                    let why = Failure::Channel(code, text.to_string());
                    refused.get_or_insert(failed(format!("destination: {why}")));
                }
                ClientEvent::Cancelled { .. } => {
                    refused.get_or_insert(failed("destination: it cancels a consumer, and has none"));
                }
                _ => {}
            }
            if refused.is_some() {
                // A message that came back is confirmed behind that: it must stay where it was.
                break;
            }
        }
        if self.ack_mode != AckMode::OnConfirm {
            // What waits in memory is lost with this one: it was sent when the destination's socket has it.
            self.unconfirmed.written(self.destination.written_bytes());
        }
        let moved = self.unconfirmed.take_moved();
        if let Some(moved) = moved.filter(|_| !self.no_ack) {
            self.source.client.ack(CHANNEL, moved.up_to, true);
        }
        (moved, refused.map_or(Ok(()), Err))
    }

    /// What came from the source, as long as the destination takes it.
    pub(crate) fn next(&mut self) -> Option<ClientEvent> {
        if self.destination.client.may_publish(CHANNEL) { self.source.client.poll_event() } else { None }
    }

    /// Sends a message on; `offset` is its place in a stream.
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

    /// Has done with a message that goes nowhere.
    pub(crate) fn drop_message(&mut self, tag: u64) {
        if !self.no_ack {
            self.source.client.ack(CHANNEL, tag, false);
        }
    }

    /// Says what is still to be said, and that it is over, if that is done in time.
    pub(crate) async fn part(self, patience: Duration) {
        tokio::join!(self.source.part(patience), self.destination.part(patience));
    }
}

/// What came from the source and is no message: why it is over, if it is.
pub(crate) fn ended(event: ClientEvent) -> Result<(), Failure> {
    match event {
        ClientEvent::Cancelled { .. } => Err(failed("source: the server cancelled the consumer")),
        ClientEvent::ChannelClosed { code, text, .. } => {
            Err(failed(format!("source: {}", Failure::Channel(code, text.to_string()))))
        }
        _ => Ok(()),
    }
}
