//! Walks through a trie of patterns: in depth, so that what is left to do is short, and a walk can be left and gone on with.

use super::chain::Words;
use super::{Edge, Node, Topics, word_hash, words};
use crate::index::Target;
use crate::list::List;
use polylogue_types::Set;
use std::sync::Arc;

/// Ways from a `#` to the next one, up to which each looks for its first word; with more of them the words of the key are looked up.
const MIDDLES_FEW: usize = 8;
/// Hashes of a key's words that are compared in a step.
const HASHES_PER_STEP: u64 = 16;
/// Chains of a few words that are compared in a step, one after the other in the same key.
const CHAINS_PER_STEP: u64 = 8;
/// What it takes to look at a node: its parts are wherever in memory.
const NODE_STEPS: u64 = 2;
/// Above this many places `Walk::seen` is given back, because emptying it would cost each later walk as much.
const SEEN_KEPT_MAX: usize = 1024;

/// Something that is still to be looked at. Numbers are places between the words of the key.
#[derive(Clone, Copy, Debug)]
enum Todo<'n> {
    /// A node that is reached by so many words.
    Reached(&'n Arc<Node>, u32),
    /// What is between a `#` and the next one, from this word on.
    Scan(&'n Arc<Node>, u32),
    /// The same, one way of few.
    Middle(&'n Edge, u32),
    /// A node of what follows the last `#`, reached by the words from the first number on; words before the second one are others'.
    Suffix(&'n Arc<Node>, u32, u32),
    /// The targets of a node, from this binding on.
    Targets(&'n Arc<Node>, u64),
}

/// The same of a walk that is left.
#[derive(Debug)]
enum Left {
    Reached(Arc<Node>, u32),
    Scan(Arc<Node>, u32),
    Middle(Edge, u32),
    Suffix(Arc<Node>, u32, u32),
    Targets(Arc<Node>, u64),
}

impl Todo<'_> {
    fn leave(&self) -> Left {
        match *self {
            Todo::Reached(node, at) => Left::Reached(node.clone(), at),
            Todo::Scan(node, at) => Left::Scan(node.clone(), at),
            Todo::Middle(edge, at) => Left::Middle(edge.clone(), at),
            Todo::Suffix(node, at, from) => Left::Suffix(node.clone(), at, from),
            Todo::Targets(node, from) => Left::Targets(node.clone(), from),
        }
    }
}

impl Left {
    fn todo(&self) -> Todo<'_> {
        match self {
            Left::Reached(node, at) => Todo::Reached(node, *at),
            Left::Scan(node, at) => Todo::Scan(node, *at),
            Left::Middle(edge, at) => Todo::Middle(edge, *at),
            Left::Suffix(node, at, from) => Todo::Suffix(node, *at, *from),
            Left::Targets(node, from) => Todo::Targets(node, *from),
        }
    }
}

/// A walk that used up its steps. It goes on with the same key, as long as the snapshot of which its nodes are is held.
#[derive(Debug)]
pub(crate) struct PausedWalk {
    todo: Vec<Left>,
    seen: Set<usize>,
}

/// What a walk needs; kept between walks so that none allocates.
#[derive(Default, Debug)]
pub(crate) struct Walk {
    todo: Vec<Todo<'static>>,
    starts: Vec<u32>,
    hashes: Vec<u64>,
    /// Addresses of the `#` nodes below a `#` that are reached.
    seen: Set<usize>,
    /// Steps of all walks so far.
    pub(crate) steps: u64,
}

/// The same vector, empty, for references of another life. It keeps its memory: nothing is allocated.
pub(crate) fn recycle<A, B>(mut vec: Vec<A>) -> Vec<B> {
    vec.clear();
    vec.into_iter().filter_map(|_| None).collect()
}

struct Active<'n, 'e> {
    words: Words<'e>,
    todo: Vec<Todo<'n>>,
    seen: &'e mut Set<usize>,
    emit: &'e mut dyn FnMut(&Target),
    left: u64,
}

impl<'n> Active<'n, '_> {
    fn charge(&mut self, steps: u64) {
        self.left = self.left.saturating_sub(steps);
    }

    /// Goes on until nothing is left to be looked at, or no step.
    fn run(&mut self) {
        while self.left > 0 {
            let Some(todo) = self.todo.pop() else { return };
            match todo {
                Todo::Reached(node, at) => self.reached(node, at),
                Todo::Scan(node, at) => self.scan(node, at),
                Todo::Middle(edge, at) => self.middle(edge, at),
                Todo::Suffix(node, at, from) => self.suffix(node, at, from),
                Todo::Targets(node, from) => self.targets(node, from),
            }
        }
    }

    fn targets(&mut self, node: &'n Arc<Node>, from: u64) {
        if let Some(from) = node.targets.emit(from, &mut self.left, self.emit) {
            self.todo.push(Todo::Targets(node, from));
        }
    }

    /// An edge from a node that was reached by `at` words, whose first word or star is the next word.
    fn forward(&mut self, edge: &'n Edge, at: u32) {
        if edge.words == 1 || self.matches(edge, at) {
            self.todo.push(Todo::Reached(&edge.node, at + edge.words));
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

    /// A `#` stands for any of the words from `at` on.
    fn reached_hash(&mut self, hash: &'n Arc<Node>, at: u32) {
        // The first time is by the fewest words: all that comes later is part of that.
        if hash.below_hash && !self.seen.insert(Arc::as_ptr(hash).addr()) {
            return;
        }
        self.charge(1);
        if let Some(suffixes) = &hash.suffixes {
            self.todo.push(Todo::Suffix(suffixes, self.words.len(), at));
        }
        if at < self.words.len() && !hash.words.is_empty() {
            if hash.words.len() <= MIDDLES_FEW {
                let todo = &mut self.todo;
                hash.words.for_each(&mut |_, edge| todo.push(Todo::Middle(edge, at)));
            } else {
                self.todo.push(Todo::Scan(hash, at));
            }
        }
        if !matches!(hash.targets, List::Empty) {
            self.targets(hash, 0);
        }
    }

    fn scan(&mut self, node: &'n Arc<Node>, mut at: u32) {
        while let Some((hash, word)) = self.words.word(at) {
            if self.left == 0 {
                return self.todo.push(Todo::Scan(node, at));
            }
            self.charge(1);
            let edge = node.words.find(hash, |w| (*w.0).cmp(word));
            at += 1;
            if let Some(edge) = edge {
                // What is found first is looked at first.
                self.todo.push(Todo::Scan(node, at));
                return self.forward(edge, at - 1);
            }
        }
    }

    /// Looks for the next place where a way to the next `#` begins.
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
        // Where nothing but a `#` follows, the first place is as good as all of them.
        if !edge.node.is_hash_only() {
            self.todo.push(Todo::Middle(edge, at + 1));
        }
        self.todo.push(Todo::Reached(&edge.node, at + edge.words));
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
            self.todo.push(Todo::Suffix(&edge.node, next, from));
        }
    }
}

impl Walk {
    /// Cuts a key into its words.
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
        todo: Vec<Todo<'n>>,
        steps: &mut u64,
        emit: &mut dyn FnMut(&Target),
    ) -> Option<Box<PausedWalk>> {
        self.cut(key);
        let words = Words { key, starts: &self.starts, hashes: &self.hashes };
        let mut active = Active { words, todo, seen: &mut self.seen, emit, left: *steps };
        active.run();
        let (mut todo, left) = (active.todo, active.left);
        self.steps += *steps - left;
        *steps = left;
        let paused = (!todo.is_empty()).then(|| {
            let left = todo.drain(..).map(|todo| todo.leave()).collect();
            Box::new(PausedWalk { todo: left, seen: std::mem::take(&mut self.seen) })
        });
        self.todo = recycle(todo);
        if self.seen.capacity() > SEEN_KEPT_MAX {
            self.seen = Set::default();
        }
        paused
    }
}

impl Topics {
    /// Calls `emit` with each target of each pattern that matches, as long as there are steps. What is left when there are none is
    /// returned.
    pub(crate) fn walk(
        &self,
        key: &[u8],
        walk: &mut Walk,
        steps: &mut u64,
        emit: &mut dyn FnMut(&Target),
    ) -> Option<Box<PausedWalk>> {
        walk.seen.clear();
        let mut todo = recycle(std::mem::take(&mut walk.todo));
        todo.push(Todo::Reached(&self.root, 0));
        walk.run(key, todo, steps, emit)
    }
}

impl PausedWalk {
    /// Goes on with a walk by the same key, once.
    pub(crate) fn resume(
        &mut self,
        key: &[u8],
        walk: &mut Walk,
        steps: &mut u64,
        emit: &mut dyn FnMut(&Target),
    ) -> Option<Box<PausedWalk>> {
        walk.seen = std::mem::take(&mut self.seen);
        let mut todo = recycle(std::mem::take(&mut walk.todo));
        todo.extend(self.todo.iter().map(Left::todo));
        walk.run(key, todo, steps, emit)
    }
}
