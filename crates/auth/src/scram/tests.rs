use super::*;
use proptest::prelude::*;

const SECRET: &[u8] = b"of this process";

fn nonce() -> [u8; SERVER_NONCE_BYTES] {
    std::array::from_fn(|at| at as u8)
}

fn credential(mechanism: ScramMechanism, password: &str) -> ScramCredential {
    let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
    ScramCredential::of(mechanism, password.as_bytes(), salt.into(), 4_096).unwrap()
}

/// A client as RFC 5802 describes it: its last message, and the server's that it expects.
fn client(mechanism: ScramMechanism, password: &str, bare: &str, gs2: &str, server_first: &str) -> (String, String) {
    let mut attributes = server_first.split(',');
    let nonce = attributes.next().unwrap().strip_prefix("r=").unwrap();
    let salt = STANDARD.decode(attributes.next().unwrap().strip_prefix("s=").unwrap()).unwrap();
    let iterations = attributes.next().unwrap().strip_prefix("i=").unwrap().parse().unwrap();
    let salted = mechanism.salted(password.as_bytes(), &salt, iterations);
    let client_key = mechanism.hmac(&salted, &[b"Client Key"]);
    let without_proof = format!("c={},r={nonce}", STANDARD.encode(gs2));
    let signed = format!("{bare},{server_first},{without_proof}");
    let signature = mechanism.hmac(&mechanism.hash(&client_key), &[signed.as_bytes()]);
    let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
    let server = mechanism.hmac(&mechanism.hmac(&salted, &[b"Server Key"]), &[signed.as_bytes()]);
    (format!("{without_proof},p={}", STANDARD.encode(proof)), format!("v={}", STANDARD.encode(server)))
}

/// Where an exchange that the table below names ends.
fn exchange(password: &str, first: &str, change: impl Fn(String) -> String) -> Result<Proven, AuthError> {
    let mechanism = ScramMechanism::Sha256;
    let parsed = ClientFirst::parse(mechanism, first.as_bytes())?;
    let (gs2, bare) = (parsed.gs2.clone(), parsed.bare.clone());
    let known = credential(mechanism, "pencil");
    let known = (parsed.name() == "user").then_some(&known);
    let (server_first, challenged) = parsed.answer(known, SECRET, nonce());
    let (last, _) = client(mechanism, password, &bare, &gs2, std::str::from_utf8(&server_first).unwrap());
    challenged.finish(change(last).as_bytes())
}

/// The example of RFC 7677, section 3, whose server's nonce is not made here.
#[test]
fn the_documented_exchange_is_the_same() {
    let first = ClientFirst::parse(ScramMechanism::Sha256, b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO").unwrap();
    assert_eq!(first.name(), "user");
    let nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    let challenged = Challenged {
        first,
        nonce: nonce.to_owned(),
        server_first: format!("r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"),
        credential: Some(credential(ScramMechanism::Sha256, "pencil")),
    };
    let last = format!("c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
    let proven = challenged.finish(last.as_bytes()).unwrap();
    assert_eq!(proven.name, "user");
    assert_eq!(&proven.server_final[..], b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
}

/// Computed with Python's hashlib.
#[test]
fn both_mechanisms_agree_with_another_implementation() {
    for (mechanism, proof, signature) in [
        (
            ScramMechanism::Sha256,
            "2/FoSobMSKjD2CCYPBw3b7GWWAXy8QQajpwNt3P3Dfw=",
            "Q4jlnoKQBJdFXqaIJQtC7HBctlJfG22DU39bvykkzcw=",
        ),
        (
            ScramMechanism::Sha512,
            "+uiR08dbqbYL9cDY7knHCyd+LLkYAfzXhZb2ImLJJwKyBsEuAYsq5LfKrRS2pegHduqQ6Q2I8ovRECsHkLWiMA==",
            "iTtNi1HmqRxfDsRyc9xzmLFSHC6Qh2CvdlH4iDRY3VOxqt8rUN4BWCb6RC8/1sWixm28BhmkUaaCyKnFiai6ug==",
        ),
    ] {
        let first = ClientFirst::parse(mechanism, b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO").unwrap();
        let (message, challenged) = first.answer(Some(&credential(mechanism, "pencil")), SECRET, nonce());
        let own = STANDARD.encode(nonce());
        let expected = format!("r=rOprNGfwEbeRWgbNEkqO{own},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096");
        assert_eq!(&message[..], expected.as_bytes());
        let last = format!("c=biws,r=rOprNGfwEbeRWgbNEkqO{own},p={proof}");
        let proven = challenged.finish(last.as_bytes()).unwrap();
        assert_eq!(&proven.server_final[..], format!("v={signature}").as_bytes());
    }
}

#[test]
fn first_messages_that_are_taken_and_those_that_are_not() {
    use AuthErrorKind::{Malformed, Unsupported};
    let parse = |text: &str| ClientFirst::parse(ScramMechanism::Sha256, text.as_bytes());
    for (text, name) in [
        ("n,,n=user,r=abc", "user"),
        ("y,,n=user,r=abc", "user"),
        ("n,a=user,n=user,r=abc", "user"),
        ("n,,n=a=2Cb=3Dc,r=abc", "a,b=c"),
        ("n,a=a=2Cb,n=a=2Cb,r=abc", "a,b"),
        ("n,,n=käse,r=abc,tokenauth=true", "käse"),
    ] {
        assert_eq!(parse(text).map(|first| first.name), Ok(name.to_owned()), "{text}");
    }
    let token = parse("n,,n=id,r=abc,tokenauth=true").unwrap();
    assert_eq!((token.extension("tokenauth"), token.extension("other")), (Some("true"), None));
    let long = format!("n,,n=user,r={}", "a".repeat(CLIENT_NONCE_BYTES_MAX + 1));
    let longer = format!("n,,n={},r=abc", "a".repeat(SCRAM_MESSAGE_BYTES_MAX));
    let many = format!("n,,n=user,r=abc{}", ",x=1".repeat(EXTENSIONS_MAX + 1));
    for (text, kind) in [
        ("", Malformed),
        ("n", Malformed),
        ("n,,", Malformed),
        ("n,,n=user", Malformed),
        ("n,,r=abc,n=user", Malformed),
        ("n,,n=,r=abc", Malformed),
        ("n,,n=user,r=", Malformed),
        ("n,,n=user,r=a b", Malformed),
        ("n,,n=us=er,r=abc", Malformed),
        ("n,,n=user=,r=abc", Malformed),
        ("n,,n=user=2c,r=abc", Malformed),
        ("n,,n=user,r=abc,x", Malformed),
        ("n,,n=user,r=abc,=x", Malformed),
        ("n,,n=us\0er,r=abc", Malformed),
        ("q,,n=user,r=abc", Malformed),
        ("n,user,n=user,r=abc", Malformed),
        ("p=tls-unique,,n=user,r=abc", Unsupported),
        ("n,a=admin,n=user,r=abc", Unsupported),
        ("n,,m=must,n=user,r=abc", Unsupported),
        (&long, Malformed),
        (&longer, Malformed),
        (&many, Malformed),
    ] {
        assert_eq!(parse(text).map_err(|error| error.kind), Err(kind), "{text}");
    }
    assert!(ClientFirst::parse(ScramMechanism::Sha256, b"n,,n=\xff,r=abc").is_err());
}

#[test]
fn last_messages_that_are_not_taken() {
    use AuthErrorKind::{Malformed, Refused};
    let first = "n,,n=user,r=abc";
    assert_eq!(exchange("pencil", first, |last| last).map(|proven| proven.name), Ok("user".to_owned()));
    let kind = |password, first, change: &dyn Fn(String) -> String| {
        exchange(password, first, change).map(|proven| proven.name).map_err(|error| error.kind)
    };
    assert_eq!(kind("pencils", first, &|last| last), Err(Refused), "the wrong password");
    assert_eq!(kind("pencil", "n,,n=absent,r=abc", &|last| last), Err(Refused), "no one's name");
    for (change, expected) in [
        (&(|_| String::new()) as &dyn Fn(String) -> String, Malformed),
        (&|last: String| last.replace("c=biws", "c=eSws"), Malformed),
        (&|last: String| last.replace("c=biws", "c=*"), Malformed),
        (&|last: String| last.replace("r=abc", "r=abd"), Malformed),
        (&|last: String| last.replace("c=biws,", ""), Malformed),
        (&|last: String| last.split(",p=").next().unwrap().to_owned(), Malformed),
        (&|last: String| format!("{},p=", last.split(",p=").next().unwrap()), Malformed),
        (&|last: String| format!("{},p=AAAA", last.split(",p=").next().unwrap()), Malformed),
        (&|last: String| format!("{last}*"), Malformed),
        // What is signed has changed.
        (&|last: String| last.replace(",p=", ",x=1,p="), Refused),
        (&|last: String| last.replace(",p=", ",x,p="), Malformed),
        // A proof of zeros, for a stored key that is none.
        (&|last: String| format!("{},p={}", last.split(",p=").next().unwrap(), STANDARD.encode([0; 32])), Refused),
    ] {
        assert_eq!(kind("pencil", first, change), Err(expected));
    }
}

/// An unknown name cannot be distinguished from one with a wrong password: the same challenge each time, the same error.
#[test]
fn who_is_not_there_is_challenged_like_anybody() {
    let ask = |name: &str, secret: &[u8]| {
        let first = ClientFirst::parse(ScramMechanism::Sha512, format!("n,,n={name},r=abc").as_bytes()).unwrap();
        first.answer(None, secret, nonce())
    };
    let (once, challenged) = ask("absent", SECRET);
    assert_eq!(once, ask("absent", SECRET).0);
    assert_ne!(once, ask("else", SECRET).0);
    assert_ne!(once, ask("absent", b"of another process").0);
    let text = std::str::from_utf8(&once).unwrap();
    let (last, _) = client(ScramMechanism::Sha512, "any", "n=absent,r=abc", "n,,", text);
    let error = challenged.finish(last.as_bytes()).unwrap_err();
    let known = credential(ScramMechanism::Sha512, "pencil");
    let first = ClientFirst::parse(ScramMechanism::Sha512, b"n,,n=user,r=abc").unwrap();
    let (message, challenged) = first.answer(Some(&known), SECRET, nonce());
    let text = std::str::from_utf8(&message).unwrap();
    let (last, _) = client(ScramMechanism::Sha512, "wrong", "n=user,r=abc", "n,,", text);
    assert_eq!(challenged.finish(last.as_bytes()), Err(error));
    // Who has a credential for the other mechanism only has none for this one.
    let first = ClientFirst::parse(ScramMechanism::Sha512, b"n,,n=absent,r=abc").unwrap();
    let other = credential(ScramMechanism::Sha256, "pencil");
    assert_eq!(first.answer(Some(&other), SECRET, nonce()).0, once);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whoever_knows_the_password_is_proven_and_nobody_else(
        name in "[a-zA-Z0-9ä,=@./-]{1,20}",
        password in ".{1,20}",
        nonce_of_client in "[!-+--~]{1,40}",
        own in any::<[u8; SERVER_NONCE_BYTES]>(),
        flip in any::<proptest::sample::Index>(),
        is_long in any::<bool>(),
    ) {
        let mechanism = if is_long { ScramMechanism::Sha512 } else { ScramMechanism::Sha256 };
        let bare = format!("n={},r={nonce_of_client}", name.replace('=', "=3D").replace(',', "=2C"));
        let first = ClientFirst::parse(mechanism, format!("n,,{bare}").as_bytes()).unwrap();
        prop_assert_eq!(first.name(), &name);
        let (message, challenged) = first.answer(Some(&credential(mechanism, &password)), SECRET, own);
        let text = std::str::from_utf8(&message).unwrap();
        let (last, expected) = client(mechanism, &password, &bare, "n,,", text);
        let mut flipped = last.clone().into_bytes();
        let at = flip.index(flipped.len());
        flipped[at] ^= 1;
        // The last character of base64 may hold bits that mean nothing, and they have to be zero.
        prop_assert!(challenged.clone().finish(&flipped).is_err());
        let proven = challenged.finish(last.as_bytes()).unwrap();
        prop_assert_eq!(proven.name, name);
        prop_assert_eq!(&proven.server_final[..], expected.as_bytes());
    }

    #[test]
    fn no_message_makes_it_panic(first in ".{0,80}", last in proptest::collection::vec(any::<u8>(), 0..200)) {
        for text in [first.clone(), format!("n,,n={first},r=abc"), format!("n,,n=user,r={first}")] {
            if let Ok(parsed) = ClientFirst::parse(ScramMechanism::Sha256, text.as_bytes()) {
                let (_, challenged) = parsed.answer(None, SECRET, nonce());
                prop_assert!(challenged.finish(&last).is_err());
            }
        }
    }
}
