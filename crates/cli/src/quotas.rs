//! `polylogue quota`

use super::Failure;
use super::args::{QuotaCommand, QuotaOfArgs, ServerArgs, SetQuotaArgs};
use super::output::{Out, bytes};
use polylogue_admin::api::access::{Quota, QuotaOf, Quotas};
use serde_json::json;

pub(super) fn run(command: &QuotaCommand, out: &Out) -> Result<(), Failure> {
    match command {
        QuotaCommand::List(at) => list(at, out),
        QuotaCommand::Set(args) => set(args, out),
        QuotaCommand::Delete(args) => {
            args.at.client().tell("/quotas/delete", &of(args)?)?;
            done("deleted", out)
        }
    }
}

fn list(at: &ServerArgs, out: &Out) -> Result<(), Failure> {
    let quotas: Quotas = at.client().get("/quotas")?;
    let name = |name: &Option<String>, others: bool| match name {
        Some(name) => name.clone(),
        None if others => "others".to_owned(),
        None => "any".to_owned(),
    };
    let rate = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{}/s", bytes(value as u64)));
    let row = |quota: &Quota| {
        vec![
            name(&quota.of.user, quota.of.other_users),
            name(&quota.of.client_id, quota.of.other_client_ids),
            rate(quota.produce_bytes_per_second),
            rate(quota.fetch_bytes_per_second),
            quota.request_percent.map_or("-".to_owned(), |percent| format!("{percent} %")),
        ]
    };
    let rows: Vec<_> = quotas.quotas.iter().map(row).collect();
    out.listing(&quotas, "no quotas", &["USER", "CLIENT ID", "PRODUCE", "FETCH", "THREADS"], &rows)
}

fn of(args: &QuotaOfArgs) -> Result<QuotaOf, Failure> {
    let of = QuotaOf {
        user: args.of.clone(),
        other_users: args.other_users,
        client_id: args.client_id.clone(),
        other_client_ids: args.other_client_ids,
    };
    if of == QuotaOf::default() {
        let text = "name the clients: --of USER, --other-users, --client-id ID or --other-client-ids";
        return Err(Failure::Usage(text.to_owned()));
    }
    Ok(of)
}

fn set(args: &SetQuotaArgs, out: &Out) -> Result<(), Failure> {
    let quota = Quota {
        of: of(&args.whose)?,
        produce_bytes_per_second: args.produce,
        fetch_bytes_per_second: args.fetch,
        request_percent: args.threads,
    };
    args.whose.at.client().put("/quotas", &quota)?;
    done("set", out)
}

fn done(did: &str, out: &Out) -> Result<(), Failure> {
    if out.json { out.value(&json!({ "done": did })) } else { out.line(&format!("{did} the quota")) }
}
