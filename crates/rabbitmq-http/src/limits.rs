//! Limits of virtual hosts and of users.

use super::answer::Answer;
use super::body::Body;
use super::call::Call;
use super::error::Failure;
use super::{Verb, ask, shapes};
use polylogue_amqp_model::{Command, User, UserLimit, Vhost, VhostLimit};
use serde_json::{Value, json};

fn is_empty(limits: &Value) -> bool {
    limits.as_object().is_none_or(serde_json::Map::is_empty)
}

fn of_vhost(vhost: &Vhost) -> Option<Value> {
    let limits = shapes::vhost_limits(vhost);
    (!is_empty(&limits)).then(|| json!({"vhost": &*vhost.name, "value": limits}))
}

fn of_user(user: &User) -> Option<Value> {
    let limits = shapes::user_limits(user);
    (!is_empty(&limits)).then(|| json!({"user": &*user.name, "value": limits}))
}

/// Returns the new value of a limit; negative for none.
fn value(body: &Body) -> Result<Option<i64>, Failure> {
    body.integer("value")?.map(Some).ok_or_else(|| Failure::missing_keys(&["value"]))
}

fn unknown(name: &str) -> Failure {
    Failure::bad(format!("Unrecognised limit '{name}'"))
}

pub(super) async fn serve_vhosts(call: &Call<'_>, path: &[&str], body: &Body) -> Result<Answer, Failure> {
    let metadata = &call.view.metadata;
    match (call.verb, path) {
        (Verb::Get, []) => {
            let seen = metadata.vhosts().filter(|vhost| call.sees(vhost.id));
            Ok(Answer::List(seen.filter_map(|vhost| of_vhost(vhost)).collect(), &["vhost"]))
        }
        (Verb::Get, [vhost]) => {
            let vhost = call.visible_vhost(vhost)?;
            Ok(Answer::List(of_vhost(vhost).into_iter().collect(), &["vhost"]))
        }
        (verb @ (Verb::Put | Verb::Delete), [vhost, name]) => {
            call.admin()?;
            call.vhost(vhost)?;
            let limit = VhostLimit::named(name).ok_or_else(|| unknown(name))?;
            let value = if verb == Verb::Put { value(body)? } else { None };
            ask::change(call.app, Command::SetVhostLimit((*vhost).into(), limit, value)).await?;
            Ok(Answer::Done)
        }
        (_, [] | [_]) => Err(Failure::method_not_allowed("HEAD, GET, OPTIONS")),
        (_, [_, _]) => Err(Failure::method_not_allowed("PUT, DELETE, OPTIONS")),
        _ => Err(Failure::not_found()),
    }
}

pub(super) async fn serve_users(call: &Call<'_>, path: &[&str], body: &Body) -> Result<Answer, Failure> {
    call.admin()?;
    let metadata = &call.view.metadata;
    match (call.verb, path) {
        (Verb::Get, []) => Ok(Answer::List(metadata.users().filter_map(|user| of_user(user)).collect(), &["user"])),
        (Verb::Get, [user]) => {
            let user = metadata.user(user).ok_or_else(Failure::not_found)?;
            Ok(Answer::List(of_user(user).into_iter().collect(), &["user"]))
        }
        (verb @ (Verb::Put | Verb::Delete), [user, name]) => {
            let limit = UserLimit::named(name).ok_or_else(|| unknown(name))?;
            let value = if verb == Verb::Put { value(body)? } else { None };
            ask::change(call.app, Command::SetUserLimit((*user).into(), limit, value)).await?;
            Ok(Answer::Done)
        }
        (_, [] | [_]) => Err(Failure::method_not_allowed("HEAD, GET, OPTIONS")),
        (_, [_, _]) => Err(Failure::method_not_allowed("PUT, DELETE, OPTIONS")),
        _ => Err(Failure::not_found()),
    }
}
