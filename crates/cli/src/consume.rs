//! `polylogue consume`.

use super::Failure;
use super::args::{ConsumeArgs, Format};
use super::output::Out;
use super::time::{parse_time_ms, seconds_note};
use crate::client::ClientError;
use crate::client::kafka::{Fetched, KafkaClient, Topic, error_text};
use bytes::Bytes;
use polylogue_env::Env;
use polylogue_kafka_codec::ErrorCode;
use polylogue_record::kafka::{BatchIter, Record, records};
use polylogue_types::{TimestampMs, limits};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::time::{Duration, UNIX_EPOCH};

/// The maximum wait of a fetch. Milliseconds.
const WAIT_MS: i32 = 500;
/// Delay before another attempt after an offset was out of range.
const RETRY_WAIT: Duration = Duration::from_millis(200);
/// The wait between attempts to connect again, and how long they go on.
const RECONNECT_WAIT: Duration = Duration::from_millis(500);
const RECONNECT_NS_MAX: u64 = 600_000_000_000;
/// What stands for the value of a tombstone beside the other columns.
const TOMBSTONE: &str = "(tombstone)";
/// Kafka's names for the ends of a partition.
const END: i64 = -1;
const BEGINNING: i64 = -2;

/// A position in each partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Offset(i64),
    /// This many messages before the end.
    Last(i64),
    /// Milliseconds, or one of Kafka's special timestamps.
    Time(i64),
}

/// Parses `beginning`, `end`, an offset, `-` and a number, a duration before `now_ms`, `@` and milliseconds, or an RFC 3339 time.
fn parse_place(option: &str, text: &str, now_ms: TimestampMs) -> Result<Place, Failure> {
    let wrong = || {
        Failure::Usage(format!(
            "{option} {text}: expected beginning, end, an offset, -N for the last N messages, a duration ago such as 1h, a time such as \
             2026-01-31T12:00:00Z or 2026-01-31T14:00:00+02:00, or @MILLISECONDS{}",
            seconds_note(text)
        ))
    };
    match text {
        "beginning" => return Ok(Place::Time(BEGINNING)),
        "end" => return Ok(Place::Time(END)),
        _ => {}
    }
    if let Ok(number) = text.parse::<i64>() {
        return Ok(if text.starts_with('-') { Place::Last(number.saturating_neg()) } else { Place::Offset(number) });
    }
    if let Some(ms) = parse_time_ms(text) {
        return Ok(Place::Time(ms));
    }
    let ago = humantime::parse_duration(text).ok().and_then(|ago| i64::try_from(ago.as_millis()).ok());
    ago.map(|ago_ms| Place::Time(now_ms.saturating_sub(ago_ms).max(0))).ok_or_else(wrong)
}

pub(super) fn run(args: &ConsumeArgs, out: &Out) -> Result<(), Failure> {
    let now_ms = Env::real().clock.now_ms();
    let from = parse_place("--from", &args.from, now_ms)?;
    let until = args.until.as_deref().map(|until| parse_place("--until", until, now_ms)).transpose()?;
    let until = until.or(args.no_follow.then_some(Place::Time(END)));
    let mut client = args.at.connect()?;
    let topic = client.topic(&args.topic, false)?;
    let partitions: Vec<i32> = match args.partition.as_slice() {
        [] => (0..topic.partitions).collect(),
        some => some.to_vec(),
    };
    if let Some(missing) = partitions.iter().find(|p| !(0..topic.partitions).contains(p)) {
        let text = format!("topic {} has no partition {missing}: it has {}", topic.name, topic.partitions);
        return Err(Failure::Usage(text));
    }
    let mut consumer = Consumer {
        format: if out.json { Format::Json } else { args.format },
        verbose: args.verbose,
        left: args.max.unwrap_or(u64::MAX),
        next: BTreeMap::new(),
        ends: BTreeMap::new(),
        out: BufWriter::new(io::stdout().lock()),
        topic,
    };
    consumer.begin(&mut client, &partitions, from, until)?;
    consumer.go_on(client, || args.at.connect())
}

/// Why a step did not succeed.
enum Step {
    /// The connection is lost.
    Lost(ClientError),
    Failed(Failure),
}

impl From<ClientError> for Step {
    fn from(error: ClientError) -> Step {
        if error.is_lost() { Step::Lost(error) } else { Step::Failed(error.into()) }
    }
}

impl From<Failure> for Step {
    fn from(failure: Failure) -> Step {
        Step::Failed(failure)
    }
}

struct Consumer {
    topic: Topic,
    format: Format,
    verbose: bool,
    left: u64,
    /// The next offset of each partition that is being read.
    next: BTreeMap<i32, i64>,
    /// The offset to stop at, if there is one.
    ends: BTreeMap<i32, i64>,
    out: BufWriter<io::StdoutLock<'static>>,
}

impl Consumer {
    fn begin(
        &mut self,
        client: &mut KafkaClient,
        partitions: &[i32],
        from: Place,
        until: Option<Place>,
    ) -> Result<(), Failure> {
        for partition in partitions {
            let end = client.offset_at(&self.topic, *partition, END)?.unwrap_or(0);
            let start = match from {
                Place::Offset(offset) => self.within(client, *partition, offset)?,
                Place::Last(count) => {
                    let first = client.offset_at(&self.topic, *partition, BEGINNING)?.unwrap_or(0);
                    end.saturating_sub(count).max(first)
                }
                // No message has a timestamp that late: read new messages.
                Place::Time(time) => client.offset_at(&self.topic, *partition, time)?.unwrap_or(end),
            };
            let until = match until {
                None => None,
                Some(Place::Offset(offset)) => Some(offset),
                Some(Place::Last(count)) => Some(end.saturating_sub(count)),
                Some(Place::Time(time)) => Some(client.offset_at(&self.topic, *partition, time)?.unwrap_or(end)),
            };
            if let Some(until) = until {
                self.ends.insert(*partition, until);
            }
            if until.is_none_or(|until| start < until) {
                self.next.insert(*partition, start);
            }
        }
        Ok(())
    }

    /// Reads until the end, or for ever. `connect` connects again: over a restart of the broker this goes on where it was.
    fn go_on(
        &mut self,
        mut client: KafkaClient,
        connect: impl Fn() -> Result<KafkaClient, ClientError>,
    ) -> Result<(), Failure> {
        while self.left > 0 && !self.next.is_empty() {
            match self.step(&mut client) {
                Err(Step::Lost(error)) => client = self.reconnect(error, &connect)?,
                Err(Step::Failed(failure)) => return Err(failure),
                Ok(()) => {}
            }
        }
        Ok(self.out.flush()?)
    }

    fn step(&mut self, client: &mut KafkaClient) -> Result<(), Step> {
        let wanted: Vec<(i32, i64)> = self.next.iter().map(|(p, offset)| (*p, *offset)).collect();
        let mut lost = Vec::new();
        for fetched in client.fetch(&self.topic, &wanted, WAIT_MS)? {
            // The offsets in a partition with an error are not set.
            if fetched.error == ErrorCode::OffsetOutOfRange.code() {
                lost.push(fetched.partition);
            } else {
                self.take(&fetched)?;
            }
        }
        self.out.flush().map_err(Failure::from)?;
        if lost.is_empty() { Ok(()) } else { self.find_again(client, &lost) }
    }

    /// Waits for the broker to be there again, with the same topic.
    fn reconnect(
        &mut self,
        error: ClientError,
        connect: &impl Fn() -> Result<KafkaClient, ClientError>,
    ) -> Result<KafkaClient, Failure> {
        self.out.flush()?;
        eprintln!("polylogue: {error}; connecting again");
        let clock = Env::real().clock;
        let until_ns = clock.monotonic_ns().saturating_add(RECONNECT_NS_MAX);
        loop {
            // No thread unparks this one, so that this is a plain wait.
            std::thread::park_timeout(RECONNECT_WAIT);
            let connected = connect().and_then(|mut client| Ok((client.topic(&self.topic.name, false)?, client)));
            match connected {
                Ok((topic, _)) if topic.id != self.topic.id => {
                    let text = format!("topic {} was deleted, and created anew, meanwhile", topic.name);
                    return Err(Failure::Other(text));
                }
                Ok((_, client)) => return Ok(client),
                Err(error) if !error.is_lost() => return Err(error.into()),
                Err(error) if clock.monotonic_ns() > until_ns => return Err(error.into()),
                Err(_) => {}
            }
        }
    }

    /// Clamps an offset to the partition: messages may have been deleted, or not written yet.
    fn within(&mut self, client: &mut KafkaClient, partition: i32, offset: i64) -> Result<i64, ClientError> {
        let start = client.offset_at(&self.topic, partition, BEGINNING)?.unwrap_or(0);
        let end = client.offset_at(&self.topic, partition, END)?.unwrap_or(start);
        let at = offset.clamp(start, end.max(start));
        if at != offset {
            let what = if at == start && offset < start { "which is its first" } else { "which is its end" };
            eprintln!("polylogue: partition {partition} has no offset {offset}; going on at {at}, {what}");
        }
        // Messages that were deleted meanwhile are not waited for.
        if let Some(until) = self.ends.get_mut(&partition) {
            *until = end.min(*until);
        }
        Ok(at)
    }

    /// Finds new offsets for partitions that are out of range. Waits first: with concurrent deletions it may happen again at once.
    fn find_again(&mut self, client: &mut KafkaClient, lost: &[i32]) -> Result<(), Step> {
        for partition in lost {
            if let Some(next) = self.next.get(partition).copied() {
                let at = self.within(client, *partition, next)?;
                self.move_to(*partition, at);
            }
        }
        // No thread unparks this one, so that this is a plain wait.
        std::thread::park_timeout(RETRY_WAIT);
        Ok(())
    }

    fn take(&mut self, fetched: &Fetched) -> Result<(), Failure> {
        let partition = fetched.partition;
        let Some(next) = self.next.get(&partition).copied() else { return Ok(()) };
        let wanted = next..self.ends.get(&partition).copied().unwrap_or(i64::MAX);
        if let Some(text) = error_text(fetched.error) {
            return Err(Failure::Other(format!("topic {}, partition {partition}: {text}", self.topic.name)));
        }
        for batch in BatchIter::new(fetched.records.clone()) {
            let unreadable = |e| Failure::Other(format!("partition {partition} holds an unreadable batch: {e}"));
            let batch = batch.map_err(unreadable)?;
            if !batch.header.is_control() {
                for record in records(&batch.bytes, limits::DECOMPRESSED_BYTES_MAX).map_err(unreadable)? {
                    let record = record.map_err(unreadable)?;
                    if wanted.contains(&record.offset) && self.left > 0 {
                        self.write(partition, &record)?;
                        self.left -= 1;
                    }
                }
            }
            self.move_to(partition, batch.header.last_offset().saturating_add(1).max(next));
        }
        Ok(())
    }

    /// Continues at the offset, unless that is the end to stop at.
    fn move_to(&mut self, partition: i32, offset: i64) {
        match self.ends.get(&partition) {
            Some(end) if offset >= *end => self.next.remove(&partition),
            _ => self.next.insert(partition, offset),
        };
    }

    fn write(&mut self, partition: i32, record: &Record) -> Result<(), Failure> {
        let value: &[u8] = record.value.as_deref().unwrap_or_default();
        if self.format == Format::Json {
            let line = as_json(&self.topic.name, partition, record);
            return Ok(writeln!(self.out, "{line}")?);
        }
        if self.verbose {
            write!(self.out, "{partition} {} {} ", record.offset, time(record.timestamp))?;
            write!(self.out, "{} ", record.key.as_ref().map_or_else(|| "-".to_owned(), |key| text(key)))?;
            for (name, value) in &record.headers {
                write!(self.out, "{}={} ", text(&name), value.map_or_else(|| "-".to_owned(), |value| text(&value)))?;
            }
        }
        match self.format {
            // In a line of its own an empty value would look the same.
            Format::Text if self.verbose && record.value.is_none() => writeln!(self.out, "{TOMBSTONE}")?,
            Format::Raw => self.out.write_all(value)?,
            Format::Hex => writeln!(self.out, "{}", hex(value))?,
            Format::Text | Format::Json => {
                self.out.write_all(value)?;
                self.out.write_all(b"\n")?;
            }
        }
        Ok(())
    }
}

fn as_json(topic: &str, partition: i32, record: &Record) -> Value {
    let optional = |bytes: &Option<Bytes>| bytes.as_ref().map_or(Value::Null, content);
    let headers: Vec<_> = record
        .headers
        .iter()
        .map(|(name, value)| json!({ "name": content(&name), "value": optional(&value) }))
        .collect();
    json!({
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": optional(&record.key),
        "value": optional(&record.value),
        "headers": headers,
    })
}

/// Text as a string, other bytes as `{"hex": "..."}`.
fn content(bytes: &Bytes) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::String(text.to_owned()),
        Err(_) => json!({ "hex": hex(bytes) }),
    }
}

/// Escapes control characters: a message must not control the terminal.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn time(ms: TimestampMs) -> String {
    let at = u64::try_from(ms).ok().and_then(|ms| UNIX_EPOCH.checked_add(Duration::from_millis(ms)));
    // The latest time that RFC 3339 can express.
    let last = UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    at.filter(|at| *at <= last).map_or_else(|| "-".to_owned(), |at| humantime::format_rfc3339_millis(at).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_read() {
        let now_ms = 1_769_860_800_000;
        for (given, place) in [
            ("beginning", Place::Time(BEGINNING)),
            ("end", Place::Time(END)),
            ("0", Place::Offset(0)),
            ("-10", Place::Last(10)),
            ("1700000000000", Place::Offset(1_700_000_000_000)),
            ("@1700000000000", Place::Time(1_700_000_000_000)),
            ("1h", Place::Time(now_ms - 3_600_000)),
            ("1m 30s", Place::Time(now_ms - 90_000)),
            ("100years", Place::Time(0)),
            ("2026-01-31T12:00:00Z", Place::Time(1_769_860_800_000)),
            ("2026-01-31 12:00:00", Place::Time(1_769_860_800_000)),
            ("2026-01-31T14:00:00+02:00", Place::Time(1_769_860_800_000)),
        ] {
            assert_eq!(parse_place("--from", given, now_ms).unwrap(), place, "{given}");
        }
        for given in ["", "-", "-x", "@", "@-5", "yesterday", "1960-01-01T00:00:00Z", "@1795862029"] {
            assert!(matches!(parse_place("--from", given, now_ms), Err(Failure::Usage(_))), "{given}");
        }
    }

    #[test]
    fn times_are_written_and_odd_ones_are_not() {
        assert_eq!(time(1_769_860_800_123), "2026-01-31T12:00:00.123Z");
        assert_eq!((time(-1).as_str(), time(i64::MAX).as_str()), ("-", "-"));
    }

    #[test]
    fn bytes_are_shown_safely() {
        assert_eq!(text(b"a\x1b[31mb\n"), "a\\u{1b}[31mb\\n");
        assert_eq!(content(&Bytes::from_static(b"\xff")), json!({ "hex": "ff" }));
        assert_eq!(content(&Bytes::from_static("ä".as_bytes())), json!("ä"));
    }
}
