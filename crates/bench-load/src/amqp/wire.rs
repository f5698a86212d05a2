//! A simple synchronous AMQP client for preparing and ending a run.

use crate::amqp::input::{FRAME_BYTES_MAX, Input};
use crate::amqp::load::{Exchange, QueueKind, QueueLoad};
use crate::amqp::queue_name;
use crate::amqp::template::CHANNEL;
use crate::error::{BenchError, Context, Result};
use crate::wire::open;
use bytes::{Buf, Bytes, BytesMut};
use polylogue_amqp::codec::{
    BasicConsume, BasicQos, ChannelClose, ChannelOpen, ConfirmSelect, ConnectionOpen, ConnectionStartOk,
    ConnectionTuneOk, FRAME_OVERHEAD_BYTES, FRAME_PREFIX_BYTES, FrameKind, FramePrefix, Method, PROTOCOL_HEADER,
    QueueBind, QueueDeclare, QueueDelete, TableBuilder, encode_method,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// The default user of every broker.
const LOGIN: &[u8] = b"\0guest\0guest";
/// Size of a read. Bytes.
const READ_BYTES: usize = 16 << 10;

/// A connection.
#[derive(Debug)]
pub struct Wire {
    server: SocketAddr,
    stream: TcpStream,
    input: BytesMut,
}

impl Wire {
    /// Connects and logs in, without a channel.
    ///
    /// # Errors
    /// No response in AMQP.
    pub fn connect(server: &str) -> Result<Wire> {
        let (server, stream) = open(server)?;
        let mut wire = Wire { server, stream, input: BytesMut::new() };
        wire.stream.write_all(&PROTOCOL_HEADER).context(|| format!("cannot send to {server}"))?;
        wire.expect("connection.start", |method| matches!(method, Method::ConnectionStart(_)))?;
        let start_ok = ConnectionStartOk {
            mechanism: "PLAIN".into(),
            response: Bytes::from_static(LOGIN),
            locale: "en_US".into(),
            ..ConnectionStartOk::default()
        };
        wire.say(0, start_ok)?;
        wire.expect("connection.tune", |method| matches!(method, Method::ConnectionTune(_)))?;
        wire.say(0, ConnectionTuneOk { channel_max: CHANNEL, frame_max: FRAME_BYTES_MAX as u32, heartbeat: 0 })?;
        wire.say(0, ConnectionOpen { virtual_host: "/".into(), ..ConnectionOpen::default() })?;
        wire.expect("connection.open_ok", |method| matches!(method, Method::ConnectionOpenOk(_)))?;
        Ok(wire)
    }

    /// Opens the channel.
    ///
    /// # Errors
    /// When the broker refuses.
    pub fn open_channel(&mut self) -> Result<()> {
        self.say(CHANNEL, ChannelOpen::default())?;
        self.expect("channel.open_ok", |method| matches!(method, Method::ChannelOpenOk(_)))
    }

    /// Declares a queue.
    ///
    /// # Errors
    /// When the broker refuses.
    pub fn declare(&mut self, queue: String, load: QueueLoad) -> Result<()> {
        let arguments = match load.kind {
            QueueKind::Classic => TableBuilder::new().build(),
            kind @ QueueKind::Quorum => TableBuilder::new().with_text("x-queue-type", kind.name()).build(),
        };
        let durable = load.durable;
        self.say(CHANNEL, QueueDeclare { queue: queue.into(), durable, arguments, ..QueueDeclare::default() })?;
        self.expect("queue.declare_ok", |method| matches!(method, Method::QueueDeclareOk(_)))
    }

    /// Checks that a queue exists.
    ///
    /// # Errors
    /// It does not.
    pub fn find(&mut self, queue: String) -> Result<()> {
        self.say(CHANNEL, QueueDeclare { queue: queue.into(), passive: true, ..QueueDeclare::default() })?;
        self.expect("queue.declare_ok", |method| matches!(method, Method::QueueDeclareOk(_)))
    }

    /// Enables publisher confirms.
    ///
    /// # Errors
    /// When the broker refuses.
    pub fn confirm(&mut self) -> Result<()> {
        self.say(CHANNEL, ConfirmSelect::default())?;
        self.expect("confirm.select_ok", |method| matches!(method, Method::ConfirmSelectOk(_)))
    }

    /// Consumes from queues, with each queue's number as consumer tag. The queues must be empty.
    ///
    /// # Errors
    /// When the broker refuses.
    pub fn consume(&mut self, queues: impl Iterator<Item = (u32, String)>, load: QueueLoad) -> Result<()> {
        let qos = BasicQos { prefetch_count: load.prefetch, ..BasicQos::default() };
        self.say(CHANNEL, qos.clone())?;
        self.expect("basic.qos_ok", |method| matches!(method, Method::BasicQosOk(_)))?;
        for (number, queue) in queues {
            let (consumer_tag, no_ack) = (number.to_string().into(), load.ack_every == 0);
            let consume = BasicConsume { queue: queue.into(), consumer_tag, no_ack, ..BasicConsume::default() };
            self.say(CHANNEL, consume)?;
            self.expect("basic.consume_ok", |method| matches!(method, Method::BasicConsumeOk(_)))?;
        }
        Ok(())
    }

    /// Binds a queue to an exchange.
    fn bind(&mut self, queue: &str, exchange: Exchange) -> Result<()> {
        let bind = QueueBind {
            queue: queue.to_owned().into(),
            exchange: exchange.name().to_owned().into(),
            routing_key: exchange.binding(queue).into(),
            ..QueueBind::default()
        };
        self.say(CHANNEL, bind)?;
        self.expect("queue.bind_ok", |method| matches!(method, Method::QueueBindOk(_)))
    }

    /// Returns the socket and the bytes read from it, for a driver.
    ///
    /// # Errors
    /// Too many bytes were read.
    pub fn into_parts(self) -> Result<(TcpStream, Input)> {
        self.stream.set_nonblocking(true).context(|| "cannot make a socket non-blocking".to_owned())?;
        Ok((self.stream, Input::new(&self.input)?))
    }

    fn say(&mut self, channel: u16, method: impl Into<Method>) -> Result<()> {
        let mut out = BytesMut::new();
        encode_method(&mut out, channel, &method.into());
        self.stream.write_all(&out).context(|| format!("cannot send to {}", self.server))
    }

    /// Waits for a method.
    fn expect(&mut self, what: &str, is: impl Fn(&Method) -> bool) -> Result<()> {
        let method = self.method(what)?;
        if is(&method) { Ok(()) } else { Err(said(&method, &format!("{} instead of {what}", self.server))) }
    }

    fn method(&mut self, what: &str) -> Result<Method> {
        loop {
            if let Some(prefix) = FramePrefix::read(&self.input)
                && self.input.len() >= prefix.size as usize + FRAME_OVERHEAD_BYTES
            {
                let frame = self.input.split_to(prefix.size as usize + FRAME_OVERHEAD_BYTES).freeze();
                if FrameKind::from_octet(prefix.kind) != Some(FrameKind::Method) {
                    continue;
                }
                let payload = frame.slice(FRAME_PREFIX_BYTES..frame.len() - 1);
                return Method::decode(&payload).context(|| format!("{} answers with no method", self.server));
            }
            let mut read = [0; READ_BYTES];
            let server = self.server;
            let count = self.stream.read(&mut read).context(|| format!("{server} does not answer: {what}"))?;
            if count == 0 {
                return Err(BenchError::new(format!("{server} closes the connection instead of {what}")));
            }
            self.input.extend_from_slice(read.get(..count).unwrap_or_default());
        }
    }
}

/// Declares all queues of a topic; returns the connection.
///
/// # Errors
/// When the broker refuses one.
pub fn declare_all(server: &str, topic: &str, queues: u32, load: QueueLoad) -> Result<Wire> {
    let mut wire = Wire::connect(server)?;
    wire.open_channel()?;
    for number in 0..queues {
        let queue = queue_name(topic, number);
        wire.declare(queue.clone(), load)?;
        if let Some(exchange) = load.exchange {
            wire.bind(&queue, exchange)?;
        }
    }
    Ok(wire)
}

/// Deletes the queues of [`declare_all`].
///
/// # Errors
/// When the broker refuses.
pub fn delete_all(server: &str, topic: &str, queues: u32) -> Result<()> {
    let mut wire = Wire::connect(server)?;
    wire.open_channel()?;
    for number in 0..queues {
        wire.say(CHANNEL, QueueDelete { queue: queue_name(topic, number).into(), ..QueueDelete::default() })?;
        wire.expect("queue.delete_ok", |method| matches!(method, Method::QueueDeleteOk(_)))?;
    }
    Ok(())
}

/// Closes the channel of a driver at its end: the broker has processed everything sent before when this returns.
///
/// # Errors
/// The broker does not respond.
pub fn close_channel(mut stream: &TcpStream, input: &mut Input) -> Result<()> {
    let gone = || "cannot end a channel".to_owned();
    stream.set_nonblocking(false).context(gone)?;
    let mut out = BytesMut::new();
    encode_method(&mut out, CHANNEL, &ChannelClose { reply_code: 200, ..ChannelClose::default() }.into());
    while out.has_remaining() {
        let written = stream.write(&out).context(gone)?;
        out.advance(written);
    }
    loop {
        while let Some(frame) = input.cut()? {
            // Other frames may precede the reply.
            if frame.kind == FrameKind::Method
                && matches!(Method::decode(&Bytes::copy_from_slice(frame.payload)), Ok(Method::ChannelCloseOk(_)))
            {
                return Ok(());
            }
        }
        let had = input.unread();
        input.fill(stream)?;
        if input.unread() == had {
            return Err(BenchError::new("the broker does not answer: channel.close_ok"));
        }
    }
}

/// Formats an unexpected method: the broker's text if it closes something.
#[must_use]
pub fn said(method: &Method, context: &str) -> BenchError {
    let text = match method {
        Method::ChannelClose(close) => format!("closes the channel: {} {}", close.reply_code, close.reply_text),
        Method::ConnectionClose(close) => format!("closes the connection: {} {}", close.reply_code, close.reply_text),
        Method::BasicReturn(back) => format!("returns a message: {} {}", back.reply_code, back.reply_text),
        other => format!("says {}", other.id().name().unwrap_or("an unknown method")),
    };
    BenchError::new(format!("{context}: {text}"))
}
