//! Where links and sales meet: the click that an order came of, and the orders that came of a link's clicks.

use std::sync::Arc;

use weir_base::key::KeyRing;
use weir_link::click_tag::ClickTag;
use weir_link::code::LinkId;

use crate::clock::now_ms;
use crate::links::conversions::{Conversions, Found, Orders};
use crate::sales::click::{OrderClick, ReadClick};
use crate::sales::store::SaleStore;

/// How far a gateway's clock may be ahead, in milliseconds.
const SKEW_MS: u64 = 5 * 60 * 1000;

/// Reads the names of clicks that these keys have signed, and that are not older than `window_ms`.
pub fn reader(keys: KeyRing, window_ms: u64) -> ReadClick {
    Arc::new(move |text| {
        let tag = ClickTag::read(&keys, text).ok()?;
        let now_ms = now_ms();
        let is_young = tag.at_ms <= now_ms.saturating_add(SKEW_MS)
            && now_ms.saturating_sub(tag.at_ms) <= window_ms;
        is_young.then(|| OrderClick {
            link: tag.link.to_string(),
            id: tag.name(),
        })
    })
}

/// The orders of these sales, by the links that they came of.
#[derive(Debug)]
pub struct OrdersOfLinks(pub SaleStore);

impl Orders for OrdersOfLinks {
    fn of_link<'a>(&'a self, link: &'a LinkId, from_ms: u64, until_ms: u64) -> Found<'a> {
        Box::pin(async move {
            let link = link.to_string();
            let sums = self.0.orders_of_click_link(&link, from_ms, until_ms);
            let sums = sums.await?;
            Ok(Conversions {
                clicks: sums.clicks,
                orders: sums.orders,
                units: sums.units,
                paid_orders: sums.paid_orders,
                paid_units: sums.paid_units,
                revenue: sums.revenue,
            })
        })
    }
}
