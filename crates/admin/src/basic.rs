//! HTTP's basic authentication (RFC 7617), and bearer tokens (RFC 6750).

use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polylogue_auth::{Jwt, bearer_token};

/// Returns the user name and password of a request's `Authorization: Basic` header.
pub fn credentials(headers: &HeaderMap) -> Option<(String, Vec<u8>)> {
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

/// Returns the request's token: a bearer token, or a token sent as a password, as RabbitMQ's tools do.
pub fn token(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let password = || credentials(headers).map(|(_, password)| password).filter(|password| Jwt::is_like(password));
    bearer_token(value).map(ToOwned::to_owned).or_else(|| String::from_utf8(password()?).ok())
}

/// Returns the `Authorization` header value for a user name and password.
pub fn header_of(name: &str, password: &str) -> String {
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

    #[test]
    fn a_token_comes_by_itself_or_as_a_password() {
        let of = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            token(&headers)
        };
        // {"alg":"none"}
        let like = "eyJhbGciOiJub25lIn0.e30.";
        assert_eq!(of(&format!("Bearer {like}")).as_deref(), Some(like));
        assert_eq!(of("bearer x").as_deref(), Some("x"), "the scheme is compared without case");
        assert_eq!(of(&header_of("ann", like)).as_deref(), Some(like));
        for none in [header_of("ann", "secret"), "Bearer".to_owned(), "Bearer a b".to_owned(), String::new()] {
            assert_eq!(of(&none), None, "{none}");
        }
        assert_eq!(token(&HeaderMap::new()), None);
    }
}
