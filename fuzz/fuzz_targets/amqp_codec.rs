//! Methods, properties and tables of AMQP as any peer might write them: nothing panics, and what can be read is written and
//! read again as the same.

#![no_main]

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use polylogue_amqp::codec::*;

fuzz_target!(|input: &[u8]| {
    let Some((&how, bytes)) = input.split_first() else { return };
    let raw = match how % 4 {
        // a method that there is, with any fields
        0 => {
            let id = MethodId::ALL[usize::from(how / 4) % MethodId::ALL.len()];
            let mut out = BytesMut::new();
            out.extend_from_slice(&id.class.to_be_bytes());
            out.extend_from_slice(&id.method.to_be_bytes());
            out.extend_from_slice(bytes);
            out.freeze()
        }
        _ => Bytes::copy_from_slice(bytes),
    };
    match how % 4 {
        0 | 1 => method(&raw),
        2 => properties(&raw),
        _ => table(&raw),
    }
});

fn method(raw: &Bytes) {
    let Ok(method) = Method::decode(raw) else { return };
    let mut out = BytesMut::new();
    encode_method(&mut out, 3, &method);
    let prefix = FramePrefix::read(&out).expect("a whole frame");
    assert_eq!((prefix.kind, prefix.channel, prefix.size as usize), (1, 3, out.len() - FRAME_OVERHEAD_BYTES));
    let frame = out.freeze();
    let again = Method::read(Reader::part(&frame, FRAME_PREFIX_BYTES, frame.len() - 1));
    assert_eq!(again, Ok(method));
}

fn properties(raw: &Bytes) {
    let (light, whole) = (Properties::new(raw.clone()), BasicProperties::decode(raw));
    assert_eq!(light.is_ok(), whole.is_ok());
    let (Ok(light), Ok(whole)) = (light, whole) else { return };
    assert_eq!((light.delivery_mode, light.priority), (whole.delivery_mode, whole.priority));
    assert_eq!(light.headers(), whole.headers);
    assert_eq!(light.text(Property::Expiration), whole.expiration);
    assert_eq!(light.text(Property::ReplyTo), whole.reply_to);
    assert_eq!(light.text(Property::UserId), whole.user_id);
    assert_eq!(whole.encode(), raw);
    let _ = ContentHeader::read(Reader::new(raw));
}

fn table(raw: &Bytes) {
    let Ok(table) = Table::new(raw.clone()) else { return };
    let mut builder = TableBuilder::new();
    let mut capital = false;
    for field in table.fields() {
        capital |= field.tag == b'L';
        match std::str::from_utf8(field.name) {
            Ok(name) => builder = builder.with(name, field.value),
            Err(_) => return,
        }
    }
    let again = builder.build();
    assert!(capital || again == table || table.fields().any(|field| matches!(field.value, Value::Bool(true))));
    assert_eq!(again.fields().count(), table.fields().count());
    if let Some(field) = table.fields().next().and_then(|field| std::str::from_utf8(field.name).ok()) {
        assert!(table.without(field).get(field).is_none());
    }
}
