//! The book of bindings against Kafka's rules as they are written down, one binding after the other (`StandardAuthorizerData`).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use polylogue_auth::{
    Acl, AclBook, AclFilter, CLUSTER_RESOURCE, Decision, Operation, PatternKind, Permission, Resource, ResourceKind,
};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

fn acl(principal: &str, permission: Permission, operation: Operation, pattern: PatternKind, name: &str) -> Acl {
    Acl {
        kind: ResourceKind::Topic,
        name: name.to_owned(),
        pattern,
        principal: principal.to_owned(),
        host: "*".to_owned(),
        operation,
        permission,
    }
}

fn allow(operation: Operation, pattern: PatternKind, name: &str) -> Acl {
    acl("User:alice", Permission::Allow, operation, pattern, name)
}

fn book(acls: &[Acl]) -> AclBook {
    let mut book = AclBook::default();
    acls.iter().for_each(|acl| _ = book.insert(Arc::new(acl.clone())));
    book
}

fn topic(name: &str) -> Resource<'_> {
    Resource { kind: ResourceKind::Topic, name }
}

fn ask(book: &AclBook, operation: Operation, name: &str) -> Decision {
    book.decide("alice", HERE, operation, topic(name))
}

/// Whether the binding's pattern has the resource.
fn has(acl: &Acl, resource: Resource<'_>) -> bool {
    acl.kind == resource.kind
        && match acl.pattern {
            PatternKind::Literal => acl.name == resource.name || acl.name == "*",
            PatternKind::Prefixed => resource.name.starts_with(&acl.name),
        }
}

/// Whether the binding is about the principal.
fn is_about(acl: &Acl, user: &str, address: IpAddr) -> bool {
    (acl.principal == format!("User:{user}") || acl.principal == "User:*")
        && (acl.host == "*" || acl.host == address.to_string())
}

fn implies(operation: Operation, wanted: Operation) -> bool {
    use Operation::{Alter, AlterConfigs, Delete, Describe, DescribeConfigs, Read, Write};
    match wanted {
        Describe => [Read, Write, Delete, Alter].contains(&operation),
        DescribeConfigs => operation == AlterConfigs,
        _ => false,
    }
}

/// What Kafka decides.
fn by_the_rules(acls: &[Acl], user: &str, address: IpAddr, operation: Operation, resource: Resource<'_>) -> Decision {
    let of_resource: Vec<_> = acls.iter().filter(|acl| has(acl, resource)).collect();
    if of_resource.is_empty() {
        return Decision::Unknown;
    }
    let mine: Vec<_> = of_resource.into_iter().filter(|acl| is_about(acl, user, address)).collect();
    let is = |acl: &&Acl| acl.operation == operation || acl.operation == Operation::All;
    if mine.iter().copied().filter(is).any(|acl| acl.permission == Permission::Deny) {
        return Decision::Denied;
    }
    let allows = |acl: &Acl| acl.permission == Permission::Allow && (is(&acl) || implies(acl.operation, operation));
    if mine.into_iter().any(allows) { Decision::Allowed } else { Decision::Denied }
}

#[test]
fn what_is_denied_stays_denied() {
    use Operation::{All, Describe, Read, Write};
    let everything = allow(All, PatternKind::Literal, "*");
    let not_secret = acl("User:*", Permission::Deny, Read, PatternKind::Prefixed, "secret-");
    let book = book(&[everything.clone(), not_secret]);
    assert_eq!(ask(&book, Read, "orders"), Decision::Allowed);
    assert_eq!(ask(&book, Read, "secret-orders"), Decision::Denied);
    assert_eq!(ask(&book, Write, "secret-orders"), Decision::Allowed);
    assert_eq!(ask(&book, Describe, "secret-orders"), Decision::Allowed, "it may write");
    assert_eq!(book.decide("bob", HERE, Describe, topic("orders")), Decision::Denied);
    let group = Resource { kind: ResourceKind::Group, name: "orders" };
    assert_eq!(book.decide("alice", HERE, Read, group), Decision::Unknown);
}

#[test]
fn of_nested_prefixes_each_counts() {
    use Operation::{Alter, Create, Read, Write};
    let named = [
        ("a", Read),
        ("abc", Write),
        ("abd", Alter),
        ("abcde", Create),
        ("b", Create),
        ("abcdd", Alter),
        ("ab!", Alter),
    ];
    let book = book(&named.map(|(name, operation)| allow(operation, PatternKind::Prefixed, name)));
    let may = |name: &str| {
        let operations = [Read, Write, Alter, Create];
        operations.into_iter().filter(|one| ask(&book, *one, name) == Decision::Allowed).collect::<Vec<_>>()
    };
    assert_eq!(may("abcdef"), [Read, Write, Create]);
    assert_eq!(may("abcd"), [Read, Write]);
    assert_eq!(may("abz"), [Read]);
    assert_eq!(may("a"), [Read]);
    assert_eq!(may("bc"), [Create]);
    assert!(may("").is_empty() && may("c").is_empty());
}

#[test]
fn a_rule_holds_from_where_it_says() {
    let mut from_there = allow(Operation::Read, PatternKind::Literal, "a");
    from_there.host = "192.0.2.2".to_owned();
    let mut by_name = from_there.clone();
    by_name.host = "client.example".to_owned();
    let book = book(&[from_there, by_name]);
    let from = |last| book.decide("alice", Ipv4Addr::new(192, 0, 2, last).into(), Operation::Read, topic("a"));
    assert_eq!([from(1), from(2)], [Decision::Denied, Decision::Allowed]);
}

#[test]
fn administrators_may_do_everything_as_long_as_they_are_some() {
    let mut book = book(&[acl("User:*", Permission::Deny, Operation::All, PatternKind::Literal, "*")]);
    book.set_administrator("alice", true);
    assert_eq!(ask(&book, Operation::Delete, "a"), Decision::Allowed);
    assert_eq!(book.operations("alice", HERE, Resource::CLUSTER), Some(u32::MAX));
    assert_eq!(book.decide_any("alice", HERE, Operation::Write, ResourceKind::Topic), Decision::Allowed);
    book.set_administrator("alice", false);
    assert_eq!(ask(&book, Operation::Delete, "a"), Decision::Denied);
    assert_eq!(Resource::CLUSTER.name, CLUSTER_RESOURCE);
}

/// A principal may write somewhere unless all that allows it is denied.
#[test]
fn any_resource_of_a_kind() {
    use Operation::{All, Write};
    let deny = |pattern, name: &str| acl("User:*", Permission::Deny, Write, pattern, name);
    let any = |acls: &[Acl]| book(acls).decide_any("alice", HERE, Write, ResourceKind::Topic);
    let [literal, prefixed] = [PatternKind::Literal, PatternKind::Prefixed];
    assert_eq!(any(&[]), Decision::Unknown);
    assert_eq!(any(&[allow(Operation::Read, literal, "a")]), Decision::Unknown);
    assert_eq!(any(&[allow(All, literal, "a")]), Decision::Allowed);
    assert_eq!(any(&[allow(Write, literal, "a"), deny(literal, "a")]), Decision::Unknown);
    assert_eq!(any(&[allow(Write, literal, "ab"), deny(prefixed, "a")]), Decision::Unknown);
    assert_eq!(any(&[allow(Write, literal, "a"), deny(prefixed, "ab")]), Decision::Allowed);
    assert_eq!(any(&[allow(Write, prefixed, "a"), deny(literal, "a")]), Decision::Allowed);
    assert_eq!(any(&[allow(Write, prefixed, "ab"), deny(prefixed, "a")]), Decision::Unknown);
    assert_eq!(any(&[allow(Write, prefixed, "a"), deny(prefixed, "ab")]), Decision::Allowed);
    assert_eq!(any(&[allow(Write, literal, "*"), deny(prefixed, "a")]), Decision::Allowed);
    assert_eq!(any(&[allow(Write, literal, "*"), deny(literal, "*")]), Decision::Denied);
    let other = allow(Write, literal, "a");
    assert_eq!(book(&[other]).decide_any("bob", HERE, Write, ResourceKind::Topic), Decision::Unknown);
}

/// Few names, so that they often meet.
fn any_acl() -> impl Strategy<Value = Acl> {
    let principal = prop::sample::select(vec!["User:alice", "User:bob", "User:*", "Group:alice"]);
    let host = prop::sample::select(vec!["*", "192.0.2.1", "192.0.2.2"]);
    let name = prop_oneof![3 => "[ab]{1,4}", 1 => Just("*".to_owned())];
    let kind = prop::sample::select(vec![ResourceKind::Topic, ResourceKind::Group]);
    let operation = prop::sample::select(Operation::ALL);
    (principal, host, name, kind, operation, any::<bool>(), any::<bool>()).prop_map(
        |(principal, host, name, kind, operation, literal, allow)| Acl {
            kind,
            name,
            pattern: if literal { PatternKind::Literal } else { PatternKind::Prefixed },
            principal: principal.to_owned(),
            host: host.to_owned(),
            operation,
            permission: if allow { Permission::Allow } else { Permission::Deny },
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_book_decides_what_the_rules_decide(
        acls in prop::collection::vec(any_acl(), 0..24),
        gone in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        questions in prop::collection::vec(("[ab]{0,5}", 1..3u8, prop::sample::select(vec!["alice", "bob", "carol", "*"])), 1..12),
    ) {
        let mut book = book(&acls);
        let mut left = acls.clone();
        left.sort();
        left.dedup();
        for index in gone {
            if !left.is_empty() {
                let acl = left.remove(index.index(left.len()));
                prop_assert!(book.remove(&acl) && !book.remove(&acl));
            }
        }
        prop_assert_eq!(book.len(), left.len());
        for (name, from, user) in &questions {
            let address = IpAddr::from([192, 0, 2, *from]);
            for kind in [ResourceKind::Topic, ResourceKind::Group] {
                let resource = Resource { kind, name };
                let mut bits = None;
                for operation in Operation::ALL.iter().copied().filter(|one| *one != Operation::All) {
                    let right = by_the_rules(&left, user, address, operation, resource);
                    prop_assert_eq!(book.decide(user, address, operation, resource), right, "{:?} {:?}", operation, resource);
                    if right != Decision::Unknown {
                        *bits.get_or_insert(0) |= if right == Decision::Allowed { operation.bit() } else { 0 };
                    }
                }
                let known = Operation::ALL.iter().filter(|one| **one != Operation::All).fold(0, |bits, one| bits | one.bit());
                prop_assert_eq!(book.operations(user, address, resource).map(|said| said & known), bits);
            }
        }
        let mut found: Vec<Acl> = book.find(&AclFilter::EVERYTHING).iter().map(|acl| Acl::clone(acl)).collect();
        found.sort();
        prop_assert_eq!(&found, &left);
        // Nothing is left of what goes.
        left.iter().for_each(|acl| _ = book.remove(acl));
        prop_assert_eq!(format!("{book:?}"), format!("{:?}", AclBook::default()));
    }
}
