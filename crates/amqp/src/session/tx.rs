//! Transactions: publishes and settlements are kept here until they are committed.

use super::channel::{Channel, Mode, Waiting};
use super::core::Core;
use super::unacked::{Unacked, add_to_runs};
use crate::codec::{ConfirmSelect, ConfirmSelectOk, ShortStr, TxCommit, TxCommitOk, TxRollbackOk};
use crate::refusal::Refusal;
use crate::request::{Body, Publish, Request, Run, Verdict};
use bytes::{Bytes, BytesMut};

/// The pending operations. Their bytes are copies: they do not retain buffers of the connection.
#[derive(Debug, Default)]
pub(super) struct Tx {
    publishes: Vec<Publish>,
    /// Size of all publishes. Bytes.
    bytes: usize,
    settled: Vec<(Verdict, Vec<Unacked>)>,
    settled_count: usize,
}

/// Copies a publish out of the input buffer.
fn owned(publish: Publish) -> Publish {
    let mut body = BytesMut::with_capacity(publish.body.len());
    for piece in publish.body.pieces() {
        body.extend_from_slice(piece);
    }
    let copies = |keys: Vec<Bytes>| keys.into_iter().map(|key| Bytes::copy_from_slice(&key)).collect();
    Publish {
        exchange: publish.exchange.to_owned_bytes(),
        routing_key: publish.routing_key.to_owned_bytes(),
        properties: publish.properties.to_owned_bytes(),
        cc: copies(publish.cc),
        bcc: copies(publish.bcc),
        body: Body::One(body.freeze()),
        ..publish
    }
}

/// The memory of a publish apart from its body. Bytes.
fn overhead(publish: &Publish) -> usize {
    let strings: [&ShortStr; 2] = [&publish.exchange, &publish.routing_key];
    let strings: usize = strings.into_iter().map(|string| string.len()).sum();
    size_of::<Publish>() + strings + publish.properties.raw().len()
}

impl Tx {
    pub(super) fn publish(&mut self, core: &Core, publish: Publish) -> Result<(), Refusal> {
        let settings = &core.settings;
        self.bytes = self.bytes.saturating_add(overhead(&publish)).saturating_add(publish.body.len());
        if self.publishes.len() >= settings.tx_messages_max {
            return Err(Refusal::tx_too_large("messages", settings.tx_messages_max));
        }
        if self.bytes > settings.tx_bytes_max {
            return Err(Refusal::tx_too_large("bytes", settings.tx_bytes_max));
        }
        self.publishes.push(owned(publish));
        Ok(())
    }

    pub(super) fn settle(&mut self, core: &Core, verdict: Verdict, taken: Vec<Unacked>) -> Result<(), Refusal> {
        self.settled_count += taken.len();
        if self.settled_count > core.settings.tx_settled_max {
            return Err(Refusal::tx_too_large("acknowledgements", core.settings.tx_settled_max));
        }
        match self.settled.last_mut() {
            Some((last, entries)) if *last == verdict => entries.extend(taken),
            _ => self.settled.push((verdict, taken)),
        }
        Ok(())
    }
}

impl Channel {
    pub(super) fn on_confirm_select(&mut self, core: &mut Core, select: &ConfirmSelect) -> Result<(), Refusal> {
        match self.mode {
            Mode::Tx(_) => return Err(Refusal::tx_to_confirm()),
            Mode::Plain => self.mode = Mode::Confirm(super::confirms::Confirms::new()),
            Mode::Confirm(_) => {}
        }
        core.answer(self.me, select.nowait, ConfirmSelectOk {});
        Ok(())
    }

    pub(super) fn on_tx_commit(&mut self, core: &mut Core) -> Result<(), Refusal> {
        let Mode::Tx(tx) = &mut self.mode else { return Err(Refusal::not_transactional()) };
        let Tx { publishes, settled, .. } = *std::mem::take(tx);
        if publishes.is_empty() && settled.is_empty() {
            core.answer(self.me, false, TxCommitOk {});
            return Ok(());
        }
        let runs = |entries: Vec<Unacked>| {
            let mut runs: Vec<Run> = Vec::new();
            for entry in entries.into_iter().filter(|entry| !entry.is_void()) {
                add_to_runs(&mut runs, entry.consumer, entry.place);
            }
            runs
        };
        let settled = settled.into_iter().map(|(verdict, entries)| (verdict, runs(entries))).collect();
        let request = Request::Commit { channel: self.me, publishes, settled };
        self.ask(core, TxCommit::ID, request, Waiting::Commit);
        Ok(())
    }

    pub(super) fn on_tx_rollback(&mut self, core: &mut Core) -> Result<(), Refusal> {
        let Mode::Tx(tx) = &mut self.mode else { return Err(Refusal::not_transactional()) };
        let tx = std::mem::take(tx);
        self.unacked.put_back(tx.settled.into_iter().flat_map(|(_, entries)| entries));
        core.answer(self.me, false, TxRollbackOk {});
        Ok(())
    }
}
