//! An AMQP client that sends any frame, right or wrong, and hears why it is closed.

use bytes::{Bytes, BytesMut};
use polylogue_amqp::codec::*;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long an answer may take that must come. Seconds.
const PATIENCE_SECS: u64 = 20;

/// What a client that can do everything says of itself.
pub(crate) fn client_properties() -> Table {
    let mut capabilities = TableBuilder::new();
    for name in ["consumer_cancel_notify", "connection.blocked", "basic.nack", "authentication_failure_close"] {
        capabilities = capabilities.with(name, Value::Bool(true));
    }
    TableBuilder::new().with_table("capabilities", &capabilities.build()).build()
}

/// `connection.start_ok` of a user by its password.
pub(crate) fn start_ok(user: &str, password: &str) -> ConnectionStartOk {
    let response = Bytes::from(format!("\0{user}\0{password}"));
    let (mechanism, locale) = ("PLAIN".into(), "en_US".into());
    ConnectionStartOk { client_properties: client_properties(), mechanism, response, locale }
}

/// See the module.
pub(crate) struct Client {
    stream: TcpStream,
    input: BytesMut,
    /// What is to be sent in one piece.
    gathered: Option<Vec<u8>>,
    /// Nothing was said for too long.
    silence: Option<String>,
}

impl Client {
    /// A connection on which nothing was said.
    pub(crate) fn connect(to: SocketAddr) -> Client {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(PATIENCE_SECS))).unwrap();
        Client { stream, input: BytesMut::new(), gathered: None, silence: None }
    }

    /// The same up to where the server waits for `connection.start_ok`.
    pub(crate) fn started(to: SocketAddr) -> Client {
        let mut client = Client::connect(to);
        client.raw(&PROTOCOL_HEADER);
        assert!(matches!(client.method(), Some((0, Method::ConnectionStart(_)))));
        client
    }

    /// The same up to where the server waits for `connection.tune_ok`.
    pub(crate) fn tuning(to: SocketAddr, user: &str) -> Client {
        let mut client = Client::started(to);
        assert!(matches!(client.ask(0, start_ok(user, user)), Method::ConnectionTune(_)));
        client
    }

    /// The same up to where the server waits for `connection.open`.
    pub(crate) fn opening(to: SocketAddr, user: &str) -> Client {
        let mut client = Client::tuning(to, user);
        client.say(0, ConnectionTuneOk { channel_max: 2047, frame_max: 131_072, heartbeat: 0 });
        client
    }

    /// A user whose password is the name, in the first virtual host, with channel 1.
    pub(crate) fn open(to: SocketAddr, user: &str) -> Client {
        let mut client = Client::opening(to, user);
        let open = ConnectionOpen { virtual_host: "/".into(), ..Default::default() };
        assert!(matches!(client.ask(0, open), Method::ConnectionOpenOk(_)));
        assert!(matches!(client.ask(1, ChannelOpen::default()), Method::ChannelOpenOk(_)));
        client
    }

    /// Sends bytes. The server may have closed already.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        match &mut self.gathered {
            Some(gathered) => gathered.extend_from_slice(bytes),
            None => drop(self.stream.write_all(bytes)),
        }
    }

    /// Sends in one piece what is said meanwhile.
    pub(crate) fn at_once(&mut self, says: impl FnOnce(&mut Client)) {
        self.gathered = Some(Vec::new());
        says(self);
        let all = self.gathered.take().unwrap_or_default();
        self.raw(&all);
    }

    /// Sends a frame of any kind.
    pub(crate) fn frame(&mut self, kind: u8, channel: u16, payload: &[u8]) {
        self.raw(&framed(kind, channel, payload, FRAME_END));
    }

    /// Sends a method.
    pub(crate) fn say(&mut self, channel: u16, method: impl Into<Method>) {
        let mut out = BytesMut::new();
        encode_method(&mut out, channel, &method.into());
        self.raw(&out);
    }

    /// Sends a method and gives what is said next.
    pub(crate) fn ask(&mut self, channel: u16, method: impl Into<Method>) -> Method {
        self.say(channel, method);
        self.method().expect("an answer").1
    }

    /// Sends a header frame.
    pub(crate) fn header(&mut self, channel: u16, body_bytes: u64, properties: &BasicProperties) {
        let mut out = BytesMut::new();
        encode_header(&mut out, channel, body_bytes, &properties.encode());
        self.raw(&out);
    }

    /// Publishes on channel 1.
    pub(crate) fn publish(&mut self, exchange: &str, key: &str, properties: &BasicProperties, body: &[u8]) {
        let (exchange, routing_key) = (exchange.to_owned().into(), key.to_owned().into());
        self.say(1, BasicPublish { exchange, routing_key, ..Default::default() });
        self.header(1, body.len() as u64, properties);
        if !body.is_empty() {
            self.frame(3, 1, body);
        }
    }

    /// The next frame: its kind, its channel and its payload. `None` at the end of the connection.
    fn next_frame(&mut self) -> Option<(Option<FrameKind>, u16, Bytes)> {
        let prefix = loop {
            let whole = |prefix: &FramePrefix| prefix.size as usize + FRAME_OVERHEAD_BYTES <= self.input.len();
            match FramePrefix::read(&self.input).filter(whole) {
                Some(prefix) => break prefix,
                None => {
                    let mut bytes = [0; 16 << 10];
                    match self.stream.read(&mut bytes) {
                        Ok(0) => return None,
                        Ok(read) => self.input.extend_from_slice(&bytes[..read]),
                        Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => return None,
                        Err(e) => {
                            self.silence = Some(e.to_string());
                            return None;
                        }
                    }
                }
            }
        };
        let frame = self.input.split_to(prefix.size as usize + FRAME_OVERHEAD_BYTES).freeze();
        let payload = frame.slice(FRAME_PREFIX_BYTES..frame.len() - 1);
        Some((FrameKind::from_octet(prefix.kind), prefix.channel, payload))
    }

    /// The next method, past messages and heartbeats. `None` at the end of the connection.
    pub(crate) fn method(&mut self) -> Option<(u16, Method)> {
        loop {
            if let (Some(FrameKind::Method), channel, payload) = self.next_frame()? {
                return Some((channel, Method::decode(&payload).unwrap()));
            }
        }
    }

    /// The message that follows the method that was just heard.
    pub(crate) fn message(&mut self) -> (BasicProperties, Vec<u8>) {
        let (kind, _, header) = self.next_frame().expect("a header");
        assert_eq!(kind, Some(FrameKind::Header));
        let header = ContentHeader::read(Reader::new(&header)).unwrap();
        let mut body = Vec::new();
        while (body.len() as u64) < header.body_size {
            body.extend_from_slice(&self.next_frame().expect("a body").2);
        }
        (BasicProperties::decode(&header.properties).unwrap(), body)
    }

    /// Takes the next message of a queue, if it has one ready.
    pub(crate) fn take(&mut self, queue: &str) -> Option<(BasicProperties, Vec<u8>)> {
        let get = BasicGet { queue: queue.to_owned().into(), no_ack: true, ..Default::default() };
        match self.ask(1, get) {
            Method::BasicGetOk(_) => Some(self.message()),
            Method::BasicGetEmpty(_) => None,
            other => panic!("{other:?}"),
        }
    }

    /// Publishes to a queue on channel 1, where there are confirms: whether it was accepted.
    pub(crate) fn is_accepted(&mut self, queue: &str, body: &[u8]) -> bool {
        self.publish("", queue, &BasicProperties::default(), body);
        match self.method() {
            Some((1, Method::BasicAck(_))) => true,
            Some((1, Method::BasicNack(_))) => false,
            other => panic!("{other:?}"),
        }
    }

    /// Why the other side kept silent, where it should have gone on or ended.
    pub(crate) fn silence(&mut self) -> Option<String> {
        self.silence.take()
    }

    /// All that comes until the connection ends.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut all = self.input.split().to_vec();
        // A reset is an end as well.
        let _ = self.stream.read_to_end(&mut all);
        all
    }

    /// What is closed and why: `channel CODE CLASS.METHOD TEXT`, or `connection ...`, or `gone`. The other side has to be able to go on
    /// as the protocol says: a closed channel can be opened again, a closed connection ends.
    pub(crate) fn closed(&mut self) -> String {
        loop {
            match self.method() {
                None => return self.silence.take().map_or("gone".to_owned(), |why| format!("nothing is said: {why}")),
                Some((0, Method::ConnectionClose(close))) => {
                    self.say(0, ConnectionCloseOk {});
                    assert_eq!((self.method(), &self.silence), (None, &None), "it goes on after its end: {close:?}");
                    return said("connection", close.reply_code, (close.class_id, close.method_id), &close.reply_text);
                }
                Some((channel, Method::ChannelClose(close))) => {
                    self.say(channel, ChannelCloseOk {});
                    assert!(matches!(self.ask(channel, ChannelOpen::default()), Method::ChannelOpenOk(_)));
                    return said("channel", close.reply_code, (close.class_id, close.method_id), &close.reply_text);
                }
                Some(_) => {}
            }
        }
    }
}

fn said(what: &str, code: u16, (class, method): (u16, u16), text: &ShortStr) -> String {
    format!("{what} {code} {class}.{method} {}", String::from_utf8_lossy(text))
}

/// A frame of any kind, with any end.
pub(crate) fn framed(kind: u8, channel: u16, payload: &[u8], end: u8) -> Vec<u8> {
    let prefix = FramePrefix { kind, channel, size: payload.len() as u32 };
    [&prefix.to_bytes()[..], payload, &[end]].concat()
}
