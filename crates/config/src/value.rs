//! Types of option values: parsing, validation, formatting.

use polylogue_net::address::ProtocolAddress;
use std::fmt::Write as _;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
const BYTE_UNITS: [(&str, u64); 5] = [("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB), ("B", 1)];
const TIME_UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// The type of an option's value, with its bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OptionKind {
    /// A whole number.
    Count {
        /// The minimum.
        min: u64,
        /// The maximum.
        max: u64,
    },
    /// A size: a number of bytes, or with a unit KiB, MiB, GiB or TiB.
    Bytes {
        /// The minimum.
        min: u64,
        /// The maximum.
        max: u64,
    },
    /// A duration: a number of milliseconds, or with a unit ms, s, m, h or d.
    Millis {
        /// The minimum.
        min: u64,
        /// The maximum.
        max: u64,
    },
    /// A non-empty string.
    Text,
    /// A path.
    Path,
    /// A path, or empty.
    OptionalPath,
    /// A string.
    OptionalText,
    /// One of these strings.
    OneOf(&'static [&'static str]),
    /// `PROTOCOL=HOST:PORT`, separated by commas; may be empty.
    Addresses,
}

impl OptionKind {
    /// Parses a value and returns it in canonical form.
    ///
    /// # Errors
    /// What was expected instead.
    pub(super) fn canonical(self, text: &str) -> Result<String, String> {
        let text = text.trim();
        match self {
            OptionKind::Count { min, max } => {
                let number = text.parse::<u64>().ok().filter(|n| (min..=max).contains(n));
                number.map(|n| n.to_string()).ok_or_else(|| format!("expected a whole number from {min} to {max}"))
            }
            OptionKind::Bytes { min, max } => within(scaled(text, &BYTE_UNITS), min, max, &BYTE_UNITS)
                .ok_or_else(|| format!("expected a size {}, such as 64MiB", bounds(min, max, &BYTE_UNITS))),
            OptionKind::Millis { min, max } => within(scaled(text, &TIME_UNITS), min, max, &TIME_UNITS)
                .ok_or_else(|| format!("expected a time {}, such as 10s", bounds(min, max, &TIME_UNITS))),
            OptionKind::Text | OptionKind::Path if text.is_empty() => Err("expected a non-empty value".to_owned()),
            OptionKind::Text | OptionKind::Path | OptionKind::OptionalPath | OptionKind::OptionalText => {
                Ok(text.to_owned())
            }
            OptionKind::OneOf(known) if known.contains(&text) => Ok(text.to_owned()),
            OptionKind::OneOf(known) => Err(format!("expected one of {}", known.join(", "))),
            OptionKind::Addresses => {
                let parsed = ProtocolAddress::parse_list(text)?;
                Ok(parsed.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
            }
        }
    }

    /// Returns the number of a canonical value; 0 for kinds that are not numeric.
    pub(super) fn number(self, canonical: &str) -> u64 {
        let number = match self {
            OptionKind::Count { .. } => canonical.parse().ok(),
            OptionKind::Bytes { .. } => scaled(canonical, &BYTE_UNITS),
            OptionKind::Millis { .. } => scaled(canonical, &TIME_UNITS),
            OptionKind::Text
            | OptionKind::Path
            | OptionKind::OptionalPath
            | OptionKind::OptionalText
            | OptionKind::OneOf(_)
            | OptionKind::Addresses => None,
        };
        number.unwrap_or_default()
    }

    /// Describes the type, with its bounds.
    #[must_use]
    pub fn describe(self) -> String {
        match self {
            OptionKind::Count { min, max } => format!("number, {min} to {max}"),
            OptionKind::Bytes { min, max } => format!("size, {}", bounds(min, max, &BYTE_UNITS)),
            OptionKind::Millis { min, max } => format!("time, {}", bounds(min, max, &TIME_UNITS)),
            OptionKind::Text | OptionKind::OptionalText => "text".to_owned(),
            OptionKind::Path | OptionKind::OptionalPath => "path".to_owned(),
            OptionKind::OneOf(known) => format!("one of {}", known.join(", ")),
            OptionKind::Addresses => "list of PROTOCOL=HOST:PORT".to_owned(),
        }
    }
}

fn within(number: Option<u64>, min: u64, max: u64, units: &[(&str, u64)]) -> Option<String> {
    number.filter(|n| (min..=max).contains(n)).map(|n| written(n, units))
}

fn bounds(min: u64, max: u64, units: &[(&str, u64)]) -> String {
    format!("from {} to {}", written(min, units), written(max, units))
}

/// Parses a number with or without a unit.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let number: u64 = number.parse().ok()?;
    let unit = unit.trim();
    let factor = match units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) {
        Some((_, factor)) => *factor,
        None if unit.is_empty() => 1,
        None => return None,
    };
    number.checked_mul(factor)
}

/// Formats in the largest unit that divides it; 0 without a unit.
fn written(number: u64, units: &[(&str, u64)]) -> String {
    let mut out = number.to_string();
    if number > 0
        && let Some((unit, factor)) = units.iter().find(|(_, factor)| number.is_multiple_of(*factor))
    {
        out.clear();
        // Writing to a String cannot fail.
        let _ = write!(out, "{}{unit}", number / factor);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: OptionKind = OptionKind::Bytes { min: 1, max: TIB };
    const TIME: OptionKind = OptionKind::Millis { min: 0, max: 86_400_000 };

    #[test]
    fn sizes_and_times_take_units() {
        for (kind, text, canonical, number) in [
            (SIZE, "65536", "64KiB", 65_536),
            (SIZE, " 64 MiB ", "64MiB", 64 << 20),
            (SIZE, "1gib", "1GiB", 1 << 30),
            (SIZE, "1500", "1500B", 1_500),
            (SIZE, "1500B", "1500B", 1_500),
            (TIME, "1500", "1500ms", 1_500),
            (TIME, "90s", "90s", 90_000),
            (TIME, "60000", "1m", 60_000),
            (TIME, "24h", "1d", 86_400_000),
            (TIME, "0", "0", 0),
        ] {
            let read = kind.canonical(text).unwrap();
            assert_eq!(read, canonical);
            assert_eq!(kind.number(&read), number);
            assert_eq!(kind.canonical(&read).unwrap(), read, "canonical values are read as themselves");
        }
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let time = "expected a time from 0 to 1d, such as 10s";
        for text in ["", "s", "-1", "1.5s", "2d", "10 parsecs", "99999999999999999999", "18446744073709551615d"] {
            assert_eq!(TIME.canonical(text).unwrap_err(), time, "{text}");
        }
        let count = OptionKind::Count { min: 1, max: 9 };
        assert_eq!(count.canonical("0").unwrap_err(), "expected a whole number from 1 to 9");
        assert_eq!(count.canonical("9").unwrap(), "9");
        assert_eq!(OptionKind::OneOf(&["a", "b"]).canonical("c").unwrap_err(), "expected one of a, b");
        assert_eq!(OptionKind::Path.canonical(" ").unwrap_err(), "expected a non-empty value");
    }
}
