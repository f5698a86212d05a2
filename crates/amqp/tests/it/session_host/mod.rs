//! A client and a server around a session, without a socket: frames in, frames out.

#![allow(dead_code, unreachable_pub, reason = "each test uses its own part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

pub mod broker;

use bytes::{BufMut, Bytes, BytesMut};
use polylogue_amqp::codec::*;
use polylogue_amqp::request::{ChannelRef, Event, Reply, Request};
use polylogue_amqp::session::Session;
use polylogue_amqp::settings::AmqpSettings;
use std::collections::VecDeque;
use std::sync::Arc;

/// A frame that the session sends.
#[derive(Clone, PartialEq, Debug)]
pub enum Sent {
    Method(u16, Method),
    Header(u16, ContentHeader),
    Body(u16, Bytes),
    Heartbeat,
    Raw(Bytes),
}

/// A session with the state that the server keeps for it.
#[derive(Debug)]
pub struct Host {
    pub session: Session,
    pub input: BytesMut,
    output: BytesMut,
    pub now_ms: u64,
    pub settings: Arc<AmqpSettings>,
}

/// The properties of a client with all capabilities.
pub fn client_properties() -> Table {
    let mut capabilities = TableBuilder::new();
    for name in ["consumer_cancel_notify", "connection.blocked", "basic.nack", "authentication_failure_close"] {
        capabilities = capabilities.with(name, Value::Bool(true));
    }
    TableBuilder::new().with_text("product", "test").with_table("capabilities", &capabilities.build()).build()
}

impl Host {
    pub fn with(settings: AmqpSettings) -> Host {
        let settings = Arc::new(settings);
        let session = Session::new(settings.clone(), 7, 1_000);
        Host { session, input: BytesMut::new(), output: BytesMut::new(), now_ms: 1_000, settings }
    }

    pub fn new() -> Host {
        Host::with(AmqpSettings::default())
    }

    /// An open connection without channels.
    pub fn open_with(settings: AmqpSettings, properties: Table) -> Host {
        let mut host = Host::with(settings);
        host.feed(&PROTOCOL_HEADER);
        host.start_ok(properties);
        let (token, _) = host.request();
        host.reply(token, Reply::Authenticated { user: Bytes::from_static(b"guest"), impersonator: false });
        let (channel_max, frame_max) = (host.settings.channel_max, host.settings.frame_bytes_max);
        let heartbeat = host.settings.heartbeat_seconds;
        host.send(0, ConnectionTuneOk { channel_max, frame_max, heartbeat });
        host.send(0, ConnectionOpen { virtual_host: "/".into(), ..Default::default() });
        let (token, request) = host.request();
        assert!(matches!(request, Request::OpenVhost(_)), "{request:?}");
        host.reply(token, Reply::Done);
        let sent = host.sent();
        assert!(matches!(sent.last(), Some(Sent::Method(0, Method::ConnectionOpenOk(_)))), "{sent:?}");
        host
    }

    /// An open connection with a channel.
    pub fn open() -> (Host, ChannelRef) {
        let mut host = Host::open_with(AmqpSettings::default(), client_properties());
        let channel = host.open_channel(1);
        (host, channel)
    }

    pub fn start_ok(&mut self, client_properties: Table) {
        let response = Bytes::from_static(b"\0guest\0guest");
        let locale = "en_US".into();
        self.send(0, ConnectionStartOk { client_properties, mechanism: "PLAIN".into(), response, locale });
    }

    pub fn open_channel(&mut self, number: u16) -> ChannelRef {
        self.send(number, ChannelOpen::default());
        let (token, request) = self.request();
        let Request::OpenChannel(channel) = request else { panic!("{request:?}") };
        self.reply(token, Reply::Done);
        assert_eq!(self.methods(), [ChannelOpenOk::default().into()]);
        channel
    }

    /// Feeds bytes from the client.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        self.session.on_bytes(&mut self.input, self.now_ms);
        self.take();
    }

    /// Feeds a method from the client.
    pub fn send(&mut self, channel: u16, method: impl Into<Method>) {
        self.feed(&frame_of(channel, method));
    }

    /// Feeds a message from the client.
    pub fn publish(&mut self, channel: u16, publish: BasicPublish, properties: &BasicProperties, body: &[u8]) {
        self.feed(&frames_of(channel, publish, &properties.encode(), body, usize::MAX));
    }

    /// Returns the next request; panics if there is none.
    pub fn request(&mut self) -> (u64, Request) {
        self.poll_request().expect("a request")
    }

    /// Returns all requests.
    pub fn requests(&mut self) -> Vec<Request> {
        std::iter::from_fn(|| self.poll_request()).map(|(_, request)| request).collect()
    }

    /// Returns the next request, and collects the output meanwhile.
    pub fn poll_request(&mut self) -> Option<(u64, Request)> {
        let mut request = self.session.poll_request();
        if request.is_none() && !self.input.is_empty() {
            self.session.on_bytes(&mut self.input, self.now_ms);
            request = self.session.poll_request();
        }
        self.take();
        request
    }

    pub fn reply(&mut self, token: u64, reply: Reply) {
        self.session.on_reply(token, reply, self.now_ms);
        self.go_on();
    }

    /// Answers the only request.
    pub fn answer(&mut self, reply: Reply) -> Request {
        let (token, request) = self.request();
        assert!(self.poll_request().is_none());
        self.reply(token, reply);
        request
    }

    pub fn event(&mut self, event: Event) {
        self.session.on_event(event, self.now_ms);
        self.go_on();
    }

    /// Shuts the server down; whether the client is notified.
    pub fn shut_down(&mut self) -> bool {
        let notified = self.session.shut_down(self.now_ms);
        self.go_on();
        notified
    }

    /// Advances the time, and handles deadlines.
    pub fn pass(&mut self, ms: u64) {
        let until = self.now_ms + ms;
        while let Some(deadline) = self.session.next_deadline_ms().filter(|deadline| *deadline <= until) {
            let before = (deadline, self.session.close_reason().is_some());
            self.now_ms = self.now_ms.max(deadline);
            self.session.on_deadline(self.now_ms);
            self.take();
            let after = (self.session.next_deadline_ms().unwrap_or(u64::MAX), self.session.close_reason().is_some());
            assert!(after > before, "a deadline that does not go by: {after:?}");
        }
        self.now_ms = until;
        self.take();
    }

    /// What the server does after each event: processes the rest of the input, writes the output.
    fn go_on(&mut self) {
        if !self.input.is_empty() {
            self.session.on_bytes(&mut self.input, self.now_ms);
        }
        self.take();
    }

    fn take(&mut self) {
        let mut chunks = Vec::new();
        while self.session.poll_output(&mut chunks, self.now_ms) {}
        for chunk in chunks {
            self.output.put_slice(&chunk.to_bytes().expect("bytes"));
        }
    }

    /// Returns the bytes written since the last call.
    pub fn written(&mut self) -> BytesMut {
        self.take();
        self.output.split()
    }

    /// Returns the frames sent since the last call. Panics on incomplete frames.
    pub fn sent(&mut self) -> Vec<Sent> {
        let whole = self.output.split().freeze();
        let (mut at, mut sent) = (0, Vec::new());
        while at < whole.len() {
            if whole[at..].starts_with(b"AMQP") {
                sent.push(Sent::Raw(whole.slice(at..at + 8)));
                at += 8;
                continue;
            }
            let prefix = FramePrefix::read(&whole[at..]).expect("a whole frame");
            let (from, to) = (at + FRAME_PREFIX_BYTES, at + FRAME_PREFIX_BYTES + prefix.size as usize);
            assert_eq!(whole[to], FRAME_END);
            let max = self.settings.frame_bytes_max as usize;
            assert!(max == 0 || to + 1 - at <= max, "a frame of {} bytes", to + 1 - at);
            let payload = whole.slice(from..to);
            sent.push(match FrameKind::from_octet(prefix.kind).expect("a frame of some kind") {
                FrameKind::Method => Sent::Method(prefix.channel, Method::decode(&payload).expect("a method")),
                FrameKind::Header => {
                    let header = ContentHeader::read(Reader::new(&payload)).expect("a header");
                    Properties::new(header.properties.clone()).expect("properties");
                    Sent::Header(prefix.channel, header)
                }
                FrameKind::Body => Sent::Body(prefix.channel, payload),
                FrameKind::Heartbeat => Sent::Heartbeat,
            });
            at = to + 1;
        }
        sent
    }

    /// Returns the methods sent since the last call; panics on other frames.
    pub fn methods(&mut self) -> Vec<Method> {
        let sent = self.sent();
        sent.into_iter()
            .map(|sent| if let Sent::Method(_, method) = sent { method } else { panic!("{sent:?}") })
            .collect()
    }

    /// Expects that the only output is the close of a channel; returns its code and text.
    pub fn closed_channel(&mut self) -> (u16, String) {
        let methods = self.methods();
        let [Method::ChannelClose(close)] = &methods[..] else { panic!("{methods:?}") };
        (close.reply_code, close.reply_text.to_string())
    }

    /// Expects that the only output is the close of the connection; returns its code and text.
    pub fn closed(&mut self) -> (u16, String) {
        let methods = self.methods();
        let [Method::ConnectionClose(close)] = &methods[..] else { panic!("{methods:?}") };
        (close.reply_code, close.reply_text.to_string())
    }
}

pub fn frame_of(channel: u16, method: impl Into<Method>) -> BytesMut {
    let mut out = BytesMut::new();
    encode_method(&mut out, channel, &method.into());
    out
}

/// A message in its frames, each with at most `body_max` bytes of body.
pub fn frames_of(channel: u16, publish: BasicPublish, properties: &[u8], body: &[u8], body_max: usize) -> BytesMut {
    let mut out = frame_of(channel, publish);
    encode_header(&mut out, channel, body.len() as u64, properties);
    for part in body.chunks(body_max.min(1 << 16)) {
        out.extend_from_slice(&body_prefix(channel, part.len() as u32));
        out.extend_from_slice(part);
        out.put_u8(FRAME_END);
    }
    out
}

/// A publish to a queue by its name.
pub fn to_queue(queue: &'static str) -> BasicPublish {
    BasicPublish { routing_key: queue.into(), ..BasicPublish::default() }
}

/// Returns the messages in the output: method, properties and body.
pub fn contents(sent: &[Sent]) -> Vec<(Method, Bytes, Bytes)> {
    let mut sent: VecDeque<Sent> = sent.iter().cloned().collect();
    let mut contents = Vec::new();
    while let Some(next) = sent.pop_front() {
        let Sent::Method(channel, method) = next else { panic!("{next:?} without a method") };
        if !method.has_content() {
            continue;
        }
        let Some(Sent::Header(of, header)) = sent.pop_front() else { panic!("no header") };
        assert_eq!(of, channel);
        let mut body = BytesMut::new();
        while (body.len() as u64) < header.body_size {
            let Some(Sent::Body(of, part)) = sent.pop_front() else { panic!("no body") };
            assert_eq!(of, channel);
            body.extend_from_slice(&part);
        }
        assert_eq!(body.len() as u64, header.body_size);
        contents.push((method, header.properties, body.freeze()));
    }
    contents
}
