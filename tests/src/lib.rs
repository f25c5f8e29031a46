//! Shared code of end-to-end tests: a running Weir, and crowds that buy from it.
//!
//! All parts are real: Envoy with `envoy/weir.yaml`, Redis, the origin with its SQLite file. Each test starts its own
//! on free ports and stops them.

mod browser;
mod crowd;
mod drained;
mod events;
mod fill;
mod garage;
mod limiters;
mod links;
mod rooms;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_stack::Stack;
use weir_stack::http::{self, Connection, Method, Response};
use weir_stack::native::Host;
pub use weir_stack::sale::verdict;

pub use browser::{Browser, Screen};
pub use crowd::{Crowd, Verdicts};
pub use drained::{CLAIM_TTL, faulty, sold_out_exactly};
pub use events::{
    EventGateway, EventOrigin, ReceivedRequest, Respond, SHOP_KEY, Server, Shop, response,
};
pub use fill::fill;
pub use garage::use_garage;
pub use limiters::{Burst, DEBUG_SECRET, Limiters, RedisPath, Setup};
pub use links::{LinkGateways, LinkSetup};
pub use rooms::{Person, ROOM_SECRET, RoomSetup, Rooms};

/// The maximum wait for an expected event, on a machine that is busy with other tests.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The pause before a retry after an error.
const PAUSE: Duration = Duration::from_millis(200);

/// A sale's data in SQL and Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StockBalance {
    /// Units to sell: the initial ones, and those added or withdrawn since.
    pub total: u64,
    /// Orders in SQL.
    pub orders: u64,
    /// Units left in SQL.
    pub remaining: u64,
    /// Units left in Redis, in all shards together.
    pub stock: u64,
    /// Units in open claims.
    pub held: u64,
}

impl StockBalance {
    /// Whether no unit was created or lost.
    pub fn balance(&self) -> bool {
        self.stock + self.held + self.orders == self.total
            && self.remaining + self.orders == self.total
    }
}

/// Whether to skip a test because the native module runs the filters. If so, prints that it is about `about`, a part of
/// the WebAssembly filters.
pub fn is_left_out_on_native(about: &str) -> bool {
    let is_left_out = Host::of_run().is_native();
    if is_left_out {
        println!("left out on the native module: it is about {about}");
    }
    is_left_out
}

/// The number of connections that gateways have opened to Redis. On the native module, which uses no Envoy cluster for
/// Redis, it includes the origin's.
///
/// # Errors
/// Envoy or Redis does not report it.
pub async fn redis_connections(stack: &Stack) -> Result<u64> {
    if !Host::of_run().is_native() {
        let name = "cluster.weir_redis_upstream.upstream_cx_total";
        return stack.envoy.stat(name).await;
    }
    let mut redis = weir_stack::redis::connect(stack.redis_url()).await?;
    let stats: String = redis::cmd("INFO")
        .arg("stats")
        .query_async(&mut redis)
        .await?;
    let mut lines = stats.lines();
    let count = lines.find_map(|line| line.strip_prefix("total_connections_received:"));
    Ok(count.context("Redis does not say it")?.trim().parse()?)
}

/// Sends one purchase over a new connection.
///
/// # Errors
/// There is no answer.
pub async fn buy(stack: &Stack, sale: &str, user: &str) -> Result<Response> {
    http::send(
        Method::POST,
        &stack.buy_url(sale),
        &[("x-user-id", user)],
        "",
    )
    .await
}

/// The stock balance of a sale.
///
/// # Errors
/// The origin does not return it.
pub async fn stock_balance(stack: &Stack, sale: &str) -> Result<StockBalance> {
    let response = stack
        .admin(Method::GET, &format!("/sales/{sale}"), "", 200)
        .await?;
    let number = |of: &Value, name: &str| {
        let number = of.get(name).and_then(Value::as_u64);
        number.with_context(|| format!("no number {name}: {of}"))
    };
    let shards = response.get("shards").and_then(Value::as_array);
    let shards = shards.context("no shards")?;
    let sum = |name: &str| {
        let numbers = shards.iter().map(|shard| number(shard, name));
        numbers.sum::<Result<u64>>()
    };
    Ok(StockBalance {
        total: number(&response, "total")?,
        orders: number(&response, "orders")?,
        remaining: number(&response, "remaining")?,
        stock: sum("stock")?,
        held: sum("held")?,
    })
}

/// Script calls of gateways and origin, as Redis counts them. Gateways' polls are plain GETs and do not count.
///
/// # Errors
/// Redis does not respond.
pub async fn script_calls(stack: &Stack) -> Result<u64> {
    let calls = weir_stack::redis::command_calls(stack.redis_url()).await?;
    Ok(script_calls_of(&calls))
}

fn script_calls_of(calls: &BTreeMap<String, u64>) -> u64 {
    let names = ["eval", "evalsha"].iter();
    names.filter_map(|name| calls.get(*name)).sum()
}

/// Grows with each claim group that Redis has decided: its scripts call HMGET for each, and no others call it.
///
/// # Errors
/// Redis does not respond.
pub async fn claim_groups(stack: &Stack) -> Result<u64> {
    let calls = weir_stack::redis::command_calls(stack.redis_url()).await?;
    Ok(calls.get("hmget").copied().unwrap_or(0))
}

/// Makes each of `users` buy once, with retries when told to, over `connections` connections. Returns the number of
/// users by final verdict.
///
/// # Errors
/// A connection breaks, or a user is told to wait longer than [`PATIENCE`].
pub async fn rush(
    stack: &Stack,
    sale: &str,
    users: Vec<String>,
    connections: usize,
) -> Result<BTreeMap<String, usize>> {
    let path: Arc<str> = format!("/sales/{sale}/orders").into();
    let (users, next) = (Arc::new(users), Arc::new(AtomicUsize::new(0)));
    let mut lines = tokio::task::JoinSet::new();
    for _ in 0..connections {
        let authority = stack.gateway_authority();
        let (users, next, path) = (Arc::clone(&users), Arc::clone(&next), Arc::clone(&path));
        lines.spawn(async move {
            let mut connection = Connection::open(&authority).await?;
            let mut verdicts = Vec::new();
            while let Some(user) = users.get(next.fetch_add(1, Ordering::Relaxed)) {
                verdicts.push(buy_patiently(&mut connection, &path, user).await?);
            }
            anyhow::Ok(verdicts)
        });
    }
    let mut counts = BTreeMap::new();
    while let Some(line) = lines.join_next().await {
        for verdict in line?? {
            *counts.entry(verdict).or_default() += 1;
        }
    }
    Ok(counts)
}

async fn buy_patiently(connection: &mut Connection, path: &str, user: &str) -> Result<String> {
    let started = tokio::time::Instant::now();
    loop {
        let answer = connection
            .send(Method::POST, path, &[("x-user-id", user)], "")
            .await?;
        let Some(wait) = wait_after(&answer, PAUSE)? else {
            return Ok(verdict(&answer).to_owned());
        };
        ensure!(
            started.elapsed() < PATIENCE,
            "{user} still hears {}",
            answer.text()
        );
        tokio::time::sleep(wait).await;
    }
}

/// The wait before a retry; `None` after a final answer. A rate limited user waits as long as told. After a fault,
/// people retry sooner: after `pause`.
fn wait_after(answer: &Response, pause: Duration) -> Result<Option<Duration>> {
    if !matches!(answer.status, 429 | 503) && verdict(answer) != "all_reserved" {
        return Ok(None);
    }
    let seconds = answer.header("retry-after").and_then(|s| s.parse().ok());
    let seconds = seconds.with_context(|| {
        let (status, text) = (answer.status, answer.text());
        format!("a {status} without a Retry-After in seconds: {text}")
    })?;
    Ok(Some(match answer.status {
        429 => Duration::from_secs(seconds),
        _ => pause,
    }))
}

/// User IDs: `user-<first>` and so on.
pub fn users(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| format!("user-{n}")).collect()
}

/// Waits until `is_so`.
///
/// # Errors
/// It does not hold within [`PATIENCE`].
pub async fn until(subject: &str, is_so: impl AsyncFn() -> bool) -> Result<()> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !is_so().await {
        ensure!(
            tokio::time::Instant::now() < deadline,
            "not within {PATIENCE:?}: {subject}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// A process's CPU time in clock ticks, user and system together, from `/proc/<pid>/stat`.
fn cpu_ticks(pid: u32) -> Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field is the name in parentheses, which may contain spaces.
    let after_name = stat.rsplit_once(')').context("no name")?.1;
    let field = |n: usize| {
        after_name
            .split_whitespace()
            .nth(n - 3)
            .and_then(|f| f.parse::<u64>().ok())
    };
    Ok(field(14).context("utime")? + field(15).context("stime")?)
}

/// Linux reports 100 ticks per second for every process (`USER_HZ`).
const TICKS_PER_S: u64 = 100;

/// Observes a process for two seconds in which it should be idle.
///
/// # Errors
/// It uses at least half a core.
pub async fn rests(pid: u32) -> Result<()> {
    let ticks = cpu_ticks(pid)?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let spent = cpu_ticks(pid)? - ticks;
    ensure!(
        spent < TICKS_PER_S,
        "it spins: {spent} ticks in 2 s without a request"
    );
    Ok(())
}
