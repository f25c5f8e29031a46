//! Settings of order tokens.

use alloc::vec::Vec;

use crate::token::Ages;
use serde::Deserialize;
use weir_base::FieldError;
use weir_base::key::KeyRing;
use weir_engine::config::Environment;
use weir_engine::keys::{KeyConfig, ring};

use super::within;

/// The maximum of `min_age_ms`: shoppers would not wait longer.
const MIN_AGE_MS_MAX: u64 = 60_000;

/// The maximum age of a token: a day.
const MAX_AGE_MS_MAX: u64 = 24 * 60 * 60 * 1_000;

/// Settings of order tokens.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenConfig {
    /// Keys shared by all gateways; the first one signs.
    pub keys: Vec<KeyConfig>,
    /// Minimum age of a valid token, at most 60,000. Default: 1,000.
    #[serde(default = "default_min_age_ms")]
    pub min_age_ms: u64,
    /// Maximum age of a valid token, more than `min_age_ms`. Default: 600,000.
    #[serde(default = "default_max_age_ms")]
    pub max_age_ms: u64,
}

/// Validated settings of order tokens.
#[derive(Clone, Debug)]
pub struct TokenSettings {
    /// See [`TokenConfig::keys`].
    pub keys: KeyRing,
    /// The minimum and maximum age of a token.
    pub ages: Ages,
}

impl TokenConfig {
    pub(super) fn checked(
        &self,
        environment: Environment<'_>,
    ) -> Result<TokenSettings, FieldError> {
        within("token.min_age_ms", self.min_age_ms, 0, MIN_AGE_MS_MAX)?;
        let least = self.min_age_ms + 1;
        within("token.max_age_ms", self.max_age_ms, least, MAX_AGE_MS_MAX)?;
        let keys = ring("token.keys", &self.keys, environment)?;
        let ages = Ages {
            min_ms: self.min_age_ms,
            max_ms: self.max_age_ms,
            ..Ages::default()
        };
        Ok(TokenSettings { keys, ages })
    }
}

fn default_min_age_ms() -> u64 {
    Ages::default().min_ms
}

fn default_max_age_ms() -> u64 {
    Ages::default().max_ms
}
