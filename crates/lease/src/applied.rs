//! What is committed of a queue: a function of the applied records and entries alone.

use crate::codec::{BLOCK_BITS, ChunkId, Head, RecordReader, decode_block, decode_head, encode_block, encode_head};
use crate::error::LeaseError;
use crate::mark::{Class, Fate, Mark, Transient};
use crate::queue::CLASS_RUNS_MAX;
use crate::runs::{Run, Runs};
use bytes::Bytes;
use polylogue_types::bin::BinWriter;
use std::collections::BTreeSet;
use std::ops::Range;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    pub(crate) head: Head,
    /// What there is to say of messages from the floor on. What is settled at the floor is not here. Of those that are not committed yet
    /// when they are to be delivered.
    pub(crate) marks: Runs<Mark>,
    /// What messages are, where it is anything special; also of those that are not committed yet.
    pub(crate) classes: Runs<Class>,
    /// There may be classes with coarse times.
    pub(crate) coarse: bool,
    /// There may be classes of mixed persistence.
    mixed: bool,
    changed: BTreeSet<u64>,
    head_changed: bool,
}

impl Applied {
    pub(crate) fn new(start: u64, end: u64) -> Applied {
        Applied { head: Head { floor: start, end, handed_to: 0 }, head_changed: true, ..Applied::default() }
    }

    /// The mark of a message, and up to where (at most `limit`) the following ones have the same.
    pub(crate) fn mark_run(&self, at: u64, limit: u64) -> (u64, Mark) {
        if at < self.head.floor {
            return (limit.min(self.head.floor), Mark::SETTLED);
        }
        value_run(&self.marks, at, limit, Mark::OPEN, |mark| mark)
    }

    /// As [`Applied::mark_run`], of classes.
    pub(crate) fn class_run(&self, at: u64, limit: u64) -> (u64, Class) {
        value_run(&self.classes, at, limit, Class::default(), |class| class)
    }

    /// That a record can be applied: it is read to its end.
    pub(crate) fn check(&self, mut record: RecordReader<'_>) -> Result<(), LeaseError> {
        if record.handed_to.is_some_and(|to| to > self.head.end) {
            return Err(LeaseError::Damaged { what: "position handed out to" });
        }
        while let Some(run) = record.next()? {
            if run.end > self.head.end {
                return Err(LeaseError::Damaged { what: "end of a range" });
            }
        }
        Ok(())
    }

    pub(crate) fn set_handed_to(&mut self, to: u64) {
        if to > self.head.handed_to {
            self.head.handed_to = to;
            self.head_changed = true;
        }
    }

    /// Messages have this mark from now on, whatever they had. Returns the messages above the floor of which was forgotten what they are: they
    /// are settled, and need not be among those that were marked.
    pub(crate) fn set_mark(&mut self, mut range: Range<u64>, mark: Mark) -> Range<u64> {
        let floor = self.head.floor;
        let mut forgotten = 0..0;
        if mark.fate == Fate::Settled && range.start <= floor {
            range.start = floor;
            if range.is_empty() {
                return forgotten;
            }
            self.head.floor = range.end;
            if !self.marks.is_empty() {
                self.note_marks(&range);
                self.marks.clear(&range);
                self.note_marks(&range);
            }
        } else {
            if range.start < floor {
                // The subscription goes back. What lies between stays settled, as far as the range leaves it.
                self.marks.set(range.start..floor, Mark::SETTLED);
                self.head.floor = range.start;
            }
            self.note_marks(&range);
            if mark == Mark::OPEN {
                self.marks.clear(&range);
            } else {
                self.marks.set(range.clone(), mark);
            }
            self.note_marks(&range);
            if mark.fate == Fate::Settled {
                forgotten = self.forget_classes(&range);
            }
        }
        self.rise();
        if self.head.floor > floor {
            self.forget_below();
        }
        self.head_changed |= self.head.floor != floor;
        forgotten
    }

    /// Forgets what messages are that are settled, as far as that makes runs fewer or shorter: a floor that does not move must not keep what is
    /// known of all that is settled above it. Entries are forgotten whole, so that it stays known where they start. Returns from where to where.
    fn forget_classes(&mut self, range: &Range<u64>) -> Range<u64> {
        let mut forgotten = 0..0;
        let mut at = range.start;
        while let Some(run) = self.classes.from(at).filter(|run| run.start < range.end) {
            at = run.end;
            let inside = run.start.max(range.start);
            let Some(settled) = self.marks.at(inside).filter(|settled| settled.value == Mark::SETTLED) else { break };
            let entry = u64::from(run.value.entry.max(1));
            let start = run.start + (settled.start.max(run.start) - run.start).div_ceil(entry) * entry;
            let end = run.start + (settled.end.min(run.end) - run.start) / entry * entry;
            if start < end && (start == run.start || end == run.end) {
                self.set_class(start..end, Class::default());
                forgotten = if forgotten.is_empty() { start..end } else { forgotten.start..end };
            }
        }
        forgotten
    }

    /// The floor goes up over what is settled.
    fn rise(&mut self) {
        while let Some(run) = self.marks.first()
            && run.value == Mark::SETTLED
            && run.start <= self.head.floor
        {
            self.head.floor = self.head.floor.max(run.end);
            self.changed.insert(run.start >> BLOCK_BITS);
            self.marks.clear(&run.range());
        }
    }

    /// What lies below the floor is forgotten.
    fn forget_below(&mut self) {
        while let Some(run) = self.classes.first()
            && run.end <= self.head.floor
        {
            self.note_classes(&run.range());
            self.classes.clear(&run.range());
            if self.mixed {
                self.note_classes(&run.range());
            }
        }
    }

    /// Everything up to here is committed.
    pub(crate) fn set_end(&mut self, end: u64) {
        let range = self.head.end..end;
        self.note_classes(&range);
        self.note_marks(&range);
        self.head.end = end;
        self.head_changed = true;
    }

    pub(crate) fn set_class(&mut self, range: Range<u64>, class: Class) {
        self.coarse |= class.coarse > 0;
        self.mixed |= class.transient.is_mixed();
        if class == Class::default() && self.classes.last().is_none_or(|last| last.end <= range.start) {
            return;
        }
        self.note_classes(&range);
        if class == Class::default() {
            self.classes.clear(&range);
        } else {
            self.classes.set(range.clone(), class);
        }
        self.note_classes(&range);
    }

    /// Messages that were never committed will not be.
    pub(crate) fn forget(&mut self, range: Range<u64>) {
        self.set_class(range.clone(), Class::default());
        self.note_marks(&range);
        self.marks.clear(&range);
    }

    fn note_marks(&mut self, range: &Range<u64>) {
        note(&self.marks, range, |run| _ = self.changed.insert(run.start >> BLOCK_BITS));
    }

    fn note_classes(&mut self, range: &Range<u64>) {
        if !self.mixed {
            note(&self.classes, range, |run| _ = self.changed.insert(run.start >> BLOCK_BITS));
            return;
        }
        let mut at = self.plain_start(range.start.saturating_sub(1));
        while let Some(run) = self.plain_run(at).filter(|run| run.start <= range.end) {
            self.changed.insert(run.start >> BLOCK_BITS);
            at = run.end;
        }
    }

    /// Chunks that changed since the last call, `None` for those that are gone.
    pub(crate) fn take_changed_chunks(&mut self) -> Vec<(Bytes, Option<Bytes>)> {
        let mut out = Vec::with_capacity(self.changed.len() + 1);
        for block in std::mem::take(&mut self.changed) {
            out.push((ChunkId::Block(block).encode(), self.block(block)));
        }
        if std::mem::take(&mut self.head_changed) {
            out.push((ChunkId::Head.encode(), Some(encode_head(&self.head))));
        }
        out
    }

    /// Counts every chunk as changed.
    pub(crate) fn change_all_chunks(&mut self) {
        self.changed.extend(self.marks.iter().map(|run| run.start >> BLOCK_BITS));
        self.note_classes(&(0..u64::MAX));
        self.head_changed = true;
    }

    /// What starts in a block, as far as it is committed.
    fn block(&self, block: u64) -> Option<Bytes> {
        let range = block << BLOCK_BITS..((block + 1) << BLOCK_BITS).min(self.head.end);
        let within = |start: u64| (range.start..range.end).contains(&start);
        let marks = self.marks.iter_from(range.start).take_while(|run| run.start < range.end);
        let marks: Vec<_> = marks.filter(|run| within(run.start)).map(|run| self.committed(run)).collect();
        let mut classes = Vec::new();
        let mut at = range.start;
        while let Some(run) = self.plain_run(at).filter(|run| run.start < range.end) {
            let starts = run.start > range.start || self.plain_start(run.start) == run.start;
            classes.extend(starts.then(|| self.committed(run)));
            at = run.end;
        }
        encode_block(block, &marks, &classes)
    }

    /// Messages from an offset on that are of one class and of one persistence: what checkpoints have as one run, whatever is one in memory.
    fn plain_run(&self, at: u64) -> Option<Run<Class>> {
        let first = self.classes.from(at)?;
        let start = first.start.max(at);
        let (mut end, value) = plain(&first, start);
        while let Some((next_end, _)) =
            self.classes.at(end).map(|next| plain(&next, end)).filter(|(_, next)| *next == value)
        {
            end = next_end;
        }
        Some(Run { start, end, value })
    }

    /// Where the [plain run](Applied::plain_run) starts that a message is in; the message itself when it is in none.
    fn plain_start(&self, at: u64) -> u64 {
        let Some(mut run) = self.classes.at(at) else { return at };
        let value = plain(&run, at).1;
        let mut start = at;
        loop {
            start = run.value.transient.start(start, run.start);
            if start > run.start {
                return start;
            }
            match start.checked_sub(1).and_then(|before| self.classes.at(before)) {
                Some(before) if plain(&before, start - 1).1 == value => (run, start) = (before, start - 1),
                _ => return start,
            }
        }
    }

    /// A run that starts before the end of what is committed, as far as it is.
    fn committed<V>(&self, run: Run<V>) -> Run<V> {
        Run { end: run.end.min(self.head.end), ..run }
    }

    /// See [`Queue::canonical`](crate::Queue::canonical).
    pub(crate) fn canonical(&self) -> Vec<u8> {
        let Head { floor, end, handed_to } = self.head;
        let mut w = BinWriter::new();
        w.u64(floor).u64(end).u64(handed_to);
        let mut at = floor;
        let mut before: Option<([u8; CANONICAL_BYTES], u64)> = None;
        while at < end {
            let (until, mark) = self.mark_run(at, end);
            let (until, class) = self.class_run(at, until);
            let (until, transient) = class.transient.run(at, until);
            let value = canonical_of(&mark, &class, transient);
            match &mut before {
                Some((last, to)) if *last == value => *to = until,
                _ => {
                    if let Some((last, to)) = before.replace((value, until)) {
                        w.raw(&last).u64(to);
                    }
                }
            }
            at = until;
        }
        if let Some((last, to)) = before {
            w.raw(&last).u64(to);
        }
        w.out
    }

    /// A chunk of a checkpoint, before anything else.
    pub(crate) fn load_chunk(&mut self, id: &[u8], chunk: &[u8]) -> Result<(), LeaseError> {
        match ChunkId::decode(id).ok_or(LeaseError::Damaged { what: "name of a chunk" })? {
            ChunkId::Head => {
                self.head = decode_head(chunk)?;
                self.head_changed = false;
            }
            ChunkId::Block(block) => {
                let (marks, classes) = decode_block(block, chunk)?;
                load(&mut self.marks, marks)?;
                self.coarse |= classes.iter().any(|run| run.value.coarse > 0);
                load(&mut self.classes, classes)?;
            }
        }
        Ok(())
    }

    /// That what was loaded fits together.
    pub(crate) fn check_loaded(&mut self) -> Result<(), LeaseError> {
        let end = self.head.end;
        if self.marks.last().is_some_and(|run| run.end > end) || self.classes.last().is_some_and(|run| run.end > end) {
            return Err(LeaseError::Damaged { what: "end" });
        }
        if self.marks.first().is_some_and(|run| run.start < self.head.floor) {
            return Err(LeaseError::Damaged { what: "floor" });
        }
        self.rise();
        self.forget_below();
        if self.classes.exceeds(CLASS_RUNS_MAX) {
            self.classes = folded(&self.classes);
            self.mixed = self.classes.iter().any(|run| run.value.transient.is_mixed());
        }
        Ok(())
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        // Nodes of a tree are at least half full.
        self.marks.heap_bytes() + self.classes.heap_bytes() + 2 * size_of::<u64>() * self.changed.len()
    }
}

/// What [`Applied::canonical`] says of a message. Bytes.
const CANONICAL_BYTES: usize = 16;

/// `u64 not before, u16 returned, u16 failed, u8 fate, u8 handed out, u8 priority, u8 expires (1) and transient (2)`; of one that is settled only
/// that.
fn canonical_of(mark: &Mark, class: &Class, transient: bool) -> [u8; CANONICAL_BYTES] {
    let mut value = [0; CANONICAL_BYTES];
    value[12] = match mark.fate {
        Fate::Open => 0,
        Fate::Settled => 1,
        Fate::Dead(reason) => 16 + reason as u8,
    };
    if mark.fate == Fate::Settled {
        return value;
    }
    value[..8].copy_from_slice(&mark.not_before_ms.to_le_bytes());
    value[8..10].copy_from_slice(&mark.tally.returned.to_le_bytes());
    value[10..12].copy_from_slice(&mark.tally.failed.to_le_bytes());
    value[13] = u8::from(mark.handed);
    value[14] = class.priority;
    value[15] = u8::from(class.expires_at_ms > 0) + 2 * u8::from(transient);
    value
}

/// What an offset has (`none` without a value), and up to where (at most `limit`) the following ones have the same.
pub(crate) fn value_run<V: Copy + PartialEq, T>(
    runs: &Runs<V>,
    at: u64,
    limit: u64,
    none: T,
    some: impl FnOnce(V) -> T,
) -> (u64, T) {
    match runs.from(at) {
        Some(run) if run.start <= at => (limit.min(run.end), some(run.value)),
        Some(run) => (limit.min(run.start), none),
        None => (limit, none),
    }
}

/// Passes the runs that a change of this range concerns: those in it and its neighbours.
fn note<V: Copy + PartialEq>(runs: &Runs<V>, range: &Range<u64>, to: impl FnMut(Run<V>)) {
    runs.iter_from(range.start.saturating_sub(1)).take_while(|run| run.start <= range.end).for_each(to);
}

/// What a message of a run is, and up to where the following ones are the same.
fn plain(run: &Run<Class>, at: u64) -> (u64, Class) {
    let (end, transient) = run.value.transient.run(at, run.end);
    (end, Class { transient: Transient::of(transient), ..run.value })
}

/// The same classes in fewer runs: short ones that differ by persistence alone are one, as they were before they were written.
fn folded(classes: &Runs<Class>) -> Runs<Class> {
    let mut folded: Runs<Class> = Runs::default();
    for run in classes.iter() {
        let period = Transient::period_of(run.start);
        let before = folded.last().filter(|before| {
            let short = before.start >= period || before.value.transient.is_mixed();
            let same = Class { transient: before.value.transient, ..run.value } == before.value;
            before.end == run.start && run.start > period && short && same
        });
        let mut start = run.start;
        if let Some(before) = before {
            start = run.end.min(period + Transient::PERIOD);
            let transient = before.value.transient.with(&(run.start..start), run.value.transient);
            folded.set(before.start.max(period)..start, Class { transient, ..run.value });
        }
        folded.set(start..run.end, run.value);
    }
    folded
}

fn load<V: Copy + PartialEq>(into: &mut Runs<V>, runs: Vec<Run<V>>) -> Result<(), LeaseError> {
    for run in runs {
        if into.first_in(&run.range()).is_some() {
            return Err(LeaseError::Damaged { what: "range that overlaps another one" });
        }
        into.set(run.range(), run.value);
    }
    Ok(())
}
