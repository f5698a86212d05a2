//! Tags, filter values and headers.

use crate::message::{Message, Owned};
use polylogue_filter::{
    Condition, Filter, FilterErrorKind, FilterSpec, HeaderValue, HeadersMatch, Limits, Outcome, Reads, Tag, tag_hash,
};
use std::collections::BTreeSet;

fn filter(spec: &FilterSpec) -> Filter {
    Filter::compile(spec, &Limits::default()).expect("a filter")
}

fn tagged(tag: Tag<'static>) -> Message {
    Message { tag, ..Message::texts(&[]) }
}

#[test]
fn tag_expressions_are_split_as_in_rocketmq() {
    let tags = |tags: &[&str]| Ok(FilterSpec::Tags(tags.iter().map(|tag| (*tag).to_owned()).collect()));
    for (expression, expected) in [
        ("", Ok(FilterSpec::All)),
        ("*", Ok(FilterSpec::All)),
        ("a", tags(&["a"])),
        ("a || b", tags(&["a", "b"])),
        (" a||b || a ||", tags(&["a", "b"])),
        ("||a", tags(&["a"])),
        ("a | b", tags(&["a | b"])),
        ("a|||b", tags(&["a", "|b"])),
        // Only the star alone stands for all.
        ("* || a", tags(&["*", "a"])),
        (" * ", tags(&["*"])),
        (" || ", tags(&[])),
        (" ", tags(&[])),
    ] {
        assert_eq!(FilterSpec::tags(expression), expected, "{expression:?}");
    }
    for expression in ["||", "||||"] {
        let error = FilterSpec::tags(expression).expect_err(expression);
        assert_eq!((error.kind, &*error.text), (FilterErrorKind::Syntax, "subString split error"));
    }
}

#[test]
fn tags_match_by_text_if_it_is_known_else_by_hash() {
    let filter = filter(&FilterSpec::tags("Aa || TagA || z").unwrap());
    assert_eq!(filter.reads(), Reads::Tag);
    for (tag, matches) in [
        (Tag::Text("Aa"), true),
        (Tag::Text("TagA"), true),
        // Its hash is that of Aa.
        (Tag::Text("BB"), false),
        (Tag::Hash(tag_hash("BB")), true),
        (Tag::Hash(tag_hash("TagA")), true),
        (Tag::Hash(0), false),
        (Tag::Text(""), false),
        (Tag::Absent, false),
        (Tag::Unknown, true),
    ] {
        assert_eq!(filter.evaluate(&tagged(tag)).matches(), matches, "{tag:?}");
    }
    let none = Filter::compile(&FilterSpec::tags(" || ").unwrap(), &Limits::default()).unwrap();
    assert!(!none.evaluate(&tagged(Tag::Text("a"))).matches());
}

#[test]
fn a_filter_set_of_tubemq_fits() {
    let items: BTreeSet<String> = (0..500).map(|n| format!("{n:0>256}")).collect();
    let spec = FilterSpec::Tags(items);
    assert_eq!(FilterSpec::decode(&spec.encode(), &Limits::default()), Ok(spec.clone()));
    let filter = filter(&spec);
    let evaluation = filter.evaluate(&tagged(Tag::Hash(tag_hash(&format!("{:0>256}", 499)))));
    assert!(evaluation.matches());
    assert_eq!((evaluation.steps, filter.steps_max(0, 256)), (10, 10 + 9 * (2 * 256 / 20)));
}

#[test]
fn filter_values_of_streams() {
    let values: BTreeSet<Vec<u8>> = [b"emea".to_vec(), b"\xff".to_vec(), Vec::new()].into();
    for unfiltered in [false, true] {
        let filter = filter(&FilterSpec::Values { values: values.clone(), unfiltered });
        assert_eq!(filter.reads(), Reads::FilterValue);
        for (value, matches) in [
            (Some(&b"emea"[..]), true),
            (Some(b"\xff"), true),
            (Some(b""), true),
            (Some(b"apac"), false),
            (Some(b"eme"), false),
            (None, unfiltered),
        ] {
            let message = Message { filter_value: value.map(<[u8]>::to_vec), ..Message::texts(&[]) };
            assert_eq!(filter.evaluate(&message).matches(), matches, "{value:?}, {unfiltered}");
        }
    }
    let none = filter(&FilterSpec::Values { values: BTreeSet::new(), unfiltered: true });
    assert!(none.evaluate(&Message::texts(&[])).matches());
}

fn condition(name: &str, value: Option<HeaderValue>) -> Condition {
    Condition { name: name.to_owned(), value }
}

#[test]
fn headers_match_as_in_a_headers_exchange() {
    let wanted = [
        condition("format", Some(HeaderValue::Bytes(b"pdf".to_vec()))),
        condition("pages", Some(HeaderValue::Integer(3))),
        condition("x-size", None),
        condition("x-match", Some(HeaderValue::Bytes(b"all".to_vec()))),
    ];
    let message = |headers: &[(&str, Owned)]| {
        Message::new(headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())))
    };
    let pdf = ("format", Owned::text("pdf"));
    let pages = ("pages", Owned::Long(3));
    let size = ("x-size", Owned::Other);
    for (headers, expected) in [
        (vec![pdf.clone(), pages.clone(), size.clone()], [true, true, true, true]),
        (vec![pdf.clone(), pages.clone()], [true, true, false, true]),
        (vec![pdf], [false, true, false, true]),
        (vec![size], [false, false, false, true]),
        (vec![("format", Owned::Bytes(b"pdf".to_vec())), ("pages", Owned::Int(3))], [true, true, false, true]),
        (vec![("format", Owned::text("PDF")), ("pages", Owned::Double(3.0))], [false; 4]),
        (vec![("pages", Owned::text("3"))], [false; 4]),
        (vec![], [false; 4]),
    ] {
        let modes = [HeadersMatch::All, HeadersMatch::Any, HeadersMatch::AllWithX, HeadersMatch::AnyWithX];
        let matches = modes.map(|mode| {
            let filter = filter(&FilterSpec::headers(mode, wanted.clone()));
            let evaluation = filter.evaluate(&message(&headers));
            assert!(evaluation.steps <= filter.steps_max(1, 10));
            evaluation.matches()
        });
        assert_eq!(matches, expected, "{headers:?}");
    }
    // All of no conditions matches everything, any of none nothing.
    assert!(filter(&FilterSpec::headers(HeadersMatch::All, [])).evaluate(&message(&[])).matches());
    assert!(!filter(&FilterSpec::headers(HeadersMatch::Any, [])).evaluate(&message(&[])).matches());
}

#[test]
fn values_of_headers_are_equal_within_a_type() {
    for (value, wanted, equal) in [
        (Owned::Double(0.0), HeaderValue::Double(-0.0), true),
        (Owned::Double(0.5), HeaderValue::Double(0.5), true),
        (Owned::Double(1.0), HeaderValue::Integer(1), false),
        (Owned::Bool(true), HeaderValue::Bool(true), true),
        (Owned::Bool(true), HeaderValue::Bool(false), false),
        (Owned::Bool(true), HeaderValue::Integer(1), false),
        (Owned::Int(-1), HeaderValue::Integer(-1), true),
        (Owned::text("1"), HeaderValue::Integer(1), false),
        (Owned::Other, HeaderValue::Bytes(Vec::new()), false),
    ] {
        let filter = filter(&FilterSpec::headers(HeadersMatch::All, [condition("h", Some(wanted.clone()))]));
        let message = Message::new([("h".to_owned(), value.clone())]);
        assert_eq!(filter.evaluate(&message).matches(), equal, "{value:?} {wanted:?}");
    }
}

#[test]
fn all_matches_everything_and_a_refused_selector_is_no_filter() {
    let all = filter(&FilterSpec::All);
    let evaluation = all.evaluate(&tagged(Tag::Absent));
    assert_eq!((all.reads(), evaluation.outcome, evaluation.steps), (Reads::Nothing, Outcome::Match, 1));
    let error = Filter::compile(&FilterSpec::Sql92("a >".to_owned()), &Limits::default()).expect_err("no operand");
    assert_eq!(error.at, Some(3));
}
