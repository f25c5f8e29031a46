//! Tenants: those who share one origin, each with keys and limits of its own.
//!
//! | module | does |
//! |---|---|
//! | [`limits`] | how much a tenant may have |
//! | [`name`] | what a tenant is called, and what is its own by being called after it |
//! | [`store`] | tenants in SQL |
//!
//! A sale and a waiting room are a tenant's if their names begin with its own, `acme--`; a link is if its domain is. So nothing
//! needs a column to tell whose it is, and Redis, metrics, logs and messages to others tell it, too. No domain of the origin knows
//! tenants but by this: which names a caller may use, and how much there may be of what.

pub mod limits;
pub mod name;
pub mod store;

pub use limits::{LimitExceeded, Limits};
pub use name::{NameRange, TenantName};
pub use store::held_by;
pub use store::{Count, Counts, TenantStore};

/// The most tenants of one origin: each may have connections, keys and memory.
pub const TENANTS_MAX: u64 = 1_000;

/// The most domains of one tenant.
pub const DOMAINS_MAX: usize = 20;

/// Somebody who shares the origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its name.
    pub name: TenantName,
    /// What people call it.
    pub title: String,
    /// The domains of its links, sorted.
    pub domains: Vec<String>,
    /// How much it may have.
    pub limits: Limits,
    /// When it was made, in milliseconds since the Unix epoch.
    pub created_at_ms: u64,
    /// When it was last changed.
    pub changed_at_ms: u64,
}
