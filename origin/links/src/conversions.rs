//! Orders attributed to a link's clicks. The orders module is connected at start-up, so links do not depend on it.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

use serde::Serialize;
use utoipa::ToSchema;
use weir_link::code::LinkId;

use weir_origin_core::sql::SqlError;

/// Orders attributed to a link's clicks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Conversions {
    /// Clicks with at least one order.
    pub clicks: u64,
    /// Orders.
    pub orders: u64,
    /// Their units.
    pub units: u64,
    /// Paid orders.
    pub paid_orders: u64,
    /// Their units.
    pub paid_units: u64,
    /// Revenue by currency, in its smallest unit; orders without a price count as 0.
    pub revenue: BTreeMap<String, u64>,
}

/// Future of a lookup of orders.
pub type ConversionsFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Conversions, SqlError>> + Send + 'a>>;

/// Finds the orders attributed to clicks.
pub trait Orders: fmt::Debug + Send + Sync {
    /// Orders created from `from_ms` to before `until_ms`.
    fn of_link<'a>(
        &'a self,
        link: &'a LinkId,
        from_ms: u64,
        until_ms: u64,
    ) -> ConversionsFuture<'a>;
}
