//! `polylogue consume`.

use super::Failure;
use super::args::{ConsumeArgs, Format};
use super::output::Out;
use super::time::parse_time_ms;
use crate::client::kafka::{Fetched, KafkaClient, Topic, error_text};
use bytes::Bytes;
use polylogue_kafka::codec::ErrorCode;
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
/// Kafka's names for the ends of a partition.
const END: i64 = -1;
const BEGINNING: i64 = -2;

/// The start position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum From {
    Offset(i64),
    /// Milliseconds, or one of Kafka's special timestamps.
    Time(i64),
}

/// Parses `beginning`, `end`, an offset, `@` and milliseconds, or an RFC 3339 time.
fn parse_from(text: &str) -> Result<From, Failure> {
    let wrong = || {
        let text = format!(
            "--from {text}: expected beginning, end, an offset, a time such as 2026-01-31T12:00:00Z or 2026-01-31T14:00:00+02:00, or @MILLISECONDS"
        );
        Failure::Usage(text)
    };
    match text {
        "beginning" => Ok(From::Time(BEGINNING)),
        "end" => Ok(From::Time(END)),
        _ => match text.parse::<i64>() {
            Ok(offset) if offset >= 0 => Ok(From::Offset(offset)),
            Ok(_) => Err(wrong()),
            Err(_) => parse_time_ms(text).map(From::Time).ok_or_else(wrong),
        },
    }
}

pub(super) fn run(args: &ConsumeArgs, out: &Out) -> Result<(), Failure> {
    let from = parse_from(&args.from)?;
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
    consumer.begin(&mut client, &partitions, from, args.no_follow)?;
    consumer.go_on(&mut client)
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
        from: From,
        no_follow: bool,
    ) -> Result<(), Failure> {
        for partition in partitions {
            let end = client.offset_at(&self.topic, *partition, END)?.unwrap_or(0);
            let start = match from {
                From::Offset(offset) => self.within(client, *partition, offset)?,
                // No message has a timestamp that late: read new messages.
                From::Time(time) => client.offset_at(&self.topic, *partition, time)?.unwrap_or(end),
            };
            if no_follow {
                self.ends.insert(*partition, end);
            }
            if !no_follow || start < end {
                self.next.insert(*partition, start);
            }
        }
        Ok(())
    }

    fn go_on(&mut self, client: &mut KafkaClient) -> Result<(), Failure> {
        while self.left > 0 && !self.next.is_empty() {
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
            self.out.flush()?;
            if !lost.is_empty() {
                self.find_again(client, &lost)?;
            }
        }
        Ok(self.out.flush()?)
    }

    /// Clamps an offset to the partition: messages may have been deleted, or not written yet.
    fn within(&mut self, client: &mut KafkaClient, partition: i32, offset: i64) -> Result<i64, Failure> {
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
    fn find_again(&mut self, client: &mut KafkaClient, lost: &[i32]) -> Result<(), Failure> {
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
        if let Some(text) = error_text(fetched.error) {
            return Err(Failure::Other(format!("topic {}, partition {partition}: {text}", self.topic.name)));
        }
        for batch in BatchIter::new(fetched.records.clone()) {
            let unreadable = |e| Failure::Other(format!("partition {partition} holds an unreadable batch: {e}"));
            let batch = batch.map_err(unreadable)?;
            if !batch.header.is_control() {
                for record in records(&batch.bytes, limits::DECOMPRESSED_BYTES_MAX).map_err(unreadable)? {
                    let record = record.map_err(unreadable)?;
                    if record.offset >= next && self.left > 0 {
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
        for (given, from) in [
            ("beginning", From::Time(BEGINNING)),
            ("end", From::Time(END)),
            ("0", From::Offset(0)),
            ("1700000000000", From::Offset(1_700_000_000_000)),
            ("@1700000000000", From::Time(1_700_000_000_000)),
            ("2026-01-31T12:00:00Z", From::Time(1_769_860_800_000)),
            ("2026-01-31 12:00:00", From::Time(1_769_860_800_000)),
            ("2026-01-31T14:00:00+02:00", From::Time(1_769_860_800_000)),
        ] {
            assert_eq!(parse_from(given).unwrap(), from, "{given}");
        }
        for given in ["", "-1", "@", "@-5", "yesterday", "1960-01-01T00:00:00Z"] {
            assert!(matches!(parse_from(given), Err(Failure::Usage(_))), "{given}");
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
