//! Limits of tenants.

use serde::{Deserialize, Serialize};

/// Maximum value of a limit; well below SQL's number range.
pub const LIMIT_MAX: u64 = 1_000_000_000_000;

/// Maximum request rate and concurrency of any tenant on the admin port.
pub const REQUESTS_MAX: u64 = 10_000;

/// Limits of a tenant. Lowering a limit below the usage removes nothing; only additions are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = TenantLimits)]
pub struct Limits {
    /// Sales that are not archived.
    #[schema(maximum = 1_000_000_000_000_u64)]
    pub sales: u64,
    /// Units in these sales together.
    #[schema(maximum = 1_000_000_000_000_u64)]
    pub units: u64,
    /// Waiting rooms with settings.
    #[schema(maximum = 1_000_000_000_000_u64)]
    pub rooms: u64,
    /// Links that are not deleted, in all its domains.
    #[schema(maximum = 1_000_000_000_000_u64)]
    pub links: u64,
    /// Valid keys.
    #[schema(maximum = 1_000_000_000_000_u64)]
    pub keys: u64,
    /// Requests per second to the admin port of each origin, with a burst of one second.
    #[schema(minimum = 1, maximum = 10_000)]
    pub requests_per_second: u64,
    /// Concurrent requests to the admin port of each origin.
    #[schema(minimum = 1, maximum = 10_000)]
    pub requests_at_once: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sales: 20,
            units: 1_000_000,
            rooms: 20,
            links: 100_000,
            keys: 20,
            requests_per_second: 50,
            requests_at_once: 16,
        }
    }
}

impl Limits {
    /// Invalid fields, each with the valid range.
    pub fn invalid_fields(&self) -> Vec<(&'static str, String)> {
        let counts = [
            ("sales", self.sales),
            ("units", self.units),
            ("rooms", self.rooms),
            ("links", self.links),
            ("keys", self.keys),
        ];
        let requests = [
            ("requests_per_second", self.requests_per_second),
            ("requests_at_once", self.requests_at_once),
        ];
        let counts = counts.map(|(name, value)| (name, value, 0, LIMIT_MAX));
        let requests = requests.map(|(name, value)| (name, value, 1, REQUESTS_MAX));
        let all = counts.into_iter().chain(requests);
        all.filter(|(_, value, min, max)| !(min..=max).contains(&value))
            .map(|(name, value, min, max)| (name, format!("must be {min} to {max}, is {value}")))
            .collect()
    }
}

/// A tenant would exceed a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tenant's limit is {max} {what}")]
pub struct LimitExceeded {
    /// What is limited.
    pub what: &'static str,
    /// The limit.
    pub max: u64,
}

impl LimitExceeded {
    /// Returns an error if `count` exceeds `max`.
    pub fn check(subject: &'static str, count: u64, max: u64) -> Option<Self> {
        (count > max).then_some(Self { what: subject, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_checked_field_by_field() {
        assert!(Limits::default().invalid_fields().is_empty());
        let wrong = Limits {
            sales: LIMIT_MAX + 1,
            requests_per_second: 0,
            requests_at_once: REQUESTS_MAX + 1,
            ..Limits::default()
        };
        let names: Vec<_> = wrong
            .invalid_fields()
            .iter()
            .map(|(name, _)| *name)
            .collect();
        assert_eq!(names, ["sales", "requests_per_second", "requests_at_once"]);
    }

    #[test]
    fn tenant_limit_is_inclusive() {
        assert_eq!(LimitExceeded::check("rooms", 3, 3), None);
        let over = LimitExceeded::check("rooms", 4, 3).map(|over| over.to_string());
        assert_eq!(over.as_deref(), Some("the tenant's limit is 3 rooms"));
    }
}
