//! Checks of commands against proposed state. Nothing here changes state; a [`Draft`] collects the changes.

mod access;
mod acls;
mod checks;
mod draft;
mod exchanges;
mod import;
mod parameters;
mod queues;
mod quotas;

use crate::command::{Caller, Command, Reply};
use crate::error::Refused;
use access::{put_user, put_vhost, set_permission, set_topic_permission, set_user_limit, set_vhost_limit};
pub(crate) use checks::refused;
pub(crate) use draft::{About, Draft};
use import::import;
use parameters::{set_global, set_policy};
pub(crate) use queues::deletable;

/// Checks a command and adds its changes to the draft.
pub(crate) fn check_command(draft: &mut Draft<'_>, caller: &Caller, command: &Command) -> Result<Reply, Refused> {
    match command {
        Command::Bootstrap(user) => access::bootstrap(draft, user),
        Command::PutVhost(put) => put_vhost(draft, put),
        Command::DeleteVhost(name) => access::delete_vhost(draft, name),
        Command::ProtectVhost(name, protected) => access::protect_vhost(draft, name, *protected),
        Command::SetVhostLimit(name, limit, value) => set_vhost_limit(draft, name, *limit, *value),
        Command::PutUser(put) => put_user(draft, put),
        Command::AlterScram(parts) => Ok(access::alter_scram(draft, parts)),
        Command::CreateAcls(acls) => Ok(acls::create(draft, acls)),
        Command::DeleteAcls(filters) => Ok(acls::delete(draft, filters)),
        Command::AlterQuotas(parts) => Ok(quotas::alter(draft, parts)),
        Command::DeleteUsers(names) => access::delete_users(draft, names),
        Command::SetUserLimit(name, limit, value) => set_user_limit(draft, name, *limit, *value),
        Command::SetPermission(user, vhost, patterns) => set_permission(draft, user, vhost, patterns),
        Command::ClearPermission(user, vhost) => access::clear_permission(draft, user, vhost),
        Command::SetTopicPermission(user, vhost, exchange, patterns) => {
            set_topic_permission(draft, user, vhost, exchange, patterns)
        }
        Command::ClearTopicPermission(user, vhost, exchange) => {
            access::clear_topic_permission(draft, user, vhost, exchange.as_ref())
        }
        Command::SetParameter(vhost, component, name, value) => {
            parameters::set_one(draft, vhost, component, name, value)
        }
        Command::ClearParameter(vhost, component, name) => parameters::clear(draft, vhost, component, name),
        Command::ClearParameterIf(vhost, component, name, value) => {
            parameters::clear_if(draft, vhost, component, name, value)
        }
        Command::SetGlobalParameter(name, value) => set_global(draft, name, value),
        Command::ClearGlobalParameter(name) => parameters::clear_global(draft, name),
        Command::SetPolicy(vhost, spec) => set_policy(draft, vhost, spec),
        Command::ClearPolicy(vhost, operator, name) => parameters::clear_policy(draft, vhost, *operator, name),
        Command::DeclareQueue(declare) => queues::declare(draft, caller, declare),
        Command::DeleteQueue(delete) => queues::delete(draft, caller, delete),
        Command::RemoveQueue(id, gone) => Ok(queues::remove(draft, *id, *gone)),
        Command::OwnerGone(owner) => Ok(queues::owner_gone(draft, *owner)),
        Command::Restarted => Ok(queues::restarted(draft, caller.owner.home)),
        Command::DeclareExchange(declare) => exchanges::declare(draft, caller, declare),
        Command::DeleteExchange(vhost, name, if_unused) => exchanges::delete(draft, caller, *vhost, name, *if_unused),
        Command::Bind(bind) => exchanges::bind(draft, caller, bind, true),
        Command::Unbind(bind) => exchanges::bind(draft, caller, bind, false),
        Command::SetTopicReads(reads) => exchanges::set_topic_reads(draft, caller, reads),
        Command::Import(definitions) => import(draft, definitions),
    }
}
