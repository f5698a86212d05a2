//! Users, permissions, and the permissions that each operation needs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::common;

use common::*;
use polylogue_amqp_model::*;
use polylogue_auth::{
    Acl, AclFilter, AlterQuotas, AlterScram, Grants, Operation, PatternFilter, PatternKind, Permission as Rule,
    QuotaEntity, QuotaKind, QuotaLimits, QuotaName, ResourceKind, ScramChange, ScramMechanism, UsersRefusal,
};
use polylogue_router::QueueId;
use serde_json::json;
use std::sync::Arc;

#[test]
fn bootstrap_creates_a_virtual_host_and_an_administrator() {
    let mut live = Live::new();
    let metadata = live.model.metadata();
    assert!(metadata.user("guest").unwrap().has_tag("administrator"));
    assert!(metadata.user("guest").unwrap().password.verify(b"guest"));
    assert_eq!(metadata.check_vhost("guest", "/"), Ok(HOST));
    for (name, kind, internal) in PREDECLARED {
        let exchange = live.model.routes().exchange(HOST, name.as_bytes()).unwrap();
        assert_eq!((exchange.kind.name(), exchange.internal, exchange.durable), (kind, internal, true), "{name}");
    }
    let log = live.log.len();
    live.run(Command::Bootstrap(put_user("other"))).unwrap();
    assert_eq!(live.log.len(), log, "an existing state is left unchanged");
}

#[test]
fn a_connection_needs_a_virtual_host_a_permission_and_free_limits() {
    let mut live = Live::new();
    live.run(Command::PutUser(put_user("ann"))).unwrap();
    let metadata = live.model.metadata();
    let refused = |result: Result<_, Refused>| result.map(|_| ()).unwrap_err().to_string();
    assert_eq!(refused(metadata.check_vhost("guest", "nowhere")), "NOT_ALLOWED - vhost nowhere not found");
    assert_eq!(refused(metadata.check_vhost("ann", "/")), "NOT_ALLOWED - access to vhost '/' refused for user 'ann'");
    live.run(Command::SetVhostLimit("/".into(), VhostLimit::Connections, Some(2))).unwrap();
    live.run(Command::SetUserLimit("ann".into(), UserLimit::Connections, Some(1))).unwrap();
    let metadata = live.model.metadata();
    assert!(metadata.check_connections("guest", HOST, 1, 5).is_ok());
    let full = metadata.check_connections("guest", HOST, 2, 5).unwrap_err();
    assert_eq!(full.text, "access to vhost '/' refused for user 'guest': connection limit (2) is reached");
    let full = metadata.check_connections("ann", HOST, 0, 1).unwrap_err();
    assert_eq!(full.text, "Connection refused for user 'ann': user connection limit (1) is reached");
}

/// Permissions of a user with the same name are ignored.
#[test]
fn a_login_by_token_has_the_rights_of_the_token() {
    let live = Live::new();
    let metadata = live.model.metadata();
    let scopes = ["read:%2F/q-*", "write:%2F/amq.default", "write:%2F/amq.topic/order.*"];
    let grants = Grants::of(scopes, "", "tag:administrator");
    let who = Subject { user: "guest", grants: Some(&grants) };
    assert_eq!(metadata.check_vhost(who, "/"), Ok(HOST));
    assert!(metadata.may(who, HOST, Access::Read, Resource::Queue, "q-1"));
    assert!(!metadata.may(who, HOST, Access::Write, Resource::Queue, "q-1"));
    assert!(metadata.may(who, HOST, Access::Write, Resource::Exchange, ""));
    let refused = metadata.check(who, HOST, Access::Configure, Resource::Queue, "q-1").unwrap_err();
    assert_eq!(refused.text, "configure access to queue 'q-1' in vhost '/' refused for user 'guest'");
    assert!(metadata.check_any(who, HOST, Resource::Queue, "q-1").is_ok());
    assert!(metadata.check_any(who, HOST, Resource::Queue, "other").is_err());
    let topic = |access, key| metadata.check_topic(who, HOST, access, "amq.topic", key, None).is_ok();
    assert!(topic(Access::Write, "order.new") && !topic(Access::Write, "other") && !topic(Access::Read, "order.new"));
    let nothing = Subject { user: "guest", grants: Some(&Grants::default()) };
    assert!(metadata.check_vhost(nothing, "/").is_err() && metadata.check_vhost("guest", "/").is_ok());
}

#[test]
fn each_operation_needs_its_permission() {
    let mut live = Live::new();
    live.declare(queue("q"));
    live.run(Command::DeclareExchange(exchange("x", "topic"))).unwrap();
    let with_dlx = || queue_with("new", json!({"x-dead-letter-exchange": "x"}));
    let with_ae =
        || DeclareExchange { arguments: arguments(json!({"alternate-exchange": "x"})), ..exchange("newx", "fanout") };
    let cases: Vec<([&str; 3], Command, &str)> = vec![
        (["", ".*", ".*"], Command::DeclareQueue(queue("new")), "configure access to queue 'new'"),
        (["", ".*", ".*"], Command::DeclareQueue(queue("q")), "configure access to queue 'q'"),
        (["new", ".*", ""], Command::DeclareQueue(with_dlx()), "read access to queue 'new'"),
        (["new", "", ".*"], Command::DeclareQueue(with_dlx()), "write access to exchange 'x'"),
        (["", ".*", ".*"], Command::DeleteQueue(delete("q")), "configure access to queue 'q'"),
        (["", ".*", ".*"], Command::DeclareExchange(exchange("newx", "fanout")), "configure access to exchange 'newx'"),
        ([".*", ".*", ""], Command::DeclareExchange(with_ae()), "read access to exchange 'newx'"),
        ([".*", "", ".*"], Command::DeclareExchange(with_ae()), "write access to exchange 'x'"),
        (["", ".*", ".*"], Command::DeleteExchange(HOST, "x".into(), false), "configure access to exchange 'x'"),
        ([".*", "", ".*"], Command::Bind(to_queue("x", "q", "k")), "write access to queue 'q'"),
        ([".*", ".*", "^q$"], Command::Unbind(to_queue("x", "q", "k")), "read access to exchange 'x'"),
        (
            [".*", "^q$", ".*"],
            Command::Bind(bind("x", BindDestination::Exchange("amq.fanout".into()), "k")),
            "write access to exchange 'amq.fanout'",
        ),
        (
            ["", "", ""],
            Command::DeclareQueue(DeclareQueue { passive: true, ..queue("q") }),
            "configure access to queue 'q'",
        ),
    ];
    for (patterns, command, what) in cases {
        live.permit("ann", patterns);
        let text = live.refusal(&user("ann"), command);
        assert_eq!(text, format!("ACCESS_REFUSED - {what} in vhost '/' refused for user 'ann'"));
    }
    live.permit("ann", ["", "^q$", ""]);
    let passive = Command::DeclareQueue(DeclareQueue { passive: true, ..queue("q") });
    assert!(live.run_as(&user("ann"), passive).is_ok(), "any permission allows a passive declare");
    let read = live.model.queue_for(&user("ann"), HOST, "q", Access::Read).unwrap_err();
    assert_eq!(read.text, "read access to queue 'q' in vhost '/' refused for user 'ann'");
}

#[test]
fn the_default_exchange_is_amq_default_in_permissions() {
    let mut live = Live::new();
    live.permit("ann", ["", "^amq\\.default$", ""]);
    let metadata = live.model.metadata();
    assert!(metadata.may("ann", HOST, Access::Write, Resource::Exchange, ""));
    assert!(!metadata.may("ann", HOST, Access::Write, Resource::Exchange, "amq.topic"));
    assert!(!metadata.may("ann", HOST, Access::Write, Resource::Queue, ""));
}

#[test]
fn topic_permissions_restrict_keys() {
    let mut live = Live::new();
    live.declare(queue("q"));
    live.permit("ann", [".*"; 3]);
    let patterns = ["^{username}\\..*".into(), "^public\\..*".into()];
    live.run(Command::SetTopicPermission("ann".into(), "/".into(), "amq.topic".into(), patterns)).unwrap();
    let check = |live: &Live, access, exchange: &str, key: &str| {
        live.model.metadata().check_topic("ann", HOST, access, exchange, key, None).map_err(|e| e.text)
    };
    assert_eq!(check(&live, Access::Write, "amq.topic", "ann.x"), Ok(()));
    assert_eq!(check(&live, Access::Write, "other", "bob.x"), Ok(()));
    assert_eq!(
        check(&live, Access::Write, "amq.topic", "bob.x"),
        Err("write access to topic 'bob.x' in exchange 'amq.topic' in vhost '/' refused for user 'ann'".to_owned())
    );
    let text = live.refusal(&user("ann"), Command::Bind(to_queue("amq.topic", "q", "secret.#")));
    assert!(text.contains("read access to topic 'secret.#'"), "{text}");
    assert!(live.run_as(&user("ann"), Command::Bind(to_queue("amq.topic", "q", "public.#"))).is_ok());
    assert!(live.run_as(&user("ann"), Command::Bind(to_queue("amq.fanout", "q", "secret"))).is_ok());
    live.run(Command::ClearTopicPermission("ann".into(), "/".into(), None)).unwrap();
    assert_eq!(check(&live, Access::Write, "amq.topic", "bob.x"), Ok(()));
}

#[test]
fn users_and_virtual_hosts_are_deleted_with_their_objects() {
    let mut live = Live::new();
    live.permit("ann", [".*"; 3]);
    live.run(Command::PutVhost(PutVhost { name: "two".into(), ..PutVhost::default() })).unwrap();
    let two = live.model.metadata().vhost_named("two").unwrap().id;
    live.run(Command::SetPermission("ann".into(), "two".into(), [".*", "", ""].map(Into::into))).unwrap();
    let topic = Command::SetTopicPermission("ann".into(), "two".into(), "x".into(), ["a".into(), "b".into()]);
    live.run(topic).unwrap();
    live.declare(DeclareQueue { vhost: two, ..queue("q") });
    live.run(Command::SetParameter("two".into(), "plugin".into(), "s".into(), json!({"a": 1}))).unwrap();
    live.run(Command::SetPolicy("two".into(), policy("p", "q", json!({"max-length": 1})))).unwrap();
    live.events.clear();
    live.run(Command::DeleteVhost("two".into())).unwrap();
    assert!(live.events.iter().any(|e| matches!(e, Event::QueueDeleted(_, DeletionCause::Vhost))));
    let metadata = live.model.metadata();
    assert_eq!((metadata.queues().len(), metadata.policies().len(), metadata.parameters().len()), (0, 0, 0));
    assert!(metadata.topic_permissions().next().is_none() && metadata.permission(two, "ann").is_none());
    assert!(live.model.routes().queue_by_id(QueueId(0)).is_none());
    assert_eq!(live.model.routes().vhosts(), [HOST]);
    live.run(Command::DeleteUsers(vec!["ann".into(), "unknown".into()])).unwrap();
    assert!(live.model.metadata().permission(HOST, "ann").is_none());
    assert!(same(&live.model, &live.replayed()));
    // The name can be reused; the id cannot.
    live.run(Command::PutVhost(PutVhost { name: "two".into(), ..PutVhost::default() })).unwrap();
    assert!(live.model.metadata().vhost_named("two").unwrap().id > two);
}

#[test]
fn setting_the_current_value_writes_nothing() {
    let mut live = Live::new();
    let commands = [
        Command::PutUser(put_user("ann")),
        Command::PutVhost(PutVhost { name: "v".into(), tags: Some(vec!["a".into()]), ..PutVhost::default() }),
        Command::SetPermission("ann".into(), "v".into(), ["a", "b", "c"].map(Into::into)),
        Command::SetTopicPermission("ann".into(), "v".into(), "x".into(), ["a".into(), "b".into()]),
        Command::SetParameter("v".into(), "plugin".into(), "s".into(), json!({"a": [1, 2]})),
        Command::SetGlobalParameter("g".into(), json!(5)),
        Command::SetPolicy("v".into(), policy("p", "q", json!({"max-length": 1}))),
        Command::SetUserLimit("ann".into(), UserLimit::Channels, Some(4)),
    ];
    for command in commands {
        live.run(command.clone()).unwrap();
        let log = live.log.len();
        live.run(command).unwrap();
        assert_eq!(live.log.len(), log);
    }
}

#[test]
fn management_names_missing_objects() {
    let mut live = Live::new();
    let caller = Caller::broker();
    for (command, text) in [
        (Command::DeleteVhost("v".into()), "NOT_FOUND - vhost 'v' does not exist"),
        (Command::SetUserLimit("u".into(), UserLimit::Channels, None), "NOT_FOUND - user 'u' does not exist"),
        (
            Command::SetPermission("guest".into(), "v".into(), ["", "", ""].map(Into::into)),
            "NOT_FOUND - vhost 'v' does not exist",
        ),
        (Command::PutVhost(PutVhost::default()), "BAD_REQUEST - the name of a virtual host cannot be empty"),
    ] {
        assert_eq!(live.refusal(&caller, command), text);
    }
    let bad = Command::SetPermission("guest".into(), "/".into(), ["(", "", ""].map(Into::into));
    assert!(live.refusal(&caller, bad).contains("'(' is not a regular expression"));
}

#[test]
fn publishing_needs_an_exchange_and_permission() {
    let mut live = Live::new();
    live.permit("ann", ["", "^(open|amq\\.|none)", ""]);
    live.run(Command::DeclareExchange(exchange("open", "fanout"))).unwrap();
    live.run(Command::DeclareExchange(exchange("closed", "fanout"))).unwrap();
    let patterns = ["^a$".into(), "".into()];
    live.run(Command::SetTopicPermission("ann".into(), "/".into(), "amq.topic".into(), patterns)).unwrap();
    let publish = |name: &str, key: &str| {
        let found = live.model.exchange_for(&user("ann"), HOST, name, key);
        found.map(|exchange| exchange.is_some()).map_err(|refused| refused.to_string())
    };
    assert_eq!(publish("open", "k"), Ok(true));
    assert_eq!(publish("", "k"), Ok(false), "the pattern is matched with amq.default");
    assert_eq!(publish("amq.topic", "a"), Ok(true));
    for (name, key, text) in [
        ("closed", "", "ACCESS_REFUSED - write access to exchange 'closed' in vhost '/' refused for user 'ann'"),
        ("none", "", "NOT_FOUND - no exchange 'none' in vhost '/'"),
        (
            "amq.rabbitmq.trace",
            "",
            "ACCESS_REFUSED - cannot publish to internal exchange 'amq.rabbitmq.trace' in vhost '/'",
        ),
        (
            "amq.topic",
            "b",
            "ACCESS_REFUSED - write access to topic 'b' in exchange 'amq.topic' in vhost '/' refused for user 'ann'",
        ),
    ] {
        assert_eq!(publish(name, key), Err(text.to_owned()));
    }
}

fn credential(mechanism: ScramMechanism, password: &str) -> ScramCredential {
    ScramCredential::of(mechanism, password.as_bytes(), bytes::Bytes::from_static(b"saltsalt"), 4_096).unwrap()
}

fn hash(password: &str) -> PasswordHash {
    PasswordHash::of(Hashing::Sha256, [7; SALT_BYTES], password.as_bytes())
}

fn alter(live: &mut Live, user: &str, change: ScramChange) -> Result<(), UsersRefusal> {
    let part = AlterScram { user: user.to_owned(), change };
    let Reply::Each(mut results) = live.run(Command::AlterScram(vec![part])).unwrap() else { panic!("another reply") };
    results.remove(0)
}

/// A password change wrote back older tags, including one that another administrator had just removed.
#[test]
fn tags_are_unchanged_unless_given() {
    let mut live = Live::new();
    let put = |password: Option<&str>, tags: Option<&[&str]>| {
        let tags = tags.map(|tags| tags.iter().map(|tag| (*tag).into()).collect());
        Command::PutUser(PutUser { name: "ann".into(), password: password.map(hash), scram: Vec::new(), tags })
    };
    live.run(put(Some("one"), None)).unwrap();
    let tags = |live: &Live| live.model.metadata().user("ann").unwrap().tags.clone();
    assert!(tags(&live).is_empty(), "a new user has none");
    live.run(put(None, Some(&["administrator"]))).unwrap();
    live.run(put(Some("two"), None)).unwrap();
    assert_eq!(tags(&live), ["administrator"]);
    live.run(put(None, Some(&[]))).unwrap();
    assert!(tags(&live).is_empty());
}

/// All credentials of a password are dropped when another one is set, by any protocol: otherwise the old one would still work with another mechanism.
#[test]
fn an_old_password_is_refused_by_all_mechanisms() {
    use ScramMechanism::{Sha256, Sha512};
    let mut live = Live::new();
    let put = |password: Option<&str>, scram: &[ScramMechanism]| {
        let scram = scram.iter().map(|mechanism| credential(*mechanism, password.unwrap_or("x"))).collect();
        Command::PutUser(PutUser { name: "ann".into(), password: password.map(hash), scram, tags: Some(Vec::new()) })
    };
    let known = |live: &Live, password: &str| {
        let user = live.model.metadata().user("ann").unwrap().clone();
        let by = |mechanism| user.scram(mechanism).is_some_and(|credential| credential.verify(password.as_bytes()));
        [user.knows(password.as_bytes()), by(Sha256), by(Sha512)]
    };
    live.run(put(Some("one"), &[Sha512, Sha256])).unwrap();
    assert_eq!((known(&live, "one"), known(&live, "two")), ([true; 3], [false; 3]));
    live.run(put(None, &[])).unwrap();
    assert_eq!(known(&live, "one"), [true; 3], "only the tags were set");
    live.run(put(Some("one"), &[])).unwrap();
    assert_eq!(known(&live, "one"), [true; 3], "an import of the current state changes nothing");
    live.run(put(Some("two"), &[])).unwrap();
    assert_eq!((known(&live, "one"), known(&live, "two")), ([false; 3], [true, false, false]));
    alter(&mut live, "ann", ScramChange::Set(credential(Sha256, "three"))).unwrap();
    assert_eq!((known(&live, "two"), known(&live, "three")), ([false; 3], [true, true, false]));
    alter(&mut live, "ann", ScramChange::Set(credential(Sha512, "four"))).unwrap();
    assert_eq!(
        (known(&live, "three"), known(&live, "four")),
        ([true, true, false], [true, false, true]),
        "as with Kafka"
    );
    alter(&mut live, "ann", ScramChange::Remove(Sha256)).unwrap();
    assert_eq!((known(&live, "three"), known(&live, "four")), ([false; 3], [true, false, true]));
    assert_eq!(alter(&mut live, "ann", ScramChange::Remove(Sha256)), Err(UsersRefusal::NotFound));
    assert!(!live.model.metadata().user("ann").unwrap().knows(b""));
}

#[test]
fn scram_credentials_create_users_and_are_restored() {
    use ScramMechanism::{Sha256, Sha512};
    let mut live = Live::within(Limits { users_max: 2, ..Limits::default() });
    assert_eq!(alter(&mut live, "new", ScramChange::Remove(Sha256)), Err(UsersRefusal::NotFound));
    assert!(live.model.metadata().user("new").is_none());
    alter(&mut live, "new", ScramChange::Set(credential(Sha512, "p"))).unwrap();
    let user = live.model.metadata().user("new").unwrap().clone();
    assert!(user.tags.is_empty() && user.password == PasswordHash::none() && user.knows(b"p"));
    let set = || ScramChange::Set(credential(Sha256, "p"));
    let full = UsersRefusal::Refused("there can be at most 2 users".to_owned());
    assert_eq!(alter(&mut live, "more", set()), Err(full));
    let long = alter(&mut live, &"x".repeat(256), set());
    assert_eq!(long, Err(UsersRefusal::Refused("the name of a user has at most 255 bytes".to_owned())));
    // Each part is checked separately, after those before it.
    let parts = [("new", set()), ("other", set()), ("new", ScramChange::Remove(Sha512))];
    let parts = parts.map(|(user, change)| AlterScram { user: user.to_owned(), change });
    let Reply::Each(results) = live.run(Command::AlterScram(parts.to_vec())).unwrap() else { panic!("another reply") };
    assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    let user = live.model.metadata().user("new").unwrap().clone();
    assert_eq!(user.scram, [credential(Sha256, "p")]);
    assert!(same(&live.model, &live.replayed()), "from the log");
    let mut loaded = Model::new(Limits::default());
    live.model.change_all_chunks();
    for (id, chunk) in live.model.take_changed_chunks() {
        loaded.load_chunk(&id, &chunk.unwrap()).unwrap();
    }
    loaded.on_ready();
    assert!(same(&live.model, &loaded), "from a checkpoint");
    live.run(Command::DeleteUsers(vec!["new".into()])).unwrap();
    assert!(live.model.metadata().user("new").is_none());
}

fn acl(name: &str, operation: Operation) -> Acl {
    Acl {
        kind: ResourceKind::Topic,
        name: name.to_owned(),
        pattern: PatternKind::Prefixed,
        principal: "User:ann".to_owned(),
        host: "*".to_owned(),
        operation,
        permission: Rule::Allow,
    }
}

fn create_acls(live: &mut Live, acls: &[Acl]) -> Vec<Result<(), UsersRefusal>> {
    let Reply::Each(results) = live.run(Command::CreateAcls(acls.to_vec())).unwrap() else { panic!("another reply") };
    results
}

fn delete_acls(live: &mut Live, filters: &[AclFilter]) -> Vec<Result<Vec<Arc<Acl>>, UsersRefusal>> {
    let reply = live.run(Command::DeleteAcls(filters.to_vec())).unwrap();
    let Reply::DeletedAcls(results) = reply else { panic!("another reply") };
    results
}

#[test]
fn acls_are_limited_and_restored() {
    use Operation::{Read, Write};
    let mut live = Live::within(Limits { acls_max: 3, ..Limits::default() });
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| acl(name, Read));
    let empty = Acl { name: String::new(), ..a.clone() };
    let full = Err(UsersRefusal::Refused("there can be at most 3 ACLs".to_owned()));
    let wrong = Err(UsersRefusal::Refused("Invalid empty resource name".to_owned()));
    let wanted = [a.clone(), empty, a.clone(), b.clone(), c.clone(), d.clone()];
    assert_eq!(create_acls(&mut live, &wanted), [Ok(()), wrong, Ok(()), Ok(()), Ok(()), full]);
    assert_eq!(create_acls(&mut live, std::slice::from_ref(&a)), [Ok(())], "it exists");
    assert!(live.events.contains(&Event::AclSet(Arc::new(c.clone()))));
    assert!(same(&live.model, &live.replayed()), "from the log");
    let mut loaded = Model::new(Limits::default());
    live.model.change_all_chunks();
    for (id, chunk) in live.model.take_changed_chunks() {
        loaded.load_chunk(&id, &chunk.unwrap()).unwrap();
    }
    loaded.on_ready();
    assert!(same(&live.model, &loaded), "from a checkpoint");

    let exactly = |acl: &Acl| AclFilter {
        kind: Some(acl.kind),
        name: Some(acl.name.clone()),
        pattern: PatternFilter::Only(acl.pattern),
        principal: Some(acl.principal.clone()),
        host: Some(acl.host.clone()),
        operation: Some(acl.operation),
        permission: Some(acl.permission),
    };
    let all = AclFilter::EVERYTHING;
    let of_a = |operation| AclFilter { operation: Some(operation), ..exactly(&a) };
    let found = delete_acls(&mut live, &[of_a(Write), of_a(Read), of_a(Read), all.clone()]);
    let found: Vec<Vec<Acl>> =
        found.into_iter().map(|one| one.unwrap().iter().map(|acl| Acl::clone(acl)).collect()).collect();
    assert_eq!(found, [vec![], vec![a], vec![], vec![b, c]], "each is reported for the first filter that matches it");
    assert!(
        live.model.metadata().acls().is_empty() && live.events.contains(&Event::AclRemoved(Arc::new(acl("b", Read))))
    );
    assert!(same(&live.model, &live.replayed()));
    let changed = live.model.take_changed_chunks();
    assert!(changed.iter().all(|(_, chunk)| chunk.is_none()), "their chunks are removed");
    let too_wide = delete_acls(&mut live, &vec![all; 33]);
    assert_eq!(too_wide.iter().filter(|one| one.is_err()).count(), 1);
}

fn quota(user: &str, changes: &[(QuotaKind, Option<f64>)]) -> AlterQuotas {
    let entity = QuotaEntity { user: Some(QuotaName::Named(user.to_owned())), client_id: None };
    AlterQuotas { entity, changes: changes.to_vec() }
}

fn alter_quotas(live: &mut Live, parts: &[AlterQuotas]) -> Vec<Result<(), UsersRefusal>> {
    let Reply::Each(results) = live.run(Command::AlterQuotas(parts.to_vec())).unwrap() else { panic!("another reply") };
    results
}

#[test]
fn quotas_are_limited_and_restored() {
    use QuotaKind::{Fetch, Produce, Requests};
    let mut live = Live::within(Limits { quotas_max: 2, ..Limits::default() });
    let refused = |text: &str| Err(UsersRefusal::Refused(text.to_owned()));
    let wanted = [
        quota("ann", &[(Produce, Some(1_024.0)), (Requests, Some(12.5))]),
        quota("", &[(Produce, Some(1.0))]),
        quota("bob", &[(Fetch, Some(0.0))]),
        quota("bob", &[(Fetch, Some(7.0))]),
        quota("eve", &[(Fetch, Some(7.0))]),
        // Each follows those before it, and existing entries may change regardless of the limit.
        quota("ann", &[(Produce, None), (Fetch, Some(9.0))]),
        quota("eve", &[(Fetch, None)]),
    ];
    let results = alter_quotas(&mut live, &wanted);
    let empty = refused("Empty user not supported");
    let zero = refused("Quota consumer_byte_rate must be greater than 0");
    let full = refused("there can be at most 2 entities with quotas");
    assert_eq!(results, [Ok(()), empty, zero, Ok(()), full, Ok(()), Ok(())]);
    let of_ann = live.model.metadata().quotas()[&wanted[0].entity];
    assert_eq!(of_ann.iter().collect::<Vec<_>>(), [(Fetch, 9.0), (Requests, 12.5)]);
    assert!(live.events.contains(&Event::QuotaSet(wanted[0].entity.clone(), of_ann)));
    assert!(same(&live.model, &live.replayed()), "from the log");
    let mut loaded = Model::new(Limits::default());
    live.model.change_all_chunks();
    for (id, chunk) in live.model.take_changed_chunks() {
        loaded.load_chunk(&id, &chunk.unwrap()).unwrap();
    }
    loaded.on_ready();
    assert!(same(&live.model, &loaded), "from a checkpoint");

    let gone = [quota("ann", &[(Fetch, None), (Requests, None)]), quota("bob", &[(Fetch, None)])];
    assert_eq!(alter_quotas(&mut live, &gone), [Ok(()), Ok(())]);
    assert!(live.model.metadata().quotas().is_empty());
    assert!(live.events.contains(&Event::QuotaSet(gone[0].entity.clone(), QuotaLimits::default())));
    assert!(same(&live.model, &live.replayed()));
    let changed = live.model.take_changed_chunks();
    assert!(changed.iter().all(|(_, chunk)| chunk.is_none()), "their chunks are removed");
}
