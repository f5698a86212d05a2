//! Asking the broker.

use super::Management;
use super::call::Call;
use super::error::Failure;
use super::slow;
use bytestring::ByteString;
use polylogue_amqp::request::{self as amqp};
use polylogue_amqp_gateway::{Principal, Said, View};
use polylogue_amqp_model::{Command, Queue, Reply as Changed, Vhost};
use polylogue_api::QueueCounts;
use polylogue_net::declared::{self, Fault, Got};
use polylogue_router::VhostId;
use std::sync::Arc;

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Failure {
        match fault {
            Fault::Refused(why) => Failure::refused(&why),
            Fault::Unavailable(why) => Failure::unavailable(why),
            Fault::Timeout => Failure::timeout(),
            Fault::Internal(why) => Failure::internal(&why),
        }
    }
}

/// What is declared now.
pub(super) async fn view(app: &Management) -> Result<Arc<View>, Failure> {
    Ok(declared::view(&app.broker).await?)
}

/// Makes a change that only managers make.
///
/// # Errors
/// What is refused, as [`Failure::refused`] says it.
pub(super) async fn change(app: &Management, command: Command) -> Result<Changed, Failure> {
    let _remembered = slow::prepare(app, &command).await?;
    Ok(declared::change(&app.broker, command).await?)
}

/// As [`change`], recorded as set by the user who asks: what shovels and links of federation may do on this broker follows from it. A user by a token
/// has no rights that last, and is not recorded.
pub(super) async fn change_by(call: &Call<'_>, command: Command) -> Result<Changed, Failure> {
    let _remembered = slow::prepare(call.app, &command).await?;
    match call.grants {
        Some(_) => change(call.app, command).await,
        None => Ok(declared::change_by(&call.app.broker, call.user.name.clone(), command).await?),
    }
}

/// As [`change`], for `PUT`: whether something is there that was not.
pub(super) async fn put(app: &Management, command: Command) -> Result<bool, Failure> {
    Ok(matches!(change(app, command).await?, Changed::Put { created: true }))
}

/// What queues hold, in the same order; nothing for those whose topic is on its way.
pub(super) async fn counts(app: &Management, queues: &[Arc<Queue>]) -> Result<Vec<QueueCounts>, Failure> {
    Ok(declared::counts(&app.broker, &app.directory, queues).await?)
}

/// Makes the topics of queues that were not declared one by one.
pub(super) async fn make_topics(app: &Management) -> Result<(), Failure> {
    Ok(declared::make_topics(&app.broker, &app.directory).await?)
}

/// A user in a virtual host, who asks for what a connection would ask for.
pub(super) struct Asker<'a> {
    asker: declared::Asker<'a>,
    app: &'a Management,
    view: Arc<View>,
    vhost: VhostId,
}

impl<'a> Asker<'a> {
    pub(super) fn new(call: &Call<'a>, vhost: &Vhost) -> Asker<'a> {
        let id = vhost.id;
        let (user, vhost) = (call.user.name.clone(), (vhost.id, vhost.name.clone()));
        let (directory, grants, address) = (call.app.directory.clone(), call.grants.clone(), call.address);
        let (app, view) = (call.app, call.view.clone());
        let asker = declared::Asker::new(&app.broker, |catalog, id, now| {
            let principal = Principal::new(directory, catalog, id, user, vhost, now).from_address(address);
            match grants {
                Some(grants) => principal.with_grants(grants),
                None => principal,
            }
        });
        Asker { asker, app, view, vhost: id }
    }

    /// Sends a request without an answer.
    pub(super) fn tell(&mut self, request: amqp::Request) {
        self.asker.tell(request);
    }

    /// The next thing that is said.
    pub(super) async fn said(&mut self) -> Result<Said, Failure> {
        Ok(self.asker.said().await?)
    }

    /// Asks for something, and waits for the answer.
    pub(super) async fn ask(&mut self, request: amqp::Request) -> Result<amqp::Reply, Failure> {
        Ok(self.asker.ask(request).await?)
    }

    /// The same, who gets messages.
    pub(super) fn gets(self) -> Got<'a> {
        Got::new(self.asker)
    }

    /// Asks for a declaration or its end.
    ///
    /// # Errors
    /// What is refused, as [`Failure::declaration`] says it.
    pub(super) async fn declare(&mut self, request: amqp::Request) -> Result<amqp::Reply, Failure> {
        if let Some(name) = declared_name(&request) {
            // Their policies keep them in use.
            drop(slow::work_off(self.app, self.view.world.slow_matches_of_name(self.vhost, &name)).await);
        }
        match self.ask(request).await? {
            amqp::Reply::Refused(why) => Err(Failure::declaration(&why)),
            reply => Ok(reply),
        }
    }
}

/// The name of a queue or an exchange that may be new.
fn declared_name(request: &amqp::Request) -> Option<ByteString> {
    let name = match request {
        amqp::Request::DeclareQueue(_, declare) => &declare.name,
        amqp::Request::DeclareExchange(_, declare) => &declare.name,
        _ => return None,
    };
    std::str::from_utf8(name.as_ref()).ok().map(ByteString::from)
}
