//! `polylogue backup` and `polylogue restore` of the real binary: taken under load, checked, served and read; and what goes wrong with them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests of real processes and files")]

use crate::common;

use common::amqp::{Amqp, Came};
use common::kafka::Kafka;
use common::load::{Producer, commit_until};
use common::oracle::{Oracle, Partition, Reading};
use common::{Place, seed};
use polylogue_amqp::codec::Method;
use polylogue_faultfs::Injector;
use polylogue_testkit::{Result, Server, polylogue, run, serve, wait_until};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Small files and frequent checkpoints: backups meet merges and checkpoints.
const SETTINGS: &[&str] = &[
    "log.journal_file_bytes=4MiB",
    "log.checkpoint_bytes_max=1MiB",
    "log.merge_bytes=4MiB",
    "log.disk_reserve_bytes=16MiB",
];
const SYNC: &str = "sync";
const ASYNC: &str = "async";
const GROUP: &str = "group";
/// How long something may take. Seconds.
const SECS: u64 = 120;
/// Acknowledgements before a backup.
const ACKS: u64 = 10_000;
/// When nothing comes for so long, a queue is empty.
const QUIET: Duration = Duration::from_secs(1);

fn printed(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn url(server: &Server) -> String {
    format!("http://{}", server.http().unwrap())
}

/// What a command says, which has to be a success.
fn succeed(args: &[&str]) -> String {
    let output = run(args).unwrap();
    assert!(output.status.success(), "{args:?}: {}", printed(&output));
    printed(&output)
}

/// What a command says, which has to fail.
fn fail(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{command:?} succeeded");
    printed(&output)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Publishes so many messages, whose bodies are their numbers, and waits for their confirms.
fn publish(amqp: &mut Amqp, numbers: std::ops::Range<u64>) {
    // The channel counts from 1.
    let mut open: BTreeSet<u64> = numbers.clone().map(|number| number + 1).collect();
    numbers.for_each(|number| amqp.publish("q", number.to_string().as_bytes()));
    amqp.flush().unwrap();
    while !open.is_empty() {
        match amqp.wait(Duration::from_secs(SECS)).unwrap() {
            Some(Came::Method(Method::BasicAck(ack))) => {
                open.retain(|tag| if ack.multiple { *tag > ack.delivery_tag } else { *tag != ack.delivery_tag });
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Everything that comes from a queue until it is empty; nothing is acknowledged.
fn drained(server: &Server) -> BTreeSet<u64> {
    let mut amqp = Amqp::connect(server.amqp().unwrap()).unwrap();
    amqp.consume("q", 0).unwrap();
    let mut found = BTreeSet::new();
    while let Some(came) = amqp.wait(QUIET).unwrap() {
        let Came::Message(message) = came else { panic!("{came:?}") };
        found.insert(String::from_utf8(message.body.to_vec()).unwrap().parse().unwrap());
    }
    found
}

/// Serves a copy, and holds it against what it must have.
fn verify(place: &Place, copy: &Path, expected: &mut Oracle, queued: &BTreeSet<u64>) -> Result<()> {
    let mut command = serve(copy)?;
    command.args(["--listen", "amqp=127.0.0.1:0"]);
    let server = place.start(command)?;
    expected.verify(&mut Kafka::connect(server.kafka())?, GROUP, SYNC, Reading::All)?;
    let found = drained(&server);
    let lost: Vec<_> = queued.difference(&found).take(5).collect();
    if !lost.is_empty() {
        return Err(format!("messages of the queue are lost: {lost:?} ..."));
    }
    let users = succeed(&["user", "list", "--server", &url(&server)]);
    if !users.contains("alice") {
        return Err(format!("a user is lost: {users}"));
    }
    server.terminate()
}

#[test]
fn what_was_acknowledged_before_a_backup_under_load_is_in_it() {
    let (place, seed) = (Place::new("backup"), seed());
    let mut command = place.serve(SETTINGS);
    command.args(["--listen", "amqp=127.0.0.1:0"]);
    let server = place.start(command).unwrap();
    let mut kafka = Kafka::connect(server.kafka()).unwrap();
    kafka.create_topic(SYNC, 2, &[]).unwrap();
    kafka.create_topic(ASYNC, 1, &[("polylogue.durability", "async")]).unwrap();
    succeed(&["user", "set", "alice", "--server", &url(&server)]);
    let mut amqp = Amqp::connect(server.amqp().unwrap()).unwrap();
    amqp.declare("q", &[("x-queue-type", "quorum")]).unwrap();
    amqp.confirm().unwrap();
    // Has some messages and does not settle them.
    let mut holder = Amqp::connect(server.amqp().unwrap()).unwrap();
    holder.consume("q", 20).unwrap();
    let partitions: [Partition; 3] = [(SYNC, 0), (SYNC, 1), (ASYNC, 0)];
    let mut oracle = Oracle::default();
    let mut producers: Vec<_> = (0..6u32)
        .map(|id| {
            let (partition, idempotent) = (partitions[id as usize % 3], id < 3);
            oracle.add_sender(id, partition, idempotent);
            Producer::new(id, partition, idempotent, seed)
        })
        .collect();
    let (oracle, stop, to) = (Mutex::new(oracle), AtomicBool::new(false), server.kafka());
    let mut taken = Vec::new();
    std::thread::scope(|scope| {
        let (oracle, stop) = (&oracle, &stop);
        let mut running: Vec<_> = producers.iter_mut().map(|p| scope.spawn(move || p.live(to, oracle, stop))).collect();
        running.push(scope.spawn(move || commit_until(to, GROUP, SYNC, oracle, stop)));
        for nth in 0..2 {
            let enough = oracle.lock().unwrap().acknowledgements + ACKS;
            wait_until("acknowledgements", SECS, || {
                Ok((oracle.lock().unwrap().acknowledgements >= enough).then_some(()))
            })
            .unwrap();
            publish(&mut amqp, nth * 100..(nth + 1) * 100);
            let copy = place.root.join(&format!("copy-{nth}"));
            let before = oracle.lock().unwrap().clone();
            let said = succeed(&["backup", text(&copy), "--server", &url(&server)]);
            let after = oracle.lock().unwrap().clone();
            assert!(said.starts_with("backed up ") && said.ends_with(&format!("to {}\n", copy.display())), "{said}");
            taken.push((copy, before.between(&after), (0..(nth + 1) * 100).collect::<BTreeSet<_>>()));
        }
        stop.store(true, Ordering::Relaxed);
        running.into_iter().for_each(|client| client.join().unwrap().unwrap());
    });
    server.terminate().unwrap();
    for (copy, expected, queued) in &mut taken {
        succeed(&["check", text(copy)]);
        // Put elsewhere it is the same: the copy itself stays as it was.
        let data = place.root.join("restored");
        let said = succeed(&["restore", text(copy), text(&data)]);
        assert!(said.starts_with("restored "), "{said}");
        verify(&place, &data, expected, queued)
            .unwrap_or_else(|e| panic!("POLYLOGUE_SEED={seed}: {}: {e}", copy.display()));
        let again = fail(polylogue().unwrap().args(["restore", text(copy), text(&data)]));
        assert!(again.contains("is not empty"), "{again}");
        std::fs::remove_dir_all(&data).unwrap();
        verify(&place, copy, expected, queued)
            .unwrap_or_else(|e| panic!("POLYLOGUE_SEED={seed}: {}: {e}", copy.display()));
    }
}

/// A server with a password and some MiB of messages, whose backups take their time.
fn slow(place: &Place) -> Server {
    let mut command = place.serve(&["server.login=always", "log.backup_bytes_per_sec=1MiB"]);
    command.env("POLYLOGUE_ADMIN_PASSWORD", "correct").args(["--set", "log.disk_reserve_bytes=16MiB"]);
    place.start(command).unwrap()
}

fn backup(server: &Server, to: &Path, password: &str) -> Command {
    let mut command = polylogue().unwrap();
    command.args(["backup", text(to), "--server", &url(server), "--user", "admin"]);
    command.env("POLYLOGUE_PASSWORD", password);
    command
}

/// Fills the data directory, so that a backup at the slowest pace takes many seconds.
fn fill(server: &Server) {
    let admin = |command: &mut Command| {
        command.args(["--user", "admin"]).env("POLYLOGUE_PASSWORD", "correct").output().unwrap()
    };
    let made = admin(polylogue().unwrap().args(["topic", "create", "t", "--server", &url(server)]));
    assert!(made.status.success(), "{}", printed(&made));
    let mut produce = polylogue().unwrap();
    produce.args(["produce", "t", "--bootstrap", &server.kafka().to_string(), "--user", "admin"]);
    let mut produce = produce.env("POLYLOGUE_PASSWORD", "correct").stdin(Stdio::piped()).spawn().unwrap();
    let line = format!("{}\n", "x".repeat(999));
    std::io::Write::write_all(&mut produce.stdin.take().unwrap(), line.repeat(30_000).as_bytes()).unwrap();
    assert!(produce.wait().unwrap().success());
}

/// Begins a backup, as soon as the server has noticed that the client of the one before is gone.
fn begin(server: &Server, to: &Path, partial: &Path) -> Child {
    let begun = wait_until("the end of the backup before", SECS, || {
        let mut next = backup(server, to, "correct").stderr(Stdio::piped()).spawn().map_err(|e| e.to_string())?;
        let begun = wait_until("its beginning or its end", SECS, || {
            let ended = next.try_wait().map_err(|e| e.to_string())?.is_some();
            Ok((ended || partial.exists()).then_some(!ended))
        })?;
        Ok(begun.then_some(next))
    });
    begun.unwrap()
}

#[test]
fn a_backup_that_may_not_be_or_breaks_leaves_nothing_behind() {
    let place = Place::new("backup-breaks");
    let server = slow(&place);
    let to = place.root.join("copy");
    let partial = place.root.join("copy.partial");
    let refused = fail(&mut backup(&server, &to, "wrong"));
    assert!(refused.contains("the name or the password is wrong"), "{refused}");
    // A user who is not an administrator may not either.
    let mut made = polylogue().unwrap();
    made.args(["user", "set", "bob", "--password", "--server", &url(&server), "--user", "admin"]);
    let mut made = made.env("POLYLOGUE_PASSWORD", "correct").stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut made.stdin.take().unwrap(), b"secret\n").unwrap();
    assert!(made.wait().unwrap().success());
    let mut as_bob = polylogue().unwrap();
    as_bob.args(["backup", text(&to), "--server", &url(&server), "--user", "bob"]);
    let refused = fail(as_bob.env("POLYLOGUE_PASSWORD", "secret"));
    assert!(refused.contains("not an administrator"), "{refused}");
    assert!(!partial.exists());
    // No room where it is written: the injector's.
    let injector = Injector::new(&place.root.join("full"), place.root.path()).unwrap();
    injector.set(&["fail_write=ENOSPC"]).unwrap();
    let full = place.root.join("full").join("copy");
    let mut command = backup(&server, &full, "correct");
    injector.preload_without_log(&mut command);
    let refused = fail(&mut command);
    assert!(refused.contains("No space left") && !refused.contains("connection"), "{refused}");
    assert!(!full.exists() && !place.root.join("full").join("copy.partial").exists());
    std::fs::create_dir(&to).unwrap();
    let refused = fail(&mut backup(&server, &to, "correct"));
    assert!(refused.contains("exists already"), "{refused}");
    std::fs::remove_dir(&to).unwrap();
    fill(&server);
    let mut first = backup(&server, &to, "correct").stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the first bytes", SECS, || Ok(partial.exists().then_some(()))).unwrap();
    let other = place.root.join("other");
    let refused = fail(&mut backup(&server, &other, "correct"));
    assert!(refused.contains("there is one at a time"), "{refused}");
    assert!(!other.exists() && !place.root.join("other.partial").exists());
    // What is not whole is no data directory.
    let refused = fail(serve(&partial).unwrap().stdin(Stdio::null()));
    assert!(refused.contains("is not a polylogue data directory"), "{refused}");
    server.kill().unwrap();
    assert!(!first.wait().unwrap().success());
    assert!(!to.exists() && !partial.exists());
    // It holds nothing, and the next one may begin.
    let server = slow(&place);
    let mut cut = begin(&server, &to, &partial);
    // One that is asked to end tidies up; one that is killed cannot.
    let mut asked = Command::new("sh");
    assert!(asked.arg("-c").arg(format!("kill -TERM {}", cut.id())).status().unwrap().success());
    assert!(!cut.wait().unwrap().success());
    assert!(!to.exists() && !partial.exists());
    let mut cut = begin(&server, &to, &partial);
    cut.kill().unwrap();
    cut.wait().unwrap();
    assert!(!to.exists() && partial.exists());
    let refused = fail(&mut backup(&server, &to, "correct"));
    assert!(refused.contains("left by an aborted backup"), "{refused}");
    std::fs::remove_dir_all(&partial).unwrap();
    let mut next = begin(&server, &to, &partial);
    next.kill().unwrap();
    next.wait().unwrap();
    server.terminate().unwrap();
}
