//! The generated files: formatted, then written or compared.

use super::header;
use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Files by their path from the root.
#[derive(Debug)]
pub(super) struct Output {
    folder: &'static str,
    files: BTreeMap<String, String>,
}

impl Output {
    /// `folder` holds generated files only: others in it are removed.
    pub(super) fn new(folder: &'static str) -> Output {
        Output { folder, files: BTreeMap::new() }
    }

    /// Adds a file, formatted.
    pub(super) fn file(&mut self, path: &str, code: &str) -> Result<(), Box<dyn Error>> {
        let code =
            rustfmt(&format!("{}{code}", header()), &crate::root()).map_err(|error| format!("{path}: {error}"))?;
        self.files.insert(path.to_owned(), code);
        Ok(())
    }

    /// Writes what differs, and removes what is generated no more.
    pub(super) fn write(&self, root: &Path) -> Result<(), Box<dyn Error>> {
        for path in self.differences(root)? {
            let place = root.join(&path);
            match self.files.get(&path) {
                Some(code) => {
                    if let Some(folder) = place.parent() {
                        std::fs::create_dir_all(folder)?;
                    }
                    std::fs::write(&place, code)?;
                    println!("wrote {path}");
                }
                None => {
                    std::fs::remove_file(&place)?;
                    println!("removed {path}");
                }
            }
        }
        Ok(())
    }

    /// The paths whose files are missing, other than they should be, or too many.
    pub(super) fn differences(&self, root: &Path) -> Result<Vec<String>, Box<dyn Error>> {
        let mut different = Vec::new();
        for (path, code) in &self.files {
            if std::fs::read_to_string(root.join(path)).ok().as_ref() != Some(code) {
                different.push(path.clone());
            }
        }
        let Ok(folder) = std::fs::read_dir(root.join(self.folder)) else {
            return Ok(different);
        };
        for entry in folder {
            let path = format!("{}/{}", self.folder, entry?.file_name().to_string_lossy());
            if !self.files.contains_key(&path) {
                different.push(path);
            }
        }
        Ok(different)
    }
}

/// As `cargo fmt` would leave it: the settings are those of `root`.
fn rustfmt(code: &str, root: &Path) -> Result<String, Box<dyn Error>> {
    let mut child = Command::new("rustfmt")
        .current_dir(root)
        .args(["--edition", "2024", "--emit", "stdout"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("rustfmt: {error}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(code.as_bytes())?;
    }
    let out = child.wait_with_output()?;
    if !out.status.success() {
        return Err("rustfmt refused the generated code".into());
    }
    Ok(String::from_utf8(out.stdout)?)
}
