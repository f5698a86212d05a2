//! What the console is made of: its pages, its login, and the parts of the API that were made for it. The real binary.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common;

use common::{Server, TempDir};
use polylogue_kafka_codec::Request;
use polylogue_kafka_codec::api_versions::ApiVersionsRequest;
use polylogue_kafka_codec::frame::encode_request;
use polylogue_kafka_codec::metadata::MetadataRequest;
use polylogue_types::Chunk;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// Who asks, and what is said beside the request itself.
struct Api {
    url: String,
    agent: ureq::Agent,
    headers: Vec<(&'static str, String)>,
}

/// What is answered.
struct Answer {
    status: u16,
    body: Value,
    cookie: Option<String>,
    has_challenge: bool,
}

impl Api {
    fn new(server: &Server) -> Api {
        let config = ureq::Agent::config_builder().http_status_as_error(false).max_redirects(0);
        Api { url: format!("http://{}", server.http), agent: config.build().new_agent(), headers: Vec::new() }
    }

    fn with(&self, name: &'static str, value: &str) -> Api {
        let mut headers = self.headers.clone();
        headers.push((name, value.to_owned()));
        Api { url: self.url.clone(), agent: self.agent.clone(), headers }
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{}/api/v1{path}", self.url));
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let request = request.header("content-type", "application/json").body(text).unwrap();
        let mut answer = self.agent.run(request).unwrap();
        let text = answer.body_mut().read_to_string().unwrap();
        let header = |name: &str| answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        Answer {
            status: answer.status().as_u16(),
            body: serde_json::from_str(&text).unwrap_or(Value::Null),
            cookie: header("set-cookie"),
            has_challenge: header("www-authenticate").is_some(),
        }
    }

    fn get(&self, path: &str) -> Value {
        let answer = self.ask("GET", path, &Value::Null);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.body
    }

    fn status(&self, method: &str, path: &str, body: &Value) -> u16 {
        self.ask(method, path, body).status
    }

    /// The status and the code of what is refused.
    fn refused(&self, method: &str, path: &str, body: &Value) -> (u16, String) {
        let answer = self.ask(method, path, body);
        (answer.status, answer.body["error"]["code"].as_str().unwrap_or_default().to_owned())
    }
}

fn start(dir: &TempDir, more: &[&str]) -> (Server, Api) {
    let server = Server::start_with_admin(&dir.join("data"), &[&["--listen", "amqp=127.0.0.1:0"], more].concat());
    let api = Api::new(&server);
    (server, api)
}

/// What is in the messages of an answer.
fn values(answer: &Value) -> Vec<&str> {
    answer["messages"].as_array().unwrap().iter().map(|one| one["value"]["data"].as_str().unwrap_or("-")).collect()
}

#[test]
fn messages_are_shown_whatever_wrote_them_and_nothing_happens_to_them() {
    let dir = TempDir::new();
    let (server, api) = start(&dir, &[]);
    assert_eq!(api.status("POST", "/topics", &json!({"name": "t", "partitions": 2})), 201);
    server.ok_with(&["produce", "t", "--partition", "0"], b"one\ntwo\n");
    let new =
        json!({"partition": 1, "key": "k", "value": "three", "headers": [{"name": "h", "value": "v"}, {"name": "n"}]});
    let written = api.ask("POST", "/topics/t/messages", &new);
    assert_eq!((written.status, written.body), (201, json!({"partition": 1, "offset": 0})));
    let all = api.get("/topics/t/messages");
    assert_eq!(values(&all), ["one", "two", "three"]);
    assert_eq!(all["partitions"][0], json!({"partition": 0, "log_start": 0, "high_watermark": 2}));
    let last = &all["messages"][2];
    assert_eq!(last["key"], json!({"data": "k", "encoding": "text", "bytes": 1}));
    let headers =
        json!([{"name": "h", "value": {"data": "v", "encoding": "text", "bytes": 1}}, {"name": "n", "value": null}]);
    assert_eq!(last["headers"], headers);
    assert_eq!(values(&api.get("/topics/t/messages?limit=1")), ["three"]);
    assert_eq!(values(&api.get("/topics/t/messages?partition=0&limit=1")), ["two"]);
    for (offset, seen) in [(0, &["one", "two"][..]), (1, &["two"]), (9, &[]), (-3, &["one", "two"])] {
        assert_eq!(values(&api.get(&format!("/topics/t/messages?partition=0&offset={offset}"))), seen, "{offset}");
    }
    let bytes = json!({"partition": 1, "value": "/wA=", "encoding": "base64"});
    assert_eq!(api.status("POST", "/topics/t/messages", &bytes), 201);
    let content = json!({"data": "/wA=", "encoding": "base64", "bytes": 2});
    assert_eq!(api.get("/topics/t/messages?partition=1&limit=1")["messages"][0]["value"], content);
    let long = format!("{}.", "x".repeat(20_000));
    assert_eq!(api.status("POST", "/topics/t/messages", &json!({"partition": 1, "value": long})), 201);
    let cut = api.get("/topics/t/messages?partition=1&limit=1")["messages"][0]["value"].clone();
    assert_eq!(
        (cut["bytes"].as_u64(), cut["data"].as_str().unwrap().len(), &cut["cut"]),
        (Some(20_001), 16_384, &json!(true))
    );
    let whole = api.get("/topics/t/messages?partition=1&limit=1&whole=true")["messages"][0]["value"].clone();
    assert_eq!((whole["data"].as_str(), whole.get("cut")), (Some(long.as_str()), None));
    assert_eq!(api.status("DELETE", "/topics/t/messages", &Value::Null), 204);
    assert_eq!(values(&api.get("/topics/t/messages")), [""; 0]);
    assert_eq!(api.get("/topics/t/messages")["partitions"][1]["log_start"], 3);
    server.ok_with(&["produce", "t", "--partition", "0"], b"later\n");
    assert_eq!(api.get("/topics/t/messages")["messages"][0]["offset"], 2);
}

#[test]
fn queues_are_looked_at_as_topics_and_lose_nothing_by_it() {
    let dir = TempDir::new();
    let (_server, api) = start(&dir, &[]);
    assert_eq!(api.status("POST", "/vhosts/%2F/queues", &json!({"name": "q"})), 201);
    let publish = |message: Value| api.ask("POST", "/vhosts/%2F/publish", &message);
    let routed =
        publish(json!({"routing_key": "q", "body": "hello", "content_type": "text/plain", "headers": {"a": 1}}));
    assert_eq!((routed.status, routed.body), (200, json!({"routed": true})));
    assert_eq!(publish(json!({"routing_key": "absent", "body": "x"})).body, json!({"routed": false}));
    let topic = api.get("/vhosts/%2F/queues/q")["topic"].as_str().unwrap().to_owned();
    assert_eq!(topic, "amqp-queue.q");
    let seen = api.get(&format!("/topics/{topic}/messages"));
    assert_eq!(values(&seen), ["hello"]);
    assert_eq!(seen["messages"][0]["key"]["data"], "q");
    let headers = seen["messages"][0]["headers"].as_array().unwrap();
    let names: Vec<&str> = headers.iter().map(|header| header["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"amqp.content-type") && names.contains(&"a"), "{names:?}");
    let got = api.ask("POST", "/vhosts/%2F/queues/q/get", &json!({"count": 1, "remove": true})).body;
    assert_eq!((&got["messages"][0]["body"], &got["messages"][0]["redelivered"]), (&json!("hello"), &json!(false)));
    // What is written by this door is written by Kafka's rules, and those know no queues.
    let (status, code) = api.refused("POST", &format!("/topics/{topic}/messages"), &json!({"value": "x"}));
    assert!(status >= 400, "{status} {code}");
    let full = json!({"name": "full", "arguments": {"x-max-length": 1, "x-overflow": "reject-publish"}});
    assert_eq!(api.status("POST", "/vhosts/%2F/queues", &full), 201);
    assert_eq!(publish(json!({"routing_key": "full", "body": "1"})).status, 200);
    let again = publish(json!({"routing_key": "full", "body": "2"}));
    assert_eq!((again.status, again.body["error"]["code"].as_str()), (409, Some("rejected")));
    let internal = |query: &str| api.get(&format!("/topics?{query}"))["total"].as_u64();
    assert_eq!((internal("internal=false"), internal("internal=true"), internal("")), (Some(0), Some(2), Some(2)));
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let dir = TempDir::new();
    let (_server, api) = start(&dir, &[]);
    assert_eq!(api.status("POST", "/topics", &json!({"name": "t", "partitions": 300})), 201);
    let invalid = (400, "invalid_request".to_owned());
    for query in [
        "",
        "?partition=300",
        "?partition=-1",
        "?partition=0&limit=0",
        "?partition=0&limit=501",
        "?offset=3",
        "?whole=true",
        "?partition=x",
        "?partition=0&offset=99999999999999999999",
        "?other=1",
    ] {
        let path = format!("/topics/t/messages{query}");
        assert_eq!(api.refused("GET", &path, &Value::Null), invalid, "{query}");
    }
    let unknown = (404, "unknown_topic".to_owned());
    for method in ["GET", "DELETE"] {
        assert_eq!(api.refused(method, "/topics/none/messages", &Value::Null), unknown, "{method}");
    }
    assert_eq!(api.refused("POST", "/topics/none/messages", &json!({"value": "x"})), unknown);
    for message in [
        json!({"value": "x", "partition": 300}),
        json!({"value": "?", "encoding": "base64"}),
        json!({"value": "x", "encoding": "hex"}),
        json!({"value": 7}),
        json!({"value": "x", "other": 1}),
    ] {
        assert_eq!(api.refused("POST", "/topics/t/messages", &message), invalid, "{message}");
    }
    let publish = |message: Value| api.refused("POST", "/vhosts/%2F/publish", &message);
    assert_eq!(publish(json!({"exchange": "none", "body": "x"})).0, 404);
    for message in [
        json!({"body": "?", "encoding": "base64"}),
        json!({"body": "x", "encoding": "hex"}),
        json!({"routing_key": "x".repeat(256)}),
        json!({"body": "x", "headers": []}),
        json!({"other": 1}),
    ] {
        assert_eq!(publish(message.clone()), invalid, "{message}");
    }
    assert_eq!(api.refused("POST", "/vhosts/none/publish", &json!({})), (404, "unknown_vhost".to_owned()));
    for path in ["/topics", "/groups", "/connections", "/vhosts/%2F/queues"] {
        for query in ["limit=x", "offset=-1", "other=1"] {
            assert_eq!(api.refused("GET", &format!("{path}?{query}"), &Value::Null), invalid, "{path}?{query}");
        }
    }
    assert_eq!(api.refused("DELETE", "/connections/99999", &Value::Null), (404, "not_found".to_owned()));
    assert_eq!(api.status("DELETE", "/connections/x", &Value::Null), 400);
}

#[test]
fn permissions_are_set_shown_and_taken_away() {
    let dir = TempDir::new();
    let (_server, api) = start(&dir, &[]);
    let all = json!({"configure": "^a", "write": ".*", "read": ""});
    let set = |vhost: &str, user: &str, body: &Value| {
        api.refused("PUT", &format!("/vhosts/{vhost}/permissions/{user}"), body)
    };
    assert_eq!(set("%2F", "ann", &all), (404, "not_found".to_owned()));
    assert_eq!(api.status("PUT", "/users/ann", &json!({"password": "p", "tags": []})), 201);
    assert_eq!(set("none", "ann", &all), (404, "unknown_vhost".to_owned()));
    assert_eq!(set("%2F", "ann", &json!({"configure": "(", "write": "", "read": ""})).0, 400);
    assert_eq!(set("%2F", "ann", &json!({"configure": ""})), (400, "invalid_request".to_owned()));
    assert_eq!((set("%2F", "ann", &all).0, set("%2F", "ann", &all).0), (201, 200));
    let ann = |api: &Api| {
        let all = api.get("/permissions")["permissions"].as_array().unwrap().clone();
        all.into_iter().find(|one| one["user"] == "ann")
    };
    let shown = json!({"user": "ann", "vhost": "/", "configure": "^a", "write": ".*", "read": ""});
    assert_eq!(ann(&api), Some(shown));
    assert_eq!(api.status("DELETE", "/vhosts/%2F/permissions/ann", &Value::Null), 204);
    assert_eq!((ann(&api), api.status("DELETE", "/vhosts/%2F/permissions/ann", &Value::Null)), (None, 404));
}

fn frame<R: Request>(version: i16, request: &R) -> Vec<u8> {
    let chunks = encode_request(version, 1, Some("billing-1".into()), request).unwrap();
    let bytes =
        chunks.iter().filter_map(|chunk| if let Chunk::Bytes(bytes) = chunk { Some(bytes.to_vec()) } else { None });
    bytes.flatten().collect()
}

#[test]
fn connections_say_who_they_are_and_are_ended() {
    let dir = TempDir::new();
    let (server, api) = start(&dir, &[]);
    let mut client = TcpStream::connect(server.kafka).unwrap();
    let own = client.local_addr().unwrap().to_string();
    let versions = ApiVersionsRequest { client_software_name: "lib".into(), client_software_version: "1.2".into() };
    for frame in [frame(3, &versions), frame(12, &MetadataRequest::default())] {
        client.write_all(&frame).unwrap();
        let mut len = [0; 4];
        client.read_exact(&mut len).unwrap();
        client.read_exact(&mut vec![0; u32::from_be_bytes(len) as usize]).unwrap();
    }
    // It is reported at the end of the turn that wrote the answer.
    let known = (0..500).find_map(|_| {
        let found = api.get("/connections?search=BILLING")["connections"].as_array().unwrap().first().cloned();
        found.or_else(|| {
            std::thread::yield_now();
            None
        })
    });
    let known = known.unwrap();
    assert_eq!((&known["peer"], &known["protocol"], &known["tls"]), (&json!(own), &json!("kafka"), &json!(false)));
    assert_eq!(
        (&known["client"], &known["software"], &known["user"]),
        (&json!("billing-1"), &json!("lib 1.2"), &Value::Null)
    );
    assert_eq!(api.status("DELETE", &format!("/connections/{}", known["id"]), &Value::Null), 204);
    let mut rest = Vec::new();
    assert_eq!(client.read_to_end(&mut rest).unwrap(), 0, "the server has closed it");
}

#[test]
fn a_browser_logs_in_for_a_cookie_and_out_again() {
    let dir = TempDir::new();
    let (_server, api) = start(&dir, &["--set", "server.login=always"]);
    let console = api.with("x-polylogue-console", "1");
    assert_eq!(api.get("/session"), json!({"asks": true, "name": null}));
    let (program, page) = (api.ask("GET", "/topics", &Value::Null), console.ask("GET", "/topics", &Value::Null));
    assert_eq!((program.status, program.has_challenge, page.status, page.has_challenge), (401, true, 401, false));
    let admin = |password: &str| console.ask("POST", "/session", &json!({"name": "admin", "password": password}));
    let wrong = admin("wrong");
    assert_eq!((wrong.status, wrong.cookie, wrong.has_challenge), (401, None, false));
    let right = admin("admin");
    assert_eq!((right.status, &right.body), (200, &json!({"asks": true, "name": "admin"})));
    let cookie = right.cookie.unwrap();
    let (token, rules) = cookie.split_once(';').unwrap();
    assert_eq!(rules, " Path=/; Max-Age=43200; HttpOnly; SameSite=Strict");
    let inside = console.with("cookie", token);
    assert_eq!(
        (inside.status("GET", "/topics", &Value::Null), inside.get("/session")["name"].as_str()),
        (200, Some("admin"))
    );
    assert_eq!(console.with("cookie", &format!("{token}x")).status("GET", "/topics", &Value::Null), 401);
    // A user that is no administrator gets an error and no cookie.
    assert_eq!(inside.status("PUT", "/users/ann", &json!({"password": "p", "tags": []})), 201);
    let ann = console.ask("POST", "/session", &json!({"name": "ann", "password": "p"}));
    assert_eq!((ann.status, ann.cookie), (403, None));
    // Who was an administrator, and who has another password, is not inside any more.
    assert_eq!(inside.status("PUT", "/users/bob", &json!({"password": "p", "tags": ["administrator"]})), 201);
    let bob = console.ask("POST", "/session", &json!({"name": "bob", "password": "p"})).cookie.unwrap();
    let bob = console.with("cookie", bob.split(';').next().unwrap());
    assert_eq!(bob.status("GET", "/topics", &Value::Null), 200);
    assert_eq!(inside.status("PUT", "/users/bob", &json!({"tags": []})), 200);
    assert_eq!(bob.status("GET", "/topics", &Value::Null), 403);
    assert_eq!(inside.status("PUT", "/users/bob", &json!({"password": "q", "tags": ["administrator"]})), 200);
    assert_eq!(bob.status("GET", "/topics", &Value::Null), 401);
    assert_eq!(inside.status("DELETE", "/session", &Value::Null), 204);
    assert_eq!(inside.status("GET", "/topics", &Value::Null), 401);
}

#[test]
fn pages_of_other_sites_change_nothing() {
    let dir = TempDir::new();
    let (server, api) = start(&dir, &[]);
    let own = format!("http://{}", server.http);
    let create = |api: &Api, name: &str| api.status("POST", "/topics", &json!({"name": name}));
    assert_eq!(create(&api.with("origin", &own), "a"), 201);
    assert_eq!(create(&api.with("sec-fetch-site", "same-origin").with("origin", &own), "b"), 201);
    for (name, value) in [
        ("origin", "http://evil"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        assert_eq!(create(&api.with(name, value), "c"), 403, "{name}: {value}");
        assert_eq!(api.with(name, value).status("DELETE", "/topics/a", &Value::Null), 403, "{name}: {value}");
        let login = json!({"name": "admin", "password": "admin"});
        assert_eq!(api.with(name, value).status("POST", "/session", &login), 403, "{name}: {value}");
    }
    assert_eq!(api.with("host", "evil.example").status("GET", "/topics", &Value::Null), 403);
    assert_eq!(api.with("host", "localhost:9600").status("GET", "/topics", &Value::Null), 200);
    assert_eq!(api.get("/topics")["total"], 2);
}

#[test]
fn pages_are_there_without_a_login_and_hold_nothing() {
    let dir = TempDir::new();
    let (server, api) = start(&dir, &["--set", "server.login=always"]);
    let get = |path: &str| {
        let mut answer = api.agent.get(format!("http://{}{path}", server.http)).call().unwrap();
        let header = |name: &str| answer.headers().get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
        let headers = [header("location"), header("content-type"), header("content-security-policy")];
        (answer.status().as_u16(), headers, answer.body_mut().read_to_string().unwrap())
    };
    for path in ["/", "/console"] {
        let (status, [location, ..], _) = get(path);
        assert_eq!((status, location.as_str()), (307, "/console/"), "{path}");
    }
    let (status, [_, kind, policy], text) = get("/console/");
    assert_eq!((status, kind.as_str()), (200, "text/html; charset=utf-8"));
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    assert!(text.contains("app.js"));
    assert_eq!(get("/console/app.js").1[1], "text/javascript; charset=utf-8");
    for path in ["/console/none.js", "/console/../Cargo.toml", "/console/%2e%2e/Cargo.toml"] {
        assert_eq!(get(path).0, 404, "{path}");
    }
}

#[test]
fn lists_are_shown_in_parts() {
    let dir = TempDir::new();
    let (_server, api) = start(&dir, &[]);
    for number in 0..12 {
        assert_eq!(api.status("POST", "/topics", &json!({"name": format!("topic-{number:02}")})), 201);
    }
    assert_eq!(api.status("POST", "/topics/topic-03/messages", &json!({"value": "x"})), 201);
    let part = api.get("/topics?search=TOPIC-0&offset=3&limit=2");
    let names: Vec<&Value> = part["topics"].as_array().unwrap().iter().map(|topic| &topic["name"]).collect();
    assert_eq!((names, part["total"].as_u64()), (vec![&json!("topic-03"), &json!("topic-04")], Some(10)));
    assert_eq!((&part["topics"][0]["messages"], &part["topics"][1]["messages"]), (&json!(1), &json!(0)));
    let reset = json!({"topics": [{"topic": "topic-03"}], "to": "earliest"});
    for group in ["g1", "g2"] {
        assert_eq!(api.status("POST", &format!("/groups/{group}/reset"), &reset), 200);
    }
    let groups = api.get("/groups?limit=1");
    assert_eq!((groups["groups"].as_array().unwrap().len(), &groups["total"]), (1, &json!(2)));
    assert_eq!((&groups["groups"][0]["lag"], &groups["groups"][0]["members"]), (&json!(1), &json!(0)));
}

#[test]
fn reports_are_shown_from_their_directory_only() {
    let dir = TempDir::new();
    let reports = dir.join("reports");
    std::fs::create_dir_all(reports.join("folder.html")).unwrap();
    std::fs::write(reports.join("a b.html"), "<p>a report").unwrap();
    std::fs::write(reports.join("notes.txt"), "no report").unwrap();
    std::fs::write(dir.join("secret.html"), "a secret").unwrap();
    std::os::unix::fs::symlink(dir.join("secret.html"), reports.join("link.html")).unwrap();
    let option = format!("server.http_reports={}", reports.display());
    let (server, api) = start(&dir, &["--set", &option]);
    let listed = api.get("/reports");
    assert_eq!((&listed["enabled"], listed["reports"].as_array().unwrap().len()), (&json!(true), 1));
    assert_eq!((&listed["reports"][0]["name"], &listed["reports"][0]["bytes"]), (&json!("a b.html"), &json!(11)));
    let show = |name: &str| {
        let mut answer = api.agent.get(format!("http://{}/reports/{name}", server.http)).call().unwrap();
        let policy = answer.headers().get("content-security-policy").map(|policy| policy.to_str().unwrap().to_owned());
        (answer.status().as_u16(), policy.unwrap_or_default(), answer.body_mut().read_to_string().unwrap())
    };
    let (status, policy, text) = show("a%20b.html");
    assert!(status == 200 && policy.starts_with("sandbox allow-scripts") && text == "<p>a report", "{status} {policy}");
    for name in ["link.html", "folder.html", "notes.txt", "none.html", "..%2Fsecret.html", "%2e%2e%2fsecret.html", "."]
    {
        let (status, _, text) = show(name);
        assert!(status == 404 && !text.contains("a secret"), "{name}: {status} {text}");
    }
    let other = TempDir::new();
    let (_server, api) = start(&other, &[]);
    assert_eq!(api.get("/reports"), json!({"enabled": false, "reports": []}));
}
