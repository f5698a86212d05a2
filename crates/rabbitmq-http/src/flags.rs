//! RabbitMQ's feature flags: those whose behaviour is implemented. All are enabled, and none can be disabled.

use serde_json::{Value, json};

/// Name, description, and the application that provides the flag in RabbitMQ.
const FLAGS: [(&str, &str, &str); 9] = [
    ("detailed_queues_endpoint", "GET /api/queues/detailed", "rabbitmq_management"),
    ("drop_unroutable_metric", "Messages that reach no queue are counted", "rabbitmq_management_agent"),
    ("empty_basic_get_metric", "Calls of basic.get that find nothing are counted", "rabbitmq_management_agent"),
    ("implicit_default_bindings", "Bindings of the default exchange are not stored", "rabbit"),
    ("quorum_queue", "Queues of type `quorum`", "rabbit"),
    ("stream_filtering", "Filters of consumers of streams", "rabbit"),
    ("stream_queue", "Queues of type `stream`", "rabbit"),
    ("user_limits", "Limits of connections and channels of a user", "rabbit"),
    ("virtual_host_metadata", "Virtual hosts with a description, tags and metadata", "rabbit"),
];

/// Whether the flag exists.
pub(super) fn has(name: &str) -> bool {
    FLAGS.iter().any(|(known, ..)| *known == name)
}

/// Returns all flags.
pub(super) fn all() -> Vec<Value> {
    let one = |(name, text, app): &(&str, &str, &str)| {
        json!({
            "name": name,
            "desc": text,
            "doc_url": "",
            "state": "enabled",
            "stability": "required",
            "require_level": "hard",
            "experiment_level": "unsupported",
            "callbacks": [],
            "provided_by": app,
        })
    };
    FLAGS.iter().map(one).collect()
}
