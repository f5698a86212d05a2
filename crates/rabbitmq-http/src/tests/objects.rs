//! Declaring, changing, listing and deleting objects.

use super::{Server, json_of};
use serde_json::{Value, json};

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect()
}

#[test]
fn the_server_says_who_it_and_who_one_is() {
    let server = Server::start();
    assert_eq!(server.get("whoami"), json!({"name": "guest", "tags": ["administrator"]}));
    let overview = server.get("overview");
    assert_eq!(
        (overview["product_name"].as_str(), overview["rabbitmq_version"].as_str()),
        (Some("RabbitMQ"), Some("4.2.0"))
    );
    assert_eq!(overview["object_totals"]["exchanges"], 7);
    assert_eq!(overview["listeners"][0]["port"], 5672);
    // Regression: without contexts, tools did not find where the API is served.
    let context = &overview["contexts"][0];
    assert_eq!((&context["node"], &context["port"]), (&overview["node"], &json!("15672")));
    let nodes = server.get("nodes");
    let node = nodes[0]["name"].as_str().unwrap();
    assert_eq!(server.get(&format!("nodes/{node}"))["running"], true);
    assert_eq!(server.ask("GET", "nodes/nowhere", &Value::Null).status, 404);
    assert_eq!(server.get("cluster-name"), json!({"name": "here"}));
    assert_eq!(server.put("cluster-name", &json!({"name": "mine"})), 204);
    assert_eq!(server.get("cluster-name"), json!({"name": "mine"}));
    assert_eq!(server.get("version"), "4.2.0");
    for path in [
        "extensions",
        "feature-flags",
        "deprecated-features",
        "auth",
        "auth/attempts/x",
        "shovels",
        "federation-links/%2F",
        "global-parameters/internal_cluster_id",
    ] {
        server.get(path);
    }
    let hash = server.get("auth/hash_password/secret");
    assert_eq!(server.put("users/hashed", &json!({"password_hash": hash["ok"], "tags": "management"})), 201);
    assert_eq!(server.post("rebalance/queues", &json!({})).status, 204);
}

#[test]
fn virtual_hosts_come_and_go_with_a_permission_of_their_maker() {
    let server = Server::start();
    let body = json!({"description": "for tests", "tags": "a,b", "default_queue_type": "quorum"});
    assert_eq!(server.put("vhosts/a%20b", &body), 201);
    assert_eq!(server.put("vhosts/a%20b", &json!({})), 204);
    let vhost = server.get("vhosts/a%20b");
    let expected =
        json!({"name": "a b", "description": "for tests", "tags": ["a", "b"], "default_queue_type": "quorum"});
    assert_eq!(json_of(&vhost, &["name", "description", "tags", "default_queue_type"]), expected);
    assert_eq!(names(&server.get("vhosts")), ["/", "a b"]);
    let permissions = server.get("vhosts/a%20b/permissions");
    let expected = json!([{"user": "guest", "vhost": "a b", "configure": ".*", "write": ".*", "read": ".*"}]);
    assert_eq!(permissions, expected);
    assert_eq!(server.get("vhosts/a%20b/topic-permissions"), json!([]));
    assert_eq!(names(&server.get("exchanges/a%20b")).len(), 7);
    assert_eq!(server.post("vhosts/a%20b/start/any", &json!({})).status, 204);
    assert_eq!(server.delete("vhosts/a%20b"), 204);
    assert_eq!(server.delete("vhosts/a%20b"), 404);
    assert_eq!(server.ask("GET", "vhosts/a%20b", &Value::Null).status, 404);
}

/// Regression test: the path did not exist, and a virtual host imported with the metadata for protection could be deleted.
#[test]
fn a_protected_virtual_host_is_not_deleted() {
    let server = Server::start();
    assert_eq!(server.put("vhosts/v", &json!({})), 201);
    assert_eq!(server.ask("POST", "vhosts/none/deletion/protection", &Value::Null).status, 404);
    for _ in 0..2 {
        assert_eq!(server.post("vhosts/v/deletion/protection", &Value::Null).status, 204);
    }
    let shown = server.get("vhosts/v");
    assert_eq!(
        (&shown["protected_from_deletion"], &shown["metadata"]["protected_from_deletion"]),
        (&json!(true), &json!(true))
    );
    // Changing another field keeps the protection.
    assert_eq!(server.put("vhosts/v", &json!({"description": "d", "metadata": {"owner": "me"}})), 204);
    let refused = server.ask("DELETE", "vhosts/v", &Value::Null);
    let text = "Refusing to delete virtual host 'v' because it is protected from deletion";
    assert_eq!((refused.status, refused.body), (412, json!({"error": "precondition_failed", "reason": text})));
    assert_eq!(server.delete("vhosts/v/deletion/protection"), 204);
    assert_eq!(server.get("vhosts/v")["protected_from_deletion"], false);
    assert_eq!(server.delete("vhosts/v"), 204);
    // Definitions contain it, too.
    let vhost = json!({"vhosts": [{"name": "w", "metadata": {"protected_from_deletion": true}}]});
    assert_eq!(server.post("definitions", &vhost).status, 204);
    assert_eq!(server.delete("vhosts/w"), 412);
    assert_eq!(server.get("definitions")["vhosts"][1]["metadata"]["protected_from_deletion"], true);
    // A user who is not an administrator may not set it.
    server.put("users/m", &json!({"password": "m", "tags": "management"}));
    assert_eq!(server.ask_as("m", "DELETE", "vhosts/w/deletion/protection", &Value::Null).status, 401);
}

#[test]
fn users_are_made_with_passwords_or_hashes() {
    let server = Server::start();
    assert_eq!(server.put("users/u", &json!({"password": "u", "tags": ["management", "x"]})), 201);
    let user = server.get("users/u");
    assert_eq!(
        json_of(&user, &["name", "tags", "limits"]),
        json!({"name": "u", "tags": ["management", "x"], "limits": {}})
    );
    assert_eq!(server.ask_as("u", "GET", "whoami", &Value::Null).status, 200);
    let hash =
        json!({"password_hash": user["password_hash"], "hashing_algorithm": user["hashing_algorithm"], "tags": ""});
    assert_eq!(server.put("users/same", &hash), 201);
    assert_eq!(server.get("users/same")["password_hash"], user["password_hash"]);
    // Without a password no login succeeds any more.
    assert_eq!(server.put("users/u", &json!({"tags": "management"})), 204);
    assert_eq!(server.ask_as("u", "GET", "whoami", &Value::Null).status, 401);
    assert_eq!(names(&server.get("users/without-permissions")), ["same", "u"]);
    assert_eq!(server.put("user-limits/u/max-connections", &json!({"value": 5})), 204);
    assert_eq!(server.get("user-limits/u"), json!([{"user": "u", "value": {"max-connections": 5}}]));
    assert_eq!(server.delete("user-limits/u/max-connections"), 204);
    assert_eq!(server.get("user-limits"), json!([]));
    assert_eq!(server.post("users/bulk-delete", &json!({"users": ["u", "same", "absent"]})).status, 204);
    assert_eq!(names(&server.get("users")), ["guest"]);
    assert_eq!(server.delete("users/u"), 404);
}

#[test]
fn permissions_are_set_shown_and_cleared() {
    let server = Server::start();
    server.put("users/u", &json!({"password": "u", "tags": ""}));
    let all = json!({"configure": "^a", "write": ".*", "read": ""});
    assert_eq!(server.put("permissions/%2F/u", &all), 201);
    assert_eq!(server.put("permissions/%2F/u", &all), 204);
    let shown = json!({"user": "u", "vhost": "/", "configure": "^a", "write": ".*", "read": ""});
    assert_eq!(server.get("permissions/%2F/u"), shown);
    assert_eq!(server.get("users/u/permissions"), json!([shown]));
    assert_eq!(server.get("permissions").as_array().unwrap().len(), 2);
    let topic = json!({"exchange": "amq.topic", "write": "^x", "read": ".*"});
    assert_eq!(server.put("topic-permissions/%2F/u", &topic), 201);
    let shown = json!([{"user": "u", "vhost": "/", "exchange": "amq.topic", "write": "^x", "read": ".*"}]);
    assert_eq!(server.get("topic-permissions/%2F/u"), shown);
    assert_eq!(server.get("topic-permissions"), shown);
    assert_eq!(server.get("users/u/topic-permissions"), shown);
    assert_eq!(server.delete("topic-permissions/%2F/u/amq.topic"), 204);
    assert_eq!(server.delete("topic-permissions/%2F/u"), 404);
    assert_eq!(server.delete("permissions/%2F/u"), 204);
    assert_eq!(server.delete("permissions/%2F/u"), 404);
}

#[test]
fn exchanges_are_declared_as_by_amqp() {
    let server = Server::start();
    let body = json!({"type": "topic", "durable": "true", "arguments": {"alternate-exchange": "amq.fanout"}});
    assert_eq!(server.put("exchanges/%2F/x", &body), 201);
    assert_eq!(server.put("exchanges/%2F/x", &body), 204);
    let shown = server.get("exchanges/%2F/x");
    let expected = json!({
        "name": "x", "vhost": "/", "type": "topic", "durable": true, "auto_delete": false, "internal": false,
        "arguments": {"alternate-exchange": "amq.fanout"}
    });
    assert_eq!(
        json_of(&shown, &["name", "vhost", "type", "durable", "auto_delete", "internal", "arguments"]),
        expected
    );
    assert_eq!(server.get("exchanges/%2F/amq.default")["name"], "");
    assert_eq!(names(&server.get("exchanges?sort=name&sort_reverse=true"))[0], "x");
    assert_eq!(server.delete("exchanges/%2F/x"), 204);
    assert_eq!(server.delete("exchanges/%2F/x"), 404);
}

#[test]
fn queues_are_declared_counted_and_deleted() {
    let server = Server::start();
    let body = json!({"durable": true, "arguments": {"x-queue-type": "quorum", "x-delivery-limit": 3}});
    assert_eq!(server.put("queues/%2F/q%2F1", &body), 201);
    assert_eq!(server.put("queues/%2F/q%2F1", &body), 204);
    let queue = server.get("queues/%2F/q%2F1");
    let expected = json!({
        "name": "q/1", "vhost": "/", "type": "quorum", "durable": true, "auto_delete": false, "exclusive": false,
        "arguments": {"x-queue-type": "quorum", "x-delivery-limit": 3}, "state": "running", "policy": null,
        "effective_policy_definition": {}, "messages": 0, "messages_ready": 0, "messages_unacknowledged": 0,
        "consumers": 0, "consumer_details": []
    });
    let fields: Vec<&str> = expected.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(json_of(&queue, &fields), expected);
    server.put("queues/%2F/b", &json!({}));
    assert_eq!(names(&server.get("queues")), ["b", "q/1"]);
    assert_eq!(names(&server.get("queues/%2F")), ["b", "q/1"]);
    assert_eq!(
        server.get("queues?columns=name,messages"),
        json!([{"name": "b", "messages": 0}, {"name": "q/1", "messages": 0}])
    );
    assert!(server.get("queues/%2F/b?disable_stats=true").get("messages").is_none());
    assert!(server.get("queues?disable_stats=true")[0].get("messages").is_none());
    assert_eq!(server.get("queues?disable_stats=true&enable_queue_totals=true")[0]["messages"], 0);
    let samples = server.get("queues/%2F/b?lengths_age=60&lengths_incr=5")["messages_details"]["samples"].clone();
    assert_eq!(samples[0]["sample"], 0);
    assert_eq!(server.delete("queues/%2F/b?if-unused=true&if-empty=true"), 204);
    assert_eq!(server.delete("queues/%2F/b"), 404);
    assert_eq!(names(&server.get("queues")), ["q/1"]);
    assert_eq!(server.post("queues/%2F/q%2F1/actions", &json!({"action": "sync"})).status, 204);
}

#[test]
fn pages_of_queues_are_counted_only_as_far_as_they_are_shown() {
    let server = Server::start();
    for at in 0..5 {
        server.put(&format!("queues/%2F/q{at}"), &json!({"durable": true}));
    }
    for sort in [
        "",
        "&sort=messages&sort_reverse=true",
        "&sort=name",
        "&sort=policy",
        "&columns=name,messages",
        "&disable_stats=true",
    ] {
        let page = server.get(&format!("queues?page=2&page_size=2&name=q{sort}"));
        let about =
            json!({"page": 2, "page_size": 2, "page_count": 3, "item_count": 2, "filtered_count": 5, "total_count": 5});
        let fields: Vec<&str> = about.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(json_of(&page, &fields), about, "{sort}");
        let expected = if sort.contains("reverse") { ["q2", "q1"] } else { ["q2", "q3"] };
        assert_eq!(names(&page["items"]), expected, "{sort}");
        assert_eq!(page["items"][0].get("messages").is_some(), !sort.contains("disable"), "{sort}");
        assert!(page["items"][0].get(" id").is_none());
    }
}

#[test]
fn bindings_are_named_by_key_and_arguments() {
    let server = Server::start();
    server.put("queues/%2F/q", &json!({"durable": true}));
    server.put("exchanges/%2F/x", &json!({"type": "topic"}));
    let made = server.post("bindings/%2F/e/x/q/q", &json!({"routing_key": "a.*/b"}));
    assert_eq!((made.status, made.header("location")), (201, Some("q/a.%252A%252Fb")));
    let with_arguments = json!({"routing_key": "", "arguments": {"k": 1}});
    let made = server.post("bindings/%2F/e/x/q/q", &with_arguments);
    let name = made.header("location").unwrap().strip_prefix("q/").unwrap().to_owned();
    server.post("bindings/%2F/e/amq.fanout/e/x", &json!({}));
    let listed = server.get("bindings/%2F/e/x/q/q");
    assert_eq!(listed.as_array().unwrap().len(), 2);
    let one = server.get("bindings/%2F/e/x/q/q/a.%252A%252Fb");
    let expected = json!({
        "source": "x", "vhost": "/", "destination": "q", "destination_type": "queue", "routing_key": "a.*/b",
        "arguments": {}, "properties_key": "a.%2A%2Fb"
    });
    assert_eq!(one, expected);
    // Decoded only once.
    assert_eq!(server.get("bindings/%2F/e/x/q/q/a.%2A%2Fb"), expected);
    assert_eq!(server.get(&format!("bindings/%2F/e/x/q/q/{name}"))["arguments"], json!({"k": 1}));
    assert_eq!(server.get("bindings/%2F/e/amq.fanout/e/x/~")["destination_type"], "exchange");
    assert_eq!(server.get("queues/%2F/q/bindings").as_array().unwrap().len(), 3, "with that to the default exchange");
    assert_eq!(server.get("exchanges/%2F/x/bindings/source").as_array().unwrap().len(), 2);
    assert_eq!(server.get("exchanges/%2F/x/bindings/destination").as_array().unwrap().len(), 1);
    assert_eq!(server.get("exchanges/%2F/amq.default/bindings/source").as_array().unwrap().len(), 1);
    assert_eq!(server.get("bindings").as_array().unwrap().len(), 4);
    assert_eq!(server.delete("bindings/%2F/e/x/q/q/a.%252A%252Fb"), 204);
    assert_eq!(server.delete("bindings/%2F/e/x/q/q/a.%252A%252Fb"), 404);
    assert_eq!(server.delete(&format!("bindings/%2F/e/x/q/q/{name}")), 204);
    assert_eq!(server.get("bindings/%2F").as_array().unwrap().len(), 2);
}

#[test]
fn policies_hold_for_queues_and_exchanges() {
    let server = Server::start();
    server.put("queues/%2F/q1", &json!({"durable": true}));
    let body = json!({"pattern": "^q", "definition": {"max-length": 10, "message-ttl": 5}, "priority": 2, "apply-to": "queues"});
    assert_eq!(server.put("policies/%2F/p", &body), 201);
    assert_eq!(server.put("policies/%2F/p", &body), 204);
    let operator = json!({"pattern": ".*", "definition": {"max-length": 4}, "apply-to": "queues"});
    assert_eq!(server.put("operator-policies/%2F/o", &operator), 201);
    let queue = server.get("queues/%2F/q1");
    let expected = json!({"policy": "p", "operator_policy": "o", "effective_policy_definition": {"max-length": 4, "message-ttl": 5}});
    assert_eq!(json_of(&queue, &["policy", "operator_policy", "effective_policy_definition"]), expected);
    let mut shown = body.clone();
    shown["name"] = "p".into();
    shown["vhost"] = "/".into();
    assert_eq!(server.get("policies/%2F/p"), shown);
    assert_eq!(server.get("policies"), json!([shown]));
    assert_eq!(names(&server.get("operator-policies/%2F")), ["o"]);
    assert_eq!(server.delete("policies/%2F/p"), 204);
    assert_eq!(server.delete("policies/%2F/p"), 404);
    assert_eq!(server.delete("operator-policies/%2F/o"), 204);
    assert_eq!(server.get("queues/%2F/q1")["policy"], Value::Null);
}

#[test]
fn parameters_and_limits_are_kept() {
    let server = Server::start();
    assert_eq!(server.put("parameters/c/%2F/s", &json!({"value": {"src-uri": "amqp://"}})), 201);
    let shown = json!({"vhost": "/", "component": "c", "name": "s", "value": {"src-uri": "amqp://"}});
    assert_eq!(server.get("parameters/c/%2F/s"), shown);
    for path in ["parameters", "parameters/c", "parameters/c/%2F"] {
        assert_eq!(server.get(path), json!([shown]), "{path}");
    }
    assert_eq!(server.get("parameters/other"), json!([]));
    assert_eq!(server.delete("parameters/c/%2F/s"), 204);
    assert_eq!(server.delete("parameters/c/%2F/s"), 404);
    assert_eq!(server.put("global-parameters/g", &json!({"value": [1]})), 201);
    assert_eq!(server.get("global-parameters/g"), json!({"name": "g", "value": [1]}));
    assert_eq!(names(&server.get("global-parameters")), ["cluster_name", "g", "internal_cluster_id"]);
    assert_eq!(server.delete("global-parameters/g"), 204);
    assert_eq!(server.put("vhost-limits/%2F/max-queues", &json!({"value": 1})), 204);
    assert_eq!(server.get("vhost-limits"), json!([{"vhost": "/", "value": {"max-queues": 1}}]));
    server.put("queues/%2F/one", &json!({}));
    let refused = server.ask("PUT", "queues/%2F/two", &json!({}));
    let reason = "cannot declare queue 'two': queue limit in vhost '/' (1) is reached";
    assert_eq!(refused.failure(), (400, "bad_request", reason));
    assert_eq!(server.delete("vhost-limits/%2F/max-queues"), 204);
    assert_eq!(server.get("vhost-limits/%2F"), json!([]));
}

/// No shovels run in this test: the API returns the parameters.
#[test]
fn shovels_are_looked_at_before_they_are_kept() {
    let server = Server::start();
    let set = |name: &str, value: &Value| {
        server.ask("PUT", &format!("parameters/shovel/%2F/{name}"), &json!({"value": value}))
    };
    let good = json!({"src-uri": "amqp://u:secret@h", "src-queue": "a", "dest-uri": ["amqp://"], "dest-queue": "b"});
    assert_eq!((set("s", &good).status, set("s", &good).status), (201, 204));
    assert_eq!(server.get("parameters/shovel/%2F/s")["value"], good, "shown to users who may set it");
    for path in ["shovels", "shovels/%2F"] {
        let all = server.get(path);
        assert_eq!(
            (names(&all), &all[0]["state"], &all[0]["type"]),
            (vec!["s"], &json!("starting"), &json!("dynamic"))
        );
    }
    assert_eq!(server.get("shovels/%2F/s")["vhost"], "/");
    let shown = server.get("shovels/vhost/%2F/s");
    assert_eq!((&shown["value"]["src-uri"], &shown["component"]), (&json!("amqp://h"), &json!("shovel")));
    for (field, value, reason) in [
        ("src-queue", Value::Null, "src-queue should be binary, actually was null"),
        ("a", json!(1), "Unrecognised terms [{<<\"a\">>,1}] in t"),
        (
            "dest-uri",
            json!("amqps://h?verify=verify_none"),
            "\"amqps://h\": verify_none is not supported: set cacertfile to the CA that signed the server's certificate",
        ),
        ("dest-uri", json!("amqp:///none"), "user \"guest\" may not connect to vhost \"none\""),
    ] {
        let mut bad = good.clone();
        bad[field] = value;
        let refused = set("t", &bad);
        assert_eq!(refused.failure(), (400, "bad_request", &*format!("Validation failed\n\n{reason}\n")));
    }
    // Imports of definitions accept shovels that are not supported here.
    let ten = json!({"src-protocol": "amqp10", "src-address": "a", "src-uri": "amqps://h", "dest-uri": "amqp://", "dest-queue": "b"});
    let parameter =
        |name: &str, value: &Value| json!({"component": "shovel", "vhost": "/", "name": name, "value": value});
    let definitions = json!({"parameters": [parameter("ten", &ten)]});
    assert_eq!(server.ask("POST", "definitions", &definitions).status, 204);
    assert_eq!(names(&server.get("shovels")), ["s", "ten"]);
    let wrong = server.ask("POST", "definitions", &json!({"parameters": [parameter("no", &json!({}))]}));
    assert!(wrong.failure().2.starts_with("parameter 'no' in vhost '/': Validation failed"), "{wrong:?}");
    for path in ["shovels/none", "shovels/%2F/none", "shovels/vhost/%2F/none", "shovels/a/b/c/d/e"] {
        assert_eq!(server.ask("GET", path, &Value::Null).status, 404, "{path}");
    }
    assert_eq!(server.ask("PUT", "shovels/%2F/s", &json!({})).status, 405);
    assert_eq!(server.delete("shovels/vhost/%2F/none"), 404);
    assert_eq!((server.delete("shovels/vhost/%2F/s"), server.delete("shovels/vhost/%2F/ten")), (204, 204));
    assert_eq!(server.get("shovels"), json!([]));
}

#[test]
fn checks_say_whether_all_is_well() {
    let server = Server::start();
    for path in [
        "alarms",
        "local-alarms",
        "virtual-hosts",
        "node-is-quorum-critical",
        "is-in-service",
        "ready-to-serve-clients",
        "port-listener/5672",
        "protocol-listener/amqp091",
        "protocol-listener/http",
        "certificate-expiration/1/days",
        "metadata-store/initialized",
    ] {
        assert_eq!(server.get(&format!("health/checks/{path}"))["status"], "ok", "{path}");
    }
    for path in ["port-listener/1", "protocol-listener/mqtt"] {
        let failed = server.ask("GET", &format!("health/checks/{path}"), &Value::Null);
        assert_eq!((failed.status, failed.body["status"].as_str()), (503, Some("failed")), "{path}");
        assert_eq!(failed.body["reason"], "No active listener");
    }
    assert_eq!(
        server.ask("GET", "health/checks/port-listener/x", &Value::Null).failure(),
        (400, "bad_request", "Invalid port")
    );
    assert_eq!(server.get("aliveness-test/%2F"), json!({"status": "ok"}));
    assert_eq!(server.get("aliveness-test/%2F"), json!({"status": "ok"}), "repeated");
    assert_eq!(server.get("healthchecks/node"), json!({"status": "ok"}));
}

#[test]
fn a_disk_without_room_is_an_alarm() {
    let server = Server::start();
    assert_eq!(server.get("nodes")[0]["disk_free_alarm"], false);
    server.leave_free(1_000);
    for path in ["alarms", "local-alarms"] {
        let failed = server.ask("GET", &format!("health/checks/{path}"), &Value::Null);
        assert_eq!((failed.status, failed.body["status"].as_str()), (503, Some("failed")), "{path}");
        assert_eq!(failed.body["reason"], "There are alarms in effect in the cluster");
        assert_eq!(failed.body["alarms"][0]["resource"], "disk");
    }
    let node = &server.get("nodes")[0];
    assert_eq!((&node["disk_free_alarm"], &node["disk_free"]), (&json!(true), &json!(1_000)));
    server.leave_free(100 << 20);
    assert_eq!(server.get("health/checks/alarms")["status"], "ok");
}

#[test]
fn memory_that_runs_short_is_an_alarm_too() {
    let server = Server::start();
    let memory = &server.management.net.memory;
    assert!(!memory.look());
    let node = &server.get("nodes")[0];
    assert_eq!((&node["mem_alarm"], &node["mem_limit"]), (&json!(false), &json!(1_u64 << 40)));
    assert!(node["mem_used"].as_u64().unwrap() > 1 << 20);
    memory.pretend(true);
    let failed = server.ask("GET", "health/checks/local-alarms", &Value::Null);
    assert_eq!((failed.status, failed.body["alarms"].as_array().unwrap().len()), (503, 1));
    assert_eq!(failed.body["alarms"][0]["resource"], "memory");
    assert_eq!(server.get("nodes")[0]["mem_alarm"], true);
    server.leave_free(1_000);
    let failed = server.ask("GET", "health/checks/alarms", &Value::Null);
    assert_eq!(
        (&failed.body["alarms"][0]["resource"], &failed.body["alarms"][1]["resource"]),
        (&json!("disk"), &json!("memory"))
    );
}

/// Only users who may see all virtual hosts see the totals.
#[test]
fn the_overview_tells_how_many_messages_come_and_how_fast() {
    let server = Server::start();
    server.put("queues/%2F/q", &json!({}));
    let look = || {
        let now_ms = server.broker.now().monotonic_ms;
        server.management.rates.sample(server.directory.traffic(), now_ms);
    };
    look();
    for n in 0..6 {
        let message =
            json!({"properties": {}, "routing_key": "q", "payload": n.to_string(), "payload_encoding": "string"});
        server.post("exchanges/%2F/amq.default/publish", &message);
    }
    server.leave_free(100 << 20);
    server.leave_free(100 << 20);
    look();
    let overview = server.get("overview");
    let stats = &overview["message_stats"];
    assert_eq!((&stats["publish"], &stats["publish_details"]), (&json!(6), &json!({"rate": 3.0})));
    assert_eq!((&stats["ack"], &stats["ack_details"]), (&json!(0), &json!({"rate": 0.0})));
    assert_eq!(overview["churn_rates"]["queue_created"], 1);
    look();
    look();
    assert_eq!(server.get("overview")["message_stats"]["publish_details"], json!({"rate": 0.0}));
    assert_eq!(server.put("users/some", &json!({"password": "some", "tags": "management"})), 201);
    assert_eq!(server.ask_as("some", "GET", "overview", &Value::Null).body["message_stats"], json!({}));
}
