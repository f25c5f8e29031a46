//! Hashes that spread names evenly. None of them is a message authentication code.

/// The hash of `bytes` that never changes: 64-bit FNV-1a, then the finaliser of MurmurHash3 (`fmix64`),
/// since FNV's low bits alone are uneven for names that differ only in a counter.
pub fn stable_hash(bytes: &[u8]) -> u64 {
    fmix64(fnv1a_64(bytes))
}

/// A hash of `bytes` that is another one for each seed, and of which all bits are even. It keeps
/// chance apart, and those who do not know the seed; it is no message authentication code.
pub fn seeded_hash(seed: u64, bytes: &[u8]) -> u64 {
    fmix64(fnv1a_64_from(FNV_OFFSET_BASIS ^ fmix64(seed), bytes))
}

/// As [`seeded_hash`], of several texts: other texts have another hash, but for chance.
pub fn seeded_hash_of<'a>(seed: u64, texts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Users' home shards hang on it: these may never change.
    #[test]
    fn the_stable_hash_is_fixed_for_ever() {
        assert_eq!(fnv1a_64(b"foobar"), 0x8594_4171_f739_67e8); // published test vector
        assert_eq!(fmix64(1), 0xb456_bcfc_34c2_cb2c);
    }
}
