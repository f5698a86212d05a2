//! The facts that RocketMQ's own tests of its selectors state (ExpressionTest, ParserTest of rocketmq-filter 5.5.0), as tables.

use crate::message::{Message, Owned};
use polylogue_filter::{FilterErrorKind, Limits, Outcome, Outcome::*, Selector};

fn outcome(selector: &str, message: &Message) -> Outcome {
    let selector = Selector::parse(selector, &Limits::default()).unwrap_or_else(|e| panic!("{selector}: {e}"));
    selector.evaluate(message).outcome
}

fn check(properties: &[(&str, &str)], cases: &[(&str, Outcome)]) {
    for (selector, expected) in cases {
        assert_eq!(outcome(selector, &Message::texts(properties)), *expected, "{selector} of {properties:?}");
    }
}

const SEARCHES: [&str; 3] = ["CONTAINS", "startswith", "EndsWith"];

#[test]
fn searches_find_texts() {
    let find = |operand: &str, text: &str, message: &Message, found: [Outcome; 2]| {
        for search in SEARCHES {
            for (not, expected) in ["", "NOT"].into_iter().zip(found) {
                let selector = format!("{operand} {not} {search} '{text}'");
                assert_eq!(outcome(&selector, message), expected, "{selector} of {message:?}");
            }
        }
    };
    let text = |text: &str| Message::texts(&[("value", text)]);
    find("value", "x", &text("xbx"), [Match, NoMatch]);
    find("value", "x", &text("abb"), [NoMatch, Match]);
    find("'xax'", "x", &text("other"), [Match, NoMatch]);
    find("' '", " ", &text("other"), [Match, NoMatch]);
    for special in ["u", ".", "\\", "%", "_"] {
        find("'axb'", special, &text("other"), [NoMatch, Match]);
    }
    // An empty text, a missing property and a value that is no text are never found, and never not found either.
    find("value", "", &text("axb"), [NoMatch, NoMatch]);
    find("'axb'", "", &text("axb"), [NoMatch, NoMatch]);
    find("value", "x", &Message::texts(&[]), [NoMatch, NoMatch]);
    for value in [Owned::Double(1.23), Owned::Bool(true), Owned::Other, Owned::Bytes(b"x".to_vec())] {
        find("value", "x", &Message::new([("value".to_owned(), value)]), [NoMatch, NoMatch]);
    }
    check(
        &[("value", "axb")],
        &[
            ("value contains 'x'", Match),
            ("value startswith 'ax'", Match),
            ("value endswith 'xb'", Match),
            ("value not startswith 'xb'", Match),
            ("value not endswith 'ax'", Match),
        ],
    );
    for search in SEARCHES {
        let typed = [("a", Owned::text("3")), ("b", Owned::Int(3)), ("c", Owned::text("axbdc"))];
        let message = Message::new(typed.map(|(name, value)| (name.to_owned(), value)));
        let selector = format!("a not in ('4', '4', '5') and b between 3 and 10 and c not {search} 'axbc'");
        assert_eq!(outcome(&selector, &message), Match);
    }
}

#[test]
fn properties_are_converted_to_the_type_of_the_literal() {
    check(&[("a", "3.1415")], &[("a > 3.14", Match), ("a < 3.14", NoMatch), ("a = 3.1415", Match)]);
    check(&[("a", "31415000000.0")], &[("a > 3.1E10", Match)]);
    check(&[("a", "true"), ("b", "false")], &[("a=TRUE OR b=FALSE", Match), ("a = FALSE or b = TRUE", NoMatch)]);
    check(&[("a", "10"), ("b", "9")], &[("a > b", Match), ("b > a", NoMatch), ("a >= b and b <= a", Match)]);
    check(&[("a", "3.14"), ("b", "3.14")], &[("a=b", Match), ("a<>b", NoMatch)]);
    check(&[("a", "3.14"), ("b", "3.141")], &[("a<>b", Match), ("a=b", NoMatch)]);
    check(&[("a", "3.14"), ("b", "3.140")], &[("a<>b", Match), ("a >= b and a <= b", Match)]);
    // 5 is an integer of 32 bits, 5000000000 one of 64, 5.5 a double.
    check(&[("a", "3000000000")], &[("a > 5", Failed), ("a < 5000000000", Match), ("a > 5.5", Match)]);
    check(&[("a", "6.0")], &[("a > 5", Failed), ("a > 5.5", Match)]);
    check(
        &[("a", "abc")],
        &[
            ("a between 0 and 100", Failed),
            ("a is not null and a between 0 and 100", Failed),
            ("a = 5 or TRUE", Failed),
            ("TRUE or a = 5", Match),
            ("FALSE and a = 5", NoMatch),
        ],
    );
    check(&[("a", "3.14"), ("up", "up"), ("low", "low")], &[("a between up and low", Failed)]);
    check(&[("a", "3.14")], &[("a between up and low", Unknown)]);
}

#[test]
fn conditions_are_joined_in_three_values() {
    let and = "a=3 and b<>4 And c>5 AND d<=4";
    let or = "a=3 or b<>4 Or c>5 OR d<=4";
    check(&[("a", "3"), ("b", "5"), ("c", "6"), ("d", "1")], &[(and, Match), (or, Match)]);
    check(&[("a", "4"), ("b", "5"), ("c", "6"), ("d", "1")], &[(and, NoMatch)]);
    check(&[("a", "4"), ("b", "4"), ("c", "4"), ("d", "10")], &[(or, NoMatch)]);
    check(&[("a", "3")], &[(and, Unknown), (or, Match)]);
    check(&[("a", "4"), ("b", "5")], &[(and, NoMatch), (or, Match)]);
    check(&[("a", "4"), ("b", "4"), ("c", "6")], &[(or, Match)]);
    check(&[("a", "4"), ("b", "4"), ("c", "3"), ("d", "2")], &[(or, Match)]);
    let typed = [("a", 3), ("b", 5), ("c", 6), ("d", 1)].map(|(name, value)| (name.to_owned(), Owned::Int(value)));
    assert_eq!(outcome(and, &Message::new(typed)), Match);
    check(
        &[],
        &[
            ("a is null OR a='hello'", Match),
            ("a is not null and a='hello'", NoMatch),
            ("a is not null and a > 0", NoMatch),
        ],
    );
    check(&[("a", "hello")], &[("a is null OR a='hello'", Match), ("a is not null and a='hello'", Match)]);
    check(&[("a", "abc")], &[("a is null OR a='hello'", NoMatch)]);
}

#[test]
fn ranges_lists_and_missing_properties() {
    for (value, outside) in [("1", true), ("2", false), ("3", false), ("10", false), ("11", true)] {
        let [yes, no] = if outside { [Match, NoMatch] } else { [NoMatch, Match] };
        check(&[("a", value)], &[("a not between 2 and 10", yes), ("a between 2 and 10", no)]);
    }
    for (value, listed) in [("3", true), ("4", true), ("5", true), ("8", false), ("", false)] {
        let [yes, no] = if listed { [Match, NoMatch] } else { [NoMatch, Match] };
        check(&[("a", value)], &[("a in ('3', '4', '5')", yes), ("a not in ('3', '4', '5')", no)]);
    }
    check(&[("a", "2")], &[("a is null", NoMatch), ("a is not null", Match)]);
    check(
        &[("abc", "2")],
        &[
            ("a is null", Match),
            ("a is not null", NoMatch),
            ("a = 2", Unknown),
            ("a <> 2", Unknown),
            ("a in ('2')", Unknown),
            ("a not in ('2')", Unknown),
            ("a between 1 and 3", Unknown),
            ("NOT (a = 2)", Unknown),
            // Two missing properties are equal; one that is there differs from a missing one.
            ("a = b", Match),
            ("a <> b", NoMatch),
            ("abc <> b", Match),
            ("b <> abc", Unknown),
        ],
    );
    check(&[("TAGS", "''tag''")], &[("TAGS is not null and TAGS='''''tag'''''", Match)]);
}

#[test]
fn expressions_are_read_as_far_as_they_go() {
    check(
        &[("a", "1"), ("now", "5")],
        &[
            ("a <= now", Match),
            ("a = 1 garbage", Match),
            ("a = 1 ) and b", Match),
            ("a = 01", NoMatch),
            ("a-b = 1", NoMatch),
            ("a is null not x", NoMatch),
            ("a is not null > 5", Match),
            ("a = 1 -- and b = 2", Match),
            ("a = 1 -- comment\n and a = 2", NoMatch),
            ("a /* comment */ = ++1", Match),
            ("((a)) in ('1')", Match),
            ("- a < 5", Unknown),
            ("a", NoMatch),
            ("NULL", Unknown),
            // NOT binds tighter than any comparison.
            ("NOT a = 1", NoMatch),
            ("NOT a = TRUE", Match),
            ("a > 0 = TRUE", Match),
            ("1 = TRUE", NoMatch),
            ("TRUE = a", Failed),
            ("5 contains '5'", NoMatch),
        ],
    );
    let whole = |text: &str| Selector::parse(text, &Limits::default()).unwrap().ignored_from();
    assert_eq!((whole("a = 1 "), whole("a = 1 b c")), (6, 6));
}

#[test]
fn what_rocketmq_refuses_is_refused() {
    use FilterErrorKind::{Invalid, Syntax};
    let digits = "1".repeat(7_000);
    let huge = format!("a > {digits}.{digits}");
    for (selector, kind, at, text) in [
        ("a and between 2 and 10", Syntax, 6, "expected a property, a value or '(', found 'between'"),
        ("a contains x", Syntax, 11, "expected a text in single quotes, found 'x'"),
        ("a not contains 123", Syntax, 15, "expected a text in single quotes, found '123'"),
        ("'axb' contains ", Syntax, 15, "expected a text in single quotes, found the end"),
        ("a in (3)", Syntax, 6, "expected a text in single quotes, found '3'"),
        ("a in ('3'", Syntax, 9, "expected ',' or ')', found the end"),
        ("", Syntax, 0, "expected a property, a value or '(', found the end"),
        ("a is 5", Syntax, 5, "expected NULL or NOT NULL, found '5'"),
        ("a not 5", Syntax, 6, "expected BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH, found '5'"),
        ("a = 1 \"", Syntax, 6, "unexpected character '\"'"),
        ("a = 'x", Syntax, 4, "a text has no closing quote"),
        ("a = 1 /* x", Syntax, 6, "neither a comment that is closed by */ nor a token"),
        ("a.b = 1", Syntax, 1, "unexpected character '.'"),
        ("(a = 1", Syntax, 6, "expected an operator or ')', found the end"),
        (
            "a > 100000000000000000000000",
            Invalid,
            4,
            "the number 100000000000000000000000 is above 9223372036854775807",
        ),
        ("a > -9223372036854775808", Invalid, 5, "the number 9223372036854775808 is above 9223372036854775807"),
        ("a > 1e400", Invalid, 4, "1e400 is greater than 1.7976931348623157e308"),
        ("a > 0.0", Invalid, 4, "0.0 is less than 4.9e-324"),
        (
            " a between 10 and 0",
            Invalid,
            11,
            "Illegal values of between, left value(10) must less than or equal to right value(0)",
        ),
        ("a between NULL and 0", Invalid, 10, "Illegal values of between, values can not be null!"),
        ("a between '5' and 7", Invalid, 10, "Value ''5'' cannot be compared."),
        ("a > 'x'", Invalid, 4, "Value ''x'' cannot be compared."),
        ("a > TRUE", Invalid, 4, "Value 'TRUE' cannot be compared."),
        ("(a = 1) > 2", Invalid, 0, "Value '(a = 1)' cannot be compared."),
        ("a = NULL", Invalid, 4, "'NULL' cannot be compared."),
        ("null <> a", Invalid, 0, "'null' cannot be compared."),
        ("TRUE = 1", Invalid, 0, "'TRUE' cannot be compared with '1'"),
        ("5 and a", Invalid, 0, "Expression will not result in a boolean value: 5"),
        ("a or -b", Invalid, 5, "Expression will not result in a boolean value: -b"),
        ("not a in ('x')", Invalid, 0, "Expected a property for In expression, got: not a"),
    ] {
        let error = Selector::parse(selector, &Limits::default()).expect_err(selector);
        assert_eq!((error.kind, error.at, &*error.text), (kind, Some(at), text), "{selector}");
        assert_eq!(error.to_string(), format!("{text} (at byte {at})"));
    }
    assert_eq!(Selector::parse(&huge, &Limits::default()).expect_err("huge").kind, Invalid);
}
