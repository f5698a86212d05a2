//! A simulated group client, with short timeouts.

use polylogue_api::Caller;
use polylogue_kafka_codec::StrBytes;
use polylogue_kafka_groups::command::JoinedMember;

/// The state of a client.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Stage {
    /// Not in the group, or about to join again.
    Out,
    Joining(Caller),
    /// In a generation, without an assignment; with the members if it is the leader and must assign.
    Joined(Option<Vec<JoinedMember>>),
    Syncing(Caller),
    Working,
}

#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) group: usize,
    pub(crate) instance: Option<StrBytes>,
    pub(crate) version: i16,
    pub(crate) member_id: StrBytes,
    pub(crate) generation: i32,
    pub(crate) stage: Stage,
    /// Changes with the client's subscription.
    pub(crate) subscription: u64,
}

impl Client {
    pub(crate) fn new(group: usize, instance: Option<StrBytes>, version: i16) -> Client {
        Client {
            group,
            instance,
            version,
            member_id: StrBytes::new(),
            generation: -1,
            stage: Stage::Out,
            subscription: 0,
        }
    }

    /// Replaces the client by a new process, which knows its instance id only.
    pub(crate) fn restart(&mut self) {
        self.member_id = StrBytes::new();
        self.generation = -1;
        self.stage = Stage::Out;
    }

    /// The identity across restarts: the instance id, or else the member id.
    pub(crate) fn slot(&self) -> StrBytes {
        self.instance.clone().unwrap_or_else(|| self.member_id.clone())
    }
}
