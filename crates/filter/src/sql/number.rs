//! Comparison of values as Java does it, and the numbers in texts.
//!
//! Differences from Java: a text is no number if it is a hexadecimal float (`0x1p3`).

use crate::Value;
use std::cmp::Ordering;

/// The digits zero of all scripts in the Basic Multilingual Plane (Unicode 13); each is followed by those from one to nine. Java accepts them.
const ZEROS: &[u16] = &[
    0x0030, 0x0660, 0x06f0, 0x07c0, 0x0966, 0x09e6, 0x0a66, 0x0ae6, 0x0b66, 0x0be6, 0x0c66, 0x0ce6, 0x0d66, 0x0de6,
    0x0e50, 0x0ed0, 0x0f20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50, 0x1bb0, 0x1c40,
    0x1c50, 0xa620, 0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0xff10,
];

fn digit(character: char) -> Option<i64> {
    if character.is_ascii() {
        return character.to_digit(10).map(i64::from);
    }
    let code = u16::try_from(u32::from(character)).ok()?;
    let zero = match ZEROS.binary_search(&code) {
        Ok(_) => code,
        Err(at) => *ZEROS.get(at.checked_sub(1)?)?,
    };
    Some(i64::from(code - zero)).filter(|digit| *digit < 10)
}

/// An integer: a sign and decimal digits, nothing else (`Long.valueOf`).
pub(super) fn long(text: &str) -> Option<i64> {
    let (negative, digits) = match text.as_bytes() {
        [b'-', ..] => (true, &text[1..]),
        [b'+', ..] => (false, &text[1..]),
        _ => (false, text),
    };
    if digits.is_empty() {
        return None;
    }
    // Negative numbers reach further.
    let below = digits.chars().try_fold(0i64, |sum, c| sum.checked_mul(10)?.checked_sub(digit(c)?))?;
    if negative { Some(below) } else { below.checked_neg() }
}

fn int(text: &str) -> Option<i32> {
    long(text).and_then(|number| i32::try_from(number).ok())
}

/// A decimal number (`Double.valueOf`): spaces around it, an exponent and a letter `f` or `d` behind it are allowed, and so are `NaN` and
/// `Infinity`.
pub(super) fn double(text: &str) -> Option<f64> {
    let text = text.trim_matches(|c| c <= ' ');
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    match unsigned {
        "NaN" => return Some(f64::NAN),
        "Infinity" => return Some(if text.starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY }),
        _ => {}
    }
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    text.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(text).parse().ok()
}

/// `Double.compareTo`: NaN is above all and equal to itself, and -0.0 is below 0.0.
fn order(left: f64, right: f64) -> Ordering {
    let canonical = |number: f64| if number.is_nan() { f64::NAN.abs() } else { number };
    canonical(left).total_cmp(&canonical(right))
}

/// Compares two values. Values that cannot be compared count as [`Ordering::Less`]; a text is converted to the other one's type.
///
/// Returns `None` if that conversion fails, where Java has an exception. Two texts are compared as such.
pub(super) fn compare(left: Value<'_>, right: Value<'_>) -> Option<Ordering> {
    Some(match (left, right) {
        (Value::Bool(l), Value::Bool(r)) => l.cmp(&r),
        // Here Java casts the boolean to a text.
        (Value::Bool(_), Value::Text(_)) => return None,
        (Value::Int(l), Value::Int(r)) => l.cmp(&r),
        (Value::Int(l), Value::Long(r)) => i64::from(l).cmp(&r),
        (Value::Int(l), Value::Double(r)) => order(f64::from(l), r),
        (Value::Int(l), Value::Text(r)) => l.cmp(&int(r)?),
        (Value::Long(l), Value::Int(r)) => l.cmp(&i64::from(r)),
        (Value::Long(l), Value::Long(r)) => l.cmp(&r),
        (Value::Long(l), Value::Double(r)) => order(l as f64, r),
        (Value::Long(l), Value::Text(r)) => l.cmp(&long(r)?),
        (Value::Double(l), Value::Int(r)) => order(l, f64::from(r)),
        (Value::Double(l), Value::Long(r)) => order(l, r as f64),
        (Value::Double(l), Value::Double(r)) => order(l, r),
        (Value::Double(l), Value::Text(r)) => order(l, double(r)?),
        (Value::Text(l), Value::Bool(r)) => l.eq_ignore_ascii_case("true").cmp(&r),
        (Value::Text(l), Value::Int(r)) => int(l)?.cmp(&r),
        (Value::Text(l), Value::Long(r)) => long(l)?.cmp(&r),
        (Value::Text(l), Value::Double(r)) => order(double(l)?, r),
        (Value::Text(l), Value::Text(r)) => l.cmp(r),
        _ => Ordering::Less,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_java_reads_them() {
        for (text, number) in [("5", 5), ("-5", -5), ("+5", 5), ("0005", 5), ("٥", 5), ("１２", 12), ("-0", 0)] {
            assert_eq!(long(text), Some(number), "{text}");
        }
        assert_eq!(long("-9223372036854775808"), Some(i64::MIN));
        assert_eq!(long("9223372036854775807"), Some(i64::MAX));
        for text in ["", "+", "-", "5.0", " 5", "5L", "0x5", "9223372036854775808", "--5", "five", "𝟓", "5 "] {
            assert_eq!(long(text), None, "{text}");
        }
        assert_eq!((int("2147483647"), int("2147483648"), int("-2147483648")), (Some(i32::MAX), None, Some(i32::MIN)));
    }

    #[test]
    fn doubles_are_read_as_java_reads_them() {
        for (text, number) in
            [(" 5\n", 5.0), ("5.", 5.0), (".5", 0.5), ("-5e2", -500.0), ("5f", 5.0), ("5.5E-1D", 0.55)]
        {
            assert_eq!(double(text), Some(number), "{text}");
        }
        assert_eq!(double("1e999"), Some(f64::INFINITY));
        assert_eq!(double("-Infinity"), Some(f64::NEG_INFINITY));
        assert!(double("-NaN").is_some_and(f64::is_nan));
        for text in
            ["", " ", ".", "1e", "nan", "inf", "infinity", "1_0", "1ff", "+-1", "e5", "1 f", "0x1p3", "NaNf", "\u{a0}5"]
        {
            assert_eq!(double(text), None, "{text}");
        }
    }

    #[test]
    fn doubles_are_ordered_as_java_orders_them() {
        assert_eq!(order(f64::NAN, -f64::NAN), Ordering::Equal);
        assert_eq!(order(-f64::NAN, f64::INFINITY), Ordering::Greater);
        assert_eq!(order(-0.0, 0.0), Ordering::Less);
    }
}
