//! The wire form.

use polylogue_filter::{Condition, Filter, FilterErrorKind, FilterSpec, HeaderValue, Limits};
use proptest::prelude::*;

fn spec() -> impl Strategy<Value = FilterSpec> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..9);
    let value = prop_oneof![
        any::<bool>().prop_map(HeaderValue::Bool),
        any::<i64>().prop_map(HeaderValue::Integer),
        any::<f64>().prop_map(HeaderValue::Double),
        bytes().prop_map(HeaderValue::Bytes),
    ];
    let condition = (any::<String>(), prop::option::of(value)).prop_map(|(name, value)| Condition { name, value });
    prop_oneof![
        Just(FilterSpec::All),
        prop::collection::btree_set(any::<String>(), 0..9).prop_map(FilterSpec::Tags),
        (prop::collection::btree_set(bytes(), 0..9), any::<bool>())
            .prop_map(|(values, unfiltered)| FilterSpec::Values { values, unfiltered }),
        (any::<bool>(), prop::collection::vec(condition, 0..9))
            .prop_map(|(any, conditions)| FilterSpec::Headers { any, conditions }),
        any::<String>().prop_map(FilterSpec::Sql92),
    ]
}

proptest! {
    #[test]
    fn specs_come_back(spec in spec()) {
        prop_assert_eq!(FilterSpec::decode(&spec.encode(), &Limits::default()), Ok(spec));
    }

    #[test]
    fn a_part_of_a_spec_and_one_with_more_are_refused(spec in spec(), cut in any::<prop::sample::Index>(), more in any::<u8>()) {
        let mut bytes = spec.encode();
        let part = FilterSpec::decode(&bytes[..cut.index(bytes.len())], &Limits::default());
        prop_assert_eq!(part.map_err(|e| e.kind), Err(FilterErrorKind::Malformed));
        bytes.push(more);
        let longer = FilterSpec::decode(&bytes, &Limits::default());
        prop_assert_eq!(longer.map_err(|e| e.kind), Err(FilterErrorKind::Malformed));
    }

    #[test]
    fn any_bytes_are_refused_or_read(mut bytes in prop::collection::vec(any::<u8>(), 0..60), spec in spec(), flip in any::<prop::sample::Index>()) {
        if let [version, kind, ..] = &mut bytes[..] {
            (*version, *kind) = (1, *kind % 5);
        }
        let mut changed = spec.encode();
        let at = flip.index(changed.len());
        changed[at] ^= 1 << (at % 8);
        for bytes in [bytes, changed] {
            if let Ok(spec) = FilterSpec::decode(&bytes, &Limits::default()) {
                prop_assert_eq!(spec.encode(), bytes);
                let _ = Filter::compile(&spec, &Limits::default());
            }
        }
    }
}

#[test]
fn the_layout_is_as_drawn() {
    let tags = FilterSpec::tags("b || a").unwrap();
    assert_eq!(tags.encode(), [&[1, 1, 2, 0, 0, 0][..], &[1, 0, 0, 0, b'a'], &[1, 0, 0, 0, b'b']].concat());
    let values = FilterSpec::Values { values: [b"v".to_vec()].into(), unfiltered: true };
    assert_eq!(values.encode(), [1, 2, 1, 1, 0, 0, 0, 1, 0, 0, 0, b'v']);
    let condition = Condition { name: "n".to_owned(), value: Some(HeaderValue::Bool(true)) };
    let headers = FilterSpec::Headers { any: false, conditions: vec![condition] };
    assert_eq!(headers.encode(), [1, 3, 0, 1, 0, 0, 0, 1, 0, 0, 0, b'n', 1, 1]);
    assert_eq!(FilterSpec::Sql92("a".to_owned()).encode(), [1, 4, 1, 0, 0, 0, b'a']);
    assert_eq!(FilterSpec::All.encode(), [1, 0]);
}

#[test]
fn hostile_bytes_are_refused() {
    for (bytes, text) in [
        (&[][..], "version"),
        (&[2, 0], "version"),
        (&[1, 5], "kind of filter"),
        (&[1, 0, 0], "filter"),
        (&[1, 1, 0xff, 0xff, 0xff, 0xff], "number of terms"),
        (&[1, 1, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff], "tag"),
        (&[1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0xff], "tag"),
        // Not ascending, and a duplicate.
        (&[1, 1, 2, 0, 0, 0, 1, 0, 0, 0, b'b', 1, 0, 0, 0, b'a'], "tag"),
        (&[1, 2, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "value"),
        (&[1, 2, 2, 0, 0, 0, 0], "flag"),
        (&[1, 3, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9], "condition"),
        (&[1, 4, 1, 0, 0, 0, 0xff], "selector"),
    ] {
        let error = FilterSpec::decode(bytes, &Limits::default()).expect_err(text);
        assert_eq!(error.kind, FilterErrorKind::Malformed);
        assert_eq!(error.text, format!("filter: cannot read {text}: too short or not a legal value"), "{bytes:?}");
    }
}
