//! Requests to the broker.

use super::Management;
use super::call::Call;
use super::error::Failure;
use super::slow;
use bytestring::ByteString;
use polylogue_amqp::request::{self as amqp};
use polylogue_amqp_gateway::{Principal, PrincipalOutput, View};
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

/// Returns the current definitions.
pub(super) async fn view(app: &Management) -> Result<Arc<View>, Failure> {
    Ok(declared::view(&app.broker).await?)
}

/// Applies a management command.
///
/// # Errors
/// The refusal, as [`Failure::refused`] maps it.
pub(super) async fn change(app: &Management, command: Command) -> Result<Changed, Failure> {
    let _remembered = slow::prepare(app, &command).await?;
    Ok(declared::change(&app.broker, command).await?)
}

/// As [`change`], recorded as set by the calling user: shovels and federation links get this user's permissions on this broker. A user logged in by a
/// token has no lasting permissions and is not recorded.
pub(super) async fn change_by(call: &Call<'_>, command: Command) -> Result<Changed, Failure> {
    let _remembered = slow::prepare(call.app, &command).await?;
    match call.grants {
        Some(_) => change(call.app, command).await,
        None => Ok(declared::change_by(&call.app.broker, call.user.name.clone(), command).await?),
    }
}

/// As [`change`], for `PUT`. Returns whether the object was created.
pub(super) async fn put(app: &Management, command: Command) -> Result<bool, Failure> {
    Ok(matches!(change(app, command).await?, Changed::Put { created: true }))
}

/// Returns the queues' counts, in the same order; zeros for a queue whose topic is still being created.
pub(super) async fn counts(app: &Management, queues: &[Arc<Queue>]) -> Result<Vec<QueueCounts>, Failure> {
    Ok(declared::counts(&app.broker, &app.directory, queues).await?)
}

/// Creates the missing topics of queues.
pub(super) async fn make_topics(app: &Management) -> Result<(), Failure> {
    Ok(declared::make_topics(&app.broker, &app.directory).await?)
}

/// A user's internal connection to a virtual host.
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

    /// Sends a request that has no reply.
    pub(super) fn tell(&mut self, request: amqp::Request) {
        self.asker.tell(request);
    }

    /// Returns the next event or reply.
    pub(super) async fn next_output(&mut self) -> Result<PrincipalOutput, Failure> {
        Ok(self.asker.next_output().await?)
    }

    /// Sends a request and waits for its reply.
    pub(super) async fn ask(&mut self, request: amqp::Request) -> Result<amqp::Reply, Failure> {
        Ok(self.asker.ask(request).await?)
    }

    /// Converts it for getting messages.
    pub(super) fn gets(self) -> Got<'a> {
        Got::new(self.asker)
    }

    /// Sends a declaration or deletion.
    ///
    /// # Errors
    /// The refusal, as [`Failure::declaration`] maps it.
    pub(super) async fn declare(&mut self, request: amqp::Request) -> Result<amqp::Reply, Failure> {
        if let Some(name) = declared_name(&request) {
            // Dropped at once: the matches stay cached, since the policies hold them.
            drop(slow::work_off(self.app, self.view.metadata.slow_matches_of_name(self.vhost, &name)).await);
        }
        match self.ask(request).await? {
            amqp::Reply::Refused(why) => Err(Failure::declaration(&why)),
            reply => Ok(reply),
        }
    }
}

/// Returns the name of the queue or exchange that a request may create.
fn declared_name(request: &amqp::Request) -> Option<ByteString> {
    let name = match request {
        amqp::Request::DeclareQueue(_, declare) => &declare.name,
        amqp::Request::DeclareExchange(_, declare) => &declare.name,
        _ => return None,
    };
    std::str::from_utf8(name.as_ref()).ok().map(ByteString::from)
}
