//! Consumer lag in time: the age of the first unread message.

use super::App;
use polylogue_api::{ReadPart, ReadRequest, Reply, Request, Token};
use polylogue_net::Visit;
use polylogue_net::mailbox::Mail;
use polylogue_record::kafka::{BatchHeader, HEADER_BYTES};
use polylogue_types::{Chunk, FileRange, Offset, PartitionId, TimestampMs};
use std::time::Duration;

/// The maximum number of partitions of one request.
pub(super) const PARTITIONS_MAX: usize = 1_000;
/// The timeout for all of them.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the first timestamp of the batch that contains each offset; `None` if the offset is at the end, or the time is unknown. Reads only
/// batch headers. Wall time.
pub(super) async fn written_ms(app: &App, places: &[(PartitionId, Offset)]) -> Vec<Option<TimestampMs>> {
    let mut times = vec![None; places.len()];
    let looked = places.iter().take(PARTITIONS_MAX);
    let visit = Visit::new(&app.broker);
    for (at, (partition, offset)) in looked.clone().enumerate() {
        let part = ReadPart { partition: *partition, offset: *offset, bytes_max: 1 };
        let read = ReadRequest { parts: vec![part], bytes_max: 1, at_least_one: true };
        visit.submit(at as Token, Request::Read(read));
    }
    let answers = async {
        let mut left = looked.len();
        while left > 0 {
            for mail in visit.mail().await {
                let Mail::Reply(token, Reply::Read(parts)) = mail else { continue };
                left -= 1;
                let chunk = parts.first().and_then(|part| part.as_ref().ok()?.chunks.first());
                if let Some(slot) = usize::try_from(token).ok().and_then(|at| times.get_mut(at)) {
                    *slot = chunk.and_then(first_time);
                }
            }
        }
    };
    // Replies that are late count as unknown.
    let _ = tokio::time::timeout(PATIENCE, answers).await;
    times
}

/// Returns the timestamp of a batch's first message.
fn first_time(chunk: &Chunk) -> Option<TimestampMs> {
    let head = match chunk {
        Chunk::Bytes(bytes) => bytes.clone(),
        Chunk::File(range) => {
            let len = range.len.min(HEADER_BYTES as u32);
            Chunk::File(FileRange { len, ..range.clone() }).to_bytes().ok()?
        }
    };
    let header = BatchHeader::parse(head.get(..HEADER_BYTES)?).ok()?;
    Some(header.base_timestamp).filter(|ms| *ms >= 0)
}

/// Returns the age of a timestamp.
pub(super) fn age_ms(app: &App, written_ms: TimestampMs) -> u64 {
    u64::try_from(app.broker.now().wall_ms.saturating_sub(written_ms)).unwrap_or(0)
}
