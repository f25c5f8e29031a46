//! Where a user is at home, and how stock is spread over shards.

use alloc::vec::Vec;

use weir_base::id::UserId;

/// The shard at which all that is known of `user` lives: `hash(user) mod shards`.
///
/// The origin and every gateway must agree on it for as long as a sale runs, so the hash is fixed:
/// 64-bit FNV-1a, then the finaliser of MurmurHash3 (`fmix64`), since FNV's low bits alone are
/// uneven for names that differ only in a counter. `shards` of 0 counts as 1.
pub fn home_shard(user: &UserId, shards: u32) -> u32 {
    let hash = fmix64(fnv1a_64(user.as_str().as_bytes()));
    // The remainder is below `shards`, so it fits.
    (hash % u64::from(shards.max(1))) as u32
}

/// Over how many values the users of one shard are spread in its sets of reserved and of blocked
/// users, so that a sale with a million of them has no large value in Redis.
pub const BUCKETS: u32 = 256;

/// In which of its home shard's buckets `user` is: below [`BUCKETS`]. Independent of the shard, as it
/// is made of other bits of the hash.
pub fn bucket(user: &UserId) -> u32 {
    let hash = fmix64(fnv1a_64(user.as_str().as_bytes()));
    ((hash >> 40) % u64::from(BUCKETS)) as u32
}

/// A hash of `bytes` that is another one for each seed, and of which all bits are even. It keeps
/// chance apart, and those who do not know the seed; it is no message authentication code.
pub(crate) fn seeded_hash(seed: u64, bytes: &[u8]) -> u64 {
    fmix64(fnv1a_64_from(FNV_OFFSET_BASIS ^ fmix64(seed), bytes))
}

/// As [`seeded_hash`], of several texts: other texts have another hash, but for chance.
pub(crate) fn seeded_hash_of<'a>(seed: u64, texts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let basis = FNV_OFFSET_BASIS ^ fmix64(seed);
    let hash = texts.into_iter().fold(basis, |hash, text| {
        // The length ends a text, so that no two lists of texts run together to the same bytes.
        fnv1a_64_from(hash, text) ^ (text.len() as u64).rotate_left(32)
    });
    fmix64(hash)
}

const FNV_OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, 64 bits (Fowler, Noll, Vo; draft-eastlake-fnv).
fn fnv1a_64(bytes: &[u8]) -> u64 {
    fnv1a_64_from(FNV_OFFSET_BASIS, bytes)
}

fn fnv1a_64_from(basis: u64, bytes: &[u8]) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    bytes.iter().fold(basis, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(PRIME)
    })
}

/// The 64-bit finaliser of MurmurHash3 (Austin Appleby, public domain).
fn fmix64(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// Spreads `units` evenly over `shards`: the first shards get the odd units (10 on 4: 3, 3, 2, 2).
/// `shards` of 0 counts as 1.
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

    /// Changing the hash would lose every claim of a running sale: these may never change.
    #[test]
    fn home_shards_are_fixed_for_ever() {
        assert_eq!(fnv1a_64(b"foobar"), 0x8594_4171_f739_67e8); // published test vector
        assert_eq!(fmix64(1), 0xb456_bcfc_34c2_cb2c);
        let homes: Vec<u32> = (0..8)
            .map(|n| home_shard(&user(&format!("user-{n}")), 4))
            .collect();
        assert_eq!(homes, [2, 1, 3, 0, 2, 3, 2, 3]);
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
        fn no_unit_is_lost_and_no_shard_is_favoured(units in 0..1_000_000_u64, shards in 1..65_u32) {
            let spread = spread_stock(units, shards);
            prop_assert_eq!(spread.iter().sum::<u64>(), units);
            prop_assert!(spread.iter().max().unwrap() - spread.iter().min().unwrap() <= 1);
        }
    }
}
