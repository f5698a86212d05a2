//! Medians, spread, verdicts on pairs, and number formats.

/// Default number of agreeing pairs for a verdict.
pub const PAIRS_MIN: usize = 3;

/// Returns the median. `None` without values.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = sorted.get(middle).copied()?;
    match sorted.len() % 2 {
        0 => Some((sorted.get(middle.checked_sub(1)?)? + upper) / 2.0),
        _ => Some(upper),
    }
}

/// Verdict on two sides with paired values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The first side is better in every pair.
    First,
    /// The second side is better in every pair.
    Second,
    /// The pairs do not agree, or are too few.
    Level,
}

/// Compares pairs of values. At least `pairs_min` pairs must agree.
#[must_use]
pub fn verdict(pairs: &[(f64, f64)], less_is_better: bool, pairs_min: usize) -> Verdict {
    let better = |a: f64, b: f64| if less_is_better { a < b } else { a > b };
    if pairs.len() < pairs_min {
        return Verdict::Level;
    }
    if pairs.iter().all(|(first, second)| better(*first, *second)) {
        return Verdict::First;
    }
    if pairs.iter().all(|(first, second)| better(*second, *first)) { Verdict::Second } else { Verdict::Level }
}

/// Formats a whole number with thousands separators.
#[must_use]
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let places = digits.len();
    let comma = |(at, digit): (usize, char)| {
        if at > 0 && (places - at).is_multiple_of(3) { format!(",{digit}") } else { digit.to_string() }
    };
    digits.chars().enumerate().map(comma).collect()
}

/// Formats a non-negative number with about three significant digits.
#[must_use]
pub fn number(value: f64) -> String {
    match value {
        v if v.is_infinite() => "∞".to_owned(),
        v if v >= 1_000.0 => count(v.round() as u64),
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// Formats median, minimum and maximum.
#[must_use]
pub fn spread(values: &[f64]) -> String {
    let Some(middle) = median(values) else { return "-".to_owned() };
    let (low, high) = values.iter().fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(*v), high.max(*v)));
    if values.len() < 2 { number(middle) } else { format!("{} ({} to {})", number(middle), number(low), number(high)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_win_needs_three_pairs_that_agree() {
        let ahead = [(1.0, 2.0), (1.0, 3.0), (2.0, 2.5)];
        assert_eq!(verdict(&ahead, true, 3), Verdict::First);
        assert_eq!(verdict(&ahead, false, 3), Verdict::Second);
        assert_eq!(verdict(&ahead[..2], true, 3), Verdict::Level, "two are too few");
        assert_eq!(verdict(&[(1.0, 2.0), (1.0, 3.0), (2.0, 1.9)], true, 3), Verdict::Level, "they do not agree");
        assert_eq!(verdict(&[(1.0, 1.0); 3], true, 3), Verdict::Level, "no side is better");
    }

    #[test]
    fn fewer_pairs_than_needed_are_level() {
        assert_eq!(verdict(&[(1.0, 2.0); 4], true, 5), Verdict::Level);
        assert_eq!(verdict(&[(1.0, 2.0); 5], true, 5), Verdict::First);
    }

    #[test]
    fn medians_of_odd_and_even_numbers_of_values() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn large_numbers_are_grouped() {
        assert_eq!([count(0), count(999), count(1_000)], ["0", "999", "1,000"]);
        assert_eq!([number(1_234_567.8), number(123.4), number(0.1234)], ["1,234,568", "123", "0.12"]);
        assert_eq!(number(f64::INFINITY), "∞", "a ratio to zero");
    }
}
