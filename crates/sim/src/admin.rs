//! Clients that change settings, partitions, log starts and groups, one change at a time, and read them between changes. Each is the only writer of
//! its value.

use crate::clients::Turn;
use crate::connection::{Connection, Response};
use crate::oracle::{NOTHING, Place};
use polylogue_kafka::settings::KafkaSettings;
use polylogue_kafka_codec::{delete_records, list_offsets};

mod wire;

pub(crate) use wire::earliest;

/// GROUP_ID_NOT_FOUND.
const NO_GROUP: i16 = 69;
/// The oracle's value for a group that is listed.
const THERE: i64 = 1;
/// A topic setting without effect in these runs.
const TOPIC_KEY: &str = "segment.ms";
/// A broker setting that sessions use.
const BROKER_KEY: &str = "num.partitions";
/// The largest number of partitions of a topic.
const PARTITIONS_MAX: i64 = 300;
/// After a change, a group is only read for up to this many turns: a deletion must survive checkpoints and starts that contain earlier records of the
/// group.
const RESTS_MAX: u64 = 60;
/// One million, the base of probabilities.
const LOOKS: u32 = 450_000;
const EVEN: u32 = 500_000;

/// The value that a client changes.
#[derive(Clone, Debug)]
enum Kind {
    /// A setting of a topic; `legacy`: with AlterConfigs, which replaces all of them.
    TopicConfig { topic: String, legacy: bool },
    /// A setting of all brokers.
    BrokerConfig,
    /// The number of partitions of a topic.
    Partitions { topic: String },
    /// The existence of a group, and its committed offset.
    Group { group: String, place: Place },
    /// The log start of a partition.
    LogStart { place: Place },
}

/// A pending request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    /// Sets, commits, grows to or trims to this value.
    Change(i64),
    /// Unsets a setting or deletes an offset.
    Forget,
    /// Deletes the group.
    DeleteGroup,
    /// Reads the value.
    Look,
    /// Lists the groups.
    List,
}

/// Such a client.
#[derive(Debug)]
pub struct Admin {
    kind: Kind,
    connection: Option<Connection>,
    waiting: Option<(i32, Asked)>,
    next: i64,
    /// Turns in which it only reads.
    rests: u64,
    /// Requests sent.
    pub operations: u64,
}

/// Returns the oracle's name of the value.
fn name_of(kind: &Kind) -> String {
    match kind {
        Kind::TopicConfig { topic, .. } => format!("{TOPIC_KEY} of {topic}"),
        Kind::BrokerConfig => BROKER_KEY.to_owned(),
        Kind::Partitions { topic } => partitions_of(topic),
        Kind::Group { group, .. } => format!("offset of {group}"),
        Kind::LogStart { place } => format!("start of {place:?}"),
    }
}

/// Returns the oracle's name of the number of a topic's partitions.
#[must_use]
pub fn partitions_of(topic: &str) -> String {
    format!("partitions of {topic}")
}

fn listed(group: &str) -> String {
    format!("presence of {group}")
}

impl Admin {
    fn new(kind: Kind) -> Admin {
        Admin { kind, connection: None, waiting: None, next: 1, rests: 0, operations: 0 }
    }

    /// Returns a client that sets and unsets a setting of a topic.
    #[must_use]
    pub fn topic_config(topic: &str, legacy: bool) -> Admin {
        Admin::new(Kind::TopicConfig { topic: topic.to_owned(), legacy })
    }

    /// Returns a client that sets and unsets a setting of all brokers.
    #[must_use]
    pub fn broker_config() -> Admin {
        Admin::new(Kind::BrokerConfig)
    }

    /// Returns a client that adds partitions to a topic.
    #[must_use]
    pub fn grower(topic: &str) -> Admin {
        Admin::new(Kind::Partitions { topic: topic.to_owned() })
    }

    /// Returns a client that commits and deletes offsets of a group, and deletes the group.
    #[must_use]
    pub fn group(group: &str, place: &Place) -> Admin {
        Admin::new(Kind::Group { group: group.to_owned(), place: place.clone() })
    }

    /// Returns a client that deletes the oldest messages of a partition.
    #[must_use]
    pub fn trimmer(place: &Place) -> Admin {
        Admin::new(Kind::LogStart { place: place.clone() })
    }

    /// Handles a crash of the node: pending requests have an unknown outcome.
    pub fn lost_connection(&mut self) {
        (self.connection, self.waiting) = (None, None);
    }

    /// Takes a turn: handles responses, and possibly sends a request.
    ///
    /// # Errors
    /// A protocol error.
    pub fn turn(&mut self, turn: &mut Turn<'_>) -> Result<(), String> {
        self.pump(turn)?;
        if self.waiting.is_none()
            && let Some(asked) = self.choose(turn)
        {
            self.ask(asked, turn)?;
        }
        Ok(())
    }

    /// Reads the value, unless a request is pending.
    ///
    /// # Errors
    /// A protocol error.
    pub fn look(&mut self, turn: &mut Turn<'_>) -> Result<(), String> {
        if self.waiting.is_none() { self.ask(Asked::Look, turn) } else { Ok(()) }
    }

    /// Handles responses. Returns whether no request is pending.
    ///
    /// # Errors
    /// A protocol error.
    pub fn pump(&mut self, turn: &mut Turn<'_>) -> Result<bool, String> {
        let mut connection = self.connection.take().unwrap_or_else(|| Connection::new(turn.broker));
        let Ok(responses) = connection.pump(turn.broker, turn.settings) else {
            // The node may close a connection when it has a fault; the client reconnects.
            connection.close(turn.broker);
            self.lost_connection();
            return Ok(true);
        };
        self.connection = Some(connection);
        for response in responses {
            let waiting = self.waiting.take_if(|(correlation, _)| *correlation == response.correlation);
            let (_, asked) = waiting.ok_or("an answer to nothing")?;
            self.on_response(asked, response, turn)?;
        }
        Ok(self.waiting.is_none())
    }

    fn choose(&mut self, turn: &Turn<'_>) -> Option<Asked> {
        let rng = turn.rng;
        self.rests = self.rests.saturating_sub(1);
        if self.rests > 0 || rng.chance(LOOKS) {
            let lists = matches!(self.kind, Kind::Group { .. }) && rng.chance(EVEN);
            return Some(if lists { Asked::List } else { Asked::Look });
        }
        self.next += 1;
        if matches!(self.kind, Kind::Group { .. }) {
            self.rests = rng.below(RESTS_MAX);
        }
        match &self.kind {
            Kind::Partitions { .. } if self.next > PARTITIONS_MAX => Some(Asked::Look),
            Kind::Partitions { .. } => Some(Asked::Change(self.next)),
            Kind::LogStart { place } => {
                let end = turn.oracle.told_high_watermark(place);
                let from = turn.oracle.start_at_least(place);
                // In small steps, so that messages are left.
                let some = u64::try_from(end - from).ok()? / 4;
                Some(Asked::Change(from + i64::try_from(rng.below(some + 1)).ok()?))
            }
            Kind::Group { .. } if rng.chance(EVEN) => Some(Asked::Change(self.next)),
            Kind::Group { .. } if rng.chance(EVEN) => Some(Asked::DeleteGroup),
            // A setting of a topic or broker; and half of the groups' changes.
            _ if rng.chance(EVEN / 2) => Some(Asked::Forget),
            _ => Some(Asked::Change(self.next)),
        }
    }

    fn ask(&mut self, asked: Asked, turn: &mut Turn<'_>) -> Result<(), String> {
        let name = name_of(&self.kind);
        match (&self.kind, asked) {
            (_, Asked::Look | Asked::List) => {}
            (Kind::LogStart { place }, Asked::Change(offset)) => turn.oracle.trims(place, offset),
            (_, Asked::Change(value)) => turn.oracle.changes(&name, value),
            (_, Asked::Forget | Asked::DeleteGroup) => turn.oracle.changes(&name, NOTHING),
        }
        if let Kind::Group { group, .. } = &self.kind {
            match asked {
                Asked::Change(_) => turn.oracle.changes(&listed(group), THERE),
                Asked::Forget | Asked::DeleteGroup => turn.oracle.changes(&listed(group), NOTHING),
                Asked::Look | Asked::List => {}
            }
        }
        let connection = self.connection.get_or_insert_with(|| Connection::new(turn.broker));
        let correlation = wire::send(&self.kind, asked, connection)?;
        self.operations += 1;
        self.waiting = Some((correlation, asked));
        Ok(())
    }

    fn on_response(&self, asked: Asked, response: Response, turn: &mut Turn<'_>) -> Result<(), String> {
        let name = name_of(&self.kind);
        match (&self.kind, asked) {
            (Kind::LogStart { place }, Asked::Change(offset)) => {
                let response: delete_records::DeleteRecordsResponse = response.decode()?;
                let row = response.topics.first().and_then(|t| t.partitions.first()).ok_or("no partition")?;
                if row.error_code == 0 {
                    if row.low_watermark < offset {
                        turn.oracle.violation(format!("{name}: trimmed to {offset}, and is {}", row.low_watermark));
                    }
                    turn.oracle.start_told(place, row.low_watermark);
                }
            }
            (Kind::LogStart { place }, _) => {
                let response: list_offsets::ListOffsetsResponse = response.decode()?;
                let row = response.topics.first().and_then(|t| t.partitions.first()).ok_or("no partition")?;
                if row.error_code == 0 {
                    turn.oracle.start_told(place, row.offset);
                }
            }
            (Kind::Group { group, place }, asked) => on_group(group, place, asked, response, turn)?,
            (kind, Asked::Look | Asked::List) => {
                if let Some(value) = wire::looked(kind, response)? {
                    turn.oracle.looked(&name, value);
                    if matches!(kind, Kind::BrokerConfig) {
                        // The value that sessions use is the one described; if unset, the start value.
                        let holds = turn.settings.partitions_default;
                        let set = holds != KafkaSettings::default().partitions_default;
                        turn.oracle.may_hold(&name, if set { i64::from(holds) } else { NOTHING });
                    }
                }
            }
            (kind, asked) => {
                if wire::refusal(kind, response)? == 0 {
                    let value = if let Asked::Change(value) = asked { value } else { NOTHING };
                    turn.oracle.changed(&name, value);
                }
            }
        }
        Ok(())
    }
}

fn on_group(group: &str, place: &Place, asked: Asked, response: Response, turn: &mut Turn<'_>) -> Result<(), String> {
    let (offset, presence) = (format!("offset of {group}"), listed(group));
    match asked {
        Asked::List => {
            if let Some(groups) = wire::listed(response)? {
                let there = groups.iter().any(|known| known == group);
                turn.oracle.looked(&presence, if there { THERE } else { NOTHING });
            }
        }
        Asked::Look => {
            if let Some(committed) = wire::committed(place, response)? {
                turn.oracle.looked(&offset, committed);
            }
        }
        Asked::Change(value) => {
            if wire::commit_refusal(response)? == 0 {
                turn.oracle.changed(&offset, value);
                turn.oracle.changed(&presence, THERE);
            }
        }
        // A missing group has no offsets. Whether a group without offsets is listed is unspecified.
        Asked::Forget => {
            if matches!(wire::offset_delete_refusal(response)?, 0 | NO_GROUP) {
                turn.oracle.changed(&offset, NOTHING);
            }
        }
        Asked::DeleteGroup => {
            if matches!(wire::delete_refusal(response)?, 0 | NO_GROUP) {
                turn.oracle.changed(&offset, NOTHING);
                turn.oracle.changed(&presence, NOTHING);
            }
        }
    }
    Ok(())
}
