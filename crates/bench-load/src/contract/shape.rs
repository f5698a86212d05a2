//! Properties of a load beyond one topic with messages of one kind.
//!
//! ```text
//!   topics = 3, partitions = 2        topic_0000: 0 1     topic_0001: 0 1     topic_0002: 0 1
//!   places, as stamps and stamps'
//!   sequences count them              0           1       2           3       4           5         place = topic * partitions + partition
//! ```
//!
//! Rules for a worker in any language:
//! - With one topic the spec's `topic` is its name. With more they are `topic_0000`, `topic_0001`, ...: names of one length. A producer uses
//!   all places as it uses the partitions of one topic; the readers of a group share all places.
//! - Filtering groups are the last ones. They read the first `topics` topics and want the messages whose sequence is a multiple of
//!   `one_in`. A broker that filters is given the filter; otherwise the client reads everything of these topics, counts it as received,
//!   and reports latencies of wanted messages only.
//! - A worker that does not support a property ends with an error that says so. Missing properties have their default.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The maximum number of topics of a load: numbers have four digits.
pub const TOPICS_MAX: u32 = 10_000;

/// How a producer chooses the place of its next message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// The same one until a batch is full, then the next: as Kafka's producer does for messages without a key.
    #[default]
    Batch,
    /// The next one for each message: keys in turn.
    RoundRobin,
    /// A random one: random keys.
    Random,
}

/// The payload after the stamps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Payloads {
    /// The incompressible share of bytes; the others are zero. Thousandths.
    pub random_per_mille: u32,
    /// Number of different messages. The raw driver has as many as a batch holds.
    pub pool: u32,
    /// The payload itself, base64; the other fields are then ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Groups that want few of the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// Number of filtering groups; they are the last ones.
    pub groups: u32,
    /// Number of topics they read, the first ones.
    pub topics: u32,
    /// They want one message in this many.
    pub one_in: u32,
}

impl Filter {
    /// Whether a filtering group wants a message.
    #[must_use]
    pub fn wants(&self, sequence: u64) -> bool {
        sequence.is_multiple_of(u64::from(self.one_in.max(1)))
    }
}

/// Further properties of a load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Shape {
    /// Topics, each with the spec's partitions.
    pub topics: u32,
    /// Filtering groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// How a producer picks the place of its next message.
    pub spread: Spread,
    /// The payload after the stamps; incompressible bytes if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payloads: Option<Payloads>,
    /// Settings passed to the client unchanged; they override its own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// Whether the histograms of each second are reported.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub histograms: bool,
    /// Only messages of the producer with this number are verified and reported as received; others are skipped.
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
    /// Whether all properties have their default.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        *self == Shape::default()
    }

    /// Returns what is wrong with it, given the number of groups.
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

    /// Returns the filter of a group, if it has one.
    #[must_use]
    pub fn filters(&self, group: u32, groups: u32) -> Option<Filter> {
        self.filter.filter(|filter| group >= groups.saturating_sub(filter.groups))
    }
}

/// Returns the name of a topic.
#[must_use]
pub fn topic_name(topic: &str, topics: u32, number: u32) -> String {
    if topics <= 1 { topic.to_owned() } else { format!("{topic}_{number:04}") }
}

/// Returns the number of a topic.
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
