//! Edits headers of forwarded messages.

use bytes::{BufMut, Bytes, BytesMut};
use polylogue_amqp::codec::{Properties, Table, Value, put_with_header};

/// The properties were validated when received, so that this cannot fail.
pub(crate) fn with_header(raw: Bytes, name: &str, value: Value<'_>) -> Bytes {
    let mut out = BytesMut::with_capacity(raw.len() + 64);
    match put_with_header(&raw, name, value, &mut out) {
        Ok(()) => out.freeze(),
        Err(_) => raw,
    }
}

/// Returns the properties `raw` with `entry` prepended to the array that `came` has under this name. A value that is not an array is
/// replaced.
pub(crate) fn prepended(came: &Properties, raw: Bytes, name: &str, entry: &Table) -> Bytes {
    let before = came.headers();
    let before = before.as_ref().and_then(|headers| headers.get(name));
    let before = if let Some(Value::Array(before)) = before { before } else { &[] };
    let mut array = BytesMut::with_capacity(entry.raw().len() + before.len() + 5);
    array.put_u8(b'F');
    array.put_u32(entry.raw().len() as u32);
    array.put_slice(entry.raw());
    array.put_slice(before);
    with_header(raw, name, Value::Array(&array))
}
