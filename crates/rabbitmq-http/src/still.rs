//! Fixed responses for features that do not apply here: other nodes, plugins, samples.

use super::answer::Answer;
use super::call::Call;
use super::error::Failure;
use super::overview::LOOK;
use super::{Verb, flags};
use polylogue_amqp_model::{Hashing, PasswordHash, SALT_BYTES};
use serde_json::{Value, json};

/// Features deprecated in RabbitMQ that remain supported here: name and description.
const PERMITTED: [(&str, &str); 2] = [
    ("global_qos", "One prefetch for all consumers of a channel"),
    ("transient_nonexcl_queues", "Queues that are neither durable nor exclusive"),
];

fn deprecated((name, text): &(&str, &str)) -> Value {
    json!({
        "name": name,
        "desc": text,
        "deprecation_phase": "permitted_by_default",
        "state": "permitted",
        "provided_by": "polylogue",
        "doc_url": "",
    })
}

pub(super) fn serve(call: &Call<'_>, path: &[&str]) -> Result<Answer, Failure> {
    match (call.verb, path) {
        (Verb::Get, ["extensions"]) => Ok(Answer::One(json!([{"javascript": "dispatcher.js"}]))),
        // As in RabbitMQ, every user of the API may read them.
        (Verb::Get, ["feature-flags"]) => Ok(Answer::List(flags::all(), &["name"])),
        (Verb::Put, ["feature-flags", name, "enable"]) => {
            call.admin()?;
            if flags::has(name) { Ok(Answer::Done) } else { Err(Failure::bad("unsupported")) }
        }
        (_, ["feature-flags", _, "enable"]) => Err(Failure::method_not_allowed("PUT, OPTIONS")),
        (Verb::Get, ["deprecated-features", "used"]) => {
            call.admin()?;
            Ok(Answer::List(Vec::new(), &["name"]))
        }
        (Verb::Get, ["deprecated-features"]) => {
            call.admin()?;
            Ok(Answer::List(PERMITTED.iter().map(deprecated).collect(), &["name"]))
        }
        (Verb::Get, ["auth"]) => Ok(Answer::One(json!({"oauth_enabled": false}))),
        (Verb::Get, ["auth", "attempts", _] | ["auth", "attempts", _, "source"]) => {
            call.monitor()?;
            Ok(Answer::One(json!([])))
        }
        (Verb::Delete, ["auth", "attempts", _] | ["auth", "attempts", _, "source"]) => {
            call.admin()?;
            Ok(Answer::Done)
        }
        (Verb::Get, ["auth", "hash_password", password]) => {
            call.admin()?;
            let mut salt = [0; SALT_BYTES];
            call.app.rng.fill(&mut salt);
            let hash = PasswordHash::of(Hashing::Sha256, salt, password.as_bytes());
            Ok(Answer::One(json!({"ok": hash.to_base64()})))
        }
        // There is one node and nothing is sampled: no action is needed.
        (Verb::Post, ["rebalance", "queues"]) | (Verb::Delete, ["reset"] | ["reset", _]) => {
            call.admin()?;
            Ok(Answer::Done)
        }
        (_, ["extensions" | "feature-flags" | "deprecated-features" | "auth"]) => {
            Err(Failure::method_not_allowed(LOOK))
        }
        _ => Err(Failure::not_found()),
    }
}
