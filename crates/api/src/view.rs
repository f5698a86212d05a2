//! Messages of queues as readers by offset see them.

use bytes::Bytes;
use polylogue_record::envelope::Form;
use polylogue_record::kafka::NewRecord;
use polylogue_types::TimestampMs;
use std::fmt::Debug;

/// A message of a queue as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct StoredMessage<'a> {
    /// What its bytes are.
    pub form: Form,
    /// When it was published, -1 if unknown. Milliseconds.
    pub timestamp: TimestampMs,
    /// Its native bytes.
    pub bytes: &'a Bytes,
}

/// Shows messages of queues as records. The protocol that stored them brings it along, because only it knows what is in them; the
/// broker asks it when a queue is read by offset, and never for a partition that is no queue.
pub trait LogView: Send + Sync + Debug {
    /// Hands the record that a message is to `put`, once. Not at all where the bytes are no message.
    fn record(&self, message: StoredMessage<'_>, put: &mut dyn FnMut(&NewRecord<'_>));

    /// Returns the length of a message's body: what limits and counts of queues by bytes count. `None` where the bytes are no message;
    /// then all of them count. Called for each message that is published to a queue, and again when it is committed.
    fn body_bytes(&self, form: Form, bytes: &[u8]) -> Option<usize> {
        let _ = (form, bytes);
        None
    }
}
