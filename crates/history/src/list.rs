//! Lists of views: merging, removals, and pages.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Ordering;

use crate::Sku;

/// A product and the time of its last view.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ViewedProduct {
    /// The product.
    pub sku: Sku,
    /// The time, in milliseconds since the Unix epoch.
    pub at_ms: u64,
}

impl ViewedProduct {
    /// The order of lists: the newest first. At equal times, the greater name comes first, as in Redis.
    pub fn newest_first(&self, other: &Self) -> Ordering {
        (other.at_ms, &other.sku).cmp(&(self.at_ms, &self.sku))
    }
}

/// Which of an owner's removals and cold list are in Redis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoadedLists {
    /// Nothing: the list may contain removed views, and must not be shown.
    #[default]
    Nothing,
    /// All removals.
    Removals,
    /// All removals, and as much of the cold list as fits.
    All,
}

/// The outcome of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewOutcome {
    /// It was deleted or cleared before: no change.
    Removed,
    /// It is the latest view of its product.
    Latest,
    /// The list has this or a later view of the product: no change.
    Known,
}

/// The views that a user has removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removals {
    /// All views up to this time, in milliseconds since the Unix epoch; 0: none.
    pub cleared_ms: u64,
    /// Views of these products up to this time.
    pub deleted: BTreeMap<Sku, u64>,
}

impl Removals {
    /// Whether this view is removed.
    pub fn cover(&self, viewed: &ViewedProduct) -> bool {
        let deleted_ms = self.deleted.get(&viewed.sku).copied();
        viewed.at_ms <= self.cleared_ms.max(deleted_ms.unwrap_or(0))
    }

    /// Adds a deletion. A later deletion of the same product stays.
    pub fn delete(&mut self, sku: Sku, at_ms: u64) {
        let existing = self.deleted.entry(sku).or_default();
        *existing = at_ms.max(*existing);
    }
}

/// The list of these views: each product at its latest view, without `removals` and views not newer than `oldest_ms`,
/// limited to the newest `max`.
pub fn merge(
    views: impl IntoIterator<Item = ViewedProduct>,
    removals: &Removals,
    oldest_ms: u64,
    max: usize,
) -> Vec<ViewedProduct> {
    let mut latest: BTreeMap<Sku, u64> = BTreeMap::new();
    for viewed in views {
        if viewed.at_ms > oldest_ms && !removals.cover(&viewed) {
            let existing = latest.entry(viewed.sku).or_default();
            *existing = viewed.at_ms.max(*existing);
        }
    }
    let viewed = |(sku, at_ms)| ViewedProduct { sku, at_ms };
    let mut list: Vec<ViewedProduct> = latest.into_iter().map(viewed).collect();
    list.sort_unstable_by(ViewedProduct::newest_first);
    list.truncate(max);
    list
}

/// Keeps the first item per key: of the variants of a product, the last viewed. Items without a key are all kept.
pub fn unique_by<T, K: Ord>(items: Vec<T>, key: impl Fn(&T) -> Option<K>) -> Vec<T> {
    let mut existing = BTreeSet::new();
    let is_new = |item: &T| key(item).is_none_or(|key| existing.insert(key));
    items.into_iter().filter(is_new).collect()
}

/// The number of products shown to a user, at most `max`.
pub fn count(products: usize, max: usize) -> usize {
    products.min(max)
}

/// The position in a list after which a page starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListCursor {
    /// After views of this time.
    pub at_ms: u64,
    /// After this product at that time; `None`: after all products of that time.
    pub sku: Option<Sku>,
}

impl ListCursor {
    /// Parses `<ms>` or `<ms>,<sku>`.
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
    pub fn is_before(&self, viewed: &ViewedProduct) -> bool {
        match (&self.sku, viewed.at_ms.cmp(&self.at_ms)) {
            (_, Ordering::Less) => true,
            (Some(sku), Ordering::Equal) => viewed.sku < *sku,
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

    fn viewed((sku, at_ms): (u64, u64)) -> ViewedProduct {
        let sku = Sku::from(sku);
        ViewedProduct { sku, at_ms }
    }

    fn list(pairs: &[(u64, u64)]) -> Vec<ViewedProduct> {
        pairs.iter().copied().map(viewed).collect()
    }

    #[test]
    fn list_has_each_product_once_at_its_latest_view() {
        let views = list(&[(1, 10), (2, 20), (1, 30), (3, 5), (4, 20)]);
        let merged = merge(views.clone(), &Removals::default(), 0, 9);
        assert_eq!(merged, list(&[(1, 30), (4, 20), (2, 20), (3, 5)]));
        assert_eq!(merge(views, &Removals::default(), 5, 2).len(), 2);
    }

    #[test]
    fn removed_product_returns_only_with_a_newer_view() {
        let mut removals = Removals::default();
        removals.delete(Sku::from(1), 30);
        removals.delete(Sku::from(1), 20);
        removals.cleared_ms = 10;
        let views = list(&[(1, 30), (1, 31), (2, 10), (3, 11)]);
        assert_eq!(merge(views, &removals, 0, 9), list(&[(1, 31), (3, 11)]));
    }

    #[test]
    fn only_last_viewed_variant_of_a_product_is_kept() {
        let items = vec![("a", Some(1)), ("b", None), ("c", Some(1)), ("d", None)];
        let unique = unique_by(items, |item| item.1);
        assert_eq!(unique, [("a", Some(1)), ("b", None), ("d", None)]);
        assert_eq!((count(7, 200), count(201, 200)), (7, 200));
    }

    #[test]
    fn list_cursor_is_a_time_and_an_optional_sku() {
        let place = ListCursor::read("20,a,b").unwrap();
        assert_eq!(place.sku, Some(Sku::new("a,b").unwrap()));
        for none in ["", "x", "+1", "-1", "1,", "99999999999999999999", ",a"] {
            assert_eq!(ListCursor::read(none), None, "{none}");
        }
    }

    proptest! {
        /// The result does not depend on the order, on duplicates or on earlier merges.
        #[test]
        fn merge_is_idempotent_and_independent_of_order(
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
            prop_assert!(whole.iter().all(|viewed| !removals.cover(viewed)));
        }

        /// Consecutive pages give the whole list.
        #[test]
        fn pages_cover_the_whole_list(pairs in vec_of((0..20_u64, 1..6_u64), 0..30), size in 1..7_usize) {
            let whole = merge(list(&pairs), &Removals::default(), 0, 200);
            let (mut pages, mut place): (Vec<ViewedProduct>, Option<ListCursor>) = (vec![], None);
            loop {
                let rest = whole.iter().filter(|viewed| place.as_ref().is_none_or(|place| place.is_before(viewed)));
                let page: Vec<ViewedProduct> = rest.take(size).cloned().collect();
                let Some(last) = page.last() else { break };
                place = ListCursor::read(&format!("{},{}", last.at_ms, last.sku));
                pages.extend(page);
            }
            prop_assert_eq!(pages, whole);
        }
    }
}
