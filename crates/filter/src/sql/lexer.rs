//! The tokens of a selector.
//!
//! Spaces are ` `, `\t`, `\n`, `\r` and `\f`. A comment is `/* … */`, or `--` up to the end of its line: without a line end it is two minus signs.
//! Each token is the longest possible one, so `007` is the three numbers 0, 0 and 7, and `1e` is the number 1 and the name `e`.

use crate::error::{FilterError, FilterErrorKind};
use std::ops::Range;

/// A reserved word. Upper and lower case are not distinguished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Word {
    Not,
    And,
    Or,
    Between,
    In,
    True,
    False,
    Null,
    Is,
    Contains,
    StartsWith,
    EndsWith,
}

const WORDS: &[(&str, Word)] = &[
    ("NOT", Word::Not),
    ("AND", Word::And),
    ("OR", Word::Or),
    ("BETWEEN", Word::Between),
    ("IN", Word::In),
    ("TRUE", Word::True),
    ("FALSE", Word::False),
    ("NULL", Word::Null),
    ("IS", Word::Is),
    ("CONTAINS", Word::Contains),
    ("STARTSWITH", Word::StartsWith),
    ("ENDSWITH", Word::EndsWith),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    End,
    Word(Word),
    /// A property. Case-sensitive.
    Name,
    /// A text between single quotes, in which two stand for one.
    Text,
    /// Digits, and an `l` that is ignored.
    Integer,
    Float,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Open,
    Close,
    Comma,
    Plus,
    Minus,
}

/// A token and its place, in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) at: Range<usize>,
}

/// Reads one token after the other.
#[derive(Debug)]
pub(super) struct Lexer<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t str) -> Lexer<'t> {
        Lexer { text, at: 0 }
    }

    /// Reads the next token.
    ///
    /// # Errors
    /// If no token starts with the next character.
    pub(super) fn next(&mut self) -> Result<Token, FilterError> {
        let bytes = self.text.as_bytes();
        while let Some(len) = skipped(&bytes[self.at..]) {
            self.at += len;
        }
        let start = self.at;
        let (kind, len) = token(&bytes[start..]).ok_or_else(|| self.unknown(start))?;
        self.at += len;
        Ok(Token { kind, at: start..self.at })
    }

    fn unknown(&self, at: usize) -> FilterError {
        let syntax = |text: String| FilterError::at(FilterErrorKind::Syntax, at, text);
        match self.text[at..].chars().next() {
            Some('\'') => syntax("a text has no closing quote".to_owned()),
            Some('/') => syntax("neither a comment that is closed by */ nor a token".to_owned()),
            character => syntax(format!("unexpected character {:?}", character.unwrap_or_default())),
        }
    }
}

/// The length of a space or comment at the start.
fn skipped(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [b' ' | b'\t' | b'\n' | b'\r' | 0x0c, ..] => Some(1),
        [b'-', b'-', rest @ ..] => Some(3 + rest.iter().position(|b| matches!(b, b'\n' | b'\r'))?),
        [b'/', b'*', rest @ ..] => Some(4 + rest.windows(2).position(|end| end == b"*/")?),
        _ => None,
    }
}

fn token(bytes: &[u8]) -> Option<(Kind, usize)> {
    let one = |kind| Some((kind, 1));
    match bytes {
        [] => Some((Kind::End, 0)),
        [b'<', b'>', ..] => Some((Kind::NotEqual, 2)),
        [b'<', b'=', ..] => Some((Kind::LessOrEqual, 2)),
        [b'>', b'=', ..] => Some((Kind::GreaterOrEqual, 2)),
        [b'<', ..] => one(Kind::Less),
        [b'>', ..] => one(Kind::Greater),
        [b'=', ..] => one(Kind::Equal),
        [b'(', ..] => one(Kind::Open),
        [b')', ..] => one(Kind::Close),
        [b',', ..] => one(Kind::Comma),
        [b'+', ..] => one(Kind::Plus),
        [b'-', ..] => one(Kind::Minus),
        [b'\'', rest @ ..] => Some((Kind::Text, 1 + quoted(rest)?)),
        [b'0'..=b'9' | b'.', ..] => number(bytes),
        [b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$', ..] => {
            let is_part = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$');
            let len = bytes.iter().take_while(|b| is_part(b)).count();
            let word = WORDS.iter().find(|(word, _)| word.as_bytes().eq_ignore_ascii_case(&bytes[..len]));
            Some((word.map_or(Kind::Name, |(_, word)| Kind::Word(*word)), len))
        }
        _ => None,
    }
}

/// The length of a text from behind its opening quote to behind its closing one.
fn quoted(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    let mut pair = None;
    loop {
        let Some(quote) = bytes[at..].iter().position(|b| *b == b'\'') else {
            // The last two quotes that could stand for one are the end of this text and the start of another one.
            return pair;
        };
        at += quote + 1;
        if bytes.get(at) != Some(&b'\'') {
            return Some(at);
        }
        pair = Some(at);
        at += 1;
    }
}

fn digits(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|b| b.is_ascii_digit()).count()
}

/// The length of an exponent; 0 without one.
fn exponent(bytes: &[u8]) -> usize {
    let sign = match bytes {
        [b'e' | b'E', b'+' | b'-', ..] => 1,
        [b'e' | b'E', ..] => 0,
        _ => return 0,
    };
    match digits(&bytes[1 + sign..]) {
        0 => 0,
        digits => 1 + sign + digits,
    }
}

fn number(bytes: &[u8]) -> Option<(Kind, usize)> {
    let whole = digits(bytes);
    if bytes.get(whole) == Some(&b'.') {
        let end = whole + 1 + digits(&bytes[whole + 1..]);
        // A dot alone is no number.
        return (end > 1).then(|| (Kind::Float, end + exponent(&bytes[end..])));
    }
    match exponent(&bytes[whole..]) {
        0 if bytes[0] == b'0' => Some((Kind::Integer, 1)),
        0 => Some((Kind::Integer, whole + usize::from(matches!(bytes.get(whole), Some(b'l' | b'L'))))),
        exponent => Some((Kind::Float, whole + exponent)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<(Kind, &str)> {
        let mut lexer = Lexer::new(text);
        let mut tokens = Vec::new();
        loop {
            let token = lexer.next().expect("tokens");
            if token.kind == Kind::End {
                return tokens;
            }
            tokens.push((token.kind, &text[token.at]));
        }
    }

    #[test]
    fn the_longest_token_is_taken() {
        let integers = |texts: [&'static str; 3]| texts.map(|text| (Kind::Integer, text)).to_vec();
        assert_eq!(tokens("007"), integers(["0", "0", "7"]));
        assert_eq!(tokens("1e"), [(Kind::Integer, "1"), (Kind::Name, "e")]);
        assert_eq!(tokens("12L"), [(Kind::Integer, "12L")]);
        assert_eq!(tokens("0L"), [(Kind::Integer, "0"), (Kind::Name, "L")]);
        for float in ["5.", "5.5", ".5", "5E10", "5.e-3", "007.5", ".5e+1", "00e0"] {
            assert_eq!(tokens(float), [(Kind::Float, float)]);
        }
        assert_eq!(tokens("<=>"), [(Kind::LessOrEqual, "<="), (Kind::Greater, ">")]);
        assert_eq!(tokens("'it''s'''"), [(Kind::Text, "'it''s'''")]);
        assert_eq!(
            tokens("nOt nota $a_1"),
            [(Kind::Word(Word::Not), "nOt"), (Kind::Name, "nota"), (Kind::Name, "$a_1")]
        );
    }

    #[test]
    fn comments_are_skipped() {
        assert_eq!(tokens("a/* b ***/c -- d\r\n\te"), [(Kind::Name, "a"), (Kind::Name, "c"), (Kind::Name, "e")]);
        assert_eq!(tokens("--a"), [(Kind::Minus, "-"), (Kind::Minus, "-"), (Kind::Name, "a")]);
        assert_eq!(tokens("/**/"), []);
    }

    #[test]
    fn what_is_no_token_is_refused_with_its_position() {
        for (text, at) in
            [("a !", 2), ("a 'b", 2), ("a /* b", 2), (".", 0), ("é", 0), ("\u{a0}", 0), ("\"", 0), ("/*/", 0)]
        {
            let mut lexer = Lexer::new(text);
            let error = loop {
                match lexer.next() {
                    Ok(token) => assert_ne!(token.kind, Kind::End, "{text}"),
                    Err(error) => break error,
                }
            };
            assert_eq!((error.kind, error.at), (FilterErrorKind::Syntax, Some(at)), "{text}");
        }
    }
}
