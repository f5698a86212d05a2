//! Fetch sessions (KIP-227): what a consumer fetches is remembered, so that its requests name only what is new and its
//! responses only what has changed.
//!
//! ```text
//!   request (id, epoch)      what it is
//!   (0, -1)                  no session
//!   (any, 0)                 names everything; ends session `id`, and begins a new one
//!   (any, -1)                names everything; ends session `id`
//!   (id, n > 0)              names what is new in session `id`, whose next epoch must be n
//! ```
//!
//! Kafka keeps the sessions of all connections in one cache. Here each connection keeps its own: clients use one connection
//! to a broker for their fetches, and one that comes back by another connection gets FETCH_SESSION_ID_NOT_FOUND and
//! names everything once more, as after an eviction in Kafka. What all connections together may hold is bounded by the
//! [`FetchBudget`]; beyond that, requests are answered without a session, which is legal and only costs bandwidth.

use super::fetch_looks::{FOLLOWED_PARTITIONS_MIN, Looks};
use super::topics::NAME_BYTES_MAX;
use super::turns::{Place, Turns};
use crate::codec::ErrorCode;
use crate::settings::KafkaSettings;
use polylogue_types::{PartitionId, TopicId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Sessions of one connection. A client has one; proxies that carry several clients over one connection are why it is
/// not one.
const SESSIONS_PER_CONNECTION_MAX: usize = 4;

/// What all connections together hold: shared by all of them.
#[derive(Debug, Default)]
pub struct FetchBudget {
    sessions: AtomicUsize,
    partitions: AtomicUsize,
}

impl FetchBudget {
    /// Sessions that there are.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.load(Ordering::Relaxed)
    }

    /// Partitions in them.
    #[must_use]
    pub fn partitions(&self) -> usize {
        self.partitions.load(Ordering::Relaxed)
    }
}

/// A part of the budget, given back when it is dropped.
#[derive(Debug)]
struct Lease {
    budget: Arc<FetchBudget>,
    partitions: usize,
}

impl Lease {
    fn take(budget: &Arc<FetchBudget>, settings: &KafkaSettings) -> Option<Lease> {
        take(&budget.sessions, 1, settings.fetch_sessions_max)
            .then(|| Lease { budget: Arc::clone(budget), partitions: 0 })
    }

    /// Makes the lease one for that many partitions. Less is always granted.
    fn resize(&mut self, partitions: usize, settings: &KafkaSettings) -> bool {
        let granted = match partitions.checked_sub(self.partitions) {
            Some(more) => take(&self.budget.partitions, more, settings.fetch_session_partitions_max),
            None => {
                self.budget.partitions.fetch_sub(self.partitions - partitions, Ordering::Relaxed);
                true
            }
        };
        if granted {
            self.partitions = partitions;
        }
        granted
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.budget.sessions.fetch_sub(1, Ordering::Relaxed);
        self.budget.partitions.fetch_sub(self.partitions, Ordering::Relaxed);
    }
}

fn take(counter: &AtomicUsize, more: usize, max: usize) -> bool {
    counter
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| held.checked_add(more).filter(|sum| *sum <= max))
        .is_ok()
}

/// How a session knows a topic: by its id in the versions that have ids, else by its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum SessionTopic {
    Id(TopicId),
    Name(Arc<str>),
}

impl SessionTopic {
    /// `None` for a name that no topic can have: it would be remembered at its full length, and there is nothing to fetch.
    pub(super) fn new(name: &str, id: TopicId, by_id: bool) -> Option<SessionTopic> {
        if by_id {
            return Some(SessionTopic::Id(id));
        }
        (name.len() <= NAME_BYTES_MAX).then(|| SessionTopic::Name(Arc::from(name)))
    }
}

/// A partition in a session.
#[derive(Clone, Debug)]
pub(super) struct Cached {
    pub(super) topic: SessionTopic,
    pub(super) partition: i32,
    /// What the client wants.
    pub(super) want: Want,
    /// What the client received last; -1 when it has to be sent again.
    pub(super) high_watermark: i64,
    pub(super) log_start: i64,
    /// Rises from partition to partition in the order of their turns.
    turn: u64,
    /// What the broker follows for it.
    followed: Option<PartitionId>,
}

/// What a client wants of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Want {
    pub(super) offset: i64,
    pub(super) bytes_max: i32,
    /// -1 when the client does not know.
    pub(super) leader_epoch: i32,
    /// Of the last message that the client has; below 0 when it does not say.
    pub(super) last_epoch: i32,
}

/// One session.
#[derive(Debug)]
pub(super) struct FetchSession {
    id: i32,
    /// The epoch that the next request must have.
    epoch: i32,
    by_id: bool,
    used_ms: u64,
    lease: Lease,
    /// In the order in which they are fetched. A partition that returned data moves to the end, so that each has its turn.
    partitions: Turns<Cached>,
    places: BTreeMap<(SessionTopic, i32), Place>,
    next_turn: u64,
    looks: Looks,
}

impl FetchSession {
    pub(super) fn id(&self) -> i32 {
        self.id
    }

    /// The partitions in the order of their turns. Their places hold until one is forgotten.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Place, &Cached)> {
        self.partitions.iter()
    }

    pub(super) fn get_mut(&mut self, place: Place) -> Option<&mut Cached> {
        self.partitions.get_mut(place)
    }

    pub(super) fn len(&self) -> usize {
        self.partitions.len()
    }

    /// Adds a partition, or changes what is wanted of it.
    pub(super) fn put(&mut self, topic: SessionTopic, partition: i32, want: Want) -> Place {
        let FetchSession { partitions, places, next_turn, looks, .. } = self;
        let place = *places.entry((topic.clone(), partition)).or_insert_with(|| {
            *next_turn += 1;
            let turn = *next_turn;
            partitions.push(Cached { topic, partition, want, high_watermark: -1, log_start: -1, turn, followed: None })
        });
        if let Some(cached) = partitions.get_mut(place) {
            cached.want = want;
            looks.mark(cached.turn, place);
        }
        place
    }

    pub(super) fn forget(&mut self, topic: &SessionTopic, partition: i32) {
        let Some(place) = self.places.remove(&(topic.clone(), partition)) else { return };
        if let Some(gone) = self.partitions.remove(place) {
            self.looks.clear(gone.turn);
            gone.followed.into_iter().for_each(|partition| self.looks.leave(partition));
        }
        // another one may have its place now
        if let Some(moved) = self.partitions.get(place) {
            self.looks.moved_place(moved.turn, moved.followed, place);
            self.places.insert((moved.topic.clone(), moved.partition), place);
        }
    }

    /// Puts a partition behind all others.
    pub(super) fn move_to_end(&mut self, place: Place) {
        self.next_turn += 1;
        if let Some(cached) = self.partitions.get_mut(place) {
            self.looks.moved_turn(cached.turn, self.next_turn);
            cached.turn = self.next_turn;
        }
        self.partitions.move_to_end(place);
    }

    /// Whether a fetch need not look at all partitions, but only at those that are due. `version` is that of the catalog in which
    /// they are going to be found.
    pub(super) fn looks_at_due(&mut self, version: u64) -> bool {
        if !self.looks.follows() && self.len() < FOLLOWED_PARTITIONS_MIN {
            return false;
        }
        if self.looks.begin(version) {
            self.looks.all_due(self.partitions.iter().map(|(place, cached)| (cached.turn, place)));
        }
        true
    }

    /// The partitions that are due, in the order of their turns.
    pub(super) fn due(&self) -> impl Iterator<Item = (Place, &Cached)> {
        self.looks.due().filter_map(|place| Some((place, self.partitions.get(place)?)))
    }

    /// A fetch looks at what the broker calls `partition`. Whether the broker has to be asked to follow it.
    pub(super) fn follow(&mut self, place: Place, partition: PartitionId) -> bool {
        let Some(cached) = self.partitions.get_mut(place) else { return false };
        let before = cached.followed.replace(partition);
        if before == Some(partition) {
            return false;
        }
        before.into_iter().for_each(|other| self.looks.leave(other));
        self.looks.follow(partition, place);
        true
    }

    /// What the broker need not follow any more.
    pub(super) fn take_left(&mut self) -> Vec<PartitionId> {
        self.looks.take_left()
    }

    /// The broker says that a partition has changed. Whether a fetch has to look at one more by that.
    pub(super) fn changed(&mut self, partition: PartitionId) -> bool {
        let Some(place) = self.looks.place(partition) else { return false };
        self.partitions.get(place).is_some_and(|cached| self.looks.mark(cached.turn, place))
    }

    /// A fetch has looked at a partition, and its client gets what it saw: it is at its end, so that there is nothing to see
    /// until the broker says so; or it had an error, and has to be resolved and followed again; or there is more to read.
    pub(super) fn looked(&mut self, place: Place, at_end: bool, failed: bool) {
        let Some(cached) = self.partitions.get_mut(place) else { return };
        if failed {
            cached.followed.take().into_iter().for_each(|partition| self.looks.leave(partition));
        } else if at_end {
            self.looks.clear(cached.turn);
        }
    }
}

/// What a request says of its session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SessionRef {
    pub(super) id: i32,
    pub(super) epoch: i32,
}

impl SessionRef {
    /// The epochs of a request that creates a session, and of a request without one.
    const INITIAL: i32 = 0;
    const FINAL: i32 = -1;

    /// Whether the request names everything it wants.
    pub(super) fn is_full(self) -> bool {
        matches!(self.epoch, SessionRef::INITIAL | SessionRef::FINAL)
    }

    /// Whether it creates a session.
    pub(super) fn begins(self) -> bool {
        self.epoch == SessionRef::INITIAL
    }
}

/// The epoch after this one: 0 and -1 have meanings of their own.
fn next_epoch(epoch: i32) -> i32 {
    epoch.checked_add(1).filter(|next| *next > 0).unwrap_or(1)
}

/// The sessions of one connection.
#[derive(Debug)]
pub(super) struct FetchSessions {
    sessions: Vec<FetchSession>,
    budget: Arc<FetchBudget>,
    connection_id: u64,
    begun: u32,
    /// Ended ones whose partitions the broker still follows.
    unfollow: Vec<i32>,
}

impl FetchSessions {
    pub(super) fn new(connection_id: u64, budget: Arc<FetchBudget>) -> FetchSessions {
        FetchSessions { sessions: Vec::new(), budget, connection_id, begun: 0, unfollow: Vec::new() }
    }

    /// Ends a session, if there is one of that id.
    pub(super) fn end(&mut self, id: i32) {
        if let Some(at) = self.sessions.iter().position(|session| session.id == id) {
            self.end_at(at);
        }
    }

    fn end_at(&mut self, at: usize) {
        let ended = self.sessions.remove(at);
        if ended.looks.follows() {
            self.unfollow.push(ended.id);
        }
    }

    /// Sessions that have ended, and whose partitions the broker need not follow any more.
    pub(super) fn take_unfollowed(&mut self) -> Vec<i32> {
        std::mem::take(&mut self.unfollow)
    }

    /// Begins a session for so many partitions; `None` when there is no room for one.
    pub(super) fn begin(
        &mut self,
        partitions: usize,
        by_id: bool,
        now_ms: u64,
        settings: &KafkaSettings,
    ) -> Option<&mut FetchSession> {
        if self.sessions.len() >= SESSIONS_PER_CONNECTION_MAX {
            // the least recently used one
            let (oldest, _) = self.sessions.iter().enumerate().min_by_key(|(_, session)| session.used_ms)?;
            self.end_at(oldest);
        }
        let mut lease = Lease::take(&self.budget, settings)?;
        if !lease.resize(partitions, settings) {
            return None;
        }
        self.begun += 1;
        let id = session_id(self.connection_id, self.begun);
        self.sessions.push(FetchSession {
            id,
            epoch: next_epoch(SessionRef::INITIAL),
            by_id,
            used_ms: now_ms,
            lease,
            partitions: Turns::new(),
            places: BTreeMap::new(),
            next_turn: 0,
            looks: Looks::default(),
        });
        self.sessions.last_mut()
    }

    pub(super) fn get_mut(&mut self, id: i32) -> Option<&mut FetchSession> {
        self.sessions.iter_mut().find(|session| session.id == id)
    }

    /// The session that an incremental request continues; its epoch advances.
    pub(super) fn go_on(&mut self, at: SessionRef, by_id: bool, now_ms: u64) -> Result<&mut FetchSession, ErrorCode> {
        let session = self.get_mut(at.id).ok_or(ErrorCode::FetchSessionIdNotFound)?;
        if session.epoch != at.epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        if session.by_id != by_id {
            return Err(ErrorCode::FetchSessionTopicIdError);
        }
        session.epoch = next_epoch(session.epoch);
        session.used_ms = now_ms;
        Ok(session)
    }

    /// Checks a changed session against the budget. A session beyond it is evicted: the client then creates a new one.
    pub(super) fn settle(&mut self, id: i32, settings: &KafkaSettings) -> Result<(), ErrorCode> {
        let session = self.get_mut(id).ok_or(ErrorCode::FetchSessionIdNotFound)?;
        let partitions = session.len();
        if session.lease.resize(partitions, settings) {
            return Ok(());
        }
        self.end(id);
        Err(ErrorCode::FetchSessionIdNotFound)
    }
}

/// A positive id that differs from those of other connections but for chance: a client that comes back by another connection
/// must not meet a session that is not its own. (The epoch would have to fit by chance too.)
fn session_id(connection_id: u64, begun: u32) -> i32 {
    // splitmix64
    let mut x = connection_id.rotate_left(32) ^ u64::from(begun);
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^= x >> 31;
    // the upper 31 bits
    let id = i32::try_from(x >> 33).unwrap_or(1);
    id.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> SessionTopic {
        SessionTopic::Name(Arc::from(text))
    }

    fn want(offset: i64) -> Want {
        Want { offset, bytes_max: 1, leader_epoch: -1, last_epoch: -1 }
    }

    fn order(session: &FetchSession) -> Vec<i32> {
        session.iter().map(|(_, cached)| cached.partition).collect()
    }

    #[test]
    fn epochs_go_round_past_those_with_a_meaning() {
        assert_eq!(next_epoch(0), 1);
        assert_eq!(next_epoch(i32::MAX), 1);
        assert_eq!(next_epoch(-1), 1);
    }

    #[test]
    fn partitions_keep_their_place_until_they_are_moved() {
        let settings = KafkaSettings::default();
        let mut sessions = FetchSessions::new(1, Arc::default());
        let session = sessions.begin(3, false, 0, &settings).unwrap();
        let first = session.put(name("a"), 0, want(5));
        session.put(name("a"), 1, want(5));
        session.put(name("b"), 0, want(5));
        assert_eq!(session.put(name("a"), 0, want(6)), first);
        assert_eq!(session.get_mut(first).unwrap().want, want(6));
        session.move_to_end(first);
        assert_eq!(order(session), [1, 0, 0]);
        session.forget(&name("a"), 0);
        session.forget(&name("nothing"), 0);
        assert_eq!(order(session), [1, 0]);
        assert_eq!(session.len(), 2);
        // the one that took the place of the forgotten one is still found
        session.put(name("b"), 0, want(8));
        assert_eq!(session.iter().map(|(_, cached)| cached.want.offset).collect::<Vec<_>>(), [5, 8]);
        // forgotten and back: behind the others
        session.put(name("a"), 0, want(7));
        assert_eq!(session.iter().last().unwrap().1.want, want(7));
    }

    #[test]
    fn the_budget_is_shared_and_given_back() {
        let settings =
            KafkaSettings { fetch_sessions_max: 2, fetch_session_partitions_max: 10, ..KafkaSettings::default() };
        let budget = Arc::<FetchBudget>::default();
        let mut one = FetchSessions::new(1, Arc::clone(&budget));
        let mut two = FetchSessions::new(2, Arc::clone(&budget));
        assert!(one.begin(11, true, 0, &settings).is_none());
        assert_eq!((budget.sessions(), budget.partitions()), (0, 0));
        let id = one.begin(6, true, 0, &settings).unwrap().id();
        assert!(two.begin(5, true, 0, &settings).is_none());
        assert!(two.begin(4, true, 0, &settings).is_some());
        assert!(one.begin(0, true, 0, &settings).is_none());
        assert_eq!((budget.sessions(), budget.partitions()), (2, 10));
        one.end(id);
        drop(two);
        assert_eq!((budget.sessions(), budget.partitions()), (0, 0));
    }

    #[test]
    fn a_session_that_outgrows_the_budget_is_gone() {
        let settings = KafkaSettings { fetch_session_partitions_max: 2, ..KafkaSettings::default() };
        let mut sessions = FetchSessions::new(1, Arc::default());
        let session = sessions.begin(2, false, 0, &settings).unwrap();
        let id = session.id();
        (0..3).for_each(|p| _ = session.put(name("a"), p, want(0)));
        assert_eq!(sessions.settle(id, &settings), Err(ErrorCode::FetchSessionIdNotFound));
        assert!(sessions.get_mut(id).is_none());
        assert_eq!(sessions.budget.partitions(), 0);
    }

    #[test]
    fn the_session_that_was_not_used_for_longest_makes_room() {
        let settings = KafkaSettings::default();
        let mut sessions = FetchSessions::new(1, Arc::default());
        let ids: Vec<i32> = (0..4).map(|ms| sessions.begin(0, true, ms, &settings).unwrap().id()).collect();
        sessions.go_on(SessionRef { id: ids[0], epoch: 1 }, true, 10).unwrap();
        let fifth = sessions.begin(0, true, 11, &settings).unwrap().id();
        let alive: Vec<i32> = sessions.sessions.iter().map(FetchSession::id).collect();
        assert_eq!(alive, [ids[0], ids[2], ids[3], fifth]);
    }

    #[test]
    fn ids_are_positive_and_differ() {
        let mut ids: Vec<i32> = (0..50).flat_map(|c| (1..50).map(move |n| session_id(c, n))).collect();
        assert!(ids.iter().all(|id| *id > 0));
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all);
    }
}
