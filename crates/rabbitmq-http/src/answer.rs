//! Successful responses.

use super::call::Call;
use super::error::Failure;
use super::list;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

/// The default sort fields of a list.
pub(super) const BY_NAME: &[&str] = &["vhost", "name"];

/// The response to a request that succeeded.
#[derive(Debug)]
pub(super) enum Answer {
    /// A single object, or a list that is never paged.
    One(Value),
    /// A value that is returned as it is, whatever columns the query names.
    Whole(Value),
    /// A list, with its default sort fields.
    List(Vec<Value>, &'static [&'static str]),
    /// A list that supports paging.
    Paged(Vec<Value>),
    /// 201: created.
    Created,
    /// 201 with a `Location`.
    CreatedAt(String),
    /// 204.
    Done,
}

impl Answer {
    /// The response to `PUT`.
    pub(super) fn put(created: bool) -> Answer {
        if created { Answer::Created } else { Answer::Done }
    }

    pub(super) fn into_response(self, call: &Call<'_>) -> Result<Response, Failure> {
        let value = match self {
            Answer::Created => return Ok(StatusCode::CREATED.into_response()),
            Answer::Done => return Ok(StatusCode::NO_CONTENT.into_response()),
            Answer::CreatedAt(place) => {
                let place = HeaderValue::from_str(&place)
                    .map_err(|_| Failure::internal("the location is not a valid header value"))?;
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
