//! Asking the broker.

use super::Management;
use super::call::Call;
use super::error::Failure;
use crate::handle::BrokerHandle;
use crate::http::Visit;
use crate::net::mailbox::Mail;
use polylogue_amqp::request::{self as amqp};
use polylogue_amqp_gateway::{AmqpAnswer, Principal, Said, View, managed};
use polylogue_amqp_model::{Command, Queue, Reply as Changed, Vhost};
use polylogue_api::{CreateTopics, QueueCounts, Reply, Request, TopicError};
use std::sync::Arc;
use std::time::Duration;

/// How long a handler waits for the broker.
const PATIENCE: Duration = Duration::from_secs(15);
/// Queues that are counted in one request.
const COUNTED_MAX: usize = 1_000;

async fn in_time<T>(answer: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(result) => result,
        Err(_) => Err(Failure::timeout()),
    }
}

fn something_else() -> Failure {
    Failure::internal("the broker said something else than was asked")
}

/// Asks one thing.
async fn one(broker: &Arc<dyn BrokerHandle>, request: Request) -> Result<Reply, Failure> {
    in_time(async {
        let visit = Visit::new(broker);
        visit.submit(0, request);
        loop {
            for mail in visit.mail().await {
                if let Mail::Reply(_, reply) = mail {
                    return Ok(reply);
                }
            }
        }
    })
    .await
}

async fn world(app: &Management, request: Request) -> Result<AmqpAnswer, Failure> {
    match one(&app.broker, request).await? {
        Reply::Machine(Ok(answer)) => match answer.downcast::<AmqpAnswer>() {
            Ok(answer) => Ok(*answer),
            Err(_) => Err(something_else()),
        },
        Reply::Machine(Err(why)) => Err(Failure::unavailable(why)),
        _ => Err(something_else()),
    }
}

/// What is declared now.
pub(super) async fn view(app: &Management) -> Result<Arc<View>, Failure> {
    match world(app, polylogue_amqp_gateway::view()).await? {
        AmqpAnswer::View(view) => Ok(view),
        _ => Err(something_else()),
    }
}

/// Makes a change that only managers make.
///
/// # Errors
/// What is refused, as [`Failure::refused`] says it.
pub(super) async fn change(app: &Management, command: Command) -> Result<Changed, Failure> {
    match world(app, managed(command)).await? {
        AmqpAnswer::Done(reply) => Ok(reply),
        AmqpAnswer::Refused(why) => Err(Failure::refused(&why)),
        _ => Err(something_else()),
    }
}

/// As [`change`], for `PUT`: whether something is there that was not.
pub(super) async fn put(app: &Management, command: Command) -> Result<bool, Failure> {
    Ok(matches!(change(app, command).await?, Changed::Put { created: true }))
}

/// What queues hold, in the same order; nothing for those whose topic is on its way.
pub(super) async fn counts(app: &Management, queues: &[Arc<Queue>]) -> Result<Vec<QueueCounts>, Failure> {
    let catalog = app.broker.catalog();
    let mut all = vec![QueueCounts::default(); queues.len()];
    let there: Vec<_> = queues
        .iter()
        .enumerate()
        .filter_map(|(at, queue)| Some((at, app.directory.partition(queue.id, catalog.as_ref())?)))
        .collect();
    for some in there.chunks(COUNTED_MAX) {
        let partitions = some.iter().map(|(_, partition)| *partition).collect();
        let Reply::DescribeQueues(counts) = one(&app.broker, Request::DescribeQueues(partitions)).await? else {
            return Err(something_else());
        };
        for ((at, _), counts) in some.iter().zip(counts) {
            if let (Some(slot), Some(counts)) = (all.get_mut(*at), counts) {
                *slot = counts;
            }
        }
    }
    Ok(all)
}

/// Makes the topics of queues that nobody declared one by one.
pub(super) async fn make_topics(app: &Management) -> Result<(), Failure> {
    let catalog = app.broker.catalog();
    let view = view(app).await?;
    loop {
        let topics = app.directory.missing_topics(&view, catalog.as_ref());
        if topics.is_empty() {
            return Ok(());
        }
        let create = CreateTopics { topics, validate_only: false };
        let Reply::CreateTopics(made) = one(&app.broker, Request::CreateTopics(create)).await? else {
            return Err(something_else());
        };
        for made in made {
            match made {
                // Somebody who declares the queue makes it, too.
                Ok(_) | Err(TopicError::Exists) => {}
                Err(TopicError::Unavailable(why)) => return Err(Failure::unavailable(why)),
                Err(other) => return Err(Failure::internal(&format!("a queue's topic cannot be made: {other:?}"))),
            }
        }
    }
}

/// A user in a virtual host, who asks for what a connection would ask for.
pub(super) struct Asker<'a> {
    visit: Visit<'a>,
    broker: &'a Arc<dyn BrokerHandle>,
    principal: Principal,
}

impl<'a> Asker<'a> {
    pub(super) fn new(call: &Call<'a>, vhost: &Vhost) -> Asker<'a> {
        let broker = &call.app.broker;
        let visit = Visit::new(broker);
        let (user, vhost) = (call.user.name.clone(), (vhost.id, vhost.name.clone()));
        let directory = call.app.directory.clone();
        let principal = Principal::new(directory, broker.catalog(), visit.id.0, user, vhost, broker.now());
        Asker { visit, broker, principal }
    }

    /// Asks for something that nobody answers.
    pub(super) fn tell(&mut self, request: amqp::Request) {
        self.principal.ask(request);
        self.submit();
    }

    fn submit(&mut self) {
        while let Some((token, request)) = self.principal.poll_request() {
            self.visit.submit(token, request);
        }
    }

    /// The next thing that is said.
    pub(super) async fn said(&mut self) -> Result<Said, Failure> {
        in_time(async {
            loop {
                self.submit();
                if let Some(said) = self.principal.poll_said() {
                    return Ok(said);
                }
                let wait = self
                    .principal
                    .next_deadline_ms()
                    .map(|at| Duration::from_millis(at.saturating_sub(self.broker.now().monotonic_ms)));
                let mail = match wait {
                    None => self.visit.mail().await,
                    Some(wait) => tokio::time::timeout(wait, self.visit.mail()).await.unwrap_or_default(),
                };
                let now = self.broker.now();
                for mail in mail {
                    match mail {
                        Mail::Reply(token, reply) => self.principal.on_reply(token, reply, now),
                        Mail::Event(event) => self.principal.on_event(event, now),
                        Mail::Permit(_) | Mail::Fetched | Mail::Alarm | Mail::Stop | Mail::End(_) => {}
                    }
                }
                self.principal.on_deadline(now);
            }
        })
        .await
    }

    /// Asks for something, and waits for the answer.
    pub(super) async fn ask(&mut self, request: amqp::Request) -> Result<amqp::Reply, Failure> {
        self.tell(request);
        match self.said().await? {
            Said::Reply(reply) => Ok(reply),
            Said::Event(_) => Err(something_else()),
        }
    }

    /// Asks for a declaration or its end.
    ///
    /// # Errors
    /// What is refused, as [`Failure::declaration`] says it.
    pub(super) async fn declare(&mut self, request: amqp::Request) -> Result<amqp::Reply, Failure> {
        match self.ask(request).await? {
            amqp::Reply::Refused(why) => Err(Failure::declaration(&why)),
            reply => Ok(reply),
        }
    }
}
