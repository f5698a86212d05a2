//! Access control lists.

use super::checks::check_count;
use super::draft::Draft;
use crate::change::Change;
use crate::command::Reply;
use polylogue_auth::{Acl, AclFilter, UsersRefusal, find_acls};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The most filters of one command that match by scanning all bindings.
const WIDE_FILTERS_MAX: usize = 32;

/// Each binding is checked separately, in order, after those before it.
pub(super) fn create(draft: &mut Draft<'_>, acls: &[Acl]) -> Reply {
    let mut new = BTreeSet::new();
    let results = acls.iter().map(|acl| {
        acl.check().map_err(|error| UsersRefusal::Refused(error.text))?;
        if draft.metadata.acls().contains(acl) || new.contains(acl) {
            return Ok(());
        }
        let count = draft.metadata.acls().len() + new.len();
        check_count("ACLs", count, draft.limits.acls_max).map_err(|why| UsersRefusal::Refused(why.text))?;
        new.insert(acl.clone());
        Ok(())
    });
    let results = results.collect();
    new.into_iter().for_each(|acl| draft.push(Change::Acl(Arc::new(acl))));
    Reply::Each(results)
}

/// A binding is reported for the first filter that matches it.
pub(super) fn delete(draft: &mut Draft<'_>, filters: &[AclFilter]) -> Reply {
    let mut gone = BTreeSet::new();
    let mut wide = 0;
    let results = filters.iter().map(|filter| {
        wide += usize::from(filter.exactly().is_none());
        if wide > WIDE_FILTERS_MAX {
            let text = format!("One request may have {WIDE_FILTERS_MAX} filters that can mean more than one ACL");
            return Err(UsersRefusal::Refused(text));
        }
        let mut found = find_acls(draft.metadata.acls(), filter);
        found.retain(|acl| gone.insert(acl.clone()));
        Ok(found)
    });
    let results = results.collect();
    gone.into_iter().for_each(|acl| draft.push(Change::AclRemoved(acl)));
    Reply::DeletedAcls(results)
}
