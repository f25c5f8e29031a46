//! Documents that the origin writes and gateways read, in Redis or over HTTP: writer beside reader.
//!
//! The rules of rate limits are not here: operators write them by hand, and `weir_limit::rules` reads them.

#[cfg(feature = "sale")]
pub mod catalogue;
#[cfg(feature = "link")]
pub mod domains;
#[cfg(feature = "link")]
pub mod link;
