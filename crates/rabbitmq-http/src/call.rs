//! A request's context: the user, the definitions, and what the user may see of them.
//!
//! | tag | permits |
//! |---|---|
//! | `management` | what AMQP permits, in virtual hosts with permissions |
//! | `policymaker` | also policies and parameters there |
//! | `monitoring` | also viewing all virtual hosts, connections and nodes |
//! | `administrator` | everything |

use super::ask;
use super::error::Failure;
use super::target::Query;
use super::{From, Management, Verb};
use axum::http::HeaderMap;
use polylogue_admin::basic::{credentials, token};
use polylogue_admin::http::login::its_turn;
use polylogue_amqp_gateway::{FIRST_USER, View};
use polylogue_amqp_model::{User, Vhost};
use polylogue_auth::{Claim, Decision, Grants, Mechanism, Operation, PasswordHash, Resource, ResourceKind};
use polylogue_router::VhostId;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

const ADMINISTRATOR: &str = "administrator";
const MONITORING: &str = "monitoring";
const POLICYMAKER: &str = "policymaker";
const MANAGEMENT: &str = "management";

/// The context of a request.
pub(super) struct Call<'a> {
    pub(super) app: &'a Management,
    pub(super) verb: Verb,
    pub(super) query: Query,
    /// The definitions at the time of the request.
    pub(super) view: Arc<View>,
    pub(super) user: Arc<User>,
    /// What the token grants, if the user logged in by one.
    pub(super) grants: Option<Arc<Grants>>,
    /// The client's address.
    pub(super) address: IpAddr,
}

impl<'a> Call<'a> {
    /// Authenticates the user.
    ///
    /// # Errors
    /// 401
    pub(super) async fn open(
        app: &'a Management,
        headers: &HeaderMap,
        from: Option<From>,
        verb: Verb,
        query: Query,
    ) -> Result<Call<'a>, Failure> {
        let address = from.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |from| from.peer.ip().to_canonical());
        if let Some(token) = token(headers).filter(|_| app.users.takes_tokens()) {
            let (user, grants) = by_token(app, &token, address).await?;
            let (view, grants) = (ask::view(app).await?, Some(Arc::new(grants)));
            return Call { app, verb, query, view, user: Arc::new(user), grants, address }.of_management();
        }
        let (name, password) = credentials(headers).ok_or_else(Failure::not_logged_in)?;
        let view = ask::view(app).await?;
        let claim = Claim { name: &name, address };
        if !its_turn(app.users.as_ref(), &claim).await {
            return Err(Failure::not_logged_in());
        }
        let user = view.metadata.user(&name).filter(|user| user.knows(&password)).cloned();
        let Some(user) = user else {
            let delay_ms = app.users.failed(&claim, Mechanism::Plain, "the name or the password is wrong");
            tokio::time::sleep(Duration::from_millis(delay_ms)).await;
            return Err(Failure::not_logged_in());
        };
        app.users.right(&claim);
        // As on AMQP: guest's password is well known.
        if name == FIRST_USER && !from.is_some_and(|from| from.is_local) {
            return Err(Failure::not_authorised("User can only log in via localhost"));
        }
        if name == FIRST_USER && !app.directory.lets_guest() {
            return Err(Failure::not_authorised("User may not log in (server.guest)"));
        }
        Call { app, verb, query, view, user, grants: None, address }.of_management()
    }

    /// Requires a management tag.
    fn of_management(self) -> Result<Call<'a>, Failure> {
        match self.has_any(&[ADMINISTRATOR, MONITORING, POLICYMAKER, MANAGEMENT]) {
            true => Ok(self),
            false => Err(Failure::not_authorised("Not management user")),
        }
    }

    fn has_any(&self, tags: &[&str]) -> bool {
        tags.iter().any(|tag| self.user.has_tag(tag))
    }

    pub(super) fn is_admin(&self) -> bool {
        self.has_any(&[ADMINISTRATOR])
    }

    pub(super) fn is_monitor(&self) -> bool {
        self.has_any(&[ADMINISTRATOR, MONITORING])
    }

    /// 401 for users without the tag `administrator`.
    pub(super) fn admin(&self) -> Result<(), Failure> {
        if self.is_admin() { Ok(()) } else { Err(Failure::not_authorised("Not administrator user")) }
    }

    /// 401 for users without the tag `monitoring`.
    pub(super) fn monitor(&self) -> Result<(), Failure> {
        if self.is_monitor() { Ok(()) } else { Err(Failure::not_authorised("Not monitor user")) }
    }

    /// 401 for users without the tag `policymaker`.
    pub(super) fn policymaker(&self) -> Result<(), Failure> {
        match self.has_any(&[ADMINISTRATOR, POLICYMAKER]) {
            true => Ok(()),
            false => Err(Failure::not_authorised("User not authorised to access object")),
        }
    }

    /// Returns a virtual host that the user may access.
    ///
    /// # Errors
    /// 404 if it does not exist, 401 if the user may not access it.
    pub(super) fn vhost(&self, name: &str) -> Result<&Arc<Vhost>, Failure> {
        let vhost = self.view.metadata.vhost_named(name).ok_or_else(Failure::not_found)?;
        match self.is_admin() || self.has_permission(vhost.id) {
            true => Ok(vhost),
            false => Err(Failure::not_authorised("User not authorised to access virtual host")),
        }
    }

    /// Returns a virtual host that the user may see.
    ///
    /// # Errors
    /// As [`Call::vhost`].
    pub(super) fn visible_vhost(&self, name: &str) -> Result<&Arc<Vhost>, Failure> {
        match self.is_monitor() {
            true => self.view.metadata.vhost_named(name).ok_or_else(Failure::not_found),
            false => self.vhost(name),
        }
    }

    /// Returns a virtual host in which the user may set policies.
    ///
    /// # Errors
    /// As [`Call::vhost`].
    pub(super) fn policed_vhost(&self, name: &str) -> Result<&Arc<Vhost>, Failure> {
        self.policymaker()?;
        self.vhost(name)
    }

    pub(super) fn has_permission(&self, vhost: VhostId) -> bool {
        match &self.grants {
            Some(grants) => grants.may_enter(self.vhost_name(vhost)),
            None => self.view.metadata.permission(vhost, &self.user.name).is_some(),
        }
    }

    /// Whether the user may write to a Kafka topic, which `x-polylogue-topic` names.
    pub(super) fn may_write(&self, topic: &str) -> bool {
        let who = Claim { name: &self.user.name, address: self.address };
        let resource = Resource { kind: ResourceKind::Topic, name: topic };
        self.is_admin() || self.app.directory.decide(&who, Operation::Write, resource) == Decision::Allowed
    }

    /// Whether lists over all virtual hosts include this one; for administrators they include all.
    pub(super) fn lists(&self, vhost: VhostId) -> bool {
        self.is_admin() || self.has_permission(vhost)
    }

    /// Whether the user may see the virtual host and its statistics.
    pub(super) fn sees(&self, vhost: VhostId) -> bool {
        self.is_monitor() || self.has_permission(vhost)
    }

    pub(super) fn vhost_name(&self, id: VhostId) -> &str {
        self.view.metadata.vhost_name(id)
    }
}

/// Returns the user that a token identifies, with the tags it grants, and its other grants.
async fn by_token(app: &Management, token: &str, address: IpAddr) -> Result<(User, Grants), Failure> {
    let bearer = match app.users.bearer(token) {
        Ok(bearer) => bearer,
        Err(error) => {
            let delay_ms = app.users.failed(&Claim { name: "", address }, Mechanism::Bearer, &error.text);
            tokio::time::sleep(Duration::from_millis(delay_ms)).await;
            return Err(Failure::not_logged_in());
        }
    };
    let administrator = bearer.grants.is_administrator().then(|| ADMINISTRATOR.into());
    let given = bearer.grants.tags().iter().filter(|tag| *tag != ADMINISTRATOR).map(|tag| tag.as_str().into());
    let user = User {
        name: bearer.name.into(),
        password: PasswordHash::none(),
        scram: Vec::new(),
        tags: administrator.into_iter().chain(given).collect(),
        connections_max: None,
        channels_max: None,
    };
    Ok((user, bearer.grants))
}
