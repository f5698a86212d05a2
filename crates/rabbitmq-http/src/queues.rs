//! Queues.

use super::answer::{Answer, BY_NAME};
use super::ask::Asker;
use super::body::Body;
use super::call::Call;
use super::error::Failure;
use super::{Verb, bindings, clients, heads, list, messages, shapes};
use polylogue_amqp::codec::{ShortStr, Table};
use polylogue_amqp::request::{self as amqp};
use polylogue_amqp_gateway::MANAGEMENT_CHANNEL;
use polylogue_amqp_model::{Queue, Vhost};
use polylogue_router::{Destination, QueueId};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Fields that do not require the queue's counts.
const DECLARED: [&str; 10] =
    ["name", "vhost", "type", "durable", "auto_delete", "exclusive", "arguments", "node", "state", "policy"];

/// Fields that a page can be sorted by without reading more of each queue.
const FINDS: [&str; 6] = ["name", "vhost", "type", "durable", "auto_delete", "exclusive"];

/// Returns an existing queue.
pub(super) fn find<'c>(call: &'c Call<'_>, vhost: &Vhost, name: &str) -> Result<&'c Arc<Queue>, Failure> {
    let id = call.view.routes.queue(vhost.id, name.as_bytes()).map(|queue| queue.id);
    id.and_then(|id| call.view.metadata.queue(id)).ok_or_else(Failure::not_found)
}

/// Makes a declaration. An HTTP request has no connection that could own an exclusive queue.
pub(super) fn declare(name: ShortStr, durable: bool, auto_delete: bool, arguments: Table) -> amqp::Request {
    let declare = amqp::DeclareQueue {
        name,
        server_named: false,
        passive: false,
        durable,
        exclusive: false,
        auto_delete,
        arguments,
    };
    amqp::Request::DeclareQueue(MANAGEMENT_CHANNEL, declare)
}

pub(super) async fn serve(call: &Call<'_>, path: &[&str], body: &Body) -> Result<Answer, Failure> {
    match (call.verb, path) {
        (Verb::Get, [] | ["detailed"]) if path.is_empty() || call.view.metadata.vhost_named("detailed").is_none() => {
            listed(call, |queue| call.lists(queue.vhost)).await
        }
        (Verb::Get, [vhost]) => {
            let id = call.visible_vhost(vhost)?.id;
            listed(call, |queue| queue.vhost == id).await
        }
        (Verb::Get, [vhost, name]) => one(call, find(call, call.visible_vhost(vhost)?, name)?).await,
        (Verb::Put, [vhost, name]) => {
            let vhost = call.vhost(vhost)?;
            let created = call.view.routes.queue(vhost.id, name.as_bytes()).is_none();
            let arguments = messages::table(&body.arguments()?)?;
            let (durable, auto_delete) = (body.flag("durable")?, body.flag("auto_delete")?);
            let declare = declare(messages::short(name)?, durable, auto_delete, arguments);
            Asker::new(call, vhost).declare(declare).await?;
            Ok(Answer::put(created))
        }
        (Verb::Delete, [vhost, name]) => {
            let vhost = call.vhost(vhost)?;
            find(call, vhost, name)?;
            let delete = amqp::Request::DeleteQueue {
                channel: MANAGEMENT_CHANNEL,
                queue: messages::short(name)?,
                if_unused: call.query.is_true("if-unused"),
                if_empty: call.query.is_true("if-empty"),
            };
            Asker::new(call, vhost).declare(delete).await?;
            Ok(Answer::Done)
        }
        (Verb::Get, [vhost, name, "bindings"]) => {
            let queue = find(call, call.visible_vhost(vhost)?, name)?;
            let mut all = bindings::to(call, Destination::Queue(queue.id));
            all.push(shapes::default_binding(call, queue));
            Ok(Answer::List(all, bindings::ORDER))
        }
        (Verb::Delete, [vhost, name, "contents"]) => {
            let vhost = call.vhost(vhost)?;
            find(call, vhost, name)?;
            let purge = amqp::Request::PurgeQueue(MANAGEMENT_CHANNEL, messages::short(name)?);
            match Asker::new(call, vhost).ask(purge).await? {
                amqp::Reply::Refused(why) => Err(Failure::channel(&why)),
                _ => Ok(Answer::Done),
            }
        }
        (Verb::Post, [vhost, name, "get"]) => {
            let vhost = call.vhost(vhost)?;
            find(call, vhost, name)?;
            messages::serve_get(call, vhost, name, body).await
        }
        // All state of a queue is on this node.
        (Verb::Post, [vhost, name, "actions"]) => {
            find(call, call.vhost(vhost)?, name)?;
            match body.required("action")?.as_ref() {
                "sync" | "cancel_sync" => Ok(Answer::Done),
                other => Err(Failure::bad(format!("unknown action {other}"))),
            }
        }
        (_, [] | [_]) => Err(Failure::method_not_allowed("HEAD, GET, OPTIONS")),
        (_, [_, _]) => Err(Failure::method_not_allowed("HEAD, GET, PUT, DELETE, OPTIONS")),
        (_, [_, _, "contents"]) => Err(Failure::method_not_allowed("DELETE, OPTIONS")),
        (_, [_, _, "get" | "actions"]) => Err(Failure::method_not_allowed("POST, OPTIONS")),
        _ => Err(Failure::not_found()),
    }
}

async fn one(call: &Call<'_>, queue: &Arc<Queue>) -> Result<Answer, Failure> {
    if call.query.is_true("disable_stats") {
        return Ok(Answer::One(shapes::queue(call, queue)));
    }
    let mut shape = heads::counted(call, std::slice::from_ref(queue)).await?.pop().unwrap_or_default();
    let consumers = clients::consumers(call, |of, _| of == queue.id);
    if let Value::Object(shape) = &mut shape {
        shape.insert("consumer_details".to_owned(), Value::Array(consumers));
        shape.insert("incoming".to_owned(), Value::Array(Vec::new()));
        shape.insert("deliveries".to_owned(), Value::Array(Vec::new()));
    }
    Ok(Answer::One(shape))
}

/// Whether a parameter names a field that is not among these.
fn names_other(call: &Call<'_>, parameter: &str, known: &[&str]) -> bool {
    let names = call.query.get(parameter);
    names.is_some_and(|names| names.split(',').any(|name| !name.is_empty() && !known.contains(&name)))
}

/// Lists queues. Counts are read only for the queues of the page, unless it is sorted by them.
async fn listed(call: &Call<'_>, which: impl Fn(&Queue) -> bool) -> Result<Answer, Failure> {
    let queues: Vec<Arc<Queue>> = call.view.metadata.queues().filter(|queue| which(queue)).cloned().collect();
    let disabled = call.query.is_true("disable_stats") && !call.query.is_true("enable_queue_totals");
    let paging = list::Paging::of(&call.query)?;
    let sorts = names_other(call, "sort", &DECLARED);
    let shows = call.query.get("columns").is_none() || names_other(call, "columns", &DECLARED);
    if disabled || !(sorts || shows) {
        return Ok(Answer::Paged(queues.iter().map(|queue| shapes::queue(call, queue)).collect()));
    }
    let Some(paging) = paging.filter(|_| !names_other(call, "sort", &FINDS)) else {
        return Ok(Answer::Paged(heads::counted(call, &queues).await?));
    };
    // The page is selected by the declared fields, then filled.
    let key = |queue: &Arc<Queue>| {
        serde_json::json!({
            "name": &*queue.name,
            "vhost": call.vhost_name(queue.vhost),
            "type": queue.kind.name(),
            "durable": queue.durable,
            "auto_delete": queue.auto_delete,
            "exclusive": queue.owner.is_some(),
            ID: queue.id.0,
        })
    };
    let mut items: Vec<Value> = queues.iter().map(key).collect();
    list::sort(&mut items, BY_NAME, &call.query);
    let (items, about) = list::page(items, &paging)?;
    filled(call, items, about).await
}

/// The temporary field with a queue's id, in a page that is not filled yet. No real field has a space in its name.
const ID: &str = " id";

async fn filled(call: &Call<'_>, items: Vec<Value>, mut about: Map<String, Value>) -> Result<Answer, Failure> {
    let id = |item: &Value| item.get(ID).and_then(Value::as_u64).map(QueueId);
    let queues = items.iter().filter_map(|item| call.view.metadata.queue(id(item)?).cloned());
    let queues: Vec<Arc<Queue>> = queues.collect();
    let items = heads::counted(call, &queues).await?;
    about.insert("items".to_owned(), list::columns(Value::Array(items), &call.query));
    Ok(Answer::Whole(Value::Object(about)))
}

/// Returns the name and virtual host of a queue, for lists of consumers.
pub(super) fn reference(call: &Call<'_>, queue: QueueId) -> Option<Value> {
    let queue = call.view.metadata.queue(queue)?;
    Some(serde_json::json!({"name": &*queue.name, "vhost": call.vhost_name(queue.vhost)}))
}
