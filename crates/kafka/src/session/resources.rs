//! Config resources in requests.

use super::errors::with_message;
use super::topics::node_id;
use super::work::Work;
use crate::config::{Fixed, Layers};
use polylogue_api::{Settings, SettingsScope};
use polylogue_auth::Operation;
use polylogue_kafka_codec::{ErrorCode, StrBytes};
use polylogue_types::NodeId;
use std::sync::Arc;

/// Kafka's `ConfigResource.Type`.
pub(super) const TOPIC: i8 = 2;
pub(super) const BROKER: i8 = 4;
pub(super) const CLIENT_METRICS: i8 = 16;
pub(super) const GROUP: i8 = 32;

/// The kind of request that names a broker: Kafka's texts differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SetFor {
    Change,
    Look,
}

/// Returns the named broker: `None` for the cluster-wide default, whose name is empty.
pub(super) fn broker_name(
    work: &Work<'_>,
    name: &StrBytes,
    what: SetFor,
) -> Result<Option<NodeId>, (ErrorCode, StrBytes)> {
    if name.is_empty() {
        return Ok(None);
    }
    let cluster = work.catalog.cluster();
    let node = node_id(&cluster);
    let text = match (name.parse::<i32>(), what) {
        (Ok(id), _) if id == node => return Ok(Some(cluster.node)),
        (Ok(_), SetFor::Change) => format!("Unexpected broker id, expected {node}, but received {name}"),
        (Ok(_), SetFor::Look) => {
            format!("Unexpected broker id, expected {node} or empty string, but received {name}")
        }
        (Err(_), SetFor::Change) => format!("Node id must be an integer, but it is: {name}"),
        (Err(_), SetFor::Look) => format!("Broker id must be an integer, but it is: {name}"),
    };
    Err((ErrorCode::InvalidRequest, text.into()))
}

/// Returns the error for a client without access to a resource's configs: a right on the topic or group, otherwise on the cluster
/// (`ConfigHelper`, `ControllerApis`).
pub(super) fn config_refusal(
    work: &Work<'_>,
    operation: Operation,
    resource_type: i8,
    name: &str,
) -> Option<(ErrorCode, StrBytes)> {
    let (may, error) = match resource_type {
        TOPIC => (work.may_topic(operation, name), ErrorCode::TopicAuthorizationFailed),
        GROUP => (work.may_group(operation, name), ErrorCode::GroupAuthorizationFailed),
        _ => (work.may_cluster(operation), ErrorCode::ClusterAuthorizationFailed),
    };
    (!may).then(|| with_message(error))
}

/// A snapshot of the settings that apply to this broker.
pub(super) struct Documents {
    node: Arc<Settings>,
    cluster: Arc<Settings>,
    fixed: Arc<Fixed>,
}

pub(super) fn layers_of(work: &Work<'_>) -> Documents {
    let node = work.catalog.cluster().node;
    Documents {
        node: work.catalog.settings(&SettingsScope::Node(node)),
        cluster: work.catalog.settings(&SettingsScope::Cluster),
        fixed: work.settings.fixed.clone(),
    }
}

impl Documents {
    pub(super) fn layers(&self) -> Layers<'_> {
        Layers { node: &self.node, cluster: &self.cluster, fixed: &self.fixed.raw }
    }

    /// Returns the cluster-wide settings.
    pub(super) fn cluster(&self) -> &Settings {
        &self.cluster
    }
}
