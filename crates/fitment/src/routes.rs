//! HTTP routes between gateways and the origin, which both must spell alike.

/// Where gateway and origin answer which SKUs fit which vehicles: see [`check`](crate::check).
pub const FITMENT_CHECK: &str = "/fitment/check";

/// Where they answer which SKUs fit a vehicle, page by page.
pub const FITMENT_SKUS: &str = "/fitment/skus";
