//! What a question to 100,000 access control lists costs: `cargo run --release -p polylogue-auth --example acl_cost`.

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a measurement")]

use polylogue_auth::{Acl, AclBook, Operation, PatternKind, Permission, Resource, ResourceKind};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;

const BINDINGS: usize = 100_000;
const QUESTIONS: u32 = 100_000;
const ROUNDS: usize = 5;

fn acl(user: String, name: String, pattern: PatternKind) -> Arc<Acl> {
    Arc::new(Acl {
        kind: ResourceKind::Topic,
        name,
        pattern,
        principal: format!("User:{user}"),
        host: "*".to_owned(),
        operation: Operation::Write,
        permission: Permission::Allow,
    })
}

/// As many bindings, of so many users, of this pattern.
fn book(users: usize, pattern: PatternKind) -> AclBook {
    let mut book = AclBook::default();
    for number in 0..BINDINGS {
        book.insert(acl(format!("user-{}", number % users), format!("team-{number}.orders"), pattern));
    }
    book
}

/// Nanoseconds a question, the median of several rounds.
fn ns(book: &AclBook, user: &str, name: &str) -> f64 {
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..QUESTIONS {
                let resource = Resource { kind: ResourceKind::Topic, name: black_box(name) };
                black_box(book.decide(black_box(user), address, Operation::Write, resource));
            }
            start.elapsed().as_nanos() as f64 / f64::from(QUESTIONS)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds.get(ROUNDS / 2).copied().unwrap_or_default()
}

fn main() {
    for (what, users) in [("1,000 users", 1_000), ("one user", 1)] {
        for pattern in PatternKind::ALL {
            let book = book(users, *pattern);
            let user = format!("user-{}", 54_321 % users);
            let allowed = ns(&book, &user, "team-54321.orders.eu");
            let exactly = ns(&book, &user, "team-54321.orders");
            let denied = ns(&book, "stranger", "team-54321.orders");
            let pattern = pattern.name();
            println!(
                "{BINDINGS} {pattern} bindings of {what}: the name {exactly:.0} ns, longer {allowed:.0} ns, of a stranger {denied:.0} ns"
            );
        }
    }
    let mut nested = AclBook::default();
    for len in 1..=249 {
        nested.insert(acl("user-0".to_owned(), "x".repeat(len), PatternKind::Prefixed));
    }
    println!("249 nested prefixes: {:.0} ns", ns(&nested, "user-0", &"x".repeat(249)));
    let mut administrator = book(1_000, PatternKind::Literal);
    administrator.set_administrator("admin", true);
    println!("an administrator: {:.0} ns", ns(&administrator, "admin", "team-54321.orders"));
}
