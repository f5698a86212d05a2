//! Request bodies. Clients send booleans and numbers as strings, too, and omit bodies.

use super::error::Failure;
use bytestring::ByteString;
use polylogue_amqp_model::arguments_of_json;
use polylogue_router::Argument;
use serde_json::{Map, Value};

/// A JSON object.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Body(pub(super) Map<String, Value>);

impl Body {
    /// Parses a body; an empty one is an empty object.
    ///
    /// # Errors
    /// 400 if it is not a JSON object.
    pub(super) fn parse(bytes: &[u8]) -> Result<Body, Failure> {
        if matches!(bytes, b"" | b"null" | b"undefined") {
            return Ok(Body::default());
        }
        match serde_json::from_slice(bytes) {
            Ok(Value::Object(map)) => Ok(Body(map)),
            Ok(Value::String(_)) => Err(Failure::bad(
                "invalid payload: the request body JSON-decoded to a string. Is the input doubly-JSON-encoded?",
            )),
            _ => Err(Failure::bad("not_json")),
        }
    }

    /// Returns the value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    /// Checks that the keys are present.
    ///
    /// # Errors
    /// 400 with the missing keys.
    pub(super) fn require(&self, keys: &[&str]) -> Result<(), Failure> {
        let missing: Vec<&str> = keys.iter().copied().filter(|key| self.get(key).is_none()).collect();
        if missing.is_empty() { Ok(()) } else { Err(Failure::missing_keys(&missing)) }
    }

    /// Returns an optional string.
    ///
    /// # Errors
    /// 400 for another type.
    pub(super) fn text(&self, key: &str) -> Result<Option<ByteString>, Failure> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str().into())),
            Some(other) => Err(Failure::bad(format!("{key} should be binary, actually was {other}"))),
        }
    }

    /// Returns a required string.
    ///
    /// # Errors
    /// 400
    pub(super) fn required(&self, key: &str) -> Result<ByteString, Failure> {
        self.text(key)?.ok_or_else(|| Failure::missing_keys(&[key]))
    }

    /// Returns a boolean, `false` if it is missing.
    ///
    /// # Errors
    /// 400 for another type.
    pub(super) fn flag(&self, key: &str) -> Result<bool, Failure> {
        match self.get(key) {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(*value),
            Some(Value::String(text)) if text == "true" => Ok(true),
            Some(Value::String(text)) if text == "false" => Ok(false),
            Some(other) => Err(Failure::bad(format!("{key} should be boolean, actually was {other}"))),
        }
    }

    /// Returns an optional integer.
    ///
    /// # Errors
    /// 400 for another type.
    pub(super) fn integer(&self, key: &str) -> Result<Option<i64>, Failure> {
        let number = match self.get(key) {
            None => return Ok(None),
            Some(Value::Number(number)) => number.as_i64().or_else(|| number.as_f64().map(|float| float as i64)),
            Some(Value::String(text)) => text.parse().ok(),
            Some(_) => None,
        };
        number.map(Some).ok_or_else(|| {
            Failure::bad(format!(
                "{key} should be an integer, actually was {}",
                self.0.get(key).unwrap_or(&Value::Null)
            ))
        })
    }

    /// Returns the arguments of a declaration. RabbitMQ's old tools send an empty array for none.
    ///
    /// # Errors
    /// 400 for another type, or values that an AMQP table cannot hold.
    pub(super) fn arguments(&self) -> Result<Vec<Argument>, Failure> {
        match self.get("arguments") {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) if items.is_empty() => Ok(Vec::new()),
            Some(Value::Object(map)) => arguments_of_json(map).map_err(|error| Failure::bad(error.0)),
            Some(other) => Err(Failure::bad(format!("arguments should be an object, actually was {other}"))),
        }
    }

    /// Returns the tags: an array, or a comma-separated string.
    ///
    /// # Errors
    /// 400 for another type.
    pub(super) fn tags(&self) -> Result<Option<Vec<ByteString>>, Failure> {
        match self.get("tags") {
            None => Ok(None),
            Some(Value::String(text)) => {
                let tags = text.split(',').map(str::trim).filter(|tag| !tag.is_empty());
                Ok(Some(tags.map(ByteString::from).collect()))
            }
            Some(Value::Array(items)) => {
                let tags: Option<Vec<ByteString>> = items.iter().map(|item| item.as_str().map(Into::into)).collect();
                tags.map(Some).ok_or_else(|| Failure::bad("tags should be strings"))
            }
            Some(_) => Err(Failure::bad("tags should be strings")),
        }
    }
}

/// Returns the file of a form (`multipart/form-data`), as the management UI uploads definitions. `None` if the body is not a form.
pub(super) fn file_of_form<'b>(content_type: &str, body: &'b [u8]) -> Option<&'b [u8]> {
    let boundary = content_type.strip_prefix("multipart/form-data")?.split("boundary=").nth(1)?;
    let boundary = boundary.split(';').next()?.trim().trim_matches('"');
    let delimiter = format!("--{boundary}");
    let mut left = body;
    while let Some(from) = find(left, delimiter.as_bytes()) {
        left = left.get(from + delimiter.len()..)?;
        let head_len = find(left, b"\r\n\r\n")?;
        let (head, content) = left.split_at_checked(head_len)?;
        let content = content.get(4..)?;
        let end = find(content, format!("\r\n{delimiter}").as_bytes())?;
        if find(head, b"name=\"file\"").is_some() {
            return content.get(..end);
        }
        left = content.get(end + 2..)?;
    }
    None
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len().max(1)).position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn body(value: Value) -> Body {
        Body::parse(value.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn bodies_are_read_as_loosely_as_rabbitmq_reads_them() {
        assert_eq!(Body::parse(b"").unwrap(), Body::default());
        assert_eq!(Body::parse(b"null").unwrap(), Body::default());
        let read = body(json!({"durable": "true", "x": false, "n": "5", "f": 7.0, "arguments": [], "tags": "a, b,"}));
        assert!(read.flag("durable").unwrap() && !read.flag("x").unwrap() && !read.flag("none").unwrap());
        assert_eq!(read.integer("n").unwrap(), Some(5));
        assert_eq!(read.integer("f").unwrap(), Some(7));
        assert!(read.arguments().unwrap().is_empty());
        assert_eq!(read.tags().unwrap().unwrap(), ["a", "b"]);
    }

    #[test]
    fn bodies_that_make_no_sense_are_refused() {
        for text in [&b"{"[..], b"[]", b"5", b"\xff"] {
            assert_eq!(Body::parse(text).unwrap_err(), Failure::bad("not_json"));
        }
        assert!(Body::parse(b"\"{}\"").unwrap_err().reason.starts_with("invalid payload"));
        let read = body(json!({"durable": "yes", "n": "x", "arguments": 1, "tags": [1], "t": 5}));
        assert!(read.flag("durable").is_err() && read.integer("n").is_err() && read.arguments().is_err());
        assert!(read.tags().is_err() && read.text("t").is_err());
        let missing = read.require(&["t", "a", "b"]).unwrap_err();
        assert_eq!(missing, Failure::bad("[{key_missing,a},{key_missing,b}]"));
    }

    #[test]
    fn a_form_has_a_file() {
        let form = b"--xx\r\nContent-Disposition: form-data; name=\"vhost\"\r\n\r\n/\r\n--xx\r\n\
            Content-Disposition: form-data; name=\"file\"; filename=\"d.json\"\r\n\r\n{\"a\":1}\r\n--xx--\r\n";
        assert_eq!(file_of_form("multipart/form-data; boundary=xx", form), Some(&b"{\"a\":1}"[..]));
        assert_eq!(file_of_form("application/json", form), None);
        assert_eq!(file_of_form("multipart/form-data; boundary=yy", form), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(body) = Body::parse(&bytes) {
                _ = (body.arguments(), body.tags(), body.flag("a"), body.integer("a"), body.text("a"));
            }
            _ = file_of_form("multipart/form-data; boundary=", &bytes);
            _ = file_of_form("multipart/form-data; boundary=a", &bytes);
        }
    }
}
