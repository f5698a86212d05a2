//! `NAME=VALUE` on the command line.

use super::Failure;
use std::collections::BTreeMap;

/// The pairs that were given under an argument of that name.
pub(super) fn pairs(given: &[String], argument: &str) -> Result<BTreeMap<String, String>, Failure> {
    let mut pairs = BTreeMap::new();
    for pair in given {
        let (name, value) =
            pair.split_once('=').ok_or_else(|| Failure::Usage(format!("{argument}{pair}: expected NAME=VALUE")))?;
        pairs.insert(name.trim().to_owned(), value.to_owned());
    }
    Ok(pairs)
}
