//! The state of a channel, and the effect of each method on it.

use super::confirms::Confirms;
use super::consume::Consumer;
use super::core::Core;
use super::publish::Assembling;
use super::tx::Tx;
use super::unacked::Deliveries;
use crate::codec::{
    AccessRequestOk, ChannelClose, ChannelCloseOk, ChannelFlowOk, ChannelOpenOk, Method, MethodId, ShortStr, TxSelectOk,
};
use crate::refusal::Refusal;
use crate::request::{ChannelRef, ConsumerRef, DeclareQueue, Request};
use polylogue_api::Token;
use polylogue_types::Map;
use std::collections::BTreeMap;

/// The stage of a channel's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Life {
    /// The broker was asked to open it.
    Opening,
    /// It is open.
    Open,
    /// The client has closed it; the broker's reply is outstanding.
    Ending,
    /// The server has closed it: everything that the client sends before `channel.close_ok` is ignored.
    Closing,
}

/// How publishes and acknowledgements are handled.
#[derive(Debug)]
pub(super) enum Mode {
    /// Without confirms and transactions.
    Plain,
    /// With publisher confirms.
    Confirm(Confirms),
    /// In a transaction, until `tx.commit`.
    Tx(Box<Tx>),
}

/// What to do when the awaited reply arrives.
#[derive(Debug)]
pub(super) enum Waiting {
    /// The channel is open.
    Open,
    /// The channel is closed.
    Close,
    /// Sends this method, if any.
    Respond(Option<Method>),
    /// Sends `queue.declare_ok`.
    DeclareQueue { name: ShortStr, nowait: bool },
    /// Sends `queue.purge_ok`.
    Purge { nowait: bool },
    /// Sends `queue.delete_ok`.
    DeleteQueue { nowait: bool },
    /// Adds the consumer.
    Consume { consumer: Consumer, at: ConsumerRef, nowait: bool },
    /// Removes the consumer.
    Cancel { consumer: ConsumerRef, tag: ShortStr, nowait: bool },
    /// Sends the message of `basic.get`.
    Get { no_ack: bool },
    /// Adds the reply consumer.
    Replies { consumer: ConsumerRef, tag: ShortStr, nowait: bool },
    /// Completes the transaction.
    Commit,
}

/// An awaited reply.
#[derive(Debug)]
pub(super) struct Awaited {
    pub(super) token: Token,
    pub(super) waiting: Waiting,
    /// The method that a refusal is reported for.
    pub(super) method: MethodId,
}

/// The channel's reply consumer (direct reply-to).
#[derive(Debug)]
pub(super) struct Replies {
    pub(super) consumer: ConsumerRef,
    pub(super) tag: ShortStr,
    /// The complete reply address.
    pub(super) address: ShortStr,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) me: ChannelRef,
    pub(super) life: Life,
    /// While this is set, no further frame of the channel is processed.
    pub(super) awaited: Option<Awaited>,
    /// The message that is arriving.
    pub(super) assembling: Option<Assembling>,
    pub(super) mode: Mode,
    pub(super) unacked: Deliveries,
    /// The delivery tag of the next delivery.
    pub(super) next_tag: u64,
    pub(super) consumers: Map<ConsumerRef, Consumer>,
    pub(super) by_tag: BTreeMap<ShortStr, ConsumerRef>,
    pub(super) replies: Option<Replies>,
    /// The queue that an empty name refers to; empty if none was declared yet.
    pub(super) last_queue: ShortStr,
    /// The prefetch limit of the next consumer, 0 for no limit.
    pub(super) prefetch: u16,
    /// The shared prefetch limit of all consumers, 0 for no limit.
    pub(super) shared_prefetch: u16,
}

impl Channel {
    pub(super) fn new(me: ChannelRef) -> Channel {
        Channel {
            me,
            life: Life::Opening,
            awaited: None,
            assembling: None,
            mode: Mode::Plain,
            unacked: Deliveries::default(),
            next_tag: 1,
            consumers: Map::default(),
            by_tag: BTreeMap::new(),
            replies: None,
            last_queue: ShortStr::EMPTY,
            prefetch: 0,
            shared_prefetch: 0,
        }
    }

    /// Sends a request and stops processing the channel's frames until its reply.
    pub(super) fn ask(&mut self, core: &mut Core, method: MethodId, request: Request, waiting: Waiting) {
        let token = core.ask_for(self.me, request);
        self.awaited = Some(Awaited { token, waiting, method });
    }

    /// Sends a request whose reply is answered with one method.
    pub(super) fn request_with_answer(
        &mut self,
        core: &mut Core,
        method: MethodId,
        request: Request,
        nowait: bool,
        answer: impl Into<Method>,
    ) {
        let response = (!nowait).then(|| answer.into());
        self.ask(core, method, request, Waiting::Respond(response));
    }

    /// Handles `channel.open`, the first method of a channel.
    pub(super) fn open(&mut self, core: &mut Core) {
        self.ask(core, crate::codec::ChannelOpen::ID, Request::OpenChannel(self.me), Waiting::Open);
    }

    /// Closes the channel with a refusal.
    pub(super) fn refuse(&mut self, core: &mut Core, method: MethodId, refusal: &Refusal) {
        self.forget(core);
        self.life = Life::Closing;
        let close = ChannelClose {
            reply_code: refusal.code.number(),
            reply_text: refusal.reply_text(),
            class_id: method.class,
            method_id: method.method,
        };
        core.output.method(self.me.number, &close.into());
        core.ask_for(self.me, Request::CloseChannel(self.me));
    }

    /// Releases what the channel holds: the broker requeues its deliveries.
    pub(super) fn forget(&mut self, core: &mut Core) {
        self.abandon_content(core);
        self.awaited = None;
        self.mode = Mode::Plain;
        self.unacked = Deliveries::default();
        self.consumers = Map::default();
        self.by_tag = BTreeMap::new();
        self.replies = None;
    }

    /// Handles a method on a channel that the server has closed. Returns whether the channel is now over.
    pub(super) fn on_method_while_closing(&mut self, core: &mut Core, id: MethodId) -> bool {
        if id == crate::codec::ChannelClose::ID {
            // Both sides have closed: the client's own `channel.close_ok` is still outstanding.
            core.output.method(self.me.number, &ChannelCloseOk {}.into());
        }
        id == ChannelCloseOk::ID
    }

    /// Handles a method on the open channel.
    pub(super) fn on_method(&mut self, core: &mut Core, method: Method) -> Result<(), Refusal> {
        match method {
            Method::ChannelOpen(_) => Err(Refusal::second_channel_open()),
            Method::ChannelClose(_) => {
                self.on_client_close(core);
                Ok(())
            }
            Method::ChannelFlow(flow) if flow.active => {
                core.answer(self.me, false, ChannelFlowOk { active: true });
                Ok(())
            }
            Method::ChannelFlow(_) => Err(Refusal::not_implemented("active=false")),
            Method::AccessRequest(_) => {
                core.answer(self.me, false, AccessRequestOk { ticket: 1 });
                Ok(())
            }
            Method::ExchangeDeclare(declare) => self.on_exchange_declare(core, declare),
            Method::ExchangeDelete(delete) => self.on_exchange_delete(core, delete),
            Method::ExchangeBind(bind) => self.on_exchange_bind(core, bind),
            Method::ExchangeUnbind(unbind) => self.on_exchange_unbind(core, unbind),
            Method::QueueDeclare(declare) => self.on_queue_declare(core, declare),
            Method::QueueBind(bind) => self.on_queue_bind(core, bind),
            Method::QueueUnbind(unbind) => self.on_queue_unbind(core, unbind),
            Method::QueuePurge(purge) => self.on_queue_purge(core, purge),
            Method::QueueDelete(delete) => self.on_queue_delete(core, delete),
            Method::BasicQos(qos) => self.on_qos(core, &qos),
            Method::BasicConsume(consume) => self.on_consume(core, consume),
            Method::BasicCancel(cancel) => self.on_cancel(core, cancel),
            Method::BasicGet(get) => self.on_get(core, get),
            Method::BasicPublish(publish) => self.on_publish(publish),
            Method::BasicAck(ack) => self.on_ack(core, &ack),
            Method::BasicNack(nack) => self.on_nack(core, &nack),
            Method::BasicReject(reject) => self.on_reject(core, &reject),
            Method::BasicRecover(recover) => self.on_recover(core, recover.requeue, true),
            Method::BasicRecoverAsync(recover) => self.on_recover(core, recover.requeue, false),
            Method::ConfirmSelect(select) => self.on_confirm_select(core, &select),
            Method::TxSelect(_) => self.on_tx_select(core),
            Method::TxCommit(_) => self.on_tx_commit(core),
            Method::TxRollback(_) => self.on_tx_rollback(core),
            _ => Err(Refusal::unimplemented_method()),
        }
    }

    fn on_client_close(&mut self, core: &mut Core) {
        self.forget(core);
        self.life = Life::Ending;
        self.ask(core, crate::codec::ChannelClose::ID, Request::CloseChannel(self.me), Waiting::Close);
    }

    /// The broker has opened the channel.
    pub(super) fn opened(&mut self, core: &mut Core) {
        self.life = Life::Open;
        core.answer(self.me, false, ChannelOpenOk::default());
    }

    fn on_tx_select(&mut self, core: &mut Core) -> Result<(), Refusal> {
        match self.mode {
            Mode::Confirm(_) => return Err(Refusal::confirm_to_tx()),
            Mode::Plain => self.mode = Mode::Tx(Box::default()),
            Mode::Tx(_) => {}
        }
        core.answer(self.me, false, TxSelectOk {});
        Ok(())
    }

    /// Resolves a queue name; an empty one is the last declared queue.
    pub(super) fn queue_name(&self, name: ShortStr) -> Result<ShortStr, Refusal> {
        match (name.is_empty(), self.last_queue.is_empty()) {
            (false, _) => Ok(name),
            (true, false) => Ok(self.last_queue.clone()),
            (true, true) => Err(Refusal::no_previous_queue()),
        }
    }

    /// Requests a queue declaration.
    pub(super) fn declare(&mut self, core: &mut Core, declare: DeclareQueue, nowait: bool) {
        let waiting = Waiting::DeclareQueue { name: declare.name.to_owned_bytes(), nowait };
        let request = Request::DeclareQueue(self.me, declare);
        self.ask(core, crate::codec::QueueDeclare::ID, request, waiting);
    }
}
