//! The origin's tests: real SQLite files, a real Redis, real processes. One binary, so that all
//! share one Redis.

mod auth;
mod orders;
mod process;
mod reconcile;
mod sales;
mod store;
mod support;
mod warm;
