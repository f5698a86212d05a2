//! Health checks: 200 with `{"status": "ok"}`, or 503 with `{"status": "failed", "reason": ...}`.

use super::answer::Answer;
use super::ask::Asker;
use super::call::Call;
use super::error::Failure;
use super::overview::{LOOK, listeners};
use super::{Verb, messages, queues};
use polylogue_amqp::request::Verdict;
use serde_json::{Value, json};

/// The queue of the aliveness test, which is not deleted.
const ALIVENESS_QUEUE: &str = "aliveness-test";

pub(super) async fn serve(call: &Call<'_>, path: &[&str]) -> Result<Answer, Failure> {
    if call.verb != Verb::Get {
        return Err(Failure::method_not_allowed(LOOK));
    }
    match path {
        ["aliveness-test", vhost] => aliveness(call, vhost).await,
        ["healthchecks", "node"] => healthy(call),
        ["healthchecks", "node", name] if *name == call.app.node() => healthy(call),
        ["health", "checks", rest @ ..] => check(call, rest),
        _ => Err(Failure::not_found()),
    }
}

fn healthy(call: &Call<'_>) -> Result<Answer, Failure> {
    call.monitor()?;
    Ok(Answer::One(json!({"status": "ok"})))
}

fn check(call: &Call<'_>, path: &[&str]) -> Result<Answer, Failure> {
    match path {
        ["alarms" | "local-alarms"] => {
            call.monitor()?;
            let (disk, memory) = (call.app.broker.health().disk_alarm, call.app.net.memory.alarm());
            let alarms = [("disk", disk), ("memory", memory)].into_iter();
            let alarms = alarms.filter_map(|(resource, why)| {
                Some(json!({"node": call.app.node(), "resource": resource, "reason": why?}))
            });
            let alarms: Vec<Value> = alarms.collect();
            if alarms.is_empty() {
                return healthy(call);
            }
            let reason = "There are alarms in effect in the cluster";
            Err(Failure::unhealthy(reason, Some(("alarms", alarms.into()))))
        }
        ["port-listener", port] => port_listener(call, port),
        ["protocol-listener", protocol] => protocol_listener(call, protocol),
        // There is one node: no quorum can be lost, metadata is recovered before requests are served, and no certificate is renewed.
        ["virtual-hosts" | "node-is-quorum-critical" | "node-is-mirror-sync-critical" | "is-in-service"]
        | ["ready-to-serve-clients" | "below-node-connection-limit" | "quorum-queues-without-elected-leaders"]
        | ["metadata-store", "initialized"]
        | ["metadata-store", "initialized", "with-data"]
        | ["quorum-queues-without-elected-leaders", ..]
        | ["certificate-expiration", _, _] => healthy(call),
        _ => Err(Failure::not_found()),
    }
}

fn port_listener(call: &Call<'_>, port: &str) -> Result<Answer, Failure> {
    call.monitor()?;
    let port: u16 = port.parse().map_err(|_| Failure::bad("Invalid port"))?;
    let ports: Vec<u16> = listeners(call).into_iter().map(|(_, (_, port))| port).collect();
    match ports.contains(&port) {
        true => Ok(Answer::One(json!({"status": "ok", "port": port}))),
        false => Err(Failure::unhealthy("No active listener", Some(("missing", Value::from(port))))),
    }
}

/// Whether `asked` is one of the names of the listener's protocol.
fn same_protocol(asked: &str, listener: &str) -> bool {
    let names: &[&str] = match listener {
        "amqp" => &["amqp", "amqp091", "amqp-091", "amqp0.9.1", "AMQP"],
        "http" => &["http", "HTTP", "management", "rabbitmq_management"],
        _ => &[],
    };
    asked == listener || names.contains(&asked)
}

fn protocol_listener(call: &Call<'_>, asked: &str) -> Result<Answer, Failure> {
    call.monitor()?;
    let there = listeners(call);
    match there.iter().any(|(_, (name, _))| same_protocol(asked, name)) {
        true => Ok(Answer::One(json!({"status": "ok", "protocol": asked}))),
        false => Err(Failure::unhealthy("No active listener", Some(("missing", Value::from(asked))))),
    }
}

/// Declares a queue, publishes a message and gets it.
async fn aliveness(call: &Call<'_>, vhost: &str) -> Result<Answer, Failure> {
    let vhost = call.vhost(vhost)?;
    let mut asker = Asker::new(call, vhost);
    let queue = messages::short(ALIVENESS_QUEUE)?;
    asker.declare(queues::declare(queue.clone(), false, false, polylogue_amqp::codec::Table::EMPTY)).await?;
    let sent = messages::plain(ALIVENESS_QUEUE, b"test_message")?;
    if !messages::publish(&mut asker, sent).await? {
        return Err(Failure::unhealthy("the message reached no queue", None));
    }
    let mut got = asker.gets();
    let came = messages::get(&mut got, &queue).await?;
    got.settle(Verdict::Ack);
    match came {
        Some(_) => Ok(Answer::One(json!({"status": "ok"}))),
        None => Err(Failure::unhealthy("the message did not come back", None)),
    }
}
