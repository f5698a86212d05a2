//! Exchanges, queues and bindings.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use polylogue_amqp::codec::*;
use polylogue_amqp::request::{Binding, Reply, Request};
use session_host::*;

fn queue(messages: u32, consumers: u32) -> Reply {
    Reply::Queue { messages, consumers }
}

#[test]
fn an_empty_queue_name_is_the_last_declared_queue() {
    let (mut host, channel) = Host::open();
    host.send(1, QueueDeclare { queue: "q\r\n1".into(), durable: true, exclusive: true, ..Default::default() });
    let request = host.answer(queue(7, 2));
    let Request::DeclareQueue(of, wanted) = request else { panic!("{request:?}") };
    assert_eq!((of, &wanted.name[..], wanted.server_named), (channel, &b"q1"[..], false));
    assert!(wanted.durable && wanted.exclusive && !wanted.passive && !wanted.auto_delete);
    let ok = QueueDeclareOk { queue: "q1".into(), message_count: 7, consumer_count: 2 };
    assert_eq!(host.methods(), [ok.into()]);

    host.send(1, QueuePurge::default());
    let request = host.answer(Reply::Count(7));
    assert!(matches!(request, Request::PurgeQueue(_, name) if &name[..] == b"q1"));
    host.send(1, BasicGet::default());
    let request = host.answer(Reply::Message(None));
    assert!(matches!(request, Request::Get { queue, .. } if &queue[..] == b"q1"));
    host.send(1, BasicConsume { consumer_tag: "c".into(), ..Default::default() });
    let request = host.answer(Reply::Done);
    assert!(matches!(request, Request::Consume(_, consume) if &consume.queue[..] == b"q1"));
    host.send(1, QueueBind { exchange: "x".into(), ..Default::default() });
    let request = host.answer(Reply::Done);
    let Request::Bind(_, binding) = request else { panic!("{request:?}") };
    let expected = Binding {
        source: "x".into(),
        destination: "q1".into(),
        to_exchange: false,
        routing_key: "q1".into(),
        arguments: Table::EMPTY,
    };
    assert_eq!(binding, expected);
    host.send(1, QueueUnbind { exchange: "x".into(), routing_key: "k".into(), ..Default::default() });
    let request = host.answer(Reply::Done);
    assert!(matches!(request, Request::Unbind(_, binding) if &binding.routing_key[..] == b"k"));
    host.send(1, QueueDelete { if_unused: true, ..Default::default() });
    let request = host.answer(Reply::Count(3));
    assert!(matches!(request, Request::DeleteQueue { if_unused: true, if_empty: false, .. }));
    let expected: [Method; 6] = [
        QueuePurgeOk { message_count: 7 }.into(),
        BasicGetEmpty::default().into(),
        BasicConsumeOk { consumer_tag: "c".into() }.into(),
        QueueBindOk {}.into(),
        QueueUnbindOk {}.into(),
        QueueDeleteOk { message_count: 3 }.into(),
    ];
    assert_eq!(host.methods(), expected);
}

#[test]
fn an_empty_name_is_generated_by_the_server() {
    let (mut host, _) = Host::open();
    host.send(1, QueueDeclare::default());
    let request = host.answer(queue(0, 0));
    let Request::DeclareQueue(_, wanted) = request else { panic!("{request:?}") };
    assert!(wanted.server_named && wanted.name.starts_with(b"amq.gen-"));
    let methods = host.methods();
    assert!(matches!(&methods[..], [Method::QueueDeclareOk(ok)] if ok.queue == wanted.name));
    // It may be checked for, and not declared again.
    host.send(1, QueueDeclare { queue: wanted.name.clone(), passive: true, ..Default::default() });
    assert!(matches!(host.answer(queue(0, 0)), Request::DeclareQueue(_, wanted) if wanted.passive));
    host.sent();
    host.send(1, QueueDeclare { queue: "amq.mine".into(), ..Default::default() });
    let expected = "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'";
    assert_eq!(host.closed_channel(), (403, expected.into()));
}

#[test]
fn an_empty_name_without_a_declared_queue() {
    let methods: [Method; 6] = [
        QueuePurge::default().into(),
        QueueDelete::default().into(),
        BasicGet::default().into(),
        BasicConsume::default().into(),
        QueueBind { exchange: "x".into(), ..Default::default() }.into(),
        QueueUnbind { exchange: "x".into(), ..Default::default() }.into(),
    ];
    for method in methods {
        let (mut host, _) = Host::open();
        host.send(1, method);
        assert_eq!(host.closed_channel(), (404, "NOT_FOUND - no previously declared queue".into()));
    }
}

#[test]
fn nowait_sends_nothing_and_keeps_the_name() {
    let (mut host, _) = Host::open();
    host.send(1, QueueDeclare { queue: "q".into(), nowait: true, ..Default::default() });
    host.answer(queue(0, 0));
    let methods: [(Method, Reply); 8] = [
        (QueueBind { exchange: "x".into(), nowait: true, ..Default::default() }.into(), Reply::Done),
        (QueuePurge { nowait: true, ..Default::default() }.into(), Reply::Count(1)),
        (BasicConsume { nowait: true, consumer_tag: "c".into(), ..Default::default() }.into(), Reply::Done),
        (BasicCancel { nowait: true, consumer_tag: "c".into() }.into(), Reply::Done),
        (ExchangeDeclare { exchange: "x".into(), nowait: true, ..Default::default() }.into(), Reply::Done),
        (ExchangeDelete { exchange: "x".into(), nowait: true, ..Default::default() }.into(), Reply::Done),
        (
            ExchangeBind { destination: "x".into(), source: "y".into(), nowait: true, ..Default::default() }.into(),
            Reply::Done,
        ),
        (QueueDelete { nowait: true, ..Default::default() }.into(), Reply::Count(1)),
    ];
    for (method, reply) in methods {
        host.send(1, method.clone());
        assert!(host.session.poll_request().is_some_and(|(token, _)| {
            host.reply(token, reply);
            true
        }));
        assert!(host.sent().is_empty(), "{method:?}");
    }
    host.send(1, ConfirmSelect { nowait: true });
    assert!(host.sent().is_empty());
}

#[test]
fn exchanges() {
    let (mut host, _) = Host::open();
    let arguments = TableBuilder::new().with_text("alternate-exchange", "ae").build();
    let declare = ExchangeDeclare {
        exchange: "x\n".into(),
        kind: "topic".into(),
        durable: true,
        internal: true,
        arguments: arguments.clone(),
        ..Default::default()
    };
    host.send(1, declare);
    let request = host.answer(Reply::Done);
    let Request::DeclareExchange(_, wanted) = request else { panic!("{request:?}") };
    assert_eq!((&wanted.name[..], &wanted.kind[..], &wanted.arguments), (&b"x"[..], &b"topic"[..], &arguments));
    assert!(wanted.durable && wanted.internal && !wanted.auto_delete && !wanted.passive);
    host.send(1, ExchangeBind { destination: "a".into(), source: "b".into(), ..Default::default() });
    assert!(matches!(host.answer(Reply::Done), Request::Bind(_, binding) if binding.to_exchange));
    host.send(1, ExchangeUnbind { destination: "a".into(), source: "b".into(), ..Default::default() });
    assert!(matches!(host.answer(Reply::Done), Request::Unbind(_, binding) if binding.to_exchange));
    host.send(1, ExchangeDelete { exchange: "x".into(), if_unused: true, ..Default::default() });
    assert!(matches!(host.answer(Reply::Done), Request::DeleteExchange { if_unused: true, .. }));
    let expected: [Method; 4] =
        [ExchangeDeclareOk {}.into(), ExchangeBindOk {}.into(), ExchangeUnbindOk {}.into(), ExchangeDeleteOk {}.into()];
    assert_eq!(host.methods(), expected);
}

#[test]
fn the_default_exchange_is_protected() {
    let methods: [Method; 8] = [
        ExchangeDeclare::default().into(),
        ExchangeDeclare { exchange: "\r\n".into(), ..Default::default() }.into(),
        ExchangeDeclare { passive: true, ..Default::default() }.into(),
        ExchangeDelete::default().into(),
        ExchangeBind { destination: "x".into(), ..Default::default() }.into(),
        ExchangeUnbind { source: "x".into(), ..Default::default() }.into(),
        QueueBind { queue: "q".into(), ..Default::default() }.into(),
        QueueUnbind { queue: "q".into(), ..Default::default() }.into(),
    ];
    for method in methods {
        let (mut host, _) = Host::open();
        host.send(1, method);
        let expected = "ACCESS_REFUSED - operation not permitted on the default exchange";
        assert_eq!(host.closed_channel(), (403, expected.into()));
    }
    let (mut host, _) = Host::open();
    host.send(1, ExchangeDelete { exchange: "amq.topic".into(), ..Default::default() });
    let expected = "ACCESS_REFUSED - deletion of system exchange 'amq.topic' in vhost '/' not allowed";
    assert_eq!(host.closed_channel(), (403, expected.into()));
}

#[test]
fn the_reply_queue_is_only_checked_for() {
    let (mut host, _) = Host::open();
    host.send(1, QueueDeclare { queue: "amq.rabbitmq.reply-to".into(), ..Default::default() });
    let ok = QueueDeclareOk { queue: "amq.rabbitmq.reply-to".into(), message_count: 0, consumer_count: 1 };
    assert_eq!(host.methods(), [ok.into()]);
    assert!(host.requests().is_empty());
    host.send(1, QueueDeclare { queue: "amq.rabbitmq.reply-to.abc".into(), ..Default::default() });
    assert!(matches!(host.answer(queue(0, 1)), Request::DeclareQueue(_, wanted) if wanted.passive));
    assert!(matches!(host.methods()[..], [Method::QueueDeclareOk(_)]));
}
