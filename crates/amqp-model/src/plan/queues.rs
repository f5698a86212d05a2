//! Declaring and deleting queues.

use super::checks::stripped;
use super::draft::Draft;
use crate::arguments::{check, kind_named};
use crate::change::Change;
use crate::command::{Caller, DeclareQueue, DeleteQueue, Reply};
use crate::error::{Code, Named, Refused, Resource};
use crate::queue::{DeletionCause, Home, OwnerId, Queue, REPLY_TO, RESERVED_PREFIX, check_exclusive, equivalent};
use crate::queue_kind::QueueKind;
use crate::table::{text, type_name};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytestring::ByteString;
use polylogue_auth::Access;
use polylogue_router::{Argument, Command as Route, NAME_BYTES_MAX, Queue as RoutedQueue, QueueId, VhostId, lookup};
use std::sync::Arc;

/// The longest `x-name-prefix`. Bytes.
const NAME_PREFIX_BYTES_MAX: usize = 64;
const DEAD_LETTER_EXCHANGE: &str = "x-dead-letter-exchange";

pub(super) fn declare(draft: &mut Draft<'_>, caller: &Caller, declare: &DeclareQueue) -> Result<Reply, Refused> {
    let host = draft.host_of(declare.vhost)?;
    let name = stripped(&declare.name);
    if declare.passive {
        return passive(draft, caller, declare.vhost, &name, &host);
    }
    let mut arguments = declare.arguments.clone();
    augment(draft, declare, &mut arguments);
    if name.is_empty() || declare.server_named {
        may_be_server_named(&arguments, &host)?;
    }
    let name = match (name.is_empty(), declare.server_named) {
        (true, _) => server_name(draft, &arguments),
        (false, true) => name,
        (false, false) => client_name(name)?,
    };
    check_user(draft, caller, declare.vhost, Access::Configure, Resource::Queue, &name)?;
    let owner = declare.exclusive.then_some(caller.owner);
    let durable = declare.durable && !declare.exclusive;
    if let Some(queue) = draft.queue(declare.vhost, &name) {
        equivalent(queue, owner, durable, declare.auto_delete, &arguments, &host)?;
        return Ok(Reply::Queue { queue: queue.clone(), created: false });
    }
    dead_letter_permitted(draft, caller, declare.vhost, &name, &arguments)?;
    let queue = Queue {
        id: QueueId(draft.metadata.next_queue),
        vhost: declare.vhost,
        name,
        kind: QueueKind::Classic,
        durable,
        home: if durable { Home::default() } else { caller.owner.home },
        auto_delete: declare.auto_delete,
        owner,
        arguments,
        declared_by: caller.user.clone().unwrap_or_default(),
    };
    let queue = new_queue(draft, queue, &host)?;
    Ok(Reply::Queue { queue, created: true })
}

/// Adds a queue that does not exist yet. Its type is set by its arguments.
pub(crate) fn new_queue(draft: &mut Draft<'_>, mut queue: Queue, host: &str) -> Result<Arc<Queue>, Refused> {
    let named = Named { kind: Resource::Queue, name: &queue.name, vhost: host };
    let kind = kind_named(&queue.arguments, &named)?.unwrap_or(QueueKind::Classic);
    check(kind, &queue.arguments, &named)?;
    if kind != QueueKind::Classic {
        let property = match (queue.auto_delete, queue.owner.is_some(), queue.durable) {
            (true, _, _) => Some("auto-delete"),
            (_, true, _) => Some("exclusive-owner"),
            (_, _, false) => Some("non-durable"),
            _ => None,
        };
        if let Some(property) = property {
            return Err(Refused::precondition(format!("invalid property '{property}' for {named}")));
        }
    }
    let max = draft.metadata.vhost(queue.vhost).and_then(|vhost| vhost.queues_max);
    if let Some(max) = max.filter(|max| draft.metadata.queue_count(queue.vhost) >= *max) {
        let name = &queue.name;
        let text = format!("cannot declare queue '{name}': queue limit in vhost '{host}' ({max}) is reached");
        return Err(Refused::precondition(text));
    }
    queue.kind = kind;
    let queue = Arc::new(queue);
    let routed =
        RoutedQueue { id: queue.id, vhost: queue.vhost, name: queue.name.clone().into_bytes(), durable: queue.durable };
    draft.route(host, Route::AddQueue(routed));
    draft.new_queues.insert((queue.vhost, queue.name.clone()), queue.id);
    draft.push(Change::Queue(queue.clone()));
    Ok(queue)
}

fn passive(
    draft: &Draft<'_>,
    caller: &Caller,
    vhost: VhostId,
    name: &ByteString,
    host: &str,
) -> Result<Reply, Refused> {
    if let Some(user) = caller.subject() {
        draft.metadata.check_any(user, vhost, Resource::Queue, name)?;
    }
    let named = Named { kind: Resource::Queue, name, vhost: host };
    let queue = draft.queue(vhost, name).ok_or_else(|| Refused::not_found(&named))?;
    check_exclusive(queue, caller.owner, host)?;
    Ok(Reply::Queue { queue: queue.clone(), created: false })
}

/// Adds the virtual host's default type, if none is given and the declaration is compatible with it.
fn augment(draft: &Draft<'_>, declare: &DeclareQueue, arguments: &mut Vec<Argument>) {
    let kind = draft.metadata.vhost(declare.vhost).and_then(|vhost| vhost.default_queue_type);
    let fits = |kind: &QueueKind| kind.is_compatible(declare.durable, declare.exclusive, declare.auto_delete);
    if let Some(kind) = kind.filter(fits)
        && lookup(arguments, b"x-queue-type").is_none()
    {
        arguments.push(text("x-queue-type", kind.name()));
    }
}

fn client_name(name: ByteString) -> Result<ByteString, Refused> {
    if name.starts_with(RESERVED_PREFIX) {
        return Err(Refused::access(format!("queue name '{name}' contains reserved prefix 'amq.*'")));
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(Refused::precondition(format!("a queue's name has at most {NAME_BYTES_MAX} bytes")));
    }
    Ok(name)
}

/// Checks that a queue of the type in the arguments may have a server-generated name.
fn may_be_server_named(arguments: &[Argument], host: &str) -> Result<(), Refused> {
    let named = Named { kind: Resource::Queue, name: "", vhost: host };
    match kind_named(arguments, &named)?.unwrap_or(QueueKind::Classic) {
        QueueKind::Classic => Ok(()),
        kind => {
            let text = format!("Cannot declare a server-named queue for type {}", kind.module());
            Err(Refused::precondition(text))
        }
    }
}

/// Generates an unguessable name: 128 random bits after `amq.gen-`, or after the requested prefix.
fn server_name(draft: &Draft<'_>, arguments: &[Argument]) -> ByteString {
    let prefix = lookup(arguments, b"x-name-prefix").and_then(|a| a.value.bytes());
    let prefix = prefix.and_then(|bytes| ByteString::try_from(bytes.clone()).ok());
    let usable = |prefix: &ByteString| {
        (1..=NAME_PREFIX_BYTES_MAX).contains(&prefix.len()) && !prefix.starts_with(RESERVED_PREFIX)
    };
    let prefix = prefix.filter(usable).map_or_else(|| "amq.gen".into(), |prefix| stripped(&prefix));
    format!("{prefix}-{}", URL_SAFE_NO_PAD.encode(draft.random)).into()
}

pub(super) fn check_user(
    draft: &Draft<'_>,
    caller: &Caller,
    vhost: VhostId,
    access: Access,
    resource: Resource,
    name: &str,
) -> Result<(), Refused> {
    caller.subject().map_or(Ok(()), |user| draft.metadata.check(user, vhost, access, resource, name))
}

/// Checks that the caller may dead-letter from the queue to the exchange.
fn dead_letter_permitted(
    draft: &Draft<'_>,
    caller: &Caller,
    vhost: VhostId,
    name: &str,
    arguments: &[Argument],
) -> Result<(), Refused> {
    let named = Named { kind: Resource::Queue, name, vhost: draft.metadata.vhost_name(vhost) };
    let Some(exchange) = text_argument(DEAD_LETTER_EXCHANGE, arguments, &named)? else { return Ok(()) };
    check_user(draft, caller, vhost, Access::Read, Resource::Queue, name)?;
    check_user(draft, caller, vhost, Access::Write, Resource::Exchange, &exchange)
}

/// Returns a text argument.
pub(super) fn text_argument(
    key: &str,
    arguments: &[Argument],
    named: &Named<'_>,
) -> Result<Option<ByteString>, Refused> {
    let Some(argument) = lookup(arguments, key.as_bytes()) else { return Ok(None) };
    let name = argument.value.bytes().filter(|_| argument.tag == b'S');
    match name.and_then(|name| ByteString::try_from(name.clone()).ok()) {
        Some(name) => Ok(Some(name)),
        None => {
            let kind = type_name(argument.tag);
            Err(Refused::precondition(format!("invalid type '{kind}' for arg '{key}' in {named}")))
        }
    }
}

/// Returns the queue that a client may delete, regardless of messages and consumers; `None` when it does not exist, which is no error.
pub(crate) fn deletable(
    draft: &Draft<'_>,
    caller: &Caller,
    delete: &DeleteQueue,
) -> Result<Option<Arc<Queue>>, Refused> {
    let host = draft.host_of(delete.vhost)?;
    let name = stripped(&delete.name);
    check_user(draft, caller, delete.vhost, Access::Configure, Resource::Queue, &name)?;
    if name.starts_with(REPLY_TO) {
        return Ok(None);
    }
    let Some(queue) = draft.queue(delete.vhost, &name).cloned() else { return Ok(None) };
    check_exclusive(&queue, caller.owner, &host)?;
    let named = Named { kind: Resource::Queue, name: &name, vhost: &host };
    let flag = if delete.if_unused { Some("if-unused") } else { delete.if_empty.then_some("if-empty") };
    if let Some(flag) = flag.filter(|_| queue.kind == QueueKind::Quorum) {
        return Err(Refused::new(
            Code::NotImplemented,
            format!(
                "cannot delete {named}. queue.delete operations with {flag} flag set are not supported by quorum queues"
            ),
        ));
    }
    Ok(Some(queue))
}

pub(super) fn delete(draft: &mut Draft<'_>, caller: &Caller, delete: &DeleteQueue) -> Result<Reply, Refused> {
    let Some(queue) = deletable(draft, caller, delete)? else {
        return Ok(Reply::Deleted { queue: None, messages: 0 });
    };
    let named = Named { kind: Resource::Queue, name: &queue.name, vhost: draft.metadata.vhost_name(queue.vhost) };
    // In this order (`rabbit_amqqueue_process`).
    if delete.checks_if_empty(&queue) && delete.messages > 0 {
        return Err(Refused::precondition(format!("{named} not empty")));
    }
    if delete.checks_if_unused(&queue) && delete.consumers > 0 {
        return Err(Refused::precondition(format!("{named} in use")));
    }
    remove(draft, queue.id, DeletionCause::Asked);
    Ok(Reply::Deleted { queue: Some(queue), messages: delete.messages })
}

pub(super) fn remove(draft: &mut Draft<'_>, id: QueueId, gone: DeletionCause) -> Reply {
    let queue = draft.metadata.queue(id).cloned();
    if let Some(queue) = &queue {
        let host = draft.metadata.vhost_name(queue.vhost).to_owned();
        draft.route(&host, Route::RemoveQueue(id));
        draft.push(Change::QueueRemoved(id, gone));
    }
    Reply::Deleted { queue, messages: 0 }
}

pub(super) fn owner_gone(draft: &mut Draft<'_>, owner: OwnerId) -> Reply {
    let owned: Vec<_> = draft.metadata.owned_by(owner).collect();
    for id in owned {
        remove(draft, id, DeletionCause::Owner);
    }
    Reply::Done
}

/// The caller's process has started. Removes everything that is not durable, except queues of other nodes; transient exchanges belong to all nodes
/// and are removed when there is no such queue.
pub(super) fn restarted(draft: &mut Draft<'_>, started: Home) -> Reply {
    let transient = || draft.metadata.queues().filter(|queue| !queue.durable);
    if started != Home::default() && transient().any(|queue| !queue.home.is_over(started)) {
        let over: Vec<_> = transient().filter(|queue| queue.home.is_over(started)).map(|queue| queue.id).collect();
        over.into_iter().for_each(|id| _ = remove(draft, id, DeletionCause::Restart));
        return Reply::Done;
    }
    if draft.metadata.queues().any(|queue| !queue.durable) {
        draft.push(Change::Restarted);
    }
    // Transient exchanges are removed too, if there are any.
    draft.route("", Route::Restarted);
    Reply::Done
}
