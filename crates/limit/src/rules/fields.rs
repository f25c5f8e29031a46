//! What a client is told about its quota: the fields `RateLimit` and `RateLimit-Policy` of
//! draft-ietf-httpapi-ratelimit-headers-10, lists of structured fields (RFC 9651).
//!
//! A rule is told as a policy `"<name>";q=<quota>;w=<seconds>`: of GCRA the burst, and how long it takes to
//! come back whole; of the others the rate and the period. `RateLimit` tells what is left:
//! `"<name>";r=<remaining>;t=<seconds until all is there again>`.

use alloc::string::String;
use core::fmt::Write;

use crate::{Algorithm, Check, Quota};

/// The names of the older fields, which tell of the rule that leaves the least.
pub const LEGACY: [&str; 3] = [
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
];

/// Appends the policy of one rule. Writing to a string cannot fail.
pub fn append_policy(to: &mut String, name: &str, quota: &Quota) {
    separate(to);
    let _ = write!(
        to,
        "\"{name}\";q={};w={}",
        quota.burst(),
        seconds(window_ms(quota)).max(1)
    );
}

/// Appends what one rule has left.
pub fn append_limit(to: &mut String, name: &str, check: &Check) {
    separate(to);
    let (left, reset_s) = (check.remaining, seconds(check.reset_ms));
    let _ = write!(to, "\"{name}\";r={left};t={reset_s}");
}

/// Whole seconds, rounded up: who waits that long has waited long enough.
pub fn seconds(ms: u64) -> u64 {
    ms.div_ceil(1_000)
}

fn window_ms(quota: &Quota) -> u64 {
    match quota.algorithm() {
        Algorithm::Gcra => {
            let ticks = u64::from(quota.burst()).saturating_mul(quota.per_ms());
            ticks.div_ceil(u64::from(quota.rate()))
        }
        _ => quota.per_ms(),
    }
}

fn separate(to: &mut String) {
    if !to.is_empty() {
        to.push_str(", ");
    }
}
