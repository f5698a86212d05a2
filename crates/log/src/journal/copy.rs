//! Copying the end of a log into a new file, so that it is durable for certain.

use super::config::{Config, Identity};
use super::file::{FILE_HEADER_BYTES, FileEnd, FileHeader, Role};
use super::recover::{Boundary, Found};
use super::spares::final_error;
use super::survey::Survey;
use crate::error::{Error, ErrorKind, Result};
use crate::frame::codec::{self, LocalRecord, seal};
use crate::frame::header::{Durable, LOCAL_BYTES, LocalHeader, LogEnd, align};
use polylogue_env::{DiskFile, Env, OpenMode};
use polylogue_types::Index;
use std::path::Path;
use std::sync::Arc;

/// Frames are gathered into writes of this size. Bytes.
const WRITE_BYTES: usize = 4 << 20;

/// A file of the log in the making, under a name that does not count.
#[derive(Debug)]
pub(crate) struct CopyFile<'a> {
    env: &'a Env,
    dir: &'a Path,
    header: FileHeader,
    file: Arc<dyn DiskFile>,
    /// Not yet written, for the place `written`.
    buffer: Vec<u8>,
    written: u64,
    end: FileEnd,
    durable: Durable,
}

impl<'a> CopyFile<'a> {
    /// Begins a file with `sequence`, behind `after`.
    pub(crate) fn begin(
        env: &'a Env,
        identity: &Identity,
        dir: &'a Path,
        sequence: u64,
        after: &Boundary,
        bytes: u64,
    ) -> Result<CopyFile<'a>> {
        let header = FileHeader {
            identity: *identity,
            sequence,
            salt: env.rng.next_u64(),
            first_index: after.next,
            previous: after.end,
        };
        let made = env.disk.open(&dir.join(Role::Copy(sequence).name()), OpenMode::CreateNew);
        let file = made.map_err(|e| Error::io("cannot make a file for what was recovered", e))?;
        let (block, checksum) = header.encode();
        let mut copy = CopyFile {
            env,
            dir,
            header,
            file,
            buffer: block,
            written: 0,
            end: FileEnd { sequence, position: FILE_HEADER_BYTES, checksum },
            durable: Durable {
                index: after.next.0.checked_sub(1).map(Index),
                end: LogEnd { sequence: after.end.sequence, position: after.end.position },
            },
        };
        copy.file.allocate(bytes).map_err(|e| Error::io("no room for what was recovered", e))?;
        for record in after.local.records() {
            copy.local(&record)?;
        }
        Ok(copy)
    }

    /// Adds a local frame.
    pub(crate) fn local(&mut self, record: &LocalRecord) -> Result<()> {
        let (frame, content) = record.encode();
        self.frame(frame, record.kind() as u8, content)
    }

    /// Adds a frame, all of it but the local header.
    pub(crate) fn frame(&mut self, mut frame: Vec<u8>, kind: u8, content: u32) -> Result<()> {
        let local = LocalHeader {
            kind,
            len: frame.len() as u32,
            previous: self.end.checksum,
            salt: self.header.salt,
            durable: self.durable,
            content,
        };
        self.end.checksum = seal(&mut frame, &local);
        self.buffer.extend_from_slice(&frame);
        let end = align(self.written + self.buffer.len() as u64);
        self.buffer.resize((end - self.written) as usize, 0);
        self.end.position = end;
        if self.buffer.len() >= WRITE_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        let written = self.file.write_all_at(&self.buffer, self.written);
        written.map_err(|e| Error::io("cannot write what was recovered", e))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Makes the file part of the log: from here on its contents count, and what they replace does not. `next` is the
    /// index after its last frame.
    pub(crate) fn finish(mut self, next: Index) -> Result<()> {
        // The mark says that everything before it is flushed. So it is when the file gets the name that makes it count.
        self.durable.index = next.0.checked_sub(1).map(Index);
        self.durable.end = LogEnd { sequence: self.end.sequence, position: self.end.position };
        self.local(&LocalRecord::Mark)?;
        self.write()?;
        self.file.sync_data().map_err(|e| final_error("cannot flush what was recovered", e))?;
        let sequence = self.header.sequence;
        let (from, to) = (self.dir.join(Role::Copy(sequence).name()), self.dir.join(Role::Log(sequence).name()));
        self.env.disk.rename(&from, &to).map_err(|e| Error::io("cannot name what was recovered", e))?;
        self.env.disk.sync_dir(self.dir).map_err(|e| {
            // The name may never become durable, although the next start would find it and trust the mark: that start copies again.
            _ = self.env.disk.rename(&to, &from);
            final_error("cannot make the name of what was recovered durable", e)
        })
    }
}

/// Copies everything that the walk has found above the durable end. On a full disk the unused end of the last file gives way, then the files
/// that only wait.
pub(crate) fn copy_tail(env: &Env, config: &Config, dir: &Path, survey: &Survey, found: &Found) -> Result<()> {
    for n in &survey.copies {
        let removed = env.disk.remove(&dir.join(Role::Copy(*n).name()));
        removed.map_err(|e| Error::io("cannot remove what an earlier recovery left", e))?;
    }
    let copied = match copy_once(env, config, dir, survey, found) {
        Err(e) if e.kind == ErrorKind::StorageFull => {
            found.trim_files(survey)?;
            let copy = dir.join(Role::Copy(survey.highest + 1).name());
            // Not even its name may have had room.
            if env.disk.exists(&copy) {
                env.disk.remove(&copy).map_err(|e| Error::io("cannot make room for what was recovered", e))?;
            }
            copy_once(env, config, dir, survey, found)
        }
        done => done,
    };
    match copied {
        Err(e) if e.kind == ErrorKind::StorageFull => {
            let spares = survey.spares.iter().map(|n| Role::Spare(*n));
            let ready = survey.headless.iter().map(|h| Role::Log(h.sequence));
            // Not even its name may have had room.
            let copy = Some(Role::Copy(survey.highest + 1)).filter(|c| env.disk.exists(&dir.join(c.name())));
            for role in spares.chain(ready).chain(copy) {
                let removed = env.disk.remove(&dir.join(role.name()));
                removed.map_err(|e| Error::io("cannot make room for what was recovered", e))?;
            }
            copy_once(env, config, dir, survey, found)
        }
        done => done,
    }
}

fn copy_once(env: &Env, config: &Config, dir: &Path, survey: &Survey, found: &Found) -> Result<()> {
    let frames: u64 = found.pending.iter().map(|p| align(u64::from(p.len))).sum();
    // The header, up to three records that every file begins with, and the mark.
    let bytes = FILE_HEADER_BYTES + frames + 8 * LOCAL_BYTES as u64;
    let sequence = survey.highest + 1;
    let mut copy = CopyFile::begin(env, &config.identity, dir, sequence, &found.durable, bytes)?;
    for pending in &found.pending {
        let file = &survey.chain[pending.file].file;
        let mut frame = vec![0; pending.len as usize];
        file.read_exact_at(&mut frame, pending.position).map_err(|e| Error::io("cannot read the journal", e))?;
        let parsed = codec::parse(&frame).map_err(|e| Error::new(ErrorKind::Damaged, e.to_string()))?;
        copy.frame(frame, pending.kind, parsed.local.content)?;
    }
    let next = found.pending.back().map_or(found.durable.next, |p| p.after.next);
    copy.finish(next)
}
