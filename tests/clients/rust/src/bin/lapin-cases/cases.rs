//! The cases. A case fails by panicking.

use crate::place::{
    Place, QUIET, Relay, WAIT, ack, body, consume, declare, fresh, inspect, long, next, numbers, publish, quiet, ready,
    refused, remove, send, table, take, within,
};
use futures_lite::StreamExt as _;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicGetOptions, BasicNackOptions, BasicPublishOptions, BasicQosOptions,
    BasicRejectOptions, ExchangeBindOptions, ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions,
    QueueDeclareOptions, QueueDeleteOptions, QueuePurgeOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, Consumer, ExchangeKind};
use std::time::Duration;

type Case = fn(&Place);

pub const CASES: [(&str, Case); 12] = [
    ("smoke", |place| place.run(smoke(place))),
    ("confirms", |place| place.run(confirms(place))),
    ("work_queue", |place| place.run(work_queue(place))),
    ("routing", |place| place.run(routing(place))),
    ("returns", |place| place.run(returns(place))),
    ("retry", |place| place.run(retry(place))),
    ("cancelled", |place| place.run(cancelled(place))),
    ("large", |place| place.run(large(place))),
    ("get", |place| place.run(get(place))),
    ("exclusive", |place| place.run(exclusive(place))),
    ("reconnect", |place| place.run(reconnect(place))),
    ("rpc", |place| place.run(rpc(place))),
];

async fn smoke(place: &Place) {
    let channel = place.confirming().await;
    let queue = fresh("smoke");
    declare(&channel, &queue, FieldTable::default()).await;
    let sent = numbers(0..100);
    for n in &sent {
        let headers = table([("n", long(n))]);
        let properties = BasicProperties::default()
            .with_delivery_mode(2)
            .with_content_type("text/plain".into())
            .with_headers(headers);
        assert_eq!(publish(&channel, "", &queue, n.as_bytes(), properties).await.unwrap(), Confirmation::Ack(None));
    }
    assert_eq!(ready(&channel, &queue).await, 100);
    let mut consumer = consume(&channel, &queue, false).await;
    for n in &sent {
        let delivery = next(&mut consumer).await;
        let headers = delivery.properties.headers().as_ref().unwrap();
        assert_eq!(
            (body(&delivery), headers.inner().get("n"), delivery.redelivered),
            (n.as_str(), Some(&long(n)), false)
        );
        assert_eq!(delivery.properties.content_type().as_ref().unwrap().as_str(), "text/plain");
        ack(&delivery).await;
    }
    remove(&channel, &queue).await;
    refused(inspect(&channel, &queue).await, 404, &format!("NOT_FOUND - no queue '{queue}' in vhost '/'"));
}

async fn confirms(place: &Place) {
    let channel = place.confirming().await;
    let (queue, full) = (fresh("confirms"), fresh("full"));
    declare(&channel, &queue, FieldTable::default()).await;
    let mut waiting = Vec::new();
    for n in numbers(0..1000) {
        let properties = BasicProperties::default().with_delivery_mode(2);
        let options = BasicPublishOptions::default();
        waiting.push(
            channel.basic_publish("".into(), queue.as_str().into(), options, n.as_bytes(), properties).await.unwrap(),
        );
    }
    for confirmation in waiting {
        assert_eq!(within("a confirmation", confirmation).await.unwrap(), Confirmation::Ack(None));
    }
    assert_eq!(ready(&channel, &queue).await, 1000);
    declare(&channel, &full, table([("x-max-length", AMQPValue::LongInt(1)), ("x-overflow", long("reject-publish"))]))
        .await;
    for taken in [true, false] {
        let confirmation = publish(&channel, "", &full, b"x", BasicProperties::default()).await.unwrap();
        assert_eq!((confirmation.is_ack(), confirmation.is_nack()), (taken, !taken), "there is room for one");
    }
    remove(&channel, &queue).await;
    remove(&channel, &full).await;
}

async fn work_queue(place: &Place) {
    let (publisher, worker) = (place.confirming().await, place.channel().await);
    let queue = fresh("work");
    declare(&publisher, &queue, FieldTable::default()).await;
    send(&publisher, &queue, &numbers(0..10)).await;
    worker.basic_qos(3, BasicQosOptions::default()).await.unwrap();
    let mut consumer = consume(&worker, &queue, false).await;
    let mut held: Vec<Delivery> = Vec::new();
    for _ in 0..3 {
        held.push(next(&mut consumer).await);
    }
    quiet(&mut consumer).await;
    held[1].ack(BasicAckOptions { multiple: true }).await.unwrap();
    for n in ["3", "4"] {
        assert_eq!(body(&next(&mut consumer).await), n);
    }
    quiet(&mut consumer).await;
    held[2].nack(BasicNackOptions { requeue: true, multiple: false }).await.unwrap();
    let back = next(&mut consumer).await;
    assert_eq!((body(&back), back.redelivered), ("2", true));
    worker.close(200, "".into()).await.unwrap();
    let (bodies, again) = take(&mut consume(&publisher, &queue, false).await, 8).await;
    assert_eq!(bodies, numbers(2..10));
    assert_eq!(again, [true, true, true, false, false, false, false, false]);
    remove(&publisher, &queue).await;
}

async fn exchange(channel: &Channel, kind: ExchangeKind) -> String {
    let name = fresh("exchange");
    let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    channel.exchange_declare(name.as_str().into(), kind, options, FieldTable::default()).await.unwrap();
    name
}

async fn bind(channel: &Channel, queue: &str, exchange: &str, key: &str, arguments: FieldTable) {
    channel
        .queue_bind(queue.into(), exchange.into(), key.into(), QueueBindOptions::default(), arguments)
        .await
        .unwrap();
}

async fn routing(place: &Place) {
    let channel = place.confirming().await;
    let topic = exchange(&channel, ExchangeKind::Topic).await;
    let fanout = exchange(&channel, ExchangeKind::Fanout).await;
    let headers = exchange(&channel, ExchangeKind::Headers).await;
    let mut queues = Vec::new();
    for key in ["a.*.c", "a.#", "x"] {
        let queue =
            channel.queue_declare("".into(), QueueDeclareOptions::exclusive(), FieldTable::default()).await.unwrap();
        queues.push(queue.name().to_string());
        bind(&channel, queue.name().as_str(), &topic, key, FieldTable::default()).await;
    }
    let options = ExchangeBindOptions::default();
    channel
        .exchange_bind(topic.as_str().into(), fanout.as_str().into(), "".into(), options, FieldTable::default())
        .await
        .unwrap();
    bind(&channel, &queues[2], &headers, "", table([("x-match", long("all")), ("n", AMQPValue::LongInt(1))])).await;
    for key in ["a.b.c", "a.b.d", "a", "y"] {
        publish(&channel, &topic, key, b"x", BasicProperties::default()).await.unwrap();
    }
    publish(&channel, &fanout, "a.b.c", b"x", BasicProperties::default()).await.unwrap();
    for n in [1, 2] {
        let sent = table([("n", AMQPValue::LongLongInt(n)), ("more", AMQPValue::Boolean(true))]);
        publish(&channel, &headers, "", b"x", BasicProperties::default().with_headers(sent)).await.unwrap();
    }
    for (queue, count) in queues.iter().zip([2, 4, 1]) {
        assert_eq!(ready(&channel, queue).await, count);
    }
    for name in [topic, fanout, headers] {
        channel.exchange_delete(name.into(), ExchangeDeleteOptions::default()).await.unwrap();
    }
}

async fn returns(place: &Place) {
    let channel = place.confirming().await;
    let properties = BasicProperties::default().with_message_id("1".into());
    let confirmation = publish(&channel, "amq.direct", "nowhere", b"back", properties).await.unwrap();
    let Confirmation::Ack(Some(back)) = confirmation else { panic!("{confirmation:?} and nothing came back") };
    assert_eq!(
        (back.reply_code, back.reply_text.as_str(), back.delivery.data.as_slice()),
        (312, "NO_ROUTE", b"back".as_slice())
    );
    assert_eq!(back.delivery.properties.message_id().as_ref().unwrap().as_str(), "1");
    let missing = publish(&channel, &fresh("no"), "", b"x", BasicProperties::default()).await;
    refused(missing, 404, "NOT_FOUND - no exchange 'no-");
}

/// Queue, reason and count of the entries of `x-death`.
fn deaths(delivery: &Delivery) -> Vec<(String, String, i64)> {
    let headers = delivery.properties.headers().as_ref();
    let Some(AMQPValue::FieldArray(entries)) = headers.and_then(|headers| headers.inner().get("x-death")) else {
        return Vec::new();
    };
    let entries = entries.as_slice().iter().map(|entry| {
        let AMQPValue::FieldTable(entry) = entry else { panic!("{entry:?} in x-death") };
        let text = |name: &str| match entry.inner().get(name) {
            Some(AMQPValue::LongString(text)) => text.to_string(),
            other => panic!("{name} of x-death is {other:?}"),
        };
        let Some(AMQPValue::LongLongInt(count)) = entry.inner().get("count") else { panic!("no count in {entry:?}") };
        (text("queue"), text("reason"), *count)
    });
    entries.collect()
}

/// A message that no consumer can handle waits in a queue of its own and comes back.
async fn retry(place: &Place) {
    let channel = place.channel().await;
    let (work, later) = (fresh("work"), fresh("later"));
    let to = |queue: &str| [("x-dead-letter-exchange", long("")), ("x-dead-letter-routing-key", long(queue))];
    declare(&channel, &work, table(to(&later))).await;
    let [exchange, key] = to(&work);
    declare(&channel, &later, table([exchange, key, ("x-message-ttl", AMQPValue::LongInt(50))])).await;
    send(&channel, &work, &["again".to_owned()]).await;
    let mut consumer = consume(&channel, &work, false).await;
    for tries in 0..=3 {
        let delivery = next(&mut consumer).await;
        let died = [(later.clone(), "expired".to_owned(), tries), (work.clone(), "rejected".to_owned(), tries)];
        assert_eq!(deaths(&delivery), if tries == 0 { Vec::new() } else { died.to_vec() });
        if tries < 3 {
            delivery.reject(BasicRejectOptions { requeue: false }).await.unwrap();
        } else {
            ack(&delivery).await;
        }
    }
    remove(&channel, &work).await;
    remove(&channel, &later).await;
}

async fn cancelled(place: &Place) {
    let channel = place.channel().await;
    let queue = fresh("cancelled");
    declare(&channel, &queue, FieldTable::default()).await;
    let mut consumer = consume(&channel, &queue, false).await;
    remove(&place.channel().await, &queue).await;
    let end = within("the consumer ends", consumer.next()).await;
    assert!(end.is_none(), "{end:?} came");
    declare(&channel, &queue, FieldTable::default()).await;
    remove(&channel, &queue).await;
}

async fn large(place: &Place) {
    let channel = place.confirming().await;
    let queue = fresh("large");
    declare(&channel, &queue, FieldTable::default()).await;
    let sent = "0123456789abcdefghijk".repeat(300_000);
    send(&channel, &queue, &[sent.clone(), sent.clone()]).await;
    let mut consumer = consume(&channel, &queue, true).await;
    for _ in 0..2 {
        assert!(next(&mut consumer).await.data == sent.as_bytes(), "another body came");
    }
    remove(&channel, &queue).await;
}

async fn get(place: &Place) {
    let channel = place.confirming().await;
    let queue = fresh("get");
    declare(&channel, &queue, FieldTable::default()).await;
    let get = |no_ack| channel.basic_get(queue.as_str().into(), BasicGetOptions { no_ack });
    assert!(get(false).await.unwrap().is_none());
    send(&channel, &queue, &["first".to_owned(), "second".to_owned()]).await;
    for again in [false, true] {
        let got = get(false).await.unwrap().unwrap();
        assert_eq!((body(&got), got.redelivered, got.message_count), ("first", again, 1));
        got.nack(BasicNackOptions { requeue: !again, multiple: false }).await.unwrap();
    }
    let got = get(true).await.unwrap().unwrap();
    assert_eq!((body(&got), got.message_count), ("second", 0));
    send(&channel, &queue, &numbers(0..5)).await;
    assert_eq!(channel.queue_purge(queue.as_str().into(), QueuePurgeOptions::default()).await.unwrap(), 5);
    remove(&channel, &queue).await;
}

async fn exclusive(place: &Place) {
    let owner = place.connect().await;
    let channel = owner.create_channel().await.unwrap();
    let queue =
        channel.queue_declare("".into(), QueueDeclareOptions::exclusive(), FieldTable::default()).await.unwrap();
    let queue = queue.name().as_str();
    let other = place.connect().await;
    let locked = format!("RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{queue}'");
    refused(inspect(&other.create_channel().await.unwrap(), queue).await, 405, &locked);
    let channel = other.create_channel().await.unwrap();
    let consumer =
        channel.basic_consume(queue.into(), "".into(), BasicConsumeOptions::default(), FieldTable::default()).await;
    refused(consumer, 405, &locked);
    let channel = other.create_channel().await.unwrap();
    refused(channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await, 405, &locked);
    owner.close(200, "".into()).await.unwrap();
    refused(inspect(&other.create_channel().await.unwrap(), queue).await, 404, &format!("no queue '{queue}'"));
}

/// The next message, past the errors that tell of the way that was cut.
async fn after_recovery(channel: &Channel, consumer: &mut Consumer) -> Delivery {
    let mut end = None;
    while end.is_none() {
        match within("a message comes again", consumer.next()).await.expect("the consumer ended") {
            Ok(delivery) => end = Some(delivery),
            Err(error) => within("the channel is back", channel.wait_for_recovery(error)).await.unwrap(),
        }
    }
    end.unwrap()
}

/// The way to the broker is cut, and the client's recovery brings all back.
async fn reconnect(place: &Place) {
    let relay = Relay::new(&place.address);
    let soon = Duration::from_millis(50);
    let properties = ConnectionProperties::default()
        .enable_auto_recover()
        .configure_backoff(|backoff| backoff.with_min_delay(soon).with_max_delay(soon).with_max_times(100));
    let connection = Connection::connect(&Place::url(&relay.address), properties).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let (durable, own) = (fresh("durable"), fresh("own"));
    declare(&channel, &durable, FieldTable::default()).await;
    channel.queue_declare(own.as_str().into(), QueueDeclareOptions::exclusive(), FieldTable::default()).await.unwrap();
    bind(&channel, &own, "amq.direct", &own, FieldTable::default()).await;
    let mut consumer = consume(&channel, &durable, false).await;
    let mut mine = consume(&channel, &own, true).await;
    send(&channel, &durable, &["held".to_owned()]).await;
    assert_eq!(body(&next(&mut consumer).await), "held");
    relay.cut();
    let again = after_recovery(&channel, &mut consumer).await;
    assert_eq!((body(&again), again.redelivered), ("held", true));
    ack(&again).await;
    let other = place.confirming().await;
    let bound = async {
        while publish(&other, "amq.direct", &own, b"bound", BasicProperties::default()).await.unwrap()
            != Confirmation::Ack(None)
        {
            tokio::time::sleep(QUIET).await;
        }
    };
    within("the bound queue is back", bound).await;
    assert_eq!(body(&after_recovery(&channel, &mut mine).await), "bound");
    remove(&other, &durable).await;
}

const REPLY_TO: &str = "amq.rabbitmq.reply-to";

/// Calls with answers that go past all queues.
async fn rpc(place: &Place) {
    let (server, client) = (place.channel().await, place.channel().await);
    let requests = fresh("rpc");
    declare(&server, &requests, FieldTable::default()).await;
    let mut calls = consume(&server, &requests, true).await;
    let answering = server.clone();
    tokio::spawn(async move {
        while let Some(Ok(call)) = calls.next().await {
            let (Some(to), Some(id)) = (call.properties.reply_to(), call.properties.correlation_id()) else { continue };
            let answer = body(&call).to_uppercase();
            let properties = BasicProperties::default().with_correlation_id(id.clone());
            publish(&answering, "", to.as_str(), answer.as_bytes(), properties).await.unwrap();
        }
    });
    let mut answers = consume(&client, REPLY_TO, true).await;
    for id in numbers(0..50) {
        let properties =
            BasicProperties::default().with_reply_to(REPLY_TO.into()).with_correlation_id(id.as_str().into());
        publish(&client, "", &requests, format!("call {id}").as_bytes(), properties).await.unwrap();
    }
    for id in numbers(0..50) {
        let answer = next(&mut answers).await;
        let correlation = answer.properties.correlation_id().as_ref().unwrap().as_str();
        assert_eq!((correlation, body(&answer)), (id.as_str(), format!("CALL {id}").as_str()));
    }
    let other = place.confirming().await;
    let properties = BasicProperties::default().with_reply_to(REPLY_TO.into());
    let no_reply_consumer = tokio::time::timeout(WAIT, publish(&other, "", &requests, b"x", properties)).await.unwrap();
    refused(no_reply_consumer, 406, "fast reply consumer does not exist");
    remove(&server, &requests).await;
}
