//! Walks through a trie of patterns: depth first, so that the list of pending nodes is short and a walk can be paused and resumed.

use super::chain::Words;
use super::{Edge, Node, Topics, word_hash, words};
use crate::list::List;
use crate::target::Target;
use polylogue_types::Set;
use std::sync::Arc;

/// Up to this many edges from a `#` to the next one, each searches its first word; with more, the words of the key are looked up.
const MIDDLES_SEARCHED_MAX: usize = 8;
/// Hashes of a key's words compared per step.
const HASHES_PER_STEP: u64 = 16;
/// Short chains compared per step, one after the other in the same key.
const CHAINS_PER_STEP: u64 = 8;
/// The cost of visiting a node: its parts are scattered in memory. Steps.
const NODE_STEPS: u64 = 2;
/// `Walk::seen` with more entries is freed after use, because clearing it would cost each later walk as much.
const SEEN_KEPT_MAX: usize = 1024;

/// A pending part of the walk. Numbers are positions between the words of the key.
#[derive(Clone, Copy, Debug)]
enum Pending<'n> {
    /// A node, reached after this many words.
    Reached(&'n Arc<Node>, u32),
    /// The edges between a `#` and the next one, from this word on.
    Scan(&'n Arc<Node>, u32),
    /// The same, for one edge of few.
    Middle(&'n Edge, u32),
    /// A node of a suffix trie, reached by the words from the first number on; words before the second one belong to other parts.
    Suffix(&'n Arc<Node>, u32, u32),
    /// The targets of a node, from this binding on.
    Targets(&'n Arc<Node>, u64),
}

/// A pending part of a paused walk.
#[derive(Debug)]
enum Paused {
    Reached(Arc<Node>, u32),
    Scan(Arc<Node>, u32),
    Middle(Edge, u32),
    Suffix(Arc<Node>, u32, u32),
    Targets(Arc<Node>, u64),
}

impl Pending<'_> {
    fn pause(&self) -> Paused {
        match *self {
            Pending::Reached(node, at) => Paused::Reached(node.clone(), at),
            Pending::Scan(node, at) => Paused::Scan(node.clone(), at),
            Pending::Middle(edge, at) => Paused::Middle(edge.clone(), at),
            Pending::Suffix(node, at, from) => Paused::Suffix(node.clone(), at, from),
            Pending::Targets(node, from) => Paused::Targets(node.clone(), from),
        }
    }
}

impl Paused {
    fn pending(&self) -> Pending<'_> {
        match self {
            Paused::Reached(node, at) => Pending::Reached(node, *at),
            Paused::Scan(node, at) => Pending::Scan(node, *at),
            Paused::Middle(edge, at) => Pending::Middle(edge, *at),
            Paused::Suffix(node, at, from) => Pending::Suffix(node, *at, *from),
            Paused::Targets(node, from) => Pending::Targets(node, *from),
        }
    }
}

/// A walk that used up its steps. It can be resumed with the same key, while the snapshot that owns its nodes is held.
#[derive(Debug)]
pub(crate) struct PausedWalk {
    pending: Vec<Paused>,
    seen: Set<usize>,
}

/// The memory of walks; reused so that no walk allocates.
#[derive(Default, Debug)]
pub(crate) struct Walk {
    pending: Vec<Pending<'static>>,
    starts: Vec<u32>,
    hashes: Vec<u64>,
    /// Addresses of the reached `#` nodes below another `#`.
    seen: Set<usize>,
    /// The steps of all walks so far.
    pub(crate) steps: u64,
}

/// The same vector, emptied, for references with another lifetime. It keeps its capacity: nothing is allocated.
pub(crate) fn recycle<A, B>(mut vec: Vec<A>) -> Vec<B> {
    vec.clear();
    vec.into_iter().filter_map(|_| None).collect()
}

struct Active<'n, 'e> {
    words: Words<'e>,
    pending: Vec<Pending<'n>>,
    seen: &'e mut Set<usize>,
    emit: &'e mut dyn FnMut(&Target),
    left: u64,
}

impl<'n> Active<'n, '_> {
    fn charge(&mut self, steps: u64) {
        self.left = self.left.saturating_sub(steps);
    }

    /// Proceeds until nothing is pending, or no step is left.
    fn run(&mut self) {
        while self.left > 0 {
            let Some(pending) = self.pending.pop() else { return };
            match pending {
                Pending::Reached(node, at) => self.reached(node, at),
                Pending::Scan(node, at) => self.scan(node, at),
                Pending::Middle(edge, at) => self.middle(edge, at),
                Pending::Suffix(node, at, from) => self.suffix(node, at, from),
                Pending::Targets(node, from) => self.targets(node, from),
            }
        }
    }

    fn targets(&mut self, node: &'n Arc<Node>, from: u64) {
        if let Some(from) = node.targets.emit(from, &mut self.left, self.emit) {
            self.pending.push(Pending::Targets(node, from));
        }
    }

    /// Tries an edge from a node that was reached after `at` words.
    fn forward(&mut self, edge: &'n Edge, at: u32) {
        if edge.words == 1 || self.matches(edge, at) {
            self.pending.push(Pending::Reached(&edge.node, at + edge.words));
        }
    }

    fn matches(&mut self, edge: &Edge, at: u32) -> bool {
        self.charge(edge.chain.cost());
        edge.chain.matches(&self.words, at)
    }

    fn reached(&mut self, node: &'n Arc<Node>, at: u32) {
        self.charge(NODE_STEPS);
        if let Some((hash, word)) = self.words.word(at) {
            if let Some(edge) = node.words.find(hash, |w| (*w.0).cmp(word)) {
                self.forward(edge, at);
            }
            if let Some(edge) = &node.star {
                self.forward(edge, at);
            }
        } else if !matches!(node.targets, List::Empty) {
            self.targets(node, 0);
        }
        if let Some(hash) = &node.hash {
            self.reached_hash(hash, at);
        }
    }

    /// A `#` may match any number of words from `at` on.
    fn reached_hash(&mut self, hash: &'n Arc<Node>, at: u32) {
        // The first time is after the fewest words: later ones are covered by it.
        if hash.below_hash && !self.seen.insert(Arc::as_ptr(hash).addr()) {
            return;
        }
        self.charge(1);
        if let Some(suffixes) = &hash.suffixes {
            self.pending.push(Pending::Suffix(suffixes, self.words.len(), at));
        }
        if at < self.words.len() && !hash.words.is_empty() {
            if hash.words.len() <= MIDDLES_SEARCHED_MAX {
                let pending = &mut self.pending;
                hash.words.for_each(&mut |_, edge| pending.push(Pending::Middle(edge, at)));
            } else {
                self.pending.push(Pending::Scan(hash, at));
            }
        }
        if !matches!(hash.targets, List::Empty) {
            self.targets(hash, 0);
        }
    }

    fn scan(&mut self, node: &'n Arc<Node>, mut at: u32) {
        while let Some((hash, word)) = self.words.word(at) {
            if self.left == 0 {
                return self.pending.push(Pending::Scan(node, at));
            }
            self.charge(1);
            let edge = node.words.find(hash, |w| (*w.0).cmp(word));
            at += 1;
            if let Some(edge) = edge {
                // Matches that are found first are visited first.
                self.pending.push(Pending::Scan(node, at));
                return self.forward(edge, at - 1);
            }
        }
    }

    /// Searches the next position where an edge to the next `#` matches.
    fn middle(&mut self, edge: &'n Edge, from: u32) {
        let hashes = self.words.hashes.get(from as usize..).unwrap_or_default();
        let first = edge.chain.first();
        let mut tried = 0;
        let place = (from..).zip(hashes).find(|(at, hash)| {
            let begins = **hash == first;
            tried += u64::from(begins);
            begins && edge.chain.matches(&self.words, *at)
        });
        let passed = place.map_or(hashes.len() as u64, |(at, _)| u64::from(at - from));
        self.charge(1 + passed / HASHES_PER_STEP + tried * (1 + edge.chain.cost()) / CHAINS_PER_STEP);
        let Some((at, _)) = place else { return };
        // If only a `#` follows, the first position covers all others.
        if !edge.node.is_hash_only() {
            self.pending.push(Pending::Middle(edge, at + 1));
        }
        self.pending.push(Pending::Reached(&edge.node, at + edge.words));
    }

    fn suffix(&mut self, node: &'n Arc<Node>, at: u32, from: u32) {
        self.charge(NODE_STEPS);
        if at > from
            && let Some((hash, word)) = self.words.word(at - 1)
        {
            if let Some(edge) = node.words.find(hash, |w| (*w.0).cmp(word)) {
                self.backward(edge, at, from);
            }
            if let Some(edge) = &node.star {
                self.backward(edge, at, from);
            }
        }
        if !matches!(node.targets, List::Empty) {
            self.targets(node, 0);
        }
    }

    fn backward(&mut self, edge: &'n Edge, at: u32, from: u32) {
        let Some(next) = at.checked_sub(edge.words).filter(|next| *next >= from) else { return };
        if edge.words == 1 || self.matches(edge, next) {
            self.pending.push(Pending::Suffix(&edge.node, next, from));
        }
    }
}

impl Walk {
    /// Splits a key into words.
    fn cut(&mut self, key: &[u8]) {
        self.starts.clear();
        self.hashes.clear();
        let mut start = 0;
        for word in words(key) {
            self.starts.push(start);
            self.hashes.push(word_hash(word));
            start += word.len() as u32 + 1;
        }
        self.starts.push(start);
    }

    fn run<'n>(
        &mut self,
        key: &[u8],
        pending: Vec<Pending<'n>>,
        steps: &mut u64,
        emit: &mut dyn FnMut(&Target),
    ) -> Option<Box<PausedWalk>> {
        self.cut(key);
        let words = Words { key, starts: &self.starts, hashes: &self.hashes };
        let mut active = Active { words, pending, seen: &mut self.seen, emit, left: *steps };
        active.run();
        let (mut pending, left) = (active.pending, active.left);
        self.steps += *steps - left;
        *steps = left;
        let paused = (!pending.is_empty()).then(|| {
            let left = pending.drain(..).map(|pending| pending.pause()).collect();
            Box::new(PausedWalk { pending: left, seen: std::mem::take(&mut self.seen) })
        });
        self.pending = recycle(pending);
        if self.seen.capacity() > SEEN_KEPT_MAX {
            self.seen = Set::default();
        }
        paused
    }
}

impl Topics {
    /// Calls `emit` with each target of each matching pattern, while there are steps. Returns the rest of the walk if they are used up.
    pub(crate) fn walk(
        &self,
        key: &[u8],
        walk: &mut Walk,
        steps: &mut u64,
        emit: &mut dyn FnMut(&Target),
    ) -> Option<Box<PausedWalk>> {
        walk.seen.clear();
        let mut pending = recycle(std::mem::take(&mut walk.pending));
        pending.push(Pending::Reached(&self.root, 0));
        walk.run(key, pending, steps, emit)
    }
}

impl PausedWalk {
    /// Resumes a walk with the same key, once.
    pub(crate) fn resume(
        &mut self,
        key: &[u8],
        walk: &mut Walk,
        steps: &mut u64,
        emit: &mut dyn FnMut(&Target),
    ) -> Option<Box<PausedWalk>> {
        walk.seen = std::mem::take(&mut self.seen);
        let mut pending = recycle(std::mem::take(&mut walk.pending));
        pending.extend(self.pending.iter().map(Paused::pending));
        walk.run(key, pending, steps, emit)
    }
}
