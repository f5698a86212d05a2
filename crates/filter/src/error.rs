//! Errors of filters that were requested or received.

use std::fmt;

/// Coarse kinds, which each protocol maps to its own codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FilterErrorKind {
    /// The text is not an expression of the language.
    Syntax,
    /// The text is an expression, but one that the language refuses, such as a comparison with `NULL`.
    Invalid,
    /// The filter exceeds a limit.
    Limit,
    /// The bytes are not the wire form of a filter.
    Malformed,
}

/// A refused filter: the kind, a description for clients and operators, and the position if it is one in a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilterError {
    /// The kind.
    pub kind: FilterErrorKind,
    /// The position in the expression, in bytes from 0.
    pub at: Option<usize>,
    /// What was wrong.
    pub text: String,
}

impl FilterError {
    pub(crate) fn new(kind: FilterErrorKind, text: impl Into<String>) -> FilterError {
        FilterError { kind, at: None, text: text.into() }
    }

    pub(crate) fn at(kind: FilterErrorKind, at: usize, text: impl Into<String>) -> FilterError {
        FilterError { kind, at: Some(at), text: text.into() }
    }

    /// A limit is exceeded: `what` is counted, `value` is the count.
    pub(crate) fn limit(what: &str, value: usize, limit: usize) -> FilterError {
        FilterError::new(FilterErrorKind::Limit, format!("{what}: {value}, the limit is {limit}"))
    }
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match self.at {
            Some(at) => write!(f, " (at byte {at})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for FilterError {}
