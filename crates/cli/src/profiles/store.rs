//! Profiles as files: `profiles/NAME.toml` in the user's configuration directory, and `current`, which names the one in use.

use crate::Failure;
use polylogue_env::{Disk, Env};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ENDING: &str = "toml";
/// The file that names the profile in use.
const CURRENT: &str = "current";
/// The longest name of a profile.
const NAME_CHARS_MAX: usize = 64;
/// Permissions of what is written.
const MODE: u32 = 0o600;
/// Permissions that a file with a password must not have.
const OF_OTHERS: u32 = 0o077;

/// A server, and how to log in to it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Profile {
    /// URL of the http listener.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<String>,
    /// Address of the kafka listener.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bootstrap: Option<String>,
    /// Whether the kafka listener uses TLS, by CAs of the system.
    #[serde(default)]
    pub(crate) tls: bool,
    /// CA certificates (PEM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ca: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    /// A file whose first line is the password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) password_file: Option<PathBuf>,
}

/// The directory of profiles.
pub(crate) struct Profiles {
    dir: PathBuf,
    disk: Arc<dyn Disk>,
}

impl Profiles {
    /// Returns those of this user: in `XDG_CONFIG_HOME/polylogue`, or `~/.config/polylogue`.
    ///
    /// # Errors
    /// Neither variable is set.
    pub(crate) fn of_user() -> Result<Profiles, Failure> {
        let absolute = |variable| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        let base = absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")));
        let base = base.ok_or_else(|| Failure::Usage("profiles need HOME or XDG_CONFIG_HOME to be set".to_owned()))?;
        Ok(Profiles { dir: base.join("polylogue"), disk: Env::real().disk })
    }

    fn path(&self, name: &str) -> Result<PathBuf, Failure> {
        checked(name).map_err(Failure::Usage)?;
        Ok(self.dir.join("profiles").join(format!("{name}.{ENDING}")))
    }

    /// Returns a profile.
    ///
    /// # Errors
    /// There is none of this name, or its file cannot be used.
    pub(crate) fn get(&self, name: &str) -> Result<Profile, Failure> {
        let path = self.path(name)?;
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(self.unknown(name)),
            Err(e) => return Err(on(&path, &e)),
        };
        toml::from_str(&text).map_err(|e| on(&path, &e.message()))
    }

    fn unknown(&self, name: &str) -> Failure {
        let there = match self.names().unwrap_or_default() {
            names if names.is_empty() => "there is none yet".to_owned(),
            names => format!("existing: {}", names.join(", ")),
        };
        Failure::Usage(format!("there is no profile {name} ({there}); `polylogue profile create {name}` creates it"))
    }

    /// Returns the names of all profiles, sorted.
    pub(crate) fn names(&self) -> Result<Vec<String>, Failure> {
        let dir = self.dir.join("profiles");
        if !self.disk.exists(&dir) {
            return Ok(Vec::new());
        }
        let files: Vec<OsString> = std::fs::read_dir(&dir)
            .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.file_name())).collect())
            .map_err(|e| on(&dir, &e))?;
        let name = |file: &OsString| {
            let name = file.to_str()?.strip_suffix(ENDING)?.strip_suffix('.')?;
            checked(name).ok().map(|()| name.to_owned())
        };
        let mut names: Vec<String> = files.iter().filter_map(name).collect();
        names.sort();
        Ok(names)
    }

    /// Writes a profile.
    ///
    /// # Errors
    /// There is one of this name and it is not to be replaced, or it cannot be written.
    pub(crate) fn put(&self, name: &str, profile: &Profile, replace: bool) -> Result<PathBuf, Failure> {
        let path = self.path(name)?;
        if self.disk.exists(&path) && !replace {
            let text = format!("there is a profile {name} already: pass --replace, or another name");
            return Err(Failure::Usage(text));
        }
        let text = toml::to_string(profile).map_err(|e| Failure::Other(e.to_string()))?;
        self.write(&path, &text)?;
        Ok(path)
    }

    /// Deletes a profile; if it is in use, none is afterwards.
    pub(crate) fn delete(&self, name: &str) -> Result<(), Failure> {
        let path = self.path(name)?;
        if !self.disk.exists(&path) {
            return Err(self.unknown(name));
        }
        if self.current()?.as_deref() == Some(name) {
            self.use_none()?;
        }
        self.disk.remove(&path).map_err(|e| on(&path, &e))
    }

    /// Returns the name of the profile in use.
    pub(crate) fn current(&self) -> Result<Option<String>, Failure> {
        let path = self.dir.join(CURRENT);
        match std::fs::read_to_string(&path) {
            Ok(name) => Ok(Some(name.trim().to_owned()).filter(|name| !name.is_empty())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(on(&path, &e)),
        }
    }

    /// Uses this profile from now on.
    pub(crate) fn use_one(&self, name: &str) -> Result<(), Failure> {
        self.get(name)?;
        self.write(&self.dir.join(CURRENT), &format!("{name}\n"))
    }

    /// Uses none from now on.
    pub(crate) fn use_none(&self) -> Result<(), Failure> {
        let path = self.dir.join(CURRENT);
        if !self.disk.exists(&path) {
            return Ok(());
        }
        self.disk.remove(&path).map_err(|e| on(&path, &e))
    }

    /// Writes a file anew, in one step.
    fn write(&self, path: &Path, text: &str) -> Result<(), Failure> {
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).map_err(|e| on(dir, &e))?;
        }
        let next = path.with_extension(format!("{}.new", std::process::id()));
        let mut file = OpenOptions::new();
        let file = file.write(true).create(true).truncate(true).mode(MODE).open(&next);
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
        written.and_then(|()| self.disk.rename(&next, path)).map_err(|e| on(path, &e))
    }
}

/// Checks a profile's name, which is that of a file.
pub(crate) fn checked(name: &str) -> Result<(), String> {
    let is_plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    let is_right = (1..=NAME_CHARS_MAX).contains(&name.len()) && name.bytes().all(is_plain) && !name.starts_with('.');
    let text = || format!("profile {name:?}: expected letters, digits, '-', '_' and '.', at most {NAME_CHARS_MAX}");
    if is_right { Ok(()) } else { Err(text()) }
}

/// Reads a password: the first line of a file that only its owner may read.
pub(crate) fn password_of(path: &Path) -> Result<String, Failure> {
    let mode = std::fs::metadata(path).map_err(|e| on(path, &e))?.permissions().mode();
    if mode & OF_OTHERS != 0 {
        let at = path.display();
        return Err(Failure::Usage(format!("{at} holds a password and other users have access: chmod 600 {at}")));
    }
    let text = std::fs::read_to_string(path).map_err(|e| on(path, &e))?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(Failure::Usage(format!("the first line of {} is empty: it should be the password", path.display()))),
    }
}

fn on(path: &Path, e: &dyn std::fmt::Display) -> Failure {
    Failure::Other(format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_files() {
        for (name, is_right) in [
            ("prod", true),
            ("a.b-c_1", true),
            ("", false),
            (".x", false),
            ("../x", false),
            ("a/b", false),
            ("ä", false),
        ] {
            assert_eq!(checked(name).is_ok(), is_right, "{name}");
        }
    }

    #[test]
    fn a_profile_is_read_as_it_was_written() {
        let profile = Profile { server: Some("https://b:9600".to_owned()), tls: true, ..Profile::default() };
        assert_eq!(toml::from_str::<Profile>(&toml::to_string(&profile).unwrap()).unwrap(), profile);
        assert!(toml::from_str::<Profile>("password = \"x\"").is_err(), "unknown fields are errors");
    }
}
