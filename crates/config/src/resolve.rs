//! Which value holds: defaults, then the file, the environment, the command line.

use super::table::{OPTIONS, OptionDef, Section};
use super::{env, file};
use polylogue_kafka::config::{BROKER_SETTINGS, known_broker_names, nearest};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Where a value comes from. A later one goes before an earlier one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Source {
    /// It is not set.
    Default,
    /// The configuration file.
    File(PathBuf),
    /// A variable of the environment, by its name.
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

/// A value as it was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Given {
    /// `section.name`.
    pub name: String,
    /// The text; canonical once it went through [`Resolved::from_sources`].
    pub value: String,
    /// By whom.
    pub source: Source,
}

/// Everything that can give values.
#[derive(Clone, Default, Debug)]
pub struct Sources {
    /// `--config`; without it [`super::CONFIG_VARIABLE`] names the file, or there is none.
    pub file: Option<PathBuf>,
    /// The environment.
    pub variables: Vec<(String, String)>,
    /// `--set` and the flags, as `section.name` and value.
    pub command_line: Vec<(String, String)>,
}

/// What is wrong with the configuration, in one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OptionError(pub String);

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OptionError {}

/// An option with the value that holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Where it stands.
    pub section: Section,
    /// Its name within the section.
    pub name: String,
    /// The type of its value, in words.
    pub kind: String,
    /// The value when nothing is said.
    pub default: String,
    /// What it does.
    pub doc: String,
    /// The value that holds.
    pub value: String,
    /// Who set it.
    pub source: Source,
}

/// Every value that was given, checked by its type.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Resolved {
    given: BTreeMap<String, Given>,
}

impl Resolved {
    /// Gathers and checks what the sources give. Kafka's settings are only checked for their section here:
    /// [`super::ServerConfig`] has Kafka's own code look at them.
    ///
    /// # Errors
    /// A file that cannot be read, a name that is not known, a value that does not fit.
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

    /// The canonical value that holds for an option.
    pub(super) fn value(&self, def: &OptionDef) -> &str {
        self.given.get(&def.full_name()).map_or(def.default, |given| given.value.as_str())
    }

    /// The number that holds for an option that is one.
    pub(super) fn number(&self, def: &OptionDef) -> u64 {
        def.kind.number(self.value(def))
    }

    /// Kafka's settings as they were given.
    pub(super) fn kafka(&self) -> BTreeMap<String, String> {
        let prefix = format!("{}.", Section::Kafka.name());
        self.given
            .values()
            .filter_map(|given| given.name.strip_prefix(&prefix).map(|name| (name.to_owned(), given.value.clone())))
            .collect()
    }

    /// Who gave an option, by `section.name`.
    pub(super) fn source(&self, full_name: &str) -> Source {
        self.given.get(full_name).map_or(Source::Default, |given| given.source.clone())
    }

    /// Every option with its value, ours first. Kafka's names without a meaning here are not among them.
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

/// Brings a value into canonical form.
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

/// The option of the same section whose name resembles this one.
fn resembling(full_name: &str) -> Option<String> {
    let (section, name) = full_name.split_once('.')?;
    let of_section = OPTIONS.iter().filter(|def| def.section.name() == section).map(|def| def.name);
    nearest(name, of_section).map(|meant| format!("{section}.{meant}"))
}

/// The error for a name that is not known, with the one that was probably meant.
pub(super) fn unknown(name: &str, source: &Source) -> OptionError {
    // A user who knows Kafka may leave the section out.
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
