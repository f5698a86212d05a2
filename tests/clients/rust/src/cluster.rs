//! A cluster to make topics in, to produce to and to read from.

use futures_executor::block_on;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{ClientContext, Offset, TopicPartitionList};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// The longest that anything may take.
pub const WAIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);

/// A message on its way in or out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    pub timestamp: Option<i64>,
    pub partition: i32,
    pub offset: i64,
}

impl Record {
    pub fn new(key: &str, value: &str) -> Record {
        Record { key: Some(key.into()), value: Some(value.into()), ..Record::default() }
    }

    fn of(message: &BorrowedMessage<'_>) -> Record {
        let headers =
            message.headers().map(|all| all.iter().map(|h| (h.key.to_owned(), h.value.map(<[u8]>::to_vec))).collect());
        Record {
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().map(<[u8]>::to_vec),
            headers: headers.unwrap_or_default(),
            timestamp: message.timestamp().to_millis(),
            partition: message.partition(),
            offset: message.offset(),
        }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.value.as_deref().unwrap_or_default()).into_owned()
    }

    pub fn pair(&self) -> (Option<&[u8]>, Option<&[u8]>) {
        (self.key.as_deref(), self.value.as_deref())
    }
}

/// Keeps the error of each message that was not delivered.
#[derive(Default)]
struct Deliveries {
    failed: Mutex<Vec<KafkaError>>,
}

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            self.failed.lock().unwrap().push(error.clone());
        }
    }
}

pub struct Cluster {
    bootstrap: String,
    admin: AdminClient<DefaultClientContext>,
}

impl Cluster {
    pub fn new(bootstrap: &str) -> Cluster {
        let admin = ClientConfig::new().set("bootstrap.servers", bootstrap).create().unwrap();
        Cluster { bootstrap: bootstrap.to_owned(), admin }
    }

    pub fn topic(&self, partitions: i32) -> String {
        let name = fresh("rust");
        self.create(&name, partitions).unwrap();
        name
    }

    pub fn create(&self, name: &str, partitions: i32) -> Result<(), RDKafkaErrorCode> {
        let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        let made = block_on(self.admin.create_topics([&topic], &AdminOptions::new())).unwrap();
        made.into_iter().try_for_each(|one| one.map(drop).map_err(|(_, code)| code))
    }

    pub fn delete(&self, name: &str) {
        let gone = block_on(self.admin.delete_topics(&[name], &AdminOptions::new())).unwrap();
        gone.into_iter().for_each(|one| drop(one.unwrap()));
    }

    /// Names of all topics, and the number of brokers.
    pub fn topics(&self) -> (Vec<String>, usize) {
        let listed = self.admin.inner().fetch_metadata(None, WAIT).unwrap();
        (listed.topics().iter().map(|t| t.name().to_owned()).collect(), listed.brokers().len())
    }

    pub fn id(&self) -> Option<String> {
        self.admin.inner().fetch_cluster_id(WAIT)
    }

    fn config(&self, settings: &[(&str, &str)]) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.bootstrap);
        for (name, value) in settings {
            config.set(*name, *value);
        }
        config
    }

    /// Produces these records and waits until each is delivered or has failed.
    pub fn send(&self, topic: &str, records: &[Record], settings: &[(&str, &str)]) -> Result<(), KafkaError> {
        let producer: BaseProducer<Deliveries> = self.config(settings).create_with_context(Deliveries::default())?;
        for record in records {
            let mut headers = OwnedHeaders::new();
            for (key, value) in &record.headers {
                headers = headers.insert(Header { key, value: value.as_ref() });
            }
            let mut out = BaseRecord::<[u8], [u8]>::to(topic).headers(headers);
            out.key = record.key.as_deref();
            out.payload = record.value.as_deref();
            out.timestamp = record.timestamp;
            producer.send(out).map_err(|(error, _)| error)?;
            producer.poll(Duration::ZERO);
        }
        producer.flush(WAIT)?;
        let first = producer.context().failed.lock().unwrap().first().cloned();
        first.map_or(Ok(()), Err)
    }

    pub fn consumer<C: ConsumerContext>(&self, group: &str, settings: &[(&str, &str)], context: C) -> BaseConsumer<C> {
        let mut config = self.config(&[
            ("group.id", group),
            ("auto.offset.reset", "earliest"),
            ("enable.auto.commit", "false"),
            ("session.timeout.ms", "10000"),
            ("heartbeat.interval.ms", "500"),
        ]);
        for (name, value) in settings {
            config.set(*name, *value);
        }
        config.create_with_context(context).unwrap()
    }

    /// A consumer of all partitions from this offset on, without a group to speak of.
    pub fn assigned(&self, topic: &str, partitions: i32, from: Offset) -> BaseConsumer {
        let consumer = self.consumer(&fresh("reader"), &[], rdkafka::consumer::DefaultConsumerContext);
        let mut list = TopicPartitionList::new();
        (0..partitions).for_each(|p| list.add_partition_offset(topic, p, from).unwrap());
        consumer.assign(&list).unwrap();
        consumer
    }

    pub fn read(&self, topic: &str, count: usize, partitions: i32) -> Vec<Record> {
        take(&self.assigned(topic, partitions, Offset::Beginning), count)
    }
}

pub fn fresh(prefix: &str) -> String {
    format!("{prefix}-{}", Uuid::new_v4())
}

pub fn take<C: ConsumerContext>(consumer: &BaseConsumer<C>, count: usize) -> Vec<Record> {
    let (mut records, end) = (Vec::new(), Instant::now() + WAIT);
    while records.len() < count {
        assert!(Instant::now() < end, "only {} of {count} messages came", records.len());
        records.extend(next(consumer, POLL));
    }
    records
}

/// The next message, if one comes in this time.
pub fn next<C: ConsumerContext>(consumer: &BaseConsumer<C>, wait: Duration) -> Option<Record> {
    consumer.poll(wait).map(|message| Record::of(&message.unwrap()))
}

pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + WAIT;
    while !holds() {
        assert!(Instant::now() < end, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
