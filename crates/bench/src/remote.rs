//! Workers on other machines: the same contract, over TCP.
//!
//! ```text
//!   polylogue-bench run --worker HOST:PORT            polylogue-bench worker --listen HOST:PORT --token WORD
//!        |   {"token":"...","driver":"raw"}\n                 |   another token: the connection is closed
//!        | <--------------------------- {"clock_ns":...} ---- |   for each {"ask":true}: the worker's clock
//!        |   the lines of the contract                         |   a separate worker process, whose lines are passed on
//!        | <-------------------------------------------------- |   {"failed":"..."} on an error; the process is ended if the bench disconnects
//!
//!   worker's clock - bench's = clock_ns - (asked + answered) / 2     of many samples the one with the shortest round trip is used
//! ```
//!
//! A worker runs loads for clients that know the token. It uses one clock for what it sends and reads, so that latencies need no correction;
//! the start is given in its clock, and the difference of the clocks is printed.

use crate::clock::{MS_NS, unix_ns};
use crate::contract::{DRAIN_MS_MAX, LINE_BYTES_MAX, Line, Second, Spec, Start};
use crate::drive::{Bound, Driver, LINE_PATIENCE, OVERDUE_MS_MAX, READY_PATIENCE, START_AFTER_NS, WorkerReport};
use crate::error::{BenchError, Context, Result};
use crate::process::{Folder, Interrupt, Process};
use crate::target::Programs;
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Builder;
use std::time::Duration;

/// Number of clock samples.
const QUESTIONS: u32 = 64;
/// Timeout for a client to authenticate, and to respond.
const HELLO_PATIENCE: Duration = Duration::from_secs(10);
/// Interval of checks for an interrupt.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Concurrent loads of a worker; further ones are refused.
const LOADS_MAX: u64 = 16;
/// The minimum length of a token. Bytes.
const TOKEN_BYTES_MIN: usize = 8;
const READ_BYTES: usize = 64 << 10;

/// The first line of a client.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hello {
    token: String,
    driver: String,
}

/// A request for the clock.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ask {
    ask: bool,
}

/// The worker's clock. Unix nanoseconds.
#[derive(Debug, Serialize, Deserialize)]
struct Clock {
    clock_ns: u64,
}

/// The error of a load without a result.
#[derive(Debug, Serialize, Deserialize)]
struct Failed {
    failed: String,
}

/// The difference between a worker's clock and the local one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offset {
    /// The worker's clock minus the local one. Nanoseconds.
    pub offset_ns: i64,
    /// Round trip of the sample: the offset may be wrong by half of it. Nanoseconds.
    pub round_trip_ns: u64,
}

/// Computes the offset of samples: sent at, worker's clock, received at.
fn offset(questions: &[(u64, u64, u64)]) -> Option<Offset> {
    let (asked, clock, answered) =
        questions.iter().min_by_key(|(asked, _, answered)| answered.saturating_sub(*asked))?;
    let round_trip_ns = answered.saturating_sub(*asked);
    let ours = asked.saturating_add(round_trip_ns / 2);
    let offset_ns = i64::try_from(i128::from(*clock) - i128::from(ours)).ok()?;
    Some(Offset { offset_ns, round_trip_ns })
}

/// Lines over a connection.
#[derive(Debug)]
struct Lines {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Lines {
    fn new(stream: TcpStream) -> Result<Lines> {
        stream.set_nodelay(true).context(|| "cannot set TCP_NODELAY".to_owned())?;
        stream.set_read_timeout(Some(LOOK_EVERY)).context(|| "cannot bound reads".to_owned())?;
        Ok(Lines { stream, read: Vec::new() })
    }

    fn say<T: Serialize>(&mut self, what: &T) -> Result<()> {
        let text = serde_json::to_string(what).context(|| "cannot write a line".to_owned())?;
        self.pass_on(&text)
    }

    fn pass_on(&mut self, line: &str) -> Result<()> {
        let bytes = [line.as_bytes(), b"\n"].concat();
        self.stream.write_all(&bytes).context(|| "the other side takes no lines".to_owned())
    }

    /// Reads the next line.
    fn hear(&mut self, patience: Duration, interrupt: &Interrupt) -> Result<String> {
        let silent = || BenchError::new(format!("the other side has said nothing for {} s", patience.as_secs()));
        self.hear_within(patience, interrupt)?.ok_or_else(silent)
    }

    /// Reads the next line; `None` on timeout.
    fn hear_within(&mut self, patience: Duration, interrupt: &Interrupt) -> Result<Option<String>> {
        let mut left = patience;
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                let text = String::from_utf8(line).context(|| "a line is no text".to_owned())?;
                return Ok(Some(text.trim_end().to_owned()));
            }
            if self.read.len() > LINE_BYTES_MAX {
                return Err(BenchError::new(format!("a line has more than {LINE_BYTES_MAX} bytes")));
            }
            interrupt.check()?;
            let mut read = [0; READ_BYTES];
            match self.stream.read(&mut read) {
                Ok(0) => return Err(BenchError::new("the other side has hung up")),
                Ok(count) => self.read.extend_from_slice(read.get(..count).unwrap_or_default()),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    let Some(rest) = left.checked_sub(LOOK_EVERY) else { return Ok(None) };
                    left = rest;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(BenchError::new(format!("cannot hear the other side: {e}"))),
            }
        }
    }
}

/// Passes on all lines until the other side disconnects. Silence is normal: a client has nothing to send while a load
/// runs.
fn pass_on_all(heard: &mut Lines, to: &mut impl Write, patience: Duration, interrupt: &Interrupt) {
    while let Ok(line) = heard.hear_within(patience, interrupt) {
        let Some(line) = line else { continue };
        if writeln!(to, "{line}").and_then(|()| to.flush()).is_err() {
            return;
        }
    }
}

fn parse<T: serde::de::DeserializeOwned>(line: &str) -> Result<T> {
    serde_json::from_str(line).context(|| "the other side says something else than it should".to_owned())
}

/// A worker that listens for loads.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    token: String,
    programs: Programs,
    place: PathBuf,
}

impl Server {
    /// Listens. `place` is the directory with a subdirectory for each load.
    ///
    /// # Errors
    /// The address cannot be bound, or the token is too short.
    pub fn bind(listen: SocketAddr, token: String, programs: Programs, place: PathBuf) -> Result<Server> {
        if token.len() < TOKEN_BYTES_MIN {
            return Err(BenchError::new(format!(
                "a token of {} bytes is guessed too soon: it has at least {TOKEN_BYTES_MIN}",
                token.len()
            )));
        }
        let listener = TcpListener::bind(listen).context(|| format!("cannot listen on {listen}"))?;
        Ok(Server { listener, token, programs, place })
    }

    /// Returns the bound address.
    ///
    /// # Errors
    /// The system's error.
    pub fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().context(|| "where it listens".to_owned())
    }

    /// Runs loads until the user interrupts.
    ///
    /// # Errors
    /// The listener fails.
    pub fn serve(self, interrupt: &Interrupt) -> Result<()> {
        self.listener.set_nonblocking(true).context(|| "cannot wait for loads".to_owned())?;
        let (loads, mut number) = (Arc::new(AtomicU64::new(0)), 0_u64);
        while !interrupt.is_set() {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    std::thread::sleep(LOOK_EVERY);
                    continue;
                }
                Err(e) => return Err(BenchError::new(format!("cannot take loads: {e}"))),
            };
            if loads.load(Ordering::Acquire) >= LOADS_MAX {
                continue;
            }
            stream.set_nonblocking(false).context(|| "cannot wait for a load".to_owned())?;
            number += 1;
            loads.fetch_add(1, Ordering::AcqRel);
            let (token, programs) = (self.token.clone(), self.programs.clone());
            let (place, loads, interrupt) =
                (self.place.join(number.to_string()), Arc::clone(&loads), interrupt.clone());
            let body = move || {
                // The error is reported to the load's client.
                let _ = Lines::new(stream).and_then(|mut lines| {
                    let done = serve_one(&mut lines, &token, &programs, &place, &interrupt);
                    done.or_else(|e| lines.say(&Failed { failed: e.to_string() }))
                });
                loads.fetch_sub(1, Ordering::AcqRel);
            };
            Builder::new().name("bench-load".to_owned()).spawn(body).context(|| "cannot start a thread".to_owned())?;
        }
        Ok(())
    }
}

fn serve_one(lines: &mut Lines, token: &str, programs: &Programs, place: &Path, interrupt: &Interrupt) -> Result<()> {
    let hello: Hello = parse(&lines.hear(HELLO_PATIENCE, interrupt)?)?;
    if hello.token != token {
        return Err(BenchError::new("that is not the token of this worker"));
    }
    let driver: Driver = hello.driver.parse()?;
    let spec = loop {
        let line = lines.hear(HELLO_PATIENCE, interrupt)?;
        match serde_json::from_str::<Ask>(&line) {
            Ok(_) => lines.say(&Clock { clock_ns: unix_ns() })?,
            Err(_) => break parse::<Spec>(&line)?,
        }
    };
    spec.check()?;
    let folder = Folder::create(place)?;
    let command = driver.command(programs, spec.system, folder.path())?;
    let mut worker = Process::start(&format!("the {driver} worker"), command, &folder.path().join("worker.log"), true)?;
    let mut input = worker.stdin().ok_or_else(|| BenchError::new("the worker takes no input"))?;
    let text = serde_json::to_string(&spec).context(|| "cannot write a spec".to_owned())?;
    writeln!(input, "{text}").context(|| "the worker takes no input".to_owned())?;
    // Another thread passes on the client's lines; when the client disconnects, the worker process is ended.
    let gone = Interrupt::default();
    let mut heard = Lines {
        stream: lines.stream.try_clone().context(|| "cannot hear and speak at once".to_owned())?,
        read: std::mem::take(&mut lines.read),
    };
    let (passing, stop) = (gone.clone(), interrupt.clone());
    let body = move || {
        pass_on_all(&mut heard, &mut input, LINE_PATIENCE, &stop);
        passing.set();
    };
    Builder::new().name("bench-hear".to_owned()).spawn(body).context(|| "cannot start a thread".to_owned())?;
    loop {
        let line = worker.line(LINE_PATIENCE, &gone)?;
        lines.pass_on(&line)?;
        if matches!(Line::parse(&line)?, Line::Done(_)) {
            return worker.wait(READY_PATIENCE, &gone);
        }
    }
}

/// Parses a worker's line; an error line is returned as an error.
fn contract_line(line: &str) -> Result<Line> {
    match serde_json::from_str::<Failed>(line) {
        Ok(failed) => Err(BenchError::new(format!("the worker fails: {}", failed.failed))),
        Err(_) => Line::parse(line),
    }
}

/// Runs a load on a remote worker; returns its report, and the clock offset.
///
/// # Errors
/// It cannot be reached, refuses the token, fails, or the user interrupts.
pub fn drive_there(
    worker: &str,
    token: &str,
    driver: Driver,
    spec: &Spec,
    interrupt: &Interrupt,
    each_second: &mut dyn FnMut(&Second),
) -> Result<(WorkerReport, Offset)> {
    spec.check()?;
    let stream = TcpStream::connect(worker).context(|| format!("cannot connect to the worker at {worker}"))?;
    let mut lines = Lines::new(stream)?;
    lines.say(&Hello { token: token.to_owned(), driver: driver.name().to_owned() })?;
    let mut questions = Vec::new();
    for _ in 0..QUESTIONS {
        let asked = unix_ns();
        lines.say(&Ask { ask: true })?;
        let line = lines.hear(HELLO_PATIENCE, interrupt)?;
        let answered = unix_ns();
        let Ok(clock) = serde_json::from_str::<Clock>(&line) else { return Err(unexpected(contract_line(&line))) };
        questions.push((asked, clock.clock_ns, answered));
    }
    let offset = offset(&questions).ok_or_else(|| BenchError::new("the worker's clock is nowhere near ours"))?;
    lines.say(spec)?;
    match contract_line(&lines.hear(READY_PATIENCE, interrupt)?)? {
        Line::Ready(true) => {}
        other => return Err(unexpected(Ok(other))),
    }
    let start_ns = unix_ns().saturating_add(START_AFTER_NS).saturating_add(offset.round_trip_ns);
    lines.say(&Start { start_ns: start_ns.saturating_add_signed(offset.offset_ns) })?;
    let bound = Bound::of(std::slice::from_ref(spec), start_ns, DRAIN_MS_MAX + OVERDUE_MS_MAX);
    let mut seconds = Vec::new();
    loop {
        bound.check(driver)?;
        match contract_line(&lines.hear(LINE_PATIENCE, interrupt)?)? {
            Line::Second(second) => {
                each_second(&second);
                seconds.push(second);
            }
            Line::Done(done) => return Ok((WorkerReport { done: *done, seconds }, offset)),
            other @ Line::Ready(_) => return Err(unexpected(Ok(other))),
        }
    }
}

fn unexpected(line: Result<Line>) -> BenchError {
    match line {
        Ok(line) => BenchError::new(format!("the worker says {line:?} when it should not")),
        Err(e) => e,
    }
}

/// Formats an offset.
#[must_use]
pub fn describe(offset: &Offset) -> String {
    let ms = |ns: i64| ns as f64 / MS_NS as f64;
    let half = i64::try_from(offset.round_trip_ns / 2).unwrap_or(i64::MAX);
    format!("the worker's clock is {:+.3} ms from ours, give or take {:.3} ms", ms(offset.offset_ns), ms(half))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_answers_the_soonest_tells_the_offset() {
        // The worker's clock is 1,000 ahead; the second response was slow, the third request was.
        let questions = [(100, 1_150, 200), (300, 1_310, 400), (500, 1_590, 600), (700, 1_705, 710)];
        let offset = offset(&questions).expect("there are answers");
        assert_eq!(offset, Offset { offset_ns: 1_000, round_trip_ns: 10 });
        assert!(describe(&Offset { offset_ns: -2_500_000, round_trip_ns: 100_000 }).contains("-2.500 ms"));
        assert_eq!(super::offset(&[]), None);
        let behind = super::offset(&[(1_000, 400, 1_010)]).expect("there is one");
        assert_eq!(behind.offset_ns, -605);
    }

    /// Regression test: a load of more than two minutes was ended, because its client sent nothing meanwhile.
    #[test]
    fn who_has_nothing_to_say_has_not_hung_up() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let there = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let mut heard = Lines::new(listener.accept().expect("it came").0).expect("lines");
        let (patience, interrupt) = (2 * LOOK_EVERY, Interrupt::default());
        let silent = heard.hear_within(patience, &interrupt);
        assert_eq!(silent, Ok(None), "longer than its patience");
        let (from, mut to) = std::io::pipe().expect("a pipe");
        let passing = Builder::new().spawn(move || {
            let stop = Interrupt::default();
            pass_on_all(&mut heard, &mut to, patience, &stop);
        });
        let passing = passing.expect("a thread");
        let mut passed = std::io::BufRead::lines(std::io::BufReader::new(from)).map_while(std::result::Result::ok);
        // Silence is what is tested: several timeouts.
        std::thread::sleep(10 * LOOK_EVERY);
        (&there).write_all(b"a line\n").expect("it is heard");
        assert_eq!(passed.next(), Some("a line".to_owned()), "it is still listened to");
        drop(there);
        assert_eq!(passed.next(), None, "now it has hung up");
        passing.join().expect("it has ended");
    }

    #[test]
    fn a_token_must_not_be_guessed() {
        let nothing = || PathBuf::from("/nowhere");
        let programs = Programs::nowhere();
        let listen = ([127, 0, 0, 1], 0).into();
        let stated = Server::bind(listen, "short".to_owned(), programs, nothing()).expect_err("too short").to_string();
        assert!(stated.contains("at least 8"), "{stated}");
    }
}
