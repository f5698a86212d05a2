//! What operators of RabbitMQ decide, and what their monitoring sees, in the real binary.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common;

use common::amqp::{Client, client_properties};
use common::broker::wait;
use common::rabbit::Rabbit;
use polylogue_amqp::codec::*;
use serde_json::{Value as Json, json};

fn declare(client: &mut Client, queue: &'static str) {
    let declare = QueueDeclare { queue: queue.into(), ..Default::default() };
    assert!(matches!(client.ask(1, declare), Method::QueueDeclareOk(_)));
}

/// The value of a header that is a text.
fn text<'h>(headers: &'h Table, name: &str) -> &'h str {
    let value = headers.get(name).and_then(|value| value.as_longstr());
    std::str::from_utf8(value.unwrap_or_else(|| panic!("no {name} in {headers:?}"))).unwrap()
}

fn texts(headers: &Table, name: &str) -> Vec<String> {
    let elements = headers.get(name).map(|array| array.elements().collect::<Vec<_>>()).unwrap_or_default();
    elements.iter().map(|(_, value)| String::from_utf8(value.as_longstr().unwrap().to_vec()).unwrap()).collect()
}

/// `tracing` was taken and did nothing: no message came to the firehose.
#[test]
fn a_traced_virtual_host_copies_what_is_published_and_delivered() {
    let rabbit = Rabbit::start();
    let mut client = Client::open(rabbit.amqp, "guest");
    ["q", "traces"].into_iter().for_each(|queue| declare(&mut client, queue));
    let bind = QueueBind { routing_key: "#".into(), ..trace_bind() };
    assert!(matches!(client.ask(1, bind), Method::QueueBindOk(_)));
    let bind =
        QueueBind { queue: "q".into(), exchange: "amq.topic".into(), routing_key: "a.*".into(), ..Default::default() };
    assert!(matches!(client.ask(1, bind), Method::QueueBindOk(_)));
    client.publish("amq.topic", "a.before", &BasicProperties::default(), b"not traced");
    assert_eq!(client.take("q").unwrap().1, b"not traced");
    assert_eq!(rabbit.manage("PUT", "vhosts/%2F", &json!({"tracing": true})), 204);
    let headers = TableBuilder::new().with_text("mine", "h").build();
    let sent = BasicProperties {
        delivery_mode: Some(2),
        message_id: Some("m".into()),
        headers: Some(headers),
        ..Default::default()
    };
    client.publish("amq.topic", "a.b", &sent, b"body");
    assert_eq!(client.take("q").unwrap(), (sent, b"body".to_vec()));
    let (about, body) = client.take("traces").expect("what was published");
    let published = about.headers.unwrap();
    assert_eq!((text(&published, "exchange_name"), &body[..]), ("amq.topic", &b"body"[..]));
    assert_eq!(
        (texts(&published, "routing_keys"), texts(&published, "routed_queues")),
        (vec!["a.b".into()], vec!["q".into()])
    );
    assert_eq!((text(&published, "vhost"), text(&published, "user")), ("/", "guest"));
    assert!(text(&published, "node").starts_with("polylogue@") && text(&published, "connection").contains(" -> "));
    assert_eq!(published.get("channel"), Some(Value::I32(1)));
    let properties = published.get("properties").unwrap();
    let field = |name: &str| properties.fields().find(|field| field.name == name.as_bytes()).map(|field| field.value);
    assert_eq!(field("delivery_mode"), Some(Value::I32(2)));
    assert_eq!(field("message_id"), Some(Value::LongStr(b"m")));
    assert!(matches!(field("headers"), Some(Value::Table(_))));
    let (about, body) = client.take("traces").expect("what was delivered");
    let delivered = about.headers.unwrap();
    assert_eq!((delivered.get("redelivered"), &body[..]), (Some(Value::I32(0)), &b"body"[..]));
    assert_eq!(texts(&delivered, "routing_keys"), ["a.b"]);
    assert_eq!(delivered.get("routed_queues"), None);
    assert_eq!(client.take("traces"), None, "copies are not copied");
    // A consumer's are seen as well, by the queue's name; and when it is over, it is over.
    let bind = QueueUnbind { routing_key: "#".into(), ..trace_unbind() };
    assert!(matches!(client.ask(1, bind), Method::QueueUnbindOk(_)));
    let bind = QueueBind { routing_key: "deliver.q".into(), ..trace_bind() };
    assert!(matches!(client.ask(1, bind), Method::QueueBindOk(_)));
    let consume = BasicConsume { queue: "q".into(), no_ack: true, ..Default::default() };
    assert!(matches!(client.ask(1, consume), Method::BasicConsumeOk(_)));
    client.publish("", "q", &BasicProperties::default(), b"pushed");
    assert!(matches!(client.method(), Some((1, Method::BasicDeliver(_)))));
    assert_eq!(client.message().1, b"pushed");
    let mut other = Client::open(rabbit.amqp, "guest");
    assert_eq!(other.take("traces").expect("what was delivered").1, b"pushed");
    assert_eq!(rabbit.manage("PUT", "vhosts/%2F", &json!({"tracing": false})), 204);
    client.publish("", "q", &BasicProperties::default(), b"again");
    assert!(matches!(client.method(), Some((1, Method::BasicDeliver(_)))));
    assert_eq!(other.take("traces"), None);
}

fn trace_bind() -> QueueBind {
    QueueBind { queue: "traces".into(), exchange: "amq.rabbitmq.trace".into(), ..Default::default() }
}

fn trace_unbind() -> QueueUnbind {
    QueueUnbind { queue: "traces".into(), exchange: "amq.rabbitmq.trace".into(), ..Default::default() }
}

/// Who says no name; or why not.
fn anonymous(rabbit: &Rabbit) -> Result<Client, String> {
    let mut client = Client::started(rabbit.amqp);
    let start_ok = ConnectionStartOk {
        client_properties: client_properties(),
        mechanism: "ANONYMOUS".into(),
        response: "trace information".into(),
        locale: "en_US".into(),
    };
    client.say(0, start_ok);
    match client.method() {
        Some((0, Method::ConnectionTune(_))) => Ok(client),
        Some((0, Method::ConnectionClose(close))) => Err(format!("{} {}", close.reply_code, close.reply_text)),
        other => panic!("{other:?}"),
    }
}

/// The mechanism was unknown, whatever the operator wanted.
#[test]
fn who_says_no_name_is_whom_the_operator_names() {
    let rabbit = Rabbit::start();
    let refused = anonymous(&rabbit).err().expect("no one is named");
    assert!(refused.contains("ANONYMOUS"), "{refused}");

    let rabbit = Rabbit::start_with(&["--set", "amqp.anonymous_user=absent"]);
    let refused = anonymous(&rabbit).err().expect("there is no such user yet");
    assert!(
        refused.starts_with("403 ACCESS_REFUSED - Login was refused using authentication mechanism ANONYMOUS"),
        "{refused}"
    );
    assert_eq!(rabbit.manage("PUT", "users/absent", &json!({"password_hash": "", "tags": ""})), 201);
    let all = json!({"configure": "^nobodys", "write": ".*", "read": ".*"});
    assert_eq!(rabbit.manage("PUT", "permissions/%2F/absent", &all), 201);
    let mut client = anonymous(&rabbit).expect("logged in");
    client.say(0, ConnectionTuneOk { channel_max: 2047, frame_max: 131_072, heartbeat: 0 });
    let open = ConnectionOpen { virtual_host: "/".into(), ..Default::default() };
    assert!(matches!(client.ask(0, open), Method::ConnectionOpenOk(_)));
    assert!(matches!(client.ask(1, ChannelOpen::default()), Method::ChannelOpenOk(_)));
    declare(&mut client, "nobodys-queue");
    assert_eq!(rabbit.get("connections")[0]["user"], "absent");
    client.say(1, QueueDeclare { queue: "somebodys-queue".into(), ..Default::default() });
    let refused = client.closed();
    assert!(refused.starts_with("channel 403"), "{refused}");
}

/// One of 128 MiB, which the option took at first, was nacked: no entry of the log is as large.
#[test]
fn the_largest_message_is_as_large_as_the_operator_says() {
    let rabbit = Rabbit::start_with(&["--set", "amqp.message_bytes_max=96MiB"]);
    let mut client = Client::open(rabbit.amqp, "guest");
    declare(&mut client, "q");
    let large = vec![7; 96 << 20];
    client.say(1, BasicPublish { routing_key: "q".into(), ..Default::default() });
    client.header(1, large.len() as u64, &BasicProperties::default());
    large.chunks(100_000).for_each(|part| client.frame(3, 1, part));
    assert!(client.take("q").expect("the message").1 == large);
    client.say(1, BasicPublish { routing_key: "q".into(), ..Default::default() });
    client.header(1, large.len() as u64 + 1, &BasicProperties::default());
    let text =
        "channel 406 60.40 PRECONDITION_FAILED - message size 100663297 is larger than configured max size 100663296";
    assert_eq!(client.closed(), text);
}

/// A client that reads nothing and sends heartbeats all the same, as one does whose consumer is stuck: nothing said which of the two counts.
#[test]
fn heartbeats_keep_no_client_that_takes_nothing() {
    let rabbit = Rabbit::start_with(&["--set", "server.write_stall_ms_max=500ms"]);
    let mut publisher = Client::open(rabbit.amqp, "guest");
    declare(&mut publisher, "q");
    let mut deaf = Client::tuning(rabbit.amqp, "guest");
    deaf.say(0, ConnectionTuneOk { channel_max: 2047, frame_max: 131_072, heartbeat: 60 });
    let open = ConnectionOpen { virtual_host: "/".into(), ..Default::default() };
    assert!(matches!(deaf.ask(0, open), Method::ConnectionOpenOk(_)));
    assert!(matches!(deaf.ask(1, ChannelOpen::default()), Method::ChannelOpenOk(_)));
    let consume = BasicConsume { queue: "q".into(), no_ack: true, ..Default::default() };
    assert!(matches!(deaf.ask(1, consume), Method::BasicConsumeOk(_)));
    let stalled = "polylogue_connections_closed_total{protocol=\"amqp\",cause=\"stalled\"} 1";
    let body = vec![0; 100_000];
    // More than the system holds for a client that reads nothing.
    for _ in 0..640 {
        publisher.publish("", "q", &BasicProperties::default(), &body);
    }
    let mut metrics = std::iter::repeat_with(|| {
        deaf.frame(8, 0, &[]);
        rabbit.server.get("/metrics").unwrap().1
    });
    assert!(metrics.any(|text| text.lines().any(|line| line == stalled)));
    // Who has nothing to take is no such client, however long it reads nothing.
    assert!(matches!(
        publisher.ask(1, QueuePurge { queue: "q".into(), ..Default::default() }),
        Method::QueuePurgeOk(_)
    ));
}

/// Descriptors, the limit of the disk and the bytes of a connection were 0, and of the memory nothing was known.
#[test]
fn monitoring_is_told_how_the_node_and_its_connections_are() {
    let rabbit = Rabbit::start();
    let number = |value: &Json| value.as_u64().unwrap_or_else(|| panic!("no number: {value}"));
    let node = rabbit.get("nodes")[0].clone();
    let name = node["name"].as_str().unwrap();
    assert_eq!(number(&node["disk_free_limit"]), 512 << 20);
    assert!(number(&node["fd_used"]) > 3 && number(&node["fd_total"]) > number(&node["fd_used"]), "{node}");
    assert!(number(&node["mem_used"]) > 1 << 20 && number(&node["processors"]) > 0);
    let memory = rabbit.get(&format!("nodes/{name}/memory"))["memory"].clone();
    let parts = memory.as_object().unwrap().iter().filter(|(name, _)| !matches!(name.as_str(), "total" | "strategy"));
    let sum: u64 = parts.map(|(_, bytes)| number(bytes)).sum();
    assert_eq!(sum, number(&memory["total"]["rss"]), "the parts make up the whole: {memory}");
    assert!(sum > 1 << 20 && number(&memory["total"]["allocated"]) < sum);
    let relative = rabbit.get(&format!("nodes/{name}/memory/relative"))["memory"].clone();
    assert_eq!(number(&relative["total"]), 100);

    let mut client = Client::open(rabbit.amqp, "guest");
    declare(&mut client, "q");
    let counted = |field: &str| number(&rabbit.get("connections")[0][field]);
    let before = ["recv_oct", "send_oct", "recv_cnt"].map(counted);
    client.publish("", "q", &BasicProperties::default(), &[7; 10_000]);
    assert!(client.take("q").is_some());
    // What was sent is counted a moment after the client has it, and what was taken is settled by a record.
    wait("the bytes of a connection", || {
        let [received, sent, reads] = ["recv_oct", "send_oct", "recv_cnt"].map(counted);
        let is_right = |more: u64| (10_000..11_000).contains(&more);
        is_right(received - before[0]) && is_right(sent - before[1]) && reads > before[2]
    });
    let oldest = |queue: &str| rabbit.get(&format!("queues/%2F/{queue}"))["head_message_timestamp"].clone();
    wait("an empty queue", || oldest("q").is_null());
    for sent in [1_700_000_000, 1_800_000_000] {
        let properties = BasicProperties { timestamp: Some(sent), ..Default::default() };
        client.publish("", "q", &properties, b"x");
    }
    client.publish("", "q", &BasicProperties::default(), b"x");
    wait("when the oldest message was sent", || oldest("q") == 1_700_000_000);
    assert!(client.take("q").is_some());
    wait("that of the next one", || oldest("q") == 1_800_000_000);
    assert_eq!(rabbit.get("queues?columns=head_message_timestamp"), json!([{"head_message_timestamp": 1_800_000_000}]));
    assert!(client.take("q").is_some());
    wait("that the oldest one says nothing", || oldest("q").is_null());
}
