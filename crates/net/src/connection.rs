//! The task of one connection.

use super::admission::Held;
use super::ahead::Fetch;
use super::answers::Answers;
use super::input::{Input, Read};
use super::link::Link;
use super::listener::{Shared, Visitor};
use super::mailbox::{Mail, Mailbox};
use super::metrics::ConnectionMetrics;
use super::output::{KEPT_CHUNKS, Output, Written};
use super::protocol::Protocol;
use super::reads::Reads;
use super::workers::WorkOwner;
use crate::handle::{ReplySink, SessionId};
use polylogue_api::{Now, Request, Token};
use polylogue_types::{Chunk, STEPS_PER_TURN, STEPS_PER_WORKER_TURN, Unfinished};
use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// Under memory pressure, a client that reads nothing of its response for this long is disconnected. Milliseconds.
const PRESSURE_STALL_MS: u64 = 1_000;
/// Interval at which a connection over its share checks whether it must be closed. Milliseconds.
const PRESSURE_CHECK_MS: u64 = 1_000;
/// Retry interval of deferred reads and of responses that wait for memory. Milliseconds.
const DEFERRED_CHECK_MS: u64 = 20;
/// How long a connection closed by the server is drained. Milliseconds.
const LINGER_MS: u64 = 500;
/// The most input read and dropped while draining. KiB.
const LINGER_READS_MAX: usize = 256;
/// Idle time after which a connection releases unused memory. Milliseconds.
const REST_AFTER_MS: u64 = 5_000;
/// A connection that runs this long without waiting yields: while a peer always has more data, its task would otherwise
/// never wait, and the thread would serve no other socket. Milliseconds.
const TURN_MS: u64 = 1;
/// A timer without a waiter. Milliseconds.
const FAR_MS: u64 = 24 * 3_600_000;

/// Why a connection ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    /// The peer closed it.
    Peer,
    /// The session closed it, for this reason.
    Session(String),
    /// The peer read nothing of a response for too long.
    Stalled,
    /// The peer sent a request too slowly while others waited for memory.
    TooSlow,
    /// The peer read its responses too slowly while others waited for memory.
    SlowReader,
    /// Waiting requests held memory that others needed.
    Held,
    /// The server stops.
    Stop,
    /// An error of the socket.
    Io(io::ErrorKind),
}

impl Cause {
    /// Returns its label in metrics.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Cause::Peer => "peer",
            Cause::Session(_) => "protocol",
            Cause::Stalled => "stalled",
            Cause::TooSlow => "too_slow",
            Cause::SlowReader => "slow_reader",
            Cause::Held => "held_memory",
            Cause::Stop => "stop",
            Cause::Io(_) => "io",
        }
    }
}

/// A connection.
pub(super) struct Connection<P: Protocol> {
    link: Link,
    session: P,
    id: SessionId,
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    sink: Arc<dyn ReplySink>,
    mail: VecDeque<Mail>,
    input: Input,
    /// Permits of the frames in the session, oldest first.
    permits: VecDeque<Held>,
    reads: Reads,
    answers: Answers,
    /// Chunks just taken from the session; kept for its allocation.
    taken: Vec<Chunk>,
    output: Output,
    /// When the peer last received something. Monotonic milliseconds.
    progress_ms: u64,
    /// A read that waits until earlier responses have been received, and the requests after it.
    deferred: VecDeque<(Token, Request)>,
    /// That read, once it was counted in the metrics.
    held_back: Option<Token>,
    /// Whether anything arrived since the last turn.
    stirred: bool,
    /// When something last arrived; `None` once unused memory was released. Monotonic milliseconds.
    busy_ms: Option<u64>,
    /// When the task last got its thread; `None` after it has yielded. Monotonic milliseconds.
    turn_since_ms: Option<u64>,
    /// Whether it ends when requests in progress have ended.
    stopping: bool,
    /// Whether the server is stopping, which is then the reason for the session's end.
    server_stops: bool,
    metrics: ConnectionMetrics,
    /// The public record of the connection.
    visitor: Option<Arc<Visitor>>,
    /// Whether the client's identity was published.
    is_known: bool,
}

/// What the task waits for.
struct Waits {
    to_read: bool,
    to_write: bool,
    /// Whether it yields with work left.
    to_yield: bool,
    deadline_ms: u64,
}

/// What woke the task.
enum Woken {
    Mail,
    Writable(io::Result<()>),
    Readable(io::Result<()>),
    Timer,
}

impl<P: Protocol> Connection<P> {
    pub(super) fn new(
        link: Link,
        session: P,
        id: SessionId,
        shared: Arc<Shared>,
        mailbox: Arc<Mailbox>,
        metrics: ConnectionMetrics,
    ) -> Connection<P> {
        let sink: Arc<dyn ReplySink> = mailbox.clone();
        let output = Output::new(shared.output.clone());
        let reads = Reads::new(shared.output.clone());
        let answers = Answers::new(shared.answers.clone());
        let progress_ms = shared.broker.now().monotonic_ms;
        let input = Input::new(shared.lanes.account(Ipv4Addr::UNSPECIFIED.into()));
        Connection {
            link,
            session,
            id,
            shared,
            mailbox,
            sink,
            mail: VecDeque::new(),
            input,
            permits: VecDeque::new(),
            reads,
            answers,
            taken: Vec::new(),
            output,
            progress_ms,
            deferred: VecDeque::new(),
            held_back: None,
            stirred: true,
            busy_ms: None,
            turn_since_ms: None,
            stopping: false,
            server_stops: false,
            metrics,
            visitor: None,
            is_known: false,
        }
    }

    /// Adds the connection's public record, with its traffic counters and the client's identity once known.
    pub(super) fn known_as(self, visitor: Arc<Visitor>) -> Connection<P> {
        let visitor_ip = visitor.peer.ip();
        let mut known = Connection { visitor: Some(visitor), ..self };
        known.input.count_for(known.shared.lanes.account(visitor_ip));
        known
    }

    /// Serves the connection until it ends.
    pub(super) async fn run(self: Box<Self>) -> Cause {
        let (mut this, cause) = self.serve().await;
        if let Some((token, request)) = this.session.on_closed() {
            this.shared.broker.submit(&this.sink, this.id, token, request);
        }
        this.shared.broker.session_gone(this.id);
        if matches!(cause, Cause::Session(_) | Cause::Stop) {
            this.permits.clear();
            linger(&mut this.link).await;
        }
        this.metrics.close(cause.name());
        cause
    }

    async fn serve(mut self: Box<Self>) -> (Box<Self>, Cause) {
        let timer = tokio::time::sleep(Duration::from_millis(FAR_MS));
        tokio::pin!(timer);
        let mut armed_ms = u64::MAX;
        let mut long = false;
        loop {
            let turn;
            match long {
                true => (self, turn) = self.long_turn().await,
                false => turn = self.timed_turn(STEPS_PER_TURN),
            }
            let waits = match turn {
                Ok(waits) => waits,
                Err(cause) => return (self, cause),
            };
            self.input.release_buffers();
            long = self.session.unfinished() == Some(Unfinished::Worker);
            if long || waits.to_yield {
                self.turn_since_ms = None;
                if !long {
                    tokio::task::yield_now().await;
                }
                continue;
            }
            // A timer that fires early costs a check; resetting it at each request would cost more.
            if waits.deadline_ms < armed_ms {
                armed_ms = waits.deadline_ms;
                let in_ms = armed_ms.saturating_sub(self.shared.broker.now().monotonic_ms).min(FAR_MS);
                timer.as_mut().reset(Instant::now() + Duration::from_millis(in_ms));
            }
            if waits.to_read {
                self.link.expect(self.input.missing());
            }
            match self.wait(&waits, timer.as_mut()).await {
                Woken::Mail => self.stirred = true,
                Woken::Writable(Ok(())) => {}
                Woken::Readable(Ok(())) => {
                    self.stirred = true;
                    if let Err(cause) = self.read() {
                        return (self, cause);
                    }
                }
                Woken::Writable(Err(e)) | Woken::Readable(Err(e)) => return (self, Cause::Io(e.kind())),
                Woken::Timer => {
                    // A timer that has fired is ready at each poll.
                    timer.as_mut().reset(Instant::now() + Duration::from_millis(FAR_MS));
                    armed_ms = u64::MAX;
                }
            }
        }
    }

    /// Runs a turn on a worker thread, after those of users with less long work.
    async fn long_turn(mut self: Box<Self>) -> (Box<Self>, Result<Waits, Cause>) {
        let shared = self.shared.clone();
        let (owner, kind) = (self.work_owner(), self.session.unfinished_kind());
        let turn = move || {
            let turn = self.timed_turn(STEPS_PER_WORKER_TURN);
            (self, turn)
        };
        shared.workers.run(owner, kind, turn).await
    }

    /// Returns the owner of its long turns: the user, or the address of clients that have not logged in.
    fn work_owner(&self) -> WorkOwner {
        let address = || self.visitor.as_ref().map(|visitor| visitor.peer.ip().to_canonical().to_string());
        match self.session.work_owner() {
            Some(user) => user.into(),
            // Logins are short, and do not wait for other work of their address.
            None if self.session.is_logging_in() => format!("login {}", address().unwrap_or_default()).into(),
            None => address().unwrap_or_default().into(),
        }
    }

    /// Waits for the first of these events.
    async fn wait(&mut self, waits: &Waits, timer: Pin<&mut Sleep>) -> Woken {
        let (mailbox, link, turn_since_ms) = (&self.mailbox, &self.link, &mut self.turn_since_ms);
        let wait = async {
            tokio::select! {
                biased;
                () = mailbox.arrived() => Woken::Mail,
                ready = link.writable(), if waits.to_write => Woken::Writable(ready),
                ready = link.readable(), if waits.to_read => Woken::Readable(ready),
                () = timer => Woken::Timer,
            }
        };
        tokio::pin!(wait);
        std::future::poll_fn(|context| {
            let polled = wait.as_mut().poll(context);
            if polled.is_pending() {
                *turn_since_ms = None;
            }
            polled
        })
        .await
    }

    /// Runs a turn, and charges its time to the client if the session counts time.
    fn timed_turn(&mut self, steps_max: u64) -> Result<Waits, Cause> {
        let began = Instant::now();
        let turn = self.turn(steps_max);
        let ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if steps_max == STEPS_PER_TURN {
            self.metrics.on_turn(self.session.steps_used(), ns);
        }
        let mut waits = turn?;
        if self.session.counts_time() {
            let now = self.shared.broker.now();
            self.session.charge_time(ns, now);
            // A deadline may change whether input is wanted.
            waits.to_read &= self.session.wants_input(now);
            waits.deadline_ms =
                self.session.next_deadline_ms(now).map_or(waits.deadline_ms, |ms| ms.min(waits.deadline_ms));
        }
        Ok(waits)
    }

    /// Does everything possible without waiting.
    fn turn(&mut self, steps_max: u64) -> Result<Waits, Cause> {
        let now = self.shared.broker.now();
        self.turn_since_ms.get_or_insert(now.monotonic_ms);
        self.session.begin_turn(steps_max, now);
        self.open_mail(now);
        if self.session.next_deadline_ms(now).is_some_and(|deadline| deadline <= now.monotonic_ms) {
            self.session.on_deadline(now);
        }
        let mut written = Written::All;
        loop {
            if !self.stopping {
                let before = self.permits.len();
                self.input.feed(&mut self.session, &mut self.permits, &self.shared.lanes, &self.mailbox, now);
                self.metrics.frames.inc_by((self.permits.len() - before) as u64);
                self.metrics.requests_held_back.inc_by(self.input.take_waits_for_share());
            }
            self.make_room(now);
            self.submit();
            self.open_mail(now);
            if !self.output.is_empty() {
                written = self.write(now)?;
                self.fetch();
            }
            self.shrink_permits();
            if !self.output.is_empty() || !(self.take_output(now) || self.goes_on()) {
                break;
            }
        }
        self.flush(now)?;
        self.check(now)?;
        self.introduce();
        if std::mem::take(&mut self.stirred) {
            self.busy_ms = Some(now.monotonic_ms);
        } else if self.busy_ms.is_some_and(|since_ms| since_ms.saturating_add(REST_AFTER_MS) <= now.monotonic_ms) {
            self.release_buffers();
        }
        Ok(self.waits(written, now))
    }

    /// Shrinks the permits of waiting requests to the memory that they hold, whether they are the oldest or not.
    fn shrink_permits(&mut self) {
        for (at, held) in self.permits.iter_mut().enumerate().filter(|(_, held)| !held.is_payload()) {
            held.on_read(self.session.waiting_bytes(at));
        }
    }

    /// Whether a request that waited for earlier ones of the connection can be received now.
    fn goes_on(&self) -> bool {
        !self.stopping && self.input.goes_on(&self.session, &self.permits, &self.shared.lanes)
    }

    /// Publishes the client's identity once it is known.
    fn introduce(&mut self) {
        if let (Some(visitor), false) = (&self.visitor, self.is_known)
            && let Some(about) = self.session.client_info()
        {
            // No other code logs it.
            let _ = visitor.client_info.set(about);
            self.is_known = true;
        }
    }

    /// Releases buffers after a period without input: many connections are idle for long.
    fn release_buffers(&mut self) {
        self.busy_ms = None;
        self.session.release_buffers();
        self.mailbox.release_buffers();
        self.output.release_buffers();
        self.mail.shrink_to_fit();
        self.permits.shrink_to_fit();
        self.taken.shrink_to_fit();
        self.deferred.shrink_to_fit();
    }

    /// Returns the reason if the connection must be closed.
    fn check(&self, now: Now) -> Result<(), Cause> {
        if self.is_written() {
            if let Some(reason) = self.session.close_reason() {
                return Err(if self.server_stops { Cause::Stop } else { Cause::Session(reason) });
            }
            if self.stopping && self.session.inflight() == 0 {
                return Err(Cause::Stop);
            }
        } else {
            let Shared { output: gauge, lanes, .. } = &*self.shared;
            // Time spent waiting for the disk is not the client's fault.
            let since_ms = if self.output.waits_for_disk() { now.monotonic_ms } else { self.progress_ms };
            let stalled_ms = now.monotonic_ms.saturating_sub(since_ms);
            let pressed = stalled_ms >= PRESSURE_STALL_MS && (gauge.is_high() || self.answers.is_in_the_way());
            if stalled_ms >= self.shared.write_stall_ms_max || pressed {
                return Err(Cause::Stalled);
            }
            let holds_up = || {
                let fills = gauge.is_full() && self.output.counted() > 0;
                fills
                    || self.answers.is_in_the_way()
                    || lanes.is_in_the_way(self.permits.iter().chain(self.output.held()))
            };
            if self.output.is_slow(now.monotonic_ms) && holds_up() {
                return Err(Cause::SlowReader);
            }
        }
        let long = self.permits.iter().filter(|held| held.waits_long(now.monotonic_ms));
        if self.shared.lanes.is_in_the_way(long) {
            return Err(Cause::Held);
        }
        if self.input.must_give_way(&self.shared.lanes, now) {
            return Err(Cause::TooSlow);
        }
        Ok(())
    }

    fn waits(&self, written: Written, now: Now) -> Waits {
        let now_ms = now.monotonic_ms;
        let mut deadline_ms = self.session.next_deadline_ms(now).unwrap_or(u64::MAX);
        if let Some(since_ms) = self.busy_ms {
            deadline_ms = deadline_ms.min(since_ms.saturating_add(REST_AFTER_MS));
        }
        if !self.is_written() {
            let stalled = self.progress_ms.saturating_add(self.shared.write_stall_ms_max);
            let stalled = if written == Written::Disk { u64::MAX } else { stalled };
            deadline_ms = deadline_ms.min(stalled).min(now_ms + PRESSURE_CHECK_MS);
        }
        let waits_for_long = || self.permits.iter().filter(|held| !held.is_payload());
        if self.input.is_arriving() || self.shared.lanes.is_over_share(waits_for_long()) {
            deadline_ms = deadline_ms.min(now_ms + PRESSURE_CHECK_MS);
        }
        if !self.deferred.is_empty() || self.answers.waits() {
            deadline_ms = deadline_ms.min(now_ms + DEFERRED_CHECK_MS);
        }
        Waits {
            to_read: !self.stopping && self.session.wants_input(now) && self.input.wants_bytes(),
            to_write: (!self.output.is_empty() && written != Written::Disk) || self.link.wants_write(),
            to_yield: written == Written::Turn
                || self.session.unfinished() == Some(Unfinished::Turn)
                || now_ms.saturating_sub(self.turn_since_ms.unwrap_or(now_ms)) >= TURN_MS,
            deadline_ms,
        }
    }

    fn open_mail(&mut self, now: Now) {
        self.mailbox.take(&mut self.mail);
        while let Some(mail) = self.mail.pop_front() {
            match mail {
                Mail::Reply(token, reply) => {
                    self.reads.on_reply(token, &reply);
                    self.session.on_reply(token, reply, now);
                }
                Mail::Event(event) => self.session.on_event(event, now),
                Mail::Permit(permit) => self.input.on_permit(permit, now),
                Mail::Fetched => {
                    if self.output.on_fetched(now.monotonic_ms) {
                        self.progress_ms = now.monotonic_ms;
                    }
                }
                Mail::Alarm => self.session.on_alarm(now),
                Mail::Stop => {
                    self.server_stops = true;
                    self.stopping |= !self.session.shut_down(now);
                }
                Mail::End(why) => {
                    if !self.session.end(&why, now) {
                        self.stopping = true;
                    }
                }
                Mail::UserGone(name) if self.session.is_user(&name) => self.stopping = true,
                Mail::UserGone(_) => {}
            }
        }
    }

    fn read(&mut self) -> Result<(), Cause> {
        match self.input.read(&mut self.link, &self.shared.lanes) {
            Ok(Read::Some(bytes)) => {
                self.metrics.received.inc_by(bytes as u64);
                if let Some(visitor) = &self.visitor {
                    visitor.wire.received(bytes as u64);
                }
                Ok(())
            }
            Ok(Read::Blocked) => Ok(()),
            Ok(Read::End) => Err(Cause::Peer),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(e) => Err(closed_or(&e)),
        }
    }

    /// Sends pending TLS data.
    fn flush(&mut self, now: Now) -> Result<(), Cause> {
        let flushed = self.link.flush();
        if self.output.set_pending(self.link.pending()) {
            self.progress_ms = now.monotonic_ms;
        }
        match flushed {
            Err(e) if !matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Err(closed_or(&e)),
            _ => Ok(()),
        }
    }

    /// Whether the peer has received everything.
    fn is_written(&self) -> bool {
        self.output.is_empty() && !self.link.wants_write()
    }

    /// Lets the session build a long response when there is memory for it and the previous one was received.
    fn make_room(&mut self, now: Now) {
        let Some(room) = self.session.wants_room() else { return self.answers.none_wanted() };
        let waited = self.answers.waits();
        if self.answers.try_ask(room) {
            self.session.on_room(now);
        } else if self.answers.waits() && !waited {
            self.metrics.answers_held_back.inc();
        }
    }

    /// Sends the session's requests to the broker. While many responses wait to be received, reads are limited, and those of a
    /// connection with unreceived responses wait.
    fn submit(&mut self) {
        while let Some(one) = self.session.poll_request() {
            self.deferred.push_back(one);
        }
        while let Some((token, mut request)) = self.deferred.pop_front() {
            match &mut request {
                Request::Read(read) => {
                    let own = self.output.counted() + self.reads.bytes();
                    let pending = self.output.counted() > 0 || self.reads.are_asked();
                    let Some(bytes_max) = self.shared.output.read_bytes(read.bytes_max, own, pending) else {
                        if self.held_back != Some(token) {
                            self.held_back = Some(token);
                            self.metrics.reads_held_back.inc();
                        }
                        self.deferred.push_front((token, request));
                        return;
                    };
                    read.bytes_max = bytes_max;
                    self.reads.on_asked(token, bytes_max as usize);
                }
                Request::Watch(_) => self.reads.on_let_go(),
                _ => {}
            }
            self.shared.broker.submit(&self.sink, self.id, token, request);
        }
    }

    /// Takes the next responses from the session. Returns whether that made progress possible.
    fn take_output(&mut self, now: Now) -> bool {
        if !self.session.poll_output(&mut self.taken) {
            return false;
        }
        let inflight = self.session.inflight();
        let ended = self.permits.len().saturating_sub(inflight);
        self.reads.on_taken(&self.taken, inflight > 0);
        self.answers.on_taken(&self.taken);
        self.output.push(&mut self.taken, self.permits.drain(..ended), now.monotonic_ms);
        self.taken.shrink_to(KEPT_CHUNKS);
        self.progress_ms = now.monotonic_ms;
        // Free slots in the session may let queued frames continue.
        self.session.on_bytes(&mut bytes::BytesMut::new(), now);
        true
    }

    /// Fetches the data to send next from disk, on a reader thread.
    fn fetch(&mut self) {
        let ranges = self.output.next_fetch();
        if ranges.is_empty() {
            return;
        }
        let fetch = Fetch::new(ranges, &self.mailbox);
        // If the job is refused, the fetch ends at once: the bytes are sent directly, blocking this thread.
        match self.shared.broker.run_reader(Box::new(move || fetch.run())) {
            true => self.metrics.fetches.inc(),
            false => self.metrics.fetches_refused.inc(),
        };
    }

    fn write(&mut self, now: Now) -> Result<Written, Cause> {
        let before = self.output.total();
        let written = self.output.write(&mut self.link, now.monotonic_ms).map_err(|e| {
            if e.kind() == io::ErrorKind::UnexpectedEof {
                tracing::error!(error = %e, "a response ends early");
            }
            closed_or(&e)
        })?;
        if written == Written::All {
            self.answers.on_written();
        }
        let bytes = self.output.total() - before;
        if bytes > 0 {
            self.progress_ms = now.monotonic_ms;
            self.metrics.sent.inc_by(bytes);
            if let Some(visitor) = &self.visitor {
                visitor.wire.sent(bytes, self.output.counted() as u64);
            }
        }
        Ok(written)
    }
}

/// Closes the socket so that the peer receives what was written. Closing with unread input makes the peer's system discard
/// data not yet read; so input is read and dropped for a while.
async fn linger(link: &mut Link) {
    // Errors no longer matter.
    let _ = tokio::time::timeout(Duration::from_millis(LINGER_MS), link.close(LINGER_READS_MAX)).await;
}

/// Treats a reset by the peer as a close.
fn closed_or(e: &io::Error) -> Cause {
    match e.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionAborted => Cause::Peer,
        kind => Cause::Io(kind),
    }
}
