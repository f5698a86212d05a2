//! Which faults are in force at this moment.

use crate::inside::die;
use std::ffi::{OsString, c_int};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The settings in force.
#[derive(Clone, Default)]
pub(crate) struct Control {
    pub(crate) hold_sync_ms: u64,
    pub(crate) fail_sync: Option<c_int>,
    pub(crate) fail_write: Option<c_int>,
    pub(crate) fail_allocate: Option<c_int>,
    pub(crate) free_bytes: Option<u64>,
    only: Option<String>,
}

impl Control {
    /// Reads them again.
    pub(crate) fn now() -> Control {
        let mut control = Control::default();
        let given = std::env::var("FAULTFS").unwrap_or_default();
        given.split_ascii_whitespace().for_each(|setting| control.set(setting));
        static FILE: OnceLock<Option<OsString>> = OnceLock::new();
        let file = FILE.get_or_init(|| std::env::var_os("FAULTFS_CONTROL"));
        let text = file.as_ref().and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
        // A line without its end may be half a line: the test is writing it.
        let whole = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        whole.map(str::trim).filter(|line| !line.is_empty()).for_each(|setting| control.set(setting));
        control
    }

    /// The same, for a file: nothing where `only` says that it is not meant.
    pub(crate) fn for_file(path: &Path) -> Control {
        let control = Control::now();
        let meant = control.only.as_ref().is_none_or(|text| path.to_string_lossy().contains(text));
        if meant { control } else { Control::default() }
    }

    fn set(&mut self, setting: &str) {
        let Some((name, value)) = setting.split_once('=') else { die(&format!("not a setting: {setting}")) };
        match name {
            "hold_sync_ms" => self.hold_sync_ms = number(setting, value),
            "fail_sync" => self.fail_sync = Some(error(setting, value)),
            "fail_write" => self.fail_write = Some(error(setting, value)),
            "fail_allocate" => self.fail_allocate = Some(error(setting, value)),
            "free_bytes" => self.free_bytes = Some(number(setting, value)),
            "only" => self.only = Some(value.to_owned()),
            _ => die(&format!("unknown setting: {setting}")),
        }
    }
}

fn number(setting: &str, value: &str) -> u64 {
    value.parse().unwrap_or_else(|_| die(&format!("not a number: {setting}")))
}

fn error(setting: &str, value: &str) -> c_int {
    match value {
        "EIO" => libc::EIO,
        "ENOSPC" => libc::ENOSPC,
        "EDQUOT" => libc::EDQUOT,
        "EROFS" => libc::EROFS,
        "EOPNOTSUPP" => libc::EOPNOTSUPP,
        _ => die(&format!("not an error that can be injected: {setting}")),
    }
}

/// A path given in the environment.
pub(crate) fn path_in_env(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
