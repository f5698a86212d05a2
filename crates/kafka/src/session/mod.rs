//! One connection of a Kafka client, without the connection: bytes in, requests out, replies and events in, bytes out.
//!
//! ```text
//!   input ──▶ on_bytes ──▶ frame ──▶ slot ──▶ handler of the API ──▶ poll_request ──▶ the broker
//!                                     │  ▲                                              │
//!                                     │  └── on_reply, on_event, on_deadline ◀──────────┘
//!   output ◀── poll_output ◀── slots in the order in which their requests came
//! ```
//!
//! A request takes a slot when its frame is whole, and keeps it until its response is taken by
//! [`Session::poll_output`]. Kafka works on one request of a connection at a time; here up to
//! `inflight_requests_max` are in work, as long as the client cannot tell the difference: a request starts after all that came
//! before it, and waits until those have ended whose effects it could see.
//!
//! What the server does with a session, in a loop:
//! 1. read into the input: a little, until [`Session::next_frame`] says what comes; then up to that, for which it takes a
//!    memory permit first; and nothing while [`Session::wants_input`] says no; then call [`Session::on_bytes`];
//! 2. hand each [`Session::poll_request`] to the broker and each reply and event back;
//! 3. when the last output is written, take the next with [`Session::poll_output`], and after that call
//!    [`Session::on_bytes`] again with whatever is left of the input, because slots have become free;
//! 4. call [`Session::on_deadline`] at [`Session::next_deadline_ms`];
//! 5. once it has called [`Session::ask_for_room`], call [`Session::on_room`] when there is what [`Session::wants_room`] wants;
//! 6. call [`Session::begin_turn`] before each of its turns, and give it another one if [`Session::unfinished`] returns one, or let it work without a bound;
//! 7. close when [`Session::close_reason`] has one, and tell the broker what [`Session::on_closed`] lists.
//!
//! A connection that is silent, or sends a byte a second, costs `size_of::<Session>()` and its own few bytes.

mod access;
mod acls;
mod alter_configs;
mod api_versions;
mod client_quotas;
mod close;
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

use crate::codec::frame::{LENGTH_BYTES, RequestFrame, frame_len};
use crate::codec::{ApiKey, DecodeError, Reader, StrBytes};
use crate::settings::KafkaSettings;
use bytes::{Buf, Bytes, BytesMut};
use fetch_session::FetchSessions;
use polylogue_api::{Catalog, Event, Now, Reply, Request, Token};
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

/// What a session is born with.
#[derive(Clone, Debug)]
pub struct SessionInit {
    /// The listener that the client connected to: it sees this one and no other, because only this one is known to be
    /// reachable for it.
    pub listener: Arc<Listener>,
    /// Unique among the connections of this process.
    pub connection_id: u64,
    /// The client's address.
    pub client: IpAddr,
    /// Whether clients have to log in (SASL) before any other request.
    pub asks_for_login: bool,
    /// What all connections together may remember of fetch sessions.
    pub fetch_budget: Arc<FetchBudget>,
}

/// What a session receives with each call.
#[derive(Clone, Copy, Debug)]
pub struct SessionContext<'a> {
    /// The time.
    pub now: Now,
    /// Topics as applied.
    pub catalog: &'a dyn Catalog,
    /// What the operator decided. The same for the whole life of a connection, or at least not smaller.
    pub settings: &'a KafkaSettings,
    /// Users.
    pub users: &'a dyn Authority,
}

/// Requests that the broker drops when a connection is closed, with their replies.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Abandoned {
    /// Requests that will be answered by themselves; nothing needs to be done but to drop the reply.
    pub requests: Vec<Token>,
    /// Watches, to be ended with [`Request::Unwatch`].
    pub watches: Vec<Token>,
    /// Commands to state machines, whose callers are gone.
    pub callers: Vec<Token>,
}

/// The client.
#[derive(Debug)]
struct Peer {
    listener: Arc<Listener>,
    /// As Kafka writes it: `/127.0.0.1`.
    host: StrBytes,
    /// From ApiVersions.
    software: Option<Box<ClientSoftware>>,
    /// How it calls itself, as its first request behind the handshakes says.
    client_id: Option<Box<str>>,
    login: Login,
    quota: PeerQuota,
}

impl Peer {
    /// Keeps how the client calls itself, of which the first 64 characters, unless it is still shaking hands.
    fn introduce(&mut self, head: &Head) {
        let is_handshake = matches!(head.api, ApiKey::ApiVersions | ApiKey::SaslHandshake | ApiKey::SaslAuthenticate);
        if !is_handshake && !self.login.is_open() {
            self.client_id = Some(api_versions::kept(head.client_id.as_deref().unwrap_or_default()).into());
        }
    }
}

/// What a client says that it is (KIP-511).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientSoftware {
    /// The name of its library, of which the first 64 characters are kept.
    pub name: String,
    /// The library's version, as much of it.
    pub version: String,
}

/// The head of a request.
#[derive(Debug)]
struct Head {
    api: ApiKey,
    version: i16,
    correlation_id: i32,
    client_id: Option<StrBytes>,
}

/// A frame that is not complete yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextFrame {
    /// Its length with its prefix: what the input has to hold. Bytes.
    pub len: usize,
    /// What it may take in memory until it is answered, itself included: how large a permit it wants before more of it is
    /// read. A list takes many times its own bytes when it is decoded. Bytes.
    pub memory: usize,
}

impl NextFrame {
    /// The frame that `input` begins with, as soon as its length and its API are there: the first six bytes.
    ///
    /// # Errors
    /// When it is longer than its API or `request_bytes_max` allow: the connection cannot go on.
    pub fn of(input: &[u8], settings: &KafkaSettings) -> Result<Option<NextFrame>, DecodeError> {
        let Some(len) = frame_len(input, settings.request_bytes_max)? else { return Ok(None) };
        let key = input.get(LENGTH_BYTES..).and_then(|body| body.first_chunk());
        let (max, factor) = match key {
            Some(key) => Api::frame_bounds(i16::from_be_bytes(*key), settings),
            // too short to be a request at all
            None if len < 2 => (len, 1),
            None => return Ok(None),
        };
        if len > max {
            return Err(DecodeError::FrameLength { len: i32::try_from(len).unwrap_or(i32::MAX), max });
        }
        Ok(Some(NextFrame { len: LENGTH_BYTES + len, memory: LENGTH_BYTES + len.saturating_mul(factor) }))
    }
}

/// A request from the arrival of its frame until its response is taken.
#[derive(Debug)]
struct Slot {
    row: &'static Api,
    head: Head,
    /// What its answer may take, if that has to be asked for; `None` where that is estimated when its turn comes.
    room: Option<Room>,
    /// It costs more than a turn on an I/O thread, besides the messages in it: known once it has started.
    is_long: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Its body is not read yet.
    Queued(Reader),
    /// It waits for what stands under the token.
    Waiting(Token, Box<dyn Pending>),
    /// It is answered; empty when there is nothing to say.
    Done(Vec<Chunk>),
}

/// Bytes of responses that may wait to be taken before another request starts: a peer that asks and does not read costs
/// this and one response more. Bytes.
const UNREAD_BYTES_MAX: usize = 1 << 20;
/// What a frame of a client that has not logged in may take in memory, in multiples of its bytes: a few words, or a list of names of software.
const LOGIN_MEMORY_FACTOR: usize = 4;

/// One connection of a Kafka client. See the [module](self) for how it is used.
#[derive(Debug)]
pub struct Session {
    peer: Peer,
    slots: VecDeque<Slot>,
    requests: VecDeque<(Token, Request)>,
    next_token: Token,
    /// The frame that is arriving.
    next_frame: Option<NextFrame>,
    /// Whether some bytes of a frame are there.
    partial: bool,
    /// When a frame began, a frame was complete or a request was answered. Monotonic milliseconds.
    active_ms: u64,
    fetch_sessions: FetchSessions,
    /// Room for long answers is asked for.
    asks_for_room: bool,
    /// The oldest request has the room that it asked for.
    has_room: bool,
    /// Set when the connection has to go, once what came before is answered.
    closing: Option<Box<CloseReason>>,
    /// Tokens whose requests were given up while the connection is still open.
    orphans: Vec<(Token, WaitsFor)>,
    steps: Steps,
    /// What came for requests that are too long for the turn.
    parked: VecDeque<Parked>,
}

impl Session {
    /// A connection that has just been made.
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

    /// The same connection, for a client authenticated by its certificate: it need not log in where the listener accepts that.
    #[must_use]
    pub fn certified_as(mut self, name: StrBytes) -> Session {
        self.peer.login.certify(name);
        self
    }

    /// From now on a request whose answer may be long, whatever its own length, starts only when it is the oldest and
    /// [`Session::on_room`] says that there is room for it. Without this, all start as soon as they can.
    pub fn ask_for_room(&mut self) {
        self.asks_for_room = true;
    }

    /// What the answer to the oldest request may take, if it waits for that.
    #[must_use]
    pub fn wants_room(&self) -> Option<Room> {
        let oldest = self.slots.front().filter(|slot| matches!(slot.state, State::Queued(_)))?;
        oldest.room.filter(|room| room.is_asked_for() && !self.has_room)
    }

    /// There is room for what was wanted. It counts until the answer is taken by [`Session::poll_output`].
    pub fn on_room(&mut self, cx: &SessionContext<'_>) {
        self.has_room = self.wants_room().is_some();
        self.start_queued(cx);
    }

    /// Takes whole frames from `input`, as many as there are free slots, and leaves the rest there. To be called when
    /// something was read, and when output was taken.
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

    /// The frame that `input` begins with, as soon as it is known: [`NextFrame::of`] for a client that may send any request.
    ///
    /// # Errors
    /// As [`NextFrame::of`]; it may be far shorter before the login.
    pub fn frame_of(&self, input: &[u8], settings: &KafkaSettings) -> Result<Option<NextFrame>, DecodeError> {
        if !self.peer.login.is_open() && !self.peer.login.is_bare() {
            return NextFrame::of(input, settings);
        }
        let len = frame_len(input, LOGIN_FRAME_BYTES_MAX.min(settings.request_bytes_max))?;
        Ok(len.map(|len| NextFrame { len: LENGTH_BYTES + len, memory: LENGTH_BYTES + LOGIN_MEMORY_FACTOR * len }))
    }

    /// Whether the request that `input` begins with would start as soon as it is there, as far as its first six bytes tell. One that
    /// would not is better left where it is: decoded or not, it could only wait here.
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

    /// What a request holds in memory while it waits for the broker, for other clients or for its turn to be answered, by its place in
    /// the order in which requests came; `None` while that is not known to be less than [`NextFrame::memory`]. Bytes.
    #[must_use]
    pub fn waiting_bytes(&self, at: usize) -> Option<usize> {
        match &self.slots.get(at)?.state {
            State::Queued(_) => None,
            State::Waiting(_, pending) => pending.memory(),
            State::Done(chunks) => Some(chunks.iter().map(Chunk::len).sum()),
        }
    }

    /// A frame without its length, which is a token without a header where the handshake said so.
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

    /// Whether the client has to log in before it may ask for anything.
    #[must_use]
    pub fn is_logging_in(&self) -> bool {
        self.peer.login.is_open()
    }

    /// Whether more input could be used now. While it is false, nothing should be read: the peer waits, for answers or because it has
    /// taken more than it may.
    #[must_use]
    pub fn wants_input(&self, cx: &SessionContext<'_>) -> bool {
        let has_slot = self.slots.len() < cx.settings.inflight_requests_max.max(1);
        self.closing.is_none() && has_slot && !self.peer.quota.is_muted(cx.now)
    }

    /// The frame whose first bytes are in the input, once they say what it is (six bytes), and until it is complete.
    #[must_use]
    pub fn next_frame(&self) -> Option<NextFrame> {
        self.next_frame
    }

    /// The next thing to ask the broker. Each token but those of `Watch`, `Unwatch` and `Unfollow` wants its reply.
    pub fn poll_request(&mut self) -> Option<(Token, Request)> {
        self.requests.pop_front()
    }

    /// The broker's answer. One without a waiter is dropped.
    pub fn on_reply(&mut self, token: Token, reply: Reply, cx: &SessionContext<'_>) {
        match self.waiting_for(token) {
            Some((_, is_long)) if self.has_to_park(is_long, Some(&reply)) => {
                self.parked.push_back(Parked::Reply(token, reply));
            }
            Some((at, _)) => self.resume(at, cx, |pending, work| pending.on_reply(work, reply)),
            None => self.orphans.retain(|(orphan, _)| *orphan != token),
        }
    }

    /// What the broker says later.
    pub fn on_event(&mut self, event: Event, cx: &SessionContext<'_>) {
        // It has no consumers of queues, which the others are for.
        let Event::Changed(token) = event else { return };
        match self.waiting_for(token) {
            Some((_, is_long)) if self.has_to_park(is_long, None) => self.parked.push_back(Parked::Changed(token)),
            Some((at, _)) => self.resume_changed(at, token, cx),
            None => {}
        }
    }

    fn resume_changed(&mut self, at: usize, watch: Token, cx: &SessionContext<'_>) {
        // it has fired where its first partition changed, and waits on wherever the others are
        self.ask_to_unwatch(watch);
        self.resume(at, cx, |pending, work| pending.on_changed(work));
    }

    /// Moves the responses that are due to the end of `out`: in the order of their requests, up to the first that is not
    /// answered yet. Whether there were any; then [`Session::on_bytes`] wants to be called again.
    pub fn poll_output(&mut self, out: &mut Vec<Chunk>) -> bool {
        let before = self.slots.len();
        while let Some(Slot { state: State::Done(chunks), .. }) = self.slots.front_mut() {
            out.append(chunks);
            self.slots.pop_front();
            self.has_room = false;
        }
        self.slots.len() < before
    }

    /// When [`Session::on_deadline`] wants to be called. Monotonic milliseconds.
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

    /// A deadline may have passed. Does nothing when none has.
    pub fn on_deadline(&mut self, cx: &SessionContext<'_>) {
        let now_ms = cx.now.monotonic_ms;
        // the front goes last, so that no index moves that is still to come
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
            // answers that may be left are not sent any more
            self.abandon_from(0);
            self.end(match is_login {
                true => CloseReason::Login { why: format!("the client has not logged in within {LOGIN_MS_MAX} ms") },
                false => CloseReason::Idle { idle_ms: cx.settings.idle_ms_max },
            });
        }
    }

    /// Why the connection is to be closed now. Earlier answers have been taken by then.
    #[must_use]
    pub fn close_reason(&self) -> Option<&CloseReason> {
        if self.slots.is_empty() { self.closing.as_deref() } else { None }
    }

    /// The connection is gone: what the broker need not do any more.
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

    /// Whether [`Session::spent`] wants to know the time that is spent on the connection.
    #[must_use]
    pub fn counts_time(&self) -> bool {
        self.peer.quota.counts_time()
    }

    /// A thread has worked so long for the connection. Nanoseconds.
    pub fn spent(&mut self, ns: u64, cx: &SessionContext<'_>) {
        self.peer.quota.spent(ns, cx.users, cx.now);
    }

    /// What the client says that it is, once it has said so.
    #[must_use]
    pub fn client_software(&self) -> Option<&ClientSoftware> {
        self.peer.software.as_deref()
    }

    /// How the client calls itself, once it has asked for something that is no handshake and, where that is asked, has logged in.
    #[must_use]
    pub fn client_id(&self) -> Option<&str> {
        self.peer.client_id.as_deref()
    }

    /// Requests that are in work or whose responses have not been taken.
    #[must_use]
    pub fn inflight(&self) -> usize {
        self.slots.len()
    }

    /// A connection may be idle only while nothing is in work for it.
    fn idle_deadline_ms(&self, cx: &SessionContext<'_>) -> Option<u64> {
        let busy = self.slots.iter().any(|slot| !matches!(slot.state, State::Done(_)));
        if busy {
            return None;
        }
        // A muted client is not read.
        let since_ms = self.active_ms.max(self.peer.quota.muted_until_ms().unwrap_or(0));
        let idle = since_ms.checked_add(cx.settings.idle_ms_max);
        [idle, self.peer.login.deadline_ms()].into_iter().flatten().min()
    }

    /// The request that waits for this, and whether to go on with it is long.
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
            // A client that has not logged in gets short answers only.
            Some(estimate) if self.asks_for_room && !self.peer.login.is_open() => {
                estimate(&mut body.clone(), version, cx.catalog, room::TOPICS_FREE)
            }
            _ => Some(Room::FREE),
        };
        self.slots.push_back(Slot { row, head, room, is_long: false, state: State::Queued(body) });
        self.start_queued(cx);
    }

    /// Starts what may be started, in order.
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

    /// Whether the request could see that an earlier one has not ended yet, or too much waits to be read before it.
    fn has_to_wait(&self, at: usize, row: &Api, room: Room) -> bool {
        let has_room = !room.is_asked_for() || (at == 0 && self.has_room);
        !has_room || self.waits_behind(at, row.needs)
    }

    /// Whether what needs this has to wait for one of the first `at` requests.
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
            // A pause is none where a request cannot be begun anew.
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

    /// Ends the watch of a request, if it has one: it has waited long enough.
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

    /// Drops the requests from this one on.
    fn abandon_from(&mut self, at: usize) {
        for slot in self.slots.drain(at.min(self.slots.len())..) {
            if let State::Waiting(token, pending) = slot.state {
                // what the broker never got needs no calling off
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

    /// What a silent connection costs; the figure in the documentation of limits.
    #[test]
    fn a_session_is_small_and_goes_from_thread_to_thread() {
        fn goes<T: Send>() -> usize {
            size_of::<T>()
        }
        assert!(goes::<Session>() <= 512, "{} bytes", goes::<Session>());
    }
}
