//! Status of shovels. Shovels are defined by parameters.

use super::answer::Answer;
use super::call::Call;
use super::error::Failure;
use super::overview::LOOK;
use super::{Verb, ask};
use bytestring::ByteString;
use polylogue_amqp_model::{AmqpUri, Command, Json, SHOVEL, Shovel, exchange_topic, shown_shovel};
use polylogue_router::VhostId;
use serde_json::{Value, json};

/// The `Allow` header of a shovel's path.
const ONE: &str = "HEAD, GET, DELETE, OPTIONS";

/// Returns the shovels that the user may see.
fn shovels<'c>(call: &'c Call<'_>) -> impl Iterator<Item = (VhostId, &'c ByteString, &'c Json)> {
    let all =
        call.view.metadata.parameters().filter(|(vhost, component, ..)| *component == SHOVEL && call.lists(*vhost));
    all.map(|(vhost, _, name, value)| (vhost, name, value))
}

fn state(call: &Call<'_>, vhost: VhostId, name: &ByteString) -> Value {
    let host = call.vhost_name(vhost);
    let node = call.app.node();
    match call.app.shovels.shown(&host.into(), name) {
        Some(shown) => shown.shape(&node, host, name),
        // Set a moment ago: the shovel has not started.
        None => json!({"node": node, "name": &**name, "vhost": host, "type": "dynamic", "state": "starting"}),
    }
}

fn listed(call: &Call<'_>, which: impl Fn(VhostId) -> bool) -> Answer {
    let all = shovels(call).filter(|(vhost, ..)| which(*vhost));
    Answer::List(all.map(|(vhost, name, _)| state(call, vhost, name)).collect(), &["vhost", "name"])
}

/// Returns an existing shovel in a virtual host that the user may see.
fn one<'c>(call: &'c Call<'_>, vhost: &str, name: &str) -> Result<(VhostId, &'c ByteString, &'c Json), Failure> {
    let host = call.visible_vhost(vhost)?.id;
    shovels(call).find(|(of, known, _)| *of == host && **known == name).ok_or_else(Failure::not_found)
}

pub(super) async fn serve(call: &Call<'_>, path: &[&str]) -> Result<Answer, Failure> {
    match (call.verb, path) {
        (Verb::Get, _) => {
            call.monitor()?;
            match path {
                [] => Ok(listed(call, |_| true)),
                [vhost] => {
                    let host = call.visible_vhost(vhost)?.id;
                    Ok(listed(call, |vhost| vhost == host))
                }
                [vhost, name] => one(call, vhost, name).map(|(host, name, _)| Answer::One(state(call, host, name))),
                ["vhost", vhost, name] => {
                    // As in RabbitMQ, the definition is included, without secrets.
                    let (host, name, value) = one(call, vhost, name)?;
                    let (vhost, value) = (call.vhost_name(host), shown_shovel(&value.value()));
                    let shown = json!({"vhost": vhost, "component": SHOVEL, "name": &**name, "value": value});
                    Ok(Answer::One(shown))
                }
                _ => Err(Failure::not_found()),
            }
        }
        // Requires the same permission as setting parameters.
        (Verb::Delete, ["vhost", vhost, name]) => {
            call.policed_vhost(vhost)?;
            let (_, name, _) = one(call, vhost, name)?;
            let command = Command::ClearParameter((*vhost).into(), SHOVEL.into(), name.clone());
            ask::change(call.app, command).await?;
            call.app.shovels.deleted((*vhost).into(), name.clone());
            Ok(Answer::Done)
        }
        (Verb::Delete, ["vhost", vhost, name, "restart"]) => {
            call.policed_vhost(vhost)?;
            let (_, name, _) = one(call, vhost, name)?;
            call.app.shovels.restart((*vhost).into(), name.clone());
            Ok(Answer::Done)
        }
        (_, ["vhost", _, _] | ["vhost", _, _, "restart"]) => Err(Failure::method_not_allowed(ONE)),
        (_, [] | [_] | [_, _]) => Err(Failure::method_not_allowed(LOOK)),
        _ => Err(Failure::not_found()),
    }
}

/// Checks a shovel that logs in to this broker without a password: the user must have access to the virtual host it names, and may write to the
/// Kafka topic that its queue would forward to.
pub(super) fn may_set(call: &Call<'_>, name: &str, value: &Value) -> Result<(), Failure> {
    // Invalid values are rejected later, with their own error.
    let Ok(shovel) = Shovel::parse(name, value) else { return Ok(()) };
    let (source, destination) = (&shovel.source, &shovel.destination);
    may_enter(call, source.uris.iter().chain(&destination.uris))?;
    for (uris, arguments) in
        [(&source.uris, &source.queue_arguments), (&destination.uris, &destination.queue_arguments)]
    {
        let is_here = uris.iter().any(|uri| uri.host.is_none());
        if let Some(topic) = exchange_topic(arguments).filter(|topic| is_here && !call.may_write(topic)) {
            let user = &call.user.name;
            return Err(invalid(&format!("write access to topic '{topic}' refused for user '{user}'")));
        }
    }
    Ok(())
}

fn invalid(why: &str) -> Failure {
    Failure::bad(format!("Validation failed\n\n{why}\n"))
}

/// Checks URIs of this broker without a password: they must name virtual hosts that the user may access, and no other user, because a user
/// named there is not authenticated.
pub(super) fn may_enter<'u>(call: &Call<'_>, uris: impl Iterator<Item = &'u AmqpUri>) -> Result<(), Failure> {
    for uri in uris.filter(|uri| uri.host.is_none()) {
        let other = uri.user.as_ref().filter(|name| uri.password.is_none() && **name != call.user.name);
        if let Some(other) = other.filter(|_| !call.is_admin()) {
            let user = &call.user.name;
            return Err(invalid(&format!("user \"{user}\" may not connect as \"{other}\"")));
        }
        let there = call.view.metadata.vhost_named(&uri.vhost).is_some_and(|vhost| call.has_permission(vhost.id));
        if !there {
            let (user, vhost) = (&call.user.name, &uri.vhost);
            return Err(invalid(&format!("user \"{user}\" may not connect to vhost \"{vhost}\"")));
        }
    }
    Ok(())
}
