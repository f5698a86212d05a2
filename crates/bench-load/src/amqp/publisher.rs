//! All publishers of a worker, on one thread.

use crate::amqp::input::Input;
use crate::amqp::load::QueueLoad;
use crate::amqp::template::Template;
use crate::amqp::wire::{Wire, close_channel, said};
use crate::amqp::{queue_name, queues};
use crate::clock::{MS_NS, unix_ns, wait_until, wake_sharply};
use crate::contract::Spec;
use crate::error::{BenchError, Context, Result};
use crate::raw::frames::{wait_for, write_some};
use crate::raw::producer::Produced;
use crate::raw::{Shared, Tally, Times};
use crate::schedule::Schedule;
use crate::stamp::Stamp;
use crate::worker::Produce;
use bytes::Bytes;
use polylogue_amqp::codec::{FrameKind, Method};
use std::collections::VecDeque;
use std::net::TcpStream;

/// The maximum wait before the clock is read again. Nanoseconds.
const WAIT_NS_MAX: u64 = 100 * MS_NS;
/// Approximate size of a write to the socket. Bytes.
const WRITE_BYTES: usize = 64 << 10;

/// Unconfirmed messages by delivery tag.
///
/// ```text
///    first = 4      4    5    6    7    8        next tag: 9
///                 [due,  -,  due,  -,  due]      5 and 7 are confirmed, out of turn
/// ```
#[derive(Debug)]
struct Window {
    /// The tag of the oldest one. A channel counts from 1.
    first: u64,
    /// When each was due; 0 if it is confirmed. Unix nanoseconds.
    due: VecDeque<u64>,
    open: usize,
}

impl Default for Window {
    fn default() -> Window {
        Window { first: 1, due: VecDeque::new(), open: 0 }
    }
}

impl Window {
    fn push(&mut self, due_ns: u64) {
        self.due.push_back(due_ns.max(1));
        self.open += 1;
    }

    /// Applies a confirm; calls `each` with the due times of its messages.
    fn confirm(&mut self, tag: u64, multiple: bool, mut each: impl FnMut(u64)) -> Result<()> {
        let end = match (tag, multiple) {
            (0, true) => self.due.len() as u64,
            _ => (tag + 1).saturating_sub(self.first),
        };
        if end > self.due.len() as u64 || (end == 0 && !multiple) {
            return Err(BenchError::new(format!("the broker confirms message {tag}, which it was not owed")));
        }
        let end = end as usize;
        let from = if multiple { 0 } else { end - 1 };
        let mut confirmed = 0;
        for due in self.due.range_mut(from..end).filter(|due| **due != 0) {
            each(std::mem::take(due));
            confirmed += 1;
        }
        if confirmed == 0 && !multiple {
            return Err(BenchError::new(format!("the broker confirms message {tag} twice")));
        }
        self.open -= confirmed;
        while self.due.front() == Some(&0) {
            self.due.pop_front();
            self.first += 1;
        }
        Ok(())
    }
}

/// One publisher.
#[derive(Debug)]
struct Publisher {
    stream: TcpStream,
    input: Input,
    number: u32,
    /// Next sequence for each queue.
    sequences: Vec<u64>,
    /// The queue of the next message.
    queue: usize,
    templates: Vec<Template>,
    /// Messages created so far.
    next: u64,
    /// The maximum number of messages; with a rate the schedule decides.
    limit: u64,
    schedule: Option<Schedule>,
    /// The bytes being written, the written part, and the number of messages in them.
    out: Vec<u8>,
    written: usize,
    in_out: u64,
    /// Number of those due in the window; without confirms only.
    measured_in_out: u64,
    window: Window,
}

/// All publishers.
#[derive(Debug)]
pub struct Publishers {
    spec: Spec,
    load: QueueLoad,
    publishers: Vec<Publisher>,
    produced: Produced,
}

impl Produce for Publishers {
    fn connect(spec: &Spec) -> Result<Publishers> {
        let load = queues(spec)?;
        let mut publishers = Vec::new();
        let template = |queue| Template::new(queue_name(&spec.topic, queue), spec.message_bytes, load);
        for number in 0..spec.producers {
            let mut wire = Wire::connect(&spec.bootstrap)?;
            wire.open_channel()?;
            if load.confirms {
                wire.confirm()?;
            }
            let (stream, input) = wire.into_parts()?;
            let (all, count) = (spec.messages, u64::from(spec.producers));
            let share = all / count + u64::from(u64::from(number) < all % count);
            let queues = spec.partitions as usize;
            publishers.push(Publisher {
                stream,
                input,
                number: spec.producer_base + number,
                sequences: vec![0; queues],
                queue: queues * number as usize / spec.producers as usize,
                templates: (0..spec.partitions).map(template).collect(),
                next: 0,
                limit: if all == 0 { u64::MAX } else { share },
                schedule: None,
                out: Vec::with_capacity(2 * WRITE_BYTES),
                written: 0,
                in_out: 0,
                measured_in_out: 0,
                window: Window::default(),
            });
        }
        Ok(Publishers { spec: spec.clone(), load, publishers, produced: Produced::default() })
    }

    fn run(mut self, times: &Times, shared: &Shared, tally: &mut Tally) -> Produced {
        wake_sharply();
        if self.spec.rate > 0 {
            let (rate, count) = (self.spec.rate, self.spec.producers);
            for (number, publisher) in (0..).zip(&mut self.publishers) {
                publisher.schedule = Some(Schedule::new(times.start_ns(), times.end_ns(), rate, count, number));
            }
        }
        wait_until(times.start_ns());
        if let Err(e) = self.send_all(times, shared, tally).and_then(|()| self.end()) {
            self.produced.error.get_or_insert(e.to_string());
            shared.stop();
        }
        self.produced.errors = self.produced.sent.saturating_sub(self.produced.acked);
        tally.tick(unix_ns(), true);
        shared.set_produced();
        self.produced
    }
}

impl Publishers {
    fn send_all(&mut self, times: &Times, shared: &Shared, tally: &mut Tally) -> Result<()> {
        let in_flight = if self.load.confirms { self.spec.in_flight as usize } else { usize::MAX };
        loop {
            let mut now = unix_ns();
            tally.tick(now, false);
            if shared.stopped() {
                return Ok(());
            }
            if now > times.deadline_ns() {
                let open: usize = self.publishers.iter().map(|publisher| publisher.window.open).sum();
                return Err(BenchError::new(format!("{open} messages were not confirmed in time")));
            }
            let mut wake = now + WAIT_NS_MAX;
            let mut finished = true;
            for publisher in &mut self.publishers {
                publisher.schedule.iter_mut().for_each(|schedule| schedule.end_at(times.end_ns()));
                publisher.take_answers(times, &mut self.produced, shared, tally)?;
                loop {
                    publisher.write_on(self.load.confirms, &mut self.produced, shared, tally)?;
                    now = unix_ns();
                    if !publisher.out.is_empty() || !publisher.begin(now, times, in_flight, self.load.confirms) {
                        break;
                    }
                    self.produced.sent += publisher.in_out;
                    tally.sent(publisher.in_out);
                }
                if publisher.out.is_empty() && publisher.window.open < in_flight {
                    wake = wake.min(publisher.ready_ns());
                }
                finished &= publisher.out.is_empty() && publisher.window.open == 0 && publisher.at_end(now, times);
            }
            if finished {
                return Ok(());
            }
            self.wait(wake)?;
        }
    }

    /// Closes the channel: unconfirmed messages are with the broker once that has succeeded. Closing the connection alone may lose messages that
    /// `RabbitMQ` has not routed yet.
    fn end(&mut self) -> Result<()> {
        if self.load.confirms {
            return Ok(());
        }
        self.publishers.iter_mut().try_for_each(|publisher| close_channel(&publisher.stream, &mut publisher.input))
    }

    /// Waits until a socket is ready or until `wake_ns`.
    fn wait(&self, wake_ns: u64) -> Result<()> {
        let left = wake_ns.saturating_sub(unix_ns());
        wait_for(self.publishers.iter().map(|publisher| (&publisher.stream, !publisher.out.is_empty())), left)
    }
}

impl Publisher {
    /// Returns when the next message is due. Unix nanoseconds.
    fn ready_ns(&self) -> u64 {
        match &self.schedule {
            Some(schedule) if self.next < schedule.total().min(self.limit) => schedule.due_ns(self.next),
            _ => u64::MAX,
        }
    }

    fn at_end(&self, now: u64, times: &Times) -> bool {
        self.next >= self.limit
            || match &self.schedule {
                Some(schedule) => self.next >= schedule.total(),
                None => now >= times.end_ns(),
            }
    }

    /// Creates the messages that are due now, within the limit in flight; returns `false` if there are none.
    fn begin(&mut self, now: u64, times: &Times, in_flight: usize, confirms: bool) -> bool {
        if self.at_end(now, times) {
            return false;
        }
        let due = self.schedule.map_or(u64::MAX, |schedule| schedule.due_count(now));
        let until = due.min(self.limit);
        while self.next < until && self.window.open < in_flight && self.out.len() < WRITE_BYTES {
            let intended_ns = self.schedule.map_or(now, |schedule| schedule.due_ns(self.next));
            let place = self.templates.get(self.queue).zip(self.sequences.get_mut(self.queue));
            let Some((template, sequence)) = place else { break };
            template.write(&mut self.out, Stamp { intended_ns, sequence: *sequence, producer: self.number });
            *sequence += 1;
            self.queue = (self.queue + 1) % self.sequences.len();
            self.next += 1;
            self.in_out += 1;
            if confirms {
                self.window.push(intended_ns);
            } else {
                self.measured_in_out += u64::from(times.measures(intended_ns));
            }
        }
        self.in_out > 0
    }

    /// Continues writing. Without confirms a message counts when the socket has it.
    fn write_on(&mut self, confirms: bool, produced: &mut Produced, shared: &Shared, tally: &mut Tally) -> Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        self.written += write_some(&self.stream, self.out.get(self.written..).unwrap_or_default())?;
        if self.written < self.out.len() {
            return Ok(());
        }
        self.out.clear();
        let count = std::mem::take(&mut self.in_out);
        self.written = 0;
        if !confirms {
            produced.acked += count;
            *produced.window_acked.get_or_insert(0) += std::mem::take(&mut self.measured_in_out);
            produced.last_ack_ns = unix_ns();
            shared.add_acked(count);
            tally.acked(count);
        }
        Ok(())
    }

    fn take_answers(
        &mut self,
        times: &Times,
        produced: &mut Produced,
        shared: &Shared,
        tally: &mut Tally,
    ) -> Result<()> {
        loop {
            let more = self.input.fill(&self.stream)?;
            let now = unix_ns();
            let mut count = 0;
            while let Some(frame) = self.input.cut()? {
                if frame.kind != FrameKind::Method {
                    continue;
                }
                let payload = Bytes::copy_from_slice(frame.payload);
                let method = Method::decode(&payload).context(|| "the broker answers with no method".to_owned())?;
                let Method::BasicAck(ack) = method else {
                    return Err(said(&method, "the broker, to a publisher,"));
                };
                self.window.confirm(ack.delivery_tag, ack.multiple, |due| {
                    tally.latency(now.saturating_sub(due), 1, times.measures(due));
                    count += 1;
                })?;
            }
            if count > 0 {
                produced.acked += count;
                produced.last_ack_ns = now;
                shared.add_acked(count);
                tally.acked(count);
            }
            if !more {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confirms_come_one_by_one_out_of_turn_and_many_at_once() {
        let mut window = Window::default();
        (10..20).for_each(|due| window.push(due));
        let mut heard = Vec::new();
        window.confirm(2, false, |due| heard.push(due)).expect("it was owed");
        window.confirm(4, false, |due| heard.push(due)).expect("it was owed");
        assert_eq!((heard.as_slice(), window.open, window.first), (&[11, 13][..], 8, 1));
        window.confirm(5, true, |due| heard.push(due)).expect("it was owed");
        assert_eq!((heard.as_slice(), window.open, window.first), (&[11, 13, 10, 12, 14][..], 5, 6));
        window.confirm(0, true, |due| heard.push(due)).expect("all of them");
        assert_eq!((heard.len(), window.open, window.first), (10, 0, 11));
    }

    #[test]
    fn a_confirm_of_what_is_not_owed_is_told() {
        let mut window = Window::default();
        (10..13).for_each(|due| window.push(due));
        assert!(window.confirm(4, false, |_| ()).is_err(), "it was not published");
        assert!(window.confirm(4, true, |_| ()).is_err(), "nor was this");
        window.confirm(2, false, |_| ()).expect("it was owed");
        assert!(window.confirm(2, false, |_| ()).is_err(), "twice");
        window.confirm(1, false, |_| ()).expect("it was owed");
        assert!(window.confirm(1, false, |_| ()).is_err(), "twice, and long ago");
        assert_eq!(window.open, 1);
    }
}
