//! A cache of the locations of SKUs.
//!
//! An entry may be outdated, because products move. That costs one more lookup, but never gives a wrong answer: if the
//! SKU is absent at the cached location, its route is read.

use core::mem;

use crate::{Placement, Sku};
use hashbrown::HashMap;

/// The cache has two generations: when the younger one is full, the older one is dropped. A lookup moves a SKU to the
/// younger one.
#[derive(Debug)]
pub(crate) struct PlacementCache {
    young: HashMap<Sku, Placement>,
    old: HashMap<Sku, Placement>,
    /// Maximum entries of a generation.
    each_max: usize,
}

impl PlacementCache {
    /// A cache for up to `places_max` SKUs.
    pub(crate) fn new(places_max: usize) -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            each_max: places_max / 2,
        }
    }

    /// The cached location of `sku`.
    pub(crate) fn find(&mut self, sku: &Sku) -> Option<Placement> {
        if let Some(place) = self.young.get(sku) {
            return Some(place.clone());
        }
        let (sku, place) = self.old.remove_entry(sku)?;
        self.remember(sku, place.clone());
        Some(place)
    }

    /// Caches the location of `sku`.
    pub(crate) fn remember(&mut self, sku: Sku, place: Placement) {
        if self.each_max == 0 {
            return;
        }
        if self.young.len() >= self.each_max && !self.young.contains_key(&sku) {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(sku, place);
    }

    /// Removes the outdated location of `sku`.
    pub(crate) fn forget(&mut self, sku: &Sku) {
        self.young.remove(sku);
        self.old.remove(sku);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cluster, Spu};
    use std::format;

    fn sku(number: usize) -> Sku {
        Sku::new(format!("S{number}")).unwrap()
    }

    fn place(spu: &str) -> Placement {
        Placement {
            cluster: Cluster::home(),
            spu: Spu::new(spu).unwrap(),
        }
    }

    #[test]
    fn placement_cache_keeps_used_entries_and_is_bounded() {
        let mut places = PlacementCache::new(10);
        places.remember(sku(0), place("P"));
        for number in 1..1_000 {
            places.remember(sku(number), place("P"));
            assert_eq!(places.find(&sku(0)), Some(place("P")), "{number}");
            assert!(places.young.len() + places.old.len() <= 10);
        }
        assert_eq!(places.find(&sku(1)), None);
        places.forget(&sku(0));
        assert_eq!(places.find(&sku(0)), None);
    }

    #[test]
    fn latest_placement_wins_and_tiny_cache_stores_nothing() {
        let mut places = PlacementCache::new(2);
        places.remember(sku(1), place("P"));
        places.remember(sku(2), place("P"));
        places.remember(sku(1), place("Q"));
        assert_eq!(places.find(&sku(1)), Some(place("Q")));
        let mut none = PlacementCache::new(1);
        none.remember(sku(1), place("P"));
        assert_eq!(none.find(&sku(1)), None);
    }
}
