//! Filters that clients send: selectors, tag expressions and wire forms. They are compiled or refused, evaluated within their bound, and come back
//! from their own wire form.
//!
//! The first byte says what the rest is; of a selector, the part behind a zero byte is the value of each property.

#![no_main]

use libfuzzer_sys::fuzz_target;
use polylogue_filter::{Filter, FilterSpec, Limits, Selector, Subject, Tag, Value};

struct Message<'a>(&'a str);

impl Subject for Message<'_> {
    fn tag(&self) -> Tag<'_> {
        Tag::Text(self.0)
    }

    fn filter_value(&self) -> Option<&[u8]> {
        Some(self.0.as_bytes())
    }

    fn property(&self, name: &str) -> Option<Value<'_>> {
        match name.len() % 4 {
            0 => None,
            1 => Some(Value::Text(self.0)),
            2 => Some(Value::Long(self.0.len() as i64)),
            _ => Some(Value::Bool(name.starts_with('b'))),
        }
    }
}

fn apply(spec: &FilterSpec, text: &str) {
    let limits = Limits::default();
    assert_eq!(FilterSpec::decode(&spec.encode(), &limits).map(|spec| spec.encode()), Ok(spec.encode()));
    if let Ok(filter) = Filter::compile(spec, &limits) {
        let evaluation = filter.evaluate(&Message(text));
        assert!(evaluation.steps <= filter.steps_max(1, text.len()));
        assert_eq!(filter.evaluate(&Message(text)), evaluation);
    }
}

fn selector(text: &str) {
    let (text, value) = text.split_once('\0').unwrap_or((text, "5"));
    let limits = Limits::default();
    match Selector::parse(text, &limits) {
        Ok(selector) => {
            let read = &text[..selector.ignored_from()];
            let again = Selector::parse(read, &limits).map(|selector| selector.evaluate(&Message(value)));
            assert_eq!(again, Ok(selector.evaluate(&Message(value))));
            apply(&FilterSpec::Sql92(text.to_owned()), value);
        }
        Err(error) => assert!(error.at.is_none_or(|at| text.is_char_boundary(at))),
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((what, rest)) = input.split_first() else { return };
    match (what % 3, std::str::from_utf8(rest)) {
        (0, _) => {
            if let Ok(spec) = FilterSpec::decode(rest, &Limits::default()) {
                assert_eq!(spec.encode(), rest);
                apply(&spec, "a");
            }
        }
        (1, Ok(text)) => {
            if let Ok(spec) = FilterSpec::tags(text)
                && FilterSpec::decode(&spec.encode(), &Limits::default()).is_ok()
            {
                apply(&spec, text);
            }
        }
        (2, Ok(text)) => selector(text),
        _ => {}
    }
});
