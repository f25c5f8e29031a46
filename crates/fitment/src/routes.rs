//! HTTP routes that gateways and the origin share.

/// The route for fitment queries: see [`check`](crate::check).
pub const FITMENT_CHECK: &str = "/fitment/check";

/// The route for the SKUs that fit a vehicle, page by page.
pub const FITMENT_SKUS: &str = "/fitment/skus";
