//! What a load is like beyond one topic with messages of one kind.
//!
//! ```text
//!   topics = 3, partitions = 2        topic_0000: 0 1     topic_0001: 0 1     topic_0002: 0 1
//!   places, as stamps and stamps'
//!   sequences count them              0           1       2           3       4           5         place = topic * partitions + partition
//! ```
//!
//! Its rules for a worker in any language:
//! - With one topic the spec's `topic` is its name. With more they are `topic_0000`, `topic_0001`, ...: names of one length. A producer goes
//!   over all places as it goes over the partitions of one topic; the readers of a group share all places between them.
//! - Filtering groups are the last ones. They read the first `topics` topics and want the messages whose sequence is a multiple of
//!   `one_in`. Where a broker filters, it is given the filter; elsewhere the client reads everything of these topics, counts it as received,
//!   and tells latencies of what it wants only.
//! - A worker that cannot do something of it ends with an error that says so. What is absent has its default.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The most topics of a load: as many as four digits number.
pub const TOPICS_MAX: u32 = 10_000;

/// How a producer picks the place of its next message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// The same until a batch is full, then the next one: what Kafka's producer does with messages without a key.
    #[default]
    Batch,
    /// The next one for each message: keys that are used in turns.
    RoundRobin,
    /// Any one: keys that are drawn by lot.
    Random,
}

/// What is behind the stamps of messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Payloads {
    /// The share of bytes that does not compress; the others are zero. Thousandths.
    pub random_per_mille: u32,
    /// Different messages. The raw driver has as many as a batch holds.
    pub pool: u32,
    /// The message itself, base64; then nothing else counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Groups that want few of the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// How many groups do; they are the last ones.
    pub groups: u32,
    /// They read so many topics, the first ones.
    pub topics: u32,
    /// They want one message in so many.
    pub one_in: u32,
}

impl Filter {
    /// Whether a group that filters wants a message.
    #[must_use]
    pub fn wants(&self, sequence: u64) -> bool {
        sequence.is_multiple_of(u64::from(self.one_in.max(1)))
    }
}

/// What a load is like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Shape {
    /// Topics, each with the spec's partitions.
    pub topics: u32,
    /// Groups that want few of the messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// How a producer picks the place of its next message.
    pub spread: Spread,
    /// What is behind the stamps; without: bytes that do not compress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payloads: Option<Payloads>,
    /// Settings that are given to the client as they are, over its own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// Whether the histograms of each second are given with it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub histograms: bool,
    /// Only messages of the producer of this number are verified and reported as received; those of all others are skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only_producer: Option<u32>,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            topics: 1,
            filter: None,
            spread: Spread::Batch,
            payloads: None,
            settings: BTreeMap::new(),
            histograms: false,
            only_producer: None,
        }
    }
}

impl Shape {
    /// Whether nothing is said.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        *self == Shape::default()
    }

    /// What is wrong with it for so many groups.
    #[must_use]
    pub fn wrong(&self, groups: u32) -> Option<String> {
        if self.topics == 0 || self.topics > TOPICS_MAX {
            return Some(format!("topics is {}, from 1 to {TOPICS_MAX} there may be", self.topics));
        }
        if let Some(filter) = self.filter
            && (filter.groups > groups || filter.topics == 0 || filter.topics > self.topics || filter.one_in == 0)
        {
            return Some(format!("{filter:?} does not fit {groups} groups and {} topics", self.topics));
        }
        match &self.payloads {
            Some(payloads) if payloads.random_per_mille > 1_000 => {
                Some(format!("random_per_mille is {}, more than the whole", payloads.random_per_mille))
            }
            _ => None,
        }
    }

    /// Whether a group filters, of so many.
    #[must_use]
    pub fn filters(&self, group: u32, groups: u32) -> Option<Filter> {
        self.filter.filter(|filter| group >= groups.saturating_sub(filter.groups))
    }
}

/// The name of a topic, of a load with so many.
#[must_use]
pub fn topic_name(topic: &str, topics: u32, number: u32) -> String {
    if topics <= 1 { topic.to_owned() } else { format!("{topic}_{number:04}") }
}

/// The number of a topic by its name.
#[must_use]
pub fn topic_number(topic: &str, topics: u32, name: &str) -> Option<u32> {
    let number = if topics <= 1 {
        (name == topic).then_some(0)?
    } else {
        name.strip_prefix(topic)?.strip_prefix('_')?.parse().ok()?
    };
    (number < topics).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_found_by_their_names() {
        assert_eq!(topic_name("t", 1, 0), "t");
        for (topics, number) in [(2, 1), (1_000, 999), (10_000, 0)] {
            let name = topic_name("t", topics, number);
            assert_eq!(name.len(), "t_0000".len());
            assert_eq!(topic_number("t", topics, &name), Some(number));
        }
        assert_eq!(topic_number("t", 1, "t"), Some(0));
        for (topics, name) in [(1, "t_0000"), (2, "t_0002"), (2, "u_0001"), (2, "t")] {
            assert_eq!(topic_number("t", topics, name), None, "{topics} {name}");
        }
    }

    #[test]
    fn what_is_not_said_is_as_ever() {
        let plain: Shape = serde_json::from_str("{}").expect("a shape");
        assert!(plain.is_plain() && plain.wrong(0).is_none());
        assert!(serde_json::from_str::<Shape>(r#"{"topic":3}"#).is_err(), "a slip of the pen is stated");
        let filter = Filter { groups: 5, topics: 20, one_in: 10 };
        let some = Shape { topics: 100, filter: Some(filter), ..Shape::default() };
        let text = serde_json::to_string(&some).expect("JSON");
        assert_eq!(serde_json::from_str::<Shape>(&text).expect("a shape"), some);
        assert_eq!((some.wrong(6), some.filters(0, 6), some.filters(1, 6)), (None, None, Some(filter)));
        assert!(filter.wants(20) && !filter.wants(21));
    }

    #[test]
    fn a_shape_that_cannot_be_is_refused() {
        let filter = |groups, topics, one_in| Shape {
            topics: 2,
            filter: Some(Filter { groups, topics, one_in }),
            ..Shape::default()
        };
        let random = Payloads { random_per_mille: 1_001, pool: 1, message: None };
        for bad in [
            Shape { topics: 0, ..Shape::default() },
            Shape { topics: TOPICS_MAX + 1, ..Shape::default() },
            filter(3, 1, 1),
            filter(1, 3, 1),
            filter(1, 1, 0),
            Shape { payloads: Some(random), ..Shape::default() },
        ] {
            assert!(bad.wrong(2).is_some(), "{bad:?}");
        }
    }
}
