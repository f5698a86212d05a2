//! Subscriptions by regular expression.

use super::*;

fn pattern(member: &str, regex: &str) -> ConsumerHeartbeat {
    ConsumerHeartbeat { topics: None, regex: Some(text(regex)), ..joins("g", member) }
}

#[test]
fn an_expression_is_resolved_behind_the_heartbeat_that_brings_it() {
    let (mut host, _) = host(2);
    host.topics.create("tt", 1);
    host.topics.create("u", 1);
    assert_eq!(host.taken(pattern("a", "t.*")), (1, Some(Vec::new())));
    host.advance(0);
    assert_eq!(host.describe_consumer("g").epoch, 2);
    let (epoch, read) = host.taken(beats("g", "a", 1));
    assert_eq!((epoch, read.unwrap().len()), (2, 3));
    assert_eq!(host.describe_consumer("g").members[0].regex.as_deref(), Some("t.*"));
    // a second one that brings the same gets its part at once
    host.taken(pattern("b", "t.*"));
    let described = host.describe_consumer("g");
    assert_eq!((described.epoch, described.members[1].target.is_empty()), (3, false));
}

#[test]
fn new_topics_are_found_no_sooner_than_ten_seconds_after_the_last_look() {
    let (mut host, _) = host(1);
    host.taken(pattern("a", "t.*"));
    host.advance(0);
    assert_eq!(host.taken(beats("g", "a", 1)).0, 2);
    host.topics.create("t2", 1);
    host.advance(5_000);
    assert_eq!(host.taken(beats("g", "a", 2)), (2, None));
    host.advance(5_001);
    assert_eq!(host.taken(beats("g", "a", 2)), (2, None));
    host.advance(0);
    let (epoch, read) = host.taken(beats("g", "a", 2));
    assert_eq!((epoch, read.unwrap().len()), (3, 2));
}

#[test]
fn an_expression_that_is_none_is_refused() {
    let (mut host, _) = host(1);
    let reply = host.consumer(pattern("a", "[t"));
    assert_eq!(reply.error, ErrorCode::InvalidRegularExpression);
    let text = reply.message.unwrap();
    assert!(text.starts_with("SubscribedTopicRegex `[t` is not a valid regular expression: "), "{text}");
    assert!(host.log.is_empty());
    assert_eq!(host.state("g"), None);
}

#[test]
fn names_and_expressions_add_up_and_an_empty_expression_ends_it() {
    let (mut host, id) = host(1);
    let u = host.topics.create("u", 1);
    let both = ConsumerHeartbeat { topics: Some(vec![text("t")]), ..pattern("a", "u") };
    assert_eq!(host.taken(both), (1, Some(vec![0])));
    host.advance(0);
    assert_eq!(host.taken(beats("g", "a", 1)), (2, Some(vec![0, 0])));
    let ended = ConsumerHeartbeat { regex: Some(text("")), ..beats("g", "a", 2) };
    let reply = host.consumer(ended);
    assert_eq!((reply.member_epoch, reply.assignment), (2, Some(vec![(id, vec![0])])));
    let owned = ConsumerHeartbeat { owned: Some(vec![(id, vec![0])]), ..beats("g", "a", 2) };
    assert_eq!(host.taken(owned).0, 3);
    let described = host.describe_consumer("g");
    assert!(described.members[0].target.iter().all(|topic| topic.id != u));
}

#[test]
fn only_topics_that_the_user_may_describe_match() {
    let (mut host, id) = host(1);
    host.topics.create("t-secret", 1);
    let may = MayDescribe::new(|name| !name.contains("secret"));
    host.taken(ConsumerHeartbeat { may_describe: Some(may), ..pattern("a", "t.*") });
    host.advance(0);
    let reply = host.consumer(beats("g", "a", 1));
    assert_eq!(reply.assignment, Some(vec![(id, vec![0])]));
}

#[test]
fn the_last_member_takes_its_expression_along() {
    let (mut host, _) = host(1);
    host.taken(pattern("a", "t.*"));
    host.taken(joins("g", "b"));
    host.advance(0);
    host.taken(beats("g", "a", -1));
    let [from_log, from_checkpoint, taken] = host.both_states();
    assert!(from_log == from_checkpoint && from_log == taken);
    host.taken(beats("g", "b", -1));
    host.advance(1_200_000);
    assert_eq!(host.state("g"), None);
}

#[test]
fn topics_are_gone_through_in_slices_and_expressions_are_bounded() {
    let (mut host, _) = host(1);
    for n in 0..200 {
        host.topics.create(&format!("x{n}"), 1);
    }
    host.taken(pattern("a", "x.*"));
    for n in 0..61 {
        host.taken(ConsumerHeartbeat { ..pattern(&format!("m{n}"), &format!("x{n}")) });
    }
    host.advance(0);
    host.taken(joins("g", "one-more"));
    let described = host.describe_consumer("g");
    let a = described.members.iter().find(|member| &*member.member_id == "a").unwrap();
    assert_eq!(described.members.iter().flat_map(|m| &m.target).count(), 201, "each topic has one partition");
    assert!(!a.target.is_empty());
    // the expressions that came since: 62 of them against 201 topics are more than one call does
    host.advance(10_001);
    assert_eq!(host.consumer(beats("g", "a", a.epoch)).error, ErrorCode::None);
    let before = host.deadlines;
    host.advance(10);
    assert!(host.deadlines > before + 5, "{}", host.deadlines - before);
    host.advance(100);
    assert!(host.deadlines > before + 62, "a call compiles one expression: {}", host.deadlines - before);
    // one more than there may be
    host.taken(pattern("n1", "y1"));
    host.taken(pattern("n3", "y3"));
    assert_eq!(host.consumer(pattern("n2", "y2")).error, ErrorCode::InvalidRequest);
}
