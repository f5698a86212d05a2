//! Users. Visible to administrators only.

use super::answer::Answer;
use super::body::Body;
use super::call::Call;
use super::error::Failure;
use super::{Verb, ask, permissions, shapes};
use bytestring::ByteString;
use polylogue_amqp_model::{Command, Hashing, PasswordHash, PutUser, ScramCredential};
use polylogue_net::declared::end_user;
use polylogue_net::users::kept;
use serde_json::Value;

pub(super) async fn serve(call: &Call<'_>, path: &[&str], body: &Body) -> Result<Answer, Failure> {
    call.admin()?;
    let metadata = &call.view.metadata;
    let there = |name: &str| metadata.user(name).ok_or_else(Failure::not_found);
    match (call.verb, path) {
        (Verb::Get, []) => Ok(Answer::Paged(metadata.users().map(|user| shapes::user(user)).collect())),
        (Verb::Get, ["without-permissions"]) => {
            let has = |name: &str| metadata.vhosts().any(|vhost| metadata.permission(vhost.id, name).is_some());
            let without = metadata.users().filter(|user| !has(&user.name));
            Ok(Answer::List(without.map(|user| shapes::user(user)).collect(), &["name"]))
        }
        (Verb::Post, ["bulk-delete"]) => bulk_delete(call, body).await,
        (Verb::Get, [name]) => Ok(Answer::One(shapes::user(there(name)?))),
        (Verb::Put, [name]) => put(call, (*name).into(), body).await,
        (Verb::Delete, [name]) => {
            there(name)?;
            delete(call, vec![(*name).into()]).await
        }
        (Verb::Get, [name, "permissions"]) => {
            there(name)?;
            Ok(Answer::List(permissions::all(call, |_, user| user == *name), permissions::ORDER))
        }
        (Verb::Get, [name, "topic-permissions"]) => {
            there(name)?;
            Ok(Answer::List(permissions::all_topics(call, |_, user| user == *name), permissions::ORDER))
        }
        (_, []) => Err(Failure::method_not_allowed("HEAD, GET, OPTIONS")),
        (_, [_]) => Err(Failure::method_not_allowed("HEAD, GET, PUT, DELETE, OPTIONS")),
        _ => Err(Failure::not_found()),
    }
}

async fn bulk_delete(call: &Call<'_>, body: &Body) -> Result<Answer, Failure> {
    let Some(Value::Array(users)) = body.get("users") else { return Err(Failure::missing_keys(&["users"])) };
    let names: Option<Vec<ByteString>> = users.iter().map(|name| name.as_str().map(Into::into)).collect();
    let names = names.ok_or_else(|| Failure::bad("users should be strings"))?;
    delete(call, names).await
}

/// Deletes users and closes their connections with RabbitMQ's reason.
async fn delete(call: &Call<'_>, names: Vec<ByteString>) -> Result<Answer, Failure> {
    ask::change(call.app, Command::DeleteUsers(names.clone())).await?;
    for name in names {
        end_user(&call.app.directory, &call.app.net, &name);
    }
    Ok(Answer::Done)
}

/// Returns what is stored of `password` or `password_hash`; without both, the user has no password. SCRAM credentials cannot be derived
/// from a hash.
fn password(call: &Call<'_>, body: &Body) -> Result<(PasswordHash, Vec<ScramCredential>), Failure> {
    match (body.text("password")?, body.text("password_hash")?) {
        (Some(_), Some(_)) => Err(Failure::bad("both_password_and_password_hash_are_provided")),
        (Some(password), None) => Ok(kept(call.app.rng.as_ref(), password.as_bytes())),
        (None, Some(hash)) => {
            let hashing = match body.text("hashing_algorithm")? {
                None => Hashing::Sha256,
                Some(name) => {
                    Hashing::named(&name).ok_or_else(|| Failure::bad(format!("unknown hashing algorithm '{name}'")))?
                }
            };
            let hash = PasswordHash::from_base64(hashing, &hash).map_err(|error| Failure::bad(error.text))?;
            Ok((hash, Vec::new()))
        }
        (None, None) => Ok((PasswordHash::none(), Vec::new())),
    }
}

async fn put(call: &Call<'_>, name: ByteString, body: &Body) -> Result<Answer, Failure> {
    let tags = match body.tags()? {
        Some(tags) => tags,
        None if body.flag("administrator")? => vec!["administrator".into()],
        None => return Err(Failure::bad("tags_not_present")),
    };
    let (hash, scram) = password(call, body)?;
    let put = PutUser { name, password: Some(hash), scram, tags: Some(tags) };
    let created = ask::put(call.app, Command::PutUser(put)).await?;
    Ok(Answer::put(created))
}
