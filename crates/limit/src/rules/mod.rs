//! The rules of the rate limiter: which requests a rule concerns, who asks, and what is allowed.
//!
//! - [`RulesConfig`]: the rules as they are written, in JSON; [`RulesConfig::checked`] refuses what is
//!   unknown or contradicts itself, with the path of the field.
//! - [`Rules`]: the rules as they are used; [`Rule::apply`] looks at one [`Request`].
//! - [`fields`]: what a client is told about its quota, in the `RateLimit` header fields.

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

/// What a rule may look at. Asked for only as far as the rules need it; all of it comes from the client,
/// but the peer's address.
pub trait Request {
    /// The method.
    fn method(&self) -> &[u8];
    /// The path, with the query.
    fn path(&self) -> &[u8];
    /// The header of this name (in lower case); several of one name are one, with commas between.
    fn header(&self, name: &str) -> Option<Vec<u8>>;
    /// The address that Envoy holds for the client's (`source.address`).
    fn address(&self) -> Vec<u8>;
    /// Who the user is, as whoever stands before the filter says.
    fn user(&self) -> Option<Vec<u8>>;
}

#[cfg(test)]
mod tests;
