//! Lists of views: merged, less what was removed, in pages, with each product once.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Ordering;

use crate::Sku;

/// A product and when it was last seen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ViewedProduct {
    /// The product.
    pub sku: Sku,
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: u64,
}

impl ViewedProduct {
    /// The order of lists: the newest first; at the same time the greater name first, as Redis has it.
    pub fn newest_first(&self, other: &Self) -> Ordering {
        (other.at_ms, &other.sku).cmp(&(self.at_ms, &self.sku))
    }
}

/// What Redis has of an owner's removals and cold list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoadedLists {
    /// Nothing: views may be there that were removed, and must not be shown.
    #[default]
    Nothing,
    /// All removals.
    Removals,
    /// All removals, and the cold list as far as there was room.
    All,
}

/// The outcome of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewOutcome {
    /// It was deleted or cleared before: nothing changed.
    Removed,
    /// It is the latest view of its product.
    Latest,
    /// A later view of its product is known, or this very one: nothing changed.
    Known,
}

/// What a user has taken away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removals {
    /// All views up to then; 0: none.
    pub cleared_ms: u64,
    /// Views of these products up to then.
    pub deleted: BTreeMap<Sku, u64>,
}

impl Removals {
    /// Whether this view is away.
    pub fn cover(&self, seen: &ViewedProduct) -> bool {
        let deleted_ms = self.deleted.get(&seen.sku).copied();
        seen.at_ms <= self.cleared_ms.max(deleted_ms.unwrap_or(0))
    }

    /// Notes a deletion. What was deleted later already stays so.
    pub fn delete(&mut self, sku: Sku, at_ms: u64) {
        let known = self.deleted.entry(sku).or_default();
        *known = at_ms.max(*known);
    }
}

/// The list that comes of these views: each product at its latest view, less `removals` and what is not newer than
/// `oldest_ms`, the newest `max` of them.
pub fn merge(
    views: impl IntoIterator<Item = ViewedProduct>,
    removals: &Removals,
    oldest_ms: u64,
    max: usize,
) -> Vec<ViewedProduct> {
    let mut latest: BTreeMap<Sku, u64> = BTreeMap::new();
    for seen in views {
        if seen.at_ms > oldest_ms && !removals.cover(&seen) {
            let known = latest.entry(seen.sku).or_default();
            *known = seen.at_ms.max(*known);
        }
    }
    let seen = |(sku, at_ms)| ViewedProduct { sku, at_ms };
    let mut list: Vec<ViewedProduct> = latest.into_iter().map(seen).collect();
    list.sort_unstable_by(ViewedProduct::newest_first);
    list.truncate(max);
    list
}

/// The items of which none before has the same key: of the variants of a product, the one that was seen last. An item
/// without a key is like no other.
pub fn unique_by<T, K: Ord>(items: Vec<T>, key: impl Fn(&T) -> Option<K>) -> Vec<T> {
    let mut known = BTreeSet::new();
    let is_new = |item: &T| key(item).is_none_or(|key| known.insert(key));
    items.into_iter().filter(is_new).collect()
}

/// How many products a user is told: as many as there are, and no more than there may be.
pub fn count(products: usize, max: usize) -> usize {
    products.min(max)
}

/// The place in a list after which a page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListCursor {
    /// After views of this time,
    pub at_ms: u64,
    /// and of this product, if it is set: else after all of that time.
    pub sku: Option<Sku>,
}

impl ListCursor {
    /// Reads `<ms>` or `<ms>,<sku>`.
    pub fn read(text: &str) -> Option<Self> {
        let (at_ms, sku) = match text.split_once(',') {
            Some((at_ms, sku)) => (at_ms, Some(Sku::new(sku).ok()?)),
            None => (text, None),
        };
        let is_plain = at_ms.bytes().all(|byte| byte.is_ascii_digit());
        let at_ms = at_ms.parse().ok().filter(|_| is_plain)?;
        Some(Self { at_ms, sku })
    }

    /// Whether this view comes after it.
    pub fn is_before(&self, seen: &ViewedProduct) -> bool {
        match (&self.sku, seen.at_ms.cmp(&self.at_ms)) {
            (_, Ordering::Less) => true,
            (Some(sku), Ordering::Equal) => seen.sku < *sku,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::vec;
    use proptest::collection::vec as vec_of;
    use proptest::prelude::*;

    fn seen((sku, at_ms): (u64, u64)) -> ViewedProduct {
        let sku = Sku::from(sku);
        ViewedProduct { sku, at_ms }
    }

    fn list(pairs: &[(u64, u64)]) -> Vec<ViewedProduct> {
        pairs.iter().copied().map(seen).collect()
    }

    #[test]
    fn a_list_has_each_product_once_at_its_latest_view() {
        let views = list(&[(1, 10), (2, 20), (1, 30), (3, 5), (4, 20)]);
        let merged = merge(views.clone(), &Removals::default(), 0, 9);
        assert_eq!(merged, list(&[(1, 30), (4, 20), (2, 20), (3, 5)]));
        assert_eq!(merge(views, &Removals::default(), 5, 2).len(), 2);
    }

    #[test]
    fn what_was_removed_counts_again_only_when_it_is_newer() {
        let mut removals = Removals::default();
        removals.delete(Sku::from(1), 30);
        removals.delete(Sku::from(1), 20);
        removals.cleared_ms = 10;
        let views = list(&[(1, 30), (1, 31), (2, 10), (3, 11)]);
        assert_eq!(merge(views, &removals, 0, 9), list(&[(1, 31), (3, 11)]));
    }

    #[test]
    fn of_the_variants_of_a_product_the_last_one_stays() {
        let items = vec![("a", Some(1)), ("b", None), ("c", Some(1)), ("d", None)];
        let unique = unique_by(items, |item| item.1);
        assert_eq!(unique, [("a", Some(1)), ("b", None), ("d", None)]);
        assert_eq!((count(7, 200), count(201, 200)), (7, 200));
    }

    #[test]
    fn a_place_is_a_time_and_maybe_a_product() {
        let place = ListCursor::read("20,a,b").unwrap();
        assert_eq!(place.sku, Some(Sku::new("a,b").unwrap()));
        for none in ["", "x", "+1", "-1", "1,", "99999999999999999999", ",a"] {
            assert_eq!(ListCursor::read(none), None, "{none}");
        }
    }

    proptest! {
        /// In whatever order views come, once or twice, alone or merged before: the list is the same.
        #[test]
        fn merging_is_idempotent_and_knows_no_order(
            pairs in vec_of((0..8_u64, 1..60_u64), 0..40),
            split in 0..40_usize,
            deleted in vec_of((0..8_u64, 1..60_u64), 0..6),
            cleared_ms in 0..30_u64,
            max in 1..9_usize,
        ) {
            let mut removals = Removals { cleared_ms, ..Removals::default() };
            deleted.iter().for_each(|(sku, at_ms)| removals.delete(Sku::from(*sku), *at_ms));
            let whole = merge(list(&pairs), &removals, 3, max);
            let (left, right) = pairs.split_at(split.min(pairs.len()));
            let left = merge(list(left), &Removals::default(), 0, usize::MAX);
            let parts = list(right).into_iter().rev().chain(left).chain(whole.clone());
            prop_assert_eq!(&merge(parts, &removals, 3, max), &whole);
            prop_assert!(whole.iter().all(|seen| !removals.cover(seen)));
        }

        /// Pages that follow each other are the list.
        #[test]
        fn pages_leave_nothing_out(pairs in vec_of((0..20_u64, 1..6_u64), 0..30), size in 1..7_usize) {
            let whole = merge(list(&pairs), &Removals::default(), 0, 200);
            let (mut pages, mut place): (Vec<ViewedProduct>, Option<ListCursor>) = (vec![], None);
            loop {
                let rest = whole.iter().filter(|seen| place.as_ref().is_none_or(|place| place.is_before(seen)));
                let page: Vec<ViewedProduct> = rest.take(size).cloned().collect();
                let Some(last) = page.last() else { break };
                place = ListCursor::read(&format!("{},{}", last.at_ms, last.sku));
                pages.extend(page);
            }
            prop_assert_eq!(pages, whole);
        }
    }
}
