//! The subject of a filter: the fields of a message, read on demand.

/// A message, or its entry in an index. A filter calls only the methods that [`crate::Filter::reads`] names.
pub trait Subject {
    /// The message's tag: RocketMQ's `TAGS`, TubeMQ's `msgType`.
    fn tag(&self) -> Tag<'_>;

    /// The message's filter value (RabbitMQ streams: `x-stream-filter-value`); `None` without one.
    fn filter_value(&self) -> Option<&[u8]>;

    /// The value of a property or header by its name, case-sensitive; `None` if the message does not have it.
    fn property(&self, name: &str) -> Option<Value<'_>>;

    /// The most steps that one call of [`Subject::property`] takes (see `polylogue_types::turn`).
    fn lookup_steps(&self) -> u64 {
        1
    }
}

/// The known part of a message's tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tag<'a> {
    /// Nothing is known: the filter matches, and the client compares the text.
    Unknown,
    /// The message has no tag.
    Absent,
    /// Its hash (see [`tag_hash`]). Messages without a tag have [`Tag::Absent`], although RocketMQ stores 0 for them.
    Hash(i32),
    /// Its text.
    Text(&'a str),
}

/// The value of a property.
///
/// Selectors compare as Java does, so that the two widths of an integer differ: a text that is compared with [`Value::Int`] must be an
/// integer of 32 bits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value<'a> {
    /// True or false.
    Bool(bool),
    /// An integer of at most 32 bits.
    Int(i32),
    /// An integer of 64 bits.
    Long(i64),
    /// A floating-point number.
    Double(f64),
    /// A text. All properties of RocketMQ are texts.
    Text(&'a str),
    /// Bytes that are not text. A selector only sees that the property is present.
    Bytes(&'a [u8]),
    /// Any other value, such as an array or a table. A selector only sees that the property is present.
    Other,
}

/// The hash of a tag: `String.hashCode` of Java, over UTF-16 code units.
#[must_use]
pub fn tag_hash(tag: &str) -> i32 {
    tag.encode_utf16().fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_java() {
        // Computed with jshell 17.
        for (tag, hash) in
            [("", 0), ("TagA", 2_598_919), ("Aa", 2112), ("BB", 2112), ("polylogue", 240_408_712), ("é😀", 1_996_812)]
        {
            assert_eq!(tag_hash(tag), hash, "{tag}");
        }
    }
}
