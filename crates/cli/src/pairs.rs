//! `NAME=VALUE` on the command line.

use super::Failure;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Parses the values of an argument of that name.
pub(super) fn pairs(given: &[String], argument: &str) -> Result<BTreeMap<String, String>, Failure> {
    let mut pairs = BTreeMap::new();
    for pair in given {
        let (name, value) =
            pair.split_once('=').ok_or_else(|| Failure::Usage(format!("{argument}{pair}: expected NAME=VALUE")))?;
        pairs.insert(name.trim().to_owned(), value.to_owned());
    }
    Ok(pairs)
}

/// As [`pairs`], for RabbitMQ arguments: a value is JSON, or a string if it is not.
pub(super) fn arguments(given: &[String]) -> Result<Map<String, Value>, Failure> {
    let value = |text: String| serde_json::from_str(&text).unwrap_or(Value::String(text));
    Ok(pairs(given, "--argument ")?.into_iter().map(|(name, text)| (name, value(text))).collect())
}
