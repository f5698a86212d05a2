//! The bindings of one exchange, indexed for its type.

use crate::hamt::{Hamt, Key, hash_bytes};
use crate::headers::HeaderRules;
use crate::kind::{Kind, weight};
use crate::list::{Item, List};
use crate::objects::Binding;
use crate::ring::Ring;
use crate::target::Target;
use crate::topic::Topics;
use bytes::Bytes;

/// A binding key of a direct exchange.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct RoutingKey(Bytes);

impl Key for RoutingKey {
    fn hash64(&self) -> u64 {
        hash_bytes(0, &self.0)
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) enum Index {
    Direct(Hamt<RoutingKey, List<Target>>),
    /// Fanout and local random.
    All(List<Target>),
    Topic(Topics),
    Headers(HeaderRules),
    Ring(Ring),
}

impl Index {
    /// Makes an empty index.
    pub(crate) fn new(kind: &Kind) -> Index {
        match kind.routes_as() {
            Kind::Direct | Kind::Delayed(_) => Index::Direct(Hamt::default()),
            Kind::Fanout | Kind::LocalRandom | Kind::Federation(_) => Index::All(List::default()),
            Kind::Topic => Index::Topic(Topics::default()),
            Kind::Headers => Index::Headers(HeaderRules::default()),
            Kind::ConsistentHash(_) => Index::Ring(Ring::default()),
        }
    }

    /// Adds a binding.
    pub(crate) fn insert(&mut self, binding: &Binding) {
        let target = binding.target();
        match self {
            Index::Direct(keys) => {
                let key = RoutingKey(binding.key.clone());
                match keys.get_mut(&key) {
                    Some(list) => list.insert(target),
                    None => _ = keys.insert(key, List::One(target)),
                }
            }
            Index::All(list) => list.insert(target),
            Index::Topic(topics) => topics.insert(&binding.key, target),
            Index::Headers(rules) => rules.insert(target, &binding.arguments),
            // An invalid weight is refused when the binding is added.
            Index::Ring(ring) => ring.insert(target, weight(&binding.key).unwrap_or(1)),
        }
    }

    /// Removes a binding.
    pub(crate) fn remove(&mut self, binding: &Binding) {
        let target = binding.target();
        match self {
            Index::Direct(keys) => {
                let key = RoutingKey(binding.key.clone());
                let Some(list) = keys.get_mut(&key) else { return };
                list.remove(target.order());
                if list.is_empty() {
                    keys.remove(&key);
                }
            }
            Index::All(list) => _ = list.remove(target.order()),
            Index::Topic(topics) => topics.remove(&binding.key, target.order()),
            Index::Headers(rules) => rules.remove(target.binding),
            Index::Ring(ring) => ring.remove(target),
        }
    }

    /// Returns the targets of a routing key of a direct exchange.
    pub(crate) fn exact<'a>(keys: &'a Hamt<RoutingKey, List<Target>>, key: &[u8]) -> Option<&'a List<Target>> {
        keys.find(hash_bytes(0, key), |k| (*k.0).cmp(key))
    }
}
