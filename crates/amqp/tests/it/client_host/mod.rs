//! A client and a server of this crate, connected without a socket.

#![allow(dead_code, unreachable_pub, reason = "each test uses its own part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host::Host;
use crate::session_host::broker::Broker;
use bytes::{Bytes, BytesMut};
use polylogue_amqp::client::{Client, ClientEvent, ClientSettings};
use polylogue_amqp::codec::*;
use polylogue_amqp::request::{Credentials, Reply, Request};
use polylogue_amqp::settings::AmqpSettings;

/// Both sides of a connection.
#[derive(Debug)]
pub struct Pair {
    pub client: Client,
    pub input: BytesMut,
    pub host: Host,
    pub broker: Broker,
    /// How many bytes are transferred at a time. Bytes.
    pub piece: usize,
    /// The credentials that the server received.
    pub credentials: Option<Credentials>,
    /// The server's reply to them.
    pub lets_in: bool,
    pub events: Vec<ClientEvent>,
}

impl Pair {
    pub fn new(client: ClientSettings, server: AmqpSettings, piece: usize) -> Pair {
        Pair {
            client: Client::new(client, 1_000),
            input: BytesMut::new(),
            host: Host::with(server),
            broker: Broker::default(),
            piece,
            credentials: None,
            lets_in: true,
            events: Vec::new(),
        }
    }

    /// An open connection with channel 1.
    pub fn open() -> Pair {
        let mut pair = Pair::new(ClientSettings::default(), AmqpSettings::default(), usize::MAX);
        pair.run();
        assert_eq!(pair.events(), [ClientEvent::Open]);
        pair.client.open_channel(1).unwrap();
        assert!(matches!(pair.answer(), Method::ChannelOpenOk(_)));
        pair
    }

    /// Transfers bytes in both directions until neither side has output.
    pub fn run(&mut self) {
        loop {
            let (mut chunks, mut moved) = (Vec::new(), false);
            self.client.poll_output(&mut chunks, self.host.now_ms);
            for chunk in chunks {
                for part in chunk.to_bytes().unwrap().chunks(self.piece) {
                    self.host.feed(part);
                }
                moved = true;
            }
            self.serve();
            let written = self.host.written();
            moved |= !written.is_empty();
            for part in written.chunks(self.piece) {
                self.input.extend_from_slice(part);
                self.client.on_bytes(&mut self.input, self.host.now_ms);
                while let Some(event) = self.client.poll_event() {
                    self.events.push(event);
                    self.client.on_bytes(&mut self.input, self.host.now_ms);
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn serve(&mut self) {
        // The broker of these tests does not handle logins.
        while !self.client.is_open() {
            let Some((token, request)) = self.host.session.poll_request() else { break };
            let reply = match request {
                Request::Authenticate(credentials) => {
                    self.credentials = Some(credentials);
                    match self.lets_in {
                        true => Reply::Authenticated { user: Bytes::from_static(b"guest"), impersonator: false },
                        false => Reply::Refused(polylogue_amqp::refusal::Refusal::login_refused("PLAIN")),
                    }
                }
                _ => Reply::Done,
            };
            self.host.reply(token, reply);
        }
        self.broker.serve(&mut self.host);
    }

    /// Returns the client's events since the last call.
    pub fn events(&mut self) -> Vec<ClientEvent> {
        self.run();
        std::mem::take(&mut self.events)
    }

    /// Returns the client's only event: an answer on channel 1.
    pub fn answer(&mut self) -> Method {
        let events = self.events();
        let [ClientEvent::Reply(1, method)] = &events[..] else { panic!("{events:?}, {:?}", self.client.end()) };
        method.clone()
    }

    pub fn ask(&mut self, method: impl Into<Method>) -> Method {
        self.client.ask(1, method).unwrap();
        self.answer()
    }
}
