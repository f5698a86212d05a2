//! `/api/v1/quotas`

use super::App;
use super::ask::kafka;
use super::error::Failure;
use crate::api::access::{Quota as Shown, QuotaOf, Quotas};
use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use polylogue_auth::{QuotaEntity, QuotaKind, QuotaLimits, QuotaName};
use polylogue_kafka_codec::alter_client_quotas::{
    AlterClientQuotasRequest, EntityData, OpData, RequestEntryData as Entry,
};
use std::sync::Arc;

/// The version of the Kafka requests that are sent.
const VERSION: i16 = 1;

/// Returns one part of the entity.
fn part(name: Option<String>, others: bool, what: &str) -> Result<Option<QuotaName>, Failure> {
    match (name, others) {
        (Some(_), true) => Err(Failure::invalid(format!("either {what} or other_{what}s, not both"))),
        (Some(name), false) => Ok(Some(QuotaName::Named(name))),
        (None, true) => Ok(Some(QuotaName::Others)),
        (None, false) => Ok(None),
    }
}

fn entity(of: QuotaOf) -> Result<QuotaEntity, Failure> {
    let entity = QuotaEntity {
        user: part(of.user, of.other_users, "user")?,
        client_id: part(of.client_id, of.other_client_ids, "client_id")?,
    };
    entity.check().map_err(|error| Failure::invalid(error.text))?;
    Ok(entity)
}

fn shown((entity, limits): (&QuotaEntity, &QuotaLimits)) -> Shown {
    let name = |part: &Option<QuotaName>| match part {
        Some(QuotaName::Named(name)) => Some(name.clone()),
        Some(QuotaName::Others) | None => None,
    };
    let others = |part: &Option<QuotaName>| *part == Some(QuotaName::Others);
    Shown {
        of: QuotaOf {
            user: name(&entity.user),
            other_users: others(&entity.user),
            client_id: name(&entity.client_id),
            other_client_ids: others(&entity.client_id),
        },
        produce_bytes_per_second: limits.get(QuotaKind::Produce),
        fetch_bytes_per_second: limits.get(QuotaKind::Fetch),
        request_percent: limits.get(QuotaKind::Requests),
    }
}

/// Sets the quotas of an entity; `None` removes a quota.
async fn set(app: &Arc<App>, entity: &QuotaEntity, values: [(QuotaKind, Option<f64>); 3]) -> Result<(), Failure> {
    let data = |kind: &'static str, name: &Option<QuotaName>| {
        let entity_name = match name.as_ref()? {
            QuotaName::Named(name) => Some(name.as_str().into()),
            QuotaName::Others => None,
        };
        Some(EntityData { entity_type: kind.into(), entity_name })
    };
    let op = |(kind, value): (QuotaKind, Option<f64>)| OpData {
        key: kind.key().into(),
        value: value.unwrap_or_default(),
        remove: value.is_none(),
    };
    let entry = Entry {
        entity: [data("user", &entity.user), data("client-id", &entity.client_id)].into_iter().flatten().collect(),
        ops: values.into_iter().map(op).collect(),
    };
    let request = AlterClientQuotasRequest { entries: vec![entry], validate_only: false };
    let response = kafka(app, VERSION, &request).await?;
    let failures = response.entries.iter().map(|row| Failure::of_kafka(row.error_code, row.error_message.as_deref()));
    failures.flatten().next().map_or(Ok(()), Err)
}

pub(super) async fn list(State(app): State<Arc<App>>) -> Json<Quotas> {
    Json(Quotas { quotas: app.users.quotas().iter().map(shown).collect() })
}

pub(super) async fn put(
    State(app): State<Arc<App>>,
    body: Result<Json<Shown>, JsonRejection>,
) -> Result<StatusCode, Failure> {
    let Json(wanted) = body?;
    let values = [
        (QuotaKind::Produce, wanted.produce_bytes_per_second),
        (QuotaKind::Fetch, wanted.fetch_bytes_per_second),
        (QuotaKind::Requests, wanted.request_percent),
    ];
    if values.iter().all(|(_, value)| value.is_none()) {
        return Err(Failure::invalid("at least one limit is required".to_owned()));
    }
    set(&app, &entity(wanted.of)?, values).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn delete(
    State(app): State<Arc<App>>,
    body: Result<Json<QuotaOf>, JsonRejection>,
) -> Result<StatusCode, Failure> {
    let Json(of) = body?;
    let entity = entity(of)?;
    if !app.users.quotas().contains_key(&entity) {
        return Err(Failure::not_found("unknown quota".to_owned()));
    }
    set(&app, &entity, QuotaKind::ALL.map(|kind| (kind, None))).await?;
    Ok(StatusCode::NO_CONTENT)
}
