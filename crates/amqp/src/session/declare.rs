//! Exchanges, queues and bindings: the checks of the session, and its requests.

use super::channel::{Channel, Waiting};
use super::core::Core;
use super::names::without_line_breaks;
use crate::codec::*;
use crate::refusal::{Kind, Refusal};
use crate::request::{Binding, DeclareExchange, DeclareQueue, REPLY_PREFIX, REPLY_QUEUE, Request};

/// The prefix of reserved names.
const SYSTEM_PREFIX: &[u8] = b"amq.";
/// The longest `x-name-prefix`. Bytes.
const NAME_PREFIX_BYTES_MAX: usize = 64;

/// Refuses operations on the default exchange.
fn not_default(exchange: &ShortStr) -> Result<(), Refusal> {
    if exchange.is_empty() { Err(Refusal::default_exchange()) } else { Ok(()) }
}

/// The argument `x-name-prefix`, if valid: a prefix for names that the server generates.
fn wanted_prefix(arguments: &Table) -> Option<String> {
    let prefix = std::str::from_utf8(arguments.get("x-name-prefix")?.as_longstr()?).ok()?.replace(['\r', '\n'], "");
    let usable = (1..=NAME_PREFIX_BYTES_MAX).contains(&prefix.len()) && !prefix.as_bytes().starts_with(SYSTEM_PREFIX);
    usable.then_some(prefix)
}

impl Channel {
    pub(super) fn on_exchange_declare(&mut self, core: &mut Core, declare: ExchangeDeclare) -> Result<(), Refusal> {
        let name = without_line_breaks(&declare.exchange);
        not_default(&name)?;
        let ExchangeDeclare { kind, passive, durable, auto_delete, internal, nowait, arguments, .. } = declare;
        let wanted = DeclareExchange { name, kind, passive, durable, auto_delete, internal, arguments };
        let request = Request::DeclareExchange(self.me, wanted);
        self.request_with_answer(core, ExchangeDeclare::ID, request, nowait, ExchangeDeclareOk {});
        Ok(())
    }

    pub(super) fn on_exchange_delete(&mut self, core: &mut Core, delete: ExchangeDelete) -> Result<(), Refusal> {
        let exchange = without_line_breaks(&delete.exchange);
        not_default(&exchange)?;
        if exchange.starts_with(SYSTEM_PREFIX) {
            return Err(Refusal::system_exchange(core.exchange(&exchange)));
        }
        let request = Request::DeleteExchange { channel: self.me, exchange, if_unused: delete.if_unused };
        self.request_with_answer(core, ExchangeDelete::ID, request, delete.nowait, ExchangeDeleteOk {});
        Ok(())
    }

    pub(super) fn on_exchange_bind(&mut self, core: &mut Core, bind: ExchangeBind) -> Result<(), Refusal> {
        let ExchangeBind { destination, source, routing_key, nowait, arguments, .. } = bind;
        let binding = exchange_binding(&destination, &source, routing_key, arguments)?;
        let request = Request::Bind(self.me, binding);
        self.request_with_answer(core, ExchangeBind::ID, request, nowait, ExchangeBindOk {});
        Ok(())
    }

    pub(super) fn on_exchange_unbind(&mut self, core: &mut Core, unbind: ExchangeUnbind) -> Result<(), Refusal> {
        let ExchangeUnbind { destination, source, routing_key, nowait, arguments, .. } = unbind;
        let binding = exchange_binding(&destination, &source, routing_key, arguments)?;
        let request = Request::Unbind(self.me, binding);
        self.request_with_answer(core, ExchangeUnbind::ID, request, nowait, ExchangeUnbindOk {});
        Ok(())
    }

    pub(super) fn on_queue_declare(&mut self, core: &mut Core, declare: QueueDeclare) -> Result<(), Refusal> {
        let QueueDeclare { passive, durable, exclusive, auto_delete, nowait, arguments, .. } = declare;
        let name = without_line_breaks(&declare.queue);
        if &name[..] == REPLY_QUEUE.as_bytes() {
            // The pseudo queue always exists; its one consumer is the channel itself.
            self.last_queue = name.to_owned_bytes();
            core.answer(self.me, nowait, QueueDeclareOk { queue: name, message_count: 0, consumer_count: 1 });
            return Ok(());
        }
        let is_reply = name.starts_with(REPLY_PREFIX.as_bytes());
        if !passive && !is_reply && name.starts_with(SYSTEM_PREFIX) {
            return Err(Refusal::reserved_name(Kind::Queue, &name));
        }
        let server_named = name.is_empty() && !passive;
        let name = match server_named {
            true => core.names.make(&wanted_prefix(&arguments).unwrap_or_else(|| "amq.gen".into())),
            false => name,
        };
        let passive = passive || is_reply;
        let wanted = DeclareQueue { name, server_named, passive, durable, exclusive, auto_delete, arguments };
        self.declare(core, wanted, nowait);
        Ok(())
    }

    pub(super) fn on_queue_bind(&mut self, core: &mut Core, bind: QueueBind) -> Result<(), Refusal> {
        let QueueBind { queue, exchange, routing_key, nowait, arguments, .. } = bind;
        let binding = self.queue_binding(queue, &exchange, routing_key, arguments)?;
        self.request_with_answer(core, QueueBind::ID, Request::Bind(self.me, binding), nowait, QueueBindOk {});
        Ok(())
    }

    pub(super) fn on_queue_unbind(&mut self, core: &mut Core, unbind: QueueUnbind) -> Result<(), Refusal> {
        let QueueUnbind { queue, exchange, routing_key, arguments, .. } = unbind;
        let binding = self.queue_binding(queue, &exchange, routing_key, arguments)?;
        self.request_with_answer(core, QueueUnbind::ID, Request::Unbind(self.me, binding), false, QueueUnbindOk {});
        Ok(())
    }

    /// An empty queue name means the last declared queue; then an empty key means its name too.
    fn queue_binding(
        &self,
        queue: ShortStr,
        exchange: &ShortStr,
        key: ShortStr,
        arguments: Table,
    ) -> Result<Binding, Refusal> {
        let routing_key = if queue.is_empty() && key.is_empty() { self.queue_name(ShortStr::EMPTY)? } else { key };
        let destination = without_line_breaks(&self.queue_name(queue)?);
        let source = without_line_breaks(exchange);
        not_default(&source)?;
        Ok(Binding { source, destination, to_exchange: false, routing_key, arguments })
    }

    pub(super) fn on_queue_purge(&mut self, core: &mut Core, purge: QueuePurge) -> Result<(), Refusal> {
        let queue = self.queue_name(purge.queue)?;
        let waiting = Waiting::Purge { nowait: purge.nowait };
        self.ask(core, QueuePurge::ID, Request::PurgeQueue(self.me, queue), waiting);
        Ok(())
    }

    pub(super) fn on_queue_delete(&mut self, core: &mut Core, delete: QueueDelete) -> Result<(), Refusal> {
        let QueueDelete { if_unused, if_empty, nowait, .. } = delete;
        let queue = without_line_breaks(&self.queue_name(delete.queue)?);
        let request = Request::DeleteQueue { channel: self.me, queue, if_unused, if_empty };
        self.ask(core, QueueDelete::ID, request, Waiting::DeleteQueue { nowait });
        Ok(())
    }
}

fn exchange_binding(
    destination: &ShortStr,
    source: &ShortStr,
    routing_key: ShortStr,
    arguments: Table,
) -> Result<Binding, Refusal> {
    let (destination, source) = (without_line_breaks(destination), without_line_breaks(source));
    not_default(&destination)?;
    not_default(&source)?;
    Ok(Binding { source, destination, to_exchange: true, routing_key, arguments })
}
