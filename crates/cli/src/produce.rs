//! `polylogue produce`.

use super::Failure;
use super::args::{Acks, CodecArg, ProduceArgs};
use super::output::Out;
use crate::client::kafka::{KafkaClient, Topic};
use polylogue_env::{Clock, Env};
use polylogue_record::compress::Codec;
use polylogue_record::kafka::{BatchBuilder, NewRecord, partition_of_key};
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
    };
    match &args.file {
        None => producer.lines(io::stdin().lock())?,
        Some(path) => {
            let cannot = |e: io::Error| Failure::Other(format!("cannot read {}: {e}", path.display()));
            producer.lines(OpenOptions::new().read(true).open(path).map_err(cannot)?)?;
        }
    }
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
            self.take(&line, number)?;
            // The next line may take long: send what there is.
            if !input.buffer().contains(&b'\n') {
                self.send_all()?;
            }
        }
        self.send_all()
    }

    fn take(&mut self, line: &[u8], number: u64) -> Result<(), Failure> {
        let (key, value) = match &self.args.key_separator {
            None => (self.args.key.as_ref().map(String::as_bytes), line),
            Some(separator) => {
                let (key, value) = split(line, separator.as_bytes()).ok_or_else(|| {
                    Failure::Other(format!("line {number} has no \"{separator}\" between a key and a value"))
                })?;
                (Some(key), value)
            }
        };
        let value = Some(value).filter(|value| !value.is_empty() || !self.args.empty_as_tombstone);
        let partition = match (self.args.partition, key) {
            (Some(partition), _) => partition,
            (None, Some(key)) => by_key(key, self.topic.partitions),
            (None, None) => self.in_turn,
        };
        let headers: Vec<_> =
            self.headers.iter().map(|(name, value)| (name.as_slice(), Some(value.as_slice()))).collect();
        let record = NewRecord { timestamp: self.clock.now_ms(), key, value, headers: &headers };
        let batch = self.batches.entry(partition).or_default();
        batch.push(&record).map_err(|e| Failure::Other(format!("line {number}: {e}")))?;
        if batch.uncompressed_bytes() >= BATCH_BYTES_MAX {
            self.send(partition)?;
        }
        Ok(())
    }

    fn send_all(&mut self) -> Result<(), Failure> {
        while let Some(partition) = self.batches.keys().next().copied() {
            self.send(partition)?;
        }
        Ok(())
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
    fn keys_are_split_off() {
        assert_eq!(split(b"k=>v=>w", b"=>"), Some((&b"k"[..], &b"v=>w"[..])));
        assert_eq!(split(b":v", b":"), Some((&b""[..], &b"v"[..])));
        assert_eq!(split(b"v", b":"), None);
        assert_eq!(split(b"v", b""), None);
    }
}
