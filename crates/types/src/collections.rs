//! Hash maps whose iteration order depends on their content and history only.
//!
//! The standard maps seed themselves from the operating system, so that two runs with one seed would differ.
//! Keys that come from outside in unbounded number (and could be chosen to collide) belong into a `BTreeMap`.

/// A hash map with a fixed seed: for keys that polylogue itself allocates (ids, offsets, tokens).
pub type Map<K, V> = hashbrown::HashMap<K, V, foldhash::fast::FixedState>;
/// The set beside [`Map`].
pub type Set<K> = hashbrown::HashSet<K, foldhash::fast::FixedState>;
