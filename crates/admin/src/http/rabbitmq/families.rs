//! The metric families and their values.

use super::super::App;
use super::super::objects::LEFT_OUT;
use super::text::{Kind, Text};
use super::{PREFIX, Queues, ShownQueue};
use crate::process;
use polylogue_amqp_gateway::{Count, QueueCount, SIZE_BOUNDS, Traffic};
use polylogue_amqp_model::QueueKind;
use polylogue_api::QueueCounts;

/// The protocol's label value in RabbitMQ.
const PROTOCOL: (&str, &str) = ("protocol", "amqp091");
/// The protocol's name in polylogue's counters.
const OURS: &str = "amqp";
const QUEUE_KINDS: [QueueKind; 3] = [QueueKind::Classic, QueueKind::Quorum, QueueKind::Stream];

/// Groups of families that can be requested, by RabbitMQ's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Group {
    Churn,
    NodeCoarse,
    Node,
    QueueCoarse,
    QueueConsumers,
    Queue,
    Channel,
    ChannelExchange,
    ChannelQueue,
    ChannelQueueExchange,
    Connection,
}

impl Group {
    /// The groups for a whole scrape, in which each family occurs once.
    pub(super) const ALL: [Group; 10] = [
        Group::Churn,
        Group::NodeCoarse,
        Group::Node,
        Group::QueueCoarse,
        Group::Queue,
        Group::Channel,
        Group::ChannelExchange,
        Group::ChannelQueue,
        Group::ChannelQueueExchange,
        Group::Connection,
    ];

    /// Returns the group of a name. Per-channel and per-connection groups are missing: only sums exist, which clients do not expect there.
    pub(super) fn named(name: &str) -> Option<Group> {
        match name {
            "connection_churn_metrics" => Some(Group::Churn),
            "node_coarse_metrics" => Some(Group::NodeCoarse),
            "node_metrics" => Some(Group::Node),
            "queue_coarse_metrics" => Some(Group::QueueCoarse),
            "queue_consumer_count" => Some(Group::QueueConsumers),
            "queue_metrics" => Some(Group::Queue),
            _ => None,
        }
    }

    pub(super) fn is_of_queues(self) -> bool {
        matches!(self, Group::QueueCoarse | Group::QueueConsumers | Group::Queue)
    }
}

/// Writes the families of a group.
pub(super) fn write(app: &App, text: &mut Text, prefix: &str, group: Group, queues: Option<&Queues>) {
    let traffic = app.directory.traffic();
    match group {
        Group::Churn => churn(traffic, text, prefix),
        Group::NodeCoarse => node_coarse(app, text, prefix),
        Group::Node => node(app, text, prefix),
        Group::QueueCoarse | Group::QueueConsumers | Group::Queue => {
            if let Some(queues) = queues {
                of_queues(text, prefix, group, queues);
            }
        }
        Group::Channel => channel(app, text, prefix),
        Group::ChannelExchange => channel_exchange(traffic, text, prefix),
        Group::ChannelQueue => channel_queue(traffic, text, prefix),
        Group::ChannelQueueExchange => {
            let help = "Messages routed to queues, counted once for each queue";
            text.one(
                Kind::Counter,
                &format!("{prefix}queue_messages_published_total"),
                help,
                traffic.count(Count::Routed),
            );
        }
        Group::Connection => connection(app, text, prefix),
    }
}

fn churn(traffic: &Traffic, text: &mut Text, prefix: &str) {
    for (name, help, what) in [
        ("connections_opened", "AMQP connections opened", Count::ConnectionsOpened),
        ("connections_closed", "AMQP connections closed", Count::ConnectionsClosed),
        ("channels_opened", "Channels opened", Count::ChannelsOpened),
        ("channels_closed", "Channels closed", Count::ChannelsClosed),
        ("queues_declared", "Queue declarations, of new and of existing queues", Count::QueuesDeclared),
        ("queues_created", "Queues created", Count::QueuesCreated),
        ("queues_deleted", "Queues deleted", Count::QueuesDeleted),
    ] {
        text.one(Kind::Counter, &format!("{prefix}{name}_total"), help, traffic.count(what));
    }
}

/// Writes a gauge if its value is known.
fn known(text: &mut Text, prefix: &str, name: &str, help: &str, value: Option<u64>) {
    if let Some(value) = value {
        text.one(Kind::Gauge, &format!("{prefix}{name}"), help, value);
    }
}

fn node_coarse(app: &App, text: &mut Text, prefix: &str) {
    let sockets = app.net.connections.len() as u64;
    let disk = app.broker.status().disk_free_bytes;
    for (name, help, value) in [
        ("process_open_fds", "Open file descriptors of the process", process::open_descriptors()),
        ("process_open_tcp_sockets", "Client connections of all protocols but HTTP", Some(sockets)),
        (
            "process_resident_memory_bytes",
            "Resident memory of the process",
            process::Resident::now().map(|now| now.all),
        ),
        ("disk_space_available_bytes", "Free bytes of the data directory's file system", disk),
    ] {
        known(text, prefix, name, help, value);
    }
}

fn node(app: &App, text: &mut Text, prefix: &str) {
    let sockets = app.rabbitmq.connections_max as u64;
    let limit = app.rabbitmq.disk_free_limit_bytes;
    for (name, help, value) in [
        ("process_max_fds", "Limit on open file descriptors of the process", process::descriptors_max()),
        ("process_max_tcp_sockets", "Limit on client connections (server.connections_max)", Some(sockets)),
        (
            "disk_space_available_limit_bytes",
            "Free disk space that raises the disk alarm (log.disk_free_limit_bytes)",
            Some(limit),
        ),
        (
            "resident_memory_limit_bytes",
            "Memory that raises the memory alarm (server.memory_limit_bytes)",
            Some(app.net.memory.limit_bytes()),
        ),
    ] {
        known(text, prefix, name, help, value);
    }
    let seconds = app.broker.now().monotonic_ms as f64 / 1_000.0;
    let help = "Time since the server started (not an Erlang runtime: the name is the one that the dashboard queries)";
    text.one(Kind::Gauge, &format!("{prefix}erlang_uptime_seconds"), help, seconds);
}

/// Writes a family of queues: a value for each queue, or the sum.
fn queue_family(text: &mut Text, name: &str, help: &str, queues: &Queues, number: fn(&QueueCounts) -> u64) {
    let mut series = text.family(Kind::Gauge, name, help);
    match queues {
        Queues::Together(sum, _) => series.with(&[], number(sum)),
        Queues::Each(all, _) => {
            for ShownQueue { vhost, queue, counts } in all {
                series.with(&[("vhost", vhost), ("queue", &queue.name)], number(counts));
            }
        }
    }
}

/// Writes the queues' counts as RabbitMQ's management API defines them: delayed messages are ready, messages being dead-lettered are not.
fn of_queues(text: &mut Text, prefix: &str, group: Group, queues: &Queues) {
    let mut family = |name: &str, help: &str, number: fn(&QueueCounts) -> u64| {
        queue_family(text, &format!("{prefix}{name}"), help, queues, number);
    };
    if group == Group::QueueCoarse {
        family("queue_messages_ready", "Ready and delayed messages", |one| one.ready + one.delayed);
        family("queue_messages_unacked", "Unacknowledged messages", |one| one.held + one.dead);
        family("queue_messages", "Ready and unacknowledged messages", |one| {
            one.ready + one.delayed + one.held + one.dead
        });
        return;
    }
    family("queue_consumers", "Consumers of queues", |one| one.consumers);
    if group == Group::Queue {
        let persistent = |one: &QueueCounts| one.messages().saturating_sub(one.transient);
        let persistent_bytes = |one: &QueueCounts| one.bytes().saturating_sub(one.transient_bytes);
        family("queue_messages_persistent", "Persistent messages in durable queues", persistent);
        family("queue_messages_persistent_bytes", "Bytes of the bodies of persistent messages", persistent_bytes);
        family("queue_messages_bytes", "Bytes of the bodies of ready and unacknowledged messages", |one| one.bytes());
        family("queue_messages_ready_bytes", "Bytes of the bodies of ready and delayed messages", |one| {
            one.ready_bytes + one.delayed_bytes
        });
        family("queue_messages_unacked_bytes", "Bytes of the bodies of unacknowledged messages", |one| {
            one.held_bytes + one.dead_bytes
        });
    }
}

/// Returns the number of channels that publish, and of consumers.
fn publishers_and_consumers(app: &App) -> (usize, usize) {
    let each = app.directory.clients().into_iter().map(|client| client.publishers_and_consumers());
    each.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

fn channel(app: &App, text: &mut Text, prefix: &str) {
    let (_, consumers) = publishers_and_consumers(app);
    text.one(Kind::Gauge, &format!("{prefix}channel_consumers"), "Consumers of all channels", consumers);
    let (name, help) = ("channel_messages_unconfirmed", "Messages that wait for their publisher confirm");
    text.one(Kind::Gauge, &format!("{prefix}{name}"), help, app.directory.traffic().unconfirmed());
}

fn channel_exchange(traffic: &Traffic, text: &mut Text, prefix: &str) {
    for (name, help, what) in [
        ("published", "Messages received from publishers", Count::Received),
        ("confirmed", "Messages confirmed to publishers", Count::Confirmed),
        ("unroutable_returned", "Unroutable messages returned to publishers", Count::Returned),
        ("unroutable_dropped", "Unroutable messages dropped", Count::Dropped),
    ] {
        text.one(Kind::Counter, &format!("{prefix}channel_messages_{name}_total"), help, traffic.count(what));
    }
}

fn channel_queue(traffic: &Traffic, text: &mut Text, prefix: &str) {
    for (name, help, what) in [
        ("get_ack", "Messages received by basic.get with manual acknowledgement", QueueCount::GotManualAck),
        ("get", "Messages received by basic.get with automatic acknowledgement", QueueCount::GotAutoAck),
        ("get_empty", "basic.get requests that found the queue empty", QueueCount::GotNothing),
        (
            "messages_delivered_ack",
            "Messages delivered to consumers with manual acknowledgement",
            QueueCount::ConsumedManualAck,
        ),
        (
            "messages_delivered",
            "Messages delivered to consumers with automatic acknowledgement",
            QueueCount::ConsumedAutoAck,
        ),
        ("messages_redelivered", "Messages redelivered", QueueCount::Redelivered),
        ("messages_acked", "Messages acknowledged", QueueCount::Acknowledged),
    ] {
        text.one(Kind::Counter, &format!("{prefix}channel_{name}_total"), help, traffic.of_all_queues(what));
    }
}

fn connection(app: &App, text: &mut Text, prefix: &str) {
    let Some(counts) = app.net.metrics.counts().into_iter().find(|counts| counts.protocol == OURS) else { return };
    for (name, help, value) in [
        ("incoming", "Bytes received from AMQP clients", counts.received_bytes),
        ("outgoing", "Bytes sent to AMQP clients", counts.sent_bytes),
    ] {
        text.one(Kind::Counter, &format!("{prefix}connection_{name}_bytes_total"), help, value);
    }
}

/// Writes the totals.
pub(super) fn totals(app: &App, text: &mut Text, queues: &Queues) {
    let (connections, channels) = app.directory.client_counts();
    let (_, consumers) = publishers_and_consumers(app);
    let queues = match queues {
        Queues::Together(_, all) => *all,
        Queues::Each(reported, left_out) => reported.len() + left_out,
    };
    for (name, help, value) in [
        ("connections", "AMQP connections", connections),
        ("channels", "AMQP channels", channels),
        ("consumers", "AMQP consumers", consumers as u64),
        ("queues", "Queues", queues as u64),
    ] {
        text.one(Kind::Gauge, &format!("{PREFIX}{name}"), help, value);
    }
}

/// Writes the counters by protocol and queue type.
pub(super) fn global(traffic: &Traffic, app: &App, text: &mut Text) {
    for (name, help, what) in [
        ("received", "Messages received from publishers", Count::Received),
        ("received_confirm", "Messages received on channels with publisher confirms", Count::ReceivedConfirm),
        ("routed", "Messages routed to queues, counted once for each queue", Count::Routed),
        ("unroutable_dropped", "Unroutable messages dropped", Count::Dropped),
        ("unroutable_returned", "Unroutable messages returned to publishers", Count::Returned),
        ("confirmed", "Messages confirmed to publishers", Count::Confirmed),
    ] {
        let name = format!("{PREFIX}global_messages_{name}_total");
        text.family(Kind::Counter, &name, help).with(&[PROTOCOL], traffic.count(what));
    }
    let (publishers, consumers) = publishers_and_consumers(app);
    let help = "Channels that have published";
    text.family(Kind::Gauge, "rabbitmq_global_publishers", help).with(&[PROTOCOL], publishers);
    text.family(Kind::Gauge, "rabbitmq_global_consumers", "Consumers").with(&[PROTOCOL], consumers);
    global_of_queues(traffic, text);
    sizes(traffic, text);
}

fn global_of_queues(traffic: &Traffic, text: &mut Text) {
    use QueueCount::{ConsumedAutoAck, ConsumedManualAck, GotAutoAck, GotManualAck, GotNothing};
    let all: &[(&str, &str, &[QueueCount])] = &[
        (
            "delivered",
            "Messages delivered, by basic.deliver or basic.get",
            &[ConsumedManualAck, ConsumedAutoAck, GotManualAck, GotAutoAck],
        ),
        (
            "delivered_consume_manual_ack",
            "Messages delivered to consumers with manual acknowledgement",
            &[ConsumedManualAck],
        ),
        (
            "delivered_consume_auto_ack",
            "Messages delivered to consumers with automatic acknowledgement",
            &[ConsumedAutoAck],
        ),
        ("delivered_get_manual_ack", "Messages received by basic.get with manual acknowledgement", &[GotManualAck]),
        ("delivered_get_auto_ack", "Messages received by basic.get with automatic acknowledgement", &[GotAutoAck]),
        ("get_empty", "basic.get requests that found the queue empty", &[GotNothing]),
        ("redelivered", "Messages redelivered", &[QueueCount::Redelivered]),
        ("acknowledged", "Messages acknowledged", &[QueueCount::Acknowledged]),
    ];
    for (name, help, counts) in all {
        let name = format!("{PREFIX}global_messages_{name}_total");
        let mut series = text.family(Kind::Counter, &name, help);
        for kind in QUEUE_KINDS {
            let sum: u64 = counts.iter().map(|what| traffic.of_queues(*what, kind)).sum();
            series.with(&[PROTOCOL, ("queue_type", kind.module())], sum);
        }
    }
}

fn sizes(traffic: &Traffic, text: &mut Text) {
    let help = "Size of the bodies of messages received from publishers";
    let mut series = text.family(Kind::Histogram, "rabbitmq_message_size_bytes", help);
    let bounds = SIZE_BOUNDS.iter().map(u64::to_string).chain(["+Inf".to_owned()]);
    let mut sum = 0;
    for (bound, count) in bounds.zip(traffic.sizes()) {
        sum += count;
        series.part("_bucket", &[PROTOCOL, ("le", &bound)], sum);
    }
    series.part("_sum", &[PROTOCOL], traffic.count(Count::ReceivedBytes));
    series.part("_count", &[PROTOCOL], sum);
}

/// Writes the types of the queues that are shown one by one.
pub(super) fn infos(text: &mut Text, prefix: &str, queues: &Queues) {
    let Queues::Each(reported, _) = queues else { return };
    let name = format!("{prefix}queue_info");
    let mut series = text.family(Kind::Gauge, &name, "1, labelled with the type of a queue");
    for ShownQueue { vhost, queue, .. } in reported {
        let labels: [(&str, &str); 4] =
            [("vhost", vhost), ("queue", &queue.name), ("queue_type", queue.kind.module()), ("membership", "leader")];
        series.with(&labels, 1);
    }
}

/// Writes the number of queues left out.
pub(super) fn left_out(text: &mut Text, queues: &Queues) {
    if let Queues::Each(_, left_out) = queues {
        text.one(Kind::Gauge, "polylogue_objects_left_out", LEFT_OUT, left_out);
    }
}

/// Writes the build and identity info that dashboards join with other series.
pub(super) fn identity(app: &App, text: &mut Text, endpoint: &str) {
    let cluster = app.broker.catalog().cluster();
    let settings = app.directory.named(app.rabbitmq.amqp.clone());
    let node = format!("polylogue@{}", cluster.node.0);
    let labels: [(&str, &str); 4] = [
        ("rabbitmq_version", &settings.version),
        ("erlang_version", &settings.platform),
        ("product_name", &settings.product),
        ("product_version", &settings.version),
    ];
    let help =
        "1, labelled with the RabbitMQ version in the server properties, and the runtime in place of Erlang's version";
    text.family(Kind::Untyped, "rabbitmq_build_info", help).with(&labels, 1);
    let labels: [(&str, &str); 4] = [
        ("rabbitmq_node", &node),
        ("rabbitmq_cluster", &settings.cluster_name),
        ("rabbitmq_cluster_permanent_id", &cluster.cluster_id),
        ("rabbitmq_endpoint", endpoint),
    ];
    let help = "1, labelled with the names of the node and the cluster";
    text.family(Kind::Untyped, "rabbitmq_identity_info", help).with(&labels, 1);
}
