//! The storage of a null broker: each batch as received, with a new base offset. Can have faults, to test that clients find
//! them.

use crate::error::{Context, Result};
use crate::null::Faults;
use bytes::{Bytes, BytesMut};
use polylogue_record::kafka::{BatchIter, patch_base};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A batch, and the offset after it.
#[derive(Debug, Clone)]
struct Kept {
    next: i64,
    bytes: Bytes,
}

#[derive(Debug, Default)]
struct Partition {
    kept: Vec<Kept>,
    /// Number of batches received.
    count: u64,
    /// A batch held until the next one was stored.
    held: Option<Bytes>,
}

impl Partition {
    fn next(&self) -> i64 {
        self.kept.last().map_or(0, |kept| kept.next)
    }

    fn keep(&mut self, batch: &Bytes) -> Result<()> {
        let mut bytes = BytesMut::from(&batch[..]);
        patch_base(&mut bytes, self.next(), 0).context(|| "a batch".to_owned())?;
        let bytes = bytes.freeze();
        for batch in BatchIter::new(bytes) {
            let batch = batch.context(|| "a batch".to_owned())?;
            self.kept.push(Kept { next: batch.header.last_offset() + 1, bytes: batch.bytes });
        }
        Ok(())
    }

    fn take(&mut self, batch: Bytes, faults: Faults) -> Result<()> {
        self.count += 1;
        if faults.swaps(self.count) && self.held.is_none() {
            self.held = Some(batch);
            return Ok(());
        }
        for _ in 0..faults.times(self.count) {
            self.keep(&batch)?;
        }
        match self.held.take() {
            Some(held) => self.keep(&held),
            None => Ok(()),
        }
    }

    /// Returns the first batch with messages from `offset` on.
    fn read(&self, offset: i64) -> Option<Bytes> {
        let place = self.kept.partition_point(|kept| kept.next <= offset);
        self.kept.get(place).map(|kept| kept.bytes.clone())
    }
}

/// The messages of a topic.
#[derive(Debug)]
pub(super) struct Log {
    faults: Faults,
    partitions: Mutex<Vec<Partition>>,
    came: Condvar,
}

impl Log {
    pub(super) fn new(partitions: u32, faults: Faults) -> Log {
        let partitions = (0..partitions).map(|_| Partition::default()).collect();
        Log { faults, partitions: Mutex::new(partitions), came: Condvar::new() }
    }

    /// Waits for the delay of fetches.
    pub(super) fn hold_up(&self) {
        std::thread::sleep(Duration::from_micros(self.faults.fetch_us));
    }

    /// Stores a batch; drops one for an unknown partition.
    pub(super) fn append(&self, partition: i32, batch: Bytes) -> Result<()> {
        let mut partitions = self.partitions.lock().unwrap_or_else(PoisonError::into_inner);
        let place = usize::try_from(partition).ok().and_then(|number| partitions.get_mut(number));
        place.map_or(Ok(()), |partition| partition.take(batch, self.faults))?;
        self.came.notify_all();
        Ok(())
    }

    /// Returns the end offset.
    pub(super) fn next(&self, partition: i32) -> i64 {
        let partitions = self.partitions.lock().unwrap_or_else(PoisonError::into_inner);
        usize::try_from(partition).ok().and_then(|number| partitions.get(number)).map_or(0, Partition::next)
    }

    /// Returns a batch from each of these offsets on, as soon as there is one, or nothing after `wait`.
    pub(super) fn read(&self, asked: &[(i32, i64)], wait: Duration) -> Vec<(i32, Bytes)> {
        let find = |partitions: &[Partition]| -> Vec<(i32, Bytes)> {
            let found = |(number, offset): &(i32, i64)| {
                let partition = partitions.get(usize::try_from(*number).ok()?)?;
                Some((*number, partition.read(*offset)?))
            };
            asked.iter().filter_map(found).collect()
        };
        let partitions = self.partitions.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.came.wait_timeout_while(partitions, wait, |partitions| find(partitions).is_empty());
        let (partitions, _) = waited.unwrap_or_else(PoisonError::into_inner);
        find(&partitions)
    }
}
