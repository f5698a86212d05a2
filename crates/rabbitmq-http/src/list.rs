//! Lists: sorting, filtering by name, paging, and selection of columns.
//!
//! Values are ordered like Erlang terms in RabbitMQ: numbers, then atoms (`true` and the like), objects, arrays, strings; a missing value
//! counts as 0.

use super::error::Failure;
use super::target::Query;
use polylogue_amqp_model::Pattern;
use serde_json::{Map, Value, json};
use std::cmp::Ordering;

/// The default page size.
const PAGE_SIZE: u64 = 100;
/// The maximum page size.
const PAGE_SIZE_MAX: u64 = 500;

/// A requested page.
#[derive(Debug)]
pub(super) struct Paging {
    page: u64,
    size: u64,
    name: Filter,
}

#[derive(Debug)]
enum Filter {
    All,
    /// A substring, in lower case.
    Part(String),
    Regex(Pattern),
}

impl Filter {
    fn takes(&self, item: &Value) -> bool {
        let name = item.get("name").and_then(Value::as_str).unwrap_or_default();
        match self {
            Filter::All => true,
            Filter::Part(part) => name.to_lowercase().contains(part.as_str()),
            Filter::Regex(pattern) => pattern.matches(name),
        }
    }
}

impl Paging {
    /// Returns the page that a query requests, `None` for the whole list.
    ///
    /// # Errors
    /// 400 for invalid numbers.
    pub(super) fn of(query: &Query) -> Result<Option<Paging>, Failure> {
        let number = |name: &str| match query.get(name).map(str::parse::<i64>) {
            None => Ok(None),
            Some(Ok(number)) => Ok(Some(number)),
            Some(Err(_)) => Err(Failure::bad_page("bad_request", "Pagination parameters are invalid".to_owned())),
        };
        let (page, size) = (number("page")?, number("page_size")?);
        let Some(page) = page else { return Ok(None) };
        let asked = size.unwrap_or(PAGE_SIZE as i64);
        let (Some(page), Some(size)) = (
            u64::try_from(page).ok().filter(|page| *page > 0),
            u64::try_from(asked).ok().filter(|size| (1..=PAGE_SIZE_MAX).contains(size)),
        ) else {
            let text = format!("Invalid pagination parameters: page number {page}, page size {asked}");
            return Err(Failure::bad_page("invalid_pagination_parameters", text));
        };
        let name = match query.get("name").filter(|name| !name.is_empty()) {
            None => Filter::All,
            Some(name) if query.is_true("use_regex") => {
                let pattern = Pattern::policy(format!("(?i){name}").into());
                Filter::Regex(pattern.map_err(|why| Failure::bad_page("bad_request", why))?)
            }
            Some(name) => Filter::Part(name.to_lowercase()),
        };
        Ok(Some(Paging { page, size, name }))
    }
}

/// Returns the value at a path `a.b.c`.
fn at<'v>(item: &'v Value, key: &str) -> Option<&'v Value> {
    key.split('.').try_fold(item, |value, part| value.get(part))
}

/// Returns the rank of a type in Erlang's term order.
fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::Bool(_) | Value::Null => 1,
        Value::Object(_) => 2,
        Value::Array(_) => 3,
        Value::String(_) => 4,
    }
}

/// Returns the Erlang atom that represents a value.
fn atom(value: &Value) -> &'static str {
    match value {
        Value::Bool(false) => "false",
        Value::Bool(true) => "true",
        _ => "null",
    }
}

/// A total order: sorting by an order that is not total may panic.
fn order(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            let (near_a, near_b) = (a.as_f64().unwrap_or_default(), b.as_f64().unwrap_or_default());
            // Integers that are equal as floats are compared exactly.
            near_a.total_cmp(&near_b).then_with(|| a.as_i128().cmp(&b.as_i128()))
        }
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(_) | Value::Null, Value::Bool(_) | Value::Null) => atom(a).cmp(atom(b)),
        _ => rank(a).cmp(&rank(b)),
    }
}

/// Sorts by the query's field, then by these keys.
pub(super) fn sort(items: &mut [Value], by: &[&str], query: &Query) {
    let own = query.get("sort").filter(|key| !key.is_empty());
    let zero = Value::from(0);
    items.sort_by(|a, b| {
        let keys = own.into_iter().chain(by.iter().copied());
        let orders = keys.map(|key| order(at(a, key).unwrap_or(&zero), at(b, key).unwrap_or(&zero)));
        orders.fold(Ordering::Equal, Ordering::then)
    });
    if query.is_true("sort_reverse") {
        items.reverse();
    }
}

/// Returns one page of a sorted list, and the paging fields.
///
/// # Errors
/// 400 for a page after the last one.
pub(super) fn page(items: Vec<Value>, paging: &Paging) -> Result<(Vec<Value>, Map<String, Value>), Failure> {
    let total = items.len();
    let found: Vec<Value> = items.into_iter().filter(|item| paging.name.takes(item)).collect();
    let filtered = found.len() as u64;
    let from = (paging.page - 1).saturating_mul(paging.size);
    // As in RabbitMQ, the first page exists even if it is empty.
    if from > filtered {
        let (page, size) = (paging.page, paging.size);
        let text = format!("Page out of range, page: {page} page size: {size}, len: {filtered}");
        return Err(Failure::bad_page("page_out_of_range", text));
    }
    let items: Vec<Value> = found.into_iter().skip(from as usize).take(paging.size as usize).collect();
    let about = json!({
        "total_count": total,
        "item_count": items.len(),
        "filtered_count": filtered,
        "page": paging.page,
        "page_size": paging.size,
        "page_count": filtered.div_ceil(paging.size),
    });
    let Value::Object(about) = about else { return Err(Failure::internal("the paging fields are not an object")) };
    Ok((items, about))
}

/// Keeps the fields that `columns` names: `name,message_stats.publish_details.rate`.
pub(super) fn columns(value: Value, query: &Query) -> Value {
    let Some(columns) = query.get("columns") else { return value };
    let columns: Vec<Vec<&str>> = columns
        .split(',')
        .map(|column| column.split('.').filter(|part| !part.is_empty()).collect::<Vec<_>>())
        .filter(|column| !column.is_empty())
        .collect();
    let columns: Vec<&[&str]> = columns.iter().map(Vec::as_slice).collect();
    keep(value, &columns)
}

fn keep(value: Value, columns: &[&[&str]]) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(|item| keep(item, columns)).collect(),
        Value::Object(fields) => {
            let one = |(key, value): (String, Value)| {
                let wanted = columns.iter().filter(|column| column.first() == Some(&key.as_str()));
                let below: Vec<&[&str]> = wanted.filter_map(|column| column.get(1..)).collect();
                match below.iter().any(|rest| rest.is_empty()) {
                    true => Some((key, value)),
                    false if below.is_empty() => None,
                    false => Some((key, keep(value, &below))),
                }
            };
            Value::Object(fields.into_iter().filter_map(one).collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Query {
        Query::parse(text).unwrap()
    }

    fn names(items: &[Value]) -> Vec<&str> {
        items.iter().map(|item| item["name"].as_str().unwrap()).collect()
    }

    fn some() -> Vec<Value> {
        vec![
            json!({"name": "b", "vhost": "/", "messages": 2, "stats": {"rate": 0.5}}),
            json!({"name": "a", "vhost": "/", "messages": 10, "stats": {"rate": 1.5}}),
            json!({"name": "C", "vhost": "/"}),
        ]
    }

    /// Regression test: three values were each below the next, in a cycle; sorting by such an order may panic.
    #[test]
    fn any_values_are_in_one_order() {
        let values = [
            json!(9_007_199_254_740_993_i64),
            json!(9_007_199_254_740_992.0),
            json!(9_007_199_254_740_992_i64),
            json!(u64::MAX),
            json!(-0.0),
            json!(0),
            json!(true),
            json!(false),
            json!(null),
            json!("x"),
            json!([]),
            json!({}),
        ];
        let count = values.len();
        for at in 0..count.pow(3) {
            let [a, b, c] = [at / count / count, at / count % count, at % count].map(|at| &values[at]);
            assert_eq!(order(a, b), order(b, a).reverse(), "{a} {b}");
            if order(a, b) != Ordering::Greater && order(b, c) != Ordering::Greater {
                assert_ne!(order(a, c), Ordering::Greater, "{a} {b} {c}");
                let equal = order(a, b) == Ordering::Equal && order(b, c) == Ordering::Equal;
                assert_eq!(order(a, c) == Ordering::Equal, equal, "{a} {b} {c}");
            }
        }
    }

    #[test]
    fn lists_are_sorted_by_any_field() {
        for (text, expected) in [
            ("", ["C", "a", "b"]),
            ("sort=messages", ["C", "b", "a"]),
            ("sort=stats.rate&sort_reverse=true", ["a", "b", "C"]),
            ("sort=nothing", ["C", "a", "b"]),
        ] {
            let mut items = some();
            sort(&mut items, &["vhost", "name"], &query(text));
            assert_eq!(names(&items), expected, "{text}");
        }
    }

    #[test]
    fn a_page_says_what_it_is_of() {
        let paging = Paging::of(&query("page=2&page_size=2")).unwrap().unwrap();
        let (items, about) = page(some(), &paging).unwrap();
        assert_eq!(names(&items), ["C"]);
        let expected = json!({
            "total_count": 3, "item_count": 1, "filtered_count": 3, "page": 2, "page_size": 2, "page_count": 2
        });
        assert_eq!(Value::Object(about), expected);
        for (text, count) in [("name=A", 1), ("name=^[ab]&use_regex=true", 2), ("name=^c&use_regex=true", 1)] {
            let paging = Paging::of(&query(&format!("page=1&{text}"))).unwrap().unwrap();
            assert_eq!(page(some(), &paging).unwrap().0.len(), count, "{text}");
        }
    }

    #[test]
    fn pages_that_cannot_be_are_refused() {
        for (text, error) in [
            ("page=x", "bad_request"),
            ("page=0", "invalid_pagination_parameters"),
            ("page=1&page_size=501", "invalid_pagination_parameters"),
            ("page=1&page_size=-1", "invalid_pagination_parameters"),
            ("page=1&name=(&use_regex=true", "bad_request"),
        ] {
            assert_eq!(Paging::of(&query(text)).unwrap_err().error, error, "{text}");
        }
        assert!(Paging::of(&query("page_size=7")).unwrap().is_none());
        let paging = Paging::of(&query("page=9")).unwrap().unwrap();
        assert_eq!(page(some(), &paging).unwrap_err().error, "page_out_of_range");
    }

    #[test]
    fn columns_choose_fields_and_fields_of_fields() {
        let item = json!([{"name": "a", "stats": {"rate": 1, "sum": 2}, "messages": 3}]);
        let kept = |text: &str| columns(item.clone(), &query(text));
        assert_eq!(kept("columns=name,stats.rate"), json!([{"name": "a", "stats": {"rate": 1}}]));
        assert_eq!(kept("columns=stats"), json!([{"stats": {"rate": 1, "sum": 2}}]));
        assert_eq!(kept("columns="), json!([{}]));
        assert_eq!(kept(""), item);
    }
}
