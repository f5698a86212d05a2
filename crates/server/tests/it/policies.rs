//! Policies from the management API to what clients of AMQP see of them: over both sockets of the real binary, and with nothing declared
//! in between. What is answered holds: a client that publishes after `PUT` was answered meets the policy.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "a test of a real process waits in real time")]

use crate::common;

use common::amqp::Client;
use common::rabbit::Rabbit;
use polylogue_amqp::codec::*;
use serde_json::{Value as Json, json};
use std::time::{Duration, Instant};

/// How long something may take that must come about by itself.
const PATIENCE: Duration = Duration::from_secs(60);

/// A broker, and a client of it whose publishes are confirmed.
struct Host {
    rabbit: Rabbit,
    client: Client,
}

/// A policy that is for all queues of these names, or an operator policy.
fn policy(pattern: &str, definition: &Json) -> Json {
    json!({"pattern": pattern, "definition": definition, "apply-to": "queues"})
}

/// The definition of a queue that takes so many messages, and refuses more.
fn at_most(messages: u64) -> Json {
    json!({"max-length": messages, "overflow": "reject-publish"})
}

impl Host {
    fn start() -> Host {
        let rabbit = Rabbit::start();
        let mut client = Client::open(rabbit.amqp, "guest");
        assert!(matches!(client.ask(1, ConfirmSelect::default()), Method::ConfirmSelectOk(_)));
        Host { rabbit, client }
    }

    fn put(&self, path: &str, body: &Json) {
        let status = self.rabbit.manage("PUT", path, body);
        assert!(matches!(status, 201 | 204), "{path}: {status}");
    }

    fn set(&self, name: &str, policy: &Json) {
        self.put(&format!("policies/%2F/{name}"), policy);
    }

    fn delete(&self, path: &str) {
        assert_eq!(self.rabbit.manage("DELETE", path, &Json::Null), 204, "{path}");
    }

    fn clear(&self, name: &str) {
        self.delete(&format!("policies/%2F/{name}"));
    }

    fn declare_of(&mut self, queue: &str, arguments: TableBuilder) {
        let queue = queue.to_owned().into();
        let declare = QueueDeclare { queue, durable: true, arguments: arguments.build(), ..Default::default() };
        assert!(matches!(self.client.ask(1, declare), Method::QueueDeclareOk(_)));
    }

    fn declare(&mut self, queue: &str) {
        self.declare_of(queue, TableBuilder::new());
    }

    /// How many of `of` messages the queue accepts, which it must do with the first ones.
    fn accepted(&mut self, queue: &str, of: usize) -> usize {
        let said: Vec<bool> = (0..of).map(|_| self.client.is_accepted(queue, b"x")).collect();
        let accepted = said.iter().take_while(|yes| **yes).count();
        assert!(said.iter().skip(accepted).all(|yes| !yes), "{said:?}");
        accepted
    }

    fn purge(&mut self, queue: &str) {
        let purge = QueuePurge { queue: queue.to_owned().into(), nowait: false, ..Default::default() };
        assert!(matches!(self.client.ask(1, purge), Method::QueuePurgeOk(_)));
    }

    /// Takes a message and refuses it.
    fn reject(&mut self, queue: &str, requeue: bool) {
        let get = BasicGet { queue: queue.to_owned().into(), ..Default::default() };
        let Method::BasicGetOk(got) = self.client.ask(1, get) else { panic!("{queue} has no message") };
        self.client.message();
        self.client.say(1, BasicReject { delivery_tag: got.delivery_tag, requeue });
    }

    /// The body of the next message of a queue, and why it died, once it is there.
    fn dead(&mut self, queue: &str) -> (String, String) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some((properties, body)) = self.client.take(queue) {
                let headers = properties.headers.unwrap();
                let reason =
                    headers.get("x-first-death-reason").and_then(|reason| reason.as_longstr().map(<[u8]>::to_vec));
                let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
                return (text(body), text(reason.unwrap()));
            }
            assert!(Instant::now() < deadline, "nothing comes to {queue}");
        }
    }

    fn is_there(&self, queue: &str) -> bool {
        let all = self.rabbit.get("queues/%2F?disable_stats=true");
        all.as_array().unwrap().iter().any(|one| one["name"] == queue)
    }
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} does not come");
    }
}

#[test]
fn a_longest_length_holds_for_the_next_publish() {
    let mut host = Host::start();
    for (queue, kind) in [("classic", "classic"), ("quorum", "quorum")] {
        host.declare_of(queue, TableBuilder::new().with_text("x-queue-type", kind));
        assert_eq!(host.accepted(queue, 3), 3);
        host.purge(queue);
        host.set("short", &policy("", &at_most(1)));
        assert_eq!(host.accepted(queue, 3), 1, "{kind}");
        assert!(host.client.take(queue).is_some() && host.client.take(queue).is_none(), "{kind}");
        assert_eq!(host.accepted(queue, 2), 1, "{kind}: there is room again");
        host.clear("short");
        assert_eq!(host.accepted(queue, 3), 3, "{kind}: nothing limits it any more");
    }
}

#[test]
fn what_is_too_much_when_a_policy_comes_goes_from_the_head() {
    let mut host = Host::start();
    for queue in ["q", "dead"] {
        host.declare(queue);
    }
    for body in [b"1", b"2", b"3"] {
        assert!(host.client.is_accepted("q", body));
    }
    let definition = json!({"max-length": 1, "dead-letter-exchange": "", "dead-letter-routing-key": "dead"});
    host.set("short", &policy("^q$", &definition));
    assert_eq!(host.dead("dead"), ("1".to_owned(), "maxlen".to_owned()));
    assert_eq!(host.dead("dead"), ("2".to_owned(), "maxlen".to_owned()));
    assert!(host.client.is_accepted("q", b"4"));
    assert_eq!(host.dead("dead"), ("3".to_owned(), "maxlen".to_owned()));
    assert_eq!(host.client.take("q").unwrap().1, b"4");
}

#[test]
fn a_time_to_live_holds_for_the_next_publish() {
    let mut host = Host::start();
    for queue in ["q", "dead"] {
        host.declare(queue);
    }
    let definition = json!({"message-ttl": 0, "dead-letter-exchange": "", "dead-letter-routing-key": "dead"});
    host.set("brief", &policy("^q$", &definition));
    assert!(host.client.is_accepted("q", b"gone"));
    assert_eq!(host.dead("dead"), ("gone".to_owned(), "expired".to_owned()));
    assert!(host.client.take("q").is_none());
    host.clear("brief");
    assert!(host.client.is_accepted("q", b"stays"));
    assert_eq!(host.client.take("q").unwrap().1, b"stays");
}

#[test]
fn dead_letters_go_where_the_policy_says_now() {
    let mut host = Host::start();
    for queue in ["q", "first", "second"] {
        host.declare(queue);
    }
    let to = |key: &str| policy("^q$", &json!({"dead-letter-exchange": "", "dead-letter-routing-key": key}));
    host.set("dead", &to("first"));
    assert!(host.client.is_accepted("q", b"1"));
    host.reject("q", false);
    assert_eq!(host.dead("first"), ("1".to_owned(), "rejected".to_owned()));
    // The same name again: what it said before is forgotten.
    host.set("dead", &to("second"));
    assert!(host.client.is_accepted("q", b"2"));
    host.reject("q", false);
    assert_eq!(host.dead("second"), ("2".to_owned(), "rejected".to_owned()));
    host.clear("dead");
    assert!(host.client.is_accepted("q", b"3"));
    host.reject("q", false);
    // It went nowhere: what comes next comes alone.
    host.set("dead", &to("second"));
    assert!(host.client.is_accepted("q", b"4"));
    host.reject("q", false);
    assert_eq!(host.dead("second"), ("4".to_owned(), "rejected".to_owned()));
    assert!(host.client.take("first").is_none());
}

#[test]
fn a_delivery_limit_holds_for_messages_that_are_there() {
    let mut host = Host::start();
    host.declare_of("q", TableBuilder::new().with_text("x-queue-type", "quorum"));
    host.declare("dead");
    assert!(host.client.is_accepted("q", b"x"));
    host.reject("q", true);
    let definition = json!({"delivery-limit": 2, "dead-letter-exchange": "", "dead-letter-routing-key": "dead"});
    host.set("limit", &policy("^q$", &definition));
    host.reject("q", true);
    host.reject("q", true);
    assert_eq!(host.dead("dead"), ("x".to_owned(), "delivery_limit".to_owned()));
}

#[test]
fn queues_that_nobody_uses_go_by_a_policy() {
    let mut host = Host::start();
    for queue in ["spared", "goes", "other"] {
        host.declare(queue);
    }
    // It is in use as long as the policy is there.
    let consume = BasicConsume { queue: "spared".into(), consumer_tag: "c".into(), ..Default::default() };
    assert!(matches!(host.client.ask(1, consume), Method::BasicConsumeOk(_)));
    host.set("unused", &policy("^spared$", &json!({"expires": 1})));
    host.clear("unused");
    let cancel = BasicCancel { consumer_tag: "c".into(), nowait: false };
    assert!(matches!(host.client.ask(1, cancel), Method::BasicCancelOk(_)));
    // A long time is replaced by a short one, for queues that are unused already.
    host.set("unused", &policy("^goes$", &json!({"expires": 3_600_000})));
    host.set("unused", &policy("^goes$", &json!({"expires": 1})));
    wait_for("the end of the queue", || !host.is_there("goes"));
    assert!(host.is_there("spared") && host.is_there("other"));
}

#[test]
fn the_lowest_of_argument_policy_and_operator_policy_holds() {
    let mut host = Host::start();
    host.declare("q");
    let arguments = TableBuilder::new().with("x-max-length", Value::I32(2)).with_text("x-overflow", "reject-publish");
    host.declare_of("own", arguments);
    let operator = |host: &Host, messages: u64| {
        host.put("operator-policies/%2F/most", &policy("", &json!({"max-length": messages})));
    };
    for (policy_says, operator_says, expected) in [(5, 3, 3), (3, 5, 3), (1, 4, 1)] {
        host.set("p", &policy("", &at_most(policy_says)));
        operator(&host, operator_says);
        assert_eq!(host.accepted("q", 6), expected, "{policy_says} and {operator_says}");
        assert_eq!(host.accepted("own", 6), expected.min(2), "{policy_says} and {operator_says}");
        host.purge("q");
        host.purge("own");
    }
    host.clear("p");
    operator(&host, 1);
    assert_eq!(host.accepted("own", 3), 1, "of the operator and the argument");
    host.delete("operator-policies/%2F/most");
    assert_eq!(host.accepted("own", 3), 1, "two are in it, as its argument says");
    let overflow = |how: &str| json!({"max-length": 1, "overflow": how});
    host.set("p", &policy("^q$", &overflow("drop-head")));
    host.put("operator-policies/%2F/most", &policy("^q$", &overflow("reject-publish")));
    assert_eq!(host.accepted("q", 3), 1, "what to do then is the operator's to say");
}

#[test]
fn one_policy_holds_and_not_the_sum_of_all() {
    let mut host = Host::start();
    host.declare("q");
    let ranked = |priority: i64, definition: &Json| json!({"pattern": "^q$", "definition": definition, "apply-to": "queues", "priority": priority});
    host.set("low", &ranked(1, &at_most(1)));
    assert_eq!(host.accepted("q", 2), 1);
    host.set("high", &ranked(2, &at_most(3)));
    assert_eq!(host.accepted("q", 4), 2, "three are in it");
    host.set("high", &ranked(2, &json!({"message-ttl": 3_600_000})));
    assert_eq!(host.accepted("q", 4), 4, "what the lower one says does not hold");
    host.purge("q");
    host.clear("high");
    assert_eq!(host.accepted("q", 3), 1);
    // Their order changes, and neither of them otherwise.
    host.purge("q");
    host.set("high", &ranked(0, &at_most(3)));
    assert_eq!(host.accepted("q", 4), 1);
    host.set("low", &ranked(-1, &at_most(1)));
    assert_eq!(host.accepted("q", 4), 2, "three are in it");
}

#[test]
fn a_policy_that_matches_no_more_holds_no_more() {
    let mut host = Host::start();
    host.declare("q");
    for other in [
        policy("^other$", &at_most(1)),
        json!({"pattern": "^q$", "definition": {"max-length": 1}, "apply-to": "exchanges"}),
        json!({"pattern": "^q$", "definition": at_most(1), "apply-to": "quorum_queues"}),
        policy("^q$", &json!({"message-ttl": 3_600_000})),
    ] {
        host.set("p", &policy("^q$", &at_most(1)));
        assert_eq!(host.accepted("q", 3), 1, "before {other}");
        host.put("policies/%2F/p", &other);
        assert_eq!(host.accepted("q", 3), 3, "{other}");
        host.purge("q");
    }
    // It matches again, and a queue that comes later from its first message on.
    host.set("p", &policy("^(q|later)$", &at_most(1)));
    assert_eq!(host.accepted("q", 3), 1);
    host.declare("later");
    assert_eq!(host.accepted("later", 3), 1);
}

#[test]
fn an_alternate_exchange_comes_and_goes_with_its_policy() {
    let mut host = Host::start();
    host.declare("lost");
    let exchange = |name: &'static str, kind: &'static str| ExchangeDeclare {
        exchange: name.into(),
        kind: kind.into(),
        ..Default::default()
    };
    for declare in [exchange("x", "direct"), exchange("rest", "fanout")] {
        assert!(matches!(host.client.ask(1, declare), Method::ExchangeDeclareOk(_)));
    }
    let bind = QueueBind { queue: "lost".into(), exchange: "rest".into(), ..Default::default() };
    assert!(matches!(host.client.ask(1, bind), Method::QueueBindOk(_)));
    let alternate = json!({"pattern": "^x$", "definition": {"alternate-exchange": "rest"}, "apply-to": "exchanges"});
    let reaches = |host: &mut Host| {
        host.client.publish("x", "nowhere", &BasicProperties::default(), b"x");
        assert!(matches!(host.client.method(), Some((1, Method::BasicAck(_)))));
        host.client.take("lost").is_some()
    };
    assert!(!reaches(&mut host));
    host.set("alternate", &alternate);
    assert!(reaches(&mut host));
    host.clear("alternate");
    assert!(!reaches(&mut host));
}
