//! Derives the wanted links from policies and parameters.

use super::status::{Key, Of};
use crate::links::Author;
use bytes::Bytes;
use bytestring::ByteString;
use polylogue_amqp_gateway::View;
use polylogue_amqp_model::{NamedUpstream, Queue, QueueKind, Upstream, encode_table, federates, upstreams};
use polylogue_router::{Argument, Exchange, FEDERATION_UPSTREAM, VhostId, lookup};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The maximum number of links; the first by key are kept.
pub(super) const LINKS_MAX: usize = 10_000;
/// Marks objects that belong to a link, of any broker; they are not federated themselves.
const INTERNAL_PURPOSE: &[u8] = b"x-internal-purpose";

/// The bindings of an exchange, by key and encoded arguments.
pub(super) type Bindings = Arc<BTreeMap<(Bytes, Bytes), Vec<Argument>>>;

/// The declaration of an exchange or a queue; a missing upstream object is declared likewise.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Shape {
    /// The exchange type; empty for a queue.
    pub(super) kind: &'static str,
    pub(super) durable: bool,
    pub(super) auto_delete: bool,
    pub(super) arguments: Vec<Argument>,
}

/// The definition of a link. A link whose definition changes is replaced.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Wanted {
    /// The upstream, or why its definition is invalid.
    pub(super) upstream: Result<Upstream, String>,
    /// The user whose permissions it has on this broker.
    pub(super) author: Author,
    /// The policy, part of its connections' name.
    pub(super) policy: ByteString,
    pub(super) shape: Shape,
    /// The cluster name of this broker.
    pub(super) cluster_name: String,
}

/// A link's definition, and what may change while it runs.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) wanted: Wanted,
    pub(super) bindings: Bindings,
    /// The federated queue.
    pub(super) queue: Option<Arc<Queue>>,
}

fn text(name: &[u8]) -> ByteString {
    String::from_utf8_lossy(name).into_owned().into()
}

fn bindings(view: &View, exchange: &Exchange) -> Bindings {
    let all = view.routes.bindings_from(exchange.id);
    let one = |binding: &polylogue_router::Binding| {
        ((binding.key.clone(), encode_table(&binding.arguments)), binding.arguments.clone())
    };
    Arc::new(all.iter().map(|binding| one(binding)).collect())
}

/// An upstream's name, its definition or the error in it, and its author.
type Named = (ByteString, Result<Upstream, String>, Author);

/// A search for all links in one view.
struct Search<'v> {
    view: &'v View,
    cluster_name: &'v str,
    /// Upstreams by policy name, cached because they are the same for all objects that a policy applies to.
    upstreams: BTreeMap<(VhostId, ByteString), Vec<Named>>,
    found: BTreeMap<Key, Found>,
}

impl Search<'_> {
    fn add(
        &mut self,
        vhost: VhostId,
        of: Of,
        kind: Option<QueueKind>,
        name: &ByteString,
        found: impl Fn() -> (Shape, Bindings, Option<Arc<Queue>>),
    ) {
        let metadata = &self.view.metadata;
        let [Some(policy), _] = metadata.matching(vhost, kind, name) else { return };
        if !federates(policy.keys()) {
            return;
        }
        let all = self.upstreams.entry((vhost, policy.name.clone())).or_insert_with(|| {
            let all = upstreams(metadata, vhost, policy.keys()).into_iter();
            let named = |one: NamedUpstream| {
                let author = Author::of(metadata, metadata.vhost_name(vhost), &one.authors);
                (one.name, one.upstream.map_err(|why| why.text().trim().to_owned()), author)
            };
            all.map(named).collect()
        });
        if all.is_empty() {
            return;
        }
        let (shape, bindings, queue) = found();
        for (upstream_name, upstream, author) in all {
            let named = |upstream: &Upstream| match of {
                Of::Exchange => upstream.exchange.clone(),
                Of::Queue => upstream.queue.clone(),
            };
            let there = upstream.as_ref().ok().and_then(named).unwrap_or_else(|| name.clone());
            let (vhost, name) = (metadata.vhost_name(vhost).into(), name.clone());
            let key = Key { vhost, of, name, upstream: upstream_name.clone(), there };
            let (policy, cluster_name) = (policy.name.clone(), self.cluster_name.to_owned());
            let (upstream, author) = (upstream.clone(), author.clone());
            let wanted = Wanted { upstream, author, policy, shape: shape.clone(), cluster_name };
            let found = Found { wanted, bindings: bindings.clone(), queue: queue.clone() };
            self.found.insert(key, found);
        }
    }
}

/// Returns all wanted links.
pub(super) fn find(view: &View, cluster_name: &str) -> BTreeMap<Key, Found> {
    let federating = view.metadata.policies().filter(|policy| !policy.operator && federates(policy.keys()));
    let vhosts: BTreeSet<_> = federating.map(|policy| policy.vhost).collect();
    let mut search = Search { view, cluster_name, upstreams: BTreeMap::new(), found: BTreeMap::new() };
    if vhosts.is_empty() {
        return search.found;
    }
    for exchange in view.routes.exchanges() {
        let own =
            exchange.kind.name() == FEDERATION_UPSTREAM || lookup(&exchange.arguments, INTERNAL_PURPOSE).is_some();
        if exchange.name.is_empty() || exchange.internal || own || !vhosts.contains(&exchange.vhost) {
            continue;
        }
        search.add(exchange.vhost, Of::Exchange, None, &text(&exchange.name), || {
            let shape = Shape {
                kind: exchange.kind.name(),
                durable: exchange.durable,
                auto_delete: exchange.auto_delete,
                arguments: exchange.arguments.clone(),
            };
            (shape, bindings(view, &exchange), None)
        });
    }
    for queue in view.metadata.queues() {
        let own = lookup(&queue.arguments, INTERNAL_PURPOSE).is_some();
        if own || queue.owner.is_some() || queue.kind == QueueKind::Stream || !vhosts.contains(&queue.vhost) {
            continue;
        }
        search.add(queue.vhost, Of::Queue, Some(queue.kind), &queue.name, || {
            let shape = Shape {
                kind: "",
                durable: queue.durable,
                auto_delete: queue.auto_delete,
                arguments: queue.arguments.clone(),
            };
            (shape, Bindings::default(), Some(queue.clone()))
        });
    }
    let mut found = search.found;
    while found.len() > LINKS_MAX {
        found.pop_last();
    }
    found
}
