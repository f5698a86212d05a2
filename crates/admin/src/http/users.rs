//! `/api/v1/users`

use super::App;
use super::error::Failure;
use crate::api::access::{PutUser, User as Shown, Users};
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use bytestring::ByteString;
use polylogue_amqp_model::{Command, PutUser as Put, Reply, User};
use polylogue_auth::Mechanism;
use polylogue_net::declared::{self, end_user};
use polylogue_net::users::kept;
use std::sync::Arc;

fn shown(user: &User) -> Shown {
    let has_any = !user.password.bytes.is_empty() || !user.scram.is_empty();
    let can = |mechanism: &Mechanism| match mechanism {
        Mechanism::Plain => has_any,
        Mechanism::Scram(scram) => user.scram(*scram).is_some(),
        Mechanism::External | Mechanism::Bearer | Mechanism::Anonymous => false,
    };
    Shown {
        name: user.name.to_string(),
        tags: user.tags.iter().map(ToString::to_string).collect(),
        mechanisms: Mechanism::ALL.iter().filter(|one| can(one)).map(|one| one.name().to_owned()).collect(),
    }
}

pub(super) async fn list(State(app): State<Arc<App>>) -> Result<Json<Users>, Failure> {
    let view = declared::view(&app.broker).await?;
    Ok(Json(Users { users: view.metadata.users().map(|user| shown(user)).collect() }))
}

pub(super) async fn put(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    body: Result<Json<PutUser>, JsonRejection>,
) -> Result<StatusCode, Failure> {
    let Json(wanted) = body?;
    if wanted.password.as_deref() == Some("") {
        return Err(Failure::invalid("the password is empty".to_owned()));
    }
    // The tags are read when the change is applied, since another client may change them concurrently.
    let tags = wanted.tags.map(|tags| tags.into_iter().map(ByteString::from).collect());
    let (password, scram) = match wanted.password {
        Some(password) => {
            let (hash, scram) = kept(app.rng.as_ref(), password.as_bytes());
            (Some(hash), scram)
        }
        None => (None, Vec::new()),
    };
    let put = Put { name: name.into(), password, scram, tags };
    match declared::change(&app.broker, Command::PutUser(put)).await? {
        Reply::Put { created: true } => Ok(StatusCode::CREATED),
        _ => Ok(StatusCode::OK),
    }
}

/// Deletes a user and closes its connections; AMQP connections get RabbitMQ's reason.
pub(super) async fn delete(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<StatusCode, Failure> {
    let view = declared::view(&app.broker).await?;
    if view.metadata.user(&name).is_none() {
        return Err(Failure::not_found(format!("there is no user {name}")));
    }
    declared::change(&app.broker, Command::DeleteUsers(vec![name.as_str().into()])).await?;
    end_user(&app.directory, &app.net, &name);
    Ok(StatusCode::NO_CONTENT)
}
