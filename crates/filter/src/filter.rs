//! Compiled filters.

use crate::error::FilterError;
use crate::limits::Limits;
use crate::spec::{Condition, FilterSpec, HeaderValue};
use crate::sql::Selector;
use crate::subject::{Subject, Tag, Value, tag_hash};
use std::cmp::Ordering;

/// Bytes of text that are compared, searched or read as a number in one step. Searching a long text takes longest: 5 ns a byte.
pub const BYTES_PER_STEP: usize = 20;

/// Steps to read a double of more than [`SHORT_NUMBER_BYTES`]: 70 µs if it is half-way between two doubles close to zero (examples/cost.rs).
pub const LONG_DOUBLE_STEPS: u64 = 700;

/// The longest text whose digits fit into 64 bits, so that it is read as a double without extra cost.
pub const SHORT_NUMBER_BYTES: usize = 19;

/// The result of a filter for one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The message is wanted. For tags of which only the hash or nothing is known, it may be another one: the client compares the text.
    Match,
    /// The message is not wanted.
    NoMatch,
    /// A selector is unknown, because a property is missing: not wanted.
    Unknown,
    /// A selector cannot be evaluated for this message, because a property is no number: not wanted. RocketMQ logs an error.
    Failed,
}

/// The outcome, and the steps that it took (see `polylogue_types::turn`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Evaluation {
    /// The outcome.
    pub outcome: Outcome,
    /// The steps, at most [`Filter::steps_max`].
    pub steps: u64,
}

impl Evaluation {
    /// Whether the message is wanted.
    #[must_use]
    pub fn matches(self) -> bool {
        self.outcome == Outcome::Match
    }
}

/// The fields that a filter reads, so that a reader opens no more of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reads {
    /// Nothing: every message matches.
    Nothing,
    /// The tag, by hash or text.
    Tag,
    /// The filter value.
    FilterValue,
    /// Properties.
    Properties,
}

/// A filter that can be applied: immutable, to be shared by all readers of a subscription.
#[derive(Clone, PartialEq, Debug)]
pub struct Filter {
    kind: Kind,
    bound: Bound,
}

#[derive(Clone, PartialEq, Debug)]
enum Kind {
    All,
    /// Both sorted.
    Tags {
        texts: Vec<String>,
        hashes: Vec<i32>,
    },
    /// Sorted.
    Values {
        values: Vec<Vec<u8>>,
        unfiltered: bool,
    },
    Headers {
        any: bool,
        conditions: Vec<Condition>,
    },
    Sql92(Selector),
}

impl Filter {
    /// Compiles a filter. Cost: as [`Selector::parse`], or a copy of the terms.
    ///
    /// # Errors
    /// If a limit is exceeded or a selector is refused.
    pub fn compile(spec: &FilterSpec, limits: &Limits) -> Result<Filter, FilterError> {
        spec.check(limits)?;
        let one = Bound { ops: 1, ..Bound::default() };
        let (kind, bound) = match spec {
            FilterSpec::All => (Kind::All, one),
            FilterSpec::Tags(tags) => {
                let mut hashes: Vec<i32> = tags.iter().map(|tag| tag_hash(tag)).collect();
                hashes.sort_unstable();
                let bound = one.with_literals(tags).with_search(tags.len());
                (Kind::Tags { texts: tags.iter().cloned().collect(), hashes }, bound)
            }
            FilterSpec::Values { values, unfiltered } => {
                let bound = one.with_literals(values).with_search(values.len());
                (Kind::Values { values: values.iter().cloned().collect(), unfiltered: *unfiltered }, bound)
            }
            FilterSpec::Headers { any, conditions } => {
                let count = conditions.len() as u64;
                let literals = conditions.iter().filter_map(|condition| match &condition.value {
                    Some(HeaderValue::Bytes(bytes)) => Some(bytes),
                    _ => None,
                });
                let bound = Bound { ops: 1 + count, lookups: count, texts: count, ..Bound::default() };
                let bound = bound.with_literals(literals);
                (Kind::Headers { any: *any, conditions: conditions.clone() }, bound)
            }
            FilterSpec::Sql92(text) => {
                let selector = Selector::parse(text, limits)?;
                let bound = selector.bound();
                (Kind::Sql92(selector), bound)
            }
        };
        Ok(Filter { kind, bound })
    }

    /// The fields that the filter reads.
    #[must_use]
    pub fn reads(&self) -> Reads {
        match self.kind {
            Kind::All => Reads::Nothing,
            Kind::Tags { .. } => Reads::Tag,
            Kind::Values { .. } => Reads::FilterValue,
            Kind::Headers { .. } | Kind::Sql92(_) => Reads::Properties,
        }
    }

    /// Applies the filter to a message. Allocates nothing.
    #[must_use]
    pub fn evaluate<S: Subject + ?Sized>(&self, subject: &S) -> Evaluation {
        let (matches, steps) = match &self.kind {
            Kind::All => (true, 0),
            Kind::Tags { texts, hashes } => match subject.tag() {
                Tag::Unknown => (true, 0),
                Tag::Absent => (false, 0),
                Tag::Text(tag) => search(texts, tag.as_bytes()),
                Tag::Hash(hash) => (hashes.binary_search(&hash).is_ok(), probes(hashes.len())),
            },
            Kind::Values { values, unfiltered } => match subject.filter_value() {
                None => (*unfiltered, 0),
                Some(value) => search(values, value),
            },
            Kind::Headers { any, conditions } => headers(*any, conditions, subject),
            Kind::Sql92(selector) => return selector.evaluate(subject),
        };
        Evaluation { outcome: if matches { Outcome::Match } else { Outcome::NoMatch }, steps: 1 + steps }
    }

    /// The most steps of one evaluation:
    /// `ops + lookups * lookup_steps + texts * (2 * longest / BYTES_PER_STEP) + doubles * LONG_DOUBLE_STEPS`.
    ///
    /// `ops`, `lookups`, `texts` and `doubles` (texts that may be read as doubles) are counted when the filter is compiled. `longest` is the longest
    /// text of the message (`text_bytes_max`) or the filter; the last term counts if that is more than [`SHORT_NUMBER_BYTES`]. With the default limits `ops` is at most 2,048: a selector has at most 1,024 instructions, and a list of n items in it adds
    /// the number of digits of n in base 2.
    #[must_use]
    pub fn steps_max(&self, lookup_steps: u64, text_bytes_max: usize) -> u64 {
        self.bound.steps(lookup_steps, text_bytes_max)
    }
}

/// Counts of a compiled filter that bound its cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Bound {
    /// Instructions, conditions, and comparisons of a search.
    pub(crate) ops: u64,
    /// Properties read.
    pub(crate) lookups: u64,
    /// Pairs of texts compared.
    pub(crate) texts: u64,
    /// Texts that may be read as doubles.
    pub(crate) doubles: u64,
    /// The longest text of the filter. Bytes.
    pub(crate) literal_bytes_max: usize,
}

impl Bound {
    pub(crate) fn with_search(self, items: usize) -> Bound {
        Bound { ops: self.ops + probes(items), texts: self.texts + probes(items), ..self }
    }

    fn with_literals<T: AsRef<[u8]>>(self, literals: impl IntoIterator<Item = T>) -> Bound {
        let literal_bytes_max = literals.into_iter().map(|text| text.as_ref().len()).max().unwrap_or(0);
        Bound { literal_bytes_max, ..self }
    }

    fn steps(self, lookup_steps: u64, text_bytes_max: usize) -> u64 {
        let longest = self.literal_bytes_max.max(text_bytes_max);
        let per_text = text_steps(longest.saturating_mul(2));
        let lookups = self.lookups.saturating_mul(lookup_steps);
        let doubles = self.doubles * double_steps(longest);
        self.ops.saturating_add(lookups).saturating_add(self.texts.saturating_mul(per_text)).saturating_add(doubles)
    }
}

pub(crate) fn text_steps(bytes: usize) -> u64 {
    (bytes / BYTES_PER_STEP) as u64
}

/// Steps to read a text of this length as a double, besides those for its bytes.
pub(crate) fn double_steps(bytes: usize) -> u64 {
    if bytes > SHORT_NUMBER_BYTES { LONG_DOUBLE_STEPS } else { 0 }
}

/// The most comparisons of a binary search.
fn probes(items: usize) -> u64 {
    u64::from(usize::BITS - items.leading_zeros())
}

/// Whether a sorted list has an item, and the steps of the search. Not that of the standard library, whose number of comparisons may change.
pub(crate) fn search<T: AsRef<[u8]>>(sorted: &[T], wanted: &[u8]) -> (bool, u64) {
    let mut left = sorted;
    let mut steps = 0;
    while let Some(item) = left.get(left.len() / 2) {
        let bytes = item.as_ref();
        steps += 1 + text_steps(bytes.len().min(wanted.len()));
        left = match wanted.cmp(bytes) {
            Ordering::Less => &left[..left.len() / 2],
            Ordering::Equal => return (true, steps),
            Ordering::Greater => &left[left.len() / 2 + 1..],
        };
    }
    (false, steps)
}

fn headers<S: Subject + ?Sized>(any: bool, conditions: &[Condition], subject: &S) -> (bool, u64) {
    let mut steps = 0;
    let mut fulfilled = |condition: &Condition| {
        steps += 1 + subject.lookup_steps();
        let value = subject.property(&condition.name);
        match (value, &condition.value) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(value), Some(wanted)) => same(value, wanted, &mut steps),
        }
    };
    let matches = if any { conditions.iter().any(&mut fulfilled) } else { conditions.iter().all(&mut fulfilled) };
    (matches, steps)
}

/// Whether a headers exchange considers them equal.
fn same(value: Value<'_>, wanted: &HeaderValue, steps: &mut u64) -> bool {
    let bytes = match value {
        Value::Bool(value) => return *wanted == HeaderValue::Bool(value),
        Value::Int(value) => return *wanted == HeaderValue::Integer(i64::from(value)),
        Value::Long(value) => return *wanted == HeaderValue::Integer(value),
        Value::Double(value) => {
            let HeaderValue::Double(wanted) = wanted else { return false };
            return (value + 0.0).to_bits() == (wanted + 0.0).to_bits();
        }
        Value::Text(text) => text.as_bytes(),
        Value::Bytes(bytes) => bytes,
        Value::Other => return false,
    };
    let HeaderValue::Bytes(wanted) = wanted else { return false };
    *steps += text_steps(bytes.len().min(wanted.len()));
    bytes == wanted
}
