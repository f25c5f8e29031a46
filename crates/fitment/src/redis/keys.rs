//! The keys of vehicle fitment.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::{Sku, Spu, VehicleId};
use weir_base::hash::stable_hash;

/// How many hash tags the routes have. A question about 200 SKUs needs a call for each tag at most.
pub const ROUTE_TAGS: u64 = 16;

/// How many buckets a tag has. Redis packs a hash of up to 128 fields (`hash-max-listpack-entries`), so that 33 million SKUs
/// are packed.
pub const ROUTE_BUCKETS: u64 = 16_384;

/// The keys of one product, in one slot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FitmentKeys(String);

impl FitmentKeys {
    /// The keys of `spu`.
    pub fn new(prefix: &str, spu: &Spu) -> Self {
        Self([prefix, ":fit:{", spu.as_str(), "}"].concat())
    }

    /// Hash: SKU to its entry, see `fit_put.lua`. The scripts make the other two of it.
    pub fn directory(&self) -> Vec<u8> {
        self.0.as_bytes().into()
    }

    /// Set: the offsets that a SKU fits, and 0.
    pub fn set(&self, sku: &Sku) -> Vec<u8> {
        [&self.0, ":s:", sku.as_str()].concat().into_bytes()
    }

    /// Bitmap: those of one segment. A SKU may have any name, so it stands last.
    pub fn bitmap(&self, sku: &Sku, segment: u32) -> Vec<u8> {
        format!("{}:{segment}:{sku}", self.0).into_bytes()
    }
}

/// The place of a SKU's route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteBucket {
    /// The hash tag, less than [`ROUTE_TAGS`]. What has the same tag can be asked for in one call.
    pub tag: u64,
    bucket: u64,
}

impl RouteBucket {
    /// That of `sku`.
    pub fn for_sku(sku: &Sku) -> Self {
        let hash = stable_hash(sku.as_str().as_bytes());
        Self {
            tag: hash % ROUTE_TAGS,
            bucket: hash / ROUTE_TAGS % ROUTE_BUCKETS,
        }
    }

    /// One of all [`ROUTE_TAGS`] × [`ROUTE_BUCKETS`], by its number; behind the last one the first one follows.
    pub fn nth(number: u64) -> Self {
        Self {
            tag: number % ROUTE_TAGS,
            bucket: number / ROUTE_TAGS % ROUTE_BUCKETS,
        }
    }

    /// The number by which it is the [nth](Self::nth).
    pub fn number(self) -> u64 {
        self.bucket * ROUTE_TAGS + self.tag
    }

    /// Hash: SKU to its route, see `fit_route_put.lua`.
    pub fn key(self, prefix: &str) -> Vec<u8> {
        let Self { tag, bucket } = self;
        format!("{prefix}:fit:route:{{{tag}}}:{bucket}").into_bytes()
    }
}

/// The keys of the map of vehicles, in one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VehicleMapKeys(String);

impl VehicleMapKeys {
    /// Those behind this prefix.
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

/// Hash: pages of what fits a vehicle, see `fit_browse.lua`.
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
    fn every_bucket_has_a_number() {
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
    fn routes_spread_and_stay_where_they_are() {
        let of = |name: &str| RouteBucket::for_sku(&Sku::new(name).unwrap()).key("w");
        assert_eq!(of("100012043978"), b"w:fit:route:{8}:14170");
        let tags: BTreeSet<u64> = (0..200_u32)
            .map(|number| RouteBucket::for_sku(&Sku::new(format!("{number}")).unwrap()).tag)
            .collect();
        assert_eq!(tags.len() as u64, ROUTE_TAGS);
    }
}
