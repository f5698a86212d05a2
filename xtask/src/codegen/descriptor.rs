//! Kafka's message descriptors as they are written: JSON with comments.

use serde::Deserialize;
use serde_json::Value;
use std::fmt;

/// One file of the descriptors.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Descriptor {
    /// The message's name.
    pub name: String,
    /// "request", "response", "header" or "data".
    #[serde(rename = "type")]
    pub kind: String,
    /// The key of a request or response.
    #[serde(default)]
    pub api_key: Option<i16>,
    /// Who speaks it: of no use to us.
    #[serde(default, rename = "listeners")]
    _listeners: Vec<String>,
    /// The versions that exist.
    pub valid_versions: String,
    /// The versions with compact lengths and tagged fields.
    #[serde(default = "none")]
    pub flexible_versions: String,
    /// Whether the newest version may still change.
    #[serde(default)]
    pub latest_version_unstable: bool,
    /// The fields; a message that was removed has none.
    #[serde(default)]
    pub fields: Vec<FieldDescriptor>,
    /// Structs that several fields share.
    #[serde(default)]
    pub common_structs: Vec<StructDescriptor>,
}

/// A struct that is defined beside the fields.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct StructDescriptor {
    /// Its name.
    pub name: String,
    /// The versions that have it; the fields that use it say so too.
    #[serde(rename = "versions")]
    _versions: String,
    /// Its fields.
    pub fields: Vec<FieldDescriptor>,
}

/// One field.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct FieldDescriptor {
    /// Its name, in CamelCase.
    pub name: String,
    /// A primitive type, a struct's name, or either behind "[]".
    #[serde(rename = "type")]
    pub kind: String,
    /// The versions that have it.
    pub versions: String,
    /// The versions in which it may be null.
    #[serde(default = "none")]
    pub nullable_versions: String,
    /// The versions in which it is a tagged field.
    #[serde(default = "none")]
    pub tagged_versions: String,
    /// Its tag.
    #[serde(default)]
    pub tag: Option<u32>,
    /// Another range of compact lengths than the message has.
    #[serde(default)]
    pub flexible_versions: Option<String>,
    /// Its default, as text or as a JSON value.
    #[serde(default)]
    pub default: Option<Value>,
    /// Whether it may be left out of versions that lack it although it is set.
    #[serde(default)]
    pub ignorable: bool,
    /// What it means.
    #[serde(default)]
    pub about: String,
    /// What kind of thing it names: of no use to us.
    #[serde(default, rename = "entityType")]
    _entity_type: String,
    /// A set in Kafka's own code: a list in ours.
    #[serde(default, rename = "mapKey")]
    _map_key: bool,
    /// How Kafka's own code holds it: ours shares the frame always.
    #[serde(default, rename = "zeroCopy")]
    _zero_copy: bool,
    /// The fields of the struct that is defined here.
    #[serde(default)]
    pub fields: Vec<FieldDescriptor>,
}

fn none() -> String {
    "none".to_owned()
}

impl Descriptor {
    /// Reads a descriptor, comments and all.
    pub(super) fn parse(text: &str) -> Result<Descriptor, serde_json::Error> {
        // every comment of the descriptors has its line to itself
        let json: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        serde_json::from_str(&json)
    }
}

/// A range of versions, possibly empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Versions {
    /// The lowest.
    pub min: i16,
    /// The highest.
    pub max: i16,
}

impl Versions {
    /// No version at all.
    pub(super) const NONE: Versions = Versions { min: 0, max: -1 };

    /// Reads "none", "3", "3-7" or "3+".
    pub(super) fn parse(text: &str) -> Result<Versions, String> {
        let number = |text: &str| text.trim().parse::<i16>().map_err(|_| format!("bad versions: {text}"));
        if text == "none" {
            Ok(Versions::NONE)
        } else if let Some(min) = text.strip_suffix('+') {
            Ok(Versions { min: number(min)?, max: i16::MAX })
        } else if let Some((min, max)) = text.split_once('-') {
            Ok(Versions { min: number(min)?, max: number(max)? })
        } else {
            number(text).map(|version| Versions { min: version, max: version })
        }
    }

    /// Whether there is no version in it.
    pub(super) fn is_empty(self) -> bool {
        self.min > self.max
    }

    /// The versions in both.
    pub(super) fn and(self, other: Versions) -> Versions {
        let both = Versions { min: self.min.max(other.min), max: self.max.min(other.max) };
        if both.is_empty() { Versions::NONE } else { both }
    }

    /// The smallest range that holds both.
    pub(super) fn hull(self, other: Versions) -> Versions {
        if self.is_empty() {
            other
        } else if other.is_empty() {
            self
        } else {
            Versions { min: self.min.min(other.min), max: self.max.max(other.max) }
        }
    }

    /// Whether it has `version`.
    pub(super) fn has(self, version: i16) -> bool {
        self.min <= version && version <= self.max
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max { write!(f, "{}", self.min) } else { write!(f, "{}-{}", self.min, self.max) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_intersected() {
        let parse = |text| Versions::parse(text).unwrap();
        assert_eq!(parse("none"), Versions::NONE);
        assert_eq!(parse("3"), Versions { min: 3, max: 3 });
        assert_eq!(parse("3-7"), Versions { min: 3, max: 7 });
        assert_eq!(parse("3+").and(parse("0-9")), Versions { min: 3, max: 9 });
        assert_eq!(parse("0-2").and(parse("3-9")), Versions::NONE);
        assert_eq!(parse("4-5").hull(parse("0-3")), Versions { min: 0, max: 5 });
        assert_eq!(Versions::NONE.hull(parse("1")), parse("1"));
        assert!(Versions::parse("3..7").is_err());
    }

    #[test]
    fn comments_are_no_part_of_a_descriptor_and_unknown_attributes_are_an_error() {
        let text = r#"
            // licence
            { "name": "A", "type": "data", // never at the end of a line
        "#;
        assert!(Descriptor::parse(text).is_err());
        let text = r#"
            // "name": "B",
            { "name": "A", "type": "data", "validVersions": "0" }
        "#;
        assert_eq!(Descriptor::parse(text).unwrap().name, "A");
        assert!(Descriptor::parse(&text.replace("\"0\"", "\"0\", \"new\": 1")).is_err());
    }
}
