//! What each system looks like, everywhere the same: a colour of a palette that colour-blind readers can tell apart, and a way of drawing
//! lines for those who see none.

use crate::results::ResultLine;
use std::fmt::Write;

/// Colours by their variables: light, dark. Those of systems are of a palette that colour-blind readers can tell apart.
const COLOURS: &[(&str, &str, &str)] = &[
    ("paper", "#f7f8f8", "#121518"),
    ("card", "#ffffff", "#1a1e22"),
    ("ink", "#1b1f24", "#e6e9ec"),
    ("soft", "#555d66", "#a8b0b9"),
    ("faint", "#8a929c", "#78818b"),
    ("rule", "#dcdfe3", "#343b42"),
    ("grid", "#e6e8eb", "#2b3137"),
    ("wash", "#f0f2f4", "#22272c"),
    ("good", "#0b5a94", "#8cc8f5"),
    ("good-wash", "#dfeefa", "#17324a"),
    ("bad", "#9c3900", "#ffab7d"),
    ("bad-wash", "#fde7da", "#4a2614"),
    ("s-polylogue", "#0072b2", "#56b4e9"),
    ("s-kafka", "#d55e00", "#f0803c"),
    ("s-rabbitmq", "#b98000", "#e8b93e"),
    ("s-pulsar", "#009e73", "#2fc49a"),
    ("s-rocketmq", "#b7528c", "#e29bc4"),
    ("s-tubemq", "#6b4c1e", "#c2a06a"),
    ("s-null", "#7d858e", "#8f98a2"),
    ("s-other", "#3d444c", "#d0d5da"),
];

fn variables(is_dark: bool) -> String {
    let mut text = String::from(if is_dark { "color-scheme:dark" } else { "color-scheme:light" });
    for (name, light, dark) in COLOURS {
        // Writing to a string cannot fail.
        let _ = write!(text, ";--{name}:{}", if is_dark { dark } else { light });
    }
    text
}

/// The style sheet of the colours: the system's choice, or the reader's where an attribute of the page says so.
#[must_use]
pub fn style() -> String {
    let (light, dark) = (variables(false), variables(true));
    format!(
        ":root{{{light}}}\n@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}\n\
         :root[data-theme=dark]{{{dark}}}\n"
    )
}

/// A system, whatever its profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// Ours.
    Polylogue,
    /// Apache Kafka.
    Kafka,
    /// RabbitMQ.
    Rabbitmq,
    /// Apache Pulsar.
    Pulsar,
    /// Apache RocketMQ.
    Rocketmq,
    /// Apache TubeMQ.
    Tubemq,
    /// The null broker, which answers immediately: a floor, not a peer.
    Null,
    /// Another broker, by its address.
    Other,
}

impl System {
    /// The system of a target, `kafka-tuned` for example.
    #[must_use]
    pub fn of_target(target: &str) -> System {
        match target.split('-').next().unwrap_or_default() {
            "polylogue" => System::Polylogue,
            "kafka" => System::Kafka,
            "rabbitmq" => System::Rabbitmq,
            "pulsar" => System::Pulsar,
            "rocketmq" => System::Rocketmq,
            "tubemq" => System::Tubemq,
            "null" => System::Null,
            _ => System::Other,
        }
    }

    /// The system that a line is of: what its conditions say, or its side.
    #[must_use]
    pub fn of_line(line: &ResultLine) -> System {
        System::of_target(line.conditions.as_ref().map_or(line.side.as_str(), |reported| &reported.target))
    }

    /// The class of its marks.
    #[must_use]
    pub fn class(self) -> &'static str {
        match self {
            System::Polylogue => "s-polylogue",
            System::Kafka => "s-kafka",
            System::Rabbitmq => "s-rabbitmq",
            System::Pulsar => "s-pulsar",
            System::Rocketmq => "s-rocketmq",
            System::Tubemq => "s-tubemq",
            System::Null => "s-null",
            System::Other => "s-other",
        }
    }
}

/// How a side of a cell is drawn: the colour of its system, and which of the system's sides it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Whose colour.
    pub system: System,
    /// The place among the sides of this system, from 0 on: solid, dashed, dotted.
    pub nth: usize,
}

/// Ways to draw a line of one colour.
const WAYS: usize = 4;

impl Look {
    /// The classes of its marks.
    #[must_use]
    pub fn class(self) -> String {
        format!("{} v{}", self.system.class(), self.nth % WAYS)
    }
}

/// How each of these sides is drawn.
#[must_use]
pub fn looks(systems: &[System]) -> Vec<Look> {
    let nth = |at: usize, system: System| systems.iter().take(at).filter(|other| **other == system).count();
    systems.iter().enumerate().map(|(at, system)| Look { system: *system, nth: nth(at, *system) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::svg::STYLE;

    const ALL: [System; 8] = [
        System::Polylogue,
        System::Kafka,
        System::Rabbitmq,
        System::Pulsar,
        System::Rocketmq,
        System::Tubemq,
        System::Null,
        System::Other,
    ];

    #[test]
    fn every_system_has_a_colour_in_light_and_dark() {
        for system in ALL {
            let variable = format!("--{}:", system.class());
            // Light, dark because the reader's system is, and dark because the reader asked for it.
            assert_eq!(style().matches(&variable).count(), 3, "{variable}");
            assert!(STYLE.contains(&format!(".{}{{", system.class())), "{system:?}");
        }
        for way in 1..WAYS {
            assert!(STYLE.contains(&format!(".v{way}")), "{way}");
        }
    }

    #[test]
    fn sides_of_a_system_share_a_colour_and_differ_in_their_lines() {
        let systems = ["kafka", "polylogue-sync", "kafka-fsync", "127.0.0.1:9092"].map(System::of_target);
        let classes: Vec<String> = looks(&systems).into_iter().map(Look::class).collect();
        assert_eq!(classes, ["s-kafka v0", "s-polylogue v0", "s-kafka v1", "s-other v0"]);
    }
}
