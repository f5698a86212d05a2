//! Limits on the number of objects, and the refusal of one more. Existing objects may be set again.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::common;

use common::*;
use polylogue_amqp_model::*;
use serde_json::json;

fn parameter(component: &str, name: &str, value: serde_json::Value) -> Command {
    Command::SetParameter("/".into(), component.into(), name.into(), value)
}

fn put(name: &str) -> Command {
    Command::PutUser(put_user(name))
}

fn shovel(name: &str, source: &str) -> Command {
    let value = json!({"src-uri": "amqp://", "src-queue": source, "dest-uri": "amqp://", "dest-queue": "d"});
    parameter("shovel", name, value)
}

#[test]
fn every_kind_of_object_is_limited() {
    let limits = Limits {
        users_max: 2,
        permissions_max: 3,
        policies_max: 1,
        parameters_max: 3,
        shovels_max: 1,
        ..Limits::default()
    };
    let mut live = Live::within(limits);
    let permission =
        |user: &str| Command::SetPermission(user.into(), "/".into(), [".*".into(), "".into(), ".*".into()]);
    let topic = |exchange: &str| {
        Command::SetTopicPermission("shop".into(), "/".into(), exchange.into(), [".*".into(), "".into()])
    };
    let policy = |name: &str| Command::SetPolicy("/".into(), policy(name, "", json!({"max-length": 1})));
    // The administrator and its permission count; shovels count as parameters too.
    for (fits, also_fits, one_too_many, why) in [
        (put("shop"), put("shop"), put("else"), "2 users"),
        (permission("shop"), topic("a"), topic("b"), "3 permissions"),
        (policy("p"), policy("p"), policy("q"), "1 policies"),
        (shovel("s", "a"), shovel("s", "b"), shovel("t", "a"), "1 shovels"),
        (parameter("c", "a", json!(1)), parameter("c", "b", json!(1)), parameter("c", "c", json!(1)), "3 parameters"),
    ] {
        live.run(fits.clone()).unwrap();
        live.run(also_fits).unwrap();
        let refused = live.refusal(&Caller::broker(), one_too_many);
        assert!(refused.contains(&format!("there can be at most {why}")), "{refused}");
        live.run(fits).unwrap();
    }
    let global = Command::SetGlobalParameter("g".into(), json!(1));
    assert!(live.refusal(&Caller::broker(), global).contains("at most 3 parameters"));
    live.run(Command::ClearParameter("/".into(), "shovel".into(), "s".into())).unwrap();
    live.run(shovel("t", "a")).unwrap();
}
