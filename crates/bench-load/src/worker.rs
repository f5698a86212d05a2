//! The worker's side of the [`crate::contract`] for clients in Rust: the raw driver, and librdkafka in a separate program.

use crate::clock::{MS_NS, SECOND_NS, process_cpu_ns, seconds, unix_ns};
use crate::contract::{Done, Line, Measure, Second, Spec, Start};
use crate::error::{BenchError, Context, Result};
use crate::latency::Latency;
use crate::raw::producer::Produced;
use crate::raw::reader::ReadOut;
use crate::raw::{Shared, Tally, Times};
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Delay after which a second is reported, so that both threads have sent theirs. Nanoseconds.
const REPORT_AFTER_NS: u64 = 500 * MS_NS;
/// Interval between checks for seconds to report.
const POLL_EVERY: Duration = Duration::from_millis(100);

/// All producers of a client, on a thread of their own.
pub trait Produce: Sized + Send + 'static {
    /// Connects the producers.
    ///
    /// # Errors
    /// A connection fails, or the broker rejects a producer.
    fn connect(spec: &Spec) -> Result<Self>;

    /// Sends all messages and waits for all acknowledgements. Errors are part of the result.
    fn run(self, times: &Times, shared: &Shared, tally: &mut Tally) -> Produced;
}

/// All readers of a client, on a thread of their own.
pub trait Read: Sized + Send + 'static {
    /// Connects the readers and looks up their start offsets.
    ///
    /// # Errors
    /// A connection fails, or the broker rejects a reader.
    fn connect(spec: &Spec) -> Result<Self>;

    /// Reads until all messages have arrived, or until the deadline. Errors are part of the result.
    fn run(self, times: &Times, shared: &Shared, tally: &mut Tally) -> ReadOut;
}

/// Runs the worker: reads the spec and the start from `input`, and writes seconds and the result to `output`.
///
/// # Errors
/// The spec is invalid, connecting fails, or the output cannot be written.
pub fn work<P: Produce, R: Read>(mut input: impl BufRead + Send + 'static, mut output: impl Write) -> Result<()> {
    let spec: Spec = read_line(&mut input, "the spec")?;
    spec.check()?;
    let producers = (spec.producers > 0).then(|| P::connect(&spec)).transpose()?;
    let readers = (spec.groups > 0).then(|| R::connect(&spec)).transpose()?;
    write_line(&mut output, &Line::Ready(true))?;
    let start: Start = read_line(&mut input, "the start")?;
    let times = Arc::new(Times::new(start.start_ns, spec.warmup_ms, spec.window_ms));
    let shared = Arc::new(Shared::default());
    if spec.open_warmup {
        await_measure(input, &times, &shared)?;
    }
    let done = run(producers, readers, &times, &shared, spec.shape.histograms, &mut output)?;
    write_line(&mut output, &Line::Done(Box::new(done)))
}

/// Waits, on a thread of its own, for the line that ends an open warm-up. The thread is detached, because the line may never come.
fn await_measure(mut input: impl BufRead + Send + 'static, times: &Arc<Times>, shared: &Arc<Shared>) -> Result<()> {
    let (times, shared) = (Arc::clone(times), Arc::clone(shared));
    let body = move || {
        let mut line = String::new();
        if !input.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            return;
        }
        match serde_json::from_str::<Measure>(&line) {
            Ok(stated) => times.measure(stated),
            Err(e) => shared.fail(format!("the line that ends the warm-up is invalid: {e}")),
        }
    };
    let thread = Builder::new().name("bench-measure".to_owned()).spawn(body);
    thread.context(|| "cannot start a thread".to_owned()).map(drop)
}

fn read_line<T: serde::de::DeserializeOwned>(input: &mut impl BufRead, what: &str) -> Result<T> {
    let mut line = String::new();
    input.read_line(&mut line).context(|| format!("cannot read {what}"))?;
    serde_json::from_str(&line).context(|| format!("{what} is invalid"))
}

fn write_line(output: &mut impl Write, line: &Line) -> Result<()> {
    let text = line.to_text()?;
    writeln!(output, "{text}").and_then(|()| output.flush()).context(|| "cannot write the output".to_owned())
}

type Thread<T> = Option<JoinHandle<(T, Latency)>>;

/// Runs `body`, if any, on a thread of its own.
fn begin<T: Send + 'static>(
    name: &str,
    body: Option<impl FnOnce() -> (T, Latency) + Send + 'static>,
) -> Result<Thread<T>> {
    let start =
        |body| Builder::new().name(name.to_owned()).spawn(body).context(|| format!("cannot start the thread {name}"));
    body.map(start).transpose()
}

fn end<T: Default>(thread: Thread<T>) -> Result<(T, Latency)> {
    match thread.map(JoinHandle::join) {
        None => Ok((T::default(), Latency::new())),
        Some(Ok(out)) => Ok(out),
        Some(Err(_)) => Err(BenchError::new("a thread of the driver panicked; its message is in the log above")),
    }
}

fn run<P: Produce, R: Read>(
    producers: Option<P>,
    readers: Option<R>,
    times: &Arc<Times>,
    shared: &Arc<Shared>,
    histograms: bool,
    output: &mut impl Write,
) -> Result<Done> {
    let (to, seconds_ended) = channel();
    let cpu = process_cpu_ns();
    let publishing = producers.map(|producers| {
        let (times, shared) = (Arc::clone(times), Arc::clone(shared));
        let mut tally = Tally::new(times.start_ns(), true, to.clone()).with_histograms(histograms);
        move || {
            let produced = producers.run(&times, &shared, &mut tally);
            (produced, tally.into_latency())
        }
    });
    let reading = readers.map(|readers| {
        let (times, shared) = (Arc::clone(times), Arc::clone(shared));
        let mut tally = Tally::new(times.start_ns(), false, to.clone()).with_histograms(histograms);
        move || {
            let read = readers.run(&times, &shared, &mut tally);
            (read, tally.into_latency())
        }
    });
    drop(to);
    let publishing = begin("bench-produce", publishing)?;
    let reading = begin("bench-read", reading)?;
    report_seconds(&seconds_ended, times.start_ns(), output)?;
    let (produced, publish) = end(publishing)?;
    let (read, end_to_end) = end(reading)?;
    let since_start = |ns: u64| seconds(ns.saturating_sub(times.start_ns()));
    Ok(Done {
        sent: produced.sent,
        acked: produced.acked,
        window_acked: produced.window_acked,
        errors: produced.errors,
        error: shared.failure().or(produced.error).or(read.error),
        received: read.findings.received,
        lost: read.findings.lost,
        holes: Some(read.findings.holes),
        duplicated: read.findings.duplicated,
        out_of_order: read.findings.out_of_order,
        cpu_s: seconds(process_cpu_ns().saturating_sub(cpu)),
        publish_s: since_start(produced.last_ack_ns),
        read_s: since_start(read.last_ns),
        read_bytes: read.bytes,
        publish: publish.to_text()?,
        end_to_end: end_to_end.to_text()?,
    })
}

/// Writes each second once, merged from both threads, until both have ended.
fn report_seconds(stated: &Receiver<Second>, start_ns: u64, output: &mut impl Write) -> Result<()> {
    let mut waiting: BTreeMap<u64, Second> = BTreeMap::new();
    loop {
        let ended = match stated.recv_timeout(POLL_EVERY) {
            Ok(second) => {
                let number = second.second;
                let entry = waiting.entry(number).or_insert(Second { second: number, ..Second::default() });
                merge(entry, &second)?;
                false
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => true,
        };
        let passed = unix_ns().saturating_sub(start_ns.saturating_add(REPORT_AFTER_NS)) / SECOND_NS;
        while let Some(first) = waiting.first_entry().filter(|first| ended || *first.key() < passed) {
            write_line(output, &Line::Second(first.remove()))?;
        }
        if ended {
            return Ok(());
        }
    }
}

/// Adds another thread's counts of the same second. A thread that ends sends the rest of its second separately.
fn merge(into: &mut Second, from: &Second) -> Result<()> {
    into.sent += from.sent;
    into.acked += from.acked;
    into.received += from.received;
    into.publish_max_ns = into.publish_max_ns.max(from.publish_max_ns);
    into.publish_p99_ns = into.publish_p99_ns.max(from.publish_p99_ns);
    into.end_to_end_max_ns = into.end_to_end_max_ns.max(from.end_to_end_max_ns);
    into.end_to_end_p99_ns = into.end_to_end_p99_ns.max(from.end_to_end_p99_ns);
    into.publish = both(into.publish.take(), from.publish.as_ref())?;
    into.end_to_end = both(into.end_to_end.take(), from.end_to_end.as_ref())?;
    Ok(())
}

fn both(one: Option<String>, other: Option<&String>) -> Result<Option<String>> {
    match (one, other) {
        (Some(one), Some(other)) => {
            let mut sum = Latency::from_text(&one)?;
            sum.add(&Latency::from_text(other)?);
            sum.to_text().map(Some)
        }
        (one, other) => Ok(one.or_else(|| other.cloned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null::{NullBroker, NullSpec};
    use crate::raw::producer::Producers;
    use crate::raw::reader::Readers;
    use std::io::Cursor;

    fn null(stall_ms: Option<(u64, u64)>) -> String {
        let listen = ([127, 0, 0, 1], 0).into();
        let spec = NullSpec { listen, partitions: 3, message_bytes: 100, stall_ms, keeps: None };
        NullBroker::start(spec).expect("it starts").address().to_string()
    }

    fn spec(bootstrap: String) -> Spec {
        Spec {
            bootstrap,
            producers: 2,
            consumers: 0,
            groups: 0,
            message_bytes: 100,
            rate: 20_000,
            linger_us: 1_000,
            batches_per_request: 2,
            ..Spec::example()
        }
    }

    fn done(spec: &Spec) -> (Done, Vec<Second>) {
        done_after(spec, unix_ns() + 20 * MS_NS, "")
    }

    fn done_after(spec: &Spec, start_ns: u64, more: &str) -> (Done, Vec<Second>) {
        let input = format!(
            "{}\n{}\n{more}",
            serde_json::to_string(spec).expect("JSON"),
            serde_json::to_string(&Start { start_ns }).expect("JSON")
        );
        let mut output = Vec::new();
        work::<Producers, Readers>(Cursor::new(input.into_bytes()), &mut output).expect("it works");
        let text = String::from_utf8(output).expect("text");
        let lines: Vec<Line> = text.lines().map(|line| Line::parse(line).expect("a line")).collect();
        assert_eq!(lines.first(), Some(&Line::Ready(true)));
        let seconds =
            lines.iter().filter_map(|line| if let Line::Second(second) = line { Some(second.clone()) } else { None });
        let Some(Line::Done(done)) = lines.last() else { panic!("the last line is done: {text}") };
        (done.as_ref().clone(), seconds.collect())
    }

    /// Writes are not acknowledged from 0.3 s to 0.6 s; messages due meanwhile are late by the rest of the stall.
    #[test]
    fn a_broker_that_stalls_for_300_ms_shows_it_in_the_tail() {
        let (done, _) = done(&spec(null(Some((300, 300)))));
        let publish = Latency::from_text(&done.publish).expect("a histogram");
        assert_eq!((done.sent, done.acked, done.errors, done.error), (20_000, 20_000, 0, None));
        assert_eq!(publish.count(), 20_000);
        assert!(publish.max() >= 290 * MS_NS, "the first stalled message: {} ns", publish.max());
        let p90 = publish.percentile(90.0).expect("enough samples");
        assert!(p90 >= 150 * MS_NS, "30 % of all messages were due in the stall: {p90} ns");
    }

    /// Records the worker's output, and sends the line that ends the warm-up after its first second.
    struct Bench {
        heard: Vec<u8>,
        measure: Option<String>,
        to: std::io::PipeWriter,
    }

    impl Write for Bench {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.heard.extend_from_slice(bytes);
            if let Some(line) = self.measure.take_if(|_| bytes.starts_with(b"{\"second\"")) {
                self.to.write_all(line.as_bytes())?;
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// The line ends a warm-up of at most a minute after two and a half seconds.
    #[test]
    fn an_open_warm_up_ends_with_the_measure_line() {
        let spec = Spec { warmup_ms: 60_000, open_warmup: true, ..spec(null(None)) };
        let start_ns = unix_ns() + 20 * MS_NS;
        let measure = Measure { measure_ns: start_ns + 2_500 * MS_NS, window_ms: 700 };
        let line = |text: serde_json::Result<String>| text.expect("JSON") + "\n";
        let (from, mut to) = std::io::pipe().expect("a pipe");
        let begin = line(serde_json::to_string(&spec)) + &line(serde_json::to_string(&Start { start_ns }));
        to.write_all(begin.as_bytes()).expect("it is written");
        let mut bench = Bench { heard: Vec::new(), measure: Some(line(serde_json::to_string(&measure))), to };
        work::<Producers, Readers>(std::io::BufReader::new(from), &mut bench).expect("it works");
        let heard = String::from_utf8(bench.heard).expect("text");
        let Some(Ok(Line::Done(done))) = heard.lines().last().map(Line::parse) else { panic!("no end: {heard}") };
        assert_eq!((done.sent, done.acked, done.error), (64_000, 64_000, None), "3.2 s at 20,000 a second");
        let publish = Latency::from_text(&done.publish).expect("a histogram");
        assert_eq!(publish.count(), 14_000, "what was due in the window");
    }

    #[test]
    fn an_open_warm_up_without_a_measure_line_takes_its_maximum_time() {
        let spec = Spec { warmup_ms: 200, window_ms: 300, open_warmup: true, ..spec(null(None)) };
        let (done, _) = done(&spec);
        let publish = Latency::from_text(&done.publish).expect("a histogram");
        assert_eq!((done.sent, publish.count(), done.error), (10_000, 6_000, None));
    }

    #[test]
    fn an_invalid_measure_line_fails_the_run() {
        let spec = Spec { warmup_ms: 60_000, open_warmup: true, ..spec(null(None)) };
        let (done, _) = done_after(&spec, unix_ns() + 20 * MS_NS, "{\"measure\":1}\n");
        assert!(done.error.expect("it is stated").contains("warm-up"));
    }

    #[test]
    fn a_run_by_count_sends_that_count_and_reports_each_second_once() {
        let spec = Spec { rate: 0, messages: 50_001, window_ms: 60_000, ..spec(null(None)) };
        let (done, seconds) = done(&spec);
        assert_eq!(done.acked, 50_001);
        assert_eq!(seconds.iter().map(|second| second.acked).sum::<u64>(), done.acked);
        assert!(seconds.windows(2).all(|pair| pair[0].second < pair[1].second));
        assert!(done.cpu_s > 0.0);
    }

    /// The null broker's canned messages have no valid stamps: verification must fail.
    #[test]
    fn foreign_messages_are_found() {
        let reads = Spec { producers: 0, groups: 1, consumers: 1, expect: 5_000, rate: 0, ..spec(null(None)) };
        let (unverified, _) = done(&Spec { verify: false, ..reads.clone() });
        assert!(unverified.received >= 5_000 && unverified.lost == 0, "{unverified:?}");
        let (verified, _) = done(&reads);
        assert!(verified.lost > 0, "{verified:?}");
    }
}
