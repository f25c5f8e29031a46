//! Users' home shards, and the distribution of stock over shards.

use alloc::vec::Vec;

use weir_base::hash::stable_hash;
use weir_base::id::UserId;

/// The shard with all data of `user`: `hash(user) mod shards`.
///
/// The origin and every gateway must compute the same value throughout a sale, so the hash is fixed: [`stable_hash`].
/// `shards` of 0 counts as 1.
pub fn home_shard(user: &UserId, shards: u32) -> u32 {
    let hash = stable_hash(user.as_str().as_bytes());
    // The remainder is below `shards`, so it fits.
    (hash % u64::from(shards.max(1))) as u32
}

/// The number of buckets over which a shard's reserved and blocked users are distributed. So a sale with a million of
/// them has no large value in Redis.
pub const BUCKETS: u32 = 256;

/// The bucket of `user` in its home shard: below [`BUCKETS`]. It uses other bits of the hash, so it is independent of
/// the shard.
pub fn bucket(user: &UserId) -> u32 {
    let hash = stable_hash(user.as_str().as_bytes());
    ((hash >> 40) % u64::from(BUCKETS)) as u32
}

/// Distributes `units` evenly over `shards`: the first shards get the remainder (10 on 4: 3, 3, 2, 2). `shards` of 0
/// counts as 1.
pub fn spread_stock(units: u64, shards: u32) -> Vec<u64> {
    let shards = u64::from(shards.max(1));
    let (each, odd) = (units / shards, units % shards);
    (0..shards).map(|k| each + u64::from(k < odd)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{format, vec};
    use proptest::prelude::*;

    fn user(name: &str) -> UserId {
        UserId::new(name).unwrap()
    }

    /// Another hash would lose every claim of a running sale, so these values must never change.
    #[test]
    fn home_shard_of_a_user_is_stable() {
        let homes: Vec<u32> = (0..8)
            .map(|n| home_shard(&user(&format!("user-{n}")), 4))
            .collect();
        assert_eq!(homes, [2, 1, 3, 0, 2, 3, 2, 3]);
    }

    /// With other values, Redis would not find reserved and blocked users, so these must never change, either.
    #[test]
    fn bucket_of_a_user_is_stable() {
        let buckets: Vec<u32> = (0..8)
            .map(|n| bucket(&user(&format!("user-{n}"))))
            .collect();
        assert_eq!(buckets, [185, 252, 173, 51, 127, 186, 218, 88]);
    }

    #[test]
    fn users_of_one_shard_are_spread_over_all_its_buckets() {
        let mut counts = [0_u32; BUCKETS as usize];
        let users = (0..100_000).map(|n| user(&format!("user-{n}")));
        for user in users.filter(|user| home_shard(user, 4) == 0) {
            counts[bucket(&user) as usize] += 1;
        }
        assert!(
            counts.iter().all(|count| (50..150).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn users_that_differ_only_in_a_counter_spread_evenly() {
        let mut counts = [0_u32; 16];
        for n in 0..16_000 {
            counts[home_shard(&user(&format!("user-{n}")), 16) as usize] += 1;
        }
        assert!(
            counts.iter().all(|&count| (850..1_150).contains(&count)),
            "{counts:?}"
        );
    }

    #[test]
    fn odd_units_go_to_the_first_shards() {
        assert_eq!(spread_stock(10, 4), vec![3, 3, 2, 2]);
        assert_eq!(spread_stock(2, 4), vec![1, 1, 0, 0]);
        assert_eq!(spread_stock(7, 0), vec![7]);
    }

    proptest! {
        #[test]
        fn units_are_split_evenly_over_shards_without_loss(units in 0..1_000_000_u64, shards in 1..65_u32) {
            let spread = spread_stock(units, shards);
            prop_assert_eq!(spread.iter().sum::<u64>(), units);
            prop_assert!(spread.iter().max().unwrap() - spread.iter().min().unwrap() <= 1);
        }
    }
}
