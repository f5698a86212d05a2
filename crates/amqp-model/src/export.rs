//! Export of definitions, with the fields of RabbitMQ 3.13 to 4.x.
//!
//! As in RabbitMQ, objects that cannot be declared again are left out: exclusive queues, internal exchanges, the default exchange and those whose
//! names begin with `amq.`, global parameters whose names begin with `internal`.

use crate::metadata::Metadata;
use crate::policy::{OPERATOR_POLICY, Policy};
use crate::queue::{Queue, RESERVED_PREFIX};
use crate::table::json_of_arguments;
use crate::user::{Permission, TopicPermission};
use crate::vhost::{VHOST_LIMITS, Vhost};
use polylogue_router::{Binding, Definitions as Routes, Destination, Exchange, VhostId};
use serde_json::{Map, Value, json};

/// The exporting product. Clients and tools read the version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Product {
    /// In the format of RabbitMQ's versions.
    pub version: String,
    /// The name of the cluster.
    pub cluster_name: String,
}

/// Exports all definitions, or those of one virtual host (whose items then do not name it).
#[must_use]
pub fn export(metadata: &Metadata, routes: &Routes, vhost: Option<VhostId>, product: &Product) -> Value {
    let mut root = Map::new();
    let version = Value::from(product.version.clone());
    root.insert("rabbit_version".to_owned(), version.clone());
    root.insert("rabbitmq_version".to_owned(), version.clone());
    root.insert("product_name".to_owned(), Value::from("RabbitMQ"));
    root.insert("product_version".to_owned(), version);
    match vhost.and_then(|id| metadata.vhost(id)) {
        Some(vhost) => of_one(vhost, &mut root),
        None => of_all(metadata, product, &mut root),
    }
    let here = |of: VhostId| vhost.is_none_or(|only| only == of);
    let name = |of: VhostId| metadata.vhost_name(of);
    let item = |of: VhostId, mut item: Value| {
        if let (None, Value::Object(map)) = (vhost, &mut item) {
            map.insert("vhost".to_owned(), Value::from(name(of)));
        }
        item
    };
    let mut put = |section: &str, items: Vec<Value>| _ = root.insert(section.to_owned(), Value::Array(items));

    let mut parameters: Vec<Value> = Vec::new();
    for (of, component, name, value) in metadata.parameters().filter(|(of, ..)| here(*of)) {
        let value = json!({"component": &**component, "name": &**name, "value": value.value()});
        parameters.push(item(of, value));
    }
    let operator = metadata.policies().filter(|policy| policy.operator && here(policy.vhost));
    parameters.extend(operator.map(|policy| item(policy.vhost, operator_policy(policy))));
    for vhost in metadata.vhosts().filter(|vhost| here(vhost.id)) {
        let limits = limits_of(vhost);
        if limits.as_object().is_some_and(|limits| !limits.is_empty()) {
            let value = json!({"component": VHOST_LIMITS, "name": "limits", "value": limits});
            parameters.push(item(vhost.id, value));
        }
    }
    put("parameters", parameters);
    let policies = metadata.policies().filter(|policy| !policy.operator && here(policy.vhost));
    put("policies", policies.map(|policy| item(policy.vhost, policy_item(policy))).collect());
    let queues = metadata.queues().filter(|queue| queue.owner.is_none() && here(queue.vhost));
    put("queues", queues.map(|queue| item(queue.vhost, queue_item(queue))).collect());
    let exchanges = routes.exchanges();
    let exchanges = exchanges.iter().filter(|exchange| here(exchange.vhost) && is_exported(exchange));
    put("exchanges", exchanges.map(|exchange| item(exchange.vhost, exchange_item(exchange))).collect());
    let bindings = routes.bindings();
    let bindings = bindings.iter().filter_map(|binding| {
        let source = routes.exchange_by_id(binding.source).filter(|source| here(source.vhost))?;
        Some(item(source.vhost, binding_item(binding, source, routes)?))
    });
    put("bindings", bindings.collect());
    Value::Object(root)
}

fn of_one(vhost: &Vhost, root: &mut Map<String, Value>) {
    root.insert("rabbitmq_definition_format".to_owned(), Value::from("single_virtual_host"));
    root.insert("original_vhost_name".to_owned(), Value::from(&*vhost.name));
    root.insert("explanation".to_owned(), Value::from(format!("Definitions of virtual host '{}'", vhost.name)));
    if let Value::Object(fields) = vhost_item(vhost) {
        let own = fields.into_iter().filter(|(field, _)| field != "name" && field != "tracing");
        root.extend(own);
    }
}

fn of_all(metadata: &Metadata, product: &Product, root: &mut Map<String, Value>) {
    let cluster = &product.cluster_name;
    root.insert("rabbitmq_definition_format".to_owned(), Value::from("cluster"));
    root.insert("original_cluster_name".to_owned(), Value::from(cluster.clone()));
    root.insert("explanation".to_owned(), Value::from(format!("Definitions of cluster '{cluster}'")));
    let users = metadata.users().map(|user| {
        let limits = [("max-connections", user.connections_max), ("max-channels", user.channels_max)];
        json!({
            "name": &*user.name,
            "password_hash": user.password.to_base64(),
            "hashing_algorithm": user.password.hashing.name(),
            "tags": texts(&user.tags),
            "limits": set_only(&limits),
        })
    });
    root.insert("users".to_owned(), users.collect());
    root.insert("vhosts".to_owned(), metadata.vhosts().map(|vhost| vhost_item(vhost)).collect());
    let permissions =
        metadata.permissions().map(|(vhost, user, permission)| permission_item(metadata, vhost, user, permission));
    root.insert("permissions".to_owned(), permissions.collect());
    let topics = metadata.topic_permissions();
    let topics = topics.map(|(vhost, user, exchange, one)| topic_permission_item(metadata, vhost, user, exchange, one));
    root.insert("topic_permissions".to_owned(), topics.collect());
    let globals = metadata.globals().filter(|(name, _)| !name.starts_with("internal"));
    let globals = globals.map(|(name, value)| json!({"name": &**name, "value": value.value()}));
    root.insert("global_parameters".to_owned(), globals.collect());
}

/// A permission as definitions and the management API show it.
#[must_use]
pub fn permission_item(metadata: &Metadata, vhost: VhostId, user: &str, permission: &Permission) -> Value {
    json!({
        "user": user,
        "vhost": metadata.vhost_name(vhost),
        "configure": &**permission.configure.text(),
        "write": &**permission.write.text(),
        "read": &**permission.read.text(),
    })
}

/// A topic permission as definitions and the management API show it.
#[must_use]
pub fn topic_permission_item(
    metadata: &Metadata,
    vhost: VhostId,
    user: &str,
    exchange: &str,
    permission: &TopicPermission,
) -> Value {
    json!({
        "user": user,
        "vhost": metadata.vhost_name(vhost),
        "exchange": exchange,
        "write": &**permission.write.text(),
        "read": &**permission.read.text(),
    })
}

fn texts(texts: &[bytestring::ByteString]) -> Value {
    texts.iter().map(|text| Value::from(&**text)).collect()
}

fn set_only(limits: &[(&str, Option<u64>)]) -> Value {
    let set = limits.iter().filter_map(|(name, value)| Some(((*name).to_owned(), Value::from((*value)?))));
    Value::Object(set.collect())
}

fn limits_of(vhost: &Vhost) -> Value {
    set_only(&[("max-connections", vhost.connections_max), ("max-queues", vhost.queues_max)])
}

fn vhost_item(vhost: &Vhost) -> Value {
    let mut metadata = if let Value::Object(map) = vhost.metadata.value() { map } else { Map::new() };
    metadata.insert("description".to_owned(), Value::from(&*vhost.description));
    metadata.insert("tags".to_owned(), texts(&vhost.tags));
    let mut item = json!({
        "name": &*vhost.name,
        "description": &*vhost.description,
        "tags": texts(&vhost.tags),
        "limits": limits_of(vhost),
        "tracing": vhost.tracing,
    });
    if let (Some(kind), Value::Object(item)) = (vhost.default_queue_type, &mut item) {
        metadata.insert("default_queue_type".to_owned(), Value::from(kind.name()));
        item.insert("default_queue_type".to_owned(), Value::from(kind.name()));
    }
    if let Value::Object(item) = &mut item {
        item.insert("metadata".to_owned(), Value::Object(metadata));
    }
    item
}

fn policy_fields(policy: &Policy) -> Value {
    json!({
        "pattern": &**policy.pattern.text(),
        "apply-to": policy.apply_to.name(),
        "priority": policy.priority,
        "definition": policy.keys(),
    })
}

fn policy_item(policy: &Policy) -> Value {
    let mut item = policy_fields(policy);
    if let Value::Object(item) = &mut item {
        item.insert("name".to_owned(), Value::from(&*policy.name));
    }
    item
}

fn operator_policy(policy: &Policy) -> Value {
    json!({"component": OPERATOR_POLICY, "name": &*policy.name, "value": policy_fields(policy)})
}

fn queue_item(queue: &Queue) -> Value {
    json!({
        "name": &*queue.name,
        "type": queue.kind.name(),
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "arguments": json_of_arguments(&queue.arguments),
    })
}

fn shown(name: &[u8]) -> Value {
    Value::from(String::from_utf8_lossy(name))
}

fn is_exported(exchange: &Exchange) -> bool {
    !exchange.internal && !exchange.name.is_empty() && !exchange.name.starts_with(RESERVED_PREFIX.as_bytes())
}

fn exchange_item(exchange: &Exchange) -> Value {
    json!({
        "name": shown(&exchange.name),
        "type": exchange.kind.name(),
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": json_of_arguments(&exchange.arguments),
    })
}

fn binding_item(binding: &Binding, source: &Exchange, routes: &Routes) -> Option<Value> {
    let (kind, destination) = match binding.destination {
        Destination::Queue(id) => ("queue", routes.queue_by_id(id)?.name.clone()),
        Destination::Exchange(id) => ("exchange", routes.exchange_by_id(id)?.name.clone()),
    };
    Some(json!({
        "source": shown(&source.name),
        "destination": shown(&destination),
        "destination_type": kind,
        "routing_key": shown(&binding.key),
        "arguments": json_of_arguments(&binding.arguments),
    }))
}
