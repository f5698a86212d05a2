//! The task of one shovel.

use super::message::{Mover, Rewrite};
use super::status::{Key, Shovels};
use crate::links::{
    Author, CHANNEL, DESTINATION, FAREWELL, FAREWELL_AT_THE_END, Failure, Link, NOT_FOUND, Pipe, SOURCE, Surroundings,
    beside, ended, failed, of, short, table,
};
use polylogue_amqp::client::ClientEvent;
use polylogue_amqp::codec::{
    BasicConsume, BasicQos, ConfirmSelect, Method, Properties, QueueBind, QueueDeclare, QueueDeclareOk, ShortStr,
};
use polylogue_amqp_model::{AckMode, DeleteAfter, Shovel, SourceOf};
use polylogue_router::{Argument, Value};
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// A shovel's definition and what it shares with the supervisor.
pub(super) struct Worker {
    pub(super) around: Surroundings,
    pub(super) shovels: Arc<Shovels>,
    pub(super) key: Key,
    pub(super) shovel: Shovel,
    pub(super) author: Author,
    pub(super) cluster_name: String,
    /// True when it is to stop.
    pub(super) stop: watch::Receiver<bool>,
}

/// Progress that is kept across reconnects.
#[derive(Clone, Copy)]
struct Progress {
    /// Messages still to be moved; `None` without a limit.
    left: Option<u64>,
    /// The stream offset to resume from: the server does not store acknowledgements of streams.
    stream_offset: Option<u64>,
}

/// The consumer argument with the first offset, and the header with a message's offset.
const STREAM_OFFSET: &str = "x-stream-offset";

/// Whether the source is consumed as a stream. A header alone does not show it: messages in any queue may have it.
fn reads_a_stream(shovel: &Shovel) -> bool {
    shovel.source.consumer_arguments.iter().any(|argument| argument.name == STREAM_OFFSET)
}

/// Returns a message's stream offset.
fn stream_offset(properties: &Properties) -> Option<u64> {
    match properties.headers()?.get(STREAM_OFFSET)? {
        polylogue_amqp::codec::Value::I64(offset) => u64::try_from(offset).ok(),
        _ => None,
    }
}

/// Why the shovel has ended.
enum Over {
    /// All requested messages were moved.
    Finished,
    /// The shovel was stopped.
    Stopped,
}

/// Declares a queue if needed. Returns the number of ready messages.
async fn ensure_queue(link: &mut Link, queue: &str, arguments: &[Argument], predeclared: bool) -> Result<u64, Failure> {
    let look = QueueDeclare { queue: short(queue), passive: true, ..Default::default() };
    let there = match link.ask_aside(look).await {
        Err(Failure::Channel(NOT_FOUND, _)) if !predeclared => {
            let declare =
                QueueDeclare { queue: short(queue), durable: true, arguments: table(arguments)?, ..Default::default() };
            link.ask_aside(declare).await?
        }
        there => there?,
    };
    Ok(count(&there))
}

fn count(answer: &Method) -> u64 {
    match answer {
        Method::QueueDeclareOk(QueueDeclareOk { message_count, .. }) => u64::from(*message_count),
        _ => 0,
    }
}

impl Worker {
    fn now_ms(&self) -> i64 {
        self.around.broker.now().wall_ms
    }

    /// Runs until it is finished (true), or stopped.
    pub(super) async fn run(mut self) -> bool {
        // Messages moved before an error count for a shovel with a limit.
        let left = match self.shovel.source.delete_after {
            DeleteAfter::Messages(count) => Some(count),
            DeleteAfter::QueueLength | DeleteAfter::Never => None,
        };
        let mut progress = Progress { left, stream_offset: None };
        loop {
            self.shovels.starting(&self.key, self.now_ms());
            let why = match self.once(&mut progress).await {
                Ok(Over::Finished) => return true,
                Ok(Over::Stopped) => return false,
                Err(why) => why,
            };
            let (vhost, name) = &self.key;
            tracing::warn!(shovel = &**name, vhost = &**vhost, %why, "a shovel was interrupted");
            self.shovels.terminated(&self.key, self.now_ms(), format!("needed a restart: {why}"));
            let rest = async {
                match self.shovel.reconnect_delay_ms {
                    Some(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
                    None => std::future::pending().await,
                }
            };
            let mut stop = self.stop.clone();
            tokio::select! {
                biased;
                () = polylogue_net::stopped(&mut stop) => return false,
                () = rest => self.shovels.restarted(),
            }
        }
    }

    /// One run: connects both ends, moves messages, and disconnects.
    async fn once(&mut self, progress: &mut Progress) -> Result<Over, Failure> {
        let mut stop = self.stop.clone();
        let opened = tokio::select! {
            biased;
            () = polylogue_net::stopped(&mut stop) => return Ok(Over::Stopped),
            opened = self.open(*progress) => opened?,
        };
        let Some(mut moving) = opened else { return Ok(Over::Finished) };
        let over = self.pump(&mut moving).await;
        if matches!(over, Ok(Over::Stopped)) {
            // Messages in flight would be moved again by the next worker.
            let _ = tokio::time::timeout(FAREWELL, self.finish(&mut moving)).await;
        }
        *progress = Progress { left: moving.to_confirm, stream_offset: moving.stream_offset };
        // Flushes acknowledgements of everything confirmed, whatever ended the run.
        let patience = if matches!(over, Ok(Over::Finished)) { FAREWELL_AT_THE_END } else { FAREWELL };
        moving.pipe.part(patience).await;
        over
    }

    /// Connects both ends and declares what is missing there. `None` if there are no messages to move.
    async fn open(&self, progress: Progress) -> Result<Option<Moving>, Failure> {
        let (from, to, name) = (&self.shovel.source, &self.shovel.destination, &format!("Shovel {}", self.key.1));
        let mut source = Link::connect(&self.around, &self.author, &from.uris, name).await.map_err(of(SOURCE))?;
        let connecting = async {
            let mut destination =
                Link::connect(&self.around, &self.author, &to.uris, name).await.map_err(of(DESTINATION))?;
            self.prepare(&mut destination).await.map_err(of(DESTINATION))?;
            Ok(destination)
        };
        // Connecting may take long; the source is kept alive meanwhile.
        let mut destination = beside(connecting, SOURCE, &mut source).await?;
        let preparing = async { self.prepare_source(&mut source).await.map_err(of(SOURCE)) };
        let (queue, length) = beside(preparing, DESTINATION, &mut destination).await?;
        // A stream's length does not shrink as messages are moved.
        let is_new = progress.stream_offset.is_none();
        let left = if from.delete_after == DeleteAfter::QueueLength && is_new { Some(length) } else { progress.left };
        if left == Some(0) {
            tokio::join!(source.part(FAREWELL), destination.part(FAREWELL));
            return Ok(None);
        }
        let no_ack = self.shovel.ack_mode == AckMode::NoAck && left.is_none();
        let progress = Progress { left, ..progress };
        let consuming = async { self.consume(&mut source, queue, no_ack, progress).await.map_err(of(SOURCE)) };
        beside(consuming, DESTINATION, &mut destination).await?;
        let (vhost, name) = &self.key;
        let (source_uri, destination_uri) = (source.uri.clone(), destination.uri.clone());
        let mover = Mover {
            cluster_name: &self.cluster_name,
            name,
            vhost,
            source_uri: &source_uri,
            destination_uri: &destination_uri,
        };
        let rewrite = Rewrite::new(&self.shovel, mover);
        self.shovels.running(&self.key, self.now_ms(), &self.shovel, (source_uri, destination_uri));
        self.shovels.moved(&self.key, self.now_ms(), 0, left.map(|left| (left, left)));
        let (to_send, to_confirm) = (left, left);
        Ok(Some(Moving {
            pipe: Pipe::new(source, destination, self.shovel.ack_mode, no_ack),
            rewrite,
            is_stream: reads_a_stream(&self.shovel),
            stream_offset: progress.stream_offset,
            to_send,
            to_confirm,
            blocked: false,
        }))
    }

    async fn prepare(&self, destination: &mut Link) -> Result<(), Failure> {
        let to = &self.shovel.destination;
        if let Some(queue) = &to.queue {
            ensure_queue(destination, queue, &to.queue_arguments, to.predeclared).await?;
        }
        if self.shovel.ack_mode == AckMode::OnConfirm {
            destination.ask(CHANNEL, ConfirmSelect::default()).await?;
        }
        Ok(())
    }

    /// Returns the queue to consume from, and its number of ready messages.
    async fn prepare_source(&self, source: &mut Link) -> Result<(ShortStr, u64), Failure> {
        let from = &self.shovel.source;
        match &from.of {
            SourceOf::Queue(queue) => {
                let length = ensure_queue(source, queue, &from.queue_arguments, from.predeclared).await?;
                Ok((short(queue), length))
            }
            SourceOf::Exchange(exchange, key) => {
                let arguments = table(&from.queue_arguments)?;
                let declare = QueueDeclare { exclusive: true, arguments, ..Default::default() };
                let Method::QueueDeclareOk(declared) = source.ask(CHANNEL, declare).await? else {
                    return Err(failed("the server's reply has no queue"));
                };
                let queue = declared.queue.to_owned_bytes();
                let (exchange, routing_key) = (short(exchange), short(key));
                let bind = QueueBind { queue: queue.clone(), exchange, routing_key, ..Default::default() };
                source.ask(CHANNEL, bind).await?;
                Ok((queue, 0))
            }
        }
    }

    async fn consume(
        &self,
        source: &mut Link,
        queue: ShortStr,
        no_ack: bool,
        progress: Progress,
    ) -> Result<(), Failure> {
        let from = &self.shovel.source;
        if !no_ack {
            // More messages than wanted would be requeued as redelivered.
            let left = progress.left.and_then(|left| u16::try_from(left).ok());
            let prefetch_count = match (from.prefetch, left) {
                (0, left) => left.unwrap_or(0),
                (prefetch, left) => left.map_or(prefetch, |left| left.min(prefetch)),
            };
            source.ask(CHANNEL, BasicQos { prefetch_count, ..Default::default() }).await?;
        }
        let mut arguments = from.consumer_arguments.clone();
        if let Some(offset) = progress.stream_offset {
            arguments.retain(|argument| argument.name != STREAM_OFFSET);
            let value = Value::Int(i64::try_from(offset).unwrap_or(i64::MAX));
            arguments.push(Argument { name: STREAM_OFFSET.into(), tag: b'l', value });
        }
        let arguments = table(&arguments)?;
        source.ask(CHANNEL, BasicConsume { queue, no_ack, arguments, ..Default::default() }).await?;
        Ok(())
    }

    /// Updates the status after messages were moved.
    fn tell(&self, moving: &Moving, count: u64) {
        let remaining = moving.to_confirm.map(|left| (left, moving.to_send.unwrap_or(left)));
        self.shovels.moved(&self.key, self.now_ms(), count, remaining);
    }

    /// Waits until all published messages are confirmed; publishes no more.
    async fn finish(&self, moving: &mut Moving) -> Result<(), Failure> {
        loop {
            let count = moving.settle()?;
            self.tell(moving, count);
            if moving.pipe.is_settled() {
                return Ok(());
            }
            poll_fn(|cx| moving.pipe.poll_io(cx)).await?;
        }
    }

    /// Moves messages until something happens.
    async fn pump(&self, moving: &mut Moving) -> Result<Over, Failure> {
        let mut stop = self.stop.clone();
        loop {
            let before = (moving.to_confirm, moving.to_send);
            let count = moving.settle()?;
            moving.forward(self)?;
            if count > 0 || before != (moving.to_confirm, moving.to_send) {
                self.tell(moving, count);
            }
            if moving.to_confirm == Some(0) {
                return Ok(Over::Finished);
            }
            let blocked = moving.pipe.is_blocked();
            if std::mem::replace(&mut moving.blocked, blocked) != blocked {
                self.shovels.blocked(&self.key, self.now_ms(), blocked);
            }
            let sleep = tokio::time::sleep(moving.pipe.wait());
            tokio::select! {
                biased;
                () = polylogue_net::stopped(&mut stop) => return Ok(Over::Stopped),
                moved = poll_fn(|cx| moving.pipe.poll_io(cx)) => {
                    if let Err(why) = moved {
                        // Acknowledges what was confirmed, so that it is not moved again.
                        let _ = moving.settle();
                        return Err(why);
                    }
                }
                () = sleep => moving.pipe.on_deadline()?,
            }
            // Both ends may be ready all the time: yield to other tasks after each round.
            tokio::task::yield_now().await;
        }
    }
}

/// Both ends and the messages in flight between them.
struct Moving {
    pipe: Pipe,
    rewrite: Rewrite,
    /// Whether messages have stream offsets.
    is_stream: bool,
    /// See [`Progress::stream_offset`].
    stream_offset: Option<u64>,
    /// Messages still to be sent; `None` without a limit.
    to_send: Option<u64>,
    /// Messages still to be confirmed.
    to_confirm: Option<u64>,
    blocked: bool,
}

impl Moving {
    /// Acknowledges messages that the destination has. Returns their number.
    fn settle(&mut self) -> Result<u64, Failure> {
        let (moved, settled) = self.pipe.settle();
        let count = moved.map_or(0, |moved| moved.count);
        if let Some(moved) = moved {
            self.stream_offset = moved.offset.map(|offset| offset.saturating_add(1)).or(self.stream_offset);
            self.to_confirm = self.to_confirm.map(|left| left.saturating_sub(count));
        }
        settled.map(|()| count)
    }

    /// Publishes received messages while the destination accepts them.
    fn forward(&mut self, worker: &Worker) -> Result<(), Failure> {
        while let Some(event) = self.pipe.next() {
            match event {
                // Surplus messages are requeued when the channel closes.
                ClientEvent::Delivered { .. } if self.to_send == Some(0) => {}
                ClientEvent::Delivered { deliver, properties, body, .. } => {
                    let offset = if self.is_stream { stream_offset(&properties) } else { None };
                    let now_seconds = u64::try_from(worker.now_ms()).unwrap_or_default() / 1_000;
                    let properties = self.rewrite.properties(&properties, now_seconds);
                    let publish = self.rewrite.publish(&deliver);
                    self.pipe.publish(deliver.delivery_tag, offset, publish, &properties, body)?;
                    self.to_send = self.to_send.map(|left| left.saturating_sub(1));
                }
                other => ended(other)?,
            }
        }
        Ok(())
    }
}
