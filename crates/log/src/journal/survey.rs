//! Which files of a journal's directory are the log, in which order, and which are not part of it.
//!
//! Every file names the one before it and where that one ends. The log is found by following these names from the newest
//! file back. A file in between that no one names was cut off: it holds only what was never durable. When the file that
//! is named is not there, the log begins behind the gap; whether that is right, the caller judges.

use super::config::Identity;
use super::file::{FILE_HEADER_BYTES, FileEnd, FileHeader, HeaderState, Role};
use super::scan;
use crate::error::{Error, ErrorKind, Result};
use polylogue_env::{Disk, DiskFile};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file of the log.
#[derive(Clone, Debug)]
pub(crate) struct ChainFile {
    pub(crate) header: FileHeader,
    /// The header's crc, which the first frame names.
    pub(crate) checksum: u32,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) size: u64,
    /// Where it ends, as the next file says; the last one ends where its frames do.
    pub(crate) end: Option<u64>,
    /// Its header was lost, and what it said is concluded from the files around it.
    pub(crate) rebuilt: bool,
}

impl ChainFile {
    /// Where the bytes end that count.
    pub(crate) fn limit(&self) -> u64 {
        self.end.unwrap_or(self.size).min(self.size)
    }
}

/// A file that is named as one of the log but has no header of its own: made ahead and not begun; begun, and the header did
/// not reach the disk; or the header is damaged.
#[derive(Clone, Debug)]
pub(crate) struct Headless {
    pub(crate) sequence: u64,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) size: u64,
    /// Why its header could not be read, when that is what it lacks.
    pub(crate) unread: Option<String>,
}

impl Headless {
    /// The salt of its frames, and whether these say that some of the file was flushed.
    pub(crate) fn salt(&self) -> Result<(Option<u64>, bool)> {
        let (salt, mut read) = (scan::first_salt(&*self.file, self.size)?, 0);
        let Some(known) = salt else { return Ok((None, false)) };
        let (durable, _) = scan::marks_behind(&*self.file, self.size, FILE_HEADER_BYTES, known, &mut read)?;
        Ok((salt, durable.end.sequence >= self.sequence))
    }
}

/// How a file is opened.
pub(crate) type OpenFile<'a> = &'a dyn Fn(&Path) -> io::Result<Arc<dyn DiskFile>>;

/// What is in the directory.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// The log, oldest first.
    pub(crate) chain: Vec<ChainFile>,
    /// Files before a gap, oldest first.
    pub(crate) older: Vec<ChainFile>,
    /// Begun, and cut off by a later file.
    pub(crate) void: Vec<u64>,
    /// Ascending. Those that a later file has cut off are in `void`.
    pub(crate) headless: Vec<Headless>,
    pub(crate) spares: Vec<u64>,
    pub(crate) copies: Vec<u64>,
    /// The highest sequence number of any file.
    pub(crate) highest: u64,
}

impl Survey {
    /// Reads all headers. Nothing is changed on disk.
    ///
    /// # Errors
    /// `Incompatible` for a file of a newer version, or of another identity than `ours` (where that is known); `Io`, unless
    /// what cannot be read is cut off or released.
    pub(crate) fn read(disk: &dyn Disk, dir: &Path, ours: Option<&Identity>, open: OpenFile<'_>) -> Result<Survey> {
        let mut survey = Survey::default();
        let mut begun = BTreeMap::new();
        let names = disk.list(dir).map_err(|e| Error::io("cannot list the journal", e))?;
        for role in names.iter().filter_map(|n| Role::parse(n)) {
            survey.highest = survey.highest.max(role.sequence());
            match role {
                Role::Spare(n) => survey.spares.push(n),
                Role::Copy(n) => survey.copies.push(n),
                Role::Log(n) => survey.read_header(dir, n, ours, open, &mut begun)?,
            }
        }
        survey.follow(begun);
        let first = survey.previous_sequence();
        match survey.headless.iter().find(|h| h.sequence >= first && h.unread.is_some()) {
            Some(Headless { path, unread: Some(why), .. }) => {
                let what = format!("cannot read the header of {}: {why}", path.display());
                Err(Error::new(ErrorKind::Io, format!("{what}; `check` and `repair` read what is left")))
            }
            _ => Ok(survey),
        }
    }

    fn read_header(
        &mut self,
        dir: &Path,
        sequence: u64,
        ours: Option<&Identity>,
        open: OpenFile<'_>,
        begun: &mut BTreeMap<u64, ChainFile>,
    ) -> Result<()> {
        let path = dir.join(Role::Log(sequence).name());
        let io = |e| Error::io("cannot read the journal", e);
        let file = open(&path).map_err(io)?;
        let size = file.size().map_err(io)?;
        let mut block = vec![0; FILE_HEADER_BYTES.min(size) as usize];
        if let Err(e) = file.read_exact_at(&mut block, 0) {
            self.headless.push(Headless { sequence, path, file, size, unread: Some(e.to_string()) });
            return Ok(());
        }
        match FileHeader::decode(&block, sequence) {
            HeaderState::Begun(header, checksum) => {
                if let Some(ours) = ours {
                    header.check_identity(ours, &path)?;
                }
                begun.insert(sequence, ChainFile { header, checksum, path, file, size, end: None, rebuilt: false });
            }
            HeaderState::NotBegun | HeaderState::Unreadable => {
                self.headless.push(Headless { sequence, path, file, size, unread: None });
            }
            HeaderState::Newer(version) => {
                let what = format!("{} has format version {version}", path.display());
                let ours = super::file::VERSION;
                return Err(Error::new(ErrorKind::Incompatible, format!("{what}, this polylogue reads up to {ours}")));
            }
        }
        Ok(())
    }

    fn follow(&mut self, mut begun: BTreeMap<u64, ChainFile>) {
        let mut end = None;
        let mut next = begun.keys().next_back().copied();
        while let Some(mut file) = next.and_then(|n| begun.remove(&n)) {
            file.end = end;
            let (sequence, previous) = (file.header.sequence, file.header.previous);
            // What lies between a file and the one it names is cut off; a file that names itself or a later one is treated
            // like one that names nothing, and its first frame will not fit.
            let lowest = if previous.sequence < sequence { previous.sequence } else { 0 };
            let cut: Vec<u64> = begun.range(lowest + 1..).map(|(n, _)| *n).collect();
            for n in &cut {
                begun.remove(n);
            }
            self.void.extend(cut);
            let (cut, kept) = std::mem::take(&mut self.headless)
                .into_iter()
                .partition(|h| h.sequence > lowest && h.sequence < sequence);
            self.headless = kept;
            self.void.extend(cut.iter().map(|h: &Headless| h.sequence));
            end = Some(previous.position).filter(|_| !file.rebuilt);
            next = begun.contains_key(&lowest).then_some(lowest);
            self.chain.push(file);
        }
        self.chain.reverse();
        self.older = begun.into_values().collect();
        if self.previous_sequence() == 0 {
            // The log begins with its first file; nothing older counts.
            self.void.extend(self.older.drain(..).map(|f| f.header.sequence));
        }
        self.void.sort_unstable();
    }

    /// The file that the first one of the chain names; 0 for none.
    pub(crate) fn previous_sequence(&self) -> u64 {
        self.chain.first().map_or(0, |f| f.header.previous.sequence)
    }

    /// The file that the first one of the chain names, if it is there without a header.
    pub(crate) fn headless_link(&self) -> Option<&Headless> {
        let link = self.previous_sequence();
        self.headless.iter().find(|h| h.sequence == link)
    }

    /// The chain does not count: the log ends before it, with one of the older files.
    pub(crate) fn discard_chain(&mut self) {
        let chain = std::mem::take(&mut self.chain);
        self.void.extend(chain.iter().map(|f| f.header.sequence));
        let older = std::mem::take(&mut self.older);
        self.follow(older.into_iter().map(|f| (f.header.sequence, f)).collect());
    }

    /// The files behind the chain that have no header.
    pub(crate) fn headless_behind(&self) -> impl Iterator<Item = &Headless> {
        let newest = self.chain.last().map_or(0, |f| f.header.sequence);
        self.headless.iter().filter(move |h| h.sequence > newest)
    }

    /// Takes a file that the chain names, or that is behind the chain, into it although its header is lost: its frames have
    /// `salt`. Without any other file nothing says whose it is, and it stays out.
    pub(crate) fn rebuild(&mut self, sequence: u64, salt: u64) {
        let Some(first) = self.chain.first() else { return };
        let Some(at) = self.headless.iter().position(|h| h.sequence == sequence) else { return };
        let headless = self.headless.remove(at);
        let files = self.older.iter().chain(&self.chain).map(|f| f.header.sequence);
        let before = files.filter(|n| *n < sequence).max().unwrap_or_default();
        let header = FileHeader {
            identity: first.header.identity,
            sequence,
            salt,
            first_index: first.header.first_index,
            previous: FileEnd { sequence: before, ..FileEnd::default() },
        };
        let Headless { path, file, size, .. } = headless;
        let rebuilt = ChainFile { header, checksum: 0, path, file, size, end: None, rebuilt: true };
        let chain = std::mem::take(&mut self.chain);
        let older = std::mem::take(&mut self.older);
        let all = older.into_iter().chain([rebuilt]).chain(chain);
        self.follow(all.map(|f| (f.header.sequence, f)).collect());
    }
}
