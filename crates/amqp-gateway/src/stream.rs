//! Streams: the start of a reader, its filter, and the offset header of its deliveries.
//!
//! RabbitMQ filters whole chunks with a Bloom filter and leaves the rest to the client; here each message is checked, so that only matching ones are
//! delivered.

use crate::message::open;
use bytes::{Bytes, BytesMut};
use bytestring::ByteString;
use polylogue_amqp::codec::{Properties, Table, Value, put_with_header};
use polylogue_amqp::refusal::{Named, Refusal};
use polylogue_amqp::request::Consume;
use polylogue_amqp_model::{ConsumerSettings, StreamOffset};
use polylogue_api::{AttachReader, EntryFilter, ReadFrom};
use polylogue_filter::{Filter, FilterError, FilterSpec, Limits, Subject, Tag};
use polylogue_types::{Offset, PartitionId, TimestampMs};
use std::sync::Arc;

/// The header of a delivery with the message's offset.
const OFFSET: &str = "x-stream-offset";
/// The header of a message that readers can filter by.
const FILTER_VALUE: &str = "x-stream-filter-value";
/// The most bytes that [`Stamps`] allocates together for the properties of several deliveries.
const STAMPS_BYTES: usize = 32 << 10;

/// The messages that a reader wants.
#[derive(Debug)]
struct Wanted(Filter);

impl EntryFilter for Wanted {
    fn wants(&self, entry: &Bytes) -> bool {
        let headers = open(entry).and_then(|stored| Properties::new(stored.properties).ok()?.headers());
        self.0.evaluate(&Message(headers)).matches()
    }
}

/// A message as a filter sees it: its headers, if they can be read.
struct Message(Option<Table>);

impl Subject for Message {
    fn tag(&self) -> Tag<'_> {
        Tag::Absent
    }

    fn filter_value(&self) -> Option<&[u8]> {
        self.0.as_ref()?.get(FILTER_VALUE)?.as_longstr()
    }

    /// Consumers of streams filter by the filter value alone.
    fn property(&self, _: &str) -> Option<polylogue_filter::Value<'_>> {
        None
    }
}

/// The values of a filter are as long as the arguments that have them, and there are at most as many as the model allows.
const LIMITS: Limits = Limits { terms: usize::MAX, term_bytes: usize::MAX, spec_bytes: usize::MAX, ..Limits::DEFAULT };

fn begins(offset: StreamOffset, now_ms: TimestampMs) -> ReadFrom {
    let time = |ms: u64| TimestampMs::try_from(ms).unwrap_or(TimestampMs::MAX);
    match offset {
        StreamOffset::First => ReadFrom::First,
        StreamOffset::Last => ReadFrom::Last,
        StreamOffset::Next => ReadFrom::Next,
        StreamOffset::Offset(offset) => ReadFrom::Offset(Offset(offset)),
        StreamOffset::TimestampMs(ms) => ReadFrom::Time(time(ms)),
        StreamOffset::AgoMs(ms) => ReadFrom::Time(now_ms.saturating_sub(time(ms))),
    }
}

/// Checks the settings of a stream consumer. `shared` is the channel's shared prefetch.
pub(crate) fn check(consume: &Consume, shared: u16, queue: Named<'_>) -> Result<(), Refusal> {
    if consume.prefetch == 0 {
        return Err(Refusal::stream_without_prefetch(queue));
    }
    if consume.no_ack {
        return Err(Refusal::stream_without_acks(queue));
    }
    if shared > 0 {
        return Err(Refusal::global_qos(queue));
    }
    Ok(())
}

/// A reader with a start and a filter; without credit.
///
/// # Errors
/// If the filter is refused.
pub(crate) fn reader(
    queue: PartitionId,
    settings: ConsumerSettings,
    now_ms: TimestampMs,
) -> Result<AttachReader, FilterError> {
    let ConsumerSettings { offset, filters: values, match_unfiltered: unfiltered, .. } = settings;
    let filter = wanted(&values, unfiltered)?;
    Ok(AttachReader { queue, from: begins(offset, now_ms), filter, prefetch: 0, credit: None, window_bytes: 0 })
}

/// `None` for all messages, without values.
fn wanted(values: &[ByteString], unfiltered: bool) -> Result<Option<Arc<dyn EntryFilter>>, FilterError> {
    if values.is_empty() {
        return Ok(None);
    }
    let spec =
        FilterSpec::Values { values: values.iter().map(|value| value.as_bytes().to_vec()).collect(), unfiltered };
    Ok(Some(Arc::new(Wanted(Filter::compile(&spec, &LIMITS)?))))
}

/// Properties of deliveries with their offsets: written into memory that several of them share.
#[derive(Debug, Default)]
pub(crate) struct Stamps(BytesMut);

impl Stamps {
    /// The properties of the message at this offset; up to `left` more may follow.
    pub(crate) fn stamp(&mut self, properties: &Bytes, offset: Offset, left: usize) -> Option<Bytes> {
        // Flags, the size of the headers, and the field.
        let len = properties.len() + 4 + 1 + OFFSET.len() + 9;
        if self.0.capacity() - self.0.len() < len {
            self.0 = BytesMut::with_capacity(len.max(len.saturating_mul(left + 1).min(STAMPS_BYTES)));
        }
        let offset = i64::try_from(offset.0).unwrap_or(i64::MAX);
        put_with_header(properties, OFFSET, Value::I64(offset), &mut self.0).ok()?;
        Some(self.0.split().freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Connection;
    use crate::convert::topic_config;
    use crate::machine::AmqpAnswer;
    use crate::management::PrincipalOutput;
    use crate::message::store;
    use crate::operation::{Then, Waits};
    use crate::testing::{Topics, World};
    use polylogue_amqp::codec::{BasicProperties, TableBuilder};
    use polylogue_amqp::request::{self as amqp, ChannelRef, ConsumerRef, Run};
    use polylogue_amqp_model::{ApplyTo, Command, PolicySpec};
    use polylogue_api::{
        ConsumerId, ConsumerMode, Delivery, Event, Holder, Now, Reply, Request, StateMachine, TopicChange,
    };
    use serde_json::json;
    use std::collections::VecDeque;

    fn message(value: Option<&str>) -> Bytes {
        let headers = TableBuilder::new().with_text("other", "x");
        let headers = value.map(|value| TableBuilder::new().with_text(FILTER_VALUE, value)).unwrap_or(headers).build();
        let properties = BasicProperties { headers: Some(headers), ..BasicProperties::default() }.encode();
        store(b"", b"q", &properties, None, &[])
    }

    #[test]
    fn a_filter_accepts_only_requested_values() {
        for unfiltered in [false, true] {
            let filter = wanted(&["a".into(), "b".into()], unfiltered).unwrap().expect("it has values");
            let wants = |value| filter.wants(&message(value));
            assert!(wants(Some("a")) && wants(Some("b")) && !wants(Some("c")) && !wants(Some("")));
            assert_eq!(wants(None), unfiltered);
            assert_eq!(filter.wants(&store(b"", b"q", b"\0\0", None, &[])), unfiltered, "no headers at all");
            assert_eq!(filter.wants(&Bytes::from_static(b"what is this")), unfiltered);
        }
    }

    #[test]
    fn stamps_share_memory_and_each_has_its_own_offset() {
        let mut stamps = Stamps::default();
        let plain = BasicProperties { content_type: Some("t".into()), ..BasicProperties::default() }.encode();
        let stamped: Vec<_> = (0..5).map(|i| stamps.stamp(&plain, Offset(i), 4 - i as usize).unwrap()).collect();
        for (i, properties) in (0..).zip(&stamped) {
            let headers = Properties::new(properties.clone()).unwrap().headers().unwrap();
            assert_eq!(headers.get(OFFSET), Some(Value::I64(i)));
        }
        let apart =
            stamped.windows(2).filter(|two| two[0].as_ptr() as usize + two[0].len() != two[1].as_ptr() as usize);
        assert_eq!(apart.count(), 0, "one piece of memory for all");
        assert_eq!(stamps.stamp(&Bytes::from_static(&[0xff]), Offset(0), 0), None);
    }

    const CHANNEL: ChannelRef = ChannelRef { number: 1, life: 1 };
    const CONSUMER: ConsumerRef = ConsumerRef(1);

    /// A connection with a channel, without a session.
    fn connection(world: &World) -> Connection {
        let now = Now { wall_ms: 10_000_000, monotonic_ms: 1 };
        let mut connection =
            Connection::new(Arc::default(), world.directory.clone(), Arc::new(Topics), 7, true, 1, now);
        (connection.vhost, connection.vhost_name) = (world.vhost, "/".into());
        connection.captured = Some(VecDeque::new());
        connection.begin(1, amqp::Request::OpenChannel(CHANNEL));
        assert!(matches!(
            connection.captured.as_mut().and_then(VecDeque::pop_front),
            Some(PrincipalOutput::Reply(amqp::Reply::Done))
        ));
        connection
    }

    fn consume(arguments: TableBuilder) -> Consume {
        Consume {
            consumer: CONSUMER,
            queue: "s".into(),
            tag: "t".into(),
            no_ack: false,
            exclusive: false,
            deliveries_max: 5,
            prefetch: 5,
            arguments: arguments.build(),
        }
    }

    fn found(world: &World, connection: &mut Connection, then: Then) {
        let queue =
            world.machine.model().metadata().queues().find(|queue| &*queue.name == "s").expect("declared").clone();
        let answer = AmqpAnswer::Queue(queue);
        connection.resume(Waits::Found(2, then), Reply::Machine(Ok(Box::new(answer))));
    }

    fn refused(connection: &mut Connection) -> (u16, String) {
        assert!(connection.poll_request().is_none());
        match connection.captured.as_mut().and_then(VecDeque::pop_front) {
            Some(PrincipalOutput::Reply(amqp::Reply::Refused(why))) => (why.code.number(), why.text),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_stream_consumer_reads_with_offsets() {
        let mut world = World::new();
        let partition = world.queue("s", json!({"x-queue-type": "stream"}));
        let mut connection = connection(&world);
        let wants = TableBuilder::new().with_text("x-stream-offset", "1h").with_text("x-stream-filter", "a");
        found(&world, &mut connection, Then::Consume(CHANNEL, consume(wants)));
        let Some((token, Request::AttachReader(attach))) = connection.poll_request() else { panic!("no reader") };
        assert_eq!((attach.queue, attach.from, attach.prefetch), (partition, ReadFrom::Time(6_400_000), 5));
        assert!(attach.filter.is_some_and(|filter| filter.wants(&message(Some("a")))));
        assert!(attach.credit.is_some() && attach.window_bytes > 0, "as much as its socket takes");
        connection.on_reply(token, Reply::Attach(Ok(ConsumerId(9))), Now::default());
        let deliveries = (6..8).map(|offset| Delivery {
            consumer: ConsumerId(9),
            queue: partition,
            first: Offset(offset),
            count: 1,
            lease: 0,
            life: 0,
            weight: 3,
            redelivered: false,
            returned: 0,
            failed: 0,
            entry: Offset(offset),
            bytes: message(Some("a")),
        });
        connection.on_event(Event::Deliver(deliveries.collect()), Now::default());
        let captured = connection.captured.as_mut().map(std::mem::take).unwrap_or_default();
        let Some(PrincipalOutput::Event(amqp::Event::Deliver { deliveries, .. })) = captured.back() else {
            panic!("{captured:?}")
        };
        for (delivery, offset) in deliveries.iter().zip([6, 7]) {
            let headers = Properties::new(delivery.properties.clone()).unwrap().headers().unwrap();
            assert_eq!(headers.get(OFFSET), Some(Value::I64(offset)));
            assert_eq!(headers.get(FILTER_VALUE), Some(Value::LongStr(b"a")));
        }
        let first = deliveries[0].place;
        let runs = [Run { consumer: CONSUMER, first, count: 2 }];
        let settled = connection.settlements(CHANNEL, amqp::Verdict::RequeueFailed, &runs);
        assert_eq!((settled.len(), settled[0].count, settled[0].by), (1, 2, Holder::Consumer(ConsumerId(9), 0)));
    }

    #[test]
    fn unsupported_stream_operations_are_refused_with_rabbitmqs_texts() {
        let mut world = World::new();
        world.queue("s", json!({"x-queue-type": "stream"}));
        let mut connection = connection(&world);
        let plain = || consume(TableBuilder::new());
        let name = "queue 's' in vhost '/'";
        for (wrong, shared, code, text) in [
            (
                Consume { prefetch: 0, ..plain() },
                0,
                406,
                format!("consumer prefetch count is not set for stream {name}"),
            ),
            (
                Consume { prefetch: 0, no_ack: true, ..plain() },
                1,
                406,
                format!("consumer prefetch count is not set for stream {name}"),
            ),
            (
                Consume { no_ack: true, ..plain() },
                1,
                540,
                format!("automatic acknowledgement not supported by stream {name}"),
            ),
            (plain(), 1, 540, format!("{name} does not support global qos")),
        ] {
            connection.channels.get_mut(&CHANNEL).expect("open").qos = shared;
            found(&world, &mut connection, Then::Consume(CHANNEL, wrong));
            assert_eq!(refused(&mut connection), (code, text));
        }
        let get = Then::Get { channel: CHANNEL, no_ack: true };
        for (then, method) in [(get, "basic.get"), (Then::Purge, "queue.purge")] {
            found(&world, &mut connection, then);
            let text = format!("{method} not supported by stream queues {name}");
            assert_eq!(refused(&mut connection), (540, text));
        }
    }

    /// cloudamqp/lavinmq 7f4b839: a policy was not applied to a stream that was being created.
    #[test]
    fn retention_follows_arguments_and_policies_in_any_order() {
        let mut world = World::new();
        world.queue("s", json!({"x-queue-type": "stream", "x-max-age": "2h", "x-max-length-bytes": 1000}));
        let kept = |world: &World| {
            let queue = world.machine.model().metadata().queues().next().expect("declared").clone();
            let config = topic_config(&queue, &world.directory.queue(queue.id).expect("known").settings);
            assert_eq!(config.queue.map(|queue| queue.mode), Some(ConsumerMode::Readers));
            (config.retention_ms, config.retention_bytes)
        };
        assert_eq!(kept(&world), (Some(7_200_000), Some(1_000)));
        let serde_json::Value::Object(definition) = json!({"max-age": "1h", "max-length-bytes": 5_000}) else {
            panic!("no definition")
        };
        let policy = PolicySpec {
            name: "p".into(),
            pattern: "".into(),
            apply_to: ApplyTo::Streams,
            priority: 0,
            operator: false,
            definition,
        };
        world.act(Command::SetPolicy("/".into(), policy));
        assert_eq!(kept(&world), (Some(3_600_000), Some(1_000)), "the lower of both");
        let changes = world.machine.take_topic_changes(&Topics);
        let [TopicChange { config: Some(change), .. }] = &changes[..] else { panic!("{changes:?}") };
        assert_eq!(change.config.retention_ms, Some(3_600_000), "the topic gets it");
    }

    #[test]
    fn an_interval_counts_back_from_now() {
        assert_eq!(begins(StreamOffset::AgoMs(3_600_000), 10_000_000), ReadFrom::Time(6_400_000));
        assert_eq!(begins(StreamOffset::TimestampMs(5_000), 10_000), ReadFrom::Time(5_000));
        assert_eq!(begins(StreamOffset::AgoMs(u64::MAX), 10_000), ReadFrom::Time(10_000 - TimestampMs::MAX));
        assert_eq!(begins(StreamOffset::Offset(7), 0), ReadFrom::Offset(Offset(7)));
    }
}
