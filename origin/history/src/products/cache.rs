//! A product cache of bounded size, in two generations. When the younger generation is full, it becomes the older one,
//! and unused entries are dropped. This needs no list of uses.

use std::collections::HashMap;

use weir_history::Sku;

use crate::model::products::Product;

/// The cached product and its expiry, in milliseconds since the Unix epoch.
type Entry = (Option<Product>, u64);

#[derive(Debug)]
pub(super) struct Cache {
    young: HashMap<Sku, Entry>,
    old: HashMap<Sku, Entry>,
    /// Maximum number of entries in each generation.
    max: usize,
    life_ms: u64,
}

impl Cache {
    pub(super) fn new(max: usize, life_ms: u64) -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            max: max / 2,
            life_ms,
        }
    }

    /// The cached product; `Some(None)`: the product is known not to exist.
    pub(super) fn get(&mut self, sku: &Sku, now_ms: u64) -> Option<Option<Product>> {
        let is_young = |entry: &&Entry| now_ms < entry.1;
        if let Some(entry) = self.young.get(sku).filter(is_young) {
            return Some(entry.0.clone());
        }
        let entry = self.old.remove(sku)?;
        if now_ms >= entry.1 {
            return None;
        }
        self.insert(sku.clone(), entry.clone());
        Some(entry.0)
    }

    pub(super) fn put(&mut self, sku: Sku, product: Option<Product>, now_ms: u64) {
        self.old.remove(&sku);
        self.insert(sku, (product, now_ms.saturating_add(self.life_ms)));
    }

    pub(super) fn remove(&mut self, sku: &Sku) {
        self.young.remove(sku);
        self.old.remove(sku);
    }

    fn insert(&mut self, sku: Sku, entry: Entry) {
        if self.max == 0 {
            return;
        }
        if self.young.len() >= self.max && !self.young.contains_key(&sku) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(sku, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(title: &str) -> Option<Product> {
        Some(Product {
            title: Some(title.to_owned()),
            ..Product::default()
        })
    }

    #[test]
    fn product_is_cached_for_its_ttl_even_when_unknown() {
        let mut cache = Cache::new(10, 100);
        cache.put(Sku::from(1), product("one"), 0);
        cache.put(Sku::from(2), None, 0);
        assert_eq!(cache.get(&Sku::from(1), 99), Some(product("one")));
        assert_eq!(cache.get(&Sku::from(2), 99), Some(None));
        assert_eq!(cache.get(&Sku::from(3), 99), None);
        assert_eq!(cache.get(&Sku::from(1), 100), None);
        cache.put(Sku::from(1), product("uno"), 100);
        cache.remove(&Sku::from(1));
        assert_eq!(cache.get(&Sku::from(1), 100), None);
    }

    #[test]
    fn product_cache_is_bounded_and_keeps_entries_in_use() {
        let mut cache = Cache::new(10, 100);
        for number in 0..1_000 {
            cache.put(Sku::from(number), None, 0);
            assert!(cache.young.len() + cache.old.len() <= 10);
            assert_eq!(cache.get(&Sku::from(0), 0), Some(None), "{number}");
        }
        let mut none = Cache::new(0, 100);
        none.put(Sku::from(1), None, 0);
        assert_eq!(none.get(&Sku::from(1), 0), None);
    }
}
