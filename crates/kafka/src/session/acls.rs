//! DescribeAcls, CreateAcls and DeleteAcls (KIP-140, KIP-290). Rules and texts are Kafka's (`AclApis`, `AclControlManager`).

use super::errors;
use super::work::{Pending, Step, WaitsFor, Work};
use polylogue_api::{MachineId, Reply, Request};
use polylogue_auth::{
    Acl, AclFilter, Operation, PatternFilter, PatternKind, Permission, ResourceKind, UsersCommand, UsersRefusal,
    UsersReply,
};
use polylogue_kafka_codec::create_acls::{AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse};
use polylogue_kafka_codec::delete_acls::{
    DeleteAclsFilterResult, DeleteAclsMatchingAcl, DeleteAclsRequest, DeleteAclsResponse,
};
use polylogue_kafka_codec::describe_acls::{
    AclDescription, DescribeAclsRequest, DescribeAclsResource, DescribeAclsResponse,
};
use polylogue_kafka_codec::{DecodeError, ErrorCode, Message, Reader, StrBytes};
use std::sync::Arc;

/// Kafka's `ANY`, the wildcard of filters, and `MATCH`, for patterns that apply to a name.
const ANY: i8 = 1;
const MATCH: i8 = 2;

/// The error of a refused entry.
type Refusal = (ErrorCode, StrBytes);

/// Parses a value of a Kafka enum.
fn known<T>(number: i8, of: fn(u8) -> Option<T>, what: &str) -> Result<T, Refusal> {
    let found = u8::try_from(number).ok().and_then(of);
    found.ok_or_else(|| (ErrorCode::InvalidRequest, format!("Invalid {what} {number}").into()))
}

/// The same in a filter, where the value may be `ANY`.
fn wanted<T>(number: i8, of: fn(u8) -> Option<T>, what: &str) -> Result<Option<T>, Refusal> {
    if number == ANY { Ok(None) } else { known(number, of, what).map(Some) }
}

fn signed(number: u8) -> i8 {
    i8::try_from(number).unwrap_or(0)
}

fn not_allowed() -> Refusal {
    errors::with_message(ErrorCode::ClusterAuthorizationFailed)
}

fn acl(wanted: &AclCreation) -> Result<Acl, Refusal> {
    let acl = Acl {
        kind: known(wanted.resource_type, ResourceKind::numbered, "resourceType")?,
        name: wanted.resource_name.to_string(),
        pattern: known(wanted.resource_pattern_type, PatternKind::numbered, "patternType")?,
        principal: wanted.principal.to_string(),
        host: wanted.host.to_string(),
        operation: known(wanted.operation, Operation::numbered, "operation")?,
        permission: known(wanted.permission_type, Permission::numbered, "permissionType")?,
    };
    acl.check().map_err(|error| (ErrorCode::InvalidRequest, error.text.into()))?;
    Ok(acl)
}

/// Returns the filter of a request, from its fields in the order of the wire format.
fn filter(
    (kind, name, pattern): (i8, Option<StrBytes>, i8),
    (principal, host): (Option<StrBytes>, Option<StrBytes>),
    (operation, permission): (i8, i8),
) -> Result<AclFilter, Refusal> {
    let text = |text: Option<StrBytes>| text.map(|text| text.to_string());
    let pattern = match pattern {
        ANY => PatternFilter::Any,
        MATCH => PatternFilter::Match,
        other => PatternFilter::Only(known(other, PatternKind::numbered, "patternType")?),
    };
    Ok(AclFilter {
        kind: wanted(kind, ResourceKind::numbered, "resourceType")?,
        name: text(name),
        pattern,
        principal: text(principal),
        host: text(host),
        operation: wanted(operation, Operation::numbered, "operation")?,
        permission: wanted(permission, Permission::numbered, "permissionType")?,
    })
}

pub(super) fn start_describe(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let request = DescribeAclsRequest::decode(body, work.head.version)?;
    let filter = if work.may_cluster(Operation::Describe) {
        filter(
            (request.resource_type_filter, request.resource_name_filter, request.pattern_type_filter),
            (request.principal_filter, request.host_filter),
            (request.operation, request.permission_type),
        )
    } else {
        Err(not_allowed())
    };
    let response = match filter {
        Ok(filter) => DescribeAclsResponse {
            error_message: None,
            resources: by_resource(&work.users.acls(&filter)),
            ..DescribeAclsResponse::default()
        },
        Err((error, text)) => DescribeAclsResponse {
            error_code: error.code(),
            error_message: Some(text),
            ..DescribeAclsResponse::default()
        },
    };
    Ok(work.answer(&response))
}

/// Groups bindings by resource pattern.
fn by_resource(acls: &[Arc<Acl>]) -> Vec<DescribeAclsResource> {
    let same = |a: &Arc<Acl>, b: &Arc<Acl>| (a.kind, &a.name, a.pattern) == (b.kind, &b.name, b.pattern);
    let described = |acl: &Arc<Acl>| AclDescription {
        principal: acl.principal.as_str().into(),
        host: acl.host.as_str().into(),
        operation: signed(acl.operation.number()),
        permission_type: signed(acl.permission.number()),
    };
    let resources = acls.chunk_by(same).filter_map(|acls| {
        let first = acls.first()?;
        Some(DescribeAclsResource {
            resource_type: signed(first.kind.number()),
            resource_name: first.name.as_str().into(),
            pattern_type: signed(first.pattern.number()),
            acls: acls.iter().map(described).collect(),
        })
    });
    resources.collect()
}

pub(super) fn start_create(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let request = CreateAclsRequest::decode(body, work.head.version)?;
    let is_allowed = work.may_cluster(Operation::Alter);
    let (mut rows, mut acls) = (Vec::with_capacity(request.creations.len()), Vec::new());
    for wanted in &request.creations {
        match if is_allowed { acl(wanted) } else { Err(not_allowed()) } {
            Ok(acl) => {
                acls.push(acl);
                rows.push(None);
            }
            Err(refusal) => rows.push(Some(refusal)),
        }
    }
    if acls.is_empty() {
        return Ok(created(work, rows));
    }
    let token = work.ask(Request::Machine(MachineId::AMQP, Box::new(UsersCommand::CreateAcls(acls))));
    Ok(Step::Wait(token, Box::new(Creating { rows })))
}

fn created(work: &Work<'_>, rows: Vec<Option<Refusal>>) -> Step {
    let row = |refusal: Option<Refusal>| {
        let (error, error_message) = refusal.map_or((ErrorCode::None, None), |(error, text)| (error, Some(text)));
        AclCreationResult { error_code: error.code(), error_message }
    };
    work.answer(&CreateAclsResponse { results: rows.into_iter().map(row).collect(), ..CreateAclsResponse::default() })
}

/// Bindings that wait for their commit. Rows without a refusal were requested from the broker.
#[derive(Debug)]
struct Creating {
    rows: Vec<Option<Refusal>>,
}

fn refused(why: UsersRefusal) -> Refusal {
    match why {
        UsersRefusal::NotFound => errors::with_message(ErrorCode::InvalidRequest),
        UsersRefusal::Refused(text) => (ErrorCode::PolicyViolation, text.into()),
    }
}

/// Returns the reply of the users' state machine, or the error for each entry. `None` if the reply is of another kind.
fn answered(reply: Reply) -> Option<Result<UsersReply, Refusal>> {
    match reply {
        Reply::Machine(Err(why)) => Some(Err(errors::of_metadata(why))),
        Reply::Machine(Ok(answer)) => answer.downcast::<UsersReply>().ok().map(|answer| Ok(*answer)),
        _ => None,
    }
}

impl Pending for Creating {
    fn on_reply(self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step {
        let mut rows = self.rows;
        let open = rows.iter_mut().filter(|row| row.is_none());
        match answered(reply) {
            Some(Ok(UsersReply::Each(results))) => {
                let open: Vec<_> = open.collect();
                if open.len() != results.len() {
                    return work.wrong_reply();
                }
                open.into_iter().zip(results).for_each(|(row, result)| *row = result.err().map(refused));
            }
            Some(Err(refusal)) => open.for_each(|row| *row = Some(refusal.clone())),
            _ => return work.wrong_reply(),
        }
        created(work, rows)
    }

    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Machine
    }
}

/// The result of one filter.
type Deleted = Result<Vec<Arc<Acl>>, Refusal>;

pub(super) fn start_delete(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let request = DeleteAclsRequest::decode(body, work.head.version)?;
    let is_allowed = work.may_cluster(Operation::Alter);
    let (mut rows, mut filters) = (Vec::with_capacity(request.filters.len()), Vec::new());
    for wanted in request.filters {
        let filter = filter(
            (wanted.resource_type_filter, wanted.resource_name_filter, wanted.pattern_type_filter),
            (wanted.principal_filter, wanted.host_filter),
            (wanted.operation, wanted.permission_type),
        );
        match if is_allowed { filter } else { Err(not_allowed()) } {
            Ok(filter) => {
                filters.push(filter);
                rows.push(None);
            }
            Err(refusal) => rows.push(Some(Err(refusal))),
        }
    }
    if filters.is_empty() {
        return Ok(deleted(work, rows));
    }
    let token = work.ask(Request::Machine(MachineId::AMQP, Box::new(UsersCommand::DeleteAcls(filters))));
    Ok(Step::Wait(token, Box::new(Deleting { rows })))
}

fn deleted(work: &Work<'_>, rows: Vec<Option<Deleted>>) -> Step {
    let matching = |acl: Arc<Acl>| DeleteAclsMatchingAcl {
        error_message: None,
        resource_type: signed(acl.kind.number()),
        resource_name: acl.name.as_str().into(),
        pattern_type: signed(acl.pattern.number()),
        principal: acl.principal.as_str().into(),
        host: acl.host.as_str().into(),
        operation: signed(acl.operation.number()),
        permission_type: signed(acl.permission.number()),
        ..DeleteAclsMatchingAcl::default()
    };
    let row = |row: Option<Deleted>| match row.unwrap_or_else(|| Ok(Vec::new())) {
        Ok(acls) => DeleteAclsFilterResult {
            error_code: ErrorCode::None.code(),
            error_message: None,
            matching_acls: acls.into_iter().map(matching).collect(),
        },
        Err((error, text)) => {
            DeleteAclsFilterResult { error_code: error.code(), error_message: Some(text), matching_acls: Vec::new() }
        }
    };
    work.answer(&DeleteAclsResponse {
        filter_results: rows.into_iter().map(row).collect(),
        ..DeleteAclsResponse::default()
    })
}

/// Bindings whose deletion waits for its commit. Empty rows were requested from the broker.
#[derive(Debug)]
struct Deleting {
    rows: Vec<Option<Deleted>>,
}

impl Pending for Deleting {
    fn on_reply(self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step {
        let mut rows = self.rows;
        let open: Vec<_> = rows.iter_mut().filter(|row| row.is_none()).collect();
        match answered(reply) {
            Some(Ok(UsersReply::Deleted(results))) if results.len() == open.len() => {
                open.into_iter().zip(results).for_each(|(row, result)| *row = Some(result.map_err(refused)));
            }
            Some(Err(refusal)) => open.into_iter().for_each(|row| *row = Some(Err(refusal.clone()))),
            _ => return work.wrong_reply(),
        }
        deleted(work, rows)
    }

    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Machine
    }
}
