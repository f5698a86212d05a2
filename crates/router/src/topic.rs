//! Topic patterns: a trie over words, walked once for a routing key.
//!
//! A pattern is words between dots; `*` stands for exactly one word, `#` for any number of words, none included. The empty key
//! has no words at all; `a.` has two, the second one empty.
//!
//! ```text
//!   orders.*.created   orders.#   #.eu.#
//!
//!   (root) -orders-> ( ) -*-> ( ) -created-> (q1)
//!      |               `-#-> (q2)
//!      `-#-> ( ) -eu-> ( ) -#-> (q3)
//! ```
//!
//! The key's words are taken one by one, with the set of all nodes that are reached by the words so far. A `#` node, once reached,
//! stays reached. So each node is looked at at most once a word, whatever the patterns: `#.#.#.a` cannot make the walk
//! branch. Only a `#` below another `#` can be reached twice, and is then counted once.
//!
//! Patterns are brought into one form first: a run of wildcards with a `#` in it (`#.*.#`) becomes its stars and one `#`.

use crate::hamt::{Hamt, Key, hash_bytes};
use crate::index::Target;
use crate::list::List;
use polylogue_types::Set;
use std::sync::Arc;

/// A word with its hash's input; compared by its bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Word(Arc<[u8]>);

fn word_hash(word: &[u8]) -> u64 {
    hash_bytes(0, word)
}

impl Key for Word {
    fn hash64(&self) -> u64 {
        word_hash(&self.0)
    }
}

#[derive(Clone, Default, Debug)]
struct Node {
    words: Hamt<Word, Arc<Node>>,
    star: Option<Arc<Node>>,
    hash: Option<Arc<Node>>,
    /// Where messages go whose key ends here.
    targets: List<Target>,
    /// There is a `#` above it, beside the one that it may be itself.
    below_hash: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Token<'a> {
    Word(&'a [u8]),
    Star,
    Hash,
}

/// The words of a key.
fn words(key: &[u8]) -> impl Iterator<Item = &[u8]> {
    // Splitting nothing gives one empty word; the empty key has none.
    key.split(|byte| *byte == b'.').take(if key.is_empty() { 0 } else { usize::MAX })
}

/// A pattern in its one form.
fn tokens(pattern: &[u8]) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut after_run = false;
    for word in words(pattern) {
        match word {
            b"*" => tokens.push(Token::Star),
            b"#" => after_run = true,
            word => {
                if std::mem::take(&mut after_run) {
                    tokens.push(Token::Hash);
                }
                tokens.push(Token::Word(word));
            }
        }
    }
    if after_run {
        tokens.push(Token::Hash);
    }
    tokens
}

impl Node {
    fn is_empty(&self) -> bool {
        self.targets.is_empty() && !self.has_children() && self.hash.is_none()
    }

    fn has_children(&self) -> bool {
        self.star.is_some() || !self.words.is_empty()
    }

    fn insert(&mut self, tokens: &[Token<'_>], target: Target, below_hash: bool) {
        self.below_hash = below_hash;
        let Some((token, rest)) = tokens.split_first() else { return self.targets.insert(target) };
        match token {
            Token::Star => Arc::make_mut(self.star.get_or_insert_default()).insert(rest, target, below_hash),
            Token::Hash => Arc::make_mut(self.hash.get_or_insert_default()).insert_hash(rest, target, below_hash),
            Token::Word(word) => {
                let word = Word(Arc::from(*word));
                match self.words.get_mut(&word) {
                    Some(node) => Arc::make_mut(node).insert(rest, target, below_hash),
                    None => {
                        let mut node = Node::default();
                        node.insert(rest, target, below_hash);
                        self.words.insert(word, Arc::new(node));
                    }
                }
            }
        }
    }

    /// As [`Node::insert`] on a `#` node: what is below it has a `#` above.
    fn insert_hash(&mut self, tokens: &[Token<'_>], target: Target, below_hash: bool) {
        self.insert(tokens, target, true);
        self.below_hash = below_hash;
    }

    fn remove(&mut self, tokens: &[Token<'_>], order: u64) {
        let Some((token, rest)) = tokens.split_first() else {
            self.targets.remove(order);
            return;
        };
        match token {
            Token::Star => remove_below(&mut self.star, rest, order),
            Token::Hash => remove_below(&mut self.hash, rest, order),
            Token::Word(word) => {
                let word = Word(Arc::from(*word));
                let Some(node) = self.words.get_mut(&word) else { return };
                Arc::make_mut(node).remove(rest, order);
                if node.is_empty() {
                    self.words.remove(&word);
                }
            }
        }
    }
}

fn remove_below(child: &mut Option<Arc<Node>>, rest: &[Token<'_>], order: u64) {
    let Some(node) = child else { return };
    Arc::make_mut(node).remove(rest, order);
    if node.is_empty() {
        *child = None;
    }
}

/// The patterns of one exchange.
#[derive(Clone, Default, Debug)]
pub(crate) struct Topics {
    root: Arc<Node>,
}

/// What a walk needs; kept between walks so that none allocates.
#[derive(Default, Debug)]
pub(crate) struct Walk {
    reached: Vec<&'static Node>,
    next: Vec<&'static Node>,
    hashes: Vec<&'static Node>,
    /// Addresses of the `#` nodes below a `#` that are reached.
    seen: Set<usize>,
    /// Nodes looked at in all walks so far.
    pub(crate) steps: u64,
}

/// Above this many places `Walk::seen` is given back, because emptying it would cost each later walk as much.
const SEEN_KEPT_MAX: usize = 1024;

/// The same vector, empty, for references of another life. It keeps its memory: nothing is allocated.
pub(crate) fn recycle<A, B>(mut vec: Vec<A>) -> Vec<B> {
    vec.clear();
    vec.into_iter().filter_map(|_| None).collect()
}

struct Active<'n, 'e> {
    reached: Vec<&'n Node>,
    next: Vec<&'n Node>,
    hashes: Vec<&'n Node>,
    seen: &'e mut Set<usize>,
    emit: &'e mut dyn FnMut(&Target),
    steps: u64,
}

impl<'n> Active<'n, '_> {
    /// The children of `node` by a word become reached next.
    fn step(&mut self, node: &'n Node, hash: u64, word: &[u8]) {
        self.steps += 1;
        self.next.extend(node.words.find(hash, |w| (*w.0).cmp(word)).map(|node| &**node));
        self.next.extend(node.star.as_deref());
    }

    /// What is reached from the reached nodes by a `#` that stands for no word.
    fn close(&mut self) {
        for node in &self.reached {
            let Some(hash) = node.hash.as_deref() else { continue };
            if hash.below_hash && !self.seen.insert(std::ptr::from_ref(hash).addr()) {
                continue;
            }
            self.steps += 1;
            // It stands for all words that are left as well.
            hash.targets.iter().for_each(&mut *self.emit);
            if hash.has_children() {
                self.hashes.push(hash);
            }
        }
    }
}

impl Topics {
    /// Adds a target under a pattern.
    pub(crate) fn insert(&mut self, pattern: &[u8], target: Target) {
        Arc::make_mut(&mut self.root).insert(&tokens(pattern), target, false);
    }

    /// Removes the target of a binding under its pattern.
    pub(crate) fn remove(&mut self, pattern: &[u8], order: u64) {
        Arc::make_mut(&mut self.root).remove(&tokens(pattern), order);
    }

    /// Calls `emit` with each target of each pattern that matches.
    pub(crate) fn walk(&self, key: &[u8], walk: &mut Walk, emit: &mut dyn FnMut(&Target)) {
        walk.seen.clear();
        let mut active = Active {
            reached: recycle(std::mem::take(&mut walk.reached)),
            next: recycle(std::mem::take(&mut walk.next)),
            hashes: recycle(std::mem::take(&mut walk.hashes)),
            seen: &mut walk.seen,
            emit,
            steps: 0,
        };
        active.reached.push(&self.root);
        active.close();
        for word in words(key) {
            if active.reached.is_empty() && active.hashes.is_empty() {
                break;
            }
            let hash = word_hash(word);
            active.next.clear();
            for at in 0..active.reached.len() {
                active.step(active.reached[at], hash, word);
            }
            for at in 0..active.hashes.len() {
                active.step(active.hashes[at], hash, word);
            }
            std::mem::swap(&mut active.reached, &mut active.next);
            active.close();
        }
        for node in &active.reached {
            node.targets.iter().for_each(&mut *active.emit);
        }
        let Active { reached, next, hashes, steps, .. } = active;
        (walk.reached, walk.next, walk.hashes) = (recycle(reached), recycle(next), recycle(hashes));
        walk.steps += steps;
        if walk.seen.capacity() > SEEN_KEPT_MAX {
            walk.seen = Set::default();
        }
    }

    /// Whether no pattern is left, and no node of one.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.root.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{BindingId, Destination, QueueId};
    use proptest::prelude::*;

    fn target(number: u64) -> Target {
        Target { binding: BindingId(number), to: Destination::Queue(QueueId(number)) }
    }

    fn walk(topics: &Topics, key: &[u8], walk: &mut Walk) -> Vec<u64> {
        let mut found = Vec::new();
        topics.walk(key, walk, &mut |target| found.push(target.binding.0));
        found.sort_unstable();
        found
    }

    /// As the specification says it, with nothing clever.
    fn naive(pattern: &[&[u8]], key: &[&[u8]]) -> bool {
        match (pattern.split_first(), key.split_first()) {
            (None, None) => true,
            (None, Some(_)) => false,
            (Some((&b"#", rest)), _) => (0..=key.len()).any(|skip| naive(rest, &key[skip..])),
            (Some((&b"*", rest)), Some((_, left))) => naive(rest, left),
            (Some((word, rest)), Some((first, left))) => word == first && naive(rest, left),
            (Some(_), None) => false,
        }
    }

    fn split(text: &[u8]) -> Vec<&[u8]> {
        if text.is_empty() { Vec::new() } else { text.split(|b| *b == b'.').collect() }
    }

    fn text(words: &'static [&'static str], most: usize) -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(words), 0..most).prop_map(|words| words.join("."))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn a_walk_finds_what_each_pattern_alone_matches(
            patterns in prop::collection::vec(text(&["a", "b", "", "*", "*", "#", "#"], 6), 1..40),
            gone in prop::collection::vec(any::<bool>(), 40),
            keys in prop::collection::vec(text(&["a", "b", "c", "", "#", "*"], 7), 1..10),
        ) {
            let mut topics = Topics::default();
            for (i, pattern) in patterns.iter().enumerate() {
                topics.insert(pattern.as_bytes(), target(i as u64));
            }
            let before = topics.clone();
            for (i, pattern) in patterns.iter().enumerate().filter(|(i, _)| gone[*i]) {
                topics.remove(pattern.as_bytes(), i as u64);
            }
            let mut scratch = Walk::default();
            for key in &keys {
                let matching = |all: bool| {
                    let matches = |(_, p): &(usize, &String)| naive(&split(p.as_bytes()), &split(key.as_bytes()));
                    let there = |(i, _): &(usize, &String)| all || !gone[*i];
                    patterns.iter().enumerate().filter(there).filter(matches).map(|(i, _)| i as u64).collect::<Vec<_>>()
                };
                prop_assert_eq!(walk(&topics, key.as_bytes(), &mut scratch), matching(false), "key {:?}", key);
                prop_assert_eq!(walk(&before, key.as_bytes(), &mut scratch), matching(true), "key {:?}", key);
            }
            for (i, pattern) in patterns.iter().enumerate() {
                topics.remove(pattern.as_bytes(), i as u64);
            }
            prop_assert!(topics.is_empty(), "nodes stay behind");
        }
    }

    #[test]
    fn empty_words_count_and_the_empty_key_has_none() {
        let mut topics = Topics::default();
        for (i, pattern) in ["", "#", "*", ".", "*.*", "a.", ".a", "a.#"].iter().enumerate() {
            topics.insert(pattern.as_bytes(), target(i as u64));
        }
        let mut scratch = Walk::default();
        assert_eq!(walk(&topics, b"", &mut scratch), [0, 1]);
        assert_eq!(walk(&topics, b".", &mut scratch), [1, 3, 4]);
        assert_eq!(walk(&topics, b"a", &mut scratch), [1, 2, 7]);
        assert_eq!(walk(&topics, b"a.", &mut scratch), [1, 4, 5, 7]);
        assert_eq!(walk(&topics, b".a", &mut scratch), [1, 4, 6]);
    }

    /// Keys of 255 bytes with as many dots as fit, against patterns that make a matcher that tries all ways branch without end.
    #[test]
    fn hostile_patterns_and_keys_cost_a_step_a_node_and_word() {
        let mut topics = Topics::default();
        let mut patterns: Vec<String> = vec!["#.".repeat(127) + "#", "#.a.".repeat(63) + "b", "*.#.".repeat(63) + "a"];
        patterns.extend((1..64).map(|n| "#.a.".repeat(n) + "#"));
        patterns.extend((1..64).map(|n| "#.*.a.".repeat(n.min(42)) + "#.b"));
        patterns.push(".".repeat(255));
        patterns.push("*".to_owned() + &".*".repeat(127));
        let mut nodes = 0;
        for (i, pattern) in patterns.iter().enumerate() {
            assert!(pattern.len() <= 256, "{}", pattern.len());
            nodes += tokens(pattern.as_bytes()).len() as u64;
            topics.insert(pattern.as_bytes(), target(i as u64));
        }
        let mut scratch = Walk::default();
        let all_a = "a.".repeat(127) + "a";
        assert_eq!((all_a.len(), all_a.matches('.').count()), (255, 127));
        for key in [all_a.as_str(), &".".repeat(255), &"a.b.".repeat(63), &"x".repeat(255)] {
            let before = scratch.steps;
            walk(&topics, key.as_bytes(), &mut scratch);
            let words = key.matches('.').count() as u64 + 1;
            assert!(scratch.steps - before <= nodes * (words + 1), "{} steps", scratch.steps - before);
        }
        assert_eq!(walk(&topics, ".".repeat(255).as_bytes(), &mut scratch).len(), 2, "`#` alone and the dots");
        assert_eq!(walk(&topics, all_a.as_bytes(), &mut scratch).len(), 2 + 63 + 1);
    }
}
