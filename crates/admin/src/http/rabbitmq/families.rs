//! Which families there are, and what they tell.

use super::super::App;
use super::super::objects::LEFT_OUT;
use super::text::{Kind, Text};
use super::{PREFIX, Queues, ShownQueue};
use crate::process;
use polylogue_amqp_gateway::{Count, QueueCount, SIZE_BOUNDS, Traffic};
use polylogue_amqp_model::QueueKind;
use polylogue_api::QueueCounts;

/// The protocol as RabbitMQ names it.
const PROTOCOL: (&str, &str) = ("protocol", "amqp091");
/// The protocol as our own counters name it.
const OURS: &str = "amqp";
const QUEUE_KINDS: [QueueKind; 3] = [QueueKind::Classic, QueueKind::Quorum, QueueKind::Stream];

/// Families that can be asked for by a name, which is that of RabbitMQ's table.
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
    /// All whose families have different names.
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

    /// Those that can be asked for. Of channels and connections there are only sums, which clients do not expect there.
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
            let help = "Messages that publishers sent, as often as they reached a queue";
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
        ("connections_opened", "Connections of AMQP clients that came into a virtual host", Count::ConnectionsOpened),
        ("connections_closed", "Connections of AMQP clients that went", Count::ConnectionsClosed),
        ("channels_opened", "Channels that were opened", Count::ChannelsOpened),
        ("channels_closed", "Channels that were closed", Count::ChannelsClosed),
        ("queues_declared", "Declarations of queues, whether they were there or not", Count::QueuesDeclared),
        ("queues_created", "Queues that were made", Count::QueuesCreated),
        ("queues_deleted", "Queues that went", Count::QueuesDeleted),
    ] {
        text.one(Kind::Counter, &format!("{prefix}{name}_total"), help, traffic.count(what));
    }
}

/// A gauge, where its value is known.
fn known(text: &mut Text, prefix: &str, name: &str, help: &str, value: Option<u64>) {
    if let Some(value) = value {
        text.one(Kind::Gauge, &format!("{prefix}{name}"), help, value);
    }
}

fn node_coarse(app: &App, text: &mut Text, prefix: &str) {
    let sockets = app.net.connections.len() as u64;
    let disk = app.broker.status().disk_free_bytes;
    for (name, help, value) in [
        ("process_open_fds", "Descriptors that the process has open", process::open_descriptors()),
        ("process_open_tcp_sockets", "Connections of clients of all protocols but http", Some(sockets)),
        ("process_resident_memory_bytes", "Memory that the process takes", process::Resident::now().map(|now| now.all)),
        ("disk_space_available_bytes", "Free bytes of the data directory's file system", disk),
    ] {
        known(text, prefix, name, help, value);
    }
}

fn node(app: &App, text: &mut Text, prefix: &str) {
    let sockets = app.rabbitmq.connections_max as u64;
    let limit = app.rabbitmq.disk_free_limit_bytes;
    for (name, help, value) in [
        ("process_max_fds", "Descriptors that the process may have open", process::descriptors_max()),
        ("process_max_tcp_sockets", "Connections of clients that there may be (server.connections_max)", Some(sockets)),
        (
            "disk_space_available_limit_bytes",
            "Free bytes under which publishers to queues are to wait (log.disk_free_limit_bytes)",
            Some(limit),
        ),
        (
            "resident_memory_limit_bytes",
            "Memory above which publishers to queues are to wait (server.memory_limit_bytes)",
            Some(app.net.memory.limit_bytes()),
        ),
    ] {
        known(text, prefix, name, help, value);
    }
    let seconds = app.broker.now().monotonic_ms as f64 / 1_000.0;
    let help = "Time since the server started (not an Erlang runtime: the name is the one that the dashboard queries)";
    text.one(Kind::Gauge, &format!("{prefix}erlang_uptime_seconds"), help, seconds);
}

/// A family of queues, of each or of all together.
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

/// What queues hold, as RabbitMQ's management API says it, too: what waits for its time is ready, what is on its way to another queue as dead is not.
fn of_queues(text: &mut Text, prefix: &str, group: Group, queues: &Queues) {
    let mut family = |name: &str, help: &str, number: fn(&QueueCounts) -> u64| {
        queue_family(text, &format!("{prefix}{name}"), help, queues, number);
    };
    if group == Group::QueueCoarse {
        family("queue_messages_ready", "Messages that wait for a consumer, or for their time", |one| {
            one.ready + one.delayed
        });
        family("queue_messages_unacked", "Messages that consumers have and did not settle", |one| one.held + one.dead);
        family("queue_messages", "Messages that are ready or not settled", |one| {
            one.ready + one.delayed + one.held + one.dead
        });
        return;
    }
    family("queue_consumers", "Consumers of queues", |one| one.consumers);
    if group == Group::Queue {
        let persistent = |one: &QueueCounts| one.messages().saturating_sub(one.transient);
        let persistent_bytes = |one: &QueueCounts| one.bytes().saturating_sub(one.transient_bytes);
        family("queue_messages_persistent", "Messages that were published as persistent to durable queues", persistent);
        family("queue_messages_persistent_bytes", "Bytes of the bodies of persistent messages", persistent_bytes);
        family("queue_messages_bytes", "Bytes of the bodies of messages that are ready or not settled", |one| {
            one.bytes()
        });
        family(
            "queue_messages_ready_bytes",
            "Bytes of the bodies of messages that wait for a consumer, or for their time",
            |one| one.ready_bytes + one.delayed_bytes,
        );
        family(
            "queue_messages_unacked_bytes",
            "Bytes of the bodies of messages that consumers have and did not settle",
            |one| one.held_bytes + one.dead_bytes,
        );
    }
}

/// Channels that publish, and consumers.
fn publishers_and_consumers(app: &App) -> (usize, usize) {
    let each = app.directory.clients().into_iter().map(|client| client.publishers_and_consumers());
    each.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

fn channel(app: &App, text: &mut Text, prefix: &str) {
    let (_, consumers) = publishers_and_consumers(app);
    text.one(Kind::Gauge, &format!("{prefix}channel_consumers"), "Consumers of all channels", consumers);
    let (name, help) = ("channel_messages_unconfirmed", "Messages whose publishers wait to hear of them");
    text.one(Kind::Gauge, &format!("{prefix}{name}"), help, app.directory.traffic().unconfirmed());
}

fn channel_exchange(traffic: &Traffic, text: &mut Text, prefix: &str) {
    for (name, help, what) in [
        ("published", "Messages that publishers sent", Count::Received),
        ("confirmed", "Messages whose publishers heard that they are safe", Count::Confirmed),
        ("unroutable_returned", "Messages that reached no queue and went back", Count::Returned),
        ("unroutable_dropped", "Messages that reached no queue and are gone", Count::Dropped),
    ] {
        text.one(Kind::Counter, &format!("{prefix}channel_messages_{name}_total"), help, traffic.count(what));
    }
}

fn channel_queue(traffic: &Traffic, text: &mut Text, prefix: &str) {
    for (name, help, what) in [
        ("get_ack", "Messages received by basic.get with manual acknowledgement", QueueCount::GotManualAck),
        ("get", "Messages received by basic.get with automatic acknowledgement", QueueCount::GotAutoAck),
        ("get_empty", "basic.get requests that found the queue empty", QueueCount::GotNothing),
        ("messages_delivered_ack", "Messages delivered to consumers who acknowledge", QueueCount::ConsumedManualAck),
        ("messages_delivered", "Messages delivered to consumers who do not acknowledge", QueueCount::ConsumedAutoAck),
        ("messages_redelivered", "Messages delivered that had been delivered before", QueueCount::Redelivered),
        ("messages_acked", "Messages that were acknowledged", QueueCount::Acknowledged),
    ] {
        text.one(Kind::Counter, &format!("{prefix}channel_{name}_total"), help, traffic.of_all_queues(what));
    }
}

fn connection(app: &App, text: &mut Text, prefix: &str) {
    let Some(counts) = app.net.metrics.counts().into_iter().find(|counts| counts.protocol == OURS) else { return };
    for (name, help, value) in [
        ("incoming", "Bytes that AMQP clients sent", counts.received_bytes),
        ("outgoing", "Bytes that AMQP clients were sent", counts.sent_bytes),
    ] {
        text.one(Kind::Counter, &format!("{prefix}connection_{name}_bytes_total"), help, value);
    }
}

/// How many of each there are.
pub(super) fn totals(app: &App, text: &mut Text, queues: &Queues) {
    let (connections, channels) = app.directory.client_counts();
    let (_, consumers) = publishers_and_consumers(app);
    let queues = match queues {
        Queues::Together(_, all) => *all,
        Queues::Each(reported, left_out) => reported.len() + left_out,
    };
    for (name, help, value) in [
        ("connections", "Connections of AMQP clients", connections),
        ("channels", "Channels of AMQP clients", channels),
        ("consumers", "Consumers of AMQP clients", consumers as u64),
        ("queues", "Queues", queues as u64),
    ] {
        text.one(Kind::Gauge, &format!("{PREFIX}{name}"), help, value);
    }
}

/// What is counted by protocol, and by the type of queue.
pub(super) fn global(traffic: &Traffic, app: &App, text: &mut Text) {
    for (name, help, what) in [
        ("received", "Messages that publishers sent", Count::Received),
        ("received_confirm", "Messages that publishers sent who wait to hear of them", Count::ReceivedConfirm),
        ("routed", "Messages that publishers sent, as often as they reached a queue", Count::Routed),
        ("unroutable_dropped", "Messages that reached no queue and are gone", Count::Dropped),
        ("unroutable_returned", "Messages that reached no queue and went back", Count::Returned),
        ("confirmed", "Messages whose publishers heard that they are safe", Count::Confirmed),
    ] {
        let name = format!("{PREFIX}global_messages_{name}_total");
        text.family(Kind::Counter, &name, help).with(&[PROTOCOL], traffic.count(what));
    }
    let (publishers, consumers) = publishers_and_consumers(app);
    let help = "Channels on which something was published";
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
            "Messages delivered, in whatever way",
            &[ConsumedManualAck, ConsumedAutoAck, GotManualAck, GotAutoAck],
        ),
        ("delivered_consume_manual_ack", "Messages delivered to consumers who acknowledge", &[ConsumedManualAck]),
        ("delivered_consume_auto_ack", "Messages delivered to consumers who do not acknowledge", &[ConsumedAutoAck]),
        ("delivered_get_manual_ack", "Messages received by basic.get with manual acknowledgement", &[GotManualAck]),
        ("delivered_get_auto_ack", "Messages received by basic.get with automatic acknowledgement", &[GotAutoAck]),
        ("get_empty", "basic.get requests that found the queue empty", &[GotNothing]),
        ("redelivered", "Messages delivered that had been delivered before", &[QueueCount::Redelivered]),
        ("acknowledged", "Messages that were acknowledged", &[QueueCount::Acknowledged]),
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
    let help = "How large the bodies are of messages that publishers sent";
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

/// The types of queues that are shown one by one.
pub(super) fn infos(text: &mut Text, prefix: &str, queues: &Queues) {
    let Queues::Each(reported, _) = queues else { return };
    let name = format!("{prefix}queue_info");
    let mut series = text.family(Kind::Gauge, &name, "1, with the type of a queue");
    for ShownQueue { vhost, queue, .. } in reported {
        let labels: [(&str, &str); 4] =
            [("vhost", vhost), ("queue", &queue.name), ("queue_type", queue.kind.module()), ("membership", "leader")];
        series.with(&labels, 1);
    }
}

/// Queues left out of the answer.
pub(super) fn left_out(text: &mut Text, queues: &Queues) {
    if let Queues::Each(_, left_out) = queues {
        text.one(Kind::Gauge, "polylogue_objects_left_out", LEFT_OUT, left_out);
    }
}

/// Who tells all that: what the panels of dashboards join everything with.
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
    let help = "1, with the version of RabbitMQ that AMQP clients see, and the runtime in the place of Erlang";
    text.family(Kind::Untyped, "rabbitmq_build_info", help).with(&labels, 1);
    let labels: [(&str, &str); 4] = [
        ("rabbitmq_node", &node),
        ("rabbitmq_cluster", &settings.cluster_name),
        ("rabbitmq_cluster_permanent_id", &cluster.cluster_id),
        ("rabbitmq_endpoint", endpoint),
    ];
    let help = "1, with the names of the node and the cluster";
    text.family(Kind::Untyped, "rabbitmq_identity_info", help).with(&labels, 1);
}
