//! `polylogue profile`: servers by name.

mod store;

pub(super) use store::{Profile, Profiles, password_of};

use super::Failure;
use super::args::{CreateProfileArgs, ProfileCommand, ShowProfileArgs, UseProfileArgs};
use super::output::Out;
use serde_json::json;
use std::path::{Path, PathBuf};

pub(super) fn run(command: &ProfileCommand, out: &Out) -> Result<(), Failure> {
    let profiles = Profiles::of_user()?;
    match command {
        ProfileCommand::Create(args) => create(&profiles, args, out),
        ProfileCommand::List => list(&profiles, out),
        ProfileCommand::Show(args) => show(&profiles, args, out),
        ProfileCommand::Use(args) => use_one(&profiles, args, out),
        ProfileCommand::Delete(args) => delete(&profiles, &args.names, out),
    }
}

fn create(profiles: &Profiles, args: &CreateProfileArgs, out: &Out) -> Result<(), Failure> {
    // Commands run in other directories, too.
    let absolute = |path: &PathBuf| std::path::absolute(path).map_err(Failure::from);
    let profile = Profile {
        server: args.server.clone(),
        bootstrap: args.bootstrap.clone(),
        tls: args.tls,
        ca: args.ca.as_ref().map(absolute).transpose()?,
        user: args.user.clone(),
        password_file: args.password_file.as_ref().map(absolute).transpose()?,
    };
    if let Some(ca) = &profile.ca {
        polylogue_net::Trust::load(Some(ca)).map_err(Failure::Usage)?;
    }
    if let Some(file) = &profile.password_file {
        password_of(file)?;
    }
    let path = profiles.put(&args.name, &profile, args.replace)?;
    if args.use_it {
        profiles.use_one(&args.name)?;
    }
    if out.json {
        return out.value(&json!({ "name": args.name, "file": path.display().to_string(), "profile": profile }));
    }
    out.line(&format!("created profile {} ({})", args.name, path.display()))?;
    match args.use_it {
        true => out.line(&format!("commands use profile {} from now on", args.name)),
        false => out.line(&format!("use it with --profile {0}, or always: `polylogue profile use {0}`", args.name)),
    }
}

fn list(profiles: &Profiles, out: &Out) -> Result<(), Failure> {
    let current = profiles.current()?;
    let mut rows = Vec::new();
    let mut all = Vec::new();
    for name in profiles.names()? {
        let profile = profiles.get(&name)?;
        let is_used = current.as_ref() == Some(&name);
        let shown = |field: &Option<String>| field.clone().unwrap_or_else(|| "-".to_owned());
        let mark = if is_used { "yes" } else { "" };
        let fields = [shown(&profile.server), shown(&profile.bootstrap), shown(&profile.user), mark.to_owned()];
        rows.push([vec![name.clone()], fields.to_vec()].concat());
        all.push(json!({ "name": name, "in_use": is_used, "profile": profile }));
    }
    let head = ["PROFILE", "SERVER", "BOOTSTRAP", "USER", "IN USE"];
    out.listing(&json!({ "profiles": all }), "no profiles", &head, &rows)
}

fn show(profiles: &Profiles, args: &ShowProfileArgs, out: &Out) -> Result<(), Failure> {
    let name = match &args.name {
        Some(name) => name.clone(),
        None => profiles.current()?.ok_or_else(|| {
            Failure::Usage("no profile is in use: name one, or `polylogue profile use NAME`".to_owned())
        })?,
    };
    let profile = profiles.get(&name)?;
    let is_used = profiles.current()?.as_ref() == Some(&name);
    if out.json {
        return out.value(&json!({ "name": name, "in_use": is_used, "profile": profile }));
    }
    out.line(&format!("{}{}", out.bold(&name), if is_used { " (in use)" } else { "" }))?;
    let path = |path: &Option<PathBuf>| path.as_deref().map(Path::display).map(|path| path.to_string());
    let password = match (&profile.user, path(&profile.password_file)) {
        (None, _) => None,
        (Some(_), Some(file)) => Some(format!("in {file}")),
        (Some(_), None) => Some("from POLYLOGUE_PASSWORD, or asked for".to_owned()),
    };
    for (field, value) in [
        ("server", profile.server.clone().or_else(|| Some("asked of the kafka listener".to_owned()))),
        ("bootstrap", profile.bootstrap.clone().or_else(|| Some("asked of the server".to_owned()))),
        ("tls", profile.tls.then(|| "yes".to_owned())),
        ("ca", path(&profile.ca)),
        ("user", profile.user.clone()),
        ("password", password),
    ] {
        if let Some(value) = value {
            out.line(&format!("  {field}: {value}"))?;
        }
    }
    Ok(())
}

fn use_one(profiles: &Profiles, args: &UseProfileArgs, out: &Out) -> Result<(), Failure> {
    match &args.name {
        Some(name) => profiles.use_one(name)?,
        None => profiles.use_none()?,
    }
    if out.json {
        return out.value(&json!({ "in_use": args.name }));
    }
    match &args.name {
        Some(name) => out.line(&format!("commands use profile {name} from now on")),
        None => out.line("commands use no profile from now on"),
    }
}

fn delete(profiles: &Profiles, names: &[String], out: &Out) -> Result<(), Failure> {
    for name in names {
        profiles.delete(name)?;
        if !out.json {
            out.line(&format!("deleted profile {name}"))?;
        }
    }
    if out.json { out.value(&json!({ "deleted": names })) } else { Ok(()) }
}
