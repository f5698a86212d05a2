//! SQL92 selectors of RocketMQ 5.5 (`rocketmq-filter`).
//!
//! ```text
//! condition   property = 'text' | property <> 5 | property > 5.5 (also >=, <, <=)
//!             property [NOT] BETWEEN 1 AND 10 | property [NOT] IN ('a', 'b') | property IS [NOT] NULL
//!             property [NOT] CONTAINS 'a' (also STARTSWITH, ENDSWITH)
//!             condition AND condition | condition OR condition | NOT (condition) | TRUE | FALSE
//! ```
//!
//! Its properties are texts, which are converted to the type of what they are compared with. If that fails (`'abc' > 5`, but also `'5.5' > 5`,
//! because 5 is an integer of 32 bits), the whole selector does not match, not even by another branch of an `OR`. A missing property is unknown in
//! a comparison with a literal. In the order of two properties both must be numbers; for `=` they are compared as texts, and two missing ones are
//! equal. Doubles that are zero (`0.0`) and literals above 2^63 - 1 are refused, as there.
//!
//! Differences: a property that is a hexadecimal float (`0x1p3`) is no number. The limits are polylogue's.

mod lexer;
mod number;
mod parser;
mod program;
mod run;

use crate::error::FilterError;
use crate::filter::{Bound, Evaluation};
use crate::limits::Limits;
use crate::subject::Subject;
use program::{Op, Program};

/// A compiled selector.
#[derive(Clone, PartialEq, Debug)]
pub struct Selector {
    program: Program,
    bound: Bound,
    ignored_from: usize,
}

impl Selector {
    /// Compiles a selector.
    ///
    /// Time is proportional to n log n of its length, memory to its length. With the default limits it takes about 0.3 ms at most.
    ///
    /// # Errors
    /// The text is refused by RocketMQ, or exceeds a limit. Texts of [`crate::FilterErrorKind::Invalid`] are those of RocketMQ, with the
    /// expression as it was written.
    pub fn parse(text: &str, limits: &Limits) -> Result<Selector, FilterError> {
        let (program, ignored_from) = parser::parse(text, limits)?;
        let bound = bound(&program);
        Ok(Selector { program, bound, ignored_from })
    }

    /// Where the part of the text begins that is ignored, in bytes: its length if there is none.
    ///
    /// RocketMQ reads an expression as far as it goes: `a = 1 b = 2` is `a = 1`.
    #[must_use]
    pub fn ignored_from(&self) -> usize {
        self.ignored_from
    }

    /// Evaluates the selector.
    #[must_use]
    pub fn evaluate<S: Subject + ?Sized>(&self, subject: &S) -> Evaluation {
        self.program.evaluate(subject)
    }

    pub(crate) fn bound(&self) -> Bound {
        self.bound
    }
}

fn bound(program: &Program) -> Bound {
    let texts = program.texts.iter().map(|text| text.len());
    let literal_bytes_max = texts.chain(program.lists.iter().flatten().map(String::len)).max().unwrap_or(0);
    let ops = program.ops.len() as u64;
    let mut bound = Bound { ops, doubles: program.doubles, literal_bytes_max, ..Bound::default() };
    for op in &program.ops {
        match op {
            Op::Property(_) => bound.lookups += 1,
            Op::Compare(_) | Op::Text { .. } => bound.texts += 1,
            Op::In { list, .. } => {
                let items = program.lists.get(*list as usize).map_or(0, Vec::len);
                bound = bound.with_search(items);
            }
            _ => {}
        }
    }
    bound
}
