//! Journals as a damaged disk might hand them back: nothing panics, nothing takes memory that the files do not pay for, and
//! whatever is opened is the same when it is opened again.
//!
//! The input is a list of edits of a journal that was written properly. A fuzzer finds no checksums, so an edit may put
//! those of a frame or of a file header right.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use polylogue_env::sim::{SimDisk, SimFatal, SimWorld};
use polylogue_env::{Disk, DiskFile, Env, OpenMode};
use polylogue_log::journal::{Append, Config, Content, Draft, Identity, Journal, Proposal, Vote};
use polylogue_log::{ErrorKind, Kind, Result, check};
use polylogue_record::crc::crc32c;
use polylogue_record::envelope::{Body, Envelope, Form};
use polylogue_types::{Index, NodeId, Offset, PartitionId, ShardId, Term};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

const FILE_BYTES: u64 = 64 << 10;
const EDIT_BYTES: usize = 8;
const EDITS_MAX: usize = 64;

static WORLD: LazyLock<SimWorld> = LazyLock::new(written);

fuzz_target!(|input: &[u8]| {
    let disk = WORLD.disk.fork(1);
    let (edits, _) = input.as_chunks::<EDIT_BYTES>();
    for edit in edits.iter().take(EDITS_MAX) {
        apply(&disk, edit);
    }
    let env = Env { disk: Arc::new(disk.clone()), fatal: Arc::new(SimFatal::default()), ..WORLD.env() };
    let _ = check::journal(&env, &dir());
    let first = open(&env);
    if first.as_ref().is_err_and(|kind| *kind == ErrorKind::Damaged) && check::repair(&env, &dir(), true).is_ok() {
        let _ = open(&env);
    }
    let Ok(shown) = first else { return };
    disk.crash_losing_all();
    assert_eq!(open(&env), Ok(shown), "what was shown is durable");
});

fn dir() -> PathBuf {
    PathBuf::from("/shard")
}

fn config() -> Config {
    let identity = Identity { cluster: [1; 16], node: NodeId(1), directory: [2; 16], shard: ShardId(0) };
    let mut config = Config::new(dir(), identity);
    config.file_bytes = FILE_BYTES;
    config.frame_bytes_max = 8 << 10;
    config.entry_bytes_max = 64 << 10;
    config.reserve_bytes = 32 << 10;
    config
}

/// Index and sum of every frame that is shown.
fn open(env: &Env) -> std::result::Result<Vec<(u64, u32)>, ErrorKind> {
    let mut shown = Vec::new();
    let opened = Journal::open(env, config(), Index(0), &mut |frame| {
        for entry in &frame.entries {
            let native = frame.native(entry);
            if let Body::Inline { checksum, .. } = entry.envelope.body {
                assert_eq!(crc32c(&native), checksum);
            }
        }
        let _ = frame.lost();
        shown.push((frame.index.0, crc32c(&frame.bytes[64..])));
        Ok(())
    });
    let journal = opened.map_err(|e| e.kind)?;
    assert!(shown.windows(2).all(|w| w[1].0 > w[0].0));
    let _ = journal.read(Index(0), usize::MAX);
    Ok(shown)
}

/// A journal of several files with everything in it that frames can be.
fn written() -> SimWorld {
    let world = SimWorld::new(7);
    if let Err(e) = fill(&world) {
        panic!("{e}");
    }
    world.disk.crash_losing_all();
    world
}

fn fill(world: &SimWorld) -> Result<()> {
    let (journal, mut epoch) = begin(world)?;
    for i in 0..30u64 {
        let bytes = Bytes::from(vec![i as u8; 50 + (i as usize * 977) % 9_000]);
        let mut body = Envelope::new(PartitionId(1 + i % 3), Form::Opaque);
        body.base_offset = Offset(i / 3);
        body.count = 1;
        body.body = Body::Inline { len: bytes.len() as u32, checksum: crc32c(&bytes) };
        let mut reference = body.clone();
        reference.partition = PartitionId(9);
        reference.body = Body::Ref { entry: 0 };
        let entries = vec![Draft::new(body, bytes), Draft::new(reference, Bytes::new())];
        let _ = journal.try_propose(Proposal::data(epoch, i, entries));
        while journal.write_step() | journal.flush_step() {}
        if i == 20 {
            journal.release(Index(5))?;
            epoch = journal.acquire()?;
        }
    }
    journal.save_vote(Vote { term: Term(9), node: NodeId(1), committed: true })?;
    journal.save_committed(Index(3))?;
    let next = journal.view().next;
    for i in 0..3 {
        let index = Index(next.0 + i);
        let content = Content::Opaque(Bytes::from_static(b"opaque"));
        let (term, leader) = (Term(9), NodeId(1));
        let frame = Append { term, index, leader, time_ms: 1, kind: Kind::Data, content };
        journal.append(vec![frame], Box::new(|_| {}))?;
    }
    journal.truncate_after(Some(next))
}

fn begin(world: &SimWorld) -> Result<(Journal, Term)> {
    let journal = Journal::open(&world.env(), config(), Index(0), &mut |_| Ok(()))?;
    let epoch = journal.acquire()?;
    Ok((journal, epoch))
}

/// One edit: `[what, file, position / 64 (2 bytes), offset, value, value, value]`.
fn apply(disk: &SimDisk, edit: &[u8; EDIT_BYTES]) {
    let [what, which, high, low, offset, values @ ..] = *edit;
    let journal = dir().join("journal");
    let names = disk.list(&journal).unwrap_or_default();
    let Some(name) = names.get(usize::from(which) % names.len().max(1)) else { return };
    let path = journal.join(name);
    let position = u64::from(u16::from_be_bytes([high, low])) * 64;
    match what % 8 {
        0 => drop(disk.remove(&path)),
        1 => drop(open_file(disk, &path).map(|f| f.set_len(position))),
        2..6 => {
            let Some(file) = open_file(disk, &path) else { return };
            let _ = file.write_all_at(&values, position + u64::from(offset % 64));
            if what % 8 > 3 {
                seal(&*file, position);
            }
        }
        6 => {
            // Frames of one place at another: what a disk does that mixes up its sectors.
            let Some(file) = open_file(disk, &path) else { return };
            let mut bytes = vec![0; 64 * usize::from(offset)];
            let from = u64::from(u16::from_be_bytes([values[0], values[1]])) * 64;
            if file.read_exact_at(&mut bytes, from).is_ok() {
                let _ = file.write_all_at(&bytes, position);
            }
        }
        _ => {
            let Some(file) = open_file(disk, &path) else { return };
            seal_header(&*file);
        }
    }
    // What is on the disk is what a start finds; not what a cache would still have.
    if let Some(file) = open_file(disk, &path) {
        let _ = file.sync_data();
    }
    let _ = disk.sync_dir(&journal);
}

fn open_file(disk: &SimDisk, path: &Path) -> Option<Arc<dyn DiskFile>> {
    disk.open(path, OpenMode::ReadWrite).ok()
}

fn number(bytes: &[u8], at: usize) -> usize {
    bytes.get(at..at + 4).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b) as usize)
}

/// Puts the checksums of the frame at `position` right.
fn seal(file: &dyn DiskFile, position: u64) {
    let mut head = vec![0; 128];
    if file.read_exact_at(&mut head, position).is_err() {
        return;
    }
    let summed = if head[4] & 64 == 0 {
        64usize.saturating_add(number(&head, 112)).saturating_add(number(&head, 116))
    } else {
        number(&head, 8).saturating_sub(64)
    };
    let mut rest = vec![0; summed.min(FILE_BYTES as usize)];
    if file.read_exact_at(&mut rest, position + 64).is_err() {
        return;
    }
    let content = if head[4] & 64 == 0 { crc32c(rest.get(4..).unwrap_or_default()) } else { crc32c(&rest) };
    if head[4] & 64 == 0 {
        head[64..68].copy_from_slice(&content.to_le_bytes());
    }
    head[48..52].copy_from_slice(&content.to_le_bytes());
    let crc = crc32c(&head[..60]);
    head[60..64].copy_from_slice(&crc.to_le_bytes());
    let _ = file.write_all_at(&head, position);
}

/// Puts the checksum of the file's header right.
fn seal_header(file: &dyn DiskFile) {
    let mut block = vec![0; 512];
    if file.read_exact_at(&mut block, 0).is_ok() {
        let crc = crc32c(&block[..508]);
        block[508..].copy_from_slice(&crc.to_le_bytes());
        let _ = file.write_all_at(&block, 0);
        let _ = file.write_all_at(&block, 2048);
    }
}
