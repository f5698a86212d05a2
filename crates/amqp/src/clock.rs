//! What a side of a connection waits for by the clock: its own signs of life, and those of the other side (AMQP 0-9-1, 4.2.7).

/// Monotonic milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// When the connection was made.
    pub(crate) born_ms: u64,
    /// When something was read last.
    heard_ms: u64,
    /// When something was handed to be written last.
    pub(crate) said_ms: u64,
    /// The heartbeat that was agreed on, 0 for none. Milliseconds.
    pub(crate) heartbeat_ms: u64,
    /// Nothing was read for a while, because nothing was wanted: the other side's silence begins when that ends.
    deaf: bool,
    /// How much was left in the input after it was looked at last: more means that the other side has said something.
    seen_bytes: usize,
}

impl Clock {
    pub(crate) fn new(now_ms: u64) -> Clock {
        Clock { born_ms: now_ms, heard_ms: now_ms, said_ms: now_ms, heartbeat_ms: 0, deaf: false, seen_bytes: 0 }
    }

    /// So much is in the input before it is looked at.
    pub(crate) fn hear(&mut self, input_bytes: usize, now_ms: u64) {
        if input_bytes > self.seen_bytes {
            self.heard_ms = now_ms;
        }
    }

    /// So much is left of it.
    pub(crate) fn seen(&mut self, left_bytes: usize) {
        self.seen_bytes = left_bytes;
    }

    /// Whether input is wanted from now on.
    pub(crate) fn listen(&mut self, wants: bool, now_ms: u64) {
        if !wants {
            self.deaf = true;
        } else if std::mem::take(&mut self.deaf) {
            self.heard_ms = now_ms;
        }
    }

    /// When a sign of life is due: after half a heartbeat of silence.
    pub(crate) fn say_ms(&self) -> Option<u64> {
        let half = self.heartbeat_ms / 2;
        (half > 0).then(|| self.said_ms.saturating_add(half))
    }

    /// When the other side is taken for dead: after two heartbeats of silence, while it is listened to.
    pub(crate) fn hear_ms(&self, listens: bool) -> Option<u64> {
        let counts = self.heartbeat_ms > 0 && listens;
        counts.then(|| self.heard_ms.saturating_add(2 * self.heartbeat_ms))
    }
}
