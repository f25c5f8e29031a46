//! Metrics per sale, with a bounded number of labels.
//!
//! A label per sale would make the number of time series grow without bound. So this module stores the numbers of the
//! sales that the reconciler works on, and creates labels at each scrape: one for each of the most important sales, and
//! one for the sum of all others.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabel, EncodeLabelSet, EncodeMetric, LabelSetEncoder,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use weir_base::id::SaleId;

use super::metrics::{CLAIM_AGES, ClaimAge};

/// Maximum number of sales with their own label.
pub const LABELLED_MAX: usize = 50;

/// The label of all other sales. It is not a valid sale id.
const OTHERS: &str = "(others)";

/// Current numbers of a sale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SaleNumbers {
    /// Whether the sale has started and not ended.
    pub is_open: bool,
    /// Available units in Redis.
    pub stock: u64,
    /// Units in open claims.
    pub held: u64,
    /// Units in orders, according to Redis.
    pub ordered: u64,
    /// Claims neither ordered nor released.
    pub open_claims: u64,
    /// Open claims by the time since their deadline; see [`CLAIM_AGES`].
    pub open_claims_by_age: [u64; CLAIM_AGES.len()],
    /// Shards without stock in Redis.
    pub cold_shards: u64,
}

/// The numbers of all sales. Cloning it is cheap: clones share them.
#[derive(Clone, Debug, Default)]
pub struct BySale(Arc<Mutex<BTreeMap<SaleId, SaleFigures>>>);

#[derive(Clone, Copy, Debug, Default)]
struct SaleFigures {
    numbers: SaleNumbers,
    /// Surplus units in the sum; `None` until the first balance check.
    drift: Option<i64>,
}

impl SaleFigures {
    /// Whether an operator should look at the sale.
    fn is_amiss(&self) -> bool {
        self.numbers.cold_shards > 0 || self.drift.is_some_and(|units| units != 0)
    }

    /// Sort key: more important sales are greater.
    fn rank(&self) -> (bool, bool, u64) {
        let numbers = &self.numbers;
        let units = numbers.stock.saturating_add(numbers.held);
        let units = units.saturating_add(numbers.ordered);
        (self.is_amiss(), numbers.is_open, units)
    }

    /// Adds another sale. Adds absolute drifts, so that they do not cancel each other out.
    fn add(&mut self, other: &Self) {
        let (sum, more) = (&mut self.numbers, &other.numbers);
        for (sum, more) in [
            (&mut sum.stock, more.stock),
            (&mut sum.held, more.held),
            (&mut sum.ordered, more.ordered),
            (&mut sum.open_claims, more.open_claims),
            (&mut sum.cold_shards, more.cold_shards),
        ] {
            *sum = sum.saturating_add(more);
        }
        let ages = sum.open_claims_by_age.iter_mut();
        for (sum, more) in ages.zip(more.open_claims_by_age) {
            *sum = sum.saturating_add(more);
        }
        let drift = other.drift.map(i64::saturating_abs);
        if let Some(more) = drift {
            self.drift = Some(self.drift.unwrap_or(0).saturating_add(more));
        }
    }
}

impl BySale {
    /// Sets the numbers of a sale.
    pub fn set(&self, sale: &SaleId, numbers: SaleNumbers) {
        self.lock().entry(sale.clone()).or_default().numbers = numbers;
    }

    /// Sets the drift of a sale.
    pub fn set_drift(&self, sale: &SaleId, units: i64) {
        self.lock().entry(sale.clone()).or_default().drift = Some(units);
    }

    /// Removes all sales that do not satisfy `is_kept`.
    pub fn keep(&self, is_kept: impl Fn(&SaleId) -> bool) {
        self.lock().retain(|sale, _| is_kept(sale));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SaleId, SaleFigures>> {
        // The map is always consistent, even after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the labels of a scrape with their numbers.
    fn labelled(&self) -> Vec<(String, SaleFigures)> {
        let all = self.lock();
        let mut sales: Vec<(&SaleId, &SaleFigures)> = all.iter().collect();
        // The sort is stable: equal sales stay in the order of their ids, so labels do not flap.
        sales.sort_by_key(|(_, existing)| std::cmp::Reverse(existing.rank()));
        let rest = sales.split_off(sales.len().min(LABELLED_MAX));
        let named =
            |(sale, existing): (&SaleId, &SaleFigures)| (sale.as_str().to_owned(), *existing);
        let mut labelled: Vec<(String, SaleFigures)> = sales.into_iter().map(named).collect();
        if !rest.is_empty() {
            let mut others = SaleFigures::default();
            rest.iter().for_each(|(_, existing)| others.add(existing));
            labelled.push((OTHERS.to_owned(), others));
        }
        labelled
    }
}

/// One gauge value of a sale, with an optional second label.
type GaugeReading = (Option<(&'static str, &'static str)>, Option<i64>);

fn number(units: u64) -> Option<i64> {
    Some(i64::try_from(units).unwrap_or(i64::MAX))
}

/// A gauge value without a second label.
fn plain(value: Option<i64>) -> Vec<GaugeReading> {
    vec![(None, value)]
}

fn units(numbers: &SaleNumbers) -> Vec<GaugeReading> {
    let states = [
        ("stock", numbers.stock),
        ("held", numbers.held),
        ("ordered", numbers.ordered),
    ];
    let reading = |(state, units)| (Some(("state", state)), number(units));
    states.map(reading).into()
}

fn by_age(numbers: &SaleNumbers) -> Vec<GaugeReading> {
    let ages = CLAIM_AGES.iter().zip(numbers.open_claims_by_age);
    let reading =
        |(age, claims): (&ClaimAge, u64)| (Some(("past_deadline", age.word)), number(claims));
    ages.map(reading).collect()
}

impl Collector for BySale {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let sales = self.labelled();
        let mut family = |name, help, read: fn(&SaleFigures) -> Vec<GaugeReading>| {
            write_family(&mut encoder, name, help, &sales, read)
        };
        let help = "Units per sale in Redis: in stock, in open claims, ordered";
        family("sale_units", help, |of| units(&of.numbers))?;
        let help = "Claims neither ordered nor released";
        family("open_claims", help, |of| {
            plain(number(of.numbers.open_claims))
        })?;
        let help = "Open claims by time past their deadline";
        family("open_claims_by_age", help, |of| by_age(&of.numbers))?;
        let help = "Surplus units; below 0: missing units";
        family("drift_units", help, |of| plain(of.drift))?;
        let help = "Shards of warmed sales without stock in Redis";
        family("cold_shards", help, |of| {
            plain(number(of.numbers.cold_shards))
        })
    }
}

/// Encodes one metric family: one line per sale and value.
fn write_family(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    sales: &[(String, SaleFigures)],
    read: fn(&SaleFigures) -> Vec<GaugeReading>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (sale, existing) in sales {
        for (label, value) in read(existing) {
            if let Some(value) = value {
                let labels = Labels(sale, label);
                ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
            }
        }
    }
    Ok(())
}

/// The label of a sale, and an optional second one.
#[derive(Debug)]
struct Labels<'a>(&'a str, Option<(&'static str, &'static str)>);

impl EncodeLabelSet for Labels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        EncodeLabel::encode(&("sale", self.0), encoder.encode_label())?;
        match &self.1 {
            Some(label) => EncodeLabel::encode(label, encoder.encode_label()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_origin_core::metrics::Metrics;

    fn sale(name: &str) -> SaleId {
        SaleId::new(name).unwrap()
    }

    fn scrape(by_sale: &BySale) -> String {
        let metrics = Metrics::default();
        metrics.group(|group| group.add_collector(by_sale.clone()));
        metrics.text()
    }

    #[test]
    fn sales_beyond_the_label_limit_share_one_label() {
        let by_sale = BySale::default();
        for n in 0..LABELLED_MAX as u64 + 10 {
            let numbers = SaleNumbers {
                stock: n,
                open_claims: 1,
                ..SaleNumbers::default()
            };
            by_sale.set(&sale(&format!("s{n}")), numbers);
        }
        // The two smallest sales: one has a drift, one is open.
        by_sale.set_drift(&sale("s0"), -3);
        let open = SaleNumbers {
            is_open: true,
            stock: 1,
            ..SaleNumbers::default()
        };
        by_sale.set(&sale("s1"), open);
        let text = scrape(&by_sale);
        let labelled = text
            .lines()
            .filter(|line| line.starts_with("weir_origin_open_claims{"))
            .count();
        assert_eq!(labelled, LABELLED_MAX + 1, "{text}");
        for line in [
            "weir_origin_drift_units{sale=\"s0\"} -3\n",
            "weir_origin_sale_units{sale=\"s1\",state=\"stock\"} 1\n",
            "weir_origin_sale_units{sale=\"s59\",state=\"stock\"} 59\n",
            // Sum of s2 to s11.
            "weir_origin_sale_units{sale=\"(others)\",state=\"stock\"} 65\n",
            "weir_origin_open_claims{sale=\"(others)\"} 10\n",
        ] {
            assert!(text.contains(line), "{line} {text}");
        }
        assert!(!text.contains("sale=\"s11\""), "{text}");
    }

    #[test]
    fn ended_sale_has_no_label() {
        let by_sale = BySale::default();
        by_sale.set(&sale("a"), SaleNumbers::default());
        by_sale.set(&sale("b"), SaleNumbers::default());
        by_sale.keep(|id| id.as_str() == "b");
        let text = scrape(&by_sale);
        assert!(text.contains("{sale=\"b\"}") && !text.contains("sale=\"a\""));
        // The family stays, so that alert rules that name it remain valid.
        by_sale.keep(|_| false);
        assert!(scrape(&by_sale).contains("# TYPE weir_origin_open_claims gauge"));
    }

    #[test]
    fn opposite_drifts_of_other_sales_do_not_cancel_out() {
        let mut others = SaleFigures::default();
        for drift in [Some(2), None, Some(-2)] {
            let numbers = SaleNumbers::default();
            others.add(&SaleFigures { numbers, drift });
        }
        assert_eq!(others.drift, Some(4));
        let mut unread = SaleFigures::default();
        unread.add(&SaleFigures::default());
        assert_eq!(unread.drift, None);
    }
}
