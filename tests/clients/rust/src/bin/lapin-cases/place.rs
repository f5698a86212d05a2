//! Where the cases connect to, and what all of them do there.

use futures_lite::StreamExt as _;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions,
    QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, Consumer, Error, ErrorKind};
use std::future::Future;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use uuid::Uuid;

pub const WAIT: Duration = Duration::from_secs(60);
/// How long nothing must come to be called nothing.
pub const QUIET: Duration = Duration::from_millis(300);

pub struct Place {
    pub address: String,
    runtime: tokio::runtime::Runtime,
}

pub fn fresh(prefix: &str) -> String {
    format!("{prefix}-{}", Uuid::new_v4())
}

pub fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

pub fn table<const N: usize>(fields: [(&str, AMQPValue); N]) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in fields {
        table.insert(name.into(), value);
    }
    table
}

pub fn long(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

impl Place {
    pub fn new(address: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Self { address: address.to_owned(), runtime }
    }

    pub fn run(&self, case: impl Future<Output = ()>) {
        self.runtime.block_on(case);
    }

    pub fn url(address: &str) -> String {
        format!("amqp://guest:guest@{address}/%2f")
    }

    pub async fn connect(&self) -> Connection {
        Connection::connect(&Self::url(&self.address), ConnectionProperties::default()).await.unwrap()
    }

    /// A channel of a connection of its own, which goes with it.
    pub async fn channel(&self) -> Channel {
        self.connect().await.create_channel().await.unwrap()
    }

    pub async fn confirming(&self) -> Channel {
        let channel = self.channel().await;
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        channel
    }
}

pub async fn within<T>(what: &str, happens: impl Future<Output = T>) -> T {
    match tokio::time::timeout(WAIT, happens).await {
        Ok(value) => value,
        Err(_) => panic!("never happened: {what}"),
    }
}

pub async fn declare(channel: &Channel, name: &str, arguments: FieldTable) {
    channel.queue_declare(name.into(), QueueDeclareOptions::durable(), arguments).await.unwrap();
}

pub async fn inspect(channel: &Channel, queue: &str) -> Result<u32, Error> {
    let options = QueueDeclareOptions::default().passive();
    Ok(channel.queue_declare(queue.into(), options, FieldTable::default()).await?.message_count())
}

pub async fn ready(channel: &Channel, queue: &str) -> u32 {
    inspect(channel, queue).await.unwrap()
}

pub async fn remove(channel: &Channel, queue: &str) {
    channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await.unwrap();
}

/// Publishes, and gives what came of it: without confirms that nothing was asked for.
pub async fn publish(
    channel: &Channel,
    exchange: &str,
    key: &str,
    body: &[u8],
    properties: BasicProperties,
) -> Result<Confirmation, Error> {
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    channel.basic_publish(exchange.into(), key.into(), options, body, properties).await?.await
}

/// Publishes to a queue by its name, and sees each confirmed where the channel has that.
pub async fn send(channel: &Channel, queue: &str, bodies: &[String]) {
    for body in bodies {
        let properties = BasicProperties::default().with_delivery_mode(2);
        let confirmation = publish(channel, "", queue, body.as_bytes(), properties).await.unwrap();
        assert!(!confirmation.is_nack(), "{body} was refused");
    }
}

pub async fn consume(channel: &Channel, queue: &str, no_ack: bool) -> Consumer {
    let options = BasicConsumeOptions { no_ack, ..BasicConsumeOptions::default() };
    channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await.unwrap()
}

pub async fn next(consumer: &mut Consumer) -> Delivery {
    within("a message comes", consumer.next()).await.expect("the consumer ended").unwrap()
}

pub async fn quiet(consumer: &mut Consumer) {
    if let Ok(came) = tokio::time::timeout(QUIET, consumer.next()).await {
        panic!("something came: {came:?}");
    }
}

pub async fn ack(delivery: &Delivery) {
    delivery.ack(BasicAckOptions::default()).await.unwrap();
}

pub fn body(delivery: &Delivery) -> &str {
    std::str::from_utf8(&delivery.data).unwrap()
}

/// Bodies of so many deliveries, acknowledged, and which of them were redelivered.
pub async fn take(consumer: &mut Consumer, count: usize) -> (Vec<String>, Vec<bool>) {
    let (mut bodies, mut again) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let delivery = next(consumer).await;
        ack(&delivery).await;
        bodies.push(body(&delivery).to_owned());
        again.push(delivery.redelivered);
    }
    (bodies, again)
}

#[track_caller]
pub fn refused<T>(outcome: Result<T, Error>, code: u16, text: &str) {
    let Err(error) = outcome else { panic!("not refused: {code} {text}") };
    let ErrorKind::ProtocolError(said) = error.kind() else { panic!("{error:?} instead of {code} {text}") };
    assert!(said.get_id() == code && said.get_message().as_str().contains(text), "{error:?} instead of {code} {text}");
}

/// A way to the broker that can be cut.
pub struct Relay {
    pub address: String,
    sockets: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    pub fn new(broker: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let sockets = Arc::new(Mutex::new(Vec::new()));
        let (held, broker) = (Arc::clone(&sockets), broker.to_owned());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(&broker).unwrap());
                let ends = [&client, &server].map(|end| end.try_clone().unwrap());
                pass(client.try_clone().unwrap(), server.try_clone().unwrap());
                pass(server, client);
                held.lock().unwrap().extend(ends);
            }
        });
        Self { address, sockets }
    }

    pub fn cut(&self) {
        for socket in self.sockets.lock().unwrap().drain(..) {
            // The other side may have gone before.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    std::thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
}
