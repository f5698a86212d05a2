//! Bindings. A binding between a source and a destination is identified by its `properties_key`: the routing key, and a digest of the arguments.

use super::answer::Answer;
use super::ask::Asker;
use super::body::Body;
use super::call::Call;
use super::error::Failure;
use super::target::encode;
use super::{Verb, exchanges, messages, queues, shapes};
use polylogue_amqp::request::{self as amqp};
use polylogue_amqp_gateway::MANAGEMENT_CHANNEL;
use polylogue_amqp_model::Vhost;
use polylogue_router::{Binding, Destination, Exchange};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The default sort fields of lists of bindings.
pub(super) const ORDER: &[&str] = &["vhost", "source", "type", "destination", "routing_key", "properties_key"];

/// Returns the bindings of a source; for the default exchange its implicit bindings to queues.
pub(super) fn from(call: &Call<'_>, vhost: &Vhost, source: Option<&Exchange>) -> Vec<Value> {
    match source {
        None => {
            let queues = call.view.metadata.queues().filter(|queue| queue.vhost == vhost.id);
            queues.map(|queue| shapes::default_binding(call, queue)).collect()
        }
        Some(source) => {
            let all = call.view.routes.bindings_from(source.id);
            all.iter().filter_map(|binding| shapes::binding(call, binding)).collect()
        }
    }
}

/// Returns the bindings to a destination.
pub(super) fn to(call: &Call<'_>, destination: Destination) -> Vec<Value> {
    let all = call.view.routes.bindings_to(destination);
    all.iter().filter_map(|binding| shapes::binding(call, binding)).collect()
}

/// The source and destination of a path `e/SOURCE/...`.
struct Between<'c> {
    vhost: &'c Arc<Vhost>,
    source: &'c str,
    /// The destination's type in the path: `q` or `e`.
    letter: &'c str,
    name: &'c str,
    destination: Destination,
    is_default: bool,
}

fn between<'c>(call: &'c Call<'_>, path: [&'c str; 4]) -> Result<Between<'c>, Failure> {
    let [vhost, source, letter, name] = path;
    let vhost = call.vhost(vhost)?;
    let is_default = exchanges::find(call, vhost, source)?.is_none();
    let destination = match letter {
        "q" => Destination::Queue(queues::find(call, vhost, name)?.id),
        "e" => match exchanges::find(call, vhost, name)? {
            Some(exchange) => Destination::Exchange(exchange.id),
            None => return Err(Failure::not_found()),
        },
        _ => return Err(Failure::not_found()),
    };
    Ok(Between { vhost, source: exchanges::named(source), letter, name, destination, is_default })
}

fn listed(call: &Call<'_>, ends: &Between<'_>) -> Vec<Value> {
    if let (true, Destination::Queue(queue)) = (ends.is_default, ends.destination) {
        let queue = call.view.metadata.queue(queue);
        return queue.map(|queue| shapes::default_binding(call, queue)).into_iter().collect();
    }
    matching(call, ends).iter().filter_map(|binding| shapes::binding(call, binding)).collect()
}

fn matching(call: &Call<'_>, ends: &Between<'_>) -> Vec<Arc<Binding>> {
    let source = call.view.routes.exchange(ends.vhost.id, ends.source.as_bytes()).map(|exchange| exchange.id);
    let all = call.view.routes.bindings_to(ends.destination);
    all.into_iter().filter(|binding| Some(binding.source) == source).collect()
}

/// Returns the binding with this `properties_key`.
fn find(call: &Call<'_>, ends: &Between<'_>, key: &str) -> Result<Arc<Binding>, Failure> {
    let named = |binding: &Arc<Binding>| {
        let own = shapes::properties_key(&shapes::shown(&binding.key), &binding.arguments);
        // The path was decoded once; some clients do not encode the key a second time.
        own == key || super::target::segments(&format!("/api/{own}")).is_ok_and(|parts| parts == [key])
    };
    matching(call, ends).into_iter().find(named).ok_or_else(Failure::not_found)
}

pub(super) async fn serve(call: &Call<'_>, path: &[&str], body: &Body) -> Result<Answer, Failure> {
    match (call.verb, path) {
        (Verb::Get, []) => Ok(Answer::List(all(call, |vhost| call.lists(vhost.id)), ORDER)),
        (Verb::Get, [vhost]) => {
            let id = call.visible_vhost(vhost)?.id;
            Ok(Answer::List(all(call, |vhost| vhost.id == id), ORDER))
        }
        (verb, [vhost, "e", source, letter, name]) => {
            let ends = between(call, [vhost, source, letter, name])?;
            match verb {
                Verb::Get => Ok(Answer::List(listed(call, &ends), ORDER)),
                Verb::Post => make(call, &ends, body).await,
                _ => Err(Failure::method_not_allowed("HEAD, GET, POST, OPTIONS")),
            }
        }
        (verb, [vhost, "e", source, letter, name, key]) => {
            let ends = between(call, [vhost, source, letter, name])?;
            match verb {
                Verb::Get if ends.is_default => {
                    listed(call, &ends).pop().map(Answer::One).ok_or_else(Failure::not_found)
                }
                Verb::Get => {
                    let found = find(call, &ends, key)?;
                    shapes::binding(call, &found).map(Answer::One).ok_or_else(Failure::not_found)
                }
                Verb::Delete => unmake(call, &ends, key).await,
                _ => Err(Failure::method_not_allowed("HEAD, GET, DELETE, OPTIONS")),
            }
        }
        (_, [] | [_]) => Err(Failure::method_not_allowed("HEAD, GET, OPTIONS")),
        _ => Err(Failure::not_found()),
    }
}

fn all(call: &Call<'_>, which: impl Fn(&Vhost) -> bool) -> Vec<Value> {
    let vhosts = call.view.metadata.vhosts().filter(|vhost| which(vhost));
    let vhosts: BTreeSet<_> = vhosts.map(|vhost| vhost.id).collect();
    let queues = call.view.metadata.queues().filter(|queue| vhosts.contains(&queue.vhost));
    let mut all: Vec<Value> = queues.map(|queue| shapes::default_binding(call, queue)).collect();
    let bindings = call.view.routes.bindings();
    let source = |binding: &Binding| call.view.routes.exchange_by_id(binding.source).map(|source| source.vhost);
    let bindings = bindings.iter().filter(|binding| source(binding).is_some_and(|vhost| vhosts.contains(&vhost)));
    all.extend(bindings.filter_map(|binding| shapes::binding(call, binding)));
    all
}

/// Makes the request that binds or unbinds.
fn request(ends: &Between<'_>, key: &str, arguments: &[polylogue_router::Argument]) -> Result<amqp::Binding, Failure> {
    Ok(amqp::Binding {
        source: messages::short(ends.source)?,
        destination: messages::short(ends.name)?,
        to_exchange: ends.letter == "e",
        routing_key: messages::short(key)?,
        arguments: messages::table(arguments)?,
    })
}

async fn make(call: &Call<'_>, ends: &Between<'_>, body: &Body) -> Result<Answer, Failure> {
    let key = body.text("routing_key")?.unwrap_or_default();
    let arguments = body.arguments()?;
    let bind = request(ends, &key, &arguments)?;
    if ends.is_default {
        return Err(Failure::not_authorised("Access refused."));
    }
    Asker::new(call, ends.vhost).declare(amqp::Request::Bind(MANAGEMENT_CHANNEL, bind)).await?;
    // The router sorts arguments; the key must be that of the stored binding.
    let sorted = polylogue_router::sorted(arguments);
    let name = shapes::properties_key(&key, &sorted);
    Ok(Answer::CreatedAt(format!("{}/{}", encode(ends.name), encode(&name))))
}

async fn unmake(call: &Call<'_>, ends: &Between<'_>, key: &str) -> Result<Answer, Failure> {
    if ends.is_default {
        return Err(Failure::not_authorised("Access refused."));
    }
    let found = find(call, ends, key)?;
    let unbind = request(ends, &shapes::shown(&found.key), &found.arguments)?;
    Asker::new(call, ends.vhost).declare(amqp::Request::Unbind(MANAGEMENT_CHANNEL, unbind)).await?;
    Ok(Answer::Done)
}
