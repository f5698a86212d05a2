//! `polylogue policy`

use super::Failure;
use super::args::{DeletePoliciesArgs, ListPoliciesArgs, PolicyCommand, SetPolicyArgs, VhostArgs};
use super::output::Out;
use super::pairs::arguments;
use super::queues::shown;
use crate::client::http::segment;
use serde_json::{Map, Value, json};

pub(super) fn run(command: &PolicyCommand, out: &Out) -> Result<(), Failure> {
    match command {
        PolicyCommand::List(args) => list(args, out),
        PolicyCommand::Set(args) => set(args, out),
        PolicyCommand::Delete(args) => delete(args, out),
    }
}

fn path(within: &VhostArgs, operator: bool) -> String {
    let kind = if operator { "operator-policies" } else { "policies" };
    format!("/{kind}/{}", segment(&within.vhost))
}

fn kind(operator: bool) -> &'static str {
    if operator { "operator policy" } else { "policy" }
}

/// Returns a field of an object as text; a string without quotes, and nothing if there is none.
pub(super) fn field(object: &Value, name: &str) -> String {
    match object.get(name) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

fn list(args: &ListPoliciesArgs, out: &Out) -> Result<(), Failure> {
    let management = args.within.at.management()?;
    let missing = format!("there is no virtual host {} (`polylogue vhost list`)", args.within.vhost);
    let policies: Vec<Value> = management.get(&path(&args.within, args.operator), &missing)?;
    let row = |policy: &Value| {
        let definition = policy.get("definition").and_then(Value::as_object).map(shown).unwrap_or_default();
        let fields = ["name", "pattern", "apply-to", "priority"].map(|name| field(policy, name));
        [&fields[..], &[definition]].concat()
    };
    let rows: Vec<_> = policies.iter().map(row).collect();
    let head = ["POLICY", "PATTERN", "APPLIES TO", "PRIORITY", "DEFINITION"];
    out.listing(&json!({ "policies": policies }), "no policies", &head, &rows)
}

fn set(args: &SetPolicyArgs, out: &Out) -> Result<(), Failure> {
    let definition: Map<String, Value> = arguments(&args.definition)?;
    let management = args.within.at.management()?;
    let policy = json!({ "pattern": args.pattern, "definition": definition, "apply-to": args.apply_to.name(),
        "priority": args.priority });
    let missing = format!("there is no virtual host {} (`polylogue vhost list`)", args.within.vhost);
    management.put(&format!("{}/{}", path(&args.within, args.operator), segment(&args.name)), &policy, &missing)?;
    if out.json {
        return out.value(&json!({ "set": args.name, "policy": policy }));
    }
    out.line(&format!("set {} {}", kind(args.operator), args.name))
}

fn delete(args: &DeletePoliciesArgs, out: &Out) -> Result<(), Failure> {
    let management = args.within.at.management()?;
    let kind = kind(args.operator);
    for name in &args.names {
        let vhost = &args.within.vhost;
        let missing = format!("there is no {kind} {name} in the virtual host {vhost} (`polylogue policy list`)");
        management.delete(&format!("{}/{}", path(&args.within, args.operator), segment(name)), &missing)?;
        if !out.json {
            out.line(&format!("deleted {kind} {name}"))?;
        }
    }
    if out.json { out.value(&json!({ "deleted": args.names })) } else { Ok(()) }
}
