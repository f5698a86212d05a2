//! The slow pattern matches of a command, to be run in advance on a thread that blocks no client.
//!
//! Commands are checked and applied on threads that all clients depend on. A policy pattern that backtracks takes up to 1.5 ms for a name, and there
//! may be 100,000 names. So before a command is proposed its [`SlowMatch`]es are run; patterns cache the results as long as a policy or a `SlowMatch`
//! uses them.

use crate::command::Command;
use crate::metadata::Metadata;
use crate::pattern::Pattern;
use bytestring::ByteString;
use polylogue_router::{Definitions as Routes, VhostId};
use serde_json::Value;

/// The components of parameters that are policies.
const POLICY_COMPONENTS: [&str; 2] = ["policy", "operator_policy"];

/// A match of a backtracking pattern against a name, without a cached result.
#[derive(Clone, Debug)]
pub struct SlowMatch {
    pattern: Pattern,
    name: ByteString,
}

impl SlowMatch {
    /// Runs the match, which takes up to 1.5 ms. The pattern and all its copies share the cached result.
    pub fn run(&self) {
        let _remembered = self.pattern.matches(&self.name);
    }
}

impl Metadata {
    /// Returns the slow matches that checking and applying a command will need. Usually empty.
    #[must_use]
    pub fn slow_matches(&self, routes: &Routes, command: &Command) -> Vec<SlowMatch> {
        match command {
            Command::SetPolicy(vhost, spec) => self.of_pattern(routes, vhost, &spec.pattern),
            Command::SetParameter(vhost, component, _, value) if POLICY_COMPONENTS.contains(&&**component) => {
                let pattern = value.get("pattern").and_then(Value::as_str).unwrap_or_default();
                self.of_pattern(routes, vhost, &pattern.into())
            }
            Command::DeclareQueue(declare) => self.of_name(declare.vhost, &declare.name),
            Command::DeclareExchange(declare) => self.of_name(declare.vhost, &declare.name),
            Command::Import(definitions) => self.of_definitions(routes, &definitions.root, definitions.vhost.as_ref()),
            _ => Vec::new(),
        }
    }

    /// Returns the slow matches for a queue or an exchange that is declared.
    #[must_use]
    pub fn slow_matches_of_name(&self, vhost: VhostId, name: &ByteString) -> Vec<SlowMatch> {
        self.of_name(vhost, name)
    }

    fn of_pattern(&self, routes: &Routes, vhost: &ByteString, pattern: &ByteString) -> Vec<SlowMatch> {
        let (Some(host), Ok(pattern)) = (self.vhost_named(vhost), Pattern::policy(pattern.clone())) else {
            return Vec::new();
        };
        match pattern.backtracks() {
            true => slow(&pattern, self.names(routes, host.id)).collect(),
            false => Vec::new(),
        }
    }

    fn of_name(&self, vhost: VhostId, name: &ByteString) -> Vec<SlowMatch> {
        let policies = [false, true].into_iter().flat_map(|operator| self.policies_of(vhost, operator));
        let slow = policies.filter(|policy| policy.pattern.is_slow(name));
        slow.map(|policy| SlowMatch { pattern: policy.pattern.clone(), name: name.clone() }).collect()
    }

    /// The names of all queues and exchanges of a virtual host.
    fn names(&self, routes: &Routes, vhost: VhostId) -> Vec<ByteString> {
        let exchanges = routes.exchanges().into_iter().filter(|exchange| exchange.vhost == vhost);
        let exchanges = exchanges.filter_map(|exchange| ByteString::try_from(exchange.name.clone()).ok());
        self.queues().filter(|queue| queue.vhost == vhost).map(|queue| queue.name.clone()).chain(exchanges).collect()
    }

    fn of_definitions(
        &self,
        routes: &Routes,
        root: &serde_json::Map<String, Value>,
        all: Option<&ByteString>,
    ) -> Vec<SlowMatch> {
        let items = |field: &str| root.get(field).and_then(Value::as_array).into_iter().flatten();
        let text = |item: &Value, field: &str| item.get(field).and_then(Value::as_str).map(ByteString::from);
        let vhost = |item: &Value| all.cloned().or_else(|| text(item, "vhost")).unwrap_or_default();
        let mut matches = Vec::new();
        let patterns = items("policies").filter_map(|item| {
            let pattern = Pattern::policy(text(item, "pattern")?).ok().filter(Pattern::backtracks)?;
            Some((vhost(item), pattern))
        });
        let patterns: Vec<_> = patterns.collect();
        for (host, pattern) in &patterns {
            if let Some(known) = self.vhost_named(host) {
                matches.extend(slow(pattern, self.names(routes, known.id)));
            }
        }
        for item in items("queues").chain(items("exchanges")) {
            let (host, Some(name)) = (vhost(item), text(item, "name")) else { continue };
            for (_, pattern) in patterns.iter().filter(|(of, _)| *of == host) {
                matches.extend(slow(pattern, vec![name.clone()]));
            }
            if let Some(known) = self.vhost_named(&host) {
                matches.extend(self.of_name(known.id, &name));
            }
        }
        matches
    }
}

fn slow(pattern: &Pattern, names: Vec<ByteString>) -> impl Iterator<Item = SlowMatch> {
    let pattern = pattern.clone();
    names
        .into_iter()
        .filter_map(move |name| pattern.is_slow(&name).then(|| SlowMatch { pattern: pattern.clone(), name }))
}
