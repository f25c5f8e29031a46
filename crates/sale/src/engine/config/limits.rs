//! Settings of limits and overload protection.

use alloc::format;

use serde::Deserialize;
use weir_base::FieldError;
use weir_base::breaker;
use weir_engine::config::{check_breaker, within};
use weir_limit::rules::LimitConfig;
use weir_limit::table::SLOTS_MAX;
use weir_limit::{Algorithm, Quota};

/// The maximum of counts. Larger ones, such as typing errors, would disable a protection.
const COUNT_MAX: u64 = 1_000_000;

/// Rate limits of order requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitsConfig {
    /// Per user. Default: none.
    #[serde(default)]
    pub user: Option<LimitConfig>,
    /// Per address, or IPv6 /64 network. Default: none.
    #[serde(default)]
    pub address: Option<LimitConfig>,
    /// Separate limits for requests with `identify_prefixes`, which use SQL.
    #[serde(default)]
    pub identified: IdentifiedLimits,
    /// Table size: 8 users or addresses per slot, about 400 bytes each; 1 to 65,536. Default: 4,096.
    #[serde(default = "default_slots")]
    pub slots: u32,
}

/// Rate limits of requests with `identify_prefixes`; `null` disables one.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IdentifiedLimits {
    /// Per user. Default: 10 per second, burst 20.
    pub user: Option<LimitConfig>,
    /// Per address, or IPv6 /64 network. Default: 1,000 per second, burst 2,000.
    pub address: Option<LimitConfig>,
}

/// Validated limits; `None` without a quota.
#[derive(Clone, Copy, Debug)]
pub struct CheckedLimits {
    /// See [`LimitsConfig::user`].
    pub user: Option<Quota>,
    /// See [`LimitsConfig::address`].
    pub address: Option<Quota>,
    /// See [`IdentifiedLimits::user`].
    pub identified_user: Option<Quota>,
    /// See [`IdentifiedLimits::address`].
    pub identified_address: Option<Quota>,
    /// See [`LimitsConfig::slots`].
    pub slots: u32,
}

/// Protection from overload.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OverloadConfig {
    /// Maximum granted orders without an answer from the origin, per worker, 1 to 1,000,000. Default: 4,096.
    pub in_flight_max: usize,
    /// Circuit breaker for Redis.
    pub redis_breaker: breaker::Settings,
    /// Circuit breaker for the origin.
    pub origin_breaker: breaker::Settings,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            user: None,
            address: None,
            identified: IdentifiedLimits::default(),
            slots: default_slots(),
        }
    }
}

impl Default for OverloadConfig {
    fn default() -> Self {
        Self {
            in_flight_max: 4_096,
            redis_breaker: breaker::Settings::default(),
            origin_breaker: breaker::Settings::default(),
        }
    }
}

impl Default for IdentifiedLimits {
    fn default() -> Self {
        Self {
            user: Some(LimitConfig::per_second(10, 20)),
            address: Some(LimitConfig::per_second(1_000, 2_000)),
        }
    }
}

impl LimitsConfig {
    pub(super) fn checked(&self) -> Result<CheckedLimits, FieldError> {
        within("limits.slots", self.slots.into(), 1, SLOTS_MAX.into())?;
        let quota = |limit: Option<LimitConfig>, name: &str| {
            let at = format!("limits.{name}");
            limit
                .map(|limit| limit.quota(Algorithm::Gcra, &at))
                .transpose()
        };
        Ok(CheckedLimits {
            user: quota(self.user, "user")?,
            address: quota(self.address, "address")?,
            identified_user: quota(self.identified.user, "identified.user")?,
            identified_address: quota(self.identified.address, "identified.address")?,
            slots: self.slots,
        })
    }
}

impl OverloadConfig {
    pub(super) fn check(&self) -> Result<(), FieldError> {
        let in_flight_max = self.in_flight_max as u64;
        within("overload.in_flight_max", in_flight_max, 1, COUNT_MAX)?;
        check_breaker("overload.redis_breaker", &self.redis_breaker)?;
        check_breaker("overload.origin_breaker", &self.origin_breaker)
    }
}

fn default_slots() -> u32 {
    4_096
}
