//! `polylogue acl`

use super::Failure;
use super::args::{AclArgs, AclCommand, ListAclsArgs};
use super::output::Out;
use crate::client::http::segment;
use polylogue_admin::api::access::{Acl, Acls};

/// Prefix of principals.
const USER_TYPE: &str = "User:";
/// The resource name of the cluster.
const CLUSTER: &str = "kafka-cluster";

pub(super) fn run(command: &AclCommand, out: &Out) -> Result<(), Failure> {
    match command {
        AclCommand::List(args) => list(args, out),
        AclCommand::Add(args) => {
            let acls = wanted(args)?;
            args.at.client().tell("/acls", &acls)?;
            done("added", &acls, out)
        }
        AclCommand::Delete(args) => {
            let acls: Acls = args.at.client().post("/acls/delete", &wanted(args)?)?;
            done("deleted", &acls, out)
        }
    }
}

fn list(args: &ListAclsArgs, out: &Out) -> Result<(), Failure> {
    let mut query = Vec::new();
    query.extend(args.of.as_ref().map(|user| format!("principal={}", segment(&format!("{USER_TYPE}{user}")))));
    let named = |resource: &str, name: &String| format!("resource={resource}&name={}", segment(name));
    query.extend(args.topic.as_ref().map(|name| named("topic", name)));
    query.extend(args.group.as_ref().map(|name| named("group", name)));
    let acls: Acls = args.at.client().get(&format!("/acls?{}", query.join("&")))?;
    let row = |acl: &Acl| {
        let name = if acl.pattern == "prefixed" { format!("{}...", acl.name) } else { acl.name.clone() };
        let who = acl.principal.strip_prefix(USER_TYPE).unwrap_or(&acl.principal).to_owned();
        vec![acl.resource.clone(), name, acl.permission.clone(), acl.operation.clone(), who, acl.host.clone()]
    };
    let rows: Vec<_> = acls.acls.iter().map(row).collect();
    out.listing(&acls, "no ACLs", &["RESOURCE", "NAME", "PERMISSION", "OPERATION", "USER", "HOST"], &rows)
}

/// Returns a binding for each combination of operation and resource.
fn wanted(args: &AclArgs) -> Result<Acls, Failure> {
    let of = |resource: &'static str, names: &[String]| -> Vec<(&'static str, String)> {
        names.iter().map(|name| (resource, name.clone())).collect()
    };
    let mut resources = of("topic", &args.topic);
    resources.extend(of("group", &args.group));
    resources.extend(of("transactional-id", &args.transactional_id));
    resources.extend(args.cluster.then(|| ("cluster", CLUSTER.to_owned())));
    if resources.is_empty() {
        let text = "name a resource: --topic NAME, --group NAME, --transactional-id NAME or --cluster";
        return Err(Failure::Usage(text.to_owned()));
    }
    let acl = |resource: &str, name: &str, operation: &str| Acl {
        resource: resource.to_owned(),
        name: name.to_owned(),
        pattern: if args.prefixed && resource != "cluster" { "prefixed" } else { "literal" }.to_owned(),
        principal: format!("{USER_TYPE}{}", args.who),
        host: args.host.clone(),
        operation: operation.to_owned(),
        permission: if args.deny { "deny" } else { "allow" }.to_owned(),
    };
    let each = resources
        .iter()
        .flat_map(|(resource, name)| args.operations.iter().map(move |operation| acl(resource, name, operation)));
    Ok(Acls { acls: each.collect() })
}

fn done(did: &str, acls: &Acls, out: &Out) -> Result<(), Failure> {
    if out.json {
        return out.value(acls);
    }
    match acls.acls.len() {
        0 => out.line("no matching rule"),
        1 => out.line(&format!("{did} 1 ACL")),
        count => out.line(&format!("{did} {count} ACLs")),
    }
}
