//! The codec against invalid bytes: always an error, never a panic, and no allocation for a claimed length.

#![allow(clippy::expect_used, clippy::panic, reason = "a test")]

use bytes::{Bytes, BytesMut};
use polylogue_amqp::codec::*;
use proptest::prelude::*;

fn arguments() -> Table {
    let inner = TableBuilder::new().with("n", Value::I64(1)).build();
    TableBuilder::new()
        .with_text("x-queue-type", "quorum")
        .with("x-expires", Value::U32(9))
        .with_table("t", &inner)
        .with_texts("a", &["x", "y"])
        .with("d", Value::Decimal(1, 2))
        .build()
}

/// A method with every field filled, derived from the table of methods.
fn filled(id: MethodId) -> Bytes {
    // Enough bytes to fill any field; they are cut where the method ends.
    let name = |text: &'static str| ShortStr::from(text);
    let method: Method = match id {
        ConnectionStart::ID => ConnectionStart { server_properties: arguments(), ..ConnectionStart::default() }.into(),
        ConnectionStartOk::ID => {
            ConnectionStartOk { client_properties: arguments(), mechanism: name("PLAIN"), ..Default::default() }.into()
        }
        QueueDeclare::ID => QueueDeclare { queue: name("q"), arguments: arguments(), ..Default::default() }.into(),
        QueueBind::ID => QueueBind { queue: name("q"), arguments: arguments(), ..Default::default() }.into(),
        ExchangeDeclare::ID => {
            ExchangeDeclare { exchange: name("e"), arguments: arguments(), ..Default::default() }.into()
        }
        BasicConsume::ID => BasicConsume { queue: name("q"), arguments: arguments(), ..Default::default() }.into(),
        BasicPublish::ID => BasicPublish { exchange: name("e"), routing_key: name("k"), ..Default::default() }.into(),
        BasicDeliver::ID => BasicDeliver { consumer_tag: name("c"), ..Default::default() }.into(),
        _ => {
            let mut zeros = BytesMut::from(&[0u8; 64][..]);
            zeros[..2].copy_from_slice(&id.class.to_be_bytes());
            zeros[2..4].copy_from_slice(&id.method.to_be_bytes());
            let zeros = zeros.freeze();
            let whole = (4..=64).find(|len| Method::decode(&zeros.slice(..*len)).is_ok());
            return zeros.slice(..whole.expect("zeros are a method at some length"));
        }
    };
    let mut out = BytesMut::new();
    encode_method(&mut out, 0, &method);
    out.freeze().slice(FRAME_PREFIX_BYTES..out_len(&method))
}

fn out_len(method: &Method) -> usize {
    let mut out = BytesMut::new();
    encode_method(&mut out, 0, method);
    out.len() - 1
}

#[test]
fn each_truncation_of_each_method_is_an_error() {
    for id in MethodId::ALL {
        let whole = filled(*id);
        assert_eq!(Method::decode(&whole).map(|method| method.id()), Ok(*id));
        for len in 0..whole.len() {
            assert!(Method::decode(&whole.slice(..len)).is_err(), "{:?} cut to {len} bytes", id.name());
        }
        let mut longer = BytesMut::from(&whole[..]);
        longer.extend_from_slice(b"\0");
        assert_eq!(Method::decode(&longer.freeze()), Err(DecodeError::LeftOver { bytes: 1 }), "{:?}", id.name());
    }
}

#[test]
fn each_truncation_of_properties_is_an_error() {
    let all = BasicProperties {
        content_type: Some("a".into()),
        content_encoding: Some("b".into()),
        headers: Some(arguments()),
        delivery_mode: Some(2),
        priority: Some(1),
        correlation_id: Some("c".into()),
        reply_to: Some("d".into()),
        expiration: Some("e".into()),
        message_id: Some("f".into()),
        timestamp: Some(1),
        kind: Some("g".into()),
        user_id: Some("h".into()),
        app_id: Some("i".into()),
        cluster_id: Some("j".into()),
    };
    let whole = all.encode();
    assert_eq!(Properties::new(whole.clone()).map(|properties| properties.to_basic()), Ok(all));
    for len in 0..whole.len() {
        assert!(Properties::new(whole.slice(..len)).is_err(), "cut to {len}");
        assert!(BasicProperties::decode(&whole.slice(..len)).is_err(), "cut to {len}");
    }
}

#[test]
fn claimed_lengths_allocate_nothing() {
    // A queue.declare whose table claims 4 GiB, and one whose text does.
    let mut declare = BytesMut::from(&[0, 50, 0, 10, 0, 0, 1, b'q', 0][..]);
    declare.extend_from_slice(&[0xff; 4]);
    let mut text = BytesMut::from(&[0, 10, 0, 20][..]);
    text.extend_from_slice(&[0xff; 4]);
    let mut nested = BytesMut::from(&[0, 50, 0, 10, 0, 0, 1, b'q', 0, 0, 0, 0, 7, 1, b'n', b'S'][..]);
    nested.extend_from_slice(&[0xff; 4]);
    for bytes in [declare.freeze(), text.freeze(), nested.freeze()] {
        let cost = allocation_counter::measure(|| assert!(Method::decode(&bytes).is_err()));
        assert!(cost.bytes_max < 1024, "{} bytes for {bytes:?}", cost.bytes_max);
    }
}

#[test]
fn text_that_is_not_utf8_is_an_error() {
    let bytes = Bytes::from_static(&[0, 60, 0, 30, 1, 0xff, 0]);
    assert_eq!(Method::decode(&bytes), Err(DecodeError::NotUtf8));
}

#[test]
fn unknown_methods_are_distinguished_from_malformed_ones() {
    for (class, method) in [(0, 0), (10, 99), (99, 10), (40, 41)] {
        let bytes = Bytes::copy_from_slice(&[0, class, 0, method]);
        let id = MethodId::new(class.into(), method.into());
        assert_eq!(Method::decode(&bytes), Err(DecodeError::UnknownMethod(id)));
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), class in 0usize..9, method in 0usize..13) {
        let mut framed = BytesMut::new();
        let (class, method) = ([10, 20, 30, 40, 50, 60, 85, 90, 91][class], method * 10 + class % 2);
        framed.extend_from_slice(&[0, class, 0, method as u8]);
        framed.extend_from_slice(&bytes);
        let _ = Method::decode(&framed.freeze());
        let raw = Bytes::from(bytes);
        let _ = Properties::new(raw.clone());
        let _ = ContentHeader::read(Reader::new(&raw));
        if let Ok(table) = Table::new(raw) {
            prop_assert!(table.fields().count() <= table.raw().len());
            prop_assert_eq!(table.without("no such name"), table);
        }
    }

    #[test]
    fn a_part_reads_as_the_whole_would(before in 0usize..20, after in 0usize..20, key in "[a-z]{0,30}") {
        let method: Method = BasicPublish { routing_key: key.into(), mandatory: true, ..Default::default() }.into();
        let mut out = BytesMut::new();
        encode_method(&mut out, 0, &method);
        let payload = out.freeze();
        let payload = payload.slice(FRAME_PREFIX_BYTES..payload.len() - 1);
        let mut whole = BytesMut::from(&vec![b'x'; before][..]);
        whole.extend_from_slice(&payload);
        whole.extend_from_slice(&vec![b'y'; after]);
        let whole = whole.freeze();
        prop_assert_eq!(Method::read(Reader::part(&whole, before, before + payload.len())), Ok(method));
    }
}
