//! Parts that all domains of the origin share. They are independent of the domains.
//!
//! | module | contents |
//! |---|---|
//! | [`sql`] | SQLite, MySQL or PostgreSQL: pools, transactions, statements, retries, migrations |
//! | [`redis`] | connections, script calls, errors by whether they had an effect |
//! | [`http`] | servers, request bodies, problems, CORS, pages, an HTTP client |
//! | [`background`] | loops that run until shutdown |
//! | [`outbox`] | changes, stored in SQL and sent in order |
//! | [`access`] | keys, sessions and scopes of the admin routes, and the audit trail |
//! | [`tenants`] | tenants of the origin and their limits |
//! | [`gateways`] | what gateways report about themselves, and how they differ |
//! | [`metrics`], [`traces`] | Prometheus metrics, OpenTelemetry spans |
//! | [`clock`], [`disk`], [`failure`], [`secret`], [`json_schema`], [`unavailable`] | smaller parts |

#![forbid(unsafe_code)]

pub mod access;
pub mod api;
pub mod background;
pub mod clock;
pub mod disk;
pub mod failure;
pub mod gateways;
pub mod http;
pub mod json_schema;
pub mod metrics;
pub mod outbox;
mod process;
pub mod redis;
pub mod secret;
pub mod sql;
pub mod tenants;
pub mod traces;
pub mod unavailable;

/// SQL migrations of keys, the audit trail, tenants, settings and the outbox.
pub const MIGRATIONS: sql::Migrations =
    crate::migrations!("core", (1, "baseline", "0001_baseline"));
