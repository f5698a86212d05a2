//! Virtual hosts.

use super::answer::Answer;
use super::body::Body;
use super::call::Call;
use super::error::Failure;
use super::{Verb, ask, clients, permissions, shapes};
use bytestring::ByteString;
use polylogue_amqp_model::{Code, Command, Json, PutVhost, QueueKind, Vhost};
use polylogue_api::QueueCounts;
use polylogue_net::declared::{self, Fault};
use polylogue_router::VhostId;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) async fn serve(call: &Call<'_>, path: &[&str], body: &Body) -> Result<Answer, Failure> {
    match (call.verb, path) {
        (Verb::Get, []) => list(call).await,
        (Verb::Get, [name]) => {
            let vhost = call.visible_vhost(name)?;
            let counts = counted(call, std::slice::from_ref(vhost)).await?;
            Ok(Answer::One(shapes::vhost(call, vhost, counts.first())))
        }
        (Verb::Put, [name]) => put(call, (*name).into(), body).await,
        (Verb::Delete, [name]) => {
            call.admin()?;
            match declared::delete_vhost(&call.app.broker, &call.app.directory, &call.app.net, name).await {
                Err(Fault::Refused(why)) if why.code == Code::PreconditionFailed => {
                    Err(Failure::precondition_failed(why.text))
                }
                done => Ok(done.map(|()| Answer::Done)?),
            }
        }
        (verb, [name, "deletion", "protection"]) => {
            call.admin()?;
            let protected = match verb {
                Verb::Post => true,
                Verb::Delete => false,
                _ => return Err(Failure::method_not_allowed("POST, DELETE, OPTIONS")),
            };
            ask::change(call.app, Command::ProtectVhost((*name).into(), protected)).await?;
            Ok(Answer::Done)
        }
        (Verb::Get, [name, "permissions"]) => {
            call.admin()?;
            let vhost = call.vhost(name)?.id;
            Ok(Answer::List(permissions::all(call, |of, _| of == vhost), permissions::ORDER))
        }
        (Verb::Get, [name, "topic-permissions"]) => {
            call.admin()?;
            let vhost = call.vhost(name)?.id;
            Ok(Answer::List(permissions::all_topics(call, |of, _| of == vhost), permissions::ORDER))
        }
        (Verb::Get, [name, "connections"]) => {
            let vhost = call.visible_vhost(name)?.id;
            Ok(clients::connections(call, |client| client.vhost == vhost))
        }
        (Verb::Get, [name, "channels"]) => {
            let vhost = call.visible_vhost(name)?.id;
            Ok(clients::channels(call, |client| client.vhost == vhost))
        }
        // All virtual hosts run all the time.
        (Verb::Post, [name, "start", _]) => {
            call.admin()?;
            call.vhost(name)?;
            Ok(Answer::Done)
        }
        (_, []) => Err(Failure::method_not_allowed("HEAD, GET, OPTIONS")),
        (_, [_]) => Err(Failure::method_not_allowed("HEAD, GET, PUT, DELETE, OPTIONS")),
        _ => Err(Failure::not_found()),
    }
}

async fn list(call: &Call<'_>) -> Result<Answer, Failure> {
    let seen: Vec<Arc<Vhost>> = call.view.metadata.vhosts().filter(|vhost| call.sees(vhost.id)).cloned().collect();
    let counts = if call.query.is_true("disable_stats") { Vec::new() } else { counted(call, &seen).await? };
    let shape = |(at, vhost): (usize, &Arc<Vhost>)| shapes::vhost(call, vhost, counts.get(at));
    Ok(Answer::Paged(seen.iter().enumerate().map(shape).collect()))
}

/// Returns the summed counts of each virtual host's queues.
async fn counted(call: &Call<'_>, vhosts: &[Arc<Vhost>]) -> Result<Vec<QueueCounts>, Failure> {
    let mut by_vhost: BTreeMap<VhostId, QueueCounts> =
        vhosts.iter().map(|vhost| (vhost.id, QueueCounts::default())).collect();
    let queues = call.view.metadata.queues().filter(|queue| by_vhost.contains_key(&queue.vhost));
    let queues: Vec<_> = queues.cloned().collect();
    for (queue, counts) in queues.iter().zip(ask::counts(call.app, &queues).await?) {
        if let Some(sum) = by_vhost.get_mut(&queue.vhost) {
            *sum = shapes::sum([*sum, counts].iter());
        }
    }
    Ok(vhosts.iter().map(|vhost| by_vhost.get(&vhost.id).copied().unwrap_or_default()).collect())
}

async fn put(call: &Call<'_>, name: ByteString, body: &Body) -> Result<Answer, Failure> {
    call.admin()?;
    let kind = match body.text("default_queue_type")?.as_deref() {
        None | Some("undefined" | "") => None,
        Some(kind) => match QueueKind::named(kind) {
            Some(kind) => Some(Some(kind)),
            None => return Err(Failure::bad(format!("unsupported queue type '{kind}'"))),
        },
    };
    let put = PutVhost {
        name: name.clone(),
        description: body.text("description")?,
        tags: body.tags()?,
        default_queue_type: kind,
        tracing: if body.get("tracing").is_some() { Some(body.flag("tracing")?) } else { None },
        metadata: body.get("metadata").filter(|value| value.is_object()).map(|value: &Value| Json::new(value)),
    };
    let created = ask::put(call.app, Command::PutVhost(put)).await?;
    // The creator gets all permissions; a user logged in by a token has those of the token only.
    if created && call.grants.is_none() {
        let all = [".*", ".*", ".*"].map(ByteString::from_static);
        ask::put(call.app, Command::SetPermission(call.user.name.clone(), name, all)).await?;
    }
    Ok(Answer::put(created))
}
