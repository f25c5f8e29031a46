//! What has come of a link's clicks. Who knows is found at start-up: links know nothing of orders.

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

/// Orders, when they are found.
pub type ConversionsFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Conversions, SqlError>> + Send + 'a>>;

/// Knows which orders came of which clicks.
pub trait Orders: fmt::Debug + Send + Sync {
    /// Those that were made from `from_ms` until before `until_ms`.
    fn of_link<'a>(
        &'a self,
        link: &'a LinkId,
        from_ms: u64,
        until_ms: u64,
    ) -> ConversionsFuture<'a>;
}
