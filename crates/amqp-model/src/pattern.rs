//! Regular expressions of permissions and policies.
//!
//! RabbitMQ uses PCRE, and existing definitions use its look-around (`^(?!amq\.).*`), so a plain automaton is not enough. Three engines:
//!
//! | pattern | engine | time for a name |
//! | --- | --- | --- |
//! | without look-around, back references, word boundaries | automaton | linear |
//! | `^`, look-aheads, then such a pattern | one automaton a look-ahead, and one for the rest | linear |
//! | any other | backtracking, at most [`BACKTRACK_STEPS_MAX`] steps; beyond that there is no match | about 1.5 ms at most |
//!
//! Results of the third engine are cached by pattern and name ([`Backtracking`]), so that a change of policies runs it once per name, and on a thread
//! that blocks no client: see [`Pattern::is_slow`].

use bytestring::ByteString;
use fancy_regex::{Assertion, Expr, LookAround, Regex, RegexBuilder};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The most backtracking steps of one match.
pub const BACKTRACK_STEPS_MAX: usize = 50_000;
/// The longest pattern. Bytes.
pub const PATTERN_BYTES_MAX: usize = 4 << 10;
/// The most memory of a compiled pattern. Bytes.
const COMPILED_BYTES_MAX: usize = 1 << 20;
/// The most cached results of slow patterns, over all patterns. About 100 bytes each.
const CACHED_MAX: usize = 262_144;

/// The most expansions of variables that one pattern keeps compiled: one for each user and virtual host.
const EXPANDED_MAX: usize = 256;

/// The number of cached results.
static CACHED: AtomicUsize = AtomicUsize::new(0);
/// Slow patterns in use, so that the copy of a policy in a record shares the cache of the one that was checked before the proposal.
static SLOW: Mutex<BTreeMap<ByteString, Weak<Backtracking>>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Debug)]
enum Compiled {
    /// The empty pattern of a permission: matches only the empty name.
    Nothing,
    /// `.*` and `^.*$`, the most common patterns.
    Everything,
    Linear(Arc<Linear>),
    Backtracking(Arc<Backtracking>),
    /// A topic permission: compiled for each expansion of its variables, and cached by the expanded text.
    Template(Arc<Mutex<BTreeMap<String, Option<Compiled>>>>),
}

impl Compiled {
    fn matches(&self, name: &str) -> bool {
        match self {
            Compiled::Template(_) => false,
            Compiled::Nothing => name.is_empty(),
            Compiled::Everything => true,
            Compiled::Linear(linear) => linear.matches(name),
            Compiled::Backtracking(pattern) => pattern.matches(name),
        }
    }
}

/// A pattern that automata evaluate.
#[derive(Debug)]
struct Linear {
    /// Look-aheads at the start of the name, and whether each has to match.
    ahead: Vec<(Regex, bool)>,
    rest: Regex,
}

impl Linear {
    fn matches(&self, name: &str) -> bool {
        // An automaton has no step limit.
        let is_match = |regex: &Regex| regex.is_match(name).unwrap_or(false);
        self.ahead.iter().all(|(regex, wanted)| is_match(regex) == *wanted) && is_match(&self.rest)
    }
}

/// A pattern that backtracks, and its cached results.
#[derive(Debug)]
struct Backtracking {
    regex: Regex,
    found: Mutex<BTreeMap<Box<str>, bool>>,
    /// How often the engine ran.
    runs: AtomicUsize,
}

impl Backtracking {
    fn of(source: &str, regex: Regex) -> Arc<Backtracking> {
        let mut slow = SLOW.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = slow.get(source).and_then(Weak::upgrade) {
            return known;
        }
        slow.retain(|_, pattern| pattern.strong_count() > 0);
        let pattern = Arc::new(Backtracking { regex, found: Mutex::default(), runs: AtomicUsize::new(0) });
        slow.insert(source.into(), Arc::downgrade(&pattern));
        pattern
    }

    fn cached(&self, name: &str) -> Option<bool> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }

    fn matches(&self, name: &str) -> bool {
        if let Some(found) = self.cached(name) {
            return found;
        }
        self.runs.fetch_add(1, Ordering::Relaxed);
        let matches = self.regex.is_match(name).unwrap_or(false);
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if CACHED.load(Ordering::Relaxed) >= CACHED_MAX {
            CACHED.fetch_sub(found.len(), Ordering::Relaxed);
            found.clear();
        }
        if found.insert(name.into(), matches).is_none() {
            CACHED.fetch_add(1, Ordering::Relaxed);
        }
        matches
    }
}

impl Drop for Backtracking {
    fn drop(&mut self) {
        let found = self.found.get_mut().unwrap_or_else(PoisonError::into_inner);
        CACHED.fetch_sub(found.len(), Ordering::Relaxed);
    }
}

/// A pattern and its text. Two patterns are equal when their texts are.
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
    /// Compiles a permission's pattern. The empty one matches the empty name only, so that it grants nothing.
    ///
    /// # Errors
    /// When the pattern is invalid.
    pub fn permission(text: ByteString) -> Result<Pattern, String> {
        if text.is_empty() {
            return Ok(Pattern { text, compiled: Compiled::Nothing });
        }
        Pattern::policy(text)
    }

    /// Compiles a policy's pattern. The empty one matches every name.
    ///
    /// # Errors
    /// When the pattern is invalid.
    pub fn policy(text: ByteString) -> Result<Pattern, String> {
        let compiled = match &*text {
            ".*" | "^.*" | "^.*$" | ".*$" | "" => Compiled::Everything,
            source => compiled(source)?,
        };
        Ok(Pattern { text, compiled })
    }

    /// Compiles a topic permission's pattern. It may contain variables: `{username}`, `{vhost}`, `{client_id}`.
    ///
    /// # Errors
    /// When the pattern is invalid for any expansion.
    pub fn topic(text: ByteString) -> Result<Pattern, String> {
        let plain = without_variables(&text);
        if plain == *text {
            return Pattern::permission(text);
        }
        compile(&plain)?;
        Ok(Pattern { text, compiled: Compiled::Template(Arc::default()) })
    }

    /// Returns the text.
    #[must_use]
    pub fn text(&self) -> &ByteString {
        &self.text
    }

    /// Whether some part of the name matches. A pattern with variables matches nothing before they are expanded.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.compiled.matches(name)
    }

    /// How often the backtracking engine has run for this pattern and its copies.
    #[must_use]
    pub fn backtracking_runs(&self) -> usize {
        match &self.compiled {
            Compiled::Backtracking(pattern) => pattern.runs.load(Ordering::Relaxed),
            _ => 0,
        }
    }

    /// Whether the pattern needs the backtracking engine.
    pub(crate) fn backtracks(&self) -> bool {
        matches!(self.compiled, Compiled::Backtracking(_))
    }

    /// Whether [`Pattern::matches`] may take up to 1.5 ms for this name: the pattern backtracks, and the result is not cached.
    #[must_use]
    pub fn is_slow(&self, name: &str) -> bool {
        matches!(&self.compiled, Compiled::Backtracking(pattern) if pattern.cached(name).is_none())
    }
}

fn compiled(source: &str) -> Result<Compiled, String> {
    let regex = compile(source)?;
    let Ok(tree) = Expr::parse_tree(source) else { return Ok(Compiled::Backtracking(Backtracking::of(source, regex))) };
    if is_plain(&tree.expr) {
        return Ok(Compiled::Linear(Arc::new(Linear { ahead: Vec::new(), rest: regex })));
    }
    Ok(match decomposed(&tree.expr) {
        Some(linear) => Compiled::Linear(Arc::new(linear)),
        None => Compiled::Backtracking(Backtracking::of(source, regex)),
    })
}

/// Whether an automaton can evaluate the expression.
fn is_plain(expr: &Expr) -> bool {
    match expr {
        Expr::Empty | Expr::Any { .. } | Expr::Literal { .. } | Expr::Delegate { .. } => true,
        Expr::Assertion(assertion) => matches!(
            assertion,
            Assertion::StartText | Assertion::EndText | Assertion::StartLine { .. } | Assertion::EndLine { .. }
        ),
        Expr::Concat(children) | Expr::Alt(children) => children.iter().all(is_plain),
        Expr::Group(child) | Expr::Repeat { child, .. } => is_plain(child),
        _ => false,
    }
}

/// Splits `^`, look-aheads and a plain rest into automata that are anchored at the start.
fn decomposed(expr: &Expr) -> Option<Linear> {
    let Expr::Concat(children) = expr else { return None };
    let (Expr::Assertion(Assertion::StartText), mut rest) = children.split_first()? else { return None };
    let automaton = |parts: &[Expr]| {
        if !parts.iter().all(is_plain) {
            return None;
        }
        let mut source = String::from("^(?:");
        parts.iter().for_each(|part| part.to_str(&mut source, 2));
        source.push(')');
        compile(&source).ok()
    };
    let mut ahead = Vec::new();
    while let Some((Expr::LookAround(inner, look), after)) = rest.split_first() {
        let wanted = match look {
            LookAround::LookAhead => true,
            LookAround::LookAheadNeg => false,
            LookAround::LookBehind | LookAround::LookBehindNeg => return None,
        };
        ahead.push((automaton(std::slice::from_ref(inner))?, wanted));
        rest = after;
    }
    Some(Linear { ahead, rest: automaton(rest)? })
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

/// Replaces each `{variable}` of a pattern by a letter.
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

/// Whether a topic permission's pattern matches a routing key, after its variables were expanded. The compiled expansion is cached, because each
/// message is checked, and each CC key of a message. Values are inserted without escaping, as in RabbitMQ.
pub(crate) fn matches_expanded(pattern: &Pattern, variables: &[(&str, &str)], key: &str) -> bool {
    let Compiled::Template(kept) = &pattern.compiled else { return pattern.matches(key) };
    let mut text = pattern.text.to_string();
    for (name, value) in variables {
        text = text.replace(&format!("{{{name}}}"), value);
    }
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.len() >= EXPANDED_MAX && !kept.contains_key(&text) {
        kept.clear();
    }
    let expanded = kept.entry(text).or_insert_with_key(|text| compiled(text).ok()).clone();
    drop(kept);
    expanded.is_some_and(|compiled| compiled.matches(key))
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
    fn a_pattern_beyond_the_step_limit_matches_nothing() {
        let evil = permission("^(a+)+(?=b)b$");
        assert!(!evil.matches(&"a".repeat(200)));
    }

    fn engine(text: &'static str) -> &'static str {
        match permission(text).compiled {
            Compiled::Linear(_) => "linear",
            Compiled::Backtracking(_) => "backtracking",
            _ => "none",
        }
    }

    /// Six policies with look-around took 18 s for 1,000 queues, on the thread that applies the records of all clients.
    #[test]
    fn usual_patterns_take_linear_time() {
        for linear in
            ["^a(b|c)*$", r"^(?!amq\.).*", r"^(?!amq\.)(?=.*x)(?!y|z).*$", "(a+)+b", "^(?!a|b)", "(?i)^orders"]
        {
            assert_eq!(engine(linear), "linear", "{linear}");
        }
        for backtracking in [r"(a)\1", "a(?!b)", "^(?!a)b|c", "^(?<!a)b", "^(?!(?=a)b)c", r"\bq"] {
            assert_eq!(engine(backtracking), "backtracking", "{backtracking}");
        }
    }

    proptest::proptest! {
        #[test]
        fn look_aheads_at_the_start_match_like_the_backtracking_engine(
            ahead in proptest::collection::vec(("[=!]", "[ab.]{0,3}(\\|[ab]{1,2})?\\$?"), 1..3),
            rest in "[ab.*]{0,3}(\\([ab]\\|b\\)[*+?]?)?\\$?",
            names in proptest::collection::vec("[abc]{0,5}", 1..20),
        ) {
            let ahead: String = ahead.iter().map(|(sign, inner)| format!("(?{sign}{inner})")).collect();
            let source = format!("^{ahead}{rest}");
            let Ok(regex) = compile(&source) else { return Ok(()) };
            let pattern = Pattern::policy(source.clone().into()).unwrap();
            for name in &names {
                proptest::prop_assert_eq!(pattern.matches(name), regex.is_match(name).unwrap(), "{} and {}", source, name);
            }
        }
    }

    #[test]
    fn copies_of_a_slow_pattern_share_cached_results() {
        let evil = "^(a+)+(?=c)c$";
        let (first, name) = (permission(evil), "a".repeat(150));
        assert!(first.is_slow(&name));
        assert!(!first.matches(&name));
        let second = permission(evil);
        assert!(!second.is_slow(&name) && !second.matches(&name));
        assert!(second.is_slow("b"));
        drop((first, second));
        assert!(permission(evil).is_slow(&name), "dropped patterns leave the cache");
    }

    #[test]
    fn variables_are_expanded() {
        let topic = |text: &'static str| Pattern::topic(text.into()).unwrap();
        let pattern = topic("^{username}\\..*");
        assert!(matches_expanded(&pattern, &[("username", "ann"), ("vhost", "/")], "ann.x"));
        assert!(!matches_expanded(&pattern, &[("username", "ann")], "bob.x"));
        assert!(!matches_expanded(&pattern, &[("username", "(")], "(.x"), "no longer a valid pattern");
        assert!(matches_expanded(&topic("^{unknown}$"), &[("username", "ann")], "{unknown}"), "as PCRE reads it");
        assert!(matches_expanded(&topic("a{2}"), &[("username", "x")], "aa"));
        assert!(Pattern::topic("({username}".into()).is_err());
    }

    /// A message with 10,000 CC keys compiled the pattern as many times, on the thread that reads connections.
    #[test]
    fn each_expansion_is_compiled_once() {
        let pattern = Pattern::topic("^{username}\\..*".into()).unwrap();
        let kept = || match &pattern.compiled {
            Compiled::Template(kept) => kept.lock().unwrap().len(),
            _ => 0,
        };
        for at in 0..10_000 {
            assert!(matches_expanded(&pattern, &[("username", "ann")], &format!("ann.{at}")));
        }
        assert_eq!(kept(), 1);
        (0..1_000).for_each(|at| _ = matches_expanded(&pattern, &[("username", &at.to_string())], "x"));
        assert!(kept() <= EXPANDED_MAX);
    }
}
