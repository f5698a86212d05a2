//! Permissions and topic permissions. Visible to administrators only.

use super::answer::Answer;
use super::body::Body;
use super::call::Call;
use super::error::Failure;
use super::{Verb, ask};
use polylogue_amqp_model::{Command, permission_item, topic_permission_item};
use polylogue_router::VhostId;
use serde_json::Value;

/// The default sort fields of lists of permissions.
pub(super) const ORDER: &[&str] = &["vhost", "user", "exchange"];

/// Returns the permissions that match, by virtual host and user.
pub(super) fn all(call: &Call<'_>, which: impl Fn(VhostId, &str) -> bool) -> Vec<Value> {
    let metadata = &call.view.metadata;
    let all = metadata.permissions().filter(|(vhost, user, _)| which(*vhost, user));
    all.map(|(vhost, user, permission)| permission_item(metadata, vhost, user, permission)).collect()
}

/// As [`all`], for topic permissions.
pub(super) fn all_topics(call: &Call<'_>, which: impl Fn(VhostId, &str) -> bool) -> Vec<Value> {
    let metadata = &call.view.metadata;
    let all = metadata.topic_permissions().filter(|(vhost, user, ..)| which(*vhost, user));
    all.map(|(vhost, user, exchange, one)| topic_permission_item(metadata, vhost, user, exchange, one)).collect()
}

/// Checks that the virtual host and the user exist.
fn ends(call: &Call<'_>, vhost: &str, user: &str) -> Result<VhostId, Failure> {
    let metadata = &call.view.metadata;
    match (metadata.vhost_named(vhost), metadata.user(user)) {
        (Some(vhost), Some(_)) => Ok(vhost.id),
        _ => Err(Failure::bad("vhost_or_user_not_found")),
    }
}

pub(super) async fn serve(call: &Call<'_>, path: &[&str], body: &Body) -> Result<Answer, Failure> {
    call.admin()?;
    match (call.verb, path) {
        (Verb::Get, []) => Ok(Answer::List(all(call, |_, _| true), ORDER)),
        (Verb::Get, [vhost, user]) => {
            let vhost = call.vhost(vhost)?.id;
            let found = all(call, |of, name| of == vhost && name == *user).pop();
            found.map(Answer::One).ok_or_else(Failure::not_found)
        }
        (Verb::Put, [vhost, user]) => {
            ends(call, vhost, user)?;
            body.require(&["configure", "write", "read"])?;
            let patterns = [body.required("configure")?, body.required("write")?, body.required("read")?];
            let command = Command::SetPermission((*user).into(), (*vhost).into(), patterns);
            Ok(Answer::put(ask::put(call.app, command).await?))
        }
        (Verb::Delete, [vhost, user]) => {
            let id = call.vhost(vhost)?.id;
            call.view.metadata.permission(id, user).ok_or_else(Failure::not_found)?;
            ask::change(call.app, Command::ClearPermission((*user).into(), (*vhost).into())).await?;
            Ok(Answer::Done)
        }
        (_, []) => Err(Failure::method_not_allowed("HEAD, GET, OPTIONS")),
        (_, [_, _]) => Err(Failure::method_not_allowed("HEAD, GET, PUT, DELETE, OPTIONS")),
        _ => Err(Failure::not_found()),
    }
}

pub(super) async fn serve_topics(call: &Call<'_>, path: &[&str], body: &Body) -> Result<Answer, Failure> {
    call.admin()?;
    let found = |vhost: &str, user: &str| {
        let vhost = call.vhost(vhost)?.id;
        let found = all_topics(call, |of, name| of == vhost && name == user);
        if found.is_empty() { Err(Failure::not_found()) } else { Ok(found) }
    };
    match (call.verb, path) {
        (Verb::Get, []) => Ok(Answer::List(all_topics(call, |_, _| true), ORDER)),
        (Verb::Get, [vhost, user]) => Ok(Answer::List(found(vhost, user)?, ORDER)),
        (Verb::Put, [vhost, user]) => {
            ends(call, vhost, user)?;
            body.require(&["exchange", "write", "read"])?;
            let patterns = [body.required("write")?, body.required("read")?];
            let exchange = body.required("exchange")?;
            let command = Command::SetTopicPermission((*user).into(), (*vhost).into(), exchange, patterns);
            Ok(Answer::put(ask::put(call.app, command).await?))
        }
        (Verb::Delete, [vhost, user]) => {
            found(vhost, user)?;
            ask::change(call.app, Command::ClearTopicPermission((*user).into(), (*vhost).into(), None)).await?;
            Ok(Answer::Done)
        }
        (Verb::Delete, [vhost, user, exchange]) => {
            found(vhost, user)?;
            let exchange = Some((*exchange).into());
            ask::change(call.app, Command::ClearTopicPermission((*user).into(), (*vhost).into(), exchange)).await?;
            Ok(Answer::Done)
        }
        (_, []) => Err(Failure::method_not_allowed("HEAD, GET, OPTIONS")),
        (_, [_, _]) => Err(Failure::method_not_allowed("HEAD, GET, PUT, DELETE, OPTIONS")),
        _ => Err(Failure::not_found()),
    }
}
