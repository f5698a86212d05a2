//! Heartbeat timers of one side of a connection: when to send a heartbeat, and when the peer has timed out (AMQP 0-9-1, 4.2.7).

/// Monotonic milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// When the connection was accepted or made.
    pub(crate) created_ms: u64,
    /// When bytes were last read.
    last_read_ms: u64,
    /// When output was last handed over to be written.
    pub(crate) last_write_ms: u64,
    /// The negotiated heartbeat, 0 for none. Milliseconds.
    pub(crate) heartbeat_ms: u64,
    /// Reading is paused by this side: the peer's silence counts only from when reading resumes.
    reading_paused: bool,
    /// Bytes left in the input after the last call of [`Clock::on_parsed`]: a longer input means that the peer has sent something.
    seen_bytes: usize,
}

impl Clock {
    pub(crate) fn new(now_ms: u64) -> Clock {
        Clock {
            created_ms: now_ms,
            last_read_ms: now_ms,
            last_write_ms: now_ms,
            heartbeat_ms: 0,
            reading_paused: false,
            seen_bytes: 0,
        }
    }

    /// The input holds this many bytes before it is parsed.
    pub(crate) fn on_input(&mut self, input_bytes: usize, now_ms: u64) {
        if input_bytes > self.seen_bytes {
            self.last_read_ms = now_ms;
        }
    }

    /// This many bytes are left in the input after parsing.
    pub(crate) fn on_parsed(&mut self, left_bytes: usize) {
        self.seen_bytes = left_bytes;
    }

    /// Whether this side reads from now on.
    pub(crate) fn set_reading(&mut self, wants: bool, now_ms: u64) {
        if !wants {
            self.reading_paused = true;
        } else if std::mem::take(&mut self.reading_paused) {
            self.last_read_ms = now_ms;
        }
    }

    /// When a heartbeat is due: after half of the negotiated interval without output.
    pub(crate) fn heartbeat_due_ms(&self) -> Option<u64> {
        let half = self.heartbeat_ms / 2;
        (half > 0).then(|| self.last_write_ms.saturating_add(half))
    }

    /// When the peer is considered dead: after two heartbeat intervals without input, while this side reads.
    pub(crate) fn peer_timeout_ms(&self, reads: bool) -> Option<u64> {
        let counts = self.heartbeat_ms > 0 && reads;
        counts.then(|| self.last_read_ms.saturating_add(2 * self.heartbeat_ms))
    }
}
