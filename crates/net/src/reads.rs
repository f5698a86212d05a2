//! The memory of one connection's reads, counted with the responses before their messages are part of its output.

use super::output::{OutputGauge, memory};
use polylogue_api::{Reply, Token};
use polylogue_types::Chunk;

/// Pending reads are counted by their maximum size, answered ones by their actual size.
#[derive(Debug)]
pub(super) struct Reads {
    gauge: OutputGauge,
    /// Pending reads: as many as the session issues at a time.
    asked: Vec<(Token, usize)>,
    /// Bytes held by the session.
    held: usize,
    /// The part of it that the last reply returned.
    last: usize,
}

impl Reads {
    pub(super) fn new(gauge: OutputGauge) -> Reads {
        Reads { gauge, asked: Vec::new(), held: 0, last: 0 }
    }

    /// Bytes that the session holds or may get.
    pub(super) fn bytes(&self) -> usize {
        self.asked.iter().map(|(_, bytes)| *bytes).sum::<usize>() + self.held
    }

    /// Whether a reply is pending.
    pub(super) fn are_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// A read of this size was issued.
    pub(super) fn on_asked(&mut self, token: Token, bytes: usize) {
        self.asked.push((token, bytes));
        self.gauge.add_asked(bytes);
    }

    /// Handles a reply of the broker.
    pub(super) fn on_reply(&mut self, token: Token, reply: &Reply) {
        let Some(at) = self.asked.iter().position(|(asked, _)| *asked == token) else { return };
        let (_, asked) = self.asked.swap_remove(at);
        let parts = if let Reply::Read(parts) = reply { parts.as_slice() } else { &[] };
        let chunks = parts.iter().flatten().flat_map(|part| &part.chunks);
        self.last = chunks.map(memory).sum();
        self.held += self.last;
        self.gauge.add(self.last);
        self.gauge.sub_asked(asked);
    }

    /// The session has released the result of the last read: it was too little, and it waits for more.
    pub(super) fn on_let_go(&mut self) {
        let bytes = std::mem::take(&mut self.last).min(self.held);
        self.held -= bytes;
        self.gauge.sub(bytes);
    }

    /// The session has returned these chunks; `rest` says whether it has other requests in progress.
    pub(super) fn on_taken(&mut self, chunks: &[Chunk], rest: bool) {
        let taken: usize = chunks.iter().map(memory).sum();
        let bytes = if rest { taken.min(self.held) } else { self.held };
        self.held -= bytes;
        self.last = self.last.min(self.held);
        self.gauge.sub(bytes);
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        self.gauge.sub(self.held);
        self.gauge.sub_asked(self.bytes() - self.held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use polylogue_api::ReadData;
    use polylogue_types::Offset;

    fn reply(bytes: usize) -> Reply {
        let chunks = vec![Chunk::Bytes(Bytes::from(vec![0; bytes]))];
        Reply::Read(vec![Ok(ReadData { chunks, high_watermark: Offset(1), log_start: Offset(0) })])
    }

    #[test]
    fn a_read_counts_from_its_question_to_its_response() {
        let gauge = OutputGauge::new(1 << 20);
        let mut reads = Reads::new(gauge.clone());
        reads.on_asked(1, 1_000);
        assert_eq!((gauge.bytes(), gauge.asked(), reads.are_asked()), (0, 1_000, true));
        reads.on_reply(1, &reply(70));
        assert_eq!((gauge.bytes(), gauge.asked(), reads.are_asked()), (70, 0, false));
        reads.on_let_go();
        reads.on_let_go();
        assert_eq!(gauge.bytes(), 0, "a long poll that waits holds no message");
        reads.on_asked(2, 500);
        reads.on_reply(2, &reply(400));
        reads.on_reply(2, &reply(400));
        reads.on_asked(3, 9);
        reads.on_taken(&[Chunk::Bytes(Bytes::from_static(&[0; 100]))], true);
        assert_eq!((gauge.bytes(), gauge.asked(), reads.bytes()), (300, 9, 309));
        reads.on_taken(&[], false);
        assert_eq!((gauge.bytes(), gauge.asked()), (0, 9));
        drop(reads);
        assert_eq!((gauge.bytes(), gauge.asked()), (0, 0));
    }
}
