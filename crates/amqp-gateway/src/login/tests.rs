use super::*;
use crate::machine::AmqpAnswer;
use crate::management::PrincipalOutput;
use crate::testing::{Topics, World, context};
use bytes::Bytes;
use parking_lot::Mutex;
use polylogue_amqp::request::ChannelRef;
use polylogue_api::{Caller, Effects, Now, Reply, Request, StateMachine as _};
use polylogue_auth::SERVER_NONCE_BYTES;
use std::collections::{BTreeMap, VecDeque};

/// The beginning of a token: `{"alg":"EdDSA"}`.
const HEADER: &str = "eyJhbGciOiJFZERTQSJ9";
const CHANNEL: ChannelRef = ChannelRef { number: 1, life: 1 };

/// Accepts known tokens without verifying them.
#[derive(Debug)]
struct Issuer {
    tokens: BTreeMap<String, Bearer>,
    reported: Mutex<Vec<String>>,
}

impl Issuer {
    /// Token, name, expiry, scopes.
    fn of(tokens: &[(&str, &str, i64, &str)]) -> Arc<Issuer> {
        let bearer = |(token, name, until_ms, scopes): &(&str, &str, i64, &str)| {
            let grants = Grants::of(scopes.split(' '), "", "tag:administrator");
            (format!("{HEADER}.{token}."), Bearer { name: (*name).to_owned(), grants, until_ms: *until_ms })
        };
        Arc::new(Issuer { tokens: tokens.iter().map(bearer).collect(), reported: Mutex::default() })
    }
}

impl Authority for Issuer {
    fn scram(&self, _: &Claim<'_>, _: ScramMechanism) -> Option<ScramCredential> {
        None
    }
    fn is_password(&self, _: &Claim<'_>, _: &[u8]) -> bool {
        false
    }
    fn takes_tokens(&self) -> bool {
        true
    }
    fn bearer(&self, token: &str) -> Result<Bearer, AuthError> {
        let unknown = || AuthError { kind: AuthErrorKind::Refused, text: "the token has expired".to_owned() };
        self.tokens.get(token).cloned().ok_or_else(unknown)
    }
    fn is_administrator(&self, _: &str) -> bool {
        false
    }
    fn scram_users(&self, _: Option<&[&str]>) -> Vec<ScramUser> {
        Vec::new()
    }
    fn nonce(&self) -> [u8; SERVER_NONCE_BYTES] {
        [0; SERVER_NONCE_BYTES]
    }
    fn secret(&self) -> &[u8] {
        &[]
    }
    fn failed(&self, claim: &Claim<'_>, mechanism: Mechanism, why: &str) -> u64 {
        self.reported.lock().push(format!("{} {} {why}", claim.name, mechanism.name()));
        70
    }
    fn succeeded(&self, claim: &Claim<'_>, mechanism: Mechanism) {
        self.reported.lock().push(format!("{} {}", claim.name, mechanism.name()));
    }
}

fn connection(world: &World, issuer: &Arc<Issuer>) -> Connection {
    let (directory, topics) = (world.directory.clone(), Arc::new(Topics));
    let connection = Connection::new(Arc::default(), directory, topics, 9, false, 1, Now::default());
    let mut connection = connection.watched_by(issuer.clone());
    connection.captured = Some(VecDeque::new());
    connection
}

fn reply_of(connection: &mut Connection) -> Option<amqp::Reply> {
    match connection.captured.as_mut().and_then(VecDeque::pop_front)? {
        PrincipalOutput::Reply(reply) => Some(reply),
        other => panic!("{other:?}"),
    }
}

fn log_in(connection: &mut Connection, user: &str, token: &str) -> Option<amqp::Reply> {
    let password = Bytes::from(format!("{HEADER}.{token}."));
    let user = Bytes::copy_from_slice(user.as_bytes());
    connection.begin(1, amqp::Request::Authenticate(Credentials::Password { user, password }));
    reply_of(connection)
}

/// Executes the connection's requests to the metadata, and returns the client's reply.
fn ask(world: &mut World, connection: &mut Connection, request: amqp::Request) -> Result<(), String> {
    connection.begin(2, request);
    let reported = |reply| match reply {
        amqp::Reply::Refused(why) => Err(why.reply_text().to_string()),
        _ => Ok(()),
    };
    if let Some(reply) = reply_of(connection) {
        return reported(reply);
    }
    // A request to a queue means that the command is allowed, too.
    let (token, Request::Machine(_, ask)) = connection.poll_request().expect("a request") else { return Ok(()) };
    let mut effects = Effects::default();
    world.machine.handle(&context(), Caller(1), ask, &mut effects);
    let Some((_, answer)) = effects.replies.pop() else {
        // A proposal means that the command is allowed.
        world.commit(effects);
        return Ok(());
    };
    match answer.downcast::<AmqpAnswer>().map(|answer| *answer) {
        Ok(AmqpAnswer::Refused(why)) => Err(why.text),
        Ok(answer) => {
            connection.on_reply(token, Reply::Machine(Ok(Box::new(answer))), connection.now);
            // Its further requests are ignored here.
            while reply_of(connection).is_some() || connection.poll_request().is_some() {}
            Ok(())
        }
        Err(_) => panic!("no answer"),
    }
}

fn declare(name: &str) -> amqp::Request {
    let declare = amqp::DeclareQueue {
        name: ShortStr::from(name.to_owned()),
        server_named: false,
        passive: false,
        durable: true,
        exclusive: false,
        auto_delete: false,
        arguments: polylogue_amqp::codec::Table::EMPTY,
    };
    amqp::Request::DeclareQueue(CHANNEL, declare)
}

fn purge(name: &str) -> amqp::Request {
    amqp::Request::PurgeQueue(CHANNEL, ShortStr::from(name.to_owned()))
}

#[test]
fn a_token_determines_user_and_rights() {
    let mut world = World::new();
    world.queue("orders", serde_json::json!({}));
    let issuer = Issuer::of(&[
        ("a", "ann", 60_000, "read:%2F/orders configure:%2F/tmp-*"),
        ("g", "guest", 60_000, "read:other/*"),
        ("t", "teller", 60_000, "tag:impersonator"),
    ]);
    let mut ann = connection(&world, &issuer);
    // The client's user name is ignored, and so is its address.
    let Some(amqp::Reply::Authenticated { user, impersonator }) = log_in(&mut ann, "guest", "a") else { panic!() };
    assert!(&user[..] == b"ann" && !impersonator && &*ann.user == "ann");
    assert_eq!(ask(&mut world, &mut ann, amqp::Request::OpenVhost("/".into())), Ok(()));
    assert_eq!(ask(&mut world, &mut ann, declare("tmp-1")), Ok(()));
    let refused = |access: &str, name: &str| {
        Err(format!("{access} access to queue '{name}' in vhost '/' refused for user 'ann'"))
    };
    assert_eq!(ask(&mut world, &mut ann, declare("orders-2")), refused("configure", "orders-2"));
    assert_eq!(ask(&mut world, &mut ann, purge("tmp-1")), refused("read", "tmp-1"));
    assert!(ask(&mut world, &mut ann, purge("orders")).is_ok());
    // The permissions of an existing user with this name are ignored.
    let mut guest = connection(&world, &issuer);
    assert!(matches!(log_in(&mut guest, "", "g"), Some(amqp::Reply::Authenticated { .. })));
    let reported = ask(&mut world, &mut guest, amqp::Request::OpenVhost("/".into()));
    assert_eq!(reported, Err("access to vhost '/' refused for user 'guest'".to_owned()));
    let mut teller = connection(&world, &issuer);
    let reply = log_in(&mut teller, "x", "t");
    assert!(matches!(reply, Some(amqp::Reply::Authenticated { impersonator: true, .. })));
    assert_eq!(*issuer.reported.lock(), ["ann OAUTHBEARER", "guest OAUTHBEARER", "teller OAUTHBEARER"]);
}

#[test]
fn a_refused_token_is_answered_after_a_delay() {
    let world = World::new();
    let issuer = Issuer::of(&[]);
    let mut bearerless = connection(&world, &issuer);
    assert!(log_in(&mut bearerless, "guest", "x").is_none());
    assert_eq!(bearerless.later.front().map(|(at, _)| *at), Some(70));
    bearerless.on_deadline(Now { monotonic_ms: 70, wall_ms: 70 });
    assert!(matches!(reply_of(&mut bearerless), Some(amqp::Reply::Refused(_))));
    assert_eq!(*issuer.reported.lock(), [" OAUTHBEARER the token has expired"], "no token");
}

/// As in RabbitMQ: the connection is kept, and everything is refused until it has another token.
#[test]
fn rights_end_with_a_token_and_return_with_a_new_one() {
    let mut world = World::new();
    world.queue("orders", serde_json::json!({}));
    let scopes = "read:*/* write:*/* tag:impersonator";
    let issuer =
        Issuer::of(&[("a", "ann", 60_000, scopes), ("b", "ann", 120_000, "read:*/*"), ("c", "bob", 120_000, scopes)]);
    let mut ann = connection(&world, &issuer);
    log_in(&mut ann, "", "a");
    ask(&mut world, &mut ann, amqp::Request::OpenVhost("/".into())).expect("allowed");
    let publish = amqp::Publish {
        seq: Some(1),
        exchange: ShortStr::EMPTY,
        routing_key: ShortStr::from_static("orders"),
        mandatory: false,
        properties: polylogue_amqp::codec::Properties::none(),
        expiration_ms: None,
        cc: Vec::new(),
        bcc: Vec::new(),
        body: amqp::Body::One(Bytes::new()),
    };
    assert!(ann.check_publish(&publish).is_ok() && ask(&mut world, &mut ann, purge("orders")).is_ok());
    ann.now = Now { monotonic_ms: 59_999, wall_ms: 59_999 };
    assert!(ann.check_publish(&publish).is_ok());
    ann.now = Now { monotonic_ms: 60_000, wall_ms: 60_000 };
    assert!(ann.check_publish(&publish).is_err(), "earlier permissions are no longer remembered");
    assert!(ask(&mut world, &mut ann, purge("orders")).is_err());
    let update = |ann: &mut Connection, token: &str| {
        ann.begin(3, amqp::Request::UpdateSecret(format!("{HEADER}.{token}.").into()));
        reply_of(ann)
    };
    for wrong in ["x", "c"] {
        assert!(matches!(update(&mut ann, wrong), Some(amqp::Reply::Refused(_))), "{wrong}");
    }
    let reply = update(&mut ann, "b");
    assert!(matches!(reply, Some(amqp::Reply::Authenticated { impersonator: false, .. })), "a lost permission");
    assert!(ask(&mut world, &mut ann, purge("orders")).is_ok());
    assert!(ann.check_publish(&publish).is_err(), "the new token allows less");
    let reported = issuer.reported.lock();
    assert_eq!(
        reported[1..],
        [
            "ann OAUTHBEARER the token has expired",
            "ann OAUTHBEARER the new token belongs to another user",
            "ann OAUTHBEARER"
        ]
    );
}
