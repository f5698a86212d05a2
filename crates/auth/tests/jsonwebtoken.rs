//! Tokens that the crate `jsonwebtoken` signs: this crate and `jsonwebtoken` accept and refuse the same ones.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    Ed25519KeyPair, KeyPair as _, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, encode, get_current_timestamp};
use polylogue_auth::{Jwt, TokenKeys, TokenRules};
use serde_json::{Value, json};

const ISSUER: &str = "https://issuer.example.org";
const AUDIENCE: &str = "polylogue";
const SKEW_S: u64 = 30;
/// An RSA key of 2048 bits in PKCS #8 has a header of this length before its PKCS #1 form. Bytes.
const PKCS8_HEADER_BYTES: usize = 26;

fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A private key for `jsonwebtoken`, its public key as a JSON Web Key, and the public key's bytes.
struct Signer {
    private: EncodingKey,
    jwk: Value,
    public: Vec<u8>,
}

impl Signer {
    fn rsa() -> Signer {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        let pkcs8: Pkcs8V1Der<'_> = pair.as_der().unwrap();
        let public = pair.public_key().as_ref().to_vec();
        // A sequence of two numbers (DER): 2048 bits after a zero, and three bytes.
        let (n, e) = (&public[9..9 + 256], &public[public.len() - 3..]);
        let jwk = json!({"kty": "RSA", "kid": "1", "n": base64(n), "e": base64(e)});
        Signer { private: EncodingKey::from_rsa_der(&pkcs8.as_ref()[PKCS8_HEADER_BYTES..]), jwk, public }
    }

    fn ec(algorithm: &'static EcdsaSigningAlgorithm, curve: &str) -> Signer {
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref()).unwrap();
        let public = pair.public_key().as_ref().to_vec();
        let (x, y) = public[1..].split_at(public.len() / 2);
        let jwk = json!({"kty": "EC", "crv": curve, "kid": "1", "x": base64(x), "y": base64(y)});
        Signer { private: EncodingKey::from_ec_der(pkcs8.as_ref()), jwk, public }
    }

    fn ed() -> Signer {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap();
        let public = pair.public_key().as_ref().to_vec();
        let jwk = json!({"kty": "OKP", "crv": "Ed25519", "kid": "1", "x": base64(&public)});
        Signer { private: EncodingKey::from_ed_der(pkcs8.as_ref()), jwk, public }
    }

    fn of(algorithm: Algorithm) -> Signer {
        match algorithm {
            Algorithm::ES256 => Signer::ec(&ECDSA_P256_SHA256_FIXED_SIGNING, "P-256"),
            Algorithm::ES384 => Signer::ec(&ECDSA_P384_SHA384_FIXED_SIGNING, "P-384"),
            Algorithm::EdDSA => Signer::ed(),
            _ => Signer::rsa(),
        }
    }

    fn token(&self, algorithm: Algorithm, claims: &Value) -> String {
        let header = Header { kid: Some("1".to_owned()), ..Header::new(algorithm) };
        encode(&header, claims, &self.private).unwrap()
    }
}

/// All algorithms that this crate accepts.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// Whether this crate accepts the token, and whether `jsonwebtoken` does.
fn accepted(token: &str, algorithm: Algorithm, jwk: &Value) -> (bool, bool) {
    let keys = TokenKeys::parse(json!({ "keys": [jwk] }).to_string().as_bytes()).unwrap();
    let rules = TokenRules {
        issuer: Some(ISSUER.to_owned()),
        audience: Some(AUDIENCE.to_owned()),
        clock_skew_ms: SKEW_S * 1_000,
        ..TokenRules::default()
    };
    let now_ms = i64::try_from(get_current_timestamp()).unwrap() * 1_000;
    let ours = Jwt::parse(token).and_then(|jwt| jwt.verify(&keys, &rules, now_ms));
    let mut validation = Validation::new(algorithm);
    validation.leeway = SKEW_S;
    validation.validate_nbf = true;
    validation.set_issuer(&[ISSUER]);
    validation.set_audience(&[AUDIENCE]);
    validation.set_required_spec_claims(&["exp", "iss", "aud"]);
    let key = DecodingKey::from_jwk(&serde_json::from_value(jwk.clone()).unwrap()).unwrap();
    (ours.is_ok(), decode::<Value>(token, &key, &validation).is_ok())
}

fn claims() -> Value {
    let now_s = get_current_timestamp();
    json!({"iss": ISSUER, "aud": ["other", AUDIENCE], "sub": "ann", "nbf": now_s - 10, "exp": now_s + 300})
}

/// The claims with another value of one of them, which is removed if the value is null.
fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    match value {
        Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
        value => claims[name] = value,
    }
    claims
}

#[test]
fn both_accept_each_algorithm_and_refuse_each_wrong_claim() {
    let now_s = get_current_timestamp();
    for algorithm in ALGORITHMS {
        let signer = Signer::of(algorithm);
        let both = |claims: &Value| accepted(&signer.token(algorithm, claims), algorithm, &signer.jwk);
        assert_eq!(both(&claims()), (true, true), "{algorithm:?}");
        assert_eq!(both(&with("nbf", Value::Null)), (true, true), "{algorithm:?}, no nbf");
        for (name, value) in [
            ("exp", Value::Null),
            ("exp", json!(now_s - 300)),
            ("nbf", json!(now_s + 300)),
            ("iss", Value::Null),
            ("iss", json!("https://other.example.org")),
            ("aud", Value::Null),
            ("aud", json!("other")),
            ("aud", json!(["other"])),
        ] {
            assert_eq!(both(&with(name, value.clone())), (false, false), "{algorithm:?}, {name}: {value}");
        }
    }
}

#[test]
fn both_refuse_a_changed_payload_a_changed_signature_and_another_key() {
    for algorithm in ALGORITHMS {
        let signer = Signer::of(algorithm);
        let token = signer.token(algorithm, &claims());
        let [header, payload, signature] = token.split('.').collect::<Vec<_>>().try_into().unwrap();
        let changed = format!("{header}.{}.{signature}", base64(with("sub", json!("bob")).to_string()));
        assert_eq!(accepted(&changed, algorithm, &signer.jwk), (false, false), "{algorithm:?}, payload");
        let bytes = URL_SAFE_NO_PAD.decode(signature).unwrap();
        for at in [0, bytes.len() / 2, bytes.len() - 1] {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            let changed = format!("{header}.{payload}.{}", base64(bytes));
            assert_eq!(accepted(&changed, algorithm, &signer.jwk), (false, false), "{algorithm:?}, byte {at}");
        }
        let other = Signer::of(algorithm);
        assert_eq!(accepted(&token, algorithm, &other.jwk), (false, false), "{algorithm:?}, another key");
    }
}

#[test]
fn both_refuse_an_algorithm_that_the_key_is_not_for() {
    for algorithm in ALGORITHMS {
        let signer = Signer::of(algorithm);
        // The public key as the secret of an HMAC: its bytes, and its text in the key set.
        for secret in [signer.public.as_slice(), signer.jwk.to_string().as_bytes()] {
            let header = Header { kid: Some("1".to_owned()), ..Header::new(Algorithm::HS256) };
            let token = encode(&header, &claims(), &EncodingKey::from_secret(secret).unwrap()).unwrap();
            assert_eq!(accepted(&token, algorithm, &signer.jwk), (false, false), "{algorithm:?} as HS256");
        }
        let token = signer.token(algorithm, &claims());
        let (_, rest) = token.split_once('.').unwrap();
        let (payload, signature) = rest.split_once('.').unwrap();
        for name in ["none", "None", "NONE", "HS256"] {
            let header = base64(json!({"alg": name, "kid": "1"}).to_string());
            for signature in ["", signature] {
                let token = format!("{header}.{payload}.{signature}");
                assert_eq!(accepted(&token, algorithm, &signer.jwk), (false, false), "{algorithm:?} as {name}");
            }
        }
    }
}
