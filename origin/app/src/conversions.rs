//! Connects links and sales: the click that led to an order, and the orders that a link's clicks led to.

use std::sync::Arc;

use weir_base::key::KeyRing;
use weir_link::click_tag::ClickTag;
use weir_link::code::LinkId;

use crate::clock::now_ms;
use crate::config::{Config, Secrets};
use crate::links::conversions::{Conversions, ConversionsFuture, Orders};
use crate::origin::Origin;
use crate::sales::model::click::{OrderClick, ReadClick};
use crate::sales::store::SaleStore;

/// Maximum clock skew of a gateway, in milliseconds.
const SKEW_MS: u64 = 5 * 60 * 1000;

impl Origin {
    /// Records with each order the click that led to it. Accepts clicks signed with these keys and at most `window_ms`
    /// old. Call it after [`Origin::with_links`].
    #[must_use]
    pub fn with_conversions(self, keys: KeyRing, window_ms: u64) -> Self {
        let orders = Arc::new(OrdersOfLinks(self.sales().store().clone()));
        self.map_sales(|sales| sales.with_clicks(reader(keys, window_ms)))
            .map_links(|links| links.with_orders(orders))
    }
}

/// Enables conversions if their keys are set.
pub(crate) fn open(origin: Origin, config: &Config, secrets: &mut Secrets) -> Origin {
    match secrets.click_keys.take() {
        Some(keys) => origin.with_conversions(keys, config.links.link_click_window.ms),
        None => origin,
    }
}

/// Reads click ids signed with these keys and at most `window_ms` old.
fn reader(keys: KeyRing, window_ms: u64) -> ReadClick {
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

/// Orders of these sales, by the link that led to them.
#[derive(Debug)]
struct OrdersOfLinks(SaleStore);

impl Orders for OrdersOfLinks {
    fn of_link<'a>(
        &'a self,
        link: &'a LinkId,
        from_ms: u64,
        until_ms: u64,
    ) -> ConversionsFuture<'a> {
        Box::pin(async move {
            let link = link.to_string();
            let sums = self
                .0
                .clicks()
                .orders_of_click_link(&link, from_ms, until_ms);
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
