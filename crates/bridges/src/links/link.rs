//! One AMQP client connection of a link: a client session and its transport.

use super::{Author, EVENTS_BYTES_MAX, OUTPUT_BYTES_MAX, Surroundings, UNCONFIRMED_MAX, inside};
use bytes::{Buf, Bytes, BytesMut};
use polylogue_amqp::client::{Client, ClientEnd, ClientEvent, ClientSettings};
use polylogue_amqp::codec::{Method, ShortStr};
use polylogue_amqp::settings::Mechanism;
use polylogue_amqp_model::{AmqpUri, AuthMechanism, UriTls};
use polylogue_net::Trust;
use polylogue_net::handle::BrokerHandle;
use polylogue_types::Chunk;
use rustls::pki_types::ServerName;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io::IoSlice;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Size of one read. Bytes.
const READ_BYTES: usize = 64 << 10;
/// The maximum number of slices of one write.
const SLICES_MAX: usize = 64;
/// Reads and writes of a connection before it yields to others.
const ROUNDS_MAX: usize = 4;
/// Default connection timeout, if the URI sets none. Milliseconds.
const CONNECT_MS: u64 = 60_000;
/// Timeout for a reply of the server.
const PATIENCE: Duration = Duration::from_secs(60);
/// Timeout for disconnecting.
pub(crate) const FAREWELL: Duration = Duration::from_secs(2);
/// The same after everything was moved: written data may still be in transit, and closing the socket must not discard it.
pub(crate) const FAREWELL_AT_THE_END: Duration = Duration::from_secs(10);
/// The user of a URI without one, as in RabbitMQ's clients.
const GUEST: &str = "guest";

/// The channel for messages.
pub(crate) const CHANNEL: u16 = 1;
/// The channel for passive declarations, which the server closes if the object does not exist.
const ASKING: u16 = 2;

/// Why a link's connection failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// The server has closed a channel: code and text.
    Channel(u16, String),
    /// Any other error, as text.
    Other(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Channel(code, text) => write!(f, "the server closed the channel: {code} {text}"),
            Failure::Other(text) => f.write_str(text),
        }
    }
}

impl From<&ClientEnd> for Failure {
    fn from(end: &ClientEnd) -> Failure {
        Failure::Other(end.to_string())
    }
}

/// 404
pub(crate) const NOT_FOUND: u16 = 404;

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A client connection.
pub(crate) struct Link {
    broker: Arc<dyn BrokerHandle>,
    pub(crate) client: Client,
    stream: Box<dyn Stream>,
    input: BytesMut,
    chunks: Vec<Chunk>,
    output: VecDeque<Bytes>,
    /// Total bytes added to `output`.
    taken_bytes: u64,
    /// Total bytes that the stream has accepted.
    written_bytes: u64,
    /// The stream is closed for reading.
    is_at_end: bool,
    /// The stream is closed for writing.
    is_broken: bool,
    /// The URI that it is connected to.
    pub(crate) address: AmqpUri,
    /// The URI without secrets.
    pub(crate) uri: String,
}

/// Returns a session's parameters from a URI.
fn settings(uri: &AmqpUri, name: &str) -> ClientSettings {
    let default = ClientSettings::default();
    let text = |text: &Option<_>| {
        Bytes::copy_from_slice(text.as_ref().map_or(GUEST, |text: &bytestring::ByteString| text).as_bytes())
    };
    let mechanisms: Vec<_> = uri
        .mechanisms
        .iter()
        .map(|mechanism| match mechanism {
            AuthMechanism::Plain => Mechanism::Plain,
            AuthMechanism::AmqPlain => Mechanism::AmqPlain,
        })
        .collect();
    ClientSettings {
        user: text(&uri.user),
        password: text(&uri.password),
        mechanisms: if mechanisms.is_empty() { default.mechanisms } else { mechanisms },
        vhost: ShortStr::cut(uri.vhost.clone().into_bytes()),
        connection_name: name.to_owned(),
        channel_max: uri.channel_max.unwrap_or(default.channel_max),
        frame_bytes_max: uri.frame_bytes_max.map_or(default.frame_bytes_max, |max| max.clamp(4_096, 1 << 20)),
        heartbeat_seconds: uri.heartbeat_seconds.unwrap_or(default.heartbeat_seconds),
        handshake_ms_max: uri.connection_timeout_ms.unwrap_or(CONNECT_MS),
        events_bytes_max: EVENTS_BYTES_MAX,
        unconfirmed_max: UNCONFIRMED_MAX,
        output_bytes_max: OUTPUT_BYTES_MAX,
        ..default
    }
}

async fn stream(around: &Surroundings, author: &Author, uri: &AmqpUri) -> Result<Box<dyn Stream>, String> {
    let Some(host) = &uri.host else {
        let identity = author.internal_identity(uri)?;
        return Ok(Box::new(inside::connect(around, identity, author.may_be_guest())));
    };
    let patience = Duration::from_millis(uri.connection_timeout_ms.unwrap_or(CONNECT_MS));
    let connecting = TcpStream::connect((&**host, uri.port));
    let connected = tokio::time::timeout(patience, connecting).await.map_err(|_| "connecting timed out")?;
    let stream = connected.map_err(|error| format!("cannot connect: {error}"))?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    // Checked after name resolution, and before anything is sent.
    let peer = stream.peer_addr().map_err(|error| error.to_string())?;
    author.check_login(uri.user.as_deref().unwrap_or(GUEST).as_bytes(), peer.ip())?;
    match &uri.tls {
        None => Ok(Box::new(stream)),
        Some(tls) => match tokio::time::timeout(patience, secured(stream, host, tls.clone())).await {
            Ok(stream) => stream.map_err(|why| format!("TLS: {why}")),
            Err(_) => Err("TLS: the handshake timed out".to_owned()),
        },
    }
}

/// TLS on a connection, with the parameters of its URI.
async fn secured(stream: TcpStream, host: &str, tls: UriTls) -> Result<Box<dyn Stream>, String> {
    let name = tls.name.as_deref().unwrap_or(host).to_owned();
    let name = ServerName::try_from(name).map_err(|error| error.to_string())?;
    let config = move || {
        let path = |path: &Option<bytestring::ByteString>| path.as_ref().map(|path| PathBuf::from(&**path));
        let trust = Trust::load(path(&tls.ca).as_deref())?;
        let own = path(&tls.certificate).zip(path(&tls.key));
        trust.config(own.as_ref().map(|(certificate, key)| (certificate.as_path(), key.as_path())))
    };
    // Reading files may block.
    let config = tokio::task::spawn_blocking(config).await.map_err(|error| error.to_string())?;
    // The author of a URI must not learn which files exist.
    let config = config.map_err(|why| {
        tracing::warn!("invalid TLS settings of a shovel or federation link: {why}");
        "cacertfile, certfile or keyfile cannot be used: see the server's log for the reason".to_owned()
    })?;
    let secured = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    Ok(Box::new(secured.map_err(|error| error.to_string())?))
}

impl Link {
    /// Connects with its author's permissions to the first of these URIs that accepts it, and opens [`CHANNEL`]. `name` is the connection
    /// name.
    pub(crate) async fn connect(
        around: &Surroundings,
        author: &Author,
        uris: &[AmqpUri],
        name: &str,
    ) -> Result<Link, Failure> {
        let mut why = Failure::Other("no URI is given".to_owned());
        for uri in uris {
            match Link::connect_to(around, author, uri, name).await {
                Ok(link) => return Ok(link),
                Err(failure) => why = Failure::Other(format!("{uri}: {failure}")),
            }
        }
        Err(why)
    }

    async fn connect_to(around: &Surroundings, author: &Author, uri: &AmqpUri, name: &str) -> Result<Link, Failure> {
        let stream = stream(around, author, uri).await.map_err(Failure::Other)?;
        let mut link = Link::new(&around.broker, settings(uri, name), stream, uri.clone());
        while !link.client.is_open() {
            link.step().await?;
        }
        link.open_channel(CHANNEL).await?;
        Ok(link)
    }

    fn new(
        broker: &Arc<dyn BrokerHandle>,
        settings: ClientSettings,
        stream: Box<dyn Stream>,
        address: AmqpUri,
    ) -> Link {
        Link {
            client: Client::new(settings, broker.now().monotonic_ms),
            broker: broker.clone(),
            stream,
            input: BytesMut::new(),
            chunks: Vec::new(),
            output: VecDeque::new(),
            taken_bytes: 0,
            written_bytes: 0,
            is_at_end: false,
            is_broken: false,
            uri: address.to_string(),
            address,
        }
    }

    fn now_ms(&self) -> u64 {
        self.broker.now().monotonic_ms
    }

    /// Reads and writes as much as possible; ready when any progress was made, or on an error.
    pub(crate) fn poll_io(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        let mut moved = false;
        for _ in 0..ROUNDS_MAX {
            let now_ms = self.now_ms();
            let more = self.poll_write(cx, now_ms) | self.poll_read(cx, now_ms);
            moved |= more;
            if let Some(end) = self.client.end() {
                return Poll::Ready(Err(end.into()));
            }
            if !more {
                break;
            }
        }
        if self.wait_ms() == Some(0) {
            // A connection that can always be read would otherwise never reach its deadlines. Received data was processed above.
            self.on_deadline()?;
            moved = true;
        }
        if moved { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, now_ms: u64) -> bool {
        // Events may have been taken since: process buffered input first.
        let before = self.input.len();
        if before > 0 {
            self.client.on_bytes(&mut self.input, now_ms);
        }
        let more = self.input.len() < before;
        if self.is_at_end || !self.client.wants_input() {
            return more;
        }
        self.input.reserve(READ_BYTES);
        let read = std::pin::pin!(self.stream.read_buf(&mut self.input)).poll(cx);
        match read {
            Poll::Pending if !self.is_broken => return more,
            Poll::Ready(Ok(read)) if read > 0 => self.client.on_bytes(&mut self.input, now_ms),
            Poll::Pending | Poll::Ready(_) => {
                self.is_at_end = true;
                self.client.on_end();
            }
        }
        true
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, now_ms: u64) -> bool {
        if self.output.is_empty() && self.client.poll_output(&mut self.chunks, now_ms) {
            // A client's output contains no file chunks.
            self.taken_bytes += self.chunks.iter().map(|chunk| chunk.len() as u64).sum::<u64>();
            self.output.extend(self.chunks.drain(..).filter_map(|chunk| chunk.to_bytes().ok()));
        }
        if self.is_broken {
            // The output cannot be delivered, and must not block the client: the server's last frames are still to be read.
            self.output.clear();
        }
        if self.output.is_empty() || self.is_at_end {
            return false;
        }
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let used = slices.iter_mut().zip(&self.output).map(|(slice, piece)| *slice = IoSlice::new(piece)).count();
        let written = Pin::new(&mut *self.stream).poll_write_vectored(cx, slices.get(..used).unwrap_or_default());
        match written {
            Poll::Pending => return false,
            Poll::Ready(Ok(written)) if written > 0 => self.written(written),
            // The reason that the server sent may still be readable.
            Poll::Ready(_) => {
                self.output.clear();
                self.is_broken = true;
            }
        }
        true
    }

    /// Returns the total output so far, written or not. Bytes.
    pub(crate) fn said_bytes(&self) -> u64 {
        self.taken_bytes + self.client.output_bytes() as u64
    }

    /// Returns how much of it the stream has accepted. Bytes.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    fn written(&mut self, mut bytes: usize) {
        self.written_bytes += bytes as u64;
        while let Some(front) = self.output.front_mut() {
            let part = bytes.min(front.len());
            front.advance(part);
            bytes -= part;
            if !front.is_empty() {
                return;
            }
            self.output.pop_front();
        }
    }

    /// Time until the next deadline. Milliseconds.
    pub(crate) fn wait_ms(&self) -> Option<u64> {
        Some(self.client.next_deadline_ms()?.saturating_sub(self.now_ms()))
    }

    /// Handles deadlines that have passed.
    pub(crate) fn on_deadline(&mut self) -> Result<(), Failure> {
        self.client.on_deadline(self.now_ms());
        self.client.end().map_or(Ok(()), |end| Err(end.into()))
    }

    /// Waits for progress.
    async fn step(&mut self) -> Result<(), Failure> {
        let wait = self.wait_ms().map_or(PATIENCE, Duration::from_millis);
        match tokio::time::timeout(wait, poll_fn(|cx| self.poll_io(cx))).await {
            Ok(moved) => moved,
            Err(_) => self.on_deadline(),
        }
    }

    /// Keeps the connection alive by heartbeats until it fails; returns the error.
    pub(crate) async fn idle(&mut self) -> Failure {
        loop {
            if let Err(why) = self.step().await {
                return why;
            }
        }
    }

    async fn open_channel(&mut self, number: u16) -> Result<(), Failure> {
        self.client.open_channel(number).map_err(|_| Failure::Other("cannot open a channel".to_owned()))?;
        self.answer(number).await.map(drop)
    }

    /// Sends a request on a channel and waits for its reply.
    pub(crate) async fn ask(&mut self, number: u16, method: impl Into<Method>) -> Result<Method, Failure> {
        self.client.ask(number, method).map_err(|_| Failure::Other("the channel cannot be used".to_owned()))?;
        self.answer(number).await
    }

    async fn answer(&mut self, number: u16) -> Result<Method, Failure> {
        let answer = async {
            loop {
                match self.client.poll_event() {
                    None => self.step().await?,
                    Some(ClientEvent::Reply(of, method)) if of == number => return Ok(method),
                    Some(ClientEvent::ChannelClosed { code, text, .. }) => {
                        return Err(Failure::Channel(code, text.to_string()));
                    }
                    // Flow is checked before each publish; none is in flight before the last reply.
                    Some(_) => {}
                }
            }
        };
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::Other("the server does not answer".to_owned())),
        }
    }

    /// Sends a request on a separate channel, which the server closes if the reply is an error.
    pub(crate) async fn ask_aside(&mut self, method: impl Into<Method>) -> Result<Method, Failure> {
        self.open_channel(ASKING).await?;
        let answer = self.ask(ASKING, method).await?;
        let close = polylogue_amqp::codec::ChannelClose { reply_code: 200, ..Default::default() };
        self.ask(ASKING, close).await?;
        Ok(answer)
    }

    /// Flushes pending output and closes the connection, within the timeout.
    pub(crate) async fn part(mut self, patience: Duration) {
        let now_ms = self.now_ms();
        self.client.close(now_ms);
        let parting = async {
            loop {
                while self.client.poll_event().is_some() {}
                if poll_fn(|cx| self.poll_io(cx)).await.is_err() {
                    break;
                }
            }
            while !self.output.is_empty() || self.client.output_bytes() > 0 {
                let now_ms = self.now_ms();
                if !poll_fn(|cx| Poll::Ready(self.poll_write(cx, now_ms))).await {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(patience, parting).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use polylogue_amqp::codec::{ConnectionOpenOk, ConnectionStart, ConnectionTune, encode_heartbeat, encode_method};
    use polylogue_net::testing::FakeBroker;
    use std::task::Waker;
    use tokio::io::ReadBuf;

    /// A server that always has more to send, and records what it received.
    struct Talker {
        says: Bytes,
        heard: Arc<Mutex<Vec<u8>>>,
    }

    impl AsyncRead for Talker {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
            let mut sign = BytesMut::new();
            encode_heartbeat(&mut sign);
            let says = std::mem::replace(&mut self.says, sign.freeze());
            to.put_slice(&says);
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Talker {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, from: &[u8]) -> Poll<std::io::Result<usize>> {
            self.heard.lock().extend_from_slice(from);
            Poll::Ready(Ok(from.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn a_server_that_never_pauses_hears_that_the_shovel_lives() {
        let fake = FakeBroker::new(|_| None);
        let broker: Arc<dyn BrokerHandle> = fake.clone();
        let mut says = BytesMut::new();
        let start = ConnectionStart { version_minor: 9, mechanisms: "PLAIN".into(), ..Default::default() };
        encode_method(&mut says, 0, &start.into());
        encode_method(&mut says, 0, &ConnectionTune { channel_max: 3, frame_max: 4_096, heartbeat: 60 }.into());
        encode_method(&mut says, 0, &ConnectionOpenOk::default().into());
        let heard: Arc<Mutex<Vec<u8>>> = Arc::default();
        let talker = Talker { says: says.freeze(), heard: heard.clone() };
        let settings = ClientSettings { heartbeat_seconds: 60, ..ClientSettings::default() };
        let mut link = Link::new(&broker, settings, Box::new(talker), AmqpUri::here(&"/".into()));
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(link.poll_io(&mut cx), Poll::Ready(Ok(())));
        assert!(link.client.is_open());
        heard.lock().clear();
        for round in 0..10 {
            fake.advance_ms(31_000);
            // The heartbeat is queued in the first turn and written in the second.
            assert_eq!([link.poll_io(&mut cx), link.poll_io(&mut cx)], [Poll::Ready(Ok(())), Poll::Ready(Ok(()))]);
            assert_eq!(heard.lock().len(), 8 * (round + 1), "a heartbeat for each half interval");
        }
    }
}
