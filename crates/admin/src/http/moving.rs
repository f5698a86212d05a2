//! `POST /api/v1/vhosts/VHOST/queues/NAME/move`: moves messages from one queue to another.
//!
//! A message is acknowledged in its queue after it is durable in all target queues. A crash in between, or a broker that does not answer
//! in time, duplicates messages and loses none. A message that cannot be moved keeps its position in the queue.

use super::App;
use super::error::{Failure, text_of};
use super::queues::take;
use super::vhosts::{Within, short};
use crate::api::queues::{MoveMessages, MoveTo, Moved};
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use polylogue_amqp::codec::{Properties, ShortStr};
use polylogue_amqp::request::{self as amqp, Body, Delivery, Publish};
use polylogue_amqp::session::UncheckedPublish as Published;
use polylogue_amqp_gateway::{PrincipalOutput, without_counts};
use polylogue_amqp_model::QueueKind;
use polylogue_api::{PublishError, Unavailable};
use polylogue_net::declared::{Asker, Got, payload_of};
use std::sync::Arc;

/// The maximum number of messages that one request moves.
const MOVED_MAX: u32 = 1_000;
/// The maximum number of messages that one request skips.
const SKIPPED_MAX: u32 = 10_000;
/// Bytes of bodies that one request moves, exceeded only by a single larger message.
const MOVED_BYTES_MAX: usize = 16 << 20;
/// Header with the queue in which a message was dead-lettered first.
const FIRST_DEATH_QUEUE: &str = "x-first-death-queue";

/// A target that exists.
enum Target {
    Queue(ShortStr),
    Exchange(ShortStr, Option<ShortStr>),
    FirstDeath,
}

fn target(within: &Within, from: &str, to: Option<&MoveTo>) -> Result<Target, Failure> {
    let Some(MoveTo { queue, exchange, routing_key }) = to else { return Ok(Target::FirstDeath) };
    match (queue, exchange, routing_key) {
        (Some(queue), None, None) => {
            within.queue(queue)?;
            match queue == from {
                true => Err(Failure::invalid(format!("{queue} is the source queue"))),
                false => Ok(Target::Queue(short(queue)?)),
            }
        }
        (None, Some(exchange), key) => {
            let there = within.view.routes.exchange(within.vhost.id, exchange.as_bytes()).is_some();
            match there {
                true => Ok(Target::Exchange(short(exchange)?, key.as_deref().map(short).transpose()?)),
                false => Err(Failure::unknown_exchange(exchange)),
            }
        }
        _ => Err(Failure::invalid("to must be a queue, or an exchange with or without a routing_key".to_owned())),
    }
}

/// Returns the exchange and routing key for a message, or why there are none.
fn way(
    within: &Within,
    from: &str,
    target: &Target,
    properties: &Properties,
    own: &ShortStr,
) -> Result<[ShortStr; 2], String> {
    match target {
        Target::Queue(queue) => Ok([ShortStr::EMPTY, queue.clone()]),
        Target::Exchange(exchange, key) => Ok([exchange.clone(), key.clone().unwrap_or_else(|| own.clone())]),
        Target::FirstDeath => {
            let headers = properties.headers();
            let named = headers.as_ref().and_then(|headers| headers.get(FIRST_DEATH_QUEUE)?.as_longstr());
            let name = named.and_then(|name| std::str::from_utf8(name).ok());
            let name = name.ok_or_else(|| format!("it was not dead-lettered: it has no header {FIRST_DEATH_QUEUE}"))?;
            if name == from {
                return Err("it was dead-lettered from this queue".to_owned());
            }
            within
                .queue(name)
                .map_err(|_| format!("the queue {name}, from which it was dead-lettered, does not exist"))?;
            let key = short(name).map_err(|_| format!("{name} is not a valid queue name"))?;
            Ok([ShortStr::EMPTY, key])
        }
    }
}

/// Converts a delivery to a publish to its target, without the CC and BCC headers.
fn again(
    delivery: &Delivery,
    [exchange, routing_key]: [ShortStr; 2],
    properties: Properties,
) -> Result<Publish, String> {
    let body = payload_of(delivery).map_err(|_| "it cannot be decoded".to_owned())?;
    let unchecked = Published { exchange, routing_key, mandatory: true, properties, body: Body::One(body) };
    let publish = Publish::checked(unchecked, b"", true).map_err(|why| why.text)?;
    Ok(Publish { cc: Vec::new(), bcc: Vec::new(), ..publish })
}

/// Returns why a message was not stored in all of its queues.
fn rejected(why: PublishError) -> String {
    match why {
        PublishError::QueueFull => "a target queue is full and rejects it".to_owned(),
        PublishError::UnknownQueue => "a target queue was deleted".to_owned(),
        PublishError::Unavailable(why) => text_of(why).to_owned(),
    }
}

/// The outcome of each publish, by its number from 1; `None` until it is confirmed or rejected.
struct Outcomes {
    of: Vec<Option<Result<(), String>>>,
    open: usize,
    returned: bool,
}

impl Outcomes {
    fn set(&mut self, number: usize, outcome: Result<(), String>) {
        if let Some(slot @ None) = number.checked_sub(1).and_then(|at| self.of.get_mut(at)) {
            *slot = Some(outcome);
            self.open -= 1;
        }
    }

    /// `last` is the sequence number of the last published message.
    fn on_output(&mut self, output: PrincipalOutput, last: usize) {
        let numbers = |first: u64, to: u64| first as usize..=to as usize;
        match output {
            // basic.return precedes the confirmation of the same message.
            PrincipalOutput::Event(amqp::Event::Return { .. }) => self.returned = true,
            PrincipalOutput::Event(amqp::Event::Confirmed { first, last: to, .. }) => {
                let returned = std::mem::take(&mut self.returned);
                let outcome = || if returned { Err("it is unroutable there".to_owned()) } else { Ok(()) };
                numbers(first, to).for_each(|number| self.set(number, outcome()));
            }
            PrincipalOutput::Rejected { first, last: to, why } => {
                numbers(first, to).for_each(|number| self.set(number, Err(rejected(why))));
            }
            PrincipalOutput::Event(amqp::Event::CloseChannel { refusal, .. }) => self.set(last, Err(refusal.text)),
            PrincipalOutput::Event(_) | PrincipalOutput::Reply(_) => {}
        }
    }

    /// Returns the outcomes. Unconfirmed messages are kept here: they may have been stored in the target.
    fn all(self) -> Vec<Result<(), String>> {
        let unknown = || Err("the broker did not answer in time: it may be in the target as well".to_owned());
        self.of.into_iter().map(|outcome| outcome.unwrap_or_else(unknown)).collect()
    }
}

/// Publishes all messages, within a connection's limit of unconfirmed ones, and waits until each is confirmed or rejected, or until the
/// broker stops answering.
async fn publish(asker: &mut Asker<'_>, messages: Vec<Result<Publish, String>>) -> Vec<Result<(), String>> {
    let count = messages.len();
    let mut outcomes = Outcomes { of: (0..count).map(|_| None).collect(), open: count, returned: false };
    for (at, message) in messages.into_iter().enumerate() {
        match message {
            Err(why) => outcomes.set(at + 1, Err(why)),
            Ok(message) => {
                while !asker.may_publish() {
                    let Ok(output) = asker.next_output().await else { return outcomes.all() };
                    outcomes.on_output(output, at);
                }
                asker.publish(Publish { seq: Some(at as u64 + 1), ..message });
                while let Some(output) = asker.ready_output() {
                    outcomes.on_output(output, at + 1);
                }
            }
        }
    }
    while outcomes.open > 0 {
        let Ok(output) = asker.next_output().await else { break };
        outcomes.on_output(output, count);
    }
    outcomes.all()
}

pub(super) async fn serve(
    State(app): State<Arc<App>>,
    Path((vhost, name)): Path<(String, String)>,
    body: Result<Json<MoveMessages>, JsonRejection>,
) -> Result<Json<Moved>, Failure> {
    let Json(wanted) = body?;
    if !(1..=MOVED_MAX).contains(&wanted.limit) {
        return Err(Failure::invalid(format!("limit is {}, it must be from 1 to {MOVED_MAX}", wanted.limit)));
    }
    if wanted.skip > SKIPPED_MAX {
        return Err(Failure::invalid(format!("skip is {}, it must be at most {SKIPPED_MAX}", wanted.skip)));
    }
    let within = Within::of(&app, &vhost).await?;
    within.queue(&name)?;
    let target = target(&within, &name, wanted.to.as_ref())?;
    if app.broker.is_disk_alarm() {
        // The publishes would wait for disk space and take effect later, as duplicates.
        return Err(Failure::unavailable(Unavailable::StorageFull));
    }
    let mut got = Got::new(within.mover(&app));
    pieces(&within, &mut got, &name, &target, &wanted).await.map(Json)
}

/// Moves one batch. Messages that stay are requeued when `got` is dropped.
async fn pieces(
    within: &Within,
    got: &mut Got<'_>,
    name: &str,
    target: &Target,
    wanted: &MoveMessages,
) -> Result<Moved, Failure> {
    let (queue, is_quorum) = (short(name)?, within.queue(name)?.kind == QueueKind::Quorum);
    let mut answer = Moved { moved: 0, stay: 0, why: None, done: true };
    for _ in 0..wanted.skip {
        if take(got, &queue).await?.is_none() {
            return Ok(answer);
        }
    }
    let (mut places, mut messages, mut bytes) = (Vec::new(), Vec::new(), 0);
    answer.done = false;
    while messages.len() < wanted.limit as usize && bytes < MOVED_BYTES_MAX {
        let Some(delivery) = take(got, &queue).await? else {
            answer.done = true;
            break;
        };
        places.push(delivery.place);
        bytes += delivery.payload.len();
        // The delivery count belongs to this queue and is not a header of the message.
        let properties = if is_quorum { without_counts(&delivery.properties) } else { delivery.properties.clone() };
        let properties = Properties::new(properties).map_err(|e| e.to_string());
        messages.push(properties.and_then(|properties| {
            let way = way(within, name, target, &properties, &delivery.routing_key)?;
            again(&delivery, way, properties)
        }));
    }
    let outcomes = publish(got.asker(), messages).await;
    let mut gone = Vec::with_capacity(places.len());
    for (place, outcome) in places.into_iter().zip(outcomes) {
        match outcome {
            Ok(()) => gone.push(place),
            Err(why) => {
                answer.stay += 1;
                answer.why.get_or_insert(why);
            }
        }
    }
    answer.moved = gone.len() as u64;
    match got.acknowledge(gone).await? {
        amqp::Reply::Refused(why) => Err(Failure::refused(why.code, &why.text)),
        _ => Ok(answer),
    }
}
