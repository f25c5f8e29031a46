//! The engine without a host: it is given events, and its effects are looked at.

mod failures;
mod fake_redis;
mod host;
mod in_flight;
mod local;
mod redis;
mod reload;
mod report;
