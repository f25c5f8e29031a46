//! Finds what is wrong with a set-up of Weir, and says how to mend it.
//!
//! ```text
//! Envoy's configuration ──┐
//! the origin's settings ──┼─▶ examine ─▶ findings: where, what is wrong, what to do
//! what Redis and SQL say ─┘
//! ```
//!
//! Envoy checks that a configuration is well formed, and each filter refuses settings that make no sense. What is left are
//! mistakes between the parts: a route that leads elsewhere, a secret that differs, a bridge that is not there. They look
//! alike from outside, or not at all, so each has a check here.
//!
//! | module | does |
//! |---|---|
//! | [`envoy`] | Envoy's configuration as a tree: a file, or what the admin port tells |
//! | [`facts`] | what is known of the origin, of Redis, of SQL, and of the gateway's environment |
//! | [`diagnostic`] | what was found |
//! | `filters` | Weir's filters in that tree, with their settings as their engines read them |
//! | `route` | where a request would go |
//! | `checks` | the checks, a file for each subject |
//!
//! What is absent: files, sockets and clocks. Whoever calls brings the facts; the origin's command `doctor` does.

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
