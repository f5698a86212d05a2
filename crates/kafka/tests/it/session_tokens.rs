//! Logins by a token of an identity provider (SASL OAUTHBEARER, RFC 7628).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use polylogue_auth::{Bearer, Grants, Operation, Resource, ResourceKind};
use polylogue_kafka::session::CloseReason;
use polylogue_kafka::settings::KafkaSettings;
use polylogue_kafka_codec::ErrorCode;
use polylogue_kafka_codec::metadata::MetadataRequest;
use polylogue_kafka_codec::sasl_authenticate::{SaslAuthenticateRequest, SaslAuthenticateResponse};
use polylogue_kafka_codec::sasl_handshake::SaslHandshakeRequest;
use session_host::asked::Asked;
use session_host::users::DELAY_MS;
use session_host::{START_MS, frame, text};

const REFUSED: &[u8] = b"{\"status\":\"invalid_token\"}";

/// A connection to a listener that accepts these tokens: token, user, lifetime in seconds. `boss` is an
/// administrator.
fn believing(settings: KafkaSettings, tokens: &[(&str, &str, i64)]) -> Asked {
    let bearer = |(token, name, seconds): &(&str, &str, i64)| {
        let grants = Grants::of((*name == "boss").then_some("tag:administrator"), "", "tag:administrator");
        let until_ms = START_MS + seconds * 1_000;
        ((*token).to_owned(), Bearer { name: (*name).to_owned(), grants, until_ms })
    };
    let asked = Asked::with(settings);
    *asked.users.tokens.lock().unwrap() = Some(tokens.iter().map(bearer).collect());
    asked
}

fn believing_three() -> Asked {
    let tokens = [("a.b.c", "ann", 300), ("d.e.f", "ann", 600), ("g.h.i", "bob", 600), ("j.k.l", "boss", 600)];
    believing(KafkaSettings::default(), &tokens)
}

fn handshake(asked: &mut Asked) {
    let response = asked.host.ask(1, &SaslHandshakeRequest { mechanism: text("OAUTHBEARER") });
    let mechanisms: Vec<_> = response.mechanisms.iter().map(|name| &**name).collect();
    assert_eq!(mechanisms, ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]);
    assert_eq!(response.error_code, 0);
}

fn log_in(asked: &mut Asked, token: &str) -> SaslAuthenticateResponse {
    handshake(asked);
    asked.token(2, &format!("n,,\x01auth=Bearer {token}\x01\x01"))
}

#[test]
fn a_token_lets_in_for_as_long_as_it_holds() {
    let mut asked = believing_three();
    let response = log_in(&mut asked, "a.b.c");
    assert_eq!((response.error_code, response.session_lifetime_ms, response.auth_bytes.len()), (0, 300_000, 0));
    assert_eq!(asked.host.session.user(), Some("ann"));
    assert_eq!(asked.reported(), ["ann by OAUTHBEARER"]);
    asked.host.pass(299_999);
    assert!(asked.is_served());
    assert_eq!(log_in(&mut asked, "d.e.f").session_lifetime_ms, 300_001, "another of the same bearer");
    asked.host.pass(300_000);
    assert!(asked.is_served());
    asked.host.pass(1);
    assert!(!asked.is_served() && asked.host.close_reason().is_some());

    let mut asked = believing(KafkaSettings { reauth_ms_max: 60_000, ..KafkaSettings::default() }, &[("x", "ann", 30)]);
    assert_eq!(log_in(&mut asked, "x").session_lifetime_ms, 30_000);
    let mut asked = believing(KafkaSettings { reauth_ms_max: 60_000, ..KafkaSettings::default() }, &[("x", "ann", 90)]);
    assert_eq!(log_in(&mut asked, "x").session_lifetime_ms, 60_000);
}

#[test]
fn a_token_that_is_not_believed_is_told_of_twice_and_slowed_once() {
    let mut asked = believing_three();
    handshake(&mut asked);
    let message = "n,,\x01auth=Bearer x.y.z\x01\x01";
    asked.host.send(2, &SaslAuthenticateRequest { auth_bytes: message.into() });
    assert_eq!((asked.host.response_frame(), asked.host.deadline_in()), (None, Some(DELAY_MS)));
    asked.host.pass(DELAY_MS);
    let response = asked.host.response::<SaslAuthenticateRequest>(2);
    assert_eq!((response.error_code, &response.auth_bytes[..]), (0, REFUSED));
    assert_eq!(asked.host.session.user(), None);
    assert_eq!(asked.host.close_reason(), None);
    // Whatever it sends now, the login fails.
    let response = asked.token(2, "n,,\x01auth=Bearer a.b.c\x01\x01");
    assert_eq!(response.error_code, ErrorCode::SaslAuthenticationFailed.code());
    assert_eq!(response.error_message.as_deref().map(str::as_bytes), Some(REFUSED));
    assert!(matches!(asked.host.close_reason(), Some(CloseReason::Login { .. })));
    assert_eq!(asked.reported(), [" from 192.0.2.1 by OAUTHBEARER: the token has expired"], "once, and no token");
}

/// A second token before the answer to the first, and a valid one after an invalid one.
#[test]
fn tokens_cannot_be_guessed_side_by_side_on_one_connection() {
    let mut asked = believing_three();
    handshake(&mut asked);
    let guess =
        |token: &str| SaslAuthenticateRequest { auth_bytes: format!("n,,\x01auth=Bearer {token}\x01\x01").into() };
    let mut frames = frame(2, 7, &guess("x.y.z"));
    frames.extend(frame(2, 8, &guess("a.b.c")));
    asked.host.feed(&frames);
    asked.host.pass(DELAY_MS);
    let (correlation, first) = asked.host.response_to::<SaslAuthenticateRequest>(2);
    assert_eq!((correlation, &first.auth_bytes[..]), (7, REFUSED));
    let (correlation, second) = asked.host.response_to::<SaslAuthenticateRequest>(2);
    assert_eq!((correlation, second.error_code), (8, ErrorCode::SaslAuthenticationFailed.code()));
    assert!(asked.host.session.user().is_none() && asked.host.close_reason().is_some());
    assert_eq!(asked.reported().len(), 1);
}

#[test]
fn nothing_else_is_asked_while_a_token_is_refused() {
    let mut asked = believing_three();
    log_in(&mut asked, "a.b.c");
    handshake(&mut asked);
    asked.host.send(2, &SaslAuthenticateRequest { auth_bytes: "n,,\x01auth=Bearer x\x01\x01".into() });
    asked.host.pass(DELAY_MS);
    assert_eq!(&asked.host.response::<SaslAuthenticateRequest>(2).auth_bytes[..], REFUSED);
    assert!(!asked.is_served());
    assert!(asked.host.close_reason().is_some());
}

#[test]
fn who_says_something_else_is_told_what() {
    let invalid = "Authentication failed: Invalid OAUTHBEARER client first message (SASL mechanism OAUTHBEARER)";
    for message in ["", "a.b.c", "\x01", "n,,\x01auth=Bearer a.b.c\x01", "n,,\x01auth=Basic a.b.c\x01\x01"] {
        let mut asked = believing_three();
        handshake(&mut asked);
        assert_eq!(asked.refused(message), invalid, "{message:?}");
    }
    let mut asked = believing_three();
    handshake(&mut asked);
    let text = asked.refused("n,a=bob,\x01auth=Bearer a.b.c\x01\x01");
    assert!(text.contains("authorization id that is not the name of the token"), "{text}");
    let mut asked = believing_three();
    handshake(&mut asked);
    assert_eq!(asked.token(2, "n,a=ann,\x01auth=Bearer a.b.c\x01\x01").error_code, 0);
}

#[test]
fn another_login_on_the_same_connection_is_of_the_same_bearer_by_the_same_mechanism() {
    let mut asked = believing_three();
    log_in(&mut asked, "a.b.c");
    handshake(&mut asked);
    let reported = "Cannot change principals during re-authentication from User:ann: User:bob";
    assert_eq!(asked.refused("n,,\x01auth=Bearer g.h.i\x01\x01"), reported);
    let mut asked = believing_three();
    log_in(&mut asked, "a.b.c");
    asked.host.ask(1, &SaslHandshakeRequest { mechanism: text("PLAIN") });
    let reported = asked.refused("\0user\0pencil");
    assert!(reported.starts_with("SASL mechanism 'PLAIN' requested by client is not supported"), "{reported}");
}

#[test]
fn a_bearer_may_do_what_lists_say_and_everything_with_the_scope_of_administrators() {
    let topic = Resource { kind: ResourceKind::Topic, name: "t" };
    let known = |asked: &mut Asked| {
        let name = Some(text("t"));
        let topic = polylogue_kafka_codec::metadata::MetadataRequestTopic { name, ..Default::default() };
        let request = MetadataRequest {
            topics: Some(vec![topic]),
            allow_auto_topic_creation: false,
            ..MetadataRequest::default()
        };
        asked.host.ask(12, &request).topics[0].error_code
    };
    let refused = ErrorCode::TopicAuthorizationFailed.code();
    let mut ann = believing_three();
    log_in(&mut ann, "a.b.c");
    assert_eq!(known(&mut ann), refused);
    ann.users.allow("ann", Operation::Describe, topic);
    assert_eq!(known(&mut ann), ErrorCode::UnknownTopicOrPartition.code());
    let mut boss = believing_three();
    log_in(&mut boss, "j.k.l");
    assert_eq!(known(&mut boss), ErrorCode::UnknownTopicOrPartition.code());
}

/// Without SaslAuthenticate there is no error response; tokens are accepted all the same.
#[test]
fn bare_tokens_are_taken_too() {
    let bare = |message: &str| [&u32::try_from(message.len()).unwrap().to_be_bytes(), message.as_bytes()].concat();
    for (token, is_in) in [("a.b.c", true), ("x.y.z", false)] {
        let mut asked = believing_three();
        asked.host.ask(0, &SaslHandshakeRequest { mechanism: text("OAUTHBEARER") });
        asked.host.feed(&bare(&format!("n,,\x01auth=Bearer {token}\x01\x01")));
        asked.host.pass(DELAY_MS);
        let said = asked.host.response_frame().unwrap();
        assert_eq!(&said[..], if is_in { &b""[..] } else { REFUSED });
        if !is_in {
            asked.host.feed(&bare("\x01"));
            assert!(asked.host.response_frame().is_none() && asked.host.close_reason().is_some());
        }
        assert_eq!(asked.is_served(), is_in);
    }
}
