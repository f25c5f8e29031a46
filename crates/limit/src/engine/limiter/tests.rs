//! Tests of the engine without a real host: they send events and check the effects.

mod early;
mod failures;
mod fake_redis;
mod host;
mod in_flight;
mod local;
mod redis;
mod reload;
mod report;
