//! Policies and operator policies.

use super::answer::{Answer, BY_NAME};
use super::body::Body;
use super::call::Call;
use super::error::Failure;
use super::{Verb, ask, shapes};
use bytestring::ByteString;
use polylogue_amqp_model::Command;
use serde_json::Value;

pub(super) async fn serve(call: &Call<'_>, path: &[&str], body: &Body, operator: bool) -> Result<Answer, Failure> {
    let metadata = &call.view.metadata;
    match (call.verb, path) {
        (Verb::Get, []) => {
            let all = metadata.policies().filter(|policy| policy.operator == operator && call.lists(policy.vhost));
            Ok(Answer::List(all.map(|policy| shapes::policy(&call.view, policy)).collect(), BY_NAME))
        }
        (Verb::Get, [vhost]) => {
            let all = metadata.policies_of(call.vhost(vhost)?.id, operator);
            Ok(Answer::List(all.map(|policy| shapes::policy(&call.view, policy)).collect(), BY_NAME))
        }
        (verb, [vhost, name]) => {
            let host = call.policed_vhost(vhost)?;
            if operator && verb != Verb::Get {
                call.admin()?;
            }
            let name = ByteString::from(*name);
            let policy = metadata.policy(host.id, operator, &name);
            match verb {
                Verb::Get => {
                    let policy = policy.ok_or_else(Failure::not_found)?;
                    Ok(Answer::One(shapes::policy(&call.view, policy)))
                }
                Verb::Put => {
                    body.require(&["pattern", "definition"])?;
                    // As in RabbitMQ, where a policy is stored as the value of a parameter.
                    let component = if operator { "operator_policy" } else { "policy" };
                    let value = Value::Object(body.0.clone());
                    let command = Command::SetParameter((*vhost).into(), component.into(), name, value);
                    Ok(Answer::put(ask::put(call.app, command).await?))
                }
                Verb::Delete => {
                    policy.ok_or_else(Failure::not_found)?;
                    ask::change(call.app, Command::ClearPolicy((*vhost).into(), operator, name)).await?;
                    Ok(Answer::Done)
                }
                Verb::Post => Err(Failure::method_not_allowed("HEAD, GET, PUT, DELETE, OPTIONS")),
            }
        }
        (_, [] | [_]) => Err(Failure::method_not_allowed("HEAD, GET, OPTIONS")),
        _ => Err(Failure::not_found()),
    }
}
