//! Times on the command line.

use std::time::UNIX_EPOCH;

/// `@` and milliseconds, or a time as RFC 3339 has it, as milliseconds since 1970. `None` for anything else, and for times
/// before 1970.
pub(super) fn parse_time_ms(text: &str) -> Option<i64> {
    if let Some(ms) = text.strip_prefix('@') {
        return ms.parse::<i64>().ok().filter(|ms| *ms >= 0);
    }
    let time = humantime::parse_rfc3339_weak(text).ok()?;
    i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
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
            ("@-1", None),
            ("@", None),
            ("1960-01-01T00:00:00Z", None),
            ("yesterday", None),
        ] {
            assert_eq!(parse_time_ms(text), ms, "{text}");
        }
    }
}
