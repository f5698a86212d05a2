//! Runs of words and stars of patterns that are compared as a whole.

use super::{Token, word_hash};

/// The order of the tokens of a trie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    /// In reading order.
    Forward,
    /// From the last one to the first.
    Backward,
}

/// Consecutive words, or consecutive stars.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// How many.
    words: u32,
    /// Their range in the text; `None` for stars.
    text: Option<(u32, u32)>,
}

/// A sequence of words and stars: part of a pattern without `#`, in reading order.
#[derive(Debug)]
pub(super) struct Chain {
    text: Box<[u8]>,
    runs: Box<[Run]>,
    words: u32,
    /// The hash of the first word in reading order; 0 for a star.
    first: u64,
}

/// A routing key, split into words.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words<'k> {
    pub(super) key: &'k [u8],
    /// The start of each word, and where another one would start.
    pub(super) starts: &'k [u32],
    /// The hash of each word.
    pub(super) hashes: &'k [u64],
}

impl<'k> Words<'k> {
    /// How many there are.
    pub(super) fn len(&self) -> u32 {
        self.hashes.len() as u32
    }

    /// The text of `count` > 0 words from the word `at` on.
    fn text(&self, at: u32, count: u32) -> Option<&'k [u8]> {
        let from = *self.starts.get(at as usize)?;
        let end = *self.starts.get((at + count) as usize)?;
        self.key.get(from as usize..(end as usize).checked_sub(1)?)
    }

    /// A word with its hash.
    pub(super) fn word(&self, at: u32) -> Option<(u64, &'k [u8])> {
        Some((*self.hashes.get(at as usize)?, self.text(at, 1)?))
    }
}

impl Chain {
    /// Makes a chain of words and stars in the order of a trie.
    pub(super) fn new(tokens: &[Token<'_>], direction: Direction) -> Chain {
        let mut text: Vec<u8> = Vec::new();
        let mut runs: Vec<Run> = Vec::new();
        let mut add = |token: &Token<'_>| match (token, runs.last_mut()) {
            (Token::Word(word), Some(Run { words, text: Some((_, end)) })) => {
                text.push(b'.');
                text.extend_from_slice(word);
                (*words, *end) = (*words + 1, text.len() as u32);
            }
            (Token::Word(word), _) => {
                let from = text.len() as u32;
                text.extend_from_slice(word);
                runs.push(Run { words: 1, text: Some((from, text.len() as u32)) });
            }
            (_, Some(Run { words, text: None })) => *words += 1,
            _ => runs.push(Run { words: 1, text: None }),
        };
        match direction {
            Direction::Forward => tokens.iter().for_each(&mut add),
            Direction::Backward => tokens.iter().rev().for_each(&mut add),
        }
        let first = match direction {
            Direction::Forward => tokens.first(),
            Direction::Backward => tokens.last(),
        };
        let first = if let Some(Token::Word(word)) = first { word_hash(word) } else { 0 };
        Chain { text: text.into(), runs: runs.into(), words: tokens.len() as u32, first }
    }

    /// Its words and stars in the order of a trie.
    pub(super) fn tokens(&self, direction: Direction) -> Vec<Token<'_>> {
        let mut all = Vec::with_capacity(self.words as usize);
        for run in &self.runs {
            match run.text {
                Some((from, end)) => {
                    let text = self.text.get(from as usize..end as usize).unwrap_or_default();
                    all.extend(text.split(|byte| *byte == b'.').map(Token::Word));
                }
                None => all.extend((0..run.words).map(|_| Token::Star)),
            }
        }
        if direction == Direction::Backward {
            all.reverse();
        }
        all
    }

    /// The hash of its first word.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// The maximal cost of comparing it, apart from visiting it. Steps.
    pub(super) fn cost(&self) -> u64 {
        self.runs.len() as u64 / 8
    }

    /// Whether the words of a key from `at` on start with it.
    pub(super) fn matches(&self, words: &Words<'_>, mut at: u32) -> bool {
        if words.len() < at + self.words {
            return false;
        }
        for run in &self.runs {
            if let Some((from, end)) = run.text
                && words.text(at, run.words) != self.text.get(from as usize..end as usize)
            {
                return false;
            }
            at += run.words;
        }
        true
    }
}
