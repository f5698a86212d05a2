//! `polylogue doctor`: reports common problems, and collects data for a bug report.

use super::Failure;
use super::args::DoctorArgs;
use super::output::{Out, bytes};
use crate::client::ClientError;
use crate::client::http::HttpClient;
use polylogue_admin::api::access::{User, Users};
use polylogue_admin::api::clients::Connections;
use polylogue_admin::api::{FailureStatus, Groups, Options, Status, Topics};
use polylogue_amqp_gateway::{ADMINISTRATOR, FIRST_USER};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The name of a report without its number and `.json`.
const REPORT: &str = "polylogue-doctor";
/// Reports in one directory at most.
const REPORTS_MAX: u32 = 1_000;
/// The name of standard output.
const STANDARD_OUTPUT: &str = "-";

/// Free disk space below which a warning is reported. Bytes.
const DISK_FREE_BYTES_MIN: u64 = 10 << 30;
/// Average flush time above which a warning is reported. Nanoseconds.
const FLUSH_NS_MAX: u64 = 20_000_000;
/// The minimum number of flushes for an average.
const FLUSHES_MIN: u64 = 100;

/// The severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    /// The server does not work as it should.
    Bad,
    /// A problem is likely.
    Warning,
}

/// A finding for the operator.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Finding {
    level: Level,
    text: String,
    /// What to do.
    advice: String,
}

impl Finding {
    fn new(level: Level, text: impl Into<String>, advice: &str) -> Finding {
        Finding { level, text: text.into(), advice: advice.to_owned() }
    }
}

pub(super) fn run(args: &DoctorArgs, out: &Out) -> Result<(), Failure> {
    let client = args.at.client();
    let (server, findings) = match client.get::<Status>("/status") {
        Ok(status) => {
            let mut findings = findings_of(&status);
            findings.extend(guest(&client.get("/users")?, &client.get("/config")?));
            (server(&client, &status, args.names)?, findings)
        }
        Err(error) => {
            let advice = "check that it runs, the address of its http listener (--server), and whether it requires a login (--user)";
            (Value::Null, vec![Finding::new(Level::Bad, error.message, advice)])
        }
    };
    let report = json!({
        "polylogue": env!("CARGO_PKG_VERSION"),
        "machine": machine(),
        "server": server,
        "findings": findings,
    });
    let is_bad = findings.iter().any(|finding| finding.level == Level::Bad);
    let ending = if is_bad { Err(Failure::Reported) } else { Ok(()) };
    if args.out.as_deref() == Some(Path::new(STANDARD_OUTPUT)) {
        out.line(&format!("{report:#}"))?;
        return ending;
    }
    let (mut file, path) = report_file(args.out.as_deref())?;
    writeln!(file, "{report:#}")?;
    if out.json {
        out.value(&json!({ "report": path.display().to_string(), "findings": findings }))?;
    } else {
        for Finding { level, text, advice } in &findings {
            let level = match level {
                Level::Bad => out.red("bad"),
                Level::Warning => out.bold("warning"),
            };
            out.line(&format!("{level}: {text}\n  {}", out.dim(advice)))?;
        }
        if findings.is_empty() {
            out.line("no problems found")?;
        }
        out.line(&format!("the report is in {}: read it before you share it", path.display()))?;
    }
    ending
}

/// Creates the file for the report: the given one, or one with a free name.
fn report_file(given: Option<&Path>) -> Result<(File, PathBuf), Failure> {
    let create = |path: &Path| OpenOptions::new().write(true).create_new(true).open(path);
    let failed = |path: &Path, e: std::io::Error| {
        Failure::Other(format!("{}: {e}; choose another file with --out", path.display()))
    };
    if let Some(path) = given {
        return create(path).map(|file| (file, path.to_owned())).map_err(|e| failed(path, e));
    }
    for number in 1..=REPORTS_MAX {
        let path = match number {
            1 => PathBuf::from(format!("{REPORT}.json")),
            more => PathBuf::from(format!("{REPORT}-{more}.json")),
        };
        match create(&path) {
            Ok(file) => return Ok((file, path)),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && number < REPORTS_MAX => {}
            Err(e) => return Err(failed(&path, e)),
        }
    }
    Err(Failure::Other(format!("there are {REPORTS_MAX} reports here: choose another file with --out")))
}

/// Collects the server's status. Names are included only on request: they may be confidential.
fn server(client: &HttpClient, status: &Status, names: bool) -> Result<Value, ClientError> {
    let options: Options = client.get("/config")?;
    let changed = options.options.iter().filter(|option| option.source != "default");
    let changed: BTreeMap<&str, &str> = changed.map(|option| (option.name.as_str(), option.value.as_str())).collect();
    let connections: Connections = client.get("/connections")?;
    let mut software: BTreeMap<String, u64> = BTreeMap::new();
    for one in &connections.connections {
        *software.entry(format!("{} {}", one.protocol, one.software.as_deref().unwrap_or("?"))).or_default() += 1;
    }
    let metrics = client.text_of("/metrics")?;
    let metrics: Vec<&str> = metrics.lines().filter(|line| !line.starts_with('#')).collect();
    let mut server = json!({
        "status": status,
        "options": changed,
        "connections": software,
        "metrics": metrics,
    });
    if names {
        let (topics, groups): (Topics, Groups) = (client.get("/topics")?, client.get("/groups")?);
        let users: Users = client.get("/users")?;
        server["topics"] = json!(topics.topics);
        server["groups"] = json!(groups.groups);
        server["users"] = json!(users.users);
    }
    Ok(server)
}

/// Describes the machine, from /proc.
fn machine() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let (memory, processor) = (read("/proc/meminfo"), read("/proc/cpuinfo"));
    let pressure = |what: &str| read(&format!("/proc/pressure/{what}")).lines().next().map(ToOwned::to_owned);
    json!({
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "processor": field(&processor, "model name"),
        "cores": std::thread::available_parallelism().map_or(0, |cores| cores.get()),
        "memory": field(&memory, "MemTotal"),
        "memory_available": field(&memory, "MemAvailable"),
        "swap": field(&memory, "SwapTotal"),
        "load": read("/proc/loadavg").trim(),
        "pressure": {"cpu": pressure("cpu"), "io": pressure("io"), "memory": pressure("memory")},
        "descriptors_of_this_shell": field_of_limits(&read("/proc/self/limits")),
    })
}

/// Returns the limit on open files of a process started from this shell.
fn field_of_limits(limits: &str) -> Option<String> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next().map(ToOwned::to_owned)
}

/// Returns the problems that the status shows.
/// Returns what does not work as it should, each with what to do.
pub(super) fn problems(status: &Status) -> Vec<(String, String)> {
    let bad = findings_of(status).into_iter().filter(|finding| finding.level == Level::Bad);
    bad.map(|Finding { text, advice, .. }| (text, advice)).collect()
}

fn findings_of(status: &Status) -> Vec<Finding> {
    let mut all = Vec::new();
    let figure = |name: &str| status.figures.get(name).copied().unwrap_or(0);
    let mut add = |level, text: String, advice: &str| all.push(Finding::new(level, text, advice));
    if !status.ready {
        add(Level::Bad, "the server is not ready: it is starting or stopping".to_owned(), "see the end of its log");
    }
    if let Some(why) = &status.refuses_writes {
        add(Level::Bad, format!("messages are refused: {why}"), "free disk space, or shorten the retention of topics");
    }
    if let Some(why) = &status.disk_alarm {
        add(Level::Bad, format!("publishers to queues are blocked: {why}"), "free disk space");
    }
    if let Some(why) = &status.memory_alarm {
        let text = format!("publishers to queues are blocked: {why}");
        add(Level::Bad, text, "see docs/operating.md about memory");
    }
    if figure("store_fenced") + figure("store_segments_lost") > 0 {
        let text =
            format!("{} ranges and {} segments cannot be read", figure("store_fenced"), figure("store_segments_lost"));
        add(
            Level::Bad,
            text,
            "they are damaged on disk: see docs/troubleshooting.md about `polylogue check` and `polylogue repair`",
        );
    }
    if figure("writers_lost") > 0 {
        let advice = "it gets a new one when its pending writes are resolved; if it does not, see the server's log and restart it";
        add(Level::Bad, "a journal has lost its writer".to_owned(), advice);
    }
    for (what, FailureStatus { count, last }) in &status.failures {
        let text = format!("background work failed {count} times: {what}: {last}");
        add(Level::Warning, text, "see docs/troubleshooting.md");
    }
    if let Some(free) = status.disk_free_bytes.filter(|free| *free < DISK_FREE_BYTES_MIN) {
        add(
            Level::Warning,
            format!("{} of disk space are free", bytes(free)),
            "free disk space before messages are refused",
        );
    }
    let flushes = figure("journal_flushes");
    let flush_ns = figure("journal_flush_nanoseconds").checked_div(flushes).unwrap_or(0);
    if flushes >= FLUSHES_MIN && flush_ns > FLUSH_NS_MAX {
        let text = format!("a flush takes {} ms on average", flush_ns / 1_000_000);
        add(
            Level::Warning,
            text,
            "every acknowledgement waits for a flush: a faster disk, or topics with durability=async",
        );
    }
    for one in status.listeners.iter().filter(|one| !one.tls && !is_loopback(&one.bound)) {
        let text = format!("{} listens at {} without TLS", one.protocol, one.bound);
        add(Level::Warning, text, "passwords and messages can be read by others on the network: see docs/security.md");
    }
    all
}

/// Returns a finding if guest, whose password is well known, may log in although there is an administrator.
fn guest(users: &Users, options: &Options) -> Option<Finding> {
    let is_off = options.options.iter().any(|option| option.name == "server.guest" && option.value == "off");
    let is_there = users.users.iter().any(|user| user.name == FIRST_USER);
    let is_administrator = |user: &User| user.name != FIRST_USER && user.tags.iter().any(|tag| tag == ADMINISTRATOR);
    let found = is_there && !is_off && users.users.iter().any(is_administrator);
    found.then(|| {
        let text = "the user guest, whose password is public, logs in over amqp and rabbitmq-http from this machine";
        let advice = "there is an administrator: `polylogue user delete guest`, or server.guest = off";
        Finding::new(Level::Warning, text, advice)
    })
}

fn is_loopback(bound: &str) -> bool {
    let host = bound.rsplit_once(':').map_or(bound, |(host, _)| host);
    host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use polylogue_admin::api::ListenerStatus;

    fn status() -> Status {
        let listener = |bound: &str, tls| ListenerStatus {
            protocol: "kafka".to_owned(),
            tls,
            bound: bound.to_owned(),
            advertised: None,
        };
        Status {
            version: "1".to_owned(),
            cluster_id: "c".to_owned(),
            node: 1,
            ready: true,
            refuses_writes: None,
            uptime_ms: 1,
            connections: 0,
            topics: 0,
            partitions: 0,
            listeners: vec![
                listener("127.0.0.1:9092", false),
                listener("[::1]:9092", false),
                listener("0.0.0.0:9093", true),
            ],
            protocols: Vec::new(),
            stages: Vec::new(),
            disk_free_bytes: Some(DISK_FREE_BYTES_MIN),
            disk_alarm: None,
            memory_alarm: None,
            memory_bytes: 0,
            failures: BTreeMap::new(),
            figures: [("journal_flushes".to_owned(), 200), ("journal_flush_nanoseconds".to_owned(), 200_000_000)]
                .into(),
        }
    }

    #[test]
    fn a_server_that_is_well_has_nothing_found() {
        assert_eq!(findings_of(&status()), []);
    }

    #[test]
    fn each_thing_that_is_wrong_is_found() {
        let found = |change: fn(&mut Status)| {
            let mut status = status();
            change(&mut status);
            let all = findings_of(&status);
            assert_eq!(all.len(), 1, "{all:?}");
            (all[0].level, all[0].text.clone())
        };
        let bad = |text: &str| (Level::Bad, text.to_owned());
        let warning = |text: &str| (Level::Warning, text.to_owned());
        assert_eq!(found(|s| s.ready = false), bad("the server is not ready: it is starting or stopping"));
        assert_eq!(found(|s| s.refuses_writes = Some("full".into())), bad("messages are refused: full"));
        assert_eq!(found(|s| s.disk_alarm = Some("low".into())), bad("publishers to queues are blocked: low"));
        assert_eq!(found(|s| s.memory_alarm = Some("much".into())), bad("publishers to queues are blocked: much"));
        let fenced = |s: &mut Status| *s.figures.entry("store_fenced".into()).or_default() = 2;
        assert_eq!(found(fenced), bad("2 ranges and 0 segments cannot be read"));
        let lost = |s: &mut Status| *s.figures.entry("writers_lost".into()).or_default() = 1;
        assert_eq!(found(lost), bad("a journal has lost its writer"));
        let failed = |s: &mut Status| {
            let full = FailureStatus { count: 3, last: "no room".to_owned() };
            s.failures.insert("merge".to_owned(), full);
        };
        assert_eq!(found(failed), warning("background work failed 3 times: merge: no room"));
        assert_eq!(found(|s| s.disk_free_bytes = Some(1 << 30)), warning("1.0 GiB of disk space are free"));
        let slow = |s: &mut Status| *s.figures.entry("journal_flush_nanoseconds".into()).or_default() = 6_000_000_000;
        assert_eq!(found(slow), warning("a flush takes 30 ms on average"));
        let open = |s: &mut Status| s.listeners[0].bound = "0.0.0.0:9092".into();
        assert_eq!(found(open), warning("kafka listens at 0.0.0.0:9092 without TLS"));
    }

    #[test]
    fn guest_is_found_beside_an_administrator() {
        let found = |users: serde_json::Value, policy: &str| {
            let option = json!({"name": "server.guest", "value": policy, "default": "auto", "source": "file", "kind": "",
                "variable": "", "doc": ""});
            let options = json!({"options": [option]});
            let (users, options) = (json!({ "users": users }), serde_json::from_value(options).unwrap());
            guest(&serde_json::from_value(users).unwrap(), &options).is_some()
        };
        let user = |name: &str, tags: &[&str]| json!({"name": name, "tags": tags, "mechanisms": []});
        let [public, admin] = ["guest", "admin"].map(|name| user(name, &["administrator"]));
        assert!(found(json!([public, admin]), "auto") && found(json!([user("guest", &[]), admin]), "on"));
        assert!(!found(json!([public, admin]), "off") && !found(json!([public, user("ann", &["monitoring"])]), "auto"));
        assert!(!found(json!([admin]), "auto"));
    }

    #[test]
    fn limits_are_read() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 4096                 files\n";
        assert_eq!(field_of_limits(limits).as_deref(), Some("1024"));
        assert_eq!(field_of_limits(""), None);
    }
}
