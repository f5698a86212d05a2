//! The stream of a backup from a broker to its client: a sequence of records, all numbers little endian.
//!
//! ```text
//!   "polylogue backup 1\n"
//!   'B'  files u64, bytes of all files u64                                                     first
//!   'F'  length of the name u16, name, length of the file u64, its bytes, CRC-32C of these u32  a file
//!   'E'  files u64, bytes u64                                                                  last: complete
//!   'X'  length of the text u16, text                                                          last: aborted, with the reason
//! ```
//!
//! A stream without 'E' is not a backup. File names are relative, with `/` between directories; the decoder rejects names that lead
//! out of the target directory, because the server may be malicious.

use bytes::Bytes;
use polylogue_broker::BackupPiece;
use polylogue_record::crc;
use std::io::{self, Read};

/// The content type.
pub const CONTENT_TYPE: &str = "application/octet-stream";

const MAGIC: &[u8] = b"polylogue backup 1\n";
const BEGIN: u8 = b'B';
const FILE: u8 = b'F';
const END: u8 = b'E';
const BROKEN: u8 = b'X';
/// The maximum length of a file name, and of an error text. Bytes.
const NAME_BYTES_MAX: usize = 1024;
/// The maximum number of components of a file name.
const NAME_PARTS_MAX: usize = 4;

/// Encodes the stream.
#[derive(Debug, Default)]
pub struct Encoder {
    /// Bytes of the current file that are still to come, and the checksum of the bytes so far.
    left: u64,
    sum: u32,
    files: u64,
    bytes: u64,
}

impl Encoder {
    /// Returns the header and the 'B' record.
    pub fn begin(files: u64, bytes: u64) -> Bytes {
        let mut out = MAGIC.to_vec();
        out.push(BEGIN);
        out.extend_from_slice(&files.to_le_bytes());
        out.extend_from_slice(&bytes.to_le_bytes());
        Bytes::from(out)
    }

    /// Returns the bytes to send before and after a piece's own content.
    pub fn piece(&mut self, piece: BackupPiece) -> [Bytes; 2] {
        let head = match piece {
            BackupPiece::File { name, len } => {
                let mut out = vec![FILE];
                text(&mut out, &name);
                out.extend_from_slice(&len.to_le_bytes());
                (self.left, self.sum) = (len, crc::crc32c(&[]));
                self.files += 1;
                Bytes::from(out)
            }
            BackupPiece::Bytes(bytes) => {
                self.sum = crc::append(self.sum, &bytes);
                self.left = self.left.saturating_sub(bytes.len() as u64);
                self.bytes += bytes.len() as u64;
                bytes
            }
        };
        let tail = if self.left == 0 { Bytes::copy_from_slice(&self.sum.to_le_bytes()) } else { Bytes::new() };
        [head, tail]
    }

    /// Returns the 'E' record: the backup is complete.
    pub fn end(&self) -> Bytes {
        let mut out = vec![END];
        out.extend_from_slice(&self.files.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
        Bytes::from(out)
    }

    /// Returns the 'X' record: the backup was aborted.
    pub fn broken(why: &str) -> Bytes {
        let mut out = vec![BROKEN];
        text(&mut out, why);
        Bytes::from(out)
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    let mut len = text.len().min(NAME_BYTES_MAX);
    while !text.is_char_boundary(len) {
        len -= 1;
    }
    out.extend_from_slice(&(len as u16).to_le_bytes());
    out.extend_from_slice(&text.as_bytes()[..len]);
}

/// A record of the stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// A file; its bytes must be read next ([`Decoder::content`]).
    File { name: String, len: u64 },
    /// The backup is complete: as many files and bytes were received as announced.
    End,
    /// The backup was aborted, with the reason.
    Broken(String),
}

/// Decodes a stream.
#[derive(Debug)]
pub struct Decoder<R> {
    from: R,
    /// Announced number of files, and of bytes.
    pub files: u64,
    pub bytes: u64,
}

impl<R: Read> Decoder<R> {
    /// Reads the header and the announced size.
    pub fn new(mut from: R) -> io::Result<Decoder<R>> {
        let mut magic = vec![0; MAGIC.len() + 1];
        from.read_exact(&mut magic)?;
        if !magic.starts_with(MAGIC) || magic.last() != Some(&BEGIN) {
            return Err(wrong("the stream is not a backup that this version can read"));
        }
        let mut decoder = Decoder { from, files: 0, bytes: 0 };
        (decoder.files, decoder.bytes) = (decoder.u64()?, decoder.u64()?);
        Ok(decoder)
    }

    /// Reads the next record. The content of a file must be read before.
    pub fn record(&mut self) -> io::Result<Record> {
        let [kind] = self.fixed()?;
        match kind {
            FILE => {
                let name = self.text()?;
                if !is_plain(&name) {
                    return Err(wrong("a file has a name that is not allowed in a data directory"));
                }
                Ok(Record::File { name, len: self.u64()? })
            }
            END => {
                let came = (self.u64()?, self.u64()?);
                let announced = (self.files, self.bytes);
                if came == announced {
                    Ok(Record::End)
                } else {
                    Err(wrong("the number of files or bytes differs from the announced one"))
                }
            }
            BROKEN => Ok(Record::Broken(self.text()?)),
            _ => Err(wrong("a record is of an unknown kind")),
        }
    }

    /// Passes the content of a file to `write`, with the position of each piece, and verifies its checksum.
    pub fn content(
        &mut self,
        len: u64,
        piece: &mut [u8],
        mut write: impl FnMut(&[u8], u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let (mut at, mut sum) = (0, crc::crc32c(&[]));
        while at < len {
            let part = piece.len().min(usize::try_from(len - at).unwrap_or(usize::MAX));
            let part = &mut piece[..part];
            self.from.read_exact(part)?;
            sum = crc::append(sum, part);
            write(part, at)?;
            at += part.len() as u64;
        }
        if u32::from_le_bytes(self.fixed()?) == sum { Ok(()) } else { Err(wrong("a file's checksum does not match")) }
    }

    fn fixed<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn u64(&mut self) -> io::Result<u64> {
        self.fixed().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> io::Result<String> {
        let len = usize::from(u16::from_le_bytes(self.fixed()?));
        if len > NAME_BYTES_MAX {
            return Err(wrong("a name is too long"));
        }
        let mut bytes = vec![0; len];
        self.from.read_exact(&mut bytes)?;
        String::from_utf8(bytes).map_err(|_| wrong("a name is not UTF-8"))
    }
}

/// Whether the name can only be that of a file below the directory.
fn is_plain(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let part = |part: &str| !part.is_empty() && !part.starts_with('.') && part.bytes().all(plain);
    name.split('/').all(part) && name.split('/').count() <= NAME_PARTS_MAX
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> Vec<u8> {
        let mut encoder = Encoder::default();
        let mut out = Encoder::begin(3, 7).to_vec();
        let file = |name: &str, len| BackupPiece::File { name: name.to_owned(), len };
        let pieces = [
            file("shard-0000/journal/0001.plj", 5),
            BackupPiece::Bytes(Bytes::from_static(b"abc")),
            BackupPiece::Bytes(Bytes::from_static(b"de")),
            file("empty", 0),
            file("IDENTITY", 2),
            BackupPiece::Bytes(Bytes::from_static(b"fg")),
        ];
        for piece in pieces {
            encoder.piece(piece).iter().for_each(|bytes| out.extend_from_slice(bytes));
        }
        out.extend_from_slice(&encoder.end());
        out
    }

    type Files = Vec<(String, Vec<u8>)>;

    fn read(stream: &[u8]) -> io::Result<(Files, Record)> {
        let mut decoder = Decoder::new(stream)?;
        let mut files = Vec::new();
        loop {
            match decoder.record()? {
                Record::File { name, len } => {
                    let mut content = Vec::new();
                    decoder.content(len, &mut [0; 2], |piece, at| {
                        assert_eq!(at, content.len() as u64);
                        content.extend_from_slice(piece);
                        Ok(())
                    })?;
                    files.push((name, content));
                }
                end => return Ok((files, end)),
            }
        }
    }

    #[test]
    fn files_come_out_as_they_went_in() {
        let (files, end) = read(&stream()).unwrap();
        let names: Vec<_> = files.iter().map(|(name, content)| (name.as_str(), content.as_slice())).collect();
        assert_eq!(names, [("shard-0000/journal/0001.plj", &b"abcde"[..]), ("empty", b""), ("IDENTITY", b"fg")]);
        assert_eq!(end, Record::End);
    }

    #[test]
    fn what_is_cut_off_or_changed_is_no_backup() {
        let whole = stream();
        for cut in 0..whole.len() {
            assert!(read(&whole[..cut]).is_err(), "{cut}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x55;
            assert!(read(&changed).ok() != read(&whole).ok(), "{at}");
        }
    }

    #[test]
    fn it_says_why_it_was_broken_off() {
        let mut out = Encoder::begin(1, 1).to_vec();
        out.extend_from_slice(&Encoder::broken("no room"));
        assert_eq!(read(&out).unwrap().1, Record::Broken("no room".to_owned()));
        let long = Encoder::broken(&"ä".repeat(NAME_BYTES_MAX));
        assert_eq!(long.len(), 3 + NAME_BYTES_MAX);
    }

    #[test]
    fn names_lead_nowhere_else() {
        for name in ["IDENTITY", "shard-0000/manifest", "shard-0000/segments/01-a-02.journal"] {
            assert!(is_plain(name), "{name}");
        }
        for name in ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/", ".x", "a\\b", "a/b/c/d/e", "a\0", "a b"] {
            assert!(!is_plain(name), "{name}");
        }
    }
}
