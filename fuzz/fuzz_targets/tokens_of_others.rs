//! Tokens that others give out, whatever they are: messages of SASL OAUTHBEARER, tokens with any header and claims, sets of keys. Nothing
//! that is made up is believed.
//!
//! The first byte says what the rest is.

#![no_main]

use libfuzzer_sys::fuzz_target;
use polylogue_auth::{Access, BearerMessage, Grants, Jwt, TokenKeys, TokenRules};

const KEYS: &[u8] = br#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

fuzz_target!(|input: &[u8]| {
    let Some((what, rest)) = input.split_first() else { return };
    let rules = TokenRules::default();
    let verify = |token: &str| {
        let _ = Jwt::is_like(token.as_bytes());
        let keys = TokenKeys::parse(KEYS).expect("keys");
        if let Ok(jwt) = Jwt::parse(token) {
            assert!(jwt.verify(&keys, &rules, 0).is_err(), "the token is not signed by a trusted key");
        }
    };
    match (what % 4, std::str::from_utf8(rest)) {
        (0, _) => {
            if let Ok(message) = BearerMessage::parse(rest) {
                let _ = message.as_named("ann");
                verify(message.token);
            }
        }
        (1, _) => {
            if let Ok(keys) = TokenKeys::parse(rest) {
                assert!(!keys.is_empty());
            }
        }
        (2, Ok(token)) => verify(token),
        (_, Ok(text)) => {
            let grants = Grants::of(text.split(' '), "", "tag:administrator");
            let _ = grants.may_enter(text) | grants.may(text, Access::Read, text);
            let _ = grants.may_key("/", Access::Write, text, text);
        }
        _ => {}
    }
});
