//! Changes of a consumer group in the log, and its chunks in a checkpoint. See the drawing in [`record`](super::super::record).

use super::model::{Change, ConsumerGroup, Current, Held, Member, MemberState, Partitions, Resolved, Subscription};
use crate::wire::{Decoder, Encoder, Malformed};
use polylogue_kafka_codec::StrBytes;

const EPOCH: u8 = 1;
const MEMBER: u8 = 2;
const TARGETS: u8 = 3;
const CURRENT: u8 = 4;
const REMOVE: u8 = 5;
const REGEX: u8 = 6;
const NO_REGEX: u8 = 7;

impl Change {
    pub(crate) fn encode(&self, into: &mut Encoder) {
        match self {
            Change::Epoch { epoch, metadata_hash } => {
                into.u8(EPOCH);
                into.i32(*epoch);
                into.i64(metadata_hash.cast_signed());
            }
            Change::Member { id, subscription } => {
                into.u8(MEMBER);
                into.text(id);
                subscription.encode(into);
            }
            Change::Targets { epoch, targets } => {
                into.u8(TARGETS);
                into.i32(*epoch);
                into.len(targets.len());
                for (id, target) in targets {
                    into.text(id);
                    target.encode(into);
                }
            }
            Change::Current { id, current } => {
                into.u8(CURRENT);
                into.text(id);
                current.encode(into);
            }
            Change::Remove { id } => {
                into.u8(REMOVE);
                into.text(id);
            }
            Change::Regex { regex, resolved: Some(resolved) } => {
                into.u8(REGEX);
                into.text(regex);
                texts_to(into, &resolved.topics);
            }
            Change::Regex { regex, resolved: None } => {
                into.u8(NO_REGEX);
                into.text(regex);
            }
        }
    }

    pub(crate) fn decode(from: &mut Decoder<'_>) -> Result<Change, Malformed> {
        Ok(match from.u8("change")? {
            EPOCH => Change::Epoch {
                epoch: from.i32("group epoch")?,
                metadata_hash: from.i64("metadata hash")?.cast_unsigned(),
            },
            MEMBER => Change::Member { id: from.text("member id")?, subscription: Subscription::decode(from)? },
            TARGETS => {
                let epoch = from.i32("assignment epoch")?;
                let count = from.count("targets", 1 + 1)?;
                let target = |_| Ok((from.text("member id")?, Partitions::decode(from)?));
                Change::Targets { epoch, targets: (0..count).map(target).collect::<Result<_, _>>()? }
            }
            CURRENT => Change::Current { id: from.text("member id")?, current: Current::decode(from)? },
            REMOVE => Change::Remove { id: from.text("member id")? },
            REGEX => Change::Regex {
                regex: from.text("regular expression")?,
                resolved: Some(Resolved { topics: rising_texts(from)? }),
            },
            NO_REGEX => Change::Regex { regex: from.text("regular expression")?, resolved: None },
            other => return Err(Malformed::new("unknown change", other)),
        })
    }
}

impl Subscription {
    fn encode(&self, into: &mut Encoder) {
        into.optional_text(self.instance_id.as_ref());
        into.optional_text(self.rack_id.as_ref());
        into.text(&self.client_id);
        into.text(&self.client_host);
        into.i32(self.rebalance_timeout_ms);
        into.optional_text(self.assignor.as_ref());
        texts_to(into, &self.topics);
        into.text(&self.regex);
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Subscription, Malformed> {
        Ok(Subscription {
            instance_id: from.optional_text("instance id")?,
            rack_id: from.optional_text("rack id")?,
            client_id: from.text("client id")?,
            client_host: from.text("client host")?,
            rebalance_timeout_ms: from.i32("rebalance timeout")?,
            assignor: from.optional_text("assignor")?,
            topics: rising_texts(from)?,
            regex: from.text("regular expression")?,
        })
    }
}

impl Current {
    fn encode(&self, into: &mut Encoder) {
        into.i32(self.epoch);
        into.i32(self.previous_epoch);
        into.u8(self.state.code());
        self.assigned.encode(into);
        self.revoking.encode(into);
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Current, Malformed> {
        let (epoch, previous_epoch) = (from.i32("member epoch")?, from.i32("previous epoch")?);
        let code = from.u8("member state")?;
        let state = MemberState::of_code(code).ok_or_else(|| Malformed::new("unknown member state", code))?;
        Ok(Current { epoch, previous_epoch, state, assigned: Held::decode(from)?, revoking: Held::decode(from)? })
    }
}

impl Member {
    /// A member's chunk.
    pub(crate) fn encode(&self, into: &mut Encoder) {
        self.subscription.encode(into);
        self.current.encode(into);
        self.target.encode(into);
    }

    pub(crate) fn decode(from: &mut Decoder<'_>) -> Result<Member, Malformed> {
        Ok(Member {
            subscription: Subscription::decode(from)?,
            current: Current::decode(from)?,
            target: Partitions::decode(from)?,
        })
    }
}

impl ConsumerGroup {
    /// The group's chunk: everything but its members.
    pub(crate) fn encode_head(&self, into: &mut Encoder) {
        into.i32(self.epoch);
        into.i64(self.metadata_hash.cast_signed());
        into.i32(self.assignment_epoch);
        into.len(self.regexes.len());
        for (regex, resolved) in &self.regexes {
            into.text(regex);
            texts_to(into, &resolved.topics);
        }
    }

    /// Takes in what the group's chunk says.
    pub(crate) fn decode_head(&mut self, from: &mut Decoder<'_>) -> Result<(), Malformed> {
        self.epoch = from.i32("group epoch")?;
        self.metadata_hash = from.i64("metadata hash")?.cast_unsigned();
        self.assignment_epoch = from.i32("assignment epoch")?;
        let mut last: Option<StrBytes> = None;
        for _ in 0..from.count("regular expressions", 1 + 1)? {
            let regex = from.text("regular expression")?;
            if last.is_some_and(|last| last >= regex) {
                return Err(Malformed::new("regular expression out of order", &regex));
            }
            last = Some(regex.clone());
            let topics = rising_texts(from)?;
            self.set_regex(regex, Some(Resolved { topics }));
        }
        Ok(())
    }
}

fn texts_to(into: &mut Encoder, texts: &[StrBytes]) {
    into.len(texts.len());
    texts.iter().for_each(|text| into.text(text));
}

/// Texts that rise.
fn rising_texts(from: &mut Decoder<'_>) -> Result<Vec<StrBytes>, Malformed> {
    let count = from.count("topics", 1)?;
    let mut texts: Vec<StrBytes> = Vec::with_capacity(count);
    for _ in 0..count {
        let text = from.text("topic")?;
        if texts.last().is_some_and(|last| *last >= text) {
            return Err(Malformed::new("topic out of order", &text));
        }
        texts.push(text);
    }
    Ok(texts)
}
