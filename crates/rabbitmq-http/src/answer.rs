//! Answers that are successes.

use super::call::Call;
use super::error::Failure;
use super::list;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

/// The default sort fields of a list.
pub(super) const BY_NAME: &[&str] = &["vhost", "name"];

/// See the module.
#[derive(Debug)]
pub(super) enum Answer {
    /// One thing, or a list that is never paged.
    One(Value),
    /// What is ready to be shown: nothing of it is left out.
    Whole(Value),
    /// A list, and what it is sorted by.
    List(Vec<Value>, &'static [&'static str]),
    /// A list that a page is asked of if anybody wants one.
    Paged(Vec<Value>),
    /// It was made.
    Created,
    /// It was made, and is there.
    CreatedAt(String),
    /// It is done.
    Done,
}

impl Answer {
    /// What `PUT` answers.
    pub(super) fn put(created: bool) -> Answer {
        if created { Answer::Created } else { Answer::Done }
    }

    pub(super) fn into_response(self, call: &Call<'_>) -> Result<Response, Failure> {
        let value = match self {
            Answer::Created => return Ok(StatusCode::CREATED.into_response()),
            Answer::Done => return Ok(StatusCode::NO_CONTENT.into_response()),
            Answer::CreatedAt(place) => {
                let place = HeaderValue::from_str(&place).map_err(|_| Failure::internal("no place of a header"))?;
                return Ok((StatusCode::CREATED, [(header::LOCATION, place)]).into_response());
            }
            Answer::One(value) => list::columns(value, &call.query),
            Answer::Whole(value) => value,
            Answer::List(mut items, by) => {
                list::sort(&mut items, by, &call.query);
                list::columns(Value::Array(items), &call.query)
            }
            Answer::Paged(mut items) => {
                let paging = list::Paging::of(&call.query)?;
                list::sort(&mut items, BY_NAME, &call.query);
                match paging {
                    None => list::columns(Value::Array(items), &call.query),
                    Some(paging) => {
                        let (items, mut about) = list::page(items, &paging)?;
                        about.insert("items".to_owned(), list::columns(Value::Array(items), &call.query));
                        Value::Object(about)
                    }
                }
            }
        };
        let no_cache = [(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"))];
        Ok((no_cache, Json(value)).into_response())
    }
}
