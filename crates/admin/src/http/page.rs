//! Pagination of long lists: `?search=TEXT&offset=N&limit=N`.

use super::error::Failure;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use schemars::JsonSchema;
use serde::Deserialize;
use std::borrow::Cow;

/// The requested part of a list; the whole list without parameters.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    /// Only entries whose name contains this, ignoring case.
    #[serde(default)]
    search: String,
    /// Number of entries to skip.
    #[serde(default)]
    offset: usize,
    /// Maximum number of entries.
    limit: Option<usize>,
}

impl Page {
    /// A page of the entries whose name contains `search`.
    pub(super) fn new(search: &str, offset: usize, limit: Option<usize>) -> Page {
        Page { search: search.to_lowercase(), offset, limit }
    }

    /// Parses the query of a request.
    ///
    /// # Errors
    /// 400 for unknown parameters.
    pub(super) fn of(query: Result<Query<Page>, QueryRejection>) -> Result<Page, Failure> {
        let Query(page) = query.map_err(|e| Failure::invalid(e.body_text()))?;
        Ok(Page::new(&page.search, page.offset, page.limit))
    }

    /// Returns the requested part of `all`, and the number of entries that match.
    pub(super) fn cut<T>(
        &self,
        all: impl IntoIterator<Item = T>,
        name: impl Fn(&T) -> Cow<'_, str>,
    ) -> (Vec<T>, usize) {
        let is_wanted = |one: &T| self.search.is_empty() || name(one).to_lowercase().contains(&self.search);
        let (mut part, mut total) = (Vec::new(), 0);
        for one in all.into_iter().filter(is_wanted) {
            if total >= self.offset && self.limit.is_none_or(|limit| part.len() < limit) {
                part.push(one);
            }
            total += 1;
        }
        (part, total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_cut_and_all_are_counted() {
        let all = ["orders", "Orders-eu", "bills", "reorder"];
        let cut = |page: Page| page.cut(all, |name| Cow::Borrowed(*name));
        assert_eq!(cut(Page::new("", 0, None)), (all.to_vec(), 4));
        assert_eq!(cut(Page::new("", 1, Some(2))), (vec!["Orders-eu", "bills"], 4));
        assert_eq!(cut(Page::new("ORDER", 0, Some(2))), (vec!["orders", "Orders-eu"], 3));
        assert_eq!(cut(Page::new("order", 2, Some(2))), (vec!["reorder"], 3));
        assert_eq!(cut(Page::new("order", 9, Some(2))), (vec![], 3));
        assert_eq!(cut(Page::new("order", 0, Some(0))), (vec![], 3));
    }
}
