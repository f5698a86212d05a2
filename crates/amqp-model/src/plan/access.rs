//! Virtual hosts, users, permissions.

use super::checks::{check_count, check_length};
use super::draft::Draft;
use crate::change::Change;
use crate::command::{PutUser, PutVhost, Reply};
use crate::error::{Code, Refused};
use crate::json::Json;
use crate::pattern::Pattern;
use crate::user::{Permission, TopicPermission, User, UserLimit};
use crate::vhost::{DEFAULT_VHOST, PREDECLARED, Vhost, VhostLimit};
use bytes::Bytes;
use bytestring::ByteString;
use polylogue_auth::{AlterScram, PasswordHash, ScramChange, ScramCredential, UsersRefusal};
use polylogue_router::{Command as Route, Declare, Kind, VhostId};
use serde_json::{Map, Value};
use std::sync::Arc;

/// The most tags of one user or virtual host.
const TAGS_MAX: usize = 64;

pub(super) fn bootstrap(draft: &mut Draft<'_>, user: &PutUser) -> Result<Reply, Refused> {
    if draft.metadata.vhosts().len() > 0 || draft.metadata.users().len() > 0 {
        return Ok(Reply::Done);
    }
    // The permission refers to the user and the virtual host created before it.
    draft.metadata.to_mut();
    let description = Some("Default virtual host".into());
    put_vhost(draft, &PutVhost { name: DEFAULT_VHOST.into(), description, ..PutVhost::default() })?;
    put_user(draft, user)?;
    let all = [".*", ".*", ".*"].map(ByteString::from_static);
    set_permission(draft, &user.name, &DEFAULT_VHOST.into(), &all)
}

fn check_tags(tags: &[ByteString]) -> Result<(), Refused> {
    check_count("tags", tags.len().saturating_sub(1), TAGS_MAX)?;
    tags.iter().try_for_each(|tag| check_length("tag", tag))
}

pub(crate) fn put_vhost(draft: &mut Draft<'_>, put: &PutVhost) -> Result<Reply, Refused> {
    check_length("virtual host", &put.name)?;
    check_tags(put.tags.as_deref().unwrap_or_default())?;
    let before = draft.metadata.vhost_named(&put.name).cloned();
    let mut vhost = match &before {
        Some(vhost) => (**vhost).clone(),
        None => Vhost {
            id: VhostId(draft.metadata.next_vhost),
            name: put.name.clone(),
            description: ByteString::new(),
            tags: Vec::new(),
            default_queue_type: None,
            tracing: false,
            metadata: Json::new(&Value::Object(Map::new())),
            connections_max: None,
            queues_max: None,
        },
    };
    vhost.description = put.description.clone().unwrap_or(vhost.description);
    vhost.tags = put.tags.clone().unwrap_or(vhost.tags);
    vhost.default_queue_type = put.default_queue_type.unwrap_or(vhost.default_queue_type);
    vhost.tracing = put.tracing.unwrap_or(vhost.tracing);
    if let Some(metadata) = &put.metadata {
        vhost.metadata = vhost.with_metadata(metadata);
    }
    let created = before.is_none();
    if created {
        make_vhost(draft, &vhost);
    }
    if before.as_deref() != Some(&vhost) {
        draft.push(Change::Vhost(Arc::new(vhost)));
    }
    Ok(Reply::Put { created })
}

/// Declares the predeclared exchanges of a new virtual host in the router.
fn make_vhost(draft: &mut Draft<'_>, vhost: &Vhost) {
    draft.route(&vhost.name, Route::AddVhost(vhost.id));
    for (name, kind, internal) in PREDECLARED {
        let kind = match kind {
            "direct" => Kind::Direct,
            "fanout" => Kind::Fanout,
            "headers" => Kind::Headers,
            _ => Kind::Topic,
        };
        let declare = Declare {
            vhost: vhost.id,
            name: Bytes::from_static(name.as_bytes()),
            kind,
            durable: true,
            auto_delete: false,
            internal,
            alternate: None,
            arguments: Vec::new(),
        };
        draft.route(&vhost.name, Route::Declare(declare));
        draft.new_exchanges.insert((vhost.id, name.into()));
    }
}

pub(super) fn delete_vhost(draft: &mut Draft<'_>, name: &ByteString) -> Result<Reply, Refused> {
    let vhost = draft.host(name)?;
    if vhost.is_protected() {
        let text = format!("Refusing to delete virtual host '{name}' because it is protected from deletion");
        return Err(Refused::precondition(text));
    }
    let id = vhost.id;
    draft.route(name, Route::RemoveVhost(id));
    draft.push(Change::VhostRemoved(id));
    Ok(Reply::Done)
}

pub(super) fn protect_vhost(draft: &mut Draft<'_>, name: &ByteString, protected: bool) -> Result<Reply, Refused> {
    let before = draft.host(name)?;
    if before.is_protected() != protected {
        let vhost = Vhost { metadata: before.protected(protected), ..(**before).clone() };
        draft.push(Change::Vhost(Arc::new(vhost)));
    }
    Ok(Reply::Done)
}

fn limit_of(value: Option<i64>) -> Option<u64> {
    value.and_then(|value| u64::try_from(value).ok())
}

pub(crate) fn set_vhost_limit(
    draft: &mut Draft<'_>,
    name: &ByteString,
    limit: VhostLimit,
    value: Option<i64>,
) -> Result<Reply, Refused> {
    let before = draft.host(name)?.clone();
    let mut vhost = (*before).clone();
    match limit {
        VhostLimit::Connections => vhost.connections_max = limit_of(value),
        VhostLimit::Queues => vhost.queues_max = limit_of(value),
    }
    if vhost != *before {
        draft.push(Change::Vhost(Arc::new(vhost)));
    }
    Ok(Reply::Done)
}

fn new_user(name: &ByteString) -> User {
    User {
        name: name.clone(),
        password: PasswordHash::none(),
        scram: Vec::new(),
        tags: Vec::new(),
        connections_max: None,
        channels_max: None,
    }
}

pub(crate) fn put_user(draft: &mut Draft<'_>, put: &PutUser) -> Result<Reply, Refused> {
    check_length("user", &put.name)?;
    check_tags(put.tags.as_deref().unwrap_or_default())?;
    let before = draft.metadata.user(&put.name).cloned();
    let mut user = match &before {
        Some(user) => (**user).clone(),
        None => {
            check_count("users", draft.metadata.users().len(), draft.limits.users_max)?;
            new_user(&put.name)
        }
    };
    if let Some(password) = &put.password {
        if user.password != *password || !put.scram.is_empty() {
            user.scram.clone_from(&put.scram);
            user.scram.sort_by_key(ScramCredential::mechanism);
            user.scram.dedup_by_key(|credential| credential.mechanism());
        }
        user.password = password.clone();
    }
    if let Some(tags) = &put.tags {
        user.tags.clone_from(tags);
    }
    let created = before.is_none();
    if before.as_deref() != Some(&user) {
        draft.push(Change::User(Arc::new(user)));
    }
    Ok(Reply::Put { created })
}

/// Each part is checked separately, in order, after those before it.
pub(super) fn alter_scram(draft: &mut Draft<'_>, parts: &[AlterScram]) -> Reply {
    draft.metadata.to_mut();
    Reply::Each(parts.iter().map(|part| alter_scram_of(draft, part)).collect())
}

fn alter_scram_of(draft: &mut Draft<'_>, part: &AlterScram) -> Result<(), UsersRefusal> {
    let name = ByteString::from(part.user.as_str());
    let refused = |why: Refused| UsersRefusal::Refused(why.text);
    let before = draft.metadata.user(&name).cloned();
    let mut user = match &before {
        Some(user) => (**user).clone(),
        None => {
            check_length("user", &name).map_err(refused)?;
            new_user(&name)
        }
    };
    let mechanism = part.change.mechanism();
    let before_len = user.scram.len();
    user.scram.retain(|credential| credential.mechanism() != mechanism);
    match &part.change {
        ScramChange::Remove(_) if user.scram.len() == before_len => return Err(UsersRefusal::NotFound),
        ScramChange::Remove(_) => {}
        ScramChange::Set(credential) => {
            user.password = PasswordHash::none();
            user.scram.push(credential.clone());
            user.scram.sort_by_key(ScramCredential::mechanism);
        }
    }
    if before.is_none() {
        check_count("users", draft.metadata.users().len(), draft.limits.users_max).map_err(refused)?;
    }
    if before.as_deref() != Some(&user) {
        draft.push(Change::User(Arc::new(user)));
    }
    Ok(())
}

fn no_user(name: &str) -> Refused {
    Refused::new(Code::NotFound, format!("user '{name}' does not exist"))
}

pub(super) fn delete_users(draft: &mut Draft<'_>, names: &[ByteString]) -> Result<Reply, Refused> {
    for name in names {
        if draft.metadata.user(name).is_some() {
            draft.push(Change::UserRemoved(name.clone()));
        }
    }
    Ok(Reply::Done)
}

pub(crate) fn set_user_limit(
    draft: &mut Draft<'_>,
    name: &ByteString,
    limit: UserLimit,
    value: Option<i64>,
) -> Result<Reply, Refused> {
    let before = draft.metadata.user(name).ok_or_else(|| no_user(name))?.clone();
    let mut user = (*before).clone();
    match limit {
        UserLimit::Connections => user.connections_max = limit_of(value),
        UserLimit::Channels => user.channels_max = limit_of(value),
    }
    if user != *before {
        draft.push(Change::User(Arc::new(user)));
    }
    Ok(Reply::Done)
}

/// Returns the virtual host of a permission, after checking that it and the user exist.
fn user_and_host(draft: &Draft<'_>, user: &str, vhost: &str) -> Result<VhostId, Refused> {
    draft.metadata.user(user).ok_or_else(|| no_user(user))?;
    Ok(draft.host(vhost)?.id)
}

pub(crate) fn set_permission(
    draft: &mut Draft<'_>,
    user: &ByteString,
    vhost: &ByteString,
    patterns: &[ByteString; 3],
) -> Result<Reply, Refused> {
    let id = user_and_host(draft, user, vhost)?;
    let [configure, write, read] = patterns.each_ref().map(|text| Pattern::permission(text.clone()));
    let permission = Permission {
        configure: configure.map_err(Refused::bad)?,
        write: write.map_err(Refused::bad)?,
        read: read.map_err(Refused::bad)?,
    };
    let before = draft.metadata.permission(id, user);
    let created = before.is_none();
    if before.is_some_and(|before| **before == permission) {
        return Ok(Reply::Put { created });
    }
    if created {
        check_count("permissions", draft.metadata.permission_count(), draft.limits.permissions_max)?;
    }
    draft.push(Change::Permission(id, user.clone(), Arc::new(permission)));
    Ok(Reply::Put { created })
}

pub(super) fn clear_permission(draft: &mut Draft<'_>, user: &ByteString, vhost: &ByteString) -> Result<Reply, Refused> {
    let id = user_and_host(draft, user, vhost)?;
    if draft.metadata.permission(id, user).is_some() {
        draft.push(Change::PermissionRemoved(id, user.clone()));
    }
    Ok(Reply::Done)
}

pub(crate) fn set_topic_permission(
    draft: &mut Draft<'_>,
    user: &ByteString,
    vhost: &ByteString,
    exchange: &ByteString,
    patterns: &[ByteString; 2],
) -> Result<Reply, Refused> {
    let id = user_and_host(draft, user, vhost)?;
    let [write, read] = patterns.each_ref().map(|text| Pattern::topic(text.clone()));
    let permission = TopicPermission { write: write.map_err(Refused::bad)?, read: read.map_err(Refused::bad)? };
    let before = draft.metadata.topic_permission(id, user, exchange);
    let created = before.is_none();
    if before.is_some_and(|before| **before == permission) {
        return Ok(Reply::Put { created });
    }
    if created {
        check_count("permissions", draft.metadata.permission_count(), draft.limits.permissions_max)?;
    }
    draft.push(Change::Topic(id, user.clone(), exchange.clone(), Arc::new(permission)));
    Ok(Reply::Put { created })
}

pub(super) fn clear_topic_permission(
    draft: &mut Draft<'_>,
    user: &ByteString,
    vhost: &ByteString,
    exchange: Option<&ByteString>,
) -> Result<Reply, Refused> {
    let id = user_and_host(draft, user, vhost)?;
    let mine = draft.metadata.topic_permissions().filter(|(of, who, ..)| *of == id && *who == user);
    let exchanges: Vec<_> = mine.map(|(_, _, exchange, _)| exchange.clone()).collect();
    for name in exchanges {
        if exchange.is_none_or(|exchange| *exchange == name) {
            draft.push(Change::TopicRemoved(id, user.clone(), name));
        }
    }
    Ok(Reply::Done)
}
