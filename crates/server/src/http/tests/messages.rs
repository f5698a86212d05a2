//! Messages of queues, with a broker on a simulated disk.

use crate::http::{App, Ready, metrics::registry, router};
use crate::net::kafka::KafkaShared;
use crate::options::Resolved;
use crate::rabbitmq_http::tests::server::{Answered, Server};
use axum::body::Body;
use axum::http::Request as HttpRequest;
use polylogue_api::Request;
use polylogue_kafka::config::LiveSettings;
use polylogue_kafka::settings::KafkaSettings;
use serde_json::{Value, json};
use std::sync::Arc;

/// The API before a broker.
struct Api(Server, axum::Router);

impl Api {
    fn start() -> Api {
        let server = Server::start();
        let (broker, directory) = (server.broker.clone(), server.directory.clone());
        let live = Arc::new(LiveSettings::new(KafkaSettings::default()));
        let app = App {
            kafka: Arc::new(KafkaShared::new(live, broker.clone(), directory.clone())),
            broker,
            directory,
            net: server.management.net.clone(),
            settings: Resolved::default().settings(),
            listeners: Vec::new(),
            registry: registry(),
            ready: Ready::default(),
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

/// A get went on when its client had hung up: what it removed was received by nobody.
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
    let headers = json!({"x-acquired-count": 1, "x-delivery-count": 0});
    assert_eq!(got[0]["properties"]["headers"], headers, "nobody failed at it");
}

/// A look that ended with an error counted as a failed delivery: repeated, it made dead letters of what stood in front.
#[test]
fn what_is_got_before_an_error_stays_and_counts_as_untried() {
    let api = Api::start();
    api.post("queues", &json!({"name": "q", "type": "quorum"}));
    api.publish("q", &["one", "two", "three"]);
    api.0.stepped.fail(2, |request| matches!(request, Request::Take(_)));
    assert_eq!(api.post("queues/q/get", &json!({"count": 3, "remove": true})).status, 503);
    let got = api.messages("q", true);
    assert_eq!(bodies(&got), ["one", "two", "three"]);
    assert_eq!(got[0]["properties"]["headers"]["x-delivery-count"], 0);
}
