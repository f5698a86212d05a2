//! Permission checks, and the permissions that each operation needs.
//!
//! | operation | needs |
//! |---|---|
//! | `queue.declare` | configure the queue; a new one with a dead-letter exchange also read the queue and write the exchange |
//! | `queue.delete` | configure the queue |
//! | `queue.purge`, `basic.get`, `basic.consume` | read the queue |
//! | `exchange.declare` | configure it; a new one with an alternate exchange also read it and write the alternate |
//! | `exchange.delete` | configure it |
//! | bind, unbind | write the destination, read the source; on a topic exchange also read the topic |
//! | `basic.publish` | write the exchange; on a topic exchange also write the topic |
//! | passive declarations | any of the three |
//!
//! A user who logged in with a token has the permissions that the token grants ([`polylogue_auth::Grants`]), and no others.
//!
//! The default exchange is called `amq.default` in permissions. A user without any permission in the virtual host is refused like one whose pattern
//! does not match. Topic permissions restrict: without one, all routing keys are allowed.

use crate::error::{Code, Named, Refused, Resource};
use crate::metadata::Metadata;
use crate::pattern::matches_expanded;
use crate::user::Subject;
use polylogue_auth::Access;
use polylogue_router::VhostId;

/// The name of an exchange in permissions and error texts.
fn permission_name(resource: Resource, name: &str) -> &str {
    if resource == Resource::Exchange && name.is_empty() { "amq.default" } else { name }
}

impl Metadata {
    /// Checks that a user may open a virtual host (`connection.open`).
    ///
    /// # Errors
    /// 530 when the virtual host does not exist, or the user has no permission in it.
    pub fn check_vhost<'a>(&self, who: impl Into<Subject<'a>>, vhost: &str) -> Result<VhostId, Refused> {
        let Subject { user, grants } = who.into();
        let not_allowed = |text| Refused::new(Code::NotAllowed, text);
        let Some(found) = self.vhost_named(vhost) else {
            return Err(not_allowed(format!("vhost {vhost} not found")));
        };
        let may = grants.map_or_else(|| self.permission(found.id, user).is_some(), |grants| grants.may_enter(vhost));
        if !may {
            return Err(not_allowed(format!("access to vhost '{vhost}' refused for user '{user}'")));
        }
        Ok(found.id)
    }

    /// Checks that a user may open another connection in a virtual host, given the current counts.
    ///
    /// # Errors
    /// 530 at the limit of the virtual host or of the user.
    pub fn check_connections(&self, user: &str, vhost: VhostId, in_vhost: u64, of_user: u64) -> Result<(), Refused> {
        let not_allowed = |text| Err(Refused::new(Code::NotAllowed, text));
        let host = self.vhost(vhost);
        if let Some((max, name)) = host.and_then(|host| Some((host.connections_max?, &host.name)))
            && in_vhost >= max
        {
            let text =
                format!("access to vhost '{name}' refused for user '{user}': connection limit ({max}) is reached");
            return not_allowed(text);
        }
        match self.user(user).and_then(|user| user.connections_max) {
            Some(max) if of_user >= max => {
                not_allowed(format!("Connection refused for user '{user}': user connection limit ({max}) is reached"))
            }
            _ => Ok(()),
        }
    }

    /// Whether a user has a permission on a queue or an exchange of this name.
    #[must_use]
    pub fn may<'a>(
        &self,
        who: impl Into<Subject<'a>>,
        vhost: VhostId,
        access: Access,
        resource: Resource,
        name: &str,
    ) -> bool {
        let (Subject { user, grants }, name) = (who.into(), permission_name(resource, name));
        if let Some(grants) = grants {
            return grants.may(self.vhost_name(vhost), access, name);
        }
        self.permission(vhost, user).is_some_and(|permission| permission.of(access).matches(name))
    }

    /// Checks that a user has a permission on a queue or an exchange of this name.
    ///
    /// # Errors
    /// 403 without the permission.
    pub fn check<'a>(
        &self,
        who: impl Into<Subject<'a>>,
        vhost: VhostId,
        access: Access,
        resource: Resource,
        name: &str,
    ) -> Result<(), Refused> {
        let who = who.into();
        if self.may(who, vhost, access, resource, name) {
            return Ok(());
        }
        let named = Named { kind: resource, name: permission_name(resource, name), vhost: self.vhost_name(vhost) };
        Err(Refused::access(format!("{access} access to {named} refused for user '{}'", who.user)))
    }

    /// Checks that a user has any permission on a queue or an exchange, as passive declarations need.
    ///
    /// # Errors
    /// 403 without any permission.
    pub fn check_any<'a>(
        &self,
        who: impl Into<Subject<'a>>,
        vhost: VhostId,
        resource: Resource,
        name: &str,
    ) -> Result<(), Refused> {
        let who = who.into();
        let any = [Access::Configure, Access::Write, Access::Read];
        if any.into_iter().any(|access| self.may(who, vhost, access, resource, name)) {
            return Ok(());
        }
        self.check(who, vhost, Access::Configure, resource, name)
    }

    /// Checks that a user may use a routing key at a topic exchange. `client` is the id of an MQTT client.
    ///
    /// # Errors
    /// 403 without the permission.
    pub fn check_topic<'a>(
        &self,
        who: impl Into<Subject<'a>>,
        vhost: VhostId,
        access: Access,
        exchange: &str,
        key: &str,
        client: Option<&str>,
    ) -> Result<(), Refused> {
        let (Subject { user, grants }, host) = (who.into(), self.vhost_name(vhost));
        let may = match (grants, self.topic_permission(vhost, user, exchange)) {
            (Some(grants), _) => grants.may_key(host, access, exchange, key),
            (None, None) => true,
            (None, Some(permission)) => {
                let variables = [("username", user), ("vhost", host), ("client_id", client.unwrap_or_default())];
                let variables = if client.is_some() { &variables[..] } else { &variables[..2] };
                let pattern = if access == Access::Write { &permission.write } else { &permission.read };
                matches_expanded(pattern, variables, key)
            }
        };
        if may {
            return Ok(());
        }
        Err(Refused::access(format!(
            "{access} access to topic '{key}' in exchange '{exchange}' in vhost '{host}' refused for user '{user}'"
        )))
    }
}
