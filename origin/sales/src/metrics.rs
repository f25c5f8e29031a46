//! Metrics of sales and orders. `docs/metrics.md` lists every name.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use super::by_sale::BySale;
use super::store::PaymentState;
use weir_origin_core::metrics::{Group, Metrics};
use weir_origin_core::outbox::{Backlog, Meter, SinkName};

/// The outcomes of claims at `POST /orders`.
const ORDER_OUTCOMES: [&str; 12] = [
    "barred",
    "claim_invalid",
    "group_cap",
    "cooling_down",
    "unpaid_holds",
    "key_reused",
    "ordered",
    "ordered_before",
    "released",
    "sold_out",
    "unknown_sale",
    "user_cap",
];

/// Outcomes of claims that the reconciler ends.
const CLAIM_OUTCOMES: [&str; 2] = ["released", "ordered_before"];

/// An age group of open claims.
#[derive(Clone, Copy, Debug)]
pub struct ClaimAge {
    /// Label value.
    pub word: &'static str,
    /// Maximum time since the deadline, in milliseconds; 0: the deadline has not passed. `None`: unlimited.
    pub past_ms_max: Option<u64>,
}

/// Outcomes of clicks in order requests.
const CLICKS: [&str; 2] = ["counted", "refused"];

/// Age groups of open claims by the time since their deadline, youngest first.
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

/// Outcomes of risk checks.
const RISK_OUTCOMES: [&str; 3] = ["passed", "blocked", "failed"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
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

/// The metrics of sales. Cloning it is cheap: clones share the values.
#[derive(Clone, Debug)]
pub struct SaleMetrics {
    orders: Family<OutcomeLabel, Counter>,
    reconciled: Family<OutcomeLabel, Counter>,
    unloaded_sales: Gauge,
    paused_sales: Gauge,
    open_changes: Gauge,
    risk: Family<OutcomeLabel, Counter>,
    payments: Family<StateLabel, Counter>,
    risk_pending: Gauge,
    clicks: Family<OutcomeLabel, Counter>,
    reported: Family<DeliveryLabel, Counter>,
    outbox_waiting: Family<ReceiverLabel, Gauge>,
    outbox_oldest_seconds: Family<ReceiverLabel, Gauge>,
    /// Numbers per sale.
    pub by_sale: BySale,
    /// Delay after deadline and grace period at which the reconciler ended claims, in seconds.
    pub overdue_seconds: Histogram,
    /// Units of transfers that the reconciler has finished.
    pub units_moved: Counter,
    /// Units added or removed by drift repairs.
    pub units_repaired: Counter,
    /// Orders that expired unpaid.
    pub expired: Counter,
    /// Requests refused because too many calls waited for SQL.
    pub shed: Counter,
    /// Cold shards rebuilt from SQL.
    pub rebuilt: Counter,
    /// Duration of SQL calls for public requests, including the wait for a permit, in seconds.
    pub sql_seconds: Histogram,
}

impl SaleMetrics {
    /// Registers the metrics.
    pub fn register(metrics: &Metrics) -> Self {
        let metrics = metrics.group(Self::add_to);
        metrics.start_at_zero();
        metrics
    }

    fn add_to(group: &mut Group<'_>) -> Self {
        // Buckets from 0.5 ms to 8 s, and from 0.25 s to 8 minutes.
        let sql_seconds = Histogram::new(exponential_buckets(0.000_5, 2.0, 15));
        let overdue_seconds = Histogram::new(exponential_buckets(0.25, 2.0, 12));
        let by_sale = BySale::default();
        group.add_collector(by_sale.clone());
        Self {
            by_sale,
            orders: group.add("orders", "Claims received, by outcome"),
            reconciled: group.add(
                "claims_reconciled",
                "Overdue claims ended by the reconciler, by outcome",
            ),
            unloaded_sales: group.add(
                "unloaded_sales",
                "Started sales that were never loaded into Redis",
            ),
            paused_sales: group.add(
                "paused_sales",
                "Sales paused because SQL has lost their orders",
            ),
            open_changes: group.add(
                "open_stock_changes",
                "Stock changes not confirmed by every shard",
            ),
            risk: group.add("risk_checks", "Risk checks, by outcome"),
            risk_pending: group.add(
                "risk_pending",
                "Users with a reservation and no risk score yet",
            ),
            clicks: group.add("order_clicks", "Click ids with orders, by outcome"),
            reported: group.add(
                "order_changes",
                "Order changes sent, by receiver and outcome",
            ),
            outbox_waiting: group.add(
                "outbox_orders_waiting",
                "Orders with undelivered changes, by receiver",
            ),
            outbox_oldest_seconds: group.add(
                "outbox_oldest_seconds",
                "Age of the oldest undelivered order change, in seconds",
            ),
            payments: group.add(
                "payment_callbacks",
                "Payment callbacks, by the resulting payment state",
            ),
            overdue_seconds: group.add_this(
                "overdue_seconds",
                "Delay of reconciled claims after deadline and grace period, in seconds",
                overdue_seconds,
            ),
            units_moved: group.add(
                "units_moved",
                "Units of transfers finished by the reconciler",
            ),
            units_repaired: group.add("units_repaired", "Units corrected by drift repairs"),
            expired: group.add("orders_expired", "Orders not paid in time"),
            shed: group.add("shed", "Requests refused because too many waited for SQL"),
            rebuilt: group.add("shards_rebuilt", "Cold shards rebuilt from SQL"),
            sql_seconds: group.add_this(
                "sql_seconds",
                "SQL time of public requests, including the queue, in seconds",
                sql_seconds,
            ),
        }
    }

    /// Creates all series with known labels at 0. A series that first appears with its first event shows no increase to
    /// alerts.
    fn start_at_zero(&self) {
        for outcome in ORDER_OUTCOMES {
            let _ = self.orders.get_or_create(&OutcomeLabel { outcome });
        }
        for outcome in CLAIM_OUTCOMES {
            let _ = self.reconciled.get_or_create(&OutcomeLabel { outcome });
        }
        for state in PaymentState::ALL.map(PaymentState::label) {
            let _ = self.payments.get_or_create(&StateLabel { state });
        }
        for name in SinkName::ALL {
            self.backlog(name, Backlog::default(), 0);
            let receiver = name.label();
            for outcome in ["sent", "failed"] {
                let _ = self
                    .reported
                    .get_or_create(&DeliveryLabel { receiver, outcome });
            }
        }
        for outcome in CLICKS {
            let _ = self.clicks.get_or_create(&OutcomeLabel { outcome });
        }
        for outcome in RISK_OUTCOMES {
            let _ = self.risk.get_or_create(&OutcomeLabel { outcome });
        }
    }

    /// Counts a claim's outcome at `POST /orders`.
    pub fn order(&self, outcome: &'static str) {
        self.orders.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Counts a claim that the reconciler has ended.
    pub fn claim_reconciled(&self, outcome: &'static str) {
        self.reconciled
            .get_or_create(&OutcomeLabel { outcome })
            .inc();
    }

    /// Counts a risk check.
    pub fn risk_check(&self, outcome: &'static str) {
        self.risk.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Sets the number of started sales that were never loaded into Redis.
    pub fn unloaded_sales(&self, sales: usize) {
        self.unloaded_sales
            .set(i64::try_from(sales).unwrap_or(i64::MAX));
    }

    /// Sets the number of paused sales.
    pub fn paused_sales(&self, sales: usize) {
        self.paused_sales
            .set(i64::try_from(sales).unwrap_or(i64::MAX));
    }

    /// Whether any sale is paused, according to the last count.
    pub fn has_paused_sales(&self) -> bool {
        self.paused_sales.get() > 0
    }

    /// Sets the number of unfinished stock changes.
    pub fn open_changes(&self, changes: usize) {
        self.open_changes
            .set(i64::try_from(changes).unwrap_or(i64::MAX));
    }

    /// Counts a callback of the payment provider.
    pub fn payment(&self, state: &'static str) {
        self.payments.get_or_create(&StateLabel { state }).inc();
    }

    /// Counts a click in an order request, by whether it is accepted.
    pub fn click(&self, counts: bool) {
        let [counted, refused] = CLICKS;
        let outcome = if counts { counted } else { refused };
        let label = OutcomeLabel { outcome };
        self.clicks.get_or_create(&label).inc();
    }

    /// Sets the number of users who wait for a risk check.
    pub fn risk_pending(&self, users: u64) {
        self.risk_pending
            .set(i64::try_from(users).unwrap_or(i64::MAX));
    }
}

impl Meter for SaleMetrics {
    fn count_delivery(&self, receiver: SinkName, outcome: &'static str) {
        let receiver = receiver.label();
        self.reported
            .get_or_create(&DeliveryLabel { receiver, outcome })
            .inc();
    }

    fn backlog(&self, receiver: SinkName, backlog: Backlog, now_ms: u64) {
        let label = ReceiverLabel {
            receiver: receiver.label(),
        };
        let gauge = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let age_s = gauge(backlog.age_ms(now_ms) / 1_000);
        self.outbox_waiting
            .get_or_create(&label)
            .set(gauge(backlog.subjects));
        self.outbox_oldest_seconds.get_or_create(&label).set(age_s);
    }
}
