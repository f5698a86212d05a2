//! `/api/v1/acls`

use super::App;
use super::ask::kafka;
use super::error::Failure;
use crate::api::access::{Acl as Shown, AclQuery, Acls};
use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Query, State};
use axum::http::StatusCode;
use polylogue_auth::{Acl, AclFilter, Operation, PatternFilter, PatternKind, Permission, ResourceKind};
use polylogue_kafka_codec::create_acls::{AclCreation, CreateAclsRequest};
use polylogue_kafka_codec::delete_acls::{DeleteAclsFilter, DeleteAclsRequest};
use std::sync::Arc;

/// The version of the Kafka requests that are sent.
const VERSION: i16 = 3;

/// Parses the name of a Kafka enum value.
fn named<T>(what: &str, name: &str, of: fn(&str) -> Option<T>) -> Result<T, Failure> {
    of(name).ok_or_else(|| Failure::invalid(format!("unknown {what} {name}")))
}

fn acl(wanted: Shown) -> Result<Acl, Failure> {
    let acl = Acl {
        kind: named("resource", &wanted.resource, ResourceKind::named)?,
        pattern: named("pattern", &wanted.pattern, PatternKind::named)?,
        operation: named("operation", &wanted.operation, Operation::named)?,
        permission: named("permission", &wanted.permission, Permission::named)?,
        name: wanted.name,
        principal: wanted.principal,
        host: wanted.host,
    };
    acl.check().map_err(|error| Failure::invalid(error.text))?;
    Ok(acl)
}

fn shown(acl: &Arc<Acl>) -> Shown {
    Shown {
        resource: acl.kind.name().to_owned(),
        name: acl.name.clone(),
        pattern: acl.pattern.name().to_owned(),
        principal: acl.principal.clone(),
        host: acl.host.clone(),
        operation: acl.operation.name().to_owned(),
        permission: acl.permission.name().to_owned(),
    }
}

fn signed(number: u8) -> i8 {
    i8::try_from(number).unwrap_or(0)
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    query: Result<Query<AclQuery>, QueryRejection>,
) -> Result<Json<Acls>, Failure> {
    let Query(query) = query.map_err(|e| Failure::invalid(e.body_text()))?;
    let filter = AclFilter {
        kind: query.resource.map(|name| named("resource", &name, ResourceKind::named)).transpose()?,
        name: query.name,
        pattern: PatternFilter::Match,
        principal: query.principal,
        ..AclFilter::EVERYTHING
    };
    Ok(Json(Acls { acls: app.users.acls(&filter).iter().map(shown).collect() }))
}

pub(super) async fn create(
    State(app): State<Arc<App>>,
    body: Result<Json<Acls>, JsonRejection>,
) -> Result<(StatusCode, Json<Acls>), Failure> {
    let Json(wanted) = body?;
    let acls = wanted.acls.into_iter().map(acl).collect::<Result<Vec<_>, _>>()?;
    let creation = |acl: &Acl| AclCreation {
        resource_type: signed(acl.kind.number()),
        resource_name: acl.name.as_str().into(),
        resource_pattern_type: signed(acl.pattern.number()),
        principal: acl.principal.as_str().into(),
        host: acl.host.as_str().into(),
        operation: signed(acl.operation.number()),
        permission_type: signed(acl.permission.number()),
    };
    let request = CreateAclsRequest { creations: acls.iter().map(creation).collect() };
    let response = kafka(&app, VERSION, &request).await?;
    for row in &response.results {
        if let Some(failure) = Failure::of_kafka(row.error_code, row.error_message.as_deref()) {
            return Err(failure);
        }
    }
    Ok((StatusCode::CREATED, Json(Acls { acls: acls.into_iter().map(Arc::new).map(|acl| shown(&acl)).collect() })))
}

/// Returns the deleted bindings.
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    body: Result<Json<Acls>, JsonRejection>,
) -> Result<Json<Acls>, Failure> {
    let Json(wanted) = body?;
    let acls = wanted.acls.into_iter().map(acl).collect::<Result<Vec<_>, _>>()?;
    let filter = |acl: &Acl| DeleteAclsFilter {
        resource_type_filter: signed(acl.kind.number()),
        resource_name_filter: Some(acl.name.as_str().into()),
        pattern_type_filter: signed(acl.pattern.number()),
        principal_filter: Some(acl.principal.as_str().into()),
        host_filter: Some(acl.host.as_str().into()),
        operation: signed(acl.operation.number()),
        permission_type: signed(acl.permission.number()),
    };
    let request = DeleteAclsRequest { filters: acls.iter().map(filter).collect() };
    let response = kafka(&app, VERSION, &request).await?;
    let mut gone = Vec::new();
    for (acl, row) in acls.into_iter().zip(&response.filter_results) {
        if let Some(failure) = Failure::of_kafka(row.error_code, row.error_message.as_deref()) {
            return Err(failure);
        }
        if !row.matching_acls.is_empty() {
            gone.push(shown(&Arc::new(acl)));
        }
    }
    Ok(Json(Acls { acls: gone }))
}
