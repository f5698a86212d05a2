//! The bindings of a headers exchange, indexed by their conditions instead of scanned.
//!
//! A binding that requires all its conditions is indexed under one of them; a binding that requires any is indexed under each. A message looks up its
//! headers and checks the bindings it finds. So the cost of a message depends on its headers and on the bindings that share at least one condition
//! with it, not on all bindings.
//!
//! A binding is indexed under the condition with the fewest other bindings at the time it is added: of 10,000 bindings that have 199 conditions in
//! common each is indexed under its own one. The choice depends on the order in which bindings were added; the routing result does not. A binding
//! with many conditions compares their hashes with those of the message's headers.

use crate::hamt::{Hamt, Key, hash_bytes};
use crate::ids::BindingId;
use crate::list::{Item, List};
use crate::target::{Position, Target};
use crate::value::{Argument, Value, ValueRef, lookup};
use bytes::Bytes;
use polylogue_types::Map;
use std::cmp::Ordering;
use std::sync::Arc;

/// A binding with at most this many conditions searches each in the sorted headers; with more, the headers' hashes are searched.
const LINEAR_CONDITIONS_MAX: usize = 4;
/// `Hashes` with at least this many entries is freed after use.
const HASHES_KEPT_MAX: usize = 4_096;
/// Conditions compared per step.
const CONDITIONS_PER_STEP: usize = 4;

/// A condition of a binding on one header: this value, or (`None`) any value.
#[derive(Clone, Debug)]
struct Condition {
    name: Bytes,
    value: Option<Value>,
}

impl Condition {
    fn hash_of(name: &[u8], value: Option<&ValueRef<'_>>) -> u64 {
        let name = hash_bytes(0, name);
        value.map_or(name, |value| value.hash(name))
    }

    fn compare(&self, name: &[u8], value: Option<&ValueRef<'_>>) -> Ordering {
        let values = || match (&self.value, value) {
            (Some(a), Some(b)) => a.view().order(b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        };
        (*self.name).cmp(name).then_with(values)
    }

    fn view(&self) -> Option<ValueRef<'_>> {
        self.value.as_ref().map(Value::view)
    }

    /// Whether a value of its header fulfils the condition.
    fn is_fulfilled_by(&self, value: &ValueRef<'_>) -> bool {
        self.view().is_none_or(|wanted| wanted.same(value))
    }

    fn holds(&self, headers: &[Header<'_>]) -> bool {
        value_of(headers, &self.name).is_some_and(|value| self.is_fulfilled_by(&value))
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Condition) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Condition {}

impl PartialOrd for Condition {
    fn partial_cmp(&self, other: &Condition) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Condition {
    fn cmp(&self, other: &Condition) -> Ordering {
        self.compare(&other.name, other.view().as_ref())
    }
}

impl Key for Condition {
    fn hash64(&self) -> u64 {
        Condition::hash_of(&self.name, self.view().as_ref())
    }
}

#[derive(Debug)]
struct Rule {
    target: Target,
    any: bool,
    /// Each with its hash.
    conditions: Vec<(u64, Condition)>,
    /// The condition that a rule which requires all is indexed under.
    under: usize,
}

impl Rule {
    fn new(target: Target, arguments: &[Argument]) -> Rule {
        let mode = lookup(arguments, b"x-match").and_then(|a| a.value.bytes()).map_or(&b"all"[..], |b| b);
        let with_x = matches!(mode, b"all-with-x" | b"any-with-x");
        let counts = |a: &&Argument| a.name != b"x-match"[..] && (with_x || !a.name.starts_with(b"x-"));
        let conditions = arguments.iter().filter(counts).map(|a| Condition {
            name: a.name.clone(),
            value: Some(a.value.clone()).filter(|value| *value != Value::Void),
        });
        let conditions = conditions.map(|condition| (condition.hash64(), condition)).collect();
        Rule { target, any: matches!(mode, b"any" | b"any-with-x"), conditions, under: 0 }
    }

    /// The conditions that the rule is indexed under; none if it has no conditions.
    fn index_conditions(&self) -> &[(u64, Condition)] {
        if self.any { &self.conditions } else { self.conditions.get(self.under..=self.under).unwrap_or_default() }
    }

    /// Whether it has no conditions and matches everything. A rule that requires any of no conditions matches nothing.
    fn is_always(&self) -> bool {
        !self.any && self.conditions.is_empty()
    }

    /// Whether it matches, and how many conditions were checked.
    fn matches(&self, headers: &[Header<'_>], hashes: &mut Hashes) -> (bool, usize) {
        if self.any {
            // It is indexed under each of its conditions, so the one that found it is fulfilled.
            return (true, 1);
        }
        let failed = if self.conditions.len() > LINEAR_CONDITIONS_MAX && hashes.load(headers) {
            self.conditions.iter().position(|(hash, condition)| !hashes.holds(*hash, condition, headers))
        } else {
            self.conditions.iter().position(|(_, condition)| !condition.holds(headers))
        };
        (failed.is_none(), failed.unwrap_or(self.conditions.len()))
    }
}

/// The headers of a message by the hashes of the conditions that they fulfil; built on demand.
#[derive(Default, Debug)]
pub(crate) struct Hashes {
    by_hash: Map<u64, u32>,
    /// Whether it was built, and can be used.
    state: Option<bool>,
}

impl Hashes {
    /// Drops the message's entries.
    pub(crate) fn clear(&mut self) {
        if self.state.take().is_some() {
            match self.by_hash.capacity() {
                // Clearing it would cost each later message as much.
                HASHES_KEPT_MAX.. => self.by_hash = Map::default(),
                _ => self.by_hash.clear(),
            }
        }
    }

    /// Builds the index. Returns whether it can be used: not if two headers of the message have the same hash.
    fn load(&mut self, headers: &[Header<'_>]) -> bool {
        *self.state.get_or_insert_with(|| {
            headers.iter().zip(0..).all(|(header, at)| {
                [None, Some(&header.value)]
                    .into_iter()
                    .all(|value| self.by_hash.insert(Condition::hash_of(header.name, value), at).is_none())
            })
        })
    }

    fn holds(&self, hash: u64, condition: &Condition, headers: &[Header<'_>]) -> bool {
        let header = self.by_hash.get(&hash).and_then(|at| headers.get(*at as usize));
        header.is_some_and(|header| condition.name == header.name && condition.is_fulfilled_by(&header.value))
    }
}

/// The position of a rule in a list of rules.
#[derive(Clone, Copy, Debug)]
struct Place(BindingId);

impl Item for Place {
    fn order(&self) -> u64 {
        self.0.0
    }
}

/// See the module.
#[derive(Clone, Default, Debug)]
pub(crate) struct HeaderRules {
    rules: Hamt<BindingId, Arc<Rule>>,
    by_condition: Hamt<Condition, List<Place>>,
    /// Rules without conditions.
    always: List<Target>,
}

/// A header of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header<'m> {
    pub(crate) name: &'m [u8],
    /// The number of headers before it.
    pub(crate) place: u32,
    pub(crate) value: ValueRef<'m>,
}

/// Sorts a message's headers by name for [`HeaderRules::walk`]. Of headers with the same name the last one counts.
pub(crate) fn prepare(headers: &mut Vec<Header<'_>>) {
    headers.sort_unstable_by(|a, b| a.name.cmp(b.name).then(b.place.cmp(&a.place)));
    headers.dedup_by(|later, kept| later.name == kept.name);
}

/// The value of one of the prepared headers.
pub(crate) fn value_of<'m>(headers: &[Header<'m>], name: &[u8]) -> Option<ValueRef<'m>> {
    let at = headers.binary_search_by(|header| header.name.cmp(name)).ok()?;
    headers.get(at).map(|header| header.value)
}

impl HeaderRules {
    /// Adds a binding.
    pub(crate) fn insert(&mut self, target: Target, arguments: &[Argument]) {
        let mut rule = Rule::new(target, arguments);
        if rule.is_always() {
            self.always.insert(target);
        } else if !rule.any {
            let others = |condition: &Condition| self.by_condition.get(condition).map_or(0, List::weight);
            // A condition on a value is more selective than one on presence.
            let least = rule.conditions.iter().zip(0..).min_by_key(|((_, c), at)| (others(c), c.value.is_none(), *at));
            rule.under = least.map_or(0, |(_, at)| at);
        }
        for (_, condition) in rule.index_conditions() {
            match self.by_condition.get_mut(condition) {
                Some(list) => list.insert(Place(target.binding)),
                None => _ = self.by_condition.insert(condition.clone(), List::One(Place(target.binding))),
            }
        }
        self.rules.insert(target.binding, Arc::new(rule));
    }

    /// Removes a binding.
    pub(crate) fn remove(&mut self, binding: BindingId) {
        let Some(rule) = self.rules.remove(&binding) else { return };
        if rule.is_always() {
            self.always.remove(binding.0);
        }
        for (_, condition) in rule.index_conditions() {
            let Some(list) = self.by_condition.get_mut(condition) else { continue };
            list.remove(binding.0);
            if list.is_empty() {
                self.by_condition.remove(condition);
            }
        }
    }

    /// Whether a message's headers are needed.
    pub(crate) fn wants_headers(&self) -> bool {
        !self.by_condition.is_empty()
    }

    /// Calls `emit` with the target of each matching binding, while there are steps; more than once for a binding with several matching conditions.
    /// Headers must be prepared. Continues at the position `at`, which advances; returns whether the end is reached.
    pub(crate) fn walk(
        &self,
        headers: &[Header<'_>],
        hashes: &mut Hashes,
        at: &mut Position,
        steps: &mut u64,
        emit: &mut dyn FnMut(&Target),
    ) -> bool {
        if at.part == 0 {
            if let Some(from) = self.always.emit(at.from, steps, emit) {
                at.from = from;
                return false;
            }
            *at = Position { part: 1, from: 0 };
        }
        if !self.wants_headers() {
            return true;
        }
        // Two parts per header: conditions on its presence, and conditions on its value.
        while let Some(header) = headers.get((at.part - 1) / 2) {
            if *steps == 0 {
                return false;
            }
            let value = at.part.is_multiple_of(2).then_some(&header.value);
            let hash = Condition::hash_of(header.name, value);
            let found = self.by_condition.find(hash, |condition| condition.compare(header.name, value));
            if let Some(found) = found
                && let Some(from) = self.check(found, headers, hashes, at.from, steps, emit)
            {
                at.from = from;
                return false;
            }
            *at = Position { part: at.part + 1, from: 0 };
            *steps = steps.saturating_sub(1);
        }
        true
    }

    /// Checks the bindings that are indexed under one condition, starting with `from`. Returns where to continue if the steps are used up.
    fn check(
        &self,
        found: &List<Place>,
        headers: &[Header<'_>],
        hashes: &mut Hashes,
        from: u64,
        steps: &mut u64,
        emit: &mut dyn FnMut(&Target),
    ) -> Option<u64> {
        for place in found.iter_from(from) {
            if *steps == 0 {
                return Some(place.order());
            }
            let Some(rule) = self.rules.get(&place.0) else { continue };
            let (matches, compared) = rule.matches(headers, hashes);
            *steps = steps.saturating_sub(1 + (compared / CONDITIONS_PER_STEP) as u64);
            if matches {
                emit(&rule.target);
            }
        }
        None
    }
}
