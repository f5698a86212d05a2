//! Accepting connections, and ending them all.

use super::admission::Lanes;
use super::answers::AnswerGauge;
use super::connection::{Cause, Connection};
use super::gate::{Gate, Place};
use super::link::Link;
use super::mailbox::{Mail, Mailbox};
use super::metrics::NetMetrics;
use super::output::OutputGauge;
use super::protocol::{About, Protocol};
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

/// After an error that more connections would meet too (no descriptor is left), nothing is accepted for this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What all connections share.
#[derive(Debug)]
pub struct Shared {
    /// The broker.
    pub broker: Arc<dyn BrokerHandle>,
    /// Memory for requests.
    pub lanes: Lanes,
    /// Memory of responses.
    pub output: OutputGauge,
    /// Of that, memory of answers that may be long.
    pub answers: AnswerGauge,
    /// How long a client may take nothing of a response. Milliseconds.
    pub write_stall_ms_max: u64,
    /// What the process takes of the machine's memory.
    pub memory: Memory,
    /// Threads for turns that are too long for others to wait for.
    pub workers: Workers,
    /// Counters.
    pub metrics: NetMetrics,
    /// Those that are open.
    pub connections: Connections,
}

/// The connections that are open, so that they can be ended.
#[derive(Debug, Default)]
pub struct Connections {
    open: Mutex<Open>,
    all_gone: Notify,
}

/// One of them in the books.
#[derive(Debug)]
struct Entry {
    mailbox: Weak<Mailbox>,
    visitor: Arc<Visitor>,
}

/// A connection, for those who look at all of them.
#[derive(Debug)]
pub struct Visitor {
    /// Its own for the life of the process.
    pub id: u64,
    /// What is spoken.
    pub protocol: &'static str,
    /// Whether over TLS.
    pub tls: bool,
    /// Where it arrived.
    pub local: SocketAddr,
    /// Where it comes from.
    pub peer: SocketAddr,
    /// Since when. Wall time.
    pub since_ms: TimestampMs,
    /// Who the client is, once that is known.
    pub about: OnceLock<About>,
    /// What went over it.
    pub wire: Wire,
}

/// What went over a connection, as it is counted by the one task that serves it.
#[derive(Debug, Default)]
pub struct Wire {
    received_bytes: AtomicU64,
    reads: AtomicU64,
    sent_bytes: AtomicU64,
    writes: AtomicU64,
    waiting_bytes: AtomicU64,
}

/// What [`Wire`] has counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WireCounts {
    /// Bytes that came.
    pub received_bytes: u64,
    /// In how many pieces.
    pub reads: u64,
    /// Bytes that were sent.
    pub sent_bytes: u64,
    /// In how many pieces.
    pub writes: u64,
    /// Bytes that waited to be sent when the last ones were.
    pub waiting_bytes: u64,
}

impl Wire {
    /// So many bytes came.
    pub(crate) fn received(&self, bytes: u64) {
        add(&self.received_bytes, bytes);
        add(&self.reads, 1);
    }

    /// So many bytes were sent, and so many wait.
    pub(crate) fn sent(&self, bytes: u64, waiting: u64) {
        add(&self.sent_bytes, bytes);
        add(&self.writes, 1);
        self.waiting_bytes.store(waiting, Ordering::Relaxed);
    }

    /// What is counted now.
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

/// One task alone writes, so that nothing has to be locked.
fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

impl Visitor {
    /// One of whose client nothing is known yet, between `local` and `peer`.
    pub fn new(
        id: u64,
        protocol: &'static str,
        tls: bool,
        (local, peer): (SocketAddr, SocketAddr),
        since_ms: TimestampMs,
    ) -> Arc<Visitor> {
        Arc::new(Visitor { id, protocol, tls, local, peer, since_ms, about: OnceLock::new(), wire: Wire::default() })
    }
}

#[derive(Debug, Default)]
struct Open {
    all: Map<u64, Entry>,
    /// A connection that comes now is ended immediately.
    stopping: bool,
}

impl Connections {
    /// How many are open.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open.lock().all.len()
    }

    /// Whether none is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them, by id.
    #[must_use]
    pub fn visitors(&self) -> Vec<Arc<Visitor>> {
        let mut all: Vec<_> = self.open.lock().all.values().map(|entry| entry.visitor.clone()).collect();
        all.sort_unstable_by_key(|visitor| visitor.id);
        all
    }

    /// One of them.
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

    /// Ends one, for this reason. Whether it was there.
    pub fn end(&self, id: u64, why: &str) -> bool {
        let mailbox = self.open.lock().all.get(&id).and_then(|entry| entry.mailbox.upgrade());
        if let Some(mailbox) = &mailbox {
            mailbox.put(Mail::End(why.to_owned()));
        }
        mailbox.is_some()
    }

    /// Ends the connections of a user that is no more, but those that the broker's books of clients name.
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

    /// Tells all connections to finish what is in work and to close; ends when they have.
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

/// How a listener makes sessions.
pub trait Accept: Send + Sync + fmt::Debug + 'static {
    /// What it makes.
    type Session: Protocol;

    /// The protocol's name, for metrics and logs.
    fn name(&self) -> &'static str;

    /// How many bytes the system keeps for a client that takes less than it is sent; `None` for as many as it likes.
    fn unsent_bytes_max(&self) -> Option<u32> {
        None
    }

    /// A session for a new connection. `id` is its own for the life of the process; `certified` is who the client is by its certificate.
    fn session(&self, id: u64, local: SocketAddr, peer: SocketAddr, certified: Option<&str>) -> Self::Session;
}

/// Ends when `stop` says true, or when its sender is dropped.
pub async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Accepts until `stop` says true.
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

/// After an error that more connections would meet too: says so once, and gives the system a moment.
pub async fn pause(error: &std::io::Error, protocol: &str, failing: &mut bool) {
    if !*failing {
        tracing::warn!(%error, protocol, "cannot accept connections");
        *failing = true;
    }
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// Starts the task of a connection, or turns it away by closing it.
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
    // A request is answered when it is done, not when more has come together.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    if let Some(bytes) = accept.unsent_bytes_max() {
        // Where the system knows no such thing, it keeps as much as it likes.
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

/// Starts the task of a connection over which the protocol can be spoken.
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
    // In one place from the start: a task that held it by value would have room for it wherever it is handed on.
    let connection = Box::new(Connection::new(link, session, id, shared.clone(), mailbox, metrics).known_as(visitor));
    let guard = Guard { id: id.0, shared: shared.clone(), _place: place };
    tokio::spawn(async move {
        let cause = connection.run().await;
        // Counted in the metrics as well; a line for each would let clients fill the disk.
        let reason = if let Cause::Session(reason) = &cause { reason.as_str() } else { "" };
        tracing::debug!(%peer, protocol = name, cause = cause.name(), reason, "connection ended");
        drop(guard);
    });
}

/// A connection's entry in the books, taken out when its task ends, however it ends.
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
