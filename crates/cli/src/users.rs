//! `polylogue user`

use super::Failure;
use super::args::{DeleteUsersArgs, ServerArgs, SetUserArgs, UserCommand};
use super::ask::ask_silently;
use super::output::Out;
use crate::client::http::segment;
use polylogue_admin::api::access::{PutUser, User, Users};
use serde_json::json;
use std::io::{self, BufRead as _, IsTerminal as _};

pub(super) fn run(command: &UserCommand, out: &Out) -> Result<(), Failure> {
    match command {
        UserCommand::List(at) => list(at, out),
        UserCommand::Set(args) => set(args, out),
        UserCommand::Delete(args) => delete(args, out),
    }
}

fn list(at: &ServerArgs, out: &Out) -> Result<(), Failure> {
    let users: Users = at.client().get("/users")?;
    let row = |user: &User| vec![user.name.clone(), user.tags.join(", "), user.mechanisms.join(", ")];
    let rows: Vec<_> = users.users.iter().map(row).collect();
    out.listing(&users, "no users", &["USER", "TAGS", "LOGS IN BY"], &rows)
}

fn set(args: &SetUserArgs, out: &Out) -> Result<(), Failure> {
    let wanted = PutUser {
        password: if args.password { Some(password(&args.name)?) } else { None },
        tags: (args.no_tags || !args.tag.is_empty()).then(|| args.tag.clone()),
    };
    args.at.client().put(&format!("/users/{}", segment(&args.name)), &wanted)?;
    if out.json {
        return out.value(&json!({ "set": args.name }));
    }
    out.line(&format!("set user {}", args.name))
}

/// Reads a new password, without echo on a terminal.
fn password(user: &str) -> Result<String, Failure> {
    let stdin = io::stdin();
    let password = if stdin.is_terminal() {
        ask_silently(&format!("new password of {user}: "))?
    } else {
        let mut line = String::new();
        stdin.lock().read_line(&mut line)?;
        line.trim_end_matches(['\n', '\r']).to_owned()
    };
    if password.is_empty() {
        return Err(Failure::Usage("the password is empty".to_owned()));
    }
    Ok(password)
}

fn delete(args: &DeleteUsersArgs, out: &Out) -> Result<(), Failure> {
    let client = args.at.client();
    for name in &args.names {
        client.delete(&format!("/users/{}", segment(name)))?;
        if !out.json {
            out.line(&format!("deleted user {name}"))?;
        }
    }
    if out.json { out.value(&json!({ "deleted": args.names })) } else { Ok(()) }
}
