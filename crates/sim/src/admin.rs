//! Clients that change what holds (settings, partitions, log starts, groups), one change at a time, and look at it between
//! changes. Each is the only one that changes what it changes.

use crate::clients::Turn;
use crate::connection::{Connection, Response};
use crate::oracle::{NOTHING, Place};
use polylogue_kafka::codec::{delete_records, list_offsets};
use polylogue_kafka::settings::KafkaSettings;

mod wire;

pub(crate) use wire::earliest;

/// GROUP_ID_NOT_FOUND.
const NO_GROUP: i16 = 69;
/// A group that is listed, as the oracle notes it.
const THERE: i64 = 1;
/// A topic's setting that changes nothing in these runs.
const TOPIC_KEY: &str = "segment.ms";
/// A broker's setting that sessions go by.
const BROKER_KEY: &str = "num.partitions";
/// A topic grows to so many partitions at the most.
const PARTITIONS_MAX: i64 = 300;
/// After a change of a group it is only looked at for up to so many turns: what was deleted must stay away over checkpoints and
/// starts, and what they hold of it was written before.
const RESTS_MAX: u64 = 60;
/// Chances of a million.
const LOOKS: u32 = 450_000;
const EVEN: u32 = 500_000;

/// What a client changes.
#[derive(Clone, Debug)]
enum Kind {
    /// A setting of a topic; `legacy`: with AlterConfigs, which replaces all of them.
    TopicConfig { topic: String, legacy: bool },
    /// A setting of all brokers.
    BrokerConfig,
    /// How many partitions a topic has.
    Partitions { topic: String },
    /// Whether there is a group, and which offset it has committed.
    Group { group: String, place: Place },
    /// Where a partition begins.
    LogStart { place: Place },
}

/// What was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    /// To set, commit, grow to or trim to this.
    Change(i64),
    /// To forget what is set or committed.
    Forget,
    /// To delete the group.
    DeleteGroup,
    /// What holds.
    Look,
    /// Which groups there are.
    List,
}

/// One such client.
#[derive(Debug)]
pub struct Admin {
    kind: Kind,
    connection: Option<Connection>,
    waiting: Option<(i32, Asked)>,
    next: i64,
    /// Turns in which it only looks.
    rests: u64,
    /// Requests sent.
    pub operations: u64,
}

/// What the oracle calls it when this is changed.
fn name_of(kind: &Kind) -> String {
    match kind {
        Kind::TopicConfig { topic, .. } => format!("{TOPIC_KEY} of {topic}"),
        Kind::BrokerConfig => BROKER_KEY.to_owned(),
        Kind::Partitions { topic } => partitions_of(topic),
        Kind::Group { group, .. } => format!("offset of {group}"),
        Kind::LogStart { place } => format!("start of {place:?}"),
    }
}

/// What the oracle calls the number of a topic's partitions.
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

    /// Sets and unsets a setting of a topic.
    #[must_use]
    pub fn topic_config(topic: &str, legacy: bool) -> Admin {
        Admin::new(Kind::TopicConfig { topic: topic.to_owned(), legacy })
    }

    /// Sets and unsets a setting of all brokers.
    #[must_use]
    pub fn broker_config() -> Admin {
        Admin::new(Kind::BrokerConfig)
    }

    /// Gives a topic that has one more and more partitions.
    #[must_use]
    pub fn grower(topic: &str) -> Admin {
        Admin::new(Kind::Partitions { topic: topic.to_owned() })
    }

    /// Commits offsets of a group, deletes them, and deletes the group.
    #[must_use]
    pub fn group(group: &str, place: &Place) -> Admin {
        Admin::new(Kind::Group { group: group.to_owned(), place: place.clone() })
    }

    /// Deletes the oldest messages of a partition.
    #[must_use]
    pub fn trimmer(place: &Place) -> Admin {
        Admin::new(Kind::LogStart { place: place.clone() })
    }

    /// The node is gone: what was on its way may or may not have happened.
    pub fn lost_connection(&mut self) {
        (self.connection, self.waiting) = (None, None);
    }

    /// Takes a turn: takes what came, perhaps asks for something.
    ///
    /// # Errors
    /// A broken protocol.
    pub fn turn(&mut self, turn: &mut Turn<'_>) -> Result<(), String> {
        self.pump(turn)?;
        if self.waiting.is_none()
            && let Some(asked) = self.choose(turn)
        {
            self.ask(asked, turn)?;
        }
        Ok(())
    }

    /// Looks at what holds, unless something is still on its way.
    ///
    /// # Errors
    /// A broken protocol.
    pub fn look(&mut self, turn: &mut Turn<'_>) -> Result<(), String> {
        if self.waiting.is_none() { self.ask(Asked::Look, turn) } else { Ok(()) }
    }

    /// Takes what came. Whether nothing is on its way any more.
    ///
    /// # Errors
    /// A broken protocol.
    pub fn pump(&mut self, turn: &mut Turn<'_>) -> Result<bool, String> {
        let mut connection = self.connection.take().unwrap_or_else(|| Connection::new(turn.broker));
        let Ok(responses) = connection.pump(turn.broker, turn.settings) else {
            // The node may close a connection when it is in trouble; the client comes back.
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
                // A little at a time, so that something is left.
                let some = u64::try_from(end - from).ok()? / 4;
                Some(Asked::Change(from + i64::try_from(rng.below(some + 1)).ok()?))
            }
            Kind::Group { .. } if rng.chance(EVEN) => Some(Asked::Change(self.next)),
            Kind::Group { .. } if rng.chance(EVEN) => Some(Asked::DeleteGroup),
            // A topic's or a broker's setting; and half of what groups have left.
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
                        // What sessions go by is what is described; where nothing is set, what they were started with.
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
        // A group that is not there has no offsets. Whether one without offsets is listed is left open.
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
