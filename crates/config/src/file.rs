//! The configuration file: TOML with the sections of [`Section`].

use super::resolve::{Given, OptionError, Source};
use super::table::Section;
use polylogue_kafka::config::nearest;
use std::path::Path;
use toml::{Table, Value};

/// The largest configuration file. Bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads all values of the file, in no particular order.
///
/// # Errors
/// It cannot be read, is not TOML, has an unknown section, or a value of an unsupported type.
pub(super) fn read(path: &Path) -> Result<Vec<Given>, OptionError> {
    let shown = path.display();
    let cannot = |why: String| OptionError(format!("cannot read the configuration file {shown}: {why}"));
    let size = std::fs::metadata(path).map_err(|e| cannot(e.to_string()))?.len();
    if size > FILE_BYTES_MAX {
        return Err(cannot(format!("it has {size} bytes, and {FILE_BYTES_MAX} are allowed")));
    }
    let text = std::fs::read_to_string(path).map_err(|e| cannot(e.to_string()))?;
    let table: Table = text.parse().map_err(|e: toml::de::Error| {
        let line = e.span().map_or(0, |span| text.get(..span.start).unwrap_or_default().lines().count().max(1));
        let message = e.message().replace('\n', ", ");
        OptionError(format!("the configuration file {shown} is not valid: line {line}: {message}"))
    })?;
    let mut given = Vec::new();
    for (section, value) in &table {
        let known = Section::ALL.map(Section::name);
        let (true, Value::Table(options)) = (known.contains(&section.as_str()), value) else {
            let meant = nearest(section, known.into_iter()).map_or(String::new(), |n| format!("; did you mean [{n}]?"));
            return Err(OptionError(format!(
                "unknown section {section} in {shown}{meant} (known are [{}])",
                known.join("], [")
            )));
        };
        flatten(section, options, path, &mut given)?;
    }
    Ok(given)
}

/// TOML parses a dotted key such as `num.partitions` as nested tables; here it is one name.
fn flatten(prefix: &str, table: &Table, path: &Path, given: &mut Vec<Given>) -> Result<(), OptionError> {
    for (key, value) in table {
        let name = format!("{prefix}.{key}");
        match value {
            Value::Table(inner) => flatten(&name, inner, path, given)?,
            Value::Array(items) => {
                let texts: Option<Vec<String>> = items.iter().map(scalar).collect();
                let value = texts.ok_or_else(|| unfit(&name, path))?.join(",");
                given.push(Given { name, value, source: Source::File(path.to_owned()) });
            }
            other => {
                let value = scalar(other).ok_or_else(|| unfit(&name, path))?;
                given.push(Given { name, value, source: Source::File(path.to_owned()) });
            }
        }
    }
    Ok(())
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(s) => Some(s.clone()),
        Value::Integer(i) => Some(i.to_string()),
        Value::Float(f) => Some(f.to_string()),
        Value::Boolean(b) => Some(b.to_string()),
        Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
    }
}

fn unfit(name: &str, path: &Path) -> OptionError {
    OptionError(format!("{name} in {}: expected a string, a number, a boolean or a list of them", path.display()))
}
