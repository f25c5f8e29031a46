//! The sold-out feed: the gateways' catalogue of sales, for edges.
//!
//! A sale without units in SQL is *sold out*: [`SaleList::sold_out`]. Units may come back, so the list is valid for a
//! few seconds only. An edge without a valid list refuses no request and forwards all of them to a gateway.

use alloc::string::String;

use crate::sale::{Band, Catalogue, Sale};
use serde::{Deserialize, Serialize};

use weir_base::feed::DocumentRejection;
use weir_base::feed::document::{Content, Document, check_time, is_current};

/// The default validity of a list, in milliseconds.
pub const FRESH_MS: u64 = 5_000;

/// The maximum validity of a list, in milliseconds.
pub const FRESH_MS_MAX: u64 = 60_000;

/// The edges' data on sales.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaleList {
    /// The validity of the list, in milliseconds.
    pub fresh_ms: u64,
    /// The sales.
    pub catalogue: Catalogue,
    /// The key prefix of shards, if the stock of all sales is in Durable Objects of an edge. Such an edge sells from
    /// these objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stock_in_objects: Option<String>,
}

impl Content for SaleList {
    const KIND: &'static str = "sold-out";
}

impl SaleList {
    /// The sales without units.
    pub fn sold_out(&self) -> impl Iterator<Item = &Sale> {
        let sales = self.catalogue.sales.iter();
        sales.filter(|sale| sale.band == Band::None)
    }
}

/// The edge's current list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SaleListCache(Option<Document<SaleList>>);

impl SaleListCache {
    /// Stores a list that is newer than the current one.
    ///
    /// # Errors
    /// When it is older or from the future: the current list remains.
    pub fn take(&mut self, list: Document<SaleList>, now_ms: u64) -> Result<(), DocumentRejection> {
        check_time(list.at_ms, now_ms)?;
        let order = |list: &Document<SaleList>| (list.body.catalogue.version, list.at_ms);
        if let Some(existing) = &self.0
            && order(&list) <= order(existing)
        {
            return Err(DocumentRejection::Older);
        }
        self.0 = Some(list);
        Ok(())
    }

    /// The list while it is valid.
    pub fn current(&self, now_ms: u64) -> Option<&SaleList> {
        let list = self.0.as_ref()?;
        let fresh_ms = list.body.fresh_ms.min(FRESH_MS_MAX);
        is_current(list.at_ms, fresh_ms, now_ms).then_some(&list.body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(version: u64, at_ms: u64) -> Document<SaleList> {
        let catalogue = Catalogue {
            version,
            ..Catalogue::default()
        };
        let body = SaleList {
            fresh_ms: FRESH_MS,
            catalogue,
            stock_in_objects: None,
        };
        Document { at_ms, body }
    }

    fn version(cache: &SaleListCache, now_ms: u64) -> Option<u64> {
        cache.current(now_ms).map(|list| list.catalogue.version)
    }

    #[test]
    fn sale_list_is_valid_for_a_while_and_older_ones_are_ignored() {
        let mut cache = SaleListCache::default();
        assert_eq!(version(&cache, 0), None);
        cache.take(list(2, 10_000), 10_000).unwrap();
        assert_eq!(version(&cache, 15_000), Some(2));
        assert_eq!(version(&cache, 15_001), None);
        for older in [list(1, 20_000), list(2, 10_000), list(2, 9_999)] {
            assert_eq!(cache.take(older, 20_000), Err(DocumentRejection::Older));
        }
        cache.take(list(2, 20_000), 20_000).unwrap();
        assert_eq!(version(&cache, 20_000), Some(2));
        assert_eq!(
            cache.take(list(3, 30_000), 20_000),
            Err(DocumentRejection::Future)
        );
        assert_eq!(version(&cache, 4_000), None, "the clock was set back");
    }

    #[test]
    fn sale_list_freshness_is_capped_at_the_maximum() {
        let mut cache = SaleListCache::default();
        let mut long = list(1, 0);
        long.body.fresh_ms = u64::MAX;
        cache.take(long, 0).unwrap();
        assert_eq!(version(&cache, FRESH_MS_MAX), Some(1));
        assert_eq!(version(&cache, FRESH_MS_MAX + 1), None);
    }

    proptest! {
        /// Lists in any order, with repetitions, never replace a newer list by an older one.
        #[test]
        fn older_sale_list_never_replaces_a_newer_one(lists in prop::collection::vec((0_u64..5, 0_u64..5), 0..30)) {
            let mut cache = SaleListCache::default();
            let mut last = 0;
            for (number, at_ms) in lists {
                let _ = cache.take(list(number, at_ms), 5);
                if let Some(version) = version(&cache, 5) {
                    prop_assert!(version >= last);
                    last = version;
                }
            }
        }
    }
}
