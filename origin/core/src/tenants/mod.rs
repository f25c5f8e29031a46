//! Tenants: organizations that share one origin, each with its own keys and limits.
//!
//! | module | contents |
//! |---|---|
//! | [`limits`] | the limits of a tenant |
//! | [`name`] | names of tenants, and of the objects that belong to them |
//! | [`store`] | tenants in SQL |
//!
//! A sale or waiting room belongs to a tenant if its name starts with the tenant's name and `--`, such as `acme--`. A
//! link belongs to the tenant of its domain. So tables need no tenant column, and Redis keys, metrics, logs and
//! webhooks show the tenant too. Domains use tenants only through the names that a caller may use and the limits.

pub mod limits;
pub mod name;
pub mod store;

pub use limits::{LimitExceeded, Limits};
pub use name::{NameRange, TenantName};
pub use store::held_by;
pub use store::{Count, Counts, TenantStore};

/// Maximum number of tenants per origin: each may use connections, keys and memory.
pub const TENANTS_MAX: u64 = 1_000;

/// Maximum number of link domains per tenant.
pub const DOMAINS_MAX: usize = 20;

/// A tenant of the origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its name.
    pub name: TenantName,
    /// Display name.
    pub title: String,
    /// Its link domains, sorted.
    pub domains: Vec<String>,
    /// Its limits.
    pub limits: Limits,
    /// Creation time, in milliseconds since the Unix epoch.
    pub created_at_ms: u64,
    /// Time of the last change, in milliseconds since the Unix epoch.
    pub changed_at_ms: u64,
}
