//! The upstreams that policies name, and the refusals of federation, with RabbitMQ's texts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::common;

use common::*;
use polylogue_amqp_model::*;
use serde_json::{Map, Value, json};

fn set(live: &mut Live, component: &str, name: &str, value: Value) -> Result<Reply, Refused> {
    live.run(Command::SetParameter("/".into(), component.into(), name.into(), value))
}

fn keys(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn names(live: &Live, definition: &Value) -> Vec<(String, Option<String>)> {
    let all = upstreams(live.model.metadata(), HOST, &keys(definition));
    all.into_iter().map(|one| (one.name.to_string(), one.upstream.unwrap().exchange.map(|e| e.to_string()))).collect()
}

#[test]
fn policies_name_upstreams_in_three_ways() {
    let mut live = Live::new();
    for name in ["eu-1", "eu-2", "us"] {
        set(&mut live, UPSTREAM, name, json!({"uri": "amqp://h", "exchange": "there"})).unwrap();
    }
    let members = json!([{"upstream": "us", "exchange": "elsewhere"}, {"upstream": "none"}, {"upstream": "eu-2"}]);
    set(&mut live, UPSTREAM_SET, "some", members).unwrap();
    let there = |name: &str| (name.to_owned(), Some("there".to_owned()));
    assert_eq!(names(&live, &json!({"federation-upstream": "us"})), [there("us")]);
    assert_eq!(names(&live, &json!({"federation-upstream": "none"})), []);
    assert_eq!(names(&live, &json!({"federation-upstream-pattern": "^eu-"})), [there("eu-1"), there("eu-2")]);
    assert_eq!(names(&live, &json!({"federation-upstream-set": "all"})), [there("eu-1"), there("eu-2"), there("us")]);
    // Fields of a member override those of its upstream.
    let some = [("us".to_owned(), Some("elsewhere".to_owned())), there("eu-2")];
    assert_eq!(names(&live, &json!({"federation-upstream-set": "some"})), some);
    assert_eq!(names(&live, &json!({"federation-upstream-set": "none"})), []);
    assert_eq!(names(&live, &json!({"max-length": 1})), []);
    assert!(!federates(&keys(&json!({"max-length": 1}))) && federates(&keys(&json!({"federation-upstream": "us"}))));
}

#[test]
fn an_upstream_has_defaults_and_limits() {
    let upstream = |more: Value| {
        let mut value = json!({"uri": ["amqp://u:p@a/v", "amqp://b"]});
        value.as_object_mut().unwrap().extend(keys(&more));
        Upstream::parse("u", &value)
    };
    let plain = upstream(json!({})).unwrap();
    assert_eq!((plain.prefetch, plain.reconnect_delay_ms, plain.hops_max), (1_000, 5_000, 1));
    assert_eq!((&*plain.consumer_tag, plain.ack_mode), ("federation-link-u", AckMode::OnConfirm));
    assert_eq!((plain.expires_ms, plain.message_ttl_ms, plain.is_quorum), (None, None, false));
    let vhosts: Vec<_> = plain.uris.iter().map(|uri| uri.or_vhost(&"own".into()).vhost.to_string()).collect();
    assert_eq!(vhosts, ["v", "own"], "an address without a virtual host means the parameter's own");
    let full = upstream(json!({"prefetch-count": 7, "reconnect-delay": 0.25, "max-hops": 3, "expires": 60_000,
        "message-ttl": 0, "trust-user-id": true, "ack-mode": "no-ack", "queue-type": "quorum", "bind-nowait": true,
        "resource-cleanup-mode": "never", "channel-use-mode": "single", "queue": "q", "consumer-tag": "t"}));
    let full = full.unwrap();
    assert_eq!((full.prefetch, full.reconnect_delay_ms, full.hops_max), (7, 250, 3));
    assert_eq!((full.expires_ms, full.message_ttl_ms), (Some(60_000), Some(0)));
    assert!(full.trusts_user_id && full.is_quorum && full.keeps_resources && full.ack_mode == AckMode::NoAck);
    assert_eq!(upstream(json!({"reconnect-delay": 0})).unwrap().reconnect_delay_ms, 100, "no immediate retry");
}

#[test]
fn invalid_parameters_are_refused_with_rabbitmqs_texts() {
    let mut live = Live::new();
    let failed = |why: &str| format!("Validation failed\n\n{why}\n");
    for (component, value, why) in [
        (UPSTREAM, json!({}), "Key \"uri\" not found in n"),
        (UPSTREAM, json!({"uri": "amqp://a", "x": 1}), "Unrecognised terms [{<<\"x\">>,1}] in n"),
        (
            UPSTREAM,
            json!({"uri": "amqp://a", "upstream": "x"}),
            "Unrecognised terms [{<<\"upstream\">>,<<\"x\">>}] in n",
        ),
        (UPSTREAM, json!({"uri": "amqp://a", "max-hops": "1"}), "max-hops should be a number, actually was <<\"1\">>"),
        (
            UPSTREAM,
            json!({"uri": "amqp://a", "max-hops": 0}),
            "max-hops should be a number from 1 to 4294967295, actually was 0",
        ),
        (UPSTREAM, json!({"uri": "amqp://a", "trust-user-id": 1}), "trust-user-id should be boolean, actually was 1"),
        (UPSTREAM_SET, json!([{}]), "Key \"upstream\" not found in n"),
        (UPSTREAM_SET, json!("u"), "n should be list, actually was <<\"u\">>"),
    ] {
        let refused = set(&mut live, component, "n", value.clone()).unwrap_err();
        assert_eq!(refused.text, failed(why), "{value}");
    }
    let unsupported = set(&mut live, UPSTREAM, "n", json!({"uri": "amqps://a?verify=verify_none"})).unwrap_err();
    assert!(unsupported.text.contains("verify_none is not supported"), "{}", unsupported.text);
    for (definition, why) in [
        (json!({"federation-upstream": 1}), "1 is not a valid federation upstream name"),
        (json!({"federation-upstream-set": 1}), "1 is not a valid federation upstream set name"),
        (json!({"federation-upstream-pattern": 1}), "1 is not a valid federation upstream pattern name"),
        (
            json!({"federation-upstream": "a", "federation-upstream-set": "b"}),
            "cannot specify federation-upstream, federation-upstream-set or federation-upstream-pattern together",
        ),
    ] {
        let spec = PolicySpec {
            operator: false,
            name: "p".into(),
            pattern: "".into(),
            apply_to: ApplyTo::All,
            priority: 0,
            definition: keys(&definition),
        };
        let refused = live.run(Command::SetPolicy("/".into(), spec)).unwrap_err();
        assert_eq!(refused.text, failed(why), "{definition}");
    }
}
