//! `polylogue config get` and `polylogue config set`.

use super::Failure;
use super::args::{GetArgs, ScopeArgs, SetArgs};
use super::output::Out;
use super::pairs::pairs;
use crate::client::http::segment;
use polylogue_admin::api::settings::{ChangeSettings, SettingValue, SettingsList};

/// The API's name for the source of defaults.
const DEFAULT: &str = "DEFAULT_CONFIG";

/// Returns the path and the name of a scope. Without a scope, `get` shows the effective values of the node, and `set` sets them for all
/// nodes.
fn place(scope: &ScopeArgs, otherwise: &str) -> String {
    match (&scope.group, &scope.client_metrics) {
        (Some(group), _) => format!("/settings/groups/{}", segment(group)),
        (None, Some(subscription)) => format!("/settings/client-metrics/{}", segment(subscription)),
        (None, None) if scope.node => "/settings/node".to_owned(),
        (None, None) => format!("/settings/{otherwise}"),
    }
}

pub(super) fn get(args: &GetArgs, out: &Out) -> Result<(), Failure> {
    let mut list: SettingsList = args.at.client().get(&place(&args.scope, "node"))?;
    list.settings.retain(|setting| match args.names.as_slice() {
        [] => args.all || setting.source != DEFAULT,
        names => names.contains(&setting.name),
    });
    if let Some(unknown) = args.names.iter().find(|name| list.settings.iter().all(|setting| setting.name != **name)) {
        return Err(Failure::Usage(format!("unknown setting {unknown}")));
    }
    if out.json {
        return out.value(&list);
    }
    if list.settings.is_empty() {
        return out.line("no settings are set");
    }
    let row = |setting: &SettingValue| {
        let value =
            setting.value.clone().unwrap_or_else(|| if setting.sensitive { "(secret)" } else { "(none)" }.to_owned());
        let note = if setting.read_only { "read-only" } else { "" };
        vec![setting.name.clone(), value, setting.source.clone(), note.to_owned()]
    };
    let rows: Vec<_> = list.settings.iter().map(row).collect();
    out.table(&["SETTING", "VALUE", "SET BY", ""], &rows)
}

pub(super) fn set(args: &SetArgs, out: &Out) -> Result<(), Failure> {
    let change =
        ChangeSettings { set: pairs(&args.set, "")?, delete: args.delete.clone(), validate_only: args.dry_run };
    args.at.client().patch(&place(&args.scope, "cluster"), &change)?;
    if out.json {
        return out.value(&change);
    }
    if args.dry_run {
        return out.line("valid; nothing was changed");
    }
    for (name, value) in &change.set {
        out.line(&format!("{name} is now {value}"))?;
    }
    for name in &change.delete {
        out.line(&format!("{name} was deleted"))?;
    }
    Ok(())
}
