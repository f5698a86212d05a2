//! Random selectors against a naive evaluator, and text that is no selector.

use crate::message::{Message, Owned};
use polylogue_filter::{Filter, FilterSpec, Limits, Outcome, SELECTOR_NODES_MAX, Selector};
use proptest::prelude::*;
use std::cmp::Ordering;

#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Name(&'static str),
    Literal(Literal),
    Negate(Box<Expr>),
    Not(Box<Expr>),
    Join(bool, Box<Expr>, Box<Expr>),
    Equal(bool, Box<Expr>, Box<Expr>),
    IsNull(bool, Box<Expr>),
    Order(&'static str, Box<Expr>, Box<Expr>),
    Between(bool, Box<Expr>, Box<Expr>, Box<Expr>),
    In(bool, &'static str, Vec<&'static str>),
    Search(bool, &'static str, Box<Expr>, &'static str),
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Integer(i64),
    Double(f64),
    Text(&'static str),
}

pub(crate) const NAMES: [&str; 4] = ["a", "b", "$c", "_d9"];
const TEXTS: [&str; 14] =
    ["", "x", "xyx", "5", "-7", "true", "it's", "5.5", "3000000000", "+5", "abc", " 6 ", "1e3", "é"];

fn integer() -> impl Strategy<Value = i64> {
    prop_oneof![0..10i64, Just(3_000_000_000), Just(i64::from(i32::MAX)), Just(i64::MAX)]
}

fn double() -> impl Strategy<Value = f64> {
    prop_oneof![Just(5.5), Just(0.5), Just(1000.0), Just(6.0), Just(3e9)]
}

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&NAMES[..])
}

fn text() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&TEXTS[..])
}

/// An operand of an order: a number or a property, or the sign of anything.
fn number(any: BoxedStrategy<Expr>) -> BoxedStrategy<Box<Expr>> {
    prop_oneof![
        4 => name().prop_map(Expr::Name),
        4 => integer().prop_map(|n| Expr::Literal(Literal::Integer(n))),
        2 => double().prop_map(|n| Expr::Literal(Literal::Double(n))),
        2 => any.prop_map(|inner| Expr::Negate(Box::new(inner))),
    ]
    .prop_map(Box::new)
    .boxed()
}

fn condition(inner: BoxedStrategy<Expr>) -> BoxedStrategy<Expr> {
    let boxed = || inner.clone().prop_map(Box::new).boxed();
    // Something that is true or false, or a property.
    let truth =
        || inner.clone().prop_map(|e| Box::new(if e.is_truth() { e } else { Expr::IsNull(false, e.into()) })).boxed();
    let equal = || inner.clone().prop_map(|e| if e.is_null() { Expr::Name("a") } else { e }).prop_map(Box::new).boxed();
    let not = any::<bool>;
    let order = prop::sample::select(&["<", "<=", ">", ">="][..]);
    let search = prop::sample::select(&["CONTAINS", "STARTSWITH", "ENDSWITH"][..]);
    prop_oneof![
        4 => (not(), truth(), truth()).prop_map(|(or, l, r)| Expr::Join(or, l, r)).boxed(),
        1 => truth().prop_map(Expr::Not).boxed(),
        3 => (not(), equal(), equal()).prop_map(|(not, l, r)| Expr::Equal(not, l, r)).boxed(),
        1 => (not(), boxed()).prop_map(|(not, e)| Expr::IsNull(not, e)).boxed(),
        3 => (order, number(inner.clone()), number(inner.clone())).prop_map(|(op, l, r)| Expr::Order(op, l, r)).boxed(),
        2 => (not(), number(inner.clone()), number(inner.clone()), number(inner.clone()))
            .prop_map(|(not, v, l, h)| Expr::Between(not, v, l, h)).boxed(),
        1 => (not(), name(), prop::collection::vec(text(), 1..6)).prop_map(|(not, n, l)| Expr::In(not, n, l)).boxed(),
        1 => (not(), search, boxed(), text()).prop_map(|(not, s, e, t)| Expr::Search(not, s, e, t)).boxed(),
    ]
    .boxed()
}

pub(crate) fn selector() -> BoxedStrategy<Expr> {
    let leaf = prop_oneof![
        4 => name().prop_map(Expr::Name),
        1 => Just(Expr::Literal(Literal::Null)),
        1 => any::<bool>().prop_map(|b| Expr::Literal(Literal::Bool(b))),
        2 => integer().prop_map(|n| Expr::Literal(Literal::Integer(n))),
        1 => double().prop_map(|n| Expr::Literal(Literal::Double(n))),
        2 => text().prop_map(|t| Expr::Literal(Literal::Text(t))),
    ];
    let any = leaf.boxed().prop_recursive(3, 24, 3, |inner| condition(inner.boxed()));
    condition(any.boxed())
}

pub(crate) fn texts() -> impl Strategy<Value = Vec<(String, Owned)>> {
    prop::collection::btree_map(name(), text(), 0..4)
        .prop_map(|map| map.into_iter().map(|(name, text)| (name.to_owned(), Owned::text(text))).collect())
}

fn typed() -> impl Strategy<Value = Vec<(String, Owned)>> {
    let value = prop_oneof![
        3 => text().prop_map(Owned::text),
        1 => any::<bool>().prop_map(Owned::Bool),
        1 => (-9..9i32).prop_map(Owned::Int),
        1 => integer().prop_map(Owned::Long),
        1 => double().prop_map(Owned::Double),
        1 => Just(Owned::Other),
        1 => Just(Owned::Bytes(vec![0xff])),
    ];
    prop::collection::btree_map(name(), value, 0..4)
        .prop_map(|map| map.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

impl Expr {
    fn is_truth(&self) -> bool {
        !matches!(self, Expr::Negate(_) | Expr::Literal(Literal::Integer(_) | Literal::Double(_) | Literal::Text(_)))
    }

    fn is_null(&self) -> bool {
        matches!(self, Expr::Literal(Literal::Null))
    }

    fn level(&self) -> u8 {
        match self {
            Expr::Join(true, ..) => 1,
            Expr::Join(false, ..) => 2,
            Expr::Equal(..) | Expr::IsNull(..) => 3,
            Expr::Order(..) | Expr::Between(..) | Expr::In(..) | Expr::Search(..) => 4,
            Expr::Name(_) | Expr::Literal(_) | Expr::Negate(_) | Expr::Not(_) => 5,
        }
    }

    /// The text, with as few parentheses as possible or with all.
    pub(crate) fn print(&self, lowest: u8, all: bool) -> String {
        let inner = |e: &Expr, lowest: u8| e.print(lowest, all);
        let not = |not: bool| if not { "NOT " } else { "" };
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
        let text = match self {
            Expr::Name(name) => (*name).to_owned(),
            Expr::Literal(Literal::Null) => "NULL".to_owned(),
            Expr::Literal(Literal::Bool(value)) => value.to_string(),
            Expr::Literal(Literal::Integer(value)) => value.to_string(),
            Expr::Literal(Literal::Double(value)) => format!("{value:?}"),
            Expr::Literal(Literal::Text(value)) => quoted(value),
            // Two signs would be a comment if a line end followed.
            Expr::Negate(e) => format!("- {}", inner(e, 5)),
            Expr::Not(e) => format!("NOT {}", inner(e, 5)),
            Expr::Join(true, l, r) => format!("{} OR {}", inner(l, 1), inner(r, 2)),
            Expr::Join(false, l, r) => format!("{} and {}", inner(l, 2), inner(r, 3)),
            Expr::Equal(not, l, r) => format!("{} {} {}", inner(l, 3), if *not { "<>" } else { "=" }, inner(r, 4)),
            Expr::IsNull(negated, e) => format!("{} IS {}NULL", inner(e, 3), not(*negated)),
            Expr::Order(op, l, r) => format!("{}{op}{}", inner(l, 4), inner(r, 5)),
            Expr::Between(negated, v, l, h) => {
                format!("{} {}BETWEEN {} AND {}", inner(v, 4), not(*negated), inner(l, 5), inner(h, 5))
            }
            Expr::In(negated, name, list) => {
                let list: Vec<String> = list.iter().map(|text| quoted(text)).collect();
                format!("{name} {}In ({})", not(*negated), list.join(","))
            }
            Expr::Search(negated, search, e, text) => {
                format!("{} {}{search} {}", inner(e, 4), not(*negated), quoted(text))
            }
        };
        if self.level() < lowest || all && self.level() < 5 { format!("({text})") } else { text }
    }

    /// Whether RocketMQ refuses it: a boolean that equals another literal, or a range of two literals without members.
    fn is_refused(&self) -> bool {
        let own = match self {
            Expr::Equal(_, l, r) => {
                matches!((&**l, &**r), (Expr::Literal(Literal::Bool(_)), Expr::Literal(other)) if !matches!(other, Literal::Bool(_)))
            }
            Expr::Between(false, _, l, h) => match (&**l, &**h) {
                (Expr::Literal(Literal::Integer(l)), Expr::Literal(Literal::Integer(h))) => l > h,
                (Expr::Literal(Literal::Double(l)), Expr::Literal(Literal::Double(h))) => l > h,
                (Expr::Literal(Literal::Double(l)), Expr::Literal(Literal::Integer(h))) => *l > *h as f64,
                (Expr::Literal(Literal::Integer(l)), Expr::Literal(Literal::Double(h))) => *l as f64 > *h,
                _ => false,
            },
            _ => false,
        };
        own || match self {
            Expr::Negate(e) | Expr::Not(e) | Expr::IsNull(_, e) | Expr::Search(_, _, e, _) => e.is_refused(),
            Expr::Join(_, l, r) | Expr::Equal(_, l, r) | Expr::Order(_, l, r) => l.is_refused() || r.is_refused(),
            Expr::Between(_, v, l, h) => [v, l, h].into_iter().any(|e| e.is_refused()),
            Expr::Name(_) | Expr::Literal(_) | Expr::In(..) => false,
        }
    }

    fn eval(&self, message: &Message) -> Result<Option<Owned>, ()> {
        Ok(match self {
            Expr::Name(name) => message.properties.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone()),
            Expr::Literal(Literal::Null) => None,
            Expr::Literal(Literal::Bool(b)) => Some(Owned::Bool(*b)),
            Expr::Literal(Literal::Integer(n)) => Some(i32::try_from(*n).map_or(Owned::Long(*n), Owned::Int)),
            Expr::Literal(Literal::Double(n)) => Some(Owned::Double(*n)),
            Expr::Literal(Literal::Text(t)) => Some(Owned::text(t)),
            Expr::Negate(e) => match e.eval(message)? {
                Some(Owned::Int(n)) => Some(Owned::Int(-n)),
                Some(Owned::Long(n)) => Some(Owned::Long(-n)),
                Some(Owned::Double(n)) => Some(Owned::Double(-n)),
                _ => None,
            },
            Expr::Not(e) => e.truth(message)?.map(|value| Owned::Bool(!value)),
            Expr::Join(or, l, r) => join(*or, l.truth(message)?, || r.truth(message))?.map(Owned::Bool),
            Expr::Equal(not, l, r) => equal(l.eval(message)?, r.eval(message)?)?.map(|same| Owned::Bool(same != *not)),
            Expr::IsNull(not, e) => Some(Owned::Bool(e.eval(message)?.is_none() != *not)),
            Expr::Order(op, l, r) => order(op, l, r, message)?.map(Owned::Bool),
            Expr::Between(false, v, l, h) => {
                join(false, order(">=", v, l, message)?, || order("<=", v, h, message))?.map(Owned::Bool)
            }
            Expr::Between(true, v, l, h) => {
                join(true, order("<", v, l, message)?, || order(">", v, h, message))?.map(Owned::Bool)
            }
            Expr::In(not, name, list) => match Expr::Name(name).eval(message)? {
                Some(Owned::Text(text)) => Some(Owned::Bool(list.contains(&&*text) != *not)),
                _ => None,
            },
            Expr::Search(_, _, _, "") => Some(Owned::Bool(false)),
            Expr::Search(not, how, e, text) => {
                let Some(Owned::Text(value)) = e.eval(message)? else { return Ok(Some(Owned::Bool(false))) };
                let found = match *how {
                    "CONTAINS" => value.contains(text),
                    "STARTSWITH" => value.starts_with(text),
                    _ => value.ends_with(text),
                };
                Some(Owned::Bool(found != *not))
            }
        })
    }

    fn truth(&self, message: &Message) -> Result<Option<bool>, ()> {
        Ok(self.eval(message)?.map(|value| value == Owned::Bool(true)))
    }
}

type Truth = Result<Option<bool>, ()>;

fn join(or: bool, left: Option<bool>, right: impl FnOnce() -> Truth) -> Truth {
    if left == Some(or) {
        return Ok(left);
    }
    let right = right()?;
    Ok(if right == Some(or) { right } else { left.and(right) })
}

fn equal(left: Option<Owned>, right: Option<Owned>) -> Truth {
    Ok(match (left, right) {
        (None, None) => Some(true),
        (None, Some(_)) => None,
        (Some(_), None) => Some(false),
        (Some(Owned::Text(l)), Some(Owned::Text(r))) => Some(l == r),
        (Some(l), Some(r)) if !is_comparable(&l) || !is_comparable(&r) => Some(false),
        (Some(l), Some(r)) => Some(compare(&l, &r)? == Ordering::Equal),
    })
}

fn is_comparable(value: &Owned) -> bool {
    !matches!(value, Owned::Other | Owned::Bytes(_))
}

fn order(op: &str, left: &Expr, right: &Expr, message: &Message) -> Truth {
    let Some(left) = left.eval(message)? else { return Ok(None) };
    let Some(right) = right.eval(message)? else { return Ok(None) };
    if !is_comparable(&left) || !is_comparable(&right) {
        return Err(());
    }
    let order = match (&left, &right) {
        (Owned::Text(l), Owned::Text(r)) => compare(&Owned::Double(parse(l)?), &Owned::Double(parse(r)?))?,
        _ => compare(&left, &right)?,
    };
    Ok(Some(match op {
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        _ => order.is_ge(),
    }))
}

/// A number of the texts that the tests have.
fn parse(text: &str) -> Result<f64, ()> {
    text.trim().parse().map_err(|_| ())
}

fn compare(left: &Owned, right: &Owned) -> Result<Ordering, ()> {
    let like = |text: &str, other: &Owned| match other {
        Owned::Bool(_) => Ok(Owned::Bool(text.to_lowercase() == "true")),
        Owned::Int(_) => text.parse().map(Owned::Int).map_err(|_| ()),
        Owned::Long(_) => text.parse().map(Owned::Long).map_err(|_| ()),
        _ => parse(text).map(Owned::Double),
    };
    match (left, right) {
        (Owned::Bool(_), Owned::Text(_)) => Err(()),
        (Owned::Text(text), other) => compare(&like(text, other)?, other),
        (other, Owned::Text(text)) => compare(other, &like(text, other)?),
        (Owned::Bool(l), Owned::Bool(r)) => Ok(l.cmp(r)),
        (Owned::Bool(_), _) | (_, Owned::Bool(_)) => Ok(Ordering::Less),
        _ => match (integer_of(left), integer_of(right)) {
            (Some(l), Some(r)) => Ok(l.cmp(&r)),
            _ => Ok(float_of(left).partial_cmp(&float_of(right)).expect("no NaN")),
        },
    }
}

fn integer_of(value: &Owned) -> Option<i64> {
    match value {
        Owned::Int(n) => Some(i64::from(*n)),
        Owned::Long(n) => Some(*n),
        _ => None,
    }
}

fn float_of(value: &Owned) -> f64 {
    match value {
        Owned::Double(n) => *n,
        _ => integer_of(value).expect("a number") as f64,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn selectors_are_evaluated_as_a_naive_evaluator_does(
        expr in selector(),
        properties in prop_oneof![texts(), typed()],
        lookup_steps in 0..20u64,
    ) {
        let mut message = Message::new(properties);
        message.lookup_steps = lookup_steps;
        let (few, all) = (expr.print(0, false), expr.print(0, true));
        let parsed = [&few, &all].map(|text| Filter::compile(&FilterSpec::Sql92(text.clone()), &Limits::default()));
        let expected = match expr.eval(&message) {
            Err(()) => Outcome::Failed,
            Ok(None) => Outcome::Unknown,
            Ok(Some(Owned::Bool(true))) => Outcome::Match,
            Ok(Some(_)) => Outcome::NoMatch,
        };
        for (filter, text) in parsed.into_iter().zip([few, all]) {
            match filter {
                Err(error) => prop_assert!(expr.is_refused(), "{}: {}", text, error),
                Ok(filter) => {
                    prop_assert!(!expr.is_refused(), "{} is accepted", text);
                    let evaluation = filter.evaluate(&message);
                    prop_assert_eq!(evaluation.outcome, expected, "{}", text);
                    prop_assert!(evaluation.steps <= filter.steps_max(lookup_steps, message.text_bytes_max()));
                }
            }
        }
    }

    #[test]
    fn any_text_is_compiled_or_refused(text in any_text(), properties in texts()) {
        match Selector::parse(&text, &Limits::default()) {
            Ok(selector) => {
                let ignored = selector.ignored_from();
                prop_assert!(text.is_char_boundary(ignored));
                // What is ignored does not count.
                let whole = Selector::parse(&text[..ignored], &Limits::default());
                prop_assert_eq!(whole.as_ref().map(Selector::ignored_from), Ok(ignored));
                let message = Message::new(properties);
                prop_assert_eq!(whole.map(|s| s.evaluate(&message)), Ok(selector.evaluate(&message)));
            }
            Err(error) => prop_assert!(error.at.is_some_and(|at| text.is_char_boundary(at)), "{}", error),
        }
    }

    #[test]
    fn cost_is_bounded_for_long_texts(bytes in 0..20_000usize, text in 0..4usize) {
        let text = ["a".repeat(bytes), "9".repeat(bytes), format!("{}b", "a".repeat(bytes)), "é".repeat(bytes / 2)][text].clone();
        let message = Message::new(["a", "b"].map(|name| (name.to_owned(), Owned::Text(text.clone()))));
        let needle = format!("{}b", "a".repeat(bytes.min(2_000)));
        let list: Vec<String> = (0..200).map(|n| format!("'{}{n}'", "a".repeat(40))).collect();
        for selector in [
            "a = b or a > 5 or a > b".to_owned(),
            "a = b and a > b".to_owned(),
            format!("a contains '{needle}' or a startswith '{needle}' or b endswith '{needle}'"),
            format!("a in ({})", list.join(",")),
        ] {
            let filter = Filter::compile(&FilterSpec::Sql92(selector.clone()), &Limits::default()).unwrap();
            let (steps, bound) = (filter.evaluate(&message).steps, filter.steps_max(1, message.text_bytes_max()));
            prop_assert!(steps <= bound, "{}: {} of {}", selector, steps, bound);
        }
        let most = SELECTOR_NODES_MAX as u64 * 2;
        prop_assert!(Filter::compile(&FilterSpec::Sql92("a = 1".to_owned()), &Limits::default()).unwrap().steps_max(0, 0) <= most);
    }
}

/// Tokens that mostly do not fit together, or any characters.
pub(crate) fn any_text() -> impl Strategy<Value = String> {
    let token = prop_oneof![
        8 => prop::sample::select(&[
            "a", "b", "$c", "'x'", "'it''s'", "''", "5", "007", "3.5", ".5", "1e2", "5L", "0L", "9999999999", "TRUE", "false",
            "null", "Not", "AND", "or", "between", "IN", "is", "contains", "StartsWith", "ENDSWITH", "=", "<>", "<", "<=",
            ">", ">=", "(", ")", ",", "+", "-", "--", "\n", "/* c */", "/*", "*/", "in ('x')", "not null", "is null", "= 5",
            "between 1 and 5", "\u{c}", "0.0", "1e999", ".", "!", "é", "'",
        ][..]).prop_map(str::to_owned),
        1 => any::<String>(),
    ];
    let sep = prop::sample::select(&["", " ", " "][..]);
    prop_oneof![
        5 => prop::collection::vec((token, sep), 0..14).prop_map(|all| all.into_iter().map(|(t, s)| t + s).collect()),
        // An expression with a token put in somewhere.
        3 => (selector(), any::<prop::sample::Index>(), prop::sample::select(&["(", ")", "-", "NOT ", "'", " x ", " 5 ", "="][..])).prop_map(
            |(expr, at, token)| {
                let text = expr.print(0, false);
                let at = text.floor_char_boundary(at.index(text.len()));
                format!("{}{token}{}", &text[..at], &text[at..])
            }
        ),
        1 => any::<String>(),
    ]
}
