//! Parameters, policies, operator policies.
//!
//! RabbitMQ stores policies and limits as parameters, and definitions list operator policies and limits among the parameters; so a parameter of the
//! components `policy`, `operator_policy` and `vhost-limits` sets the policy or limit. A parameter of the component `shovel` has to be a valid
//! shovel; those of federation have to be valid upstreams and sets.

use super::access::set_vhost_limit;
use super::checks::{check_count, check_length};
use super::draft::Draft;
use crate::change::Change;
use crate::command::Reply;
use crate::error::Refused;
use crate::fields::LinkError;
use crate::json::{JSON_BYTES_MAX, Json};
use crate::policy::{ApplyTo, OPERATOR_POLICY, Policy, PolicySpec};
use crate::shovel::{SHOVEL, Shovel};
use crate::upstream::{UPSTREAM, UPSTREAM_SET, Upstream, check_set};
use crate::vhost::{VHOST_LIMITS, VhostLimit};
use bytestring::ByteString;
use serde_json::{Map, Value};
use std::sync::Arc;

const POLICY: &str = "policy";

fn sized(value: &Value) -> Result<Json, Refused> {
    let json = Json::new(value);
    if json.text().len() > JSON_BYTES_MAX {
        return Err(Refused::bad(format!("the value has more than {JSON_BYTES_MAX} bytes")));
    }
    Ok(json)
}

fn count_parameters(draft: &Draft<'_>) -> usize {
    draft.metadata.parameters().len() + draft.metadata.globals().len()
}

pub(crate) fn set_parameter(
    draft: &mut Draft<'_>,
    vhost: &ByteString,
    component: &ByteString,
    name: &ByteString,
    value: &Value,
) -> Result<Reply, Refused> {
    match &**component {
        POLICY | OPERATOR_POLICY => {
            let Value::Object(map) = value else { return Err(Refused::bad("a policy must be a JSON object")) };
            let spec = spec_of(component == OPERATOR_POLICY, name, map)?;
            return set_policy(draft, vhost, &spec);
        }
        VHOST_LIMITS => return set_limits(draft, vhost, value),
        _ => {}
    }
    let id = draft.host(vhost)?.id;
    check_length("component", component)?;
    check_length("parameter", name)?;
    let json = sized(value)?;
    let before = draft.metadata.parameter(id, component, name);
    let created = before.is_none();
    let author = draft.author.clone();
    let has_author = author.is_none() || draft.metadata.parameter_author(id, component, name) == author.as_ref();
    if before == Some(&json) && has_author {
        return Ok(Reply::Put { created });
    }
    if created {
        check_count("parameters", count_parameters(draft), draft.limits.parameters_max)?;
    }
    match check(component, name, value) {
        Err(why @ LinkError::Invalid(_)) => return Err(Refused::bad(why.text())),
        // A value that RabbitMQ supports and this broker does not must not prevent an import: it is stored, and its status shows why it does not run.
        Err(LinkError::Unsupported(_)) | Ok(()) => {}
    }
    if component == SHOVEL && created {
        let shovels = draft.metadata.parameters().filter(|(_, component, ..)| *component == SHOVEL).count();
        check_count("shovels", shovels, draft.limits.shovels_max)?;
    }
    draft.push(Change::Parameter(id, component.clone(), name.clone(), json, author));
    Ok(Reply::Put { created })
}

/// Checks a parameter of a known component.
fn check(component: &str, name: &str, value: &Value) -> Result<(), LinkError> {
    match component {
        SHOVEL => Shovel::parse(name, value).map(drop),
        UPSTREAM => Upstream::parse(name, value).map(drop),
        UPSTREAM_SET => check_set(name, value),
        _ => Ok(()),
    }
}

/// Sets a single parameter: an unsupported shovel or upstream is refused.
pub(super) fn set_one(
    draft: &mut Draft<'_>,
    vhost: &ByteString,
    component: &ByteString,
    name: &ByteString,
    value: &Value,
) -> Result<Reply, Refused> {
    if let Err(why) = check(component, name, value) {
        draft.host(vhost)?;
        return Err(Refused::bad(why.text()));
    }
    set_parameter(draft, vhost, component, name, value)
}

/// Sets the limits of a virtual host from an object; RabbitMQ writes an empty one as an array.
pub(crate) fn set_limits(draft: &mut Draft<'_>, vhost: &ByteString, value: &Value) -> Result<Reply, Refused> {
    let empty = Map::new();
    let map = match value {
        Value::Object(map) => map,
        Value::Array(items) if items.is_empty() => &empty,
        _ => return Err(Refused::bad("limits must be a JSON object")),
    };
    draft.host(vhost)?;
    // The second limit has to be checked against the result of the first one.
    draft.metadata.to_mut();
    for (name, value) in map {
        let limit = VhostLimit::named(name)
            .ok_or_else(|| Refused::bad(format!("Unrecognised terms [{{<<\"{name}\">>,{value}}}] in limits")))?;
        let value = value.as_i64().ok_or_else(|| Refused::bad(format!("{name} should be a number")))?;
        set_vhost_limit(draft, vhost, limit, Some(value))?;
    }
    Ok(Reply::Done)
}

pub(super) fn clear(
    draft: &mut Draft<'_>,
    vhost: &ByteString,
    component: &ByteString,
    name: &ByteString,
) -> Result<Reply, Refused> {
    match &**component {
        POLICY | OPERATOR_POLICY => return clear_policy(draft, vhost, component == OPERATOR_POLICY, name),
        VHOST_LIMITS => {
            let none = Value::from(-1);
            let limits = [("max-connections", none.clone()), ("max-queues", none)];
            return set_limits(draft, vhost, &limits.map(|(k, v)| (k.to_owned(), v)).into_iter().collect());
        }
        _ => {}
    }
    let id = draft.host(vhost)?.id;
    if draft.metadata.parameter(id, component, name).is_some() {
        draft.push(Change::ParameterRemoved(id, component.clone(), name.clone()));
    }
    Ok(Reply::Done)
}

/// Clears a parameter only if it still has the value that the caller has seen.
pub(super) fn clear_if(
    draft: &mut Draft<'_>,
    vhost: &ByteString,
    component: &ByteString,
    name: &ByteString,
    value: &Json,
) -> Result<Reply, Refused> {
    let id = draft.host(vhost)?.id;
    match draft.metadata.parameter(id, component, name) {
        Some(there) if there == value => clear(draft, vhost, component, name),
        _ => Ok(Reply::Done),
    }
}

pub(crate) fn set_global(draft: &mut Draft<'_>, name: &ByteString, value: &Value) -> Result<Reply, Refused> {
    check_length("parameter", name)?;
    let json = sized(value)?;
    let before = draft.metadata.global(name);
    let created = before.is_none();
    if before == Some(&json) {
        return Ok(Reply::Put { created });
    }
    if created {
        check_count("parameters", count_parameters(draft), draft.limits.parameters_max)?;
    }
    draft.push(Change::Global(name.clone(), json));
    Ok(Reply::Put { created })
}

pub(super) fn clear_global(draft: &mut Draft<'_>, name: &ByteString) -> Result<Reply, Refused> {
    if draft.metadata.global(name).is_some() {
        draft.push(Change::GlobalRemoved(name.clone()));
    }
    Ok(Reply::Done)
}

/// Parses a policy from the JSON of definitions and of the management API.
pub(crate) fn spec_of(operator: bool, name: &ByteString, map: &Map<String, Value>) -> Result<PolicySpec, Refused> {
    let text = |field: &str| match map.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(other) => Err(Refused::bad(format!("{field} should be binary, actually was {other}"))),
    };
    let pattern = text("pattern")?.ok_or_else(|| Refused::bad("pattern is missing"))?;
    let apply_to = text("apply-to")?.unwrap_or("all");
    let apply_to = ApplyTo::named(apply_to).ok_or_else(|| {
        Refused::bad(format!(
            "Validation failed\n\napply-to '{apply_to}' unrecognised; should be one of: 'queues', 'classic_queues', \
             'quorum_queues', 'streams', 'exchanges', or 'all'\n"
        ))
    })?;
    let priority = match map.get("priority") {
        None | Some(Value::Null) => 0,
        // A float is a number as well; its fraction is dropped.
        Some(value) => value.as_i64().or_else(|| value.as_f64().map(|float| float as i64)).ok_or_else(|| {
            Refused::bad(format!("Validation failed\n\npriority should be a number, actually was {value}\n"))
        })?,
    };
    let definition = match map.get("definition") {
        Some(Value::Object(definition)) => definition.clone(),
        // RabbitMQ writes an empty object as an array.
        Some(Value::Array(items)) if items.is_empty() => Map::new(),
        _ => return Err(Refused::bad("Validation failed\n\ndefinition must be a dictionary\n")),
    };
    Ok(PolicySpec { operator, name: name.clone(), pattern: pattern.into(), apply_to, priority, definition })
}

pub(crate) fn set_policy(draft: &mut Draft<'_>, vhost: &ByteString, spec: &PolicySpec) -> Result<Reply, Refused> {
    let id = draft.host(vhost)?.id;
    check_length("policy", &spec.name)?;
    let policy = Policy::checked(id, spec).map_err(Refused::bad)?;
    if policy.definition.text().len() > JSON_BYTES_MAX {
        return Err(Refused::bad(format!("the definition has more than {JSON_BYTES_MAX} bytes")));
    }
    let before = draft.metadata.policy(id, spec.operator, &spec.name);
    let created = before.is_none();
    if before.is_some_and(|before| **before == policy) {
        return Ok(Reply::Put { created });
    }
    if created {
        check_count("policies", draft.metadata.policies().len(), draft.limits.policies_max)?;
    }
    set_policies(draft, id, Change::Policy(Arc::new(policy)));
    Ok(Reply::Put { created })
}

pub(super) fn clear_policy(
    draft: &mut Draft<'_>,
    vhost: &ByteString,
    operator: bool,
    name: &ByteString,
) -> Result<Reply, Refused> {
    let id = draft.host(vhost)?.id;
    if draft.metadata.policy(id, operator, name).is_some() {
        set_policies(draft, id, Change::PolicyRemoved(id, operator, name.clone()));
    }
    Ok(Reply::Done)
}

fn set_policies(draft: &mut Draft<'_>, vhost: polylogue_router::VhostId, change: Change) {
    // Alternate exchanges are computed from the new policies.
    draft.metadata.to_mut();
    draft.push(change);
    draft.policies_of.insert(vhost);
}
