//! Exchanges.

use super::answer::Answer;
use super::ask::Asker;
use super::body::Body;
use super::call::Call;
use super::error::Failure;
use super::{Verb, bindings, messages, shapes};
use polylogue_amqp::request::{self as amqp};
use polylogue_amqp_gateway::MANAGEMENT_CHANNEL;
use polylogue_amqp_model::Vhost;
use polylogue_router::Exchange;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The default exchange's name in paths.
const DEFAULT: &str = "amq.default";

/// Returns the name of the exchange that a path names.
pub(super) fn named(part: &str) -> &str {
    if part == DEFAULT { "" } else { part }
}

/// Returns an existing exchange; `None` for the default exchange.
pub(super) fn find<'c>(call: &'c Call<'_>, vhost: &Vhost, part: &str) -> Result<Option<&'c Arc<Exchange>>, Failure> {
    match named(part) {
        "" => Ok(None),
        name => call.view.routes.exchange(vhost.id, name.as_bytes()).map(Some).ok_or_else(Failure::not_found),
    }
}

pub(super) async fn serve(call: &Call<'_>, path: &[&str], body: &Body) -> Result<Answer, Failure> {
    match (call.verb, path) {
        (Verb::Get, []) => Ok(Answer::Paged(list(call, |vhost| call.lists(vhost.id)))),
        (Verb::Get, [vhost]) => {
            let id = call.visible_vhost(vhost)?.id;
            Ok(Answer::Paged(list(call, |vhost| vhost.id == id)))
        }
        (Verb::Get, [vhost, name]) => {
            let vhost = call.visible_vhost(vhost)?;
            Ok(Answer::One(match find(call, vhost, name)? {
                None => shapes::default_exchange(call, vhost.id),
                Some(exchange) => shapes::exchange(call, exchange),
            }))
        }
        (Verb::Put, [vhost, name]) => put(call, call.vhost(vhost)?, name, body).await,
        (Verb::Delete, [vhost, name]) => {
            let vhost = call.vhost(vhost)?;
            find(call, vhost, name)?;
            let if_unused = call.query.is_true("if-unused");
            let exchange = messages::short(named(name))?;
            if exchange.is_empty() {
                return Err(Failure::not_authorised("Access refused."));
            }
            let delete = amqp::Request::DeleteExchange { channel: MANAGEMENT_CHANNEL, exchange, if_unused };
            Asker::new(call, vhost).declare(delete).await?;
            Ok(Answer::Done)
        }
        (Verb::Post, [vhost, name, "publish"]) => {
            let vhost = call.vhost(vhost)?;
            find(call, vhost, name)?;
            messages::serve_publish(call, vhost, named(name), body).await
        }
        (Verb::Get, [vhost, name, "bindings", "source"]) => {
            let vhost = call.visible_vhost(vhost)?;
            let exchange = find(call, vhost, name)?.cloned();
            Ok(Answer::List(bindings::from(call, vhost, exchange.as_deref()), bindings::ORDER))
        }
        (Verb::Get, [vhost, name, "bindings", "destination"]) => {
            let vhost = call.visible_vhost(vhost)?;
            let to = find(call, vhost, name)?.map(|exchange| exchange.id);
            let to = to.map(polylogue_router::Destination::Exchange);
            Ok(Answer::List(to.map(|to| bindings::to(call, to)).unwrap_or_default(), bindings::ORDER))
        }
        (_, [] | [_]) => Err(Failure::method_not_allowed("HEAD, GET, OPTIONS")),
        (_, [_, _]) => Err(Failure::method_not_allowed("HEAD, GET, PUT, DELETE, OPTIONS")),
        (_, [_, _, "publish"]) => Err(Failure::method_not_allowed("POST, OPTIONS")),
        _ => Err(Failure::not_found()),
    }
}

fn list(call: &Call<'_>, which: impl Fn(&Vhost) -> bool) -> Vec<Value> {
    let vhosts = call.view.metadata.vhosts().filter(|vhost| which(vhost));
    let vhosts: BTreeSet<_> = vhosts.map(|vhost| vhost.id).collect();
    let mut all: Vec<Value> = vhosts.iter().map(|id| shapes::default_exchange(call, *id)).collect();
    let exchanges = call.view.routes.exchanges();
    let exchanges = exchanges.iter().filter(|exchange| vhosts.contains(&exchange.vhost));
    all.extend(exchanges.map(|exchange| shapes::exchange(call, exchange)));
    all
}

async fn put(call: &Call<'_>, vhost: &Vhost, name: &str, body: &Body) -> Result<Answer, Failure> {
    let name = messages::short(named(name))?;
    if name.is_empty() {
        return Err(Failure::not_authorised("Access refused."));
    }
    let created = call.view.routes.exchange(vhost.id, &name).is_none();
    let kind = body.text("type")?.unwrap_or_else(|| "direct".into());
    let declare = amqp::DeclareExchange {
        name,
        kind: messages::short(&kind)?,
        passive: false,
        durable: body.flag("durable")?,
        auto_delete: body.flag("auto_delete")?,
        internal: body.flag("internal")?,
        arguments: messages::table(&body.arguments()?)?,
    };
    Asker::new(call, vhost).declare(amqp::Request::DeclareExchange(MANAGEMENT_CHANNEL, declare)).await?;
    Ok(Answer::put(created))
}
