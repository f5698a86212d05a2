//! Times on the command line.

use std::ops::Range;
use std::time::UNIX_EPOCH;

/// Length of `+02:00`.
const OFFSET_CHARS: usize = 6;

/// Digits of a time of these days in seconds. In milliseconds it has three more.
const DIGITS_OF_SECONDS: usize = 10;

/// Parses `@` and milliseconds, or an RFC 3339 time; returns milliseconds since 1970. Without an offset the time is UTC. `None` for
/// anything else, for times before 1970, and for what looks like seconds ([`seconds_note`]).
pub(super) fn parse_time_ms(text: &str) -> Option<i64> {
    if let Some(ms) = text.strip_prefix('@') {
        let ms = Some(ms).filter(|ms| ms.len() != DIGITS_OF_SECONDS)?;
        return ms.parse::<i64>().ok().filter(|ms| *ms >= 0);
    }
    let (local, ahead_ms) = split_offset(text)?;
    let time = humantime::parse_rfc3339_weak(local).ok()?;
    let ms = i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()?;
    ms.checked_sub(ahead_ms).filter(|ms| *ms >= 0)
}

/// A note for `@` and seconds, which would be a day in January 1970; empty for anything else.
pub(super) fn seconds_note(text: &str) -> String {
    let seconds = text
        .strip_prefix('@')
        .filter(|digits| digits.len() == DIGITS_OF_SECONDS && digits.bytes().all(|digit| digit.is_ascii_digit()));
    seconds.map_or_else(String::new, |seconds| format!("; @ takes milliseconds: @{seconds}000?"))
}

/// Splits `2026-01-31T14:00:00+02:00` into the local time and its offset from UTC. Milliseconds; 0 without an offset.
/// `None` for an invalid offset.
fn split_offset(text: &str) -> Option<(&str, i64)> {
    let Some((local, offset)) = text.len().checked_sub(OFFSET_CHARS).and_then(|at| text.split_at_checked(at)) else {
        return Some((text, 0));
    };
    let sign = match offset.as_bytes() {
        [b'+', _, _, b':', ..] => 1,
        [b'-', _, _, b':', ..] => -1,
        _ => return Some((text, 0)),
    };
    let number = |digits: Range<usize>, max: i64| {
        let digits = offset.get(digits).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))?;
        digits.parse::<i64>().ok().filter(|number| *number <= max)
    };
    let (hours, minutes) = (number(1..3, 23)?, number(4..6, 59)?);
    let is_utc = local.ends_with(['Z', 'z']);
    (!is_utc).then_some((local, sign * (hours * 60 + minutes) * 60_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, ms) in [
            ("@0", Some(0)),
            ("@1700000000000", Some(1_700_000_000_000)),
            ("1970-01-01T00:00:01Z", Some(1_000)),
            ("1970-01-02 00:00:00", Some(86_400_000)),
            ("2026-01-31T14:00:00+02:00", Some(1_769_860_800_000)),
            ("2026-01-31 14:00:00.25+02:00", Some(1_769_860_800_250)),
            ("2026-01-31T06:30:00-05:30", Some(1_769_860_800_000)),
            ("2026-01-31T12:00:00-00:00", Some(1_769_860_800_000)),
            ("2026-01-31T12:00:00Z+02:00", None),
            ("2026-01-31T12:00:00+24:00", None),
            ("2026-01-31T12:00:00+02:60", None),
            ("2026-01-31T12:00:00+é:00", None),
            ("2026-01-31T12:00:00++2:00", None),
            ("1970-01-01T01:00:00+02:00", None),
            ("+02:00", None),
            ("@1795862029", None),
            ("@-1", None),
            ("@", None),
            ("1960-01-01T00:00:00Z", None),
            ("yesterday", None),
        ] {
            assert_eq!(parse_time_ms(text), ms, "{text}");
        }
    }

    /// `--from @1795862029` meant 1970.
    #[test]
    fn seconds_are_no_milliseconds() {
        assert_eq!(seconds_note("@1795862029"), "; @ takes milliseconds: @1795862029000?");
        assert_eq!((seconds_note("@179586202x"), seconds_note("@1795862029000")), (String::new(), String::new()));
    }
}
