//! The adapter of a Kafka session to [`Protocol`].

use super::listener::Accept;
use super::protocol::{ClientInfo, Frame, NoFrame, Protocol, Room};
use crate::address::HostPort;
use crate::audit::{self, Audit};
use crate::handle::BrokerHandle;
use bytes::BytesMut;
use polylogue_amqp_gateway::{Directory, FIRST_USER, QueuesAsTopics};
use polylogue_api::{Catalog, Event, Now, Reply, Request, Token};
use polylogue_auth::{Authority, Claim, Mechanism, NoUsers};
use polylogue_kafka::config::LiveSettings;
use polylogue_kafka::session::{self, FetchBudget, Listener, NextFrame, Session, SessionContext, SessionInit};
use polylogue_kafka_codec::ApiKey;
use polylogue_types::{Chunk, Unfinished};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Share of a list's decoded size that is still held while it waits, one in this many parts: the decoded request is dropped, and a row
/// for each partition and the frame with their names stay.
const WAITING_PART: usize = 4;

/// State shared by the connections of Kafka clients.
#[derive(Debug)]
pub struct KafkaShared {
    live: Arc<LiveSettings>,
    catalog: Arc<dyn Catalog>,
    broker: Arc<dyn BrokerHandle>,
    fetch_budget: Arc<FetchBudget>,
    users: Arc<dyn Authority>,
    audit: Option<Arc<Audit>>,
}

impl KafkaShared {
    /// Creates it for this broker and settings; queues are visible as topics.
    #[must_use]
    pub fn new(live: Arc<LiveSettings>, broker: Arc<dyn BrokerHandle>, queues: Arc<Directory>) -> KafkaShared {
        let catalog = Arc::new(QueuesAsTopics::new(broker.catalog(), queues));
        KafkaShared { live, catalog, broker, fetch_budget: Arc::default(), users: Arc::new(NoUsers), audit: None }
    }

    /// Adds users who can log in.
    #[must_use]
    pub fn with_users(self, users: Arc<dyn Authority>) -> KafkaShared {
        KafkaShared { users, ..self }
    }

    /// Adds an audit log of clients' changes.
    #[must_use]
    pub fn with_audit(self, audit: Arc<Audit>) -> KafkaShared {
        KafkaShared { audit: Some(audit), ..self }
    }

    /// Returns the topics visible to Kafka clients, queues included.
    pub fn catalog(&self) -> &dyn Catalog {
        self.catalog.as_ref()
    }

    /// Creates a session for a request of the server itself.
    pub fn session_for_ourselves(self: &Arc<KafkaShared>, id: u64) -> KafkaConnection {
        let no_user = SocketAddr::from(([127, 0, 0, 1], 0));
        // Such requests are logged where they originate.
        KafkaConnection {
            reported: None,
            ..KafkaAccept::new(self.clone(), None, false).connection(id, no_user, no_user)
        }
    }

    /// Calls with the current settings.
    fn under<R>(&self, now: Now, act: impl FnOnce(&SessionContext<'_>) -> R) -> R {
        let (catalog, users) = (self.catalog.as_ref(), &self.users);
        self.live.with_sessions(|settings| act(&SessionContext { now, catalog, settings, users }))
    }
}

/// A Kafka listener.
#[derive(Debug)]
pub struct KafkaAccept {
    shared: Arc<KafkaShared>,
    /// The advertised address; `None` for the address at which the client connected.
    advertised: Option<Arc<Listener>>,
    /// Whether clients must log in.
    asks_for_login: bool,
}

impl KafkaAccept {
    /// Creates a listener that advertises `advertised` or, without it, the address at which the client connected, and requires a login
    /// if `asks_for_login`.
    #[must_use]
    pub fn new(shared: Arc<KafkaShared>, advertised: Option<&HostPort>, asks_for_login: bool) -> KafkaAccept {
        let listener = |at: &HostPort| Arc::new(Listener { host: at.host.as_str().into(), port: at.port });
        KafkaAccept { shared, advertised: advertised.map(listener), asks_for_login }
    }

    fn connection(&self, id: u64, local: SocketAddr, peer: SocketAddr) -> KafkaConnection {
        let listener = self.advertised.clone().unwrap_or_else(|| {
            let host = local.ip().to_canonical().to_string();
            Arc::new(Listener { host: host.into(), port: local.port() })
        });
        let init = SessionInit {
            listener,
            connection_id: id,
            client: peer.ip().to_canonical(),
            asks_for_login: self.asks_for_login,
            fetch_budget: self.shared.fetch_budget.clone(),
        };
        let session = Session::new(init, self.shared.broker.now());
        let reported =
            self.shared.audit.is_some().then(|| PendingAudit { address: peer.ip().to_canonical(), open: Vec::new() });
        KafkaConnection { session, shared: self.shared.clone(), reported }
    }
}

impl Accept for KafkaAccept {
    type Session = KafkaConnection;

    fn name(&self) -> &'static str {
        "kafka"
    }

    fn session(&self, id: u64, local: SocketAddr, peer: SocketAddr, certified: Option<&str>) -> KafkaConnection {
        let mut connection = self.connection(id, local, peer);
        // A certificate with guest's name is ignored: that user is for AMQP clients on this machine.
        if let Some(name) = certified.filter(|name| self.asks_for_login && *name != FIRST_USER) {
            let claim = Claim { name, address: peer.ip().to_canonical() };
            self.shared.users.succeeded(&claim, Mechanism::External);
            connection.session = connection.session.certified_as(name.into());
        }
        connection.session.ask_for_room();
        connection
    }
}

/// A connection.
#[derive(Debug)]
pub struct KafkaConnection {
    session: Session,
    shared: Arc<KafkaShared>,
    reported: Option<PendingAudit>,
}

/// Changes that the client requested, to be logged with their outcome.
#[derive(Debug)]
struct PendingAudit {
    address: IpAddr,
    open: Vec<(Token, String)>,
}

impl KafkaConnection {
    fn audit(&mut self, token: Token, reply: &Reply) {
        let Some(reported) = self.reported.as_mut().filter(|reported| !reported.open.is_empty()) else { return };
        let Some(at) = reported.open.iter().position(|(open, _)| *open == token) else { return };
        let (_, what) = reported.open.swap_remove(at);
        if let Some(audit) = &self.shared.audit {
            audit.tell(self.session.user(), reported.address, "kafka", &what, audit::outcome(reply));
        }
    }
}

impl Protocol for KafkaConnection {
    fn next_frame(&self, input: &[u8]) -> Result<Option<Frame>, NoFrame> {
        let frame_of = |settings: &_| self.session.frame_of(input, settings);
        let next = self.shared.live.with_sessions(frame_of).map_err(|_| NoFrame)?;
        Ok(next.map(|NextFrame { len, memory }| {
            // A request whose memory equals its size carries messages.
            let waiting = (memory > len).then(|| len.max(memory / WAITING_PART));
            Frame { len, memory, waiting }
        }))
    }

    fn on_bytes(&mut self, input: &mut BytesMut, now: Now) {
        self.shared.under(now, |cx| self.session.on_bytes(input, cx));
    }

    fn wants_input(&self, now: Now) -> bool {
        self.shared.under(now, |cx| self.session.wants_input(cx))
    }

    fn starts_at_once(&self, input: &[u8]) -> bool {
        self.session.starts_at_once(input)
    }

    fn waiting_bytes(&self, at: usize) -> Option<usize> {
        self.session.waiting_bytes(at)
    }

    fn user(&self) -> Option<&str> {
        self.session.user()
    }

    fn wants_room(&self) -> Option<Room> {
        self.session.wants_room().map(|room| match room {
            session::Room::Bytes(bytes) => Room::Bytes(bytes),
            session::Room::Unknown => Room::Unknown,
        })
    }

    fn on_room(&mut self, now: Now) {
        self.shared.under(now, |cx| self.session.on_room(cx));
    }

    fn poll_request(&mut self) -> Option<(Token, Request)> {
        let asked = self.session.poll_request();
        if let Some((token, request)) = &asked {
            warn_of_compaction(request);
            if let Some(reported) = &mut self.reported {
                reported.open.extend(audit::what(request).map(|what| (*token, what)));
            }
        }
        asked
    }

    fn on_reply(&mut self, token: Token, reply: Reply, now: Now) {
        self.audit(token, &reply);
        self.shared.under(now, |cx| self.session.on_reply(token, reply, cx));
    }

    fn on_event(&mut self, event: Event, now: Now) {
        self.shared.under(now, |cx| self.session.on_event(event, cx));
    }

    fn poll_output(&mut self, out: &mut Vec<Chunk>) -> bool {
        self.session.poll_output(out)
    }

    fn inflight(&self) -> usize {
        self.session.inflight()
    }

    fn next_deadline_ms(&self, now: Now) -> Option<u64> {
        self.shared.under(now, |cx| self.session.next_deadline_ms(cx))
    }

    fn on_deadline(&mut self, now: Now) {
        self.shared.under(now, |cx| self.session.on_deadline(cx));
    }

    fn counts_time(&self) -> bool {
        self.session.counts_time()
    }

    fn charge_time(&mut self, ns: u64, now: Now) {
        self.shared.under(now, |cx| self.session.charge_time(ns, cx));
    }

    fn begin_turn(&mut self, steps_max: u64, now: Now) {
        self.shared.under(now, |cx| self.session.begin_turn(steps_max, cx));
    }

    fn unfinished(&self) -> Option<Unfinished> {
        self.session.unfinished()
    }

    fn unfinished_kind(&self) -> &'static str {
        self.session.unfinished_api().map_or("none", ApiKey::name)
    }

    fn steps_used(&self) -> u64 {
        self.session.steps_used()
    }

    fn work_owner(&self) -> Option<&str> {
        self.session.user()
    }

    fn is_logging_in(&self) -> bool {
        self.session.is_logging_in()
    }

    fn close_reason(&self) -> Option<String> {
        self.session.close_reason().map(ToString::to_string)
    }

    fn is_user(&self, name: &str) -> bool {
        self.session.user() == Some(name)
    }

    fn client_info(&self) -> Option<ClientInfo> {
        let client = self.session.client_id()?;
        let software = self.session.client_software().map(|s| format!("{} {}", s.name, s.version));
        Some(ClientInfo { user: self.session.user().map(ToString::to_string), client: client.to_string(), software })
    }
}

/// Warns the operator of each topic with compaction enabled: compaction is not implemented yet.
fn warn_of_compaction(request: &Request) {
    let warn = |topic: &str| {
        tracing::warn!(
            topic,
            "cleanup.policy=compact keeps every message for now: there is no compaction yet, and while `delete` is not set as \
             well nothing is removed by retention either"
        );
    };
    match request {
        Request::CreateTopics(create) if !create.validate_only => {
            // Internal topics stay empty.
            let compacted = create.topics.iter().filter(|new| new.config.cleanup.compact && !new.internal);
            compacted.for_each(|new| warn(&new.name));
        }
        Request::AlterTopics(alter) if !alter.validate_only => {
            let becomes = alter.changes.iter().filter(|change| {
                change.config.as_ref().is_some_and(|c| {
                    c.config.cleanup.compact && c.expected.get("cleanup.policy") != c.config.raw.get("cleanup.policy")
                })
            });
            becomes.for_each(|change| warn(&change.topic.to_string()));
        }
        _ => {}
    }
}
