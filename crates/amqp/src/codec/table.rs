//! Field tables: arguments of methods, headers of messages, properties of peers.
//!
//! A [`Table`] keeps its encoded bytes, validated once: field order, duplicate names and type letters are preserved, because a broker relays them.
//!
//! ```text
//!   table  size u32 | { name: len u8, bytes | value } ...
//!   array  size u32 | { value } ...
//!   value  tag u8   | t bool u8   b i8   B u8   s i16   u u16   I i32   i u32   l L i64   f f32   d f64
//!                     D scale u8, i32   S x len u32, bytes   T seconds u64   A array   F table   V nothing
//! ```

use super::DecodeError;
use bytes::{BufMut, Bytes, BytesMut};
use std::fmt;

/// The deepest nesting of tables and arrays. RabbitMQ has no limit; its own headers need three levels.
pub const TABLE_DEPTH_MAX: usize = 32;

/// A field value that borrows from the encoded table.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value<'a> {
    /// `t`
    Bool(bool),
    /// `b`
    I8(i8),
    /// `B`
    U8(u8),
    /// `s`
    I16(i16),
    /// `u`
    U16(u16),
    /// `I`
    I32(i32),
    /// `i`
    U32(u32),
    /// `l`, and `L`, which is read as signed too
    I64(i64),
    /// `f`
    F32(f32),
    /// `d`
    F64(f64),
    /// `D`: the number of decimal places, and the unscaled number
    Decimal(u8, i32),
    /// `S`
    LongStr(&'a [u8]),
    /// `x`
    ByteArray(&'a [u8]),
    /// `T`: seconds since the Unix epoch
    Timestamp(u64),
    /// `A`: the encoded values; see [`Value::elements`]
    Array(&'a [u8]),
    /// `F`: the encoded fields; see [`Value::fields`]
    Table(&'a [u8]),
    /// `V`
    Void,
}

impl<'a> Value<'a> {
    /// Returns an integer of any width.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Value::I8(v) => Some(v.into()),
            Value::U8(v) => Some(v.into()),
            Value::I16(v) => Some(v.into()),
            Value::U16(v) => Some(v.into()),
            Value::I32(v) => Some(v.into()),
            Value::U32(v) => Some(v.into()),
            Value::I64(v) => Some(v),
            _ => None,
        }
    }

    /// Returns a long string.
    #[must_use]
    pub fn as_longstr(&self) -> Option<&'a [u8]> {
        if let Value::LongStr(text) = *self { Some(text) } else { None }
    }

    /// Iterates over the values of an array; empty for other types.
    pub fn elements(&self) -> impl Iterator<Item = (u8, Value<'a>)> + use<'a> {
        let mut cursor = Cursor(if let Value::Array(raw) = *self { raw } else { &[] });
        std::iter::from_fn(move || if cursor.0.is_empty() { None } else { cursor.value().ok() })
    }

    /// Iterates over the fields of a table; empty for other types.
    #[must_use]
    pub fn fields(&self) -> Fields<'a> {
        Fields(Cursor(if let Value::Table(raw) = *self { raw } else { &[] }))
    }

    /// Returns RabbitMQ's name of its type, which refusal texts contain.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Bool(_) => "bool",
            Value::I8(_) => "byte",
            Value::U8(_) => "unsignedbyte",
            Value::I16(_) => "short",
            Value::U16(_) => "unsignedshort",
            Value::I32(_) => "signedint",
            Value::U32(_) => "unsignedint",
            Value::I64(_) => "long",
            Value::F32(_) => "float",
            Value::F64(_) => "double",
            Value::Decimal(..) => "decimal",
            Value::LongStr(_) => "longstr",
            Value::ByteArray(_) => "binary",
            Value::Timestamp(_) => "timestamp",
            Value::Array(_) => "array",
            Value::Table(_) => "table",
            Value::Void => "void",
        }
    }
}

/// A named value that borrows from the encoded table.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Field<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// The type letter as encoded.
    pub tag: u8,
    /// Its value.
    pub value: Value<'a>,
}

/// The fields of a table in their order.
#[derive(Clone, Debug)]
pub struct Fields<'a>(Cursor<'a>);

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        // A table is validated when it is built: an error cannot occur here.
        if self.0.0.is_empty() { None } else { self.0.field().ok() }
    }
}

/// The unread rest of a table or an array.
#[derive(Clone, Copy, Debug)]
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(DecodeError::Short { what: "table" })?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(DecodeError::Short { what: "table" })?;
        self.0 = rest;
        Ok(*taken)
    }

    fn long(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = u32::from_be_bytes(self.array()?) as usize;
        self.take(len)
    }

    fn value(&mut self) -> Result<(u8, Value<'a>), DecodeError> {
        let [tag] = self.array()?;
        let value = match tag {
            b't' => Value::Bool(self.array::<1>()? != [0]),
            b'b' => Value::I8(i8::from_be_bytes(self.array()?)),
            b'B' => Value::U8(u8::from_be_bytes(self.array()?)),
            b's' => Value::I16(i16::from_be_bytes(self.array()?)),
            b'u' => Value::U16(u16::from_be_bytes(self.array()?)),
            b'I' => Value::I32(i32::from_be_bytes(self.array()?)),
            b'i' => Value::U32(u32::from_be_bytes(self.array()?)),
            b'l' | b'L' => Value::I64(i64::from_be_bytes(self.array()?)),
            b'f' => Value::F32(f32::from_be_bytes(self.array()?)),
            b'd' => Value::F64(f64::from_be_bytes(self.array()?)),
            b'D' => {
                let [scale] = self.array()?;
                Value::Decimal(scale, i32::from_be_bytes(self.array()?))
            }
            b'S' => Value::LongStr(self.long()?),
            b'x' => Value::ByteArray(self.long()?),
            b'T' => Value::Timestamp(u64::from_be_bytes(self.array()?)),
            b'A' => Value::Array(self.long()?),
            b'F' => Value::Table(self.long()?),
            b'V' => Value::Void,
            _ => return Err(DecodeError::UnknownTag(tag)),
        };
        Ok((tag, value))
    }

    fn field(&mut self) -> Result<Field<'a>, DecodeError> {
        let [len] = self.array()?;
        let name = self.take(usize::from(len))?;
        let (tag, value) = self.value()?;
        Ok(Field { name, tag, value })
    }

    /// Validates everything that is left; `named` for a table, not for an array.
    fn check(mut self, named: bool, depth: usize) -> Result<(), DecodeError> {
        if depth > TABLE_DEPTH_MAX {
            return Err(DecodeError::TooDeep);
        }
        while !self.0.is_empty() {
            let value = if named { self.field()?.value } else { self.value()?.1 };
            match value {
                Value::Array(raw) => Cursor(raw).check(false, depth + 1)?,
                Value::Table(raw) => Cursor(raw).check(true, depth + 1)?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// A field table in wire format. Invariant: its bytes are valid to the end.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Table(Bytes);

impl Table {
    /// The table without fields.
    pub const EMPTY: Table = Table(Bytes::new());

    /// Validates the bytes of a table, without its size field.
    ///
    /// [`DecodeError`] of the first invalid field.
    /// What is wrong with them.
    pub fn new(raw: Bytes) -> Result<Table, DecodeError> {
        Table::check(&raw)?;
        Ok(Table(raw))
    }

    /// Validates a table without its size field, without keeping it.
    ///
    /// # Errors
    /// [`DecodeError`] of the first invalid field.
    pub fn check(raw: &[u8]) -> Result<(), DecodeError> {
        Cursor(raw).check(true, 1)
    }

    /// A table whose bytes were validated before.
    pub(super) fn checked(raw: Bytes) -> Table {
        Table(raw)
    }

    /// Returns its bytes, without the size field.
    #[must_use]
    pub fn raw(&self) -> &Bytes {
        &self.0
    }

    /// Copies the bytes, so that the input buffer is not retained.
    #[must_use]
    pub fn to_owned_bytes(&self) -> Table {
        Table(Bytes::copy_from_slice(&self.0))
    }

    /// Whether it has no fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over its fields in order.
    #[must_use]
    pub fn fields(&self) -> Fields<'_> {
        Fields(Cursor(&self.0))
    }

    /// Returns the value of the first field of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Value<'_>> {
        self.fields().find(|field| field.name == name.as_bytes()).map(|field| field.value)
    }

    /// Whether the first field of this name exists and is `true`.
    #[must_use]
    pub fn is_true(&self, name: &str) -> bool {
        self.get(name) == Some(Value::Bool(true))
    }

    /// Returns the table without the fields of this name.
    #[must_use]
    pub fn without(&self, name: &str) -> Table {
        let mut out = BytesMut::with_capacity(self.0.len());
        let mut cursor = Cursor(&self.0);
        while !cursor.0.is_empty() {
            let before = cursor.0;
            let Ok(field) = cursor.field() else { break };
            if field.name != name.as_bytes() {
                let len = before.len() - cursor.0.len();
                out.put_slice(&before[..len]);
            }
        }
        Table(out.freeze())
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.fields().map(|field| (String::from_utf8_lossy(field.name), field.value))).finish()
    }
}

/// Builds a table, field by field. Names longer than 255 bytes are cut.
#[derive(Debug, Default)]
pub struct TableBuilder {
    out: BytesMut,
}

impl TableBuilder {
    /// Starts an empty table.
    #[must_use]
    pub fn new() -> TableBuilder {
        TableBuilder::default()
    }

    /// Adds a value with the letter of its type; [`Value::I64`] is written as `l`.
    #[must_use]
    pub fn with(mut self, name: &str, value: Value<'_>) -> TableBuilder {
        put_field(&mut self.out, name, value);
        self
    }

    /// Adds a long string.
    #[must_use]
    pub fn with_text(self, name: &str, text: &str) -> TableBuilder {
        self.with(name, Value::LongStr(text.as_bytes()))
    }

    /// Adds a nested table.
    #[must_use]
    pub fn with_table(self, name: &str, table: &Table) -> TableBuilder {
        self.with(name, Value::Table(table.raw()))
    }

    /// Adds an array of long strings.
    #[must_use]
    pub fn with_texts(self, name: &str, texts: &[&str]) -> TableBuilder {
        let mut array = BytesMut::new();
        for text in texts {
            put_value(&mut array, Value::LongStr(text.as_bytes()));
        }
        self.with(name, Value::Array(&array))
    }

    /// Returns the table.
    #[must_use]
    pub fn build(self) -> Table {
        Table(self.out.freeze())
    }
}

/// Writes a name, cut to 255 bytes, and its value.
pub(super) fn put_field(out: &mut BytesMut, name: &str, value: Value<'_>) {
    let name = name.as_bytes().get(..255).unwrap_or(name.as_bytes());
    out.put_u8(name.len() as u8);
    out.put_slice(name);
    put_value(out, value);
}

fn put_long(out: &mut BytesMut, tag: u8, bytes: &[u8]) {
    out.put_u8(tag);
    out.put_u32(bytes.len() as u32);
    out.put_slice(bytes);
}

fn put_value(out: &mut BytesMut, value: Value<'_>) {
    let fixed = |out: &mut BytesMut, tag: u8, bytes: &[u8]| {
        out.put_u8(tag);
        out.put_slice(bytes);
    };
    match value {
        Value::Bool(v) => fixed(out, b't', &[u8::from(v)]),
        Value::I8(v) => fixed(out, b'b', &v.to_be_bytes()),
        Value::U8(v) => fixed(out, b'B', &v.to_be_bytes()),
        Value::I16(v) => fixed(out, b's', &v.to_be_bytes()),
        Value::U16(v) => fixed(out, b'u', &v.to_be_bytes()),
        Value::I32(v) => fixed(out, b'I', &v.to_be_bytes()),
        Value::U32(v) => fixed(out, b'i', &v.to_be_bytes()),
        Value::I64(v) => fixed(out, b'l', &v.to_be_bytes()),
        Value::F32(v) => fixed(out, b'f', &v.to_be_bytes()),
        Value::F64(v) => fixed(out, b'd', &v.to_be_bytes()),
        Value::Decimal(scale, v) => {
            fixed(out, b'D', &[scale]);
            out.put_i32(v);
        }
        Value::Timestamp(v) => fixed(out, b'T', &v.to_be_bytes()),
        Value::Void => out.put_u8(b'V'),
        Value::LongStr(v) => put_long(out, b'S', v),
        Value::ByteArray(v) => put_long(out, b'x', v),
        Value::Array(v) => put_long(out, b'A', v),
        Value::Table(v) => put_long(out, b'F', v),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> Bytes {
        let mut raw = Bytes::new();
        for _ in 1..levels {
            let mut out = BytesMut::new();
            out.put_slice(b"\x01n");
            put_long(&mut out, b'F', &raw);
            raw = out.freeze();
        }
        raw
    }

    #[test]
    fn nesting_is_limited() {
        assert!(Table::new(nested(TABLE_DEPTH_MAX)).is_ok());
        assert_eq!(Table::new(nested(TABLE_DEPTH_MAX + 1)), Err(DecodeError::TooDeep));
        // A table as large as a frame that is nothing but nesting.
        assert_eq!(Table::new(nested(10_000)), Err(DecodeError::TooDeep));
    }

    #[test]
    fn a_capital_l_is_a_signed_integer_and_is_kept() {
        let table = Table::new(Bytes::from_static(b"\x01aL\xff\xff\xff\xff\xff\xff\xff\xff")).expect("a table");
        let field = table.fields().next().expect("a field");
        assert_eq!((field.tag, field.value), (b'L', Value::I64(-1)));
    }

    #[test]
    fn order_and_duplicate_names_are_kept() {
        let table = TableBuilder::new().with_text("b", "1").with_text("a", "2").with_text("b", "3").build();
        let names: Vec<&[u8]> = table.fields().map(|field| field.name).collect();
        assert_eq!(names, [b"b", b"a", b"b"]);
        assert_eq!(table.get("b"), Some(Value::LongStr(b"1")));
        assert_eq!(table.without("b"), TableBuilder::new().with_text("a", "2").build());
        assert_eq!(table.without("c"), table);
    }
}
