//! All access control lists, indexed for authorization by Kafka's rules (`StandardAuthorizer`), however many there are.
//!
//! ```text
//!   user, or "*" ─▶ kind of resource ─▶ literal: name ─▶ rules      what is allowed and denied, a set of bits each,
//!                                       every name  ─▶ rules      once for every host and once for each that is named
//!                                       prefixed: name ─▶ rules
//! ```
//!
//! Of a question all rules of the user and of everybody are put together, whose pattern has the resource: what is denied is denied, what
//! else is allowed is allowed. Prefixes of a name are found from the longest on: what stands last at or before the name in the order of bytes is a prefix
//! of it, or tells by how much it agrees with the name how long a prefix can be at most. A question allocates nothing.

use crate::acl::{Acl, AclFilter, Operation, PatternKind, Permission, Resource, ResourceKind, WILDCARD};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;

/// What implies [`Operation::Describe`] where it is allowed (`StandardAuthorizerData.IMPLIES_DESCRIBE`).
const IMPLY_DESCRIBE: u32 =
    Operation::Read.bit() | Operation::Write.bit() | Operation::Delete.bit() | Operation::Alter.bit();
/// Every operation.
const EVERY_OPERATION: u32 = u32::MAX;

/// Result of an authorization.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Allowed.
    Allowed,
    /// Denied.
    Denied,
    /// No binding exists for the resource, for any principal: denied unless `allow.everyone.if.no.acl.found` is set.
    Unknown,
}

/// Allowed and denied operations, one bit each, implied operations included.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Verdict {
    allowed: u32,
    denied: u32,
}

impl Verdict {
    fn add(&mut self, rule: &Rule) {
        self.allowed |= rule.allow;
        self.denied |= rule.deny;
    }

    /// The operations that are allowed and not denied.
    fn operations(self) -> u32 {
        let all = |bits: u32| if bits & Operation::All.bit() != 0 { EVERY_OPERATION } else { bits };
        let mut allowed = all(self.allowed);
        if allowed & IMPLY_DESCRIBE != 0 {
            allowed |= Operation::Describe.bit();
        }
        if allowed & Operation::AlterConfigs.bit() != 0 {
            allowed |= Operation::DescribeConfigs.bit();
        }
        allowed & !all(self.denied)
    }

    fn allows(self, operation: Operation) -> bool {
        self.operations() & operation.bit() != 0
    }
}

/// The client hosts to which a rule applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum From {
    Anywhere,
    Address(IpAddr),
}

impl From {
    /// `None` for a host that no client comes from: names are not looked up, as in Kafka.
    fn of(host: &str) -> Option<From> {
        if host == WILDCARD { Some(From::Anywhere) } else { host.parse().ok().map(From::Address) }
    }

    fn has(self, address: IpAddr) -> bool {
        match self {
            From::Anywhere => true,
            From::Address(only) => only == address,
        }
    }
}

/// Operations allowed and denied by the bindings of one pattern, principal and host, one bit each.
#[derive(Clone, Copy, Debug)]
struct Rule {
    from: From,
    allow: u32,
    deny: u32,
}

/// The rules of one pattern and principal, one for each host.
#[derive(Clone, Default, Debug)]
struct Rules(Vec<Rule>);

impl Rules {
    fn set(&mut self, from: From, acl: &Acl, is_there: bool) {
        let at = self.0.iter().position(|rule| rule.from == from).unwrap_or_else(|| {
            self.0.push(Rule { from, allow: 0, deny: 0 });
            self.0.len() - 1
        });
        let Some(rule) = self.0.get_mut(at) else { return };
        let bits = if acl.permission == Permission::Allow { &mut rule.allow } else { &mut rule.deny };
        if is_there {
            *bits |= acl.operation.bit();
        } else {
            *bits &= !acl.operation.bit();
        }
        if (rule.allow, rule.deny) == (0, 0) {
            self.0.swap_remove(at);
        }
    }

    fn say(&self, address: IpAddr, said: &mut Verdict) {
        self.0.iter().filter(|rule| rule.from.has(address)).for_each(|rule| said.add(rule));
    }
}

/// Something for each pattern of one kind of resource.
#[derive(Clone, Debug)]
struct Patterns<T> {
    literal: BTreeMap<Box<str>, T>,
    every: T,
    prefixed: BTreeMap<Box<[u8]>, T>,
}

impl<T: Default> Default for Patterns<T> {
    fn default() -> Patterns<T> {
        Patterns { literal: BTreeMap::new(), every: T::default(), prefixed: BTreeMap::new() }
    }
}

impl<T: Default> Patterns<T> {
    /// Changes what there is for the pattern of a binding; what is `empty` afterwards goes.
    fn change(&mut self, acl: &Acl, change: impl FnOnce(&mut T), is_empty: impl FnOnce(&T) -> bool) {
        match acl.pattern {
            PatternKind::Literal if acl.name == WILDCARD => change(&mut self.every),
            PatternKind::Literal => {
                let found = self.literal.entry(acl.name.as_str().into()).or_default();
                change(found);
                if is_empty(found) {
                    self.literal.remove(acl.name.as_str());
                }
            }
            PatternKind::Prefixed => {
                let found = self.prefixed.entry(acl.name.as_bytes().into()).or_default();
                change(found);
                if is_empty(found) {
                    self.prefixed.remove(acl.name.as_bytes());
                }
            }
        }
    }

    fn is_empty(&self, is_nothing: impl FnOnce(&T) -> bool) -> bool {
        self.literal.is_empty() && self.prefixed.is_empty() && is_nothing(&self.every)
    }

    /// Hands over what there is for prefixes of a name, the longest first.
    fn prefixes_of(&self, name: &str, mut each: impl FnMut(&T)) {
        let mut rest = name.as_bytes();
        while let Some((prefix, found)) = self.last_at_or_before(rest) {
            let agree = prefix.iter().zip(rest).take_while(|(a, b)| a == b).count();
            // Shorter each time: a prefix is done with, and what is none agrees with less than all.
            let next = if agree == prefix.len() {
                each(found);
                agree.checked_sub(1)
            } else {
                Some(agree)
            };
            let Some(shorter) = next.and_then(|len| rest.get(..len)) else { return };
            rest = shorter;
        }
    }

    fn last_at_or_before(&self, name: &[u8]) -> Option<(&[u8], &T)> {
        let range = (Bound::Unbounded, Bound::Included(name));
        self.prefixed.range::<[u8], _>(range).next_back().map(|(prefix, found)| (&**prefix, found))
    }

    /// Hands over all that there is for a name.
    fn of(&self, name: &str, mut each: impl FnMut(&T)) {
        each(&self.every);
        self.literal.get(name).into_iter().for_each(&mut each);
        self.prefixes_of(name, each);
    }
}

type Kinds<T> = BTreeMap<ResourceKind, Patterns<T>>;

/// See the module.
#[derive(Clone, Default, Debug)]
pub struct AclBook {
    all: BTreeSet<Arc<Acl>>,
    /// By the name of the user, [`WILDCARD`] for everybody.
    users: BTreeMap<Box<str>, Kinds<Rules>>,
    /// How many bindings each pattern has, for all principals.
    patterns: Kinds<u32>,
    /// The super users.
    administrators: BTreeSet<Box<str>>,
}

impl AclBook {
    /// Number of bindings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are no bindings.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Adds a binding. Returns whether it was new.
    pub fn insert(&mut self, acl: Arc<Acl>) -> bool {
        if !self.all.insert(acl.clone()) {
            return false;
        }
        self.patterns.entry(acl.kind).or_default().change(&acl, |count| *count += 1, |_| false);
        self.tell(&acl, true);
        true
    }

    /// Removes a binding. Returns whether it existed.
    pub fn remove(&mut self, acl: &Acl) -> bool {
        if !self.all.remove(acl) {
            return false;
        }
        if let Some(patterns) = self.patterns.get_mut(&acl.kind) {
            patterns.change(acl, |count| *count = count.saturating_sub(1), |count| *count == 0);
            if patterns.is_empty(|count| *count == 0) {
                self.patterns.remove(&acl.kind);
            }
        }
        self.tell(acl, false);
        true
    }

    /// Returns the rules of a binding's principal.
    fn tell(&mut self, acl: &Acl, is_there: bool) {
        let (Some(user), Some(from)) = (acl.user(), From::of(&acl.host)) else { return };
        let kinds = self.users.entry(user.into()).or_default();
        let patterns = kinds.entry(acl.kind).or_default();
        patterns.change(acl, |rules| rules.set(from, acl, is_there), |rules| rules.0.is_empty());
        if patterns.is_empty(|rules| rules.0.is_empty()) {
            kinds.remove(&acl.kind);
        }
        if kinds.is_empty() {
            self.users.remove(user);
        }
    }

    /// Sets whether a user may perform every operation.
    pub fn set_administrator(&mut self, user: &str, is_one: bool) {
        if is_one {
            self.administrators.insert(user.into());
        } else {
            self.administrators.remove(user);
        }
    }

    /// Whether a user is a super user.
    #[must_use]
    pub fn is_administrator(&self, user: &str) -> bool {
        self.administrators.contains(user)
    }

    /// Whether a principal may perform an operation on a resource.
    #[must_use]
    pub fn decide(&self, user: &str, address: IpAddr, operation: Operation, resource: Resource<'_>) -> Decision {
        if self.is_administrator(user) || self.said(user, address, resource).allows(operation) {
            return Decision::Allowed;
        }
        if self.has_any(resource) { Decision::Denied } else { Decision::Unknown }
    }

    /// Returns all operations that a principal may perform on a resource, one bit each; `None` if no binding applies to the resource.
    #[must_use]
    pub fn operations(&self, user: &str, address: IpAddr, resource: Resource<'_>) -> Option<u32> {
        if self.is_administrator(user) {
            return Some(EVERY_OPERATION);
        }
        self.has_any(resource).then(|| self.said(user, address, resource).operations())
    }

    /// Whether there is a resource of this kind, whatever its name, on which a principal may perform an operation
    /// (`Authorizer.authorizeByResourceType`): a binding that allows it, and none that denies it for all that it is about. Where it is neither
    /// allowed somewhere nor denied everywhere, it depends on what may be done where there is no binding.
    #[must_use]
    pub fn decide_any(&self, user: &str, address: IpAddr, operation: Operation, kind: ResourceKind) -> Decision {
        if self.is_administrator(user) {
            return Decision::Allowed;
        }
        let mine = || self.patterns_of(user, kind);
        let is_denied = |named: &dyn Fn(&Patterns<Rules>, &mut Verdict)| {
            let mut said = Verdict::default();
            mine().for_each(|patterns| named(patterns, &mut said));
            said.denied & (operation.bit() | Operation::All.bit()) != 0
        };
        let allows = |rules: &Rules| {
            let mut said = Verdict::default();
            rules.say(address, &mut said);
            Verdict { denied: 0, ..said }.allows(operation)
        };
        if is_denied(&|patterns, said| patterns.every.say(address, said)) {
            return Decision::Denied;
        }
        let of_name = |name: &str| is_denied(&|patterns, said| patterns.of(name, |rules| rules.say(address, said)));
        let of_prefix =
            |name: &str| is_denied(&|patterns, said| patterns.prefixes_of(name, |rules| rules.say(address, said)));
        let found = mine().any(|patterns| {
            let text = |prefix: &[u8]| String::from_utf8_lossy(prefix).into_owned();
            allows(&patterns.every)
                || patterns.literal.iter().any(|(name, rules)| allows(rules) && !of_name(name))
                || patterns.prefixed.iter().any(|(prefix, rules)| allows(rules) && !of_prefix(&text(prefix)))
        });
        if found { Decision::Allowed } else { Decision::Unknown }
    }

    /// Returns the bindings that match the filter, in order.
    #[must_use]
    pub fn find(&self, filter: &AclFilter) -> Vec<Arc<Acl>> {
        find(&self.all, filter)
    }

    /// The patterns that apply to a user: those of its name and those of the wildcard.
    fn patterns_of(&self, user: &str, kind: ResourceKind) -> impl Iterator<Item = &Patterns<Rules>> {
        let of = move |name: &str| self.users.get(name).and_then(|kinds| kinds.get(&kind));
        // A user whose name is the wildcard has no other entry.
        let own = (user != WILDCARD).then(|| of(user)).flatten();
        own.into_iter().chain(of(WILDCARD))
    }

    fn said(&self, user: &str, address: IpAddr, resource: Resource<'_>) -> Verdict {
        let mut said = Verdict::default();
        for patterns in self.patterns_of(user, resource.kind) {
            patterns.of(resource.name, |rules| rules.say(address, &mut said));
        }
        said
    }

    /// Whether any binding applies to the resource, for any principal.
    fn has_any(&self, resource: Resource<'_>) -> bool {
        let mut count = 0u32;
        if let Some(patterns) = self.patterns.get(&resource.kind) {
            patterns.of(resource.name, |of| count = count.saturating_add(*of));
        }
        count > 0
    }
}

/// Returns the bindings of a set that match the filter, in order.
#[must_use]
pub fn find(all: &BTreeSet<Arc<Acl>>, filter: &AclFilter) -> Vec<Arc<Acl>> {
    match filter.exactly() {
        Some(acl) => all.get(&acl).cloned().into_iter().collect(),
        None => all.iter().filter(|acl| filter.matches(acl)).cloned().collect(),
    }
}
