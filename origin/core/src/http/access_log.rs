//! Selects the requests that appear in the access log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;

use crate::traces::parse_share;

/// The flags of access lines.
#[derive(Clone, Debug, Args)]
pub struct AccessLogConfig {
    /// Ratio of requests that get an access log line, 0 to 1; status 500 and above always gets one
    #[arg(long, env = "WEIR_ACCESS_LOG_SHARE", default_value = "1", value_parser = parse_share)]
    pub access_log_share: f64,
}

/// Selects requests for the access log. Cloning it is cheap: clones share the count.
#[derive(Clone, Debug)]
pub struct AccessLog {
    share: f64,
    answered: Arc<AtomicU64>,
}

impl AccessLog {
    /// Logs this ratio of requests, from 0 to 1: 0.25 is every fourth request.
    pub fn new(share: f64) -> Self {
        Self {
            share,
            answered: Arc::default(),
        }
    }

    /// Counts a request. Returns whether it is logged.
    pub(super) fn includes(&self, status: u16) -> bool {
        let before = self.answered.fetch_add(1, Ordering::Relaxed);
        status >= 500 || self.lines(before + 1) > self.lines(before)
    }

    /// How many of the first `requests` requests are logged.
    fn lines(&self, requests: u64) -> f64 {
        #[expect(
            clippy::cast_precision_loss,
            reason = "a count of 2^53 is centuries away"
        )]
        let requests = requests as f64;
        (requests * self.share).floor()
    }
}

/// Logs every request.
impl Default for AccessLog {
    fn default() -> Self {
        Self::new(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(share: f64, statuses: &[u16]) -> usize {
        let log = AccessLog::new(share);
        let clone = log.clone();
        let of = |at: usize| if at.is_multiple_of(2) { &log } else { &clone };
        let all = statuses.iter().enumerate();
        all.filter(|(at, status)| of(*at).includes(**status))
            .count()
    }

    #[test]
    fn configured_share_of_requests_is_logged() {
        for (share, expected) in [(1.0, 1_000), (0.25, 250), (0.01, 10), (0.0, 0)] {
            assert_eq!(lines(share, &[200; 1_000]), expected, "{share}");
        }
    }

    #[test]
    fn failed_requests_are_always_logged() {
        assert_eq!(lines(0.0, &[200, 404, 500, 503, 499]), 2);
    }
}
