//! Accepting connections, and closing all of them.

use super::admission::Lanes;
use super::answers::AnswerGauge;
use super::connection::{Cause, Connection};
use super::gate::{Gate, Place};
use super::link::Link;
use super::mailbox::{Mail, Mailbox};
use super::metrics::NetMetrics;
use super::output::OutputGauge;
use super::protocol::{ClientInfo, Protocol};
use super::tls::Tls;
use super::workers::Workers;
use crate::handle::BrokerHandle;
use crate::memory::Memory;
use parking_lot::Mutex;
use polylogue_env::set_unsent_low_water;
use polylogue_types::{Map, TimestampMs};
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

/// Pause of accepting after an error that would repeat (no file descriptor is left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// State shared by all connections.
#[derive(Debug)]
pub struct Shared {
    /// The broker.
    pub broker: Arc<dyn BrokerHandle>,
    /// Memory for requests.
    pub lanes: Lanes,
    /// Memory of responses.
    pub output: OutputGauge,
    /// The part of it for long responses.
    pub answers: AnswerGauge,
    /// How long a client may receive nothing of a response. Milliseconds.
    pub write_stall_ms_max: u64,
    /// Memory usage of the process.
    pub memory: Memory,
    /// Threads for long turns.
    pub workers: Workers,
    /// Counters.
    pub metrics: NetMetrics,
    /// The open connections.
    pub connections: Connections,
}

/// The open connections, for listing and closing them.
#[derive(Debug, Default)]
pub struct Connections {
    open: Mutex<Open>,
    all_gone: Notify,
}

/// The entry of a connection.
#[derive(Debug)]
struct Entry {
    mailbox: Weak<Mailbox>,
    visitor: Arc<Visitor>,
}

/// The public record of a connection.
#[derive(Debug)]
pub struct Visitor {
    /// Unique for the life of the process.
    pub id: u64,
    /// The protocol.
    pub protocol: &'static str,
    /// Whether it uses TLS.
    pub tls: bool,
    /// The local address.
    pub local: SocketAddr,
    /// The client's address.
    pub peer: SocketAddr,
    /// When it was accepted. Wall time.
    pub since_ms: TimestampMs,
    /// The client's identity, once known.
    pub client_info: OnceLock<ClientInfo>,
    /// Traffic counters.
    pub wire: Wire,
}

/// Traffic counters of a connection, updated by the task that serves it.
#[derive(Debug, Default)]
pub struct Wire {
    received_bytes: AtomicU64,
    reads: AtomicU64,
    sent_bytes: AtomicU64,
    writes: AtomicU64,
    waiting_bytes: AtomicU64,
}

/// A snapshot of [`Wire`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WireCounts {
    /// Bytes received.
    pub received_bytes: u64,
    /// Number of reads.
    pub reads: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Number of writes.
    pub writes: u64,
    /// Bytes that waited to be sent at the last write.
    pub waiting_bytes: u64,
}

impl Wire {
    /// Counts received bytes.
    pub(crate) fn received(&self, bytes: u64) {
        add(&self.received_bytes, bytes);
        add(&self.reads, 1);
    }

    /// Counts sent bytes, and stores the number of waiting ones.
    pub(crate) fn sent(&self, bytes: u64, waiting: u64) {
        add(&self.sent_bytes, bytes);
        add(&self.writes, 1);
        self.waiting_bytes.store(waiting, Ordering::Relaxed);
    }

    /// Returns the current values.
    #[must_use]
    pub fn counts(&self) -> WireCounts {
        WireCounts {
            received_bytes: self.received_bytes.load(Ordering::Relaxed),
            reads: self.reads.load(Ordering::Relaxed),
            sent_bytes: self.sent_bytes.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            waiting_bytes: self.waiting_bytes.load(Ordering::Relaxed),
        }
    }
}

/// Only one task writes, so that an atomic read-modify-write is not needed.
fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

impl Visitor {
    /// Creates the record of a new connection between `local` and `peer`.
    pub fn new(
        id: u64,
        protocol: &'static str,
        tls: bool,
        (local, peer): (SocketAddr, SocketAddr),
        since_ms: TimestampMs,
    ) -> Arc<Visitor> {
        Arc::new(Visitor {
            id,
            protocol,
            tls,
            local,
            peer,
            since_ms,
            client_info: OnceLock::new(),
            wire: Wire::default(),
        })
    }
}

#[derive(Debug, Default)]
struct Open {
    all: Map<u64, Entry>,
    /// Whether new connections are closed at once.
    stopping: bool,
}

impl Connections {
    /// Number of open connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open.lock().all.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all connections, by id.
    #[must_use]
    pub fn visitors(&self) -> Vec<Arc<Visitor>> {
        let mut all: Vec<_> = self.open.lock().all.values().map(|entry| entry.visitor.clone()).collect();
        all.sort_unstable_by_key(|visitor| visitor.id);
        all
    }

    /// Returns a connection.
    #[must_use]
    pub fn visitor(&self, id: u64) -> Option<Arc<Visitor>> {
        self.open.lock().all.get(&id).map(|entry| entry.visitor.clone())
    }

    pub fn add(&self, visitor: Arc<Visitor>, mailbox: &Arc<Mailbox>) {
        let mut open = self.open.lock();
        open.all.insert(visitor.id, Entry { mailbox: Arc::downgrade(mailbox), visitor });
        if open.stopping {
            mailbox.put(Mail::Stop);
        }
    }

    pub fn remove(&self, id: u64) {
        let mut open = self.open.lock();
        open.all.remove(&id);
        if open.all.is_empty() {
            self.all_gone.notify_waiters();
        }
    }

    /// Closes a connection, with a reason. Returns whether it existed.
    pub fn end(&self, id: u64, why: &str) -> bool {
        let mailbox = self.open.lock().all.get(&id).and_then(|entry| entry.mailbox.upgrade());
        if let Some(mailbox) = &mailbox {
            mailbox.put(Mail::End(why.to_owned()));
        }
        mailbox.is_some()
    }

    /// Closes the connections of a deleted user, except those listed in the AMQP directory.
    pub fn user_gone(&self, name: &str) {
        let name: Arc<str> = name.into();
        for mailbox in self.open.lock().all.values().filter_map(|entry| entry.mailbox.upgrade()) {
            mailbox.put(Mail::UserGone(name.clone()));
        }
    }

    /// Notifies all connections that the resource alarm was raised or cleared.
    pub fn alarm(&self) {
        for mailbox in self.open.lock().all.values().filter_map(|entry| entry.mailbox.upgrade()) {
            mailbox.put(Mail::Alarm);
        }
    }

    /// Has all connections finish requests in progress and close; returns when they have.
    pub async fn stop(&self) {
        let gone = self.all_gone.notified();
        tokio::pin!(gone);
        gone.as_mut().enable();
        {
            let mut open = self.open.lock();
            open.stopping = true;
            for mailbox in open.all.values().filter_map(|entry| entry.mailbox.upgrade()) {
                mailbox.put(Mail::Stop);
            }
        }
        if !self.is_empty() {
            gone.await;
        }
    }
}

/// Creates the sessions of a listener.
pub trait Accept: Send + Sync + fmt::Debug + 'static {
    /// The session type.
    type Session: Protocol;

    /// The protocol's name, for metrics and logs.
    fn name(&self) -> &'static str;

    /// Returns how many bytes the system may buffer for a slow client; `None` for the system's default.
    fn unsent_bytes_max(&self) -> Option<u32> {
        None
    }

    /// Creates the session of a new connection. `id` is unique for the life of the process; `certified` is the name in the client's certificate.
    fn session(&self, id: u64, local: SocketAddr, peer: SocketAddr, certified: Option<&str>) -> Self::Session;
}

/// Returns when `stop` is true or its sender is dropped.
pub async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Accepts until `stop` is true.
pub async fn accept_loop<A: Accept>(
    listener: TcpListener,
    accept: Arc<A>,
    gate: Gate,
    tls: Option<Arc<Tls>>,
    shared: Arc<Shared>,
    mut stop: watch::Receiver<bool>,
) {
    let mut failing = false;
    loop {
        let accepted = tokio::select! {
            biased;
            () = stopped(&mut stop) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                failing = false;
                start(stream, peer, &accept, &gate, tls.as_ref(), &shared);
            }
            Err(error) => pause(&error, accept.name(), &mut failing).await,
        }
    }
}

/// Pauses after an error that would repeat; logs it once.
pub async fn pause(error: &std::io::Error, protocol: &str, failing: &mut bool) {
    if !*failing {
        tracing::warn!(%error, protocol, "cannot accept connections");
        *failing = true;
    }
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// Starts the task of a connection, or refuses it by closing.
fn start<A: Accept>(
    stream: TcpStream,
    peer: SocketAddr,
    accept: &Arc<A>,
    gate: &Gate,
    tls: Option<&Arc<Tls>>,
    shared: &Arc<Shared>,
) {
    let name = accept.name();
    let place = match gate.enter(peer.ip()) {
        Ok(place) => place,
        Err(refusal) => {
            shared.metrics.refused(name, refusal.name());
            tracing::debug!(%peer, protocol = name, cause = refusal.name(), "connection refused");
            return;
        }
    };
    let Ok(local) = stream.local_addr() else { return };
    // Responses are sent at once, without waiting for more data.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    if let Some(bytes) = accept.unsent_bytes_max() {
        // Without support in the system, its default applies.
        let _ = set_unsent_low_water(stream.as_fd(), bytes);
    }
    let ends = (local, peer);
    let Some(tls) = tls.cloned() else { return open((Link::plain(stream), None), ends, place, accept, shared) };
    let (accept, shared) = (accept.clone(), shared.clone());
    tokio::spawn(async move {
        match tls.link(stream).await {
            Ok(link) => open(link, ends, place, &accept, &shared),
            Err(error) => tracing::debug!(%peer, protocol = name, %error, "a TLS handshake failed"),
        }
    });
}

/// Starts the task of a connection whose transport is ready.
fn open<A: Accept>(
    (link, certified): (Link, Option<String>),
    (local, peer): (SocketAddr, SocketAddr),
    place: Place,
    accept: &Arc<A>,
    shared: &Arc<Shared>,
) {
    let name = accept.name();
    let id = shared.broker.new_session();
    let session = accept.session(id.0, local, peer, certified.as_deref());
    let mailbox = Arc::new(Mailbox::default());
    let visitor = Visitor::new(id.0, name, link.is_secured(), (local, peer), shared.broker.now().wall_ms);
    shared.connections.add(visitor.clone(), &mailbox);
    let metrics = shared.metrics.open(name);
    // Boxed from the start: a task that held it by value would have space for it at every await that passes it on.
    let connection = Box::new(Connection::new(link, session, id, shared.clone(), mailbox, metrics).known_as(visitor));
    let guard = Guard { id: id.0, shared: shared.clone(), _place: place };
    tokio::spawn(async move {
        let cause = connection.run().await;
        // Counted in the metrics as well; a log line at a higher level would let clients fill the disk.
        let reason = if let Cause::Session(reason) = &cause { reason.as_str() } else { "" };
        tracing::debug!(%peer, protocol = name, cause = cause.name(), reason, "connection ended");
        drop(guard);
    });
}

/// Removes a connection's entry when its task ends, in any way.
struct Guard {
    id: u64,
    shared: Arc<Shared>,
    _place: Place,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.shared.connections.remove(self.id);
    }
}
