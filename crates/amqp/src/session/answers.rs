//! How a channel handles the reply that it waits for.

use super::channel::{Channel, Waiting};
use super::core::Core;
use crate::codec::{ChannelCloseOk, QueueDeclareOk, QueueDeleteOk, QueuePurgeOk, TxCommitOk};
use crate::refusal::Refusal;
use crate::request::Reply;

impl Channel {
    /// Handles the awaited reply: completes the operation, or returns the refusal.
    pub(super) fn on_reply(&mut self, core: &mut Core, waiting: Waiting, reply: Reply) -> Result<(), Refusal> {
        let me = self.me;
        match (waiting, reply) {
            (Waiting::Open, Reply::Done) => self.opened(core),
            // The channel number may be reused immediately.
            (Waiting::Close, _) => core.answer(me, false, ChannelCloseOk {}),
            (Waiting::Respond(Some(method)), Reply::Done) => core.answer(me, false, method),
            (Waiting::Respond(None), Reply::Done) => {}
            (Waiting::DeclareQueue { name, nowait }, Reply::Queue { messages, consumers }) => {
                self.last_queue = name.clone();
                let ok = QueueDeclareOk { queue: name, message_count: messages, consumer_count: consumers };
                core.answer(me, nowait, ok);
            }
            (Waiting::Purge { nowait }, Reply::Count(message_count)) => {
                core.answer(me, nowait, QueuePurgeOk { message_count });
            }
            (Waiting::DeleteQueue { nowait }, Reply::Count(message_count)) => {
                core.answer(me, nowait, QueueDeleteOk { message_count });
            }
            (Waiting::Consume { consumer, at, nowait }, Reply::Done) => self.consuming(core, consumer, at, nowait),
            (Waiting::Cancel { consumer, tag, nowait }, Reply::Done) => self.cancelled(core, consumer, tag, nowait),
            (Waiting::Get { no_ack }, Reply::Message(got)) => {
                self.on_message_got(core, got.map(|got| *got), no_ack);
            }
            (Waiting::Replies { consumer, tag, nowait }, Reply::ReplyAddress(suffix)) => {
                self.taking_replies(core, &suffix, (consumer, tag), nowait);
            }
            (Waiting::Commit, Reply::Done) => core.answer(me, false, TxCommitOk {}),
            (_, Reply::Refused(refusal)) => return Err(refusal),
            _ => return Err(Refusal::internal("the broker's reply does not match the request")),
        }
        Ok(())
    }
}
