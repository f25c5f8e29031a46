//! The storm: buyers who all come at once, over real HTTP/1.1 connections.

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use weir_stack::http::{Connection, Method, Response};

/// A buyer gives up after this many exchanges.
const TRIES_MAX: u32 = 10;

/// An exchange that takes longer counts as a broken connection.
const EXCHANGE_LIMIT: Duration = Duration::from_secs(30);

/// Waits before a retry: after a broken connection, and at most, whatever Retry-After says.
const RETRY_AFTER_BREAK: Duration = Duration::from_millis(100);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(5);

/// Latencies are kept in microseconds, to three digits, up to the longest exchange.
const LATENCY_MAX_US: u64 = EXCHANGE_LIMIT.as_micros() as u64;
const LATENCY_DIGITS: u8 = 3;

/// The word for an answer without `x-weir-verdict`: not the gate's.
const NO_VERDICT: &str = "none";

/// What to do.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// `http://host:port`.
    pub(super) gateway: String,
    /// Where a buyer posts.
    pub(super) path: String,
    /// How many buyers.
    pub(super) users: u32,
    /// How many connections they share.
    pub(super) connections: u32,
    /// Chooses the order in which they come.
    pub(super) seed: u64,
}

/// What the clients saw.
#[derive(Debug)]
pub(super) struct Storm {
    /// HTTP exchanges that were started.
    pub(super) requests: u64,
    /// Exchanges with no answer.
    pub(super) broken: u64,
    /// Buyers who had no final answer after ten tries.
    pub(super) gave_up: u64,
    /// Answers by `x-weir-verdict`.
    pub(super) verdicts: BTreeMap<String, u64>,
    /// Answers by status.
    pub(super) statuses: BTreeMap<u16, u64>,
    /// Of each answered exchange, in microseconds.
    pub(super) latency_us: Histogram<u64>,
    /// From the first request to the last answer.
    pub(super) duration: Duration,
}

impl Storm {
    fn empty() -> Result<Self> {
        Ok(Self {
            requests: 0,
            broken: 0,
            gave_up: 0,
            verdicts: BTreeMap::new(),
            statuses: BTreeMap::new(),
            latency_us: Histogram::new_with_max(LATENCY_MAX_US, LATENCY_DIGITS)?,
            duration: Duration::ZERO,
        })
    }

    fn add(&mut self, other: Self) -> Result<()> {
        self.requests += other.requests;
        self.broken += other.broken;
        self.gave_up += other.gave_up;
        for (verdict, count) in other.verdicts {
            *self.verdicts.entry(verdict).or_default() += count;
        }
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        self.latency_us.add(other.latency_us)?;
        Ok(())
    }

    fn count(&mut self, answer: &Response, took: Duration) {
        let verdict = answer.header("x-weir-verdict").unwrap_or(NO_VERDICT);
        match self.verdicts.get_mut(verdict) {
            Some(count) => *count += 1,
            None => _ = self.verdicts.insert(verdict.to_owned(), 1),
        }
        *self.statuses.entry(answer.status).or_default() += 1;
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.latency_us.saturating_record(micros);
    }

    /// Exchanges in a second.
    pub(super) fn requests_per_s(&self) -> f64 {
        self.requests as f64 / self.duration.as_secs_f64().max(f64::EPSILON)
    }
}

/// What all connections share.
struct Shared {
    authority: String,
    path: String,
    users: Vec<u32>,
    next: AtomicUsize,
    bar: ProgressBar,
}

/// Lets every buyer try once, and again while told to; returns what they saw.
pub(super) async fn run(plan: &Plan) -> Result<Storm> {
    let authority = plan.gateway.strip_prefix("http://");
    let shared = Arc::new(Shared {
        authority: authority.unwrap_or(&plan.gateway).to_owned(),
        path: plan.path.clone(),
        users: shuffled(plan.users, plan.seed),
        next: AtomicUsize::new(0),
        bar: bar(plan.users),
    });
    let started = Instant::now();
    let mut buyers = tokio::task::JoinSet::new();
    for _ in 0..plan.connections.min(plan.users) {
        buyers.spawn(Line::new(shared.clone())?.serve());
    }
    let mut all = Storm::empty()?;
    while let Some(line) = buyers.join_next().await {
        all.add(line.context("a client crashed")?)?;
    }
    all.duration = started.elapsed();
    shared.bar.finish_and_clear();
    Ok(all)
}

/// Hidden by itself when standard error is no terminal.
fn bar(users: u32) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "storm  {bar:40} {pos}/{len} buyers  {per_sec}  {elapsed} (rest {eta})",
    );
    let bar = ProgressBar::new(users.into());
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// One connection and the buyers that use it, one after another.
struct Line {
    shared: Arc<Shared>,
    connection: Option<Connection>,
    seen: Storm,
}

impl Line {
    fn new(shared: Arc<Shared>) -> Result<Self> {
        Ok(Self {
            shared,
            connection: None,
            seen: Storm::empty()?,
        })
    }

    async fn serve(mut self) -> Storm {
        loop {
            let next = self.shared.next.fetch_add(1, Ordering::Relaxed);
            let Some(&user) = self.shared.users.get(next) else {
                return self.seen;
            };
            self.buy(user).await;
            self.shared.bar.inc(1);
        }
    }

    /// One buyer, with retries.
    async fn buy(&mut self, user: u32) {
        let user = format!("user-{user}");
        for _ in 0..TRIES_MAX {
            let wait = match self.exchange(&user).await {
                Ok(answer) if answer.status == 503 => retry_after(&answer),
                Ok(_) => return,
                Err(_) => {
                    self.connection = None;
                    self.seen.broken += 1;
                    RETRY_AFTER_BREAK
                }
            };
            tokio::time::sleep(wait).await;
        }
        self.seen.gave_up += 1;
    }

    async fn exchange(&mut self, user: &str) -> Result<Response> {
        self.seen.requests += 1;
        let started = Instant::now();
        let answer = tokio::time::timeout(EXCHANGE_LIMIT, self.ask(user)).await??;
        self.seen.count(&answer, started.elapsed());
        Ok(answer)
    }

    async fn ask(&mut self, user: &str) -> Result<Response> {
        let mut connection = match self.connection.take() {
            Some(connection) if !connection.is_closed() => connection,
            _ => Connection::open(&self.shared.authority).await?,
        };
        let headers = [("x-user-id", user)];
        let answer = connection
            .send(Method::POST, &self.shared.path, &headers, "")
            .await?;
        self.connection = Some(connection);
        Ok(answer)
    }
}

/// What a 503 asks for, within reason.
fn retry_after(answer: &Response) -> Duration {
    let seconds = answer
        .header("retry-after")
        .and_then(|value| value.parse().ok());
    Duration::from_secs(seconds.unwrap_or(1)).min(RETRY_AFTER_MAX)
}

/// `0..users` in an order that `seed` chooses (Fisher and Yates).
fn shuffled(users: u32, seed: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..users).collect();
    let mut state = seed;
    for last in (1..order.len()).rev() {
        let chosen = split_mix(&mut state) % (last as u64 + 1);
        order.swap(last, chosen as usize);
    }
    order
}

/// SplitMix64: enough randomness for an order of buyers, and the same everywhere.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    #[test]
    fn a_seed_gives_one_order_of_all_buyers() {
        let order = shuffled(1000, 7);
        assert_eq!(order, shuffled(1000, 7));
        assert_ne!(order, shuffled(1000, 8));
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..1000));
    }

    /// Answers the first request of each connection with 503, the second with 201, and
    /// closes at the third.
    async fn flaky(mut stream: TcpStream) {
        const ANSWERS: [&str; 2] = [
            "HTTP/1.1 503 x\r\nretry-after: 0\r\nx-weir-verdict: unavailable\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 201 x\r\nx-weir-verdict: granted\r\ncontent-length: 0\r\n\r\n",
        ];
        let mut buffer = [0; 4096];
        for answer in ANSWERS {
            if stream.read(&mut buffer).await.unwrap_or(0) == 0 {
                return;
            }
            stream.write_all(answer.as_bytes()).await.ok();
        }
        _ = stream.read(&mut buffer).await.unwrap_or(0);
    }

    #[tokio::test]
    async fn buyers_retry_after_503_and_broken_connections_and_all_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gateway = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(flaky(stream));
            }
        });
        let plan = Plan {
            gateway,
            path: "/".to_owned(),
            users: 10,
            connections: 2,
            seed: 1,
        };
        let storm = run(&plan).await.unwrap();
        assert_eq!(storm.statuses.get(&201), Some(&10));
        assert_eq!(storm.verdicts.get("granted"), Some(&10));
        assert_eq!(storm.statuses.get(&503), Some(&10));
        assert_eq!(storm.gave_up, 0);
        assert_eq!(storm.requests, 20 + storm.broken);
        assert_eq!(storm.latency_us.len(), 20);
    }
}
