//! What a client is told about its quota: the fields `RateLimit` and `RateLimit-Policy` of
//! draft-ietf-httpapi-ratelimit-headers-11, lists of structured fields (RFC 9651).
//!
//! A rule is told as a policy, `"<name>";q=<quota>;w=<seconds>`: of GCRA the burst, and how long it takes to come back
//! whole; of the others the rate and the period. A period that is no whole number of seconds cannot be told, and is left
//! out. Requests in flight have no period, but a unit: `"<name>";q=<quota>;qu="concurrent-requests"`.
//!
//! `RateLimit` tells what is left, and when more of it will be there: `"<name>";r=<remaining>;t=<seconds>`. Without `t`
//! all is there, or nobody knows when more will be.

use alloc::string::String;
use core::fmt::Write;

use crate::{Algorithm, Check, Quota};

/// The type of the problem that tells of a limit that is reached.
pub const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// The type of the problem that tells that limits cannot be checked.
pub const REDUCED_CAPACITY: &str =
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

/// The names of the older fields, which tell of the rule that leaves the least.
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

/// Appends what one rule has left. Of a rule that lets the request pass it is left out when more will be there
/// (`is_refused`: whether the request is refused): `Retry-After` must not be before it.
pub fn append_limit(to: &mut String, name: &str, check: &Check, is_refused: bool) {
    separate(to);
    let _ = write!(to, "\"{name}\";r={}", check.remaining);
    if check.reset_ms > 0 && (!is_refused || !check.is_allowed()) {
        let _ = write!(to, ";t={}", seconds(check.reset_ms));
    }
}

/// Whole seconds, rounded up: who waits that long has waited long enough.
pub fn seconds(ms: u64) -> u64 {
    ms.div_ceil(1_000)
}

/// In which time the quota is there again, in milliseconds; `None` if that is no matter of time.
fn window_ms(quota: &Quota) -> Option<u64> {
    match quota.algorithm() {
        Algorithm::Gcra => {
            let ticks = u64::from(quota.burst()).saturating_mul(quota.per_ms());
            // One that is no whole number of milliseconds is none of seconds either.
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
        let mut told = String::new();
        append_policy(&mut told, "default", &quota);
        told
    }

    fn limit(wait_ms: u64, remaining: u32, reset_ms: u64, is_refused: bool) -> String {
        let mark = 0;
        let check = Check {
            wait_ms,
            remaining,
            reset_ms,
            mark,
        };
        let mut told = String::new();
        append_limit(&mut told, "default", &check, is_refused);
        told
    }

    /// The examples of the draft, sections 3.2 and 4.2, as far as a rule here can say them.
    #[test]
    fn policies_are_told_as_in_the_drafts_examples() {
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
            // The burst comes back in its own time.
            (Gcra, 100, 1_000, 200, r#""default";q=200;w=2"#),
            (Gcra, 2, 10_000, 1, r#""default";q=1;w=5"#),
            // The draft has no parts of seconds: 20 in 100 ms is not one a second.
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
    fn what_is_left_is_told_as_in_the_drafts_examples() {
        assert_eq!(limit(0, 50, 30_000, false), r#""default";r=50;t=30"#);
        assert_eq!(limit(0, 999, 0, false), r#""default";r=999"#);
        assert_eq!(limit(10_000, 0, 10_000, true), r#""default";r=0;t=10"#);
        assert_eq!(limit(1, 0, 1, true), r#""default";r=0;t=1"#);
        assert_eq!(limit(1_001, 0, 1_001, true), r#""default";r=0;t=2"#);
        // Nobody knows when one of those in flight ends.
        assert_eq!(limit(1_000, 0, 0, true), r#""default";r=0"#);
        // It lets the request pass that another rule refuses, and has its own time.
        assert_eq!(limit(0, 7, 80_000, true), r#""default";r=7"#);
    }
}
