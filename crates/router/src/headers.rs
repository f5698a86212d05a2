//! Bindings of a headers exchange, found by what they ask for instead of one after the other.
//!
//! A binding that asks for all of its conditions is kept under one of them; one that asks for any is kept under each. A message looks
//! its headers up and checks the bindings that it finds. So a message costs its headers and the bindings that have at
//! least one condition of it, not all bindings there are.

use crate::hamt::{Hamt, Key, hash_bytes};
use crate::ids::BindingId;
use crate::index::Target;
use crate::list::{Item, List};
use crate::value::{Argument, Value, ValueRef, lookup};
use bytes::Bytes;
use std::cmp::Ordering;
use std::sync::Arc;

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
    conditions: Vec<Condition>,
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
        Rule { target, any: matches!(mode, b"any" | b"any-with-x"), conditions: conditions.collect() }
    }

    /// The conditions that it is kept under; `None` when it asks for nothing.
    fn kept_under(&self) -> Option<&[Condition]> {
        if self.any {
            return Some(&self.conditions);
        }
        // A value tells more than that a header is there.
        let at = self.conditions.iter().position(|c| c.value.is_some()).unwrap_or(0);
        self.conditions.get(at..=at)
    }

    fn matches(&self, headers: &[Header<'_>]) -> bool {
        let holds = |condition: &Condition| match (condition.view(), value_of(headers, &condition.name)) {
            (Some(wanted), Some(value)) => wanted.same(&value),
            (None, found) => found.is_some(),
            (Some(_), None) => false,
        };
        // One with any of its conditions is kept under each of them: what found it holds.
        self.any || self.conditions.iter().all(holds)
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
        let rule = Rule::new(target, arguments);
        match rule.kept_under() {
            None => self.always.insert(target),
            Some(conditions) => {
                for condition in conditions {
                    match self.by_condition.get_mut(condition) {
                        Some(list) => list.insert(Place(target.binding)),
                        None => _ = self.by_condition.insert(condition.clone(), List::One(Place(target.binding))),
                    }
                }
            }
        }
        self.rules.insert(target.binding, Arc::new(rule));
    }

    /// Removes a binding.
    pub(crate) fn remove(&mut self, binding: BindingId) {
        let Some(rule) = self.rules.remove(&binding) else { return };
        let Some(conditions) = rule.kept_under() else {
            self.always.remove(binding.0);
            return;
        };
        for condition in conditions {
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

    /// Calls `emit` with the target of each binding that matches; with one of several matching conditions more than once.
    /// Headers are prepared.
    pub(crate) fn walk(&self, headers: &[Header<'_>], emit: &mut dyn FnMut(&Target)) {
        self.always.iter().for_each(&mut *emit);
        if !self.wants_headers() {
            return;
        }
        for Header { name, value, .. } in headers {
            for value in [None, Some(value)] {
                let hash = Condition::hash_of(name, value);
                let Some(found) = self.by_condition.find(hash, |condition| condition.compare(name, value)) else {
                    continue;
                };
                for place in found.iter() {
                    if let Some(rule) = self.rules.get(&place.0).filter(|rule| rule.matches(headers)) {
                        emit(&rule.target);
                    }
                }
            }
        }
    }
}
