//! Finds mistakes in a set-up of Weir, and reports how to fix them.
//!
//! ```text
//! Envoy's configuration ──┐
//! the origin's settings ──┼─▶ examine ─▶ findings: place, problem, fix
//! facts of Redis and SQL ─┘
//! ```
//!
//! Envoy checks that a configuration is well formed, and each filter refuses invalid settings. Mistakes between the
//! parts remain: a route that leads elsewhere, a secret that differs, a missing bridge. From outside, their symptoms
//! look alike or do not show, so each has a check here.
//!
//! | module | does |
//! |---|---|
//! | [`envoy`] | Envoy's configuration as a tree: a file, or a dump of the admin port |
//! | [`facts`] | facts about the origin, Redis, SQL, and the gateway's environment |
//! | [`diagnostic`] | findings |
//! | `filters` | Weir's filters in that tree, with their parsed settings |
//! | `route` | resolves the route of a request |
//! | `checks` | the checks, one file per subject |
//!
//! This crate uses no files, sockets or clocks. The caller collects the facts; the origin's command `doctor` does.

#![forbid(unsafe_code)]

mod checks;
pub mod diagnostic;
pub mod envoy;
pub mod facts;
mod filters;
mod place;
mod route;
mod tree;

pub use checks::{Subject, examine, redis_logins, redis_tls, uses_redis};
pub use diagnostic::{Diagnostic, Severity};
pub use envoy::Envoy;

#[cfg(test)]
mod tests;
