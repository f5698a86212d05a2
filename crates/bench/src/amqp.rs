//! The AMQP driver: as little client as there can be, so that what is measured is the broker; the same for every broker.
//!
//! ```text
//!   thread "bench-produce"                                thread "bench-read"
//!   schedule -> template, stamped -> socket               socket -> deliveries -> stamps verified, ages taken
//!          <- confirms -> latencies                       -> acknowledgements, so many at once
//! ```
//!
//! A message goes as three frames in one buffer: method, header, body.
//!
//! ```text
//!   +------------------------------+----------------------------+-------------------------------+
//!   | basic.publish "" queue name  | header: size, delivery mode | body: stamp, filler           |
//!   +------------------------------+----------------------------+-------------------------------+
//!                                                                       ^ written for each message
//! ```
//!
//! [`load`] is what queues are measured under; [`wire`] prepares a connection; [`input`] cuts frames; [`publisher`] and
//! [`consumer`] are the two halves; [`template`] is a message that can be sent again and again.

pub mod consumer;
pub mod input;
pub mod load;
pub mod publisher;
pub mod template;
pub mod wire;

use crate::contract::Spec;
use crate::error::{BenchError, Result};
use crate::raw::producer::Produced;
use crate::raw::reader::ReadOut;
use crate::raw::{Shared, Tally, Times};
use crate::worker::Client;
use consumer::Consumers;
use load::QueueLoad;
use publisher::Publishers;

/// The AMQP driver as a worker.
#[derive(Debug)]
pub struct Amqp;

impl Client for Amqp {
    type Producers = Publishers;
    type Readers = Consumers;

    fn producers(spec: &Spec) -> Result<Publishers> {
        Publishers::connect(spec)
    }

    fn readers(spec: &Spec) -> Result<Consumers> {
        Consumers::connect(spec)
    }

    fn produce(producers: Publishers, times: Times, shared: &Shared, tally: &mut Tally) -> Produced {
        producers.run(times, shared, tally)
    }

    fn read(readers: Consumers, times: Times, shared: &Shared, tally: &mut Tally) -> ReadOut {
        readers.run(times, shared, tally)
    }
}

/// What a spec says of queues.
///
/// # Errors
/// When it says nothing: it is for another driver.
pub fn queues(spec: &Spec) -> Result<QueueLoad> {
    spec.queues.ok_or_else(|| BenchError::new(format!("the spec for topic {} says nothing of queues", spec.topic)))
}

/// The name of the queue of this number: what a partition is to Kafka's drivers.
#[must_use]
pub fn queue_name(topic: &str, number: u32) -> String {
    format!("{topic}-{number}")
}
