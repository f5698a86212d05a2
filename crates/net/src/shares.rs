//! Shares of the request memory, per user and per connection.
//!
//! Requests with messages end when these are written. Others may wait: for messages, for members of a group, for earlier requests of their
//! connection. However many of them a user sends, over any number of connections, the rest of the memory is left to other users.

use crate::handle::{Admission, Permit};
use parking_lot::Mutex;
use polylogue_types::Map;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

/// Share of each lane that one user's requests without messages may use: one in this many parts. Clients that have not logged in count as the
/// user of their address.
pub(super) const USER_SHARE: usize = 4;
/// Share of that for one connection: one in this many parts.
pub(super) const CONNECTION_SHARE: usize = 4;

/// The owner of a share.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Owner {
    User(Box<str>),
    Address(IpAddr),
}

/// The memory of one user's requests in each lane.
#[derive(Debug)]
struct Share {
    small: Admission,
    large: Admission,
}

/// The shares of all users with connections.
pub(super) struct Shares {
    small_bytes_max: usize,
    large_bytes_max: usize,
    by_owner: Mutex<Map<Owner, Weak<Share>>>,
}

impl fmt::Debug for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shares").field("owners", &self.by_owner.lock().len()).finish_non_exhaustive()
    }
}

impl Shares {
    /// Creates shares of lanes of these sizes.
    pub(super) fn new(small_bytes: usize, large_bytes: usize) -> Shares {
        Shares {
            small_bytes_max: small_bytes / USER_SHARE,
            large_bytes_max: large_bytes / USER_SHARE,
            by_owner: Mutex::default(),
        }
    }

    /// Returns the limit of one connection in the lane for small or large requests. Bytes.
    pub(super) fn connection_bytes_max(&self, is_small: bool) -> usize {
        (if is_small { self.small_bytes_max } else { self.large_bytes_max }) / CONNECTION_SHARE
    }

    fn of(&self, owner: &Owner) -> Arc<Share> {
        let mut by_owner = self.by_owner.lock();
        if let Some(share) = by_owner.get(owner).and_then(Weak::upgrade) {
            return share;
        }
        let (small, large) = (Admission::new(self.small_bytes_max), Admission::new(self.large_bytes_max));
        let share = Arc::new(Share { small, large });
        by_owner.insert(owner.clone(), Arc::downgrade(&share));
        share
    }

    /// Removes an owner when its last connection releases its share.
    fn let_go(&self, owner: &Owner, share: Arc<Share>) {
        let mut by_owner = self.by_owner.lock();
        drop(share);
        if by_owner.get(owner).is_some_and(|share| share.strong_count() == 0) {
            by_owner.remove(owner);
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.by_owner.lock().len()
    }
}

/// The account that one connection's requests are charged to.
#[derive(Debug)]
pub(super) struct Account {
    shares: Arc<Shares>,
    address: IpAddr,
    now: Option<(Owner, Arc<Share>)>,
}

impl Account {
    /// Creates the account of a connection from this address.
    pub(super) fn new(shares: Arc<Shares>, address: IpAddr) -> Account {
        Account { shares, address: address.to_canonical(), now: None }
    }

    /// Returns this user's limit in one of the lanes.
    pub(super) fn of(&mut self, user: Option<&str>, is_small: bool) -> Admission {
        let is_same = self.now.as_ref().is_some_and(|(owner, _)| match owner {
            Owner::User(name) => user == Some(&**name),
            Owner::Address(_) => user.is_none(),
        });
        if !is_same {
            self.let_go();
        }
        let (_, share) = self.now.get_or_insert_with(|| {
            let owner = user.map_or(Owner::Address(self.address), |name| Owner::User(name.into()));
            let share = self.shares.of(&owner);
            (owner, share)
        });
        if is_small { share.small.clone() } else { share.large.clone() }
    }

    fn let_go(&mut self) {
        if let Some((owner, share)) = self.now.take() {
            self.shares.let_go(&owner, share);
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// The memory of one request: a part of a lane, and of the user's share of it.
#[derive(Debug)]
pub(super) struct Grant {
    lane: Permit,
    share: Option<Permit>,
}

impl Grant {
    /// `share` is `None` for a request with messages.
    pub(super) fn new(lane: Permit, share: Option<Permit>) -> Grant {
        Grant { lane, share }
    }

    /// Releases memory above this size.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        self.lane.shrink_to(bytes);
        if let Some(share) = &mut self.share {
            share.shrink_to(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_that_of_a_user_over_all_connections_and_is_forgotten_with_the_last() {
        let shares = Arc::new(Shares::new(4_000, 40_000));
        let account = |last: u8| Account::new(shares.clone(), IpAddr::from([10, 0, 0, last]));
        let (mut one, mut two, mut three) = (account(1), account(2), account(1));
        let held = one.of(Some("alice"), true).try_admit(900).unwrap();
        assert!(two.of(Some("alice"), true).try_admit(200).is_none(), "another connection of the same user");
        assert!(two.of(Some("alice"), false).try_admit(9_000).is_some(), "the other lane");
        assert!(three.of(Some("bob"), true).try_admit(1_000).is_some(), "another user");
        assert!(
            three.of(None, true).try_admit(1_000).is_some(),
            "a client that has not logged in counts as its address"
        );
        assert_eq!(shares.len(), 2, "bob's share is removed");
        drop(held);
        drop((one, two, three));
        assert_eq!(shares.len(), 0);
    }
}
