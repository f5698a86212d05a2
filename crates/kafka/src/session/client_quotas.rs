//! DescribeClientQuotas and AlterClientQuotas (KIP-546). Rules and texts are Kafka's (`ClientQuotaControlManager`, `ClientQuotasImage`). Quotas of
//! addresses (`ip`) and of topic mutations (`controller_mutation_rate`) are not supported; setting one is refused with that reason.

use super::errors;
use super::work::{Pending, Step, WaitsFor, Work};
use polylogue_api::{MachineId, Reply, Request};
use polylogue_auth::{
    AlterQuotas, Operation, QuotaEntity, QuotaKind, QuotaLimits, QuotaName, UsersCommand, UsersRefusal, UsersReply,
};
use polylogue_kafka_codec::alter_client_quotas::{
    AlterClientQuotasRequest, AlterClientQuotasResponse, EntityData, OpData, RequestEntryData, ResponseEntryData,
};
use polylogue_kafka_codec::describe_client_quotas::{
    ComponentData, DescribeClientQuotasRequest, DescribeClientQuotasResponse, EntityData as DescribedEntity, EntryData,
    ValueData,
};
use polylogue_kafka_codec::{DecodeError, ErrorCode, Message, Reader, StrBytes};
use std::collections::BTreeSet;

/// Entity types.
const USER: &str = "user";
const CLIENT_ID: &str = "client-id";
const IP: &str = "ip";
/// Match types of a filter: one name, the default, or any.
const EXACT: i8 = 0;
const DEFAULT: i8 = 1;
const SPECIFIED: i8 = 2;
/// Keys of Kafka that are not supported.
const NOT_KEPT: [&str; 2] = ["controller_mutation_rate", "connection_creation_rate"];

/// The error of a refused entry.
type Refusal = (ErrorCode, StrBytes);

fn invalid(text: impl Into<StrBytes>) -> Refusal {
    (ErrorCode::InvalidRequest, text.into())
}

/// A filter's condition on one entity type.
enum Wanted {
    Only(QuotaName),
    Any,
}

impl Wanted {
    fn is_met_by(&self, name: &QuotaName) -> bool {
        match self {
            Wanted::Only(wanted) => wanted == name,
            Wanted::Any => true,
        }
    }
}

/// A parsed filter.
#[derive(Default)]
struct Filter {
    user: Option<Wanted>,
    client_id: Option<Wanted>,
    /// Matches nothing: there are no quotas of addresses.
    is_of_ip: bool,
    /// Matches only entities without further types.
    strict: bool,
}

impl Filter {
    fn of(components: Vec<ComponentData>, strict: bool) -> Result<Filter, Refusal> {
        let mut filter = Filter { strict, ..Filter::default() };
        for component in components {
            filter.add(component)?;
        }
        if filter.is_of_ip && (filter.user.is_some() || filter.client_id.is_some()) {
            return Err(invalid(
                "Invalid entity filter component combination. IP filter component should not be used with user or clientId \
                 filter component.",
            ));
        }
        Ok(filter)
    }

    fn add(&mut self, component: ComponentData) -> Result<(), Refusal> {
        let ComponentData { entity_type, match_type, r#match: name } = component;
        let mut of_ip = None;
        let place = match &*entity_type {
            "" => return Err(invalid("Invalid empty entity type.")),
            USER => &mut self.user,
            CLIENT_ID => &mut self.client_id,
            IP => &mut of_ip,
            other => return Err((ErrorCode::UnsupportedVersion, format!("Unsupported entity type {other}").into())),
        };
        if place.is_some() || (&*entity_type == IP && self.is_of_ip) {
            return Err(invalid(format!("Entity type {entity_type} cannot appear more than once in the filter.")));
        }
        let wanted = match (match_type, name) {
            (EXACT, Some(name)) => Wanted::Only(QuotaName::Named(name.to_string())),
            (DEFAULT, None) => Wanted::Only(QuotaName::Others),
            (SPECIFIED, None) => Wanted::Any,
            (EXACT, None) => return Err(invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")),
            (DEFAULT | SPECIFIED, Some(_)) => {
                let kind = if match_type == DEFAULT { "DEFAULT" } else { "SPECIFIED" };
                let text = format!("Request specified MATCH_TYPE_{kind}, but also specified a match string.");
                return Err(invalid(text));
            }
            (other, _) => return Err(invalid(format!("Unknown match type {other}"))),
        };
        *place = Some(wanted);
        self.is_of_ip |= &*entity_type == IP;
        Ok(())
    }

    fn means(&self, entity: &QuotaEntity) -> bool {
        let strict = self.strict;
        let is_met = |wanted: &Option<Wanted>, name: &Option<QuotaName>| match (wanted, name) {
            (Some(wanted), Some(name)) => wanted.is_met_by(name),
            (Some(_), None) => false,
            (None, name) => !strict || name.is_none(),
        };
        !self.is_of_ip && is_met(&self.user, &entity.user) && is_met(&self.client_id, &entity.client_id)
    }
}

pub(super) fn start_describe(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let request = DescribeClientQuotasRequest::decode(body, work.head.version)?;
    let filter = if work.may_cluster(Operation::DescribeConfigs) {
        Filter::of(request.components, request.strict)
    } else {
        Err(errors::with_message(ErrorCode::ClusterAuthorizationFailed))
    };
    let response = match filter {
        Ok(filter) => {
            let table = work.users.quotas();
            let entries = table.iter().filter(|(entity, _)| filter.means(entity)).map(described).collect();
            DescribeClientQuotasResponse {
                error_message: None,
                entries: Some(entries),
                ..DescribeClientQuotasResponse::default()
            }
        }
        Err((error, text)) => DescribeClientQuotasResponse {
            error_code: error.code(),
            error_message: Some(text),
            entries: None,
            ..DescribeClientQuotasResponse::default()
        },
    };
    Ok(work.answer(&response))
}

fn described((entity, limits): (&QuotaEntity, &QuotaLimits)) -> EntryData {
    let part = |kind: &'static str, name: &Option<QuotaName>| {
        let name = match name.as_ref()? {
            QuotaName::Others => None,
            QuotaName::Named(name) => Some(name.as_str().into()),
        };
        Some(DescribedEntity { entity_type: StrBytes::from_static(kind), entity_name: name })
    };
    let value = |(kind, value): (QuotaKind, f64)| ValueData { key: StrBytes::from_static(kind.key()), value };
    EntryData {
        entity: [part(USER, &entity.user), part(CLIENT_ID, &entity.client_id)].into_iter().flatten().collect(),
        values: limits.iter().map(value).collect(),
    }
}

/// Parses one entry of a request.
fn alteration(entry: &RequestEntryData) -> Result<AlterQuotas, Refusal> {
    let mut entity = QuotaEntity::default();
    for EntityData { entity_type, entity_name } in &entry.entity {
        let place = match &**entity_type {
            USER => &mut entity.user,
            CLIENT_ID => &mut entity.client_id,
            IP => {
                let text = "Quotas of addresses (ip) are not kept by this broker; nothing was changed.";
                return Err(invalid(text));
            }
            other => return Err(invalid(format!("Unhandled client quota entity type: {other}"))),
        };
        let name = entity_name.as_ref();
        *place = Some(name.map_or(QuotaName::Others, |name| QuotaName::Named(name.to_string())));
    }
    let refused = |error: polylogue_auth::AuthError| invalid(error.text);
    entity.check().map_err(refused)?;
    let mut seen = BTreeSet::new();
    let mut changes = Vec::with_capacity(entry.ops.len());
    for OpData { key, value, remove } in &entry.ops {
        let kind = QuotaKind::keyed(key).ok_or_else(|| match NOT_KEPT.contains(&&**key) {
            true => invalid(format!("Quotas of {key} are not kept by this broker; nothing was changed.")),
            false => invalid(format!("Invalid configuration key {key}")),
        })?;
        if !seen.insert(kind) {
            return Err(invalid(format!("Duplicate quota key {key}; nothing was changed.")));
        }
        if !remove {
            kind.check(*value).map_err(refused)?;
        }
        changes.push((kind, (!remove).then_some(*value)));
    }
    Ok(AlterQuotas { entity, changes })
}

pub(super) fn start_alter(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let request = AlterClientQuotasRequest::decode(body, work.head.version)?;
    let is_allowed = work.may_cluster(Operation::AlterConfigs);
    let mut alterations = Vec::new();
    let entries = request.entries.into_iter().map(|entry| {
        let judged = match is_allowed {
            true => alteration(&entry),
            false => Err(errors::with_message(ErrorCode::ClusterAuthorizationFailed)),
        };
        let refusal = judged.map(|alteration| alterations.push(alteration)).err();
        (entry.entity, refusal)
    });
    let altering = Altering { rows: entries.collect() };
    if alterations.is_empty() || request.validate_only {
        return Ok(altering.answer(work));
    }
    let token = work.ask(Request::Machine(MachineId::AMQP, Box::new(UsersCommand::AlterQuotas(alterations))));
    Ok(Step::Wait(token, Box::new(altering)))
}

/// Changes that wait for their commit. Rows without a refusal were requested from the broker.
#[derive(Debug)]
struct Altering {
    rows: Vec<(Vec<EntityData>, Option<Refusal>)>,
}

impl Altering {
    fn answer(self, work: &Work<'_>) -> Step {
        let row = |(entity, refusal): (Vec<EntityData>, Option<Refusal>)| {
            let (error, error_message) = refusal.map_or((ErrorCode::None, None), |(error, text)| (error, Some(text)));
            ResponseEntryData { error_code: error.code(), error_message, entity }
        };
        work.answer(&AlterClientQuotasResponse {
            entries: self.rows.into_iter().map(row).collect(),
            ..AlterClientQuotasResponse::default()
        })
    }
}

fn refused(why: UsersRefusal) -> Refusal {
    match why {
        UsersRefusal::NotFound => errors::with_message(ErrorCode::InvalidRequest),
        UsersRefusal::Refused(text) => (ErrorCode::PolicyViolation, text.into()),
    }
}

impl Pending for Altering {
    fn on_reply(mut self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step {
        let Reply::Machine(reply) = reply else { return work.wrong_reply() };
        let open = self.rows.iter_mut().filter(|(_, refusal)| refusal.is_none());
        match reply.map(|answer| answer.downcast::<UsersReply>().map(|answer| *answer)) {
            Ok(Ok(UsersReply::Each(results))) => {
                let open: Vec<_> = open.collect();
                if open.len() != results.len() {
                    return work.wrong_reply();
                }
                open.into_iter().zip(results).for_each(|((_, row), result)| *row = result.err().map(refused));
            }
            Err(why) => open.for_each(|(_, row)| *row = Some(errors::of_metadata(why))),
            Ok(_) => return work.wrong_reply(),
        }
        self.answer(work)
    }

    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Machine
    }
}
