//! Bindings of a headers exchange, found by what they ask for instead of one after the other.
//!
//! A binding that asks for all of its conditions is kept under one of them; one that asks for any is kept under each. A message looks
//! its headers up and checks the bindings that it finds. So a message costs its headers and the bindings that have at
//! least one condition of it, not all bindings there are.
//!
//! The condition that a binding is kept under is the one that the fewest others are kept under when it is made: of 10,000 bindings that
//! have 199 conditions in common each is kept under the one of its own. Under which it is kept depends on the order in which bindings
//! came; what a message reaches does not. A binding with many conditions compares their hashes with those of the message's headers.

use crate::hamt::{Hamt, Key, hash_bytes};
use crate::ids::BindingId;
use crate::index::{Position, Target};
use crate::list::{Item, List};
use crate::value::{Argument, Value, ValueRef, lookup};
use bytes::Bytes;
use polylogue_types::Map;
use std::cmp::Ordering;
use std::sync::Arc;

/// Conditions of a binding up to which each is looked for among the sorted headers; with more of them the headers' hashes are.
const CONDITIONS_FEW: usize = 4;
/// From so many places on `Hashes` are given back.
const HASHES_KEPT_MAX: usize = 4_096;
/// Conditions that are compared in a step.
const CONDITIONS_PER_STEP: usize = 4;

/// What a binding asks of one header: this value, or (`None`) that it is there.
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

    /// Whether this value of its header is what it asks for.
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
    /// With the hash of each.
    conditions: Vec<(u64, Condition)>,
    /// The condition that one with all of them is kept under.
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

    /// The conditions that it is kept under; none when it asks for nothing.
    fn kept_under(&self) -> &[(u64, Condition)] {
        if self.any { &self.conditions } else { self.conditions.get(self.under..=self.under).unwrap_or_default() }
    }

    /// Whether it asks for nothing and gets everything. One that asks for any of nothing gets nothing.
    fn is_always(&self) -> bool {
        !self.any && self.conditions.is_empty()
    }

    /// Whether it matches, and how many conditions were looked at.
    fn matches(&self, headers: &[Header<'_>], hashes: &mut Hashes) -> (bool, usize) {
        if self.any {
            // It is kept under each of its conditions: what found it holds.
            return (true, 1);
        }
        let failed = if self.conditions.len() > CONDITIONS_FEW && hashes.load(headers) {
            self.conditions.iter().position(|(hash, condition)| !hashes.holds(*hash, condition, headers))
        } else {
            self.conditions.iter().position(|(_, condition)| !condition.holds(headers))
        };
        (failed.is_none(), failed.unwrap_or(self.conditions.len()))
    }
}

/// Headers of a message by the hashes of the conditions that they fulfil; made when it is needed.
#[derive(Default, Debug)]
pub(crate) struct Hashes {
    by_hash: Map<u64, u32>,
    /// Whether it is made, and of use.
    state: Option<bool>,
}

impl Hashes {
    /// Forgets the message.
    pub(crate) fn clear(&mut self) {
        if self.state.take().is_some() {
            match self.by_hash.capacity() {
                // Emptying it would cost each later message as much.
                HASHES_KEPT_MAX.. => self.by_hash = Map::default(),
                _ => self.by_hash.clear(),
            }
        }
    }

    /// Whether hashes tell: not where two of the message's headers have the same one.
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

/// The place of a rule in a list of rules.
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
    /// Those that ask for nothing.
    always: List<Target>,
}

/// A header of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header<'m> {
    pub(crate) name: &'m [u8],
    /// How many headers stand before it.
    pub(crate) place: u32,
    pub(crate) value: ValueRef<'m>,
}

/// Sorts a message's headers by name for [`HeaderRules::walk`]. Of those with the same name the last one counts.
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
            // A value tells more than that a header is there.
            let least = rule.conditions.iter().zip(0..).min_by_key(|((_, c), at)| (others(c), c.value.is_none(), *at));
            rule.under = least.map_or(0, |(_, at)| at);
        }
        for (_, condition) in rule.kept_under() {
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
        for (_, condition) in rule.kept_under() {
            let Some(list) = self.by_condition.get_mut(condition) else { continue };
            list.remove(binding.0);
            if list.is_empty() {
                self.by_condition.remove(condition);
            }
        }
    }

    /// Whether a message's headers matter.
    pub(crate) fn wants_headers(&self) -> bool {
        !self.by_condition.is_empty()
    }

    /// Calls `emit` with the target of each binding that matches, as long as there are steps; with one of several matching conditions
    /// more than once. Headers are prepared. Goes on `at` a place, which moves; whether it is at the end.
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
        // Two parts a header: those that ask whether it is there, and those that ask for its value.
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

    /// Looks at the bindings that are kept under one condition, from one on. From which to go on, where there are no steps for all.
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
