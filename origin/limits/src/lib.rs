//! Rate limits: the rules that gateways read from Redis, and the refusal counts that they write there. All other limit
//! settings are part of a gateway's configuration, which the origin does not read.

#![forbid(unsafe_code)]

pub mod http;
mod refusals;
