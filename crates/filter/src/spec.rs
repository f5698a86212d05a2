//! The filter of a subscription as stated by the client, and its wire form.

use crate::error::{FilterError, FilterErrorKind};
use crate::limits::Limits;
use polylogue_types::bin::{BinError, BinReader, BinWriter};
use std::collections::BTreeSet;

/// A filter as stated by the client. [`crate::Filter::compile`] makes it applicable.
///
/// ```text
/// spec        u8 version = 1, u8 kind, body of the kind
///   0 all
///   1 tags    u32 count, count times: text                                       ascending, no duplicates
///   2 values  u8 unfiltered 0 | 1, u32 count, count times: bytes                 ascending, no duplicates
///   3 headers u8 any 0 | 1, u32 count, count times: text name, condition
///   4 SQL92   text
///
/// condition   u8 0 present | 1 bool: u8 0 | 1 | 2 integer: i64 | 3 double: u64, its bits | 4 bytes
/// bytes       u32 length, that many bytes;  text: the same, UTF-8
/// ```
///
/// Numbers are little endian. Equal specs have equal bytes. The kind 4 is RocketMQ's language; another one gets a kind of its own.
#[derive(Clone, PartialEq, Debug)]
pub enum FilterSpec {
    /// Every message.
    All,
    /// Messages with one of these tags: RocketMQ's `a || b`, a filter set of TubeMQ. None of no tags.
    Tags(BTreeSet<String>),
    /// Messages with one of these filter values (RabbitMQ streams), none of no values.
    Values {
        /// The values.
        values: BTreeSet<Vec<u8>>,
        /// Messages without a filter value too.
        unfiltered: bool,
    },
    /// Messages whose properties fulfil conditions, as in a headers exchange of RabbitMQ.
    Headers {
        /// Whether one condition suffices. Any of no conditions matches nothing, all of none everything.
        any: bool,
        /// The conditions, in the order in which they are checked.
        conditions: Vec<Condition>,
    },
    /// Messages that a selector matches; see [`crate::Selector`].
    Sql92(String),
}

/// A condition on a property.
#[derive(Clone, PartialEq, Debug)]
pub struct Condition {
    /// The name of the property.
    pub name: String,
    /// The required value; `None` if the property must only be present.
    pub value: Option<HeaderValue>,
}

/// A required value. An integer is never equal to a double; the width of an integer is ignored, and so is the difference
/// between text and bytes. Arrays, tables and decimals cannot be required.
#[derive(Clone, PartialEq, Debug)]
pub enum HeaderValue {
    /// True or false.
    Bool(bool),
    /// An integer of any width.
    Integer(i64),
    /// A floating-point number. Both zeros are equal.
    Double(f64),
    /// Text or bytes.
    Bytes(Vec<u8>),
}

/// The `x-match` argument of a headers exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeadersMatch {
    /// All conditions, except those on names that begin with `x-`.
    All,
    /// Any condition, except those on names that begin with `x-`.
    Any,
    /// All conditions.
    AllWithX,
    /// Any condition.
    AnyWithX,
}

const VERSION: u8 = 1;
/// Fewest bytes of a text or bytes.
const BYTES_MIN: usize = 4;
/// Fewest bytes of a condition.
const CONDITION_BYTES_MIN: usize = BYTES_MIN + 1;

impl FilterSpec {
    /// The filter of RocketMQ's tag expression: `*` or an empty one for all, else tags between `||`.
    ///
    /// Spaces around a tag and empty tags are dropped, so that ` || ` has no tags and matches nothing.
    ///
    /// # Errors
    /// If there is nothing but separators; RocketMQ's text.
    pub fn tags(expression: &str) -> Result<FilterSpec, FilterError> {
        if matches!(expression, "" | "*") {
            return Ok(FilterSpec::All);
        }
        if expression.split("||").all(str::is_empty) {
            return Err(FilterError::new(FilterErrorKind::Syntax, "subString split error"));
        }
        let tags = expression.split("||").map(|tag| tag.trim_matches(|c| c <= ' '));
        Ok(FilterSpec::Tags(tags.filter(|tag| !tag.is_empty()).map(str::to_owned).collect()))
    }

    /// The filter of a headers exchange's binding. A condition on `x-match` itself is dropped.
    #[must_use]
    pub fn headers(how: HeadersMatch, conditions: impl IntoIterator<Item = Condition>) -> FilterSpec {
        let with_x = matches!(how, HeadersMatch::AllWithX | HeadersMatch::AnyWithX);
        let counts =
            |condition: &Condition| condition.name != "x-match" && (with_x || !condition.name.starts_with("x-"));
        FilterSpec::Headers {
            any: matches!(how, HeadersMatch::Any | HeadersMatch::AnyWithX),
            conditions: conditions.into_iter().filter(counts).collect(),
        }
    }

    /// The wire form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = BinWriter::new();
        w.u8(VERSION);
        match self {
            FilterSpec::All => _ = w.u8(0),
            FilterSpec::Tags(tags) => {
                w.u8(1).u32(tags.len() as u32);
                tags.iter().for_each(|tag| _ = w.str(tag));
            }
            FilterSpec::Values { values, unfiltered } => {
                w.u8(2).u8(u8::from(*unfiltered)).u32(values.len() as u32);
                values.iter().for_each(|value| _ = w.bytes(value));
            }
            FilterSpec::Headers { any, conditions } => {
                w.u8(3).u8(u8::from(*any)).u32(conditions.len() as u32);
                conditions.iter().for_each(|condition| condition.encode(&mut w));
            }
            FilterSpec::Sql92(text) => _ = w.u8(4).str(text),
        }
        w.out
    }

    /// Reads a wire form.
    ///
    /// # Errors
    /// [`FilterErrorKind::Malformed`] if the bytes are not a wire form, [`FilterErrorKind::Limit`] if the filter exceeds a limit. A selector
    /// is not parsed here.
    pub fn decode(bytes: &[u8], limits: &Limits) -> Result<FilterSpec, FilterError> {
        if bytes.len() > limits.spec_bytes {
            return Err(FilterError::limit("bytes of a filter", bytes.len(), limits.spec_bytes));
        }
        let mut r = BinReader::new(bytes);
        if r.u8("version")? != VERSION {
            return Err(BinError { field: "version" }.into());
        }
        let spec = match r.u8("kind of filter")? {
            0 => FilterSpec::All,
            1 => {
                let take = |r: &mut BinReader<'_>| r.str("tag").map(str::to_owned);
                FilterSpec::Tags(ascending(&mut r, limits, "tag", take)?)
            }
            2 => FilterSpec::Values {
                unfiltered: flag(&mut r)?,
                values: ascending(&mut r, limits, "value", |r| r.bytes("value").map(<[u8]>::to_vec))?,
            },
            3 => {
                let any = flag(&mut r)?;
                let count = count(&mut r, limits, CONDITION_BYTES_MIN)?;
                let conditions = (0..count).map(|_| Condition::decode(&mut r)).collect::<Result<_, _>>()?;
                FilterSpec::Headers { any, conditions }
            }
            4 => FilterSpec::Sql92(r.str("selector")?.to_owned()),
            _ => return Err(BinError { field: "kind of filter" }.into()),
        };
        r.end("filter")?;
        spec.check(limits)?;
        Ok(spec)
    }

    /// Compares the filter with the limits.
    pub(crate) fn check(&self, limits: &Limits) -> Result<(), FilterError> {
        let (terms, longest) = match self {
            FilterSpec::All => (0, None),
            FilterSpec::Tags(tags) => (tags.len(), tags.iter().map(String::len).max()),
            FilterSpec::Values { values, .. } => (values.len(), values.iter().map(Vec::len).max()),
            FilterSpec::Headers { conditions, .. } => {
                (conditions.len(), conditions.iter().map(Condition::longest).max())
            }
            FilterSpec::Sql92(text) if text.len() > limits.selector_bytes => {
                return Err(FilterError::limit("bytes of a selector", text.len(), limits.selector_bytes));
            }
            FilterSpec::Sql92(_) => (0, None),
        };
        if terms > limits.terms {
            return Err(FilterError::limit("terms of a filter", terms, limits.terms));
        }
        if let Some(longest) = longest
            && longest > limits.term_bytes
        {
            return Err(FilterError::limit("bytes of a term of a filter", longest, limits.term_bytes));
        }
        Ok(())
    }
}

impl Condition {
    fn longest(&self) -> usize {
        let value = if let Some(HeaderValue::Bytes(bytes)) = &self.value { bytes.len() } else { 0 };
        self.name.len().max(value)
    }

    fn encode(&self, w: &mut BinWriter) {
        w.str(&self.name);
        match &self.value {
            None => w.u8(0),
            Some(HeaderValue::Bool(value)) => w.u8(1).u8(u8::from(*value)),
            Some(HeaderValue::Integer(value)) => w.u8(2).i64(*value),
            Some(HeaderValue::Double(value)) => w.u8(3).u64(value.to_bits()),
            Some(HeaderValue::Bytes(value)) => w.u8(4).bytes(value),
        };
    }

    fn decode(r: &mut BinReader<'_>) -> Result<Condition, BinError> {
        let name = r.str("name of a property")?.to_owned();
        let value = match r.u8("condition")? {
            0 => None,
            1 => Some(HeaderValue::Bool(flag(r)?)),
            2 => Some(HeaderValue::Integer(r.i64("integer")?)),
            3 => Some(HeaderValue::Double(f64::from_bits(r.u64("double")?))),
            4 => Some(HeaderValue::Bytes(r.bytes("bytes")?.to_vec())),
            _ => return Err(BinError { field: "condition" }),
        };
        Ok(Condition { name, value })
    }
}

impl From<BinError> for FilterError {
    fn from(error: BinError) -> FilterError {
        FilterError::new(FilterErrorKind::Malformed, format!("filter: {error}"))
    }
}

fn flag(r: &mut BinReader<'_>) -> Result<bool, BinError> {
    match r.u8("flag")? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(BinError { field: "flag" }),
    }
}

/// A number of terms, compared with the bytes left and with its limit before memory is taken.
fn count(r: &mut BinReader<'_>, limits: &Limits, bytes_min: usize) -> Result<usize, FilterError> {
    let count = r.count(bytes_min, "number of terms")?;
    if count > limits.terms {
        return Err(FilterError::limit("terms of a filter", count, limits.terms));
    }
    Ok(count)
}

fn ascending<'a, T: Ord>(
    r: &mut BinReader<'a>,
    limits: &Limits,
    field: &'static str,
    take: impl Fn(&mut BinReader<'a>) -> Result<T, BinError>,
) -> Result<BTreeSet<T>, FilterError> {
    let mut terms = BTreeSet::new();
    for _ in 0..count(r, limits, BYTES_MIN)? {
        let term = take(r)?;
        if terms.last().is_some_and(|last| *last >= term) {
            return Err(BinError { field }.into());
        }
        terms.insert(term);
    }
    Ok(terms)
}
