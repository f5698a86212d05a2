//! Parts of long lists: `?search=TEXT&offset=N&limit=N`.

use super::error::Failure;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use schemars::JsonSchema;
use serde::Deserialize;
use std::borrow::Cow;

/// Which part of a list is wanted; all of it without.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    /// Only what has this in its name, whatever the case.
    #[serde(default)]
    search: String,
    /// How many are left out at the beginning.
    #[serde(default)]
    offset: usize,
    /// How many there are at the most.
    limit: Option<usize>,
}

impl Page {
    /// This part of what has `search` in its name.
    pub(super) fn new(search: &str, offset: usize, limit: Option<usize>) -> Page {
        Page { search: search.to_lowercase(), offset, limit }
    }

    /// Out of the query of a request.
    ///
    /// # Errors
    /// 400 for anything else in it.
    pub(super) fn of(query: Result<Query<Page>, QueryRejection>) -> Result<Page, Failure> {
        let Query(page) = query.map_err(|e| Failure::invalid(e.body_text()))?;
        Ok(Page::new(&page.search, page.offset, page.limit))
    }

    /// The part of `all` that is wanted, and how many there would be of all.
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
