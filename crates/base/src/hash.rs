//! Hashes that distribute names evenly. They are not message authentication codes.

/// A hash of `bytes` that is stable across versions: 64-bit FNV-1a, then the finaliser of MurmurHash3 (`fmix64`). FNV's
/// low bits alone are uneven for names that differ only in a counter.
pub fn stable_hash(bytes: &[u8]) -> u64 {
    fmix64(fnv1a_64(bytes))
}

/// A hash of `bytes` that depends on `seed`, with all bits evenly distributed. It prevents collisions by chance and by
/// clients that do not know the seed. It is not a message authentication code.
pub fn seeded_hash(seed: u64, bytes: &[u8]) -> u64 {
    fmix64(fnv1a_64_from(FNV_OFFSET_BASIS ^ fmix64(seed), bytes))
}

/// Like [`seeded_hash`], for a list of texts. Different lists have different hashes, apart from random collisions.
pub fn seeded_hash_of<'a>(seed: u64, texts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let basis = FNV_OFFSET_BASIS ^ fmix64(seed);
    let hash = texts.into_iter().fold(basis, |hash, text| {
        // The length terminates each text, as a step that no byte produces, so that lists with the same concatenation
        // differ.
        let end = (text.len() as u64 + 1).rotate_left(32);
        (fnv1a_64_from(hash, text) ^ end).wrapping_mul(FNV_PRIME)
    });
    fmix64(hash)
}

const FNV_OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// FNV-1a, 64 bits (Fowler, Noll, Vo; draft-eastlake-fnv).
fn fnv1a_64(bytes: &[u8]) -> u64 {
    fnv1a_64_from(FNV_OFFSET_BASIS, bytes)
}

fn fnv1a_64_from(basis: u64, bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME);
    // A loop with a fixed number of steps costs half as many instructions.
    let (chunks, rest) = bytes.as_chunks::<8>();
    let whole = |hash, chunk: &[u8; 8]| chunk.iter().fold(hash, step);
    rest.iter().fold(chunks.iter().fold(basis, whole), step)
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
    use alloc::collections::BTreeSet;

    /// Users' home shards depend on these values, so they must never change.
    #[test]
    fn stable_hash_matches_fixed_values() {
        assert_eq!(fnv1a_64(b"foobar"), 0x8594_4171_f739_67e8); // published test vector
        assert_eq!(fmix64(1), 0xb456_bcfc_34c2_cb2c);
        assert_eq!(stable_hash(b"foobar"), 3_180_132_088_784_447_275);
    }

    /// Clicks identify user agents by this hash, and during an upgrade workers of both versions share memory.
    #[test]
    fn seeded_hash_matches_fixed_values() {
        assert_eq!(seeded_hash(7, b"foobar"), 3_242_123_865_584_465_428);
        let texts: [&[u8]; 4] = [b"foo", b"", b"foobar", b"b"];
        assert_eq!(seeded_hash_of(7, texts), 666_817_959_775_880_241);
    }

    #[test]
    fn different_seeds_or_texts_have_different_hashes() {
        let lists: [&[&[u8]]; 7] = [
            &[],
            &[b""],
            &[b"", b""],
            &[b"ab"],
            &[b"a", b"b"],
            &[b"", b"ab"],
            &[b"b", b"a"],
        ];
        let mut hashes = BTreeSet::new();
        for seed in [0, 1, u64::MAX] {
            for list in lists {
                hashes.insert(seeded_hash_of(seed, list.iter().copied()));
            }
            hashes.insert(seeded_hash(seed, b"ab"));
        }
        assert_eq!(hashes.len(), 3 * (lists.len() + 1));
    }
}
