//! Logins: handshakes, tokens with and without headers, requests before and after, and re-authentication.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use bytes::Bytes;
use polylogue_api::{MachineId, Reply, Request as Ask};
use polylogue_auth::{
    AlterScram, Operation, Resource, ScramChange, ScramMechanism, UsersCommand, UsersRefusal, UsersReply,
};
use polylogue_kafka::session::{CloseReason, LOGIN_FRAME_BYTES_MAX, LOGIN_MS_MAX, supported_apis};
use polylogue_kafka::settings::KafkaSettings;
use polylogue_kafka_codec::alter_user_scram_credentials::{
    AlterUserScramCredentialsRequest, ScramCredentialDeletion, ScramCredentialUpsertion,
};
use polylogue_kafka_codec::describe_user_scram_credentials::{DescribeUserScramCredentialsRequest, UserName};
use polylogue_kafka_codec::sasl_authenticate::SaslAuthenticateRequest;
use polylogue_kafka_codec::sasl_handshake::{SaslHandshakeRequest, SaslHandshakeResponse};
use polylogue_kafka_codec::{ApiKey, ErrorCode};
use proptest::prelude::*;
use session_host::asked::Asked;
use session_host::users::{DELAY_MS, Users};
use session_host::{Host, frame, requests, text};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The client's first message of RFC 7677; proofs for `SERVER` were computed with Python's hashlib.
const FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
const SERVER: &str = "r=rOprNGfwEbeRWgbNEkqOAAECAwQFBgcICQoLDA0ODxAREhMUFRYX,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
const LAST: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqOAAECAwQFBgcICQoLDA0ODxAREhMUFRYX,p=";
const PROOFS: [(&str, &str, &str); 2] = [
    ("SCRAM-SHA-256", "2/FoSobMSKjD2CCYPBw3b7GWWAXy8QQajpwNt3P3Dfw=", "Q4jlnoKQBJdFXqaIJQtC7HBctlJfG22DU39bvykkzcw="),
    (
        "SCRAM-SHA-512",
        "+uiR08dbqbYL9cDY7knHCyd+LLkYAfzXhZb2ImLJJwKyBsEuAYsq5LfKrRS2pegHduqQ6Q2I8ovRECsHkLWiMA==",
        "iTtNi1HmqRxfDsRyc9xzmLFSHC6Qh2CvdlH4iDRY3VOxqt8rUN4BWCb6RC8/1sWixm28BhmkUaaCyKnFiai6ug==",
    ),
];

fn handshake(asked: &mut Asked, version: i16, mechanism: &str) -> SaslHandshakeResponse {
    asked.host.ask(version, &SaslHandshakeRequest { mechanism: text(mechanism) })
}

fn log_in(asked: &mut Asked, name: &str, password: &str) {
    assert_eq!(handshake(asked, 1, "PLAIN").error_code, 0);
    let response = asked.token(2, &format!("\0{name}\0{password}"));
    assert_eq!((response.error_code, response.error_message), (0, None));
    assert_eq!(asked.host.session.user(), Some(name));
}

#[test]
fn nobody_is_told_anything_before_it_is_known_who_it_is() {
    let mut walked = BTreeSet::new();
    for request in requests::frames() {
        let api = ApiKey::try_from(i16::from_be_bytes([request[4], request[5]])).unwrap();
        walked.insert((api.code(), i16::from_be_bytes([request[6], request[7]])));
        let is_login = [ApiKey::ApiVersions, ApiKey::SaslHandshake, ApiKey::SaslAuthenticate].contains(&api);
        let mut asked = Asked::new();
        asked.host.feed(&request);
        assert!(asked.host.asked().is_empty(), "{api}: the broker is asked nothing");
        let answered = asked.host.response_frame().is_some();
        assert_eq!(answered, is_login && api != ApiKey::SaslAuthenticate, "{api}");
        if !is_login {
            assert_eq!(asked.host.close_reason(), Some(&CloseReason::NotLoggedIn { api }));
        }
        assert_eq!(asked.host.session.user(), None);
    }
    let all = supported_apis().flat_map(|api| api.served.map(move |version| (api.key.code(), version)));
    assert_eq!(walked, all.collect(), "every version of every API is asked for");
}

#[test]
fn a_password_lets_in_and_everything_is_served_then() {
    for version in [0, 1, 2] {
        let mut asked = Asked::new();
        let response = handshake(&mut asked, 1, "PLAIN");
        let mechanisms: Vec<_> = response.mechanisms.iter().map(|name| &**name).collect();
        assert_eq!((response.error_code, mechanisms), (0, vec!["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]));
        let response = asked.token(version, "\0user\0pencil");
        assert_eq!((response.error_code, response.session_lifetime_ms), (0, 0));
        assert!(asked.is_served());
        assert_eq!(asked.reported(), ["user by PLAIN"]);
        let again = asked.token(version, "\0user\0pencil");
        assert_eq!(again.error_code, ErrorCode::IllegalSaslState.code(), "as Kafka answers");
    }
}

#[test]
fn a_proof_lets_in_with_and_without_headers() {
    for (mechanism, proof, signature) in PROOFS {
        let mut asked = Asked::new();
        assert_eq!(handshake(&mut asked, 1, mechanism).error_code, 0);
        assert_eq!(&asked.token(2, FIRST).auth_bytes[..], SERVER.as_bytes());
        assert_eq!(asked.host.session.user(), None);
        let last = asked.token(2, &format!("{LAST}{proof}"));
        assert_eq!((last.error_code, &last.auth_bytes[..]), (0, format!("v={signature}").as_bytes()));
        assert!(asked.is_served());

        let mut asked = Asked::new();
        assert_eq!(handshake(&mut asked, 0, mechanism).error_code, 0);
        let bare = |token: &str| [&u32::try_from(token.len()).unwrap().to_be_bytes(), token.as_bytes()].concat();
        // A byte at a time: a token is not parsed as a request, whatever its first bytes are.
        bare(FIRST).iter().for_each(|byte| asked.host.feed(&[*byte]));
        assert_eq!(asked.host.response_frame().as_deref(), Some(SERVER.as_bytes()));
        asked.host.feed(&bare(&format!("{LAST}{proof}")));
        assert_eq!(asked.host.response_frame().as_deref(), Some(format!("v={signature}").as_bytes()));
        assert!(asked.is_served());
        assert_eq!(asked.reported(), [format!("user by {mechanism}")]);
    }
}

/// Regression test: an exchange started before the user was deleted succeeded afterwards.
#[test]
fn a_user_that_goes_during_an_exchange_is_not_let_in() {
    let (mechanism, proof, _) = PROOFS[0];
    let mut asked = Asked::new();
    handshake(&mut asked, 1, mechanism);
    asked.token(2, FIRST);
    *asked.users.is_gone.lock().unwrap() = true;
    let text = asked.refused(&format!("{LAST}{proof}"));
    let why = "the user or its password changed during the exchange";
    assert_eq!(text, format!("Authentication failed: {why} (SASL mechanism {mechanism})"));
    assert!(!asked.is_served());
}

#[test]
fn whoever_is_wrong_is_told_so_after_a_while_and_no_more_than_that() {
    let invalid = "Authentication failed: Invalid username or password";
    for token in ["\0user\0Pencil", "\0nobody\0pencil"] {
        let mut asked = Asked::new();
        handshake(&mut asked, 1, "PLAIN");
        assert_eq!(asked.refused(token), invalid);
        let name = token.split('\0').nth(1).unwrap();
        let why = format!("{name} from 192.0.2.1 by PLAIN: the name or the password is wrong");
        assert_eq!(asked.reported(), [why], "no password");
        assert!(!asked.is_served());
    }
    let mut texts = Vec::new();
    for first in [FIRST, "n,,n=absent,r=rOprNGfwEbeRWgbNEkqO"] {
        let mut asked = Asked::new();
        handshake(&mut asked, 1, "SCRAM-SHA-256");
        let server = asked.token(2, first).auth_bytes;
        let server = std::str::from_utf8(&server).unwrap();
        assert!(server.starts_with("r=rOprNGfwEbeRWgbNEkqOAAEC") && server.ends_with(",i=4096"), "{server}");
        texts.push(asked.refused(&format!("{LAST}{}", "A".repeat(43) + "=")));
    }
    let invalid =
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256";
    assert_eq!(texts, [invalid, invalid]);
    let mut asked = Asked::new();
    handshake(&mut asked, 1, "PLAIN");
    let text = "Authentication failed: a PLAIN message has three parts with a NUL between them (SASL mechanism PLAIN)";
    assert_eq!(asked.refused("user pencil"), text);
    let mut asked = Asked::new();
    handshake(&mut asked, 1, "SCRAM-SHA-512");
    let text = "Authentication failed: delegation tokens are not supported (SASL mechanism SCRAM-SHA-512)";
    assert_eq!(asked.refused("n,,n=user,r=abc,tokenauth=true"), text);
}

/// Regression test: after closing the connection before the response, the next guess was verified at once.
#[test]
fn a_password_is_not_looked_at_before_its_turn() {
    let proof = format!("{LAST}{}", "A".repeat(43) + "=");
    for (mechanism, first, last, is_right) in
        [("PLAIN", None, "\0user\0pencil", true), ("SCRAM-SHA-256", Some(FIRST), &proof, false)]
    {
        let mut asked = Asked::new();
        handshake(&mut asked, 1, mechanism);
        first.map(|first| asked.token(2, first));
        *asked.users.turn_ms.lock().unwrap() = 700;
        asked.host.send(2, &SaslAuthenticateRequest { auth_bytes: last.to_owned().into() });
        for _ in 0..2 {
            // Another attempt may have got the first slot.
            assert_eq!((asked.host.response_frame(), asked.host.deadline_in()), (None, Some(700)));
            assert!(
                asked.host.session.user().is_none() && asked.reported().is_empty(),
                "{mechanism}: it was looked at"
            );
            asked.host.pass(700);
        }
        *asked.users.turn_ms.lock().unwrap() = 0;
        asked.host.pass(700);
        assert_eq!(asked.reported().len(), 1);
        assert_eq!(asked.host.session.user().is_some(), is_right, "{mechanism}");
    }
}

/// Regression test: an attempt without a slot waited far beyond the login timeout.
#[test]
fn a_login_whose_turn_does_not_come_in_time_ends() {
    for (turn_ms, after_ms) in [(700, LOGIN_MS_MAX), (u64::MAX, 0)] {
        let mut asked = Asked::new();
        handshake(&mut asked, 1, "PLAIN");
        *asked.users.turn_ms.lock().unwrap() = turn_ms;
        asked.host.send(2, &SaslAuthenticateRequest { auth_bytes: "\0user\0pencil".to_owned().into() });
        asked.host.pass(after_ms);
        assert_eq!(asked.host.response_frame(), None, "no answer: the password may be right");
        assert!(matches!(asked.host.close_reason(), Some(CloseReason::Login { .. })), "{turn_ms}");
        assert!(asked.reported().is_empty(), "it was not looked at");
    }
}

/// Without a header there is no error response.
#[test]
fn a_bare_token_that_is_wrong_ends_the_connection_without_a_word() {
    let mut asked = Asked::new();
    handshake(&mut asked, 0, "PLAIN");
    asked.host.feed(&[&[0, 0, 0, 7][..], b"\0user\0p"].concat());
    assert_eq!(asked.host.deadline_in(), Some(DELAY_MS));
    asked.host.pass(DELAY_MS);
    assert_eq!(asked.host.response_frame(), None);
    assert!(matches!(asked.host.close_reason(), Some(CloseReason::Login { .. })));
}

/// Regression test: guesses in parallel were delayed in parallel.
#[test]
fn passwords_cannot_be_guessed_side_by_side_on_one_connection() {
    let mut asked = Asked::new();
    handshake(&mut asked, 1, "PLAIN");
    let guess = |password: &str| SaslAuthenticateRequest { auth_bytes: format!("\0user\0{password}").into() };
    let mut frames = frame(2, 7, &guess("a"));
    frames.extend(frame(1, 8, &SaslHandshakeRequest { mechanism: text("PLAIN") }));
    frames.extend(frame(2, 9, &guess("pencil")));
    asked.host.feed(&frames);
    asked.host.pass(DELAY_MS);
    let (correlation, response) = asked.host.response_to::<SaslAuthenticateRequest>(2);
    assert_eq!((correlation, response.error_code), (7, ErrorCode::SaslAuthenticationFailed.code()));
    assert_eq!(asked.host.response_frame(), None);
    assert!(asked.host.session.user().is_none() && asked.host.close_reason().is_some());
    assert_eq!(asked.reported().len(), 1);
}

#[test]
fn a_mechanism_that_is_not_there_is_answered_with_those_that_are() {
    for mechanism in ["GSSAPI", "OAUTHBEARER", "", "plain"] {
        let mut asked = Asked::new();
        let response = handshake(&mut asked, 1, mechanism);
        assert_eq!((response.error_code, response.mechanisms.len()), (ErrorCode::UnsupportedSaslMechanism.code(), 3));
        assert!(matches!(asked.host.close_reason(), Some(CloseReason::Login { .. })));
    }
}

#[test]
fn where_nobody_is_asked_there_is_nothing_to_log_in_to() {
    let mut host = Host::new();
    let response = host.ask(1, &SaslHandshakeRequest { mechanism: text("PLAIN") });
    assert_eq!((response.error_code, response.mechanisms.len()), (ErrorCode::IllegalSaslState.code(), 0));
    let response = host.ask(2, &SaslAuthenticateRequest::default());
    assert_eq!(response.error_code, ErrorCode::IllegalSaslState.code());
    assert_eq!(host.close_reason(), None);
}

/// Regression test: a silent client kept its connection for ten minutes.
#[test]
fn whoever_does_not_log_in_is_not_waited_for() {
    let mut asked = Asked::new();
    assert_eq!(asked.host.deadline_in(), Some(LOGIN_MS_MAX));
    asked.host.pass(LOGIN_MS_MAX - 1);
    handshake(&mut asked, 1, "SCRAM-SHA-256");
    assert_eq!(asked.host.close_reason(), None);
    assert_eq!(asked.host.deadline_in(), Some(1), "a request does not extend the timeout");
    asked.host.pass(1);
    assert!(matches!(asked.host.close_reason(), Some(CloseReason::Login { .. })));
    let mut asked = Asked::new();
    log_in(&mut asked, "user", "pencil");
    assert_eq!(asked.host.deadline_in(), Some(KafkaSettings::default().idle_ms_max));
}

/// Regression test: before authentication a client could make the broker receive 100 MiB before the refusal.
#[test]
fn strangers_send_short_frames() {
    let produce = requests::produce(9);
    let mut long = frame(9, 1, &produce);
    let len = i32::try_from(LOGIN_FRAME_BYTES_MAX + 1).unwrap();
    long[..4].copy_from_slice(&len.to_be_bytes());
    let mut asked = Asked::new();
    asked.host.feed(&long[..8]);
    assert!(matches!(asked.host.close_reason(), Some(CloseReason::FrameLength(_))));
    let mut asked = Asked::new();
    log_in(&mut asked, "user", "pencil");
    asked.host.feed(&long[..8]);
    assert_eq!(asked.host.close_reason(), None);
}

/// KIP-368.
#[test]
fn who_is_known_says_so_again_after_a_while() {
    let mut asked = Asked::with(KafkaSettings { reauth_ms_max: 60_000, ..KafkaSettings::default() });
    handshake(&mut asked, 1, "PLAIN");
    assert_eq!(asked.token(2, "\0user\0pencil").session_lifetime_ms, 60_000);
    asked.host.pass(59_999);
    assert!(asked.is_served());
    handshake(&mut asked, 1, "PLAIN");
    assert_eq!(asked.token(2, "\0user\0pencil").error_code, 0);
    asked.host.pass(59_999);
    assert!(asked.is_served());
    asked.host.pass(1);
    assert!(!asked.is_served());
    assert_eq!(asked.host.close_reason(), Some(&CloseReason::NotLoggedIn { api: ApiKey::Metadata }));

    let mut asked = Asked::new();
    log_in(&mut asked, "user", "pencil");
    handshake(&mut asked, 1, "PLAIN");
    let text = "Cannot change principals during re-authentication from User:user: User:root";
    assert_eq!(asked.refused("\0root\0root"), text);
    assert_eq!(asked.host.session.user(), Some("user"));
    let mut asked = Asked::new();
    log_in(&mut asked, "user", "pencil");
    handshake(&mut asked, 1, "SCRAM-SHA-256");
    asked.token(2, FIRST);
    let text = "SASL mechanism 'SCRAM-SHA-256' requested by client is not supported for re-authentication of mechanism 'PLAIN'";
    assert_eq!(asked.refused(&format!("{LAST}{}", PROOFS[0].1)), text);
}

fn describe(users: &[&str]) -> DescribeUserScramCredentialsRequest {
    DescribeUserScramCredentialsRequest {
        users: Some(users.iter().map(|name| UserName { name: text(name) }).collect()),
    }
}

fn set(name: &str, mechanism: i8, iterations: i32, bytes: usize) -> ScramCredentialUpsertion {
    ScramCredentialUpsertion {
        name: text(name),
        mechanism,
        iterations,
        salt: Bytes::from_static(b"saltsalt"),
        salted_password: vec![7; bytes].into(),
    }
}

fn remove(name: &str, mechanism: i8) -> ScramCredentialDeletion {
    ScramCredentialDeletion { name: text(name), mechanism }
}

#[test]
fn credentials_are_shown_without_what_is_secret() {
    let mut host = Host::new();
    host.users = Arc::new(Users::default());
    let all = host.ask(0, &DescribeUserScramCredentialsRequest { users: None });
    let rows =
        |response: polylogue_kafka_codec::describe_user_scram_credentials::DescribeUserScramCredentialsResponse| {
            assert_eq!((response.error_code, response.error_message), (0, None));
            let row =
                |row: polylogue_kafka_codec::describe_user_scram_credentials::DescribeUserScramCredentialsResult| {
                    let infos: Vec<_> =
                        row.credential_infos.iter().map(|info| (info.mechanism, info.iterations)).collect();
                    (row.user.to_string(), row.error_code, row.error_message.map(|text| text.to_string()), infos)
                };
            response.results.into_iter().map(row).collect::<Vec<_>>()
        };
    let user = ("user".to_owned(), 0, None, vec![(2, 8_192)]);
    assert_eq!(rows(all), std::slice::from_ref(&user));
    assert_eq!(rows(host.ask(0, &describe(&[]))), std::slice::from_ref(&user));
    let missing = "Attempt to describe a user credential that does not exist: absent";
    let twice = "Cannot describe SCRAM credentials for the same user twice in a single request: x";
    let expected = [
        ("absent".to_owned(), ErrorCode::ResourceNotFound.code(), Some(missing.to_owned()), vec![]),
        user,
        ("x".to_owned(), ErrorCode::DuplicateResource.code(), Some(twice.to_owned()), vec![]),
    ];
    assert_eq!(rows(host.ask(0, &describe(&["x", "user", "absent", "x"]))), expected);
}

#[test]
fn credentials_are_set_and_taken_away_each_by_itself() {
    let mut host = Host::new();
    let request = AlterUserScramCredentialsRequest {
        deletions: vec![remove("gone", 1), remove("twice", 2), remove("", 1)],
        upsertions: vec![
            set("new", 2, 4_096, 64),
            set("twice", 2, 4_096, 64),
            // As `kafka-configs` sets both at once.
            set("both", 1, 4_096, 32),
            set("both", 2, 4_096, 64),
            set("few", 1, 4_095, 32),
            set("many", 1, 16_385, 32),
            set("none", 3, 4_096, 32),
            set("short", 2, 4_096, 32),
            set("full", 1, 4_096, 32),
        ],
    };
    host.send(0, &request);
    let (token, Ask::Machine(MachineId::AMQP, command)) = host.asked_one() else { panic!("no command") };
    let UsersCommand::AlterScram(parts) = *command.downcast::<UsersCommand>().unwrap() else {
        panic!("another command")
    };
    let asked: Vec<_> = parts.iter().map(|AlterScram { user, change }| (user.as_str(), change.mechanism())).collect();
    let (short, long) = (ScramMechanism::Sha256, ScramMechanism::Sha512);
    assert_eq!(asked, [("gone", short), ("new", long), ("both", short), ("both", long), ("full", short)]);
    assert!(matches!(parts[0].change, ScramChange::Remove(_)) && matches!(parts[1].change, ScramChange::Set(_)));
    let full = UsersRefusal::Refused("there can be at most 2 users".to_owned());
    let answer = UsersReply::Each(vec![Err(UsersRefusal::NotFound), Ok(()), Ok(()), Ok(()), Err(full)]);
    host.reply(token, Reply::Machine(Ok(Box::new(answer))));
    let response = host.response::<AlterUserScramCredentialsRequest>(0);
    let mut rows: Vec<_> = response
        .results
        .iter()
        .map(|row| (&*row.user, ErrorCode::from_code(row.error_code).unwrap(), row.error_message.as_deref()))
        .collect();
    rows.sort_by_key(|row| row.0);
    let bad = ErrorCode::UnacceptableCredential;
    assert_eq!(
        rows,
        [
            ("", bad, Some("Username must not be empty")),
            ("both", ErrorCode::None, None),
            ("both", ErrorCode::None, None),
            ("few", bad, Some("Too few iterations")),
            ("full", bad, Some("there can be at most 2 users")),
            ("gone", ErrorCode::ResourceNotFound, Some("Attempt to delete a user credential that does not exist")),
            ("many", bad, Some("Too many iterations")),
            ("new", ErrorCode::None, None),
            ("none", ErrorCode::UnsupportedSaslMechanism, Some("Unknown SCRAM mechanism")),
            ("short", bad, Some("a salted password of SCRAM-SHA-512 has 64 bytes")),
            (
                "twice",
                ErrorCode::DuplicateResource,
                Some("A user credential cannot be altered twice in the same request")
            ),
        ]
    );
}

/// Regression test: any user could set an administrator's password.
#[test]
fn users_are_managed_by_who_may_and_administrators_by_themselves() {
    let alter = AlterUserScramCredentialsRequest { deletions: vec![], upsertions: vec![set("root", 1, 4_096, 32)] };
    let mut asked = Asked::new();
    log_in(&mut asked, "user", "pencil");
    let denied = ErrorCode::ClusterAuthorizationFailed.code();
    assert_eq!(asked.host.ask(0, &describe(&[])).error_code, denied);
    let response = asked.host.ask(0, &alter);
    let rows: Vec<_> = response.results.iter().map(|row| (&*row.user, row.error_code)).collect();
    assert_eq!(rows, [("root", denied)]);
    assert!(asked.host.asked().is_empty());
    asked.users.allow("user", Operation::Alter, Resource::CLUSTER);
    let response = asked.host.ask(0, &alter);
    let text = "Only an administrator may change the password of an administrator.";
    assert_eq!(response.results[0].error_message.as_deref(), Some(text));
    asked.host.send(0, &AlterUserScramCredentialsRequest { upsertions: vec![set("x", 1, 4_096, 32)], ..alter.clone() });
    assert_eq!(asked.host.asked().len(), 1);
    let mut asked = Asked::new();
    log_in(&mut asked, "root", "root");
    assert_eq!(asked.host.ask(0, &describe(&[])).error_code, 0);
    asked.host.send(0, &alter);
    assert_eq!(asked.host.asked().len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is sent before authentication, the broker gets no request and no user is logged in.
    #[test]
    fn strangers_reach_nobody(
        mechanism in prop::sample::select(vec!["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "X"]),
        version in 0..2_i16,
        tokens in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..80),
                "\0?user\0?[a-z]{0,9}".prop_map(String::into_bytes),
                "[ny],(a=user)?,n=[a-z=,]{0,9},r=[!-~]{0,20}(,[a-z]{1,9}=[a-z]{0,4})?".prop_map(String::into_bytes),
                "c=biws,r=[!-~]{0,60},p=[A-Za-z0-9+/]{0,90}={0,2}".prop_map(String::into_bytes),
            ],
            0..4,
        ),
        with_header in any::<bool>(),
        pick in any::<prop::sample::Index>(),
    ) {
        let mut asked = Asked::new();
        asked.host.feed(&frame(version, 1, &SaslHandshakeRequest { mechanism: text(mechanism) }));
        for token in tokens {
            let bytes = match with_header {
                true => frame(2, 2, &SaslAuthenticateRequest { auth_bytes: token.into() }),
                false => [&u32::try_from(token.len()).unwrap().to_be_bytes()[..], &token[..]].concat(),
            };
            asked.host.feed(&bytes);
        }
        let frames = requests::frames();
        asked.host.feed(pick.get(&frames).as_slice());
        asked.host.pass(DELAY_MS);
        asked.host.take_output();
        prop_assert!(asked.host.asked().is_empty());
        prop_assert_eq!(asked.host.session.user(), None);
    }
}
