//! The data directory: its lock, and the file that says what it is.
//!
//! ```text
//! DATA/
//!   LOCK           held while a process serves, checks or repairs
//!   IDENTITY       text, below; written once
//!   shard-0000/    one directory a journal shard: journal/, segments/, checkpoints, manifest
//!   shard-1000/    the shard of class `async`, from its first topic on
//! ```
//!
//! `IDENTITY` has one `name = value` a line: `version` (of the layout, 1), `cluster_id` (32 hex digits), `node_id`,
//! `directory_id` (32 hex digits), and last `crc`, the CRC32C of everything before its line in hex.

use crate::error::{Error, ErrorKind, Result};
use bytes::Bytes;
use polylogue_env::{DirLock, Env, OpenMode};
use polylogue_record::crc::crc32c;
use polylogue_types::{NodeId, ShardId};
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

/// The version of the layout that this build reads and writes.
pub const LAYOUT_VERSION: u32 = 1;
pub(crate) const IDENTITY: &str = "IDENTITY";
const IDENTITY_NEW: &str = "IDENTITY.new";
const LOCK: &str = "LOCK";
/// More than a good identity file ever has. Bytes.
const IDENTITY_BYTES_MAX: u64 = 4096;

/// Who this directory belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The cluster.
    pub cluster_id: [u8; 16],
    /// The node; never reused.
    pub node: NodeId,
    /// This very directory. Every journal file names it, so that files of another directory are noticed. A backup keeps it: it is this
    /// directory, of an earlier time.
    pub directory_id: [u8; 16],
}

/// The node that a directory is made for where nobody says which.
const FIRST_NODE: NodeId = NodeId(1);

/// An open, locked data directory.
#[derive(Debug)]
pub struct DataDir {
    /// Where it is.
    pub path: PathBuf,
    /// Who it belongs to.
    pub identity: Identity,
    /// It was made just now.
    pub is_new: bool,
    _lock: Option<Box<dyn DirLock>>,
}

impl DataDir {
    /// Opens a directory, or makes one where there is none or an empty one. A directory that cannot be used is left
    /// as it was.
    ///
    /// # Errors
    /// `Locked`, `Incompatible` (newer, or not polylogue's), `Damaged`, `Io`.
    pub fn open(env: &Env, path: &Path) -> Result<DataDir> {
        DataDir::open_as(env, path, None)
    }

    /// The same for one node: another node's directory is refused, and a new one is made for it.
    ///
    /// # Errors
    /// As [`DataDir::open`]; `Config` for another node's directory.
    pub fn open_as(env: &Env, path: &Path, node: Option<NodeId>) -> Result<DataDir> {
        let names =
            if env.disk.exists(path) { env.disk.list(path).map_err(|e| io_error(path, &e))? } else { Vec::new() };
        let has_identity = names.iter().any(|n| n == IDENTITY);
        let foreign = names.iter().find(|n| ![LOCK, IDENTITY_NEW, "lost+found"].contains(&n.as_str()));
        if !has_identity && let Some(name) = foreign {
            let text =
                format!("{} is not a polylogue data directory: it holds {name}; give an empty one", path.display());
            return Err(Error::new(ErrorKind::Incompatible, text));
        }
        if has_identity {
            // Read before the lock is taken, so that a newer version's directory is not even touched.
            let found = read_identity(env, path)?.node;
            if let Some(node) = node.filter(|node| *node != found) {
                let path = path.display();
                let text =
                    format!("{path} is the data directory of broker {found}, and this is broker {node}; give its own");
                return Err(Error::new(ErrorKind::Config, text));
            }
        }
        env.disk.create_dir_all(path).map_err(|e| io_error(path, &e))?;
        let lock = env.disk.lock(&path.join(LOCK)).map_err(|e| lock_error(path, &e))?;
        if has_identity {
            let identity = read_identity(env, path)?;
            return Ok(DataDir { path: path.to_owned(), identity, is_new: false, _lock: Some(lock) });
        }
        let identity = make_identity(env, path, node.unwrap_or(FIRST_NODE))?;
        Ok(DataDir { path: path.to_owned(), identity, is_new: true, _lock: Some(lock) })
    }

    /// One that is there, only to be read. It is held as by [`DataDir::open`], but where this process may write nothing into it and nobody has
    /// ever held it: a backup that somebody else made, or on a medium that takes no writes.
    ///
    /// # Errors
    /// `Io` for what is no data directory, `Damaged` or `Incompatible` by what it says of itself, `Locked` while somebody uses it.
    pub fn open_to_read(env: &Env, path: &Path) -> Result<DataDir> {
        let identity = read_identity(env, path)?;
        let kinds = [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem];
        let lock = match env.disk.lock(&path.join(LOCK)) {
            Ok(lock) => Some(lock),
            Err(e) if kinds.contains(&e.kind()) => None,
            Err(e) => return Err(lock_error(path, &e)),
        };
        Ok(DataDir { path: path.to_owned(), identity, is_new: false, _lock: lock })
    }

    /// Where a shard's files are.
    #[must_use]
    pub fn shard_dir(&self, shard: ShardId) -> PathBuf {
        shard_dir(&self.path, shard)
    }
}

/// Where a shard's files are inside a data directory.
#[must_use]
pub fn shard_dir(data: &Path, shard: ShardId) -> PathBuf {
    data.join(shard_name(shard))
}

/// The name of a shard's directory.
pub(crate) fn shard_name(shard: ShardId) -> String {
    format!("shard-{:04}", shard.0)
}

/// Reads what a directory says of itself, without touching it.
///
/// # Errors
/// `Incompatible` for a newer version, `Damaged`, `Io`.
pub fn read_identity(env: &Env, path: &Path) -> Result<Identity> {
    read_identity_file(env, path).map(|(identity, _)| identity)
}

/// The bytes of the file that says what a directory is.
pub(crate) fn identity_file(env: &Env, path: &Path) -> Result<Bytes> {
    read_identity_file(env, path).map(|(_, bytes)| bytes)
}

fn read_identity_file(env: &Env, path: &Path) -> Result<(Identity, Bytes)> {
    let file_path = path.join(IDENTITY);
    let file = env.disk.open(&file_path, OpenMode::Read).map_err(|e| io_error(&file_path, &e))?;
    let len = file.size().map_err(|e| io_error(&file_path, &e))?;
    let mut bytes = vec![0; len.min(IDENTITY_BYTES_MAX) as usize];
    file.read_exact_at(&mut bytes, 0).map_err(|e| io_error(&file_path, &e))?;
    let identity = parse(&bytes).map_err(|(kind, why)| Error::new(kind, format!("{}: {why}", file_path.display())))?;
    Ok((identity, Bytes::from(bytes)))
}

fn parse(bytes: &[u8]) -> std::result::Result<Identity, (ErrorKind, String)> {
    let damaged = |why: &str| (ErrorKind::Damaged, format!("damaged ({why}); restore it from a backup"));
    let text = std::str::from_utf8(bytes).map_err(|_| damaged("not text"))?;
    let field = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix('=').map(str::trim))
    };
    // The version comes first: how the rest reads, and what it is summed by, may differ in a newer one.
    let version: u32 = field("version").and_then(|v| v.parse().ok()).ok_or_else(|| damaged("no version"))?;
    if version > LAYOUT_VERSION {
        let why = format!("written by a newer polylogue (layout {version}, this one knows {LAYOUT_VERSION}); upgrade");
        return Err((ErrorKind::Incompatible, why));
    }
    let summed = text.find("crc =").ok_or_else(|| damaged("no checksum"))?;
    let crc = field("crc").and_then(|v| u32::from_str_radix(v, 16).ok());
    if crc != Some(crc32c(&bytes[..summed])) {
        return Err(damaged("its checksum does not match"));
    }
    let id = |name| field(name).and_then(parse_hex).ok_or_else(|| damaged(name));
    let node = field("node_id").and_then(|v| v.parse().ok()).ok_or_else(|| damaged("node_id"))?;
    Ok(Identity { cluster_id: id("cluster_id")?, node: NodeId(node), directory_id: id("directory_id")? })
}

fn make_identity(env: &Env, path: &Path, node: NodeId) -> Result<Identity> {
    let mut identity = Identity { cluster_id: [0; 16], node, directory_id: [0; 16] };
    env.rng.fill(&mut identity.cluster_id);
    env.rng.fill(&mut identity.directory_id);
    let mut text = format!(
        "version = {LAYOUT_VERSION}\ncluster_id = {}\nnode_id = {}\ndirectory_id = {}\n",
        hex(&identity.cluster_id),
        identity.node,
        hex(&identity.directory_id)
    );
    let crc = crc32c(text.as_bytes());
    // Writing to a String cannot fail.
    let _ = writeln!(text, "crc = {crc:08x}");
    let new = path.join(IDENTITY_NEW);
    let write = || -> io::Result<()> {
        if env.disk.exists(&new) {
            env.disk.remove(&new)?;
        }
        let file = env.disk.open(&new, OpenMode::CreateNew)?;
        file.write_all_at(text.as_bytes(), 0)?;
        file.sync_data()?;
        env.disk.rename(&new, &path.join(IDENTITY))?;
        env.disk.sync_dir(path)?;
        // The directory's own name must survive too; a root has no parent to keep it.
        match path.parent().filter(|p| !p.as_os_str().is_empty()) {
            Some(parent) => env.disk.sync_dir(parent),
            None => Ok(()),
        }
    };
    write().map_err(|e| io_error(path, &e))?;
    Ok(identity)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    })
}

fn parse_hex(text: &str) -> Option<[u8; 16]> {
    let mut out = [0; 16];
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    Some(out)
}

fn io_error(path: &Path, e: &io::Error) -> Error {
    let kind = if e.kind() == io::ErrorKind::StorageFull { ErrorKind::StorageFull } else { ErrorKind::Io };
    Error::new(kind, format!("data directory {}: {e}", path.display()))
}

fn lock_error(path: &Path, e: &io::Error) -> Error {
    if e.kind() == io::ErrorKind::WouldBlock {
        let text = format!("data directory {} is in use by another polylogue process", path.display());
        return Error::new(ErrorKind::Locked, text);
    }
    io_error(path, e)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_with_a_changed_byte_is_damaged_and_a_newer_one_incompatible() {
        let mut text = format!("version = 1\ncluster_id = {0}\nnode_id = 1\ndirectory_id = {0}\n", "ab".repeat(16));
        let crc = crc32c(text.as_bytes());
        text.push_str(&format!("crc = {crc:08x}\n"));
        assert!(parse(text.as_bytes()).is_ok());
        let changed = text.replace("node_id = 1", "node_id = 2");
        assert_eq!(parse(changed.as_bytes()).unwrap_err().0, ErrorKind::Damaged);
        let newer = text.replace("version = 1", "version = 2");
        assert_eq!(parse(newer.as_bytes()).unwrap_err().0, ErrorKind::Incompatible);
    }
}
