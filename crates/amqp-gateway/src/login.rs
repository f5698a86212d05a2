//! Who is at the other end of a connection, and in which virtual host.

use crate::connection::{Connection, Insider};
use crate::convert::{name, refusal};
use crate::machine::{AmqpAsk, FIRST_USER, IMPERSONATOR};
use crate::operation::Waits;
use crate::presence::{Entry, Newcomer};
use bytestring::ByteString;
use polylogue_amqp::codec::ShortStr;
use polylogue_amqp::refusal::Refusal;
use polylogue_amqp::request::{self as amqp, Credentials};
use polylogue_api::Token;
use polylogue_router::VhostId;

/// What listings call whoever runs the broker, as RabbitMQ does; nothing is looked up by it.
const OPERATOR: &str = "none";

impl Connection {
    /// Who is inside of this process is who it is.
    fn admit(&mut self, insider: Insider) -> amqp::Reply {
        let impersonator = match insider {
            Insider::Operator => {
                (self.is_operator, self.user) = (true, OPERATOR.into());
                true
            }
            Insider::User(name) => {
                let is_impersonator = self.directory.world().user(&name).is_some_and(|user| user.has_tag(IMPERSONATOR));
                self.user = name;
                is_impersonator
            }
        };
        amqp::Reply::Authenticated { user: self.user.clone().into_bytes(), impersonator }
    }

    pub(crate) fn login(&mut self, token: Token, credentials: Credentials) -> Result<Option<amqp::Reply>, Refusal> {
        if let Some(insider) = self.insider.clone() {
            return Ok(Some(self.admit(insider)));
        }
        match credentials {
            // As with RabbitMQ (`loopback_users`): everybody knows this password.
            Credentials::Password { user, .. } if user == FIRST_USER && !self.is_local => {
                Err(Refusal::login_refused("PLAIN"))
            }
            Credentials::Password { user, password } => {
                self.ask_machine(AmqpAsk::Login { user, password }, Waits::Login(token));
                Ok(None)
            }
            Credentials::External => Err(Refusal::login_refused("EXTERNAL")),
        }
    }

    pub(crate) fn open_vhost(&mut self, token: Token, vhost: &ShortStr) -> Result<Option<amqp::Reply>, Refusal> {
        let vhost = name(vhost)?;
        if self.is_operator {
            let known = self.directory.world().vhost_named(&vhost).map(|vhost| vhost.id);
            let id = known.ok_or_else(|| Refusal::no_vhost(vhost.as_bytes()))?;
            self.enter(id, vhost)?;
            self.entered(token);
            return Ok(None);
        }
        let ask = AmqpAsk::OpenVhost { user: self.user.clone(), vhost: vhost.clone() };
        self.ask_machine(ask, Waits::Vhost(token, vhost));
        Ok(None)
    }

    /// It is in a virtual host, if there is room.
    pub(crate) fn enter(&mut self, id: VhostId, vhost: ByteString) -> Result<(), Refusal> {
        (self.vhost, self.vhost_name) = (id, vhost);
        self.appear()
    }

    /// It hears so.
    pub(crate) fn entered(&mut self, token: Token) {
        self.reply(token, amqp::Reply::Done);
        self.look_at_alarm();
    }

    /// The connection is in a virtual host, if that and the user may have one more: listings show it from now on.
    fn appear(&mut self) -> Result<(), Refusal> {
        let Some(ends) = self.ends else { return Ok(()) };
        let who = Newcomer {
            id: self.id,
            ends,
            user: self.user.clone(),
            vhost: self.vhost,
            client_properties: self.session.take_client_properties(),
            since_ms: self.now.wall_ms,
        };
        let world = self.directory.world();
        let check = |in_vhost, of_user| world.check_connections(&self.user, self.vhost, in_vhost, of_user);
        self.shown = Some(Entry::new(self.directory.books(), who, check).map_err(refusal)?);
        Ok(())
    }
}
