//! Tests of polylogue's own API for queues, on a simulated disk.

use crate::tests::server::{Answered, Server};
use axum::body::Body;
use axum::http::Request as HttpRequest;
use parking_lot::Mutex;
use polylogue_admin::http::{App, Ready, registry, router};
use polylogue_api::Request;
use polylogue_config::Resolved;
use polylogue_kafka::config::LiveSettings;
use polylogue_kafka::settings::KafkaSettings;
use polylogue_net::audit::Audit;
use polylogue_net::kafka::KafkaShared;
use serde_json::{Value, json};
use std::sync::Arc;

/// The API with its broker.
struct Api(Server, axum::Router);

impl Api {
    fn start() -> Api {
        let server = Server::start();
        let (broker, directory) = (server.broker.clone(), server.directory.clone());
        let live = Arc::new(LiveSettings::new(KafkaSettings::default()));
        let mut registry = registry();
        let audit = Arc::new(Audit::new(broker.clone(), &mut registry));
        let app = App {
            kafka: Arc::new(KafkaShared::new(live, broker.clone(), directory.clone())),
            broker,
            directory,
            net: server.management.net.clone(),
            settings: Resolved::default().settings(),
            listeners: Vec::new(),
            registry,
            reports: None,
            audit,
            tokens: Mutex::default(),
            rabbitmq: polylogue_admin::http::RabbitmqSetup::default(),
            ready: Ready::default(),
            users: server.management.users.clone(),
            rng: server.management.rng.clone(),
        };
        Api(server, router(Arc::new(app)))
    }

    fn request(path: &str, body: &Value) -> HttpRequest<Body> {
        let request = HttpRequest::builder().method("POST").uri(format!("/api/v1/vhosts/%2F/{path}"));
        request.header("content-type", "application/json").body(Body::from(body.to_string())).unwrap()
    }

    fn post(&self, path: &str, body: &Value) -> Answered {
        self.0.send_to(self.1.clone(), Api::request(path, body))
    }

    fn publish(&self, queue: &str, bodies: &[&str]) {
        for body in bodies {
            let message =
                json!({"properties": {}, "routing_key": queue, "payload": body, "payload_encoding": "string"});
            self.0.post("exchanges/%2F/amq.default/publish", &message);
        }
    }

    fn messages(&self, queue: &str, remove: bool) -> Vec<Value> {
        let got = self.post(&format!("queues/{queue}/get"), &json!({"count": 1000, "remove": remove}));
        got.body["messages"].as_array().unwrap().clone()
    }
}

fn bodies(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|message| message["body"].as_str().unwrap()).collect()
}

/// Regression test: a get continued after its client had disconnected, and the messages it removed were lost.
#[test]
fn what_is_got_by_a_client_that_hangs_up_stays() {
    let api = Api::start();
    api.post("queues", &json!({"name": "q", "type": "quorum"}));
    api.publish("q", &["one", "two", "three"]);
    api.0.stepped.hold(2, |request| matches!(request, Request::Take(_)));
    let get = Api::request("queues/q/get", &json!({"count": 3, "remove": true}));
    api.0.send_and_hang_up(api.1.clone(), get);
    let got = api.messages("q", false);
    assert_eq!(bodies(&got), ["one", "two", "three"]);
    assert_eq!(got[0]["properties"]["headers"], Value::Null, "no failed delivery");
}

/// Regression test: a get without acknowledgement that failed counted as a failed delivery; repeated, it dead-lettered the messages at the head.
#[test]
fn what_is_got_before_an_error_stays_and_counts_as_untried() {
    let api = Api::start();
    api.post("queues", &json!({"name": "q", "type": "quorum"}));
    api.publish("q", &["one", "two", "three"]);
    api.0.stepped.fail(2, |request| matches!(request, Request::Take(_)));
    assert_eq!(api.post("queues/q/get", &json!({"count": 3, "remove": true})).status, 503);
    let got = api.messages("q", true);
    assert_eq!(bodies(&got), ["one", "two", "three"]);
    assert_eq!(got[0]["properties"]["headers"], Value::Null);
}

/// Regression test: one confirmation that did not arrive in time made all messages stay, confirmed ones too, as duplicates.
#[test]
fn what_is_confirmed_is_moved_although_an_answer_does_not_come() {
    let api = Api::start();
    for queue in ["from", "to"] {
        api.post("queues", &json!({"name": queue}));
    }
    let large = "x".repeat(600 << 10);
    let four = ["1", "2", "3", "4"].map(|number| format!("{number}{large}"));
    api.publish("from", &four.each_ref().map(String::as_str));
    // Two messages fit into a batch.
    api.0.stepped.hold(1, |request| matches!(request, Request::Publish(_)));
    let wanted = json!({"to": {"queue": "to"}, "limit": 10});
    let moved = api.0.in_no_time(|| api.post("queues/from/move", &wanted));
    let why = "the broker did not answer in time: it may be in the target as well";
    assert_eq!((moved.status, moved.body), (200, json!({"moved": 2, "stay": 2, "why": why, "done": true})));
    let numbers =
        |queue| bodies(&api.messages(queue, false)).iter().map(|body| body[..1].to_owned()).collect::<Vec<_>>();
    assert_eq!((numbers("from"), numbers("to")), (vec!["3".to_owned(), "4".into()], vec!["1".to_owned(), "2".into()]));
    api.0.stepped.release();
    assert_eq!(numbers("to"), ["1", "2", "3", "4"], "it took effect later");
}

/// Regression test: a move did not bound its unconfirmed publishes, and could fill the log's queue for all clients.
#[test]
fn a_move_has_no_more_on_its_way_than_a_connection() {
    let api = Api::start();
    for queue in ["from", "to"] {
        api.post("queues", &json!({"name": queue}));
    }
    let large = "x".repeat(1 << 20);
    api.publish("from", &[large.as_str(); 8]);
    api.0.stepped.hold(0, |request| matches!(request, Request::Publish(_)));
    let moved = api.0.in_no_time(|| api.post("queues/from/move", &json!({"to": {"queue": "to"}, "limit": 10})));
    assert_eq!((moved.body["moved"].as_u64(), moved.body["stay"].as_u64()), (Some(0), Some(8)));
    api.0.stepped.release();
    assert_eq!(api.messages("to", false).len(), 4);
}

/// Regression test: any rejection was reported as a full queue.
#[test]
fn a_move_says_why_a_message_stays() {
    let api = Api::start();
    for queue in ["from", "to"] {
        api.post("queues", &json!({"name": queue}));
    }
    api.publish("from", &["1"]);
    api.0.stepped.fail(0, |request| matches!(request, Request::Publish(_)));
    let moved = api.post("queues/from/move", &json!({"to": {"queue": "to"}, "limit": 10}));
    let why = "the outcome is unknown: check whether the change took effect";
    assert_eq!(moved.body, json!({"moved": 0, "stay": 1, "why": why, "done": true}));
    // A publish that waits for disk space would take effect later, after it was reported as not moved.
    api.0.leave_free(0);
    let moved = api.post("queues/from/move", &json!({"to": {"queue": "to"}, "limit": 10}));
    assert_eq!((moved.status, &moved.body["error"]["message"]), (503, &json!("the disk is full")));
    assert_eq!((api.messages("from", false).len(), api.messages("to", false).len()), (1, 0));
}

/// Regression test: a quorum queue's delivery count was moved along as a header of the message.
#[test]
fn how_often_a_message_was_looked_at_is_not_moved_with_it() {
    let api = Api::start();
    for (queue, kind) in [("dead", "quorum"), ("to", "classic")] {
        api.post("queues", &json!({"name": queue, "type": kind}));
    }
    let headers = json!({"own": 1, "x-first-death-queue": "to"});
    let counted = json!({"headers": {"x-acquired-count": 1, "x-delivery-count": 1}});
    for headers in [json!({"headers": headers}), json!({"headers": {"x-first-death-queue": "to"}}), counted] {
        let message =
            json!({"properties": headers, "routing_key": "dead", "payload": "m", "payload_encoding": "string"});
        api.0.post("exchanges/%2F/amq.default/publish", &message);
    }
    api.messages("dead", false);
    assert_eq!(api.messages("dead", false)[2]["properties"]["headers"]["x-acquired-count"], 1);
    assert_eq!(api.post("queues/dead/move", &json!({"limit": 10})).body["moved"], 2);
    assert_eq!(api.post("queues/dead/move", &json!({"to": {"queue": "to"}, "limit": 10})).body["moved"], 1);
    let moved = api.messages("to", false);
    let found: Vec<_> = moved.iter().map(|message| &message["properties"]["headers"]).collect();
    assert_eq!(found, [&headers, &json!({"x-first-death-queue": "to"}), &Value::Null]);
}
