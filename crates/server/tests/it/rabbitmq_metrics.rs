//! RabbitMQ's own families: that its dashboard finds them, that they are documented, and that they tell the truth. `UPDATE_SNAPSHOTS=1`
//! writes the table of docs/metrics.md anew.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common;

use common::amqp::Client;
use common::rabbit::Rabbit;
use common::{Server, TempDir, get};
use polylogue_amqp::codec::*;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

const LISTEN: [&str; 2] = ["--listen", "rabbitmq-metrics=127.0.0.1:0"];
const BEGIN: &str = "| family | type | labels | what |\n|---|---|---|---|\n";
const DETAILED: &str = "/detailed?family=connection_churn_metrics&family=node_coarse_metrics&family=node_metrics\
     &family=queue_coarse_metrics&family=queue_consumer_count&family=queue_metrics&family=none";

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn scraped_at(server: &Server) -> SocketAddr {
    server.lines.iter().find_map(|line| line.strip_prefix("rabbitmq-metrics listening on ")?.parse().ok()).unwrap()
}

/// A family, as Prometheus sees it.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    help: String,
    labels: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct Scrape {
    families: BTreeMap<String, Family>,
    /// By name and labels, as they are written.
    series: BTreeMap<String, f64>,
}

/// Reads the labels of a series: `a="b",c="d"`.
fn labels(text: &str) -> Vec<(String, String)> {
    let (mut all, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let (name, more) = rest.split_once("=\"").unwrap_or_else(|| panic!("no label in {text}"));
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{text}");
        let (mut value, mut end, mut chars) = (String::new(), None, more.char_indices());
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    end = Some(at);
                    break;
                }
                '\\' => value.push(chars.next().unwrap().1),
                c => value.push(c),
            }
        }
        all.push((name.to_owned(), value));
        rest = &more[end.unwrap_or_else(|| panic!("no end in {text}")) + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    all
}

/// Reads Prometheus' text format, of which nothing may be wrong.
fn parse(text: &str) -> Scrape {
    let (mut scrape, mut family) = (Scrape::default(), String::new());
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            family = name.to_owned();
            let new = Family { help: help.to_owned(), ..Family::default() };
            assert!(scrape.families.insert(family.clone(), new).is_none(), "{name} is there twice");
            continue;
        }
        let of = scrape.families.get_mut(&family).unwrap_or_else(|| panic!("{line} comes before its family"));
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            assert!(name == family && of.kind.is_empty(), "{line}");
            assert!(["counter", "gauge", "histogram", "untyped"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            kind.clone_into(&mut of.kind);
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value in {line}"));
        let (name, of_series) = match series.split_once('{') {
            Some((name, rest)) => (name, labels(rest.strip_suffix('}').unwrap())),
            None => (series, Vec::new()),
        };
        let suffixes: &[&str] = if of.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        assert!(suffixes.iter().any(|suffix| name == format!("{family}{suffix}")), "{line} is not of {family}");
        of.labels.extend(of_series.into_iter().map(|(label, _)| label).filter(|label| label != "le"));
        let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
        assert!(scrape.series.insert(series.to_owned(), value).is_none(), "{series} is there twice");
    }
    assert!(scrape.families.values().all(|family| !family.kind.is_empty()));
    scrape
}

fn scrape(at: SocketAddr, path: &str) -> Scrape {
    let (status, text) = get(at, path).unwrap();
    assert_eq!(status, 200, "{path}: {text}");
    parse(&text)
}

impl Scrape {
    fn value(&self, series: &str) -> f64 {
        let found = self.series.get(series);
        *found.unwrap_or_else(|| panic!("no {series} in {:#?}", self.series.keys()))
    }

    /// A family's series, added up.
    fn sum(&self, family: &str) -> f64 {
        let of = |series: &str| series.split('{').next() == Some(family);
        let values: Vec<_> = self.series.iter().filter(|(series, _)| of(series)).map(|(_, value)| *value).collect();
        assert!(!values.is_empty(), "no {family}");
        values.iter().sum()
    }
}

#[test]
fn every_family_is_documented_and_text_that_prometheus_reads() {
    let rabbit = Rabbit::start_with(&LISTEN);
    let (at, http) = (scraped_at(&rabbit.server), rabbit.server.http);
    for (queue, kind) in [("a \"b\" \\ c", "classic"), ("q", "quorum")] {
        let path = format!("queues/%2F/{}", queue.replace(' ', "%20").replace('"', "%22").replace('\\', "%5C"));
        let wanted = json!({"durable": true, "arguments": {"x-queue-type": kind}});
        assert_eq!(rabbit.manage("PUT", &path, &wanted), 201);
    }
    let whole = scrape(at, "/metrics");
    let each = scrape(at, "/metrics/per-object");
    let detailed = scrape(at, &format!("/metrics{DETAILED}"));
    for (path, reported) in [("", &whole), ("/per-object", &each), (DETAILED, &detailed)] {
        let same = scrape(http, &format!("/metrics/rabbitmq{path}"));
        assert!(same.series.keys().eq(reported.series.keys()), "{path}");
    }
    let queue = |name: &str, queue: &str| format!("{name}{{vhost=\"/\",queue=\"{queue}\"}}");
    for name in ["queue_messages_ready", "queue_messages_unacked", "queue_consumers"] {
        assert_eq!(whole.value(&format!("rabbitmq_{name}")), 0.0);
        for one in ["a \\\"b\\\" \\\\ c", "q"] {
            assert_eq!(each.value(&queue(&format!("rabbitmq_{name}"), one)), 0.0);
            assert_eq!(detailed.value(&queue(&format!("rabbitmq_detailed_{name}"), one)), 0.0);
        }
    }
    let info = "rabbitmq_detailed_queue_info{vhost=\"/\",queue=\"q\",queue_type=\"rabbit_quorum_queue\",membership=\"leader\"}";
    assert_eq!(detailed.value(info), 1.0);
    assert_eq!(each.value("polylogue_objects_left_out"), 0.0);
    // Only what is asked for, and nothing of virtual hosts that are not.
    let bare = scrape(at, "/metrics/detailed");
    let infos = ["rabbitmq_build_info", "rabbitmq_identity_info"];
    assert!(bare.families.keys().eq(infos.iter()), "{:?}", bare.families.keys());
    let none = scrape(at, "/metrics/detailed?family=queue_coarse_metrics&vhost=other");
    assert!(none.families.contains_key("rabbitmq_detailed_queue_messages") && none.series.len() == 3, "{none:?}");
    let row = |(name, family): (&String, &Family)| {
        let labels: Vec<_> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        format!("| `{name}` | {} | {} | {} |\n", family.kind, labels.join(", "), family.help)
    };
    let rows: String = whole.families.iter().map(row).collect();
    let path = file("docs/metrics.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (table, after) = rest.split_once("\n\n").unwrap();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{rows}\n{after}")).unwrap();
        return;
    }
    assert!(
        format!("{table}\n") == rows,
        "docs/metrics.md is not what is served; UPDATE_SNAPSHOTS=1 writes it:\n{rows}"
    );
    for name in each.families.keys().chain(detailed.families.keys()) {
        let name = name.replace("rabbitmq_detailed_", "rabbitmq_");
        assert!(text.contains(&format!("`{name}`")), "{name} is not documented");
    }
}

#[test]
fn rabbitmqs_dashboard_finds_all_that_it_asks_for() {
    let rabbit = Rabbit::start_with(&LISTEN);
    let reported = scrape(scraped_at(&rabbit.server), "/metrics");
    let list = std::fs::read_to_string(file("crates/server/tests/rabbitmq_overview_families.txt")).unwrap();
    let names = list.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(' ').next().unwrap());
    let asked: BTreeSet<_> = names.collect();
    assert!(asked.len() > 50);
    let missing: Vec<_> = asked.iter().copied().filter(|name| !reported.families.contains_key(*name)).collect();
    assert_eq!(missing, [""; 0]);
    // Panels join everything with these, and choose by these labels; several would be an error.
    let of = |family: &str| {
        let of_it = reported.series.keys().filter(|series| series.split('{').next() == Some(family));
        of_it.map(|series| labels(series.split_once('{').unwrap().1.trim_end_matches('}'))).collect::<Vec<_>>()
    };
    let identity = of("rabbitmq_identity_info");
    let [identity] = &identity[..] else { panic!("{identity:?}") };
    let identity: BTreeMap<_, _> = identity.iter().cloned().collect();
    let overview = rabbit.get("overview");
    assert_eq!(identity["rabbitmq_node"], overview["node"].as_str().unwrap());
    assert_eq!(identity["rabbitmq_cluster"], overview["cluster_name"].as_str().unwrap());
    assert_eq!(identity["rabbitmq_endpoint"], "aggregated");
    let build = of("rabbitmq_build_info");
    let [build] = &build[..] else { panic!("{build:?}") };
    let version = overview["rabbitmq_version"].as_str().unwrap();
    assert!(build.contains(&("rabbitmq_version".to_owned(), version.to_owned())), "{build:?}");
    let per_object = scrape(scraped_at(&rabbit.server), "/metrics/per-object");
    assert!(per_object.series.keys().any(|series| series.contains("rabbitmq_endpoint=\"per-object\"")));
    // The bounds that the panel of sizes divides by.
    for bound in ["100", "1000", "10000", "100000", "1000000", "10000000", "50000000", "100000000", "+Inf"] {
        let bucket = format!("rabbitmq_message_size_bytes_bucket{{protocol=\"amqp091\",le=\"{bound}\"}}");
        assert_eq!(reported.value(&bucket), 0.0);
    }
    assert_eq!(rabbit.manage("PUT", "cluster-name", &json!({"name": "renamed"})), 204);
    let renamed = scrape(scraped_at(&rabbit.server), "/metrics");
    assert!(renamed.series.keys().any(|series| series.contains("rabbitmq_cluster=\"renamed\"")));
}

fn declare(client: &mut Client, queue: &str, kind: &str, passive: bool) {
    let arguments = TableBuilder::new().with_text("x-queue-type", kind).build();
    let queue = queue.to_owned().into();
    let declare = QueueDeclare { queue, durable: true, passive, arguments, ..Default::default() };
    assert!(matches!(client.ask(1, declare), Method::QueueDeclareOk(_)));
}

fn publish(client: &mut Client, key: &str, mandatory: bool, body: &[u8]) {
    let routing_key = key.to_owned().into();
    client.say(1, BasicPublish { routing_key, mandatory, ..Default::default() });
    client.header(1, body.len() as u64, &BasicProperties::default());
    client.frame(3, 1, body);
}

/// Hears that the first so many messages of a channel arrived or came back, in whatever order.
fn confirmed(client: &mut Client, count: u64) {
    let mut open: BTreeSet<u64> = (1..=count).collect();
    while !open.is_empty() {
        match client.method() {
            Some((1, Method::BasicAck(ack))) if ack.multiple => open.retain(|tag| *tag > ack.delivery_tag),
            Some((1, Method::BasicAck(ack))) => _ = open.remove(&ack.delivery_tag),
            Some((1, Method::BasicReturn(_))) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn got(client: &mut Client, queue: &str, no_ack: bool) -> Option<(u64, bool)> {
    let get = BasicGet { queue: queue.to_owned().into(), no_ack, ..Default::default() };
    match client.ask(1, get) {
        Method::BasicGetOk(got) => {
            client.message();
            Some((got.delivery_tag, got.redelivered))
        }
        Method::BasicGetEmpty(_) => None,
        other => panic!("{other:?}"),
    }
}

fn consume(client: &mut Client, queue: &str, no_ack: bool) {
    let consume = BasicConsume { queue: queue.to_owned().into(), no_ack, ..Default::default() };
    assert!(matches!(client.ask(1, consume), Method::BasicConsumeOk(_)));
}

/// The tag of the next delivery.
fn delivered(client: &mut Client) -> u64 {
    let Some((1, Method::BasicDeliver(delivery))) = client.method() else { panic!("no delivery") };
    client.message();
    delivery.delivery_tag
}

/// Scrapes until families have what is expected of them, each the sum of its series: what a client said last is not answered, and what it
/// received is counted with all of its connection's turn.
fn expect(at: SocketAddr, expected: &[(&str, f64)]) -> Scrape {
    let sum = |reported: &Scrape, family: &str| reported.sum(&format!("rabbitmq_{family}"));
    for _ in 0..3_000 {
        let reported = scrape(at, "/metrics");
        if expected.iter().all(|(family, value)| sum(&reported, family) == *value) {
            return reported;
        }
    }
    let reported = scrape(at, "/metrics");
    for (family, value) in expected {
        assert_eq!(sum(&reported, family), *value, "{family}");
    }
    reported
}

/// Messages that publishers send, what becomes of them, and what of the queue of each type.
#[test]
fn what_publishers_send_is_counted_by_what_becomes_of_it() {
    let rabbit = Rabbit::start_with(&LISTEN);
    let at = scraped_at(&rabbit.server);
    let nothing =
        [("global_messages_received_total", 0.0), ("queues", 0.0), ("connections", 0.0), ("queues_created_total", 0.0)];
    expect(at, &nothing);
    let mut client = Client::open(rabbit.amqp, "guest");
    declare(&mut client, "c", "classic", false);
    declare(&mut client, "c", "classic", false);
    declare(&mut client, "c", "classic", true);
    declare(&mut client, "q", "quorum", false);
    publish(&mut client, "c", false, &[0; 101]);
    assert!(matches!(client.ask(1, ConfirmSelect::default()), Method::ConfirmSelectOk(_)));
    for (key, mandatory, body) in
        [("c", false, &b"12345"[..]), ("q", true, b"1"), ("none", false, b"1"), ("none", true, b"1")]
    {
        publish(&mut client, key, mandatory, body);
    }
    confirmed(&mut client, 4);
    let reported = expect(
        at,
        &[
            ("queue_messages_ready", 3.0),
            ("queues", 2.0),
            ("queues_declared_total", 3.0),
            ("queues_created_total", 2.0),
            ("queues_deleted_total", 0.0),
            ("connections", 1.0),
            ("connections_opened_total", 1.0),
            ("connections_closed_total", 0.0),
            ("channels", 1.0),
            ("channels_opened_total", 1.0),
            ("channels_closed_total", 0.0),
            ("global_publishers", 1.0),
            ("global_consumers", 0.0),
            ("global_messages_received_total", 5.0),
            ("channel_messages_published_total", 5.0),
            ("global_messages_received_confirm_total", 4.0),
            ("global_messages_confirmed_total", 4.0),
            ("channel_messages_confirmed_total", 4.0),
            ("channel_messages_unconfirmed", 0.0),
            ("global_messages_routed_total", 3.0),
            ("queue_messages_published_total", 3.0),
            ("global_messages_unroutable_dropped_total", 1.0),
            ("global_messages_unroutable_returned_total", 1.0),
            ("queue_messages", 3.0),
            ("queue_messages_unacked", 0.0),
            ("message_size_bytes_sum", 109.0),
            ("message_size_bytes_count", 5.0),
        ],
    );
    let up_to = |bound: &str| {
        reported.value(&format!("rabbitmq_message_size_bytes_bucket{{protocol=\"amqp091\",le=\"{bound}\"}}"))
    };
    assert_eq!((up_to("100"), up_to("1000"), up_to("+Inf")), (4.0, 5.0, 5.0));
    let each = scrape(at, "/metrics/per-object");
    assert_eq!(each.value("rabbitmq_queue_messages_ready{vhost=\"/\",queue=\"c\"}"), 2.0);
    assert_eq!(each.value("rabbitmq_queue_messages_ready{vhost=\"/\",queue=\"q\"}"), 1.0);
    // What the management API publishes counts, too, and so does what it gets.
    let message = json!({"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"});
    assert_eq!(rabbit.manage("POST", "exchanges/%2F/amq.default/publish", &message), 200);
    expect(at, &[("global_messages_received_total", 6.0), ("connections", 1.0), ("channels", 1.0)]);
}

/// A broker with a queue of each of two types and two messages in each, and their publisher.
fn filled() -> (Rabbit, Client) {
    let rabbit = Rabbit::start_with(&LISTEN);
    let mut client = Client::open(rabbit.amqp, "guest");
    declare(&mut client, "c", "classic", false);
    declare(&mut client, "q", "quorum", false);
    assert!(matches!(client.ask(1, ConfirmSelect::default()), Method::ConfirmSelectOk(_)));
    for key in ["c", "c", "q", "q"] {
        publish(&mut client, key, false, b"x");
    }
    confirmed(&mut client, 4);
    (rabbit, client)
}

#[test]
fn what_consumers_have_is_counted_by_the_way_in_which_they_have_it() {
    let (rabbit, mut client) = filled();
    let at = scraped_at(&rabbit.server);
    // One is got and comes back, one is got for good; then there is nothing.
    let (tag, _) = got(&mut client, "c", false).unwrap();
    assert!(got(&mut client, "c", true).is_some_and(|(last, redelivered)| last != tag && !redelivered));
    assert_eq!(got(&mut client, "c", true), None);
    expect(at, &[("queue_messages_unacked", 1.0), ("queue_messages_ready", 2.0)]);
    client.say(1, BasicNack { delivery_tag: tag, multiple: false, requeue: true });
    let (tag, redelivered) = got(&mut client, "c", false).unwrap();
    assert!(redelivered);
    client.say(1, BasicAck { delivery_tag: tag, multiple: false });
    consume(&mut client, "q", false);
    for _ in 0..2 {
        let tag = delivered(&mut client);
        client.say(1, BasicAck { delivery_tag: tag, multiple: false });
    }
    consume(&mut client, "c", true);
    publish(&mut client, "c", false, b"x");
    for _ in 0..2 {
        match client.method() {
            Some((1, Method::BasicDeliver(_))) => _ = client.message(),
            Some((1, Method::BasicAck(_))) => {}
            other => panic!("{other:?}"),
        }
    }
    let reported = expect(
        at,
        &[
            ("channel_messages_acked_total", 3.0),
            ("global_messages_delivered_total", 6.0),
            ("consumers", 2.0),
            ("global_consumers", 2.0),
            ("channel_consumers", 2.0),
            ("queue_consumers", 2.0),
        ],
    );
    let of = |name: &str, kind: &str| {
        let labels = format!("protocol=\"amqp091\",queue_type=\"rabbit_{kind}_queue\"");
        reported.value(&format!("rabbitmq_global_messages_{name}_total{{{labels}}}"))
    };
    for (name, old, classic, quorum) in [
        ("delivered_consume_manual_ack", "messages_delivered_ack", 0.0, 2.0),
        ("delivered_consume_auto_ack", "messages_delivered", 1.0, 0.0),
        ("delivered_get_manual_ack", "get_ack", 2.0, 0.0),
        ("delivered_get_auto_ack", "get", 1.0, 0.0),
        ("get_empty", "get_empty", 1.0, 0.0),
        ("redelivered", "messages_redelivered", 1.0, 0.0),
        ("acknowledged", "messages_acked", 1.0, 2.0),
    ] {
        assert_eq!((of(name, "classic"), of(name, "quorum"), of(name, "stream")), (classic, quorum, 0.0), "{name}");
        assert_eq!(reported.sum(&format!("rabbitmq_channel_{old}_total")), classic + quorum, "{old}");
    }
    assert_eq!((of("delivered", "classic"), of("delivered", "quorum")), (4.0, 2.0));
}

#[test]
fn what_is_gone_is_not_there_any_more() {
    let (rabbit, mut client) = filled();
    let at = scraped_at(&rabbit.server);
    consume(&mut client, "c", true);
    expect(
        at,
        &[("channels", 1.0), ("connections", 1.0), ("consumers", 1.0), ("global_publishers", 1.0), ("queues", 2.0)],
    );
    client.say(1, ChannelClose::default());
    while !matches!(client.method(), Some((1, Method::ChannelCloseOk(_)))) {}
    expect(at, &[("channels", 0.0), ("consumers", 0.0), ("global_publishers", 0.0), ("channels_closed_total", 1.0)]);
    drop(client);
    expect(
        at,
        &[
            ("connections", 0.0),
            ("connections_closed_total", 1.0),
            ("channels_closed_total", 1.0),
            ("queue_messages", 2.0),
        ],
    );
    for queue in ["c", "q"] {
        assert_eq!(rabbit.manage("DELETE", &format!("queues/%2F/{queue}"), &json!({})), 204);
    }
    let reported = expect(
        at,
        &[("queues", 0.0), ("queue_messages", 0.0), ("queues_deleted_total", 2.0), ("queue_consumers", 0.0)],
    );
    assert!(!scrape(at, "/metrics/per-object").series.keys().any(|series| series.contains("queue=\"c\"")));
    for (name, least) in [
        ("process_resident_memory_bytes", 1e6),
        ("process_open_fds", 10.0),
        ("process_max_fds", 100.0),
        ("process_max_tcp_sockets", 10_000.0),
        ("disk_space_available_limit_bytes", 1e6),
        ("resident_memory_limit_bytes", 1e7),
        ("connection_incoming_bytes_total", 500.0),
        ("connection_outgoing_bytes_total", 500.0),
    ] {
        assert!(reported.sum(&format!("rabbitmq_{name}")) >= least, "{name}");
    }
    assert!(reported.sum("rabbitmq_erlang_uptime_seconds") > 0.0);
}

/// After a start nothing has happened yet, whatever is there.
#[test]
fn queues_that_a_start_finds_are_there_and_were_not_made() {
    let dir = TempDir::new();
    let more = [&LISTEN[..], &["--listen", "amqp=127.0.0.1:0"]].concat();
    let server = Server::start(&dir.join("data"), &more);
    server.ok(&["queue", "declare", "q"]);
    expect(scraped_at(&server), &[("queues", 1.0), ("queues_created_total", 1.0)]);
    assert_eq!(server.stop(rustix::process::Signal::TERM), Some(0));
    let server = Server::start(&dir.join("data"), &more);
    expect(scraped_at(&server), &[("queues", 1.0), ("queues_created_total", 0.0), ("queues_deleted_total", 0.0)]);
}

/// The listener is held to the rules of `http`: only authorized clients read it, and there is nothing else at it.
#[test]
fn nobody_scrapes_without_a_login_where_one_is_asked_for() {
    let dir = TempDir::new();
    let more = [&LISTEN[..], &["--set", "server.login=always", "--listen", "rabbitmq-http=127.0.0.1:0"]].concat();
    let server = Server::start_with_admin(&dir.join("data"), &more);
    let at = scraped_at(&server);
    let management = server.lines.iter().find_map(|line| line.strip_prefix("rabbitmq-http listening on ")).unwrap();
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
    let made = agent.put(format!("http://{management}/api/users/ann"));
    let made = made.header("authorization", "Basic YWRtaW46YWRtaW4=").send(r#"{"password":"ann","tags":"monitoring"}"#);
    assert_eq!(made.unwrap().status().as_u16(), 201);
    let ask = |path: &str, login: &str| {
        let request = agent.get(format!("http://{at}{path}"));
        let request = if login.is_empty() { request } else { request.header("authorization", login) };
        let mut answer = request.call().unwrap();
        let kind = answer.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
        let text = answer.body_mut().read_to_string().unwrap();
        assert_eq!(text.contains("# TYPE"), answer.status() == 200, "{path} {login}: {text}");
        (answer.status().as_u16(), kind.unwrap())
    };
    for path in ["/metrics", "/metrics/per-object", "/metrics/detailed?family=node_metrics"] {
        // No login; a wrong password; `guest`, who logs in elsewhere; a user who is no administrator.
        let guest = "Basic Z3Vlc3Q6Z3Vlc3Q=";
        for (login, status) in [("", 401), ("Basic Z3Vlc3Q6eA==", 401), (guest, 401), ("Basic YW5uOmFubg==", 403)] {
            assert_eq!(ask(path, login).0, status, "{path} {login}");
        }
        assert_eq!(ask(path, "Basic YWRtaW46YWRtaW4="), (200, "text/plain; version=0.0.4; charset=utf-8".to_owned()));
    }
    for path in ["/", "/metrics/other", "/metrics/rabbitmq", "/api/v1/status", "/healthz", "/console/"] {
        assert_eq!(ask(path, "").0, 404, "{path}");
    }
    let posted = agent.post(format!("http://{at}/metrics")).header("authorization", "Basic YWRtaW46YWRtaW4=").send("");
    assert_eq!(posted.unwrap().status().as_u16(), 405);
}

/// What Celery sends: a small body, and headers that are larger.
fn task(persistent: bool) -> BasicProperties {
    let headers = TableBuilder::new()
        .with_text("lang", "py")
        .with_text("task", "tasks.add")
        .with_text("id", "4f2c5f1c-6a0e-4d1b-9a63-0f4bb7a6f7f1")
        .with_text("origin", "gen2718@worker.example")
        .with_text("argsrepr", "(2, 3)")
        .build();
    BasicProperties { headers: Some(headers), delivery_mode: Some(1 + u8::from(persistent)), ..Default::default() }
}

/// With a limit of 10,000 bytes 23 such messages were kept, because what is stored with a body was counted; RabbitMQ keeps 123.
#[test]
fn limits_and_sizes_of_queues_count_bodies() {
    let rabbit = Rabbit::start_with(&LISTEN);
    let at = scraped_at(&rabbit.server);
    let mut client = Client::open(rabbit.amqp, "guest");
    let limit = json!({"x-max-length-bytes": 10_000});
    let limited =
        |kind: &str| json!({"durable": true, "arguments": {"x-queue-type": kind, "x-max-length-bytes": 10_000}});
    for kind in ["classic", "quorum"] {
        assert_eq!(rabbit.manage("PUT", &format!("queues/%2F/{kind}"), &limited(kind)), 201);
    }
    let policy = json!({"pattern": "^by-policy$", "definition": {"max-length-bytes": 10_000}});
    assert_eq!(rabbit.manage("PUT", "policies/%2F/p", &policy), 201);
    let operator = json!({"pattern": "^by-operator$", "definition": {"max-length-bytes": 10_000}});
    assert_eq!(rabbit.manage("PUT", "operator-policies/%2F/o", &operator), 201);
    declare(&mut client, "by-policy", "classic", false);
    declare(&mut client, "by-operator", "quorum", false);
    let brief = json!({"durable": false, "arguments": limit});
    assert_eq!(rabbit.manage("PUT", "queues/%2F/brief", &brief), 201);
    assert!(matches!(client.ask(1, ConfirmSelect::default()), Method::ConfirmSelectOk(_)));
    let queues = ["classic", "quorum", "by-policy", "by-operator", "brief"];
    for queue in queues {
        (0..150).for_each(|n| client.publish("", queue, &task(n % 2 == 0), &[b'x'; 81]));
    }
    confirmed(&mut client, 150 * queues.len() as u64);
    let of = |queue: &str| {
        let reported = rabbit.get(&format!("queues/%2F/{queue}"));
        let number = |name: &str| reported[name].as_u64().unwrap();
        let bytes = ["", "_ready", "_unacknowledged", "_persistent", "_ram"]
            .map(|name| number(&format!("message_bytes{name}")));
        (number("messages"), bytes, number("messages_persistent"))
    };
    const ALL: u64 = 123 * 81;
    // Of the last 123 of 150 the even ones are persistent.
    assert_eq!(of("classic"), (123, [ALL, ALL, 0, 61 * 81, 0], 61));
    assert_eq!(of("by-policy"), of("classic"));
    assert_eq!(of("quorum"), (123, [ALL, ALL, 0, ALL, 0], 123));
    assert_eq!(of("by-operator"), of("quorum"));
    assert_eq!(of("brief"), (123, [ALL, ALL, 0, 0, 0], 0));
    for queue in ["classic", "quorum"] {
        assert!(got(&mut client, queue, false).is_some() && got(&mut client, queue, false).is_some());
        assert_eq!(of(queue).1[..3], [ALL, ALL - 162, 162], "{queue}");
    }
    let persistent = (2 * 61 + 2 * 123) as f64;
    expect(
        at,
        &[
            ("queue_messages_bytes", 5.0 * ALL as f64),
            ("queue_messages_ready_bytes", 5.0 * ALL as f64 - 324.0),
            ("queue_messages_unacked_bytes", 324.0),
            ("queue_messages_persistent", persistent),
            ("queue_messages_persistent_bytes", persistent * 81.0),
        ],
    );
}
