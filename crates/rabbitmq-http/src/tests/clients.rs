//! Listing and closing connections, channels and consumers.

use super::{Server, json_of};
use bytes::{BufMut, BytesMut};
use polylogue_amqp::codec::*;
use polylogue_amqp_gateway::{Connection, Ends};
use polylogue_net::handle::ReplySink;
use polylogue_net::mailbox::{Mail, Mailbox};
use polylogue_types::Chunk;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;

/// A client that writes frames and discards what it receives.
pub(super) struct Client {
    connection: Connection,
    mailbox: Arc<Mailbox>,
    sink: Arc<dyn ReplySink>,
    id: polylogue_net::handle::SessionId,
}

impl Client {
    /// Opens a connection with one channel and one consumer of `q`.
    pub(super) fn open(server: &Server) -> Client {
        let properties = TableBuilder::new().with_text("product", "test").with_text("connection_name", "mine");
        Client::open_as(server, properties.build())
    }

    /// The same, with these client properties.
    pub(super) fn open_as(server: &Server, client_properties: Table) -> Client {
        let mailbox = Arc::new(Mailbox::default());
        let id = server.broker.new_session();
        let (directory, catalog) = (server.directory.clone(), server.broker.catalog());
        let connection = Connection::new(Arc::default(), directory, catalog, id.0, true, 5, server.broker.now());
        let ends = Ends { peer: "10.0.0.9:4000".parse().unwrap(), local: "10.0.0.1:5672".parse().unwrap() };
        let mut client = Client { connection: connection.between(ends), mailbox: mailbox.clone(), sink: mailbox, id };
        client.say(server, b"AMQP\0\0\x09\x01");
        client.method(
            server,
            0,
            ConnectionStartOk {
                client_properties,
                mechanism: "PLAIN".into(),
                response: bytes::Bytes::from_static(b"\0guest\0guest"),
                locale: "en_US".into(),
            },
        );
        client.method(server, 0, ConnectionTuneOk { channel_max: 10, frame_max: 131_072, heartbeat: 0 });
        client.method(server, 0, ConnectionOpen { virtual_host: "/".into(), ..ConnectionOpen::default() });
        client.method(server, 1, ChannelOpen::default());
        client.method(
            server,
            1,
            BasicConsume { queue: "q".into(), consumer_tag: "tag".into(), no_ack: true, ..BasicConsume::default() },
        );
        client
    }

    pub(super) fn method(&mut self, server: &Server, channel: u16, method: impl Into<Method>) {
        let out = frame_of(channel, method);
        self.say(server, &out);
    }

    fn say(&mut self, server: &Server, bytes: &[u8]) {
        self.connection.on_bytes(&mut BytesMut::from(bytes), server.broker.now());
        self.pump(server);
    }

    /// Returns everything that the session outputs.
    fn pump(&mut self, server: &Server) -> Vec<u8> {
        let mut said = Vec::new();
        loop {
            let mut did = false;
            while let Some((token, request)) = self.connection.poll_request() {
                server.broker.submit(&self.sink, self.id, token, request);
                did = true;
            }
            let mut mail = VecDeque::new();
            self.mailbox.take(&mut mail);
            for mail in mail {
                did = true;
                match mail {
                    Mail::Reply(token, reply) => self.connection.on_reply(token, reply, server.broker.now()),
                    Mail::Event(event) => self.connection.on_event(event, server.broker.now()),
                    Mail::End(why) => self.connection.end(&why, server.broker.now()),
                    Mail::Permit(_) | Mail::UserGone(_) | Mail::Fetched | Mail::Alarm | Mail::Stop => {}
                }
            }
            let mut out: Vec<Chunk> = Vec::new();
            did |= self.connection.poll_output(&mut out, server.broker.now());
            for chunk in out {
                said.extend_from_slice(&chunk.to_bytes().unwrap());
            }
            if !did {
                return said;
            }
        }
    }
}

fn frame(kind: u8, channel: u16, payload: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    out.put_u8(kind);
    out.put_u16(channel);
    out.put_u32(payload.len() as u32);
    out.put_slice(payload);
    out.put_u8(0xce);
    out
}

fn frame_of(channel: u16, method: impl Into<Method>) -> BytesMut {
    let mut payload = BytesMut::new();
    let mut writer = Writer::new(&mut payload);
    method.into().encode(&mut writer);
    frame(1, channel, &payload)
}

pub(super) const NAME: &str = "10.0.0.9:4000 -> 10.0.0.1:5672";
pub(super) const PATH: &str = "10.0.0.9%3A4000%20-%3E%2010.0.0.1%3A5672";

#[test]
fn a_client_is_shown_with_its_channels_and_consumers_until_it_is_gone() {
    let server = Server::start();
    server.put("queues/%2F/q", &json!({}));
    assert_eq!(server.get("connections"), json!([]));
    let client = Client::open(&server);
    let connection = server.get(&format!("connections/{PATH}"));
    let expected = json!({
        "name": NAME, "user": "guest", "vhost": "/", "peer_host": "10.0.0.9", "peer_port": 4000, "port": 5672, "channels": 1,
        "state": "running", "protocol": "AMQP 0-9-1", "user_provided_name": "mine",
        "client_properties": {"product": "test", "connection_name": "mine"}
    });
    let fields: Vec<&str> = expected.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(json_of(&connection, &fields), expected);
    for path in
        ["connections", "connections/username/guest", "vhosts/%2F/connections", "channels", "vhosts/%2F/channels"]
    {
        assert_eq!(server.get(path).as_array().unwrap().len(), 1, "{path}");
    }
    let channels = server.get(&format!("connections/{PATH}/channels"));
    let expected =
        json!({"name": format!("{NAME} (1)"), "number": 1, "consumer_count": 1, "user": "guest", "vhost": "/"});
    assert_eq!(json_of(&channels[0], &["name", "number", "consumer_count", "user", "vhost"]), expected);
    assert_eq!(server.get(&format!("channels/{PATH}%20%281%29"))["number"], 1);
    let consumers = server.get("consumers");
    let expected =
        json!({"consumer_tag": "tag", "queue": {"name": "q", "vhost": "/"}, "ack_required": false, "exclusive": false});
    assert_eq!(json_of(&consumers[0], &["consumer_tag", "queue", "ack_required", "exclusive"]), expected);
    assert_eq!(server.get("consumers/%2F"), consumers);
    server.put("users/other", &json!({"password": "other", "tags": "management"}));
    server.put("permissions/%2F/other", &json!({"configure": ".*", "write": ".*", "read": ".*"}));
    for path in ["consumers", "consumers/%2F"] {
        assert_eq!(server.ask_as("other", "GET", path, &Value::Null).body, json!([]), "{path}");
    }
    let queue = server.get("queues/%2F/q");
    assert_eq!(
        (queue["consumers"].as_u64(), queue["consumer_details"][0]["consumer_tag"].as_str()),
        (Some(1), Some("tag"))
    );
    let totals = server.get("overview")["object_totals"].clone();
    let expected = json!({"connections": 1, "channels": 1, "consumers": 1, "queues": 1, "exchanges": 7});
    assert_eq!(totals, expected);
    let in_use = server.ask("DELETE", "queues/%2F/q?if-unused=true", &Value::Null);
    assert_eq!(in_use.failure(), (400, "bad_request", "queue 'q' in vhost '/' in use"));
    drop(client);
    for path in ["connections", "channels", "consumers"] {
        assert_eq!(server.get(path), json!([]), "{path}");
    }
}

#[test]
fn a_connection_that_is_ended_is_told_why() {
    let server = Server::start();
    server.put("queues/%2F/q", &json!({}));
    let mut client = Client::open(&server);
    let at = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    let visitor = polylogue_net::Visitor::new(client.id.0, "amqp", false, (at, at), 0);
    server.management.net.connections.add(visitor, &client.mailbox);
    assert_eq!(server.delete(&format!("connections/{PATH}")), 204);
    let said = client.pump(&server);
    let text = String::from_utf8_lossy(&said).into_owned();
    assert!(text.contains("CONNECTION_FORCED - Closed via management plugin"), "{text}");
    assert_eq!(server.delete("connections/absent"), 404);
    assert_eq!(server.delete("connections/username/guest"), 204);
}

#[test]
fn users_see_and_end_their_own_connections_only() {
    let server = Server::start();
    server.put("queues/%2F/q", &json!({}));
    for tag in ["management", "monitoring"] {
        server.put(&format!("users/{tag}"), &json!({"password": tag, "tags": tag}));
    }
    let _client = Client::open(&server);
    let status =
        |user: &str, method: &str| server.ask_as(user, method, &format!("connections/{PATH}"), &Value::Null).status;
    let count = |user: &str| server.ask_as(user, "GET", "connections", &Value::Null).body.as_array().unwrap().len();
    assert_eq!((status("management", "GET"), status("management", "DELETE"), count("management")), (401, 401, 0));
    assert_eq!((status("monitoring", "GET"), status("monitoring", "DELETE"), count("monitoring")), (200, 401, 1));
}

/// Publishes in one read.
const TOGETHER: usize = 100;

/// RabbitMQ shows the state `flow`, and tools look for it.
#[test]
fn a_client_that_publishes_without_confirms_and_has_no_credit_is_shown_in_flow() {
    let server = Server::start();
    server.put("queues/%2F/q", &json!({}));
    let mut client = Client::open(&server);
    client.method(&server, 2, ChannelOpen::default());
    let states = || {
        let channels = server.get(&format!("connections/{PATH}/channels"));
        let channels: Vec<_> = channels.as_array().unwrap().iter().map(|channel| channel["state"].clone()).collect();
        (server.get(&format!("connections/{PATH}"))["state"].clone(), channels, server.directory.clients_in_flow())
    };
    let credit = polylogue_amqp::settings::AmqpSettings::default().publish_credit;
    let publish = frame_of(1, BasicPublish { routing_key: "q".into(), ..BasicPublish::default() });
    // Class 60, weight 0, no body, no properties.
    let header = frame(2, 1, &[0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    for sent in 0..credit / TOGETHER as u64 {
        let mut bytes = BytesMut::from(&[&publish[..], &header].concat().repeat(TOGETHER)[..]);
        assert!(client.connection.wants_input(), "{sent}");
        client.connection.on_bytes(&mut bytes, server.broker.now());
    }
    assert!(!client.connection.wants_input());
    assert_eq!(states(), (json!("flow"), vec![json!("flow"), json!("running")], 1));
    // The broker reports that the queue keeps up; it was in flow before.
    client.pump(&server);
    assert!(client.connection.wants_input());
    assert_eq!(states(), (json!("flow"), vec![json!("flow"), json!("running")], 0));
    drop(client);
    assert_eq!(server.directory.clients_in_flow(), 0);
}
