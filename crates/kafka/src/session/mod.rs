//! The state machine of one Kafka connection, without I/O: bytes and replies in, requests and bytes out.
//!
//! ```text
//!   input ──▶ on_bytes ──▶ frame ──▶ slot ──▶ handler of the API ──▶ poll_request ──▶ the broker
//!                                     │  ▲                                              │
//!                                     │  └── on_reply, on_event, on_deadline ◀──────────┘
//!   output ◀── poll_output ◀── slots, in the order of their requests
//! ```
//!
//! A request gets a slot when its frame is complete, and keeps it until its response is taken by [`Session::poll_output`].
//! Kafka processes one request of a connection at a time; here up to `inflight_requests_max` are in progress, as long as the
//! client cannot notice: requests start in order, and wait for earlier ones whose effects they could
//! observe.
//!
//! The server's loop:
//! 1. Read input: a little, until [`Session::next_frame`] returns the frame; then up to its length, after acquiring a memory permit
//!    for it. Do not read while [`Session::wants_input`] is false. Then call [`Session::on_bytes`].
//! 2. Pass each [`Session::poll_request`] to the broker, and each reply and event back.
//! 3. When the last output is written, take the next with [`Session::poll_output`], then call [`Session::on_bytes`] again with
//!    the rest of the input, because slots have become free.
//! 4. Call [`Session::on_deadline`] at [`Session::next_deadline_ms`].
//! 5. After [`Session::ask_for_room`], call [`Session::on_room`] when the memory that [`Session::wants_room`] returns is available.
//! 6. Call [`Session::begin_turn`] before each turn, and schedule another one if [`Session::unfinished`] returns one; or let it work without a limit.
//! 7. Close when [`Session::close_reason`] returns a reason, and pass to the broker what [`Session::on_closed`] returns.
//!
//! An idle connection, or one that sends a byte a second, costs `size_of::<Session>()` and the bytes received.

mod access;
mod acls;
mod alter_configs;
mod api_versions;
mod client_quotas;
mod close;
mod consumer_groups;
mod create_partitions;
mod create_topics;
mod delete_topics;
mod describe_cluster;
mod describe_configs;
mod describe_quorum;
mod describe_topic_partitions;
mod errors;
mod features;
mod fetch;
mod fetch_looks;
mod fetch_response;
mod fetch_session;
mod find_coordinator;
mod groups;
mod groups_admin;
mod init_producer_id;
mod list_offsets;
mod metadata;
mod offset_for_leader_epoch;
mod offsets;
mod operations;
mod partitions;
mod produce;
mod produce_batch;
mod quota;
mod resources;
mod room;
mod sasl;
mod scram_users;
mod steps;
mod table;
mod topics;
mod turn;
mod turns;
mod update_features;
mod work;

pub use close::CloseReason;
pub use fetch_session::FetchBudget;
pub use polylogue_auth::{Authority, NoUsers};
pub use room::Room;
pub use sasl::{LOGIN_FRAME_BYTES_MAX, LOGIN_MS_MAX};
pub use table::{SupportedApi, supported_apis};

use crate::settings::KafkaSettings;
use bytes::{Buf, Bytes, BytesMut};
use fetch_session::FetchSessions;
use polylogue_api::{Catalog, Event, Now, Reply, Request, Token};
use polylogue_kafka_codec::frame::{LENGTH_BYTES, RequestFrame, frame_len};
use polylogue_kafka_codec::{ApiKey, DecodeError, Reader, StrBytes};
use polylogue_types::{Chunk, STEPS_PER_TURN};
use quota::PeerQuota;
use sasl::Login;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use steps::Steps;
use table::{Api, Effects};
use turn::Parked;
use work::{Pending, Step, WaitsFor, Work};

/// The advertised address of a listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listener {
    /// The advertised host name or address.
    pub host: StrBytes,
    /// The advertised port.
    pub port: u16,
}

/// Parameters of a new session.
#[derive(Clone, Debug)]
pub struct SessionInit {
    /// The listener that the client connected to. The client sees only this one, because no other is known to be reachable
    /// for it.
    pub listener: Arc<Listener>,
    /// Unique among the connections of this process.
    pub connection_id: u64,
    /// The client's address.
    pub client: IpAddr,
    /// Whether clients must authenticate (SASL) before other requests.
    pub asks_for_login: bool,
    /// The budget for fetch sessions of all connections.
    pub fetch_budget: Arc<FetchBudget>,
}

/// The context of each call.
#[derive(Clone, Copy, Debug)]
pub struct SessionContext<'a> {
    /// The time.
    pub now: Now,
    /// Topics as applied.
    pub catalog: &'a dyn Catalog,
    /// The settings. They must not become smaller during the life of a connection.
    pub settings: &'a KafkaSettings,
    /// Users.
    pub users: &'a Arc<dyn Authority>,
}

/// Requests that the broker must drop when a connection is closed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Abandoned {
    /// Requests whose reply is to be dropped.
    pub requests: Vec<Token>,
    /// Watches, to be ended with [`Request::Unwatch`].
    pub watches: Vec<Token>,
    /// Commands to state machines whose callers are gone.
    pub callers: Vec<Token>,
}

/// The client.
#[derive(Debug)]
struct Peer {
    listener: Arc<Listener>,
    /// In Kafka's format: `/127.0.0.1`.
    host: StrBytes,
    /// As sent in ApiVersions.
    software: Option<Box<ClientSoftware>>,
    /// The client id, from the first request after ApiVersions and SASL.
    client_id: Option<Box<str>>,
    login: Login,
    quota: PeerQuota,
}

impl Peer {
    /// Stores the client id, truncated to 64 characters, unless the request is ApiVersions or SASL.
    fn introduce(&mut self, head: &Head) {
        let is_handshake = matches!(head.api, ApiKey::ApiVersions | ApiKey::SaslHandshake | ApiKey::SaslAuthenticate);
        if !is_handshake && !self.login.is_open() {
            self.client_id = Some(api_versions::kept(head.client_id.as_deref().unwrap_or_default()).into());
        }
    }
}

/// The client's software, as it reports it (KIP-511).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientSoftware {
    /// Name of the library, truncated to 64 characters.
    pub name: String,
    /// Version of the library, truncated likewise.
    pub version: String,
}

/// A request's header.
#[derive(Debug)]
struct Head {
    api: ApiKey,
    version: i16,
    correlation_id: i32,
    client_id: Option<StrBytes>,
}

/// A frame that is not complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextFrame {
    /// Length including the prefix: the input must hold this much. Bytes.
    pub len: usize,
    /// Memory that the request may need until it is answered, its frame included: the size of the permit to acquire before more is
    /// read. A decoded list takes many times its encoded size. Bytes.
    pub memory: usize,
}

impl NextFrame {
    /// Returns the frame at the start of `input`, once its length and API key (six bytes) are present.
    ///
    /// # Errors
    /// It exceeds the limit of its API or `request_bytes_max`: the connection must be closed.
    pub fn of(input: &[u8], settings: &KafkaSettings) -> Result<Option<NextFrame>, DecodeError> {
        let Some(len) = frame_len(input, settings.request_bytes_max)? else { return Ok(None) };
        let key = input.get(LENGTH_BYTES..).and_then(|body| body.first_chunk());
        let (max, factor) = match key {
            Some(key) => Api::frame_bounds(i16::from_be_bytes(*key), settings),
            // Too short for a request.
            None if len < 2 => (len, 1),
            None => return Ok(None),
        };
        if len > max {
            return Err(DecodeError::FrameLength { len: i32::try_from(len).unwrap_or(i32::MAX), max });
        }
        Ok(Some(NextFrame { len: LENGTH_BYTES + len, memory: LENGTH_BYTES + len.saturating_mul(factor) }))
    }
}

/// A request, from the arrival of its frame until its response is taken.
#[derive(Debug)]
struct Slot {
    row: &'static Api,
    head: Head,
    /// Memory that its response may need, if it must be acquired; `None` if that is estimated when the request starts.
    room: Option<Room>,
    /// Whether it exceeds a turn on an I/O thread, apart from its messages; known once it has started.
    is_long: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Not started.
    Queued(Reader),
    /// Waits for what the token stands for.
    Waiting(Token, Box<dyn Pending>),
    /// Answered; empty without a response.
    Done(Vec<Chunk>),
}

/// Bytes of responses not taken by the server at which no further request starts: a peer that does not read costs this
/// and one more response. Bytes.
const UNREAD_BYTES_MAX: usize = 1 << 20;
/// Memory of a frame before authentication, in multiples of its size: a few fields, or a list of software names.
const LOGIN_MEMORY_FACTOR: usize = 4;

/// A Kafka connection. See the [module](self) for its use.
#[derive(Debug)]
pub struct Session {
    peer: Peer,
    slots: VecDeque<Slot>,
    requests: VecDeque<(Token, Request)>,
    next_token: Token,
    /// The frame being received.
    next_frame: Option<NextFrame>,
    /// Whether a frame is partly received.
    partial: bool,
    /// Time of the last activity: the start or end of a frame, or a response. Monotonic milliseconds.
    active_ms: u64,
    fetch_sessions: FetchSessions,
    /// Whether memory for long responses must be acquired.
    asks_for_room: bool,
    /// Whether the oldest request has the memory that it needs.
    has_room: bool,
    /// Set when the connection must be closed after earlier requests are answered.
    closing: Option<Box<CloseReason>>,
    /// Tokens of abandoned requests while the connection is open.
    orphans: Vec<(Token, WaitsFor)>,
    steps: Steps,
    /// Replies for requests that do not fit the turn.
    parked: VecDeque<Parked>,
}

impl Session {
    /// Creates the session of a new connection.
    #[must_use]
    pub fn new(init: SessionInit, now: Now) -> Session {
        let SessionInit { listener, connection_id, client, asks_for_login, fetch_budget } = init;
        let login = Login::new(asks_for_login, client, now.monotonic_ms);
        let quota = PeerQuota::default();
        Session {
            peer: Peer { listener, host: format!("/{client}").into(), software: None, client_id: None, login, quota },
            slots: VecDeque::new(),
            requests: VecDeque::new(),
            next_token: 0,
            next_frame: None,
            partial: false,
            active_ms: now.monotonic_ms,
            fetch_sessions: FetchSessions::new(connection_id, fetch_budget),
            asks_for_room: false,
            has_room: false,
            closing: None,
            orphans: Vec::new(),
            steps: Steps::default(),
            parked: VecDeque::new(),
        }
    }

    /// Marks the client as authenticated by its certificate: it need not use SASL if the listener accepts that.
    #[must_use]
    pub fn certified_as(mut self, name: StrBytes) -> Session {
        self.peer.login.certify(name);
        self
    }

    /// From now on a request whose response may be long, whatever the request's size, starts only when it is the oldest and
    /// [`Session::on_room`] was called for it. Without this, all start at once.
    pub fn ask_for_room(&mut self) {
        self.asks_for_room = true;
    }

    /// Returns the memory that the response to the oldest request needs, if it waits for that.
    #[must_use]
    pub fn wants_room(&self) -> Option<Room> {
        let oldest = self.slots.front().filter(|slot| matches!(slot.state, State::Queued(_)))?;
        oldest.room.filter(|room| room.is_asked_for() && !self.has_room)
    }

    /// The wanted memory is acquired. It is held until the response is taken by [`Session::poll_output`].
    pub fn on_room(&mut self, cx: &SessionContext<'_>) {
        self.has_room = self.wants_room().is_some();
        self.start_queued(cx);
    }

    /// Takes complete frames from `input`, as many as there are free slots, and leaves the rest. Call it after reading, and after
    /// output was taken.
    pub fn on_bytes(&mut self, input: &mut BytesMut, cx: &SessionContext<'_>) {
        self.start_queued(cx);
        self.next_frame = None;
        while self.wants_input(cx) {
            match self.frame_of(input, cx.settings) {
                Err(error) => self.end(CloseReason::FrameLength(error)),
                Ok(Some(next)) if input.len() >= next.len => {
                    let mut frame = input.split_to(next.len);
                    frame.advance(LENGTH_BYTES);
                    self.partial = false;
                    self.active_ms = cx.now.monotonic_ms;
                    match self.request_of(frame.freeze()) {
                        Ok(frame) => self.on_frame(frame, cx),
                        Err(error) => self.end(CloseReason::Header(error)),
                    }
                }
                Ok(next) => {
                    self.next_frame = next;
                    if !self.partial && !input.is_empty() {
                        self.partial = true;
                        self.active_ms = cx.now.monotonic_ms;
                    }
                    return;
                }
            }
        }
    }

    /// Returns the frame at the start of `input`, once it is known: [`NextFrame::of`] after authentication.
    ///
    /// # Errors
    /// As [`NextFrame::of`]; the limits are lower before authentication.
    pub fn frame_of(&self, input: &[u8], settings: &KafkaSettings) -> Result<Option<NextFrame>, DecodeError> {
        if !self.peer.login.is_open() && !self.peer.login.is_bare() {
            return NextFrame::of(input, settings);
        }
        let len = frame_len(input, LOGIN_FRAME_BYTES_MAX.min(settings.request_bytes_max))?;
        Ok(len.map(|len| NextFrame { len: LENGTH_BYTES + len, memory: LENGTH_BYTES + LOGIN_MEMORY_FACTOR * len }))
    }

    /// Whether the request at the start of `input` would start at once, as far as its first six bytes show. Otherwise it is better left
    /// unread: it could only wait here.
    #[must_use]
    pub fn starts_at_once(&self, input: &[u8]) -> bool {
        let at = self.slots.len();
        if at == 0 {
            return true;
        }
        let row = match self.peer.login.is_bare() {
            true => Api::of_token(),
            false => match input.get(LENGTH_BYTES..).and_then(|body| body.first_chunk()) {
                Some(key) => Api::of_code(i16::from_be_bytes(*key)),
                None => return true,
            },
        };
        // An unsupported API ends the connection.
        let Some(row) = row else { return true };
        let may_need_room = self.asks_for_room && row.room.is_some();
        !may_need_room && !self.waits_behind(at, row.needs)
    }

    /// Returns the memory of each request in progress, by its position in the order of arrival; `None` while it is not known to be less
    /// than [`NextFrame::memory`]. Bytes.
    #[must_use]
    pub fn waiting_bytes(&self, at: usize) -> Option<usize> {
        match &self.slots.get(at)?.state {
            State::Queued(_) => None,
            State::Waiting(_, pending) => pending.memory(),
            State::Done(chunks) => Some(chunks.iter().map(Chunk::len).sum()),
        }
    }

    /// Parses a frame without its length prefix; a SASL token has no header after SaslHandshake v0.
    fn request_of(&self, frame: Bytes) -> Result<RequestFrame, DecodeError> {
        if !self.peer.login.is_bare() {
            return RequestFrame::decode(frame);
        }
        let (api_key, version) = (ApiKey::SaslAuthenticate, sasl::bare_version());
        Ok(RequestFrame { api_key, version, correlation_id: 0, client_id: None, body: Reader::new(frame) })
    }

    /// The authenticated user, if any.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.peer.login.name().map(|name| &**name)
    }

    /// Whether the client must authenticate before other requests.
    #[must_use]
    pub fn is_logging_in(&self) -> bool {
        self.peer.login.is_open()
    }

    /// Whether more input can be processed. Do not read while it is false: responses are pending, or the client is
    /// throttled.
    #[must_use]
    pub fn wants_input(&self, cx: &SessionContext<'_>) -> bool {
        let has_slot = self.slots.len() < cx.settings.inflight_requests_max.max(1);
        self.closing.is_none() && has_slot && !self.peer.quota.is_muted(cx.now)
    }

    /// Returns the frame at the start of the input, once it is known (six bytes) and until it is complete.
    #[must_use]
    pub fn next_frame(&self) -> Option<NextFrame> {
        self.next_frame
    }

    /// Returns the next request to the broker. Each one except `Watch`, `Unwatch` and `Unfollow` expects a reply.
    pub fn poll_request(&mut self) -> Option<(Token, Request)> {
        self.requests.pop_front()
    }

    /// Handles a reply of the broker. Replies without a waiter are dropped.
    pub fn on_reply(&mut self, token: Token, reply: Reply, cx: &SessionContext<'_>) {
        match self.waiting_for(token) {
            Some((_, is_long)) if self.has_to_park(is_long, Some(&reply)) => {
                self.parked.push_back(Parked::Reply(token, reply));
            }
            Some((at, _)) => self.resume(at, cx, |pending, work| pending.on_reply(work, reply)),
            None => self.orphans.retain(|(orphan, _)| *orphan != token),
        }
    }

    /// Handles an event of the broker.
    pub fn on_event(&mut self, event: Event, cx: &SessionContext<'_>) {
        // Other events are for consumers of queues.
        let Event::Changed(token) = event else { return };
        match self.waiting_for(token) {
            Some((_, is_long)) if self.has_to_park(is_long, None) => self.parked.push_back(Parked::Changed(token)),
            Some((at, _)) => self.resume_changed(at, token, cx),
            None => {}
        }
    }

    fn resume_changed(&mut self, at: usize, watch: Token, cx: &SessionContext<'_>) {
        // The watch has fired for its first partition only: end it for the others.
        self.ask_to_unwatch(watch);
        self.resume(at, cx, |pending, work| pending.on_changed(work));
    }

    /// Appends the responses that are ready to `out`, in the order of their requests, up to the first that is not answered. Returns
    /// whether there were any; then call [`Session::on_bytes`] again.
    pub fn poll_output(&mut self, out: &mut Vec<Chunk>) -> bool {
        let before = self.slots.len();
        while let Some(Slot { state: State::Done(chunks), .. }) = self.slots.front_mut() {
            out.append(chunks);
            self.slots.pop_front();
            self.has_room = false;
        }
        self.slots.len() < before
    }

    /// Returns the time for [`Session::on_deadline`]. Monotonic milliseconds.
    #[must_use]
    pub fn next_deadline_ms(&self, cx: &SessionContext<'_>) -> Option<u64> {
        if self.closing.is_some() && self.slots.is_empty() {
            return None;
        }
        let waits = self.slots.iter().filter_map(|slot| match &slot.state {
            State::Waiting(_, pending) => pending.deadline_ms(),
            State::Queued(_) | State::Done(_) => None,
        });
        waits.chain(self.idle_deadline_ms(cx)).chain(self.peer.quota.muted_until_ms()).min()
    }

    /// Handles deadlines that have passed.
    pub fn on_deadline(&mut self, cx: &SessionContext<'_>) {
        let now_ms = cx.now.monotonic_ms;
        // From the back, so that removals do not move the rest.
        for at in (0..self.slots.len()).rev() {
            let due = self.slots.get(at).is_some_and(|slot| match &slot.state {
                State::Waiting(_, pending) => pending.deadline_ms().is_some_and(|deadline| deadline <= now_ms),
                State::Queued(_) | State::Done(_) => false,
            });
            if due {
                self.call_off_watch(at);
                self.resume(at, cx, |pending, work| pending.on_deadline(work));
            }
        }
        if let Some(since_ms) = self.peer.quota.unmute(cx.now) {
            self.active_ms = self.active_ms.max(since_ms);
        }
        if self.idle_deadline_ms(cx).is_some_and(|deadline| deadline <= now_ms) {
            let is_login = self.peer.login.deadline_ms().is_some_and(|deadline| deadline <= now_ms);
            // Pending responses are dropped.
            self.abandon_from(0);
            self.end(match is_login {
                true => CloseReason::Login { why: format!("the client has not logged in within {LOGIN_MS_MAX} ms") },
                false => CloseReason::Idle { idle_ms: cx.settings.idle_ms_max },
            });
        }
    }

    /// Returns why the connection is to be closed. Earlier responses have been taken by then.
    #[must_use]
    pub fn close_reason(&self) -> Option<&CloseReason> {
        if self.slots.is_empty() { self.closing.as_deref() } else { None }
    }

    /// The connection is closed: returns what the broker must drop.
    #[must_use]
    pub fn on_closed(mut self) -> Abandoned {
        self.abandon_from(0);
        let mut abandoned = Abandoned::default();
        for (token, waits_for) in self.orphans {
            match waits_for {
                WaitsFor::Reply => abandoned.requests.push(token),
                WaitsFor::Machine => abandoned.callers.push(token),
                WaitsFor::Watch => abandoned.watches.push(token),
                WaitsFor::Time => {}
            }
        }
        abandoned
    }

    /// Whether [`Session::charge_time`] must be called.
    #[must_use]
    pub fn counts_time(&self) -> bool {
        self.peer.quota.counts_time()
    }

    /// Adds time that a thread has worked for the connection. Nanoseconds.
    pub fn charge_time(&mut self, ns: u64, cx: &SessionContext<'_>) {
        self.peer.quota.charge_time(ns, cx.users.as_ref(), cx.now);
    }

    /// Returns the client's software, once it has reported it.
    #[must_use]
    pub fn client_software(&self) -> Option<&ClientSoftware> {
        self.peer.software.as_deref()
    }

    /// Returns the client id, once a request other than ApiVersions and SASL was received.
    #[must_use]
    pub fn client_id(&self) -> Option<&str> {
        self.peer.client_id.as_deref()
    }

    /// Number of requests in progress or with responses not taken.
    #[must_use]
    pub fn inflight(&self) -> usize {
        self.slots.len()
    }

    /// A connection is idle only while it has no requests in progress.
    fn idle_deadline_ms(&self, cx: &SessionContext<'_>) -> Option<u64> {
        let busy = self.slots.iter().any(|slot| !matches!(slot.state, State::Done(_)));
        if busy {
            return None;
        }
        // Input is not read while the client is muted.
        let since_ms = self.active_ms.max(self.peer.quota.muted_until_ms().unwrap_or(0));
        let idle = since_ms.checked_add(cx.settings.idle_ms_max);
        [idle, self.peer.login.deadline_ms()].into_iter().flatten().min()
    }

    /// Returns the request that waits for this token, and whether continuing it is long.
    fn waiting_for(&self, wanted: Token) -> Option<(usize, bool)> {
        let is_it = |slot: &Slot| matches!(slot.state, State::Waiting(token, _) if token == wanted);
        let (at, slot) = self.slots.iter().enumerate().find(|(_, slot)| is_it(slot))?;
        Some((at, slot.is_long))
    }

    fn on_frame(&mut self, frame: RequestFrame, cx: &SessionContext<'_>) {
        let RequestFrame { api_key: api, version, correlation_id, client_id, body } = frame;
        let row = match self.peer.login.is_bare() {
            true => Api::of_token(),
            false => Api::find(api, version),
        };
        let Some(row) = row else {
            return self.end(CloseReason::Unsupported { api, version });
        };
        let head = Head { api, version, correlation_id, client_id };
        if self.peer.client_id.is_none() {
            self.peer.introduce(&head);
        }
        let room = match row.room {
            // Responses before authentication are short.
            Some(estimate) if self.asks_for_room && !self.peer.login.is_open() => {
                estimate(&mut body.clone(), version, cx.catalog, room::TOPICS_FREE)
            }
            _ => Some(Room::FREE),
        };
        self.slots.push_back(Slot { row, head, room, is_long: false, state: State::Queued(body) });
        self.start_queued(cx);
    }

    /// Starts the requests that may start, in order.
    fn start_queued(&mut self, cx: &SessionContext<'_>) {
        let queued = |slot: &Slot| matches!(slot.state, State::Queued(_));
        while let Some(at) = self.slots.iter().position(queued) {
            let Some(Slot { row, head, room, state: State::Queued(body), .. }) = self.slots.get(at) else { return };
            let (row, api, body_bytes) = (*row, head.api, body.remaining());
            let Some(room) = room.or_else(|| self.estimate(at, cx)) else { return };
            let steps = row.steps(body_bytes, room);
            if self.has_to_wait(at, row, room) || !self.steps.try_take(steps) {
                return;
            }
            if !self.peer.login.admits(api, cx.now.monotonic_ms) {
                self.settle(at, Step::Close(CloseReason::NotLoggedIn { api }), cx);
                return;
            }
            if steps > STEPS_PER_TURN
                && let Some(slot) = self.slots.get_mut(at)
            {
                slot.is_long = true;
            }
            let Some((state, mut work)) = self.work_on(at, cx) else { return };
            let State::Queued(mut body) = std::mem::replace(state, State::Done(Vec::new())) else { return };
            work.meet_quota();
            let (version, begin) = (work.head.version, body.mark());
            let step = (row.start)(&mut work, &mut body)
                .unwrap_or_else(|error| Step::Close(CloseReason::Body { api, version, error }));
            if matches!(step, Step::Pause) && row.is_cut {
                body.rewind(begin);
                *state = State::Queued(body);
                return;
            }
            self.settle(at, step, cx);
        }
    }

    /// Whether the request must wait for the effects of an earlier one, or for unread responses to be taken.
    fn has_to_wait(&self, at: usize, row: &Api, room: Room) -> bool {
        let has_room = !room.is_asked_for() || (at == 0 && self.has_room);
        !has_room || self.waits_behind(at, row.needs)
    }

    /// Whether one of the first `at` requests has effects that `needs` includes.
    fn waits_behind(&self, at: usize, needs: Effects) -> bool {
        let mut unread = 0;
        for earlier in self.slots.iter().take(at) {
            match &earlier.state {
                State::Done(chunks) => unread += chunks.iter().map(Chunk::len).sum::<usize>(),
                State::Queued(_) | State::Waiting(..) if earlier.row.does.meets(needs) => return true,
                State::Queued(_) | State::Waiting(..) => {}
            }
        }
        unread > UNREAD_BYTES_MAX
    }

    fn resume(
        &mut self,
        at: usize,
        cx: &SessionContext<'_>,
        go_on: impl FnOnce(Box<dyn Pending>, &mut Work<'_>) -> Step,
    ) {
        let Some((state, mut work)) = self.work_on(at, cx) else { return };
        let State::Waiting(_, pending) = std::mem::replace(state, State::Done(Vec::new())) else { return };
        let step = go_on(pending, &mut work);
        self.settle(at, step, cx);
        self.start_queued(cx);
    }

    fn work_on<'a>(&'a mut self, at: usize, cx: &SessionContext<'a>) -> Option<(&'a mut State, Work<'a>)> {
        let slot = self.slots.get_mut(at)?;
        let work = Work {
            now: cx.now,
            catalog: cx.catalog,
            settings: cx.settings,
            users: cx.users,
            head: &slot.head,
            peer: &mut self.peer,
            fetch_sessions: &mut self.fetch_sessions,
            requests: &mut self.requests,
            next_token: &mut self.next_token,
            steps: &self.steps,
        };
        Some((&mut slot.state, work))
    }

    fn settle(&mut self, at: usize, step: Step, cx: &SessionContext<'_>) {
        let state = match step {
            Step::Answer(chunks) => State::Done(chunks),
            // A request that cannot start again is never paused.
            Step::Silence | Step::Pause => State::Done(Vec::new()),
            Step::Wait(token, pending) => State::Waiting(token, pending),
            Step::Close(reason) => {
                self.abandon_from(at);
                return self.end(reason);
            }
            Step::Last(chunks, reason) => {
                self.abandon_from(at + 1);
                self.end(reason);
                State::Done(chunks)
            }
        };
        if matches!(state, State::Done(_)) {
            self.active_ms = cx.now.monotonic_ms;
        }
        if let Some(slot) = self.slots.get_mut(at) {
            slot.state = state;
        }
    }

    fn end(&mut self, reason: CloseReason) {
        self.next_frame = None;
        self.closing.get_or_insert_with(|| Box::new(reason));
    }

    /// Ends the watch of a request whose deadline has passed.
    fn call_off_watch(&mut self, at: usize) {
        let Some(Slot { state: State::Waiting(token, pending), .. }) = self.slots.get(at) else { return };
        if pending.waits_for() != WaitsFor::Watch {
            return;
        }
        let watch = *token;
        let before = self.requests.len();
        self.requests.retain(|(asked, _)| *asked != watch);
        if self.requests.len() == before {
            self.ask_to_unwatch(watch);
        }
    }

    fn ask_to_unwatch(&mut self, watch: Token) {
        let token = self.next_token;
        self.next_token += 1;
        self.requests.push_back((token, Request::Unwatch(watch)));
    }

    /// Abandons the requests from this one on.
    fn abandon_from(&mut self, at: usize) {
        for slot in self.slots.drain(at.min(self.slots.len())..) {
            if let State::Waiting(token, pending) = slot.state {
                // Requests not yet taken by the server are simply removed.
                let before = self.requests.len();
                self.requests.retain(|(asked, _)| *asked != token);
                if self.requests.len() == before {
                    self.orphans.push((token, pending.waits_for()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory of an idle connection; the figure in docs/limits.md.
    #[test]
    fn a_session_is_small_and_goes_from_thread_to_thread() {
        fn goes<T: Send>() -> usize {
            size_of::<T>()
        }
        assert!(goes::<Session>() <= 512, "{} bytes", goes::<Session>());
    }
}
