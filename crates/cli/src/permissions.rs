//! `polylogue permission`: permissions of users in virtual hosts, as in RabbitMQ.

use super::Failure;
use super::args::{DeletePermissionArgs, PermissionCommand, ServerArgs, SetPermissionArgs, VhostArgs};
use super::output::Out;
use super::queues::path;
use crate::client::http::segment;
use polylogue_admin::api::access::{Permission, Permissions, PutPermission};
use serde_json::json;

pub(super) fn run(command: &PermissionCommand, out: &Out) -> Result<(), Failure> {
    match command {
        PermissionCommand::List(at) => list(at, out),
        PermissionCommand::Set(args) => set(args, out),
        PermissionCommand::Delete(args) => delete(args, out),
    }
}

fn list(at: &ServerArgs, out: &Out) -> Result<(), Failure> {
    let all: Permissions = at.client().get("/permissions")?;
    let row =
        |one: &Permission| [&one.user, &one.vhost, &one.configure, &one.write, &one.read].map(Clone::clone).to_vec();
    let rows: Vec<_> = all.permissions.iter().map(row).collect();
    out.listing(&all, "no permissions", &["USER", "VIRTUAL HOST", "CONFIGURE", "WRITE", "READ"], &rows)
}

/// Returns the path of a user's permissions in a virtual host.
fn place(within: &VhostArgs, user: &str) -> String {
    format!("{}/{}", path(within, "permissions"), segment(user))
}

fn set(args: &SetPermissionArgs, out: &Out) -> Result<(), Failure> {
    let [configure, write, read] = [&args.configure, &args.write, &args.read].map(Clone::clone);
    args.within.at.client().put(&place(&args.within, &args.name), &PutPermission { configure, write, read })?;
    if out.json {
        return out.value(&json!({ "set": args.name, "vhost": args.within.vhost }));
    }
    out.line(&format!("set the permissions of {} in virtual host {}", args.name, args.within.vhost))
}

fn delete(args: &DeletePermissionArgs, out: &Out) -> Result<(), Failure> {
    args.within.at.client().delete(&place(&args.within, &args.name))?;
    if out.json {
        return out.value(&json!({ "deleted": args.name, "vhost": args.within.vhost }));
    }
    out.line(&format!("deleted the permissions of {} in virtual host {}", args.name, args.within.vhost))
}
