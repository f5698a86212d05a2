//! Access control lists.

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
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acls {
    /// By resource.
    pub acls: Vec<Acl>,
}

/// Which bindings `GET /acls` shows: those of which all that is given holds.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
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
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Users {
    /// By name.
    pub users: Vec<User>,
}

/// A user.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct User {
    /// The login name.
    pub name: String,
    /// `administrator`, which may do everything, and RabbitMQ's others.
    pub tags: Vec<String>,
    /// The SASL mechanisms by which the user can log in; none without a password.
    pub mechanisms: Vec<String>,
}

/// `PUT /users/NAME`: what is not there stays as it is.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
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
