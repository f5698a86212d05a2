//! AMQP 0-9-1 field tables, as far as the metadata needs them: nested arrays and tables in arguments, `x-death`, and the same values as JSON.
//!
//! ```text
//! table   (short string name, value)*          without its length: as in `Value::Nested`
//! array   value*                               likewise
//! value   u8 letter, then, big endian
//!   t bool u8      b i8   B u8   s i16   u u16   I i32   i u32   l L i64   f f32   d f64
//!   D u8 digits, i32       T u64 seconds       S x u32 length and bytes       A F u32 length and content       V nothing
//! ```
//!
//! Source: the AMQP 0-9-1 specification (4.2.1) with RabbitMQ's errata. RabbitMQ has no `U`.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use md5::{Digest, Md5};
use polylogue_router::{Argument, Value};
use serde_json::{Map, Number};

/// The deepest nesting of arrays and tables that is decoded.
pub const DEPTH_MAX: usize = 128;

/// Why a table cannot be decoded, or has no equivalent in the other format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableError(pub &'static str);

impl std::fmt::Display for TableError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for TableError {}

const SHORT: TableError = TableError("the table ends in the middle of a value");

/// RabbitMQ's name for the type of a value with this letter.
#[must_use]
pub fn type_name(tag: u8) -> &'static str {
    match tag {
        b't' => "bool",
        b'b' => "byte",
        b'B' => "unsignedbyte",
        b's' => "short",
        b'u' => "unsignedshort",
        b'I' => "signedint",
        b'i' => "unsignedint",
        b'l' | b'L' => "long",
        b'f' => "float",
        b'd' => "double",
        b'D' => "decimal",
        b'T' => "timestamp",
        b'S' => "longstr",
        b'x' => "binary",
        b'A' => "array",
        b'F' => "table",
        _ => "void",
    }
}

/// A text argument.
pub(crate) fn text(name: &str, value: &str) -> Argument {
    Argument {
        name: Bytes::copy_from_slice(name.as_bytes()),
        tag: b'S',
        value: Value::Bytes(Bytes::copy_from_slice(value.as_bytes())),
    }
}

/// An integer argument of 64 bits.
pub(crate) fn long(name: &str, value: i64) -> Argument {
    Argument { name: Bytes::copy_from_slice(name.as_bytes()), tag: b'l', value: Value::Int(value) }
}

/// Encodes a table's content. A name is cut at 255 bytes.
#[must_use]
pub fn encode_table(fields: &[Argument]) -> Bytes {
    let mut out = Vec::new();
    for field in fields {
        let name = field.name.get(..255).unwrap_or(&field.name);
        out.push(name.len() as u8);
        out.extend_from_slice(name);
        encode_value(field.tag, &field.value, &mut out);
    }
    Bytes::from(out)
}

/// A digest of arguments, 22 letters and digits, which tools name bindings by. Equal arguments have equal digests, across versions of polylogue;
/// there are no other guarantees.
#[must_use]
pub fn arguments_digest(fields: &[Argument]) -> String {
    URL_SAFE_NO_PAD.encode(Md5::digest(encode_table(fields)))
}

/// Encodes an array's content.
#[must_use]
pub fn encode_array(items: &[(u8, Value)]) -> Bytes {
    let mut out = Vec::new();
    items.iter().for_each(|(tag, value)| encode_value(*tag, value, &mut out));
    Bytes::from(out)
}

fn encode_value(tag: u8, value: &Value, out: &mut Vec<u8>) {
    out.push(tag);
    match value {
        Value::Void => {}
        Value::Bool(v) => out.push(u8::from(*v)),
        Value::Int(v) => match tag {
            b'b' | b'B' => out.push(*v as u8),
            b's' | b'u' => out.extend_from_slice(&(*v as u16).to_be_bytes()),
            b'I' | b'i' => out.extend_from_slice(&(*v as u32).to_be_bytes()),
            _ => out.extend_from_slice(&v.to_be_bytes()),
        },
        Value::Float(v) if tag == b'f' => out.extend_from_slice(&(*v as f32).to_be_bytes()),
        Value::Float(v) => out.extend_from_slice(&v.to_be_bytes()),
        Value::Decimal(digits, v) => {
            out.push(*digits);
            out.extend_from_slice(&v.to_be_bytes());
        }
        Value::Timestamp(v) => out.extend_from_slice(&v.to_be_bytes()),
        Value::Bytes(v) | Value::Nested(_, v) => {
            out.extend_from_slice(&(v.len() as u32).to_be_bytes());
            out.extend_from_slice(v);
        }
    }
}

fn take<'a>(left: &mut &'a [u8], len: usize) -> Result<&'a [u8], TableError> {
    let (head, tail) = left.split_at_checked(len).ok_or(SHORT)?;
    *left = tail;
    Ok(head)
}

fn fixed<const N: usize>(left: &mut &[u8]) -> Result<[u8; N], TableError> {
    let mut out = [0; N];
    out.copy_from_slice(take(left, N)?);
    Ok(out)
}

fn long_bytes(left: &mut &[u8]) -> Result<Bytes, TableError> {
    let len = u32::from_be_bytes(fixed(left)?) as usize;
    Ok(Bytes::copy_from_slice(take(left, len)?))
}

/// Decodes a table's content.
///
/// # Errors
/// When it is truncated or has an unknown type letter.
pub fn decode_table(mut content: &[u8]) -> Result<Vec<Argument>, TableError> {
    let mut out = Vec::new();
    while !content.is_empty() {
        let len = usize::from(fixed::<1>(&mut content)?[0]);
        let name = Bytes::copy_from_slice(take(&mut content, len)?);
        let (tag, value) = decode_value(&mut content)?;
        out.push(Argument { name, tag, value });
    }
    Ok(out)
}

/// Decodes an array's content.
///
/// # Errors
/// As [`decode_table`].
pub fn decode_array(mut content: &[u8]) -> Result<Vec<(u8, Value)>, TableError> {
    let mut out = Vec::new();
    while !content.is_empty() {
        out.push(decode_value(&mut content)?);
    }
    Ok(out)
}

fn decode_value(left: &mut &[u8]) -> Result<(u8, Value), TableError> {
    let [tag] = fixed(left)?;
    let value = match tag {
        b't' => Value::Bool(fixed::<1>(left)? != [0]),
        b'b' => Value::Int(i64::from(i8::from_be_bytes(fixed(left)?))),
        b'B' => Value::Int(i64::from(u8::from_be_bytes(fixed(left)?))),
        b's' => Value::Int(i64::from(i16::from_be_bytes(fixed(left)?))),
        b'u' => Value::Int(i64::from(u16::from_be_bytes(fixed(left)?))),
        b'I' => Value::Int(i64::from(i32::from_be_bytes(fixed(left)?))),
        b'i' => Value::Int(i64::from(u32::from_be_bytes(fixed(left)?))),
        b'l' | b'L' => Value::Int(i64::from_be_bytes(fixed(left)?)),
        b'f' => Value::Float(f64::from(f32::from_be_bytes(fixed(left)?))),
        b'd' => Value::Float(f64::from_be_bytes(fixed(left)?)),
        b'D' => {
            let [digits] = fixed(left)?;
            Value::Decimal(digits, i32::from_be_bytes(fixed(left)?))
        }
        b'T' => Value::Timestamp(u64::from_be_bytes(fixed(left)?)),
        b'S' | b'x' => Value::Bytes(long_bytes(left)?),
        b'A' | b'F' => Value::Nested(tag, long_bytes(left)?),
        b'V' => Value::Void,
        _ => return Err(TableError("the table has a value of an unknown type")),
    };
    Ok((tag, value))
}

/// Converts a JSON object to arguments, with RabbitMQ's types: text, 64 bits, double, bool, array, table.
///
/// # Errors
/// For `null`, for integers beyond 64 bits, and for names longer than 255 bytes.
pub fn arguments_of_json(map: &Map<String, serde_json::Value>) -> Result<Vec<Argument>, TableError> {
    let one = |(name, value): (&String, &serde_json::Value)| {
        if name.len() > usize::from(u8::MAX) {
            return Err(TableError("the name of an argument is longer than 255 bytes"));
        }
        let (tag, value) = value_of_json(value)?;
        Ok(Argument { name: Bytes::copy_from_slice(name.as_bytes()), tag, value })
    };
    map.iter().map(one).collect()
}

fn value_of_json(value: &serde_json::Value) -> Result<(u8, Value), TableError> {
    use serde_json::Value as Json;
    Ok(match value {
        Json::Null => return Err(TableError("null_not_allowed")),
        Json::Bool(v) => (b't', Value::Bool(*v)),
        Json::Number(v) => match (v.as_i64(), v.is_f64().then(|| v.as_f64()).flatten()) {
            (Some(v), _) => (b'l', Value::Int(v)),
            (None, Some(v)) => (b'd', Value::Float(v)),
            _ => return Err(TableError("an integer does not fit into 64 bits")),
        },
        Json::String(v) => (b'S', Value::Bytes(Bytes::copy_from_slice(v.as_bytes()))),
        Json::Array(items) => {
            let items: Vec<_> = items.iter().map(value_of_json).collect::<Result<_, _>>()?;
            (b'A', Value::Nested(b'A', encode_array(&items)))
        }
        Json::Object(map) => (b'F', Value::Nested(b'F', encode_table(&arguments_of_json(map)?))),
    })
}

/// Converts arguments to a JSON object. Values without a JSON equivalent are shown as RabbitMQ does; values that are nested too deep or cannot be
/// decoded become `null`.
#[must_use]
pub fn json_of_arguments(arguments: &[Argument]) -> serde_json::Value {
    json_of_table(arguments, DEPTH_MAX)
}

fn json_of_table(arguments: &[Argument], depth: usize) -> serde_json::Value {
    let one = |a: &Argument| (String::from_utf8_lossy(&a.name).into_owned(), json_of_value(&a.value, depth));
    serde_json::Value::Object(arguments.iter().map(one).collect())
}

fn json_of_value(value: &Value, depth: usize) -> serde_json::Value {
    use serde_json::Value as Json;
    let float = |v: f64| Number::from_f64(v).map_or(Json::Null, Json::Number);
    match value {
        // As in RabbitMQ. `null` would be refused when an export is imported.
        Value::Void => Json::from("undefined"),
        Value::Bool(v) => Json::Bool(*v),
        Value::Int(v) => Json::from(*v),
        Value::Float(v) => float(*v),
        Value::Decimal(digits, v) => float(f64::from(*v) / 10f64.powi(i32::from(*digits))),
        Value::Timestamp(v) => Json::from(*v),
        Value::Bytes(v) => match std::str::from_utf8(v) {
            Ok(text) => Json::from(text),
            Err(_) => Json::from(format!("Not UTF-8, base64 is: {}", STANDARD.encode(v))),
        },
        Value::Nested(..) if depth == 0 => Json::Null,
        Value::Nested(b'A', content) => decode_array(content).map_or(Json::Null, |items| {
            Json::Array(items.iter().map(|(_, value)| json_of_value(value, depth - 1)).collect())
        }),
        Value::Nested(_, content) => {
            decode_table(content).map_or(Json::Null, |fields| json_of_table(&fields, depth - 1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn argument(name: &'static str, tag: u8, value: Value) -> Argument {
        Argument { name: Bytes::from_static(name.as_bytes()), tag, value }
    }

    #[test]
    fn every_type_round_trips() {
        let fields = [
            argument("t", b't', Value::Bool(true)),
            argument("b", b'b', Value::Int(-1)),
            argument("B", b'B', Value::Int(255)),
            argument("s", b's', Value::Int(-2)),
            argument("u", b'u', Value::Int(65_535)),
            argument("I", b'I', Value::Int(-3)),
            argument("i", b'i', Value::Int(4_294_967_295)),
            argument("l", b'l', Value::Int(i64::MIN)),
            argument("f", b'f', Value::Float(0.5)),
            argument("d", b'd', Value::Float(0.1)),
            argument("D", b'D', Value::Decimal(2, -125)),
            argument("T", b'T', Value::Timestamp(1 << 40)),
            argument("S", b'S', Value::Bytes(Bytes::from_static(b"text"))),
            argument("x", b'x', Value::Bytes(Bytes::from_static(b"\xff"))),
            argument("A", b'A', Value::Nested(b'A', encode_array(&[(b't', Value::Bool(false))]))),
            argument("F", b'F', Value::Nested(b'F', encode_table(&[long("n", 1)]))),
            argument("V", b'V', Value::Void),
        ];
        assert_eq!(decode_table(&encode_table(&fields)).unwrap(), fields);
        let json = json_of_arguments(&fields);
        assert_eq!(json["D"], json!(-1.25));
        // It was null, which no import accepts.
        assert_eq!(json["V"], json!("undefined"));
        assert_eq!(json["A"], json!([false]));
        assert_eq!(json["F"], json!({"n": 1}));
        assert_eq!(json["x"], json!("Not UTF-8, base64 is: /w=="));
    }

    #[test]
    fn json_and_arguments_round_trip() {
        let value = json!({"a": "b", "n": 5, "f": 1.5, "t": true, "l": [1, "x", {"k": [false]}]});
        let arguments = arguments_of_json(value.as_object().unwrap()).unwrap();
        assert_eq!(json_of_arguments(&arguments), value);
        assert_eq!(arguments_of_json(json!({"a": null}).as_object().unwrap()), Err(TableError("null_not_allowed")));
        assert!(arguments_of_json(json!({"a": u64::MAX}).as_object().unwrap()).is_err());
    }

    #[test]
    fn values_nested_too_deep_are_not_decoded() {
        let mut value = Value::Bool(true);
        for _ in 0..200 {
            let tag = if matches!(value, Value::Bool(_)) { b't' } else { b'A' };
            value = Value::Nested(b'A', encode_array(&[(tag, value)]));
        }
        let json = json_of_arguments(&[argument("deep", b'A', value)]);
        assert!(json.to_string().contains("null"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_decoded(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Ok(fields) = decode_table(&bytes) {
                _ = json_of_arguments(&fields);
            }
            _ = decode_array(&bytes);
        }
    }
}
