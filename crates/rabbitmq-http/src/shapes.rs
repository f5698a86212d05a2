//! JSON representations of objects.

use super::call::Call;
use super::target::encode;
use polylogue_amqp_gateway::View;
use polylogue_amqp_model::{Policy, Queue, QueueKind, User, Vhost, arguments_digest, json_of_arguments};
use polylogue_api::QueueCounts;
use polylogue_router::{Argument, Binding, Destination, Exchange, VhostId};
use serde_json::{Map, Value, json};

/// Converts a name from the wire to a string.
pub(super) fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Merges fields into an object.
pub(super) fn with(mut object: Value, fields: Value) -> Value {
    if let (Value::Object(object), Value::Object(fields)) = (&mut object, fields) {
        object.extend(fields);
    }
    object
}

/// Returns a rate of 0: it is not measured. Requested samples contain the current value only.
fn details(call: &Call<'_>, now: u64) -> Value {
    if call.query.get("lengths_age").is_none() {
        return json!({"rate": 0.0});
    }
    let sample = json!({"sample": now, "timestamp": call.app.broker.now().wall_ms});
    json!({"rate": 0.0, "avg_rate": 0.0, "avg": now, "samples": [sample]})
}

/// Returns the message counts of a queue, a virtual host or the overview.
pub(super) fn totals(call: &Call<'_>, counts: &QueueCounts) -> Value {
    let ready = counts.ready + counts.delayed;
    let held = counts.held + counts.dead;
    json!({
        "messages": ready + held,
        "messages_details": details(call, ready + held),
        "messages_ready": ready,
        "messages_ready_details": details(call, ready),
        "messages_unacknowledged": held,
        "messages_unacknowledged_details": details(call, held),
    })
}

/// Sums counts.
pub(super) fn sum<'c>(all: impl Iterator<Item = &'c QueueCounts>) -> QueueCounts {
    all.copied().sum()
}

/// Returns a queue's declaration, with its effective policy.
pub(super) fn queue(call: &Call<'_>, queue: &Queue) -> Value {
    let effective = call.view.metadata.effective(queue);
    let node = call.app.node();
    let mut shape = json!({
        "name": &*queue.name,
        "vhost": call.vhost_name(queue.vhost),
        "type": queue.kind.name(),
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": queue.owner.is_some(),
        "arguments": json_of_arguments(&queue.arguments),
        "node": node,
        "state": "running",
        "policy": effective.policy.as_deref().map(String::from),
        "operator_policy": effective.operator_policy.as_deref().map(String::from),
        "effective_policy_definition": effective.definition,
    });
    if queue.kind == QueueKind::Quorum {
        let limit = effective.settings.delivery_limit.map_or_else(|| Value::from("unlimited"), Value::from);
        shape = with(shape, json!({"delivery_limit": limit}));
    }
    if queue.kind != QueueKind::Classic {
        shape =
            with(shape, json!({"leader": call.app.node(), "members": [call.app.node()], "online": [call.app.node()]}));
    }
    if let (Some(owner), Value::Object(shape)) = (call.app.directory.owner_of(queue), &mut shape) {
        shape.insert("owner_pid_details".to_owned(), connection_details(&owner));
    }
    shape
}

/// Returns a queue with its counts.
pub(super) fn counted_queue(call: &Call<'_>, queue: &Queue, counts: &QueueCounts) -> Value {
    let shape = with(self::queue(call, queue), totals(call, counts));
    with(
        shape,
        json!({
            "consumers": counts.consumers,
            "consumer_capacity": 0,
            "consumer_utilisation": 0,
            "message_bytes": counts.bytes(),
            "message_bytes_ready": counts.ready_bytes + counts.delayed_bytes,
            "message_bytes_unacknowledged": counts.held_bytes + counts.dead_bytes,
            "message_bytes_persistent": counts.bytes().saturating_sub(counts.transient_bytes),
            "message_bytes_ram": 0,
            "messages_ram": 0,
            "messages_persistent": counts.messages().saturating_sub(counts.transient),
            "memory": 0,
            "exclusive_consumer_tag": null,
            "single_active_consumer_tag": null,
            "head_message_timestamp": null,
            "storage_version": 2,
        }),
    )
}

/// Returns a connection's `connection_details`.
pub(super) fn connection_details(client: &polylogue_amqp_gateway::Presence) -> Value {
    json!({
        "name": client.ends.name(),
        "peer_host": client.ends.peer.ip().to_canonical().to_string(),
        "peer_port": client.ends.peer.port(),
        "user": &*client.user,
    })
}

/// Returns the default exchange of a virtual host, which is never declared.
pub(super) fn default_exchange(call: &Call<'_>, vhost: VhostId) -> Value {
    json!({
        "name": "",
        "vhost": call.vhost_name(vhost),
        "type": "direct",
        "durable": true,
        "auto_delete": false,
        "internal": false,
        "arguments": {},
        "user_who_performed_action": "rmq-internal",
    })
}

/// Returns an exchange's declaration.
pub(super) fn exchange(call: &Call<'_>, exchange: &Exchange) -> Value {
    let name = shown(&exchange.name);
    let [policy, _] = call.view.metadata.matching(exchange.vhost, None, &name);
    let mut shape = json!({
        "name": name,
        "vhost": call.vhost_name(exchange.vhost),
        "type": exchange.kind.name(),
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": json_of_arguments(&exchange.arguments),
        "user_who_performed_action": "rmq-internal",
    });
    if let (Some(policy), Value::Object(shape)) = (policy, &mut shape) {
        shape.insert("policy".to_owned(), Value::from(&*policy.name));
    }
    shape
}

/// Returns the key that identifies a binding between two ends: its routing key, and a digest of its arguments.
pub(super) fn properties_key(key: &str, arguments: &[Argument]) -> String {
    match (key.is_empty(), arguments.is_empty()) {
        (true, true) => "~".to_owned(),
        (_, true) => encode(key),
        (_, false) => format!("{}~{}", encode(key), arguments_digest(arguments)),
    }
}

/// Returns a binding.
pub(super) fn binding(call: &Call<'_>, binding: &Binding) -> Option<Value> {
    let routes = &call.view.routes;
    let source = routes.exchange_by_id(binding.source)?;
    let (kind, destination) = match binding.destination {
        Destination::Queue(id) => ("queue", routes.queue_by_id(id)?.name.clone()),
        Destination::Exchange(id) => ("exchange", routes.exchange_by_id(id)?.name.clone()),
    };
    let key = shown(&binding.key);
    Some(json!({
        "source": shown(&source.name),
        "vhost": call.vhost_name(source.vhost),
        "destination": shown(&destination),
        "destination_type": kind,
        "properties_key": properties_key(&key, &binding.arguments),
        "routing_key": key,
        "arguments": json_of_arguments(&binding.arguments),
    }))
}

/// Returns a queue's implicit binding to the default exchange.
pub(super) fn default_binding(call: &Call<'_>, queue: &Queue) -> Value {
    json!({
        "source": "",
        "vhost": call.vhost_name(queue.vhost),
        "destination": &*queue.name,
        "destination_type": "queue",
        "routing_key": &*queue.name,
        "arguments": {},
        "properties_key": properties_key(&queue.name, &[]),
    })
}

/// Returns the limits that are set.
fn set_only(limits: &[(&str, Option<u64>)]) -> Value {
    let set = limits.iter().filter_map(|(name, value)| Some(((*name).to_owned(), Value::from((*value)?))));
    Value::Object(set.collect())
}

/// Returns the limits of a user.
pub(super) fn user_limits(user: &User) -> Value {
    set_only(&[("max-connections", user.connections_max), ("max-channels", user.channels_max)])
}

/// Returns the limits of a virtual host.
pub(super) fn vhost_limits(vhost: &Vhost) -> Value {
    set_only(&[("max-connections", vhost.connections_max), ("max-queues", vhost.queues_max)])
}

/// Returns strings as an array.
pub(super) fn texts(texts: &[bytestring::ByteString]) -> Value {
    texts.iter().map(|text| Value::from(&**text)).collect()
}

/// Returns a user, with the password hash.
pub(super) fn user(user: &User) -> Value {
    json!({
        "name": &*user.name,
        "password_hash": user.password.to_base64(),
        "hashing_algorithm": user.password.hashing.name(),
        "tags": texts(&user.tags),
        "limits": user_limits(user),
    })
}

/// Returns a virtual host.
pub(super) fn vhost(call: &Call<'_>, vhost: &Vhost, counts: Option<&QueueCounts>) -> Value {
    let mut metadata = if let Value::Object(map) = vhost.metadata.value() { map } else { Map::new() };
    let kind = vhost.default_queue_type.map_or("classic", |kind| kind.name());
    metadata.insert("description".to_owned(), Value::from(&*vhost.description));
    metadata.insert("tags".to_owned(), texts(&vhost.tags));
    metadata.insert("default_queue_type".to_owned(), Value::from(kind));
    let shape = json!({
        "name": &*vhost.name,
        "description": &*vhost.description,
        "tags": texts(&vhost.tags),
        "default_queue_type": kind,
        "metadata": metadata,
        "tracing": vhost.tracing,
        "protected_from_deletion": vhost.is_protected(),
        "cluster_state": { call.app.node(): "running" },
    });
    match counts {
        Some(counts) => with(shape, totals(call, counts)),
        None => shape,
    }
}

/// Returns a policy or an operator policy.
pub(super) fn policy(view: &View, policy: &Policy) -> Value {
    json!({
        "vhost": view.metadata.vhost_name(policy.vhost),
        "name": &*policy.name,
        "pattern": &**policy.pattern.text(),
        "apply-to": policy.apply_to.name(),
        "priority": policy.priority,
        "definition": policy.keys(),
    })
}
