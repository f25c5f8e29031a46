//! Quota headers for clients: `RateLimit` and `RateLimit-Policy` of draft-ietf-httpapi-ratelimit-headers-11, lists of
//! structured fields (RFC 9651).
//!
//! A policy describes a rule: `"<name>";q=<quota>;w=<seconds>`. For GCRA these are the burst and its recovery time; for
//! the other algorithms the rate and the period. The window is omitted if it is not a whole number of seconds.
//! Concurrency has a unit instead of a window: `"<name>";q=<quota>;qu="concurrent-requests"`.
//!
//! `RateLimit` contains the remaining quota and the time until more is available: `"<name>";r=<remaining>;t=<seconds>`.
//! Without `t` the quota is unused, or the time is unknown.

use alloc::string::String;
use core::fmt::Write;

use crate::{Algorithm, Check, Quota};

/// The problem type of a reached limit.
pub const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// The problem type of an outage of the limit store.
pub const REDUCED_CAPACITY: &str =
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

/// The names of the older headers, which describe the rule with the least remaining quota.
pub const LEGACY: [&str; 3] = [
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
];

/// Appends the policy of one rule. Writing to a string cannot fail.
pub fn append_policy(to: &mut String, name: &str, quota: &Quota) {
    separate(to);
    let _ = write!(to, "\"{name}\";q={}", quota.burst());
    let _ = match window_ms(quota) {
        None => write!(to, ";qu=\"concurrent-requests\""),
        Some(window_ms) if window_ms > 0 && window_ms % 1_000 == 0 => {
            write!(to, ";w={}", window_ms / 1_000)
        }
        Some(_) => Ok(()),
    };
}

/// Appends the remaining quota of one rule. `is_refused`: whether the request is refused. Then a rule that allows it
/// omits its reset time, because `Retry-After` must not be earlier.
pub fn append_limit(to: &mut String, name: &str, check: &Check, is_refused: bool) {
    separate(to);
    let _ = write!(to, "\"{name}\";r={}", check.remaining);
    if check.reset_ms > 0 && (!is_refused || !check.is_allowed()) {
        let _ = write!(to, ";t={}", seconds(check.reset_ms));
    }
}

/// Whole seconds, rounded up, so that clients never retry too early.
pub fn seconds(ms: u64) -> u64 {
    ms.div_ceil(1_000)
}

/// The time in milliseconds in which the quota recovers; `None` for concurrency.
fn window_ms(quota: &Quota) -> Option<u64> {
    match quota.algorithm() {
        Algorithm::Gcra => {
            let ticks = u64::from(quota.burst()).saturating_mul(quota.per_ms());
            // A time that is not a whole number of milliseconds is not one of seconds either.
            let rate = u64::from(quota.rate());
            Some(
                ticks
                    .checked_div(rate)
                    .filter(|_| ticks % rate == 0)
                    .unwrap_or(0),
            )
        }
        Algorithm::SlidingWindow | Algorithm::FixedWindow => Some(quota.per_ms()),
        Algorithm::Concurrency => None,
    }
}

fn separate(to: &mut String) {
    if !to.is_empty() {
        to.push_str(", ");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(algorithm: Algorithm, rate: u32, per_ms: u64, burst: u32) -> String {
        let quota = Quota::new(algorithm, rate, per_ms, burst).unwrap();
        let mut reply = String::new();
        append_policy(&mut reply, "default", &quota);
        reply
    }

    fn limit(wait_ms: u64, remaining: u32, reset_ms: u64, is_refused: bool) -> String {
        let mark = 0;
        let check = Check {
            wait_ms,
            remaining,
            reset_ms,
            mark,
        };
        let mut reply = String::new();
        append_limit(&mut reply, "default", &check, is_refused);
        reply
    }

    /// The examples of the draft, sections 3.2 and 4.2, as far as rules can express them.
    #[test]
    fn policy_header_matches_the_drafts_examples() {
        use Algorithm::{Concurrency, FixedWindow, Gcra, SlidingWindow};
        for (algorithm, rate, per_ms, burst, expected) in [
            (FixedWindow, 100, 10_000, 1, r#""default";q=100;w=10"#),
            (SlidingWindow, 50, 60_000, 1, r#""default";q=50;w=60"#),
            (
                FixedWindow,
                1_000,
                3_600_000,
                1,
                r#""default";q=1000;w=3600"#,
            ),
            (Gcra, 100, 60_000, 100, r#""default";q=100;w=60"#),
            // The burst has its own recovery time.
            (Gcra, 100, 1_000, 200, r#""default";q=200;w=2"#),
            (Gcra, 2, 10_000, 1, r#""default";q=1;w=5"#),
            // The draft has no fractions of seconds: 20 in 100 ms cannot be expressed.
            (Gcra, 20, 100, 1, r#""default";q=1"#),
            (Gcra, 2, 1_000, 3, r#""default";q=3"#),
            (Gcra, 3, 1_000, 1, r#""default";q=1"#),
            (FixedWindow, 5, 250, 1, r#""default";q=5"#),
            (
                Concurrency,
                10,
                60_000,
                1,
                r#""default";q=10;qu="concurrent-requests""#,
            ),
        ] {
            assert_eq!(
                policy(algorithm, rate, per_ms, burst),
                expected,
                "{algorithm:?}"
            );
        }
    }

    #[test]
    fn remaining_quota_header_matches_the_drafts_examples() {
        assert_eq!(limit(0, 50, 30_000, false), r#""default";r=50;t=30"#);
        assert_eq!(limit(0, 999, 0, false), r#""default";r=999"#);
        assert_eq!(limit(10_000, 0, 10_000, true), r#""default";r=0;t=10"#);
        assert_eq!(limit(1, 0, 1, true), r#""default";r=0;t=1"#);
        assert_eq!(limit(1_001, 0, 1_001, true), r#""default";r=0;t=2"#);
        // The end of a request in flight is unknown.
        assert_eq!(limit(1_000, 0, 0, true), r#""default";r=0"#);
        // The rule allows the request that another rule refuses, and has its own reset time.
        assert_eq!(limit(0, 7, 80_000, true), r#""default";r=7"#);
    }
}
