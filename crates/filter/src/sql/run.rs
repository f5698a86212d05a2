//! Evaluates a [`Program`]: no recursion, no allocation.

use super::number;
use super::program::{Comparison, Literal, Op, Program, Search};
use crate::filter::{Evaluation, Outcome, double_steps, text_steps};
use crate::limits::STACK_MAX;
use crate::{Subject, Value};
use std::cmp::Ordering;

/// The stack of nearly all selectors.
const SMALL_STACK: usize = 8;

/// A value, or `None` for unknown.
type Slot<'a> = Option<Value<'a>>;

impl Program {
    pub(super) fn value(&self, literal: Literal) -> Slot<'_> {
        Some(match literal {
            Literal::Null => return None,
            Literal::Bool(value) => Value::Bool(value),
            Literal::Int(value) => Value::Int(value),
            Literal::Long(value) => Value::Long(value),
            Literal::Double(value) => Value::Double(value),
            Literal::Text(text) => Value::Text(self.text_of(text)),
        })
    }

    pub(super) fn evaluate<S: Subject + ?Sized>(&self, subject: &S) -> Evaluation {
        let mut steps = 0;
        let value = match self.stack_max {
            ..=SMALL_STACK => self.run::<S, SMALL_STACK>(subject, &mut steps),
            _ => self.run::<S, STACK_MAX>(subject, &mut steps),
        };
        let outcome = match value {
            Err(Failed) => Outcome::Failed,
            Ok(None) => Outcome::Unknown,
            Ok(Some(Value::Bool(true))) => Outcome::Match,
            Ok(Some(_)) => Outcome::NoMatch,
        };
        Evaluation { outcome, steps }
    }

    fn run<'a, S: Subject + ?Sized, const N: usize>(
        &'a self,
        subject: &'a S,
        steps: &mut u64,
    ) -> Result<Slot<'a>, Failed> {
        let mut stack = Stack::<N> { slots: [None; N], len: 0 };
        let mut at = 0;
        while let Some(op) = self.ops.get(at) {
            at += 1;
            *steps += 1;
            match *op {
                Op::Property(name) => {
                    *steps += subject.lookup_steps();
                    stack.push(self.names.get(name as usize).and_then(|name| subject.property(name)));
                }
                Op::Const(literal) => stack.push(self.value(literal)),
                Op::Dup => stack.push(stack.top()),
                Op::Over => stack.push(stack.below()),
                Op::Nip => {
                    let top = stack.pop();
                    stack.set(top);
                }
                Op::UnlessFalse(to) if stack.top() == Some(Value::Bool(false)) => at = to as usize,
                Op::UnlessTrue(to) if stack.top() == Some(Value::Bool(true)) => at = to as usize,
                Op::UnlessNull(to) if stack.top().is_none() => at = to as usize,
                Op::UnlessFalse(_) | Op::UnlessTrue(_) | Op::UnlessNull(_) => {}
                Op::Compare(comparison) => {
                    let right = stack.pop();
                    let result = compare(comparison, stack.top(), right, steps)?;
                    stack.set(result.map(Value::Bool));
                }
                Op::And | Op::Or => {
                    let right = stack.pop();
                    stack.set(logic(*op == Op::Or, stack.top(), right));
                }
                _ => stack.set(self.unary(*op, stack.top(), steps)),
            }
        }
        Ok(stack.top())
    }

    fn unary(&self, op: Op, value: Slot<'_>, steps: &mut u64) -> Slot<'static> {
        let value = match (op, value) {
            (Op::IsNull, value) => value.is_none(),
            (Op::Text { search, text, negated }, Some(Value::Text(value))) => {
                let text = self.text_of(text);
                *steps += text_steps(value.len() + text.len());
                let found = match search {
                    Search::Contains => value.contains(text),
                    Search::StartsWith => value.starts_with(text),
                    Search::EndsWith => value.ends_with(text),
                };
                found != negated
            }
            (Op::Text { .. }, _) => false,
            (Op::In { list, negated }, Some(Value::Text(value))) => {
                let list = self.lists.get(list as usize).map_or(&[][..], |list| list);
                let (found, cost) = crate::filter::search(list, value.as_bytes());
                *steps += cost;
                found != negated
            }
            (Op::Not, Some(Value::Bool(value))) => !value,
            (Op::Condition, Some(value)) => value == Value::Bool(true),
            (Op::Negate, Some(value)) => {
                return match value {
                    Value::Int(number) => Some(Value::Int(number.wrapping_neg())),
                    Value::Long(number) => Some(Value::Long(number.wrapping_neg())),
                    Value::Double(number) => Some(Value::Double(-number)),
                    _ => None,
                };
            }
            _ => return None,
        };
        Some(Value::Bool(value))
    }
}

/// A comparison that RocketMQ ends with an exception, so that the whole selector does not match.
struct Failed;

struct Stack<'a, const N: usize> {
    slots: [Slot<'a>; N],
    len: usize,
}

// The compiler of the program has counted the values, so that none is missing or too many.
impl<'a, const N: usize> Stack<'a, N> {
    fn push(&mut self, value: Slot<'a>) {
        debug_assert!(self.len < N);
        if let Some(slot) = self.slots.get_mut(self.len) {
            *slot = value;
            self.len += 1;
        }
    }

    fn pop(&mut self) -> Slot<'a> {
        let top = self.top();
        self.len = self.len.saturating_sub(1);
        top
    }

    fn at(&self, depth: usize) -> Slot<'a> {
        debug_assert!(self.len >= depth);
        self.slots.get(self.len.wrapping_sub(depth)).copied().flatten()
    }

    fn top(&self) -> Slot<'a> {
        self.at(1)
    }

    fn below(&self) -> Slot<'a> {
        self.at(2)
    }

    /// Replaces the value on top.
    fn set(&mut self, value: Slot<'a>) {
        if let Some(slot) = self.slots.get_mut(self.len.wrapping_sub(1)) {
            *slot = value;
        }
    }
}

fn logic<'a>(or: bool, left: Slot<'_>, right: Slot<'_>) -> Slot<'a> {
    let decides = Some(Value::Bool(or));
    if left == decides || right == decides {
        return Some(Value::Bool(or));
    }
    left.and(right).map(|_| Value::Bool(!or))
}

fn compare(comparison: Comparison, left: Slot<'_>, right: Slot<'_>, steps: &mut u64) -> Result<Option<bool>, Failed> {
    let equal = comparison == Comparison::Equal;
    let (left, right) = match (left, right) {
        // Two missing properties are equal, and none equals one that is there.
        (None, None) if equal => return Ok(Some(true)),
        (Some(_), None) if equal => return Ok(Some(false)),
        (None, _) | (_, None) => return Ok(None),
        (Some(left), Some(right)) => (left, right),
    };
    let length = |value: &Value<'_>| if let Value::Text(text) = value { text.len() } else { 0 };
    *steps += text_steps(length(&left) + length(&right));
    *steps += match (left, right) {
        (Value::Text(left), Value::Text(right)) if !equal => double_steps(left.len()) + double_steps(right.len()),
        (Value::Text(text), Value::Double(_)) | (Value::Double(_), Value::Text(text)) => double_steps(text.len()),
        _ => 0,
    };
    let order = match (left, right) {
        (Value::Bytes(_) | Value::Other, _) | (_, Value::Bytes(_) | Value::Other) => {
            return if equal { Ok(Some(false)) } else { Err(Failed) };
        }
        (Value::Text(left), Value::Text(right)) if !equal => {
            let numbers = number::double(left).zip(number::double(right)).ok_or(Failed)?;
            number::compare(Value::Double(numbers.0), Value::Double(numbers.1))
        }
        (left, right) => number::compare(left, right),
    };
    let order = order.ok_or(Failed)?;
    Ok(Some(match comparison {
        Comparison::Equal => order == Ordering::Equal,
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
    }))
}
