//! A blocking AMQP client of a few lines: one connection, one channel, confirms, one consumer.

use bytes::{Bytes, BytesMut};
use polylogue_amqp::codec::*;
use polylogue_testkit::Result;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The one channel.
const CHANNEL: u16 = 1;
/// How long it waits for an answer that must come. Seconds.
const ANSWER_SECS: u64 = 60;

/// What came.
#[derive(Debug)]
pub(crate) enum Came {
    Method(Method),
    Message(Message),
}

/// A message that came.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) tag: u64,
    /// Flags and properties as they came.
    properties: Bytes,
    pub(crate) body: Bytes,
}

impl Message {
    /// The headers; nothing when there are none.
    pub(crate) fn headers(&self) -> Result<Table> {
        let properties = Properties::new(self.properties.clone()).map_err(|e| e.to_string())?;
        Ok(properties.headers().unwrap_or_else(|| TableBuilder::new().build()))
    }
}

/// A delivery whose body has not come as a whole.
#[derive(Debug)]
struct Arriving {
    tag: u64,
    /// The length of its body, and its properties, once they are known.
    header: Option<(u64, Bytes)>,
    body: BytesMut,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Amqp {
    stream: TcpStream,
    input: BytesMut,
    output: BytesMut,
    message: Option<Arriving>,
    /// The last message that was confirmed.
    confirms: u64,
}

fn failed(what: &str) -> impl Fn(std::io::Error) -> String + '_ {
    move |e| format!("cannot {what}: {e}")
}

impl Amqp {
    /// Logs in as the first user and opens the channel.
    pub(crate) fn connect(to: SocketAddr) -> Result<Amqp> {
        let stream = TcpStream::connect(to).map_err(failed("connect"))?;
        stream.set_nodelay(true).map_err(failed("set up a connection"))?;
        let mut amqp = Amqp { stream, input: BytesMut::new(), output: BytesMut::new(), message: None, confirms: 0 };
        amqp.output.extend_from_slice(&PROTOCOL_HEADER);
        amqp.flush()?;
        amqp.answer(|m| matches!(m, Method::ConnectionStart(_)))?;
        let (mechanism, response) = ("PLAIN".into(), Bytes::from_static(b"\0guest\0guest"));
        let can = TableBuilder::new().with("connection.blocked", Value::Bool(true)).build();
        let client_properties = TableBuilder::new().with_table("capabilities", &can).build();
        amqp.put(0, ConnectionStartOk { client_properties, mechanism, response, locale: "en_US".into() });
        amqp.answer(|m| matches!(m, Method::ConnectionTune(_)))?;
        amqp.put(0, ConnectionTuneOk { channel_max: 1, frame_max: 131_072, heartbeat: 0 });
        amqp.put(0, ConnectionOpen { virtual_host: "/".into(), ..Default::default() });
        amqp.answer(|m| matches!(m, Method::ConnectionOpenOk(_)))?;
        amqp.put(CHANNEL, ChannelOpen::default());
        amqp.answer(|m| matches!(m, Method::ChannelOpenOk(_)))?;
        Ok(amqp)
    }

    fn put(&mut self, channel: u16, method: impl Into<Method>) {
        encode_method(&mut self.output, channel, &method.into());
    }

    /// Writes what was put.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.stream.write_all(&self.output).map_err(failed("send"))?;
        self.output.clear();
        Ok(())
    }

    /// Sends what was put and waits for an answer; messages that come meanwhile are an error.
    fn answer(&mut self, is: impl Fn(&Method) -> bool) -> Result<Method> {
        self.flush()?;
        match self.wait(Duration::from_secs(ANSWER_SECS))? {
            Some(Came::Method(method)) if is(&method) => Ok(method),
            other => Err(format!("another answer than was wanted: {other:?}")),
        }
    }

    /// Declares a durable queue, with arguments that are texts.
    pub(crate) fn declare(&mut self, queue: &str, arguments: &[(&str, &str)]) -> Result<()> {
        let table = TableBuilder::new();
        let table = arguments.iter().fold(table, |table, (name, text)| table.with_text(name, text));
        let (queue, arguments) = (queue.to_owned().into(), table.build());
        self.put(CHANNEL, QueueDeclare { queue, durable: true, arguments, ..Default::default() });
        self.answer(|m| matches!(m, Method::QueueDeclareOk(_))).map(drop)
    }

    /// Declares a durable fanout exchange, with arguments that are texts, and binds a queue to it.
    pub(crate) fn fan_out(&mut self, exchange: &str, arguments: &[(&str, &str)], queue: &str) -> Result<()> {
        let table = arguments.iter().fold(TableBuilder::new(), |table, (name, text)| table.with_text(name, text));
        let name = || exchange.to_owned().into();
        let declare = ExchangeDeclare { exchange: name(), kind: "fanout".into(), durable: true, ..Default::default() };
        self.put(CHANNEL, ExchangeDeclare { arguments: table.build(), ..declare });
        self.answer(|m| matches!(m, Method::ExchangeDeclareOk(_)))?;
        self.put(CHANNEL, QueueBind { queue: queue.to_owned().into(), exchange: name(), ..Default::default() });
        self.answer(|m| matches!(m, Method::QueueBindOk(_))).map(drop)
    }

    /// Declares a durable exchange.
    pub(crate) fn declare_exchange(&mut self, exchange: &str, kind: &str) -> Result<()> {
        let (exchange, kind) = (exchange.to_owned().into(), kind.to_owned().into());
        self.put(CHANNEL, ExchangeDeclare { exchange, kind, durable: true, ..Default::default() });
        self.answer(|m| matches!(m, Method::ExchangeDeclareOk(_))).map(drop)
    }

    /// Puts a binding that is not answered; [`Amqp::settle`] sends it, and waits until all are there.
    pub(crate) fn bind(&mut self, exchange: &str, queue: &str, key: &str, arguments: Table) {
        let (exchange, queue) = (exchange.to_owned().into(), queue.to_owned().into());
        let routing_key = key.to_owned().into();
        self.put(CHANNEL, QueueBind { queue, exchange, routing_key, nowait: true, arguments, ..Default::default() });
    }

    /// Sends what was put and waits until it has taken effect.
    pub(crate) fn settle(&mut self) -> Result<()> {
        self.put(CHANNEL, BasicQos::default());
        self.answer(|m| matches!(m, Method::BasicQosOk(_))).map(drop)
    }

    /// Waits until so many more messages are confirmed, or refused.
    pub(crate) fn confirmed(&mut self, count: usize) -> Result<()> {
        self.flush()?;
        let upto = self.confirms + count as u64;
        while self.confirms < upto {
            match self.wait(Duration::from_secs(ANSWER_SECS))? {
                Some(Came::Method(Method::BasicAck(ack))) => self.confirms = self.confirms.max(ack.delivery_tag),
                Some(Came::Method(Method::BasicNack(nack))) => self.confirms = self.confirms.max(nack.delivery_tag),
                other => return Err(format!("another answer than a confirm: {other:?}")),
            }
        }
        Ok(())
    }

    /// Puts the deletion of a queue; [`Amqp::flush`] sends it, and [`Amqp::deleted`] waits for the answer.
    pub(crate) fn delete(&mut self, queue: &str) {
        self.put(CHANNEL, QueueDelete { queue: queue.to_owned().into(), ..Default::default() });
    }

    /// Waits until a queue is deleted.
    pub(crate) fn deleted(&mut self) -> Result<()> {
        self.answer(|m| matches!(m, Method::QueueDeleteOk(_))).map(drop)
    }

    /// Whether there is a queue. Where there is none this connection is of no more use.
    pub(crate) fn is_there(&mut self, queue: &str) -> Result<bool> {
        self.put(CHANNEL, QueueDeclare { queue: queue.to_owned().into(), passive: true, ..Default::default() });
        match self.answer(|m| matches!(m, Method::QueueDeclareOk(_) | Method::ChannelClose(_)))? {
            Method::ChannelClose(close) if close.reply_code != 404 => Err(format!("{close:?}")),
            other => Ok(matches!(other, Method::QueueDeclareOk(_))),
        }
    }

    /// Asks for confirms.
    pub(crate) fn confirm(&mut self) -> Result<()> {
        self.put(CHANNEL, ConfirmSelect::default());
        self.answer(|m| matches!(m, Method::ConfirmSelectOk(_))).map(drop)
    }

    /// Puts a persistent message for a queue; [`Amqp::flush`] sends it.
    pub(crate) fn publish(&mut self, queue: &str, body: &[u8]) {
        self.publish_to("", queue, body);
    }

    /// Puts a persistent message for an exchange; [`Amqp::flush`] sends it.
    pub(crate) fn publish_to(&mut self, exchange: &str, key: &str, body: &[u8]) {
        self.put_message(exchange, key, None, body);
    }

    /// As [`Amqp::publish_to`], with headers.
    pub(crate) fn publish_with(&mut self, exchange: &str, key: &str, headers: &Table, body: &[u8]) {
        self.put_message(exchange, key, Some(headers.clone()), body);
    }

    fn put_message(&mut self, exchange: &str, key: &str, headers: Option<Table>, body: &[u8]) {
        let (exchange, routing_key) = (exchange.to_owned().into(), key.to_owned().into());
        self.put(CHANNEL, BasicPublish { exchange, routing_key, ..Default::default() });
        let properties = BasicProperties { delivery_mode: Some(2), headers, ..Default::default() }.encode();
        encode_header(&mut self.output, CHANNEL, body.len() as u64, &properties);
        self.output.extend_from_slice(&body_prefix(CHANNEL, body.len() as u32));
        self.output.extend_from_slice(body);
        self.output.extend_from_slice(&[FRAME_END]);
    }

    /// Consumes a queue, with so many messages at a time (0: any number).
    pub(crate) fn consume(&mut self, queue: &str, prefetch: u16) -> Result<()> {
        self.put(CHANNEL, BasicQos { prefetch_count: prefetch, ..Default::default() });
        self.answer(|m| matches!(m, Method::BasicQosOk(_)))?;
        self.put(CHANNEL, BasicConsume { queue: queue.to_owned().into(), ..Default::default() });
        self.answer(|m| matches!(m, Method::BasicConsumeOk(_))).map(drop)
    }

    /// Ends the channel, and is answered when its consumer has left. The broker hears a moment later only of a connection that is gone.
    pub(crate) fn leave(mut self) -> Result<()> {
        self.put(CHANNEL, ChannelClose::default());
        self.answer(|m| matches!(m, Method::ChannelCloseOk(_))).map(drop)
    }

    /// Puts an acknowledgement; [`Amqp::flush`] sends it.
    pub(crate) fn ack(&mut self, delivery_tag: u64) {
        self.put(CHANNEL, BasicAck { delivery_tag, multiple: false });
    }

    /// Puts a refusal of a message, which goes back to its place or is dead; [`Amqp::flush`] sends it.
    pub(crate) fn reject(&mut self, delivery_tag: u64, requeue: bool) {
        self.put(CHANNEL, BasicReject { delivery_tag, requeue });
    }

    /// What comes next; `None` when nothing does in that time.
    pub(crate) fn wait(&mut self, time: Duration) -> Result<Option<Came>> {
        loop {
            if let Some(came) = self.frame()? {
                return Ok(Some(came));
            }
            self.stream.set_read_timeout(Some(time)).map_err(failed("wait"))?;
            let mut bytes = [0; 64 << 10];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err("the connection is closed".into()),
                Ok(read) => self.input.extend_from_slice(&bytes[..read]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Ok(None),
                Err(e) => return Err(failed("receive")(e)),
            }
        }
    }

    /// Takes frames from the input up to one that says something as a whole.
    fn frame(&mut self) -> Result<Option<Came>> {
        loop {
            let Some(prefix) = FramePrefix::read(&self.input) else { return Ok(None) };
            let len = prefix.size as usize + FRAME_OVERHEAD_BYTES;
            if self.input.len() < len {
                return Ok(None);
            }
            let frame = self.input.split_to(len).freeze();
            let payload = frame.slice(FRAME_PREFIX_BYTES..len - 1);
            match FrameKind::from_octet(prefix.kind).ok_or("an unknown frame")? {
                FrameKind::Heartbeat => {}
                FrameKind::Method => match Method::decode(&payload).map_err(|e| e.to_string())? {
                    Method::BasicDeliver(d) => {
                        self.message = Some(Arriving { tag: d.delivery_tag, header: None, body: BytesMut::new() });
                    }
                    other => return Ok(Some(Came::Method(other))),
                },
                FrameKind::Header => {
                    let header = ContentHeader::read(Reader::new(&payload)).map_err(|e| e.to_string())?;
                    if let Some(arriving) = &mut self.message {
                        arriving.header = Some((header.body_size, header.properties));
                    }
                }
                FrameKind::Body => {
                    self.message.as_mut().ok_or("a body without a delivery")?.body.extend_from_slice(&payload);
                }
            }
            let whole = |size: u64, body: &BytesMut| body.len() as u64 >= size;
            if let Some(Arriving { tag, header: Some((_, properties)), body }) =
                self.message.take_if(|m| m.header.as_ref().is_some_and(|(size, _)| whole(*size, &m.body)))
            {
                return Ok(Some(Came::Message(Message { tag, properties, body: body.freeze() })));
            }
        }
    }
}
