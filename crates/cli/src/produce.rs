//! `polylogue produce`.

use super::Failure;
use super::args::{Acks, CodecArg, InputFormat, ProduceArgs};
use super::output::Out;
use crate::client::ClientError;
use crate::client::kafka::{KafkaClient, Topic};
use polylogue_env::{Clock, Env};
use polylogue_record::compress::Codec;
use polylogue_record::kafka::{BatchBuilder, NewRecord, partition_of_key};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;

/// Size of one read; a batch is sent when all input read so far is used. Bytes.
const READ_BYTES: usize = 256 << 10;
/// A batch of this size is sent, before compression. Bytes.
const BATCH_BYTES_MAX: usize = 512 << 10;
/// The maximum length of a line. Bytes.
const LINE_BYTES_MAX: u64 = 64 << 20;

pub(super) fn run(args: &ProduceArgs, out: &Out) -> Result<(), Failure> {
    let headers = headers(&args.header)?;
    let mut client = args.at.connect()?;
    let topic = client.topic(&args.topic, true)?;
    if let Some(partition) = args.partition.filter(|p| !(0..topic.partitions).contains(p)) {
        let text = format!("topic {} has no partition {partition}: it has {}", topic.name, topic.partitions);
        return Err(Failure::Usage(text));
    }
    let mut producer = Producer {
        args,
        out,
        client,
        topic,
        headers,
        clock: Env::real().clock,
        batches: BTreeMap::new(),
        in_turn: 0,
        count: 0,
        lines: 0,
    };
    let written = match &args.file {
        None => producer.lines(io::stdin().lock()),
        Some(path) => {
            let cannot = |e: io::Error| Failure::Other(format!("cannot read {}: {e}", path.display()));
            let file = OpenOptions::new().read(true).open(path).map_err(cannot)?;
            if args.whole_file { producer.whole(file) } else { producer.lines(file) }
        }
    };
    written.map_err(|failure| producer.as_far_as(failure))?;
    producer.finish()
}

/// A header's key and value.
type Header = (Vec<u8>, Vec<u8>);

/// Parses headers.
fn headers(given: &[String]) -> Result<Vec<Header>, Failure> {
    let pair = |text: &String| match text.split_once('=') {
        Some((name, value)) => Ok((name.as_bytes().to_vec(), value.as_bytes().to_vec())),
        None => Err(Failure::Usage(format!("--header {text}: expected NAME=VALUE"))),
    };
    given.iter().map(pair).collect()
}

struct Producer<'a> {
    args: &'a ProduceArgs,
    out: &'a Out,
    client: KafkaClient,
    topic: Topic,
    headers: Vec<Header>,
    clock: Arc<dyn Clock>,
    /// Batches to be sent, by partition.
    batches: BTreeMap<i32, BatchBuilder>,
    /// The partition for messages without a key, until the batch is sent.
    in_turn: i32,
    count: u64,
    /// Lines of which all messages are written: a prefix of the input.
    lines: u64,
}

impl Producer<'_> {
    fn lines(&mut self, input: impl Read) -> Result<(), Failure> {
        let mut input = BufReader::with_capacity(READ_BYTES, input);
        let mut line = Vec::new();
        for number in 1u64.. {
            line.clear();
            let read = input.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line)?;
            if read == 0 {
                break;
            }
            if read as u64 > LINE_BYTES_MAX {
                return Err(Failure::Other(format!("line {number} is longer than {LINE_BYTES_MAX} bytes")));
            }
            if line.last() == Some(&b'\n') {
                line.pop();
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
            }
            // All or nothing of a line, and of those before it: a line that cannot be written ends the input before anything that is not sent.
            let is_full = self.take(&line, number)?;
            // The next line may take long: send what there is.
            if is_full || !input.buffer().contains(&b'\n') {
                self.send_all(number)?;
            }
        }
        self.send_all(u64::MAX)
    }

    /// Writes all of a file as one message.
    fn whole(&mut self, file: impl Read) -> Result<(), Failure> {
        let mut value = Vec::new();
        if file.take(LINE_BYTES_MAX + 1).read_to_end(&mut value)? as u64 > LINE_BYTES_MAX {
            return Err(Failure::Other(format!("the file is longer than {LINE_BYTES_MAX} bytes")));
        }
        let key = self.args.key.clone().map(String::into_bytes);
        self.push(Message { key, value: Some(value), ..Message::default() }, 1)?;
        self.send_all(1)
    }

    /// Adds a line's message to its batch. Returns whether the batch is full.
    fn take(&mut self, line: &[u8], number: u64) -> Result<bool, Failure> {
        let wrong = |why: String| Failure::Other(format!("line {number} {why}"));
        let mut message = match (self.args.format, &self.args.key_separator) {
            (InputFormat::Json, _) => Message::from_json(line).map_err(wrong)?,
            (InputFormat::Text, None) => Message { value: Some(line.to_vec()), ..Message::default() },
            (InputFormat::Text, Some(separator)) => {
                let (key, value) = split(line, separator.as_bytes())
                    .ok_or_else(|| wrong(format!("has no \"{separator}\" between a key and a value")))?;
                Message { key: Some(key.to_vec()), value: Some(value.to_vec()), ..Message::default() }
            }
        };
        if let Some(key) = &self.args.key {
            message.key = Some(key.clone().into_bytes());
        }
        if self.args.empty_as_tombstone {
            message.value = message.value.filter(|value| !value.is_empty());
        }
        self.push(message, number)
    }

    fn push(&mut self, message: Message, number: u64) -> Result<bool, Failure> {
        let Message { key, value, headers, timestamp } = message;
        let partition = match (self.args.partition, &key) {
            (Some(partition), _) => partition,
            (None, Some(key)) => by_key(key, self.topic.partitions),
            (None, None) => self.in_turn,
        };
        let given = self.headers.iter().map(|(name, value)| (name.as_slice(), Some(value.as_slice())));
        let own = headers.iter().map(|(name, value)| (name.as_slice(), value.as_deref()));
        let headers: Vec<_> = own.chain(given).collect();
        let timestamp = timestamp.unwrap_or_else(|| self.clock.now_ms());
        let record = NewRecord { timestamp, key: key.as_deref(), value: value.as_deref(), headers: &headers };
        let batch = self.batches.entry(partition).or_default();
        batch.push(&record).map_err(|e| Failure::Other(format!("line {number}: {e}")))?;
        Ok(batch.uncompressed_bytes() >= BATCH_BYTES_MAX)
    }

    /// Sends all batches, which hold the lines up to this one.
    fn send_all(&mut self, upto: u64) -> Result<(), Failure> {
        while let Some(partition) = self.batches.keys().next().copied() {
            self.send(partition)?;
        }
        self.lines = self.lines.max(Some(upto).filter(|upto| *upto < u64::MAX).unwrap_or_default());
        Ok(())
    }

    /// Says with a failure how much is written.
    fn as_far_as(&self, failure: Failure) -> Failure {
        let noun = if self.count == 1 { "message is" } else { "messages are" };
        let written = match self.lines {
            0 => format!("{} {noun} written to {}", self.count, self.topic.name),
            lines => format!("{} {noun} written to {}, up to line {lines}", self.count, self.topic.name),
        };
        match failure {
            Failure::Client(error) => Failure::Client(ClientError { message: format!("{error}; {written}"), ..error }),
            Failure::Other(text) => Failure::Other(format!("{text}; {written}")),
            other => other,
        }
    }

    fn send(&mut self, partition: i32) -> Result<(), Failure> {
        let Some(batch) = self.batches.remove(&partition) else { return Ok(()) };
        let count = batch.len();
        let codec = match self.args.compression {
            CodecArg::None => Codec::None,
            CodecArg::Gzip => Codec::Gzip,
            CodecArg::Snappy => Codec::Snappy,
            CodecArg::Lz4 => Codec::Lz4,
            CodecArg::Zstd => Codec::Zstd,
        };
        let acks = match self.args.acks {
            Acks::None => 0,
            Acks::One => 1,
            Acks::All => -1,
        };
        let batch = batch.compression(codec, None).build().map_err(|e| Failure::Other(e.to_string()))?;
        let offset = self.client.produce(&self.topic, partition, acks, batch)?;
        self.count += count as u64;
        self.in_turn = (self.in_turn + 1) % self.topic.partitions.max(1);
        if self.out.json {
            let offset = Some(offset).filter(|offset| *offset >= 0);
            let line = serde_json::json!({ "partition": partition, "base_offset": offset, "count": count });
            return self.out.line(&line.to_string());
        }
        Ok(())
    }

    fn finish(self) -> Result<(), Failure> {
        if self.out.json {
            return Ok(());
        }
        let noun = if self.count == 1 { "message" } else { "messages" };
        self.out.line(&format!("{} {noun} written to {}", self.count, self.topic.name))
    }
}

/// A message of the input.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Message {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Milliseconds since 1970; the current time without.
    timestamp: Option<i64>,
}

impl Message {
    /// Reads a line as `consume --json` writes it: `key`, `value`, `headers` and `timestamp` are taken, all of them optional; where it was read is
    /// not. Errors: what is wrong, to follow the line's number.
    fn from_json(line: &[u8]) -> Result<Message, String> {
        let read: Value = serde_json::from_slice(line).map_err(|e| format!("is no JSON: {e}"))?;
        let read = read.as_object().ok_or("is no JSON object")?;
        const KNOWN: [&str; 7] = ["topic", "partition", "offset", "timestamp", "key", "value", "headers"];
        if let Some(unknown) = read.keys().find(|name| !KNOWN.contains(&name.as_str())) {
            return Err(format!("has an unknown field {unknown}: expected {}", KNOWN.join(", ")));
        }
        let field = |name: &str| read.get(name).unwrap_or(&Value::Null);
        let mut headers = Vec::new();
        let listed = match field("headers") {
            Value::Null => &[][..],
            Value::Array(listed) => listed,
            _ => return Err("has headers that are no list".to_owned()),
        };
        for header in listed {
            let part = |name: &str| content(name, header.get(name).unwrap_or(&Value::Null));
            headers.push((part("name")?.ok_or("has a header without a name")?, part("value")?));
        }
        let timestamp = match field("timestamp") {
            Value::Null => None,
            // -1 is what a message without a time has.
            time => {
                Some(time.as_i64().ok_or("has a timestamp that is no number of milliseconds")?).filter(|ms| *ms >= 0)
            }
        };
        Ok(Message { key: content("key", field("key"))?, value: content("value", field("value"))?, headers, timestamp })
    }
}

/// Bytes as a string, or as `{"hex": "..."}`.
fn content(name: &str, value: &Value) -> Result<Option<Vec<u8>>, String> {
    let wrong = || format!("has a {name} that is neither a string, nor {{\"hex\": \"...\"}}, nor null");
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone().into_bytes())),
        Value::Object(object) if object.len() == 1 => {
            let digits = object.get("hex").and_then(Value::as_str).ok_or_else(wrong)?;
            let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
            let is_even = digits.len().is_multiple_of(2) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            let bytes = digits.as_bytes().chunks(2).map(pair).collect::<Option<Vec<u8>>>();
            bytes.filter(|_| is_even).map(Some).ok_or_else(wrong)
        }
        _ => Err(wrong()),
    }
}

/// Splits at the first `separator`.
fn split<'a>(line: &'a [u8], separator: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = match separator.is_empty() {
        true => None,
        false => line.windows(separator.len()).position(|window| window == separator),
    }?;
    Some((line.get(..at)?, line.get(at + separator.len()..)?))
}

/// Returns a key's partition, by the algorithm of Kafka's producer.
fn by_key(key: &[u8], partitions: i32) -> i32 {
    let to = partition_of_key(key, usize::try_from(partitions).unwrap_or(0));
    i32::try_from(to).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_consume_writes_as_json_is_read() {
        let line = br#"{"topic":"t","partition":3,"offset":9,"timestamp":5,"key":{"hex":"ff00"},"value":"a\u0000b","headers":[{"name":"h","value":null}]}"#;
        let read = Message::from_json(line).unwrap();
        let headers = vec![(b"h".to_vec(), None)];
        let key = Some(vec![0xff, 0]);
        assert_eq!(read, Message { key, value: Some(b"a\0b".to_vec()), headers, timestamp: Some(5) });
        assert_eq!(Message::from_json(b"{}"), Ok(Message::default()));
        assert_eq!(Message::from_json(br#"{"timestamp":-1}"#).unwrap().timestamp, None);
        for (line, why) in [
            (&b"x"[..], "is no JSON"),
            (b"[]", "is no JSON object"),
            (br#"{"val":1}"#, "unknown field val"),
            (br#"{"value":1}"#, "has a value that is neither"),
            (br#"{"key":{"hex":"f"}}"#, "has a key that is neither"),
            (br#"{"key":{"hex":"+f"}}"#, "has a key that is neither"),
            (br#"{"headers":{}}"#, "headers that are no list"),
            (br#"{"headers":[{"value":"v"}]}"#, "a header without a name"),
            (br#"{"timestamp":"now"}"#, "no number of milliseconds"),
        ] {
            let refused = Message::from_json(line).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn keys_are_split_off() {
        assert_eq!(split(b"k=>v=>w", b"=>"), Some((&b"k"[..], &b"v=>w"[..])));
        assert_eq!(split(b":v", b":"), Some((&b""[..], &b"v"[..])));
        assert_eq!(split(b"v", b":"), None);
        assert_eq!(split(b"v", b""), None);
    }
}
