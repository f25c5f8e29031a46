//! The rules of the rate limiter: their conditions, keys and limits.
//!
//! - [`RulesConfig`]: the JSON form of rules; [`RulesConfig::checked`] rejects unknown and contradictory fields with
//!   their paths.
//! - [`Rules`]: the validated rules; [`Rule::apply`] matches one [`Request`].
//! - [`fields`]: quota headers for clients, the `RateLimit` fields.

mod config;
pub mod fields;
mod key;
mod matching;
mod rule;

pub use config::{
    CostHeaderConfig, ForwardedConfig, HeaderConfig, KeyPart, LeaseConfig, LimitConfig,
    MatchConfig, Mode, OnStoreError, OverrideConfig, PathConfig, RuleConfig, RulesConfig, Store,
};
pub use key::{HOPS_MAX, KEY_PARTS_MAX, cookie, forwarded};
pub use matching::Matching;
pub use rule::{Hit, LISTED_MAX, Lease, NAME_LEN_MAX, RULES_MAX, Rule, RuleMatch, Rules};

use alloc::vec::Vec;

/// The input of rules. Rules read only the parts that they need. Except the peer's address, clients control all of it.
pub trait Request {
    /// The method.
    fn method(&self) -> &[u8];
    /// The path, with the query.
    fn path(&self) -> &[u8];
    /// The header of this name (in lower case); several of one name are joined with commas.
    fn header(&self, name: &str) -> Option<Vec<u8>>;
    /// The client's address according to Envoy (`source.address`).
    fn address(&self) -> Vec<u8>;
    /// The user, as set by an earlier filter or proxy.
    fn user(&self) -> Option<Vec<u8>>;
}

#[cfg(test)]
mod tests;
