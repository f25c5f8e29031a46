//! Metrics of events. `docs/metrics.md` lists all names.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use weir_event::answer::{Reason, Verdict};

use super::groups::status::GroupState;
use super::log::{AppendError, Fill, Lag};
use super::store::{RetryCounts, StoreCounts};
use weir_origin_core::metrics::{Group, Metrics};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabels {
    verdict: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

/// Group names come from the configuration, so clients cannot create labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GroupLabel {
    group: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GroupOutcome {
    group: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GroupStateLabel {
    group: String,
    state: &'static str,
}

/// Label values for the outcome of events in a group.
const HANDLED: &str = "handled";
const FAILED: &str = "failed";
const AGAIN: &str = "handled_again";
const FAILED_AGAIN: &str = "failed_again";
const GIVEN_UP: &str = "given_up";

/// Metrics of events. Clones share the same counters.
#[derive(Clone, Debug)]
pub struct EventMetrics {
    events: Family<VerdictLabels, Counter>,
    appends: Histogram,
    appends_refused: Family<OutcomeLabel, Counter>,
    log_waiting: Gauge,
    stored: Family<OutcomeLabel, Counter>,
    /// Number of events deleted after their retention.
    pub expired: Counter,
    groups: Family<GroupOutcome, Counter>,
    outages: Family<GroupLabel, Counter>,
    recomputed: Family<GroupLabel, Counter>,
    losses: Family<GroupLabel, Counter>,
    lag_bytes: Family<GroupLabel, Gauge>,
    lag_records: Family<GroupLabel, Gauge>,
    oldest: Family<GroupLabel, Gauge>,
    retries: Family<GroupLabel, Gauge>,
    states: Family<GroupStateLabel, Gauge>,
}

impl EventMetrics {
    /// Registers all metrics.
    pub fn register(metrics: &Metrics) -> Self {
        let metrics = metrics.group(Self::add_to);
        metrics.start_at_zero();
        metrics
    }

    fn add_to(group: &mut Group<'_>) -> Self {
        // 0.1 ms to 3.3 s.
        let seconds = || Histogram::new(exponential_buckets(0.000_1, 2.0, 16));
        Self {
            events: group.add("events", "Events received, by verdict and reason"),
            appends: group.add_this(
                "event_append_seconds",
                "Duration of event log appends",
                seconds(),
            ),
            appends_refused: group.add(
                "event_appends_refused",
                "Event requests that the log refused",
            ),
            log_waiting: group.add(
                "event_log_waiting_bytes",
                "Event log bytes that a consumer group has not processed",
            ),
            stored: group.add("events_stored", "Events stored in SQL, by outcome"),
            expired: group.add(
                "events_expired",
                "Events deleted from SQL at the end of their retention",
            ),
            groups: group.add(
                "event_group_events",
                "Events of consumer groups, by outcome",
            ),
            outages: group.add(
                "event_group_outages",
                "Batches that mostly failed and were retried as a whole",
            ),
            recomputed: group.add(
                "event_group_recomputed",
                "Customers recomputed after a dead letter",
            ),
            losses: group.add(
                "event_group_losses",
                "Losses of a group's derived data, after which it replayed the log",
            ),
            lag_bytes: group.add(
                "event_group_lag_bytes",
                "Consumer group lag in the folder log, in bytes",
            ),
            lag_records: group.add(
                "event_group_lag_records",
                "Consumer group lag in the Kafka log, in records",
            ),
            oldest: group.add(
                "event_group_oldest_seconds",
                "Age of the oldest unprocessed event of a consumer group",
            ),
            retries: group.add(
                "event_group_retries",
                "Events in retry, and those waiting behind them",
            ),
            states: group.add(
                "event_group_state",
                "1 for the current state of a consumer group",
            ),
        }
    }

    fn start_at_zero(&self) {
        for verdict in Verdict::ALL {
            let reasons: &[&'static str] = match verdict {
                Verdict::Rejected => &Reason::ALL.map(Reason::label),
                _ => &[""],
            };
            for reason in reasons {
                let labels = VerdictLabels {
                    verdict: verdict.label(),
                    reason,
                };
                let _ = self.events.get_or_create(&labels);
            }
        }
        for error in [
            AppendError::Full,
            AppendError::Unknown,
            AppendError::Refused,
        ] {
            let _ = self.appends_refused.get_or_create(&refusal(error));
        }
        for outcome in ["new", "again", "reused"] {
            let _ = self.stored.get_or_create(&OutcomeLabel { outcome });
        }
    }

    /// Counts an event.
    pub fn event(&self, verdict: &'static str, reason: &'static str) {
        let labels = VerdictLabels { verdict, reason };
        self.events.get_or_create(&labels).inc();
    }

    /// Records the duration of an append.
    pub fn appended(&self, after: Duration) {
        self.appends.observe(after.as_secs_f64());
    }

    /// Counts a request that the log did not accept.
    pub fn not_appended(&self, error: AppendError) {
        self.appends_refused.get_or_create(&refusal(error)).inc();
    }

    /// Records the fill level of the log.
    pub fn fill(&self, fill: Fill) {
        self.log_waiting.set(signed(fill.waiting_bytes));
    }

    /// Counts events written to SQL.
    pub fn stored(&self, stored: StoreCounts) {
        let counts = [
            ("new", stored.new),
            ("again", stored.again),
            ("reused", stored.reused),
        ];
        for (outcome, count) in counts {
            let label = OutcomeLabel { outcome };
            self.stored.get_or_create(&label).inc_by(count);
        }
    }

    fn group(&self, group: &str, outcome: &'static str, count: u64) {
        let group = group.to_owned();
        let labels = GroupOutcome { group, outcome };
        self.groups.get_or_create(&labels).inc_by(count);
    }

    /// Counts events that a group handled at the first attempt.
    pub fn handled(&self, group: &str, count: u64) {
        self.group(group, HANDLED, count);
    }

    /// Counts events that a group put in retry, and events waiting behind them.
    pub fn failed(&self, group: &str, count: u64) {
        self.group(group, FAILED, count);
    }

    /// Counts a retry of an event.
    pub fn tried_again(&self, group: &str, is_done: bool) {
        self.group(group, if is_done { AGAIN } else { FAILED_AGAIN }, 1);
    }

    /// Counts events that a group gave up.
    pub fn given_up(&self, group: &str, count: u64) {
        self.group(group, GIVEN_UP, count);
    }

    /// Counts a batch that is retried as a whole.
    pub fn outage(&self, group: &str) {
        self.outages.get_or_create(&label(group)).inc();
    }

    /// Counts a recomputed customer.
    pub fn recomputed(&self, group: &str) {
        self.recomputed.get_or_create(&label(group)).inc();
    }

    /// Counts a loss of a group's derived data.
    pub fn lost(&self, group: &str) {
        self.losses.get_or_create(&label(group)).inc();
    }

    /// Records the lag of a group.
    pub fn group_is(
        &self,
        group: &str,
        state: GroupState,
        lag: Lag,
        retries: RetryCounts,
        now_ms: u64,
    ) {
        let oldest_ms = lag.oldest_ms.into_iter().chain(retries.oldest_ms).min();
        let age_ms = oldest_ms.map_or(0, |oldest_ms| now_ms.saturating_sub(oldest_ms));
        // Each kind of log counts one of them.
        let lags = [
            (&self.lag_bytes, lag.bytes),
            (&self.lag_records, lag.records),
        ];
        for (gauges, lag) in lags {
            if let Some(lag) = lag {
                gauges.get_or_create(&label(group)).set(signed(lag));
            }
        }
        let oldest = self.oldest.get_or_create(&label(group));
        oldest.set(signed(age_ms / 1_000));
        drop(oldest);
        let gauge = self.retries.get_or_create(&label(group));
        gauge.set(signed(retries.count));
        drop(gauge);
        for existing in GroupState::ALL {
            let labels = GroupStateLabel {
                group: group.to_owned(),
                state: existing.label(),
            };
            let gauge = self.states.get_or_create(&labels);
            gauge.set(i64::from(existing == state));
        }
    }
}

fn label(group: &str) -> GroupLabel {
    GroupLabel {
        group: group.to_owned(),
    }
}

fn refusal(error: AppendError) -> OutcomeLabel {
    let outcome = match error {
        AppendError::Full => "full",
        AppendError::Unknown => "unknown",
        AppendError::Refused => "refused",
    };
    OutcomeLabel { outcome }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
