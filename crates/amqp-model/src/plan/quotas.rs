//! Quotas.

use super::checks::check_count;
use super::draft::Draft;
use crate::change::Change;
use crate::command::Reply;
use polylogue_auth::{AlterQuotas, UsersRefusal};

/// Each entity is checked separately, in order, after those before it.
pub(super) fn alter(draft: &mut Draft<'_>, parts: &[AlterQuotas]) -> Reply {
    draft.metadata.to_mut();
    Reply::Each(parts.iter().map(|part| alter_one(draft, part)).collect())
}

fn alter_one(draft: &mut Draft<'_>, part: &AlterQuotas) -> Result<(), UsersRefusal> {
    let refused = |error: polylogue_auth::AuthError| UsersRefusal::Refused(error.text);
    part.entity.check().map_err(refused)?;
    let before = draft.metadata.quotas().get(&part.entity).copied();
    let mut limits = before.unwrap_or_default();
    for (kind, value) in &part.changes {
        value.map_or(Ok(()), |value| kind.check(value)).map_err(refused)?;
        limits.set(*kind, *value);
    }
    if limits == before.unwrap_or_default() {
        return Ok(());
    }
    if limits.is_empty() {
        draft.push(Change::QuotasRemoved(part.entity.clone()));
        return Ok(());
    }
    if before.is_none() {
        let count = draft.metadata.quotas().len();
        check_count("entities with quotas", count, draft.limits.quotas_max)
            .map_err(|why| UsersRefusal::Refused(why.text))?;
    }
    draft.push(Change::Quotas(part.entity.clone(), limits));
    Ok(())
}
