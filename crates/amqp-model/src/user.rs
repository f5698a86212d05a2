//! Users, their limits and their permissions.

use crate::pattern::Pattern;
use bytestring::ByteString;
use polylogue_auth::{Access, Grants, PasswordHash, ScramCredential, ScramMechanism};

/// A user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    /// The login name.
    pub name: ByteString,
    /// The hash of the password.
    pub password: PasswordHash,
    /// SCRAM credentials of the same password: at most one per mechanism, in the order of their numbers. A user whose password was set by a protocol
    /// that does not send it has no hash.
    pub scram: Vec<ScramCredential>,
    /// `administrator`, `monitoring`, `policymaker`, `management`, `impersonator`, or others.
    pub tags: Vec<ByteString>,
    /// `max-connections`; `None` for no limit.
    pub connections_max: Option<u64>,
    /// `max-channels`; `None` for no limit.
    pub channels_max: Option<u64>,
}

impl User {
    /// Whether this is the user's password. Takes milliseconds if only SCRAM credentials are stored.
    #[must_use]
    pub fn knows(&self, password: &[u8]) -> bool {
        if self.password.bytes.is_empty() {
            self.scram.iter().any(|credential| credential.verify(password))
        } else {
            self.password.verify(password)
        }
    }

    /// Returns the credential for a mechanism.
    #[must_use]
    pub fn scram(&self, mechanism: ScramMechanism) -> Option<&ScramCredential> {
        self.scram.iter().find(|credential| credential.mechanism() == mechanism)
    }

    /// Whether the user has a tag.
    #[must_use]
    pub fn has_tag(&self, tag: &str) -> bool {
        self.tags.iter().any(|own| own == tag)
    }
}

/// A limit of a user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UserLimit {
    /// `max-connections`
    Connections,
    /// `max-channels`
    Channels,
}

impl UserLimit {
    /// Parses the name in the management API.
    #[must_use]
    pub fn named(name: &str) -> Option<UserLimit> {
        match name {
            "max-connections" => Some(UserLimit::Connections),
            "max-channels" => Some(UserLimit::Channels),
            _ => None,
        }
    }
}

/// A user's permissions in a virtual host: patterns of names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Permission {
    /// Declare and delete.
    pub configure: Pattern,
    /// Publish to, bind to.
    pub write: Pattern,
    /// Consume from, bind from.
    pub read: Pattern,
}

/// A user's permissions at a topic exchange: patterns of routing keys, which may contain the variables `{username}`, `{vhost}` and `{client_id}`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicPermission {
    /// Publish with.
    pub write: Pattern,
    /// Bind with.
    pub read: Pattern,
}

/// The subject of permission checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subject<'a> {
    /// The user name.
    pub user: &'a str,
    /// The rights of a login by token: these only, regardless of the permissions of a user with this name.
    pub grants: Option<&'a Grants>,
}

impl<'a> From<&'a str> for Subject<'a> {
    fn from(user: &'a str) -> Subject<'a> {
        Subject { user, grants: None }
    }
}

impl Permission {
    pub(crate) fn of(&self, access: Access) -> &Pattern {
        match access {
            Access::Configure => &self.configure,
            Access::Write => &self.write,
            Access::Read => &self.read,
        }
    }
}
