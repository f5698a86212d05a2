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

/// A binding: it allows or denies one operation on resources to one user.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Acl {
    /// `topic`, `group`, `cluster`, `transactional-id`, `delegation-token` or `user`.
    pub resource: String,
    /// The name of the resource, `*` for all, or with the pattern `prefixed` what names begin with; `kafka-cluster` for the cluster.
    pub name: String,
    /// `literal`, or `prefixed`.
    #[serde(default = "literal")]
    pub pattern: String,
    /// `User:NAME`, or `User:*` for everybody.
    pub principal: String,
    /// From which address; `*` for all.
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
    /// By resource.
    pub acls: Vec<Acl>,
}

/// Which bindings `GET /acls` shows: those of which all that is given holds.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AclQuery {
    /// The kind of resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The name of a resource that the binding is about, by whichever pattern.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The principal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}

/// `GET /users`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Users {
    /// By name.
    pub users: Vec<User>,
}

/// A user.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct User {
    /// The login name.
    pub name: String,
    /// `administrator`, which may do everything, and RabbitMQ's others.
    pub tags: Vec<String>,
    /// The SASL mechanisms by which the user can log in; none without a password.
    pub mechanisms: Vec<String>,
}

/// `PUT /users/NAME`: what is not there stays as it is.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PutUser {
    /// The password from now on, for all protocols.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// The tags from now on.
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
    /// By whose they are.
    pub quotas: Vec<Quota>,
}

/// Whose a quota is: of a user, of a client id, or of a client id of a user. At least one of them is said.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QuotaOf {
    /// The user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Each user that has no quota of its own.
    #[serde(default, skip_serializing_if = "is_false")]
    pub other_users: bool,
    /// The client id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Each client id that has no quota of its own.
    #[serde(default, skip_serializing_if = "is_false")]
    pub other_client_ids: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(value: &bool) -> bool {
    !value
}

/// What clients may take, and `PUT /quotas`: what is not there is not limited.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// Whose it is.
    pub of: QuotaOf,
    /// Bytes of produce requests a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub produce_bytes_per_second: Option<f64>,
    /// Bytes of messages in answers to fetches a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetch_bytes_per_second: Option<f64>,
    /// Time of the broker's threads, in percent of one thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_percent: Option<f64>,
}

/// `GET /permissions`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Permissions {
    /// By virtual host and user.
    pub permissions: Vec<Permission>,
}

/// What a user may do in a virtual host: regular expressions for the names of what may be declared, published to and consumed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Permission {
    /// The user.
    pub user: String,
    /// The virtual host.
    pub vhost: String,
    /// What the user may declare and delete.
    pub configure: String,
    /// What the user may publish to, and bind.
    pub write: String,
    /// What the user may consume, and bind to.
    pub read: String,
}

/// `PUT /vhosts/VHOST/permissions/USER`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PutPermission {
    /// What the user may declare and delete.
    pub configure: String,
    /// What the user may publish to, and bind.
    pub write: String,
    /// What the user may consume, and bind to.
    pub read: String,
}
