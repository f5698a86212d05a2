//! A message for tests.

use polylogue_filter::{Subject, Tag, Value};

/// A value that a message owns.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Owned {
    Bool(bool),
    Int(i32),
    Long(i64),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
    Other,
}

impl Owned {
    pub(crate) fn text(text: &str) -> Owned {
        Owned::Text(text.to_owned())
    }

    pub(crate) fn view(&self) -> Value<'_> {
        match self {
            Owned::Bool(value) => Value::Bool(*value),
            Owned::Int(value) => Value::Int(*value),
            Owned::Long(value) => Value::Long(*value),
            Owned::Double(value) => Value::Double(*value),
            Owned::Text(value) => Value::Text(value),
            Owned::Bytes(value) => Value::Bytes(value),
            Owned::Other => Value::Other,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) tag: Tag<'static>,
    pub(crate) filter_value: Option<Vec<u8>>,
    pub(crate) properties: Vec<(String, Owned)>,
    pub(crate) lookup_steps: u64,
}

impl Message {
    pub(crate) fn new(properties: impl IntoIterator<Item = (String, Owned)>) -> Message {
        let properties = properties.into_iter().collect();
        Message { tag: Tag::Absent, filter_value: None, properties, lookup_steps: 1 }
    }

    pub(crate) fn texts(properties: &[(&str, &str)]) -> Message {
        Message::new(properties.iter().map(|(name, value)| ((*name).to_owned(), Owned::text(value))))
    }

    /// The longest text. Bytes.
    pub(crate) fn text_bytes_max(&self) -> usize {
        let texts = self.properties.iter().map(|(_, value)| match value {
            Owned::Text(text) => text.len(),
            Owned::Bytes(bytes) => bytes.len(),
            _ => 0,
        });
        texts.chain(self.filter_value.as_ref().map(Vec::len)).max().unwrap_or(0)
    }
}

impl Subject for Message {
    fn tag(&self) -> Tag<'_> {
        self.tag
    }

    fn filter_value(&self) -> Option<&[u8]> {
        self.filter_value.as_deref()
    }

    fn property(&self, name: &str) -> Option<Value<'_>> {
        self.properties.iter().find(|(known, _)| known == name).map(|(_, value)| value.view())
    }

    fn lookup_steps(&self) -> u64 {
        self.lookup_steps
    }
}
