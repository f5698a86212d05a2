//! Subscriptions by regular expression: RE2's syntax, matched against whole names of topics.
//!
//! An expression is resolved when it is new, when topics have come, and from time to time. That compiles each expression, then goes through all
//! topics, in slices between which other groups have their turn; what came out is a record, which raises the group's epoch where topics differ. The topics
//! are those that the user whose heartbeat began it may describe.

use super::heartbeat::Beat;
use super::model::{Change, Resolved};
use super::tail::Tail;
use super::turn::{ConsumerTurn, Draft, Refusal, refuse};
use crate::command::MayDescribe;
use crate::timers::TimerKind;
use crate::turn::group_key;
use polylogue_api::TopicInfo;
use polylogue_kafka_codec::{ErrorCode, StrBytes};
use regex::{Regex, RegexBuilder};
use std::sync::Arc;

/// The longest expression. Bytes.
const REGEX_BYTES_MAX: usize = 8 << 10;
/// What a compiled expression may take, and its cache when it is matched. Bytes.
const COMPILED_BYTES_MAX: usize = 1 << 20;
/// How deep an expression may be nested.
const NESTING_MAX: u32 = 64;
/// Different expressions of a group.
const GROUP_REGEXES_MAX: usize = 64;
/// Names that are matched in one call. A match takes about a microsecond for an expression of usual size.
const MATCHES_PER_CALL: usize = 2_000;
/// How long other groups have their turn between two of these calls. Milliseconds.
const SLICE_INTERVAL_MS: u64 = 1;
/// How far apart resolutions of a group are at least. Milliseconds.
const RESOLUTION_INTERVAL_MS: u64 = 10_000;

/// A resolution under way. Soft: it begins anew after a crash.
#[derive(Debug)]
pub(super) struct Resolution {
    patterns: Vec<Pattern>,
    topics: Vec<Arc<TopicInfo>>,
    /// How many topics have been matched.
    done: usize,
    may_describe: Option<MayDescribe>,
}

#[derive(Debug)]
struct Pattern {
    regex: StrBytes,
    /// `None` until its slice has come.
    compiled: Option<Regex>,
    matched: Vec<StrBytes>,
}

impl Pattern {
    fn is_match(&self, name: &str) -> bool {
        self.compiled.as_ref().is_some_and(|compiled| compiled.is_match(name))
    }
}

/// Compiles an expression, which must match a name as a whole. Errors: why it is none, in words.
fn compile(regex: &str) -> Result<Regex, String> {
    if regex.len() > REGEX_BYTES_MAX {
        return Err(format!("it is longer than {REGEX_BYTES_MAX} bytes"));
    }
    let whole = format!("^(?:{})$", unquoted(regex));
    let mut builder = RegexBuilder::new(&whole);
    builder.size_limit(COMPILED_BYTES_MAX).dfa_size_limit(COMPILED_BYTES_MAX).nest_limit(NESTING_MAX);
    // What is wrong is the last line; the lines before it show where.
    builder.build().map_err(|error| error.to_string().lines().last().unwrap_or_default().to_owned())
}

/// The same expression without RE2's quotes: `\Q` and `\E` around text that is taken as it is.
fn unquoted(regex: &str) -> String {
    let mut plain = String::with_capacity(regex.len());
    let mut left = regex;
    while let Some(at) = left.find('\\') {
        let (before, from) = left.split_at(at);
        plain.push_str(before);
        if let Some(quoted) = from.strip_prefix("\\Q") {
            let (text, rest) = quoted.split_once("\\E").unwrap_or((quoted, ""));
            plain.push_str(&regex::escape(text));
            left = rest;
            continue;
        }
        // The backslash and what it escapes.
        let end = from.char_indices().nth(2).map_or(from.len(), |(end, _)| end);
        let (escaped, rest) = from.split_at(end);
        plain.push_str(escaped);
        left = rest;
    }
    plain.push_str(left);
    plain
}

impl ConsumerTurn<'_> {
    /// Whether a member may have the expression that it asks for.
    pub(super) fn check_regex(&self, tail: &Tail, old: &str, regex: &StrBytes) -> Result<(), Refusal> {
        if regex.is_empty() || **regex == *old || tail.regex_count(regex) > 0 {
            return Ok(());
        }
        if let Err(why) = compile(regex) {
            let text = format!("SubscribedTopicRegex `{regex}` is not a valid regular expression: {why}.");
            return refuse(ErrorCode::InvalidRegularExpression, text);
        }
        if tail.regexes().count() >= GROUP_REGEXES_MAX {
            let text = format!("Members of a group may have {GROUP_REGEXES_MAX} different regular expressions.");
            return refuse(ErrorCode::InvalidRequest, text);
        }
        Ok(())
    }

    /// Whether the topics of a new subscription are known at once. `tail` is the group before that.
    pub(super) fn regex_is_known(&self, tail: &Tail, old: &str, new: &StrBytes) -> bool {
        if new.is_empty() { !old.is_empty() } else { tail.group().regexes.contains_key(new) }
    }

    /// Begins to resolve the group's expressions, if it is time for that.
    pub(super) fn maybe_resolve(&mut self, tail: &mut Tail, beat: &Beat<'_>) {
        if tail.resolution.is_some() || tail.regexes().next().is_none() {
            return;
        }
        let (version, now_ms) = (self.catalog.version(), self.now.monotonic_ms);
        let is_due = match tail.resolved {
            None => true,
            Some((_, at_ms)) if now_ms <= at_ms.saturating_add(RESOLUTION_INTERVAL_MS) => false,
            Some((seen, at_ms)) => {
                seen != version
                    || now_ms > at_ms.saturating_add(self.settings.consumer.regex_refresh_ms)
                    || tail.regexes().any(|regex| !tail.group().regexes.contains_key(regex))
            }
        };
        if !is_due {
            return;
        }
        let pattern = |regex: &StrBytes| Pattern { regex: regex.clone(), compiled: None, matched: Vec::new() };
        let patterns = tail.regexes().map(pattern).collect();
        let may_describe = beat.request.may_describe.clone();
        tail.resolved = Some((version, now_ms));
        tail.resolution = Some(Resolution { patterns, topics: self.catalog.topics(), done: 0, may_describe });
        self.timers.queue(now_ms, group_key(&tail.id, TimerKind::Regex));
    }

    /// Goes on with a resolution: compiles one expression, and matches some names once all are compiled.
    pub(crate) fn resolve(&mut self, tail: &mut Tail) {
        let Some(mut resolution) = tail.resolution.take() else { return };
        if let Some(at) = resolution.patterns.iter().position(|pattern| pattern.compiled.is_none()) {
            // Those that were taken once can be compiled again.
            match compile(&resolution.patterns[at].regex) {
                Ok(compiled) => resolution.patterns[at].compiled = Some(compiled),
                Err(_) => _ = resolution.patterns.remove(at),
            }
            if resolution.patterns.iter().any(|pattern| pattern.compiled.is_none()) {
                return self.resolve_later(tail, resolution);
            }
        }
        let patterns = resolution.patterns.len().max(1);
        let topics = resolution.topics.iter().skip(resolution.done).take((MATCHES_PER_CALL / patterns).max(1));
        let mut done = 0;
        for topic in topics {
            done += 1;
            let mut matching = resolution.patterns.iter_mut().filter(|p| p.is_match(&topic.name)).peekable();
            if matching.peek().is_none() {
                continue;
            }
            let allowed = resolution.may_describe.as_ref().is_none_or(|may| may.topic(&topic.name));
            matching.filter(|_| allowed).for_each(|pattern| pattern.matched.push(StrBytes::from(&*topic.name)));
        }
        resolution.done += done;
        if resolution.done < resolution.topics.len() {
            self.resolve_later(tail, resolution);
        } else {
            self.resolved(tail, resolution);
        }
    }

    fn resolve_later(&mut self, tail: &mut Tail, resolution: Resolution) {
        tail.resolution = Some(resolution);
        let at_ms = self.now.monotonic_ms.saturating_add(SLICE_INTERVAL_MS);
        self.timers.queue(at_ms, group_key(&tail.id, TimerKind::Regex));
    }

    /// Takes down what a resolution found.
    fn resolved(&mut self, tail: &mut Tail, resolution: Resolution) {
        let mut draft = Draft::new(&tail.id);
        let mut bumps = false;
        for Pattern { regex, mut matched, .. } in resolution.patterns {
            if tail.regex_count(&regex) == 0 {
                continue;
            }
            matched.sort_unstable();
            matched.dedup();
            let before = tail.group().regexes.get(&regex);
            let differs = before.map_or(!matched.is_empty(), |before| before.topics != matched);
            if before.is_none() || differs {
                bumps |= differs;
                draft.push(tail, Change::Regex { regex, resolved: Some(Resolved { topics: matched }) });
            }
        }
        let metadata_hash = self.metadata_hash(tail);
        if bumps || metadata_hash != tail.group().metadata_hash {
            let epoch = tail.group().epoch().saturating_add(1);
            draft.push(tail, Change::Epoch { epoch, metadata_hash });
        }
        self.finish(tail, draft, None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(regex: &str, topic: &str) -> bool {
        compile(regex).unwrap().is_match(topic)
    }

    #[test]
    fn an_expression_matches_a_name_as_a_whole() {
        assert!(matches("foo.*", "foo") && matches("foo.*", "foobar"));
        assert!(!matches("foo.*", "a-foo") && !matches("foo", "foobar"));
        assert!(matches("foo|bar", "bar") && !matches("foo|bar", "foobar"));
        assert!(matches("^foo$", "foo") && matches("(?i)FOO", "foo"));
        assert!(matches(r"\Qa.b\E.*", "a.bc") && !matches(r"\Qa.b\E.*", "axbc"));
        assert!(matches(r"a\\Q?", r"a\") && matches(r"\Qa", "a"));
    }

    #[test]
    fn an_expression_that_is_none_or_too_large_is_refused() {
        for bad in ["[", "(", "*", "(?=a)", r"\1", "a{1000}{1000}", &"(".repeat(200)] {
            assert!(compile(bad).is_err(), "{bad}");
        }
        assert!(compile(&"a".repeat(REGEX_BYTES_MAX + 1)).is_err());
        assert!(compile(&"a".repeat(REGEX_BYTES_MAX)).is_ok());
    }
}
