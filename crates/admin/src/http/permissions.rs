//! `/api/v1/permissions`: permissions of users in virtual hosts, as in RabbitMQ.

use super::App;
use super::error::Failure;
use super::vhosts::Within;
use crate::api::access::{Permission as Shown, Permissions, PutPermission};
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use polylogue_amqp_model::{Command, Reply};
use polylogue_net::declared;
use std::sync::Arc;

pub(super) async fn list(State(app): State<Arc<App>>) -> Result<Json<Permissions>, Failure> {
    let view = declared::view(&app.broker).await?;
    let permissions = view.metadata.permissions().map(|(vhost, user, permission)| Shown {
        user: user.to_string(),
        vhost: view.metadata.vhost_name(vhost).to_string(),
        configure: permission.configure.text().to_string(),
        write: permission.write.text().to_string(),
        read: permission.read.text().to_string(),
    });
    Ok(Json(Permissions { permissions: permissions.collect() }))
}

fn unknown_user(name: &str) -> Failure {
    Failure::not_found(format!("there is no user {name}"))
}

pub(super) async fn put(
    State(app): State<Arc<App>>,
    Path((vhost, user)): Path<(String, String)>,
    body: Result<Json<PutPermission>, JsonRejection>,
) -> Result<StatusCode, Failure> {
    let Json(wanted) = body?;
    let within = Within::of(&app, &vhost).await?;
    within.view.metadata.user(&user).ok_or_else(|| unknown_user(&user))?;
    let patterns = [wanted.configure, wanted.write, wanted.read].map(Into::into);
    match declared::change(&app.broker, Command::SetPermission(user.into(), vhost.into(), patterns)).await? {
        Reply::Put { created: true } => Ok(StatusCode::CREATED),
        _ => Ok(StatusCode::OK),
    }
}

pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Path((vhost, user)): Path<(String, String)>,
) -> Result<StatusCode, Failure> {
    let within = Within::of(&app, &vhost).await?;
    let metadata = &within.view.metadata;
    metadata.user(&user).ok_or_else(|| unknown_user(&user))?;
    if metadata.permission(within.vhost.id, &user).is_none() {
        return Err(Failure::not_found(format!("{user} has no permissions in the virtual host {vhost}")));
    }
    declared::change(&app.broker, Command::ClearPermission(user.into(), vhost.into())).await?;
    Ok(StatusCode::NO_CONTENT)
}
