//! The data directory: its lock and its identity file.
//!
//! ```text
//! DATA/
//!   LOCK           held while a process serves, checks or repairs
//!   IDENTITY       text, below, in two copies; written once
//!   RESERVE        room that is given up when the disk has none
//!   shard-0000/    one directory a journal shard: journal/, segments/, checkpoints, manifest. This one has the metadata
//!   shard-0001/    partitions; as many of these as `log.sync_shards` says
//!   shard-1000/    the shard of class `async`, from its first topic on
//! ```
//!
//! `IDENTITY` has one `name = value` a line: `version` (of the layout, 1 to 4: a start raises it to 4), `cluster_id` (32 hex digits), `node_id`,
//! `directory_id` (32 hex digits), and last `crc`, the CRC32C of everything before its line in hex. The text is padded with
//! zeros to 4096 bytes and written twice, so that damage to one sector destroys one copy. Earlier versions wrote it once, without zeros, and read the
//! first copy. The identity file also marks a directory as complete: a restore writes it last, and a directory without it is not opened, whatever its
//! contents. Damage to both copies is repaired from the headers of the journal files.

use crate::error::{Error, ErrorKind, Result};
use bytes::Bytes;
use polylogue_env::{DirLock, Env, OpenMode};
use polylogue_record::crc::crc32c;
use polylogue_types::{NodeId, ShardId};
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

/// The version of the layout that this build reads and writes.
pub const LAYOUT_VERSION: u32 = 4;
pub(crate) const IDENTITY: &str = "IDENTITY";
const IDENTITY_NEW: &str = "IDENTITY.new";
const LOCK: &str = "LOCK";
/// Size of a padded copy of the text in `IDENTITY`. Bytes.
const COPY_BYTES: usize = 4096;

/// The identity of a data directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The cluster id.
    pub cluster_id: [u8; 16],
    /// The node id; never reused.
    pub node: NodeId,
    /// The id of this directory. Every journal file contains it, so that files of another directory are detected. A backup keeps it, because it is an
    /// earlier state of this directory.
    pub directory_id: [u8; 16],
    /// The layout version. From 2 on each shard records its partitions, from 3 on their settings, from 4 on the
    /// metadata records the shards and where machines live, and its shard gets no more partitions.
    pub layout: u32,
}

/// The node id of a new directory by default.
const FIRST_NODE: NodeId = NodeId(1);

/// An open, locked data directory.
#[derive(Debug)]
pub(crate) struct DataDir {
    /// The path.
    pub(crate) path: PathBuf,
    /// The identity.
    pub(crate) identity: Identity,
    _lock: Box<dyn DirLock>,
}

impl DataDir {
    /// Opens a directory, or creates one if it is missing or empty. A directory that cannot be used is left unchanged. If `node` is given, another
    /// node's directory is refused and a new one is created for it.
    ///
    /// # Errors
    /// `Locked`, `Incompatible` (newer, or not polylogue's), `Damaged`, `Io`; `Config` for another node's directory.
    pub(crate) fn open(env: &Env, path: &Path, node: Option<NodeId>) -> Result<DataDir> {
        let names =
            if env.disk.exists(path) { env.disk.list(path).map_err(|e| io_error(path, &e))? } else { Vec::new() };
        let has_identity = names.iter().any(|n| n == IDENTITY);
        let foreign = names.iter().find(|n| ![LOCK, IDENTITY_NEW, "lost+found"].contains(&n.as_str()));
        if !has_identity && let Some(name) = foreign {
            let text = format!(
                "{} is not a polylogue data directory: it contains {name}; use an empty directory",
                path.display()
            );
            return Err(Error::new(ErrorKind::Incompatible, text));
        }
        if has_identity {
            // Read before the lock is taken, so that a newer version's directory is not modified at all.
            let found = read_identity(env, path)?.node;
            if let Some(node) = node.filter(|node| *node != found) {
                let path = path.display();
                let text = format!(
                    "{path} is the data directory of broker {found}, and this is broker {node}; use its own directory"
                );
                return Err(Error::new(ErrorKind::Config, text));
            }
        }
        let lock = hold(env, path)?;
        if has_identity {
            let read = read_copies(env, path)?;
            if read.state != CopyState::Whole {
                // One copy is sufficient, e.g. if the disk is too full for the second one.
                _ = write_identity(env, path, &read.identity);
            }
            return Ok(DataDir { path: path.to_owned(), identity: read.identity, _lock: lock });
        }
        let identity = make_identity(env, path, node.unwrap_or(FIRST_NODE))?;
        Ok(DataDir { path: path.to_owned(), identity, _lock: lock })
    }

    /// The identity since the layout was raised; [`identity`](DataDir::identity) is what the start found. Valid once the start is over.
    pub(crate) fn current(&self) -> Identity {
        Identity { layout: LAYOUT_VERSION, ..self.identity }
    }

    /// Raises the layout to this version, durably: earlier versions refuse the directory from then on.
    ///
    /// # Errors
    /// `StorageFull`, `Io`; the layout is then unchanged.
    pub(crate) fn raise_layout(&self, env: &Env) -> Result<()> {
        if self.identity.layout >= LAYOUT_VERSION {
            return Ok(());
        }
        write_identity(env, &self.path, &self.current())
    }

    /// Returns the directory of a shard.
    #[must_use]
    pub(crate) fn shard_dir(&self, shard: ShardId) -> PathBuf {
        shard_dir(&self.path, shard)
    }
}

/// Returns the directory of a shard within a data directory.
#[must_use]
pub fn shard_dir(data: &Path, shard: ShardId) -> PathBuf {
    data.join(shard_name(shard))
}

/// The name of a shard's directory.
pub(crate) fn shard_name(shard: ShardId) -> String {
    format!("shard-{:04}", shard.0)
}

/// Reads the identity of a directory without modifying it.
///
/// # Errors
/// `Incompatible` for a newer version, `Damaged`, `Io`.
pub fn read_identity(env: &Env, path: &Path) -> Result<Identity> {
    read_copies(env, path).map(|read| read.identity)
}

/// State of the identity file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum CopyState {
    /// Both copies are intact.
    Whole,
    /// Written once, by an earlier version.
    Single,
    /// One copy is damaged, with the reason.
    Damaged(String),
}

/// The identity read from a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ReadIdentity {
    pub(crate) identity: Identity,
    pub(crate) state: CopyState,
}

/// Takes the lock of a directory in any state; creates the directory if it is missing.
pub(crate) fn hold(env: &Env, path: &Path) -> Result<Box<dyn DirLock>> {
    env.disk.create_dir_all(path).map_err(|e| io_error(path, &e))?;
    env.disk.lock(&path.join(LOCK)).map_err(|e| lock_error(path, &e))
}

/// Takes the lock for reading only: a backup may belong to another user, or be on a read-only medium.
pub(crate) fn hold_to_read(env: &Env, path: &Path) -> Result<Option<Box<dyn DirLock>>> {
    let kinds = [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem];
    match env.disk.lock(&path.join(LOCK)) {
        Ok(lock) => Ok(Some(lock)),
        Err(e) if kinds.contains(&e.kind()) => Ok(None),
        Err(e) => Err(lock_error(path, &e)),
    }
}

/// Reads the identity of a directory from both copies.
pub(crate) fn read_copies(env: &Env, path: &Path) -> Result<ReadIdentity> {
    let file_path = path.join(IDENTITY);
    let file = env.disk.open(&file_path, OpenMode::Read).map_err(|e| io_error(&file_path, &e))?;
    let len = file.size().map_err(|e| io_error(&file_path, &e))?;
    let mut copies = Vec::new();
    for start in [0, COPY_BYTES as u64] {
        if start > 0 && len <= start {
            break;
        }
        let mut bytes = vec![0; len.saturating_sub(start).min(COPY_BYTES as u64) as usize];
        copies.push(match file.read_exact_at(&mut bytes, start) {
            Ok(()) => parse(&bytes),
            // An unreadable sector destroys one copy.
            Err(e) if len > COPY_BYTES as u64 => Err((ErrorKind::Damaged, format!("cannot be read ({e})"))),
            Err(e) => return Err(io_error(&file_path, &e)),
        });
    }
    choose(copies).map_err(|(kind, why)| Error::new(kind, format!("{}: {why}", file_path.display())))
}

/// Combines the two copies.
fn choose(copies: Vec<Parsed>) -> std::result::Result<ReadIdentity, (ErrorKind, String)> {
    let mut copies = copies.into_iter();
    let first = copies.next().unwrap_or_else(|| Err((ErrorKind::Damaged, "empty".to_owned())));
    match (first, copies.next()) {
        (Ok(one), Some(Ok(other))) if one != other => {
            let why = "its two copies name different directories, and it is unknown which one this is; put back the one that \
                       belongs to it, or restore the directory from a backup";
            Err((ErrorKind::Damaged, why.to_owned()))
        }
        (Ok(identity), Some(Ok(_))) => Ok(ReadIdentity { identity, state: CopyState::Whole }),
        (Ok(identity), None) => Ok(ReadIdentity { identity, state: CopyState::Single }),
        (Ok(identity), Some(Err((_, why)))) => {
            Ok(ReadIdentity { identity, state: CopyState::Damaged(format!("the second copy is {why}")) })
        }
        (Err((_, why)), Some(Ok(identity))) => {
            Ok(ReadIdentity { identity, state: CopyState::Damaged(format!("the first copy is {why}")) })
        }
        // A newer version in a single copy may be a flipped bit.
        (Err((ErrorKind::Incompatible, _)), Some(Err((ErrorKind::Damaged, why)))) => Err((ErrorKind::Damaged, why)),
        (Err(e), _) => Err(e),
    }
}

type Parsed = std::result::Result<Identity, (ErrorKind, String)>;

/// Parses one copy.
fn parse(bytes: &[u8]) -> Parsed {
    let damaged = |why: &str| (ErrorKind::Damaged, format!("damaged ({why})"));
    let text = std::str::from_utf8(bytes).map_err(|_| damaged("not text"))?;
    let field = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix('=').map(str::trim))
    };
    // The version is checked first: a newer one may have another format and checksum.
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
    let (cluster_id, directory_id) = (id("cluster_id")?, id("directory_id")?);
    Ok(Identity { cluster_id, node: NodeId(node), directory_id, layout: version })
}

fn make_identity(env: &Env, path: &Path, node: NodeId) -> Result<Identity> {
    let mut identity = Identity { cluster_id: [0; 16], node, directory_id: [0; 16], layout: LAYOUT_VERSION };
    env.rng.fill(&mut identity.cluster_id);
    env.rng.fill(&mut identity.directory_id);
    write_identity(env, path, &identity)?;
    Ok(identity)
}

/// Returns the content of the identity file.
pub(crate) fn encode(identity: &Identity) -> Bytes {
    let mut text = format!(
        "version = {}\ncluster_id = {}\nnode_id = {}\ndirectory_id = {}\n",
        identity.layout,
        hex(&identity.cluster_id),
        identity.node,
        hex(&identity.directory_id)
    );
    let crc = crc32c(text.as_bytes());
    // Writing to a String cannot fail.
    let _ = writeln!(text, "crc = {crc:08x}");
    let mut bytes = text.into_bytes();
    bytes.resize(COPY_BYTES, 0);
    bytes.extend_from_within(..);
    Bytes::from(bytes)
}

/// Replaces the identity file.
pub(crate) fn write_identity(env: &Env, path: &Path, identity: &Identity) -> Result<()> {
    let new = path.join(IDENTITY_NEW);
    let write = || -> io::Result<()> {
        if env.disk.exists(&new) {
            env.disk.remove(&new)?;
        }
        let file = env.disk.open(&new, OpenMode::CreateNew)?;
        file.write_all_at(&encode(identity), 0)?;
        file.sync_data()?;
        env.disk.rename(&new, &path.join(IDENTITY))?;
        env.disk.sync_dir(path)?;
        // The directory's own entry must be durable too; a root has no parent.
        match path.parent().filter(|p| !p.as_os_str().is_empty()) {
            Some(parent) => env.disk.sync_dir(parent),
            None => Ok(()),
        }
    };
    write().map_err(|e| io_error(path, &e))
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
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;
    use polylogue_env::sim::SimWorld;

    #[test]
    fn an_identity_with_a_changed_byte_is_damaged_and_a_newer_one_incompatible() {
        let mut text = format!("version = 1\ncluster_id = {0}\nnode_id = 1\ndirectory_id = {0}\n", "ab".repeat(16));
        let crc = crc32c(text.as_bytes());
        text.push_str(&format!("crc = {crc:08x}\n"));
        assert!(parse(text.as_bytes()).is_ok());
        let changed = text.replace("node_id = 1", "node_id = 2");
        assert_eq!(parse(changed.as_bytes()).unwrap_err().0, ErrorKind::Damaged);
        let newer = text.replace("version = 1", &format!("version = {}", LAYOUT_VERSION + 1));
        assert_eq!(parse(newer.as_bytes()).unwrap_err().0, ErrorKind::Incompatible);
    }

    fn identity(id: u8) -> Identity {
        Identity { cluster_id: [id; 16], node: NodeId(1), directory_id: [id; 16], layout: LAYOUT_VERSION }
    }

    fn read(world: &SimWorld, bytes: &[u8]) -> Result<ReadIdentity> {
        let env = world.env();
        let path = Path::new("/data");
        env.disk.create_dir_all(path).unwrap();
        let file = path.join(IDENTITY);
        _ = env.disk.remove(&file);
        env.disk.open(&file, OpenMode::CreateNew).unwrap().write_all_at(bytes, 0).unwrap();
        read_copies(&env, path)
    }

    /// One flipped bit in the file made the whole directory unusable, and no repair existed.
    #[test]
    fn one_flipped_bit_costs_one_copy_and_the_next_start_writes_it_anew() {
        let world = SimWorld::new(1);
        let good = encode(&identity(7));
        assert_eq!(read(&world, &good).unwrap(), ReadIdentity { identity: identity(7), state: CopyState::Whole });
        for bit in (0..good.len() * 8).filter(|bit| (bit / 8) % COPY_BYTES < 140) {
            let mut bad = good.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&world, &bad).unwrap().identity, identity(7), "bit {bit}");
        }
        let mut bad = good.to_vec();
        bad[20] ^= 1;
        assert!(matches!(read(&world, &bad).unwrap().state, CopyState::Damaged(_)));
        drop(DataDir::open(&world.env(), Path::new("/data"), None).unwrap());
        assert_eq!(read_copies(&world.env(), Path::new("/data")).unwrap().state, CopyState::Whole);
    }

    #[test]
    fn a_file_of_an_earlier_version_is_read_and_gets_its_second_copy() {
        let world = SimWorld::new(2);
        let whole = encode(&identity(7));
        let len = whole.iter().position(|b| *b == 0).unwrap();
        let old = &whole[..len];
        assert_eq!(read(&world, old).unwrap(), ReadIdentity { identity: identity(7), state: CopyState::Single });
        // No room for a second copy: the first is sufficient.
        world.disk.set_capacity(0);
        assert_eq!(DataDir::open(&world.env(), Path::new("/data"), None).unwrap().identity, identity(7));
        assert_eq!(read_copies(&world.env(), Path::new("/data")).unwrap().state, CopyState::Single);
        world.disk.set_capacity(u64::MAX);
        assert_eq!(DataDir::open(&world.env(), Path::new("/data"), None).unwrap().identity, identity(7));
        assert_eq!(read_copies(&world.env(), Path::new("/data")).unwrap().state, CopyState::Whole);
    }

    #[test]
    fn copies_that_name_different_directories_are_refused() {
        let world = SimWorld::new(3);
        let (mut mixed, other) = (encode(&identity(7)).to_vec(), encode(&identity(8)));
        mixed[COPY_BYTES..].copy_from_slice(&other[COPY_BYTES..]);
        let refused = read(&world, &mixed).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Damaged);
        assert!(refused.text.contains("different directories"), "{refused}");
    }
}
