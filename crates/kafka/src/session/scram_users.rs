//! DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554). Rules and texts are Kafka's (`ScramControlManager`, `ScramImage`), except
//! that a password set here applies to all protocols: see docs/security.md.

use super::errors;
use super::work::{Pending, Step, WaitsFor, Work};
use polylogue_api::{MachineId, Reply, Request};
use polylogue_auth::{
    AlterScram, Operation, ScramChange, ScramCredential, ScramMechanism, ScramUser, UsersCommand, UsersRefusal,
    UsersReply,
};
use polylogue_kafka_codec::alter_user_scram_credentials::{
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse, AlterUserScramCredentialsResult,
    ScramCredentialUpsertion,
};
use polylogue_kafka_codec::describe_user_scram_credentials::{
    CredentialInfo, DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
};
use polylogue_kafka_codec::{DecodeError, ErrorCode, Message, Reader, StrBytes};
use std::collections::{BTreeMap, BTreeSet};

/// The error of a refused entry.
type Refusal = (ErrorCode, StrBytes);

const TWICE: &str = "A user credential cannot be altered twice in the same request";
const NOT_THERE: &str = "Attempt to delete a user credential that does not exist";
const NO_NAME: &str = "Username must not be empty";
const NOT_THEIRS: &str = "Only an administrator may change the password of an administrator.";
const NO_MECHANISM: &str = "Unknown SCRAM mechanism";

/// Whether the client, which may change passwords, may change this user's: only administrators may change an administrator's. Kafka has
/// no such rule, but its users are users of Kafka only.
fn may_alter(work: &Work<'_>, user: &str) -> bool {
    let (login, is_one) = (&work.peer.login, |name: &str| work.users.is_administrator(name));
    login.is_administrator() || login.name().is_none_or(|name| is_one(name) || !is_one(user))
}

pub(super) fn start_describe(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let request = DescribeUserScramCredentialsRequest::decode(body, work.head.version)?;
    if !work.may_cluster(Operation::Describe) {
        let (error, text) = errors::with_message(ErrorCode::ClusterAuthorizationFailed);
        return Ok(work.answer(&DescribeUserScramCredentialsResponse {
            error_code: error.code(),
            error_message: Some(text),
            ..DescribeUserScramCredentialsResponse::default()
        }));
    }
    let asked = request.users.filter(|users| !users.is_empty());
    let results = match asked {
        None => work.users.scram_users(None).into_iter().map(shown).collect(),
        Some(users) => {
            let mut seen = BTreeMap::<StrBytes, usize>::new();
            users.iter().for_each(|user| *seen.entry(user.name.clone()).or_default() += 1);
            let names: Vec<&str> = seen.keys().map(|name| &**name).collect();
            let known = work.users.scram_users(Some(&names));
            let mut known: BTreeMap<String, ScramUser> =
                known.into_iter().map(|user| (user.name.clone(), user)).collect();
            seen.iter().map(|(name, times)| described(name, *times, known.remove(&**name))).collect()
        }
    };
    Ok(work.answer(&DescribeUserScramCredentialsResponse {
        error_message: None,
        results,
        ..DescribeUserScramCredentialsResponse::default()
    }))
}

fn shown(user: ScramUser) -> DescribeUserScramCredentialsResult {
    let info = |(mechanism, iterations): (ScramMechanism, u32)| CredentialInfo {
        mechanism: i8::try_from(mechanism.number()).unwrap_or(0),
        iterations: i32::try_from(iterations).unwrap_or(i32::MAX),
    };
    DescribeUserScramCredentialsResult {
        user: user.name.into(),
        error_message: None,
        credential_infos: user.credentials.into_iter().map(info).collect(),
        ..DescribeUserScramCredentialsResult::default()
    }
}

/// Returns the row of a user who is named `times` times in the request.
fn described(name: &StrBytes, times: usize, known: Option<ScramUser>) -> DescribeUserScramCredentialsResult {
    let refused = |code: ErrorCode, text: String| DescribeUserScramCredentialsResult {
        user: name.clone(),
        error_code: code.code(),
        error_message: Some(text.into()),
        ..DescribeUserScramCredentialsResult::default()
    };
    match known {
        _ if times > 1 => {
            let text = format!("Cannot describe SCRAM credentials for the same user twice in a single request: {name}");
            refused(ErrorCode::DuplicateResource, text)
        }
        Some(user) => shown(user),
        None => {
            let text = format!("Attempt to describe a user credential that does not exist: {name}");
            refused(ErrorCode::ResourceNotFound, text)
        }
    }
}

pub(super) fn start_alter(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let request = AlterUserScramCredentialsRequest::decode(body, work.head.version)?;
    let mut response = AlterUserScramCredentialsResponse::default();
    if !work.may_cluster(Operation::Alter) {
        let names = request.deletions.iter().map(|deletion| &deletion.name);
        let names: BTreeSet<_> = names.chain(request.upsertions.iter().map(|upsertion| &upsertion.name)).collect();
        let refusal = errors::with_message(ErrorCode::ClusterAuthorizationFailed);
        response.results = names.into_iter().map(|name| result(name.clone(), Some(refusal.clone()))).collect();
        return Ok(work.answer(&response));
    }
    let twice = twice(&request);
    let mut parts = Vec::new();
    let deletions = request.deletions.iter().map(|wanted| {
        let change = mechanism(wanted.mechanism).map(ScramChange::Remove);
        (&wanted.name, change)
    });
    let upsertions = request.upsertions.iter().map(|wanted| (&wanted.name, credential(wanted).map(ScramChange::Set)));
    let refused_twice: Refusal = (ErrorCode::DuplicateResource, StrBytes::from_static(TWICE));
    for name in &twice {
        response.results.push(result(name.clone(), Some(refused_twice.clone())));
    }
    for (name, change) in deletions.chain(upsertions).filter(|(name, _)| !twice.contains(*name)) {
        let change = match change {
            _ if name.is_empty() => Err((ErrorCode::UnacceptableCredential, StrBytes::from_static(NO_NAME))),
            _ if !may_alter(work, name) => {
                Err((ErrorCode::ClusterAuthorizationFailed, StrBytes::from_static(NOT_THEIRS)))
            }
            change => change,
        };
        match change {
            Ok(change) => parts.push(AlterScram { user: name.to_string(), change }),
            Err(refusal) => response.results.push(result(name.clone(), Some(refusal))),
        }
    }
    if parts.is_empty() {
        return Ok(work.answer(&response));
    }
    let users = parts.iter().map(|part| part.user.as_str().into()).collect();
    let token = work.ask(Request::Machine(MachineId::AMQP, Box::new(UsersCommand::AlterScram(parts))));
    Ok(Step::Wait(token, Box::new(Altering { response, users })))
}

/// Returns users with a repeated credential: nothing is changed for them. Different mechanisms are different credentials.
fn twice(request: &AlterUserScramCredentialsRequest) -> BTreeSet<StrBytes> {
    let deletions = request.deletions.iter().map(|deletion| (&deletion.name, deletion.mechanism));
    let all = deletions.chain(request.upsertions.iter().map(|upsertion| (&upsertion.name, upsertion.mechanism)));
    let mut seen = BTreeSet::new();
    all.filter(|key| !seen.insert(*key)).map(|(name, _)| name.clone()).collect()
}

fn mechanism(number: i8) -> Result<ScramMechanism, Refusal> {
    let found = u8::try_from(number).ok().and_then(ScramMechanism::numbered);
    found.ok_or_else(|| (ErrorCode::UnsupportedSaslMechanism, StrBytes::from_static(NO_MECHANISM)))
}

fn credential(wanted: &ScramCredentialUpsertion) -> Result<ScramCredential, Refusal> {
    let mechanism = mechanism(wanted.mechanism)?;
    // A negative number is refused as too small.
    let iterations = u32::try_from(wanted.iterations).unwrap_or(0);
    ScramCredential::of_salted(mechanism, &wanted.salted_password, wanted.salt.clone(), iterations)
        .map_err(|error| (ErrorCode::UnacceptableCredential, error.text.into()))
}

fn result(user: StrBytes, refusal: Option<Refusal>) -> AlterUserScramCredentialsResult {
    let (error, text) = refusal.map_or((ErrorCode::None, None), |(error, text)| (error, Some(text)));
    AlterUserScramCredentialsResult { user, error_code: error.code(), error_message: text }
}

/// A change that waits for its commit.
#[derive(Debug)]
struct Altering {
    response: AlterUserScramCredentialsResponse,
    users: Vec<StrBytes>,
}

impl Pending for Altering {
    fn on_reply(self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step {
        let Altering { mut response, users } = *self;
        let Reply::Machine(reply) = reply else { return work.wrong_reply() };
        let outcomes: Vec<Option<Refusal>> = match reply {
            Err(why) => vec![Some(errors::of_metadata(why)); users.len()],
            Ok(answer) => match answer.downcast::<UsersReply>() {
                Ok(answer) => {
                    let UsersReply::Each(results) = *answer else { return work.wrong_reply() };
                    results.into_iter().map(|result| result.err().map(refusal)).collect()
                }
                Err(_) => return work.wrong_reply(),
            },
        };
        if outcomes.len() != users.len() {
            return work.wrong_reply();
        }
        response.results.extend(users.into_iter().zip(outcomes).map(|(user, outcome)| result(user, outcome)));
        work.answer(&response)
    }

    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Machine
    }
}

fn refusal(why: UsersRefusal) -> Refusal {
    match why {
        UsersRefusal::NotFound => (ErrorCode::ResourceNotFound, StrBytes::from_static(NOT_THERE)),
        UsersRefusal::Refused(text) => (ErrorCode::UnacceptableCredential, text.into()),
    }
}
