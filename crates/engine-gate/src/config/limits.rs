//! Limits and what protects from overload, as they are written.

use alloc::format;

use serde::Deserialize;
use weir_base::FieldError;
use weir_base::breaker;
use weir_engine::config::{check_breaker, within};
use weir_limit::table::SLOTS_MAX;
use weir_limit::{BURST_MAX, Quota, RATE_MAX};

/// The greatest counts here. Beyond them a slip of the pen would switch something off.
const COUNT_MAX: u64 = 1_000_000;

/// How often may be asked.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitsConfig {
    /// For each user: no limit unless set.
    #[serde(default)]
    pub user: Option<RateConfig>,
    /// For each address, or network of IPv6: no limit unless set.
    #[serde(default)]
    pub address: Option<RateConfig>,
    /// The same of requests for `identify_prefixes`, which reserve, pay, cancel or read: these cost SQL, and are counted
    /// apart, so that who looks at an order has as many tries to buy.
    #[serde(default)]
    pub identified: IdentifiedLimits,
    /// How much is remembered of each of these: so many times 8 users or addresses, in some 400 bytes
    /// each; 4,096 unless set, 1 to 65,536.
    #[serde(default = "default_slots")]
    pub slots: u32,
}

/// How often may be asked for what SQL answers. A limit that is `null` is none.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IdentifiedLimits {
    /// For each user: 10 a second, 20 at once, unless set.
    pub user: Option<RateConfig>,
    /// For each address, or network of IPv6: 1,000 a second, 2,000 at once, unless set.
    pub address: Option<RateConfig>,
}

/// A rate.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateConfig {
    /// How many requests a second in the long run: 1 to 1,000,000.
    pub rate_per_s: u32,
    /// How many at once: 1 to 1,000,000.
    pub burst: u32,
}

/// When to answer at once so that what was accepted is finished.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OverloadConfig {
    /// The most granted requests that the origin has not answered yet, in each worker: 4,096 unless
    /// set, 1 to 1,000,000.
    pub in_flight_max: usize,
    /// When Redis is left in peace.
    pub redis_breaker: breaker::Settings,
    /// When the origin is left in peace.
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
        let rate = |rate_per_s, burst| Some(RateConfig { rate_per_s, burst });
        Self {
            user: rate(10, 20),
            address: rate(1_000, 2_000),
        }
    }
}

impl LimitsConfig {
    pub(super) fn check(&self) -> Result<(), FieldError> {
        within("limits.slots", self.slots.into(), 1, SLOTS_MAX.into())?;
        for (name, rate) in [
            ("user", &self.user),
            ("address", &self.address),
            ("identified.user", &self.identified.user),
            ("identified.address", &self.identified.address),
        ] {
            if let Some(rate) = rate {
                rate.check(&format!("limits.{name}"))?;
            }
        }
        Ok(())
    }
}

impl RateConfig {
    /// The rule.
    pub fn quota(self) -> Quota {
        Quota::per_second(self.rate_per_s, self.burst)
    }

    fn check(self, path: &str) -> Result<(), FieldError> {
        let (rate, burst) = (self.rate_per_s.into(), self.burst.into());
        within(&format!("{path}.rate_per_s"), rate, 1, RATE_MAX.into())?;
        within(&format!("{path}.burst"), burst, 1, BURST_MAX.into())
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
