//! Giving the blocks of removed files back in small steps.
//!
//! Closing the last handle of a large removed file frees all of its blocks in one transaction of the file system, and writes to
//! other files wait for it: 73 ms for 64 MiB (ext4, mounted with `discard`), 1 to 7 ms when a thread of its own takes a MiB at a
//! time. So the last handle of such a file goes to that thread instead of being closed.
//!
//! ```text
//!   remove ──▶ no name any more ──▶ last handle dropped ──▶ waiting ──▶ 1 MiB shorter, pause, ... ──▶ closed
//! ```
//!
//! Only this process is asked whether it has the file open: another one that does sees it get shorter. A file that has another name
//! (a hard link) is left as it is. After a crash, and when the process ends meanwhile, the system frees the rest.

use crate::sys;
use parking_lot::Mutex;
use polylogue_types::Map;
use std::collections::VecDeque;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes freed in one step.
pub(super) const STEP_BYTES: u64 = 1 << 20;
/// A file that takes less is closed as usual. Bytes.
const LARGE_BYTES: u64 = 4 << 20;
/// Between two steps it pauses for so many times what the last one took: the disk is others' meanwhile.
const PAUSES: u32 = 4;
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// Backlog above which it no longer pauses, so that space is freed fast. Bytes.
const BACKLOG_BYTES_MAX: u64 = 1 << 30;

/// The handles that there are of each file, and the files that are being freed.
#[derive(Debug, Default)]
pub(super) struct Freeing {
    /// By device and inode.
    open: Mutex<Map<(u64, u64), usize>>,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    files: VecDeque<File>,
    bytes: u64,
    /// The freeing thread is running.
    running: bool,
}

fn key(of: &Metadata) -> (u64, u64) {
    (of.dev(), of.ino())
}

fn bytes(of: &Metadata) -> u64 {
    of.blocks().saturating_mul(super::STAT_BLOCK_BYTES)
}

impl Freeing {
    /// There is one more handle of a file.
    pub(super) fn opened(&self, file: &File) {
        if let Ok(found) = file.metadata() {
            *self.open.lock().entry(key(&found)).or_default() += 1;
        }
    }

    /// A handle is about to be closed.
    pub(super) fn closing(self: &Arc<Freeing>, file: &File) {
        let Ok(found) = file.metadata() else { return };
        {
            let mut open = self.open.lock();
            let Some(handles) = open.get_mut(&key(&found)) else { return };
            *handles -= 1;
            if *handles > 0 {
                return;
            }
            open.remove(&key(&found));
        }
        if found.nlink() == 0
            && bytes(&found) >= LARGE_BYTES
            && let Ok(file) = writable(file)
        {
            self.free(file, bytes(&found));
        }
    }

    /// Frees a file that has no name, and of which this is the only handle.
    fn free(self: &Arc<Freeing>, file: File, bytes: u64) {
        let mut waiting = self.waiting.lock();
        waiting.files.push_back(file);
        waiting.bytes += bytes;
        if waiting.running {
            return;
        }
        let freeing = self.clone();
        let body = move || {
            sys::stand_back(super::BEHIND_NICE);
            freeing.run();
        };
        waiting.running = std::thread::Builder::new().name("pl-free".into()).spawn(body).is_ok();
        if !waiting.running {
            // Without a thread they are freed as they are closed.
            *waiting = Waiting::default();
        }
    }

    fn run(&self) {
        loop {
            let file = {
                let mut waiting = self.waiting.lock();
                let Some(file) = waiting.files.pop_front() else {
                    waiting.running = false;
                    return;
                };
                file
            };
            self.shorten(&file);
        }
    }

    /// Takes a file's blocks away, the last first. What goes wrong is left to its close.
    #[allow(clippy::disallowed_methods, reason = "a pause as long as what it makes up for")]
    fn shorten(&self, file: &File) {
        let mut left = file.metadata().map_or(0, |found| found.len());
        let mut uncounted = file.metadata().map_or(0, |found| bytes(&found));
        while left > 0 {
            let began = Instant::now();
            left = left.saturating_sub(STEP_BYTES);
            if file.set_len(left).is_err() {
                break;
            }
            let freed = uncounted.min(STEP_BYTES);
            uncounted -= freed;
            let backlog = {
                let mut waiting = self.waiting.lock();
                waiting.bytes = waiting.bytes.saturating_sub(freed);
                waiting.bytes
            };
            if backlog < BACKLOG_BYTES_MAX {
                std::thread::sleep((began.elapsed() * PAUSES).min(PAUSE_MAX));
            }
        }
        let mut waiting = self.waiting.lock();
        waiting.bytes = waiting.bytes.saturating_sub(uncounted);
    }
}

/// The same file for writing, whatever the handle is for.
fn writable(file: &File) -> io::Result<File> {
    writable_fd(file.as_raw_fd())
}

fn writable_fd(fd: i32) -> io::Result<File> {
    OpenOptions::new().write(true).open(format!("/proc/self/fd/{fd}"))
}

#[cfg(test)]
mod tests {
    use super::super::RealDisk;
    use crate::{Disk, DiskFile, OpenMode};
    use std::path::PathBuf;
    use std::sync::Arc;

    const BYTES: usize = 6 << 20;

    struct Rig {
        disk: RealDisk,
        dir: PathBuf,
    }

    impl Rig {
        fn new(name: &str) -> Rig {
            let dir = std::env::temp_dir().join(format!("polylogue-freeing-{name}-{}", std::process::id()));
            let disk = RealDisk::default();
            disk.create_dir_all(&dir).unwrap();
            Rig { disk, dir }
        }

        fn make(&self, name: &str, bytes: usize) -> Arc<dyn DiskFile> {
            let file = self.disk.open(&self.dir.join(name), OpenMode::CreateNew).unwrap();
            file.write_all_at(&vec![7; bytes], 0).unwrap();
            file
        }

        /// Bytes that wait, once the thread has nothing left to do.
        fn freed(&self) -> (u64, usize) {
            while self.disk.freeing.waiting.lock().running {
                std::thread::yield_now();
            }
            (self.disk.freeing.waiting.lock().bytes, self.disk.freeing.open.lock().len())
        }

        fn is_freeing(&self) -> bool {
            self.disk.freeing.waiting.lock().running
        }
    }

    impl Drop for Rig {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }

    /// The journal's writes waited 73 ms for the close of a file of 64 MiB.
    #[test]
    fn a_large_file_is_freed_in_steps_once_nobody_has_it() {
        let rig = Rig::new("steps");
        let path = rig.dir.join("a");
        let (first, reader) = (rig.make("a", BYTES), rig.disk.open(&path, OpenMode::Read).unwrap());
        rig.disk.remove(&path).unwrap();
        drop(first);
        assert!(!rig.is_freeing(), "a reader has it open");
        let mut read = vec![0; BYTES];
        reader.read_exact_at(&mut read, 0).unwrap();
        assert!(read.iter().all(|byte| *byte == 7));
        let held = super::writable_fd(reader.raw_fd().unwrap()).unwrap();
        drop(reader);
        assert_eq!(rig.freed(), (0, 0));
        assert_eq!(held.metadata().unwrap().len(), 0, "it was cut before it was closed");
    }

    #[test]
    fn what_keeps_its_name_or_is_small_is_closed_as_it_is() {
        let rig = Rig::new("small");
        drop(rig.make("kept", BYTES));
        drop(rig.make("small", 100));
        rig.disk.remove(&rig.dir.join("small")).unwrap();
        assert!(!rig.is_freeing());
        assert_eq!(rig.disk.open(&rig.dir.join("kept"), OpenMode::Read).unwrap().size().unwrap(), BYTES as u64);
        // one that is not open is freed in steps as well
        rig.disk.remove(&rig.dir.join("kept")).unwrap();
        assert_eq!(rig.freed(), (0, 0));
        assert!(!rig.disk.exists(&rig.dir.join("kept")));
    }
}
