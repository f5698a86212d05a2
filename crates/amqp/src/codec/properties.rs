//! The properties of a message: 14 optional values, each announced by a flag.
//!
//! ```text
//!   flags u16 | content_type | content_encoding | headers | delivery_mode | priority | correlation_id | reply_to |
//!             expiration | message_id | timestamp | type | user_id | app_id | cluster_id
//!   bit 15 of the flags is content_type, bit 2 cluster_id; bits 1 and 0 are never set
//! ```

use super::table::put_field;
use super::{DecodeError, Reader, ShortStr, Table, Value, Writer};
use bytes::{BufMut, Bytes, BytesMut};

/// A property; the discriminant is the bit of its flag.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs, reason = "each is named as in the specification")]
pub enum Property {
    ContentType = 15,
    ContentEncoding = 14,
    Headers = 13,
    DeliveryMode = 12,
    Priority = 11,
    CorrelationId = 10,
    ReplyTo = 9,
    Expiration = 8,
    MessageId = 7,
    Timestamp = 6,
    Type = 5,
    UserId = 4,
    AppId = 3,
    ClusterId = 2,
}

impl Property {
    const fn flag(self) -> u16 {
        1 << (self as u16)
    }
}

/// Flag bits that no property uses.
const UNKNOWN_FLAGS: u16 = 0b11;

macro_rules! properties {
    ($($field:ident $property:ident $kind:ident $type:ty;)*) => {
        /// All properties, decoded one by one: for code that reads many of them or builds new ones.
        #[derive(Clone, PartialEq, Eq, Debug, Default)]
        #[allow(missing_docs, reason = "each is named as in the specification")]
        pub struct BasicProperties {
            $(pub $field: Option<$type>,)*
        }

        impl BasicProperties {
            /// Reads flags and properties, with no bytes left over.
            ///
            /// # Errors
            /// [`DecodeError`] of the first invalid property.
            pub fn decode(raw: &Bytes) -> Result<BasicProperties, DecodeError> {
                let mut r = Reader::new(raw);
                let flags = r.short()?;
                if flags & UNKNOWN_FLAGS != 0 {
                    return Err(DecodeError::UnknownProperties(flags));
                }
                let properties = BasicProperties {
                    $($field: if flags & Property::$property.flag() != 0 { Some(r.$kind()?) } else { None },)*
                };
                r.end()?;
                Ok(properties)
            }

            /// Returns flags and properties in wire format.
            #[must_use]
            pub fn encode(&self) -> Bytes {
                let mut out = BytesMut::new();
                let mut w = Writer::new(&mut out);
                let mut flags = 0;
                $(if self.$field.is_some() { flags |= Property::$property.flag(); })*
                w.short(flags);
                $(if let Some(value) = &self.$field { put!(w, $kind, value); })*
                out.freeze()
            }
        }

        /// Skips one property.
        fn skip(r: &mut Reader<'_>, property: Property) -> Result<(), DecodeError> {
            match property {
                $(Property::$property => pass!(r, $kind),)*
            }
            Ok(())
        }

        const IN_ORDER: [Property; 14] = [$(Property::$property,)*];
    };
}

macro_rules! pass {
    ($r:ident, octet) => {
        drop($r.octet()?)
    };
    ($r:ident, longlong) => {
        drop($r.longlong()?)
    };
    ($r:ident, table) => {{
        let len = $r.long()? as usize;
        Table::check($r.pass(len)?)?;
    }};
    ($r:ident, $kind:ident) => {{
        let len = usize::from($r.octet()?);
        $r.pass(len)?;
    }};
}

macro_rules! put {
    ($w:ident, octet, $v:expr) => {
        $w.octet(*$v)
    };
    ($w:ident, longlong, $v:expr) => {
        $w.longlong(*$v)
    };
    ($w:ident, table, $v:expr) => {
        $w.table($v)
    };
    ($w:ident, $kind:ident, $v:expr) => {
        $w.shortstr($v)
    };
}

properties! {
    content_type ContentType short_bytes ShortStr;
    content_encoding ContentEncoding short_bytes ShortStr;
    headers Headers table Table;
    delivery_mode DeliveryMode octet u8;
    priority Priority octet u8;
    correlation_id CorrelationId short_bytes ShortStr;
    reply_to ReplyTo short_bytes ShortStr;
    expiration Expiration short_bytes ShortStr;
    message_id MessageId short_bytes ShortStr;
    timestamp Timestamp longlong u64;
    kind Type short_bytes ShortStr;
    user_id UserId short_bytes ShortStr;
    app_id AppId short_bytes ShortStr;
    cluster_id ClusterId short_bytes ShortStr;
}

/// Flags and properties in wire format, validated once. `delivery_mode` and `priority`, which a broker needs for each message, are decoded in
/// advance; others are searched for in the bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Properties {
    raw: Bytes,
    /// Start and end of the headers in `raw`, without their size field; both 0 when there are no headers.
    headers: (u32, u32),
    /// `delivery_mode`, `None` when not given.
    pub delivery_mode: Option<u8>,
    /// `priority`, `None` when not given.
    pub priority: Option<u8>,
}

impl Properties {
    /// Validates flags and properties in wire format.
    ///
    /// # Errors
    /// [`DecodeError`] of the first invalid property.
    pub fn new(raw: Bytes) -> Result<Properties, DecodeError> {
        let mut r = Reader::new(&raw);
        let flags = r.short()?;
        if flags & UNKNOWN_FLAGS != 0 {
            return Err(DecodeError::UnknownProperties(flags));
        }
        let (mut headers, mut delivery_mode, mut priority) = ((0, 0), None, None);
        for property in IN_ORDER {
            if flags & property.flag() == 0 {
                continue;
            }
            match property {
                Property::Headers => {
                    let from = r.position() as u32 + 4;
                    skip(&mut r, property)?;
                    headers = (from, r.position() as u32);
                }
                Property::DeliveryMode => delivery_mode = Some(r.octet()?),
                Property::Priority => priority = Some(r.octet()?),
                property => skip(&mut r, property)?,
            }
        }
        r.end()?;
        Ok(Properties { raw, headers, delivery_mode, priority })
    }

    /// Returns a message's properties with none set.
    #[must_use]
    pub fn none() -> Properties {
        Properties { raw: Bytes::from_static(&[0, 0]), headers: (0, 0), delivery_mode: None, priority: None }
    }

    /// Returns flags and properties in wire format.
    #[must_use]
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// Copies the bytes, so that the input buffer is not retained.
    #[must_use]
    pub fn to_owned_bytes(&self) -> Properties {
        Properties { raw: Bytes::copy_from_slice(&self.raw), ..*self }
    }

    /// Whether the property is set.
    #[must_use]
    pub fn has(&self, property: Property) -> bool {
        let flags = self.raw.first_chunk().map_or(0, |flags| u16::from_be_bytes(*flags));
        flags & property.flag() != 0
    }

    /// Returns the headers, `None` when there are none.
    #[must_use]
    pub fn headers(&self) -> Option<Table> {
        if !self.has(Property::Headers) {
            return None;
        }
        let (from, to) = self.headers;
        Some(Table::checked(self.raw.slice(from as usize..to as usize)))
    }

    /// Returns a property that is a short string; `None` when it is not set or of another type.
    #[must_use]
    pub fn text(&self, wanted: Property) -> Option<ShortStr> {
        let other =
            matches!(wanted, Property::Headers | Property::DeliveryMode | Property::Priority | Property::Timestamp);
        if other || !self.has(wanted) {
            return None;
        }
        let mut r = Reader::new(&self.raw);
        r.short().ok()?;
        for property in IN_ORDER.into_iter().filter(|property| self.has(*property)) {
            if property == wanted {
                return r.short_bytes().ok();
            }
            skip(&mut r, property).ok()?;
        }
        None
    }

    /// Decodes all properties.
    #[must_use]
    pub fn to_basic(&self) -> BasicProperties {
        // Validated in `new`: decoding cannot fail.
        BasicProperties::decode(&self.raw).unwrap_or_default()
    }
}

/// Appends flags and properties to `out` with one more header, which replaces a header of the same name. Other headers keep their bytes and their
/// order.
///
/// # Errors
/// [`DecodeError`] of the input; `out` is unchanged then.
pub fn put_with_header(raw: &Bytes, name: &str, value: Value<'_>, out: &mut BytesMut) -> Result<(), DecodeError> {
    let mut r = Reader::new(raw);
    let flags = r.short()?;
    let from = r.position();
    for property in IN_ORDER.into_iter().take_while(|property| *property != Property::Headers) {
        if flags & property.flag() != 0 {
            skip(&mut r, property)?;
        }
    }
    let before = raw.get(from..r.position()).unwrap_or_default();
    let mut headers = if flags & Property::Headers.flag() != 0 { r.table()? } else { Table::EMPTY };
    if headers.get(name).is_some() {
        headers = headers.without(name);
    }
    out.put_u16(flags | Property::Headers.flag());
    out.put_slice(before);
    let size_at = out.len();
    out.put_u32(0);
    out.put_slice(headers.raw());
    put_field(out, name, value);
    let size = (out.len() - size_at - 4) as u32;
    if let Some(at) = out.get_mut(size_at..size_at + 4) {
        at.copy_from_slice(&size.to_be_bytes());
    }
    out.put_slice(raw.get(r.position()..).unwrap_or_default());
    Ok(())
}

impl From<&BasicProperties> for Properties {
    fn from(basic: &BasicProperties) -> Properties {
        Properties::new(basic.encode()).unwrap_or_else(|_| Properties::none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_property_is_found() {
        let basic = BasicProperties {
            content_type: Some("text/plain".into()),
            headers: Some(super::super::TableBuilder::new().with_text("k", "v").build()),
            delivery_mode: Some(2),
            priority: Some(7),
            expiration: Some("1000".into()),
            timestamp: Some(1 << 40),
            cluster_id: Some("c".into()),
            ..BasicProperties::default()
        };
        let properties = Properties::from(&basic);
        assert_eq!((properties.delivery_mode, properties.priority), (Some(2), Some(7)));
        assert_eq!(properties.headers(), basic.headers);
        assert_eq!(properties.text(Property::Expiration), basic.expiration);
        assert_eq!(properties.text(Property::ClusterId), basic.cluster_id);
        assert_eq!(properties.text(Property::UserId), None);
        assert_eq!(properties.text(Property::Timestamp), None);
        assert_eq!(properties.to_basic(), basic);
    }

    #[test]
    fn a_header_is_added_or_replaced_and_the_rest_is_kept() {
        let none = BasicProperties::default();
        let others = BasicProperties {
            content_type: Some("text/plain".into()),
            content_encoding: Some("gzip".into()),
            delivery_mode: Some(2),
            app_id: Some("a".into()),
            ..BasicProperties::default()
        };
        let table = |at: &[(&str, i64)]| {
            let builder = super::super::TableBuilder::new();
            Some(at.iter().fold(builder, |table, (name, at)| table.with(name, Value::I64(*at))).build())
        };
        for basic in [none, others] {
            for (headers, expected) in [
                (None, table(&[("at", 7)])),
                (table(&[]), table(&[("at", 7)])),
                (table(&[("k", 1), ("l", 2)]), table(&[("k", 1), ("l", 2), ("at", 7)])),
                (table(&[("k", 1), ("at", 6), ("l", 2)]), table(&[("k", 1), ("l", 2), ("at", 7)])),
            ] {
                let raw = BasicProperties { headers, ..basic.clone() }.encode();
                let mut out = BytesMut::from(&b"before"[..]);
                put_with_header(&raw, "at", Value::I64(7), &mut out).unwrap();
                let written = Bytes::copy_from_slice(&out[6..]);
                let wanted = BasicProperties { headers: expected, ..basic.clone() };
                assert_eq!(BasicProperties::decode(&written), Ok(wanted));
                for len in 0..raw.len() {
                    // Only the properties before the headers, and the headers, are read.
                    let mut out = BytesMut::new();
                    let cut = put_with_header(&raw.slice(..len), "at", Value::I64(7), &mut out);
                    assert!(cut.is_ok() || out.is_empty());
                }
            }
        }
    }

    #[test]
    fn unknown_property_flags_are_refused() {
        for flags in [1u16, 2] {
            let raw = Bytes::copy_from_slice(&flags.to_be_bytes());
            assert_eq!(Properties::new(raw.clone()), Err(DecodeError::UnknownProperties(flags)));
            assert_eq!(BasicProperties::decode(&raw), Err(DecodeError::UnknownProperties(flags)));
        }
    }
}
