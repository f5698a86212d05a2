//! One line of the undo log, so to speak: binary, with a length and a checksum in front, because the process that
//! writes it is killed.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Length and checksum of the body. Bytes.
const HEADER_BYTES: usize = 8;

/// A change that is about to be made (of files) or has been made (of names), or a flush that has succeeded. Files go
/// by their inode number: the injector keeps a link to each file that loses a name, so that no number is used twice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// Bytes `position..position + len` are overwritten; `old` is what the file held of them.
    Write {
        /// The file.
        ino: u64,
        /// Where.
        position: u64,
        /// How many bytes.
        len: u64,
        /// Length of the file before.
        size_before: u64,
        /// What stood there; where it is shorter than `len`, zeros or nothing followed.
        old: Vec<u8>,
    },
    /// The file gets longer without being written.
    Extend {
        /// The file.
        ino: u64,
        /// Length of the file before.
        size_before: u64,
    },
    /// The file gets shorter; `old` is what it loses.
    Cut {
        /// The file.
        ino: u64,
        /// Length of the file before.
        size_before: u64,
        /// And after.
        size_after: u64,
        /// What it held from `size_after` on, without zeros at its end.
        old: Vec<u8>,
    },
    /// A hole is punched; `old` is what it swallows.
    Punch {
        /// The file.
        ino: u64,
        /// Where.
        position: u64,
        /// What it held there, without zeros at its end.
        old: Vec<u8>,
    },
    /// A flush of the file covers what was logged before the position `upto` of the log.
    Flushed {
        /// The file.
        ino: u64,
        /// Bytes from the start of the log.
        upto: u64,
    },
    /// A name came to be, for a new file or for one that had others.
    Create {
        /// The name.
        path: PathBuf,
        /// The file.
        ino: u64,
    },
    /// A directory came to be.
    MakeDir {
        /// Its name.
        path: PathBuf,
    },
    /// A name goes away.
    Remove {
        /// The name.
        path: PathBuf,
        /// The file that it named. A link in [`crate::kept_dir`] is called after it.
        ino: u64,
    },
    /// A file gets another name.
    Rename {
        /// The old name.
        from: PathBuf,
        /// The new name.
        to: PathBuf,
        /// The file.
        ino: u64,
        /// The file that had the new name before, 0 for none. A link in [`crate::kept_dir`] is called after it.
        replaced: u64,
    },
    /// A flush of the directory covers what was logged before the position `upto` of the log.
    DirFlushed {
        /// The directory.
        path: PathBuf,
        /// Bytes from the start of the log.
        upto: u64,
    },
}

impl Record {
    /// The record as the log holds it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let out = &mut body;
        match self {
            Record::Write { ino, position, len, size_before, old } => {
                put_all(out, 1, &[*ino, *position, *len, *size_before], &[old]);
            }
            Record::Extend { ino, size_before } => put_all(out, 2, &[*ino, *size_before], &[]),
            Record::Cut { ino, size_before, size_after, old } => {
                put_all(out, 3, &[*ino, *size_before, *size_after], &[old]);
            }
            Record::Punch { ino, position, old } => put_all(out, 4, &[*ino, *position], &[old]),
            Record::Flushed { ino, upto } => put_all(out, 5, &[*ino, *upto], &[]),
            Record::Create { path, ino } => put_all(out, 6, &[*ino], &[bytes(path)]),
            Record::MakeDir { path } => put_all(out, 7, &[], &[bytes(path)]),
            Record::Remove { path, ino } => put_all(out, 8, &[*ino], &[bytes(path)]),
            Record::Rename { from, to, ino, replaced } => {
                put_all(out, 9, &[*ino, *replaced], &[bytes(from), bytes(to)]);
            }
            Record::DirFlushed { path, upto } => put_all(out, 10, &[*upto], &[bytes(path)]),
        }
        let mut record = Vec::with_capacity(HEADER_BYTES + body.len());
        // A body is a few numbers and at most what one system call writes, which is below 2 GiB.
        record.extend_from_slice(&(body.len() as u32).to_le_bytes());
        record.extend_from_slice(&checksum(&body).to_le_bytes());
        record.extend_from_slice(&body);
        record
    }

    fn from_body(body: &[u8]) -> Option<Record> {
        let mut from = Cursor { rest: body };
        Some(match from.take(1)?[0] {
            1 => Record::Write {
                ino: from.number()?,
                position: from.number()?,
                len: from.number()?,
                size_before: from.number()?,
                old: from.bytes()?,
            },
            2 => Record::Extend { ino: from.number()?, size_before: from.number()? },
            3 => Record::Cut {
                ino: from.number()?,
                size_before: from.number()?,
                size_after: from.number()?,
                old: from.bytes()?,
            },
            4 => Record::Punch { ino: from.number()?, position: from.number()?, old: from.bytes()? },
            5 => Record::Flushed { ino: from.number()?, upto: from.number()? },
            6 => Record::Create { ino: from.number()?, path: from.path()? },
            7 => Record::MakeDir { path: from.path()? },
            8 => Record::Remove { ino: from.number()?, path: from.path()? },
            9 => Record::Rename { ino: from.number()?, replaced: from.number()?, from: from.path()?, to: from.path()? },
            10 => Record::DirFlushed { upto: from.number()?, path: from.path()? },
            _ => return None,
        })
    }
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

fn put_all(out: &mut Vec<u8>, kind: u8, numbers: &[u64], texts: &[&[u8]]) {
    out.push(kind);
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for text in texts {
        out.extend_from_slice(&(text.len() as u64).to_le_bytes());
        out.extend_from_slice(text);
    }
}

/// FNV-1a: enough to tell a record from half of one.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |h, b| (h ^ u32::from(*b)).wrapping_mul(0x0100_0193))
}

struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let len = usize::try_from(self.number()?).ok()?;
        self.take(len).map(<[u8]>::to_vec)
    }

    fn path(&mut self) -> Option<PathBuf> {
        Some(OsString::from_vec(self.bytes()?).into())
    }
}

/// All whole records of a log, each with its position, and where they end: what follows was being written when the
/// process was killed, so that the change it announces was never made. A log that is not there is empty.
///
/// # Errors
/// What the system says when the file is read.
pub fn read_log(path: &Path) -> io::Result<(Vec<(u64, Record)>, u64)> {
    let log = match std::fs::read(path) {
        Ok(log) => log,
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(e) => return Err(e),
    };
    let (mut records, mut from) = (Vec::new(), Cursor { rest: &log });
    loop {
        let at = (log.len() - from.rest.len()) as u64;
        match next_record(&mut from) {
            Some(record) => records.push((at, record)),
            None => return Ok((records, at)),
        }
    }
}

fn next_record(from: &mut Cursor<'_>) -> Option<Record> {
    let header = from.take(HEADER_BYTES)?;
    let len = u32::from_le_bytes(header[..4].try_into().ok()?);
    let body = from.take(len as usize)?;
    let sum = u32::from_le_bytes(header[4..].try_into().ok()?);
    if checksum(body) == sum { Record::from_body(body) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_of_each() -> Vec<Record> {
        let path = PathBuf::from("/d/x");
        vec![
            Record::Write { ino: 1, position: 2, len: 3, size_before: 4, old: b"old".to_vec() },
            Record::Extend { ino: 1, size_before: 2 },
            Record::Cut { ino: 1, size_before: 9, size_after: 3, old: b"six".to_vec() },
            Record::Punch { ino: 1, position: 2, old: vec![] },
            Record::Flushed { ino: 1, upto: 2 },
            Record::Create { path: path.clone(), ino: 1 },
            Record::MakeDir { path: path.clone() },
            Record::Remove { path: path.clone(), ino: 1 },
            Record::Rename { from: path.clone(), to: "/d/y".into(), ino: 1, replaced: 2 },
            Record::DirFlushed { path, upto: 2 },
        ]
    }

    #[test]
    fn a_log_is_read_back_up_to_where_it_was_torn() {
        let path = std::env::temp_dir().join(format!("faultfs-record-{}", std::process::id()));
        let records = one_of_each();
        let whole: Vec<u8> = records.iter().flat_map(Record::to_bytes).collect();
        let last = records.last().unwrap().to_bytes().len();
        for torn in 0..last {
            std::fs::write(&path, &whole[..whole.len() - torn]).unwrap();
            let (found, end) = read_log(&path).unwrap();
            let count = if torn == 0 { records.len() } else { records.len() - 1 };
            assert!(found.iter().map(|(_, record)| record).eq(&records[..count]), "{torn} bytes torn off");
            assert_eq!(end as usize, whole.len() - if torn == 0 { 0 } else { last });
            assert_eq!(found[1].0, records[0].to_bytes().len() as u64);
        }
        let mut damaged = whole.clone();
        *damaged.last_mut().unwrap() ^= 1;
        std::fs::write(&path, damaged).unwrap();
        assert_eq!(read_log(&path).unwrap().0.len(), records.len() - 1);
        std::fs::write(&path, []).unwrap();
        assert_eq!(read_log(&path).unwrap(), (vec![], 0));
    }

    #[test]
    fn a_log_that_is_not_there_is_empty() {
        assert_eq!(read_log(Path::new("/no/such/log")).unwrap(), (vec![], 0));
    }
}
