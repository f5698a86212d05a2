//! The list of connections, their channels and consumers, for listings and limits.
//!
//! Soft state. An entry exists from the moment a client opens a virtual host until its connection is dropped. It changes with channels and consumers,
//! never with a message. The limits of virtual hosts and users are checked against these entries.

use crate::counts::{Count, Traffic};
use crate::flow::FLOW_SHOWN_MS;
use bytes::Bytes;
use bytestring::ByteString;
use parking_lot::{Mutex, RwLock};
use polylogue_amqp::codec::Table;
use polylogue_amqp::request::{ChannelRef, ConsumerRef};
use polylogue_router::{QueueId, VhostId};
use polylogue_types::{Map, TimestampMs};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most bytes of a consumer's arguments that are kept; longer ones are not shown. Bytes.
pub(crate) const SHOWN_ARGUMENTS_BYTES_MAX: usize = 1 << 10;

/// The addresses of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// The client's address.
    pub peer: SocketAddr,
    /// The listener's address.
    pub local: SocketAddr,
}

impl Ends {
    /// The name that RabbitMQ gives such a connection.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} -> {}", self.peer, self.local)
    }
}

/// A consumer in listings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShownConsumer {
    /// Its consumer tag.
    pub tag: Bytes,
    /// Its queue.
    pub queue: QueueId,
    /// Whether acknowledgement is manual.
    pub ack_required: bool,
    /// Whether it is exclusive.
    pub exclusive: bool,
    /// Its prefetch; 0 for none.
    pub prefetch: u16,
    /// Its arguments; empty if they are too long.
    pub arguments: Table,
}

/// A channel in listings.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ShownChannel {
    /// The shared prefetch of its consumers; 0 for none.
    pub global_prefetch: u16,
    /// Whether something was published on it.
    pub publishes: bool,
    /// Its consumers.
    pub consumers: BTreeMap<ConsumerRef, ShownConsumer>,
}

/// A connection in listings.
#[derive(Debug)]
pub struct Presence {
    /// The connection's id, unique for the life of the process.
    pub id: u64,
    /// Its addresses.
    pub ends: Ends,
    /// Its user.
    pub user: ByteString,
    /// Its virtual host.
    pub vhost: VhostId,
    /// Its client properties.
    pub client_properties: Table,
    /// When it opened the virtual host. Wall time.
    pub since_ms: TimestampMs,
    channels: Mutex<BTreeMap<u16, ShownChannel>>,
    /// When it was last in flow; [`IN_FLOW`] while it is. Monotonic milliseconds.
    flow_ms: AtomicU64,
}

/// [`Presence::flow_ms`] of a connection that is in flow, and of one that never was.
const IN_FLOW: u64 = u64::MAX;
const NEVER: u64 = u64::MAX - 1;

impl Presence {
    /// Whether it is in flow, or was shortly before that monotonic time.
    #[must_use]
    pub fn is_in_flow(&self, now_ms: u64) -> bool {
        match self.flow_ms.load(Ordering::Relaxed) {
            IN_FLOW => true,
            NEVER => false,
            since_ms => now_ms < since_ms.saturating_add(FLOW_SHOWN_MS),
        }
    }

    /// Its current channels by number.
    #[must_use]
    pub fn channels(&self) -> BTreeMap<u16, ShownChannel> {
        self.channels.lock().clone()
    }

    /// How many channels it has.
    #[must_use]
    pub fn channel_count(&self) -> usize {
        self.channels.lock().len()
    }

    /// How many of its channels publish, and how many consumers it has.
    #[must_use]
    pub fn publishers_and_consumers(&self) -> (usize, usize) {
        let channels = self.channels.lock();
        let publishers = channels.values().filter(|channel| channel.publishes).count();
        (publishers, channels.values().map(|channel| channel.consumers.len()).sum())
    }
}

/// Why another channel is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChannelLimit {
    /// The user's limit.
    User(u64),
    /// The limit over all connections.
    Node(u64),
}

/// The counts of a user.
#[derive(Debug, Default)]
struct Tally {
    connections: u64,
    channels: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Open {
    by_id: Map<u64, Arc<Presence>>,
    users: Map<ByteString, Tally>,
    vhosts: Map<VhostId, u64>,
}

/// All connections.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    open: RwLock<Open>,
    channels: AtomicU64,
    /// How many connections are in flow.
    in_flow: AtomicU64,
    /// Their counters.
    pub(crate) traffic: Arc<Traffic>,
}

impl Clients {
    pub(crate) fn one(&self, id: u64) -> Option<Arc<Presence>> {
        self.open.read().by_id.get(&id).cloned()
    }

    /// In the order of their creation.
    pub(crate) fn all(&self) -> Vec<Arc<Presence>> {
        let mut all: Vec<_> = self.open.read().by_id.values().cloned().collect();
        all.sort_unstable_by_key(|presence| presence.id);
        all
    }

    /// How many connections are in flow.
    pub(crate) fn in_flow(&self) -> u64 {
        self.in_flow.load(Ordering::Relaxed)
    }

    /// The numbers of connections and channels.
    pub(crate) fn count(&self) -> (u64, u64) {
        (self.open.read().by_id.len() as u64, self.channels.load(Ordering::Relaxed))
    }
}

/// The data of a new entry.
#[derive(Debug)]
pub(crate) struct NewConnection {
    pub(crate) id: u64,
    pub(crate) ends: Ends,
    pub(crate) user: ByteString,
    pub(crate) vhost: VhostId,
    pub(crate) client_properties: Table,
    pub(crate) since_ms: TimestampMs,
}

/// An entry, which is removed with the connection.
#[derive(Debug)]
pub(crate) struct Entry {
    presence: Arc<Presence>,
    of: Arc<Clients>,
    /// The number of channels over all connections of the user.
    of_user: Arc<AtomicU64>,
}

/// Increments a count, unless it is at the limit.
fn up_to(count: &AtomicU64, max: u64) -> bool {
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < max).then_some(n + 1)).is_ok()
}

impl Entry {
    /// Adds an entry, if `check` accepts the current counts of the virtual host and the user.
    pub(crate) fn new<E>(
        of: Arc<Clients>,
        who: NewConnection,
        check: impl FnOnce(u64, u64) -> Result<(), E>,
    ) -> Result<Entry, E> {
        let NewConnection { id, ends, user, vhost, client_properties, since_ms } = who;
        let mut open = of.open.write();
        let in_vhost = open.vhosts.get(&vhost).copied().unwrap_or(0);
        check(in_vhost, open.users.get(&user).map_or(0, |tally| tally.connections))?;
        *open.vhosts.entry(vhost).or_default() += 1;
        let tally = open.users.entry(user.clone()).or_default();
        tally.connections += 1;
        let of_user = tally.channels.clone();
        let channels = Mutex::default();
        let flow_ms = NEVER.into();
        let presence = Presence { id, ends, user, vhost, client_properties, since_ms, channels, flow_ms };
        let presence = Arc::new(presence);
        open.by_id.insert(id, presence.clone());
        drop(open);
        of.traffic.more(Count::ConnectionsOpened, 1);
        Ok(Entry { presence, of, of_user })
    }

    /// Counts another channel, if the limits of user and node allow.
    pub(crate) fn opened(&self, channel: ChannelRef, user_max: Option<u64>, node_max: u64) -> Result<(), ChannelLimit> {
        let user_max = user_max.unwrap_or(u64::MAX);
        if !up_to(&self.of_user, user_max) {
            return Err(ChannelLimit::User(user_max));
        }
        if !up_to(&self.of.channels, node_max) {
            self.of_user.fetch_sub(1, Ordering::Relaxed);
            return Err(ChannelLimit::Node(node_max));
        }
        self.presence.channels.lock().insert(channel.number, ShownChannel::default());
        self.of.traffic.more(Count::ChannelsOpened, 1);
        Ok(())
    }

    pub(crate) fn closed(&self, channel: ChannelRef) {
        if self.presence.channels.lock().remove(&channel.number).is_some() {
            self.fewer_channels(1);
        }
    }

    fn fewer_channels(&self, count: u64) {
        self.of_user.fetch_sub(count, Ordering::Relaxed);
        self.of.channels.fetch_sub(count, Ordering::Relaxed);
        self.of.traffic.more(Count::ChannelsClosed, count);
    }

    /// Enters or leaves flow.
    pub(crate) fn flows(&self, in_flow: bool, now_ms: u64) {
        let before = self.presence.flow_ms.swap(if in_flow { IN_FLOW } else { now_ms }, Ordering::Relaxed);
        match (before == IN_FLOW, in_flow) {
            (false, true) => self.of.in_flow.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.of.in_flow.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
    }

    pub(crate) fn publishes(&self, channel: ChannelRef) {
        if let Some(shown) = self.presence.channels.lock().get_mut(&channel.number) {
            shown.publishes = true;
        }
    }

    pub(crate) fn prefetch(&self, channel: ChannelRef, count: u16) {
        if let Some(shown) = self.presence.channels.lock().get_mut(&channel.number) {
            shown.global_prefetch = count;
        }
    }

    pub(crate) fn consumes(&self, channel: ChannelRef, consumer: ConsumerRef, what: ShownConsumer) {
        if let Some(shown) = self.presence.channels.lock().get_mut(&channel.number) {
            shown.consumers.insert(consumer, what);
        }
    }

    pub(crate) fn cancelled(&self, channel: ChannelRef, consumer: ConsumerRef) {
        if let Some(shown) = self.presence.channels.lock().get_mut(&channel.number) {
            shown.consumers.remove(&consumer);
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.fewer_channels(self.presence.channel_count() as u64);
        self.flows(false, 0);
        self.of.traffic.more(Count::ConnectionsClosed, 1);
        let Presence { id, user, vhost, .. } = &*self.presence;
        let mut open = self.of.open.write();
        open.by_id.remove(id);
        if let Some(tally) = open.users.get_mut(user) {
            tally.connections -= 1;
            if tally.connections == 0 {
                open.users.remove(user);
            }
        }
        if let Some(count) = open.vhosts.get_mut(vhost) {
            *count -= 1;
            if *count == 0 {
                open.vhosts.remove(vhost);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn come(clients: &Arc<Clients>, id: u64, user: &'static str, vhost: u32) -> Result<Entry, (u64, u64)> {
        let at = SocketAddr::from(([127, 0, 0, 1], 1));
        let who = NewConnection {
            id,
            ends: Ends { peer: at, local: at },
            user: user.into(),
            vhost: VhostId(vhost),
            client_properties: Table::EMPTY,
            since_ms: 0,
        };
        let enough = |in_vhost, of_user| if in_vhost + of_user < 3 { Ok(()) } else { Err((in_vhost, of_user)) };
        Entry::new(clients.clone(), who, enough)
    }

    #[test]
    fn connections_and_channels_are_counted_while_open() {
        let clients: Arc<Clients> = Arc::default();
        let one = come(&clients, 1, "a", 1).expect("the first one");
        let two = come(&clients, 2, "a", 2).expect("another one of the user");
        assert_eq!(come(&clients, 3, "a", 1).unwrap_err(), (1, 2));
        let other = come(&clients, 4, "b", 1).expect("another user");
        let channel = |number| ChannelRef { number, life: 1 };
        assert_eq!(one.opened(channel(1), Some(2), 3), Ok(()));
        assert_eq!(two.opened(channel(1), Some(2), 3), Ok(()));
        assert_eq!(two.opened(channel(2), Some(2), 3), Err(ChannelLimit::User(2)), "on both connections together");
        assert_eq!(other.opened(channel(1), None, 3), Ok(()));
        assert_eq!(other.opened(channel(2), None, 3), Err(ChannelLimit::Node(3)));
        assert_eq!(clients.count(), (3, 3));
        one.closed(channel(1));
        one.closed(channel(1));
        assert_eq!(two.opened(channel(2), Some(2), 3), Ok(()), "there is room again");
        drop((one, two));
        assert_eq!(clients.count(), (1, 1));
        let churn = |what| clients.traffic.count(what);
        assert_eq!((churn(Count::ConnectionsOpened), churn(Count::ConnectionsClosed)), (3, 2));
        assert_eq!((churn(Count::ChannelsOpened), churn(Count::ChannelsClosed)), (4, 3));
        other.publishes(channel(1));
        assert_eq!(clients.one(4).map(|one| one.publishers_and_consumers()), Some((1, 0)));
        drop(other);
        let open = clients.open.read();
        assert_eq!((open.users.len(), open.vhosts.len()), (0, 0), "closed connections are removed");
    }
}
