//! Sales with many buyers. Tests assert the number of Redis reads. Latencies of other buyers are only printed, because
//! they depend on the machine:
//!
//! `WEIR_BUYERS=500000 cargo test --workspace --test e2e -- --ignored --nocapture large_sales`

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufStream};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep};
use weir_stack::Stack;
use weir_stack::envoy::{GATE, set};
use weir_stack::http::{Connection, Method};
use weir_tests::{buy, fill, until, users};

const SHARDS: u32 = 16;

/// Orders per window, at a fixed interval, and the number of windows.
const SAMPLES: usize = 200;
const PERIOD: Duration = Duration::from_millis(40);
const WINDOWS: usize = 5;

/// The wait until the reconciler has processed all changes.
const REST: Duration = Duration::from_secs(20);

/// The maximum number of collection members read at once: a page of a scan, or the users of one batch of claims.
const MEMBERS_MAX: u64 = 1_000;

/// No command of a sale's gateways and origin reads as many collection members at once as the sale has buyers.
#[tokio::test(flavor = "multi_thread")]
async fn no_redis_call_reads_all_buyers_at_once() -> Result<()> {
    const BUYERS: usize = 20_000;
    let mut stack = Stack::builder()
        .workers(1)
        .key_prefix("walk")
        .start()
        .await?;
    stack.make_sale("big", BUYERS as u64 + 100, 2).await?;
    fill(&mut stack, "big", 2, &users(0..BUYERS)).await?;
    stack.wait_until_known("big").await?;

    let watch = Watch::start(stack.redis_url()).await?;
    for n in 0..5 {
        let answer = buy(&stack, "big", &format!("late-{n}")).await?;
        ensure!(answer.status == 201, "{answer:?}");
    }
    let audit = stack.admin(Method::GET, "/sales/big/audit", "", 200);
    audit.await?;
    // A sum that differs from SQL makes the origin scan all users of the shard.
    let mut connection = weir_stack::redis::connect(stack.redis_url()).await?;
    let sums = "walk:{big:0}:sums";
    let wrong = with_another_checksum(&connection.get::<_, String>(sums).await?)?;
    let () = connection.set(sums, &wrong).await?;
    until("the sums are right again", async || {
        let now: Option<String> = connection.clone().get(sums).await.ok();
        now.is_some_and(|now| checksum(&now) != checksum(&wrong))
    })
    .await?;

    let calls = watch.stop();
    let read: Vec<u64> = members_read(&mut connection, &calls).await?;
    for (read, call) in read.iter().zip(&calls) {
        ensure!(*read <= MEMBERS_MAX, "{read} members: {call:?}");
    }
    // The users of that shard were scanned, so the test counted the relevant reads.
    ensure!(read.iter().sum::<u64>() >= BUYERS as u64 / 2, "{read:?}");
    Ok(())
}

fn checksum(sums: &str) -> Option<&str> {
    sums.rsplit(' ').next()
}

fn with_another_checksum(sums: &str) -> Result<String> {
    let (others, checksum) = sums.rsplit_once(' ').context("no sums")?;
    Ok(format!("{others} {}", checksum.parse::<u64>()? ^ 1))
}

/// Records the commands that Redis runs atomically: one command, or a script call with its commands.
#[derive(Debug)]
struct Watch {
    calls: Arc<Mutex<Vec<Commands>>>,
    task: JoinHandle<()>,
}

/// Commands that run atomically, each as its words.
type Commands = Vec<Vec<String>>;

impl Watch {
    async fn start(redis_url: &str) -> Result<Self> {
        let address = redis_url.trim_start_matches("redis://");
        let mut connection = BufStream::new(TcpStream::connect(address).await?);
        connection.write_all(b"MONITOR\r\n").await?;
        connection.flush().await?;
        let mut lines = connection.lines();
        let first = lines.next_line().await?;
        ensure!(first.as_deref() == Some("+OK"), "{first:?}");
        let calls = Arc::<Mutex<Vec<Commands>>>::default();
        let reply = Arc::clone(&calls);
        let task = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let mut calls = reply.lock().unwrap_or_else(PoisonError::into_inner);
                add_command(&mut calls, &line);
            }
        });
        Ok(Self { calls, task })
    }

    fn stop(self) -> Vec<Commands> {
        self.task.abort();
        std::mem::take(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Parses `<time> [<database> <client>] "<word>" "<word>" …`; the client of a script is `lua`. A script's commands
/// immediately follow its call.
fn add_command(calls: &mut Vec<Commands>, line: &str) {
    let Some((head, words)) = line.split_once("] ") else {
        return;
    };
    let words = words_of(words);
    match calls.last_mut() {
        Some(call) if head.ends_with(" lua") => call.push(words),
        _ => calls.push(vec![words]),
    }
}

/// Only keys and numbers matter, which contain no quotes; other bytes may be unescaped incorrectly.
fn words_of(quoted: &str) -> Vec<String> {
    let inner = quoted.trim_matches('"');
    inner.split("\" \"").map(str::to_owned).collect()
}

/// The number of collection members that each call read: a complete read counts with the collection's current size.
async fn members_read(
    connection: &mut MultiplexedConnection,
    calls: &[Commands],
) -> Result<Vec<u64>> {
    let mut sizes = BTreeMap::new();
    let mut read = vec![];
    for call in calls {
        let mut members = 0;
        for words in call {
            members += match words[0].to_lowercase().as_str() {
                "hgetall" | "hkeys" | "hvals" | "hscan" => {
                    size(connection, &mut sizes, "HLEN", words).await?
                }
                "smembers" | "sscan" => size(connection, &mut sizes, "SCARD", words).await?,
                "lrange" => size(connection, &mut sizes, "LLEN", words).await?,
                // With a limit, or with an index range.
                command if command.starts_with('z') && command.contains("range") => match words
                    .iter()
                    .position(|word| word.eq_ignore_ascii_case("limit"))
                {
                    Some(at) => words.get(at + 2).context("no limit")?.parse()?,
                    None => size(connection, &mut sizes, "ZCARD", words).await?,
                },
                "sort" | "keys" => bail!("{words:?} reads whatever there is"),
                // Each word may be a member.
                _ => words.len() as u64,
            };
        }
        read.push(members);
    }
    Ok(read)
}

async fn size(
    connection: &mut MultiplexedConnection,
    sizes: &mut BTreeMap<String, u64>,
    command: &str,
    words: &[String],
) -> Result<u64> {
    let key = words.get(1).context("a command without a key")?;
    if let Some(size) = sizes.get(key) {
        return Ok(*size);
    }
    let size = ::redis::cmd(command).arg(key).query_async(connection).await;
    let size = size.with_context(|| format!("{words:?}"))?;
    sizes.insert(key.clone(), size);
    Ok(size)
}

/// Latencies of buyers next to another sale: first without buyers, then with many buyers at rest. Also measures how
/// long the admin waits for its status.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn order_latency_is_measured_while_a_large_sale_is_idle() -> Result<()> {
    let buyers: usize = std::env::var("WEIR_BUYERS").map_or(Ok(500_000), |text| text.parse())?;
    let mut stack = Stack::builder()
        .workers(1)
        .key_prefix("large")
        .release_origin()
        .edit_config(|config| {
            // All requests come from one address.
            let rate = json!({ "rate": 1_000_000, "per": "1s", "burst": 1_000_000 });
            config.edit_filter(GATE, |json| set(json, "/limits/address", rate))
        })
        .start()
        .await?;
    stack.open_sale("big", buyers as u64 + 1, SHARDS).await?;
    stack.open_sale("small", 100_000, SHARDS).await?;
    sleep(REST).await;
    let empty = windows(&stack, "empty").await?;

    let started = Instant::now();
    let all = users(0..buyers);
    fill(&mut stack, "big", SHARDS, &all).await?;
    println!("{buyers} orders are in Redis after {:?}", started.elapsed());
    stack.wait_until_known("small").await?;
    sleep(REST).await;
    let resting = windows(&stack, "resting").await?;
    println!(
        "p99 beside {buyers} resting buyers ÷ beside none: {:.2} (medians of {WINDOWS} windows)",
        resting / empty
    );

    let mut views = vec![];
    for _ in 0..21 {
        let requested = Instant::now();
        stack.admin(Method::GET, "/sales/big", "", 200).await?;
        views.push(requested.elapsed().as_secs_f64() * 1_000.0);
    }
    println!("GET /sales/big: {:.1} ms (median of 21)", median(views));
    let mut connection = weir_stack::redis::connect(stack.redis_url()).await?;
    let scripts: String = ::redis::cmd("LATENCY")
        .arg(&["HISTOGRAM", "eval", "evalsha"])
        .query_async::<::redis::Value>(&mut connection)
        .await
        .map(|histogram| format!("{histogram:?}"))?;
    println!("scripts, by their longest times: {scripts}");
    println!("the largest key: {}", largest_key(&mut connection).await?);
    Ok(())
}

/// The median of the windows' p99, in milliseconds.
async fn windows(stack: &Stack, name: &str) -> Result<f64> {
    let mut p99s = vec![];
    for window in 0..WINDOWS {
        let mut times = orders(stack, &format!("{name}-{window}")).await?;
        times.sort_by(f64::total_cmp);
        let at = |permille: usize| times[times.len() * permille / 1_000];
        println!("{name}: p50 {:.2} ms, p99 {:.2} ms", at(500), at(990));
        p99s.push(at(990));
    }
    Ok(median(p99s))
}

/// The latency of each order from the small sale, from its due time.
async fn orders(stack: &Stack, name: &str) -> Result<Vec<f64>> {
    let mut connection = Connection::open(&stack.gateway_authority()).await?;
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut times = Vec::with_capacity(SAMPLES);
    for n in 0..SAMPLES {
        let due = ticks.tick().await;
        let user = format!("{name}-{n}");
        let headers = [("x-user-id", user.as_str())];
        let path = "/sales/small/orders";
        let answer = connection.send(Method::POST, path, &headers, "").await?;
        ensure!(answer.status == 201, "{answer:?}");
        times.push(due.elapsed().as_secs_f64() * 1_000.0);
    }
    Ok(times)
}

/// The largest key of the large sale: its name and bytes.
async fn largest_key(connection: &mut MultiplexedConnection) -> Result<String> {
    let (mut cursor, mut largest) = (0_u64, (0_u64, String::new()));
    loop {
        let mut scan = ::redis::cmd("SCAN");
        scan.arg(cursor)
            .arg("MATCH")
            .arg("large:{big:*")
            .arg("COUNT")
            .arg(1_000);
        let (next, keys): (u64, Vec<String>) = scan.query_async(connection).await?;
        for key in keys {
            let mut usage = ::redis::cmd("MEMORY");
            let bytes: u64 = usage.arg("USAGE").arg(&key).query_async(connection).await?;
            largest = largest.max((bytes, key));
        }
        cursor = next;
        if cursor == 0 {
            return Ok(format!("{} with {} bytes", largest.1, largest.0));
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
