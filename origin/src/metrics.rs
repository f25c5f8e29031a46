//! What the origin counts, as Prometheus reads it. The names stand in `docs/metrics.md`, too.

use std::fmt::Write as _;
use std::sync::Arc;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};

use crate::links::metrics::LinkMetrics;

/// What becomes of claims at `POST /orders`.
const ORDER_OUTCOMES: [&str; 6] = [
    "ordered",
    "ordered_before",
    "released",
    "sold_out",
    "unknown_sale",
    "user_cap",
];

/// What the reconciler makes of claims past their deadline.
const CLAIM_OUTCOMES: [&str; 2] = ["released", "ordered_before"];

/// A group of open claims.
#[derive(Clone, Copy, Debug)]
pub struct ClaimAge {
    /// In the label.
    pub word: &'static str,
    /// By how much the deadline has passed at most, in milliseconds; 0: it lies ahead.
    pub past_ms_max: Option<u64>,
}

/// Open claims are told apart by how far their deadline has passed, the youngest first.
pub const CLAIM_AGES: [ClaimAge; 4] = [
    ClaimAge {
        word: "no",
        past_ms_max: Some(0),
    },
    ClaimAge {
        word: "10s",
        past_ms_max: Some(10_000),
    },
    ClaimAge {
        word: "60s",
        past_ms_max: Some(60_000),
    },
    ClaimAge {
        word: "more",
        past_ms_max: None,
    },
];

/// What becomes of batches of clicks.
const CLICK_BATCHES: [&str; 3] = ["counted", "counted_before", "refused"];

/// How risk checks end.
const RISK_OUTCOMES: [&str; 3] = ["passed", "blocked", "failed"];

/// Requests are told apart by these. The route is its pattern, so that what clients send adds none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SaleLabel {
    sale: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AgeLabel {
    sale: String,
    past_deadline: &'static str,
}

/// All of the origin's metrics. Cloning it is cheap: all share the numbers.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Registry>,
    requests: Family<RequestLabels, Counter>,
    orders: Family<OutcomeLabel, Counter>,
    reconciled: Family<OutcomeLabel, Counter>,
    open_claims: Family<SaleLabel, Gauge>,
    open_claims_by_age: Family<AgeLabel, Gauge>,
    drift: Family<SaleLabel, Gauge>,
    cold_shards: Family<SaleLabel, Gauge>,
    risk: Family<OutcomeLabel, Counter>,
    click_batches: Family<OutcomeLabel, Counter>,
    clicks: Counter,
    /// Batches of clicks that wait to be counted.
    pub click_batches_waiting: Gauge,
    /// What is counted of links.
    pub links: LinkMetrics,
    /// How long after deadline and grace claims were found by the reconciler.
    pub overdue_seconds: Histogram,
    /// Units of transfers that the reconciler finished.
    pub units_moved: Counter,
    /// Units put back or taken by the repair of drift.
    pub units_repaired: Counter,
    /// Orders that ended since they were not paid in time.
    pub expired: Counter,
    /// Requests refused since too many waited for SQL.
    pub shed: Counter,
    /// Cold shards rebuilt from SQL.
    pub rewarmed: Counter,
    /// How long SQL took for public requests, waiting in line included.
    pub sql_seconds: Histogram,
}

/// Registers metrics under their names.
struct Names(Registry);

impl Names {
    fn add<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        let metric = M::default();
        self.0.register(name, help, metric.clone());
        metric
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut names = Names(Registry::with_prefix("weir_origin"));
        // 0.5 ms to 8 s.
        let sql_seconds = Histogram::new(exponential_buckets(0.000_5, 2.0, 15));
        let help = "How long SQL took for public requests, in seconds";
        names.0.register("sql_seconds", help, sql_seconds.clone());
        let overdue_seconds = Histogram::new(exponential_buckets(0.25, 2.0, 12));
        let help = "How late claims past deadline and grace were found, in seconds";
        names
            .0
            .register("overdue_seconds", help, overdue_seconds.clone());
        let links = LinkMetrics::register(&mut names.0);
        let metrics = Self {
            links,
            requests: names.add("requests", "Requests by route and status"),
            orders: names.add("orders", "Claims that came, by what became of them"),
            reconciled: names.add(
                "claims_reconciled",
                "Claims past their deadline, by outcome",
            ),
            open_claims: names.add("open_claims", "Claims that are neither order nor released"),
            open_claims_by_age: names.add(
                "open_claims_by_age",
                "Open claims by how far their deadline has passed",
            ),
            drift: names.add(
                "drift_units",
                "Units that the sum has too many; below 0: too few",
            ),
            cold_shards: names.add(
                "cold_shards",
                "Shards of warmed sales without stock in Redis",
            ),
            risk: names.add("risk_checks", "Risk checks, by outcome"),
            click_batches: names.add("click_batches", "Batches of clicks, by outcome"),
            clicks: names.add("clicks", "Clicks on short links that were counted"),
            click_batches_waiting: names.add(
                "click_batches_waiting",
                "Batches of clicks that wait to be counted",
            ),
            units_moved: names.add(
                "units_moved",
                "Units of transfers finished by the reconciler",
            ),
            units_repaired: names.add("units_repaired", "Units put right by the repair of drift"),
            expired: names.add("orders_expired", "Orders that were not paid in time"),
            shed: names.add("shed", "Requests refused since too many waited for SQL"),
            rewarmed: names.add("shards_rewarmed", "Cold shards rebuilt from SQL"),
            sql_seconds,
            overdue_seconds,
            registry: Arc::new(names.0),
        };
        metrics.start_at_zero();
        metrics
    }
}

impl Metrics {
    /// Makes the counters whose labels are known: one that first shows with its first event has no
    /// increase that an alert could see.
    fn start_at_zero(&self) {
        for outcome in ORDER_OUTCOMES {
            let _ = self.orders.get_or_create(&OutcomeLabel { outcome });
        }
        for outcome in CLAIM_OUTCOMES {
            let _ = self.reconciled.get_or_create(&OutcomeLabel { outcome });
        }
        for outcome in CLICK_BATCHES {
            let _ = self.click_batches.get_or_create(&OutcomeLabel { outcome });
        }
        for outcome in RISK_OUTCOMES {
            let _ = self.risk.get_or_create(&OutcomeLabel { outcome });
        }
    }

    /// Counts a request.
    pub fn request(&self, route: &str, status: u16) {
        let route = route.to_owned();
        self.requests
            .get_or_create(&RequestLabels { route, status })
            .inc();
    }

    /// Counts a claim's outcome at `POST /orders`.
    pub fn order(&self, outcome: &'static str) {
        self.orders.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Counts a claim that the reconciler ended.
    pub fn claim_reconciled(&self, outcome: &'static str) {
        self.reconciled
            .get_or_create(&OutcomeLabel { outcome })
            .inc();
    }

    /// Counts a risk check.
    pub fn risk_check(&self, outcome: &'static str) {
        self.risk.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Notes how a sale stands in Redis.
    pub fn sale(&self, sale: &str, open_claims: u64, cold: u64) {
        let label = SaleLabel {
            sale: sale.to_owned(),
        };
        let gauge = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        self.open_claims
            .get_or_create(&label)
            .set(gauge(open_claims));
        self.cold_shards.get_or_create(&label).set(gauge(cold));
    }

    /// Notes how far the deadlines of a sale's open claims have passed, as [`CLAIM_AGES`] has it.
    pub fn open_claims_by_age(&self, sale: &str, claims: [u64; CLAIM_AGES.len()]) {
        for (age, count) in CLAIM_AGES.iter().zip(claims) {
            let label = AgeLabel {
                sale: sale.to_owned(),
                past_deadline: age.word,
            };
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.open_claims_by_age.get_or_create(&label).set(count);
        }
    }

    /// Counts a batch of clicks and, unless it came before, its clicks.
    pub fn click_batch(&self, is_new: bool, clicks: u64) {
        let outcome = if is_new { "counted" } else { "counted_before" };
        let label = OutcomeLabel { outcome };
        self.click_batches.get_or_create(&label).inc();
        if is_new {
            self.clicks.inc_by(clicks);
        }
    }

    /// Counts what was to be a batch of clicks, and was none.
    pub fn click_batches_refused(&self) {
        let outcome = "refused";
        let label = OutcomeLabel { outcome };
        self.click_batches.get_or_create(&label).inc();
    }

    /// Notes a sale's drift.
    pub fn drift(&self, sale: &str, units: i64) {
        let sale = sale.to_owned();
        self.drift.get_or_create(&SaleLabel { sale }).set(units);
    }

    /// All numbers, in the text format of OpenMetrics.
    pub fn text(&self) -> String {
        let mut out = String::new();
        if let Err(error) = text::encode(&mut out, &self.registry) {
            out.clear();
            // A comment: a scrape that has no numbers, and says why.
            let _ = writeln!(out, "# {error}");
        }
        out
    }
}
