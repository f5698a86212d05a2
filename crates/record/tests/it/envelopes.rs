//! The envelope: what goes in comes out, and nothing else passes.

use polylogue_record::envelope::{Body, EntryFlags, Envelope, EnvelopeError, FIXED_BYTES, Form, Producer};
use polylogue_types::{Offset, Ordinal, PartitionId, ProducerId};
use proptest::option;
use proptest::prelude::*;

fn bodies() -> impl Strategy<Value = Body> {
    prop_oneof![
        any::<(u32, u32)>().prop_map(|(len, checksum)| Body::Inline { len, checksum }),
        any::<u32>().prop_map(|entry| Body::Ref { entry }),
    ]
}

fn producers() -> impl Strategy<Value = Producer> {
    any::<(i64, i16, i64, i64)>().prop_map(|(id, epoch, base_sequence, last_sequence)| Producer {
        id: ProducerId(id),
        epoch,
        base_sequence,
        last_sequence,
    })
}

prop_compose! {
    fn envelopes()(
        (partition, ordinal, base_offset, count) in any::<(u64, u64, u32, u32)>(),
        (append_time, max_timestamp, leader_epoch) in any::<(i64, i64, u32)>(),
        form in 1..=8u8,
        flags in 0..8u16,
        more_flags in 0..4u16,
        body in bodies(),
        producer in option::of(producers()),
        (deliver_at, expires_at) in any::<(Option<i64>, Option<i64>)>(),
        (priority, key_hash, transaction) in any::<(Option<u8>, Option<u32>, Option<u64>)>(),
    ) -> Envelope {
        Envelope {
            partition: PartitionId(partition),
            ordinal: Ordinal(ordinal),
            base_offset: Offset(u64::from(base_offset) << 30),
            count,
            append_time,
            max_timestamp,
            leader_epoch,
            form: Form::from_tag(form).unwrap(),
            flags: EntryFlags::from_bits(flags | more_flags << 8).unwrap(),
            body,
            producer,
            deliver_at,
            expires_at,
            priority,
            key_hash,
            transaction,
        }
    }
}

proptest! {
    #[test]
    fn an_envelope_comes_back(envelope in envelopes(), before in 0..9usize, after in 0..9usize) {
        let mut out = vec![0xaa; before];
        let len = envelope.encode_into(&mut out);
        prop_assert_eq!(len, envelope.encoded_len());
        prop_assert_eq!(out.len(), before + len);
        out.extend(std::iter::repeat_n(0xbb, after));
        prop_assert_eq!(Envelope::decode(&out[before..]), Ok((envelope, len)));
    }

    #[test]
    fn no_part_of_an_envelope_is_one(envelope in envelopes()) {
        let mut out = Vec::new();
        envelope.encode_into(&mut out);
        for len in 0..out.len() {
            prop_assert_eq!(Envelope::decode(&out[..len]), Err(EnvelopeError::Truncated));
        }
    }

    #[test]
    fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok((envelope, used)) = Envelope::decode(&bytes) {
            prop_assert!(used <= bytes.len());
            prop_assert!(envelope.next_offset() >= envelope.base_offset);
        }
    }

    #[test]
    fn a_changed_envelope_is_answered(
        envelope in envelopes(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut out = Vec::new();
        envelope.encode_into(&mut out);
        let at = at.index(out.len());
        out[at] = byte;
        if let Ok((changed, used)) = Envelope::decode(&out) {
            // What is understood says the same when it is written again, but for fields that were skipped.
            let mut again = Vec::new();
            prop_assert!(changed.encode_into(&mut again) <= used);
            prop_assert_eq!(Envelope::decode(&again).map(|(envelope, _)| envelope), Ok(changed));
        }
    }
}

fn encoded(envelope: &Envelope) -> Vec<u8> {
    let mut out = Vec::new();
    envelope.encode_into(&mut out);
    out
}

/// The bytes themselves, so that no change of the layout goes unseen: files hold them.
#[test]
fn the_layout_is_the_drawn_one() {
    let mut envelope = Envelope::new(PartitionId(0x0102_0304_0506_0708), Form::KafkaV2);
    envelope.ordinal = Ordinal(0x11);
    envelope.base_offset = Offset(0x22);
    envelope.append_time = 0x33;
    envelope.max_timestamp = -1;
    envelope.count = 0x44;
    envelope.leader_epoch = 0x55;
    envelope.flags = EntryFlags::COMPRESSED.with(EntryFlags::TRANSACTIONAL);
    envelope.body = Body::Inline { len: 0x66, checksum: 0xdead_beef };
    envelope.priority = Some(9);
    envelope.producer = Some(Producer { id: ProducerId(1), epoch: 2, base_sequence: 3, last_sequence: 4 });
    let expected: [&[u8]; 17] = [
        &[93, 0, 1, 0, 0x01, 0x01, 0x01, 0x01],
        &[8, 7, 6, 5, 4, 3, 2, 1],
        &[0x11, 0, 0, 0, 0, 0, 0, 0],
        &[0x22, 0, 0, 0, 0, 0, 0, 0],
        &[0x33, 0, 0, 0, 0, 0, 0, 0],
        &[0xff; 8],
        &[0x44, 0, 0, 0],
        &[0x55, 0, 0, 0],
        &[0x66, 0, 0, 0],
        &[0xef, 0xbe, 0xad, 0xde],
        &[1, 9],
        &[26],
        &[1, 0, 0, 0, 0, 0, 0, 0],
        &[2, 0],
        &[3, 0, 0, 0, 0, 0, 0, 0],
        &[4, 0, 0, 0, 0, 0, 0, 0],
        &[],
    ];
    assert_eq!(encoded(&envelope), expected.concat());
}

#[test]
fn a_later_version_is_skipped_or_refused_by_the_bit() {
    let envelope = Envelope::new(PartitionId(1), Form::Opaque);
    let mut skipped = encoded(&envelope);
    skipped[0] += 4;
    skipped[6] |= 1 << 7;
    skipped.extend_from_slice(&[3, 1, 2, 3]);
    assert_eq!(Envelope::decode(&skipped), Ok((envelope.clone(), FIXED_BYTES + 4)));

    let mut refused = encoded(&envelope);
    refused[7] |= 1 << 7;
    assert_eq!(Envelope::decode(&refused), Err(EnvelopeError::UnknownFields(1 << 15)));

    let mut flags = encoded(&envelope);
    flags[4] |= 1 << 7;
    assert_eq!(Envelope::decode(&flags).unwrap().0.flags.bits(), 1 << 7);
    flags[5] |= 1 << 7;
    assert_eq!(Envelope::decode(&flags), Err(EnvelopeError::UnknownFlags(1 << 15 | 1 << 7)));
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut envelope = Envelope::new(PartitionId(1), Form::Opaque);
    envelope.base_offset = Offset(i64::MAX.unsigned_abs());
    assert!(Envelope::decode(&encoded(&envelope)).is_ok());
    envelope.count = 1;
    assert_eq!(Envelope::decode(&encoded(&envelope)), Err(EnvelopeError::OffsetOverflow));
    envelope.base_offset = Offset(u64::MAX);
    assert_eq!(Envelope::decode(&encoded(&envelope)), Err(EnvelopeError::OffsetOverflow));

    envelope = Envelope::new(PartitionId(1), Form::Opaque);
    envelope.key_hash = Some(7);
    let good = encoded(&envelope);
    let mut short = good.clone();
    short[64] = 3;
    assert_eq!(Envelope::decode(&short), Err(EnvelopeError::FieldSize { bit: 1, size: 3 }));
    let mut long = good.clone();
    long[0] += 1;
    long[64] = 5;
    long.push(0);
    assert_eq!(Envelope::decode(&long), Err(EnvelopeError::FieldSize { bit: 1, size: 5 }));
    let mut loose = good.clone();
    loose[0] += 1;
    loose.push(0);
    assert_eq!(Envelope::decode(&loose), Err(EnvelopeError::Length(70)));
    let mut tiny = good.clone();
    tiny[0] = 63;
    assert_eq!(Envelope::decode(&tiny), Err(EnvelopeError::Length(63)));
    let mut form = good.clone();
    form[2] = 0;
    assert_eq!(Envelope::decode(&form), Err(EnvelopeError::UnknownForm(0)));
    let mut body = good;
    body[3] = 2;
    assert_eq!(Envelope::decode(&body), Err(EnvelopeError::UnknownBody(2)));
}
