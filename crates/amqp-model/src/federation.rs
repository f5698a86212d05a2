//! The upstreams that a policy federates from.
//!
//! ```text
//! policy ── federation-upstream: u1 ───────────────▶ federation-upstream u1 ─▶ one link
//!        ├─ federation-upstream-set: s ─▶ s: [u1, u2 with other fields] ─────▶ a link each
//!        │                                "all": every upstream of the virtual host
//!        └─ federation-upstream-pattern: ^eu- ─▶ upstreams whose names match ▶ a link each
//! ```
//!
//! Source: RabbitMQ's federation reference, and the behaviour of its broker.

use crate::fields::{LinkError, map_of};
use crate::json::Json;
use crate::metadata::Metadata;
use crate::pattern::Pattern;
use crate::upstream::{MEMBER, UPSTREAM, UPSTREAM_PATTERN, UPSTREAM_SET, Upstream};
use bytestring::ByteString;
use polylogue_router::VhostId;
use serde_json::{Map, Value};

/// The set of all upstreams, which always exists.
const ALL: &str = "all";

/// Whether a policy with these keys federates the queues and exchanges it applies to.
#[must_use]
pub fn federates(keys: &Map<String, Value>) -> bool {
    [UPSTREAM, UPSTREAM_SET, UPSTREAM_PATTERN].iter().any(|key| keys.contains_key(*key))
}

/// An upstream that a policy names.
#[derive(Clone, PartialEq, Debug)]
pub struct NamedUpstream {
    /// Its name.
    pub name: ByteString,
    /// The upstream, or why it cannot be used.
    pub upstream: Result<Upstream, LinkError>,
    /// The users who set its parameters, the upstream's and the naming set's: `None` where that is not recorded.
    pub authors: Vec<Option<ByteString>>,
}

/// Returns the upstreams that a policy with these keys names. Missing upstreams are left out; unsupported ones are returned with an error.
#[must_use]
pub fn upstreams(metadata: &Metadata, vhost: VhostId, keys: &Map<String, Value>) -> Vec<NamedUpstream> {
    let text = |key: &str| keys.get(key).and_then(Value::as_str);
    let all = || {
        let all = metadata.parameters().filter(|(of, component, ..)| *of == vhost && *component == UPSTREAM);
        all.map(|(_, _, name, _)| name.clone())
    };
    let none = Map::new;
    let mut set_author = None;
    let members: Vec<(ByteString, Map<String, Value>)> = if let Some(name) = text(UPSTREAM) {
        vec![(name.into(), none())]
    } else if let Some(pattern) = text(UPSTREAM_PATTERN) {
        let Ok(pattern) = Pattern::policy(pattern.into()) else { return Vec::new() };
        all().filter(|name| pattern.matches(name)).map(|name| (name, none())).collect()
    } else if let Some(ALL) = text(UPSTREAM_SET) {
        all().map(|name| (name, none())).collect()
    } else if let Some(set) = text(UPSTREAM_SET) {
        let (component, set) = (UPSTREAM_SET.into(), set.into());
        set_author = Some(metadata.parameter_author(vhost, &component, &set).cloned());
        let set = metadata.parameter(vhost, &component, &set).map(Json::value);
        let members = if let Some(Value::Array(members)) = set { members } else { Vec::new() };
        let fields = members.iter().filter_map(map_of);
        fields.filter_map(|fields| Some((fields.get(MEMBER)?.as_str()?.into(), fields))).collect()
    } else {
        Vec::new()
    };
    let one = |(name, mut fields): (ByteString, Map<String, Value>)| {
        let upstream = metadata.parameter(vhost, &UPSTREAM.into(), &name)?.value();
        fields.remove(MEMBER);
        for (field, value) in map_of(&upstream)? {
            fields.entry(field).or_insert(value);
        }
        let upstream = Upstream::parse(&name, &Value::Object(fields));
        let author = metadata.parameter_author(vhost, &UPSTREAM.into(), &name).cloned();
        Some(NamedUpstream { name, upstream, authors: std::iter::once(author).chain(set_author.clone()).collect() })
    };
    members.into_iter().filter_map(one).collect()
}
