//! A client's connection to the simulated node: requests and responses through the real session.

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use polylogue_api::{Event, Reply, Token};
use polylogue_broker::{Broker, ReplySink, SessionId};
use polylogue_kafka::session::{FetchBudget, Listener, NoUsers, Session, SessionContext, SessionInit};
use polylogue_kafka::settings::KafkaSettings;
use polylogue_kafka_codec::frame::{decode_response_header, encode_request};
use polylogue_kafka_codec::{ApiKey, Message, Reader, Request};
use polylogue_types::Chunk;
use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Replies and events of the broker to a session, until the session is pumped.
#[derive(Debug, Default)]
struct Mailbox {
    incoming: Mutex<VecDeque<Incoming>>,
}

#[derive(Debug)]
enum Incoming {
    Reply(Token, Reply),
    Event(Event),
}

impl ReplySink for Mailbox {
    fn reply(&self, token: Token, reply: Reply) {
        self.incoming.lock().push_back(Incoming::Reply(token, reply));
    }

    fn event(&self, event: Event) {
        self.incoming.lock().push_back(Incoming::Event(event));
    }
}

/// A connection. Exists as long as the node runs.
#[derive(Debug)]
pub struct Connection {
    session: Session,
    id: SessionId,
    mailbox: Arc<Mailbox>,
    input: BytesMut,
    output: BytesMut,
    next_correlation: i32,
    waiting: BTreeMap<i32, (ApiKey, i16)>,
}

/// A response with an undecoded body.
#[derive(Debug)]
pub struct Response {
    /// The correlation id of the request.
    pub correlation: i32,
    /// The version of the request.
    pub version: i16,
    body: Reader,
}

impl Response {
    /// Decodes the body.
    ///
    /// # Errors
    /// The codec's error.
    pub fn decode<M: Message>(mut self) -> Result<M, String> {
        M::decode(&mut self.body, self.version).map_err(|e| format!("{}: {e}", M::NAME))
    }
}

impl Connection {
    /// Connects.
    #[must_use]
    pub fn new(broker: &Broker) -> Connection {
        let id = broker.new_session();
        let init = SessionInit {
            listener: Arc::new(Listener { host: "sim".into(), port: 9092 }),
            connection_id: id.0,
            client: Ipv4Addr::LOCALHOST.into(),
            asks_for_login: false,
            fetch_budget: Arc::new(FetchBudget::default()),
        };
        Connection {
            session: Session::new(init, broker.now()),
            id,
            mailbox: Arc::default(),
            input: BytesMut::new(),
            output: BytesMut::new(),
            next_correlation: 0,
            waiting: BTreeMap::new(),
        }
    }

    /// Sends a request. Returns its correlation id.
    ///
    /// # Errors
    /// The codec's error.
    pub fn send<R: Request>(&mut self, version: i16, request: &R) -> Result<i32, String> {
        let correlation = self.next_correlation;
        self.next_correlation += 1;
        let chunks = encode_request(version, correlation, Some("sim".into()), request)
            .map_err(|e| format!("{}: {e}", R::NAME))?;
        append(&mut self.input, &chunks)?;
        self.waiting.insert(correlation, (R::API_KEY, version));
        Ok(correlation)
    }

    /// Runs the session and the broker. Returns the complete responses. `Err` if the node closed the connection.
    ///
    /// # Errors
    /// The reason of the close, or the fault of a response.
    pub fn pump(&mut self, broker: &Broker, settings: &KafkaSettings) -> Result<Vec<Response>, String> {
        let catalog = broker.catalog();
        let sink: Arc<dyn ReplySink> = self.mailbox.clone();
        loop {
            let cx =
                SessionContext { now: broker.now(), catalog: catalog.as_ref(), settings, users: &NoUsers::shared() };
            self.session.on_bytes(&mut self.input, &cx);
            self.session.on_deadline(&cx);
            let mut moved = false;
            while let Some((token, request)) = self.session.poll_request() {
                broker.submit(&sink, self.id, token, request);
                moved = true;
            }
            let incoming: Vec<_> = self.mailbox.incoming.lock().drain(..).collect();
            for incoming in incoming {
                moved = true;
                match incoming {
                    Incoming::Reply(token, reply) => self.session.on_reply(token, reply, &cx),
                    Incoming::Event(event) => self.session.on_event(event, &cx),
                }
            }
            let mut chunks = Vec::new();
            moved |= self.session.poll_output(&mut chunks);
            append(&mut self.output, &chunks)?;
            if !moved {
                break;
            }
        }
        if let Some(reason) = self.session.close_reason() {
            return Err(format!("the node closed the connection: {reason:?}"));
        }
        self.responses()
    }

    fn responses(&mut self) -> Result<Vec<Response>, String> {
        let mut responses = Vec::new();
        while let Some(prefix) = self.output.first_chunk::<4>() {
            let len = usize::try_from(i32::from_be_bytes(*prefix)).map_err(|_| "a negative frame length".to_owned())?;
            if self.output.len() < 4 + len {
                break;
            }
            let mut frame = self.output.split_to(4 + len).freeze();
            let frame: Bytes = frame.split_off(4);
            let correlation = frame.first_chunk::<4>().map_or(-1, |c| i32::from_be_bytes(*c));
            let (api, version) =
                self.waiting.remove(&correlation).ok_or_else(|| format!("a response to nothing: {correlation}"))?;
            let (correlation, body) = decode_response_header(frame, api, version).map_err(|e| e.to_string())?;
            responses.push(Response { correlation, version, body });
        }
        Ok(responses)
    }

    /// Disconnects.
    pub fn close(self, broker: &Broker) {
        broker.session_gone(self.id);
    }
}

fn append(to: &mut BytesMut, chunks: &[Chunk]) -> Result<(), String> {
    for chunk in chunks {
        to.extend_from_slice(&chunk.to_bytes().map_err(|e| format!("cannot read what was to be sent: {e}"))?);
    }
    Ok(())
}
