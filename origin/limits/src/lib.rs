//! Limits: the rules that gateways read from Redis, and what gateways tell of refusals there. What else a gateway has stands in its
//! own configuration, which the origin does not know.

#![forbid(unsafe_code)]

pub mod http;
mod refusals;
