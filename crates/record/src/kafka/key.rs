//! Where Kafka's own producers put a key.

/// The number of the partition, of so many: `Utils.toPositive(Utils.murmur2(key)) % partitions`.
#[must_use]
pub fn partition_of_key(key: &[u8], partitions: usize) -> usize {
    (murmur2(key) & 0x7fff_ffff) as usize % partitions.max(1)
}

/// `org.apache.kafka.common.utils.Utils.murmur2`.
fn murmur2(data: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;
    // Java's lengths are 32 bits wide.
    let mut hash = SEED ^ (data.len() as u32);
    let words = data.chunks_exact(4);
    let rest = words.remainder();
    for word in words {
        let mut k = word.iter().rev().fold(0u32, |k, byte| (k << 8) | u32::from(*byte));
        k = k.wrapping_mul(M);
        k ^= k >> R;
        k = k.wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    if !rest.is_empty() {
        hash ^= rest.iter().rev().fold(0u32, |k, byte| (k << 8) | u32::from(*byte));
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of `Utils.murmur2` of kafka-clients 4.3.1.
    #[test]
    fn keys_are_hashed_as_kafka_does() {
        for (key, hash) in [
            ("", 275_646_681),
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()), i32::cast_unsigned(hash), "{key}");
        }
        assert_eq!(partition_of_key(b"foobar", 7), (-790_332_482i32 & 0x7fff_ffff) as usize % 7);
    }
}
