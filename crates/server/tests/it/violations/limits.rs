//! More connections, queues and channels than there may be.

use super::{Client, Rabbit, queue};
use polylogue_amqp::codec::*;
use serde_json::json;

fn open(virtual_host: &'static str) -> ConnectionOpen {
    ConnectionOpen { virtual_host: virtual_host.into(), ..Default::default() }
}

fn limited(rabbit: &Rabbit, path: &str, value: u32) {
    let status = rabbit.manage("PUT", path, &json!({ "value": value }));
    assert!(matches!(status, 201 | 204), "{path}: {status}");
}

#[test]
fn connections_of_a_virtual_host() {
    let rabbit = Rabbit::start();
    limited(&rabbit, "vhost-limits/%2F/max-connections", 1);
    let _first = Client::open(rabbit.amqp, "guest");
    let mut second = Client::opening(rabbit.amqp, "guest");
    second.say(0, open("/"));
    assert_eq!(
        second.closed(),
        "connection 530 10.40 NOT_ALLOWED - access to vhost '/' refused for user 'guest': connection limit (1) is reached"
    );
}

#[test]
fn connections_of_a_user() {
    let rabbit = Rabbit::start();
    limited(&rabbit, "user-limits/guest/max-connections", 1);
    let _first = Client::open(rabbit.amqp, "guest");
    let mut second = Client::opening(rabbit.amqp, "guest");
    second.say(0, open("/"));
    assert_eq!(
        second.closed(),
        "connection 530 10.40 NOT_ALLOWED - Connection refused for user 'guest': user connection limit (1) is reached"
    );
}

#[test]
fn channels_of_a_user() {
    let rabbit = Rabbit::start();
    limited(&rabbit, "user-limits/guest/max-channels", 1);
    let mut client = Client::open(rabbit.amqp, "guest");
    client.say(2, ChannelOpen::default());
    assert_eq!(
        client.closed(),
        "connection 530 20.10 NOT_ALLOWED - number of channels opened for user 'guest' has reached the maximum allowed user limit of (1)"
    );
}

#[test]
fn queues_of_a_virtual_host() {
    let rabbit = Rabbit::start();
    limited(&rabbit, "vhost-limits/%2F/max-queues", 1);
    let mut client = Client::open(rabbit.amqp, "guest");
    assert!(matches!(client.ask(1, queue("first")), Method::QueueDeclareOk(_)));
    assert!(matches!(client.ask(1, queue("first")), Method::QueueDeclareOk(_)), "it is there already");
    client.say(1, queue("second"));
    assert_eq!(
        client.closed(),
        "channel 406 50.10 PRECONDITION_FAILED - cannot declare queue 'second': queue limit in vhost '/' (1) is reached"
    );
}
