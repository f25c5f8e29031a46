//! Events as servers send them, over many connections.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Serialize;
use weir_load::{Outcome, Pace, Plan};

use super::CONNECTIONS;

/// The warm-up before each window.
const WARM_UP: Duration = Duration::from_secs(1);

/// The number of customers in events.
const CUSTOMERS: u64 = 10_000;

/// Numbers events, so that IDs are unique.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The results of one turn.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct TrafficFigures {
    pub events_per_s: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
}

/// Sends batches of events for a while; all must be acknowledged.
pub(super) fn send(
    server: SocketAddr,
    key: &str,
    batch: u64,
    pace: Pace,
    window: Duration,
) -> Result<TrafficFigures> {
    let mut body = Vec::new();
    let mut request = |_: u64, text: &mut Vec<u8>| {
        body.clear();
        write_events(&mut body, batch);
        // Writing to memory cannot fail.
        let _ = write!(
            text,
            "POST /events HTTP/1.1\r\nhost: shop.example\r\ncontent-type: application/json\r\n\
             x-weir-write-key: {key}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        text.extend_from_slice(&body);
    };
    let mut first = Vec::new();
    request(0, &mut first);
    let answer = weir_load::ask(server, &first)?;
    let accepted = format!("\"accepted\":{batch}");
    // Refused events are answered with 202, too.
    ensure!(
        String::from_utf8_lossy(&answer.body).contains(&accepted),
        "not all events are accepted: {answer:?}"
    );
    let plan = plan(server, pace, window);
    let outcome = tokio::task::block_in_place(|| weir_load::run(&plan, &mut request, &mut |_| ()))?;
    only(&outcome, 202)?;
    Ok(TrafficFigures {
        events_per_s: outcome.rate() * batch as f64,
        p50_ms: outcome.latencies.percentile_ms(50.0),
        p99_ms: outcome.latencies.percentile_ms(99.0),
    })
}

pub(super) fn plan(server: SocketAddr, pace: Pace, window: Duration) -> Plan {
    Plan {
        server,
        connections: CONNECTIONS,
        pace,
        warm_up: WARM_UP,
        window,
        core: None,
    }
}

/// A measurement that includes refusals is invalid.
pub(super) fn only(outcome: &Outcome, status: u16) -> Result<()> {
    let others: BTreeMap<_, _> = outcome
        .statuses
        .iter()
        .filter(|(of, _)| **of != status)
        .collect();
    ensure!(
        others.is_empty() && outcome.unanswered == 0,
        "not all answers were {status}: {others:?}; {} had no answer",
        outcome.unanswered
    );
    Ok(())
}

fn write_events(body: &mut Vec<u8>, batch: u64) {
    body.push(b'[');
    for place in 0..batch {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let comma = if place > 0 { "," } else { "" };
        let _ = write!(
            body,
            "{comma}{{\"id\":\"bench-{n}\",\"type\":\"view\",\"customer\":\"customer-{}\",\
             \"attributes\":{{\"sku\":\"{}\",\"list\":\"home\",\"place\":{place}}}}}",
            n % CUSTOMERS,
            n * 7 % 50_000,
        );
    }
    body.push(b']');
}
