//! A null broker for AMQP: every message is confirmed at once and written directly to the socket of its queue's consumer. Nothing
//! is stored, routed or limited, and acknowledgements are ignored.
//!
//! ```text
//!   publisher's connection: thread ---- messages of one read ----> socket of the consumer
//!                                 \---- one confirm for all -----> socket of the publisher
//! ```

use crate::amqp::input::{FRAME_BYTES_MAX, Frame, Input};
use crate::amqp::template::CHANNEL;
use crate::error::{BenchError, Context, Result};
use crate::null::Faults;
use bytes::{BufMut, Bytes, BytesMut};
use polylogue_amqp::codec::{
    BasicAck, BasicConsumeOk, BasicDeliver, BasicQosOk, ChannelCloseOk, ChannelOpenOk, ConfirmSelectOk,
    ConnectionCloseOk, ConnectionOpenOk, ConnectionStart, ConnectionTune, FRAME_END, FrameKind, FramePrefix, Method,
    PROTOCOL_HEADER, QueueDeclareOk, ShortStr, encode_method,
};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;

/// Connections at a time; further ones are closed.
const CONNECTIONS_MAX: usize = 2_000;
/// Channels of a connection, as negotiated.
const CHANNELS_MAX: u16 = 1;

/// The consumer of a queue.
#[derive(Debug, Clone)]
struct Taker {
    stream: Arc<TcpStream>,
    tag: String,
}

#[derive(Debug, Default)]
struct State {
    faults: Faults,
    takers: Mutex<BTreeMap<Vec<u8>, Taker>>,
}

/// Starts one in this process; it runs until the process ends. Returns its address.
///
/// # Errors
/// The address cannot be bound.
pub fn start(listen: SocketAddr, faults: Faults) -> Result<SocketAddr> {
    let listener = TcpListener::bind(listen).context(|| format!("cannot listen on {listen}"))?;
    let address = listener.local_addr().context(|| "cannot ask for the address".to_owned())?;
    let state = Arc::new(State { faults, ..State::default() });
    let accept = move || {
        for stream in listener.incoming().flatten() {
            // The reference count is that of the listener and the connections.
            if Arc::strong_count(&state) > CONNECTIONS_MAX {
                continue;
            }
            let state = Arc::clone(&state);
            let serve = move || {
                // The client sees the error; there is nothing else to report to.
                let _ = Connection::new(stream).and_then(|mut connection| connection.serve(&state));
            };
            // Without a thread the connection is closed, which the client sees.
            let _ = Builder::new().name("null-connection".to_owned()).spawn(serve);
        }
    };
    Builder::new().name("null-accept".to_owned()).spawn(accept).context(|| "cannot start a thread".to_owned())?;
    Ok(address)
}

/// A message being received.
#[derive(Debug)]
struct Publish {
    queue: Bytes,
    /// The received header and body, and the missing part of the body; `None` before the header.
    content: BytesMut,
    left: Option<u64>,
}

#[derive(Debug)]
struct Connection {
    stream: Arc<TcpStream>,
    input: Option<Input>,
    confirms: bool,
    /// Number of messages of this connection, and of their deliveries.
    published: u64,
    delivered: u64,
    publish: Option<Publish>,
    /// A message held until the next one of its queue has been delivered.
    held: Option<Publish>,
    /// The last message, which may be lost with the connection.
    last: Option<Publish>,
    /// Output for this connection's client, and for consumers.
    out: BytesMut,
    deliveries: Vec<(Taker, BytesMut)>,
}

impl Connection {
    fn new(stream: TcpStream) -> Result<Connection> {
        let gone = || "the client has gone".to_owned();
        stream.set_nodelay(true).context(gone)?;
        let mut header = [0; PROTOCOL_HEADER.len()];
        (&stream).read_exact(&mut header).context(gone)?;
        if header != PROTOCOL_HEADER {
            return Err(BenchError::new("the client speaks something else"));
        }
        Ok(Connection {
            stream: Arc::new(stream),
            input: Some(Input::new(&[])?),
            confirms: false,
            published: 0,
            delivered: 0,
            publish: None,
            held: None,
            last: None,
            out: BytesMut::new(),
            deliveries: Vec::new(),
        })
    }

    fn serve(&mut self, state: &State) -> Result<()> {
        let mechanisms = Bytes::from_static(b"PLAIN");
        let start = ConnectionStart { version_minor: 9, mechanisms, ..ConnectionStart::default() };
        encode_method(&mut self.out, 0, &start.into());
        let mut input = self.input.take().ok_or_else(|| BenchError::new("it is served already"))?;
        loop {
            self.flush()?;
            input.fill(&self.stream)?;
            let before = self.published;
            while let Some(frame) = input.cut()? {
                self.take(frame, state)?;
            }
            if self.confirms && self.published > before {
                let ack = BasicAck { delivery_tag: self.published, multiple: true };
                encode_method(&mut self.out, CHANNEL, &ack.into());
            }
        }
    }

    fn flush(&mut self) -> Result<()> {
        let gone = || "the client has gone".to_owned();
        for (taker, bytes) in self.deliveries.drain(..) {
            // A disconnected consumer gets nothing. Only one thread writes to it, because only one connection publishes.
            let _ = (&*taker.stream).write_all(&bytes);
        }
        if !self.out.is_empty() {
            (&*self.stream).write_all(&self.out).context(gone)?;
            self.out.clear();
        }
        Ok(())
    }

    fn take(&mut self, frame: Frame<'_>, state: &State) -> Result<()> {
        match (frame.kind, &mut self.publish) {
            (FrameKind::Method, None) => {
                let payload = Bytes::copy_from_slice(frame.payload);
                let method = Method::decode(&payload).context(|| "the client sends no method".to_owned())?;
                self.answer(method, state)?;
            }
            (FrameKind::Header, Some(publish)) => {
                let size = frame.payload.get(4..).and_then(<[u8]>::first_chunk).copied();
                publish.left = size.map(u64::from_be_bytes);
                append(&mut publish.content, frame);
            }
            (FrameKind::Body, Some(publish)) => {
                publish.left = publish.left.map(|left| left.saturating_sub(frame.payload.len() as u64));
                append(&mut publish.content, frame);
            }
            _ => {}
        }
        if let Some(publish) = self.publish.take_if(|publish| publish.left == Some(0)) {
            self.published += 1;
            if state.faults.hangs_up && !self.confirms {
                let before = self.last.replace(publish);
                before.iter().for_each(|publish| self.pass_on(publish, 1, state));
                return Ok(());
            }
            if state.faults.swaps(self.published) && self.held.is_none() {
                self.held = Some(publish);
                return Ok(());
            }
            self.pass_on(&publish, state.faults.times(self.published), state);
            if let Some(held) = self.held.take_if(|held| held.queue == publish.queue) {
                self.pass_on(&held, 1, state);
            }
        }
        Ok(())
    }

    fn answer(&mut self, method: Method, state: &State) -> Result<()> {
        let (channel, answer) = match method {
            Method::ConnectionStartOk(_) => {
                let frame_max = FRAME_BYTES_MAX as u32;
                (0, ConnectionTune { channel_max: CHANNELS_MAX, frame_max, heartbeat: 0 }.into())
            }
            Method::ConnectionOpen(_) => (0, ConnectionOpenOk::default().into()),
            Method::ConnectionClose(_) => (0, ConnectionCloseOk {}.into()),
            Method::ChannelOpen(_) => (CHANNEL, ChannelOpenOk::default().into()),
            Method::ChannelClose(_) => {
                let last = self.last.take();
                last.iter().for_each(|publish| self.pass_on(publish, 1, state));
                (CHANNEL, ChannelCloseOk {}.into())
            }
            Method::QueueDeclare(declare) => {
                (CHANNEL, QueueDeclareOk { queue: declare.queue, ..QueueDeclareOk::default() }.into())
            }
            Method::BasicQos(_) => (CHANNEL, BasicQosOk {}.into()),
            Method::ConfirmSelect(_) => {
                self.confirms = true;
                (CHANNEL, ConfirmSelectOk {}.into())
            }
            Method::BasicConsume(consume) => {
                let taker = Taker { stream: Arc::clone(&self.stream), tag: consume.consumer_tag.to_string() };
                let mut takers = state.takers.lock().unwrap_or_else(PoisonError::into_inner);
                takers.insert(consume.queue.to_vec(), taker);
                (CHANNEL, BasicConsumeOk { consumer_tag: consume.consumer_tag }.into())
            }
            Method::BasicPublish(publish) => {
                let queue = publish.routing_key.into_bytes();
                self.publish = Some(Publish { queue, content: BytesMut::new(), left: None });
                return Ok(());
            }
            Method::ConnectionTuneOk(_) | Method::BasicAck(_) => return Ok(()),
            other => return Err(BenchError::new(format!("the null broker does not answer {}", other.id()))),
        };
        encode_method(&mut self.out, channel, &answer);
        Ok(())
    }

    fn pass_on(&mut self, publish: &Publish, times: u32, state: &State) {
        let takers = state.takers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(taker) = takers.get(&publish.queue[..]) else { return };
        let at = self.deliveries.iter().position(|(known, _)| Arc::ptr_eq(&known.stream, &taker.stream));
        let at = at.unwrap_or_else(|| {
            self.deliveries.push((taker.clone(), BytesMut::new()));
            self.deliveries.len() - 1
        });
        for _ in 0..times {
            self.delivered += 1;
            let deliver = BasicDeliver {
                consumer_tag: taker.tag.clone().into(),
                delivery_tag: self.delivered,
                routing_key: ShortStr::cut(publish.queue.clone()),
                ..BasicDeliver::default()
            };
            if let Some((_, out)) = self.deliveries.get_mut(at) {
                encode_method(out, CHANNEL, &deliver.into());
                out.extend_from_slice(&publish.content);
            }
        }
    }
}

/// Encodes a frame.
fn append(out: &mut BytesMut, frame: Frame<'_>) {
    let size = frame.payload.len() as u32;
    out.put_slice(&FramePrefix { kind: frame.kind.octet(), channel: CHANNEL, size }.to_bytes());
    out.put_slice(frame.payload);
    out.put_u8(FRAME_END);
}
