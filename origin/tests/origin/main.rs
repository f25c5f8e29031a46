//! The origin's tests: real SQLite files, a real Redis, real processes. One binary, so that all
//! share one Redis.

mod auth;
mod openapi;
mod orders;
mod payments;
mod process;
mod reconcile;
mod risk;
mod sales;
mod store;
mod support;
mod switches;
mod warm;
