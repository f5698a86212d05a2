//! The target of a request: its decoded path segments, and its query parameters.
//!
//! ```text
//!   /api/queues/%2F/my%20queue?columns=name,messages     "queues", "/", "my queue"; columns = "name,messages"
//! ```
//!
//! Never panics on any input; the maximum size of a request's head bounds the work.

/// The maximum number of segments of a path; no supported path has more.
const SEGMENTS_MAX: usize = 10;
/// The maximum number of parameters of a query.
const PARAMETERS_MAX: usize = 64;

/// The path or the query is malformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Malformed;

/// Undoes percent-encoding; in queries `plus` decodes to a space.
fn decode(text: &str, plus: bool) -> Result<String, Malformed> {
    let mut out = Vec::with_capacity(text.len());
    let mut left = text.bytes();
    while let Some(byte) = left.next() {
        match byte {
            b'%' => {
                let mut digit = || left.next().and_then(|byte| char::from(byte).to_digit(16)).ok_or(Malformed);
                let (high, low) = (digit()?, digit()?);
                out.push((high << 4 | low) as u8);
            }
            b'+' if plus => out.push(b' '),
            byte => out.push(byte),
        }
    }
    String::from_utf8(out).map_err(|_| Malformed)
}

/// Percent-encodes all but letters, digits, `-`, `_` and `.`.
pub(super) fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => out.push(char::from(byte)),
            byte => {
                let digit = |nibble: u8| char::from(b"0123456789ABCDEF"[usize::from(nibble & 15)]);
                out.extend(['%', digit(byte >> 4), digit(byte)]);
            }
        }
    }
    out
}

/// Returns the segments of a path below `/api`. A trailing slash is ignored.
///
/// # Errors
/// The path is not below `/api`, has too many segments, or is not UTF-8.
pub(super) fn segments(path: &str) -> Result<Vec<String>, Malformed> {
    let rest = path.strip_prefix("/api").ok_or(Malformed)?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.is_empty() {
        return Ok(Vec::new());
    }
    let parts = rest.strip_prefix('/').ok_or(Malformed)?.split('/');
    let parts: Vec<String> = parts.take(SEGMENTS_MAX + 1).map(|part| decode(part, false)).collect::<Result<_, _>>()?;
    if parts.len() > SEGMENTS_MAX { Err(Malformed) } else { Ok(parts) }
}

/// The parameters of a query.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses `a=b&c=d`.
    ///
    /// # Errors
    /// The query is not UTF-8, or has too many parameters.
    pub(super) fn parse(text: &str) -> Result<Query, Malformed> {
        let one = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name, true)?, decode(value, true)?))
        };
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let pairs: Vec<_> = pairs.take(PARAMETERS_MAX + 1).map(one).collect::<Result<_, _>>()?;
        if pairs.len() > PARAMETERS_MAX { Err(Malformed) } else { Ok(Query(pairs)) }
    }

    /// Returns the first value of a parameter.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Whether a parameter is `true`.
    pub(super) fn is_true(&self, name: &str) -> bool {
        self.get(name) == Some("true")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(path: &str) -> Result<Vec<String>, Malformed> {
        segments(path)
    }

    #[test]
    fn a_path_is_taken_apart_before_it_is_decoded() {
        assert_eq!(parts("/api/queues/%2F/a%2fb"), Ok(vec!["queues".into(), "/".into(), "a/b".into()]));
        assert_eq!(parts("/api/queues/"), Ok(vec!["queues".into()]));
        assert_eq!(parts("/api/exchanges/%2F//publish").map(|parts| parts.len()), Ok(4));
        assert_eq!(parts("/api/a+b"), Ok(vec!["a+b".into()]));
        assert_eq!(parts("/api"), Ok(Vec::new()));
        for path in ["/", "/apis", "/api/%", "/api/%2", "/api/%zz", "/api/%ff", "/api/1/2/3/4/5/6/7/8/9/10/11"] {
            assert_eq!(parts(path), Err(Malformed), "{path}");
        }
    }

    #[test]
    fn a_query_is_read_as_forms_write_it() {
        let query = Query::parse("name=a+b&columns=name%2Cvhost&flag&disable_stats=true").unwrap();
        assert_eq!(query.get("name"), Some("a b"));
        assert_eq!(query.get("columns"), Some("name,vhost"));
        assert_eq!(query.get("flag"), Some(""));
        assert!(query.is_true("disable_stats") && !query.is_true("name") && query.get("x").is_none());
        assert_eq!(Query::parse(&"a=b&".repeat(65)), Err(Malformed));
        assert_eq!(Query::parse("a=%f"), Err(Malformed));
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded_again(name in ".{0,40}") {
            let path = format!("/api/queues/{}", encode(&name));
            let decoded = segments(&path).unwrap();
            prop_assert_eq!(decoded.get(1).map_or("", String::as_str), name.as_str());
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,80}") {
            _ = segments(&text);
            _ = segments(&format!("/api/{text}"));
            _ = Query::parse(&text);
        }
    }
}
