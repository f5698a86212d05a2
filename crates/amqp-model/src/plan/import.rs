//! Import of definitions: additive, atomic and idempotent.
//!
//! Existing objects are left unchanged as in RabbitMQ: a queue or an exchange of the same name is not compared. Items of an export of RabbitMQ that
//! cannot be imported are skipped, as RabbitMQ does: queues and exchanges whose names begin with `amq.`, the default exchange, and bindings with a
//! missing end (an export has the bindings of exclusive queues, and not the queues). Unknown fields and sections are ignored. Any other error refuses
//! the whole import, and its text names the item.

use super::access::{put_user, put_vhost, set_permission, set_topic_permission, set_user_limit};
use super::draft::{About, Draft};
use super::exchanges::{KindError, exchange_kind, routed_bind};
use super::parameters::{set_global, set_limits, set_parameter, set_policy, spec_of};
use super::queues::new_queue;
use crate::arguments::kind_named;
use crate::command::{Bind, BindDestination, PutUser, PutVhost, Reply};
use crate::definitions::Definitions;
use crate::error::{Named, Refused, Resource};
use crate::json::Json;
use crate::queue::{Home, Queue, RESERVED_PREFIX};
use crate::queue_kind::QueueKind;
use crate::table::{arguments_of_json, text};
use crate::user::UserLimit;
use bytestring::ByteString;
use polylogue_auth::{Hashing, PasswordHash, SALT_BYTES};
use polylogue_router::{Argument, Command as Route, Declare, QueueId};
use serde_json::{Map, Value};

type Item = Map<String, Value>;

pub(super) fn import(draft: &mut Draft<'_>, definitions: &Definitions) -> Result<Reply, Refused> {
    // Later items refer to earlier ones.
    draft.metadata.to_mut();
    let old = is_before_36(&definitions.root);
    if definitions.vhost.is_none() {
        each(definitions, "users", |item, _| user(draft, item, old))?;
        each(definitions, "vhosts", |item, _| vhost(draft, item))?;
        each(definitions, "permissions", |item, _| {
            let patterns = [required(item, "configure")?, required(item, "write")?, required(item, "read")?];
            set_permission(draft, &required(item, "user")?, &required(item, "vhost")?, &patterns)
        })?;
        each(definitions, "topic_permissions", |item, _| {
            let patterns = [required(item, "write")?, required(item, "read")?];
            let (user, vhost) = (required(item, "user")?, required(item, "vhost")?);
            set_topic_permission(draft, &user, &vhost, &required(item, "exchange")?, &patterns)
        })?;
        each(definitions, "global_parameters", |item, _| {
            set_global(draft, &required(item, "name")?, item.get("value").unwrap_or(&Value::Null))
        })?;
    }
    each(definitions, "parameters", |item, vhost| {
        let value = item.get("value").unwrap_or(&Value::Null);
        set_parameter(draft, vhost, &required(item, "component")?, &required(item, "name")?, value)
    })?;
    each(definitions, "policies", |item, vhost| {
        set_policy(draft, vhost, &spec_of(false, &required(item, "name")?, item)?)
    })?;
    each(definitions, "exchanges", |item, vhost| exchange(draft, item, vhost))?;
    each(definitions, "queues", |item, vhost| queue(draft, item, vhost))?;
    each(definitions, "bindings", |item, vhost| binding(draft, item, vhost))?;
    // A file may define an item twice, and the last definition counts: it may be the existing one.
    draft.drop_changes_without_effect();
    Ok(Reply::Done)
}

/// Calls `one` with each item of a section and its virtual host. Items that are no objects are skipped.
fn each(
    definitions: &Definitions,
    section: &str,
    mut one: impl FnMut(&Item, &ByteString) -> Result<Reply, Refused>,
) -> Result<(), Refused> {
    let items = match definitions.root.get(section) {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Array(items)) => items,
        Some(_) => return Err(Refused::bad(format!("'{section}' must be an array"))),
    };
    for item in items.iter().filter_map(Value::as_object) {
        let vhost = match &definitions.vhost {
            Some(vhost) => vhost.clone(),
            None => optional(item, "vhost")?.unwrap_or_default(),
        };
        one(item, &vhost).map_err(|refused| Refused::bad(format!("{}: {}", label(section, item), refused.text)))?;
    }
    Ok(())
}

/// The name of an item in errors.
fn label(section: &str, item: &Item) -> String {
    let field = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or("?");
    let kind = section
        .strip_suffix("ies")
        .map_or_else(|| section.trim_end_matches('s').replace('_', " "), |stem| format!("{stem}y"));
    match section {
        "users" | "vhosts" | "global_parameters" => format!("{kind} '{}'", field("name")),
        "permissions" | "topic_permissions" => {
            format!("{kind} of user '{}' in vhost '{}'", field("user"), field("vhost"))
        }
        "bindings" => format!(
            "binding of {} '{}' to exchange '{}' in vhost '{}'",
            field("destination_type"),
            field("destination"),
            field("source"),
            field("vhost")
        ),
        _ => format!("{kind} '{}' in vhost '{}'", field("name"), field("vhost")),
    }
}

fn optional(item: &Item, field: &str) -> Result<Option<ByteString>, Refused> {
    match item.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str().into())),
        Some(other) => Err(Refused::bad(format!("'{field}' must be a string, not {other}"))),
    }
}

fn required(item: &Item, field: &str) -> Result<ByteString, Refused> {
    optional(item, field)?.ok_or_else(|| Refused::bad(format!("'{field}' is missing")))
}

fn flag(item: &Item, field: &str, default: bool) -> Result<bool, Refused> {
    match item.get(field) {
        None | Some(Value::Null) => Ok(default),
        Some(Value::Bool(value)) => Ok(*value),
        Some(other) => Err(Refused::bad(format!("'{field}' must be true or false, not {other}"))),
    }
}

/// Tags: an array, or a comma-separated text as before RabbitMQ 3.9.
fn tags(value: Option<&Value>) -> Result<Option<Vec<ByteString>>, Refused> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => {
            let tags = text.split(',').map(str::trim).filter(|tag| !tag.is_empty());
            Ok(Some(tags.map(ByteString::from).collect()))
        }
        Some(Value::Array(items)) => {
            let one = |item: &Value| item.as_str().map(ByteString::from);
            let tags: Option<Vec<_>> = items.iter().map(one).collect();
            tags.map(Some).ok_or_else(|| Refused::bad("'tags' must be strings"))
        }
        Some(other) => Err(Refused::bad(format!("'tags' must be an array, not {other}"))),
    }
}

/// Arguments: an object; RabbitMQ before 3.7 wrote an empty one as an array.
fn arguments(item: &Item) -> Result<Vec<Argument>, Refused> {
    match item.get("arguments") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) if items.is_empty() => Ok(Vec::new()),
        Some(Value::Object(map)) => arguments_of_json(map).map_err(|e| Refused::bad(format!("'arguments': {e}"))),
        Some(other) => Err(Refused::bad(format!("'arguments' must be an object, not {other}"))),
    }
}

/// Whether passwords without a hash algorithm are MD5: the definitions are older than RabbitMQ 3.6.
fn is_before_36(root: &Map<String, Value>) -> bool {
    let version = root.get("rabbit_version").or_else(|| root.get("rabbitmq_version")).and_then(Value::as_str);
    let mut parts = version.unwrap_or_default().split('.').map_while(|part| part.parse::<u32>().ok());
    match (parts.next(), parts.next()) {
        (Some(major), Some(minor)) => (major, minor) < (3, 6),
        _ => false,
    }
}

fn user(draft: &mut Draft<'_>, item: &Item, old: bool) -> Result<Reply, Refused> {
    let name = required(item, "name")?;
    let hashing = match optional(item, "hashing_algorithm")? {
        None if old => Hashing::Md5,
        None => Hashing::Sha256,
        Some(name) => {
            Hashing::named(&name).ok_or_else(|| Refused::bad(format!("unknown hashing algorithm '{name}'")))?
        }
    };
    let password = match (optional(item, "password_hash")?, optional(item, "password")?) {
        (Some(hash), _) => Some(PasswordHash::from_base64(hashing, &hash).map_err(|error| Refused::bad(error.text))?),
        (None, Some(password)) => {
            // A user who already has the password keeps its hash, so that a second import changes nothing.
            let known = draft.metadata.user(&name).map(|user| user.password.clone());
            let known = known.filter(|hash| hash.verify(password.as_bytes()));
            Some(known.unwrap_or_else(|| PasswordHash::of(Hashing::Sha256, salt(draft, &name), password.as_bytes())))
        }
        (None, None) => None,
    };
    let tags = tags(item.get("tags"))?.unwrap_or_default();
    let reply = put_user(draft, &PutUser { name: name.clone(), password, scram: Vec::new(), tags: Some(tags) })?;
    match item.get("limits") {
        Some(Value::Object(limits)) => {
            for (limit, value) in limits {
                let which = UserLimit::named(limit)
                    .ok_or_else(|| Refused::bad(format!("limit '{limit}' of a user is not known")))?;
                let value = value.as_i64().ok_or_else(|| Refused::bad(format!("{limit} should be a number")))?;
                set_user_limit(draft, &name, which, Some(value))?;
            }
        }
        None | Some(Value::Null | Value::Array(_)) => {}
        Some(other) => return Err(Refused::bad(format!("'limits' must be an object, not {other}"))),
    }
    Ok(reply)
}

/// A salt for each name, derived from the call's random number.
fn salt(draft: &Draft<'_>, name: &str) -> [u8; SALT_BYTES] {
    let hash = PasswordHash::of(Hashing::Sha256, [0; SALT_BYTES], &[&draft.random[..], name.as_bytes()].concat());
    let mut salt = [0; SALT_BYTES];
    salt.copy_from_slice(hash.bytes.get(SALT_BYTES..2 * SALT_BYTES).unwrap_or(&[0; SALT_BYTES]));
    salt
}

fn vhost(draft: &mut Draft<'_>, item: &Item) -> Result<Reply, Refused> {
    let name = required(item, "name")?;
    let mut metadata = match item.get("metadata") {
        None | Some(Value::Null) => None,
        Some(Value::Object(map)) => Some(map.clone()),
        Some(Value::Array(items)) if items.is_empty() => Some(Map::new()),
        Some(other) => return Err(Refused::bad(format!("'metadata' must be an object, not {other}"))),
    };
    let mut either = |field: &str| {
        let inner = metadata.as_mut().and_then(|map| map.remove(field));
        item.get(field).cloned().or(inner).filter(|value| !value.is_null())
    };
    let (description, tag_list, kind) = (either("description"), either("tags"), either("default_queue_type"));
    let default_queue_type = match kind.as_ref().map(|kind| kind.as_str().unwrap_or_default()) {
        None | Some("undefined" | "") => None,
        Some(kind) => match QueueKind::named(kind) {
            Some(kind) => Some(Some(kind)),
            None => return Err(Refused::bad(format!("unsupported queue type '{kind}'"))),
        },
    };
    let put = PutVhost {
        name: name.clone(),
        description: description.as_ref().and_then(Value::as_str).map(ByteString::from),
        tags: tags(tag_list.as_ref())?,
        default_queue_type,
        tracing: item.get("tracing").and_then(Value::as_bool),
        metadata: metadata.map(|map| Json::new(&Value::Object(map))),
    };
    let reply = put_vhost(draft, &put)?;
    match item.get("limits") {
        None | Some(Value::Null) => {}
        Some(limits) => _ = set_limits(draft, &name, limits)?,
    }
    Ok(reply)
}

fn about(vhost: &ByteString, section: &str, item: &Item) -> About {
    About { vhost: vhost.clone(), item: Some(label(section, item)) }
}

fn exchange(draft: &mut Draft<'_>, item: &Item, vhost: &ByteString) -> Result<Reply, Refused> {
    let host = draft.host(vhost)?.id;
    let name = required(item, "name")?;
    let key = (host, name.clone());
    let skip = name.is_empty() || name.starts_with(RESERVED_PREFIX);
    if skip || draft.exchange(host, &name).is_some() || draft.new_exchanges.contains(&key) {
        return Ok(Reply::Done);
    }
    let arguments = arguments(item)?;
    let kind = exchange_kind(&required(item, "type")?, &arguments).map_err(KindError::refused)?;
    let alternate = polylogue_router::lookup(&arguments, b"alternate-exchange").and_then(|a| a.value.bytes()).cloned();
    let declare = Declare {
        vhost: host,
        name: name.into_bytes(),
        kind,
        durable: flag(item, "durable", true)?,
        auto_delete: flag(item, "auto_delete", false)?,
        internal: flag(item, "internal", false)?,
        alternate,
        arguments,
    };
    draft.routes.push((Route::Declare(declare), about(vhost, "exchanges", item)));
    draft.new_exchanges.insert(key);
    Ok(Reply::Done)
}

fn queue(draft: &mut Draft<'_>, item: &Item, vhost: &ByteString) -> Result<Reply, Refused> {
    let host = draft.host(vhost)?.id;
    let name = required(item, "name")?;
    if name.starts_with(RESERVED_PREFIX) || draft.queue(host, &name).is_some() {
        return Ok(Reply::Done);
    }
    let mut arguments = arguments(item)?;
    let durable = flag(item, "durable", true)?;
    let named = Named { kind: Resource::Queue, name: &name, vhost };
    if kind_named(&arguments, &named)?.is_none() {
        // Newer exports also have the type beside the arguments.
        let kind = optional(item, "type")?.and_then(|kind| QueueKind::named(&kind));
        let default = || draft.metadata.vhost(host).and_then(|vhost| vhost.default_queue_type);
        let kind = kind.or_else(|| default().filter(|kind| kind.is_compatible(durable, false, false)));
        let kind = kind.filter(|kind| *kind != QueueKind::Classic);
        arguments.extend(kind.map(|kind| text("x-queue-type", kind.name())));
    }
    let queue = Queue {
        id: QueueId(draft.metadata.next_queue),
        vhost: host,
        name,
        kind: QueueKind::Classic,
        durable,
        home: if durable { Home::default() } else { draft.home },
        auto_delete: flag(item, "auto_delete", false)?,
        owner: None,
        arguments,
        declared_by: ByteString::new(),
    };
    let from = draft.routes.len();
    new_queue(draft, queue, vhost)?;
    draft.routes.iter_mut().skip(from).for_each(|(_, found)| *found = about(vhost, "queues", item));
    Ok(Reply::Done)
}

fn binding(draft: &mut Draft<'_>, item: &Item, vhost: &ByteString) -> Result<Reply, Refused> {
    let host = draft.host(vhost)?.id;
    let (source, destination) = (required(item, "source")?, required(item, "destination")?);
    let to = match &*optional(item, "destination_type")?.unwrap_or_else(|| "queue".into()) {
        "queue" => BindDestination::Queue(destination.clone()),
        "exchange" => BindDestination::Exchange(destination.clone()),
        other => return Err(Refused::bad(format!("destination type '{other}' is neither queue nor exchange"))),
    };
    let is_exchange = |draft: &Draft<'_>, name: &ByteString| {
        draft.exchange(host, name).is_some() || draft.new_exchanges.contains(&(host, name.clone()))
    };
    let there = match &to {
        BindDestination::Queue(name) => draft.queue(host, name).is_some(),
        BindDestination::Exchange(name) => is_exchange(draft, name),
    };
    if !there || !is_exchange(draft, &source) {
        return Ok(Reply::Done);
    }
    let key = optional(item, "routing_key")?.unwrap_or_default();
    let bind = Bind { vhost: host, source, to, key, arguments: arguments(item)? };
    draft.routes.push((Route::Bind(routed_bind(&bind)), about(vhost, "bindings", item)));
    Ok(Reply::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn items_are_named_by_their_identifying_fields() {
        let item = json!({"name": "n", "vhost": "/", "user": "u", "source": "x", "destination": "q", "destination_type": "queue"});
        let item = item.as_object().unwrap();
        for (section, text) in [
            ("users", "user 'n'"),
            ("global_parameters", "global parameter 'n'"),
            ("topic_permissions", "topic permission of user 'u' in vhost '/'"),
            ("policies", "policy 'n' in vhost '/'"),
            ("queues", "queue 'n' in vhost '/'"),
            ("bindings", "binding of queue 'q' to exchange 'x' in vhost '/'"),
        ] {
            assert_eq!(label(section, item), text);
        }
    }

    #[test]
    fn passwords_of_old_definitions_are_md5() {
        let before = |version: &str| is_before_36(json!({"rabbit_version": version}).as_object().unwrap());
        assert!(before("3.5.7") && before("2.8.1"));
        assert!(!before("3.6.0") && !before("3.13.7") && !before("4.1.0") && !before("rubbish"));
    }
}
