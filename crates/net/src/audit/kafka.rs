//! Descriptions of the changes that Kafka sessions request, for the audit log.

use polylogue_amqp_gateway::AmqpAnswer;
use polylogue_api::{MachineReply, Reply, Request, TopicRef};
use polylogue_auth::{Acl, AclFilter, AlterQuotas, AlterScram, ScramChange, UsersCommand, UsersReply};
use polylogue_kafka_groups::command::GroupCommand;
use std::fmt::Write as _;

/// The maximum number of parts listed; of more only the number is logged.
const PARTS_MAX: usize = 5;

/// Formats `verb noun a, b and 3 more`.
fn list<T>(verb: &str, all: &[T], name: impl Fn(&T) -> String) -> String {
    let mut text = verb.to_owned();
    for (at, one) in all.iter().take(PARTS_MAX).enumerate() {
        text.push_str(if at == 0 { " " } else { ", " });
        text.push_str(&name(one));
    }
    if all.len() > PARTS_MAX {
        // Writing to a string does not fail.
        let _ = write!(text, " and {} more", all.len() - PARTS_MAX);
    }
    text
}

/// Returns the description of a request that changes something. `None` for reads and validations.
pub(crate) fn what(request: &Request) -> Option<String> {
    match request {
        Request::CreateTopics(create) if !create.validate_only => {
            Some(list("create topics", &create.topics, |topic| topic.name.clone()))
        }
        Request::DeleteTopics(delete) => Some(list("delete topics", &delete.topics, |topic| match topic {
            TopicRef::Name(name) => name.to_string(),
            TopicRef::Id(id) => id.to_string(),
        })),
        Request::AlterTopics(alter) if !alter.validate_only => {
            let change = |change: &polylogue_api::TopicChange| {
                let parts =
                    [change.config.as_ref().map(|_| "settings"), change.partitions.as_ref().map(|_| "partitions")];
                let parts: Vec<&str> = parts.into_iter().flatten().collect();
                format!("{} ({})", change.topic, parts.join(", "))
            };
            Some(list("alter topics", &alter.changes, change))
        }
        Request::AlterSettings(alter) if !alter.validate_only => {
            Some(list("alter settings of", &alter.changes, |change| format!("{:?}", change.scope)))
        }
        Request::TrimPartitions(trim) => {
            Some(list("delete records of partitions", trim, |one| one.partition.0.to_string()))
        }
        Request::Machine(_, command) => {
            let users = command.downcast_ref::<UsersCommand>().map(users);
            users.or_else(|| groups(command.downcast_ref::<GroupCommand>()?))
        }
        _ => None,
    }
}

fn groups(command: &GroupCommand) -> Option<String> {
    match command {
        GroupCommand::Delete(delete) => Some(list("delete groups", &delete.groups, ToString::to_string)),
        GroupCommand::DeleteOffsets(delete) => {
            let what = format!("delete offsets of group {} of", delete.group_id);
            Some(list(&what, &delete.topics, |(topic, _)| topic.to_string()))
        }
        _ => None,
    }
}

fn users(ask: &UsersCommand) -> String {
    match ask {
        UsersCommand::AlterScram(all) => list("alter credentials of", all, |AlterScram { user, change }| {
            let verb = if matches!(change, ScramChange::Set(_)) { "set" } else { "remove" };
            format!("{user} ({verb} {})", change.mechanism().name())
        }),
        UsersCommand::CreateAcls(all) => list("create access control lists", all, |acl: &Acl| {
            let Acl { principal, permission, operation, kind, name, .. } = acl;
            format!("{principal} {} {} on {} {name}", permission.name(), operation.name(), kind.name())
        }),
        UsersCommand::DeleteAcls(all) => list("delete access control lists", all, |filter: &AclFilter| {
            let kind = filter.kind.map_or("anything", |kind| kind.name());
            let any = |text: &Option<String>| text.clone().unwrap_or_else(|| "*".to_owned());
            format!("of {} on {kind} {}", any(&filter.principal), any(&filter.name))
        }),
        UsersCommand::AlterQuotas(all) => list("alter quotas of", all, |AlterQuotas { entity, .. }| {
            format!("{:?} {:?}", entity.user, entity.client_id)
        }),
    }
}

fn of<T, E>(results: &[Result<T, E>]) -> &'static str {
    match results.iter().filter(|result| result.is_err()).count() {
        0 => "done",
        refused if refused == results.len() => "refused",
        _ => "refused in part",
    }
}

fn of_machine(reply: &MachineReply) -> &'static str {
    let Ok(answer) = reply else { return "unavailable" };
    match answer.downcast_ref::<UsersReply>() {
        Some(UsersReply::Each(results)) => of(results),
        Some(UsersReply::Deleted(results)) => of(results),
        None if matches!(answer.downcast_ref::<AmqpAnswer>(), Some(AmqpAnswer::Refused(_))) => "refused",
        None => "answered",
    }
}

/// Returns the outcome.
pub(crate) fn outcome(reply: &Reply) -> &'static str {
    match reply {
        Reply::CreateTopics(results) => of(results),
        Reply::DeleteTopics(results) => of(results),
        Reply::AlterTopics(results) | Reply::AlterSettings(results) => of(results),
        Reply::TrimPartitions(results) => of(results),
        Reply::Machine(reply) => of_machine(reply),
        _ => "answered",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polylogue_api::{AlterError, CreateTopics, DeleteTopics, MachineId, NewTopic, TopicConfig, Unavailable};
    use polylogue_auth::{ScramCredential, ScramMechanism};

    fn create(count: usize, validate_only: bool) -> Request {
        let topic = |number| NewTopic {
            name: format!("t{number}"),
            partitions: 1,
            config: TopicConfig::default(),
            internal: false,
        };
        Request::CreateTopics(CreateTopics { topics: (0..count).map(topic).collect(), validate_only })
    }

    #[test]
    fn changes_are_told_and_trials_are_not() {
        assert_eq!(what(&create(2, false)).unwrap(), "create topics t0, t1");
        assert_eq!(what(&create(7, false)).unwrap(), "create topics t0, t1, t2, t3, t4 and 2 more");
        assert_eq!(what(&create(2, true)), None);
        let delete = DeleteTopics { topics: vec![TopicRef::Name("gone".into())] };
        assert_eq!(what(&Request::DeleteTopics(delete)).unwrap(), "delete topics gone");
        assert_eq!(what(&Request::AllocateProducerId), None);
    }

    #[test]
    fn credentials_are_told_without_what_they_are() {
        let salt = bytes::Bytes::from_static(b"salty-salt");
        let credential = ScramCredential::of(ScramMechanism::Sha256, b"secret", salt, 4_096).unwrap();
        let ask =
            UsersCommand::AlterScram(vec![AlterScram { user: "ann".into(), change: ScramChange::Set(credential) }]);
        let text = what(&Request::Machine(MachineId::AMQP, Box::new(ask))).unwrap();
        assert_eq!(text, "alter credentials of ann (set SCRAM-SHA-256)");
    }

    #[test]
    fn outcomes_are_told_in_words() {
        let reply = |results| Reply::AlterTopics(results);
        let gone = AlterError::UnknownTopic;
        assert_eq!(outcome(&reply(vec![Ok(()), Ok(())])), "done");
        assert_eq!(outcome(&reply(vec![Ok(()), Err(gone.clone())])), "refused in part");
        assert_eq!(outcome(&reply(vec![Err(gone)])), "refused");
        assert_eq!(outcome(&Reply::Machine(Err(Unavailable::Busy))), "unavailable");
    }
}
