//! The codec against an independent one, the crate `amq-protocol`: each decodes what the other encodes, with the same result.

#![allow(clippy::expect_used, clippy::panic, reason = "a test")]

use amq_protocol::frame::{AMQPContentHeader, AMQPFrame, gen_frame, parse_frame};
use amq_protocol::protocol::{AMQPClass, basic, channel, confirm, connection, exchange, queue, tx};
use amq_protocol::types as theirs;
use bytes::{Bytes, BytesMut};
use polylogue_amqp::codec::*;
use proptest::prelude::*;

/// Encodes a frame with the other codec.
fn their_bytes(frame: &AMQPFrame) -> Bytes {
    let out = gen_frame::<Vec<u8>>(frame)(Vec::new().into()).expect("it writes").into_inner().0;
    Bytes::from(out)
}

fn their_frame(bytes: &[u8]) -> AMQPFrame {
    let (rest, frame) = parse_frame(bytes).expect("it reads");
    assert!(rest.is_empty());
    frame
}

fn payload(frame: &Bytes) -> Bytes {
    assert_eq!(frame.last(), Some(&FRAME_END));
    frame.slice(FRAME_PREFIX_BYTES..frame.len() - 1)
}

/// Encodes with theirs, decodes and encodes with ours, decodes with theirs.
fn there_and_back(class: AMQPClass) -> Method {
    let frame = AMQPFrame::Method(7, class);
    let bytes = their_bytes(&frame);
    let method = Method::decode(&payload(&bytes)).unwrap_or_else(|error| panic!("{frame:?}: {error}"));
    let mut out = BytesMut::new();
    encode_method(&mut out, 7, &method);
    assert_eq!(out, bytes, "{method:?}");
    assert_eq!(their_frame(&out), frame);
    method
}

fn text(text: &str) -> theirs::ShortString {
    theirs::ShortString::try_new(text).expect("a short text")
}

fn their_table() -> theirs::FieldTable {
    let mut inner = theirs::FieldTable::default();
    inner.insert(text("deep"), theirs::AMQPValue::Void);
    let mut table = theirs::FieldTable::default();
    let mut array = theirs::FieldArray::default();
    array.push(theirs::AMQPValue::LongString("one".into()));
    array.push(theirs::AMQPValue::FieldTable(inner.clone()));
    for (name, value) in [
        ("t", theirs::AMQPValue::Boolean(true)),
        ("b", theirs::AMQPValue::ShortShortInt(-7)),
        ("B", theirs::AMQPValue::ShortShortUInt(200)),
        ("s", theirs::AMQPValue::ShortInt(-300)),
        ("u", theirs::AMQPValue::ShortUInt(60_000)),
        ("I", theirs::AMQPValue::LongInt(-70_000)),
        ("i", theirs::AMQPValue::LongUInt(4_000_000_000)),
        ("l", theirs::AMQPValue::LongLongInt(i64::MIN)),
        ("f", theirs::AMQPValue::Float(1.5)),
        ("d", theirs::AMQPValue::Double(-2.25)),
        ("D", theirs::AMQPValue::DecimalValue(theirs::DecimalValue { scale: 2, value: 314 })),
        ("S", theirs::AMQPValue::LongString("text".into())),
        ("A", theirs::AMQPValue::FieldArray(array)),
        ("T", theirs::AMQPValue::Timestamp(1_700_000_000)),
        ("F", theirs::AMQPValue::FieldTable(inner)),
        ("x", theirs::AMQPValue::ByteArray(vec![0, 255].into())),
        ("V", theirs::AMQPValue::Void),
    ] {
        table.insert(text(name), value);
    }
    table
}

fn check_table(table: &Table) {
    for (name, value) in [
        ("t", Value::Bool(true)),
        ("b", Value::I8(-7)),
        ("B", Value::U8(200)),
        ("s", Value::I16(-300)),
        ("u", Value::U16(60_000)),
        ("I", Value::I32(-70_000)),
        ("i", Value::U32(4_000_000_000)),
        ("l", Value::I64(i64::MIN)),
        ("f", Value::F32(1.5)),
        ("d", Value::F64(-2.25)),
        ("D", Value::Decimal(2, 314)),
        ("S", Value::LongStr(b"text")),
        ("T", Value::Timestamp(1_700_000_000)),
        ("x", Value::ByteArray(&[0, 255])),
        ("V", Value::Void),
    ] {
        assert_eq!(table.get(name), Some(value), "{name}");
    }
    let array: Vec<_> = table.get("A").expect("an array").elements().collect();
    assert_eq!(array.first(), Some(&(b'S', Value::LongStr(b"one"))));
    assert_eq!(array[1].1.fields().next().map(|field| field.name), Some(b"deep".as_slice()));
    assert_eq!(table.get("F").expect("a table").fields().count(), 1);
    let mut again = TableBuilder::new();
    for field in table.fields() {
        again = again.with(std::str::from_utf8(field.name).expect("a name"), field.value);
    }
    assert_eq!(again.build(), *table);
}

#[test]
fn connection_methods_and_every_type_of_field() {
    use connection::AMQPMethod as M;
    let start = there_and_back(AMQPClass::Connection(M::Start(connection::Start {
        version_major: 0,
        version_minor: 9,
        server_properties: their_table(),
        mechanisms: "PLAIN AMQPLAIN".into(),
        locales: "en_US".into(),
    })));
    let Method::ConnectionStart(start) = start else { panic!("{start:?}") };
    check_table(&start.server_properties);
    for method in [
        M::StartOk(connection::StartOk {
            client_properties: their_table(),
            mechanism: text("PLAIN"),
            response: "\0guest\0guest".into(),
            locale: text("en_US"),
        }),
        M::Secure(connection::Secure { challenge: "c".into() }),
        M::SecureOk(connection::SecureOk { response: "r".into() }),
        M::Tune(connection::Tune { channel_max: 2047, frame_max: 131_072, heartbeat: 60 }),
        M::TuneOk(connection::TuneOk { channel_max: 1, frame_max: 4096, heartbeat: 0 }),
        M::Open(connection::Open { virtual_host: text("/") }),
        M::OpenOk(connection::OpenOk {}),
        M::Close(connection::Close { reply_code: 320, reply_text: text("bye"), class_id: 60, method_id: 40 }),
        M::CloseOk(connection::CloseOk {}),
        M::Blocked(connection::Blocked { reason: text("low on disk") }),
        M::Unblocked(connection::Unblocked {}),
        M::UpdateSecret(connection::UpdateSecret { new_secret: "s".into(), reason: text("r") }),
        M::UpdateSecretOk(connection::UpdateSecretOk {}),
    ] {
        there_and_back(AMQPClass::Connection(method));
    }
}

#[test]
fn channel_confirm_and_tx_methods() {
    use channel::AMQPMethod as M;
    for method in [
        M::Open(channel::Open {}),
        M::OpenOk(channel::OpenOk {}),
        M::Flow(channel::Flow { active: true }),
        M::FlowOk(channel::FlowOk { active: false }),
        M::Close(channel::Close { reply_code: 404, reply_text: text("NOT_FOUND"), class_id: 50, method_id: 10 }),
        M::CloseOk(channel::CloseOk {}),
    ] {
        there_and_back(AMQPClass::Channel(method));
    }
    there_and_back(AMQPClass::Confirm(confirm::AMQPMethod::Select(confirm::Select { nowait: true })));
    there_and_back(AMQPClass::Confirm(confirm::AMQPMethod::SelectOk(confirm::SelectOk {})));
    use tx::AMQPMethod as T;
    for method in [
        T::Select(tx::Select {}),
        T::SelectOk(tx::SelectOk {}),
        T::Commit(tx::Commit {}),
        T::CommitOk(tx::CommitOk {}),
        T::Rollback(tx::Rollback {}),
        T::RollbackOk(tx::RollbackOk {}),
    ] {
        there_and_back(AMQPClass::Tx(method));
    }
}

#[test]
fn exchange_and_queue_methods() {
    use exchange::AMQPMethod as M;
    for method in [
        M::Declare(exchange::Declare {
            exchange: text("x"),
            kind: text("topic"),
            passive: false,
            durable: true,
            auto_delete: false,
            internal: true,
            nowait: true,
            arguments: their_table(),
        }),
        M::DeclareOk(exchange::DeclareOk {}),
        M::Delete(exchange::Delete { exchange: text("x"), if_unused: true, nowait: false }),
        M::DeleteOk(exchange::DeleteOk {}),
        M::Bind(exchange::Bind {
            destination: text("d"),
            source: text("s"),
            routing_key: text("k"),
            nowait: true,
            arguments: their_table(),
        }),
        M::BindOk(exchange::BindOk {}),
        M::Unbind(exchange::Unbind {
            destination: text("d"),
            source: text("s"),
            routing_key: text("k"),
            nowait: false,
            arguments: theirs::FieldTable::default(),
        }),
        M::UnbindOk(exchange::UnbindOk {}),
    ] {
        there_and_back(AMQPClass::Exchange(method));
    }
    use queue::AMQPMethod as Q;
    for method in [
        Q::Declare(queue::Declare {
            queue: text("q"),
            passive: true,
            durable: false,
            exclusive: true,
            auto_delete: false,
            nowait: true,
            arguments: their_table(),
        }),
        Q::DeclareOk(queue::DeclareOk { queue: text("q"), message_count: 5, consumer_count: 1 }),
        Q::Bind(queue::Bind {
            queue: text("q"),
            exchange: text("x"),
            routing_key: text("k"),
            nowait: false,
            arguments: their_table(),
        }),
        Q::BindOk(queue::BindOk {}),
        Q::Purge(queue::Purge { queue: text("q"), nowait: true }),
        Q::PurgeOk(queue::PurgeOk { message_count: 9 }),
        Q::Delete(queue::Delete { queue: text("q"), if_unused: true, if_empty: false, nowait: true }),
        Q::DeleteOk(queue::DeleteOk { message_count: 9 }),
        Q::Unbind(queue::Unbind {
            queue: text("q"),
            exchange: text("x"),
            routing_key: text("k"),
            arguments: their_table(),
        }),
        Q::UnbindOk(queue::UnbindOk {}),
    ] {
        there_and_back(AMQPClass::Queue(method));
    }
}

#[test]
fn basic_methods() {
    use basic::AMQPMethod as M;
    for method in [
        M::Qos(basic::Qos { prefetch_count: 10, global: true }),
        M::QosOk(basic::QosOk {}),
        M::Consume(basic::Consume {
            queue: text("q"),
            consumer_tag: text("c"),
            no_local: true,
            no_ack: false,
            exclusive: true,
            nowait: false,
            arguments: their_table(),
        }),
        M::ConsumeOk(basic::ConsumeOk { consumer_tag: text("c") }),
        M::Cancel(basic::Cancel { consumer_tag: text("c"), nowait: true }),
        M::CancelOk(basic::CancelOk { consumer_tag: text("c") }),
        M::Publish(basic::Publish { exchange: text("x"), routing_key: text("k"), mandatory: true, immediate: false }),
        M::Return(basic::Return {
            reply_code: 312,
            reply_text: text("NO_ROUTE"),
            exchange: text("x"),
            routing_key: text("k"),
        }),
        M::Deliver(basic::Deliver {
            consumer_tag: text("c"),
            delivery_tag: u64::MAX,
            redelivered: true,
            exchange: text("x"),
            routing_key: text("k"),
        }),
        M::Get(basic::Get { queue: text("q"), no_ack: true }),
        M::GetOk(basic::GetOk {
            delivery_tag: 1,
            redelivered: false,
            exchange: text("x"),
            routing_key: text("k"),
            message_count: 3,
        }),
        M::GetEmpty(basic::GetEmpty {}),
        M::Ack(basic::Ack { delivery_tag: 3, multiple: true }),
        M::Reject(basic::Reject { delivery_tag: 3, requeue: true }),
        M::RecoverAsync(basic::RecoverAsync { requeue: true }),
        M::Recover(basic::Recover { requeue: false }),
        M::RecoverOk(basic::RecoverOk {}),
        M::Nack(basic::Nack { delivery_tag: 3, multiple: false, requeue: true }),
    ] {
        there_and_back(AMQPClass::Basic(method));
    }
}

#[test]
fn header_body_and_heartbeat_frames() {
    let properties = basic::AMQPProperties::default()
        .with_content_type(text("text/plain"))
        .with_headers(their_table())
        .with_delivery_mode(2)
        .with_priority(9)
        .with_correlation_id(text("id"))
        .with_reply_to(text("r"))
        .with_expiration(text("1000"))
        .with_message_id(text("m"))
        .with_timestamp(12)
        .with_type(text("t"))
        .with_user_id(text("guest"))
        .with_app_id(text("a"));
    let frame = AMQPFrame::Header(3, AMQPContentHeader { class_id: 60, body_size: 77, properties });
    let bytes = their_bytes(&frame);
    let raw = payload(&bytes);
    let header = ContentHeader::read(Reader::new(&raw)).expect("a header");
    assert_eq!((header.class, header.weight, header.body_size), (60, 0, 77));
    let ours = Properties::new(header.properties.clone()).expect("properties");
    check_table(&ours.headers().expect("headers"));
    assert_eq!((ours.delivery_mode, ours.priority), (Some(2), Some(9)));
    assert_eq!(ours.text(Property::AppId), Some("a".into()));
    assert_eq!(ours.to_basic().encode(), header.properties);
    let mut out = BytesMut::new();
    encode_header(&mut out, 3, 77, &header.properties);
    assert_eq!(out, bytes);

    let mut out = BytesMut::new();
    encode_heartbeat(&mut out);
    assert_eq!(their_frame(&out), AMQPFrame::Heartbeat);

    let mut out = BytesMut::new();
    out.extend_from_slice(&body_prefix(9, 3));
    out.extend_from_slice(b"abc\xce");
    assert_eq!(their_frame(&out), AMQPFrame::Body(9, b"abc".to_vec()));
}

#[test]
fn the_table_of_methods_is_whole() {
    // Counts the methods tested above: each method of our table was compared with theirs, except `access.request` (which has another name there) and
    // its answer.
    assert_eq!(MethodId::ALL.len(), 14 + 6 + 2 + 8 + 10 + 18 + 2 + 6);
    for id in MethodId::ALL {
        assert!(id.name().is_some());
    }
    let request = AccessRequest { realm: "/data".into(), active: true, ..AccessRequest::default() };
    let mut out = BytesMut::new();
    encode_method(&mut out, 1, &request.clone().into());
    assert_eq!(Method::decode(&payload(&out.freeze())), Ok(request.into()));
}

fn their_value() -> impl Strategy<Value = theirs::AMQPValue> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(theirs::AMQPValue::Boolean),
        any::<i8>().prop_map(theirs::AMQPValue::ShortShortInt),
        any::<u16>().prop_map(theirs::AMQPValue::ShortUInt),
        any::<i32>().prop_map(theirs::AMQPValue::LongInt),
        any::<i64>().prop_map(theirs::AMQPValue::LongLongInt),
        any::<u64>().prop_map(theirs::AMQPValue::Timestamp),
        any::<Vec<u8>>().prop_map(|bytes| theirs::AMQPValue::ByteArray(bytes.into())),
        "[a-z]{0,40}".prop_map(|text: String| theirs::AMQPValue::LongString(text.into())),
        Just(theirs::AMQPValue::Void),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5)
                .prop_map(|values| theirs::AMQPValue::FieldArray(values.into())),
            proptest::collection::btree_map("[a-z]{0,9}", inner, 0..5).prop_map(|fields| {
                let mut table = theirs::FieldTable::default();
                for (name, value) in fields {
                    table.insert(text(&name), value);
                }
                theirs::AMQPValue::FieldTable(table)
            }),
        ]
    })
}

proptest! {
    #[test]
    fn any_table_of_theirs_is_one_of_ours(fields in proptest::collection::btree_map("[a-z]{0,9}", their_value(), 0..8)) {
        let mut arguments = theirs::FieldTable::default();
        for (name, value) in fields {
            arguments.insert(text(&name), value);
        }
        let count = arguments.inner().len();
        let method = there_and_back(AMQPClass::Queue(queue::AMQPMethod::Declare(queue::Declare {
            queue: text("q"),
            passive: false,
            durable: true,
            exclusive: false,
            auto_delete: true,
            nowait: false,
            arguments,
        })));
        let Method::QueueDeclare(declare) = method else { panic!("{method:?}") };
        prop_assert_eq!(declare.arguments.fields().count(), count);
    }

    #[test]
    fn any_method_of_ours_is_one_of_theirs(
        tag in any::<u64>(), redelivered in any::<bool>(), exchange in "\\PC{0,60}", key in "\\PC{0,60}", consumer in "\\PC{0,60}",
    ) {
        let method: Method = BasicDeliver {
            consumer_tag: consumer.into(),
            delivery_tag: tag,
            redelivered,
            exchange: exchange.clone().into(),
            routing_key: key.into(),
        }
        .into();
        let mut out = BytesMut::new();
        encode_method(&mut out, 9, &method);
        let AMQPFrame::Method(9, AMQPClass::Basic(basic::AMQPMethod::Deliver(theirs))) = their_frame(&out) else {
            panic!("not a delivery")
        };
        prop_assert_eq!(theirs.delivery_tag, tag);
        prop_assert_eq!(theirs.exchange.as_str(), exchange);
        prop_assert_eq!(Method::decode(&payload(&out.freeze())), Ok(method));
    }
}
