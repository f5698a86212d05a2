//! A link of an exchange: declares its objects at the upstream, and forwards messages from there.

use super::link::{Stop, Worker, checked_name};
use super::message::{Passing, Stamp, goes_on, passed_on, queue_name};
use super::wanted::Bindings;
use crate::links::{CHANNEL, Failure, Link, NOT_FOUND, Pipe, ended, short, table};
use bytes::Bytes;
use polylogue_amqp::client::ClientEvent;
use polylogue_amqp::codec::{
    BasicConsume, BasicPublish, BasicQos, ExchangeBind, ExchangeDeclare, ExchangeDelete, ExchangeUnbind, QueueBind,
    QueueDeclare, QueueDelete, Table, TableBuilder, Value,
};
use polylogue_amqp_model::AckMode;
use polylogue_router::FEDERATION_UPSTREAM;
use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::watch;

/// Interval of binding everything again: an exchange that was deleted at the upstream and declared again has no bindings.
const ASSURANCE: Duration = Duration::from_secs(60);
/// Timeout for deleting the link's objects at the upstream.
const CLEANING: Duration = Duration::from_secs(5);
/// Suffixes of the link's internal exchanges: the current one and that of the previous run alternate.
const SUFFIXES: [&str; 2] = ["A", "B"];

/// The state of a running link.
pub(crate) struct Flow {
    stamp: Stamp,
    schema: Schema,
}

/// Replicates bindings to the upstream, on its own connection so that messages do not wait for it.
struct Schema {
    link: Link,
    /// The link's internal exchange.
    own: String,
    /// The replicated bindings, by key and downstream arguments, with the arguments they have at the upstream.
    bound: BTreeMap<(Bytes, Bytes), Table>,
    bindings: watch::Receiver<Bindings>,
}

/// Arguments that mark an object as internal to a link.
fn purpose() -> TableBuilder {
    TableBuilder::new().with_text("x-internal-purpose", "federation")
}

async fn exists(link: &mut Link, exchange: &str) -> Result<bool, Failure> {
    let look = ExchangeDeclare { exchange: short(exchange), passive: true, ..Default::default() };
    match link.ask_aside(look).await {
        Ok(_) => Ok(true),
        Err(Failure::Channel(NOT_FOUND, _)) => Ok(false),
        Err(why) => Err(why),
    }
}

async fn delete_exchange(link: &mut Link, exchange: &str) -> Result<(), Failure> {
    let delete = ExchangeDelete { exchange: short(exchange), ..Default::default() };
    match link.ask_aside(delete).await {
        Ok(_) | Err(Failure::Channel(NOT_FOUND, _)) => Ok(()),
        Err(why) => Err(why),
    }
}

impl Flow {
    /// Declares what is missing at the upstream, and starts consuming.
    pub(super) async fn open(worker: &Worker, source: &mut Link) -> Result<Flow, Failure> {
        let (key, upstream, shape) = (&worker.key, &worker.upstream, &worker.wanted.shape);
        let vhost = source.address.vhost.to_string();
        let queue = queue_name(key, &worker.wanted.cluster_name, &vhost);
        checked_name(&format!("{queue} A"))?;
        if !exists(source, &key.there).await? {
            let declare = ExchangeDeclare {
                exchange: short(&key.there),
                kind: short(shape.kind),
                durable: shape.durable,
                auto_delete: shape.auto_delete,
                arguments: table(&shape.arguments)?,
                ..Default::default()
            };
            source.ask_aside(declare).await?;
        }
        ensure_queue(worker, source, &queue).await?;
        let [a, b] = SUFFIXES.map(|suffix| format!("{queue} {suffix}"));
        let (own, before) = if exists(source, &b).await? { (a, b) } else { (b, a) };
        delete_exchange(source, &own).await?;
        let link = declare_own(worker, source, &own).await?;
        let bind = QueueBind { queue: short(&queue), exchange: short(&own), ..Default::default() };
        source.ask(CHANNEL, bind).await?;
        let mut schema = Schema { link, own, bound: BTreeMap::new(), bindings: worker.bindings.clone() };
        schema.sync(worker, source.client.cluster_name().cloned().as_deref(), false).await?;
        delete_exchange(source, &before).await?;
        let no_ack = upstream.ack_mode == AckMode::NoAck;
        if !no_ack {
            source.ask(CHANNEL, BasicQos { prefetch_count: upstream.prefetch, ..Default::default() }).await?;
        }
        source.ask(CHANNEL, BasicConsume { queue: short(&queue), no_ack, ..Default::default() }).await?;
        let cluster_name = source.client.cluster_name().cloned();
        let stamp = Stamp { uri: source.uri.clone(), cluster_name, vhost, trusts_user_id: upstream.trusts_user_id };
        Ok(Flow { stamp, schema })
    }

    /// Forwards messages, and replicates bindings, until it is stopped.
    pub(super) async fn run(self, worker: &Worker, pipe: &mut Pipe) -> Result<(), Failure> {
        let Flow { stamp, schema } = self;
        let cluster_name = stamp.cluster_name.clone();
        let mut keeping = pin!(schema.keep(worker, cluster_name));
        loop {
            let (moved, settled) = pipe.settle();
            worker.federation.moved(moved.map_or(0, |moved| moved.count), 0);
            settled?;
            forward(worker, &stamp, pipe)?;
            tokio::select! {
                biased;
                why = &mut keeping => return Err(why),
                stop = worker.step(pipe) => if stop? != Stop::No {
                    worker.finish(pipe).await;
                    return Ok(());
                },
            }
            // Both ends may be ready all the time: yield to other tasks after each round.
            tokio::task::yield_now().await;
        }
    }
}

/// Forwards received messages while the destination accepts them.
fn forward(worker: &Worker, stamp: &Stamp, pipe: &mut Pipe) -> Result<(), Failure> {
    let (key, cluster_name) = (&worker.key, &worker.wanted.cluster_name);
    while let Some(event) = pipe.next() {
        match event {
            ClientEvent::Delivered { deliver, properties, body, .. } => {
                // The upstream's exchange filters such messages itself, if that broker supports federation.
                if !goes_on(&properties, cluster_name, &key.vhost, worker.upstream.hops_max) {
                    pipe.drop_message(deliver.delivery_tag);
                    worker.federation.moved(0, 1);
                    continue;
                }
                let raw = stamp.of_exchange(key, &properties, deliver.redelivered);
                let (exchange, routing_key) = (short(&key.name), deliver.routing_key.clone());
                let publish = BasicPublish { exchange, routing_key, ..Default::default() };
                pipe.publish(deliver.delivery_tag, None, publish, &raw, body)?;
            }
            other => ended(other)?,
        }
    }
    Ok(())
}

/// Declares the queue that keeps messages at the upstream. If it exists with other arguments, it is declared anew if empty, and used unchanged
/// otherwise.
async fn ensure_queue(worker: &Worker, source: &mut Link, queue: &str) -> Result<(), Failure> {
    let mut arguments = purpose();
    for (name, value) in [("x-expires", worker.upstream.expires_ms), ("x-message-ttl", worker.upstream.message_ttl_ms)]
    {
        if let Some(value) = value {
            arguments = arguments.with(name, Value::I64(i64::try_from(value).unwrap_or(i64::MAX)));
        }
    }
    let kind = if worker.upstream.is_quorum { "quorum" } else { "classic" };
    let arguments = arguments.with_text("x-queue-type", kind).build();
    let declare = QueueDeclare { queue: short(queue), durable: true, arguments, ..Default::default() };
    let Err(why) = source.ask_aside(declare.clone()).await else { return Ok(()) };
    let Failure::Channel(..) = &why else { return Err(why) };
    let delete = QueueDelete { queue: short(queue), if_empty: true, ..Default::default() };
    match source.ask_aside(delete).await {
        Ok(_) => source.ask_aside(declare).await.map(drop),
        Err(Failure::Channel(..)) => {
            tracing::warn!(queue, %why, "the queue of a federation link exists with other arguments and is not empty: it is used unchanged");
            let look = QueueDeclare { queue: short(queue), passive: true, ..Default::default() };
            source.ask_aside(look).await.map(drop)
        }
        Err(why) => Err(why),
    }
}

/// Declares the link's internal exchange, on its own connection: a broker that does not know the exchange type may close it. The fallback type
/// is fanout.
async fn declare_own(worker: &Worker, source: &mut Link, own: &str) -> Result<Link, Failure> {
    let (address, name) = ([source.address.clone()], worker.connection_name());
    let mut link = Link::connect(&worker.around, &worker.wanted.author, &address, &name).await?;
    let knowing = purpose()
        .with("x-max-hops", Value::I64(worker.upstream.hops_max.into()))
        .with_text("x-downstream-name", &worker.wanted.cluster_name)
        .with_text("x-downstream-vhost", &worker.key.vhost);
    let declare = |kind: &str, arguments: TableBuilder| ExchangeDeclare {
        exchange: short(own),
        kind: short(kind),
        durable: true,
        auto_delete: true,
        internal: true,
        arguments: arguments.build(),
        ..Default::default()
    };
    if link.ask_aside(declare(FEDERATION_UPSTREAM, knowing)).await.is_ok() {
        return Ok(link);
    }
    source.ask_aside(declare("fanout", purpose())).await?;
    Link::connect(&worker.around, &worker.wanted.author, &address, &name).await
}

impl Schema {
    /// Replicates the bindings to the upstream: with `all` every binding, otherwise the changes.
    async fn sync(&mut self, worker: &Worker, cluster_name: Option<&[u8]>, all: bool) -> Result<(), Failure> {
        let wanted = self.bindings.borrow_and_update().clone();
        let key = &worker.key;
        let suffix = self.own.rsplit(' ').next().unwrap_or_default();
        let exchange = format!("{} {suffix}", key.name);
        let vhost = self.link.address.vhost.clone();
        let passing = Passing {
            cluster_name: &worker.wanted.cluster_name,
            vhost: &key.vhost,
            exchange: &exchange,
            upstream: (cluster_name, &vhost),
            hops_max: worker.upstream.hops_max,
        };
        let (source, destination) = (short(&key.there), short(&self.own));
        let gone: Vec<_> = self.bound.keys().filter(|bound| !wanted.contains_key(bound)).cloned().collect();
        for (binding, arguments) in wanted.iter() {
            if !all && self.bound.contains_key(binding) {
                continue;
            }
            let Some(arguments) = passed_on(arguments, passing) else { continue };
            let arguments = table(&arguments)?;
            let bind = ExchangeBind {
                destination: destination.clone(),
                source: source.clone(),
                routing_key: short(&String::from_utf8_lossy(&binding.0)),
                arguments: arguments.clone(),
                ..Default::default()
            };
            self.link.ask(CHANNEL, bind).await?;
            self.bound.insert(binding.clone(), arguments);
        }
        for binding in gone {
            let Some(arguments) = self.bound.remove(&binding) else { continue };
            let unbind = ExchangeUnbind {
                destination: destination.clone(),
                source: source.clone(),
                routing_key: short(&String::from_utf8_lossy(&binding.0)),
                arguments,
                ..Default::default()
            };
            self.link.ask(CHANNEL, unbind).await?;
        }
        Ok(())
    }

    /// Replicates changes of bindings until that fails; returns the error.
    async fn keep(mut self, worker: &Worker, cluster_name: Option<Bytes>) -> Failure {
        let mut bindings = self.bindings.clone();
        loop {
            let all = tokio::select! {
                biased;
                changed = bindings.changed() => match changed {
                    Ok(()) => false,
                    // The supervisor has ended, because the broker stops.
                    Err(_) => std::future::pending().await,
                },
                why = self.link.idle() => return why,
                () = tokio::time::sleep(ASSURANCE) => true,
            };
            bindings.mark_unchanged();
            if let Err(why) = self.sync(worker, cluster_name.as_deref(), all).await {
                return why;
            }
        }
    }
}

/// Deletes the objects of an obsolete link at its upstream, if it can be reached.
pub(super) async fn clean_up(worker: &Worker) {
    let cleaning = async {
        let uris: Vec<_> = worker.upstream.uris.iter().map(|uri| uri.or_vhost(&worker.key.vhost)).collect();
        let mut link = Link::connect(&worker.around, &worker.wanted.author, &uris, &worker.connection_name()).await?;
        let queue = queue_name(&worker.key, &worker.wanted.cluster_name, &link.address.vhost);
        let delete = QueueDelete { queue: short(&queue), ..Default::default() };
        match link.ask_aside(delete).await {
            Ok(_) | Err(Failure::Channel(NOT_FOUND, _)) => {}
            Err(why) => return Err(why),
        }
        for suffix in SUFFIXES {
            delete_exchange(&mut link, &format!("{queue} {suffix}")).await?;
        }
        link.part(CLEANING).await;
        Ok(())
    };
    if let Ok(Err(why)) = tokio::time::timeout(CLEANING, cleaning).await {
        let (name, upstream) = (&*worker.key.name, &*worker.key.upstream);
        tracing::warn!(name, upstream, %why, "a federation link could not delete its queue or exchange at the upstream");
    }
}
