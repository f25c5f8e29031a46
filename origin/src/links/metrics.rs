//! What is counted of links. The names stand in `docs/metrics.md`, too.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};
use weir_link::segment::Skip;

/// What becomes of segments that an origin asks for, beside the reasons of [`Skip`].
const RESERVED: &str = "reserved";
const TAKEN: &str = "taken";

/// What becomes of links that have ended.
const CLEANED: [&str; 2] = ["removed", "alive"];

/// How a look into the cold store ends.
const COLD: [&str; 2] = ["found", "unknown"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

/// The numbers of links. Cloning it is cheap: all share them.
#[derive(Clone, Debug)]
pub struct LinkMetrics {
    /// Links that were acknowledged.
    pub created: Counter,
    /// Codes that turned out to be another link's, and were left: there should be none.
    pub collisions: Counter,
    /// Creations that waited for numbers.
    pub waited: Counter,
    /// Entries of the log that the cold store took.
    pub drained: Counter,
    /// Entries of the log whose names were taken in the cold store: there should be none.
    pub drained_taken: Counter,
    /// Changes that Redis had not followed at once, and that were written again.
    pub republished: Counter,
    segments: Family<OutcomeLabel, Counter>,
    cleaned: Family<OutcomeLabel, Counter>,
    cold: Family<OutcomeLabel, Counter>,
    log_waiting: Gauge,
}

impl LinkMetrics {
    /// Registers all of them.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let mut names = Names(registry);
        let metrics = Self {
            created: names.add("links_created", "Links that were made"),
            collisions: names.add(
                "link_collisions",
                "Generated codes that were another link's: there should be none",
            ),
            waited: names.add("link_number_waits", "Creations that waited for numbers"),
            drained: names.add(
                "link_log_entries",
                "Entries of the log that the cold store took",
            ),
            drained_taken: names.add(
                "link_log_entries_taken",
                "Entries of the log whose names were taken in the cold store",
            ),
            republished: names.add(
                "links_republished",
                "Changes that were written to Redis again, since it had not followed",
            ),
            segments: names.add("link_segments", "Segments of numbers asked for, by outcome"),
            cleaned: names.add(
                "links_cleaned",
                "Links that had ended, by what clean-up did",
            ),
            cold: names.add("link_cold_lookups", "Looks into the cold store, by outcome"),
            log_waiting: names.add(
                "link_log_waiting_bytes",
                "Bytes of the log that the cold store has not taken",
            ),
        };
        metrics.start_at_zero();
        metrics
    }

    fn start_at_zero(&self) {
        let skips = Skip::ALL.into_iter().map(Skip::word);
        for outcome in skips.chain([RESERVED, TAKEN]) {
            let _ = self.segments.get_or_create(&OutcomeLabel { outcome });
        }
        for outcome in CLEANED {
            let _ = self.cleaned.get_or_create(&OutcomeLabel { outcome });
        }
        for outcome in COLD {
            let _ = self.cold.get_or_create(&OutcomeLabel { outcome });
        }
    }

    /// Counts entries that the cold store took, and how many names of them were taken.
    pub fn drained(&self, entries: u64, taken: u64) {
        self.drained.inc_by(entries);
        self.drained_taken.inc_by(taken);
    }

    /// Notes how much of the log waits.
    pub fn log_waiting(&self, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.log_waiting.set(bytes);
    }

    /// Counts a segment that was reserved, or was another origin's.
    pub fn segment(&self, is_reserved: bool) {
        let outcome = if is_reserved { RESERVED } else { TAKEN };
        self.segments.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Counts a segment that is not handed out again.
    pub fn segment_skipped(&self, skip: Skip) {
        let outcome = skip.word();
        self.segments.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Counts links that clean-up looked at.
    pub fn cleaned(&self, removed: u64, alive: u64) {
        for (outcome, count) in CLEANED.into_iter().zip([removed, alive]) {
            let label = OutcomeLabel { outcome };
            self.cleaned.get_or_create(&label).inc_by(count);
        }
    }

    /// Counts a look into the cold store.
    pub fn cold_lookup(&self, is_found: bool) {
        let [found, unknown] = COLD;
        let outcome = if is_found { found } else { unknown };
        self.cold.get_or_create(&OutcomeLabel { outcome }).inc();
    }
}

struct Names<'a>(&'a mut Registry);

impl Names<'_> {
    fn add<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        let metric = M::default();
        self.0.register(name, help, metric.clone());
        metric
    }
}
