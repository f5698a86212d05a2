//! Headers that a link adds to messages, and arguments that it adds to bindings.
//!
//! ```text
//! x-received-from  [ {uri, exchange|queue, redelivered, cluster-name and vhost of the upstream (exchanges), visit-count (queues)}, the
//!                    previous link, … ]
//! x-bound-from     [ {cluster-name, vhost, exchange, remaining hops}, the previous link, … ]
//! ```

use super::status::Key;
use crate::links::prepended;
use bytes::Bytes;
use polylogue_amqp::codec::{BasicProperties, Properties, Table, TableBuilder, Value};
use polylogue_amqp_gateway::RECEIVED_FROM;
use polylogue_amqp_model::{decode_array, decode_table, encode_array, encode_table};
use polylogue_router::{Argument, Value as Kept, lookup};

/// The argument with the origin of a binding.
const BOUND_FROM: &str = "x-bound-from";
/// The header with the exchange that a message in a federated queue was first published to.
const ORIGINAL_EXCHANGE: &str = "x-original-exchange";
const ORIGINAL_KEY: &str = "x-original-routing-key";
/// Replaces the CC header: copies are made only once, at the first broker.
const COPIES: &[u8] = b"CC";
const ORIGINAL_COPIES: &str = "x-original-cc";
const VISITS: &str = "visit-count";

/// The link's entry in messages.
#[derive(Clone, Debug)]
pub(super) struct Stamp {
    pub(super) uri: String,
    /// The upstream's cluster name.
    pub(super) cluster_name: Option<Bytes>,
    /// The upstream's virtual host.
    pub(super) vhost: String,
    pub(super) trusts_user_id: bool,
}

impl Stamp {
    fn begin(&self, key: &Key, redelivered: bool) -> TableBuilder {
        let entry = TableBuilder::new().with_text("uri", &self.uri).with_text(key.of.name(), &key.name);
        entry.with("redelivered", Value::Bool(redelivered))
    }

    /// Returns the encoded properties for a message forwarded by a link of an exchange.
    pub(super) fn of_exchange(&self, key: &Key, came: &Properties, redelivered: bool) -> Bytes {
        let mut entry = self.begin(key, redelivered);
        if let Some(name) = &self.cluster_name {
            entry = entry.with("cluster-name", Value::LongStr(name));
        }
        let entry = entry.with_text("vhost", &self.vhost).build();
        let raw = if self.trusts_user_id { came.raw().clone() } else { without_user(came) };
        prepended(came, raw, RECEIVED_FROM, &entry)
    }

    /// The same for a link of a queue; the message was published to this exchange with this key.
    pub(super) fn of_queue(
        &self,
        key: &Key,
        came: &Properties,
        redelivered: bool,
        (exchange, routing_key): (&[u8], &[u8]),
    ) -> Bytes {
        let mut basic = came.to_basic();
        let headers = came.headers().unwrap_or_default();
        let before = headers.get(RECEIVED_FROM).filter(|before| matches!(before, Value::Array(_)));
        let mut all = TableBuilder::new();
        let mut visits = 0;
        let mut links = Vec::new();
        for (_, link) in before.iter().flat_map(|before| before.elements()) {
            let Value::Table(raw) = link else { continue };
            let said = |name: &str| link.fields().find(|field| field.name == name.as_bytes()).map(|field| field.value);
            let text = |name: &str| said(name).and_then(|value| value.as_longstr());
            if text("uri") == Some(self.uri.as_bytes()) && text("queue") == Some(key.name.as_bytes()) {
                visits = said(VISITS).and_then(|visits| visits.as_i64()).unwrap_or(0);
            } else {
                links.push(Bytes::copy_from_slice(raw));
            }
        }
        for field in headers.fields() {
            let kept = match field.name {
                name if name == RECEIVED_FROM.as_bytes() => continue,
                // The first link records the origin.
                name if before.is_none()
                    && (name == ORIGINAL_EXCHANGE.as_bytes() || name == ORIGINAL_KEY.as_bytes()) =>
                {
                    continue;
                }
                COPIES => ORIGINAL_COPIES.into(),
                name => String::from_utf8_lossy(name),
            };
            all = all.with(&kept, field.value);
        }
        if before.is_none() {
            all = all.with(ORIGINAL_EXCHANGE, Value::LongStr(exchange)).with(ORIGINAL_KEY, Value::LongStr(routing_key));
        }
        let entry = self.begin(key, redelivered).with(VISITS, Value::I64(visits.saturating_add(1))).build();
        let links = std::iter::once(entry.raw().clone()).chain(links);
        let links: Vec<_> = links.map(|link| (b'F', Kept::Nested(b'F', link))).collect();
        all = all.with(RECEIVED_FROM, Value::Array(&encode_array(&links)));
        basic.headers = Some(all.build());
        if !self.trusts_user_id {
            basic.user_id = None;
        }
        basic.encode()
    }
}

fn without_user(came: &Properties) -> Bytes {
    let basic = came.to_basic();
    if basic.user_id.is_none() {
        return came.raw().clone();
    }
    BasicProperties { user_id: None, ..basic }.encode()
}

/// The two ends of a binding's replication.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passing<'a> {
    /// The downstream's cluster name, virtual host and exchange.
    pub(super) cluster_name: &'a str,
    pub(super) vhost: &'a str,
    /// With the suffix of the current internal exchange.
    pub(super) exchange: &'a str,
    /// The upstream's cluster name and virtual host.
    pub(super) upstream: (Option<&'a [u8]>, &'a str),
    pub(super) hops_max: u32,
}

fn long_text(name: &str, value: &str) -> Argument {
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    Argument { name: bytes(name), tag: b'S', value: Kept::Bytes(bytes(value)) }
}

/// Returns the arguments of a replicated binding; `None` if messages could not reach its origin.
pub(super) fn passed_on(arguments: &[Argument], passing: Passing<'_>) -> Option<Vec<Argument>> {
    let before = match lookup(arguments, BOUND_FROM.as_bytes()).map(|argument| &argument.value) {
        Some(Kept::Nested(b'A', content)) => decode_array(content).unwrap_or_default(),
        _ => Vec::new(),
    };
    let mut hops = i64::from(passing.hops_max);
    let (cluster, vhost) = passing.upstream;
    for (at, (_, link)) in before.iter().enumerate() {
        let fields =
            if let Kept::Nested(b'F', content) = link { decode_table(content).unwrap_or_default() } else { Vec::new() };
        let value = |name: &str| lookup(&fields, name.as_bytes()).map(|field| &field.value);
        let is = |name: &str, wanted: &[u8]| value(name).and_then(Kept::bytes).is_some_and(|text| **text == *wanted);
        if cluster.is_some_and(|cluster| is("cluster-name", cluster)) && is("vhost", vhost.as_bytes()) {
            return None;
        }
        if let (0, Some(Kept::Int(left))) = (at, value("hops")) {
            hops = hops.min(left - 1);
        }
    }
    if hops <= 0 {
        return None;
    }
    let entry = [
        long_text("cluster-name", passing.cluster_name),
        long_text("vhost", passing.vhost),
        long_text("exchange", &format!("{}:{}", passing.vhost, passing.exchange)),
        Argument { name: "hops".into(), tag: b's', value: Kept::Int(hops.min(i64::from(i16::MAX))) },
    ];
    let links = std::iter::once((b'F', Kept::Nested(b'F', encode_table(&entry)))).chain(before);
    let links: Vec<_> = links.collect();
    let others = arguments.iter().filter(|argument| argument.name != BOUND_FROM).cloned();
    let own = Argument { name: BOUND_FROM.into(), tag: b'A', value: Kept::Nested(b'A', encode_array(&links)) };
    Some(std::iter::once(own).chain(others).collect())
}

/// Whether a message may be forwarded: it passed fewer links than allowed, and was not here before.
pub(super) fn goes_on(came: &Properties, cluster_name: &str, vhost: &str, hops_max: u32) -> bool {
    let headers: Table = came.headers().unwrap_or_default();
    let hops = polylogue_amqp_gateway::hops(&headers, cluster_name.as_bytes(), vhost.as_bytes());
    hops.count < hops_max as usize && !hops.seen
}

/// Returns the name of the link's queue and exchange at the upstream: RabbitMQ's names, so that a broker that replaces another one
/// finds the waiting messages.
pub(super) fn queue_name(key: &Key, cluster_name: &str, upstream_vhost: &str) -> String {
    let (there, name, vhost) = (&*key.there, &*key.name, &*key.vhost);
    let here = match (vhost == upstream_vhost, name == there) {
        (true, true) => String::new(),
        (true, false) => format!(":{name}"),
        (false, _) => format!(":{vhost}:{name}"),
    };
    format!("federation: {there} -> {cluster_name}{here}")
}

#[cfg(test)]
mod tests {
    use super::super::status::Of;
    use super::*;

    fn key(of: Of) -> Key {
        let [vhost, name, upstream, there] = ["/", "x", "u", "x"].map(Into::into);
        Key { vhost, of, name, upstream, there }
    }

    fn stamp() -> Stamp {
        let cluster_name = Some(Bytes::from_static(b"there"));
        Stamp { uri: "amqp://there".to_owned(), cluster_name, vhost: "v".to_owned(), trusts_user_id: false }
    }

    fn entries(properties: &Bytes) -> Vec<String> {
        let properties = Properties::new(properties.clone()).expect("properties");
        let headers = properties.headers().expect("headers");
        let links: Vec<_> = headers.get(RECEIVED_FROM).expect("the array").elements().collect();
        let field = |field: polylogue_amqp::codec::Field<'_>| {
            format!("{}={:?}", String::from_utf8_lossy(field.name), field.value)
        };
        links.iter().map(|(_, link)| link.fields().map(field).collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn a_message_says_which_links_it_came_over_the_last_one_first() {
        let basic = BasicProperties { user_id: Some("bob".into()), delivery_mode: Some(2), ..Default::default() };
        let came = Properties::from(&basic);
        let once = stamp().of_exchange(&key(Of::Exchange), &came, false);
        let twice = stamp().of_exchange(&key(Of::Exchange), &Properties::new(once.clone()).expect("properties"), true);
        assert_eq!(entries(&once).len(), 1);
        let said = entries(&twice);
        assert_eq!(said.len(), 2);
        assert!(said[0].contains("redelivered=Bool(true)"), "{said:?}");
        assert_eq!(BasicProperties::decode(&twice).expect("properties").user_id, None);
        let trusting = Stamp { trusts_user_id: true, ..stamp() }.of_exchange(&key(Of::Exchange), &came, false);
        assert_eq!(BasicProperties::decode(&trusting).expect("properties").user_id, Some("bob".into()));
        let came = Properties::new(once).expect("properties");
        assert!(!goes_on(&came, "here", "/", 1), "one link is enough");
        assert!(goes_on(&came, "here", "/", 2));
        assert!(!goes_on(&came, "there", "v", 2), "it was there");
        assert!(goes_on(&Properties::none(), "here", "/", 1));
    }

    #[test]
    fn a_message_of_a_queue_keeps_where_it_was_first_and_how_often_it_came() {
        let headers = TableBuilder::new().with_texts("CC", &["k2"]).with_text("mine", "m").build();
        let came = Properties::from(&BasicProperties { headers: Some(headers), ..Default::default() });
        let key = key(Of::Queue);
        let once = stamp().of_queue(&key, &came, false, (b"e", b"k"));
        let other = Stamp { uri: "amqp://other".to_owned(), ..stamp() };
        let twice = other.of_queue(&key, &Properties::new(once).expect("properties"), false, (b"", b"x"));
        let again = stamp().of_queue(&key, &Properties::new(twice).expect("properties"), false, (b"", b"x"));
        let properties = Properties::new(again.clone()).expect("properties");
        let headers = properties.headers().expect("headers");
        let text = |name: &str| headers.get(name).and_then(|value| value.as_longstr()).map(<[u8]>::to_vec);
        assert_eq!(text("mine"), Some(b"m".to_vec()));
        assert_eq!([text(ORIGINAL_EXCHANGE), text(ORIGINAL_KEY)], [Some(b"e".to_vec()), Some(b"k".to_vec())]);
        assert!(headers.get("CC").is_none() && headers.get(ORIGINAL_COPIES).is_some());
        let said = entries(&again);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].contains("I64(2)") && said[1].contains("I64(1)"), "{said:?}");
    }

    #[test]
    fn a_binding_goes_as_far_as_messages_come() {
        let passing = |cluster_name: &'static str, upstream: &'static [u8], hops_max| Passing {
            cluster_name,
            vhost: "/",
            exchange: "x B",
            upstream: (Some(upstream), "/"),
            hops_max,
        };
        let first = passed_on(&[long_text("a", "1")], passing("c", b"b", 2)).expect("it goes on");
        assert_eq!(first.len(), 2);
        let second = passed_on(&first, passing("b", b"a", 9)).expect("it goes on once more");
        assert_eq!(passed_on(&second, passing("a", b"z", 9)), None, "its hops are used up");
        assert_eq!(passed_on(&first, passing("b", b"c", 9)), None, "it comes from there");
        assert_eq!(passed_on(&[], passing("c", b"b", 0)), None);
    }

    #[test]
    fn the_queue_there_has_the_name_that_rabbitmq_gives_it() {
        let one = key(Of::Exchange);
        assert_eq!(queue_name(&one, "us", "/"), "federation: x -> us");
        assert_eq!(queue_name(&one, "us", "v"), "federation: x -> us:/:x");
        let other = Key { there: "y".into(), ..one };
        assert_eq!(queue_name(&other, "us", "/"), "federation: y -> us:x");
    }
}
