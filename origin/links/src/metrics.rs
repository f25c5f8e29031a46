//! Metrics of links and clicks. `docs/metrics.md` lists all names.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use weir_link::code::Length;
use weir_link::segment::{DAYS_LEFT_MAX, SkipReason};

use weir_origin_core::metrics::{Group, Metrics};
use weir_origin_core::outbox::{Backlog, Meter, SinkName};

/// Label values for the outcome of a segment request, in addition to those of [`SkipReason`].
const RESERVED: &str = "reserved";
const TAKEN: &str = "taken";

const DAY_S: u64 = 86_400;

/// Label values for how the clean-up handled ended links.
const CLEANED: [&str; 2] = ["removed", "alive"];

/// Label values for the result of a cold store lookup.
const COLD: [&str; 2] = ["found", "unknown"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LengthLabel {
    length: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReceiverLabel {
    receiver: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DeliveryLabel {
    receiver: &'static str,
    outcome: &'static str,
}

/// Label values for the outcome of a password attempt.
pub(super) const PASSWORDS: [&str; 4] = ["right", "wrong", "too_many", "busy"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

/// Label values for the outcome of a click batch.
const CLICK_BATCHES: [&str; 3] = ["counted", "counted_before", "refused"];

/// Metrics of links. Clones share the same counters.
#[derive(Clone, Debug)]
pub struct LinkMetrics {
    /// Number of acknowledged links.
    pub created: Counter,
    /// Generated codes that were already taken by another link; should be 0.
    pub collisions: Counter,
    /// Creations that waited for code numbers.
    pub waited: Counter,
    /// Log entries written to the cold store.
    pub drained: Counter,
    /// Log entries whose code the cold store already had; should be 0.
    pub drained_taken: Counter,
    /// Edits written to Redis again.
    pub republished: Counter,
    /// Click batches not yet counted.
    pub click_batches_waiting: Gauge,
    click_batches: Family<OutcomeLabel, Counter>,
    clicks: Counter,
    segments: Family<OutcomeLabel, Counter>,
    cleaned: Family<OutcomeLabel, Counter>,
    cold: Family<OutcomeLabel, Counter>,
    passwords: Family<OutcomeLabel, Counter>,
    numbers_left: Family<LengthLabel, Gauge>,
    numbers_seconds_left: Family<LengthLabel, Gauge>,
    log_waiting: Gauge,
    reported: Family<DeliveryLabel, Counter>,
    outbox_waiting: Family<ReceiverLabel, Gauge>,
    outbox_oldest_seconds: Family<ReceiverLabel, Gauge>,
}

impl LinkMetrics {
    /// Registers all metrics.
    pub fn register(metrics: &Metrics) -> Self {
        let metrics = metrics.group(Self::add_to);
        metrics.start_at_zero();
        metrics
    }

    fn add_to(group: &mut Group<'_>) -> Self {
        Self {
            created: group.add("links_created", "Links created"),
            collisions: group.add(
                "link_collisions",
                "Generated codes that were already taken; should be 0",
            ),
            waited: group.add("link_number_waits", "Creations that waited for code numbers"),
            drained: group.add(
                "link_log_entries",
                "Log entries written to the cold store",
            ),
            drained_taken: group.add(
                "link_log_entries_taken",
                "Log entries whose code the cold store already had; should be 0",
            ),
            republished: group.add(
                "links_republished",
                "Edits written to Redis again",
            ),
            segments: group.add("link_segments", "Number segments requested, by outcome"),
            cleaned: group.add(
                "links_cleaned",
                "Expired links, by clean-up outcome",
            ),
            cold: group.add("link_cold_lookups", "Lookups in the cold store, by outcome"),
            passwords: group.add("link_passwords", "Link password attempts, by outcome"),
            numbers_left: group.add(
                "link_numbers_left",
                "Free numbers for generated codes, by length",
            ),
            numbers_seconds_left: group.add(
                "link_numbers_seconds_left",
                "Seconds until the numbers run out at the last day's rate, by length; at most ten years",
            ),
            reported: group.add(
                "link_changes",
                "Link changes sent, by receiver and outcome",
            ),
            outbox_waiting: group.add(
                "outbox_links_waiting",
                "Links with undelivered changes, by receiver",
            ),
            outbox_oldest_seconds: group.add(
                "link_outbox_oldest_seconds",
                "Age of the oldest undelivered link change, in seconds",
            ),
            log_waiting: group.add(
                "link_log_waiting_bytes",
                "Link log bytes not yet in the cold store",
            ),
            click_batches: group.add("click_batches", "Click batches, by outcome"),
            clicks: group.add("clicks", "Clicks counted"),
            click_batches_waiting: group.add(
                "click_batches_waiting",
                "Click batches not yet counted",
            ),
        }
    }

    fn start_at_zero(&self) {
        // Assume the full amount until the first measurement, because an alert fires on few numbers.
        for length in Length::ALL {
            self.numbers_left(length, length.capacity(), DAYS_LEFT_MAX);
        }
        let skips = SkipReason::ALL.into_iter().map(SkipReason::label);
        for outcome in skips.chain([RESERVED, TAKEN]) {
            let _ = self.segments.get_or_create(&OutcomeLabel { outcome });
        }
        for outcome in CLEANED {
            let _ = self.cleaned.get_or_create(&OutcomeLabel { outcome });
        }
        for outcome in COLD {
            let _ = self.cold.get_or_create(&OutcomeLabel { outcome });
        }
        for name in SinkName::ALL {
            self.backlog(name, Backlog::default(), 0);
            for outcome in ["sent", "failed"] {
                let receiver = name.label();
                let _ = self
                    .reported
                    .get_or_create(&DeliveryLabel { receiver, outcome });
            }
        }
        for outcome in PASSWORDS {
            let _ = self.passwords.get_or_create(&OutcomeLabel { outcome });
        }
        for outcome in CLICK_BATCHES {
            let _ = self.click_batches.get_or_create(&OutcomeLabel { outcome });
        }
    }

    /// Counts entries written to the cold store, and how many of their codes were taken.
    pub fn drained(&self, entries: u64, used: u64) {
        self.drained.inc_by(entries);
        self.drained_taken.inc_by(used);
    }

    /// Records the number of waiting bytes in the log.
    pub fn log_waiting(&self, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.log_waiting.set(bytes);
    }

    /// Records how many numbers of a length are left, and for how many days they last.
    pub fn numbers_left(&self, length: Length, numbers: u64, days: u64) {
        let label = LengthLabel {
            length: length.digits(),
        };
        let gauge = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let remaining = self.numbers_left.get_or_create(&label);
        remaining.set(gauge(numbers));
        let seconds_left = self.numbers_seconds_left.get_or_create(&label);
        seconds_left.set(gauge(days.saturating_mul(DAY_S)));
    }

    /// Counts a segment that was reserved, or that another origin took.
    pub fn segment(&self, is_reserved: bool) {
        let outcome = if is_reserved { RESERVED } else { TAKEN };
        self.segments.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Counts a skipped segment.
    pub fn segment_skipped(&self, skip: SkipReason) {
        let outcome = skip.label();
        self.segments.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Counts links handled by the clean-up.
    pub fn cleaned(&self, removed: u64, alive: u64) {
        for (outcome, count) in CLEANED.into_iter().zip([removed, alive]) {
            let label = OutcomeLabel { outcome };
            self.cleaned.get_or_create(&label).inc_by(count);
        }
    }

    /// Counts a lookup in the cold store.
    pub fn cold_lookup(&self, is_found: bool) {
        let [found, unknown] = COLD;
        let outcome = if is_found { found } else { unknown };
        self.cold.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Counts a password attempt with one of the outcomes in [`PASSWORDS`].
    pub(super) fn password(&self, outcome: &'static str) {
        let label = OutcomeLabel { outcome };
        self.passwords.get_or_create(&label).inc();
    }

    /// Counts a click batch and, unless it is a repetition, its clicks.
    pub fn click_batch(&self, is_new: bool, clicks: u64) {
        let outcome = if is_new { "counted" } else { "counted_before" };
        let label = OutcomeLabel { outcome };
        self.click_batches.get_or_create(&label).inc();
        if is_new {
            self.clicks.inc_by(clicks);
        }
    }

    /// Counts a malformed click batch.
    pub fn click_batches_refused(&self) {
        let outcome = "refused";
        let label = OutcomeLabel { outcome };
        self.click_batches.get_or_create(&label).inc();
    }
}

impl Meter for LinkMetrics {
    fn count_delivery(&self, receiver: SinkName, outcome: &'static str) {
        let receiver = receiver.label();
        let label = DeliveryLabel { receiver, outcome };
        self.reported.get_or_create(&label).inc();
    }

    fn backlog(&self, receiver: SinkName, backlog: Backlog, now_ms: u64) {
        let label = ReceiverLabel {
            receiver: receiver.label(),
        };
        let gauge = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let age_ms = backlog.age_ms(now_ms);
        let waiting = self.outbox_waiting.get_or_create(&label);
        waiting.set(gauge(backlog.subjects));
        let oldest = self.outbox_oldest_seconds.get_or_create(&label);
        oldest.set(gauge(age_ms / 1_000));
    }
}
