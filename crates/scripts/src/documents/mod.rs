//! JSON documents in Redis that the origin writes and gateways poll: writer beside reader.
//!
//! The rules of rate limits are not here: operators write them by hand, and `weir_limit::rules` reads them.

#[cfg(feature = "sale")]
pub mod catalogue;
#[cfg(feature = "link")]
pub mod domains;
