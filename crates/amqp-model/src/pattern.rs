//! Regular expressions of permissions and policies.
//!
//! RabbitMQ runs PCRE; definitions in the wild use its look-around (`^(?!amq\.).*`), so that a plain automaton does not do. A
//! pattern that backtracks more than [`BACKTRACK_STEPS_MAX`] steps on a name matches nothing: it costs its author, nobody else.

use bytestring::ByteString;
use fancy_regex::{Regex, RegexBuilder};

/// How far one match may backtrack.
pub const BACKTRACK_STEPS_MAX: usize = 50_000;
/// The longest pattern. Bytes.
pub const PATTERN_BYTES_MAX: usize = 4 << 10;
/// What a compiled pattern may take. Bytes.
const COMPILED_BYTES_MAX: usize = 1 << 20;

#[derive(Clone, Debug)]
enum Compiled {
    /// The empty pattern of a permission: only the empty name.
    Nothing,
    /// `.*` and `^.*$`: most of those there are.
    Everything,
    Regex(Box<Regex>),
    /// Of a topic permission: compiled once its variables are put in.
    Template,
}

/// A pattern and its text. Two are equal when their texts are.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: ByteString,
    compiled: Compiled,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl Pattern {
    /// A permission's pattern. The empty one matches the empty name only, so that it grants nothing.
    ///
    /// # Errors
    /// Why it is no pattern.
    pub fn permission(text: ByteString) -> Result<Pattern, String> {
        if text.is_empty() {
            return Ok(Pattern { text, compiled: Compiled::Nothing });
        }
        Pattern::policy(text)
    }

    /// A policy's pattern. The empty one matches every name.
    ///
    /// # Errors
    /// Why it is no pattern.
    pub fn policy(text: ByteString) -> Result<Pattern, String> {
        let compiled = match &*text {
            ".*" | "^.*" | "^.*$" | ".*$" | "" => Compiled::Everything,
            source => Compiled::Regex(Box::new(compile(source)?)),
        };
        Ok(Pattern { text, compiled })
    }

    /// A topic permission's pattern. It may hold variables: `{username}`, `{vhost}`, `{client_id}`.
    ///
    /// # Errors
    /// Why it is no pattern, whatever is put in.
    pub fn topic(text: ByteString) -> Result<Pattern, String> {
        let plain = without_variables(&text);
        if plain == *text {
            return Pattern::permission(text);
        }
        compile(&plain)?;
        Ok(Pattern { text, compiled: Compiled::Template })
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &ByteString {
        &self.text
    }

    /// Whether some part of the name matches. A pattern with variables matches nothing before they are put in.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        match &self.compiled {
            Compiled::Template => false,
            Compiled::Nothing => name.is_empty(),
            Compiled::Everything => true,
            Compiled::Regex(regex) => regex.is_match(name).unwrap_or(false),
        }
    }
}

fn compile(source: &str) -> Result<Regex, String> {
    if source.len() > PATTERN_BYTES_MAX {
        return Err(format!("the pattern is longer than {PATTERN_BYTES_MAX} bytes"));
    }
    let built = RegexBuilder::new(source)
        .backtrack_limit(BACKTRACK_STEPS_MAX)
        .delegate_size_limit(COMPILED_BYTES_MAX)
        .delegate_dfa_size_limit(COMPILED_BYTES_MAX)
        .build();
    built.map_err(|e| format!("'{source}' is not a regular expression: {e}"))
}

/// The pattern with each `{variable}` replaced by a letter.
fn without_variables(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        match after.split_once('}') {
            Some((name, after)) if is_variable(name) => {
                out.push('v');
                rest = after;
            }
            _ => {
                out.push('{');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')
}

/// Whether a topic permission's pattern matches a routing key, after its variables were put in. It is compiled each time:
/// what is put in differs from connection to connection. The values stand in the pattern as they are, as with RabbitMQ.
pub(crate) fn matches_expanded(pattern: &Pattern, variables: &[(&str, &str)], key: &str) -> bool {
    if !matches!(pattern.compiled, Compiled::Template) {
        return pattern.matches(key);
    }
    let mut text = pattern.text.to_string();
    for (name, value) in variables {
        text = text.replace(&format!("{{{name}}}"), value);
    }
    compile(&text).is_ok_and(|regex| regex.is_match(key).unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permission(text: &'static str) -> Pattern {
        Pattern::permission(text.into()).unwrap()
    }

    #[test]
    fn patterns_match_as_pcre_does() {
        for (pattern, name, matches) in [
            ("", "", true),
            ("", "q", false),
            (".*", "q", true),
            ("^.*$", "", true),
            ("a", "bab", true),
            ("^a$", "bab", false),
            (r"^(?!amq\.).*", "amq.topic", false),
            (r"^(?!amq\.).*", "orders", true),
            ("^(amq\\.gen.*|amq\\.default)$", "amq.default", true),
            ("^ü.$", "üx", true),
        ] {
            assert_eq!(permission(pattern).matches(name), matches, "{pattern} and {name}");
        }
        assert!(Pattern::policy("".into()).unwrap().matches("anything"));
        assert!(Pattern::permission("(".into()).unwrap_err().contains("'('"));
        assert!(Pattern::permission("a".repeat(PATTERN_BYTES_MAX + 1).into()).is_err());
    }

    #[test]
    fn a_pattern_that_explodes_matches_nothing() {
        let evil = permission("^(a+)+(?=b)b$");
        assert!(!evil.matches(&"a".repeat(200)));
    }

    #[test]
    fn variables_are_put_in() {
        let topic = |text: &'static str| Pattern::topic(text.into()).unwrap();
        let pattern = topic("^{username}\\..*");
        assert!(matches_expanded(&pattern, &[("username", "ann"), ("vhost", "/")], "ann.x"));
        assert!(!matches_expanded(&pattern, &[("username", "ann")], "bob.x"));
        assert!(!matches_expanded(&pattern, &[("username", "(")], "(.x"), "not a pattern any more");
        assert!(matches_expanded(&topic("^{unknown}$"), &[("username", "ann")], "{unknown}"), "as PCRE reads it");
        assert!(matches_expanded(&topic("a{2}"), &[("username", "x")], "aa"));
        assert!(Pattern::topic("({username}".into()).is_err());
    }
}
