//! `polylogue backup` and `polylogue restore`.

mod files;

use super::Failure;
use super::args::{BackupArgs, RestoreArgs};
use super::check::checked;
use super::output::{Out, bytes};
use crate::client::ClientError;
use files::{IDENTITY, NewDir, PIECE_BYTES, parent_of};
use polylogue_admin::backup::{Decoder, Record};
use polylogue_broker::{hold_directory_to_read, read_identity};
use polylogue_env::{Env, OpenMode};
use serde_json::json;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::signal::unix::{SignalKind, signal};

/// File extension of an incomplete backup.
const PARTIAL: &str = "partial";
/// Files that belong to a running process or to the file system.
const NOT_COPIED: [&str; 3] = ["LOCK", "RESERVE", "lost+found"];

/// Progress, shown on a terminal.
struct Progress {
    /// Set when the user interrupts the command.
    interrupted: Arc<AtomicBool>,
    total: u64,
    done: u64,
    shown_percent: u64,
    is_terminal: bool,
}

impl Progress {
    fn new(total: u64, interrupted: Arc<AtomicBool>) -> Progress {
        Progress { interrupted, total, done: 0, shown_percent: u64::MAX, is_terminal: io::stderr().is_terminal() }
    }

    fn more(&mut self, count: u64) -> io::Result<()> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(io::Error::other("interrupted"));
        }
        self.done += count;
        let percent = self.done.saturating_mul(100) / self.total.max(1);
        if self.is_terminal && percent != self.shown_percent {
            self.shown_percent = percent;
            let mut err = io::stderr();
            write!(err, "\r{} of {} ({percent} %)   ", bytes(self.done), bytes(self.total))?;
            err.flush()?;
        }
        Ok(())
    }

    fn end(&self) {
        if self.is_terminal && self.shown_percent != u64::MAX {
            eprintln!();
        }
    }
}

fn on(path: &Path, e: &io::Error) -> Failure {
    Failure::Other(format!("{}: {e}", path.display()))
}

pub(super) fn backup(args: &BackupArgs, out: &Out) -> Result<(), Failure> {
    let dir = &args.dir;
    let partial = partial_of(dir).ok_or_else(|| Failure::Usage("name the directory to create".to_owned()))?;
    let env = Env::real_within(&[&partial]);
    if env.disk.exists(dir) {
        return Err(Failure::Usage(format!("{} exists already: a backup needs a new directory", dir.display())));
    }
    if env.disk.exists(&partial) {
        let text = format!("{} exists already, left by an aborted backup: remove it", partial.display());
        return Err(Failure::Usage(text));
    }
    let client = args.at.client();
    let done = until_interrupted({
        let (env, partial) = (env.clone(), partial.clone());
        move |interrupted| receive(&env, client.stream("/backup")?, &partial, interrupted)
    });
    let done = done.and_then(|done| {
        env.disk.rename(&partial, dir).and_then(|()| env.disk.sync_dir(&parent_of(dir))).map_err(|e| on(dir, &e))?;
        Ok(done)
    });
    let (files, count) = done.inspect_err(|_| {
        // An incomplete backup is of no use and takes space. If it cannot be removed, its name shows what it is.
        let _ = std::fs::remove_dir_all(&partial);
    })?;
    if out.json {
        return out.value(&json!({ "directory": dir.display().to_string(), "files": files, "bytes": count }));
    }
    out.line(&format!("backed up {} in {files} files to {}", bytes(count), dir.display()))
}

/// Runs work on a thread and ends it early on Ctrl-C or SIGTERM; the caller removes what it has made.
fn until_interrupted<T: Send + 'static>(
    work: impl FnOnce(Arc<AtomicBool>) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let interrupted = Arc::<AtomicBool>::default();
    runtime.block_on(async {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let mut work = tokio::task::spawn_blocking({
            let interrupted = interrupted.clone();
            move || work(interrupted)
        });
        let done = tokio::select! {
            biased;
            done = &mut work => done,
            _ = interrupt.recv() => {
                interrupted.store(true, Ordering::Relaxed);
                work.await
            }
            _ = terminate.recv() => {
                interrupted.store(true, Ordering::Relaxed);
                work.await
            }
        };
        done.map_err(|e| Failure::Other(e.to_string()))?
    })
}

fn partial_of(dir: &Path) -> Option<PathBuf> {
    let name = dir.file_name()?.to_str()?;
    Some(dir.with_file_name(format!("{name}.{PARTIAL}")))
}

/// Writes a stream to a directory; returns the number of files and bytes.
fn receive(env: &Env, stream: impl Read, to: &Path, interrupted: Arc<AtomicBool>) -> Result<(u64, u64), Failure> {
    let cut = |e: &io::Error| {
        let text = match e.kind() {
            io::ErrorKind::InvalidData => format!("the received backup is damaged: {e}"),
            _ => format!("the connection was closed before the backup was complete: {e}"),
        };
        Failure::Client(ClientError::new("broken_off", text))
    };
    let mut decoder = Decoder::new(stream).map_err(|e| cut(&e))?;
    let mut dir = NewDir::make(env, to).map_err(|e| on(to, &e))?;
    let mut progress = Progress::new(decoder.bytes, interrupted);
    let mut piece = vec![0; PIECE_BYTES];
    let mut files = 0;
    loop {
        match decoder.record().map_err(|e| cut(&e))? {
            Record::File { name, len } => {
                let path = to.join(&name);
                let file = dir.file(&name, len).map_err(|e| on(&path, &e))?;
                // If both fail, the disk's error is more specific than that of the stream.
                let mut written = Ok(());
                let read = decoder.content(len, &mut piece, |piece, at| {
                    file.write(piece, at).and_then(|()| progress.more(piece.len() as u64)).map_err(|e| {
                        written = Err(on(&path, &e));
                        io::ErrorKind::Other.into()
                    })
                });
                written?;
                read.map_err(|e| cut(&e))?;
                file.finish().map_err(|e| on(&path, &e))?;
                files += 1;
            }
            Record::End => break,
            Record::Broken(why) => {
                progress.end();
                return Err(Failure::Client(ClientError::new("broken_off", why)));
            }
        }
    }
    progress.end();
    if (files, progress.done) != (decoder.files, decoder.bytes) {
        return Err(cut(&io::ErrorKind::InvalidData.into()));
    }
    dir.finish().map_err(|e| on(to, &e))?;
    Ok((files, progress.done))
}

pub(super) fn restore(args: &RestoreArgs, out: &Out) -> Result<(), Failure> {
    let (from, to) = (&args.from, &args.data);
    // Confined: links in a backup must not lead outside of the two directories.
    let env = Env::real_within(&[from, to]);
    read_identity(&env, from).map_err(|e| Failure::Other(e.to_string()))?;
    let there = if env.disk.exists(to) { env.disk.list(to).map_err(|e| on(to, &e))? } else { Vec::new() };
    if let Some(name) = there.iter().find(|name| !NOT_COPIED.contains(&name.as_str())) {
        return Err(Failure::Usage(format!("{} is not empty: it holds {name}; give an empty directory", to.display())));
    }
    // A concurrent writer would corrupt the copy.
    let _held = hold_directory_to_read(&env, from).map_err(|e| Failure::Other(e.to_string()))?;
    if !checked(&env, from).is_sound() {
        let text =
            format!("{} is damaged, and nothing was written: `polylogue check` shows the damage", from.display());
        return Err(Failure::Other(text));
    }
    let mut files = Vec::new();
    list(from, "", &mut files).map_err(|e| on(from, &e))?;
    // Last: a broker refuses a directory without it.
    files.sort_by_key(|(name, _)| name == IDENTITY);
    let total = files.iter().map(|(_, len)| len).sum();
    let mut progress = Progress::new(total, Arc::default());
    let mut dir = NewDir::make(&env, to).map_err(|e| on(to, &e))?;
    for (name, len) in &files {
        copy(&env, &from.join(name), *len, &mut dir, name, &mut progress)?;
    }
    progress.end();
    dir.finish().map_err(|e| on(to, &e))?;
    if out.json {
        return out.value(&json!({ "directory": to.display().to_string(), "files": files.len(), "bytes": total }));
    }
    out.line(&format!("restored {} in {} files to {}", bytes(total), files.len(), to.display()))
}

/// Lists all files below a directory, with their lengths.
fn list(from: &Path, below: &str, files: &mut Vec<(String, u64)>) -> io::Result<()> {
    for entry in std::fs::read_dir(from.join(below))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if below.is_empty() && NOT_COPIED.contains(&name.as_str()) {
            continue;
        }
        let name = if below.is_empty() { name } else { format!("{below}/{name}") };
        if entry.file_type()?.is_dir() {
            list(from, &name, files)?;
        } else {
            files.push((name, entry.metadata()?.len()));
        }
    }
    files.sort();
    Ok(())
}

fn copy(
    env: &Env,
    from: &Path,
    len: u64,
    dir: &mut NewDir,
    name: &str,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let failed = |e: io::Error| on(from, &e);
    let source = env.disk.open(from, OpenMode::Read).map_err(failed)?;
    let file = dir.file(name, len).map_err(failed)?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < len {
        let part = PIECE_BYTES.min(usize::try_from(len - at).unwrap_or(usize::MAX));
        let part = &mut piece[..part];
        source.read_exact_at(part, at).map_err(failed)?;
        file.write(part, at).map_err(failed)?;
        at += part.len() as u64;
        progress.more(part.len() as u64)?;
    }
    file.finish().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_whole_has_another_name() {
        assert_eq!(partial_of(Path::new("/a/b")), Some(PathBuf::from("/a/b.partial")));
        assert_eq!(partial_of(Path::new("b/")), Some(PathBuf::from("b.partial")));
        assert_eq!(partial_of(Path::new("/")), None);
    }
}
