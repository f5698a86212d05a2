//! Login of a connection, and opening of its virtual host.

use crate::connection::{Connection, InternalIdentity};
use crate::convert::{name, refusal};
use crate::directory::Directory;
use crate::machine::{ADMINISTRATOR, AmqpRequest, FIRST_USER, IMPERSONATOR};
use crate::operation::Waits;
use crate::presence::{Entry, NewConnection};
use bytes::Bytes;
use bytestring::ByteString;
use polylogue_amqp::codec::ShortStr;
use polylogue_amqp::refusal::{Code, Refusal};
use polylogue_amqp::request::{self as amqp, Credentials};
use polylogue_amqp_model::{User, exchange_topic};
use polylogue_api::Token;
use polylogue_auth::{
    Acl, AclFilter, AuthError, AuthErrorKind, Authority, Bearer, Claim, Decision, Grants, Jwt, Mechanism, Operation,
    PasswordFingerprint, Resource, ResourceKind, ScramCredential, ScramMechanism, ScramUser, Ticket, Turn,
};
use polylogue_router::{Argument, VhostId};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The operator's user name in listings, as in RabbitMQ; it is never looked up.
const OPERATOR: &str = "none";
/// The logged reason of a failed login.
const WRONG: &str = "the name or the password is wrong";
/// The logged reason for the first user where it may not log in, with any password.
const GUEST_REFUSED: &str =
    "guest logs in from this machine to a loopback listener only, and not at all with server.guest=off";

/// A password that a client claims.
pub(crate) struct Password(Bytes);

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password")
    }
}

/// The rights that a token grants a connection.
#[derive(Clone, Debug)]
pub(crate) struct TokenRights {
    /// The rights.
    pub(crate) grants: Arc<Grants>,
    /// The expiry. Monotonic milliseconds.
    pub(crate) until_ms: u64,
}

fn bearer(authority: &dyn Authority, secret: &[u8]) -> Result<Bearer, AuthError> {
    let text = || AuthError { kind: AuthErrorKind::Malformed, text: "the text is not a token".to_owned() };
    std::str::from_utf8(secret).map_err(|_| text()).and_then(|token| authority.bearer(token))
}

impl Directory {
    /// Returns a user who may log in with Kafka's protocol or at polylogue's own API: never the first one, whose password is public.
    fn user_outside_amqp(&self, name: &str) -> Option<Arc<User>> {
        self.metadata().user(name).filter(|_| name != FIRST_USER).cloned()
    }

    /// Whether this is the password of a user who may log in with Kafka's protocol or at polylogue's own API.
    #[must_use]
    pub fn is_password(&self, claim: &Claim<'_>, password: &[u8]) -> bool {
        self.user_outside_amqp(claim.name).is_some_and(|user| user.knows(password))
    }

    /// The SCRAM credential of a user who may log in with Kafka's protocol.
    #[must_use]
    pub fn scram(&self, claim: &Claim<'_>, mechanism: ScramMechanism) -> Option<ScramCredential> {
        self.user_outside_amqp(claim.name)?.scram(mechanism).cloned()
    }

    /// A mark of the password of a user who may log in at polylogue's own API: it changes with the password, and with a new user of the same name.
    #[must_use]
    pub fn password_fingerprint(&self, claim: &Claim<'_>) -> Option<PasswordFingerprint> {
        let user = self.user_outside_amqp(claim.name)?;
        let hash = Some(&user.password.bytes).filter(|hash| !hash.is_empty());
        Some(hash.into_iter().chain(user.scram.iter().map(ScramCredential::salt)).cloned().collect())
    }

    /// Whether the first user, whose password is public, exists beside another administrator.
    #[must_use]
    pub fn has_guest_beside_administrator(&self) -> bool {
        self.metadata().user(FIRST_USER).is_some() && self.has_administrator()
    }

    /// Whether a user is an administrator.
    #[must_use]
    pub fn is_administrator(&self, name: &str) -> bool {
        self.book().is_administrator(name)
    }

    /// [`Authority::decide`]
    #[must_use]
    pub fn decide(&self, who: &Claim<'_>, operation: Operation, resource: Resource<'_>) -> Decision {
        self.book().decide(who.name, who.address, operation, resource)
    }

    /// [`Authority::decide_any`]
    #[must_use]
    pub fn decide_any(&self, who: &Claim<'_>, operation: Operation, kind: ResourceKind) -> Decision {
        self.book().decide_any(who.name, who.address, operation, kind)
    }

    /// [`Authority::operations`]
    #[must_use]
    pub fn operations(&self, who: &Claim<'_>, resource: Resource<'_>) -> Option<u32> {
        self.book().operations(who.name, who.address, resource)
    }

    /// The number of ACL bindings.
    #[must_use]
    pub fn acl_count(&self) -> usize {
        self.book().len()
    }

    /// [`Authority::acls`]
    #[must_use]
    pub fn acls(&self, filter: &AclFilter) -> Vec<Arc<Acl>> {
        self.book().find(filter)
    }

    /// Whether there is an administrator other than the first user, who cannot log in remotely.
    #[must_use]
    pub fn has_administrator(&self) -> bool {
        self.metadata().users().any(|user| user.name != FIRST_USER && user.has_tag(ADMINISTRATOR))
    }

    /// Users with SCRAM credentials, by name: those of `names`, or all.
    #[must_use]
    pub fn scram_users(&self, names: Option<&[&str]>) -> Vec<ScramUser> {
        let shown = |user: &Arc<User>| {
            let credentials = user.scram.iter().map(|one| (one.mechanism(), one.iterations())).collect();
            ScramUser { name: user.name.to_string(), credentials }
        };
        let metadata = self.metadata();
        let found: Vec<_> = match names {
            None => metadata.users().map(shown).collect(),
            Some(names) => names.iter().filter_map(|name| metadata.user(name)).map(shown).collect(),
        };
        found.into_iter().filter(|user| !user.credentials.is_empty()).collect()
    }
}

impl Connection {
    /// Applies a fixed identity.
    fn admit(&mut self, identity: InternalIdentity) -> amqp::Reply {
        match identity {
            InternalIdentity::User(name) => self.known(name),
            InternalIdentity::Operator => {
                (self.is_operator, self.user) = (true, OPERATOR.into());
                amqp::Reply::Authenticated { user: self.user.clone().into_bytes(), impersonator: true }
            }
        }
    }

    /// The address of the client.
    fn address(&self) -> IpAddr {
        match (self.asks_from, self.is_local, self.ends) {
            (Some(address), ..) => address,
            (None, true, _) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            (None, false, Some(ends)) => ends.peer.ip().to_canonical(),
            (None, false, None) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        }
    }

    /// Checks that the client may access the topic in `x-polylogue-topic` of a queue or an exchange: write to a topic of Kafka, or read one. The
    /// default for topics without ACL bindings does not apply here: it is for users of Kafka's listener.
    ///
    /// # Errors
    /// 403 without the permission.
    pub(crate) fn check_topic(&self, arguments: &[Argument], operation: Operation) -> Result<(), Refusal> {
        let Some(topic) = exchange_topic(arguments).filter(|_| !self.is_operator) else { return Ok(()) };
        let who = Claim { name: &self.user, address: self.address() };
        let resource = Resource { kind: ResourceKind::Topic, name: topic };
        if self.grants().is_some_and(|grants| grants.is_administrator()) {
            return Ok(());
        }
        if !self.has_expired() && self.directory.decide(&who, operation, resource) == Decision::Allowed {
            return Ok(());
        }
        let text = format!("{} access to topic '{topic}' refused for user '{}'", operation.name(), self.user);
        Err(Refusal::new(Code::AccessRefused, text))
    }

    pub(crate) fn login(&mut self, token: Token, credentials: Credentials) -> Result<Option<amqp::Reply>, Refusal> {
        if let Some(identity) = self.identity.clone() {
            return Ok(Some(self.admit(identity)));
        }
        let (user, password) = match credentials {
            Credentials::Password { user, password } => (user, password),
            Credentials::External => return self.login_by_certificate().map(Some),
            Credentials::Anonymous => return self.login_anonymously().map(Some),
        };
        if let Some(authority) = self.authority.clone().filter(|authority| authority.takes_tokens())
            && Jwt::is_like(&password)
        {
            return Ok(self.login_by_token(token, authority.as_ref(), &password));
        }
        let name = ByteString::try_from(user).unwrap_or_default();
        self.login_by_password(token, name, Password(password), Ticket::default())
    }

    /// Whether the name is that of the first user, who may not log in on this connection: as in RabbitMQ (`loopback_users`), only from this machine
    /// and at a loopback listener, because its password is public.
    fn is_guest_refused(&self, name: &str) -> bool {
        name == FIRST_USER && !(self.is_local && self.directory.lets_guest())
    }

    /// Returns the user of that name, if it may log in on this connection.
    fn user_who_may_log_in(&self, name: &str) -> Option<Arc<User>> {
        self.directory.metadata().user(name).filter(|_| !self.is_guest_refused(name)).cloned()
    }

    /// Logs in with name and password, as soon as it is the attempt's turn.
    pub(crate) fn login_by_password(
        &mut self,
        token: Token,
        name: ByteString,
        password: Password,
        mut ticket: Ticket,
    ) -> Result<Option<amqp::Reply>, Refusal> {
        let claim = Claim { name: &name, address: self.address() };
        match self.authority.as_ref().map_or(Turn::Now, |authority| authority.turn(&claim, &mut ticket)) {
            Turn::Now => {}
            Turn::After(ms) => {
                let at_ms = self.now.monotonic_ms.saturating_add(ms);
                self.later.push_back((at_ms, Waits::Login(token, name, password, ticket)));
                return Ok(None);
            }
            Turn::Refused => return Err(Refusal::login_refused("PLAIN")),
        }
        if self.user_who_may_log_in(&name).is_some_and(|user| user.knows(&password.0)) {
            self.authority.iter().for_each(|watch| watch.succeeded(&claim, Mechanism::Plain));
            return Ok(Some(self.known(name)));
        }
        let why = if self.is_guest_refused(&name) { GUEST_REFUSED } else { WRONG };
        let failed = |watch: &Arc<dyn Authority>| watch.failed(&claim, Mechanism::Plain, why);
        let delay_ms = self.authority.as_ref().map_or(0, failed);
        if delay_ms == 0 {
            return Err(Refusal::login_refused("PLAIN"));
        }
        self.later.push_back((self.now.monotonic_ms.saturating_add(delay_ms), Waits::WrongLogin(token)));
        Ok(None)
    }

    /// Logs in with a token, ignoring the client's user name: as in RabbitMQ no such user need exist, and the permissions of an existing one are
    /// ignored.
    fn login_by_token(&mut self, token: Token, authority: &dyn Authority, secret: &[u8]) -> Option<amqp::Reply> {
        match bearer(authority, secret) {
            Ok(bearer) => {
                let claim = Claim { name: &bearer.name, address: self.address() };
                authority.succeeded(&claim, Mechanism::Bearer);
                Some(self.login_bearer(bearer))
            }
            Err(error) => {
                let claim = Claim { name: "", address: self.address() };
                let delay_ms = authority.failed(&claim, Mechanism::Bearer, &error.text);
                self.later.push_back((self.now.monotonic_ms.saturating_add(delay_ms), Waits::WrongLogin(token)));
                None
            }
        }
    }

    /// Logs in the bearer of a token.
    fn login_bearer(&mut self, bearer: Bearer) -> amqp::Reply {
        let left_ms = u64::try_from(bearer.until_ms.saturating_sub(self.now.wall_ms)).unwrap_or(0);
        let until_ms = self.now.monotonic_ms.saturating_add(left_ms);
        let impersonator = bearer.grants.tags().iter().any(|tag| tag == IMPERSONATOR);
        self.user = bearer.name.into();
        self.token = Some(TokenRights { grants: Arc::new(bearer.grants), until_ms });
        self.allowed = Default::default();
        amqp::Reply::Authenticated { user: self.user.clone().into_bytes(), impersonator }
    }

    /// Replaces the token of the connection by another one of the same bearer. Passwords do not expire: as with RabbitMQ's own users, any new secret
    /// is accepted for them.
    pub(crate) fn update_secret(&mut self, secret: &[u8]) -> Result<amqp::Reply, Refusal> {
        let Some(authority) = self.authority.clone().filter(|_| self.token.is_some()) else {
            return Ok(amqp::Reply::Done);
        };
        let claim = Claim { name: &self.user, address: self.address() };
        let other = "the new token belongs to another user".to_owned();
        let why = match bearer(authority.as_ref(), secret) {
            Ok(bearer) if *bearer.name == *self.user => {
                authority.succeeded(&claim, Mechanism::Bearer);
                return Ok(self.login_bearer(bearer));
            }
            Ok(_) => other,
            Err(error) => error.text,
        };
        // It closes the connection: there is nothing to slow down.
        authority.failed(&claim, Mechanism::Bearer, &why);
        Err(Refusal::secret_refused())
    }

    /// Whether its rights come from a token that has expired.
    pub(crate) fn has_expired(&self) -> bool {
        self.token.as_ref().is_some_and(|token| token.until_ms <= self.now.monotonic_ms)
    }

    /// The rights from its token: none after its expiry. Existing consumers continue, as in RabbitMQ.
    pub(crate) fn grants(&self) -> Option<Arc<Grants>> {
        let token = self.token.as_ref()?;
        Some(if self.has_expired() { Arc::default() } else { token.grants.clone() })
    }

    /// Logs in as the user of the client's certificate, if that user exists.
    fn login_by_certificate(&mut self) -> Result<amqp::Reply, Refusal> {
        let name = self.certificate.clone().unwrap_or_default();
        self.login_unproven(name, Mechanism::External, "the client has no certificate with a user name")
    }

    /// Logs in a client without a name as the user that `amqp.anonymous_user` names.
    fn login_anonymously(&mut self) -> Result<amqp::Reply, Refusal> {
        let name = self.settings.anonymous_user.as_deref().unwrap_or_default().into();
        self.login_unproven(name, Mechanism::Anonymous, "no user is configured for logins without a name")
    }

    /// Logs in a user without a password; `unnamed` is the reason for a refusal where `name` is empty.
    fn login_unproven(
        &mut self,
        name: ByteString,
        mechanism: Mechanism,
        unnamed: &str,
    ) -> Result<amqp::Reply, Refusal> {
        let claim = Claim { name: &name, address: self.address() };
        if self.user_who_may_log_in(&name).is_some() {
            self.authority.iter().for_each(|watch| watch.succeeded(&claim, mechanism));
            return Ok(self.known(name));
        }
        let why = match name.is_empty() {
            true => unnamed,
            false if self.is_guest_refused(&name) => GUEST_REFUSED,
            false => "there is no such user",
        };
        // No password can be guessed this way: it is counted and not slowed down.
        self.authority.iter().for_each(|watch| _ = watch.failed(&claim, mechanism, why));
        Err(Refusal::login_refused(mechanism.name()))
    }

    /// Logs in a user.
    fn known(&mut self, name: ByteString) -> amqp::Reply {
        let impersonator = self.directory.metadata().user(&name).is_some_and(|user| user.has_tag(IMPERSONATOR));
        self.user = name;
        amqp::Reply::Authenticated { user: self.user.clone().into_bytes(), impersonator }
    }

    pub(crate) fn open_vhost(&mut self, token: Token, vhost: &ShortStr) -> Result<Option<amqp::Reply>, Refusal> {
        let vhost = name(vhost)?;
        if self.is_operator {
            let known = self.directory.metadata().vhost_named(&vhost).map(|vhost| vhost.id);
            let id = known.ok_or_else(|| Refusal::no_vhost(vhost.as_bytes()))?;
            self.enter(id, vhost)?;
            self.entered(token);
            return Ok(None);
        }
        let who = self.who();
        // Committed rights suffice to let it in; the machine refuses.
        if let Some(Ok(id)) = who.subject().map(|user| self.directory.metadata().check_vhost(user, &vhost)) {
            self.enter(id, vhost)?;
            self.entered(token);
            return Ok(None);
        }
        let ask = AmqpRequest::OpenVhost { who, vhost: vhost.clone() };
        self.ask_machine(ask, Waits::Vhost(token, vhost));
        Ok(None)
    }

    /// Enters a virtual host, if its limits allow.
    pub(crate) fn enter(&mut self, id: VhostId, vhost: ByteString) -> Result<(), Refusal> {
        (self.vhost, self.vhost_name) = (id, vhost);
        self.register()
    }

    /// Sends the reply.
    pub(crate) fn entered(&mut self, token: Token) {
        self.reply(token, amqp::Reply::Done);
        self.update_alarm();
    }

    /// Registers the connection in its virtual host, if limits allow one more: listings show it from now on.
    fn register(&mut self) -> Result<(), Refusal> {
        let Some(ends) = self.ends else { return Ok(()) };
        let who = NewConnection {
            id: self.id,
            ends,
            user: self.user.clone(),
            vhost: self.vhost,
            client_properties: self.session.take_client_properties(),
            since_ms: self.now.wall_ms,
        };
        let metadata = self.directory.metadata();
        let check = |in_vhost, of_user| metadata.check_connections(&self.user, self.vhost, in_vhost, of_user);
        self.shown = Some(Entry::new(self.directory.entries(), who, check).map_err(refusal)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
