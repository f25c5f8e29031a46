//! JSON documents in Redis that the origin writes and gateways poll: writer beside reader.
//!
//! The rules of rate limits are not here: operators write them by hand, and `weir_limit::rules` reads them.

pub mod catalogue;
pub mod domains;
