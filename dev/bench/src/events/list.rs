//! Lists of 200 entries through Envoy.

use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::json;
use weir_load::{Outcome, Pace};
use weir_stack::http::{self, Connection, Method};
use weir_stack::tools::Options;

use super::{Arguments, ROUNDS, Shop, median, traffic};

/// The number of customers with lists.
const CUSTOMERS: u64 = 500;

/// Views per customer, which is the maximum length of a list.
const VIEWS: u64 = 200;

const PATIENCE: Duration = Duration::from_secs(300);

#[derive(Debug, Serialize)]
pub(super) struct ListFigures {
    bytes: usize,
    /// The maximum rate of lists per second.
    most_per_s: f64,
    half: Vec<Half>,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Half {
    p50_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
}

pub(super) async fn measure(arguments: &Arguments, tools: &Options) -> Result<ListFigures> {
    let shop = Shop::open(tools, "list", |builder| builder.events()).await?;
    fill(&shop).await?;
    let bytes = wait(&shop).await?;
    let authority = shop.stack.gateway_authority();
    let server = authority.parse().context("the gateway's address")?;
    let most_per_s = ask(server, Pace::Closed, arguments.turn())?.rate();
    let per_second = most_per_s / 2.0;
    let mut half = Vec::new();
    for _ in 0..ROUNDS {
        let outcome = ask(server, Pace::Open { per_second }, arguments.turn())?;
        let at = |part| outcome.latencies.percentile_ms(part);
        half.push(Half {
            p50_ms: at(50.0),
            p99_ms: at(99.0),
            p999_ms: at(99.9),
        });
    }
    println!(
        "lists of {VIEWS} ({bytes} bytes): {most_per_s:.0}/s; at half of it p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms",
        median(half.iter().map(|one| one.p50_ms)),
        median(half.iter().map(|one| one.p99_ms)),
        median(half.iter().map(|one| one.p999_ms))
    );
    Ok(ListFigures {
        bytes,
        most_per_s,
        half,
    })
}

fn ask(server: SocketAddr, pace: Pace, window: Duration) -> Result<Outcome> {
    let mut request = |n: u64, text: &mut Vec<u8>| {
        // Writing to memory cannot fail.
        let _ = write!(
            text,
            "GET /history?limit={VIEWS} HTTP/1.1\r\nhost: shop.example\r\nx-user-id: reader-{}\r\n\r\n",
            n % CUSTOMERS
        );
    };
    let plan = traffic::plan(server, pace, window);
    let outcome = tokio::task::block_in_place(|| weir_load::run(&plan, &mut request, &mut |_| ()))?;
    traffic::only(&outcome, 200)?;
    Ok(outcome)
}

async fn fill(shop: &Shop) -> Result<()> {
    let mut http = Connection::open(&shop.server()?.to_string()).await?;
    let headers = [
        ("content-type", "application/json"),
        ("x-weir-write-key", shop.stack.event_key.as_str()),
    ];
    let now_ms = u64::try_from(std::time::UNIX_EPOCH.elapsed()?.as_millis())?;
    for customer in 0..CUSTOMERS {
        for batch in 0..VIEWS / 20 {
            let view = |n: u64| {
                json!({
                    "id": format!("fill-{customer}-{n}"),
                    "type": "view",
                    "customer": format!("reader-{customer}"),
                    "at_ms": now_ms - (VIEWS - n) * 1_000,
                    "attributes": { "sku": format!("{}", 1_000_000 + n * 37 + customer) },
                })
            };
            let events: Vec<_> = (batch * 20..batch * 20 + 20).map(view).collect();
            let answer = http
                .send(Method::POST, "/events", &headers, json!(events).to_string())
                .await?;
            ensure!(answer.json()?["accepted"] == 20, "{}", answer.text());
        }
    }
    Ok(())
}

/// Waits until the last customer's list is complete. Returns its length in bytes.
async fn wait(shop: &Shop) -> Result<usize> {
    let url = format!("{}/history?limit={VIEWS}", shop.stack.gateway_url());
    let last = format!("reader-{}", CUSTOMERS - 1);
    let start = Instant::now();
    loop {
        let answer = http::send(Method::GET, &url, &[("x-user-id", &last)], "").await?;
        ensure!(answer.status == 200, "{}", answer.text());
        let items = answer.json()?["items"].as_array().map_or(0, Vec::len);
        if items as u64 == VIEWS {
            return Ok(answer.body.len());
        }
        ensure!(start.elapsed() < PATIENCE, "the list has {items} only");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
