//! The compiled form of a selector: instructions for a stack of values, with forward jumps only.
//!
//! ```text
//!   a > 5 OR b CONTAINS 'x'
//!
//!   0 Property a    1 Const 5    2 Compare >    3 UnlessTrue 6    4 Property b    5 Text CONTAINS 'x'    6 Or        7
//! ```
//!
//! `UnlessTrue` jumps behind the `Or` if the value on top is true, which then is the result. Unknown values and missing properties are `None`.
//! Each instruction runs at most once.

use crate::error::FilterError;
use crate::limits::{Limits, STACK_MAX};

/// A literal of the selector. Texts are in [`Program::texts`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Literal {
    Null,
    Bool(bool),
    Int(i32),
    Long(i64),
    Double(f64),
    Text(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Comparison {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Search {
    Contains,
    StartsWith,
    EndsWith,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Op {
    /// Pushes the property of this name.
    Property(u32),
    /// Pushes a literal.
    Const(Literal),
    /// Pushes the value on top again.
    Dup,
    /// Pushes the value below the one on top again.
    Over,
    /// Removes the value below the one on top.
    Nip,
    /// Makes a property a condition: anything but a boolean is false.
    Condition,
    /// The sign of a number; anything else becomes unknown.
    Negate,
    Not,
    IsNull,
    Compare(Comparison),
    /// Searches a text for this one, which is not empty. A value that is no text never matches, nor does the negation.
    Text {
        search: Search,
        text: u32,
        negated: bool,
    },
    /// Whether a text is in this list.
    In {
        list: u32,
        negated: bool,
    },
    And,
    Or,
    /// Jumps if the value on top is false.
    UnlessFalse(u32),
    /// Jumps if the value on top is true.
    UnlessTrue(u32),
    /// Jumps if the value on top is missing.
    UnlessNull(u32),
}

/// A compiled selector.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Program {
    pub(super) ops: Vec<Op>,
    pub(super) names: Vec<Box<str>>,
    pub(super) texts: Vec<Box<str>>,
    /// Each sorted, without duplicates.
    pub(super) lists: Vec<Vec<String>>,
    /// The most values on the stack at a time.
    pub(super) stack_max: usize,
    /// Texts that the comparisons may read as doubles.
    pub(super) doubles: u64,
    /// The values on the stack behind the last instruction.
    height: usize,
    /// Instructions and items of lists.
    nodes: usize,
}

impl Program {
    /// Appends an instruction.
    pub(super) fn push(&mut self, op: Op, limits: &Limits) -> Result<(), FilterError> {
        self.height = match op {
            Op::Property(_) | Op::Const(_) | Op::Dup | Op::Over => self.height + 1,
            Op::Nip | Op::Compare(_) | Op::And | Op::Or => self.height.saturating_sub(1),
            _ => self.height,
        };
        self.stack_max = self.stack_max.max(self.height);
        if self.stack_max > STACK_MAX {
            return Err(FilterError::limit("open operators of a selector", self.stack_max, STACK_MAX));
        }
        self.ops.push(op);
        self.count(1, limits)
    }

    /// Appends a jump, whose target [`Program::land`] sets.
    pub(super) fn jump(&mut self, op: fn(u32) -> Op, limits: &Limits) -> Result<usize, FilterError> {
        self.push(op(0), limits)?;
        Ok(self.ops.len() - 1)
    }

    /// Lets a jump end at the next instruction.
    pub(super) fn land(&mut self, jump: usize) {
        let target = self.ops.len() as u32;
        if let Some(Op::UnlessFalse(to) | Op::UnlessTrue(to) | Op::UnlessNull(to)) = self.ops.get_mut(jump) {
            *to = target;
        }
    }

    /// Removes the instructions of the value on top, of which this is the first one.
    pub(super) fn drop_from(&mut self, first: usize) {
        self.ops.truncate(first);
        self.height = self.height.saturating_sub(1);
    }

    pub(super) fn name(&mut self, name: &str) -> u32 {
        self.names.push(name.into());
        self.names.len() as u32 - 1
    }

    pub(super) fn text(&mut self, text: String) -> u32 {
        self.texts.push(text.into());
        self.texts.len() as u32 - 1
    }

    /// Counts instructions or items of a list against the limit.
    pub(super) fn count(&mut self, nodes: usize, limits: &Limits) -> Result<(), FilterError> {
        self.nodes += nodes;
        match self.nodes > limits.selector_nodes {
            true => Err(FilterError::limit("operators and operands of a selector", self.nodes, limits.selector_nodes)),
            false => Ok(()),
        }
    }

    pub(super) fn list(&mut self, mut texts: Vec<String>) -> u32 {
        texts.sort_unstable();
        texts.dedup();
        self.lists.push(texts);
        self.lists.len() as u32 - 1
    }

    pub(super) fn text_of(&self, text: u32) -> &str {
        self.texts.get(text as usize).map_or("", |text| text)
    }
}
