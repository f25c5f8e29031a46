//! The delay between a view's acknowledgement and its appearance in its list, under other traffic, and the effect of a
//! group that always fails.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use redis::aio::MultiplexedConnection;
use serde::Serialize;
use serde_json::json;
use weir_base::id::UserId;
use weir_history::Owner;
use weir_history::redis::keys::HistoryKeys;
use weir_load::Pace;
use weir_stack::http::{Connection, Method};
use weir_stack::tools::Options;
use weir_stack::{ports, redis as stack_redis};

use super::{Arguments, Shop, median, traffic};

/// Background events per second.
const BESIDE_PER_S: f64 = 500.0;

/// Observed views per turn if time permits: ten of them are slower than p99.
const VIEWS: usize = 1_000;

/// Turns of each kind.
const TURNS: usize = 4;

/// The background traffic's lead and trail around the observations.
const LEAD: Duration = Duration::from_secs(1);

/// The polling interval.
const LOOK: Duration = Duration::from_micros(500);

const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Serialize)]
pub(super) struct GroupFigures {
    /// The delay from acknowledgement to visibility, without a failing group.
    visible: Vec<Visible>,
    /// The same while a webhook always fails.
    visible_beside_failing: Vec<Visible>,
    /// The ratio of the p99 medians.
    ratio: f64,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Visible {
    p50_ms: f64,
    p99_ms: f64,
}

pub(super) async fn measure(arguments: &Arguments, tools: &Options) -> Result<GroupFigures> {
    let unreachable = format!("http://127.0.0.1:{}/hook", ports::free()?);
    let flags = ["--events-webhook-url", unreachable.as_str()];
    let configure = |builder: weir_stack::Builder| builder.events().origin_flags(flags);
    let shop = Shop::open(tools, "groups", configure).await?;
    let (mut without, mut beside) = (Vec::new(), Vec::new());
    let mut first = 0;
    for _ in 0..TURNS {
        shop.pause(&["webhook"]).await?;
        without.push(turn(arguments, &shop, &mut first).await?);
        shop.admin(Method::POST, "/groups/webhook/resume").await?;
        beside.push(turn(arguments, &shop, &mut first).await?);
    }
    let p99 = |all: &[Visible]| median(all.iter().map(|one| one.p99_ms));
    let ratio = p99(&beside) / p99(&without);
    println!(
        "a view is in its list: p50 {:.1} ms, p99 {:.1} ms after its acknowledgement; with a second group that always fails {:.1} ms: {ratio:.2}",
        median(without.iter().map(|one| one.p50_ms)),
        p99(&without),
        p99(&beside)
    );
    Ok(GroupFigures {
        visible: without,
        visible_beside_failing: beside,
        ratio,
    })
}

async fn turn(arguments: &Arguments, shop: &Shop, first: &mut usize) -> Result<Visible> {
    let (server, key) = (shop.server()?, shop.stack.event_key.clone());
    // The traffic begins before the first view and ends after the last one.
    let window = arguments.turn();
    let looks = window.saturating_sub(2 * LEAD);
    let beside = std::thread::spawn(move || {
        let per_second = BESIDE_PER_S / 10.0;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()?;
        runtime
            .block_on(async { traffic::send(server, &key, 10, Pace::Open { per_second }, window) })
    });
    tokio::time::sleep(LEAD).await;
    let mut http = Connection::open(&server.to_string()).await?;
    let mut redis = stack_redis::connect(shop.stack.redis_url()).await?;
    let mut elapsed = Vec::with_capacity(VIEWS);
    let start = Instant::now();
    while elapsed.len() < VIEWS && start.elapsed() < looks {
        elapsed.push(look_for(shop, &mut http, &mut redis, *first).await?);
        *first += 1;
    }
    beside
        .join()
        .map_err(|_| anyhow::anyhow!("the background traffic panicked"))??;
    elapsed.sort();
    let at = |part: usize| {
        let place = (elapsed.len() * part / 100).min(elapsed.len().saturating_sub(1));
        elapsed
            .get(place)
            .map_or(f64::NAN, |elapsed| elapsed.as_secs_f64() * 1e3)
    };
    Ok(Visible {
        p50_ms: at(50),
        p99_ms: at(99),
    })
}

/// Sends a new visitor's view, and polls for the list.
async fn look_for(
    shop: &Shop,
    http: &mut Connection,
    redis: &mut MultiplexedConnection,
    n: usize,
) -> Result<Duration> {
    let customer = format!("somebody-{n}");
    let event = json!([{ "id": format!("look-{n}"), "type": "view", "customer": customer, "attributes": { "sku": "1" } }]);
    let headers = [
        ("content-type", "application/json"),
        ("x-weir-write-key", shop.stack.event_key.as_str()),
    ];
    let answer = http
        .send(Method::POST, "/events", &headers, event.to_string())
        .await?;
    ensure!(answer.status == 202, "{}", answer.text());
    ensure!(answer.json()?["accepted"] == 1, "{}", answer.text());
    let acknowledged = Instant::now();
    let owner = Owner::user(&UserId::new(&customer)?);
    let key = HistoryKeys::new(&shop.stack.key_prefix, &owner).views();
    while !redis::cmd("EXISTS")
        .arg(&key)
        .query_async::<bool>(redis)
        .await?
    {
        ensure!(acknowledged.elapsed() < PATIENCE, "a view does not arrive");
        tokio::time::sleep(LOOK).await;
    }
    Ok(acknowledged.elapsed())
}
