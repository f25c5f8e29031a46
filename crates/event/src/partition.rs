//! The partition of an event. Order holds within a partition, so all events of a customer share one.

use weir_base::hash::stable_hash;

/// Default number of partitions of a log.
pub const PARTITIONS: u16 = 50;

/// Maximum partitions.
pub const PARTITIONS_MAX: u16 = 1_000;

/// The partition of `key` among `count`. The key is the customer, else the visitor, else the event: see
/// [`Envelope::partition_key`](crate::envelope::Envelope::partition_key).
pub fn partition(key: &str, count: u16) -> u16 {
    let hash = stable_hash(key.as_bytes());
    // Less than `count`, so it fits.
    (hash % u64::from(count.max(1))) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;
    use alloc::vec;
    use proptest::prelude::*;

    /// Stored events depend on these values: they may never change.
    #[test]
    fn partition_numbers_match_fixed_values() {
        let of = |key| partition(key, PARTITIONS);
        assert_eq!(["", "u1", "u2", "g:v1"].map(of), [42, 35, 18, 45]);
    }

    #[test]
    fn customers_are_spread_evenly() {
        let mut counts = vec![0_u32; usize::from(PARTITIONS)];
        for n in 0..100_000 {
            counts[usize::from(partition(&format!("user-{n}"), PARTITIONS))] += 1;
        }
        // 2,000 each; five standard deviations.
        assert!(
            counts.iter().all(|count| count.abs_diff(2_000) < 225),
            "{counts:?}"
        );
    }

    proptest! {
        #[test]
        fn every_key_has_a_partition(key: String, count: u16) {
            prop_assert!(partition(&key, count) < count.max(1));
        }
    }
}
