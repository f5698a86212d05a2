//! Shovels and links of federation within one broker act by the rights of the user who set them: the real binary.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common;

use common::broker::{Broker, manage_as, wait};
use serde_json::{Value as Json, json};

/// A broker with the virtual host `secret`, whose queue `q` has messages, and with `mallory`, who makes policies in `/` and may do nothing in
/// `secret`.
fn start() -> Broker {
    let broker = Broker::start();
    let put = |path: &str, body: &Json| {
        let (status, answer) = broker.ask("PUT", path, Some(body));
        assert!(matches!(status, 201 | 204), "{path}: {status} {answer}");
    };
    let all = json!({"configure": ".*", "write": ".*", "read": ".*"});
    put("vhosts/secret", &json!({}));
    put("permissions/secret/guest", &all);
    put("queues/secret/q", &json!({"durable": true}));
    put("users/mallory", &json!({"password": "mallory", "tags": "policymaker"}));
    put("permissions/%2F/mallory", &all);
    put("queues/%2F/loot", &json!({"durable": true}));
    for number in 0..3 {
        let message =
            json!({"properties": {}, "routing_key": "q", "payload": format!("{number}"), "payload_encoding": "string"});
        assert_eq!(broker.ask("POST", "exchanges/secret/amq.default/publish", Some(&message)).0, 200);
    }
    broker
}

/// How many messages are in `secret`.
fn kept(broker: &Broker) -> u64 {
    let queue = broker.get("queues/secret/q");
    queue["messages"].as_u64().unwrap()
}

fn mallory(broker: &Broker, method: &str, path: &str, body: &Json) -> (u16, Json) {
    manage_as(broker.management, "mallory", method, path, Some(body))
}

/// A policymaker of one virtual host read another one as `guest`, which every client on this machine may be.
#[test]
fn a_shovel_reads_nothing_that_its_author_may_not() {
    let broker = start();
    let shovel = |source: &str| {
        json!({"value": {"src-uri": source, "src-queue": "q", "dest-uri": "amqp:///%2F", "dest-queue": "loot",
            "reconnect-delay": 0.1}})
    };
    let refused = mallory(&broker, "PUT", "parameters/shovel/%2F/s", &shovel("amqp:///secret"));
    assert_eq!(refused.0, 400, "{}", refused.1);
    let refused = mallory(&broker, "PUT", "parameters/shovel/%2F/s", &shovel("amqp://guest:guest@/secret"));
    assert_eq!(refused.0, 400, "{}", refused.1);
    let port = broker.amqp.port();
    for host in [format!("127.0.0.1:{port}"), format!("localhost:{port}"), format!("0.0.0.0:{port}")] {
        for user in ["guest:guest@", ""] {
            let source = format!("amqp://{user}{host}/secret");
            let set = mallory(&broker, "PUT", "parameters/shovel/%2F/s", &shovel(&source));
            assert!(matches!(set.0, 201 | 204), "{source}: {}", set.1);
            wait("it is refused", || broker.state("s")["state"] == "terminated");
            let reason = broker.state("s")["reason"].to_string();
            assert!(reason.contains("may log in as guest on this machine"), "{source}: {reason}");
            assert_eq!((kept(&broker), broker.count("loot")), (3, 0), "{source}");
            assert_eq!(mallory(&broker, "DELETE", "parameters/shovel/%2F/s", &json!({})).0, 204);
            wait("it is gone", || broker.metric("polylogue_shovels") == 0);
        }
    }
    // Without a socket `guest` is no other user's either; and what the author may do is done.
    let own = |source: &str, destination: &str| {
        json!({"value": {"src-uri": source, "src-queue": "own", "dest-uri": destination, "dest-queue": "loot",
            "src-delete-after": "queue-length", "reconnect-delay": 0.1}})
    };
    assert_eq!(broker.ask("PUT", "queues/%2F/own", Some(&json!({"durable": true}))).0, 201);
    broker.publish("", "own", 0..5);
    let set = mallory(&broker, "PUT", "parameters/shovel/%2F/s", &own("amqp://guest:guest@/%2F", "amqp:///%2F"));
    assert_eq!(set.0, 201, "{}", set.1);
    wait("it is refused", || broker.state("s")["reason"].to_string().contains("ACCESS_REFUSED"));
    let set = mallory(&broker, "PUT", "parameters/shovel/%2F/s", &own("amqp:///%2F", "amqp://mallory@/%2F"));
    assert_eq!(set.0, 204, "{}", set.1);
    wait("they are moved", || broker.count("loot") == 5);
    wait("it is gone", || broker.metric("polylogue_shovels") == 0);
    assert_eq!(broker.ask("DELETE", "queues/%2F/loot/contents", None).0, 204);
    // An administrator's shovel moves them, until the author is no administrator any more.
    let admin = json!({"password": "boss", "tags": "administrator"});
    assert_eq!(broker.ask("PUT", "users/boss", Some(&admin)).0, 201);
    let all = json!({"configure": ".*", "write": ".*", "read": ".*"});
    for vhost in ["%2F", "secret"] {
        assert_eq!(broker.ask("PUT", &format!("permissions/{vhost}/boss"), Some(&all)).0, 201);
    }
    let set = manage_as(broker.management, "boss", "PUT", "parameters/shovel/%2F/s", Some(&shovel("amqp:///secret")));
    assert_eq!(set.0, 201, "{}", set.1);
    wait("they are moved", || broker.count("loot") == 3);
    assert_eq!(broker.ask("DELETE", "permissions/secret/boss", None).0, 204);
    assert_eq!(broker.ask("PUT", "users/boss", Some(&json!({"password": "boss", "tags": "policymaker"}))).0, 204);
    wait("it is refused", || {
        broker.state("s")["reason"].to_string().contains("access to vhost 'secret' refused for user 'boss'")
    });
}

/// It did by a link of federation, too.
#[test]
fn a_link_reads_nothing_that_its_author_may_not() {
    let broker = start();
    let policy = json!({"pattern": "^q$", "definition": {"federation-upstream": "u"}, "apply-to": "queues"});
    assert_eq!(mallory(&broker, "PUT", "policies/%2F/p", &policy).0, 201);
    assert_eq!(broker.ask("PUT", "queues/%2F/q", Some(&json!({"durable": true}))).0, 201);
    let port = broker.amqp.port();
    let upstream = |uri: &str| json!({"value": {"uri": uri, "reconnect-delay": 0.1}});
    let refused = mallory(&broker, "PUT", "parameters/federation-upstream/%2F/u", &upstream("amqp:///secret"));
    assert_eq!(refused.0, 400, "{}", refused.1);
    let guest = upstream(&format!("amqp://guest:guest@127.0.0.1:{port}/secret"));
    assert_eq!(mallory(&broker, "PUT", "parameters/federation-upstream/%2F/u", &guest).0, 201);
    wait("it is refused", || {
        broker.get("federation-links")[0]["error"].to_string().contains("may log in as guest on this machine")
    });
    // The same value is an administrator's once one has set it.
    assert_eq!(broker.ask("PUT", "parameters/federation-upstream/%2F/u", Some(&guest)).0, 204);
    wait("it runs", || broker.get("federation-links")[0]["status"] == "running");
    assert_eq!(kept(&broker), 3);
}
