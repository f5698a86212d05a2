//! `polylogue config`.

use super::args::{ConfigArgs, ConfigCommand};
use super::output::Out;
use super::{Failure, resolve, settings};
use crate::limits;
use polylogue_admin::api::{OptionValue, Options};
use polylogue_config::{ServerConfig, Setting, Source, markdown};
use std::io::Write as _;

pub(super) fn run(args: &ConfigArgs, out: &Out) -> Result<(), Failure> {
    match &args.what {
        Some(ConfigCommand::Get(args)) => return settings::get(args, out),
        Some(ConfigCommand::Set(args)) => return settings::set(args, out),
        None => {}
    }
    if args.markdown {
        return Ok(std::io::stdout().lock().write_all(markdown().as_bytes())?);
    }
    if args.limits {
        return Ok(std::io::stdout().lock().write_all(limits::markdown().as_bytes())?);
    }
    let resolved = resolve(&args.sources)?;
    // A configuration that would be refused at the start is an error here, too.
    let config = ServerConfig::from_resolved(&resolved)?;
    for warning in &config.warnings {
        eprintln!("polylogue: warning: {warning}");
    }
    let mut settings = resolved.settings();
    if args.changed {
        settings.retain(|s| s.source != Source::Default);
    }
    if out.json {
        return out.value(&Options { options: settings.iter().map(OptionValue::from).collect() });
    }
    for setting in &settings {
        show(setting, out)?;
    }
    Ok(())
}

fn show(s: &Setting, out: &Out) -> Result<(), Failure> {
    let name = format!("{}.{}", s.section.name(), s.name);
    let value = if s.value.is_empty() { "(none)" } else { &s.value };
    let origin = match &s.source {
        Source::Default => "default".to_owned(),
        source => {
            let default = if s.default.is_empty() { "(none)" } else { &s.default };
            format!("from {source}; default {default}")
        }
    };
    out.line(&format!("{} = {value}  {}", out.bold(&name), out.dim(&format!("# {origin}; {}", s.kind))))?;
    out.line(&format!("    {}", s.doc))
}
