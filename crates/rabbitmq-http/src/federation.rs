//! Status of federation links. Links are defined by policies and parameters.

use super::Verb;
use super::answer::Answer;
use super::call::Call;
use super::error::Failure;
use super::overview::LOOK;
use polylogue_amqp_model::Upstream;
use serde_json::Value;

/// The default sort fields of lists of links.
const ORDER: &[&str] = &["vhost", "type", "exchange", "queue", "upstream"];

fn listed(call: &Call<'_>, which: impl Fn(&str) -> bool) -> Answer {
    let metadata = &call.view.metadata;
    let sees = |vhost: &str| metadata.vhost_named(vhost).is_some_and(|vhost| call.lists(vhost.id));
    let node = call.app.node();
    Answer::List(call.app.federation.shown(&node, |key| which(&key.vhost) && sees(&key.vhost)), ORDER)
}

fn is_down(link: &Value) -> bool {
    link.get("status").is_none_or(|status| status != "running")
}

/// Keeps the links that are not running.
fn down(mut all: Answer) -> Answer {
    if let Answer::List(links, _) = &mut all {
        links.retain(is_down);
    }
    all
}

pub(super) fn serve(call: &Call<'_>, path: &[&str]) -> Result<Answer, Failure> {
    match (call.verb, path) {
        (Verb::Get, _) => {
            call.monitor()?;
            match path {
                [] => Ok(listed(call, |_| true)),
                ["state", "down"] => Ok(down(listed(call, |_| true))),
                [vhost] | [vhost, "state", "down"] => {
                    call.visible_vhost(vhost)?;
                    let all = listed(call, |of| of == *vhost);
                    Ok(if path.len() == 1 { all } else { down(all) })
                }
                _ => Err(Failure::not_found()),
            }
        }
        (Verb::Delete, ["vhost", vhost, id, _, "restart"]) => {
            call.policed_vhost(vhost)?;
            if call.app.federation.restart(vhost, id) { Ok(Answer::Done) } else { Err(Failure::not_found()) }
        }
        (_, [] | [_] | ["state", "down"] | [_, "state", "down"]) => Err(Failure::method_not_allowed(LOOK)),
        (_, ["vhost", _, _, _, "restart"]) => Err(Failure::method_not_allowed("DELETE, OPTIONS")),
        _ => Err(Failure::not_found()),
    }
}

/// Checks that the user may access the virtual host that an upstream names, if the upstream is this broker and has no password.
pub(super) fn may_set(call: &Call<'_>, vhost: &str, name: &str, value: &Value) -> Result<(), Failure> {
    // Invalid values are rejected later, with their own error.
    let Ok(upstream) = Upstream::parse(name, value) else { return Ok(()) };
    let uris: Vec<_> = upstream.uris.iter().map(|uri| uri.or_vhost(&vhost.into())).collect();
    super::shovels::may_enter(call, uris.iter())
}
