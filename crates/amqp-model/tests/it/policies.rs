//! Policies and operator policies: effective settings of queues and exchanges, and events for changes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::common;

use common::*;
use polylogue_amqp_model::*;
use serde_json::json;

fn changed(live: &mut Live) -> Vec<String> {
    live.realigned()
}

fn alternate(live: &Live, exchange: &str) -> Option<String> {
    let exchange = live.model.routes().exchange(HOST, exchange.as_bytes()).unwrap();
    exchange.effective_alternate().map(|name| String::from_utf8_lossy(name).into_owned())
}

#[test]
fn a_policy_is_effective_immediately_and_only_for_matching_queues() {
    let mut live = Live::new();
    live.declare(queue("orders.1"));
    live.declare(queue("other"));
    live.declare(queue_with("orders.stream", json!({"x-queue-type": "stream"})));
    changed(&mut live);
    live.run(Command::SetPolicy(
        "/".into(),
        policy("p", "^orders", json!({"max-length": 5, "overflow": "reject-publish"})),
    ))
    .unwrap();
    assert_eq!(changed(&mut live), ["orders.1"]);
    let settings = live.settings("orders.1");
    assert_eq!((settings.max_length, settings.overflow), (Some(5), Overflow::RejectPublish));
    assert_eq!(live.settings("other").max_length, None);
    // A queue that is declared later has it from the beginning.
    live.declare(queue_with("orders.2", json!({"x-max-length": 3})));
    let declared = live.events.drain(..).find_map(|event| match event {
        Event::QueueDeclared(_, effective) => Some(effective),
        _ => None,
    });
    let declared = declared.unwrap();
    assert_eq!((declared.policy.as_deref(), declared.settings.max_length), (Some("p"), Some(3)));
    live.run(Command::ClearPolicy("/".into(), false, "p".into())).unwrap();
    assert_eq!(changed(&mut live), ["orders.1", "orders.2"]);
    assert_eq!(live.settings("orders.1").max_length, None);
}

#[test]
fn operator_policies_lower_policies_and_arguments() {
    let mut live = Live::new();
    live.declare(queue_with("q", json!({"x-message-ttl": 100})));
    live.run(Command::SetPolicy("/".into(), policy("p", "q", json!({"message-ttl": 50, "max-length": 10})))).unwrap();
    let operator = PolicySpec { operator: true, ..policy("op", "q", json!({"message-ttl": 70, "max-length": 5})) };
    live.run(Command::SetPolicy("/".into(), operator)).unwrap();
    let queue = live.model.queue(HOST, "q").unwrap();
    let effective = live.model.metadata().effective(queue);
    assert_eq!((effective.settings.message_ttl_ms, effective.settings.max_length), (Some(50), Some(5)));
    assert_eq!((effective.policy.as_deref(), effective.operator_policy.as_deref()), (Some("p"), Some("op")));
}

#[test]
fn policies_apply_to_their_types() {
    let mut live = Live::new();
    live.declare(queue("classic"));
    live.declare(queue_with("quorum", json!({"x-queue-type": "quorum"})));
    live.declare(queue_with("stream", json!({"x-queue-type": "stream"})));
    for (apply_to, with) in [
        (ApplyTo::All, [true, true, true]),
        (ApplyTo::Queues, [true, true, true]),
        (ApplyTo::ClassicQueues, [true, false, false]),
        (ApplyTo::QuorumQueues, [false, true, false]),
        (ApplyTo::Streams, [false, false, true]),
        (ApplyTo::Exchanges, [false, false, false]),
    ] {
        let spec = PolicySpec { apply_to, ..policy("p", "", json!({"max-length-bytes": 7})) };
        live.run(Command::SetPolicy("/".into(), spec)).unwrap();
        let found = ["classic", "quorum", "stream"].map(|name| live.settings(name).max_length_bytes == Some(7));
        assert_eq!(found, with, "{apply_to:?}");
    }
}

#[test]
fn policies_set_alternate_exchanges() {
    let mut live = Live::new();
    let x = Command::DeclareExchange(exchange("x", "direct"));
    live.run(x.clone()).unwrap();
    live.run(Command::SetPolicy("/".into(), policy("p", "^x|^y", json!({"alternate-exchange": "amq.fanout"}))))
        .unwrap();
    assert_eq!(alternate(&live, "x").as_deref(), Some("amq.fanout"));
    assert_eq!(alternate(&live, "amq.direct"), None);
    live.run(Command::DeclareExchange(exchange("y", "direct"))).unwrap();
    assert_eq!(alternate(&live, "y").as_deref(), Some("amq.fanout"), "a later exchange has it from the beginning");
    assert!(live.run(x).is_ok(), "a policy is no argument: the declaration stays equivalent");
    let stronger = PolicySpec { priority: 9, ..policy("none", "^x$", json!({"max-length": 1})) };
    live.run(Command::SetPolicy("/".into(), stronger)).unwrap();
    assert_eq!(alternate(&live, "x"), None, "one policy applies, not the sum of all");
    live.run(Command::ClearPolicy("/".into(), false, "none".into())).unwrap();
    assert_eq!(alternate(&live, "x").as_deref(), Some("amq.fanout"));
    let own = DeclareExchange {
        arguments: arguments(json!({"alternate-exchange": "amq.topic"})),
        ..exchange("xown", "direct")
    };
    live.run(Command::DeclareExchange(own)).unwrap();
    assert_eq!(alternate(&live, "xown").as_deref(), Some("amq.topic"), "the declaration takes precedence");
    assert!(same(&live.model, &live.replayed()));
}

/// The owner of a finished parameter deletes that one, and not a value that was set meanwhile.
#[test]
fn a_parameter_is_cleared_only_if_it_has_the_expected_value() {
    let mut live = Live::new();
    let clear =
        |value: &serde_json::Value| Command::ClearParameterIf("/".into(), "c".into(), "p".into(), Json::new(value));
    let is_there = |live: &Live| live.model.metadata().parameter(HOST, &"c".into(), &"p".into()).is_some();
    let (old, new) = (json!({"v": 1}), json!({"v": 2}));
    for value in [&old, &new] {
        live.run(Command::SetParameter("/".into(), "c".into(), "p".into(), value.clone())).unwrap();
    }
    live.run(clear(&old)).unwrap();
    assert!(is_there(&live), "another value was set since");
    live.run(clear(&new)).unwrap();
    assert!(!is_there(&live));
    live.run(clear(&new)).unwrap();
    assert!(same(&live.model, &live.replayed()));
}

/// Shovels and links used to run with the operator's rights instead of those of the user who set the parameter.
#[test]
fn a_parameter_keeps_its_author() {
    let mut live = Live::new();
    let set = |value: u8| Command::SetParameter("/".into(), "c".into(), "p".into(), json!(value));
    let author = |live: &Live| {
        let replayed = live.replayed();
        assert!(same(&live.model, &replayed));
        let mut again = Model::new(Limits::default());
        let mut from = replayed;
        from.change_all_chunks();
        for (id, chunk) in from.take_changed_chunks() {
            again.load_chunk(&id, &chunk.unwrap()).unwrap();
        }
        again.on_ready();
        assert!(same(&live.model, &again));
        again.metadata().parameter_author(HOST, &"c".into(), &"p".into()).map(ToString::to_string)
    };
    live.run_as(&user("ann"), set(1)).unwrap();
    assert_eq!(author(&live).as_deref(), Some("ann"));
    live.run_as(&user("bob"), set(1)).unwrap();
    assert_eq!(author(&live).as_deref(), Some("bob"), "the same value of another user");
    live.run(set(1)).unwrap();
    assert_eq!(author(&live).as_deref(), Some("bob"), "nothing was set");
    let by_token = Caller { grants: Some(Default::default()), ..user("cid") };
    live.run_as(&by_token, set(2)).unwrap();
    assert_eq!(author(&live), None, "a token's rights are not recorded");
    let imported = import(json!({"parameters": [{"vhost": "/", "component": "c", "name": "p", "value": 3}]}));
    live.run_as(&user("dan"), imported).unwrap();
    assert_eq!(author(&live).as_deref(), Some("dan"));
}

/// Records of older builds without an author can be read, and have none.
#[test]
fn a_parameter_of_an_older_build_has_no_author() {
    let mut live = Live::new();
    // Version 1 and one change, of kind 9: virtual host, component, name, value; an empty router record.
    let host = HOST.0.to_le_bytes();
    let texts = b"\x01\0\0\0c\x01\0\0\0p\x01\0\0\x001";
    let record = [&b"\x01\x01\0\0\0\x09"[..], &host, texts, b"\0\0\0\0"].concat();
    live.model.apply(&record).unwrap();
    let metadata = live.model.metadata();
    assert_eq!(metadata.parameter(HOST, &"c".into(), &"p".into()), Some(&Json::new(&json!(1))));
    assert_eq!(metadata.parameter_author(HOST, &"c".into(), &"p".into()), None);
}

#[test]
fn policies_and_limits_are_parameters_too() {
    let mut live = Live::new();
    live.declare(queue("q"));
    let value = json!({"pattern": "q", "definition": {"max-length": 4}, "priority": 1, "apply-to": "queues"});
    live.run(Command::SetParameter("/".into(), "operator_policy".into(), "op".into(), value)).unwrap();
    assert_eq!(live.settings("q").max_length, Some(4));
    live.run(Command::ClearParameter("/".into(), "operator_policy".into(), "op".into())).unwrap();
    assert_eq!(live.settings("q").max_length, None);
    let limits = json!({"max-queues": 9, "max-connections": 3});
    live.run(Command::SetParameter("/".into(), "vhost-limits".into(), "limits".into(), limits)).unwrap();
    let vhost = live.model.metadata().vhost(HOST).unwrap();
    assert_eq!((vhost.queues_max, vhost.connections_max), (Some(9), Some(3)));
    live.run(Command::ClearParameter("/".into(), "vhost-limits".into(), "limits".into())).unwrap();
    let vhost = live.model.metadata().vhost(HOST).unwrap();
    assert_eq!((vhost.queues_max, vhost.connections_max), (None, None));
    assert!(same(&live.model, &live.replayed()));
}

/// Six policies with look-around over 1,000 queues were evaluated twelve times for each queue, twice over, by the thread that applies the records of
/// all clients: 18 s.
#[test]
fn backtracking_patterns_run_once_per_name_before_the_command() {
    const QUEUES: usize = 20;
    let mut live = Live::new();
    (0..QUEUES).for_each(|at| _ = live.declare(queue(&format!("{}{at}", "a".repeat(30)))));
    live.declare(queue("unaffected"));
    let pattern = |at: usize| format!("^(a+)+(?=b{at})b$");
    let runs = |live: &Live| -> Vec<usize> {
        live.model.metadata().policies().map(|policy| policy.pattern.backtracking_runs()).collect()
    };
    for at in 0..6 {
        let spec = policy(&format!("p{at}"), &pattern(at), json!({"max-length": 1}));
        let command = Command::SetPolicy("/".into(), spec);
        let slow = live.model.metadata().slow_matches(live.model.routes(), &command);
        assert!(slow.len() > QUEUES, "each queue and each exchange");
        slow.iter().for_each(SlowMatch::run);
        let before = runs(&live);
        live.run(command).unwrap();
        let after = runs(&live);
        assert_eq!(after[..at], before[..], "no pattern runs again, neither does one of another policy");
        assert_eq!(after[at], slow.len(), "nor does the new one in planning and applying");
    }
    let declare = queue(&"a".repeat(29));
    let names = live.model.metadata().slow_matches_of_name(HOST, &declare.name);
    assert_eq!(names.len(), 6);
    names.iter().for_each(SlowMatch::run);
    let before = runs(&live);
    live.declare(declare);
    assert_eq!(runs(&live), before);
    live.run(Command::ClearPolicy("/".into(), false, "p0".into())).unwrap();
    assert_eq!(runs(&live), before[1..]);
}
