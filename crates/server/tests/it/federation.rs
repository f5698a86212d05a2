//! Federation between real processes: exchanges and queues get what was published elsewhere, once each, whichever process dies.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests of real processes")]

use crate::common;

use common::amqp::Client;
use common::broker::{Broker, PATIENCE, wait};
use polylogue_amqp::codec::*;
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::time::Instant;

impl Broker {
    fn put(&self, path: &str, body: &Json) {
        let (status, answer) = self.ask("PUT", path, Some(body));
        assert!(matches!(status, 201 | 204), "{path}: {status} {answer}");
    }

    /// Gets what is published at another one, to what has such a name.
    fn follow(&self, upstream: &str, pattern: &str, value: &Json) {
        self.set_parameter("federation-upstream", upstream, value);
        let definition = json!({"federation-upstream-set": "all"});
        self.put("policies/%2F/follow", &json!({"pattern": pattern, "definition": definition, "apply-to": "all"}));
    }

    fn exchange(&self, name: &str, kind: &str) {
        self.put(&format!("exchanges/%2F/{name}"), &json!({"type": kind, "durable": true}));
    }

    /// A queue that is bound with these keys.
    fn bound(&self, queue: &str, exchange: &str, keys: &[&str]) {
        self.declare(queue);
        for key in keys {
            let path = format!("bindings/%2F/e/{exchange}/q/{queue}");
            assert_eq!(self.ask("POST", &path, Some(&json!({"routing_key": key}))).0, 201);
        }
    }

    fn links(&self) -> Vec<Json> {
        self.get("federation-links").as_array().unwrap().clone()
    }

    fn run(&self, count: usize) {
        let mut links = Vec::new();
        let mut run = || {
            links = self.links();
            links.iter().filter(|link| link["status"] == "running").count() == count
        };
        let since = Instant::now();
        while !run() && since.elapsed() < PATIENCE {}
        assert!(run(), "{links:?}");
    }

    /// The keys by which a link's own exchange is bound.
    fn keys(&self, exchange: &str) -> BTreeSet<String> {
        let all = self.get(&format!("exchanges/%2F/{exchange}/bindings/source"));
        let own = all.as_array().unwrap().iter().filter(|binding| binding["destination_type"] == "exchange");
        own.map(|binding| binding["routing_key"].as_str().unwrap().to_owned()).collect()
    }
}

fn number(message: &Json) -> u64 {
    message["properties"]["headers"]["number"].as_u64().unwrap()
}

fn keys(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|key| (*key).to_owned()).collect()
}

#[test]
fn an_exchange_gets_what_somebody_wants_and_nothing_else() {
    let (up, down) = (Broker::named("up"), Broker::named("down"));
    down.exchange("fed.x", "topic");
    down.bound("q", "fed.x", &["a.*", "b"]);
    down.follow("u", "^fed", &json!({"uri": up.uri()}));
    down.run(1);
    // It was missing there.
    assert_eq!(up.get("exchanges/%2F/fed.x")["type"], "topic");
    assert_eq!(up.keys("fed.x"), keys(&["a.*", "b"]));
    up.publish("fed.x", "a.1", 0..1);
    up.publish("fed.x", "c", 1..2);
    up.publish("fed.x", "b", 2..3);
    wait("they arrive", || down.count("q") == 2);
    let got = down.take("q");
    assert_eq!(got.iter().map(number).collect::<Vec<_>>(), [0, 2]);
    let said = &got[0]["properties"]["headers"]["x-received-from"];
    let link = json!({"uri": format!("amqp://{}", up.amqp), "exchange": "fed.x", "redelivered": false,
        "cluster-name": "up", "vhost": "/"});
    assert_eq!(said, &json!([link]));
    assert_eq!((got[0]["exchange"].as_str(), got[0]["routing_key"].as_str()), (Some("fed.x"), Some("a.1")));
    // Bindings come and go.
    down.bound("r", "fed.x", &["c", "b"]);
    wait("it is bound", || up.keys("fed.x") == keys(&["a.*", "b", "c"]));
    let (status, _) = down.ask("DELETE", "bindings/%2F/e/fed.x/q/q/b", None);
    assert_eq!(status, 204);
    assert_eq!(down.ask("DELETE", "bindings/%2F/e/fed.x/q/q/a.%2A", None).0, 204);
    wait("it is unbound", || up.keys("fed.x") == keys(&["b", "c"]));
    up.publish("fed.x", "b", 3..4);
    wait("it arrives", || down.count("r") == 1);
    let status = &down.links()[0];
    let expected = json!({"exchange": "fed.x", "upstream_exchange": "fed.x", "type": "exchange", "vhost": "/",
        "upstream": "u", "status": "running", "uri": format!("amqp://{}", up.amqp)});
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&status[name], value, "{name} of {status}");
    }
    // It is counted when the other side has heard of it, which is after it is there.
    wait("it is counted", || down.metric("polylogue_federation_messages_forwarded_total") == 3);
    // An obsolete link leaves nothing behind.
    let own = |kind: &str| {
        let all = up.get(kind);
        all.as_array().unwrap().iter().filter(|one| one["name"].as_str().unwrap().starts_with("federation: ")).count()
    };
    assert_eq!((own("queues"), own("exchanges")), (1, 1));
    assert_eq!(down.ask("DELETE", "policies/%2F/follow", None).0, 204);
    wait("it is gone", || (own("queues"), own("exchanges")) == (0, 0) && down.links().is_empty());
}

#[test]
fn whoever_dies_no_message_is_lost_and_the_first_of_each_come_in_order() {
    const MESSAGES: u64 = 4_000;
    let (mut up, mut down) = (Broker::named("up"), Broker::named("down"));
    up.exchange("fed.x", "fanout");
    down.exchange("fed.x", "fanout");
    down.bound("q", "fed.x", &[""]);
    down.follow("u", "^fed", &json!({"uri": [up.uri()], "reconnect-delay": 0.1, "prefetch-count": 20}));
    down.run(1);
    up.publish("fed.x", "", 0..MESSAGES);
    wait("some arrive", || down.count("q") >= 200);
    up.kill_and_begin();
    wait("it goes on", || down.count("q") >= 500);
    down.kill_and_begin();
    up.publish("fed.x", "", MESSAGES..2 * MESSAGES);
    wait("all arrive", || down.count("q") >= 2 * MESSAGES);
    wait("it is known", || up.count("federation%3A%20fed.x%20-%3E%20down") == 0);
    let mut seen = BTreeSet::new();
    let first: Vec<u64> = down.take("q").iter().map(number).filter(|number| seen.insert(*number)).collect();
    assert!(first == (0..2 * MESSAGES).collect::<Vec<_>>(), "{} of {} arrived", first.len(), 2 * MESSAGES);
}

#[test]
fn messages_and_bindings_go_as_far_as_they_may_and_in_no_circle() {
    let [a, b, c] = ["a", "b", "c"].map(Broker::named);
    for broker in [&a, &b, &c] {
        broker.exchange("fed.x", "topic");
    }
    // a ─▶ b ─▶ c ─▶ a, two links at the most.
    for (from, to) in [(&a, &b), (&b, &c), (&c, &a)] {
        to.follow("u", "^fed", &json!({"uri": from.uri(), "max-hops": 2}));
    }
    for broker in [&a, &b, &c] {
        broker.run(1);
    }
    c.bound("q", "fed.x", &["k"]);
    wait("the binding is passed on", || b.keys("fed.x") == keys(&["k"]) && a.keys("fed.x") == keys(&["k"]));
    assert_eq!(c.keys("fed.x"), keys(&[]), "it went round");
    a.bound("q", "fed.x", &["k"]);
    b.bound("q", "fed.x", &["k"]);
    wait("the others are", || [&a, &b, &c].iter().all(|broker| broker.keys("fed.x") == keys(&["k"])));
    for (number, broker) in (0..).zip([&a, &b, &c]) {
        broker.publish("fed.x", "k", number..number + 1);
    }
    for broker in [&a, &b, &c] {
        wait("each has all", || broker.count("q") >= 3);
        let got: Vec<_> = broker.take("q").iter().map(number).collect();
        assert_eq!(got.iter().collect::<BTreeSet<_>>().len(), got.len(), "{got:?}");
    }
    // A mark behind them: whatever went round is before it.
    for (number, broker) in (3..).zip([&a, &b, &c]) {
        broker.publish("fed.x", "k", number..number + 1);
    }
    for broker in [&a, &b, &c] {
        wait("each has all", || broker.count("q") >= 3);
        let got: BTreeSet<_> = broker.take("q").iter().map(number).collect();
        assert_eq!(got, (3..6).collect());
    }
}

/// Consumes one message after the other.
fn consumer(broker: &Broker, queue: &str, prefetch_count: u16) -> Client {
    let mut client = Client::open(broker.amqp, "guest");
    assert!(matches!(client.ask(1, BasicQos { prefetch_count, ..Default::default() }), Method::BasicQosOk(_)));
    let consume = BasicConsume { queue: queue.to_owned().into(), ..Default::default() };
    assert!(matches!(client.ask(1, consume), Method::BasicConsumeOk(_)));
    client
}

fn delivery(client: &mut Client) -> u64 {
    loop {
        if let Some((1, Method::BasicDeliver(deliver))) = client.method() {
            let ack = BasicAck { delivery_tag: deliver.delivery_tag, multiple: false };
            client.say(1, ack);
            return deliver.delivery_tag;
        }
    }
}

#[test]
fn a_queue_gets_messages_when_it_has_none_and_somebody_waits_for_them() {
    let (up, down) = (Broker::named("up"), Broker::named("down"));
    up.declare("fed.q");
    down.declare("fed.q");
    down.follow("u", "^fed", &json!({"uri": up.uri()}));
    down.run(1);
    up.publish("", "fed.q", 0..10);
    down.publish("", "fed.q", 10..11);
    assert_eq!((up.count("fed.q"), down.count("fed.q")), (10, 1), "no one waits");
    let mut waiting = consumer(&down, "fed.q", 1);
    for _ in 0..11 {
        delivery(&mut waiting);
    }
    wait("all are done with", || (up.count("fed.q"), down.count("fed.q")) == (0, 0));
    drop(waiting);
    // Who wants messages there comes first.
    wait("it waits no more", || up.get("queues/%2F/fed.q")["consumers"] == 0);
    up.publish("", "fed.q", 11..12);
    let message = &up.take("fed.q")[0];
    assert_eq!(number(message), 11);
    // What it says of where it was.
    up.publish("", "fed.q", 12..13);
    let mut holding = Client::open(down.amqp, "guest");
    let consume = BasicConsume { queue: "fed.q".into(), ..Default::default() };
    assert!(matches!(holding.ask(1, consume), Method::BasicConsumeOk(_)));
    while !matches!(holding.method(), Some((1, Method::BasicDeliver(_)))) {}
    drop(holding);
    wait("it is given back", || down.get("queues/%2F/fed.q")["messages_ready"] == 1);
    let headers = down.take("fed.q")[0]["properties"]["headers"].clone();
    let link = json!({"uri": format!("amqp://{}", up.amqp), "queue": "fed.q", "redelivered": false, "visit-count": 1});
    assert_eq!(headers["x-received-from"], json!([link]));
    assert_eq!([&headers["x-original-exchange"], &headers["x-original-routing-key"]], ["", "fed.q"]);
}

#[test]
fn a_link_that_cannot_run_says_why_and_runs_when_it_can() {
    let (up, down) = (Broker::named("up"), Broker::named("down"));
    down.exchange("fed.x", "direct");
    up.exchange("fed.x", "direct");
    let address = format!("amqp://absent:secret@{}", up.amqp);
    down.follow("u", "^fed", &json!({"uri": address, "reconnect-delay": 0.1}));
    wait("it says why", || down.links().first().is_some_and(|link| link["status"] == "error"));
    let link = down.links()[0].to_string();
    assert!(link.contains("refused") && !link.contains("secret"), "{link}");
    assert_eq!(down.get("federation-links/state/down").as_array().unwrap().len(), 1);
    up.put("users/absent", &json!({"password": "secret", "tags": ""}));
    up.put("permissions/%2F/absent", &json!({"configure": ".*", "write": ".*", "read": ".*"}));
    down.run(1);
    assert_eq!(down.get("federation-links/%2F/state/down"), json!([]));
    // A user restarts it.
    let id = down.links()[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(down.ask("DELETE", &format!("federation-links/vhost/%2F/{id}/here/restart"), None).0, 204);
    assert_eq!(down.ask("DELETE", "federation-links/vhost/%2F/none/here/restart", None).0, 404);
    down.run(1);
    // Each way to name it.
    for definition in [
        json!({"federation-upstream": "u"}),
        json!({"federation-upstream-pattern": "^u$"}),
        json!({"federation-upstream-set": "s"}),
    ] {
        down.set_parameter("federation-upstream-set", "s", &json!([{"upstream": "u", "exchange": "other"}]));
        down.put("policies/%2F/follow", &json!({"pattern": "^fed", "definition": definition, "apply-to": "exchanges"}));
        let there = if definition["federation-upstream-set"] == "s" { "other" } else { "fed.x" };
        wait("it is this one", || {
            down.links().first().is_some_and(|link| link["status"] == "running" && link["upstream_exchange"] == there)
        });
    }
    assert_eq!(up.get("exchanges/%2F/other")["type"], "direct");
}
