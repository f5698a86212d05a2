//! Tests of journal losses whose offsets a repair could not determine.

use super::rig::{Rig, kafka, small};
use crate::error::ErrorKind;
use crate::frame::{Kind, LostBody};
use crate::store::FencedRange;
use polylogue_types::{Offset, PartitionId};

const P: PartitionId = PartitionId(1);
const Q: PartitionId = PartitionId(2);

fn fence(partition: PartitionId, base: u64, end: u64) -> FencedRange {
    FencedRange { partition, base: Offset(base), end: Offset(end) }
}

/// Regression test: with a damaged frame's table its offsets were lost: nothing was fenced, readers skipped acknowledged data, and one at the log
/// start began after it.
#[test]
fn what_an_unknown_loss_took_is_fenced_and_stays_so() {
    let mut rig = Rig::new(1, small(), 1 << 20);
    rig.write(&[kafka(1, 0, 0, 10, 1, 100), kafka(2, 0, 0, 10, 1, 100)]);
    rig.merge_all();
    // The lost frame contained P 10 to 19, Q 10 to 29 and R 0 to 4.
    let lost = rig.journal.write_kind(Kind::Lost, &LostBody::default().encode(), &[]);
    rig.store.apply(&lost).unwrap();
    rig.write(&[kafka(1, 2, 20, 10, 1, 100)]);
    let fences = [fence(P, 10, 20), fence(Q, 10, 30), fence(PartitionId(3), 0, 5)];
    for life in 0..4 {
        rig.reopen(false);
        // Everything below 10 was trimmed: the missing part of P is at its start.
        let begins = [(P, 10, 30), (Q, 0, 30), (PartitionId(3), 0, 5)]
            .map(|(id, start, end)| rig.store.expect(id, Offset(start), Offset(end)).0);
        assert_eq!(begins, [10, 0, 0], "life {life}");
        let mut fenced = rig.store.fenced();
        fenced.sort_by_key(|f| f.partition);
        assert_eq!(fenced, fences, "life {life}");
        for (id, at) in [(P, 10), (P, 19), (Q, 10), (Q, 29), (PartitionId(3), 0)] {
            let read = rig.store.read(id, Offset(at), 1000, true).and_then(|l| l.wait());
            assert_eq!(read.unwrap_err().kind, ErrorKind::Damaged, "partition {id} offset {at} in life {life}");
        }
        assert_eq!(rig.read_all(1, 20, 1000).unwrap().1.len(), 161);
        if life == 1 {
            // The frame that recorded the loss moves into segments; from then on the manifest has the record.
            rig.merge_all();
        }
    }
    rig.store.trim(Q, Offset(30));
    rig.reopen(false);
    assert_eq!(rig.store.expect(Q, Offset(30), Offset(30)), Offset(30));
    assert!(rig.store.fenced().iter().all(|f| f.partition != Q), "trimmed data is not fenced");
}
