//! The task of one link.

use super::status::{Federation, Key, Of};
use super::wanted::{Bindings, Wanted};
use super::{exchange, queue};
use crate::links::{CHANNEL, DESTINATION, FAREWELL, Failure, Link, Pipe, SOURCE, Surroundings, beside, failed, of};
use polylogue_amqp::codec::ConfirmSelect;
use polylogue_amqp_model::{AckMode, AmqpUri, Upstream};
use polylogue_types::TimestampMs;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The supervisor's command to a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// Continue.
    No,
    /// Stop: another link takes its place.
    Replaced,
    /// Stop and delete the link's objects at the upstream.
    Unwanted,
}

/// A link's definition and what it shares with the supervisor.
pub(super) struct Worker {
    pub(super) around: Surroundings,
    pub(super) federation: Arc<Federation>,
    pub(super) key: Key,
    pub(super) upstream: Upstream,
    pub(super) wanted: Wanted,
    /// The bindings of the downstream exchange.
    pub(super) bindings: watch::Receiver<Bindings>,
    /// Whether the downstream queue wants messages.
    pub(super) hungry: watch::Receiver<bool>,
    pub(super) stop: watch::Receiver<Stop>,
}

/// Waits until a link is to stop.
async fn stopped(stop: &mut watch::Receiver<Stop>) -> Stop {
    match stop.wait_for(|stop| *stop != Stop::No).await {
        Ok(stop) => *stop,
        // The broker is stopping.
        Err(_) => Stop::Replaced,
    }
}

/// A running link of an exchange or a queue.
pub(super) enum Flow {
    Exchange(Box<exchange::Flow>),
    Queue(queue::Flow),
}

impl Worker {
    pub(super) fn now_ms(&self) -> TimestampMs {
        self.around.broker.now().wall_ms
    }

    /// Returns the upstream's URIs, rotated to begin with another one each time.
    fn uris(&self) -> Vec<AmqpUri> {
        let mut uris: Vec<_> = self.upstream.uris.iter().map(|uri| uri.or_vhost(&self.key.vhost)).collect();
        let mut random = [0; 8];
        self.around.rng.fill(&mut random);
        let first = u64::from_le_bytes(random).checked_rem(uris.len() as u64).unwrap_or(0);
        uris.rotate_left(first as usize);
        uris
    }

    /// Returns the name of its connections, as in RabbitMQ.
    pub(super) fn connection_name(&self) -> String {
        format!("Federation link (upstream: {}, policy: {})", self.upstream.name, self.wanted.policy)
    }

    /// Runs until it is stopped; deletes its objects at the upstream if it is obsolete.
    pub(super) async fn run(mut self) {
        self.live().await;
        let stop = *self.stop.borrow();
        if stop == Stop::Unwanted && self.key.of == Of::Exchange && !self.upstream.keeps_resources {
            exchange::clean_up(&self).await;
        }
    }

    async fn live(&mut self) {
        loop {
            let uri = self.upstream.uris.first().map(AmqpUri::to_string).unwrap_or_default();
            self.federation.starting(&self.key, self.now_ms(), uri, &self.upstream.consumer_tag);
            let Err(why) = self.once().await else { return };
            let Key { vhost, name, upstream, .. } = &self.key;
            tracing::warn!(vhost = &**vhost, name = &**name, upstream = &**upstream, %why, "a federation link was interrupted");
            self.federation.failed(&self.key, self.now_ms(), why.to_string());
            let mut stop = self.stop.clone();
            tokio::select! {
                biased;
                _ = stopped(&mut stop) => return,
                () = tokio::time::sleep(Duration::from_millis(self.upstream.reconnect_delay_ms)) => {
                    self.federation.restarted();
                }
            }
        }
    }

    /// One run: connects both ends, forwards messages, and disconnects.
    async fn once(&mut self) -> Result<(), Failure> {
        let mut stop = self.stop.clone();
        let (mut pipe, flow) = tokio::select! {
            biased;
            _ = stopped(&mut stop) => return Ok(()),
            opened = self.open() => opened?,
        };
        self.federation.running(&self.key, self.now_ms(), &pipe.source.uri);
        let over = match flow {
            Flow::Exchange(flow) => flow.run(self, &mut pipe).await,
            Flow::Queue(flow) => flow.run(self, &mut pipe).await,
        };
        // Flushes outstanding confirms and acknowledgements.
        pipe.part(FAREWELL).await;
        over
    }

    async fn open(&mut self) -> Result<(Pipe, Flow), Failure> {
        let name = self.connection_name();
        let mut source =
            Link::connect(&self.around, &self.wanted.author, &self.uris(), &name).await.map_err(of(SOURCE))?;
        let here = [AmqpUri::here(&self.key.vhost)];
        let connecting = async {
            let mut here = Link::connect(&self.around, &self.wanted.author, &here, &name).await?;
            if self.upstream.ack_mode == AckMode::OnConfirm {
                here.ask(CHANNEL, ConfirmSelect::default()).await?;
            }
            Ok(here)
        };
        let mut destination = beside(connecting, SOURCE, &mut source).await?;
        let flow = match self.key.of {
            Of::Exchange => {
                let opening = exchange::Flow::open(self, &mut source);
                Flow::Exchange(Box::new(beside(opening, DESTINATION, &mut destination).await?))
            }
            Of::Queue => {
                let opening = queue::Flow::open(self, &mut source);
                Flow::Queue(beside(opening, DESTINATION, &mut destination).await?)
            }
        };
        let no_ack = self.upstream.ack_mode == AckMode::NoAck;
        Ok((Pipe::new(source, destination, self.upstream.ack_mode, no_ack), flow))
    }

    /// Waits until either end is ready, a deadline has passed, or the link is to stop; returns the latest command.
    pub(super) async fn step(&self, pipe: &mut Pipe) -> Result<Stop, Failure> {
        let mut stop = self.stop.clone();
        let sleep = tokio::time::sleep(pipe.wait());
        tokio::select! {
            biased;
            stop = stopped(&mut stop) => return Ok(stop),
            moved = poll_fn(|cx| pipe.poll_io(cx)) => {
                if let Err(why) = moved {
                    // Acknowledges what was confirmed, so that it is not forwarded again.
                    let _ = pipe.settle();
                    return Err(why);
                }
            }
            () = sleep => pipe.on_deadline()?,
        }
        Ok(Stop::No)
    }

    /// Waits until all published messages are confirmed.
    pub(super) async fn finish(&self, pipe: &mut Pipe) {
        let finishing = async {
            while !pipe.is_settled() {
                poll_fn(|cx| pipe.poll_io(cx)).await?;
                pipe.settle().1?;
            }
            Ok::<_, Failure>(())
        };
        let _ = tokio::time::timeout(FAREWELL, finishing).await;
    }
}

/// Checks the length of a name: a truncated name would be that of another object.
pub(super) fn checked_name(name: &str) -> Result<(), Failure> {
    if name.len() > 255 {
        return Err(failed(format!("'{name}' has more than 255 bytes")));
    }
    Ok(())
}
