//! `mutants`: builds the tree with each seeded bug of tests/mutants and sees that it is found.

use crate::{Outcome, root};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Seeds that the simulator may take to find a bug.
const SEEDS_MAX: u64 = 200;

/// One seeded bug.
struct Mutant {
    name: String,
    what: String,
    found_by: String,
    edits: Vec<Edit>,
}

/// One change of one file.
struct Edit {
    file: String,
    find: String,
    replace: String,
}

/// Runs all mutants, or those that are named.
pub(crate) fn run(names: &[&str]) -> Outcome {
    let mutants = load(names)?;
    let tree = root().join("build/mutants/tree");
    copy_tree(&tree)?;
    let mut missed = 0;
    for mutant in &mutants {
        println!("{}: {}", mutant.name, mutant.what);
        let originals = apply(mutant, &tree)?;
        let found = is_found(mutant, &tree);
        for (path, text) in originals {
            fs::write(path, text)?;
        }
        let how = match found {
            Ok(Some(how)) => format!("found {how}"),
            Ok(None) => "NOT FOUND".to_owned(),
            // The others are looked for all the same.
            Err(error) => format!("NOT FOUND: {error}"),
        };
        missed += usize::from(how.starts_with("NOT"));
        println!("  {how}");
    }
    println!("{} passed, {missed} failed", mutants.len() - missed);
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn load(names: &[&str]) -> Result<Vec<Mutant>, Box<dyn Error>> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(root().join("tests/mutants"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "toml") {
            paths.push(path);
        }
    }
    paths.sort();
    let mut mutants = Vec::new();
    for path in paths {
        let mutant = parse(&path)?;
        if names.is_empty() || names.contains(&mutant.name.as_str()) {
            mutants.push(mutant);
        }
    }
    if mutants.is_empty() {
        return Err(format!("no such mutant: {}", names.join(", ")).into());
    }
    Ok(mutants)
}

fn parse(path: &Path) -> Result<Mutant, Box<dyn Error>> {
    let table: toml::Table = fs::read_to_string(path)?.parse()?;
    let text = |table: &toml::Table, name: &str| -> Result<String, Box<dyn Error>> {
        let value = table.get(name).and_then(toml::Value::as_str);
        Ok(value.ok_or_else(|| format!("{}: no {name}", path.display()))?.to_owned())
    };
    let mut edits = Vec::new();
    for edit in table.get("edit").and_then(toml::Value::as_array).into_iter().flatten() {
        let edit = edit.as_table().ok_or("an edit is not a table")?;
        edits.push(Edit { file: text(edit, "file")?, find: text(edit, "find")?, replace: text(edit, "replace")? });
    }
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Mutant { name, what: text(&table, "what")?, found_by: text(&table, "found_by")?, edits })
}

/// Copies what git knows; files that are the same already keep their times, so that little is built again.
fn copy_tree(to: &Path) -> Result<(), Box<dyn Error>> {
    let listed =
        Command::new("git").args(["ls-files", "-z", "-co", "--exclude-standard"]).current_dir(root()).output()?;
    for name in listed.stdout.split(|b| *b == 0).filter(|n| !n.is_empty()) {
        let name = std::str::from_utf8(name)?;
        let (from, to) = (root().join(name), to.join(name));
        let Ok(bytes) = fs::read(&from) else { continue };
        if fs::read(&to).ok().as_deref() != Some(&bytes) {
            fs::create_dir_all(to.parent().ok_or("a file has a folder")?)?;
            fs::write(to, bytes)?;
        }
    }
    Ok(())
}

/// Makes the edits; gives what stood there before.
fn apply(mutant: &Mutant, tree: &Path) -> Result<Vec<(PathBuf, String)>, Box<dyn Error>> {
    let mut originals: Vec<(PathBuf, String)> = Vec::new();
    for edit in &mutant.edits {
        let path = tree.join(&edit.file);
        let text = fs::read_to_string(&path)?;
        if text.matches(&edit.find).count() != 1 {
            return Err(format!("{}: the text to change is not once in {}", mutant.name, edit.file).into());
        }
        if !originals.iter().any(|(known, _)| *known == path) {
            originals.push((path.clone(), text.clone()));
        }
        fs::write(&path, text.replace(&edit.find, &edit.replace))?;
    }
    Ok(originals)
}

/// Runs what should find the bug; how it did, or `None` when everything passed.
fn is_found(mutant: &Mutant, tree: &Path) -> Result<Option<String>, Box<dyn Error>> {
    let cargo = || {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(tree).env("CARGO_TARGET_DIR", root().join("build/mutants/target"));
        cargo
    };
    let words: Vec<&str> = mutant.found_by.split_whitespace().collect();
    match words.as_slice() {
        ["sim", mode @ ..] => {
            let built = cargo().args(["build", "-q", "--release", "-p", "polylogue-sim"]).status()?;
            if !built.success() {
                return Err(format!("{}: does not build", mutant.name).into());
            }
            let sim = root().join("build/mutants/target/release/polylogue-sim");
            for seed in 1..=SEEDS_MAX {
                let out = Command::new(&sim).args(mode).args([&seed.to_string(), "1"]).output()?;
                if !out.status.success() {
                    let text = String::from_utf8_lossy(&out.stdout);
                    let why = text.lines().nth(1).unwrap_or("it ended without a word").trim();
                    return Ok(Some(format!("by seed {seed}: {why}")));
                }
            }
            Ok(None)
        }
        ["test", package, rest @ ..] => {
            let built = cargo().args(["test", "-q", "--no-run", "-p", package]).args(rest).status()?;
            if !built.success() {
                return Err(format!("{}: does not build", mutant.name).into());
            }
            let out = cargo().args(["test", "-q", "-p", package]).args(rest).output()?;
            let text = String::from_utf8_lossy(&out.stdout).into_owned();
            let failed = text.lines().find(|l| l.contains("panicked")).unwrap_or("a test failed").trim().to_owned();
            Ok((!out.status.success()).then(|| format!("by a test: {failed}")))
        }
        _ => Err(format!("{}: found_by is \"sim [MODE]\" or \"test CRATE [NAME]\"", mutant.name).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A seeded bug that no longer builds would be noticed only at the next run of all of them, days later.
    #[test]
    fn each_edit_finds_its_text() {
        let mut wrong = Vec::new();
        for mutant in load(&[]).unwrap() {
            let mut texts = std::collections::BTreeMap::new();
            for Edit { file, find, replace } in &mutant.edits {
                let text =
                    texts.entry(file).or_insert_with(|| fs::read_to_string(root().join(file)).unwrap_or_default());
                if text.matches(find).count() != 1 {
                    wrong.push(format!("{}: {find:?} in {file}", mutant.name));
                }
                *text = text.replace(find, replace);
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}
