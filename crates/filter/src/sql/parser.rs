//! Compiles tokens to a [`Program`] in one pass: operator precedence parsing.
//!
//! ```text
//! level 1   OR
//! level 2   AND
//! level 3   =   <>   IS NULL   IS NOT NULL
//! level 4   >   >=   <   <=   [NOT] BETWEEN   [NOT] IN   [NOT] CONTAINS | STARTSWITH | ENDSWITH
//! level 5   NOT   -   +   (in front of an operand)
//! ```
//!
//! Operators of one level are taken from left to right, and the right operand of one only has operators of higher levels. So `NOT a = 5` is
//! `(NOT a) = 5`, as in RocketMQ. The expression ends where no operator follows; RocketMQ ignores the rest of the text, except for its first
//! token, which must be one.

use super::lexer::{Kind, Lexer, Token, Word};
use super::number;
use super::program::{Comparison, Literal, Op, Program, Search};
use crate::error::{FilterError, FilterErrorKind};
use crate::limits::Limits;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Range;

const OR: u8 = 1;
const AND: u8 = 2;
const EQUALITY: u8 = 3;
const COMPARISON: u8 = 4;
const UNARY: u8 = 5;

/// The sort of an expression; the language restricts the use of some.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Sort {
    Literal(Literal),
    Property,
    /// A number, or unknown.
    Negated,
    /// A boolean or unknown.
    Condition,
}

/// An expression whose instructions were appended, and its place in the text.
#[derive(Clone, Debug)]
struct Operand {
    sort: Sort,
    /// Its first instruction.
    first: usize,
    at: Range<usize>,
}

/// Compiles a selector. Returns the program, and where the ignored rest of the text begins.
pub(super) fn parse(text: &str, limits: &Limits) -> Result<(Program, usize), FilterError> {
    if text.len() > limits.selector_bytes {
        return Err(FilterError::limit("bytes of a selector", text.len(), limits.selector_bytes));
    }
    let mut lexer = Lexer::new(text);
    let token = lexer.next()?;
    let (program, names) = (Program::default(), BTreeMap::new());
    let mut parser = Parser { text, lexer, token, end: 0, program, names, limits, depth: 0 };
    let all = parser.expression(OR)?;
    parser.condition(&all)?;
    Ok((parser.program, parser.token.at.start))
}

struct Parser<'t> {
    text: &'t str,
    lexer: Lexer<'t>,
    /// The next token.
    token: Token,
    /// The end of the token before it.
    end: usize,
    program: Program,
    /// The names of properties so far.
    names: BTreeMap<&'t str, u32>,
    limits: &'t Limits,
    depth: usize,
}

impl Parser<'_> {
    fn advance(&mut self) -> Result<Token, FilterError> {
        let next = self.lexer.next()?;
        self.end = self.token.at.end;
        Ok(std::mem::replace(&mut self.token, next))
    }

    fn expect(&mut self, kind: Kind, expected: &str) -> Result<Token, FilterError> {
        if self.token.kind == kind { self.advance() } else { Err(self.unexpected(expected)) }
    }

    fn unexpected(&self, expected: &str) -> FilterError {
        let found = match self.token.kind {
            Kind::End => "the end".to_owned(),
            _ => format!("'{}'", shortened(&self.text[self.token.at.clone()])),
        };
        FilterError::at(FilterErrorKind::Syntax, self.token.at.start, format!("expected {expected}, found {found}"))
    }

    fn invalid(&self, at: &Range<usize>, text: String) -> FilterError {
        FilterError::at(FilterErrorKind::Invalid, at.start, text)
    }

    /// An operand's text for messages.
    fn shown(&self, operand: &Operand) -> &str {
        shortened(&self.text[operand.at.clone()])
    }

    fn push(&mut self, op: Op) -> Result<(), FilterError> {
        let result = self.program.push(op, self.limits);
        self.placed(result)
    }

    fn jump(&mut self, op: fn(u32) -> Op) -> Result<usize, FilterError> {
        let result = self.program.jump(op, self.limits);
        self.placed(result)
    }

    /// Adds the current position to an exceeded limit.
    fn placed<T>(&self, result: Result<T, FilterError>) -> Result<T, FilterError> {
        result.map_err(|error| FilterError { at: Some(self.token.at.start), ..error })
    }

    /// The level of the operator that the next token begins; 0 if it begins none.
    fn level(&self) -> u8 {
        match self.token.kind {
            Kind::Word(Word::Or) => OR,
            Kind::Word(Word::And) => AND,
            Kind::Equal | Kind::NotEqual | Kind::Word(Word::Is) => EQUALITY,
            Kind::Less | Kind::LessOrEqual | Kind::Greater | Kind::GreaterOrEqual => COMPARISON,
            Kind::Word(Word::Not | Word::Between | Word::In | Word::Contains | Word::StartsWith | Word::EndsWith) => {
                COMPARISON
            }
            _ => 0,
        }
    }

    /// An expression of operators of at least this level.
    fn expression(&mut self, lowest: u8) -> Result<Operand, FilterError> {
        let mut left = self.unary()?;
        // Once an operator of a lower level has been taken, one of a higher level does not continue it.
        let mut highest = COMPARISON;
        loop {
            let level = self.level();
            if level < lowest || level > highest {
                return Ok(left);
            }
            highest = level;
            match level {
                OR | AND => self.logic(&left, level)?,
                EQUALITY => self.equality(&left)?,
                _ => self.comparison(&left)?,
            }
            left = Operand { sort: Sort::Condition, first: left.first, at: left.at.start..self.end };
        }
    }

    fn nested<T>(&mut self, inner: fn(&mut Self) -> Result<T, FilterError>) -> Result<T, FilterError> {
        self.depth += 1;
        if self.depth > self.limits.selector_depth {
            let limit = self.limits.selector_depth;
            return self.placed(Err(FilterError::limit("open parentheses and signs of a selector", self.depth, limit)));
        }
        let result = inner(self)?;
        self.depth -= 1;
        Ok(result)
    }

    fn unary(&mut self) -> Result<Operand, FilterError> {
        let (start, first) = (self.token.at.start, self.program.ops.len());
        let sort = match self.token.kind {
            Kind::Plus => {
                self.advance()?;
                self.nested(Self::unary)?.sort
            }
            Kind::Minus => {
                self.advance()?;
                self.nested(Self::unary)?;
                self.push(Op::Negate)?;
                Sort::Negated
            }
            Kind::Word(Word::Not) => {
                self.advance()?;
                let operand = self.nested(Self::unary)?;
                self.condition(&operand)?;
                self.push(Op::Not)?;
                Sort::Condition
            }
            Kind::Open => {
                self.advance()?;
                let inner = self.nested(|parser| parser.expression(OR))?;
                self.expect(Kind::Close, "an operator or ')'")?;
                inner.sort
            }
            _ => self.primary()?,
        };
        Ok(Operand { sort, first, at: start..self.end })
    }

    fn primary(&mut self) -> Result<Sort, FilterError> {
        let literal = match self.token.kind {
            Kind::Name => {
                let name = &self.text[self.token.at.clone()];
                let name = *self.names.entry(name).or_insert_with(|| self.program.name(name));
                self.advance()?;
                self.push(Op::Property(name))?;
                return Ok(Sort::Property);
            }
            Kind::Text => {
                let text = self.quoted()?;
                Literal::Text(self.program.text(text))
            }
            kind => {
                let literal = match kind {
                    Kind::Integer => self.integer()?,
                    Kind::Float => self.float()?,
                    Kind::Word(Word::True) => Literal::Bool(true),
                    Kind::Word(Word::False) => Literal::Bool(false),
                    Kind::Word(Word::Null) => Literal::Null,
                    _ => return Err(self.unexpected("a property, a value or '('")),
                };
                self.advance()?;
                literal
            }
        };
        self.push(Op::Const(literal))?;
        Ok(Sort::Literal(literal))
    }

    /// A text literal without its quotes.
    fn quoted(&mut self) -> Result<String, FilterError> {
        let token = self.expect(Kind::Text, "a text in single quotes")?;
        Ok(self.text[token.at.start + 1..token.at.end - 1].replace("''", "'"))
    }

    fn integer(&self) -> Result<Literal, FilterError> {
        let digits = self.text[self.token.at.clone()].trim_end_matches(['l', 'L']);
        let Ok(number) = digits.parse::<i64>() else {
            let text = format!("the number {} is above {}", shortened(digits), i64::MAX);
            return Err(self.invalid(&self.token.at, text));
        };
        Ok(i32::try_from(number).map_or(Literal::Long(number), Literal::Int))
    }

    fn float(&self) -> Result<Literal, FilterError> {
        let text = &self.text[self.token.at.clone()];
        match text.parse::<f64>() {
            Ok(number) if number.is_infinite() => {
                Err(self.invalid(&self.token.at, format!("{} is greater than {:e}", shortened(text), f64::MAX)))
            }
            // RocketMQ compares with Java's `Double.MIN_VALUE`.
            Ok(0.0) => Err(self.invalid(&self.token.at, format!("{} is less than 4.9e-324", shortened(text)))),
            Ok(number) => Ok(Literal::Double(number)),
            Err(_) => Err(self.unexpected("a number")),
        }
    }

    /// Requires an expression that is true or false, and makes a property one.
    fn condition(&mut self, operand: &Operand) -> Result<(), FilterError> {
        match operand.sort {
            Sort::Condition | Sort::Literal(Literal::Null | Literal::Bool(_)) => Ok(()),
            Sort::Property => self.push(Op::Condition),
            Sort::Negated | Sort::Literal(_) => {
                let text = format!("Expression will not result in a boolean value: {}", self.shown(operand));
                Err(self.invalid(&operand.at, text))
            }
        }
    }

    fn logic(&mut self, left: &Operand, level: u8) -> Result<(), FilterError> {
        self.advance()?;
        self.condition(left)?;
        let (jump, op): (fn(u32) -> Op, Op) =
            if level == OR { (Op::UnlessTrue, Op::Or) } else { (Op::UnlessFalse, Op::And) };
        let jump = self.jump(jump)?;
        let right = self.expression(level + 1)?;
        self.condition(&right)?;
        self.push(op)?;
        self.program.land(jump);
        Ok(())
    }

    fn equality(&mut self, left: &Operand) -> Result<(), FilterError> {
        let operator = self.advance()?;
        if operator.kind == Kind::Word(Word::Is) {
            let not = self.token.kind == Kind::Word(Word::Not);
            if not {
                self.advance()?;
            }
            self.expect(Kind::Word(Word::Null), if not { "NULL" } else { "NULL or NOT NULL" })?;
            self.push(Op::IsNull)?;
            return if not { self.push(Op::Not) } else { Ok(()) };
        }
        let right = self.expression(EQUALITY + 1)?;
        for operand in [left, &right] {
            if operand.sort == Sort::Literal(Literal::Null) {
                return Err(self.invalid(&operand.at, format!("'{}' cannot be compared.", self.shown(operand))));
            }
        }
        if let (Sort::Literal(Literal::Bool(_)), Sort::Literal(other)) = (left.sort, right.sort)
            && !matches!(other, Literal::Bool(_))
        {
            let text = format!("'{}' cannot be compared with '{}'", self.shown(left), self.shown(&right));
            return Err(self.invalid(&left.at, text));
        }
        self.compare(Comparison::Equal, left.sort, right.sort)?;
        if operator.kind == Kind::NotEqual { self.push(Op::Not) } else { Ok(()) }
    }

    /// Requires an operand of `<` and the like: a number, or a property.
    fn ordered(&self, operand: &Operand) -> Result<(), FilterError> {
        match operand.sort {
            Sort::Property | Sort::Negated => Ok(()),
            Sort::Literal(Literal::Int(_) | Literal::Long(_) | Literal::Double(_)) => Ok(()),
            Sort::Literal(_) | Sort::Condition => {
                Err(self.invalid(&operand.at, format!("Value '{}' cannot be compared.", self.shown(operand))))
            }
        }
    }

    fn comparison(&mut self, left: &Operand) -> Result<(), FilterError> {
        let operator = self.advance()?;
        let comparison = match operator.kind {
            Kind::Less => Comparison::Less,
            Kind::LessOrEqual => Comparison::LessOrEqual,
            Kind::Greater => Comparison::Greater,
            Kind::GreaterOrEqual => Comparison::GreaterOrEqual,
            Kind::Word(Word::Not) => {
                let word = self.advance_word()?;
                return self.predicate(left, word, true);
            }
            Kind::Word(word) => return self.predicate(left, word, false),
            _ => return Err(self.unexpected("an operator")),
        };
        self.ordered(left)?;
        let right = self.right_side(comparison, left.sort)?;
        self.ordered(&right)
    }

    /// The word behind a `NOT` that follows an operand.
    fn advance_word(&mut self) -> Result<Word, FilterError> {
        match self.token.kind {
            Kind::Word(word @ (Word::Between | Word::In | Word::Contains | Word::StartsWith | Word::EndsWith)) => {
                self.advance()?;
                Ok(word)
            }
            _ => Err(self.unexpected("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")),
        }
    }

    /// The right operand of a comparison with the value on top. It is not evaluated if that is missing.
    fn right_side(&mut self, comparison: Comparison, left: Sort) -> Result<Operand, FilterError> {
        // Only an expression in parentheses can fail.
        let may_fail = matches!(self.token.kind, Kind::Open | Kind::Plus | Kind::Minus | Kind::Word(Word::Not));
        let jump = if may_fail { Some(self.jump(Op::UnlessNull)?) } else { None };
        let right = self.expression(UNARY)?;
        self.compare(comparison, left, right.sort)?;
        if let Some(jump) = jump {
            self.program.land(jump);
        }
        Ok(right)
    }

    fn compare(&mut self, comparison: Comparison, left: Sort, right: Sort) -> Result<(), FilterError> {
        let is_double = |sort| matches!(sort, Sort::Literal(Literal::Double(_)));
        let is_other = |sort| matches!(sort, Sort::Literal(Literal::Bool(_) | Literal::Int(_) | Literal::Long(_)));
        self.program.doubles += match comparison {
            _ if is_other(left) || is_other(right) => 0,
            // Two texts are equal without being numbers.
            Comparison::Equal => 1,
            _ if is_double(left) || is_double(right) => 1,
            _ => 2,
        };
        self.push(Op::Compare(comparison))
    }

    fn predicate(&mut self, left: &Operand, word: Word, negated: bool) -> Result<(), FilterError> {
        let search = match word {
            Word::Between => return self.between(left, negated),
            Word::In => return self.list(left, negated),
            Word::Contains => Search::Contains,
            Word::StartsWith => Search::StartsWith,
            _ => Search::EndsWith,
        };
        let text = self.quoted()?;
        if text.is_empty() {
            // RocketMQ does not evaluate the operand, so that it cannot fail.
            self.program.drop_from(left.first);
            return self.push(Op::Const(Literal::Bool(false)));
        }
        let text = self.program.text(text);
        self.push(Op::Text { search, text, negated })
    }

    /// `value >= low AND value <= high`, or `value < low OR value > high`.
    fn between(&mut self, value: &Operand, negated: bool) -> Result<(), FilterError> {
        let (low_is, jump, high_is, op): (_, fn(u32) -> Op, _, _) = if negated {
            (Comparison::Less, Op::UnlessTrue, Comparison::Greater, Op::Or)
        } else {
            (Comparison::GreaterOrEqual, Op::UnlessFalse, Comparison::LessOrEqual, Op::And)
        };
        self.push(Op::Dup)?;
        let low = self.right_side(low_is, value.sort)?;
        self.expect(Kind::Word(Word::And), "AND")?;
        let jump = self.jump(jump)?;
        self.push(Op::Over)?;
        let high = self.right_side(high_is, value.sort)?;
        self.push(op)?;
        self.program.land(jump);
        self.push(Op::Nip)?;
        if !negated {
            self.range(&low, &high)?;
        }
        [value, &low, &high].into_iter().try_for_each(|operand| self.ordered(operand))
    }

    /// Refuses literals of which the first one is above the second one.
    fn range(&self, low: &Operand, high: &Operand) -> Result<(), FilterError> {
        let (Sort::Literal(l), Sort::Literal(h)) = (low.sort, high.sort) else { return Ok(()) };
        let (Some(l), Some(h)) = (self.program.value(l), self.program.value(h)) else {
            return Err(self.invalid(&low.at, "Illegal values of between, values can not be null!".to_owned()));
        };
        match number::compare(h, l) {
            Some(Ordering::Equal | Ordering::Greater) => Ok(()),
            _ => {
                let (low_text, high_text) = (self.shown(low), self.shown(high));
                let text = format!(
                    "Illegal values of between, left value({low_text}) must less than or equal to right value({high_text})"
                );
                Err(self.invalid(&low.at, text))
            }
        }
    }

    fn list(&mut self, left: &Operand, negated: bool) -> Result<(), FilterError> {
        self.expect(Kind::Open, "'('")?;
        let mut texts = Vec::new();
        loop {
            texts.push(self.quoted()?);
            let counted = self.program.count(1, self.limits);
            self.placed(counted)?;
            if self.token.kind != Kind::Comma {
                break;
            }
            self.advance()?;
        }
        self.expect(Kind::Close, "',' or ')'")?;
        if left.sort != Sort::Property {
            let text = format!("Expected a property for In expression, got: {}", self.shown(left));
            return Err(self.invalid(&left.at, text));
        }
        let list = self.program.list(texts);
        self.push(Op::In { list, negated })
    }
}

/// At most the first 64 bytes of a text, for messages.
fn shortened(text: &str) -> &str {
    text.get(..text.floor_char_boundary(64)).unwrap_or(text)
}
