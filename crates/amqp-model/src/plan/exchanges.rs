//! Declaring and deleting exchanges, binding and unbinding. The router checks and stores them; this module has RabbitMQ's checks and texts.

use super::checks::{default_exchange, stripped};
use super::draft::Draft;
use super::queues::{check_user, text_argument};
use crate::arguments::TOPIC_ARGUMENT;
use crate::change::{Change, READS_BEGUN};
use crate::command::{Bind, BindDestination, Caller, DeclareExchange, Reply, TopicReads};
use crate::error::{Named, Refused, Resource};
use crate::queue::{RESERVED_PREFIX, check_exclusive, equivalent_argument, inequivalent};
use crate::table::type_name;
use bytestring::ByteString;
use polylogue_auth::Access;
use polylogue_router::{
    Argument, Bind as RoutedBind, Command as Route, Declare, End, Exchange, FEDERATION_UPSTREAM, HASH_HEADER,
    HASH_PROPERTY, Kind, NAME_BYTES_MAX, RouterError, VhostId, lookup,
};

const ALTERNATE_EXCHANGE: &str = "alternate-exchange";
/// See [`polylogue_router::MAX_HOPS`].
const HOPS: &str = "x-max-hops";

pub(super) fn declare(draft: &mut Draft<'_>, caller: &Caller, declare: &DeclareExchange) -> Result<Reply, Refused> {
    let host = draft.host_of(declare.vhost)?;
    let name = stripped(&declare.name);
    if declare.passive {
        return passive(draft, caller, declare.vhost, &name, &host);
    }
    // An unknown type is refused before anything else, regardless of the arguments.
    let kind = exchange_kind(&declare.kind, &declare.arguments);
    if let Err(KindError::Unknown(refused)) = kind {
        return Err(refused);
    }
    not_default(&name)?;
    check_user(draft, caller, declare.vhost, Access::Configure, Resource::Exchange, &name)?;
    let named = Named { kind: Resource::Exchange, name: &name, vhost: &host };
    if let Some(exchange) = draft.exchange(declare.vhost, &name) {
        equivalent(exchange, declare, &named)?;
        return Ok(Reply::Exchange(Some(exchange.clone())));
    }
    if name.starts_with(RESERVED_PREFIX) {
        return Err(Refused::access(format!("exchange name '{name}' contains reserved prefix 'amq.*'")));
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(Refused::precondition(format!("an exchange's name has at most {NAME_BYTES_MAX} bytes")));
    }
    let alternate = text_argument(ALTERNATE_EXCHANGE, &declare.arguments, &named)?;
    if let Some(alternate) = &alternate {
        check_user(draft, caller, declare.vhost, Access::Read, Resource::Exchange, &name)?;
        check_user(draft, caller, declare.vhost, Access::Write, Resource::Exchange, alternate)?;
    }
    if text_argument(TOPIC_ARGUMENT, &declare.arguments, &named)?.is_some_and(|topic| topic.is_empty()) {
        return Err(Refused::precondition(format!("invalid value '' for arg '{TOPIC_ARGUMENT}' in {named}")));
    }
    let kind = kind.map_err(KindError::refused)?;
    let routed = Declare {
        vhost: declare.vhost,
        name: name.clone().into_bytes(),
        kind,
        durable: declare.durable,
        auto_delete: declare.auto_delete,
        internal: declare.internal,
        alternate: alternate.map(ByteString::into_bytes),
        arguments: declare.arguments.clone(),
    };
    draft.route(&host, Route::Declare(routed));
    draft.new_exchanges.insert((declare.vhost, name));
    Ok(Reply::Exchange(None))
}

/// Why an exchange type is refused.
pub(crate) enum KindError {
    /// The type is unknown.
    Unknown(Refused),
    /// The arguments do not fit the type.
    Arguments(Refused),
}

impl KindError {
    pub(crate) fn refused(self) -> Refused {
        match self {
            KindError::Unknown(refused) | KindError::Arguments(refused) => refused,
        }
    }
}

pub(crate) fn exchange_kind(name: &ByteString, arguments: &[Argument]) -> Result<Kind, KindError> {
    match Kind::declared(name.as_bytes(), arguments) {
        Ok(kind) => Ok(kind),
        Err(RouterError::UnknownKind(unknown)) if unknown == name.as_bytes() => {
            Err(KindError::Unknown(Refused::precondition(format!("unknown exchange type '{name}'"))))
        }
        Err(RouterError::UnknownKind(_) | RouterError::BadArgument { name: "x-delayed-type", .. }) => {
            let text = "Invalid argument, 'x-delayed-type' must be an existing exchange type";
            Err(KindError::Arguments(Refused::precondition(text)))
        }
        Err(RouterError::BadArgument { name: argument @ "x-max-hops", problem }) => {
            Err(KindError::Arguments(Refused::precondition(format!("Argument {argument} {problem}"))))
        }
        Err(other) => Err(KindError::Arguments(Refused::precondition(hash_problem(arguments, &other)))),
    }
}

/// The refusal text for the arguments of a consistent-hash exchange.
fn hash_problem(arguments: &[Argument], error: &RouterError) -> String {
    let property = lookup(arguments, HASH_PROPERTY).and_then(|a| a.value.bytes());
    match (lookup(arguments, HASH_HEADER), property) {
        (Some(_), Some(_)) => "hash-header and hash-property are mutually exclusive".to_owned(),
        (None, Some(property)) => format!("Unsupported property: {}", String::from_utf8_lossy(property)),
        _ => error.to_string(),
    }
}

/// A type in refusal texts: an Erlang atom, which is quoted once more if it has a dash.
fn atom(name: &str) -> String {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if plain { format!("'{name}'") } else { format!("''{name}''") }
}

fn equivalent(exchange: &Exchange, declare: &DeclareExchange, named: &Named<'_>) -> Result<(), Refused> {
    if exchange.kind.name() != &*declare.kind {
        return Err(inequivalent("type", named, &atom(&declare.kind), &atom(exchange.kind.name())));
    }
    for (field, received, current) in [
        ("durable", declare.durable, exchange.durable),
        ("auto_delete", declare.auto_delete, exchange.auto_delete),
        ("internal", declare.internal, exchange.internal),
    ] {
        if received != current {
            return Err(inequivalent(field, named, &format!("'{received}'"), &format!("'{current}'")));
        }
    }
    let hops = (exchange.kind.name() == FEDERATION_UPSTREAM).then_some(HOPS);
    for name in [ALTERNATE_EXCHANGE, TOPIC_ARGUMENT].into_iter().chain(hops) {
        equivalent_argument(name, &exchange.arguments, &declare.arguments, named)?;
    }
    Ok(())
}

fn passive(
    draft: &Draft<'_>,
    caller: &Caller,
    vhost: VhostId,
    name: &ByteString,
    host: &str,
) -> Result<Reply, Refused> {
    not_default(name)?;
    if let Some(user) = caller.subject() {
        draft.metadata.check_any(user, vhost, Resource::Exchange, name)?;
    }
    let named = Named { kind: Resource::Exchange, name, vhost: host };
    let exchange = draft.exchange(vhost, name).ok_or_else(|| Refused::not_found(&named))?;
    Ok(Reply::Exchange(Some(exchange.clone())))
}

fn not_default(name: &str) -> Result<(), Refused> {
    if name.is_empty() { Err(default_exchange()) } else { Ok(()) }
}

pub(super) fn delete(
    draft: &mut Draft<'_>,
    caller: &Caller,
    vhost: VhostId,
    name: &ByteString,
    if_unused: bool,
) -> Result<Reply, Refused> {
    let host = draft.host_of(vhost)?;
    let name = stripped(name);
    not_default(&name)?;
    if name.starts_with(RESERVED_PREFIX) {
        let named = Named { kind: Resource::Exchange, name: &name, vhost: &host };
        return Err(Refused::access(format!("deletion of system {named} not allowed")));
    }
    check_user(draft, caller, vhost, Access::Configure, Resource::Exchange, &name)?;
    if draft.exchange(vhost, &name).is_some() {
        draft.route(&host, Route::Delete { vhost, name: name.into_bytes(), if_unused });
    }
    Ok(Reply::Done)
}

/// Records how far the broker has read the topic of an exchange.
pub(super) fn set_topic_reads(draft: &mut Draft<'_>, caller: &Caller, reads: &TopicReads) -> Result<Reply, Refused> {
    if caller.user.is_some() {
        return Err(Refused::access("only the broker may record how far a topic was read"));
    }
    let TopicReads { exchange, at, gone } = reads;
    let begins = at.iter().any(|(partition, _)| *partition == READS_BEGUN);
    let has_begun = draft.metadata.topic_read(*exchange, READS_BEGUN).is_some();
    if draft.router.exchange_by_id(*exchange).is_none() || (begins && has_begun) {
        return Ok(Reply::Done);
    }
    for (partition, offset) in at {
        if draft.metadata.topic_read(*exchange, *partition) != Some(*offset) {
            draft.push(Change::TopicRead(*exchange, *partition, *offset));
        }
    }
    for partition in gone {
        if draft.metadata.topic_read(*exchange, *partition).is_some() {
            draft.push(Change::TopicReadRemoved(*exchange, *partition));
        }
    }
    Ok(Reply::Done)
}

/// Adds or removes a binding.
pub(super) fn bind(draft: &mut Draft<'_>, caller: &Caller, bind: &Bind, make: bool) -> Result<Reply, Refused> {
    let host = draft.host_of(bind.vhost)?;
    let bind = Bind { source: stripped(&bind.source), to: strip_end(&bind.to), ..bind.clone() };
    let (resource, destination) = match &bind.to {
        BindDestination::Queue(name) => (Resource::Queue, name),
        BindDestination::Exchange(name) => (Resource::Exchange, name),
    };
    check_user(draft, caller, bind.vhost, Access::Write, resource, destination)?;
    if resource == Resource::Exchange {
        not_default(destination)?;
    }
    not_default(&bind.source)?;
    check_user(draft, caller, bind.vhost, Access::Read, Resource::Exchange, &bind.source)?;
    let source = draft.exchange(bind.vhost, &bind.source);
    if let (Some(Kind::Topic), Some(user)) = (source.map(|source| &source.kind), caller.subject()) {
        draft.metadata.check_topic(user, bind.vhost, Access::Read, &bind.source, &bind.key, None)?;
    }
    let queue = if resource == Resource::Queue { draft.queue(bind.vhost, destination) } else { None };
    let there = match resource {
        Resource::Queue => queue.is_some(),
        Resource::Exchange => draft.exchange(bind.vhost, destination).is_some(),
    };
    // A missing end has no bindings to remove.
    if !make && (source.is_none() || !there) {
        return Ok(Reply::Done);
    }
    for (kind, name, there) in [(Resource::Exchange, &bind.source, source.is_some()), (resource, destination, there)] {
        if !there {
            return Err(Refused::not_found(&Named { kind, name, vhost: &host }));
        }
    }
    if let Some(queue) = queue {
        check_exclusive(queue, caller.owner, &host)?;
    }
    if let Some(source) = source {
        check_binding(&source.kind, &bind.key, &bind.arguments)?;
    }
    let routed = routed_bind(&bind);
    draft.route(&host, if make { Route::Bind(routed) } else { Route::Unbind(routed) });
    Ok(Reply::Done)
}

fn strip_end(to: &BindDestination) -> BindDestination {
    match to {
        BindDestination::Queue(name) => BindDestination::Queue(stripped(name)),
        BindDestination::Exchange(name) => BindDestination::Exchange(stripped(name)),
    }
}

pub(crate) fn routed_bind(bind: &Bind) -> RoutedBind {
    let destination = match &bind.to {
        BindDestination::Queue(name) => End::Queue(name.clone().into_bytes()),
        BindDestination::Exchange(name) => End::Exchange(name.clone().into_bytes()),
    };
    RoutedBind {
        vhost: bind.vhost,
        source: bind.source.clone().into_bytes(),
        destination,
        key: bind.key.clone().into_bytes(),
        arguments: bind.arguments.clone(),
    }
}

/// Checks a binding's key and arguments for its exchange type, with RabbitMQ's texts.
fn check_binding(kind: &Kind, key: &str, arguments: &[Argument]) -> Result<(), Refused> {
    match kind.routes_as() {
        Kind::Headers => check_match(arguments),
        Kind::ConsistentHash(_) => match key.parse::<i64>() {
            Ok(weight) if weight < 1 => Err(Refused::precondition("The binding key must be greater than 0")),
            // The router refuses a weight that is too high.
            Ok(_) => Ok(()),
            Err(_) => Err(Refused::precondition(format!("The binding key must be an integer: <<\"{key}\">>"))),
        },
        _ => Ok(()),
    }
}

fn check_match(arguments: &[Argument]) -> Result<(), Refused> {
    let Some(mode) = lookup(arguments, b"x-match") else { return Ok(()) };
    match mode.value.bytes().map(|mode| &**mode) {
        Some(b"all" | b"any" | b"all-with-x" | b"any-with-x") => Ok(()),
        Some(other) => Err(Refused::precondition(format!(
            "Invalid x-match field value <<\"{}\">>; expected all, any, all-with-x, or any-with-x",
            String::from_utf8_lossy(other)
        ))),
        None => {
            Err(Refused::precondition(format!("Invalid x-match field type {}; expected longstr", type_name(mode.tag))))
        }
    }
}
