//! The start positions of an exchange that names a topic: the ends of the partitions when the exchange is declared. The declaring connection records
//! them before it replies, so that all records produced afterwards are published; [`crate::FromTopics`] does so if no connection did.

use crate::connection::Connection;
use crate::management::managed;
use crate::operation::Waits;
use polylogue_amqp::request as amqp;
use polylogue_amqp_model::{Command, READS_BEGUN, TopicReads, exchange_topic};
use polylogue_api::{Catalog, PartitionSize, Request, Token, TopicInfo};
use polylogue_router::{Entry, ExchangeId};
use polylogue_types::PartitionId;
use std::sync::Arc;

/// Returns the topic of this name, if it is a log.
pub(crate) fn log_named(catalog: &dyn Catalog, name: &str) -> Option<Arc<TopicInfo>> {
    catalog.topic(name).filter(|topic| topic.config.queue.is_none() && !topic.internal)
}

/// Returns the existing partitions of that topic.
pub(crate) fn partitions_named(catalog: &dyn Catalog, name: &str) -> Vec<PartitionId> {
    log_named(catalog, name).iter().flat_map(|topic| &topic.partitions).map(|partition| partition.id).collect()
}

/// Records that reading begins at the ends of these partitions, unless it has begun. A deleted partition has no size.
pub(crate) fn begin(exchange: ExchangeId, partitions: &[PartitionId], sizes: &[Option<PartitionSize>]) -> Request {
    let there = partitions.iter().zip(sizes).filter_map(|(partition, size)| Some((partition.0, (*size)?)));
    let at = there.map(|(partition, size)| (partition, size.high_watermark.0)).chain([(READS_BEGUN, 0)]).collect();
    managed(Command::SetTopicReads(TopicReads { exchange, at, gone: Vec::new() }))
}

impl Connection {
    /// A new exchange names a topic.
    pub(crate) fn begin_reading(&mut self, token: Token, name: &[u8]) {
        let routes = self.directory.router().load();
        let Some(Entry::Exchange(route)) = routes.entry(self.vhost, name) else {
            return self.reply(token, amqp::Reply::Done);
        };
        let exchange = route.exchange();
        let partitions = exchange_topic(&exchange.arguments)
            .map(|topic| partitions_named(self.catalog.as_ref(), topic))
            .unwrap_or_default();
        let id = exchange.id;
        if partitions.is_empty() {
            return self.ask(begin(id, &[], &[]), Waits::Done(token));
        }
        self.ask(Request::DescribePartitions(partitions.clone()), Waits::Ends(token, id, partitions));
    }
}
