//! The lag in time of a reader at an offset: the age of the first message that was not read.

use super::App;
use polylogue_api::{ReadPart, ReadRequest, Reply, Request, Token};
use polylogue_net::Visit;
use polylogue_net::mailbox::Mail;
use polylogue_record::kafka::{BatchHeader, HEADER_BYTES};
use polylogue_types::{Chunk, FileRange, Offset, PartitionId, TimestampMs};
use std::time::Duration;

/// Partitions that are looked at in one go.
pub(super) const PARTITIONS_MAX: usize = 1_000;
/// How long the broker may take for all of them.
const PATIENCE: Duration = Duration::from_secs(10);

/// When the batch was written that the offset is in, by the time of its first message. `None` where there is nothing to be read, or where it is not
/// known. Of a batch no more is read than its header. Wall time.
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
    // Those that have not come by then are not known.
    let _ = tokio::time::timeout(PATIENCE, answers).await;
    times
}

/// The time of a batch's first message.
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

/// How long ago that was.
pub(super) fn age_ms(app: &App, written_ms: TimestampMs) -> u64 {
    u64::try_from(app.broker.now().wall_ms.saturating_sub(written_ms)).unwrap_or(0)
}
