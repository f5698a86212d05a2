//! Bugs of other servers of this API that no other test covers; numbers are issues of `cloudamqp/lavinmq`.

use super::{Server, json_of};
use serde_json::json;
use std::fmt::Write as _;

/// Percent-encodes every byte.
fn escaped(name: &str) -> String {
    name.bytes().fold(String::new(), |mut path, byte| {
        let _ = write!(path, "%{byte:02X}");
        path
    })
}

/// #1273: a name with an escape sequence was decoded twice, or cut at a slash.
#[test]
fn names_are_decoded_once() {
    let server = Server::start();
    for name in ["a/b", "a%2Fb", "%25", "a b+c", "ä?#&", "..", "amqp:"] {
        let path = format!("queues/%2F/{}", escaped(name));
        assert_eq!(server.put(&path, &json!({"durable": true})), 201, "{name}");
        assert_eq!(server.get(&path)["name"], name);
        let vhost = format!("vhosts/{}", escaped(name));
        assert_eq!((server.put(&vhost, &json!({})), &server.get(&vhost)["name"]), (201, &json!(name)));
        assert_eq!((server.delete(&path), server.delete(&vhost)), (204, 204), "{name}");
    }
    assert_eq!(server.get("queues"), json!([]));
}

/// Rabbit-hole needed a change for it: the default exchange had a different name.
#[test]
fn the_default_exchange_has_no_name() {
    let server = Server::start();
    let exchanges = server.get("exchanges/%2F");
    let unnamed = exchanges.as_array().unwrap().iter().find(|exchange| exchange["name"] == "").unwrap();
    assert_eq!(
        json_of(unnamed, &["type", "durable", "vhost"]),
        json!({"type": "direct", "durable": true, "vhost": "/"})
    );
}
