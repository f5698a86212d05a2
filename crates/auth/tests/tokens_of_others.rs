//! Tokens that others give out: which are believed, and which are not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    self, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    Ed25519KeyPair, KeyPair as _, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use polylogue_auth::{
    Access, AuthErrorKind, Bearer, JWT_BYTES_MAX, JWT_NAME_BYTES_MAX, Jwt, KEY_SET_BYTES_MAX, KEYS_MAX, SCOPES_MAX,
    TokenKeys, TokenRules,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::LazyLock;

const NOW_S: i64 = 1_800_000_000;

fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// An issuer of tokens.
enum Signer {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair, &'static str),
    Ed(Ed25519KeyPair),
}

impl Signer {
    fn rsa() -> Signer {
        Signer::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).unwrap())
    }

    fn ec(algorithm: &'static EcdsaSigningAlgorithm, curve: &'static str) -> Signer {
        Signer::Ec(EcdsaKeyPair::generate(algorithm).unwrap(), curve)
    }

    fn ed() -> Signer {
        Signer::Ed(Ed25519KeyPair::generate().unwrap())
    }

    fn key(&self, id: &str) -> Value {
        match self {
            Signer::Rsa(pair) => {
                // A sequence of two numbers (DER): 2048 bits behind a zero, and three bytes.
                let public = pair.public_key().as_ref();
                let (n, e) = (&public[8..8 + 257], &public[public.len() - 3..]);
                json!({"kty": "RSA", "kid": id, "n": base64(n), "e": base64(e)})
            }
            Signer::Ec(pair, curve) => {
                let (x, y) = pair.public_key().as_ref()[1..].split_at(pair.public_key().as_ref().len() / 2);
                json!({"kty": "EC", "crv": curve, "kid": id, "x": base64(x), "y": base64(y)})
            }
            Signer::Ed(pair) => json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "x": base64(pair.public_key())}),
        }
    }

    fn sign(&self, algorithm: &str, signed: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Signer::Rsa(pair) => {
                let how: &dyn signature::RsaEncoding = match algorithm {
                    "RS256" => &signature::RSA_PKCS1_SHA256,
                    "RS384" => &signature::RSA_PKCS1_SHA384,
                    "RS512" => &signature::RSA_PKCS1_SHA512,
                    "PS256" => &signature::RSA_PSS_SHA256,
                    "PS384" => &signature::RSA_PSS_SHA384,
                    _ => &signature::RSA_PSS_SHA512,
                };
                let mut made = vec![0; pair.public_modulus_len()];
                pair.sign(how, &random, signed, &mut made).unwrap();
                made
            }
            Signer::Ec(pair, _) => pair.sign(&random, signed).unwrap().as_ref().to_vec(),
            Signer::Ed(pair) => pair.sign(signed).as_ref().to_vec(),
        }
    }

    fn token(&self, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", base64(header.to_string()), base64(claims.to_string()));
        let algorithm = header["alg"].as_str().unwrap_or_default();
        format!("{signed}.{}", base64(self.sign(algorithm, signed.as_bytes())))
    }
}

static RSA: LazyLock<Signer> = LazyLock::new(Signer::rsa);
static ED: LazyLock<Signer> = LazyLock::new(Signer::ed);

fn set(keys: &[Value]) -> TokenKeys {
    TokenKeys::parse(json!({ "keys": keys }).to_string().as_bytes()).unwrap()
}

fn rules() -> TokenRules {
    TokenRules {
        issuer: Some("https://issuer.example.org".to_owned()),
        audience: Some("polylogue".to_owned()),
        scope_prefix: "polylogue.".to_owned(),
        clock_skew_ms: 30_000,
        ..TokenRules::default()
    }
}

fn claims() -> Value {
    json!({
        "iss": "https://issuer.example.org",
        "aud": ["other", "polylogue"],
        "sub": "ann",
        "iat": NOW_S - 10,
        "nbf": NOW_S - 10,
        "exp": NOW_S + 300,
        "scope": "openid polylogue.read:*/* polylogue.tag:administrator",
    })
}

/// The claims, one of which is another, or (`null`) missing.
fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    match value {
        Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
        value => claims[name] = value,
    }
    claims
}

fn verify(token: &str, keys: &TokenKeys, rules: &TokenRules) -> Result<Bearer, (AuthErrorKind, String)> {
    let jwt = Jwt::parse(token).and_then(|jwt| jwt.verify(keys, rules, NOW_S * 1_000));
    jwt.map_err(|error| (error.kind, error.text))
}

/// Why claims with a valid signature are rejected.
fn why(claims: &Value) -> String {
    let token = ED.token(&json!({"alg": "EdDSA", "kid": "1"}), claims);
    verify(&token, &set(&[ED.key("1")]), &rules()).map(|bearer| bearer.name).unwrap_err().1
}

#[test]
fn each_algorithm_is_believed_with_a_key_of_its_own_family() {
    let p256 = Signer::ec(&ECDSA_P256_SHA256_FIXED_SIGNING, "P-256");
    let p384 = Signer::ec(&ECDSA_P384_SHA384_FIXED_SIGNING, "P-384");
    let keys = set(&[RSA.key("rsa"), p256.key("p256"), p384.key("p384"), ED.key("ed")]);
    let signers: [(&Signer, &str, &[&str]); 4] = [
        (&RSA, "rsa", &["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]),
        (&p256, "p256", &["ES256"]),
        (&p384, "p384", &["ES384"]),
        (&ED, "ed", &["EdDSA", "Ed25519"]),
    ];
    for (signer, id, algorithms) in signers {
        for algorithm in algorithms {
            let token = signer.token(&json!({"alg": algorithm, "kid": id, "typ": "at+jwt"}), &claims());
            let bearer = verify(&token, &keys, &rules()).unwrap();
            assert_eq!((bearer.name.as_str(), bearer.until_ms), ("ann", (NOW_S + 300) * 1_000));
            assert!(bearer.grants.is_administrator() && bearer.grants.may("/", Access::Read, "q"));
            // No id: every key that fits is tried.
            assert!(verify(&signer.token(&json!({"alg": algorithm}), &claims()), &keys, &rules()).is_ok());
            // Another's key, of the same id or of another family.
            let other = set(&[Signer::rsa().key("rsa"), Signer::ed().key("ed"), p384.key("p256"), p256.key("p384")]);
            assert!(verify(&token, &other, &rules()).is_err(), "{algorithm}");
        }
    }
    let flipped = RSA.token(&json!({"alg": "RS256", "kid": "p256"}), &claims());
    assert!(verify(&flipped, &keys, &rules()).unwrap_err().1.contains("there is no key \"p256\""));
}

#[test]
fn nothing_is_believed_without_a_signature_or_with_one_that_everybody_can_make() {
    let keys = set(&[RSA.key("1")]);
    for algorithm in ["none", "None", "HS256", "HS512", "ES256K", "ES512", "RS1", ""] {
        let token = RSA.token(&json!({"alg": algorithm, "kid": "1"}), &claims());
        let reported = verify(&token, &keys, &rules()).unwrap_err();
        assert_eq!(reported.0, AuthErrorKind::Refused, "{algorithm}");
        assert!(reported.1.contains("are not accepted"), "{reported:?}");
    }
    let unsigned = format!("{}.{}.", base64(json!({"alg": "RS256"}).to_string()), base64(claims().to_string()));
    assert_eq!(verify(&unsigned, &keys, &rules()).unwrap_err().1, "the token's signature is wrong");
    // The public key as a secret, as those have tried who know it.
    let signed = format!("{}.{}", base64(json!({"alg": "HS256"}).to_string()), base64(claims().to_string()));
    let public = RSA.key("1").to_string();
    let key = hmac::Key::new(hmac::HMAC_SHA256, public.as_bytes());
    let token = format!("{signed}.{}", base64(hmac::sign(&key, signed.as_bytes())));
    assert!(verify(&token, &keys, &rules()).unwrap_err().1.contains("HS256"));
    // A key that the token brings along.
    let own = Signer::ed();
    let header = json!({"alg": "EdDSA", "jwk": own.key("1"), "jku": "http://localhost/keys", "kid": "1"});
    assert!(verify(&own.token(&header, &claims()), &set(&[ED.key("1")]), &rules()).is_err());
    let critical = ED.token(&json!({"alg": "EdDSA", "crit": ["x"], "x": 1}), &claims());
    assert!(verify(&critical, &set(&[ED.key("1")]), &rules()).unwrap_err().1.contains("extensions"));
}

#[test]
fn a_token_holds_while_it_says_give_or_take_the_clocks() {
    let keys = set(&[ED.key("1")]);
    let until = |claims: &Value| {
        let token = ED.token(&json!({"alg": "EdDSA", "kid": "1"}), claims);
        verify(&token, &keys, &rules()).map(|bearer| bearer.until_ms / 1_000 - NOW_S).map_err(|(_, why)| why)
    };
    let (gone, early) =
        (Err("the token has expired".to_owned()), Err("the token is not valid yet (\"nbf\" is later)".to_owned()));
    for (name, value, expected) in [
        ("exp", json!(NOW_S + 1), Ok(1)),
        ("exp", json!(NOW_S), Ok(30)),
        ("exp", json!(NOW_S - 29), Ok(1)),
        ("exp", json!(NOW_S - 30), gone.clone()),
        ("exp", json!(0), gone.clone()),
        ("exp", json!(-1), gone.clone()),
        ("exp", json!(NOW_S as f64 + 0.5), Ok(0)),
        ("exp", json!(i64::MIN), gone),
        ("nbf", json!(NOW_S + 30), Ok(300)),
        ("nbf", json!(NOW_S + 31), early.clone()),
        ("nbf", json!(1e300), early),
        ("nbf", Value::Null, Ok(300)),
        ("iat", Value::Null, Ok(300)),
    ] {
        assert_eq!(until(&with(name, value.clone())), expected, "{name} {value}");
    }
    assert!(until(&with("exp", json!(u64::MAX))).is_ok() && until(&with("exp", json!(1e300))).is_ok());
    assert_eq!(why(&with("exp", Value::Null)), "the token has no expiry (\"exp\" is missing)");
    for (name, value) in [("exp", json!("never")), ("nbf", json!("1")), ("iat", json!([1])), ("nbf", json!(true))] {
        assert_eq!(why(&with(name, value)), format!("the token's claim \"{name}\" is no time"));
    }
    let mut nothing = claims();
    nothing["nbf"] = Value::Null;
    assert_eq!(why(&nothing), "the token's claim \"nbf\" is no time", "null is there");
}

#[test]
fn a_token_comes_from_whom_and_is_for_whom_it_has_to() {
    let (issuer, audience) = ("(\"iss\") is not the configured one", "(\"aud\") is not the configured one");
    for (name, value, expected) in [
        ("iss", Value::Null, issuer),
        ("iss", json!("https://issuer.example.org/"), issuer),
        ("iss", json!(["https://issuer.example.org"]), issuer),
        ("aud", Value::Null, audience),
        ("aud", json!("other"), audience),
        ("aud", json!("polylogue2"), audience),
        ("aud", json!([]), audience),
        ("aud", json!({"polylogue": 1}), audience),
    ] {
        let reported = why(&with(name, value.clone()));
        assert!(reported.ends_with(expected), "{name} {value}: {reported}");
    }
    let keys = set(&[ED.key("1")]);
    let token = ED.token(&json!({"alg": "EdDSA"}), &with("aud", json!("polylogue")));
    assert!(verify(&token, &keys, &rules()).is_ok());
    let anybody = TokenRules { issuer: None, audience: None, ..rules() };
    let token = ED.token(&json!({"alg": "EdDSA"}), &json!({"exp": NOW_S + 1, "sub": "bob"}));
    let bearer = verify(&token, &keys, &anybody).unwrap();
    assert!(bearer.name == "bob" && !bearer.grants.is_administrator() && !bearer.grants.may_enter("/"));
}

#[test]
fn names_and_scopes_come_from_the_claims_that_are_meant() {
    let keys = set(&[ED.key("1")]);
    let own = TokenRules { name_claim: "client_id".to_owned(), scope_claim: "roles".to_owned(), ..rules() };
    let mut claims = claims();
    claims["client_id"] = json!("app-7");
    claims["roles"] = json!(["polylogue.write:a/b", "polylogue.read:a/b c"]);
    let bearer = verify(&ED.token(&json!({"alg": "EdDSA"}), &claims), &keys, &own).unwrap();
    assert_eq!(bearer.name, "app-7");
    assert!(bearer.grants.may("a", Access::Write, "b") && bearer.grants.may("a", Access::Read, "b c"));
    assert!(!bearer.grants.is_administrator());
    for (value, kind) in [(json!(7), "no scopes"), (json!(["a", 1]), "no scopes"), (json!({}), "no scopes")] {
        assert!(why(&with("scope", value)).contains(kind));
    }
    let many = vec!["s"; SCOPES_MAX + 1].join(" ");
    assert!(why(&with("scope", json!(many))).contains("more than 2048 scopes"));
    let long = "n".repeat(JWT_NAME_BYTES_MAX + 1);
    for value in [Value::Null, json!(""), json!(7), json!("a\nb"), json!(long)] {
        assert!(why(&with("sub", value)).starts_with("the token"));
    }
}

#[test]
fn what_is_no_token_is_refused_whatever_is_wrong_with_it() {
    let keys = set(&[ED.key("1")]);
    let good = ED.token(&json!({"alg": "EdDSA"}), &claims());
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let (header, payload) = signed.split_once('.').unwrap();
    let nested = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
    let other = ED.token(&json!({"alg": "EdDSA"}), &json!([1]));
    for token in [
        String::new(),
        ".".to_owned(),
        "..".to_owned(),
        signed.to_owned(),
        format!("{good}.{signature}"),
        format!("{header}..{signature}"),
        format!(".{payload}.{signature}"),
        format!("{header}.{payload}.{signature}="),
        format!("{header}.{payload}. {signature}"),
        format!("{header}.{payload}.{}", &signature[..signature.len() - 2]),
        format!("{}.{payload}.{signature}", base64("{\"alg\":7}")),
        format!("{}.{payload}.{signature}", base64("{\"alg\":\"EdDSA\",\"kid\":7}")),
        format!("{}.{payload}.{signature}", base64("\"alg\"")),
        format!("{}.{payload}.{signature}", base64(&nested)),
        format!("{header}.{}.{signature}", base64("{}")),
        other,
        "a".repeat(JWT_BYTES_MAX + 1),
    ] {
        assert!(verify(&token, &keys, &rules()).is_err(), "{}", &token[..token.len().min(80)]);
    }
    assert!(
        why(
            &json!({"exp": NOW_S + 1, "sub": "a", "iss": "https://issuer.example.org", "aud": "polylogue", "scope": {}})
        )
        .contains("scopes")
    );
    assert!(Jwt::is_like(good.as_bytes()) && Jwt::is_like(format!("{header}.x.y").as_bytes()));
    for password in ["secret", "a.b.c", "", "..", good.split_once('.').unwrap().1] {
        assert!(!Jwt::is_like(password.as_bytes()), "{password}");
    }
    let shown = format!("{:?}", Jwt::parse(&good).unwrap());
    assert!(!shown.contains(signature) && !shown.contains(payload));
}

/// Keys change: for a while there are two, and then the old one counts no longer.
#[test]
fn keys_that_change_are_told_apart_by_their_ids() {
    let (old, new) = (Signer::ed(), Signer::ed());
    let token = |signer: &Signer, id: &str| signer.token(&json!({"alg": "EdDSA", "kid": id}), &claims());
    let (by_old, by_new) = (token(&old, "old"), token(&new, "new"));
    let (before, both, after) =
        (set(&[old.key("old")]), set(&[old.key("old"), new.key("new")]), set(&[new.key("new")]));
    let is_known = |token: &str, keys: &TokenKeys| Jwt::parse(token).unwrap().has_key(keys);
    assert!(verify(&by_old, &before, &rules()).is_ok() && !is_known(&by_new, &before));
    assert!(verify(&by_old, &both, &rules()).is_ok() && verify(&by_new, &both, &rules()).is_ok());
    assert!(verify(&by_old, &after, &rules()).is_err() && verify(&by_new, &after, &rules()).is_ok());
    assert!(verify(&token(&old, "new"), &both, &rules()).is_err(), "its id is another's");
}

#[test]
fn a_set_of_keys_has_those_that_are_for_signatures() {
    let ed = ED.key("ed");
    let but = |name: &str, value: Value| {
        let mut key = ed.clone();
        key[name] = value;
        key
    };
    let unusable = [
        json!(7),
        json!({}),
        json!({"kty": "oct", "k": "c2VjcmV0", "kid": "ed"}),
        but("use", json!("enc")),
        but("key_ops", json!(["sign"])),
        but("alg", json!("RS256")),
        but("alg", json!("HS256")),
        but("x", json!("AAAA")),
        but("x", Value::Null),
        but("crv", json!("Ed448")),
        but("kid", json!(7)),
        json!({"kty": "RSA", "n": base64([255; 255]), "e": "AQAB"}),
        json!({"kty": "RSA", "n": base64([255; 1_025]), "e": "AQAB"}),
        json!({"kty": "RSA", "n": base64([255; 256]), "e": ""}),
        json!({"kty": "EC", "crv": "P-256", "x": base64([1; 32]), "y": base64([1; 31])}),
    ];
    for key in &unusable {
        let document = json!({"keys": [key]}).to_string();
        let reported = TokenKeys::parse(document.as_bytes()).unwrap_err();
        assert!(reported.kind == AuthErrorKind::Invalid && reported.text.contains("none of its 1 keys"), "{key}");
    }
    let mut all = unusable.to_vec();
    all.extend([ed.clone(), but("alg", json!("EdDSA")), but("key_ops", json!(["verify"])), but("use", json!("sig"))]);
    assert_eq!(set(&all).len(), 4, "the others are passed over");
    for (document, why) in [
        ("", "no JSON"),
        ("[]", "\"keys\" is missing"),
        ("{\"keys\": {}}", "\"keys\" is missing"),
        ("{\"keys\": []}", "none of its 0 keys"),
    ] {
        assert!(TokenKeys::parse(document.as_bytes()).unwrap_err().text.contains(why), "{document}");
    }
    let many = json!({"keys": vec![&ed; KEYS_MAX + 1]}).to_string();
    assert!(TokenKeys::parse(many.as_bytes()).unwrap_err().text.contains("256 are allowed"));
    let long = vec![b' '; KEY_SET_BYTES_MAX + 1];
    assert!(TokenKeys::parse(&long).unwrap_err().text.contains("are allowed"));
    assert!(!format!("{:?}", set(&[ed])).contains("\"x\""));
}

proptest! {
    /// Whatever is changed of a token that is believed, it never authenticates as another user.
    #[test]
    fn a_token_that_was_touched_is_not_believed(at in 0_usize..10_000, byte in any::<u8>()) {
        let good = ED.token(&json!({"alg": "EdDSA", "kid": "1"}), &claims());
        let mut bytes = good.clone().into_bytes();
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Ok(text) = String::from_utf8(bytes)
            && text != good
        {
            prop_assert!(verify(&text, &set(&[ED.key("1")]), &rules()).is_err());
        }
    }

    #[test]
    fn no_claims_panic(text in ".{0,60}", number in any::<f64>(), name in "exp|nbf|iat|sub|aud|iss|scope") {
        let keys = set(&[ED.key("1")]);
        for value in [json!(text), json!(number), json!([text]), json!({"a": text})] {
            let token = ED.token(&json!({"alg": "EdDSA"}), &with(&name, value));
            drop(verify(&token, &keys, &rules()));
        }
        drop(verify(&text, &keys, &rules()));
        drop(TokenKeys::parse(text.as_bytes()));
    }
}
