//! A link of a queue: consumes from the upstream, after all local consumers there, while the downstream is empty and a consumer has free prefetch.

use super::link::{Stop, Worker};
use super::message::Stamp;
use crate::links::{CHANNEL, Failure, Link, NOT_FOUND, Pipe, ended, failed, short, table};
use polylogue_amqp::client::ClientEvent;
use polylogue_amqp::codec::{
    BasicCancel, BasicConsume, BasicPublish, BasicQos, QueueDeclare, ShortStr, TableBuilder, Value,
};
use polylogue_amqp_model::AckMode;

/// The consumer priority at the upstream, below that of the upstream's own consumers.
const PRIORITY: i64 = -1;

/// The state of a running link.
pub(crate) struct Flow {
    stamp: Stamp,
    /// Whether the last request to the server was to consume.
    consuming: bool,
    /// Whether its reply is outstanding.
    asked: bool,
}

impl Flow {
    /// Declares what is missing at the upstream.
    pub(super) async fn open(worker: &Worker, source: &mut Link) -> Result<Flow, Failure> {
        let (key, upstream, shape) = (&worker.key, &worker.upstream, &worker.wanted.shape);
        let look = QueueDeclare { queue: short(&key.there), passive: true, ..Default::default() };
        match source.ask_aside(look).await {
            Err(Failure::Channel(NOT_FOUND, _)) => {
                let declare = QueueDeclare {
                    queue: short(&key.there),
                    durable: shape.durable,
                    auto_delete: shape.auto_delete,
                    arguments: table(&shape.arguments)?,
                    ..Default::default()
                };
                source.ask_aside(declare).await?;
            }
            there => drop(there?),
        }
        if upstream.ack_mode != AckMode::NoAck {
            source.ask(CHANNEL, BasicQos { prefetch_count: upstream.prefetch, ..Default::default() }).await?;
        }
        let stamp = Stamp {
            uri: source.uri.clone(),
            cluster_name: source.client.cluster_name().cloned(),
            vhost: source.address.vhost.to_string(),
            trusts_user_id: upstream.trusts_user_id,
        };
        Ok(Flow { stamp, consuming: false, asked: false })
    }

    /// Forwards messages until it is stopped.
    pub(super) async fn run(mut self, worker: &Worker, pipe: &mut Pipe) -> Result<(), Failure> {
        let mut hungry = worker.hungry.clone();
        loop {
            let (moved, settled) = pipe.settle();
            worker.federation.moved(moved.map_or(0, |moved| moved.count), 0);
            settled?;
            self.forward(worker, pipe)?;
            let wanted = *hungry.borrow_and_update();
            self.consume(worker, pipe, wanted)?;
            tokio::select! {
                biased;
                changed = hungry.changed() => if changed.is_err() {
                    // The supervisor has ended, because the broker stops.
                    return Ok(());
                },
                stop = worker.step(pipe) => if stop? != Stop::No {
                    worker.finish(pipe).await;
                    return Ok(());
                },
            }
            // Both ends may be ready all the time: yield to other tasks after each round.
            tokio::task::yield_now().await;
        }
    }

    /// Starts or stops consuming, as wanted.
    fn consume(&mut self, worker: &Worker, pipe: &mut Pipe, wanted: bool) -> Result<(), Failure> {
        if self.asked || self.consuming == wanted {
            return Ok(());
        }
        let consumer_tag: ShortStr = short(&worker.upstream.consumer_tag);
        let client = &mut pipe.source.client;
        let asked = if wanted {
            let arguments = TableBuilder::new().with("x-priority", Value::I64(PRIORITY)).build();
            let no_ack = worker.upstream.ack_mode == AckMode::NoAck;
            let queue = short(&worker.key.there);
            client.ask(CHANNEL, BasicConsume { queue, consumer_tag, no_ack, arguments, ..Default::default() })
        } else {
            client.ask(CHANNEL, BasicCancel { consumer_tag, ..Default::default() })
        };
        asked.map_err(|_| failed("source: the channel cannot be used"))?;
        (self.consuming, self.asked) = (wanted, true);
        Ok(())
    }

    /// Forwards received messages while the destination accepts them.
    fn forward(&mut self, worker: &Worker, pipe: &mut Pipe) -> Result<(), Failure> {
        while let Some(event) = pipe.next() {
            match event {
                ClientEvent::Reply(CHANNEL, _) => self.asked = false,
                ClientEvent::Delivered { deliver, properties, body, .. } => {
                    let from = (deliver.exchange.as_ref(), deliver.routing_key.as_ref());
                    let raw = self.stamp.of_queue(&worker.key, &properties, deliver.redelivered, from);
                    // Published to the default exchange, for this queue only.
                    let routing_key = short(&worker.key.name);
                    let publish = BasicPublish { routing_key, mandatory: true, ..Default::default() };
                    pipe.publish(deliver.delivery_tag, None, publish, &raw, body)?;
                }
                other => ended(other)?,
            }
        }
        Ok(())
    }
}
