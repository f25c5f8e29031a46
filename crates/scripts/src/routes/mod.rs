//! HTTP routes between gateways and the origin, which both must spell alike.

#[cfg(feature = "link")]
mod link;

#[cfg(feature = "link")]
pub use link::{LINK_FOLLOW, LINK_RECORD, link_purpose, link_record};

/// Where gateway and origin answer which SKUs fit which vehicles: see [`weir_fitment::check`].
#[cfg(feature = "fitment")]
pub const FITMENT_CHECK: &str = "/fitment/check";

/// Where they answer which SKUs fit a vehicle, page by page.
#[cfg(feature = "fitment")]
pub const FITMENT_SKUS: &str = "/fitment/skus";
