//! A backup on its way from a broker to its client: a stream of records, all numbers little endian.
//!
//! ```text
//!   "polylogue backup 1\n"
//!   'B'  files u64, bytes of all files u64                                                     first
//!   'F'  length of the name u16, name, length of the file u64, its bytes, CRC-32C of these u32  a file
//!   'E'  files u64, bytes u64                                                                  last: it is whole
//!   'X'  length of the text u16, text                                                          last: it was broken off, and why
//! ```
//!
//! What ends without 'E' is no backup. Names have `/` between directories, and nothing in them that leads elsewhere: who reads them makes
//! sure of that, because a server may be anybody.

use bytes::Bytes;
use polylogue_broker::BackupPiece;
use polylogue_record::crc;
use std::io::{self, Read};

/// What it is called.
pub const CONTENT_TYPE: &str = "application/octet-stream";

const MAGIC: &[u8] = b"polylogue backup 1\n";
const BEGIN: u8 = b'B';
const FILE: u8 = b'F';
const END: u8 = b'E';
const BROKEN: u8 = b'X';
/// The longest name, and the longest text. Bytes.
const NAME_BYTES_MAX: usize = 1024;
/// Directories above a file, and the file.
const NAME_PARTS_MAX: usize = 4;

/// Makes the stream.
#[derive(Debug, Default)]
pub struct Encoder {
    /// Of the file at which it is: bytes that are to come, and the checksum of those that came.
    left: u64,
    sum: u32,
    files: u64,
    bytes: u64,
}

impl Encoder {
    /// What comes first.
    pub fn begin(files: u64, bytes: u64) -> Bytes {
        let mut out = MAGIC.to_vec();
        out.push(BEGIN);
        out.extend_from_slice(&files.to_le_bytes());
        out.extend_from_slice(&bytes.to_le_bytes());
        Bytes::from(out)
    }

    /// A piece of it, and what belongs behind that.
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

    /// It is whole.
    pub fn end(&self) -> Bytes {
        let mut out = vec![END];
        out.extend_from_slice(&self.files.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
        Bytes::from(out)
    }

    /// It is not, and will not be.
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
    // At most NAME_BYTES_MAX.
    out.extend_from_slice(&(len as u16).to_le_bytes());
    out.extend_from_slice(&text.as_bytes()[..len]);
}

/// What comes in a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// A file, whose bytes are to be read next ([`Decoder::content`]).
    File { name: String, len: u64 },
    /// It was whole: that many files and bytes came that were announced.
    End,
    /// It was broken off.
    Broken(String),
}

/// Reads a stream.
#[derive(Debug)]
pub struct Decoder<R> {
    from: R,
    /// Files and bytes that were announced.
    pub files: u64,
    pub bytes: u64,
}

impl<R: Read> Decoder<R> {
    /// Reads how much will come.
    pub fn new(mut from: R) -> io::Result<Decoder<R>> {
        let mut magic = vec![0; MAGIC.len() + 1];
        from.read_exact(&mut magic)?;
        if !magic.starts_with(MAGIC) || magic.last() != Some(&BEGIN) {
            return Err(wrong("this is no backup that this version reads"));
        }
        let mut decoder = Decoder { from, files: 0, bytes: 0 };
        (decoder.files, decoder.bytes) = (decoder.u64()?, decoder.u64()?);
        Ok(decoder)
    }

    /// The next record. Of a file the content must be read before.
    pub fn record(&mut self) -> io::Result<Record> {
        let [kind] = self.fixed()?;
        match kind {
            FILE => {
                let name = self.text()?;
                if !is_plain(&name) {
                    return Err(wrong("a file has a name that no file of a data directory has"));
                }
                Ok(Record::File { name, len: self.u64()? })
            }
            END => {
                let came = (self.u64()?, self.u64()?);
                let announced = (self.files, self.bytes);
                if came == announced { Ok(Record::End) } else { Err(wrong("it is not as much as was announced")) }
            }
            BROKEN => Ok(Record::Broken(self.text()?)),
            _ => Err(wrong("a record is of no known kind")),
        }
    }

    /// Gives the content of a file to `write`, with the position of each piece, and holds it against its checksum.
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
        String::from_utf8(bytes).map_err(|_| wrong("a name is no text"))
    }
}

/// Whether it can only be the name of a file below the directory.
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
