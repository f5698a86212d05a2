//! JSON kept as text: two values are equal when their texts are, before and after a restart.

use bytestring::ByteString;
use serde_json::Value;

/// The longest JSON of one parameter or policy. Bytes.
pub const JSON_BYTES_MAX: usize = 1 << 20;

/// A JSON value in its shortest text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Json(ByteString);

impl Json {
    /// Serializes a value.
    #[must_use]
    pub fn new(value: &Value) -> Json {
        Json(ByteString::from(value.to_string()))
    }

    /// Takes a text that [`Json::new`] wrote.
    ///
    /// # Errors
    /// When it is not JSON.
    pub(crate) fn from_text(text: &str) -> Result<Json, serde_json::Error> {
        let _: Value = serde_json::from_str(text)?;
        Ok(Json(ByteString::from(text)))
    }

    /// Returns the text.
    #[must_use]
    pub fn text(&self) -> &ByteString {
        &self.0
    }

    /// Parses the value.
    #[must_use]
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or(Value::Null)
    }
}

/// Prints a value like Erlang's `~p`, as RabbitMQ's texts do.
pub(crate) fn erlang(value: &Value) -> String {
    match value {
        Value::String(text) => format!("<<\"{text}\">>"),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(erlang).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(map) => {
            let items: Vec<String> =
                map.iter().map(|(key, value)| format!("<<\"{key}\">> => {}", erlang(value))).collect();
            format!("#{{{}}}", items.join(","))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_print_as_erlang_does() {
        assert_eq!(erlang(&json!("a")), "<<\"a\">>");
        assert_eq!(erlang(&json!([1, true, {"k": "v"}])), "[1,true,#{<<\"k\">> => <<\"v\">>}]");
    }

    #[test]
    fn the_text_does_not_depend_on_spaces() {
        let value: Value = serde_json::from_str("{ \"b\" : 1 }").unwrap();
        assert_eq!(Json::new(&value), Json::new(&json!({"b": 1})));
        assert_eq!(Json::new(&value).value(), value);
        assert!(Json::from_text("{").is_err());
    }
}
