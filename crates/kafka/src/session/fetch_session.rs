//! Fetch sessions (KIP-227): the partitions that a consumer fetches are stored, so that its requests name only changes, and
//! responses include only changed partitions.
//!
//! ```text
//!   request (id, epoch)      meaning
//!   (0, -1)                  no session
//!   (any, 0)                 full request; ends session `id` and creates a new one
//!   (any, -1)                full request; ends session `id`
//!   (id, n > 0)              incremental request in session `id`, whose next epoch must be n
//! ```
//!
//! Kafka has one cache for the sessions of all connections. Here each connection has its own: clients use one connection
//! to a broker for their fetches, and one that reconnects gets FETCH_SESSION_ID_NOT_FOUND and sends a full request, as after
//! an eviction in Kafka. The total over all connections is bounded by the [`FetchBudget`]; beyond it, requests are answered
//! without a session, which is legal and only costs bandwidth.

use super::fetch_looks::{FOLLOWED_PARTITIONS_MIN, Looks};
use super::topics::NAME_BYTES_MAX;
use super::turns::{Place, Turns};
use crate::settings::KafkaSettings;
use polylogue_kafka_codec::ErrorCode;
use polylogue_types::{PartitionId, TopicId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Sessions per connection. A client has one; more are for proxies that carry several clients over one
/// connection.
const SESSIONS_PER_CONNECTION_MAX: usize = 4;

/// The total of all connections' sessions.
#[derive(Debug, Default)]
pub struct FetchBudget {
    sessions: AtomicUsize,
    partitions: AtomicUsize,
}

impl FetchBudget {
    /// Number of sessions.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.load(Ordering::Relaxed)
    }

    /// Number of partitions in them.
    #[must_use]
    pub fn partitions(&self) -> usize {
        self.partitions.load(Ordering::Relaxed)
    }
}

/// A share of the budget, returned when dropped.
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

    /// Resizes the lease. Shrinking always succeeds.
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

/// The key of a topic in a session: its id in versions with ids, otherwise its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum SessionTopic {
    Id(TopicId),
    Name(Arc<str>),
}

impl SessionTopic {
    /// `None` for an invalid name: it could be long, and there is nothing to fetch.
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
    /// The client's fetch parameters.
    pub(super) want: Want,
    /// The high watermark that the client received last; -1 to send it again.
    pub(super) high_watermark: i64,
    pub(super) log_start: i64,
    /// Its position in the round-robin order.
    turn: u64,
    /// The partition that the broker follows.
    followed: Option<PartitionId>,
}

/// A client's fetch parameters for a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Want {
    pub(super) offset: i64,
    pub(super) bytes_max: i32,
    /// The client's leader epoch; -1 if unknown.
    pub(super) leader_epoch: i32,
    /// The epoch of the client's last message; negative if not sent.
    pub(super) last_epoch: i32,
}

/// One session.
#[derive(Debug)]
pub(super) struct FetchSession {
    id: i32,
    /// The epoch expected in the next request.
    epoch: i32,
    by_id: bool,
    used_ms: u64,
    lease: Lease,
    /// In round-robin order: a partition that returned data moves to the end.
    partitions: Turns<Cached>,
    places: BTreeMap<(SessionTopic, i32), Place>,
    next_turn: u64,
    looks: Looks,
}

impl FetchSession {
    pub(super) fn id(&self) -> i32 {
        self.id
    }

    /// The partitions in round-robin order. Their places are valid until one is removed.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Place, &Cached)> {
        self.partitions.iter()
    }

    pub(super) fn get_mut(&mut self, place: Place) -> Option<&mut Cached> {
        self.partitions.get_mut(place)
    }

    pub(super) fn len(&self) -> usize {
        self.partitions.len()
    }

    /// Adds or updates a partition.
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
        // Removal may have moved another partition to this place.
        if let Some(moved) = self.partitions.get(place) {
            self.looks.moved_place(moved.turn, moved.followed, place);
            self.places.insert((moved.topic.clone(), moved.partition), place);
        }
    }

    /// Moves a partition to the end of the round-robin order.
    pub(super) fn move_to_end(&mut self, place: Place) {
        self.next_turn += 1;
        if let Some(cached) = self.partitions.get_mut(place) {
            self.looks.moved_turn(cached.turn, self.next_turn);
            cached.turn = self.next_turn;
        }
        self.partitions.move_to_end(place);
    }

    /// Whether a fetch reads only the due partitions. `version` is that of the catalog in which they are going to be
    /// resolved.
    pub(super) fn looks_at_due(&mut self, version: u64) -> bool {
        if !self.looks.follows() && self.len() < FOLLOWED_PARTITIONS_MIN {
            return false;
        }
        if self.looks.begin(version) {
            self.looks.all_due(self.partitions.iter().map(|(place, cached)| (cached.turn, place)));
        }
        true
    }

    /// The due partitions, in round-robin order.
    pub(super) fn due(&self) -> impl Iterator<Item = (Place, &Cached)> {
        self.looks.due().filter_map(|place| Some((place, self.partitions.get(place)?)))
    }

    /// Follows the partition at a place. Returns whether the broker must be requested to follow it.
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

    /// Takes the partitions that the broker must stop following.
    pub(super) fn take_left(&mut self) -> Vec<PartitionId> {
        self.looks.take_left()
    }

    /// Marks a partition as changed. Returns whether it became due.
    pub(super) fn changed(&mut self, partition: PartitionId) -> bool {
        let Some(place) = self.looks.place(partition) else { return false };
        self.partitions.get(place).is_some_and(|cached| self.looks.mark(cached.turn, place))
    }

    /// Records that a partition was read and the client gets the result: not due if it is at its end; to be resolved and followed
    /// again after an error; otherwise still due.
    pub(super) fn looked(&mut self, place: Place, at_end: bool, failed: bool) {
        let Some(cached) = self.partitions.get_mut(place) else { return };
        if failed {
            cached.followed.take().into_iter().for_each(|partition| self.looks.leave(partition));
        } else if at_end {
            self.looks.clear(cached.turn);
        }
    }
}

/// The session id and epoch of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SessionRef {
    pub(super) id: i32,
    pub(super) epoch: i32,
}

impl SessionRef {
    /// Session epochs of a request that creates a session, and of one without a session.
    const INITIAL: i32 = 0;
    const FINAL: i32 = -1;

    /// Whether it is a full request.
    pub(super) fn is_full(self) -> bool {
        matches!(self.epoch, SessionRef::INITIAL | SessionRef::FINAL)
    }

    /// Whether it creates a session.
    pub(super) fn begins(self) -> bool {
        self.epoch == SessionRef::INITIAL
    }
}

/// Returns the next epoch: 0 and -1 are reserved.
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
    /// Ended sessions that the broker still follows.
    unfollow: Vec<i32>,
}

impl FetchSessions {
    pub(super) fn new(connection_id: u64, budget: Arc<FetchBudget>) -> FetchSessions {
        FetchSessions { sessions: Vec::new(), budget, connection_id, begun: 0, unfollow: Vec::new() }
    }

    /// Ends a session, if it exists.
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

    /// Takes the ended sessions that the broker must stop following.
    pub(super) fn take_unfollowed(&mut self) -> Vec<i32> {
        std::mem::take(&mut self.unfollow)
    }

    /// Creates a session for a number of partitions; `None` if the cache is full.
    pub(super) fn begin(
        &mut self,
        partitions: usize,
        by_id: bool,
        now_ms: u64,
        settings: &KafkaSettings,
    ) -> Option<&mut FetchSession> {
        if self.sessions.len() >= SESSIONS_PER_CONNECTION_MAX {
            // The least recently used session.
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

    /// Continues a session by an incremental request; advances its epoch.
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

    /// Checks a changed session against the budget. One that exceeds it is evicted: the client then creates a new one.
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

/// Returns a positive id, pseudorandom by connection: a client that reconnects must not match another session. (The epoch would
/// have to match by chance too.)
fn session_id(connection_id: u64, begun: u32) -> i32 {
    // splitmix64.
    let mut x = connection_id.rotate_left(32) ^ u64::from(begun);
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^= x >> 31;
    // The upper 31 bits.
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
        // The partition that took the place of the removed one is still found.
        session.put(name("b"), 0, want(8));
        assert_eq!(session.iter().map(|(_, cached)| cached.want.offset).collect::<Vec<_>>(), [5, 8]);
        // Removed and added again: at the end.
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
