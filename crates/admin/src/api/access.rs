//! Access control lists.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

fn everywhere() -> String {
    "*".to_owned()
}

fn literal() -> String {
    "literal".to_owned()
}

fn allow() -> String {
    "allow".to_owned()
}

/// An ACL binding: allows or denies one operation on resources to a principal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Acl {
    /// `topic`, `group`, `cluster`, `transactional-id`, `delegation-token` or `user`.
    pub resource: String,
    /// The resource name; `*` for all; with pattern `prefixed` a prefix of names; `kafka-cluster` for the cluster.
    pub name: String,
    /// The pattern type: `literal` or `prefixed`.
    #[serde(default = "literal")]
    pub pattern: String,
    /// `User:NAME`, or `User:*` for all users.
    pub principal: String,
    /// The client's address; `*` for all.
    #[serde(default = "everywhere")]
    pub host: String,
    /// `read`, `write`, `create`, `delete`, `alter`, `describe`, `cluster-action`, `describe-configs`, `alter-configs`, `idempotent-write`,
    /// or `all`.
    pub operation: String,
    /// `allow`, or `deny`.
    #[serde(default = "allow")]
    pub permission: String,
}

/// `GET /acls`, `POST /acls` and `POST /acls/delete`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Acls {
    /// Sorted by resource.
    pub acls: Vec<Acl>,
}

/// Filter of `GET /acls`: bindings that match all given fields are returned.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AclQuery {
    /// The resource type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// A resource name that the binding applies to, by either pattern type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The principal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}

/// `GET /users`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Users {
    /// Sorted by name.
    pub users: Vec<User>,
}

/// A user.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct User {
    /// The login name.
    pub name: String,
    /// `administrator`, which permits everything, and RabbitMQ's other tags.
    pub tags: Vec<String>,
    /// The SASL mechanisms that the user can log in with; empty without a password.
    pub mechanisms: Vec<String>,
}

/// `PUT /users/NAME`: fields that are missing are not changed.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PutUser {
    /// The new password, for all protocols.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// The new tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
}

impl std::fmt::Debug for PutUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PutUser").field("tags", &self.tags).finish_non_exhaustive()
    }
}

/// `GET /quotas`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Quotas {
    /// Sorted by entity.
    pub quotas: Vec<Quota>,
}

/// The entity of a quota: a user, a client id, or a client id of a user. At least one field is required.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QuotaOf {
    /// The user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The default for users that have no quota of their own.
    #[serde(default, skip_serializing_if = "is_false")]
    pub other_users: bool,
    /// The client id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The default for client ids that have no quota of their own.
    #[serde(default, skip_serializing_if = "is_false")]
    pub other_client_ids: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(value: &bool) -> bool {
    !value
}

/// The quotas of an entity, and `PUT /quotas`: quotas that are missing are removed.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// The entity.
    pub of: QuotaOf,
    /// `producer_byte_rate`: bytes of produce requests per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub produce_bytes_per_second: Option<f64>,
    /// `consumer_byte_rate`: bytes of messages in fetch responses per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetch_bytes_per_second: Option<f64>,
    /// `request_percentage`: time of the broker's threads, in percent of one thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_percent: Option<f64>,
}

/// `GET /permissions`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Permissions {
    /// Sorted by virtual host and user.
    pub permissions: Vec<Permission>,
}

/// A user's permissions in a virtual host: regular expressions for names of queues and exchanges.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Permission {
    /// The user.
    pub user: String,
    /// The virtual host.
    pub vhost: String,
    /// Names that the user may declare and delete.
    pub configure: String,
    /// Names that the user may publish to and bind.
    pub write: String,
    /// Names that the user may consume from and bind to.
    pub read: String,
}

/// `PUT /vhosts/VHOST/permissions/USER`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PutPermission {
    /// Names that the user may declare and delete.
    pub configure: String,
    /// Names that the user may publish to and bind.
    pub write: String,
    /// Names that the user may consume from and bind to.
    pub read: String,
}
