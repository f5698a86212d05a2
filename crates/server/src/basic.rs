//! HTTP's basic authentication (RFC 7617).

use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Name and password, where a request has them.
pub(crate) fn credentials(headers: &HeaderMap) -> Option<(String, Vec<u8>)> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = STANDARD.decode(encoded.trim()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let (name, password) = decoded.split_at(colon);
    Some((String::from_utf8(name.to_vec()).ok()?, password.get(1..)?.to_vec()))
}

/// The header that has them.
pub(crate) fn header_of(name: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_passwords_are_read_and_anything_else_is_nobody() {
        let of = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            credentials(&headers)
        };
        let text = header_of("ann", "a:b\u{e9}");
        assert_eq!(of(&text), Some(("ann".to_owned(), "a:b\u{e9}".as_bytes().to_vec())));
        assert_eq!(of(&text.replace("Basic", "bAsIc")), of(&text));
        assert_eq!(of("Basic OnA="), Some((String::new(), b"p".to_vec())));
        for bad in ["", "Basic", "Basic !", "Bearer YTpi", "Basic YWI=", "Basic /zpw"] {
            assert_eq!(of(bad), None, "{bad}");
        }
        assert_eq!(credentials(&HeaderMap::new()), None);
    }
}
