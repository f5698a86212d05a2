//! Values of headers and arguments, and their equality.
//!
//! A headers exchange compares values as RabbitMQ does (`rabbit_exchange_type_headers`): the width of an integer is ignored, and so is the difference
//! between text and bytes; an integer is never equal to a float; arrays and tables are equal when their encodings are. A timestamp equals the integer
//! of its seconds, as before RabbitMQ 4 (which compares one side in milliseconds, so that no two timestamps are equal).

use bytes::Bytes;
use polylogue_types::bin::{BinError, BinReader, BinWriter};
use std::cmp::Ordering;

/// A value that borrows from a message.
#[derive(Clone, Copy, Debug)]
pub enum ValueRef<'a> {
    /// No value. In a binding: the header is present, with any value.
    Void,
    /// True or false.
    Bool(bool),
    /// An integer of any width.
    Int(i64),
    /// A float of either width.
    Float(f64),
    /// A decimal: the number of decimal places, and the unscaled value.
    Decimal(u8, i32),
    /// Seconds since the Unix epoch.
    Timestamp(u64),
    /// Text or bytes.
    Bytes(&'a [u8]),
    /// An array or a table: which (the protocol's type letter), and its bytes unchanged.
    Nested(u8, &'a [u8]),
}

/// An owned value.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// See [`ValueRef::Void`].
    Void,
    /// See [`ValueRef::Bool`].
    Bool(bool),
    /// See [`ValueRef::Int`].
    Int(i64),
    /// See [`ValueRef::Float`].
    Float(f64),
    /// See [`ValueRef::Decimal`].
    Decimal(u8, i32),
    /// See [`ValueRef::Timestamp`].
    Timestamp(u64),
    /// See [`ValueRef::Bytes`].
    Bytes(Bytes),
    /// See [`ValueRef::Nested`].
    Nested(u8, Bytes),
}

/// A named value of an exchange or a binding.
#[derive(Clone, PartialEq, Debug)]
pub struct Argument {
    /// Its name.
    pub name: Bytes,
    /// The protocol's letter for the type of the value: kept to show the argument unchanged, and part of the identity of a binding.
    pub tag: u8,
    /// Its value.
    pub value: Value,
}

impl Value {
    /// Borrows the value.
    #[must_use]
    pub fn view(&self) -> ValueRef<'_> {
        match self {
            Value::Void => ValueRef::Void,
            Value::Bool(v) => ValueRef::Bool(*v),
            Value::Int(v) => ValueRef::Int(*v),
            Value::Float(v) => ValueRef::Float(*v),
            Value::Decimal(scale, v) => ValueRef::Decimal(*scale, *v),
            Value::Timestamp(v) => ValueRef::Timestamp(*v),
            Value::Bytes(v) => ValueRef::Bytes(v),
            Value::Nested(tag, v) => ValueRef::Nested(*tag, v),
        }
    }

    /// Returns a text or bytes.
    #[must_use]
    pub fn bytes(&self) -> Option<&Bytes> {
        if let Value::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    pub(crate) fn encode(&self, w: &mut BinWriter) {
        match self {
            Value::Void => w.u8(0),
            Value::Bool(v) => w.u8(1).u8(u8::from(*v)),
            Value::Int(v) => w.u8(2).i64(*v),
            Value::Float(v) => w.u8(3).u64(v.to_bits()),
            Value::Decimal(scale, v) => w.u8(4).u8(*scale).i32(*v),
            Value::Timestamp(v) => w.u8(5).u64(*v),
            Value::Bytes(v) => w.u8(6).bytes(v),
            Value::Nested(tag, v) => w.u8(7).u8(*tag).bytes(v),
        };
    }

    pub(crate) fn decode(r: &mut BinReader<'_>) -> Result<Value, BinError> {
        Ok(match r.u8("kind of value")? {
            0 => Value::Void,
            1 => Value::Bool(r.u8("bool")? != 0),
            2 => Value::Int(r.i64("integer")?),
            3 => Value::Float(f64::from_bits(r.u64("float")?)),
            4 => Value::Decimal(r.u8("digits of a decimal")?, r.i32("decimal")?),
            5 => Value::Timestamp(r.u64("timestamp")?),
            6 => Value::Bytes(Bytes::copy_from_slice(r.bytes("bytes")?)),
            7 => Value::Nested(r.u8("array or table")?, Bytes::copy_from_slice(r.bytes("array or table")?)),
            _ => return Err(BinError { field: "kind of value" }),
        })
    }
}

impl ValueRef<'_> {
    /// A rank that separates values that are never equal, and a number that represents the value if it is one.
    fn rank(&self) -> (u8, i64) {
        match *self {
            ValueRef::Void => (0, 0),
            ValueRef::Bool(v) => (1, i64::from(v)),
            ValueRef::Int(v) => (2, v),
            ValueRef::Timestamp(v) => (2, v.cast_signed()),
            // Both zeros are equal.
            ValueRef::Float(v) => (3, (v + 0.0).to_bits().cast_signed()),
            ValueRef::Decimal(scale, v) => (4, i64::from(scale) << 32 | i64::from(v.cast_unsigned())),
            ValueRef::Bytes(_) => (5, 0),
            ValueRef::Nested(tag, _) => (6, i64::from(tag)),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            ValueRef::Bytes(bytes) | ValueRef::Nested(_, bytes) => bytes,
            _ => &[],
        }
    }

    /// An order in which exactly the values that a headers exchange considers equal are equal.
    #[must_use]
    pub fn order(&self, other: &ValueRef<'_>) -> Ordering {
        self.rank().cmp(&other.rank()).then_with(|| self.bytes().cmp(other.bytes()))
    }

    /// Whether a headers exchange considers them equal.
    #[must_use]
    pub fn same(&self, other: &ValueRef<'_>) -> bool {
        self.order(other).is_eq()
    }

    /// A hash that is the same for equal values.
    pub(crate) fn hash(&self, under: u64) -> u64 {
        let (kind, number) = self.rank();
        let under = under.wrapping_add(crate::hamt::hash_number(number.cast_unsigned() ^ u64::from(kind) << 56));
        crate::hamt::hash_bytes(under, self.bytes())
    }
}

/// Sorts arguments by name (their order is irrelevant; arguments with equal names keep theirs).
#[must_use]
pub fn sorted(mut arguments: Vec<Argument>) -> Vec<Argument> {
    arguments.sort_by(|a, b| a.name.cmp(&b.name));
    arguments
}

/// Returns the first argument of this name.
#[must_use]
pub fn lookup<'a>(arguments: &'a [Argument], name: &[u8]) -> Option<&'a Argument> {
    arguments.iter().find(|argument| argument.name == name)
}

/// An order of arguments in which equal ones identify the same binding.
pub(crate) fn compare(a: &[Argument], b: &[Argument]) -> Ordering {
    let one = |a: &Argument, b: &Argument| {
        let value = || a.value.view().order(&b.value.view());
        a.name.cmp(&b.name).then(a.tag.cmp(&b.tag)).then_with(value)
    };
    let differs = a.iter().zip(b).map(|(a, b)| one(a, b)).find(|order| order.is_ne());
    differs.unwrap_or_else(|| a.len().cmp(&b.len()))
}

/// The approximate size of arguments, which their limit applies to. Bytes.
pub(crate) fn size(arguments: &[Argument]) -> usize {
    let one = |argument: &Argument| argument.name.len() + 16 + argument.value.view().bytes().len();
    arguments.iter().map(one).sum()
}

/// Encodes arguments for records.
///
/// ```text
///   count u32 | for each: name (length and bytes) | type u8, as on the wire | kind u8 | value
/// ```
pub fn encode_arguments(arguments: &[Argument], w: &mut BinWriter) {
    w.u32(arguments.len() as u32);
    for argument in arguments {
        w.bytes(&argument.name).u8(argument.tag);
        argument.value.encode(w);
    }
}

/// Decodes [`encode_arguments`].
///
/// # Errors
/// The truncated or unknown field.
pub fn decode_arguments(r: &mut BinReader<'_>) -> Result<Vec<Argument>, BinError> {
    let count = r.count(6, "arguments")?;
    let mut arguments = Vec::with_capacity(count);
    for _ in 0..count {
        let name = Bytes::copy_from_slice(r.bytes("name of an argument")?);
        arguments.push(Argument { name, tag: r.u8("type of an argument")?, value: Value::decode(r)? });
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::ValueRef::*;

    #[test]
    fn values_are_equal_as_in_rabbitmq() {
        for (a, b, same) in [
            (Int(1), Int(1), true),
            (Int(1), Float(1.0), false),
            (Int(1), Bool(true), false),
            (Int(1), Bytes(b"1"), false),
            (Timestamp(9), Timestamp(9), true),
            (Timestamp(9), Int(9), true),
            (Float(0.0), Float(-0.0), true),
            (Float(0.1), Float(f64::from(0.1f32)), false),
            (Decimal(1, -5), Decimal(1, -5), true),
            (Decimal(1, 10), Decimal(0, 1), false),
            (Void, Void, true),
            (Void, Bytes(b""), false),
            (Nested(b'A', b"x"), Nested(b'A', b"x"), true),
            (Nested(b'A', b"x"), Nested(b'F', b"x"), false),
            (Bytes(b"x"), Nested(b'F', b"x"), false),
        ] {
            assert_eq!(a.same(&b), same, "{a:?} and {b:?}");
            assert_eq!(b.same(&a), same, "{b:?} and {a:?}");
            assert!(!same || a.hash(3) == b.hash(3), "{a:?} and {b:?}");
        }
    }
}
