//! Refusals by Redis: counts them by kind, and logs at most one per kind and minute.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tracing::{error, warn};
use weir_scripts::RefusalKind;

use crate::metrics::Metrics;

/// Minimum time between two log lines of one kind, and how long `/readyz` shows a refusal.
const INTERVAL: Duration = Duration::from_secs(60);

/// Why Redis refused a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kind.
    pub kind: RefusalKind,
    /// Redis' own error.
    pub error: String,
}

impl Refusal {
    /// Parses a Redis error; `None` if it is not a refusal.
    pub(super) fn from_error(error: String) -> Option<Self> {
        let kind = RefusalKind::from_error(&error)?;
        Some(Self { kind, error })
    }

    /// Whether it is certain that the refused attempt ran nothing. An earlier attempt on a broken connection may have
    /// run: see [`Redis::send`](super::Redis::send).
    pub fn is_definite(&self) -> bool {
        self.kind.is_definite(&self.error)
    }
}

/// What failed and what to do.
impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\": {}", self.error, self.kind.remedy())
    }
}

/// The refusals of the Redis that an origin uses. Cloning it is cheap: clones share it.
#[derive(Clone, Debug)]
pub struct Refusals {
    counts: Family<ReasonLabel, Counter>,
    recent: Arc<Mutex<BTreeMap<RefusalKind, Times>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Debug)]
struct Times {
    observed: Instant,
    logged: Instant,
}

impl Default for Refusals {
    fn default() -> Self {
        let counts = Family::default();
        for kind in RefusalKind::ALL {
            // Create all series at startup, so that the first increase is visible.
            let reason = kind.label();
            drop(counts.get_or_create(&ReasonLabel { reason }));
        }
        Self {
            counts,
            recent: Arc::default(),
        }
    }
}

impl Refusals {
    /// Registers the counter `redis_refused`.
    pub fn register(&self, metrics: &Metrics) {
        let help = "Commands that Redis refused, by reason";
        metrics.group(|group| group.add_this("redis_refused", help, self.counts.clone()));
    }

    /// The kinds of the last minute, most recent first.
    pub fn recent(&self) -> Vec<RefusalKind> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kinds: Vec<_> = recent
            .iter()
            .map(|(kind, times)| (times.observed.elapsed(), *kind))
            .filter(|(ago, _)| *ago < INTERVAL)
            .collect();
        kinds.sort();
        kinds.into_iter().map(|(_, kind)| kind).collect()
    }

    /// Records that the Redis at `address` refused `command`.
    pub(super) fn note(&self, refusal: &Refusal, command: &str, address: &str) {
        let kind = refusal.kind;
        let reason = kind.label();
        self.counts.get_or_create(&ReasonLabel { reason }).inc();
        if !self.is_due(kind, Instant::now()) {
            return;
        }
        let (response, remedy) = (&refusal.error, kind.remedy());
        let text =
            format!("Redis refuses \"{command}\" at \"{address}\": \"{response}\": {remedy}");
        match kind.is_passing() {
            true => warn!(reason, "{text}"),
            false => error!(reason, "{text}"),
        }
    }

    /// Records a refusal at `now`. Returns whether to log it: one per kind and minute.
    fn is_due(&self, kind: RefusalKind, now: Instant) -> bool {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(times) = recent.get_mut(&kind) else {
            let times = Times {
                observed: now,
                logged: now,
            };
            recent.insert(kind, times);
            return true;
        };
        times.observed = now;
        let is_due = now.duration_since(times.logged) >= INTERVAL;
        if is_due {
            times.logged = now;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_kind_is_logged_and_reported_for_a_minute() {
        let refusals = Refusals::default();
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let oom = RefusalKind::OutOfMemory;
        let due = [0, 1, 59, 60, 61].map(|s| refusals.is_due(oom, at(s)));
        assert_eq!(due, [true, false, false, true, false]);
        assert!(refusals.is_due(RefusalKind::ReadOnly, at(61)));
        assert_eq!(refusals.recent().len(), 2);
    }

    #[test]
    fn only_redis_refusal_errors_count_as_refusals() {
        let of = |error: &str| Refusal::from_error(error.to_owned());
        let oom = of("OOM full").unwrap();
        assert!(oom.is_definite());
        assert_eq!(
            oom.to_string(),
            "\"OOM full\": Redis is full; free memory or raise maxmemory"
        );
        assert_eq!(of("WRONGTYPE no"), None);
        let late = of("NOPERM no script: f_x, on @user_script:1.").unwrap();
        assert!(!late.is_definite());
    }
}
