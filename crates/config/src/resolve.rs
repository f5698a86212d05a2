//! Resolves the value of each option: defaults, then the file, the environment, the command line.

use super::table::{OPTIONS, OptionDef, Section};
use super::{env, file};
use polylogue_kafka::config::{BROKER_SETTINGS, known_broker_names, nearest};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// The source of a value. Later ones take precedence.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Source {
    /// The built-in default.
    Default,
    /// The configuration file.
    File(PathBuf),
    /// An environment variable, by name.
    Environment(String),
    /// The command line.
    CommandLine,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("the defaults"),
            Source::File(path) => write!(f, "{}", path.display()),
            Source::Environment(variable) => f.write_str(variable),
            Source::CommandLine => f.write_str("the command line"),
        }
    }
}

/// A value as given by a source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Given {
    /// `section.name`.
    pub name: String,
    /// The value; canonical once it has passed [`Resolved::from_sources`].
    pub value: String,
    /// Its source.
    pub source: Source,
}

/// All sources of values.
#[derive(Clone, Default, Debug)]
pub struct Sources {
    /// `--config`; if missing, [`super::CONFIG_VARIABLE`] names the file, if any.
    pub file: Option<PathBuf>,
    /// The environment variables.
    pub variables: Vec<(String, String)>,
    /// `--set` and the flags, as `section.name` and value.
    pub command_line: Vec<(String, String)>,
}

/// A configuration error, in one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OptionError(pub String);

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OptionError {}

/// An option with its effective value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Its section.
    pub section: Section,
    /// Its name within the section.
    pub name: String,
    /// The type of its value.
    pub kind: String,
    /// The default value.
    pub default: String,
    /// The description.
    pub doc: String,
    /// The effective value.
    pub value: String,
    /// The source of the value.
    pub source: Source,
}

/// All given values, with types checked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Resolved {
    given: BTreeMap<String, Given>,
}

impl Resolved {
    /// Collects and checks the values of the sources. Of Kafka's settings only the section is checked here; [`super::ServerConfig`] has
    /// Kafka's own code check the rest.
    ///
    /// # Errors
    /// A file that cannot be read, an unknown name, an invalid value.
    pub fn from_sources(sources: &Sources) -> Result<Resolved, OptionError> {
        let path = sources.file.clone().or_else(|| env::config_file(&sources.variables));
        let mut layers = Vec::new();
        if let Some(path) = path {
            layers.extend(file::read(&path)?);
        }
        layers.extend(env::read(&sources.variables)?);
        let mut seen: Vec<&str> = Vec::new();
        for (name, value) in &sources.command_line {
            if seen.contains(&name.as_str()) {
                return Err(OptionError(format!("{name} is given twice on the command line")));
            }
            seen.push(name);
            layers.push(Given { name: name.clone(), value: value.clone(), source: Source::CommandLine });
        }
        let mut given = BTreeMap::new();
        for one in layers {
            let one = checked(one)?;
            given.insert(one.name.clone(), one);
        }
        Ok(Resolved { given })
    }

    /// Returns an option's effective value, in canonical form.
    pub(super) fn value(&self, def: &OptionDef) -> &str {
        self.given.get(&def.full_name()).map_or(def.default, |given| given.value.as_str())
    }

    /// Returns the effective value of a numeric option.
    pub(super) fn number(&self, def: &OptionDef) -> u64 {
        def.kind.number(self.value(def))
    }

    /// Returns Kafka's settings as given.
    pub(super) fn kafka(&self) -> BTreeMap<String, String> {
        let prefix = format!("{}.", Section::Kafka.name());
        self.given
            .values()
            .filter_map(|given| given.name.strip_prefix(&prefix).map(|name| (name.to_owned(), given.value.clone())))
            .collect()
    }

    /// Returns the source of an option, by `section.name`.
    pub(super) fn source(&self, full_name: &str) -> Source {
        self.given.get(full_name).map_or(Source::Default, |given| given.source.clone())
    }

    /// Returns every option with its value, polylogue's own first. Kafka settings without effect are left out.
    #[must_use]
    pub fn settings(&self) -> Vec<Setting> {
        let own = OPTIONS.iter().map(|def| Setting {
            section: def.section,
            name: def.name.to_owned(),
            kind: def.kind.describe(),
            default: def.default.to_owned(),
            doc: def.doc.to_owned(),
            value: self.value(def).to_owned(),
            source: self.source(&def.full_name()),
        });
        let kafka = BROKER_SETTINGS.iter().map(|setting| {
            let full_name = format!("{}.{}", Section::Kafka.name(), setting.name);
            let given = self.given.get(&full_name);
            Setting {
                section: Section::Kafka,
                name: setting.name.to_owned(),
                kind: setting.kind.name().to_ascii_lowercase(),
                default: setting.default.to_owned(),
                doc: setting.doc.to_owned(),
                value: given.map_or(setting.default, |given| given.value.as_str()).to_owned(),
                source: self.source(&full_name),
            }
        });
        own.chain(kafka).collect()
    }
}

/// Converts a value to canonical form.
fn checked(given: Given) -> Result<Given, OptionError> {
    let Given { name, value, source } = given;
    if name.strip_prefix("kafka.").is_some_and(|rest| !rest.is_empty()) {
        return Ok(Given { name, value, source });
    }
    let Some(def) = OPTIONS.iter().find(|def| def.full_name() == name) else {
        return Err(unknown(&name, &source));
    };
    match def.kind.canonical(&value) {
        Ok(value) => Ok(Given { name, value, source }),
        Err(expected) => Err(OptionError(format!("{name} = \"{value}\" (from {source}): {expected}"))),
    }
}

/// Returns an option of the same section with a similar name.
fn resembling(full_name: &str) -> Option<String> {
    let (section, name) = full_name.split_once('.')?;
    let of_section = OPTIONS.iter().filter(|def| def.section.name() == section).map(|def| def.name);
    nearest(name, of_section).map(|meant| format!("{section}.{meant}"))
}

/// Returns the error for an unknown name, with a suggestion.
pub(super) fn unknown(name: &str, source: &Source) -> OptionError {
    // Users who know Kafka may omit the section.
    let without_section = known_broker_names()
        .find(|kafka| *kafka == name)
        .map(|kafka| format!("kafka.{kafka}"))
        .or_else(|| OPTIONS.iter().find(|def| def.name == name).map(|def| def.full_name()));
    let meant = without_section.or_else(|| resembling(name));
    OptionError(match meant {
        Some(meant) => format!("unknown option {name} (from {source}); did you mean {meant}?"),
        None => format!("unknown option {name} (from {source}); `polylogue config` lists all"),
    })
}

#[cfg(test)]
mod tests;
