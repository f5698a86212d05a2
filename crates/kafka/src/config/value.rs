//! Types and bounds of configuration values, as Kafka's `ConfigDef` reads and checks them.

use super::ConfigError;

/// The type of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `true` or `false`, in any case.
    Boolean,
    /// 16 bits, signed.
    Short,
    /// 32 bits, signed.
    Int,
    /// 64 bits, signed.
    Long,
    /// A floating point number.
    Double,
    /// Text.
    String,
    /// Texts with commas between.
    List,
    /// The name of a Java class.
    Class,
    /// A secret, which is never shown.
    Password,
}

impl Kind {
    /// The type's name in Kafka's `ConfigDef`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Boolean => "BOOLEAN",
            Kind::Short => "SHORT",
            Kind::Int => "INT",
            Kind::Long => "LONG",
            Kind::Double => "DOUBLE",
            Kind::String => "STRING",
            Kind::List => "LIST",
            Kind::Class => "CLASS",
            Kind::Password => "PASSWORD",
        }
    }

    /// The type's number in a DescribeConfigs response (`DescribeConfigsResponse.ConfigType`).
    #[must_use]
    pub const fn code(self) -> i8 {
        match self {
            Kind::Boolean => 1,
            Kind::String => 2,
            Kind::Int => 3,
            Kind::Short => 4,
            Kind::Long => 5,
            Kind::Double => 6,
            Kind::List => 7,
            Kind::Class => 8,
            Kind::Password => 9,
        }
    }

    /// The type of that name in Kafka's `ConfigDef`. What has only a name there (`DYNAMIC` in our table) is a number.
    pub(super) fn of_name(name: &str) -> Option<Kind> {
        Some(match name {
            "BOOLEAN" => Kind::Boolean,
            "SHORT" => Kind::Short,
            "INT" => Kind::Int,
            "LONG" | "DYNAMIC" => Kind::Long,
            "DOUBLE" => Kind::Double,
            "STRING" => Kind::String,
            "LIST" => Kind::List,
            "CLASS" => Kind::Class,
            "PASSWORD" => Kind::Password,
            _ => return None,
        })
    }
}

/// Which values of a type are taken.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Valid {
    /// All.
    Any,
    /// Numbers from this one on.
    AtLeast(i64),
    /// Numbers from the first to the second.
    Between(i64, i64),
    /// Numbers from the first to the second, and the third.
    BetweenOr(i64, i64, i64),
    /// Exactly these texts; of a list, each element.
    OneOf(&'static [&'static str]),
    /// `*`, or pairs `partition:broker`.
    Replicas,
}

/// A value that was read and found valid.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// Of [`Kind::Boolean`].
    Boolean(bool),
    /// Of [`Kind::Short`], [`Kind::Int`] and [`Kind::Long`].
    Number(i64),
    /// Of [`Kind::Double`].
    Double(f64),
    /// Of [`Kind::String`], [`Kind::Class`] and [`Kind::Password`].
    String(String),
    /// Of [`Kind::List`], without duplicates.
    List(Vec<String>),
}

impl Value {
    /// The text under which the value is kept and shown: numbers in decimal, no blanks, no duplicates.
    #[must_use]
    pub fn canonical(&self) -> String {
        match self {
            Value::Boolean(b) => b.to_string(),
            Value::Number(n) => n.to_string(),
            // `Debug` keeps the ".0" that Java shows too.
            Value::Double(d) => format!("{d:?}"),
            Value::String(s) => s.clone(),
            Value::List(items) => items.join(","),
        }
    }

    /// The number, of a number.
    pub(super) fn number(&self) -> Option<i64> {
        match self {
            Value::Number(n) => Some(*n),
            _ => None,
        }
    }

    /// The truth value, of one.
    pub(super) fn boolean(&self) -> Option<bool> {
        match self {
            Value::Boolean(b) => Some(*b),
            _ => None,
        }
    }
}

/// Reads the value given for `name`.
///
/// # Errors
/// [`ConfigError::Invalid`] or [`ConfigError::EmptyElement`].
pub(super) fn read(name: &str, kind: Kind, valid: Valid, text: &str) -> Result<Value, ConfigError> {
    // As Java's String.trim.
    let trimmed = text.trim_matches(|c| c <= ' ');
    let invalid = |reason: String| ConfigError::Invalid { name: name.to_owned(), value: text.to_owned(), reason };
    let value = match kind {
        Kind::Boolean => match trimmed.to_ascii_lowercase().as_str() {
            "true" => Value::Boolean(true),
            "false" => Value::Boolean(false),
            _ => return Err(invalid("Expected value to be either true or false".to_owned())),
        },
        Kind::Short => Value::Number(i64::from(trimmed.parse::<i16>().map_err(|_| invalid(not_a(kind)))?)),
        Kind::Int => Value::Number(i64::from(trimmed.parse::<i32>().map_err(|_| invalid(not_a(kind)))?)),
        Kind::Long => Value::Number(trimmed.parse::<i64>().map_err(|_| invalid(not_a(kind)))?),
        Kind::Double => match trimmed.parse::<f64>() {
            Ok(number) if number.is_finite() => Value::Double(number),
            _ => return Err(invalid(not_a(kind))),
        },
        Kind::String | Kind::Class | Kind::Password => Value::String(trimmed.to_owned()),
        Kind::List => Value::List(elements(name, trimmed)?),
    };
    check(name, valid, &value)?;
    Ok(value)
}

fn not_a(kind: Kind) -> String {
    format!("Not a number of type {}", kind.name())
}

/// Splits a list at its commas. Blanks around them do not count, a duplicate counts once.
fn elements(name: &str, text: &str) -> Result<Vec<String>, ConfigError> {
    let mut items: Vec<String> = Vec::new();
    if text.is_empty() {
        return Ok(items);
    }
    for item in text.split(',') {
        let item = item.trim_matches(|c| c <= ' ');
        if item.is_empty() {
            return Err(ConfigError::EmptyElement { name: name.to_owned() });
        }
        if !items.iter().any(|known| known == item) {
            items.push(item.to_owned());
        }
    }
    Ok(items)
}

fn check(name: &str, valid: Valid, value: &Value) -> Result<(), ConfigError> {
    let fault = match (valid, value) {
        (Valid::AtLeast(min), Value::Number(n)) if *n < min => {
            Some((n.to_string(), format!("Value must be at least {min}")))
        }
        // The bounds of both kinds of number are small enough for a double to hold them exactly.
        (Valid::Between(min, max), Value::Number(n)) => out_of(min, max, *n as f64).map(|r| (n.to_string(), r)),
        (Valid::Between(min, max), Value::Double(d)) => out_of(min, max, *d).map(|r| (value.canonical(), r)),
        (Valid::BetweenOr(min, max, or), Value::Number(n)) if (*n < min || *n > max) && *n != or => {
            Some((n.to_string(), format!("Value must be between {min} and {max} or equal to {or}")))
        }
        (Valid::OneOf(known), Value::String(s)) => none_of(known, s).map(|reason| (s.clone(), reason)),
        (Valid::OneOf(known), Value::List(items)) => {
            items.iter().find_map(|item| none_of(known, item).map(|reason| (item.clone(), reason)))
        }
        (Valid::Replicas, Value::List(items)) if !are_replicas(items) => Some((
            format!("[{}]", items.join(", ")),
            format!(
                "{name} must be the literal '*' or a list of replicas in the following format: \
                 [partitionId]:[brokerId],[partitionId]:[brokerId],..."
            ),
        )),
        _ => None,
    };
    match fault {
        Some((value, reason)) => Err(ConfigError::Invalid { name: name.to_owned(), value, reason }),
        None => Ok(()),
    }
}

fn none_of(known: &[&str], text: &str) -> Option<String> {
    (!known.contains(&text)).then(|| format!("String must be one of: {}", known.join(", ")))
}

fn out_of(min: i64, max: i64, number: f64) -> Option<String> {
    if number < min as f64 {
        Some(format!("Value must be at least {min}"))
    } else if number > max as f64 {
        Some(format!("Value must be no more than {max}"))
    } else {
        None
    }
}

fn are_replicas(items: &[String]) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_pair = |item: &String| item.split_once(':').is_some_and(|(p, b)| is_number(p) && is_number(b));
    matches!(items, [only] if only == "*") || items.iter().all(is_pair)
}
