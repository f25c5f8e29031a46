//! The traffic of this process over the last 24 hours, for the console. Metrics systems keep more, of all origins.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use super::health::Health;
use crate::background::Interval;
use crate::clock::now_ms;
use crate::metrics::Metrics;

/// Interval between two samples.
const PERIOD: Duration = Duration::from_secs(5 * 60);

/// Samples of 24 hours.
const SAMPLES_MAX: usize = 24 * 12;

/// Counts since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = TrafficSample)]
struct Sample {
    /// Milliseconds since the Unix epoch.
    at_ms: u64,
    /// Claims with a new order.
    orders: u64,
    /// Claims without an order.
    refused: u64,
    /// Clicks counted.
    clicks: u64,
    /// Events accepted.
    events: u64,
    /// Events rejected.
    rejected: u64,
}

/// The samples of 24 hours, in memory. Cloning it is cheap: clones share the samples.
#[derive(Clone, Debug, Default)]
pub struct Traffic(Arc<Mutex<VecDeque<Sample>>>);

impl Traffic {
    /// Takes a sample at every interval, until `stop`.
    pub async fn run(self, metrics: Metrics, stop: CancellationToken) {
        let mut interval = Interval::every(PERIOD, "recording the traffic", stop);
        while interval.next().await {
            self.add(Sample::read(&metrics.text(), now_ms()));
            interval.ended(&Ok::<_, Infallible>(()));
        }
    }

    fn add(&self, sample: Sample) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() == SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    fn samples(&self) -> Vec<Sample> {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        samples.iter().copied().collect()
    }
}

impl Sample {
    /// The sums in OpenMetrics text.
    fn read(text: &str, at_ms: u64) -> Self {
        let mut sample = Self {
            at_ms,
            ..Self::default()
        };
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else {
                continue;
            };
            let Ok(value) = value.parse::<u64>() else {
                continue;
            };
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            if let Some(sum) = sample.of(name, labels) {
                *sum += value;
            }
        }
        sample
    }

    /// The sum that a series is part of.
    fn of(&mut self, name: &str, labels: &str) -> Option<&mut u64> {
        let has = |part: &str| labels.contains(part);
        match name {
            "weir_origin_orders_total" if has("outcome=\"ordered\"") => Some(&mut self.orders),
            // Repeated and released claims are neither.
            "weir_origin_orders_total" if has("\"ordered_before\"") || has("\"released\"") => None,
            "weir_origin_orders_total" => Some(&mut self.refused),
            "weir_origin_clicks_total" => Some(&mut self.clicks),
            "weir_origin_events_total" if has("verdict=\"accepted\"") => Some(&mut self.events),
            "weir_origin_events_total" if has("verdict=\"rejected\"") => Some(&mut self.rejected),
            _ => None,
        }
    }
}

/// The traffic of one origin.
#[derive(Serialize, ToSchema)]
#[schema(as = Traffic)]
pub(super) struct TrafficView {
    /// Counts every five minutes, oldest first, and the current ones; at most 24 hours, since the start of the process.
    samples: Vec<Sample>,
}

/// Get the traffic of this origin over the last 24 hours
#[utoipa::path(
    get,
    path = "/traffic",
    operation_id = "getTraffic",
    responses((status = 200, description = "The traffic", body = TrafficView)),
)]
pub(super) async fn traffic(State(health): State<Health>) -> Json<TrafficView> {
    let mut samples = health.traffic.samples();
    samples.push(Sample::read(&health.metrics.text(), now_ms()));
    Json(TrafficView { samples })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_sums_series_by_outcome() {
        let text = "# TYPE weir_origin_orders counter\n\
            weir_origin_orders_total{outcome=\"ordered\"} 3\n\
            weir_origin_orders_total{outcome=\"ordered_before\"} 9\n\
            weir_origin_orders_total{outcome=\"sold_out\"} 4\n\
            weir_origin_orders_total{outcome=\"user_cap\"} 1\n\
            weir_origin_clicks_total 5\n\
            weir_origin_events_total{verdict=\"accepted\",reason=\"\"} 6\n\
            weir_origin_events_total{verdict=\"rejected\",reason=\"clock\"} 2\n\
            weir_origin_sql_seconds_sum 0.5\n\
            # EOF\n";
        let expected = Sample {
            at_ms: 7,
            orders: 3,
            refused: 5,
            clicks: 5,
            events: 6,
            rejected: 2,
        };
        assert_eq!(Sample::read(text, 7), expected);
    }

    #[test]
    fn oldest_sample_leaves_after_a_day() {
        let traffic = Traffic::default();
        for at_ms in 0..=SAMPLES_MAX as u64 {
            traffic.add(Sample {
                at_ms,
                ..Sample::default()
            });
        }
        let samples = traffic.samples();
        assert_eq!((samples.len(), samples[0].at_ms), (SAMPLES_MAX, 1));
    }
}
