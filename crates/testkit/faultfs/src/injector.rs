//! What a test does with the injector.

use crate::revert::{Power, Report, revert};
use polylogue_env::{Disk, RealDisk};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// The faults of one program and one directory.
#[derive(Clone, Debug)]
pub struct Injector {
    library: PathBuf,
    dir: PathBuf,
    beside: PathBuf,
}

impl Injector {
    /// Watches `dir`, which need not exist yet (that it comes to be is not undone: to see what becomes of a program
    /// that does not flush its parent, watch the parent). One process at a time runs under it.
    ///
    /// Control file, events and undo log live in `beside`, which must exist, outside of `dir` and on the same file
    /// system. Builds the library where need be.
    ///
    /// # Errors
    /// As [`build_library`].
    pub fn new(dir: &Path, beside: &Path) -> io::Result<Injector> {
        let library = build_library()?;
        Ok(Injector { library, dir: dir.to_owned(), beside: beside.to_owned() })
    }

    /// Makes `command` start its program under the injector, settings in force, with an undo log.
    pub fn preload(&self, command: &mut Command) {
        self.preload_without_log(command);
        command.env("FAULTFS_JOURNAL", self.log());
    }

    /// The same without an undo log: quicker, and nothing can be reverted.
    pub fn preload_without_log(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("FAULTFS_DIR", &self.dir);
        command.env("FAULTFS_CONTROL", self.beside.join("faults.control"));
        command.env("FAULTFS_EVENTS", self.beside.join("faults.events"));
    }

    /// Replaces the settings, in one step, for running programs too: `["fail_sync=EIO", "only=/journal-"]`. The
    /// library's documentation lists them. An empty list ends all faults.
    ///
    /// # Errors
    /// What the system says.
    pub fn set(&self, settings: &[&str]) -> io::Result<()> {
        let new = self.beside.join("faults.control.new");
        let lines: Vec<String> = settings.iter().map(|setting| format!("{setting}\n")).collect();
        std::fs::write(&new, lines.concat())?;
        RealDisk::default().rename(&new, &self.beside.join("faults.control"))
    }

    /// A line for each fault that struck so far: its name and the path.
    ///
    /// # Errors
    /// What the system says.
    pub fn events(&self) -> io::Result<Vec<String>> {
        match std::fs::read_to_string(self.beside.join("faults.events")) {
            Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(e),
        }
    }

    /// The undo log.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.beside.join("faults.undo")
    }

    /// After the program was killed: leaves in the directory what a power cut would have left.
    ///
    /// # Errors
    /// As [`revert`].
    pub fn cut_power(&self, power: Power) -> io::Result<Report> {
        revert(&self.log(), &self.dir, power)
    }
}

/// Builds the library with cargo and says where it is. Only for tests of this workspace: it wants the sources.
///
/// # Errors
/// When cargo cannot be started or fails; what it said is on standard error.
pub fn build_library() -> io::Result<PathBuf> {
    static BUILT: Mutex<Option<PathBuf>> = Mutex::new(None);
    // A panic of another test inside would leave `None`, which is fine.
    let mut built = BUILT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(library) = &*built {
        return Ok(library.clone());
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--quiet", "--package", "polylogue-faultfs-preload", "--message-format", "json"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stderr(Stdio::inherit())
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let library = said.split('"').find(|word| word.ends_with("libpolylogue_faultfs_preload.so"));
    match library {
        Some(library) if output.status.success() => Ok(built.insert(library.into()).clone()),
        _ => Err(io::Error::other("cargo did not build polylogue-faultfs-preload")),
    }
}
