//! The envelope of a stored entry: the fields of an entry that the log knows without its native bytes.
//!
//! ```text
//!   all numbers little endian
//!    0        2      3      4        6         8
//!   +--------+------+------+--------+---------+----------------+----------------+----------------+
//!   | length | form | body | flags  | present | partition      | ordinal        | base offset    |
//!   | u16    | u8   | u8   | u16    | u16     | u64         16 | u64         24 | u64         32 |
//!   +--------+------+------+--------+---------+----------------+----------------+----------------+
//!   +----------------+----------------+---------+--------------+---------------+--------------+
//!   | append time    | max timestamp  | count   | leader epoch | body length   | checksum     |   body = 0: inline
//!   | i64 ms      40 | i64 ms      48 | u32  52 | u32       56 | or entry   60 | or zero   64 |   body = 1: of another
//!   +----------------+----------------+---------+--------------+---------------+--------------+            entry
//!   then, for every bit that is set in `present`, from the lowest on:
//!   +--------+-----------------+
//!   | size   | the field       |
//!   | u8     | `size` bytes    |
//!   +--------+-----------------+
//! ```
//!
//! | bit | field | bytes |
//! | --- | --- | --- |
//! | 0 | priority | u8 |
//! | 1 | key hash | u32 |
//! | 8 | producer | id i64, epoch i16, first sequence i64, last sequence i64 |
//! | 9 | deliver at | i64 ms |
//! | 10 | expires at | i64 ms |
//! | 11 | transaction | u64 |
//!
//! `length` is that of the whole envelope. A reader that does not know a field skips it by its size when its bit is below
//! [`MUST_KNOW_FROM`], and refuses the entry otherwise: leaving out a priority is harmless, leaving out a delivery time is not.
//! The same mark divides the flags.

use polylogue_types::{Offset, Ordinal, PartitionId, ProducerId, TimestampMs};
use std::fmt;

/// Bytes of an envelope without optional fields.
pub const FIXED_BYTES: usize = 64;
/// Bits of `present` and of the flags from this one on must be known to every reader of the entry.
pub const MUST_KNOW_FROM: u32 = 8;

const PRIORITY: u32 = 0;
const KEY_HASH: u32 = 1;
const PRODUCER: u32 = 8;
const DELIVER_AT: u32 = 9;
const EXPIRES_AT: u32 = 10;
const TRANSACTION: u32 = 11;

const BODY_INLINE: u8 = 0;
const BODY_REF: u8 = 1;

/// What the native bytes of an entry are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Form {
    /// One Kafka record batch of magic 2.
    KafkaV2 = 1,
    /// A record of polylogue's own state (offsets, settings, acknowledgements).
    Record = 2,
    /// Bytes that no reader looks into.
    Opaque = 3,
    /// An AMQP 0-9-1 message: properties and body.
    AmqpMessage = 4,
    /// A Pulsar entry: metadata and payload.
    PulsarEntry = 5,
    /// A RocketMQ record.
    RocketMq = 6,
    /// A RabbitMQ stream sub-batch.
    StreamChunk = 7,
    /// A TubeMQ message.
    TubeMq = 8,
}

impl Form {
    /// The form with this tag.
    #[must_use]
    pub fn from_tag(tag: u8) -> Option<Form> {
        Some(match tag {
            1 => Form::KafkaV2,
            2 => Form::Record,
            3 => Form::Opaque,
            4 => Form::AmqpMessage,
            5 => Form::PulsarEntry,
            6 => Form::RocketMq,
            7 => Form::StreamChunk,
            8 => Form::TubeMq,
            _ => return None,
        })
    }
}

/// A set of yes-or-no facts about an entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct EntryFlags(u16);

impl EntryFlags {
    /// Nothing special.
    pub const NONE: EntryFlags = EntryFlags(0);
    /// The native bytes hold compressed messages.
    pub const COMPRESSED: EntryFlags = EntryFlags(1);
    /// The messages' timestamp is the time of appending.
    pub const LOG_APPEND_TIME: EntryFlags = EntryFlags(1 << 1);
    /// Answered without waiting for the flush (AMQP's transient delivery mode).
    pub const TRANSIENT: EntryFlags = EntryFlags(1 << 2);
    /// Part of a transaction: invisible to readers of committed messages until its marker.
    pub const TRANSACTIONAL: EntryFlags = EntryFlags(1 << 8);
    /// Not a message for consumers (Kafka's transaction markers).
    pub const CONTROL: EntryFlags = EntryFlags(1 << 9);

    const KNOWN: u16 =
        Self::COMPRESSED.0 | Self::LOG_APPEND_TIME.0 | Self::TRANSIENT.0 | Self::TRANSACTIONAL.0 | Self::CONTROL.0;

    /// Whether all flags of `other` are set.
    #[must_use]
    pub const fn contains(self, other: EntryFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// These flags and those of `other`.
    #[must_use]
    pub const fn with(self, other: EntryFlags) -> EntryFlags {
        EntryFlags(self.0 | other.0)
    }

    /// These flags, and those of `other` when `condition` holds.
    #[must_use]
    pub const fn with_if(self, condition: bool, other: EntryFlags) -> EntryFlags {
        if condition { self.with(other) } else { self }
    }

    /// The bits as they are stored.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The flags with these bits, unless one is set that a reader has to know and this one does not.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Option<EntryFlags> {
        if must_know(bits & !Self::KNOWN) { None } else { Some(EntryFlags(bits)) }
    }
}

impl fmt::Debug for EntryFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [(EntryFlags, &str); 5] = [
            (EntryFlags::COMPRESSED, "COMPRESSED"),
            (EntryFlags::LOG_APPEND_TIME, "LOG_APPEND_TIME"),
            (EntryFlags::TRANSIENT, "TRANSIENT"),
            (EntryFlags::TRANSACTIONAL, "TRANSACTIONAL"),
            (EntryFlags::CONTROL, "CONTROL"),
        ];
        let mut set = f.debug_set();
        for (flag, name) in NAMES {
            if self.contains(flag) {
                set.entry(&format_args!("{name}"));
            }
        }
        let unnamed = self.0 & !Self::KNOWN;
        if unnamed != 0 {
            set.entry(&format_args!("{unnamed:#x}"));
        }
        set.finish()
    }
}

/// Whether one of these unknown bits forbids reading on.
const fn must_know(unknown: u16) -> bool {
    unknown >> MUST_KNOW_FROM != 0
}

/// Where the native bytes of an entry are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    /// In the frame, at the place that follows from the entries before this one.
    Inline {
        /// Length of the native bytes.
        len: u32,
        /// CRC-32C over all of them.
        checksum: u32,
    },
    /// The same bytes as those of another entry of this frame: one message routed to many queues is stored once.
    Ref {
        /// The number of that entry in the frame, from 0 on.
        entry: u32,
    },
}

/// The producer of an entry and its sequence, by which duplicates are recognised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Producer {
    /// The producer.
    pub id: ProducerId,
    /// Its incarnation: a higher one fences the lower ones.
    pub epoch: i16,
    /// The sequence number of the entry's first message. Kafka counts in 31 bits and wraps to 0 after 2^31 - 1; Pulsar's and
    /// the streams' numbers have 64 bits.
    pub base_sequence: i64,
    /// The sequence number of the entry's last message, wrapped by the protocol's rule.
    pub last_sequence: i64,
}

/// What the log keeps of every entry, beside its native bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// Whose entry it is.
    pub partition: PartitionId,
    /// The number of the entry in its partition.
    pub ordinal: Ordinal,
    /// The offset of the first message.
    pub base_offset: Offset,
    /// How many offsets the entry takes. 0 for an entry that is no message.
    pub count: u32,
    /// When the entry was appended: the time of its frame.
    pub append_time: TimestampMs,
    /// The highest timestamp of its messages, -1 for none.
    pub max_timestamp: TimestampMs,
    /// The epoch of the leader that took it, as Kafka's clients see it.
    pub leader_epoch: u32,
    /// What the native bytes are.
    pub form: Form,
    /// Facts about the entry.
    pub flags: EntryFlags,
    /// Where the native bytes are.
    pub body: Body,
    /// The producer, where it numbers its messages.
    pub producer: Option<Producer>,
    /// Not to be delivered before this time.
    pub deliver_at: Option<TimestampMs>,
    /// Not to be delivered from this time on.
    pub expires_at: Option<TimestampMs>,
    /// 0 is the lowest.
    pub priority: Option<u8>,
    /// The hash that the protocol orders and spreads messages by.
    pub key_hash: Option<u32>,
    /// The transaction that it belongs to, in polylogue's own numbering.
    pub transaction: Option<u64>,
}

/// Why bytes are no envelope.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EnvelopeError {
    /// The bytes end before the envelope does.
    Truncated,
    /// The stated length is shorter than the fixed part, or does not end where the last field ends.
    Length(u16),
    /// A form that this version does not know.
    UnknownForm(u8),
    /// A kind of body that this version does not know.
    UnknownBody(u8),
    /// Flags that this version would have to know.
    UnknownFlags(u16),
    /// Optional fields that this version would have to know.
    UnknownFields(u16),
    /// A known optional field does not have its size.
    FieldSize {
        /// The bit of the field.
        bit: u32,
        /// The size found, in bytes.
        size: usize,
    },
    /// The offsets of the entry run over 2^63 - 1.
    OffsetOverflow,
}

impl fmt::Display for EnvelopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => write!(f, "the bytes end inside an entry's envelope"),
            Self::Length(n) => write!(f, "an entry's envelope cannot be {n} bytes long"),
            Self::UnknownForm(n) => write!(f, "entry form {n} is unknown to this version"),
            Self::UnknownBody(n) => write!(f, "entry body kind {n} is unknown to this version"),
            Self::UnknownFlags(n) => write!(f, "entry flags {n:#06x} hold some that this version does not know"),
            Self::UnknownFields(n) => write!(f, "entry fields {n:#06x} hold some that this version does not know"),
            Self::FieldSize { bit, size } => write!(f, "entry field {bit} has {size} bytes, which is not its size"),
            Self::OffsetOverflow => write!(f, "an entry's offsets run over 2^63 - 1"),
        }
    }
}

impl std::error::Error for EnvelopeError {}

impl Envelope {
    /// An envelope without flags, producer or optional fields, with an empty inline body.
    #[must_use]
    pub fn new(partition: PartitionId, form: Form) -> Envelope {
        Envelope {
            partition,
            ordinal: Ordinal(0),
            base_offset: Offset(0),
            count: 0,
            append_time: 0,
            max_timestamp: -1,
            leader_epoch: 0,
            form,
            flags: EntryFlags::NONE,
            body: Body::Inline { len: 0, checksum: 0 },
            producer: None,
            deliver_at: None,
            expires_at: None,
            priority: None,
            key_hash: None,
            transaction: None,
        }
    }

    /// The offset after the entry's last message.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        self.base_offset.plus(u64::from(self.count))
    }

    /// Bytes of its encoding.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        FIXED_BYTES
            + field_len(self.priority.is_some(), 1)
            + field_len(self.key_hash.is_some(), 4)
            + field_len(self.producer.is_some(), 26)
            + field_len(self.deliver_at.is_some(), 8)
            + field_len(self.expires_at.is_some(), 8)
            + field_len(self.transaction.is_some(), 8)
    }

    /// Appends the encoding to `out` and returns its length in bytes.
    pub fn encode_into(&self, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        let len = self.encoded_len();
        out.reserve(len);
        // The longest envelope, with all its fields, is far below 64 KiB.
        out.extend_from_slice(&u16::try_from(len).unwrap_or(u16::MAX).to_le_bytes());
        let (kind, first, second) = match self.body {
            Body::Inline { len, checksum } => (BODY_INLINE, len, checksum),
            Body::Ref { entry } => (BODY_REF, entry, 0),
        };
        out.push(self.form as u8);
        out.push(kind);
        out.extend_from_slice(&self.flags.bits().to_le_bytes());
        out.extend_from_slice(&self.present().to_le_bytes());
        out.extend_from_slice(&self.partition.0.to_le_bytes());
        out.extend_from_slice(&self.ordinal.0.to_le_bytes());
        out.extend_from_slice(&self.base_offset.0.to_le_bytes());
        out.extend_from_slice(&self.append_time.to_le_bytes());
        out.extend_from_slice(&self.max_timestamp.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&self.leader_epoch.to_le_bytes());
        out.extend_from_slice(&first.to_le_bytes());
        out.extend_from_slice(&second.to_le_bytes());
        self.encode_fields(out);
        out.len() - start
    }

    fn present(&self) -> u16 {
        u16::from(self.priority.is_some()) << PRIORITY
            | u16::from(self.key_hash.is_some()) << KEY_HASH
            | u16::from(self.producer.is_some()) << PRODUCER
            | u16::from(self.deliver_at.is_some()) << DELIVER_AT
            | u16::from(self.expires_at.is_some()) << EXPIRES_AT
            | u16::from(self.transaction.is_some()) << TRANSACTION
    }

    fn encode_fields(&self, out: &mut Vec<u8>) {
        if let Some(priority) = self.priority {
            out.extend_from_slice(&[1, priority]);
        }
        if let Some(hash) = self.key_hash {
            out.push(4);
            out.extend_from_slice(&hash.to_le_bytes());
        }
        if let Some(producer) = &self.producer {
            out.push(26);
            out.extend_from_slice(&producer.id.0.to_le_bytes());
            out.extend_from_slice(&producer.epoch.to_le_bytes());
            out.extend_from_slice(&producer.base_sequence.to_le_bytes());
            out.extend_from_slice(&producer.last_sequence.to_le_bytes());
        }
        for time in [self.deliver_at, self.expires_at].into_iter().flatten() {
            out.push(8);
            out.extend_from_slice(&time.to_le_bytes());
        }
        if let Some(transaction) = self.transaction {
            out.push(8);
            out.extend_from_slice(&transaction.to_le_bytes());
        }
    }

    /// Reads the envelope at the start of `bytes`, and says how many bytes it takes.
    ///
    /// # Errors
    /// [`EnvelopeError`] for bytes that are no envelope, or one of a later version that may not be read by this one.
    pub fn decode(bytes: &[u8]) -> Result<(Envelope, usize), EnvelopeError> {
        let (&length, _) = bytes.split_first_chunk().ok_or(EnvelopeError::Truncated)?;
        let length = u16::from_le_bytes(length);
        let used = usize::from(length);
        if used < FIXED_BYTES {
            return Err(EnvelopeError::Length(length));
        }
        let mut input = Input(bytes.get(2..used).ok_or(EnvelopeError::Truncated)?);
        let (mut envelope, present) = decode_fixed(&mut input)?;
        for bit in 0..u16::BITS {
            if present & (1 << bit) != 0 {
                let [size] = input.take()?;
                envelope.decode_field(bit, input.slice(usize::from(size))?)?;
            }
        }
        if input.0.is_empty() { Ok((envelope, used)) } else { Err(EnvelopeError::Length(length)) }
    }

    fn decode_field(&mut self, bit: u32, field: &[u8]) -> Result<(), EnvelopeError> {
        let mut input = Input(field);
        match bit {
            PRIORITY => self.priority = Some(u8::from_le_bytes(input.field(bit, field)?)),
            KEY_HASH => self.key_hash = Some(u32::from_le_bytes(input.field(bit, field)?)),
            PRODUCER => {
                self.producer = Some(Producer {
                    id: ProducerId(i64::from_le_bytes(input.field(bit, field)?)),
                    epoch: i16::from_le_bytes(input.field(bit, field)?),
                    base_sequence: i64::from_le_bytes(input.field(bit, field)?),
                    last_sequence: i64::from_le_bytes(input.field(bit, field)?),
                });
            }
            DELIVER_AT => self.deliver_at = Some(i64::from_le_bytes(input.field(bit, field)?)),
            EXPIRES_AT => self.expires_at = Some(i64::from_le_bytes(input.field(bit, field)?)),
            TRANSACTION => self.transaction = Some(u64::from_le_bytes(input.field(bit, field)?)),
            // Unknown and below the mark, or `decode_fixed` would have refused it.
            _ => return Ok(()),
        }
        if input.0.is_empty() { Ok(()) } else { Err(EnvelopeError::FieldSize { bit, size: field.len() }) }
    }
}

const KNOWN_FIELDS: u16 =
    1 << PRIORITY | 1 << KEY_HASH | 1 << PRODUCER | 1 << DELIVER_AT | 1 << EXPIRES_AT | 1 << TRANSACTION;

fn field_len(present: bool, len: usize) -> usize {
    if present { 1 + len } else { 0 }
}

fn decode_fixed(input: &mut Input<'_>) -> Result<(Envelope, u16), EnvelopeError> {
    let [form, kind] = input.take()?;
    let form = Form::from_tag(form).ok_or(EnvelopeError::UnknownForm(form))?;
    let flags = u16::from_le_bytes(input.take()?);
    let flags = EntryFlags::from_bits(flags).ok_or(EnvelopeError::UnknownFlags(flags))?;
    let present = u16::from_le_bytes(input.take()?);
    if must_know(present & !KNOWN_FIELDS) {
        return Err(EnvelopeError::UnknownFields(present));
    }
    let mut envelope = Envelope::new(PartitionId(u64::from_le_bytes(input.take()?)), form);
    envelope.flags = flags;
    envelope.ordinal = Ordinal(u64::from_le_bytes(input.take()?));
    envelope.base_offset = Offset(u64::from_le_bytes(input.take()?));
    envelope.append_time = i64::from_le_bytes(input.take()?);
    envelope.max_timestamp = i64::from_le_bytes(input.take()?);
    envelope.count = u32::from_le_bytes(input.take()?);
    envelope.leader_epoch = u32::from_le_bytes(input.take()?);
    let first = u32::from_le_bytes(input.take()?);
    let second = u32::from_le_bytes(input.take()?);
    envelope.body = match kind {
        BODY_INLINE => Body::Inline { len: first, checksum: second },
        BODY_REF => Body::Ref { entry: first },
        other => return Err(EnvelopeError::UnknownBody(other)),
    };
    match envelope.base_offset.0.checked_add(u64::from(envelope.count)) {
        Some(next) if i64::try_from(next).is_ok() => Ok((envelope, present)),
        _ => Err(EnvelopeError::OffsetOverflow),
    }
}

/// The bytes not yet read.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], EnvelopeError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(EnvelopeError::Truncated)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn slice(&mut self, len: usize) -> Result<&'a [u8], EnvelopeError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(EnvelopeError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Part of an optional field: one that is too short has the wrong size, it is not truncated.
    fn field<const N: usize>(&mut self, bit: u32, field: &[u8]) -> Result<[u8; N], EnvelopeError> {
        self.take().map_err(|_| EnvelopeError::FieldSize { bit, size: field.len() })
    }
}
