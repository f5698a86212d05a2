//! Colours and line styles of systems, the same in all charts. Colours are distinguishable for colour-blind readers; line styles
//! distinguish sides without colours.

use crate::results::ResultLine;
use std::fmt::Write;

/// Colours by CSS variable: light, dark. Those of systems are of a palette for colour-blind readers.
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

/// Returns the style sheet of the colours: light or dark by the browser's preference, or by the page's attribute `data-theme`.
#[must_use]
pub fn style() -> String {
    let (light, dark) = (variables(false), variables(true));
    format!(
        ":root{{{light}}}\n@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}\n\
         :root[data-theme=dark]{{{dark}}}\n"
    )
}

/// A system, in any profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// polylogue.
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
    /// The null broker, which responds at once: a floor, not a peer.
    Null,
    /// Another broker, by its address.
    Other,
}

impl System {
    /// Returns the system of a target, such as `kafka-tuned`.
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

    /// Returns the system of a line, by the target in its conditions, or else by its side.
    #[must_use]
    pub fn of_line(line: &ResultLine) -> System {
        System::of_target(line.conditions.as_ref().map_or(line.side.as_str(), |reported| &reported.target))
    }

    /// Returns the CSS class of its marks.
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

/// The appearance of a side: the colour of its system, and a line style.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// The system, which decides the colour.
    pub system: System,
    /// Index among the sides of this system, which decides the line style: solid, dashed, dotted.
    pub nth: usize,
}

/// Number of line styles.
const LINE_STYLES: usize = 4;

impl Look {
    /// Returns the CSS classes of its marks.
    #[must_use]
    pub fn class(self) -> String {
        format!("{} v{}", self.system.class(), self.nth % LINE_STYLES)
    }
}

/// Returns the appearance of each of these sides.
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
            // Light, dark by the browser's preference, and dark by the page's attribute.
            assert_eq!(style().matches(&variable).count(), 3, "{variable}");
            assert!(STYLE.contains(&format!(".{}{{", system.class())), "{system:?}");
        }
        for way in 1..LINE_STYLES {
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
