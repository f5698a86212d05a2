//! Which shard hosts which machines, and how commands find them.
//!
//! ```text
//!   command of a machine in the metadata's shard ─────────────────────────────> that shard
//!   command of a machine in slots ──split by slots──> shard, shard ... ──join──> one reply
//! ```
//!
//! The metadata's shard holds no partitions but those that an earlier layout placed there. What each shard is for, and which shard has which slots, is
//! recorded before anything else ([`polylogue_meta::Shards`]), and so before any record that depends on it.

use crate::broker::Inner;
use crate::error::{Error, ErrorKind, Result};
use crate::machines::{Expects, Hosted, Machines, NoMeta, Outbox, unavailable};
use crate::open::{ASYNC_SHARD, MEMORY_SHARD};
use crate::shard::Shard;
use crate::sink::{Origin, ReplySink};
use parking_lot::Mutex;
use polylogue_api::machine::{Command, Join, Split};
use polylogue_api::{Event, MachineId, MachineReply, Reply, StateMachine, Token, Unavailable};
use polylogue_meta::{FEATURE_LEVEL, META_SHARD, MetaCommand, MetaMachine, ShardUse, Shards, SlotMap};
use polylogue_replicate::Work;
use polylogue_types::{Offset, ShardId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where the slots of a machine are.
#[derive(Debug)]
pub(crate) struct Places {
    slots: SlotMap,
    /// The shards that have any, by their ids.
    shards: Vec<ShardId>,
}

impl Places {
    fn new(slots: &SlotMap) -> Places {
        Places { slots: slots.clone(), shards: slots.shards() }
    }

    fn place(&self, key: &[u8]) -> usize {
        self.shards.binary_search(&self.slots.shard_of(key)).unwrap_or(0)
    }
}

/// A command whose parts are in several shards.
struct Gather {
    /// `None` once it is answered.
    asked: Mutex<Option<Asked>>,
}

struct Asked {
    origin: Origin,
    join: Join,
    replies: Vec<Option<MachineReply>>,
}

impl std::fmt::Debug for Gather {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gather")
    }
}

impl ReplySink for Gather {
    /// `token` is the number of the part.
    fn reply(&self, token: Token, reply: Reply) {
        let reply = match reply {
            Reply::Machine(reply) => reply,
            _ => Err(Unavailable::Unknown),
        };
        let whole = {
            let mut asked = self.asked.lock();
            let Some(Asked { replies, .. }) = asked.as_mut() else { return };
            if let Some(part) = usize::try_from(token).ok().and_then(|part| replies.get_mut(part)) {
                *part = Some(reply);
            }
            match replies.iter().all(Option::is_some) {
                true => asked.take(),
                false => None,
            }
        };
        if let Some(Asked { origin, join, replies }) = whole {
            origin.reply(Reply::Machine(join(replies.into_iter().flatten().collect())));
        }
    }

    fn event(&self, _: Event) {}
}

impl Inner {
    /// Calls `act` with the machines of a shard. Takes their lock.
    pub(crate) fn hosted<R>(&self, shard: &Shard, act: impl FnOnce(&mut Hosted) -> R) -> R {
        if shard.id == META_SHARD {
            let mut machines = self.machines.lock();
            let machines: &mut Machines = &mut machines;
            act(machines)
        } else {
            let mut machines = shard.slots.lock();
            let machines: &mut Machines<NoMeta> = &mut machines;
            act(machines)
        }
    }

    /// The shards that host machines.
    pub(crate) fn hosts(&self) -> Vec<Arc<Shard>> {
        self.shards.read().values().filter(|shard| shard.hosts).cloned().collect()
    }

    /// Empty machines for a shard, of those that live in slots.
    pub(crate) fn slot_machines(&self, shard: ShardId) -> Machines<NoMeta> {
        let has_slots = shard != META_SHARD && shard < ASYNC_SHARD;
        let machines = self.slotted.iter().filter(|_| has_slots).map(|(id, slots)| (*id, slots.machine()));
        Machines::new(NoMeta, machines.collect::<BTreeMap<MachineId, Box<dyn StateMachine>>>())
    }

    /// Commands go by the slots that are recorded from now on.
    pub(crate) fn show_places(&self, meta: &MetaMachine) {
        let slots = meta.shards().slots.iter();
        let places = slots.map(|(machine, slots)| (MachineId::from_number(*machine), Arc::new(Places::new(slots))));
        *self.places.write() = places.collect();
    }

    /// Sends a command to a machine, wherever it is hosted.
    pub(crate) fn command(&self, id: MachineId, origin: Origin, expects: Expects, command: Command) {
        if !self.leads() {
            return origin.reply(unavailable(expects, Unavailable::NotCommitted));
        }
        let Some(slots) = self.slotted.get(&id) else {
            return self.command_in(META_SHARD, id, origin, expects, command);
        };
        let places = self.places.read().get(&id).cloned();
        let Some(places) = places.filter(|places| !places.shards.is_empty()) else {
            return origin.reply(unavailable(expects, Unavailable::NotCommitted));
        };
        if let [only] = places.shards[..] {
            return self.command_in(only, id, origin, expects, command);
        }
        let Split { mut parts, join } = slots.split(command, places.shards.len(), &|key| places.place(key));
        let shard_at = |at: usize| places.shards.get(at).copied().unwrap_or(META_SHARD);
        if parts.len() < 2 {
            return match parts.pop() {
                Some((at, part)) => self.command_in(shard_at(at), id, origin, expects, part),
                None => origin.reply(unavailable(expects, Unavailable::Unknown)),
            };
        }
        let session = origin.session;
        let asked = Asked { origin, join, replies: parts.iter().map(|_| None).collect() };
        let gather: Arc<dyn ReplySink> = Arc::new(Gather { asked: Mutex::new(Some(asked)) });
        for (token, (at, part)) in (0..).zip(parts) {
            let origin = Origin { sink: gather.clone(), session, token };
            self.command_in(shard_at(at), id, origin, Expects::Machine, part);
        }
    }

    fn command_in(&self, shard: ShardId, id: MachineId, origin: Origin, expects: Expects, command: Command) {
        let mut outbox = Outbox::new();
        match self.shard(shard) {
            Ok(shard) => {
                let context = self.context();
                let deadline_changed = self.hosted(&shard, |machines| {
                    let before = machines.next_deadline_ms();
                    machines.command(id, &context, (origin, expects), command, &shard, &mut outbox);
                    machines.next_deadline_ms() != before
                });
                if deadline_changed {
                    self.deadlines_changed();
                }
            }
            Err(_) => outbox.push((origin, unavailable(expects, Unavailable::Stopping))),
        }
        self.send(outbox);
    }

    /// Sends the effective settings to the machines of all shards.
    pub(crate) fn tell_settings(&self, outbox: &mut Outbox) {
        let context = self.context();
        for shard in self.hosts() {
            let commands = self.config.resolver.machine_commands();
            self.hosted(&shard, |machines| machines.tell(commands, &context, &shard, outbox));
        }
    }

    /// The shards of class `sync` that hold partitions placed from now on: those that are recorded, and as many more as are configured.
    pub(crate) fn sync_shards(&self) -> Vec<ShardId> {
        let mut shards = self.machines.lock().meta.shards().of_use(ShardUse::Sync);
        while self.leads() && shards.len() < self.config.sync_shards.max(1) as usize {
            shards.push(ShardId(shards.last().map_or(META_SHARD.0, |last| last.0) + 1));
        }
        shards
    }

    /// Records the shards and slots that are not recorded yet, before anything else is proposed. The threads do not run yet: this drives the log.
    ///
    /// Slots of machines that have records in the metadata's shard, as in a directory of an earlier layout, stay there.
    pub(crate) fn define_shards(&self) -> Result<()> {
        let meta = self.shard(META_SHARD)?;
        let missing = self.missing_shards(&meta);
        if missing.is_empty() {
            return Ok(());
        }
        // From here on a version that does not know these records must not open the directory.
        self.data.raise_layout(&self.env)?;
        let failed = || {
            let text = "the shards of the broker cannot be recorded in its metadata: is the disk full?";
            Error::new(ErrorKind::Io, text)
        };
        let command: Command = Box::new(MetaCommand::DefineShards(missing));
        let mut outbox = Outbox::new();
        let context = self.context();
        if !self.machines.lock().tell(vec![(MachineId::META, command)], &context, &meta, &mut outbox) {
            return Err(failed());
        }
        while meta.log.step(Work::Write) | meta.log.step(Work::Flush) {}
        if self.missing_shards(&meta).is_empty() { Ok(()) } else { Err(failed()) }
    }

    fn missing_shards(&self, meta: &Shard) -> Shards {
        let sync = self.sync_shards();
        let machines = self.machines.lock();
        let recorded = machines.meta.shards();
        let mut missing = Shards { level: if recorded.level == 0 { FEATURE_LEVEL } else { 0 }, ..Shards::default() };
        let uses = [(META_SHARD, ShardUse::Metadata), (ASYNC_SHARD, ShardUse::Async), (MEMORY_SHARD, ShardUse::Memory)];
        let uses = sync.iter().map(|id| (*id, ShardUse::Sync)).chain(uses);
        missing.shards.extend(uses.filter(|(id, _)| !recorded.shards.contains_key(id)));
        let state = meta.state.lock();
        for id in self.slotted.keys().filter(|id| !recorded.slots.contains_key(&id.number())) {
            let is_here = state.partitions.get(&id.partition()).is_some_and(|p| p.high_watermark > Offset(0));
            let slots = SlotMap::spread(if is_here { &[META_SHARD] } else { &sync });
            missing.slots.insert(id.number(), slots);
        }
        missing
    }
}
