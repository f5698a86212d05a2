//! Parameters of plugins, and global parameters. Those of shovels and of federation take effect; the others are only stored and
//! returned.

use super::answer::Answer;
use super::body::Body;
use super::call::Call;
use super::error::Failure;
use super::{Verb, ask, federation, shovels};
use bytestring::ByteString;
use polylogue_amqp_gateway::CLUSTER_NAME;
use polylogue_amqp_model::{Command, Json, Reply, SHOVEL, UPSTREAM, masked};
use polylogue_router::VhostId;
use serde_json::{Value, json};

/// The default sort fields of lists of parameters.
const ORDER: &[&str] = &["vhost", "component", "name"];

/// End of a masked password in a URI shown to a user who is not an administrator; saving it back would change the password.
const MASKED: &str = ":***@";

fn shape(call: &Call<'_>, vhost: VhostId, component: &str, name: &str, value: &Json) -> Value {
    let value = value.value();
    // It may have been set by another user of the virtual host.
    let value = if call.is_admin() { value } else { masked(&value) };
    json!({"vhost": call.vhost_name(vhost), "component": component, "name": name, "value": value})
}

fn listed(call: &Call<'_>, which: impl Fn(VhostId, &str) -> bool) -> Answer {
    let all = call.view.metadata.parameters();
    let all = all.filter(|(vhost, component, ..)| call.lists(*vhost) && which(*vhost, component));
    Answer::List(all.map(|(vhost, component, name, value)| shape(call, vhost, component, name, value)).collect(), ORDER)
}

pub(super) async fn serve(call: &Call<'_>, path: &[&str], body: &Body) -> Result<Answer, Failure> {
    call.policymaker()?;
    match (call.verb, path) {
        (Verb::Get, []) => Ok(listed(call, |_, _| true)),
        (Verb::Get, [wanted]) => Ok(listed(call, |_, component| component == *wanted)),
        (Verb::Get, [wanted, vhost]) => {
            let vhost = call.vhost(vhost)?.id;
            Ok(listed(call, |of, component| of == vhost && component == *wanted))
        }
        (verb, [component, vhost, name]) => {
            let host = call.policed_vhost(vhost)?.id;
            let (component, name) = (ByteString::from(*component), ByteString::from(*name));
            let known = call.view.metadata.parameter(host, &component, &name);
            // Components with their own endpoints are not changed here, where fewer checks apply.
            if verb != Verb::Get && matches!(&*component, "operator_policy" | "vhost-limits") {
                call.admin()?;
            }
            match verb {
                Verb::Get => {
                    let known = known.ok_or_else(Failure::not_found)?;
                    Ok(Answer::One(shape(call, host, &component, &name, known)))
                }
                Verb::Put => {
                    let value = body.get("value").cloned().ok_or_else(|| Failure::missing_keys(&["value"]))?;
                    if value.to_string().contains(MASKED) {
                        return Err(Failure::bad("Validation failed\n\na password is masked (***): name it again\n"));
                    }
                    match &*component {
                        SHOVEL => shovels::may_set(call, &name, &value)?,
                        UPSTREAM => federation::may_set(call, vhost, &name, &value)?,
                        _ => {}
                    }
                    let command = Command::SetParameter((*vhost).into(), component, name, value);
                    Ok(Answer::put(matches!(ask::change_by(call, command).await?, Reply::Put { created: true })))
                }
                Verb::Delete => {
                    known.ok_or_else(Failure::not_found)?;
                    let is_shovel = component == SHOVEL;
                    let command = Command::ClearParameter((*vhost).into(), component, name.clone());
                    ask::change(call.app, command).await?;
                    if is_shovel {
                        call.app.shovels.deleted((*vhost).into(), name);
                    }
                    Ok(Answer::Done)
                }
                Verb::Post => Err(Failure::method_not_allowed("HEAD, GET, PUT, DELETE, OPTIONS")),
            }
        }
        (_, [] | [_] | [_, _]) => Err(Failure::method_not_allowed("HEAD, GET, OPTIONS")),
        _ => Err(Failure::not_found()),
    }
}

/// The global parameter with the cluster's id.
const CLUSTER_ID: &str = "internal_cluster_id";

/// Returns the built-in value of a global parameter.
fn own_value(call: &Call<'_>, name: &str) -> Option<String> {
    match name {
        CLUSTER_NAME => Some(super::overview::cluster_name(call)),
        CLUSTER_ID => Some(format!("rabbitmq-cluster-id-{}", call.app.broker.catalog().cluster().cluster_id)),
        _ => None,
    }
}

pub(super) async fn serve_global(call: &Call<'_>, path: &[&str], body: &Body) -> Result<Answer, Failure> {
    // They apply to all virtual hosts; RabbitMQ lets policymakers of any virtual host set them.
    call.admin()?;
    let metadata = &call.view.metadata;
    let shape = |name: &str, value: &Json| json!({"name": name, "value": value.value()});
    match (call.verb, path) {
        (Verb::Get, []) => {
            // These exist whether set or not.
            let own = [CLUSTER_NAME, CLUSTER_ID].map(|name| json!({"name": name, "value": own_value(call, name)}));
            let others = metadata.globals().filter(|(name, _)| own_value(call, name).is_none());
            let all = others.map(|(name, value)| shape(name, value)).chain(own);
            Ok(Answer::List(all.collect(), &["name"]))
        }
        (verb, [name]) => {
            let name = ByteString::from(*name);
            let known = metadata.global(&name);
            match verb {
                Verb::Get => match own_value(call, &name) {
                    Some(value) => Ok(Answer::One(json!({"name": &*name, "value": value}))),
                    None => Ok(Answer::One(shape(&name, known.ok_or_else(Failure::not_found)?))),
                },
                Verb::Put => {
                    let value = body.get("value").cloned().ok_or_else(|| Failure::missing_keys(&["value"]))?;
                    Ok(Answer::put(ask::put(call.app, Command::SetGlobalParameter(name, value)).await?))
                }
                Verb::Delete => {
                    known.ok_or_else(Failure::not_found)?;
                    ask::change(call.app, Command::ClearGlobalParameter(name)).await?;
                    Ok(Answer::Done)
                }
                Verb::Post => Err(Failure::method_not_allowed("HEAD, GET, PUT, DELETE, OPTIONS")),
            }
        }
        (_, []) => Err(Failure::method_not_allowed("HEAD, GET, OPTIONS")),
        _ => Err(Failure::not_found()),
    }
}
