//! Topic patterns: a trie over words, walked once for a routing key.
//!
//! A pattern is a sequence of words between dots; `*` matches exactly one word, `#` any number of words, including none. The empty key has no words
//! at all; `a.` has two, the second one empty.
//!
//! ```text
//!   orders.*.created   orders.#   #.eu.#   #.de.berlin   #.fr.berlin
//!
//!   (root) -orders-> ( ) -*.created-> (q1)
//!      |               `-#-> (q2)
//!      `-#-> ( ) -eu-> ( ) -#-> (q3)
//!             :
//!             `....berlin..> ( ) ..de..> (q4)          from the end of the key
//!                             `..fr..> (q5)
//! ```
//!
//! **Chains.** Words and stars on an unbranched path are one edge of the trie, compared as a whole ([`Chain`]): a pattern that shares nothing with
//! others costs one comparison, regardless of its length.
//!
//! **Suffixes.** The part of a pattern after its last `#` matches at the end of the key. It is stored in a second trie below the `#` node, from the
//! last word to the first, and walked once from the key's end. The part between two `#` may match at any word. If a `#` node has few edges before the
//! next `#`, each of them searches its first word in the key, otherwise each word of the key is looked up; once such an edge leads only to the next
//! `#`, its first position is sufficient.
//!
//! Each node is visited at most once per word, for any patterns: `#.#.#.a` cannot make the walk branch. Only a `#` below another `#` can be reached
//! twice, the first time after the fewest words, and is processed once.
//!
//! Patterns are normalised first: a run of wildcards with a `#` in it (`#.*.#`) becomes its stars and one `#`. So the part after a `#` begins with a
//! word. The structure of the trie depends on its patterns only, not on their history.

mod chain;
mod walk;

pub(crate) use walk::{PausedWalk, Walk, recycle};

use crate::hamt::{Hamt, Key, hash_bytes};
use crate::list::List;
use crate::target::Target;
use chain::{Chain, Direction};
use std::sync::Arc;

/// A word of a pattern, compared by its bytes.
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

/// An edge to the next node: at least one word or star.
#[derive(Clone, Debug)]
struct Edge {
    /// The number of words and stars: for a single one, the lookup is the comparison.
    words: u32,
    chain: Arc<Chain>,
    node: Arc<Node>,
}

impl Edge {
    fn new(tokens: &[Token<'_>], direction: Direction, node: Arc<Node>) -> Edge {
        Edge { words: tokens.len() as u32, chain: Arc::new(Chain::new(tokens, direction)), node }
    }
}

#[derive(Clone, Default, Debug)]
struct Node {
    /// Edges by their first word.
    words: Hamt<Word, Edge>,
    /// The edge that begins with a star.
    star: Option<Edge>,
    hash: Option<Arc<Node>>,
    /// For a `#` node: the suffixes after the last `#` of patterns, from the end of the key.
    suffixes: Option<Arc<Node>>,
    /// Targets of patterns that end here.
    targets: List<Target>,
    /// There is a `#` above it, apart from itself.
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
    // Splitting an empty key gives one empty word; the empty key has none.
    key.split(|byte| *byte == b'.').take(if key.is_empty() { 0 } else { usize::MAX })
}

/// Normalises a pattern.
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

/// The number of tokens before the next `#`.
fn run_len(tokens: &[Token<'_>]) -> usize {
    tokens.iter().take_while(|token| **token != Token::Hash).count()
}

/// The position of an edge in the trie.
#[derive(Clone, Copy)]
struct Place {
    direction: Direction,
    /// There is a `#` above.
    below_hash: bool,
}

impl Node {
    fn is_empty(&self) -> bool {
        self.targets.is_empty() && !self.has_edges() && self.hash.is_none() && self.suffixes.is_none()
    }

    fn has_edges(&self) -> bool {
        self.star.is_some() || !self.words.is_empty()
    }

    /// Whether its only continuation is a `#`.
    fn is_hash_only(&self) -> bool {
        self.targets.is_empty() && !self.has_edges() && self.hash.is_some()
    }

    /// The only edge of a node that has nothing else, so that two edges can be joined.
    fn passes_to(&self) -> Option<&Edge> {
        if !self.targets.is_empty() || self.hash.is_some() || self.suffixes.is_some() {
            return None;
        }
        match (&self.star, self.words.only()) {
            (Some(edge), None) if self.words.is_empty() => Some(edge),
            (None, Some((_, edge))) => Some(edge),
            _ => None,
        }
    }

    fn add_edge(&mut self, first: Token<'_>, edge: Edge) {
        match first {
            Token::Word(word) => _ = self.words.insert(Word(Arc::from(word)), edge),
            _ => self.star = Some(edge),
        }
    }

    fn insert(&mut self, tokens: &[Token<'_>], target: Target, place: Place) {
        match tokens.first().copied() {
            None => self.targets.insert(target),
            Some(Token::Hash) => {
                let node = Arc::make_mut(self.hash.get_or_insert_default());
                node.below_hash = place.below_hash;
                node.insert_suffix(tokens.get(1..).unwrap_or_default(), target);
            }
            Some(first) => {
                let edge = match first {
                    Token::Word(word) => self.words.get_mut(&Word(Arc::from(word))),
                    _ => self.star.as_mut(),
                };
                if let Some(edge) = edge {
                    return edge.insert(tokens, target, place);
                }
                let (run, rest) = tokens.split_at(run_len(tokens));
                let mut node = Node::default();
                node.insert(rest, target, place);
                self.add_edge(first, Edge::new(run, place.direction, Arc::new(node)));
            }
        }
    }

    /// Inserts the part of a pattern after a `#` at this node.
    fn insert_suffix(&mut self, rest: &[Token<'_>], target: Target) {
        if rest.is_empty() {
            self.targets.insert(target);
        } else if run_len(rest) < rest.len() {
            self.insert(rest, target, Place { direction: Direction::Forward, below_hash: true });
        } else {
            let reversed: Vec<_> = rest.iter().rev().copied().collect();
            let suffixes = Arc::make_mut(self.suffixes.get_or_insert_default());
            suffixes.insert(&reversed, target, Place { direction: Direction::Backward, below_hash: true });
        }
    }

    fn remove(&mut self, tokens: &[Token<'_>], order: u64, direction: Direction) {
        match tokens.first().copied() {
            None => _ = self.targets.remove(order),
            Some(Token::Hash) => {
                let Some(node) = &mut self.hash else { return };
                let node = Arc::make_mut(node);
                node.remove_suffix(tokens.get(1..).unwrap_or_default(), order);
                if node.is_empty() {
                    self.hash = None;
                }
            }
            Some(Token::Word(word)) => {
                let word = Word(Arc::from(word));
                if self.words.get_mut(&word).is_some_and(|edge| edge.remove(tokens, order, direction)) {
                    self.words.remove(&word);
                }
            }
            Some(Token::Star) => {
                if self.star.as_mut().is_some_and(|edge| edge.remove(tokens, order, direction)) {
                    self.star = None;
                }
            }
        }
    }

    fn remove_suffix(&mut self, rest: &[Token<'_>], order: u64) {
        if rest.is_empty() {
            self.targets.remove(order);
        } else if run_len(rest) < rest.len() {
            self.remove(rest, order, Direction::Forward);
        } else if let Some(suffixes) = &mut self.suffixes {
            let reversed: Vec<_> = rest.iter().rev().copied().collect();
            let node = Arc::make_mut(suffixes);
            node.remove(&reversed, order, Direction::Backward);
            if node.is_empty() {
                self.suffixes = None;
            }
        }
    }
}

impl Edge {
    /// Adds a target under tokens that start like this edge.
    fn insert(&mut self, tokens: &[Token<'_>], target: Target, place: Place) {
        let chain = self.chain.clone();
        let own = chain.tokens(place.direction);
        let shared = own.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        if let (above, [first, ..]) = own.split_at(shared) {
            // The tokens differ within the edge.
            let below = own.get(shared..).unwrap_or_default();
            let below = Edge::new(below, place.direction, self.node.clone());
            let mut node = Node::default();
            node.add_edge(*first, below);
            *self = Edge::new(above, place.direction, Arc::new(node));
        }
        Arc::make_mut(&mut self.node).insert(tokens.get(shared..).unwrap_or_default(), target, place);
    }

    /// Removes a target. Returns whether the edge is now empty.
    fn remove(&mut self, tokens: &[Token<'_>], order: u64, direction: Direction) -> bool {
        let own = self.words as usize;
        let begins = self.chain.tokens(direction).iter().zip(tokens).take_while(|(a, b)| a == b).count();
        if begins < own {
            return false;
        }
        let node = Arc::make_mut(&mut self.node);
        node.remove(tokens.get(own..).unwrap_or_default(), order, direction);
        if let Some(next) = node.passes_to() {
            let mut all = self.chain.tokens(direction);
            all.extend(next.chain.tokens(direction));
            *self = Edge::new(&all, direction, next.node.clone());
        }
        self.node.is_empty()
    }
}

/// The patterns of one exchange.
#[derive(Clone, Default, Debug)]
pub(crate) struct Topics {
    root: Arc<Node>,
}

impl Topics {
    /// Adds a target under a pattern.
    pub(crate) fn insert(&mut self, pattern: &[u8], target: Target) {
        let place = Place { direction: Direction::Forward, below_hash: false };
        Arc::make_mut(&mut self.root).insert(&tokens(pattern), target, place);
    }

    /// Removes the target of a binding under its pattern.
    pub(crate) fn remove(&mut self, pattern: &[u8], order: u64) {
        Arc::make_mut(&mut self.root).remove(&tokens(pattern), order, Direction::Forward);
    }

    /// Whether there is no pattern and no node left.
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
        let left = topics.walk(key, walk, &mut u64::MAX.clone(), &mut |target| found.push(target.binding.0));
        assert!(left.is_none(), "steps do not end");
        found.sort_unstable();
        found
    }

    /// The same in pieces of this many steps, each exceeding them by at most one unit.
    fn walk_in_pieces(topics: &Topics, key: &[u8], piece: u64) -> Vec<u64> {
        let (mut walk, mut found) = (Walk::default(), Vec::new());
        let mut emit = |target: &Target| found.push(target.binding.0);
        let mut left = topics.walk(key, &mut walk, &mut piece.clone(), &mut emit);
        while let Some(mut paused) = left {
            left = paused.resume(key, &mut walk, &mut piece.clone(), &mut emit);
        }
        found.sort_unstable();
        found
    }

    /// A direct implementation of the specification.
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
        fn a_walk_finds_the_same_as_matching_each_pattern(
            patterns in prop::collection::vec(text(&["a", "b", "", "*", "*", "#", "#"], 6), 1..40),
            gone in prop::collection::vec(any::<bool>(), 40),
            keys in prop::collection::vec(text(&["a", "b", "c", "", "#", "*"], 7), 1..10),
            piece in 1..20u64,
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
                prop_assert_eq!(walk_in_pieces(&topics, key.as_bytes(), piece), matching(false), "key {:?}", key);
            }
            let mut fresh = Topics::default();
            for (i, pattern) in patterns.iter().enumerate().rev().filter(|(i, _)| !gone[*i]) {
                fresh.insert(pattern.as_bytes(), target(i as u64));
            }
            // The structure of the trie depends on its patterns, not on their history.
            prop_assert_eq!(format!("{:?}", topics), format!("{:?}", fresh));
            for (i, pattern) in patterns.iter().enumerate() {
                topics.remove(pattern.as_bytes(), i as u64);
            }
            prop_assert!(topics.is_empty(), "nodes are left over");
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

    /// Keys of 255 bytes with as many dots as fit, against patterns that make a backtracking matcher branch exponentially.
    #[test]
    fn hostile_patterns_and_keys_cost_one_step_per_node_and_word() {
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
