//! Tokens that others give out, as logins of every protocol but Kafka's, whose clients are in the testkit: the real binary over its listeners.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use common::amqp::{Client, start_ok};
use common::{Server, TempDir};
use polylogue_amqp::codec::*;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// An issuer of tokens.
struct Issuer(Ed25519KeyPair, &'static str);

impl Issuer {
    fn new(id: &'static str) -> Issuer {
        Issuer(Ed25519KeyPair::generate().unwrap(), id)
    }

    fn publish(&self, path: &Path) {
        let x = URL_SAFE_NO_PAD.encode(self.0.public_key());
        let keys = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": self.1, "x": x}]});
        std::fs::write(path, keys.to_string()).unwrap();
    }

    /// A token that holds for a long time.
    fn token(&self, name: &str, scopes: &str) -> String {
        let claims = json!({"iss": "test", "aud": "polylogue", "sub": name, "scope": scopes, "exp": 4_000_000_000_u64});
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&json!({"alg": "EdDSA", "kid": self.1})), part(&claims));
        let signature = URL_SAFE_NO_PAD.encode(self.0.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }
}

struct Rig {
    server: Server,
    issuer: Issuer,
    keys: std::path::PathBuf,
    _dir: TempDir,
}

impl Rig {
    fn new() -> Rig {
        let dir = TempDir::new();
        let (issuer, keys) = (Issuer::new("1"), dir.join("keys.json"));
        issuer.publish(&keys);
        let jwks = format!("oauth.jwks={}", keys.display());
        let listeners = ["--listen", "amqp=127.0.0.1:0", "--listen", "rabbitmq-http=127.0.0.1:0"];
        let rules = ["--set", &jwks, "--set", "oauth.issuer=test", "--set", "oauth.audience=polylogue"];
        let more = [&listeners[..], &rules, &["--set", "server.login=always"]].concat();
        Rig { server: Server::start_with_admin(&dir.join("data"), &more), issuer, keys, _dir: dir }
    }

    fn at(&self, protocol: &str) -> SocketAddr {
        let prefix = format!("{protocol} listening on ");
        let line = self.server.lines.iter().find_map(|line| line.strip_prefix(&prefix)).unwrap();
        line.parse().unwrap()
    }

    /// What a path of an http protocol answers to a user.
    fn get(&self, protocol: &str, path: &str, authorization: &str) -> (u16, String) {
        let config = ureq::Agent::config_builder().http_status_as_error(false);
        let agent = config.timeout_global(Some(Duration::from_secs(20))).build().new_agent();
        let request = agent.get(format!("http://{}{path}", self.at(protocol))).header("authorization", authorization);
        let mut answer = request.call().unwrap();
        (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
    }

    fn metric(&self, name: &str) -> u64 {
        let token = self.issuer.token("boss", "polylogue.tag:administrator");
        let (_, text) = self.get("http", "/metrics", &format!("Bearer {token}"));
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in\n{text}"))
    }
}

#[test]
fn the_api_is_for_tokens_with_the_scope_of_administrators() {
    let rig = Rig::new();
    let topics = |authorization: &str| rig.get("http", "/api/v1/topics", authorization).0;
    let boss = rig.issuer.token("boss", "openid polylogue.tag:administrator");
    assert_eq!(topics(&format!("Bearer {boss}")), 200);
    let as_password = STANDARD.encode(format!("anybody:{boss}"));
    assert_eq!(topics(&format!("Basic {as_password}")), 200);
    for scopes in ["", "tag:administrator", "other.tag:administrator", "polylogue.tag:monitoring"] {
        assert_eq!(topics(&format!("Bearer {}", rig.issuer.token("ann", scopes))), 403, "{scopes}");
    }
    // There is an administrator of that name, whom only a password makes one.
    assert_eq!(topics(&format!("Bearer {}", rig.issuer.token("admin", "polylogue.read:*/*"))), 401);
    // `guest` logs in by nothing but its password, over AMQP.
    assert_eq!(topics(&format!("Bearer {}", rig.issuer.token("guest", "polylogue.tag:administrator"))), 401);
    let other = Issuer::new("1").token("boss", "polylogue.tag:administrator");
    for wrong in [format!("Bearer {other}"), format!("Bearer {boss}x"), "Bearer x".to_owned(), "Bearer".to_owned()] {
        assert_eq!(topics(&wrong), 401, "{wrong}");
    }
    assert_eq!(rig.metric("polylogue_oauth_keys"), 1);
    let failed = rig.metric("polylogue_logins_total{mechanism=\"OAUTHBEARER\",outcome=\"failed\"}");
    assert_eq!(failed, 5);
}

#[test]
fn rabbitmqs_api_gives_what_tags_and_scopes_of_a_token_say() {
    let rig = Rig::new();
    let get = |path: &str, scopes: &str| {
        let token = rig.issuer.token("ann", scopes);
        rig.get("rabbitmq-http", path, &format!("Bearer {token}"))
    };
    let (status, body) = get("/api/whoami", "polylogue.tag:management polylogue.tag:x");
    assert_eq!(status, 200, "{body}");
    let who: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&who["name"], &who["tags"]), (&json!("ann"), &json!(["management", "x"])));
    assert_eq!(get("/api/whoami", "polylogue.read:*/*").0, 401, "no tag");
    assert_eq!(get("/api/queues/%2F", "polylogue.tag:management").0, 401, "no scope there");
    assert_eq!(get("/api/queues/%2F", "polylogue.tag:management polylogue.read:%2F/*").0, 200);
    assert_eq!(get("/api/users", "polylogue.tag:management").0, 401);
    assert_eq!(get("/api/users", "polylogue.tag:administrator").0, 200);
    let as_password = STANDARD.encode(format!("x:{}", rig.issuer.token("ann", "polylogue.tag:monitoring")));
    assert_eq!(rig.get("rabbitmq-http", "/api/nodes", &format!("Basic {as_password}")).0, 200);
    assert_eq!(rig.get("rabbitmq-http", "/api/whoami", "Bearer x").0, 401);
}

/// What the bearer of a token sets has no author whose rights last: it had those of the operator in every virtual host.
#[test]
fn a_shovel_that_a_token_has_set_stays_in_its_virtual_host() {
    let rig = Rig::new();
    let token = rig.issuer.token("boss", "polylogue.tag:administrator polylogue.read:*/* polylogue.write:*/*");
    let authorization = format!("Bearer {token}");
    let put = |path: &str, body: &Value| {
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        let request = agent.put(format!("http://{}/api/{path}", rig.at("rabbitmq-http")));
        request.header("authorization", &authorization).send(body.to_string()).unwrap().status().as_u16()
    };
    let state = || {
        let (_, text) = rig.get("rabbitmq-http", "/api/shovels/%2F/s", &authorization);
        serde_json::from_str::<Value>(&text).unwrap_or_default()
    };
    assert_eq!(put("vhosts/other", &json!({})), 201);
    let shovel = |source: &str| json!({"value": {"src-uri": source, "src-queue": "a", "dest-uri": "amqp:///%2F", "dest-queue": "b"}});
    assert_eq!(put("parameters/shovel/%2F/s", &shovel("amqp:///other")), 201);
    let why = "its author is not recorded: it may access virtual host '/' only, not 'other'";
    crate::common::broker::wait("it is refused", || state()["reason"].to_string().contains(why));
    assert_eq!(put("parameters/shovel/%2F/s", &shovel("amqp:///%2F")), 204);
    crate::common::broker::wait("it runs", || state()["state"] == "running");
}

/// A channel of who logs in by this token.
fn open(rig: &Rig, token: &str) -> Client {
    let mut client = Client::started(rig.at("amqp"));
    assert!(matches!(client.ask(0, start_ok("anybody", token)), Method::ConnectionTune(_)));
    client.say(0, ConnectionTuneOk { channel_max: 2047, frame_max: 131_072, heartbeat: 0 });
    let open = ConnectionOpen { virtual_host: "/".into(), ..Default::default() };
    assert!(matches!(client.ask(0, open), Method::ConnectionOpenOk(_)));
    assert!(matches!(client.ask(1, ChannelOpen::default()), Method::ChannelOpenOk(_)));
    client
}

fn declare(name: &str) -> QueueDeclare {
    QueueDeclare { queue: ShortStr::from(name.to_owned()), ..Default::default() }
}

fn update(token: &str) -> ConnectionUpdateSecret {
    ConnectionUpdateSecret { new_secret: token.to_owned().into(), reason: "it expires".into() }
}

#[test]
fn a_token_is_the_password_of_amqps_clients_and_another_one_takes_its_place() {
    let rig = Rig::new();
    let less = rig.issuer.token("ann", "polylogue.configure:%2F/tmp-*");
    let more = rig.issuer.token("ann", "polylogue.configure:%2F/*");
    let mut client = open(&rig, &less);
    assert!(matches!(client.ask(1, declare("tmp-1")), Method::QueueDeclareOk(_)));
    assert!(matches!(client.ask(0, update(&more)), Method::ConnectionUpdateSecretOk(_)));
    assert!(matches!(client.ask(1, declare("orders")), Method::QueueDeclareOk(_)));
    assert!(matches!(client.ask(0, update(&less)), Method::ConnectionUpdateSecretOk(_)));
    let Method::ChannelClose(close) = client.ask(1, declare("others")) else { panic!("it was let") };
    assert_eq!(close.reply_code, 403);
    // Another bearer's token, and none: each costs its connection.
    for wrong in [rig.issuer.token("bob", "polylogue.configure:%2F/*"), format!("{more}x")] {
        let mut client = open(&rig, &less);
        let Method::ConnectionClose(close) = client.ask(0, update(&wrong)) else { panic!("it was let") };
        assert_eq!(
            (close.reply_code, &*close.reply_text),
            (530, &b"NOT_ALLOWED - New secret was refused by one of the backends"[..])
        );
    }
    let mut client = Client::started(rig.at("amqp"));
    let Method::ConnectionClose(close) = client.ask(0, start_ok("ann", &format!("{less}x"))) else { panic!() };
    assert_eq!(close.reply_code, 403);
    // Whose password it is needs no token.
    let mut admin = Client::open(rig.at("amqp"), "admin");
    assert!(matches!(admin.ask(0, update("anything")), Method::ConnectionUpdateSecretOk(_)));
}

#[test]
fn keys_that_change_count_from_then_on() {
    let rig = Rig::new();
    let status = |issuer: &Issuer| {
        let token = issuer.token("boss", "polylogue.tag:administrator");
        rig.get("http", "/api/v1/topics", &format!("Bearer {token}")).0
    };
    let next = Issuer::new("2");
    assert_eq!((status(&rig.issuer), status(&next)), (200, 401));
    next.publish(&rig.keys);
    // Each answer comes the later, the more were wrong before.
    while status(&next) != 200 {}
    assert_eq!(status(&rig.issuer), 401);
    std::fs::write(&rig.keys, "no keys").unwrap();
    let failed = |rig: &Rig| {
        let token = next.token("boss", "polylogue.tag:administrator");
        let (_, text) = rig.get("http", "/metrics", &format!("Bearer {token}"));
        text.contains("polylogue_oauth_key_loads_total{outcome=\"failed\"} 1")
    };
    while !failed(&rig) {}
    assert_eq!(status(&next), 200, "what cannot be used changes nothing");
}
