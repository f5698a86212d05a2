//! Each limit, at and above it, and no allocation at evaluation.

use crate::message::Message;
use polylogue_filter::{
    Filter, FilterError, FilterErrorKind, FilterSpec, Limits, SELECTOR_BYTES_MAX, SELECTOR_DEPTH_MAX,
    SELECTOR_NODES_MAX, STACK_MAX, Selector, TERM_BYTES_MAX, TERMS_MAX,
};

fn parse(text: &str) -> Result<Selector, FilterError> {
    Selector::parse(text, &Limits::default())
}

fn refused(text: &str) -> (String, Option<usize>) {
    let error = parse(text).expect_err("above a limit");
    assert_eq!(error.kind, FilterErrorKind::Limit);
    (error.text, error.at)
}

#[test]
fn the_length_of_a_selector_is_bounded() {
    let most = format!("a{}", " ".repeat(SELECTOR_BYTES_MAX - 1));
    assert!(parse(&most).is_ok());
    assert_eq!(refused(&format!("{most} ")), ("bytes of a selector: 16385, the limit is 16384".to_owned(), None));
}

#[test]
fn the_depth_of_a_selector_is_bounded() {
    let nested = |open: &str, count: usize| format!("{}a{}", open.repeat(count), ")".repeat(count));
    for open in ["(", "NOT ", "+", "- "] {
        let close = if open == "(" { SELECTOR_DEPTH_MAX } else { 0 };
        let operand = if open == "- " { " > 1" } else { "" };
        let most = format!("{}a{}{operand}", open.repeat(SELECTOR_DEPTH_MAX), ")".repeat(close));
        assert!(parse(&most).is_ok(), "{most}");
        let text = "open parentheses and signs of a selector: 65, the limit is 64".to_owned();
        assert_eq!(refused(&format!("{open}{most}")), (text, Some(open.len() * 65)));
    }
    // As many operators as possible wait for the parentheses to close.
    let (text, _) = refused(&nested("a OR a AND a = (", SELECTOR_DEPTH_MAX));
    assert_eq!(text, "open operators of a selector: 129, the limit is 128");
    assert!(parse(&nested("a OR a AND a = (", STACK_MAX / 3)).is_ok());
    // A hostile text ends at the limit, however long it is.
    assert!(parse(&"(".repeat(SELECTOR_BYTES_MAX)).is_err());
}

#[test]
fn the_size_of_a_selector_is_bounded() {
    // Each condition has four instructions, and each but the first two for its OR.
    let conditions = |count: usize| vec!["a = 1"; count].join(" OR ");
    let most = (SELECTOR_NODES_MAX + 2) / 5;
    assert!(parse(&conditions(most)).is_ok());
    let (text, at) = refused(&conditions(most + 1));
    assert_eq!((&*text, at), ("operators and operands of a selector: 1025, the limit is 1024", Some(1_847)));
    let list = |count: usize| format!("a in ({})", vec!["''"; count].join(","));
    assert!(parse(&list(SELECTOR_NODES_MAX - 2)).is_ok());
    let (text, at) = refused(&list(SELECTOR_NODES_MAX + 1));
    assert_eq!((&*text, at), ("operators and operands of a selector: 1025, the limit is 1024", Some(3_077)));
}

#[test]
fn the_cost_of_the_largest_selectors_is_as_stated() {
    let cost = |text: &str| {
        let filter = Filter::compile(&FilterSpec::Sql92(text.to_owned()), &Limits::default()).unwrap();
        let message = Message::texts(&[("a", "2"), ("b", "x")]);
        (filter.evaluate(&message).steps, filter.steps_max(1, 1))
    };
    let conditions = vec!["a = 1"; 205].join(" OR ");
    // 1,023 instructions, of which 205 read a property.
    assert_eq!(cost(&conditions), (1_023 + 205, 1_023 + 205));
    let lists = vec!["b in ('x','y','z')"; 128].join(" AND ");
    let (steps, most) = cost(&lists);
    assert!(steps <= most && most < 2_048, "{steps} of {most}");
}

#[test]
fn the_terms_of_a_filter_are_bounded() {
    let compile = |spec: &FilterSpec| Filter::compile(spec, &Limits::default()).map(|_| ()).map_err(|e| e.text);
    let decode =
        |spec: &FilterSpec| FilterSpec::decode(&spec.encode(), &Limits::default()).map(|_| ()).map_err(|e| e.text);
    let tags = |count: usize| FilterSpec::Tags((0..count).map(|n| n.to_string()).collect());
    let long = |bytes: usize| FilterSpec::Tags([("a".repeat(bytes))].into());
    for (spec, expected) in [
        (tags(TERMS_MAX), Ok(())),
        (tags(TERMS_MAX + 1), Err("terms of a filter: 1025, the limit is 1024".to_owned())),
        (long(TERM_BYTES_MAX), Ok(())),
        (long(TERM_BYTES_MAX + 1), Err("bytes of a term of a filter: 1025, the limit is 1024".to_owned())),
        (
            FilterSpec::Sql92("a".repeat(SELECTOR_BYTES_MAX + 1)),
            Err("bytes of a selector: 16385, the limit is 16384".to_owned()),
        ),
    ] {
        assert_eq!((compile(&spec), decode(&spec)), (expected.clone(), expected));
    }
    let bytes = tags(TERMS_MAX).encode();
    let limits = Limits { spec_bytes: bytes.len() - 1, ..Limits::default() };
    let error = FilterSpec::decode(&bytes, &limits).expect_err("too long");
    assert_eq!(error.text, format!("bytes of a filter: {}, the limit is {}", bytes.len(), bytes.len() - 1));
}

#[test]
fn evaluation_allocates_nothing() {
    let deep = format!("a = 'x' AND ({}b > 5.5{})", "b BETWEEN 1.5 AND - (a = 'y' OR ".repeat(20), ")".repeat(20));
    let message = Message::texts(&[("a", "x"), ("b", "7")]);
    for text in ["a = 'x' AND b > 5 AND a IN ('x', 'y') AND a CONTAINS 'x' AND c IS NULL", &deep] {
        let filter = Filter::compile(&FilterSpec::Sql92(text.to_owned()), &Limits::default()).unwrap();
        let allocated = allocation_counter::measure(|| _ = filter.evaluate(&message));
        assert_eq!(allocated.count_total, 0, "{text}");
    }
}
