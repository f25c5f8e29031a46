//! The keys of vehicle fitment.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::{Sku, Spu, VehicleId};
use weir_base::hash::stable_hash;

/// The number of hash tags for routes. A query for 200 SKUs needs at most one call per tag.
pub const ROUTE_TAGS: u64 = 16;

/// Buckets per tag. Redis packs a hash of up to 128 fields (`hash-max-listpack-entries`), so that 33 million SKUs are
/// packed.
pub const ROUTE_BUCKETS: u64 = 16_384;

/// The keys of one product, in one slot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FitmentKeys(String);

impl FitmentKeys {
    /// The keys of `spu`.
    pub fn new(prefix: &str, spu: &Spu) -> Self {
        Self([prefix, ":fit:{", spu.as_str(), "}"].concat())
    }

    /// Hash: SKU to its entry, see `fit_put.lua`. The scripts derive the other two keys from it.
    pub fn directory(&self) -> Vec<u8> {
        self.0.as_bytes().into()
    }

    /// Set: the offsets that a SKU fits, and 0.
    pub fn set(&self, sku: &Sku) -> Vec<u8> {
        [&self.0, ":s:", sku.as_str()].concat().into_bytes()
    }

    /// Bitmap: the offsets of one segment. The SKU comes last, because its name may contain any character.
    pub fn bitmap(&self, sku: &Sku, segment: u32) -> Vec<u8> {
        format!("{}:{segment}:{sku}", self.0).into_bytes()
    }
}

/// The bucket of a SKU's route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteBucket {
    /// The hash tag, less than [`ROUTE_TAGS`]. One call can read all routes of a tag.
    pub tag: u64,
    bucket: u64,
}

impl RouteBucket {
    /// The bucket of `sku`.
    pub fn for_sku(sku: &Sku) -> Self {
        let hash = stable_hash(sku.as_str().as_bytes());
        Self {
            tag: hash % ROUTE_TAGS,
            bucket: hash / ROUTE_TAGS % ROUTE_BUCKETS,
        }
    }

    /// One of all [`ROUTE_TAGS`] × [`ROUTE_BUCKETS`], by its number; wraps around after the last.
    pub fn nth(number: u64) -> Self {
        Self {
            tag: number % ROUTE_TAGS,
            bucket: number / ROUTE_TAGS % ROUTE_BUCKETS,
        }
    }

    /// The inverse of [nth](Self::nth).
    pub fn number(self) -> u64 {
        self.bucket * ROUTE_TAGS + self.tag
    }

    /// Hash: SKU to its route, see `fit_route_put.lua`.
    pub fn key(self, prefix: &str) -> Vec<u8> {
        let Self { tag, bucket } = self;
        format!("{prefix}:fit:route:{{{tag}}}:{bucket}").into_bytes()
    }
}

/// The keys of the vehicle map, in one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VehicleMapKeys(String);

impl VehicleMapKeys {
    /// The keys with this prefix.
    pub fn new(prefix: &str) -> Self {
        Self([prefix, ":fit:vehicles:{all}"].concat())
    }

    /// Text: `<generation> <count> <stamp>`, see `fit_vehicles.lua`.
    pub fn head(&self) -> Vec<u8> {
        self.0.as_bytes().into()
    }

    /// String: the ids of one segment's vehicles.
    pub fn block(&self, generation: u64, segment: u32) -> Vec<u8> {
        format!("{}:{generation}:{segment}", self.0).into_bytes()
    }
}

/// Hash: pages of SKUs that fit a vehicle, see `fit_browse.lua`.
pub fn fitment_pages(prefix: &str, vehicle: VehicleId) -> Vec<u8> {
    format!("{prefix}:fit:by:{{{vehicle}}}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn no_two_skus_share_a_key() {
        let keys = FitmentKeys::new("w", &Spu::new("P1").unwrap());
        let skus = ["a", "a:0", "0:a", "s:a", "s", "0"].map(|name| Sku::new(name).unwrap());
        let mut all = BTreeSet::from([keys.directory()]);
        for sku in &skus {
            assert!(all.insert(keys.set(sku)));
            assert!((0..12).all(|segment| all.insert(keys.bitmap(sku, segment))));
        }
        assert!(all.iter().all(|key| key.starts_with(b"w:fit:{P1}")));
    }

    #[test]
    fn every_route_bucket_has_a_number() {
        let all = (0..ROUTE_TAGS * ROUTE_BUCKETS).map(RouteBucket::nth);
        let all: BTreeSet<RouteBucket> = all.collect();
        assert!((0..99).all(|number| RouteBucket::nth(number * 977).number() == number * 977));
        assert_eq!(all.len() as u64, ROUTE_TAGS * ROUTE_BUCKETS);
        assert!(
            (0..99_u32)
                .all(|n| all.contains(&RouteBucket::for_sku(&Sku::new(format!("{n}")).unwrap())))
        );
    }

    #[test]
    fn route_buckets_are_spread_and_stable() {
        let of = |name: &str| RouteBucket::for_sku(&Sku::new(name).unwrap()).key("w");
        assert_eq!(of("100012043978"), b"w:fit:route:{8}:14170");
        let tags: BTreeSet<u64> = (0..200_u32)
            .map(|number| RouteBucket::for_sku(&Sku::new(format!("{number}")).unwrap()).tag)
            .collect();
        assert_eq!(tags.len() as u64, ROUTE_TAGS);
    }
}
