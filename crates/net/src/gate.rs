//! Limits on the number of connections, in total and per address.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Why a connection is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// `connections_max` of all listeners.
    Server,
    /// The protocol's own limit.
    Protocol,
    /// The limit per address.
    Address,
}

impl Refusal {
    /// Returns its label in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Refusal::Server => "server_full",
            Refusal::Protocol => "protocol_full",
            Refusal::Address => "address_full",
        }
    }
}

/// Limits of one protocol's listeners, counted together with those of the others.
#[derive(Clone, Debug)]
pub struct Gate {
    server: Arc<AtomicUsize>,
    server_max: usize,
    protocol: Arc<AtomicUsize>,
    by_address: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
    bounds: Bounds,
}

/// Returns the limits on a protocol's connections, in total and for the given address. Called for each connection, because
/// settings change.
type AskBounds = dyn Fn(IpAddr) -> (usize, usize) + Send + Sync;

#[derive(Clone)]
struct Bounds(Arc<AskBounds>);

impl fmt::Debug for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bounds")
    }
}

/// A connection's place, released when dropped.
#[derive(Debug)]
pub struct Place {
    gate: Gate,
    address: IpAddr,
}

impl Gate {
    /// Creates a gate with a limit over all protocols. `server` is the shared counter of all gates.
    #[must_use]
    pub fn new(server: Arc<AtomicUsize>, server_max: usize) -> Gate {
        Gate {
            server,
            server_max,
            protocol: Arc::default(),
            by_address: Arc::default(),
            bounds: Bounds(Arc::new(|_| (usize::MAX, usize::MAX))),
        }
    }

    /// Adds limits of the protocol: `bounds` returns the total of its listeners, and that for the given
    /// address.
    #[must_use]
    pub fn with_bounds(mut self, bounds: impl Fn(IpAddr) -> (usize, usize) + Send + Sync + 'static) -> Gate {
        self.bounds = Bounds(Arc::new(bounds));
        self
    }

    /// Takes a place for a connection from `address`.
    pub fn enter(&self, address: IpAddr) -> Result<Place, Refusal> {
        // An IPv4 client of an IPv6 socket has an IPv4-mapped address.
        let address = address.to_canonical();
        if !up_to(&self.server, self.server_max) {
            return Err(Refusal::Server);
        }
        let (protocol_max, max) = (self.bounds.0)(address);
        if !up_to(&self.protocol, protocol_max) {
            self.server.fetch_sub(1, Ordering::Relaxed);
            return Err(Refusal::Protocol);
        }
        let mut by_address = self.by_address.lock();
        let count = by_address.entry(address).or_insert(0);
        *count += 1;
        let fits = *count <= max;
        drop(by_address);
        let place = Place { gate: self.clone(), address };
        if fits { Ok(place) } else { Err(Refusal::Address) }
    }
}

/// Increments unless the maximum is reached.
fn up_to(count: &AtomicUsize, max: usize) -> bool {
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < max).then_some(n + 1)).is_ok()
}

impl Drop for Place {
    fn drop(&mut self) {
        self.gate.server.fetch_sub(1, Ordering::Relaxed);
        self.gate.protocol.fetch_sub(1, Ordering::Relaxed);
        let mut by_address = self.gate.by_address.lock();
        if let Some(count) = by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn every_bound_holds_and_places_come_back() {
        let server = Arc::new(AtomicUsize::new(0));
        let nine = address("10.0.0.9");
        let gate = Gate::new(server.clone(), 4).with_bounds(move |from| (3, if from == nine { 2 } else { 1 }));
        let one = gate.enter(address("10.0.0.1")).unwrap();
        assert_eq!(gate.enter(address("10.0.0.1")).unwrap_err(), Refusal::Address);
        assert_eq!(gate.enter(address("::ffff:10.0.0.1")).unwrap_err(), Refusal::Address);
        let nine = [gate.enter(address("10.0.0.9")).unwrap(), gate.enter(address("10.0.0.9")).unwrap()];
        assert_eq!(gate.enter(address("10.0.0.2")).unwrap_err(), Refusal::Protocol);
        let other = Gate::new(server.clone(), 4);
        let four = other.enter(address("10.0.0.1")).unwrap();
        assert_eq!(other.enter(address("10.0.0.1")).unwrap_err(), Refusal::Server);
        drop((one, nine, four));
        assert_eq!(server.load(Ordering::Relaxed), 0);
        assert!(gate.by_address.lock().is_empty(), "addresses that are gone are forgotten");
    }
}
